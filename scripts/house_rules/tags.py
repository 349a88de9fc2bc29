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
STRONG = re.compile(r"\b(?:(load|store|add|or|and|exchange|cas)_(?:acquire|release|seq_cst)|fence_seq_cst|"
                    r"fence_compiler|barrier_all_threads)\(")
INTRODUCTION = """\
# Orderings

Each ordering tag of the code: what it says, the file that defines it, and its ends with their orderings. A change of
one end is a change of the pair. `scripts/house --orderings` prints this page, so that no ordering changes unseen.
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
        found += [Finding(other.path, other.line, f"[{tag}] is another ordering in {first.path}") for other in others]
        if len(ends.get(tag, [])) < 2:
            found.append(Finding(first.path, first.line, f"[{tag}] lacks an end in the code: mark both sides"))
    return found


def page(tree):
    """The text of docs/internals/orderings.md."""
    definitions, ends = collect(tree)
    strong = {(source.path, function.name): f"`{function.name}` ({', '.join(sorted(found))})"
              for source in tree.sources("src", "include", "apps") for function in source.functions
              if (found := [match.group()[:-1] for match in STRONG.finditer(function.body)])}
    untagged = strong.keys() - {end[::2] for found in ends.values() for end in found}
    ends["Without a tag"] = [(path, 0, place) for path, place in sorted(untagged)]
    sections = [INTRODUCTION]
    for tag in sorted(definitions.keys() | ends.keys(), key=lambda tag: (" " in tag, tag[0], len(tag), tag)):
        sections.append(f"## {tag}\n")
        sections += [wrapped(f"`{definition.path}`: {' '.join(definition.words)}") + "\n"
                     for definition in definitions.get(tag, [])]
        places = collections.defaultdict(dict)
        for path, _, place in ends.get(tag, []):
            places[path][strong.get((path, place), f"`{place}`")] = True
        if places:
            sections.append("\n".join(wrapped(f"- `{path}`: {', '.join(names)}", "  ")
                                      for path, names in sorted(places.items())) + "\n")
    return "\n".join(sections)


def wrapped(text, indent=""):
    whole = {"break_long_words": False, "break_on_hyphens": False}
    return textwrap.fill(text.replace("*", "\\*"), 100, subsequent_indent=indent, **whole)


@rule("orderings-page", f"{PAGE} is what scripts/house --orderings prints")
def orderings_page(tree, table):
    good = PAGE in tree.known and tree.text(PAGE) == page(tree)
    return [] if good else [Finding(PAGE, 0, f"it is not what the code says: scripts/house --orderings >{PAGE}")]
