# SPDX-License-Identifier: Apache-2.0
"""
Ordering tags: [X1] is defined once, in the list below the word "Ordering" of a file's opening comment, and stands at
each of its ends. The page of all of them: docs/internals/orderings.md.
"""
import re

from .tree import Finding, rule

PAGE = "docs/internals/orderings.md"
TAG = re.compile(r"\[([A-Z]\d+)\]")
DEFINED = re.compile(r"^(\s*)\[([A-Z]\d+)\]\s*(.*)$")
# "[S1] and [S2] in settle.c", "process.c [P1]" are references.
IN_FILE = re.compile(r"((?:\[[A-Z]\d+\](?:,? (?:and|to) |, )?)+) (?:in|of) (\w+\.[ch])\b")


class Definition:
    def __init__(self, tag, path, line, indent):
        self.tag, self.path, self.line, self.indent = tag, path, line, indent
        self.words, self.broken = [], None


class End:
    def __init__(self, tag, path, line, place):
        self.tag, self.path, self.line, self.place = tag, path, line, place


def definitions_of(source):
    """What the Ordering lists of a file define."""
    for comment in source.comments:
        listed, current = False, None
        for number, line in enumerate(comment.lines, comment.line):
            match = DEFINED.match(line)
            if re.search(r"\bOrdering\b", line) and not match:
                listed, current = True, None
            elif listed and match:
                current = Definition(match.group(2), source.path, number, len(match.group(1)))
                current.words += match.group(3).split()
                # "[T4] dirty: see bitmap.h." sends a reader on.
                if not re.search(r": see \w+\.h\.?$", line):
                    yield current
            elif current and (not line.strip() or re.match(r"\s*[A-Z]\w+(:|$)", line)):
                # A blank line ends an entry; a heading ends the list.
                listed, current = listed and not line.strip(), None
            elif current:
                current.words += line.split()
                if len(line) - len(line.lstrip()) <= current.indent and current.broken is None:
                    current.broken = number
        # Entries are made as they are met: their words grow while this goes on.


def place_of(source, line):
    """The function, struct or file that a line belongs to."""
    function = source.function_at(line)
    if function:
        return function.name
    lines = source.code.split("\n")
    for above in range(line - 1, -1, -1):
        match = re.match(r"(?:typedef )?(?:struct|union|enum) (\w+) \{", lines[above])
        if match:
            return f"struct {match.group(1)}"
        if lines[above].startswith("}") and above != line - 1:
            break
    below = " ".join(text.strip() for text in lines[line - 1:line + 3])
    match = re.search(r"(\w+)\s*\(|#define (\w+)|(struct \w+)", below)
    return next(group for group in match.groups() if group) if match else "the file"


def collect(tree):
    """Definitions by tag, ends by tag, references to files: [(tag, named file, path, line)]."""
    definitions, ends, references = {}, {}, []
    for source in tree.sources():
        own = list(definitions_of(source))
        for definition in own:
            definitions.setdefault(definition.tag, []).append(definition)
        for comment in source.comments:
            text = re.sub(r"\s+", " ", " ".join(comment.lines))
            for match in IN_FILE.finditer(text):
                references += [(tag, match.group(2), source.path, comment.line) for tag in TAG.findall(match.group(1))]
            # What opens a file, or lists orderings, tells of them; an end stands at code.
            if comment is source.opening or any("Ordering" in line for line in comment.lines):
                continue
            for number, line in enumerate(comment.lines, comment.line):
                for tag in TAG.findall(line):
                    ends.setdefault(tag, []).append(End(tag, source.path, number, place_of(source, number)))
    return definitions, ends, references


@rule("tags", "an ordering tag has one definition, and two ends or more; a list of them is indented as one")
def tags(tree, table):
    definitions, ends, references = collect(tree)
    found = []
    for tag in sorted(set(definitions) | set(ends)):
        places = definitions.get(tag, [])
        at = ends.get(tag, [])
        if not places:
            found.append(Finding(at[0].path, at[0].line,
                                 f"[{tag}] is defined nowhere: add it to the Ordering list of a file"))
        for other in places[1:]:
            found.append(Finding(other.path, other.line,
                                 f"[{tag}] is another ordering in {places[0].path}: give one of them "
                                 "a tag of its own"))
        if places and len(at) < 2:
            found.append(Finding(places[0].path, places[0].line,
                                 f"[{tag}] has {len(at)} of two ends in the code: mark both "
                                 "sides with it"))
        for definition in places:
            if definition.broken:
                found.append(Finding(definition.path, definition.broken,
                                     f"the entry of [{tag}] is not indented as one: put "
                                     "it between /* clang-format off */ and on"))
    for tag, name, path, line in references:
        homes = {definition.path.rsplit("/", 1)[-1] for definition in definitions.get(tag, [])}
        if homes and name not in homes:
            found.append(Finding(path, line,
                                 f"[{tag}] is said to be of {name}: it is defined in {', '.join(sorted(homes))}"))
    return found


def page(tree):
    """The text of docs/internals/orderings.md."""
    definitions, ends, _ = collect(tree)
    out = ["# Orderings", "",
           "Each ordering tag of the code: what it says, the file that defines it, and its ends. A change of one end is a",
           "change of the pair. `scripts/house --orderings` prints this page; `scripts/house tags` lists what is wrong with",
           "the tags.", ""]
    for tag in sorted(set(definitions) | set(ends), key=lambda tag: (tag[0], int(tag[1:]))):
        places = definitions.get(tag, [])
        out += [f"## {tag}", ""]
        if not places:
            out += ["Defined nowhere.", ""]
        for definition in places:
            out += wrapped(f"`{definition.path}`: " + " ".join(definition.words)) + [""]
        seen = {}
        for end in ends.get(tag, []):
            seen.setdefault(end.path, [])
            if end.place not in seen[end.path]:
                seen[end.path].append(end.place)
        out += [line for path in sorted(seen) for line in
                wrapped(f"- `{path}`: " + ", ".join(f"`{name}`" for name in seen[path]), "  ")]
        out += [""] if seen else []
    return "\n".join(out).rstrip("\n") + "\n"


def wrapped(text, indent=""):
    lines = [""]
    for word in text.replace("*", "\\*").split(" "):
        if len(lines[-1]) + 1 + len(word) > 100:
            lines.append(indent + word)
        else:
            lines[-1] += (" " if lines[-1] else "") + word
    return lines


@rule("orderings-page", f"{PAGE} is what scripts/house --orderings prints")
def orderings_page(tree, table):
    if tree.exists(PAGE) and tree.text(PAGE) == page(tree):
        return []
    return [Finding(PAGE, 0, f"not what the tags of the code say: scripts/house --orderings >{PAGE}")]
