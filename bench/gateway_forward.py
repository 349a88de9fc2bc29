#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Processor time of a packet that the gateway forwards, by sockets and past the network stack (AF_XDP):
gateway_forward.py BUILD_DIRECTORY [--rounds N] [--seconds N] [--quick] [--json FILE]

Two network namespaces and a veth pair between them, as in gateway_flood.py, with its needs and libxdp. weir-flood sends from
200 sources, each of which has a session. The backend is an echo on the senders' host. So each packet crosses the gateway
twice, there and back, and each crossing is one packet received and one sent. One policy of sources decides, and denies none.

Processor time is that of the gateway and of the thread in which the kernel receives (threaded NAPI), on a processor of their
own. What the kernel does on the other end of the wire is on the other processor (RPS), with the sender and the backend. Frames
are copied, as veth has no other way. What found no room in a queue is not counted as a packet, and its cost is in the time.

Ways take turns, round after round.
"""
import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "apps" / "gateway"), str(HERE / "packets")]
import demo as gateway_demo  # noqa: E402
import veth  # noqa: E402
from processor_time import processor_ns  # noqa: E402

WAYS = {"sockets": None, "generic": "mode=generic,forward", "native": "mode=native,forward"}
LOADS = {"10,000 a second": 10000, "40,000 a second": 40000, "all that there is": 0}
RATES = {load: str(rate or "all") for load, rate in LOADS.items()}  # in the names of figures
PORT, BACKEND_PORT, SOURCES, AT_ONCE = 7000, 7001, "11.0.0.1,200", 32
POLICIES = "policies:\n  - {name: source, limits: [{algorithm: token_bucket, limit: 1000000, period: 1s}]}\n"


class Bench:
    def __init__(self, build, wire):
        self.build, self.wire = pathlib.Path(build).resolve(), wire
        self.demo = gateway_demo.Demo(build)
        self.cores = sorted(os.sched_getaffinity(0))[:2]
        if len(self.cores) < 2:
            raise veth.Unavailable("two processors are needed")
        self.policies = self.demo.dir / "policies.yaml"
        self.policies.write_text(POLICIES)
        self.demo.start(*wire.command(wire.clients, "taskset", "-c", str(self.cores[0]), str(self.demo.bin / "weir-traffic"), "--echo",
                                      f"{veth.CLIENTS}:{BACKEND_PORT}", "--seconds", "0"))

    @contextlib.contextmanager
    def gateway(self, way):
        self.http = gateway_demo.free_port(gateway_demo.socket.SOCK_STREAM)
        log = self.demo.dir / "log"
        xdp = ["--xdp", f"{self.wire.name},{WAYS[way]}"] if WAYS[way] else []
        before = os.sched_getaffinity(0)
        with self.wire.on(self.wire.gateway):
            os.sched_setaffinity(0, {self.cores[1]})
            self.child = self.demo.start(self.demo.bin / "weir-gateway", "--listen", f"{veth.GATEWAY}:{PORT}", "--backend",
                                         f"{veth.CLIENTS}:{BACKEND_PORT}", "--policies", self.policies, "--metrics",
                                         f"127.0.0.1:{self.http}", "--threads", 1, *xdp, stderr=open(log, "w"))
            os.sched_setaffinity(0, before)
            try:
                gateway_demo.wait_for(f"the gateway did not start: {log.read_text()}", lambda: gateway_demo.status(self.http))
                if xdp and gateway_demo.status(self.http)["forward"] is None:
                    raise veth.Unavailable(log.read_text().strip())
                for thread in self.wire.threads():
                    os.sched_setaffinity(thread, {self.cores[1]})
                yield
            finally:
                self.child.terminate()
                self.child.wait(20)

    def read(self):
        with self.wire.on(self.wire.gateway):
            status = gateway_demo.status(self.http)
        spent = sum(processor_ns(pid) for pid in (self.child.pid, *self.wire.threads()))
        forward = status["forward"] or {"sent": 0}
        return status["passed"] - status["unsendable"] + status["replies"], spent, time.monotonic(), forward["sent"]

    def measure(self, way, rate, seconds):
        with self.gateway(way):
            flood = subprocess.Popen(self.wire.command(self.wire.clients, "taskset", "-c", str(self.cores[0]),
                                                       str(self.build / "bench" / "packets" / "weir-flood"), "--interface", self.wire.name,
                                                       "--to", f"{veth.GATEWAY}:{PORT}", "--mac", self.wire.mac(self.wire.gateway), "--sources",
                                                       SOURCES, "--rate", str(rate), "--frames", "--at-once", str(AT_ONCE), "--seconds", "60"),
                                     stdout=subprocess.DEVNULL)
            try:
                time.sleep(1.5)  # the next hop is known, and there are all sessions
                before = self.read()
                time.sleep(seconds)
                packets, spent, span, by_lane = (b - a for a, b in zip(before, self.read()))
            finally:
                flood.terminate()
                flood.wait(20)
        return {"us": spent / max(packets, 1) / 1000, "per_s": packets / span, "lane": by_lane / max(packets, 1),
                "full": spent / 1e9 / span}


def receive_elsewhere(wire, core):
    """Has the kernel receive what the gateway sends on a processor of the other end (RPS), as that would be another machine."""
    queue = f"/sys/class/net/{wire.name}/queues/rx-0/rps_cpus"
    done = subprocess.run(wire.command(wire.clients, "sh", "-c", f"echo {1 << core:x} >{queue}"), capture_output=True, timeout=20, check=False)
    if done.returncode != 0:
        raise veth.Unavailable("this kernel has no RPS")


def spread(values, digits):
    return f"{statistics.median(values):,.{digits}f} ({min(values):,.{digits}f} to {max(values):,.{digits}f})"


def figures_of(rows):
    figures = {}
    for load, ways in rows.items():
        for way, samples in ways.items():
            base = f"gateway_forward/{RATES[load]}/{way}"
            for part, unit in (("us", "us"), ("per_s", "packets/s"), ("lane", "share"), ("full", "of a processor")):
                values = [s[part] for s in samples]
                figures[f"{base}_{part}"] = {"value": statistics.median(values), "unit": unit, "low": min(values), "high": max(values),
                                             "samples": values}
    return figures


def show(rows):
    print("| load | way | us of processor time | packets a second | by AF_XDP | processor | to sockets, round by round |\n"
          "| --- | --- | --- | --- | --- | --- | --- |")
    for load, ways in rows.items():
        for way, samples in ways.items():
            ratios = [a["us"] / b["us"] for a, b in zip(samples, ways["sockets"])]
            cells = [spread([s["us"] for s in samples], 2), spread([s["per_s"] for s in samples], 0),
                     f"{100 * statistics.median(s['lane'] for s in samples):.1f} %", f"{statistics.median(s['full'] for s in samples):.2f}",
                     "" if way == "sockets" else spread(ratios, 2)]
            print(f"| {load} | {way} | " + " | ".join(cells) + " |")


def main():
    parser = argparse.ArgumentParser(prog="gateway_forward.py", description="A forwarded packet by sockets and by AF_XDP.")
    parser.add_argument("build")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--quick", action="store_true", help="whether it runs, not how fast it is")
    parser.add_argument("--json", metavar="FILE", help="writes {name: {value, unit, low, high, samples}} as well")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.seconds = 1, 0.5
    rows = {load: {way: [] for way in WAYS} for load in LOADS}
    try:
        with veth.Veth() as wire:
            wire.receive_in_threads()
            # As from a network card: with generic XDP packets without a checksum go by sockets.
            subprocess.run(wire.command(wire.clients, "ethtool", "-K", wire.name, "tx", "off"), check=True, capture_output=True, timeout=20)
            bench = Bench(options.build, wire)
            receive_elsewhere(wire, bench.cores[0])
            try:
                for number in range(options.rounds):
                    for load, rate in LOADS.items():
                        for way in list(WAYS)[number % 3:] + list(WAYS)[:number % 3]:
                            rows[load][way].append(bench.measure(way, rate, options.seconds))
            finally:
                bench.demo.close()
    except veth.Unavailable as reason:
        print(f"gateway_forward.py: {reason}", file=sys.stderr)
        sys.exit(77)
    show(rows)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(figures_of(rows), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
