#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Turns Lua scripts into a C source: embed.py OUT.c SCRIPT.lua...

Each script becomes `const char script_NAME[]`, and the name that Redis gives the script, `const char script_NAME_sha[]`.
A line "-- include FILE" of a script stands for the text of FILE, which lies beside the script. Comments, blank lines and
indents are left out.
"""
import hashlib
import pathlib
import sys

INCLUDE = "-- include "


def code(path):
    """The text of a script as Redis is sent it."""
    lines = []
    for line in path.read_text(encoding="ascii").splitlines():
        line = line.strip()
        if line.startswith(INCLUDE):
            lines.append(code(path.parent / line[len(INCLUDE):]))
        elif line and not line.startswith("--"):
            lines.append(line + "\n")
    return "".join(lines)


def main():
    out, scripts = sys.argv[1], [pathlib.Path(p) for p in sys.argv[2:]]
    lines = ["/* Made by embed.py from the scripts named below. */", '#include "transport/redis/scripts.h"', ""]
    for script in scripts:
        text = code(script).encode("ascii")
        # As numbers, because ISO C allows no string literal of more than 4,095 characters.
        lines.append(f"const char script_{script.stem}[] = {{")
        data = [str(byte) for byte in text] + ["0"]
        lines += ["    " + ", ".join(data[i:i + 24]) + "," for i in range(0, len(data), 24)]
        lines += ["};", ""]
        lines += [f'const char script_{script.stem}_sha[] = "{hashlib.sha1(text).hexdigest()}";', ""]
    pathlib.Path(out).write_text("\n".join(lines), encoding="ascii")


if __name__ == "__main__":
    main()
