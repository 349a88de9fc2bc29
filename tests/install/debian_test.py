#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
What debian/ repeats of the project: debian_test.py SOURCE_DIRECTORY. Prints TAP. tests/package tries the packages.

Guards: debian/control, debian/changelog, debian/libweir0.symbols
"""
import pathlib
import re
import sys

import tap
from tap import Failed, run

SOURCE = pathlib.Path(sys.argv[1])
# Every Debian system that builds packages has these; ninja comes with meson.
EVERYWHERE = {"gcc", "libc6-dev", "ninja-build"}


def builds_with():
    """Build-Depends has what scripts/setup installs for building"""
    field = re.search(r"^Build-Depends:(.*?)^\S", (SOURCE / "debian/control").read_text(), re.M | re.S)[1]
    listed = {entry.split()[0] for entry in field.split(",")}
    missing = set(run(SOURCE / "scripts/setup", "--list", "run").split()) - listed - EVERYWHERE
    if missing:
        raise Failed(f"debian/control lacks {sorted(missing)}")


def version():
    """debian/changelog begins with the version of meson.build"""
    project = re.search(r"^ *version: '([\d.]+)'", (SOURCE / "meson.build").read_text(), re.M)[1]
    first = (SOURCE / "debian/changelog").read_text().split("\n")[0]
    if not first.startswith(f"weir ({project}-"):
        raise Failed(f"{first}, and not {project}")


def symbols():
    """debian/libweir0.symbols has each node of the version map"""
    nodes = re.findall(r"^(WEIR_[\d.]+) \{", (SOURCE / "src/libweir.map").read_text(), re.M)
    listed = re.findall(r"\(symver\)(\S+)", (SOURCE / "debian/libweir0.symbols").read_text())
    if not nodes or nodes != listed:
        raise Failed(f"{listed}, and not {nodes}")


tap.main([builds_with, version, symbols])
