#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
weir as a subproject of a meson project: subproject_test.py SOURCE_DIRECTORY. Prints TAP.

Guards: meson.build, src/meson.build
"""
import pathlib
import sys
import tempfile

import tap
from tap import Failed, run

HOST = """\
project('host', 'c', default_options: ['c_std=c11'])
host = executable('host', 'host.c', dependencies: dependency('weir', fallback: 'weir'))
test('own', host)
"""


def main():
    source = pathlib.Path(sys.argv[1])
    with tempfile.TemporaryDirectory(prefix="weir-subproject-") as place:
        host = pathlib.Path(place)
        build = host / "build"

        def builds():
            """dependency('weir', fallback: 'weir') is found, links and runs"""
            tap.copy_source(source, host / "subprojects" / "weir")
            (host / "meson.build").write_text(HOST)
            (host / "host.c").write_text((source / "docs/examples/embed.c").read_text())
            run("meson", "setup", build, host, "--buildtype=debug", "--wrap-mode=nodownload", "--force-fallback-for=weir")
            run("ninja", "-C", build)
            expect_linked(run("ldd", build / "host"), True)
            expect_served(run(build / "host"))

        def builds_static():
            """with default_library=static the program holds the library"""
            static = host / "static"
            run("meson", "setup", static, host, "--buildtype=debug", "--wrap-mode=nodownload", "--force-fallback-for=weir",
                "-Ddefault_library=static")
            run("ninja", "-C", static)
            expect_linked(run("ldd", static / "host"), False)
            expect_served(run(static / "host"))

        def alone():
            """it adds no test, no program and no example to the project"""
            tests = [line for line in run("meson", "test", "-C", build, "--list", "--no-rebuild").splitlines() if "ninja" not in line]
            programs = sorted(line.split(":")[0] for line in run("ninja", "-C", build, "-t", "targets", "all").splitlines()
                              if line.endswith(": c_LINKER") or line.endswith(": cpp_LINKER"))
            foreign = [name for name in programs if name != "host" and "libweir.so" not in name]
            if tests != ["own"] or foreign or "host" not in programs:
                raise Failed(f"tests: {tests}\nprograms: {programs}")

        tap.main([builds, builds_static, alone])


def expect_linked(libraries, shared):
    if ("libweir.so" in libraries) != shared:
        raise Failed(libraries)


def expect_served(output):
    if output.count("served") < 20:
        raise Failed(output)


if __name__ == "__main__":
    main()
