#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Processor time of a packet of a standing session and of a new client, of one gateway or of several builds beside one
another: gateway_sessions.py BUILD_DIRECTORY... [--rounds N] [--seconds N]

On the loopback, with one thread and without limits. The gateway has a processor of its own. Clients are addresses of 127/8;
a new one evicts another. The backend reads nothing. Builds take turns, round after round; the ratios are to the first build.
"""
import argparse
import ipaddress
import os
import pathlib
import socket
import statistics
import struct
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "apps" / "gateway")]
import demo as gateway_demo  # noqa: E402
from processor_time import processor_ns  # noqa: E402

FIRST = int(ipaddress.ip_address("127.64.0.0"))
PKTINFO = 8  # IP_PKTINFO, which the module lacks
STANDING, STANDING_RATE, NEW_RATE = 1000, 20000, 5000


class Gateway:
    def __init__(self, build, core):
        self.demo = gateway_demo.Demo(build)
        self.backend = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.backend.bind(("127.0.0.1", 0))
        self.child, self.port, self.http = self.demo.gateway(self.backend.getsockname()[1], "--threads", 1)
        for task in os.listdir(f"/proc/{self.child.pid}/task"):
            os.sched_setaffinity(int(task), {core})
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("0.0.0.0", 0))
        self.next = STANDING

    def send(self, number):
        source = struct.pack("I4s4s", 0, (FIRST + number % (1 << 22)).to_bytes(4, "big"), bytes(4))
        self.socket.sendmsg([b"x" * 64], [(socket.IPPROTO_IP, PKTINFO, source)], 0, ("127.0.0.1", self.port))

    def measure(self, seconds, rate, numbers):
        """Microseconds of the gateway for each packet that it forwarded."""
        before, began = gateway_demo.status(self.http)["backends"][0]["sent"], processor_ns(self.child.pid)
        start, sent = time.monotonic(), 0
        while time.monotonic() < start + seconds:
            while sent < (time.monotonic() - start) * rate:
                self.send(next(numbers))
                sent += 1
            time.sleep(0.0005)
        time.sleep(0.1)
        took = processor_ns(self.child.pid) - began
        return took / 1000 / (gateway_demo.status(self.http)["backends"][0]["sent"] - before)

    def standing(self, seconds):
        return self.measure(seconds, STANDING_RATE, iter(lambda: int(time.monotonic_ns() // 1000) % STANDING, None))

    def new(self, seconds):
        def numbers():
            while True:
                self.next += 1
                yield self.next
        return self.measure(seconds, NEW_RATE, numbers())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("builds", nargs="+", metavar="BUILD_DIRECTORY")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=1.5)
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))[:2]
    os.sched_setaffinity(0, {cores[0]})
    gateways, times = [], {}
    try:
        for build in options.builds:
            gateways.append(Gateway(build, cores[-1]))
        for _ in range(options.rounds):
            for kind in ("standing", "new"):
                for build, gateway in zip(options.builds, gateways):
                    times.setdefault((kind, build), []).append(getattr(gateway, kind)(options.seconds))
    finally:
        for gateway in gateways:
            gateway.demo.close()
    for kind in ("standing", "new"):
        for build in options.builds:
            got = times[kind, build]
            ratios = [a / b for a, b in zip(got, times[kind, options.builds[0]])]
            print(f"{kind:8}  {build}: {statistics.median(got):.2f} us ({min(got):.2f} to {max(got):.2f}), "
                  f"{statistics.median(ratios):.3f} of the first ({min(ratios):.3f} to {max(ratios):.3f})")


if __name__ == "__main__":
    main()
