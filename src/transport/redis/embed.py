#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Turns Lua scripts into a C source: embed.py OUT.c SCRIPT.lua... Each becomes `const char script_NAME[]`, with the name
Redis gives it, `const char script_NAME_sha[]`."""
import hashlib
import pathlib
import sys


def main():
    out, scripts = sys.argv[1], [pathlib.Path(p) for p in sys.argv[2:]]
    lines = ["/* Made by embed.py from the scripts named below. */", '#include "transport/redis/scripts.h"', ""]
    for script in scripts:
        stripped = (line.strip() for line in script.read_text(encoding="ascii").splitlines())
        code = "".join(line + "\n" for line in stripped if line and not line.startswith("--"))
        # As numbers: a string literal of more than 4,095 characters is none of ISO C's.
        lines.append(f"const char script_{script.stem}[] = {{")
        data = [str(byte) for byte in code.encode("ascii")] + ["0"]
        lines += ["    " + ", ".join(data[i:i + 24]) + "," for i in range(0, len(data), 24)]
        lines += ["};", ""]
        digest = hashlib.sha1(code.encode("ascii")).hexdigest()
        lines += [f'const char script_{script.stem}_sha[] = "{digest}";', ""]
    pathlib.Path(out).write_text("\n".join(lines), encoding="ascii")


if __name__ == "__main__":
    main()
