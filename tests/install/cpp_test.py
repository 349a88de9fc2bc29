#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
README's program and the examples as C++: cpp_test.py SOURCE_DIRECTORY. Prints TAP.

Guards: include/weir/weir.h, README.md
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import tap
from tap import Failed, Skipped, run

STANDARDS = ("c++11", "c++17", "c++20")

WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")

# What an example includes that may not be there.
LIBRARIES = ("uv.h", "event2/event.h", "microhttpd.h")


def compiled_by(compiler, source):
    def check():
        if shutil.which(compiler) is None:
            raise Skipped(f"there is no {compiler}")
        program = re.search(r"```c\n(.*?)```", (source / "README.md").read_text(), re.S)
        if program is None:
            raise Failed("there is no program in README.md")
        with tempfile.TemporaryDirectory(prefix="weir-cpp-") as place:
            file = pathlib.Path(place) / "program.cpp"
            file.write_text(program.group(1))
            for standard in STANDARDS:
                run(compiler, f"-std={standard}", *WARNINGS, f"-I{source}/include", "-fsyntax-only", file)
    check.__doc__ = f"{compiler} takes README's program as {', '.join(STANDARDS)} without a warning"
    return check


def includes(compiler, header):
    result = subprocess.run([compiler, "-x", "c++", "-fsyntax-only", "-"], input=f"#include <{header}>\n", text=True,
                            capture_output=True, check=False)
    return result.returncode == 0


def examples_by(compiler, source):
    def check():
        if shutil.which(compiler) is None:
            raise Skipped(f"there is no {compiler}")
        away = [header for header in LIBRARIES if not includes(compiler, header)]
        examples = sorted((source / "docs/examples").glob("*.c"))
        if len(examples) < 10:
            raise Failed(f"there are {len(examples)} examples")
        for example in examples:
            if not any(f"#include <{header}>" in example.read_text() for header in away):
                # The clocks of a host's own have designated initializers, which C++ has had since C++20.
                run(compiler, "-std=c++20", *WARNINGS, f"-I{source}/include", "-fsyntax-only", "-x", "c++", example)
    check.__doc__ = f"{compiler} takes the examples as c++20 without a warning"
    return check


if __name__ == "__main__":
    tap.main([test(compiler, pathlib.Path(sys.argv[1])) for compiler in ("g++", "clang++") for test in (compiled_by, examples_by)])
