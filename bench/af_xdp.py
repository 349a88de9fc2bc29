#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Processor time of a UDP packet that is received and sent back, by sockets and by AF_XDP:
af_xdp.py BUILD_DIRECTORY [--rounds N] [--seconds N]

Two network namespaces and a veth pair between them, as in gateway_flood.py, with its needs and libxdp. weir-flood sends from
1,000 sources, and weir-echo-ways sends back. Native XDP; frames are copied, as veth has no other way. Processor time is that
of weir-echo-ways and of the thread in which the kernel receives; with it comes what the kernel does on the other end of the
wire for what was sent, for both ways alike.

paced  60,000 packets a second, 32 at once
full   all that weir-flood can send: the processor is full

Ways take turns, round after round. The figures are in docs/decisions/031-io-uring.md.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "apps" / "gateway"), str(HERE / "packets")]
import veth  # noqa: E402
from processor_time import processor_ns  # noqa: E402

WAYS, LOADS, PORT = ("sockets", "af_xdp"), {"paced": 60000, "full": 0}, 7000


def sent(wire):
    return json.loads(wire.ip("-j", "-s", "link", "show", wire.name, host=wire.gateway))[0]["stats64"]["tx"]["packets"]


def start(command):
    """A child that stays: the kernel frees the queue of an earlier one some time after that has ended."""
    for _ in range(10):
        child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        time.sleep(1)  # XDP makes the device anew, with its threads
        if child.poll() is None:
            return child
    raise veth.Unavailable(child.stderr.read().strip())


def measure(build, wire, way, rate, seconds):
    """Microseconds of processor time for a packet, and packets a second."""
    first, last = sorted(os.sched_getaffinity(0))[0], sorted(os.sched_getaffinity(0))[-1]
    to = f"{veth.GATEWAY}:{PORT}"
    echo = start(wire.command(wire.gateway, "taskset", "-c", str(last), build / "weir-echo-ways", way, wire.name, to))
    for thread in wire.threads():
        os.sched_setaffinity(thread, {last})
    flood = subprocess.Popen(wire.command(wire.clients, "taskset", "-c", str(first), build / "weir-flood", "--interface", wire.name, "--to", to,
                                          "--mac", wire.mac(wire.gateway), "--sources", "11.0.0.1,1000", "--rate", str(rate), "--frames",
                                          "--at-once", "32", "--seconds", str(round(seconds + 10))), stdout=subprocess.DEVNULL)
    try:
        time.sleep(0.5)
        at, count, before = time.monotonic(), sent(wire), [processor_ns(p) for p in (echo.pid, *wire.threads())]
        time.sleep(seconds)
        count, spent = sent(wire) - count, sum(processor_ns(p) for p in (echo.pid, *wire.threads())) - sum(before)
        return spent / count / 1000, count / (time.monotonic() - at)
    finally:
        for child in (flood, echo):
            child.terminate()
            child.wait(20)


def main():
    parser = argparse.ArgumentParser(prog="af_xdp.py", description="A packet by sockets and by AF_XDP.")
    parser.add_argument("build")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=2)
    options = parser.parse_args()
    build = pathlib.Path(options.build).resolve() / "bench" / "packets"
    if not (build / "weir-echo-ways").exists():
        print("af_xdp.py: the build has no weir-echo-ways: it needs libxdp and libbpf", file=sys.stderr)
        sys.exit(77)
    rows = {load: {way: [] for way in WAYS} for load in LOADS}
    try:
        with veth.Veth() as wire:
            wire.receive_in_threads()
            for number in range(options.rounds):
                for load, rate in LOADS.items():
                    for way in WAYS if number % 2 == 0 else WAYS[::-1]:
                        rows[load][way].append(measure(build, wire, way, rate, options.seconds))
    except veth.Unavailable as reason:
        print(f"af_xdp.py: {reason}", file=sys.stderr)
        sys.exit(77)
    print("| load | way | us of processor time | packets a second | to sockets, round by round |\n| --- | --- | --- | --- | --- |")
    for load, ways in rows.items():
        for way, samples in ways.items():
            times, rates = [s[0] for s in samples], [s[1] for s in samples]
            ratios = [a[0] / b[0] for a, b in zip(samples, ways["sockets"])]
            ratio = "" if way == "sockets" else f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
            print(f"| {load} | {way} | {statistics.median(times):.2f} ({min(times):.2f} to {max(times):.2f}) | {statistics.median(rates):,.0f} | {ratio} |")


if __name__ == "__main__":
    main()
