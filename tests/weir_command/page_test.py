#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
What docs/command.md shows is what the weir command does: page_test.py WEIR_PROGRAM SOURCE_DIRECTORY. Prints TAP.

The page's block of YAML is gateway.yaml. The commands of its consoles run in one shell, one after the other, with
a private Redis.

Guards: docs/command.md, apps/weir/describe.c
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

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


def use(redis, place):
    """
    What two nodes have admitted to the customer of the page who is denied: so many units of this hour. Returns the name
    of the record. The nodes have long intervals, so that they stay live.
    """
    one, other = "4a3f51c09d2e", "9be07c6618f3"
    now_ms = int(time.time() * 1000)
    redis.call("ZADD", "weir:nodes", "inf", "!1", now_ms, f"{one}:600000:900000", now_ms - 1, f"{other}:600000:900000")
    redis.call("HSET", "weir:limits", "0123456789abcdef", f"{now_ms + 900000} edge-1\napi token_bucket 100 per 1s\n", "version", now_ms)
    options = ["--json", "--policies", str(place / "gateway.yaml"), "--redis", redis.url]
    done = subprocess.run([WEIR, "explain", *options, "api", "203.0.113.40"], stdout=subprocess.PIPE, text=True, timeout=60, check=False)
    record = json.loads(done.stdout)["limits"][1]["record"]["name"]
    redis.call("HSET", record, author(one), "3000 4100", author(other), "2000 2900", "sum", "5000 7000")
    return record


def author(node):
    """The name of an author of a node, as src/transport/author.h makes it."""
    number = int(node[:6], 16)
    digits = (digit + 5 for digit in (number % 250, number // 250 % 250, number // 62500))
    return os.fsdecode(bytes(digit + (digit >= 58) for digit in digits) + b"key")


def agrees(line, wanted):
    """Whether a line is the page's, in which three dots stand for any text."""
    return re.fullmatch(".+".join(map(re.escape, wanted.split("..."))), line) is not None


def joined(lines):
    """The page breaks a line of the program that is long."""
    return " ".join(line.strip() for line in lines)


def run_page(place, text, redis):
    """
    [(command, lines of output)] of the page, and what the commands have written. None: the hour has ended meanwhile, and
    with it the window that the page is about.
    """
    record = use(redis, place)
    wanted = sessions(text.replace("unix:///run/redis/redis.sock", redis.url))
    script = "".join(f"{command}\nweir_code=$?; echo '{MARK}'; (exit $weir_code)\n" for command, _ in wanted)
    done = subprocess.run(["sh", "-c", script], cwd=place, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=120, env={**os.environ, "PATH": f"{place}:{os.environ['PATH']}"}, check=False)
    return (wanted, done.stdout) if use(redis, place) == record else None


def main():
    text = PAGE.read_text()
    ran = None
    with tempfile.TemporaryDirectory(prefix="weir-page-") as name:
        place = pathlib.Path(name)
        (place / "weir").symlink_to(WEIR)
        (place / "gateway.yaml").write_text(re.search(r"^```yaml\n(.*?)^```", text, re.M | re.S)[1])
        while ran is None:
            with Redis() as redis:
                ran = run_page(place, text, redis)
    wanted, said = ran
    outputs = [part.strip("\n").splitlines() for part in said.split(MARK + "\n")]
    print(f"TAP version 13\n1..{len(wanted) + 1}")
    failed = len(wanted) < 4
    print(f"{'not ' if failed else ''}ok 1 - the page shows commands")
    for number, ((command, lines), output) in enumerate(zip(wanted, outputs), 2):
        good = agrees(joined(output), joined(lines))
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
