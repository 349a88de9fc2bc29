# SPDX-License-Identifier: Apache-2.0
"""Which file may see which: floors, dependencies, headers of several modules, circles of calls."""
import fnmatch
import functools
import os
import re

from .tree import Finding, rule, WORD

SEEN_MOST = 15
# Words of declarations that are no names of a header.
TYPE_WORDS = {"extern", "const", "struct", "union", "enum", "static", "inline", "bool", "char", "int", "unsigned", "void", "size_t",
              "uint8_t", "uint16_t", "uint32_t", "uint64_t", "int64_t"}
# Everything is built on these.
SEEN_BY_ALL = ("include/", "src/base/", "src/algorithm/", "src/policy/")


def floor_of(path, floors):
    """The row of a file of src: the longest folder of the table that it lies in."""
    inside = path.removeprefix("src/")
    folder = os.path.dirname(inside)
    while folder and folder not in floors:
        folder = os.path.dirname(folder)
    return folder or "."


def allowed(path, entries, floors):
    """Whether a file of src or include is covered by the entries of a row: folders, or files."""
    if path.startswith("include/"):
        return True
    inside = path.removeprefix("src/")
    return inside in entries or floor_of(path, floors) in entries or "*" in entries


@rule("includes", "a folder includes what its row in [floors] names, apps and bench what [outside] allows")
def includes(tree, table):
    floors = {name: value.split() for name, value in table["floors"].items()}
    outside = {name: value.split() for name, value in table["outside"].items()}
    found = []
    for source in tree.sources("src"):
        row = floor_of(source.path, floors)
        if row not in floors:
            found.append(Finding(source.path, 1, f"the folder {source.folder} has no row in [floors]: add one"))
            continue
        for line, name, _ in source.includes:
            target = tree.resolve(source.path, name)
            # Within a floor everything goes.
            if target and floor_of(target, floors) != row and not allowed(target, floors[row], floors):
                found.append(Finding(source.path, line, f"{row} may not include {name}: move what is shared to a lower "
                                     "floor, or pass it in"))
    for source in tree.sources("apps", "bench"):
        entries = [word for pattern, words in outside.items() if fnmatch.fnmatch(source.path, pattern) for word in words]
        for line, name, _ in source.includes:
            target = tree.resolve(source.path, name)
            if target and target.startswith("src/") and not allowed(target, entries, floors):
                found.append(Finding(source.path, line, f"{name} is of the library's inside: use weir/weir.h, or allow it "
                                     "in [outside]"))
    return found


@rule("adapters", "a dependency's header is included by its adapters in [adapters] alone")
def adapters(tree, table):
    found = []
    for source in tree.sources("src", "include"):
        for line, name, angle in source.includes:
            if not angle:
                continue
            for pattern, places in table["adapters"].items():
                if fnmatch.fnmatch(name, pattern) and not any(fnmatch.fnmatch(source.path,
                                                                      place) for place in places.split()):
                    found.append(Finding(source.path, line, f"<{name}> belongs in {places}: call the adapter"))
    return found


@rule("foreign", "a header declares functions of its own .c alone")
def foreign(tree, table):
    found = []
    for source in tree.sources("src"):
        if not source.is_header:
            continue
        for line, name, text in source.declarations:
            home = tree.definitions.get(name)
            if home and os.path.splitext(home)[0] != os.path.splitext(source.path)[0]:
                found.append(Finding(source.path, line, f"{name} is defined in {home}: declare it in the header of that "
                                     "file"))
    return found


@functools.lru_cache(maxsize=None)
def reach(tree):
    """The headers that each file of src sees, whatever lies between."""
    direct = {}

    def of(path):
        if path not in direct:
            direct[path] = {target for _, name, _ in tree.source(path).includes
                            if (target := tree.resolve(path, name)) is not None}
        return direct[path]

    seen = {}
    for source in tree.sources("src"):
        if source.is_header:
            continue
        reached, queue = set(), [source.path]
        while queue:
            for target in of(queue.pop()) - reached:
                reached.add(target)
                queue.append(target)
        seen[source.path] = reached
    return seen


def embedded(tree, table):
    """The headers of the structs in [embedded], and all that they include: who sees such a struct sees its parts."""
    reached, queue = set(), ["src/" + name for name in table["embedded"]]
    while queue:
        path = queue.pop()
        if path in reached or not tree.exists(path):
            continue
        reached.add(path)
        queue += [target for _, name, _ in tree.source(path).includes if (target := tree.resolve(path, name)) is not None]
    return reached


@rule("seen", f"no header above policy is seen by more than {SEEN_MOST} .c files of src, but for the parts of the structs "
      "in [embedded]; those that see the worst one are counted")
def seen(tree, table):
    counts = {}
    parts = embedded(tree, table)
    for reached in reach(tree).values():
        for path in reached - parts:
            if not path.startswith(SEEN_BY_ALL):
                counts[path] = counts.get(path, 0) + 1
    worst = max(counts.values(), default=0)
    found = [Finding(path, 1, f"{count} .c files see this header, {SEEN_MOST} are the most: split it, or declare structs "
                     "in the headers that include it", 0)
             for path, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])) if count > SEEN_MOST]
    if found:
        found[0].weight = worst
    return found


@functools.lru_cache(maxsize=None)
def names_of(tree, path):
    """What a header declares: macros, functions, types, enumerators, fields and variables."""
    text = tree.source(path).code
    names = set(re.findall(r"#\s*define\s+(\w+)", text))
    names |= set(re.findall(r"\b(?:struct|union|enum)\s+(\w+)\s*\{", text))
    names |= set(re.findall(r"\b(\w+)\s*\(", text)) | set(re.findall(r"\(\s*\*\s*(\w+)\s*\)\s*\(", text))
    names |= {name for block in re.findall(r"\benum\b[^{;]*\{([^}]*)\}", text)
              for name in re.findall(r"\b([A-Z]\w+)", block)}
    names |= {name for line in re.findall(r"\bextern\b[^;]*;", text) for name in re.findall(r"\w+", line)}
    names |= set(re.findall(r"\b(\w+)\s*(?:\[[^\]]*\])*\s*;", text))
    return names - TYPE_WORDS


@rule("unused-includes", "a file of src uses a name of each header that it includes")
def unused_includes(tree, table):
    found = []
    for source in tree.sources("src"):
        words = set(re.findall(r"\w+", re.sub(r"(?m)^\s*#\s*include.*$", "", source.code)))
        for line, name, angle in source.includes:
            target = tree.resolve(source.path, name)
            if angle or target is None or os.path.splitext(target)[0] == os.path.splitext(source.path)[0]:
                continue
            if not names_of(tree, target) & words:
                found.append(Finding(source.path, line, f"no name of {name} is used: include what is, or declare a struct"))
    return found


def components(edges):
    """Strongly connected parts of a graph, those of several files (Tarjan)."""
    index, low, stack, on_stack, found = {}, {}, [], set(), []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        on_stack.add(node)
        for other in edges[node]:
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in on_stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            part = []
            while not part or part[-1] != node:
                part.append(stack.pop())
                on_stack.remove(part[-1])
            if len(part) > 1:
                found.append(sorted(part))

    for node in edges:
        if node not in index:
            visit(node)
    return sorted(found)


@rule("circles", "no .c files of src call one another in a circle; the files of circles are counted")
def circles(tree, table):
    edges, names = {}, {}
    for source in tree.sources("src"):
        if source.is_header:
            continue
        own = {function.name for function in source.functions}
        called = set()
        for function in source.functions:
            for word in set(WORD.findall(function.body)):
                home = tree.definitions.get(word)
                if home and home != source.path and word not in own:
                    called.add(home)
                    names.setdefault((source.path, home), set()).add(word)
        edges[source.path] = sorted(called)
    found = []
    for part in components(edges):
        arrows = [f"{os.path.basename(a)} calls {', '.join(sorted(names[a, b]))} of {os.path.basename(b)}"
                  for a in part for b in part if (a, b) in names]
        found.append(Finding(part[0], 0, f"{len(part)} files call one another in a circle: " + "; ".join(arrows) +
                             ": move what is called from below further down", len(part)))
    return found
