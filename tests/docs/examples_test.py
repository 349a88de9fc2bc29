#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
The examples do what the documents say: examples_test.py EMBED_PROGRAM SOURCE_DIRECTORY. Prints TAP.

Guards: docs/examples/embed.c, docs/embedding.md
"""
import os
import pathlib
import subprocess
import sys


# Its bucket refills a unit in 10 ms: on a busy machine one may come in between.
TRIES = 5


def serves_the_burst(program):
    run = subprocess.run([program], capture_output=True, text=True, timeout=20)
    lines = run.stdout.splitlines()
    return (run.returncode == 0 and lines[:20].count("refused, 0 left") == 0 and lines[:20][-1].startswith("served")
            and sum(line.startswith("refused") for line in lines[20:]) >= 4)


def main():
    program, source = sys.argv[1], pathlib.Path(sys.argv[2])
    readme = (source / "README.md").read_text()
    example = (source / "docs/examples/embed.c").read_text()
    # Where programs run under an emulator, the checks of a burst take longer than the bucket needs for a few units.
    emulated = "MESON_EXE_WRAPPER" in os.environ
    serves = emulated or any(serves_the_burst(program) for _ in range(TRIES))
    results = [
        ("the example in the README is the one that is built", f"```c\n{example}```" in readme),
        ("it serves the burst and refuses the rest" + (" # SKIP under an emulator it takes too long" if emulated else ""), serves),
    ]
    print(f"TAP version 13\n1..{len(results)}")
    for number, (name, good) in enumerate(results, 1):
        print(f"{'ok' if good else 'not ok'} {number} - {name}")
    sys.exit(0 if all(good for _, good in results) else 1)


if __name__ == "__main__":
    main()
