# SPDX-License-Identifier: Apache-2.0
"""Which file may see and call which: floors, dependencies, whose functions a header declares, circles of calls."""
import fnmatch
import os

from .tree import Finding, rule, WORD


def floor_of(path, floors):
    """The row of a file of src: the longest folder of [floors] that it lies in, or None."""
    folder = os.path.dirname(path.removeprefix("src/"))
    while folder and folder not in floors:
        folder = os.path.dirname(folder)
    return folder or None


def allowed(target, entries, floors):
    """Whether a file is public, or covered by the entries of a row, which are folders and files of src."""
    inside = target.removeprefix("src/")
    return target.startswith("include/") or inside in entries or floor_of(target, floors) in entries


@rule("includes", "a folder of src includes what its row in [floors] names, apps and bench what [outside] allows")
def includes(tree, table):
    floors = {name: value.split() for name, value in table["floors"].items()}
    found = []
    for source in tree.sources("src", "apps", "bench"):
        inside = source.path.startswith("src/")
        row = floor_of(source.path, floors) if inside else None
        if inside and row is None:
            found.append(Finding(source.path, 1, "its folder has no row in [floors] of scripts/house.ini: add one"))
            continue
        entries = [row, *floors[row]] if inside else [
            entry for pattern, value in table["outside"].items() if fnmatch.fnmatch(source.path, pattern)
            for entry in value.split()]
        for line, name, _ in source.includes:
            target = tree.resolve(source.path, name)
            if target and (inside or target.startswith("src/")) and not allowed(target, entries, floors):
                found.append(Finding(source.path, line, f"{row} may not include {name}: move what both need to a lower "
                                     "floor, or pass it in" if inside else
                                     f"{name} is private to the library: use weir/weir.h, or allow it in [outside]"))
    return found


@rule("adapters", "a dependency's header is included by its adapters in [adapters] alone")
def adapters(tree, table):
    return [Finding(source.path, line, f"<{name}> belongs in {places}: call the adapter")
            for source in tree.sources("src", "include") for line, name, angle in source.includes
            for pattern, places in table["adapters"].items() if angle and fnmatch.fnmatch(name, pattern)
            and not any(fnmatch.fnmatch(source.path, place) for place in places.split())]


@rule("foreign", "a header of src declares functions of its own .c file alone")
def foreign(tree, table):
    return [Finding(source.path, line, f"{name} is defined in {home.path}: declare it in the header of that file")
            for source in tree.sources("src") if source.is_header for line, name, _ in source.declarations
            if (home := tree.definitions.get(name)) and home.module != source.module]


@rule("circles", "no .c files of src call one another in a circle")
def circles(tree, table):
    calls = {}  # of a file: the files that it calls, with the functions
    for source in tree.sources("src"):
        if not source.is_header:
            calls[source.path] = {}
            own = {function.name for function in source.functions}
            for word in {word for function in source.functions for word in WORD.findall(function.body)} - own:
                home = tree.definitions.get(word)
                if home and home is not source:
                    calls[source.path].setdefault(home.path, []).append(word)
    # What calls no other, or is called by no other, is on no circle. When it is taken away, that holds for more files.
    rest, before = set(calls), None
    while rest != before:
        before = rest
        called = {other for path in rest for other in calls[path]}
        rest = {path for path in rest & called if rest & calls[path].keys()}
    return [Finding(path, 0, f"calls {', '.join(sorted(words))} of {other} in a circle: move what is called from below "
                    "further down")
            for path in sorted(rest) for other, words in sorted(calls[path].items()) if other in rest]
