#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Processor time of the gateway and of dnsdist for a query that they forward, and for one that they drop:
dns.py BUILD_DIRECTORY [--rounds N] [--seconds N] [--quick] [--json FILE]

dnsperf asks for random names, nsd answers, and between them is the gateway (one thread, a limit for each source) or dnsdist
(MaxQPSIPRule with DropAction), on the loopback. scripts/setup --bench installs dnsperf, nsd and dnsdist.

forward  dnsperf keeps 100 queries of 20 clients under way; the limit has room for all
drop     dnsperf sends 20,000 queries a second, of which the limit lets ten pass: most wake the proxy
flood    dnsperf sends all it can, of which the limit lets ten pass: the proxy finds many at once

Processor time is that of all threads of the process, as the scheduler counts it. On the loopback a packet is received by
whoever sends it: the time has what the kernel does for queries to the backend and for answers to clients, and not what it
does for those that come. The proxy has the second processor to itself; dnsperf and nsd have the first one. Subjects take
turns, round after round.
"""
import argparse
import json
import os
import pathlib
import random
import re
import shutil
import socket
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "apps" / "gateway"))
import demo as gateway_demo  # noqa: E402
from processor_time import processor_ns  # noqa: E402

NAMES = 10000
ROOM, FEW = 10000000, 10  # queries a second for each source
LOADS = {"forward": ["-q", "100", "-t", "2"], "drop": ["-q", "20000", "-Q", "20000", "-t", "0.5"],
         "flood": ["-q", "30000", "-Q", "200000", "-t", "0.1"]}
PROGRAMS = {name: shutil.which(name) or shutil.which(name, path="/usr/sbin") for name in ("dnsperf", "nsd", "dnsdist")}
ZONE = "$TTL 300\n@ IN SOA ns hostmaster 1 3600 600 86400 300\n@ IN NS ns\nns IN A 127.0.0.1\n* IN A 192.0.2.1\n"
NSD = """server:
  ip-address: 127.0.0.1@{port}
  server-count: 1
  username: ""
  chroot: ""
  pidfile: ""
  database: ""
  zonesdir: "{dir}"
  zonelistfile: "{dir}/zone.list"
  xfrdfile: "{dir}/xfrd.state"
  verbosity: 0
  rrl-ratelimit: 0
remote-control:
  control-enable: no
zone:
  name: example.test
  zonefile: "{dir}/zone"
"""
DNSDIST = """setLocal("127.0.0.1:{listen}")
newServer({{address="127.0.0.1:{port}"}}):setUp()
addAction(MaxQPSIPRule({limit}), DropAction())
"""
QUESTION = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x02q0\x07example\x04test\x00\x00\x01\x00\x01"


def answers(port):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(0.2)
        s.connect(("127.0.0.1", port))
        try:
            s.send(QUESTION)
            return len(s.recv(512)) > len(QUESTION)
        except OSError:
            return False


class Bench:
    def __init__(self, build, seconds):
        self.demo, self.seconds = gateway_demo.Demo(build), seconds
        self.dir = self.demo.dir
        self.cores = sorted(os.sched_getaffinity(0))
        (self.dir / "zone").write_text(ZONE)
        rng = random.Random(1)
        (self.dir / "queries").write_text("".join(f"q{rng.randrange(10 ** 6)}.example.test A\n" for _ in range(NAMES)))
        self.nsd_port = gateway_demo.free_port(socket.SOCK_DGRAM)
        (self.dir / "nsd.conf").write_text(NSD.format(port=self.nsd_port, dir=self.dir))
        self.start(0, "nsd", PROGRAMS["nsd"], "-d", "-c", self.dir / "nsd.conf")
        gateway_demo.wait_for("nsd did not start", lambda: answers(self.nsd_port))
        self.subjects = {(name, load): self.proxy(name, ROOM if load == "forward" else FEW) for load in LOADS for name in ("gateway", "dnsdist")}

    def start(self, core, name, *command):
        log = open(self.dir / f"{name}.log", "a", encoding="utf-8")
        return self.demo.start("taskset", "-c", self.cores[core % len(self.cores)], *command, stdout=log, stderr=log)

    def proxy(self, name, limit):
        """Its port and its process."""
        listen = gateway_demo.free_port(socket.SOCK_DGRAM)
        if name == "gateway":
            path = self.dir / f"policies-{limit}.yaml"
            path.write_text(f"policies:\n  - {{name: source, limits: [{{algorithm: token_bucket, limit: {limit}, period: 1s, burst: {limit}}}]}}\n")
            child = self.start(1, name, self.demo.bin / "weir-gateway", "--listen", f"127.0.0.1:{listen}", "--backend", f"127.0.0.1:{self.nsd_port}",
                               "--policies", path, "--threads", 1)
        else:
            path = self.dir / f"dnsdist-{limit}.conf"
            path.write_text(DNSDIST.format(listen=listen, port=self.nsd_port, limit=limit))
            child = self.start(1, name, PROGRAMS["dnsdist"], "--supervised", "--disable-syslog", "-C", path)
        gateway_demo.wait_for(f"{name} did not start: {self.dir / name}.log", lambda: answers(listen))
        return listen, child

    def ask(self, port, load, seconds):
        """Queries that were sent, and those that were answered."""
        out = subprocess.run(["taskset", "-c", str(self.cores[0]), PROGRAMS["dnsperf"], "-s", "127.0.0.1", "-p", str(port), "-d",
                              str(self.dir / "queries"), "-c", "20", "-T", "1", "-l", str(seconds), *LOADS[load]],
                             capture_output=True, text=True, check=True).stdout
        return [int(re.search(rf"Queries {word}: *(\d+)", out).group(1)) for word in ("sent", "completed")]

    def measure(self, name, load):
        """Processor time for each query that was forwarded or dropped, in us, and how many there were a second."""
        port, child = self.subjects[name, load]
        before, start = processor_ns(child.pid), time.monotonic()
        sent, answered = self.ask(port, load, self.seconds)
        span, used = time.monotonic() - start, processor_ns(child.pid) - before
        count = answered if load == "forward" else sent - answered
        return {"us": used / 1e3 / count, "per_s": count / span, "lost": 1 - answered / sent}

    def alone(self):
        """Queries a second of nsd without a proxy, by the same load."""
        return self.ask(self.nsd_port, "forward", self.seconds)[1] / self.seconds


def spread(values, unit):
    return {"value": statistics.median(values), "unit": unit, "low": min(values), "high": max(values), "samples": values}


def figures_of(rows, alone):
    figures = {"dns/nsd_alone_per_s": spread(alone, "queries/s")}
    for (name, load), samples in rows.items():
        figures[f"dns/{name}/{load}"] = spread([s["us"] for s in samples], "us of processor time")
        figures[f"dns/{name}/{load}_per_s"] = spread([s["per_s"] for s in samples], "queries/s")
    for load in LOADS:
        ratios = [b["us"] / a["us"] for a, b in zip(rows["gateway", load], rows["dnsdist", load])]
        figures[f"dns/{load}_ratio"] = spread(ratios, "ratio")
    return figures


def cell(figure, digits):
    return f"{figure['value']:,.{digits}f} ({figure['low']:,.{digits}f} to {figure['high']:,.{digits}f})"


def show(figures, rounds):
    print(f"Processor time in microseconds, medians of {rounds} rounds, least and most.\n")
    print("| | for a query forwarded | queries a second | for a query dropped of 20,000 a second | of all that dnsperf sends | dropped a second |\n| --- | --- | --- | --- | --- | --- |")
    for name in ("gateway", "dnsdist"):
        print(f"| {name if name != 'gateway' else 'weir-gateway'} | {cell(figures[f'dns/{name}/forward'], 2)} | "
              f"{cell(figures[f'dns/{name}/forward_per_s'], 0)} | {cell(figures[f'dns/{name}/drop'], 2)} | {cell(figures[f'dns/{name}/flood'], 2)} | {cell(figures[f'dns/{name}/flood_per_s'], 0)} |")
    print(f"| dnsdist / weir-gateway, round by round | {cell(figures['dns/forward_ratio'], 2)} | | {cell(figures['dns/drop_ratio'], 2)} | "
          f"{cell(figures['dns/flood_ratio'], 2)} | |")
    print(f"\nnsd alone answers {cell(figures['dns/nsd_alone_per_s'], 0)} queries a second of the same dnsperf.")


def main():
    parser = argparse.ArgumentParser(prog="dns.py", description="Processor time of the gateway and of dnsdist for a query.")
    parser.add_argument("build")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="whether it runs, not how fast it is")
    parser.add_argument("--json", metavar="FILE", help="writes {name: {value, unit, low, high, samples}} as well")
    options = parser.parse_args()
    missing = [name for name, path in PROGRAMS.items() if path is None]
    if missing:
        print(f"dns.py: there is no {', no '.join(missing)}; scripts/setup --bench installs them", file=sys.stderr)
        sys.exit(77)
    if options.quick:
        options.rounds, options.seconds = 1, 1
    bench = Bench(options.build, options.seconds)
    rows, alone = {subject: [] for subject in bench.subjects}, []
    try:
        for (name, load) in bench.subjects:
            bench.measure(name, load)  # warms up: sessions, caches
        for number in range(options.rounds):
            alone.append(bench.alone())
            for subject in list(bench.subjects)[::1 if number % 2 == 0 else -1]:
                rows[subject].append(bench.measure(*subject))
            print(f"round {number + 1} of {options.rounds}", file=sys.stderr, flush=True)
    finally:
        bench.demo.close()
    figures = figures_of(rows, alone)
    show(figures, options.rounds)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
