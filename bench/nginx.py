#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
What a request costs nginx with weir_limit_req, with its own limit_req, and without a limit.

  bench/nginx.py BUILD_DIRECTORY [--seconds N] [--rounds N] [--workers N]

The build is one of release. wrk asks for a picture of 43 bytes on 64 connections that are kept alive. All nginx run, and
one at a time is asked, each for a second or so, in turn, round after round. A row has the medians over the rounds:
requests a second, and processor time of all workers for one request, threads of the module included. Ratios are of each
round, so that what slows all of them down for a while does not count.
"""
import argparse
import contextlib
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "apps" / "nginx"))
import nginx_demo  # noqa: E402

ZONE = "{0}_zone {1} zone=bench:10m rate=1000000r/s;"
LIMIT = "{0} zone=bench burst=1000000 nodelay;"
# Name, key, and what stands before limit_req.
CASES = {
    "none": ("", ""),
    "limit_req, one key": ("limit_req", "$server_port"),
    "weir, one key": ("weir_limit_req", "$server_port"),
    "limit_req, a key a connection": ("limit_req", "$connection"),
    "weir, a key a connection": ("weir_limit_req", "$connection"),
    "limit_req, refused": ("limit_req", "refused"),
    "weir, refused": ("weir_limit_req", "refused"),
}


def configuration(directive, key):
    if not directive:
        zone = limit = ""
    elif key == "refused":
        zone, limit = f"{directive}_zone $server_port zone=bench:10m rate=1r/m;", f"{directive} zone=bench;"
    else:
        zone, limit = ZONE.format(directive, key), LIMIT.format(directive)
    return f"{zone} keepalive_requests 100000000; server {{ listen 127.0.0.1:{{port}}; {limit} empty_gif; }}".replace(
        "empty_gif;", "location / { empty_gif; }")


def processor_seconds(pids):
    ticks = 0
    for pid in pids:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def measure(nginx, seconds):
    """Requests a second, and microseconds of the workers for each."""
    pids = nginx.worker_pids()
    before = processor_seconds(pids)
    out = subprocess.run(["wrk", "-t", "1", "-c", "64", "-d", str(seconds), f"http://127.0.0.1:{nginx.port}/"],
                         capture_output=True, text=True, check=True).stdout
    count, span = re.search(r"(\d+) requests in ([\d.]+)s", out).groups()
    return int(count) / float(span), (processor_seconds(pids) - before) / int(count) * 1e6


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--seconds", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    if nginx_demo.PROGRAM is None or shutil.which("wrk") is None:
        sys.exit("bench/nginx.py needs nginx and wrk: scripts/setup test installs them")
    rounds = []
    with contextlib.ExitStack() as stack:
        servers = {name: stack.enter_context(nginx_demo.Nginx(options.build, configuration(*case), workers=options.workers,
                                                              level="crit")) for name, case in CASES.items()}
        for number in range(options.rounds):
            names = list(CASES)
            shift = number % len(names)  # another one begins each round
            rounds.append({name: measure(servers[name], options.seconds) for name in names[shift:] + names[:shift]})
            print(f"round {number + 1} of {options.rounds}", file=sys.stderr, flush=True)
    print(f"{'':32} {'requests/s':>11} {'us/request':>11} {'of none':>8} {'of limit_req':>13}")
    for name in CASES:
        rate, used = (statistics.median(r[name][i] for r in rounds) for i in (0, 1))
        of_none = statistics.median(r["none"][1] / r[name][1] for r in rounds)
        twin = name.replace("weir", "limit_req")
        of_twin = statistics.median(r[twin][1] / r[name][1] for r in rounds) if twin != name else None
        print(f"{name:32} {rate:11.0f} {used:11.2f} {of_none:8.3f}" + (f" {of_twin:13.3f}" if of_twin else ""))
    print("\nof none, of limit_req: the processor time of that one, divided by this one's.")


if __name__ == "__main__":
    main()
