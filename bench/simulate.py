#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How fast weir simulate reads a log: simulate.py [--weir PROGRAM] [--lines N] [--passes N] [--instructions] [--json]

Writes Combined logs of some 170 bytes a line and 50,000 clients, of different rates of requests: the clock of the library
moves at most 1,000 times a second, so a busier log is read faster. Given is the least processor time of PASSES runs, user
and system, as whatever else the machine does only ever adds. Opening the tables is in it.

--instructions adds the instructions a line, as valgrind counts them: what N and 2 N lines differ by.
--json prints the same as a list.
"""
import argparse
import json
import os
import pathlib
import random
import re
import subprocess
import tempfile
import time

START_S = 1764064800
CLIENTS = 50000
RATES = (100, 1000, 10000, 100000)
COUNTED = 100000  # lines for valgrind
POLICIES = """policies:
  - {name: api, limits: [{algorithm: token_bucket, limit: 10, period: 1s, burst: 20}]}
"""
TAIL = ('] "GET /api/v1/items/%d?page=2 HTTP/1.1" 200 %d "https://example.org/" '
        '"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36"\n')


def write_log(path, lines, rate):
    draw = random.Random(1)
    clients = [".".join(str(draw.randrange(1, 255)) for _ in range(4)) for _ in range(CLIENTS)]
    with open(path, "w") as log:
        for first in range(0, lines, rate):
            at = time.strftime("%d/%b/%Y:%H:%M:%S +0000", time.gmtime(START_S + first // rate))
            log.write("".join(f"{clients[int(CLIENTS * draw.random() ** 3)]} - - [{at}" + TAIL % (i % 1000, i % 5000)
                              for i in range(first, min(first + rate, lines))))


def processor_s(words):
    child = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        raise SystemExit(f"{words} ended with {child.returncode}")
    return usage.ru_utime + usage.ru_stime


def instructions(words):
    done = subprocess.run(["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", *words],
                          capture_output=True, text=True, check=True)
    return int(re.search(r"I +refs: +([\d,]+)", done.stderr)[1].replace(",", ""))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weir", default="build/apps/weir/weir", help="the program")
    parser.add_argument("--lines", type=int, default=2000000)
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--instructions", action="store_true")
    parser.add_argument("--json", action="store_true")
    choice = parser.parse_args()
    figures = []
    with tempfile.TemporaryDirectory(prefix="weir-bench-simulate-") as name:
        place = pathlib.Path(name)
        (place / "policies.yaml").write_text(POLICIES)
        for rate in RATES:
            words = [choice.weir, "simulate", "-p", str(place / "policies.yaml"), str(place / "access.log")]
            write_log(place / "access.log", choice.lines, rate)
            least = min(processor_s(words) for _ in range(choice.passes))
            figure = {"requests_per_s": rate, "lines": choice.lines, "seconds": round(least, 3),
                      "lines_per_s": round(choice.lines / least)}
            if choice.instructions:
                counts = []
                for lines in (COUNTED, 2 * COUNTED):
                    write_log(place / "access.log", lines, rate)
                    counts.append(instructions(words))
                figure["instructions_per_line"] = round((counts[1] - counts[0]) / COUNTED)
            figures.append(figure)
            if not choice.json:
                more = f", {figure['instructions_per_line']} instructions a line" if choice.instructions else ""
                print(f"{rate:7,} requests a second: {figure['lines_per_s']:10,} lines a second{more}", flush=True)
    if choice.json:
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
