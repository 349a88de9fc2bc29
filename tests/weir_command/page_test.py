#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
What docs/command.md shows is what the weir command does: page_test.py WEIR_PROGRAM SOURCE_DIRECTORY. Prints TAP.

The page's block of YAML is gateway.yaml. The commands of its consoles run in one shell, one after the other, with
a private Redis.

Guards: docs/command.md, apps/weir/describe.c
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from command_support import Skipped
from redis_support import Redis

WEIR, PAGE = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2]) / "docs/command.md"
MARK = "-- end of a command --"


def sessions(text):
    """[(command, lines of output)] of the page's consoles."""
    found = []
    for block in re.findall(r"^```console\n(.*?)^```", text, re.M | re.S):
        for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
            command, *lines = part.splitlines()
            found.append((command, lines))
    return found


def main():
    text = PAGE.read_text()
    with tempfile.TemporaryDirectory(prefix="weir-page-") as name, Redis() as redis:
        place = pathlib.Path(name)
        (place / "weir").symlink_to(WEIR)
        (place / "gateway.yaml").write_text(re.search(r"^```yaml\n(.*?)^```", text, re.M | re.S)[1])
        text = text.replace("unix:///run/redis/redis.sock", redis.url)
        wanted = sessions(text)
        script = "".join(f"{command}\nweir_code=$?; echo '{MARK}'; (exit $weir_code)\n" for command, _ in wanted)
        done = subprocess.run(["sh", "-c", script], cwd=place, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=120, env={**os.environ, "PATH": f"{place}:{os.environ['PATH']}"}, check=False)
    outputs = [part.strip("\n").splitlines() for part in done.stdout.split(MARK + "\n")]
    print(f"TAP version 13\n1..{len(wanted) + 1}")
    failed = len(wanted) < 4
    print(f"{'not ' if failed else ''}ok 1 - the page shows commands")
    for number, ((command, lines), output) in enumerate(zip(wanted, outputs), 2):
        good = output == lines
        failed = failed or not good
        print(f"{'' if good else 'not '}ok {number} - {command.replace('#', '')}")
        for line in [] if good else output:
            print(f"# {line}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    try:
        main()
    except Skipped as reason:
        print(f"1..0 # SKIP {reason}")
