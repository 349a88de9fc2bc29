#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
The Containerfile: container_test.py SOURCE_DIRECTORY PROGRAM_OR_LIBRARY... Prints TAP.

Its lines are held against what scripts/setup installs and what programs are linked with.

Guards: Containerfile
"""
import pathlib
import re
import shutil
import sys

import tap
from tap import Failed, Skipped, run

SOURCE = pathlib.Path(sys.argv[1])
UNLINKED = {"ca-certificates"}  # of a Redis that is reached by TLS
EVERYWHERE = {"libc6"}


def instructions():
    """Instruction and words, in order; lines that go on are one."""
    text = re.sub(r"^#.*\n", "", (SOURCE / "Containerfile").read_text(), flags=re.M).replace("\\\n", " ")
    return [tuple(line.split(maxsplit=1)) for line in text.splitlines() if line.strip()]


def stages():
    found = []
    for instruction, rest in instructions():
        if instruction == "FROM":
            found.append([])
        found[-1].append((instruction, rest))
    return found


def installed(stage):
    """What a stage installs by apt-get."""
    words = " ".join(rest for instruction, rest in stage if instruction == "RUN" and "apt-get install" in rest)
    return set(re.sub(r"&&.*", "", words.split("--no-install-recommends", 1)[1]).split())


def form():
    """it has two stages of one slim Debian, and ends as a user without rights, with the gateway as its program"""
    build, image = stages()
    bases = [rest.split()[0] for stage in (build, image) for instruction, rest in stage if instruction == "FROM"]
    if len(set(bases)) != 1 or not bases[0].endswith("-slim"):
        raise Failed(f"{bases}")
    last = dict(image)
    if not re.fullmatch(r"[1-9]\d+:[1-9]\d+", last.get("USER", "")) or last.get("ENTRYPOINT") != '["/usr/bin/weir-gateway"]':
        raise Failed(f"{last}")
    for instruction, rest in build + image:
        if instruction not in ("FROM", "RUN", "COPY", "WORKDIR", "USER", "STOPSIGNAL", "ENTRYPOINT", "CMD"):
            raise Failed(f"{instruction} {rest}")
        if instruction == "RUN" and re.search(r"[|;`$]|(^|\s)(curl|wget|sudo)\s", rest):
            raise Failed(f"a trick of the shell: {rest}")


def builds_with():
    """its first stage installs what scripts/setup installs for building"""
    wanted = set(run(SOURCE / "scripts/setup", "--list", "run").split())
    known = set(run(SOURCE / "scripts/setup", "--list", "package").split())  # and what the weir command can be built with
    found = installed(stages()[0])
    if not wanted <= found <= known:
        raise Failed(f"not in the Containerfile: {sorted(wanted - found)}; not in scripts/setup: {sorted(found - known)}")


def runs_with():
    """its second stage installs the packages of the libraries that the programs are linked with"""
    base = dict(stages()[0])["FROM"]
    release = re.search(r'^VERSION_CODENAME="?(\w+)', pathlib.Path("/etc/os-release").read_text(), re.M)
    if release is None or f":{release[1]}-" not in base or shutil.which("dpkg-query") is None:
        raise Skipped(f"this machine is not {base.split()[0]}")
    needed = set()
    for program in sys.argv[2:]:
        needed |= set(re.findall(r"NEEDED.*\[(\S+)\]", run("readelf", "--dynamic", program)))
    owners = {}
    for name in needed - {"libweir.so.0"}:
        lines = run("dpkg-query", "--search", f"*lib/*/{name}").splitlines()
        owners[name] = lines[0].split(":")[0]
    # This build may have what the image is built without.
    without = {"libbpf1"} if "-Dxdp=disabled" in (SOURCE / "Containerfile").read_text() else set()
    found, wanted = installed(stages()[1]) - UNLINKED, set(owners.values()) - EVERYWHERE - without
    if found != wanted:
        raise Failed(f"not in the Containerfile: {sorted(wanted - found)}; not needed: {sorted(found - wanted)}")


tap.main([form, builds_with, runs_with])
