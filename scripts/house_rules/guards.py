# SPDX-License-Identifier: Apache-2.0
"""
Which test guards which source: a comment near the top of a test says "Guards: src/thread/settle.c, scripts/test".

The list may go on for several lines: each but the last ends in a comma.
"""
import os
import re
import subprocess

from .tree import Finding, rule

NEAR_TOP = 60
TESTS = ("tests/*_test.c", "tests/*_test.cpp", "tests/*_test.py", "tests/*.pml")


def tests(tree):
    return tree.matching(*TESTS)


def guarded(tree, test):
    """(line, path) of what a test says it guards."""
    found, more = [], False
    for number, line in enumerate(tree.text(test).split("\n")[:NEAR_TOP], 1):
        text = re.sub(r"\s*\*/\s*$", "", re.sub(r"^\s*(?:/?\*+|#|//|\"\"\")?\s*", "", line)).rstrip()
        text = text.removesuffix('"""').rstrip()
        match = re.match(r"Guards: (.*)$", text)
        if match or more:
            words = match.group(1) if match else text
            found += [(number, path.strip().rstrip(".")) for path in words.split(",") if path.strip()]
            more = words.endswith(",")
    return found


def all_guards(tree):
    """The tests of each path."""
    by_path = {}
    for test in tests(tree):
        for _, path in guarded(tree, test):
            by_path.setdefault(path, []).append(test)
    return by_path


def twin(tree, path):
    """The .c file of a header, where there is one."""
    stem, extension = os.path.splitext(path)
    return f"{stem}.c" if extension == ".h" and tree.exists(f"{stem}.c") else None


def tests_for(tree, path):
    """
    The tests that guard a file: for a header those of its .c as well. For a header that has no .c file, and that no
    test names, those of the files that include it.
    """
    by_path = all_guards(tree)
    found = {*by_path.get(path, []), *by_path.get(twin(tree, path), [])}
    if not found and path.endswith(".h") and twin(tree, path) is None:
        for source in tree.sources("src"):
            if any(tree.resolve(source.path, name) == path for _, name, _ in source.includes):
                found.update(by_path.get(source.path, []))
    return sorted(found)


def renames(root):
    """Where git says that files went, {old: new}; the last move of a path counts."""
    done = subprocess.run(["git", "-C", str(root), "log", "--format=", "--name-status", "-M40%", "--diff-filter=R", "-n",
                           "400"],
                          capture_output=True, text=True)
    moved = {}
    for line in done.stdout.splitlines():
        parts = line.split("\t")
        if len(parts) == 3:
            moved.setdefault(parts[1], parts[2])
    return moved


def now_at(tree, path, moved):
    """Where a path that is gone is today, or None."""
    seen = set()
    while path not in seen and not tree.exists(path):
        seen.add(path)
        path = moved.get(path, path)
    if tree.exists(path):
        return path
    same = [other for other in tree.files if os.path.basename(other) == os.path.basename(path) and other.startswith("src/")]
    return same[0] if len(same) == 1 else None


def follow_moves(tree):
    """Writes the new paths of moved files into the Guards lines; the changes as text."""
    moved, done = renames(tree.root), []
    for test in tests(tree):
        lines = tree.text(test).split("\n")
        for number, path in guarded(tree, test):
            new = None if tree.exists(path) else now_at(tree, path, moved)
            if new:
                lines[number - 1] = re.sub(rf"(?<![\w/]){re.escape(path)}(?![\w/])", new, lines[number - 1])
                done.append(f"{test}:{number}: {path} is {new}")
        if "\n".join(lines) != tree.text(test):
            (tree.root / test).write_text("\n".join(lines), encoding="utf-8")
    return done


def wants_guard(tree, path):
    """Sources: .c files, scripts, and headers with functions and no .c of their own."""
    if path.endswith((".c", ".lua", ".py")):
        return True
    return path.endswith(".h") and twin(tree, path) is None and bool(tree.source(path).functions)


@rule("tests-say", "a test says near its top which sources it guards: \"Guards: src/thread/settle.c\"")
def tests_say(tree, table):
    return [Finding(test, 1, "no \"Guards:\" line: name the sources whose mistakes turn this test red")
            for test in tests(tree) if not guarded(tree, test)]


@rule("guard-paths", "what a test says it guards exists")
def guard_paths(tree, table):
    return [Finding(test, line, f"{path} does not exist: scripts/house --follow-moves, or write where it went")
            for test in tests(tree) for line, path in guarded(tree, test) if not tree.exists(path)]


@rule("guarded", "a source of src is guarded by a test")
def sources_guarded(tree, table):
    by_path = all_guards(tree)
    return [Finding(path, 1, "no test guards this file: add it to the \"Guards:\" line of the test that would turn red")
            for path in tree.files if path.startswith("src/") and wants_guard(tree, path) and path not in by_path]
