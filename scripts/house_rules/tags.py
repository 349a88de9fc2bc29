# SPDX-License-Identifier: Apache-2.0
"""
Ordering tags: [X1] is defined once, in the list below the word "Ordering" of a file's opening comment, and stands at
each of its ends. docs/internals/orderings.md is the page of all of them.
"""
import collections
import re
import textwrap

from .tree import Finding, rule

PAGE = "docs/internals/orderings.md"
TAG = re.compile(r"\[([A-Z]\d+)\]")
DEFINED = re.compile(r"\s*\[([A-Z]\d+)\]\s*(.*)$")
INTRODUCTION = """\
# Orderings

Each ordering tag of the code: what it says, the file that defines it, and its ends. A change of one end is a
change of the pair. `scripts/house --orderings` prints this page; `scripts/house tags` lists what is wrong with
the tags.
"""


Definition = collections.namedtuple("Definition", "path line words")


def definitions_of(source):
    """(tag, definition) of what the Ordering lists of a file define."""
    found = []
    for comment in source.comments:
        listed, current = False, None
        for number, line in enumerate(comment.lines, comment.line):
            match = DEFINED.match(line)
            if re.search(r"\bOrdering\b", line) and not match:
                listed, current = True, None
            elif listed and match:
                current = Definition(source.path, number, match.group(2).split())
                # "[T4] dirty: see bitmap.h." sends a reader on.
                if not re.search(r": see \w+\.h\.?$", line):
                    found.append((match.group(1), current))
            elif current and (not line.strip() or re.match(r"\s*[A-Z]\w+(:|$)", line)):
                # A blank line ends the list, and a heading an entry.
                listed, current = bool(line.strip()), None
            elif current:
                current.words.extend(line.split())
    return found


def place_of(source, line):
    """The function, struct or macro that a line belongs to, or stands directly above."""
    lines = source.code.split("\n")
    for function in source.functions:
        if line <= function.end and not "".join(lines[line - 1:function.line - 1]).strip():
            return function.name
    for above in range(line - 1, -1, -1):
        match = re.match(r"(?:typedef )?(?:struct|union|enum) (\w+) \{", lines[above])
        if match:
            return f"struct {match.group(1)}"
        if lines[above].startswith("}") and above != line - 1:
            break
    match = re.search(r"(\w+)\s*\(|#define (\w+)|(struct \w+)", " ".join(map(str.strip, lines[line - 1:line + 3])))
    return next(filter(None, match.groups())) if match else "the file"


def collect(tree):
    """Definitions by tag, and ends by tag as (path, line, place)."""
    definitions, ends = {}, {}
    for source in tree.sources("src", "include", "apps"):
        for tag, definition in definitions_of(source):
            definitions.setdefault(tag, []).append(definition)
        for comment in source.comments:
            # What opens a file, or lists orderings, tells of them. An end stands at code.
            if comment is not source.opening and not any("Ordering" in line for line in comment.lines):
                for number, line in enumerate(comment.lines, comment.line):
                    for tag in TAG.findall(line):
                        ends.setdefault(tag, []).append((source.path, number, place_of(source, number)))
    return definitions, ends


@rule("tags", "an ordering tag of src, include and apps has one definition, and two ends or more")
def tags(tree, table):
    definitions, ends = collect(tree)
    found = [Finding(*ends[tag][0][:2], f"[{tag}] is defined nowhere: add it to the Ordering list of a file")
             for tag in sorted(ends.keys() - definitions.keys())]
    for tag, (first, *others) in sorted(definitions.items()):
        found += [Finding(other.path, other.line, f"[{tag}] is another ordering in {first.path}: rename one of them")
                  for other in others]
        if len(ends.get(tag, [])) < 2:
            found.append(Finding(first.path, first.line, f"[{tag}] lacks an end in the code: mark both sides"))
    return found


def page(tree):
    """The text of docs/internals/orderings.md."""
    definitions, ends = collect(tree)
    sections = [INTRODUCTION]
    for tag in sorted(definitions.keys() | ends.keys(), key=lambda tag: (tag[0], int(tag[1:]))):
        sections.append(f"## {tag}\n")
        sections += [wrapped(f"`{definition.path}`: {' '.join(definition.words)}") + "\n"
                     for definition in definitions.get(tag, [])]
        places = {}
        for path, _, place in ends.get(tag, []):
            places.setdefault(path, {})[f"`{place}`"] = True
        if places:
            sections.append("\n".join(wrapped(f"- `{path}`: {', '.join(names)}", "  ")
                                      for path, names in sorted(places.items())) + "\n")
    return "\n".join(sections)


def wrapped(text, indent=""):
    return textwrap.fill(text.replace("*", "\\*"), 100, subsequent_indent=indent, break_long_words=False,
                         break_on_hyphens=False)


@rule("orderings-page", f"{PAGE} is what scripts/house --orderings prints")
def orderings_page(tree, table):
    if PAGE in tree.known and tree.text(PAGE) == page(tree):
        return []
    return [Finding(PAGE, 0, f"it is not what the tags of the code say: scripts/house --orderings >{PAGE}")]
