# SPDX-License-Identifier: Apache-2.0
"""How large things are, and their form: functions, files, folders, numbers, openings, phrases."""
import os
import re

from .tree import Finding, rule

LINES_OF_FUNCTION = 60
PARAMETERS = 6
LINES_MOST = 600
LINES_AIM = 400
FILES_MOST = 20
# A define whose value is a number, or made of numbers alone.
NUMBER = re.compile(r"^(?:U?INT(?:8|16|32|64)_C|[0-9][0-9a-fA-FxXuUlL.']*|[-+*/()<>|~\s])+$")


@rule("function-lines", f"a function of src has at most {LINES_OF_FUNCTION} lines")
def function_lines(tree, table):
    return [Finding(source.path, function.line, f"{function.name} has {function.length} lines: take a part of it out")
            for source in tree.sources() for function in source.functions if function.length > LINES_OF_FUNCTION]


@rule("parameters", f"a function of src has at most {PARAMETERS} parameters")
def parameters(tree, table):
    return [Finding(source.path, function.line, f"{function.name} has {function.parameters} parameters: make a struct of "
                    "those that belong together")
            for source in tree.sources() for function in source.functions if function.parameters > PARAMETERS]


def long_files(tree, most):
    return [Finding(source.path, 1, f"{lines} lines, {most} are the most: two ideas want two files")
            for source in tree.sources("src")
            for lines in [source.text.count("\n")] if lines > most]


@rule("file-lines", f"a file of src has at most {LINES_MOST} lines")
def file_lines(tree, table):
    return long_files(tree, LINES_MOST)


@rule("file-lines-aim", f"a file of src has at most {LINES_AIM} lines")
def file_lines_aim(tree, table):
    return long_files(tree, LINES_AIM)


@rule("folder-files", f"a folder of src has at most {FILES_MOST} modules, a .c file with its header; those beyond are counted")
def folder_files(tree, table):
    folders = {}
    for source in tree.sources("src"):
        folders.setdefault(source.folder, set()).add(source.stem)
    return [Finding(folder, 0, f"{len(stems)} modules, {FILES_MOST} are the most: make a floor of a part of them",
                    len(stems) - FILES_MOST) for folder, stems in sorted(folders.items()) if len(stems) > FILES_MOST]


@rule("numbers", "a #define of a number in src has a comment beside or above it; one above a group counts for the group")
def numbers(tree, table):
    found = []
    for source in tree.sources():
        commented = {line for comment in source.comments if "SPDX" not in comment.raw
                     for line in range(comment.line, comment.end + 1)}
        lines = source.code.split("\n")
        for macro in source.macros:
            if macro.arguments or not NUMBER.match(macro.value) or not re.search(r"\d", macro.value):
                continue
            last = macro.line + macro.value.count("\n")
            first = macro.line
            while first > 1 and first not in commented and re.match(r"\s*#\s*define|.*\\$", lines[first - 2]):
                first -= 1
            if not commented & {first - 1, macro.line, last}:
                found.append(Finding(source.path, macro.line,
                                     f"{macro.name} is a number without a reason: say its unit and "
                                     "what gets worse above and below it"))
    return found


@rule("openings", "a .c file of src opens with a comment: its purpose, or \"See x.h.\"")
def openings(tree, table):
    return [Finding(source.path, 1, f"no opening comment: say what the file is for, or \"/* See {source.stem}.h. */\"")
            for source in tree.sources("src") if not source.is_header and source.opening is None]


def nested_choices(code):
    """Offsets of each ?: that stands within another one: once a statement."""
    found, levels, reported = [], [0], False
    for at, char in enumerate(code):
        if char in "([":
            levels.append(0)
        elif char in ")]":
            if len(levels) > 1:
                levels.pop()
        elif char in ";{}":
            levels, reported = [0], False
        elif char == ",":
            levels[-1] = 0
            reported = reported and any(levels)
        elif char == "?":
            if any(levels) and not reported:
                found.append(at)
                reported = True
            levels[-1] += 1
    return found


@rule("nested-choices", "no ?: of src stands within another one")
def choices(tree, table):
    return [Finding(source.path, source.plain.count("\n", 0, at) + 1,
                    "?: within ?:: write an if, or a function with returns")
            for source in tree.sources() for at in nested_choices(source.plain)]


@rule("phrases", "no file has a phrase of [phrases] outside the places where it may stand")
def phrases(tree, table):
    found = []
    for name, value in table["phrases"].items():
        pattern, where, except_for, advice = (part.strip() for part in value.split(";;"))
        for source in tree.sources():
            if source.path.startswith(tuple(where.split())) and not source.path.startswith(tuple(except_for.split())):
                found += [Finding(source.path, source.code.count("\n", 0, match.start()) + 1, f"{name}: {advice}")
                          for match in re.finditer(pattern, source.code)]
    return found


@rule("lua", "two scripts of one folder have no line in common; those that they have are counted")
def lua(tree, table):
    folders = {}
    for path in tree.matching("src/*.lua"):
        lines = (line.split("--")[0].strip() for line in tree.text(path).split("\n"))
        folders.setdefault(os.path.dirname(path), []).append((path, [line for line in lines if len(line) > 8]))
    found = []
    for scripts in folders.values():
        for at, (path, lines) in enumerate(scripts):
            for other, others in scripts[:at]:
                common = sum(min(lines.count(line), others.count(line)) for line in set(lines))
                if common:
                    found.append(Finding(path, 1,
                                         f"{common} of {len(lines)} lines stand in {other} as well: move them to a "
                                         "script that embed.py puts in front of both", common))
    return found
