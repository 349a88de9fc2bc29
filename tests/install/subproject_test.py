#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
weir as a subproject of a meson project: subproject_test.py SOURCE_DIRECTORY. Prints TAP.

Guards: meson.build, src/meson.build, docs/embedding.md
"""
import pathlib
import sys
import tempfile

import tap
from tap import Failed, run

HOST = """\
project('host', 'c', 'cpp', default_options: ['c_std=c11', 'cpp_std=c++17'])
host = executable('host', 'host.c', dependencies: dependency('weir', fallback: 'weir'), install: true)
test('own', host)
"""

# Behind the lines of docs/embedding.md, which make a program called server.
WRAPPER = "executable('wrapper', 'wrapper.cpp', dependencies: [weir_dep, dependency('threads')])\n"

# What weir adds to the installation of a project, beside the folders of the libraries and headers.
INSTALLED = {"host", "libweir.so", "libweir.so.0", "libweir.a", "inspect.h", "weir.h", "weir.hpp", "weir.pc", "weirConfig.cmake",
             "weirConfigVersion.cmake"}


def main():
    source = pathlib.Path(sys.argv[1])
    with tempfile.TemporaryDirectory(prefix="weir-subproject-") as place:
        host = pathlib.Path(place)
        build = host / "build"

        def builds():
            """dependency('weir', fallback: ...) is found by both forms, links and runs, in C and C++"""
            tap.copy_source(source, host / "subprojects" / "weir")
            (host / "meson.build").write_text(HOST + tap.fenced(source / "docs/embedding.md", "meson") + WRAPPER)
            for name in ("host.c", "server.c"):
                (host / name).write_text((source / "docs/examples/embed.c").read_text())
            (host / "wrapper.cpp").write_text((source / "docs/examples/limiter.cpp").read_text())
            run("meson", "setup", build, host, "--buildtype=debug", "--wrap-mode=nodownload", "--force-fallback-for=weir")
            run("ninja", "-C", build)
            expect_linked(run("ldd", build / "host"), True)
            for name in ("host", "server", "wrapper"):
                expect_served(run(build / name))

        def builds_static():
            """with default_library=static the program holds the library, and can be installed alone"""
            static = host / "static"
            run("meson", "setup", static, host, "--buildtype=debug", "--wrap-mode=nodownload", "--force-fallback-for=weir",
                "-Ddefault_library=static")
            run("ninja", "-C", static)
            for name in ("host", "server", "wrapper"):
                expect_linked(run("ldd", static / name), False)
                expect_served(run(static / name))
            run("meson", "install", "-C", static, "--no-rebuild", "--skip-subprojects", "--destdir", host / "alone")
            names = [file.name for file in (host / "alone").rglob("*") if not file.is_dir()]
            if names != ["host"]:
                raise Failed(f"without subprojects these are installed: {names}")

        def alone():
            """it adds no test, no program and no example to the project"""
            tests = [line for line in run("meson", "test", "-C", build, "--list", "--no-rebuild").splitlines() if "ninja" not in line]
            programs = sorted(line.split(":")[0] for line in run("ninja", "-C", build, "-t", "targets", "all").splitlines()
                              if line.endswith(": c_LINKER") or line.endswith(": cpp_LINKER"))
            foreign = [name for name in programs if name not in ("host", "server", "wrapper") and "libweir.so" not in name]
            if tests != ["own"] or foreign or "host" not in programs:
                raise Failed(f"tests: {tests}\nprograms: {programs}")
            if list(build.glob("**/libweir-loopback.a")):
                raise Failed("the fleet for tests is built")

        def installs():
            """an installation of the project has the library, its headers, and what finds them"""
            run("meson", "install", "-C", build, "--no-rebuild", "--destdir", host / "root")
            names = {file.name for file in (host / "root").rglob("*") if not file.is_dir()}
            names = {name for name in names if not name.startswith("libweir.so.0.")}
            if names != INSTALLED:
                raise Failed(f"more: {sorted(names - INSTALLED)}, less: {sorted(INSTALLED - names)}")

        tap.main([builds, builds_static, alone, installs])


def expect_linked(libraries, shared):
    if ("libweir.so" in libraries) != shared:
        raise Failed(libraries)


def expect_served(output):
    if output.count("served") < 20:
        raise Failed(output)


if __name__ == "__main__":
    main()
