#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Manual pages beside those of the weir command: pages_test.py SOURCE_DIRECTORY FLEETSIM [GATEWAY TRAFFIC]. Prints TAP.

Guards: apps/gateway/man/weir-gateway.1, apps/gateway/man/weir-traffic.1, apps/fleetsim/man/weir-fleetsim.1,
docs/man/weir.3, docs/man/weir-policies.5
"""
import json
import os
import pathlib
import re
import shutil
import sys

import tap
from tap import Failed, Skipped, run

SOURCE = pathlib.Path(sys.argv[1])


def pages():
    found = [path for folder in ("apps/*/man", "docs/man") for path in sorted(SOURCE.glob(f"{folder}/*.[1-9]"))]
    if len(found) < 5:
        raise Failed(f"{found}")
    return found


def well_formed():
    """groff and mandoc read the manual pages without a warning"""
    for program in ("man", "mandoc"):
        if shutil.which(program) is None:
            raise Skipped(f"there is no {program}")
    for path in pages():
        said = run("man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", path,
                   env={**os.environ, "LC_ALL": "C.UTF-8", "MANWIDTH": "80", "MANROFFOPT": "-z"})
        if said.strip():
            raise Failed(f"{path.name}: {said}")
    run("mandoc", "-T", "lint", "-W", "warning", *pages())


def options():
    """each program's page has the options of its help, and no others"""
    for program in map(pathlib.Path, sys.argv[2:]):
        page = next(path for path in pages() if path.name == f"{program.name}.1").read_text()
        listed = re.findall(r"^\.It Fl (?:\w , Fl )?-([\w-]+)", page, re.M)
        known = set(re.findall(r"--([a-z][\w-]*)", run(program, "--help")))
        if set(listed) != known or len(listed) != len(known):
            raise Failed(f"{program.name}: the page lacks {sorted(known - set(listed))}, has {sorted(set(listed) - known)}")


def fields():
    """weir-policies(5) has the fields and words of the schema"""
    schema = json.loads((SOURCE / "docs/policies.schema.json").read_text())["definitions"]
    page = (SOURCE / "docs/man/weir-policies.5").read_text()
    for kind in ("policy", "limit"):
        section = re.search(rf"^\.Ss Fields of a {kind}$(.*?)^\.El$", page, re.M | re.S)[1]
        found = re.findall(r"^\.It Va (\w+)$", section, re.M)
        if sorted(found) != sorted(schema[kind]["properties"]):
            raise Failed(f"{kind}: {found}, and not {sorted(schema[kind]['properties'])}")
        words = {word for field in schema[kind]["properties"].values() for word in field.get("enum", [])}
        missing = words - set(re.findall(r"^\.Cm (\w+)", section, re.M))
        if missing:
            raise Failed(f"{kind}: no word of {missing}")


def calls():
    """what weir(3) shows is declared so in weir.h"""
    page = (SOURCE / "docs/man/weir.3").read_text()
    header = re.sub(r"\s+", " ", (SOURCE / "include/weir/weir.h").read_text())
    shown = re.findall(r"^\.Ft (.*)\n\.Fn (\w+) (.*)$", page, re.M)
    for kind, name, arguments in shown:
        listed = ", ".join(re.findall('"(.*?)"', arguments))
        declaration = f"WEIR_API {kind} {name}({listed});".replace("* ", "*")
        if declaration not in header:
            raise Failed(f"weir.h does not have: {declaration}")
    if len(shown) < 8:
        raise Failed(f"{shown}")


tap.main([well_formed, options, fields, calls])
