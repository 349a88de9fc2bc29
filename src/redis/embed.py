#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Turns Lua scripts into a C source: embed.py OUT.c SCRIPT.lua... Each becomes `const char script_NAME[]`."""
import pathlib
import sys


def main():
    out, scripts = sys.argv[1], [pathlib.Path(p) for p in sys.argv[2:]]
    lines = ["/* Made by embed.py from the scripts named below. */", '#include "redis/scripts.h"', ""]
    for script in scripts:
        lines.append(f"const char script_{script.stem}[] =")
        for line in script.read_text(encoding="ascii").splitlines():
            code = line.strip()
            if code and not code.startswith("--"):
                escaped = code.replace("\\", "\\\\").replace('"', '\\"')
                lines.append(f'    "{escaped}\\n"')
        lines[-1] += ";"
        lines.append("")
    pathlib.Path(out).write_text("\n".join(lines), encoding="ascii")


if __name__ == "__main__":
    main()
