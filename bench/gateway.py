#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Packets a second the gateway forwards with limits on, against off: gateway.py BUILD_DIRECTORY [PAIRS]

Two gateways that differ in nothing else are asked for all they can do, in turn: off on, on off, off on, ... so that
a machine that slows down or speeds up does so for both. Forwarded means sent to the backend: what passed the limits,
less what its socket did not take. On two cores the sender, the backend and the gateway share the processors, and who
gets how much is the scheduler's mood: packets per second of the gateway's own processor time are given as well.
"""
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "apps" / "gateway"))
import demo as gateway_demo  # noqa: E402

SECONDS = 1.0
CLIENTS = "all,64,0"


class Subject:
    def __init__(self, demo, backend, policies):
        more = ["--policies", policies] if policies else []
        self.demo = demo
        self.child, self.listen, self.http = demo.gateway(backend, *more)

    def read(self):
        status = gateway_demo.status(self.http)
        fields = open(f"/proc/{self.child.pid}/stat").read().rsplit(")", 1)[1].split()
        return (status["passed"] - status["unsendable"], time.monotonic(),
                (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"))

    def measure(self):
        """Packets forwarded per second, and per second of processor time."""
        sender = self.demo.start(self.demo.bin / "weir-traffic", "--to", f"127.0.0.1:{self.listen}", "--seconds", 0,
                                 "--client", CLIENTS, stdout=subprocess.DEVNULL)
        time.sleep(0.25)  # until the queues are full
        before = self.read()
        time.sleep(SECONDS)
        after = self.read()
        sender.send_signal(signal.SIGTERM)
        sender.wait()
        packets, seconds, cpu_seconds = (a - b for a, b in zip(after, before))
        return packets / seconds, packets / max(cpu_seconds, 0.01)


def main():
    pairs = int(sys.argv[2]) if len(sys.argv) > 2 else 11
    demo = gateway_demo.Demo(sys.argv[1])
    rows = {"off": [], "on": []}
    try:
        backend = demo.backend()
        subjects = {"off": Subject(demo, backend, None), "on": Subject(demo, backend, demo.policies(100000000, 600000000))}
        for name in ("off", "on"):
            subjects[name].measure()  # warms up: sessions, memory
        for pair in range(pairs):
            for name in ("off", "on") if pair % 2 == 0 else ("on", "off"):
                rows[name].append(subjects[name].measure())
        ns = gateway_demo.status(subjects["on"].http)["ns_per_check"]
    finally:
        demo.close()
    print("| gateway, one thread | packets a second | a second of its processor time |\n| --- | --- | --- |")
    for name, title in (("off", "limits off"), ("on", "limits on (source and overall)")):
        print(f"| {title} | {statistics.median(r[0] for r in rows[name]):.0f} | {statistics.median(r[1] for r in rows[name]):.0f} |")
    for column, what in ((0, "packets a second"), (1, "packets a second of processor time")):
        ratios = sorted(on[column] / off[column] for on, off in zip(rows["on"], rows["off"]))
        quarter = len(ratios) // 4
        print(f"on / off, {what}: median {statistics.median(ratios):.3f} (middle half {ratios[quarter]:.3f} to "
              f"{ratios[-1 - quarter]:.3f}, {pairs} pairs)")
    print(f"{ns} ns per check, key hashed, timed among the gateway's system calls")


if __name__ == "__main__":
    main()
