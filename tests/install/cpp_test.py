#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""README's program as C++: cpp_test.py SOURCE_DIRECTORY. Prints TAP."""
import pathlib
import re
import shutil
import sys
import tempfile

import tap
from tap import Failed, Skipped, run

STANDARDS = ("c++11", "c++17", "c++20")


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
                run(compiler, f"-std={standard}", "-Wall", "-Wextra", "-Wpedantic", "-Werror", f"-I{source}/include",
                    "-fsyntax-only", file)
    check.__doc__ = f"{compiler} takes README's program as {', '.join(STANDARDS)} without a warning"
    return check


if __name__ == "__main__":
    tap.main([compiled_by(compiler, pathlib.Path(sys.argv[1])) for compiler in ("g++", "clang++")])
