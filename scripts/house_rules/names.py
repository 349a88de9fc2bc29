# SPDX-License-Identifier: Apache-2.0
"""Names say where to look, and what they name exists: prefixes, files, unused functions, the table of weir.h."""
import collections
import os
import re

from .tree import Finding, line_at, rule

PUBLIC = "include/weir/weir.h"
# What a comment such as "Names: slot_, slots_" declares.
NOUNS = re.compile(r"\bNames: ((?:\w+_(?:,\s*)?)+)")
MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", re.M)
FILE_NAME = re.compile(r"(?<![\w/.<-])((?:\w+/)*\w+\.(?:c|h|lua))\b(?!>)")


@rule("prefixes", "a function of src that is not static begins with its file's name, or a noun of \"Names: x_, y_\"")
def prefixes(tree, table):
    found, owners = [], {}
    for source in tree.sources("src"):
        for comment in source.comments:
            declared = NOUNS.search(" ".join(line.strip() for line in comment.lines))
            for noun in re.findall(r"\w+_", declared.group(1) if declared else ""):
                if owners.setdefault(noun, source.module) != source.module:
                    found.append(Finding(source.path, comment.line, f"{noun} is a noun of {owners[noun]} as well"))
    for source in tree.sources("src"):
        good = ("weir_", f"{source.stem}_", *(noun for noun, owner in owners.items() if owner == source.module))
        found += [Finding(source.path, function.line, f"{function.name} does not begin with its file's name: rename or "
                          f"move it, or declare its noun in {source.stem}.h: /* Names: x_ */")
                  for function in source.functions if not (source.is_header or function.static)
                  and function.name != source.stem and not function.name.startswith(good)]
    return found


@rule("basenames", "no two modules of src have one name, and no header of src has the name of a public one")
def basenames(tree, table):
    first = {os.path.basename(source.path): source for source in tree.sources("include")}
    others = [(source, first.get(os.path.basename(source.path)) or first.setdefault(source.stem, source))
              for source in tree.sources("src")]
    return [Finding(source.path, 1, f"{other.path} has this name as well: rename one")
            for source, other in others if other.module != source.module]


@rule("file-names", "a file that a comment of src, include and apps names exists")
def file_names(tree, table):
    # "redis/internal.h" is right if some path ends in it.
    ends = {path[at:] for path in tree.files for at in [0, *(match.end() for match in re.finditer("/", path))]}
    return [Finding(source.path, number, f"there is no {name}: name the file that has it now")
            for source in tree.sources("src", "include", "apps") for comment in source.comments
            for number, line in enumerate(comment.lines, comment.line)
            for name in FILE_NAME.findall(line) if name not in ends]


@rule("unused", "every macro and function of src and apps has a use outside of tests, or a reason in [unused]")
def unused(tree, table):
    uses, in_tests, excused, found = collections.Counter(), set(), set(), []
    for source in tree.sources("src", "include", "apps", "bench"):
        uses.update(source.words)
    for source in tree.sources("tests"):
        in_tests.update(source.words)
    product = tree.sources("src", "apps")
    declared = collections.Counter(name for source in product if source.is_header for _, name, _ in source.declarations)
    for source in product:
        names = [(line_at(source.code, match.start()), match.group(1)) for match in MACRO.finditer(source.code)
                 if uses[match.group(1)] == 1 and match.group(1) not in in_tests]
        names += [(function.line, function.name) for function in source.functions
                  if uses[function.name] <= 1 + declared[function.name] and not function.name.startswith("weir_")
                  and (source.is_header or not function.static)]
        for line, name in names:
            excused.add(name)
            if name not in table["unused"]:
                what = "only tests use" if name in in_tests else "nothing uses"
                found.append(Finding(source.path, line, f"{what} {name}: remove it, or give the reason in [unused]"))
    return found + [Finding("scripts/house.ini", 0, f"[unused] names {name}, which is used or gone: remove the line")
                    for name in table["unused"] if name not in excused]


@rule("synchronization", "the functions of weir.h are those of its synchronization table")
def synchronization(tree, table):
    if PUBLIC not in tree.known:
        return []
    rows = re.search(r"(?m)^ \*\s+call {2,}may run beside\n((?: \*[ \t]+\S.*\n)*)", tree.text(PUBLIC))
    listed = {name for row in (rows.group(1).split("\n") if rows else ())
              for name in re.findall(r"\bweir_\w+", re.split(r"\s{2,}", row.lstrip(" *"))[0])}
    declared = {name: line for line, name, text in tree.source(PUBLIC).declarations if text.startswith("WEIR_API")}
    return [Finding(PUBLIC, declared.get(name, 1), f"{name} is declared or in the synchronization table, and not both: "
                    "say there what each function may run beside") for name in sorted(declared.keys() ^ listed)]
