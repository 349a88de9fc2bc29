#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Packets a second the gateway forwards with limits on, against off: gateway.py BUILD_DIRECTORY [PAIRS]

Both gateways are asked for all they can do, in turn. On two cores the sender, the backend and the gateway share the
processors, so packets per second of the gateway's own processor time are given as well.
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

SECONDS = 2


def cpu_seconds(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(demo, backend, policies):
    """Packets forwarded per second, and per second of processor time."""
    more = ["--policies", policies] if policies else []
    listen, http = gateway_demo.free_port(2), gateway_demo.free_port(1)
    child = demo.start(demo.bin / "weir-gateway", "--listen", f"127.0.0.1:{listen}", "--backend", f"127.0.0.1:{backend}",
                       "--metrics", f"127.0.0.1:{http}", "--threads", 1, *more, stderr=subprocess.DEVNULL)
    while not gateway_demo.status(http):
        time.sleep(0.02)
    sender = demo.start(demo.bin / "weir-traffic", "--to", f"127.0.0.1:{listen}", "--seconds", SECONDS + 1, "--client",
                        "all,64,0", stdout=subprocess.DEVNULL)
    time.sleep(0.5)
    before, cpu, start = gateway_demo.status(http), cpu_seconds(child.pid), time.monotonic()
    time.sleep(SECONDS)
    after, cpu_after, end = gateway_demo.status(http), cpu_seconds(child.pid), time.monotonic()
    sender.wait()
    child.send_signal(signal.SIGTERM)
    child.wait()
    forwarded = after["passed"] - before["passed"]
    return forwarded / (end - start), forwarded / max(cpu_after - cpu, 0.01)


def main():
    pairs = int(sys.argv[2]) if len(sys.argv) > 2 else 7
    demo = gateway_demo.Demo(sys.argv[1])
    try:
        backend = demo.backend()
        policies = demo.policies(100000000, 600000000)
        offs, ons = [], []
        for _ in range(pairs):
            offs.append(measure(demo, backend, None))
            ons.append(measure(demo, backend, policies))
    finally:
        demo.close()
    print("| gateway, one thread | packets a second | a second of its processor time |\n| --- | --- | --- |")
    for name, rows in (("limits off", offs), ("limits on (source and overall)", ons)):
        print(f"| {name} | {statistics.median(r[0] for r in rows):.0f} | {statistics.median(r[1] for r in rows):.0f} |")
    for column, what in ((0, "packets a second"), (1, "packets a second of processor time")):
        ratios = sorted(on[column] / off[column] for on, off in zip(ons, offs))
        print(f"on / off, {what}: median {statistics.median(ratios):.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f}, {pairs} pairs)")


if __name__ == "__main__":
    main()
