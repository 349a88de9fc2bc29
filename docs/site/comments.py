#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Comments of include/weir as Doxygen reads them: comments.py HEADER, to stdout. The headers are written for readers of the
headers; this is Doxygen's INPUT_FILTER, so that they need no marks for it.
"""
import re
import sys
import textwrap

FACTS = r"(Threads|Progress|Allocates|System calls):"


def escaped(text):
    """Plain text, in which Doxygen is to find nothing of its own but what is in backquotes."""
    parts = re.split(r"(`[^`]*`)", text)
    for i in range(0, len(parts), 2):
        part = re.sub(r"([\\@#%<>])", r"\\\1", parts[i])
        part = re.sub(r"(?<!\w)\*(\w+)", r"`*\1`", part)
        parts[i] = re.sub(r"\b(weir_\w+(?:\(\))?|WEIR_\w+|weirpp::\w+(?:::\w+)*)", r"`\1`", part)
    return re.sub(rf"(^|[.)] ){FACTS}", r"\1__\2:__", "".join(parts))


def lines_of(comment):
    """The text of a comment: its lines without their stars."""
    inner = comment.removeprefix("/*").removesuffix("*/").strip("\n")
    lines = [re.sub(r"^ *\* ?", "", line).rstrip() for line in inner.split("\n")]
    return [line.strip() for line in lines] if len(lines) == 1 else lines


def verbatim(lines):
    return ["\\verbatim", textwrap.dedent("\n".join(lines)).strip("\n"), "\\endverbatim", ""]


def markdown(lines):
    """Paragraphs; `name  text` as a list; what is indented as it is."""
    out, in_list, literal = [], False, []
    for line in [*lines, ""]:
        indent = len(line) - len(line.lstrip())
        if literal and line and indent < 2:
            out += verbatim(literal)
            literal = []
        defined = re.match(r"(\S+(?:, \S+)*) {2,}(\S.*)", line) or re.match(r"(-E[A-Z]+): (\S.*)", line)
        if defined:
            out += [*([] if in_list else [""]), f"- `{defined[1]}`: {escaped(defined[2])}"]
            in_list = True
        elif in_list and (not line or indent >= 2):
            out += ["  " + escaped(line.strip())] if line else []
        elif literal or (line and indent >= 2):
            literal.append(line)
        else:
            out += ["" if in_list or re.match(FACTS, line) else None, escaped(line)]
            in_list = False
    if any(literal):
        out += verbatim(literal)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(line for line in out if line is not None)).strip("\n")


def converted(text):
    """The header with Doxygen's comments."""
    first = True

    def convert(match):
        nonlocal first
        comment, before = match[0], text[text.rfind("\n", 0, match.start()) + 1:match.start()]
        after = text[match.end():match.end() + 2]
        if "SPDX" in comment or len(before) - len(before.lstrip()) > 4 or before.rstrip().endswith("\\"):
            return comment
        if before.strip():
            return comment if before.startswith("#") else f"/**< {markdown(lines_of(comment))} */"
        floating = first or after == "\n\n"
        first = False
        return ("/** \\file\n\n" if floating else "/**\n") + markdown(lines_of(comment)) + "\n*/"

    return re.sub(r"/\*.*?\*/", convert, text, flags=re.DOTALL)


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as header:
        sys.stdout.write(converted(header.read()))
