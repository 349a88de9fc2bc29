# SPDX-License-Identifier: Apache-2.0
"""Names say where to look: prefixes, one meaning for a name, the words of the glossary, nothing unused."""
import os
import re

from .tree import Finding, rule, WORD

NOUNS = re.compile(r"\bNames: ((?:\w+_(?:,\s*)?)+)")


def nouns(source):
    """The prefixes that a comment such as "Names: slot_, slots_" declares, with its line."""
    return [(noun, comment.line) for comment in source.comments
            for match in NOUNS.finditer(" ".join(line.strip() for line in comment.lines))
            for noun in re.findall(r"\w+_", match.group(1))]


@rule("prefixes", "a function of src that is not static begins with its file's name, or a noun of \"Names: x_, y_\"")
def prefixes(tree, table):
    found, owners = [], {}
    for source in tree.sources("src"):
        for noun, line in nouns(source):
            stem = os.path.splitext(source.path)[0]
            if owners.setdefault(noun, stem) != stem:
                found.append(Finding(source.path, line, f"{noun} is a noun of {owners[noun]} as well: one file a noun"))
    for source in tree.sources("src"):
        if source.is_header:
            continue
        stem = os.path.splitext(source.path)[0]
        good = [f"{source.stem}_"] + [noun for noun, owner in owners.items() if owner == stem]
        for function in source.functions:
            if not function.static and not function.name.startswith(("weir_", *good)) and function.name != source.stem:
                found.append(Finding(source.path, function.line, f"{function.name} has not its file's prefix: rename or "
                                     f"move it, or declare its noun in {source.stem}.h: /* Names: x_ */"))
    return found


@rule("statics", "a static function's name is used in one file of src")
def statics(tree, table):
    places = {}
    for source in tree.sources("src"):
        for function in source.functions:
            if function.static and not source.is_header:
                places.setdefault(function.name, []).append((source.path, function.line))
    return [Finding(*uses[0], f"static {name} is in {', '.join(path for path, _ in uses[1:])} as well: name each for what "
                    "it does") for name, uses in sorted(places.items()) if len(uses) > 1]


@rule("basenames", "no two folders of src and include have source files of one base name")
def basenames(tree, table):
    places = {}
    for source in tree.sources("src"):
        places.setdefault(source.stem, {}).setdefault(source.folder, source.path)
    # The public header stands apart from its .c file.
    public = {source.name: source.path for source in tree.sources("include")}
    return [Finding(path, 1, f"{next(iter(folders.values()))} has this base name as well: rename one")
            for folders in places.values() for path in list(folders.values())[1:]] + \
        [Finding(source.path, 1, f"{public[source.name]} has this base name as well: rename one")
         for source in tree.sources("src") if source.name in public]


@rule("words", "no identifier, file name or comment has an old word of [words]")
def words(tree, table):
    entries = []
    for old, value in table["words"].items():
        new, _, where = value.partition("@")
        entries.append((old, new.strip(), tuple(f"{place.rstrip('/')}/" for place in where.split())))
    if not entries:
        return []
    pattern = re.compile("(?<![A-Za-z0-9])(" + "|".join(re.escape(old) for old, _, _ in entries) + ")(?![A-Za-z0-9])", re.I)
    meaning = {old.lower(): (new, where) for old, new, where in entries}
    found = []

    def judge(path, line, text, what):
        for match in pattern.finditer(text):
            new, where = meaning[match.group(1).lower()]
            if not where or path.startswith(where):
                found.append(Finding(path, line, f"{what} \"{match.group(1)}\": the word is {new}"))

    for source in tree.sources("src", "include", "apps", "bench", "tests"):
        judge(source.path, 1, source.stem, "the file's name has")
        texts = source.code.split("\n")
        for number, line in enumerate(texts, 1):
            judge(source.path, number, line, "the code has")
        for comment in source.comments:
            for number, line in enumerate(comment.lines, comment.line):
                judge(source.path, number, line, "the comment has")
    return found


@rule("unused", "every macro and function of src has a use outside of tests, or a reason in [unused]")
def unused(tree, table):
    reasons = dict(table["unused"])
    uses = {}
    for source in tree.sources("src", "include", "apps", "bench"):
        for word in WORD.findall(source.code):
            uses[word] = uses.get(word, 0) + 1
    in_tests = set().union(*(source.words for source in tree.sources("tests"))) if tree.sources("tests") else set()
    found, named = [], set()
    for source in tree.sources("src"):
        for macro in source.macros:
            if uses[macro.name] > 1 or macro.name in in_tests:
                continue
            named.add(macro.name)
            if macro.name not in reasons:
                found.append(Finding(source.path, macro.line, f"nothing uses {macro.name}: remove it"))
    declared = {}
    for source in tree.sources("src"):
        if source.is_header:
            for _, name, _ in source.declarations:
                declared[name] = declared.get(name, 0) + 1
    for source in tree.sources("src"):
        for function in source.functions:
            name = function.name
            if function.public or name.startswith("weir_") or (function.static and not source.is_header):
                continue
            if uses[name] > 1 + declared.get(name, 0):
                continue
            named.add(name)
            if name not in reasons:
                what = "only tests use" if name in in_tests else "nothing uses"
                found.append(Finding(source.path, function.line,
                                     f"{what} {name}: remove it, or give the reason in [unused]"))
    for name in reasons:
        if name not in named:
            found.append(Finding("scripts/house.ini", 0, f"[unused] names {name}, which is used or gone: remove the line"))
    return found
