# SPDX-License-Identifier: Apache-2.0
"""The kinds of mutants, and the drawing of them. Code is read by regular expressions, which rely on clang-format."""
import collections
import os
import random
import re

from house_rules.tags import STRONG
from house_rules.tree import Tree

# Between two operands, as clang-format spaces them: a pointer's * and & have no space behind. Pairs change places.
BETWEEN = r"(?<=[\w)\]'\"] )(?:%s)(?=\s)"
PAIRS = {"comparison turned": "< >= > <= == !=", "bound off by one": "< <= > >=", "plus and minus": "+ -",
         "times and over": "* /", "and and or": "&& ||", "bits and and or": "& |", "shift turned": "<< >>",
         "added or taken": "+= -="}
STATEMENT = r"(?:[;{}]|:[ ]*\n)\s*"
# A dropped free is for AddressSanitizer, and a fence is an ordering.
CALL = re.compile(STATEMENT + r"((?:\(void\) )?(?!(?:free|fence_\w+|barrier_all_threads)\()[A-Za-z_]\w*\()")
ASSIGNMENT = re.compile(STATEMENT + r"(\*?[A-Za-z_]\w*(?:(?:->|\.)\w+|\[[^\]]*\])* = )")
# What is there for whoever debugs or traces, and hints, which change no answer.
SPARED = re.compile(r"\b(?:_Static_assert|static_assert|assert|PROBE\d|probe_(?:is_traced|deny|grant|report|round|"
                    r"outage|connection|evict|policies|leader)|\w*prefetch\w*)\(")

# Calls whose answer does not depend on the order of the arguments: the name, and what comes behind the arguments.
SYMMETRIC = re.compile(r"(?:(?:min|max)_u64|saturating_(?:add|mul))\)|(?:strn?cmp|memcmp)\) [=!]= 0")


def closing(code, at, until=")]}"):
    """Where the bracket that opens at a place is closed, or where one of these characters comes outside of brackets."""
    depth = 0
    for place in range(at, len(code)):
        depth += (code[place] in "([{") - (code[place] in ")]}")
        if depth < 0 or (depth == 0 and code[place] in until):
            return place if depth == 0 else None
    return None


def changeable(source):
    """A file's code, at its offsets, as far as it may be changed: bodies of functions. All else is blank."""
    lines = source.plain.split("\n")
    bodies = {number for f in source.functions for number in range(f.end - f.body.count("\n") - 1, f.end)
              if "prefetch" not in f.name}
    code = "\n".join(line if number in bodies else " " * len(line) for number, line in enumerate(lines))
    for match in SPARED.finditer(code):
        end = closing(code, match.end() - 1) or match.end()
        code = code[:match.start()] + re.sub(r"[^\n]", " ", code[match.start():end + 1]) + code[end + 1:]
    return code


def orderings(code):
    """(kind, start, end, text) of each ordering that may be weakened."""
    for match in STRONG.finditer(code):
        end = closing(code, match.end() - 1)
        if match[1] in ("or", "and"):  # atomics.h has no relaxed names for these
            text = f"atomic_fetch_{match[1]}_explicit({code[match.end():end]}, memory_order_relaxed)"
            yield "ordering weakened", match.start(), end + 1, text
        elif match[1]:
            yield "ordering weakened", match.start(), match.end() - 1, f"{match[1]}_relaxed"
        else:
            yield "fence dropped", match.start(), end + 1, "(void) 0"


def doubled(word):
    base, form = (16, "0x{:x}") if word.startswith("0x") else (8, "0{:o}") if word[0] == "0" < word else (10, "{}")
    return form.format(2 * int(word, base) or 1)


# Pattern, and what becomes of a word.
WORDS = {"step turned": (r"\+\+|--", {"++": "--", "--": "++"}.get),
         "return changed": (r"(?<=\breturn )(?:true|false|0|-?1)(?=;)",
                            {"true": "false", "false": "true", "0": "1", "1": "0", "-1": "0"}.get),
         "jump dropped": (r"\b(?:break|continue);", lambda word: ";"),
         "constant doubled": (r"(?<![\w.])(?:0x[\da-fA-F]+|\d+)(?=[uUlL]*(?![\w.]))", doubled)}
for name, pair in PAIRS.items():
    signs = pair.split()
    WORDS[name] = BETWEEN % "|".join(map(re.escape, signs)), {sign: signs[at ^ 1] for at, sign in enumerate(signs)}.get


def mutants(code, text):
    """(kind, start, end, text) of each mutant of a file."""
    for kind, (pattern, turned) in WORDS.items():
        for match in re.finditer(pattern, code):
            yield kind, match.start(), match.end(), turned(match[0])
    for match in re.finditer(r"\bif \(", code):
        end = closing(code, match.end() - 1)
        if end and code[match.end():end].strip():
            yield "condition negated", match.end() - 1, end + 1, f"(!{text[match.end() - 1:end + 1]})"
    for match in CALL.finditer(code):
        end = closing(code, match.end() - 1)
        if end and code.startswith(";", end + 1):
            yield "call dropped", match.start(1), end + 2, ";"
    for match in ASSIGNMENT.finditer(code):
        if end := closing(code, match.end(), ";"):
            yield "assignment dropped", match.start(1), end + 1, ";"
    for match in re.finditer(r"\b([A-Za-z_]\w*)\(", code):
        start, end, spans = match.end(), closing(code, match.end() - 1), []
        while end and start < end and not SYMMETRIC.match(match[1] + code[end:end + 6]):
            comma = closing(code[:end] + ",", start, ",")
            word = code[start:comma]
            spans.append((comma - len(word.lstrip()), start + len(word.rstrip())))
            start = comma + 1
        for (a, b), (c, d) in zip(spans, spans[1:]):
            if text[a:b] != text[c:d] and (text[a] == "&") == (text[c] == "&"):
                yield "arguments swapped", a, d, text[c:d] + text[b:c] + text[a:b]


def draw(root, seed, count, part="src"):
    """Rows: the module by its lines of code, then a kind, then a place of it."""
    chance, tree = random.Random(int(seed)), Tree(root)
    weights, found = collections.Counter(), {}  # found: module -> kind -> rows
    for source in tree.sources("apps" if part == "apps" else "src"):
        if not source.path.endswith((".c", ".h")) or source.path.endswith(".bpf.c"):
            continue
        module, code = os.path.dirname(source.path), changeable(source)
        weights[module] += sum(1 for line in code.split("\n") if line.strip())
        for kind, start, end, after in orderings(code) if part == "orderings" else mutants(code, source.text):
            before, line = source.text[start:end], source.text.count("\n", 0, start) + 1
            after += "\n" * (before.count("\n") - after.count("\n"))  # lines stay where they are
            row = {"file": source.path, "line": line, "column": start - source.text.rfind("\n", 0, start),
                   "kind": kind, "before": before, "after": after}
            found.setdefault(module, {}).setdefault(kind, []).append(row)
    rows = []
    while found and len(rows) < int(count) + -(-int(count) // 3):
        module = chance.choices(sorted(found), [weights[name] for name in sorted(found)])[0]
        kind = chance.choice(sorted(found[module]))
        places = found[module][kind]
        rows.append({"number": len(rows) + 1, **places.pop(chance.randrange(len(places)))})
        if not places:
            del found[module][kind]
        if not found[module]:
            del found[module]
    return rows
