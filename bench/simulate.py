#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How fast weir simulate reads a log, beside tools that count lines or clients of the same log:
simulate.py BUILD_DIRECTORY [--lines N] [--passes N] [--instructions] [--quick] [--json FILE]

The logs have 50,000 clients. In `combined_RATE` so many requests come in a second: the clock of the library moves at most
1,000 times a second, so a busier log is read faster. The others have 1,000 requests a second, with milliseconds.

weir      weir simulate, one policy with a token bucket
wc        wc -l: what reading the log and finding the ends of its lines takes
awk       an associative array of how many lines each client has
goaccess  the report of GoAccess, of a tenth of the lines of combined_1000 (scripts/setup test installs it)

Given is the processor time, user and system, of a line; opening the tables is in it. Tools take turns. The least of the
passes is printed, as whatever else the machine does only ever adds; --json FILE has all of them.
--instructions adds the instructions a line of weir, as valgrind counts them: what N and 2 N lines differ by.
"""
import argparse
import json
import os
import pathlib
import random
import re
import shutil
import statistics
import subprocess
import tempfile
import time

START_S = 1764064800
CLIENTS = 50000
LOGS = (("combined", 100), ("combined", 1000), ("combined", 10000), ("combined", 100000), ("json", 1000), ("haproxy", 1000),
        ("csv", 1000))
COUNTED = 100000  # lines for valgrind
POLICIES = """policies:
  - {name: api, limits: [{algorithm: token_bucket, limit: 10, period: 1s, burst: 20}]}
"""
LINES = {
    "combined": '{client} - - [{clf} +0000] "GET /api/v1/items/{item}?page=2 HTTP/1.1" 200 {size} "https://example.org/" '
                '"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36"\n',
    "json": '{{"msec":"{second}.{ms:03d}","remote_addr":"{client}","remote_user":"",'
            '"request_uri":"/api/v1/items/{item}?page=2","bytes_sent":{size}}}\n',
    "haproxy": '{syslog} lb haproxy[14]: {client}:40000 [{clf}.{ms:03d}] web app/s1 10/0/30/69/109 200 {size} - - ---- '
               '1/1/1/1/0 0/0 "GET /api/v1/items/{item}?page=2 HTTP/1.1"\n',
    "csv": "{second}.{ms:03d},{client}\n",
}
# Where awk finds the client.
AWK = {"combined": ["{n[$1]++}"], "json": ["-F\"", "{n[$8]++}"], "haproxy": ["{n[$6]++}"], "csv": ["-F,", "{n[$2]++}"]}


def write_log(path, kind, lines, rate):
    draw = random.Random(1)
    clients = [".".join(str(draw.randrange(1, 255)) for _ in range(4)) for _ in range(CLIENTS)]
    with open(path, "w", encoding="ascii") as log:
        for first in range(0, lines, rate):
            second = START_S + first // rate
            at = time.gmtime(second)
            times = {"second": second, "clf": time.strftime("%d/%b/%Y:%H:%M:%S", at),
                     "syslog": time.strftime("%b %d %H:%M:%S", at)}
            log.write("".join(LINES[kind].format(client=clients[int(CLIENTS * draw.random() ** 3)], ms=(i - first) * 1000 // rate,
                                                 item=i % 1000, size=i % 5000, **times)
                              for i in range(first, min(first + rate, lines))))


def processor_s(words):
    child = subprocess.Popen([str(word) for word in words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        raise SystemExit(f"{words} ended with {child.returncode}")
    return usage.ru_utime + usage.ru_stime


def instructions(words):
    done = subprocess.run(["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", *words],
                          capture_output=True, text=True, check=True)
    return int(re.search(r"I +refs: +([\d,]+)", done.stderr)[1].replace(",", ""))


class Bench:
    def __init__(self, build, place, options):
        self.weir = [str(pathlib.Path(build) / "apps" / "weir" / "weir"), "simulate", "-p", str(place / "policies.yaml")]
        self.place, self.options, self.figures = place, options, {}
        (place / "policies.yaml").write_text(POLICIES, encoding="ascii")

    def tools(self, kind, rate, log):
        """The command of each tool, and how many lines it reads."""
        lines = self.options.lines
        tools = {"weir": ([*self.weir, log], lines), "wc": (["wc", "-l", log], lines), "awk": (["awk", *AWK[kind], log], lines)}
        if (kind, rate) == ("combined", 1000) and shutil.which("goaccess"):
            some = self.place / "some.log"
            write_log(some, kind, lines // 10, rate)
            tools["goaccess"] = (["goaccess", some, "--log-format=COMBINED", "--no-global-config", "--no-progress",
                                  "-o", self.place / "goaccess.json"], lines // 10)
        return tools

    def measure(self, kind, rate):
        name = f"simulate/{kind}" + (f"_{rate}" if kind == "combined" else "")
        log = self.place / "access.log"
        write_log(log, kind, self.options.lines, rate)
        tools = self.tools(kind, rate, log)
        samples = {tool: [] for tool in tools}
        for _ in range(self.options.passes):
            for tool, (words, lines) in tools.items():
                samples[tool].append(processor_s(words) * 1e9 / lines)
        for tool, all_of in samples.items():
            self.figures[f"{name}/{tool}"] = {"value": statistics.median(all_of), "unit": "ns", "samples": all_of}
        least = {tool: min(all_of) for tool, all_of in samples.items()}
        others = ", ".join(f"{tool} {least['weir'] / of:.2f}" for tool, of in least.items() if tool != "weir")
        more = f", {self.count(kind, rate)} instructions a line" if self.options.instructions else ""
        print(f"{name[9:]:16} {1e9 / least['weir']:10,.0f} lines a second{more}; time by that of {others}", flush=True)

    def count(self, kind, rate):
        counts = []
        for lines in (COUNTED, 2 * COUNTED):
            write_log(self.place / "access.log", kind, lines, rate)
            counts.append(instructions([*self.weir, str(self.place / "access.log")]))
        return round((counts[1] - counts[0]) / COUNTED)


def main():
    parser = argparse.ArgumentParser(prog="simulate.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--lines", type=int, default=2000000)
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--instructions", action="store_true")
    parser.add_argument("--quick", action="store_true", help="whether it runs, not how fast it is")
    parser.add_argument("--json", metavar="FILE", help="writes {name: {value, unit, samples}} as well")
    options = parser.parse_args()
    if options.quick:
        options.lines, options.passes = 20000, 1
    with tempfile.TemporaryDirectory(prefix="weir-bench-simulate-") as name:
        bench = Bench(options.build, pathlib.Path(name), options)
        for kind, rate in LOGS:
            bench.measure(kind, rate)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(bench.figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
