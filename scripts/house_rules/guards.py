# SPDX-License-Identifier: Apache-2.0
"""
Which test guards which source: a comment near the top of a test says "Guards: src/thread/settle.c, scripts/test".

The list may go on for several lines: each but the last ends in a comma.
"""
import os
import re

from .tree import Finding, rule

NEAR_TOP = 60
TESTS = ("tests/*_test.c", "tests/*_test.cpp", "tests/*_test.py", "tests/*.pml")


def guarded(tree, test):
    """(line, path) of what a test says it guards."""
    found, more = [], False
    for number, line in enumerate(tree.text(test).split("\n")[:NEAR_TOP], 1):
        text = re.sub(r'^\s*(?:/?\*+|#|//|""")?\s*|\s*(?:\*/|""")?\s*$', "", line)
        if text.startswith("Guards: ") or more:
            text = text.removeprefix("Guards: ")
            found += [(number, path.strip().rstrip(".")) for path in text.split(",") if path.strip()]
            more = text.endswith(",")
    return found


def guards_by_path(tree):
    """The tests of each path."""
    by_path = {}
    for test in tree.matching(*TESTS):
        for _, path in guarded(tree, test):
            by_path.setdefault(path, []).append(test)
    return by_path


def twin(tree, path):
    """The .c file of a header, or None."""
    stem, extension = os.path.splitext(path)
    return f"{stem}.c" if extension == ".h" and f"{stem}.c" in tree.known else None


def tests_for(tree, path):
    """
    The tests that guard a file: for a header also those of its .c file. For a header that has no .c file, and that no
    test names, they are the tests of the files that include it.
    """
    by_path = guards_by_path(tree)
    if path in tree.matching(*TESTS):
        return [path]
    found = {*by_path.get(path, []), *by_path.get(twin(tree, path), [])}
    if not found and path.endswith(".h") and not twin(tree, path):
        for source in tree.sources("src"):
            if any(tree.resolve(source.path, name) == path for _, name, _ in source.includes):
                found.update(by_path.get(source.path, []))
    return sorted(found)


def follow_moves(tree):
    """
    Writes new paths into the "Guards:" lines for files that are gone and of which exactly one file below the same top
    folder has the name. Returns the changes as text.
    """
    changes = []
    for test in tree.matching(*TESTS):
        lines = tree.text(test).split("\n")
        for number, path in guarded(tree, test):
            top, name = path.split("/")[0], os.path.basename(path)
            same = [other for other in tree.files if other.startswith(f"{top}/") and os.path.basename(other) == name]
            if path not in tree.known and len(same) == 1:
                lines[number - 1] = re.sub(rf"(?<![\w/]){re.escape(path)}(?!\w)", same[0], lines[number - 1])
                changes.append(f"{test}:{number}: {path} is {same[0]}")
        if "\n".join(lines) != tree.text(test):
            (tree.root / test).write_text("\n".join(lines), encoding="utf-8")
    return changes


def wants_guard(tree, path):
    """Whether a file is a source: a .c file, a script, or a header with functions and no .c file of its own."""
    if path.endswith(".h"):
        return not twin(tree, path) and bool(tree.source(path).functions)
    return path.endswith((".c", ".lua", ".py"))


@rule("guards", "a test says near its top which sources it guards, \"Guards: src/thread/settle.c\", and they exist")
def tests_guard(tree, table):
    found = []
    for test in tree.matching(*TESTS):
        guards = guarded(tree, test)
        if not guards:
            found.append(Finding(test, 1, "no \"Guards:\" line: name the sources whose mistakes turn this test red"))
        found += [Finding(test, line, f"{path} does not exist: scripts/house --follow-moves, or write where it went")
                  for line, path in guards if path not in tree.known]
    return found


@rule("guarded", "a source of src is guarded by a test")
def sources_guarded(tree, table):
    by_path = guards_by_path(tree)
    return [Finding(path, 1, "no test guards this file: add it to the \"Guards:\" line of the test that would turn red")
            for path in tree.files if path.startswith("src/") and wants_guard(tree, path) and path not in by_path]
