#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
What the shared library exports: symbols_test.py LIBRARY SOURCE_DIRECTORY. Prints TAP.

Guards: src/libweir.map, src/meson.build
"""
import pathlib
import re
import sys

import tap
from tap import Failed, run


def interface(source):
    text = "".join(path.read_text() for path in (source / "include/weir").glob("*.h"))
    return set(re.findall(r"^WEIR_API [^(]*\b(weir_\w+)\(", text, re.M))


def nodes(source):
    """Of each node of the version map the names."""
    text = re.sub(r"/\*.*?\*/", "", (source / "src/libweir.map").read_text(), flags=re.S)
    return {node: set(re.findall(r"\bweir_\w+", names)) for node, names in re.findall(r"(\w+\.\w+) \{(.*?)\}", text, re.S)}


def main():
    library, source = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])

    def names():
        """it exports the functions of the public headers, each in a node of its version map, and nothing else"""
        exported = {}
        for line in run("nm", "-D", "--defined-only", library).splitlines():
            _, kind, name = line.split()
            if kind != "A":  # the node itself
                exported.setdefault(name.partition("@@")[2], set()).add(name.partition("@@")[0])
        wanted = nodes(source)
        listed = set().union(*wanted.values())
        if listed != interface(source):
            raise Failed(f"src/libweir.map: not in it {sorted(interface(source) - listed)}, "
                         f"in no header {sorted(listed - interface(source))}")
        if exported != wanted or len(listed) < 30:
            raise Failed(f"exported: {exported}\nsrc/libweir.map: {wanted}")

    tap.main([names])


if __name__ == "__main__":
    main()
