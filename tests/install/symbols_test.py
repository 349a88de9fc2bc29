#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
What the shared library exports, and whether scripts/abi sees what breaks programs: symbols_test.py LIBRARY
SOURCE_DIRECTORY. Prints TAP.

Guards: scripts/abi, src/libweir.map, src/libweir.abixml, src/meson.build
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import tap
from tap import Failed, Skipped, run


def interface(source):
    return set(re.findall(r"^WEIR_API [^(]*\b(weir_\w+)\(", (source / "include/weir/weir.h").read_text(), re.M))


def nodes(source):
    """Of each node of the version map the names."""
    text = re.sub(r"/\*.*?\*/", "", (source / "src/libweir.map").read_text(), flags=re.S)
    return {node: set(re.findall(r"\bweir_\w+", names)) for node, names in re.findall(r"(\w+\.\w+) \{(.*?)\}", text, re.S)}


def member(xml, struct, number):
    """What stands between the numbered data member of a struct and the end of the struct; and that end's place."""
    begin = xml.index(f"<class-decl name='{struct}' size-in-bits=")
    end = xml.index("    </class-decl>", begin)
    places = [found.start() + begin for found in re.finditer(r" *<data-member", xml[begin:end])]
    return places[number], end


def shrink(xml, struct, bits):
    """The struct as it was before its last member, of so many bits, came."""
    place, end = member(xml, struct, -1)
    xml = xml[:place] + xml[end:]
    head = re.search(rf"<class-decl name='{struct}' size-in-bits='(\d+)'", xml)
    return xml.replace(head[0], head[0].replace(head[1], str(int(head[1]) - bits)))


def main():
    library, source = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])

    def names():
        """it exports the functions of weir.h, each in a node of its version map, and nothing else"""
        exported = {}
        for line in run("nm", "-D", "--defined-only", library).splitlines():
            _, kind, name = line.split()
            if kind != "A":  # the node itself
                exported.setdefault(name.partition("@@")[2], set()).add(name.partition("@@")[0])
        wanted = nodes(source)
        listed = set().union(*wanted.values())
        if listed != interface(source):
            raise Failed(f"src/libweir.map: not in it {sorted(interface(source) - listed)}, "
                         f"not in weir.h {sorted(listed - interface(source))}")
        if exported != wanted or len(listed) < 30:
            raise Failed(f"exported: {exported}\nsrc/libweir.map: {wanted}")

    def compare(change):
        """Exit status and words of scripts/abi where the last release had what `change` makes of what is recorded."""
        if shutil.which("abidiff") is None:
            raise Skipped("abidiff is not installed")
        if ".debug_info" not in run("readelf", "--section-headers", "--wide", library):
            raise Skipped("the library has no debugging information")
        with tempfile.TemporaryDirectory(prefix="weir-symbols-") as name:
            place = pathlib.Path(name)
            for path in ("scripts/abi", "src/libweir.abixml", "include/weir/weir.h"):
                (place / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source / path, place / path)
            recorded = place / "src/libweir.abixml"
            recorded.write_text(change(recorded.read_text()))
            done = subprocess.run([place / "scripts/abi", library], capture_output=True, text=True)
        if "not compared" in done.stdout:
            raise Skipped(done.stdout.strip())
        return done.returncode, done.stdout + done.stderr

    def expect(change, status, says):
        found = compare(change)
        if found[0] != status or says not in found[1]:
            raise Failed(f"exit {found[0]}: {found[1]}")

    def kept():
        """programs that were compiled with the last release run"""
        expect(lambda xml: xml, 0, "")

    def grows():
        """a struct of which programs know the size may grow at its end, and get new functions"""
        expect(lambda xml: shrink(xml, "weir_stats", 64), 0, "")
        expect(lambda xml: re.sub(r" *<elf-symbol name='weir_unlink'.*\n", "", xml), 0, "")

    def breaks():
        """a struct that grows and must not, a member that moved and a function that went are told of"""
        expect(lambda xml: shrink(xml, "weir_verdict", 64), 1, "weir_verdict")
        moved = "<data-member access='public' layout-offset-in-bits='"
        expect(lambda xml: xml[:member(xml, "weir_options", 3)[0]] +
               xml[member(xml, "weir_options", 3)[0]:].replace(moved, moved + "1", 1), 1, "weir_options")
        symbol = re.compile(r" *<elf-symbol name='weir_unlink'.*\n")
        expect(lambda xml: symbol.sub(lambda found: found[0] + found[0].replace("weir_unlink", "weir_gone"), xml), 1, "weir_gone")

    tap.main([names, kept, grows, breaks])


if __name__ == "__main__":
    main()
