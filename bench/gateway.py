#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Packets a second the gateway takes with limits off, on and under a flood, with offload and without:
gateway.py BUILD_DIRECTORY [RUNS] [--json FILE]

off    nothing is limited: 64 clients send all they can
on     both limits are checked and have room for all of it: the same clients
flood  one client sends all it can, far beyond its limit, beside 64 that keep to theirs
plain  as on, but each packet arrives alone, as where no network card puts them together

Eight gateways, four with offload (UDP_GRO, UDP_SEGMENT) and four without, get the same loads in turn, forwards and
backwards, so that a machine that slows down or speeds up does so for all. But for plain, the generator puts packets
together; the backend always does. Counted are packets that were forwarded (passed the limits, less what a socket did not take);
under a flood those that were offered, as hardly any is to be forwarded. On two cores the sender, the backend and the
gateway share the processors, and who gets how much is the scheduler's mood: packets per second of the gateway's own
processor time are given as well.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "apps" / "gateway"))
import demo as gateway_demo  # noqa: E402

SECONDS = 1
WARM_SECONDS = 0.25  # until the queues are full
SOURCE_LIMIT = 200   # packets a second, under a flood
LOADS = {"off": ["all,64,0"], "on": ["all,64,0"], "flood": ["flood,1,0", "legit,64,3200"], "plain": ["all,64,0"]}
TITLES = {"off": "limits off", "on": "limits on (source and overall)", "flood": "flood from one source", "plain": "limits on, each packet alone"}


class Subject:
    def __init__(self, demo, backend, load, offload, policies):
        more = (["--policies", policies] if policies else []) + ([] if offload else ["--no-offload"])
        self.demo, self.load, self.offload = demo, load, offload
        self.child, self.listen, self.http = demo.gateway(backend, *more)
        has = gateway_demo.status(self.http)["offload"]
        if offload and not (has["receive"] and has["send"]):
            print("this kernel has no UDP_GRO or no UDP_SEGMENT: offload is as without", file=sys.stderr)
        self.rows = []

    def name(self):
        return self.load if self.offload else f"{self.load}_no_offload"

    def read(self):
        status = gateway_demo.status(self.http)
        fields = open(f"/proc/{self.child.pid}/stat").read().rsplit(")", 1)[1].split()
        packets = status["offered"] if self.load == "flood" else status["passed"] - status["unsendable"]
        return packets, time.monotonic(), (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def measure(self):
        """Packets a second, packets a second of processor time, and the share of legitimate packets that was answered."""
        clients = [word for client in LOADS[self.load] for word in ("--client", client)]
        offload = [] if self.load == "plain" else ["--offload"]
        sender = self.demo.start(self.demo.bin / "weir-traffic", "--to", f"127.0.0.1:{self.listen}", "--seconds", SECONDS + 1,
                                 "--json", *offload, *clients, stdout=subprocess.PIPE, text=True)
        time.sleep(WARM_SECONDS)
        before = self.read()
        time.sleep(SECONDS)
        after = self.read()
        sender.terminate()
        groups = {g["name"]: g for g in json.loads(sender.communicate()[0].splitlines()[-1])["clients"]}
        packets, seconds, cpu_seconds = (a - b for a, b in zip(after, before))
        legit = groups.get("legit", {"sent": 1, "returned": 1})
        self.rows.append((packets / seconds, packets / max(cpu_seconds, 0.01), legit["returned"] / max(legit["sent"], 1)))


def spread(values, unit):
    """The median and the middle half; and all of them, a run each."""
    samples, values = values, sorted(values)
    quarter = len(values) // 4
    return {"value": statistics.median(values), "unit": unit, "low": values[quarter], "high": values[-1 - quarter],
            "samples": samples}


def ratios(a, b, column):
    """Of two gateways, round by round: what the machine did to one it did to the other."""
    return spread([x[column] / y[column] for x, y in zip(a.rows, b.rows)], "ratio")


def figures_of(subjects):
    figures = {}
    for name, subject in subjects.items():
        figures[f"gateway/{name}_pps"] = spread([row[0] for row in subject.rows], "packets/s")
        figures[f"gateway/{name}_pps_cpu"] = spread([row[1] for row in subject.rows], "packets/s of processor time")
        if subject.load == "flood":
            figures[f"gateway/{name}_legit_answered"] = spread([row[2] for row in subject.rows], "share")
    for tail in ("", "_no_offload"):
        for load in ("on", "flood"):
            for column, what in ((0, "pps"), (1, "pps_cpu")):
                figures[f"gateway/{load}{tail}_to_off_{what}"] = ratios(subjects[load + tail], subjects["off" + tail], column)
    for load in LOADS:
        for column, what in ((0, "pps"), (1, "pps_cpu")):
            figures[f"gateway/{load}_offload_gain_{what}"] = ratios(subjects[load], subjects[f"{load}_no_offload"], column)
    # A mean since the start: one value.
    ns = gateway_demo.status(subjects["on"].http)["ns_per_check"]
    figures["gateway/ns_per_check"] = {"value": ns, "unit": "ns", "low": ns, "high": ns, "samples": [ns]}
    return figures


def show(figures, runs):
    def row(figure, digits=0):
        return f"{figure['value']:.{digits}f} ({figure['low']:.{digits}f} to {figure['high']:.{digits}f})"
    print(f"Medians of {runs} runs, and the middle half.\n")
    print("| gateway, one thread | offload | packets a second | a second of its processor time |\n| --- | --- | --- | --- |")
    for load, title in TITLES.items():
        for tail, offload in (("", "on"), ("_no_offload", "off")):
            name = f"gateway/{load}{tail}"
            print(f"| {title} | {offload} | {row(figures[name + '_pps'])} | {row(figures[name + '_pps_cpu'])} |")
    print("\n| ratio, round by round | packets a second | a second of its processor time |\n| --- | --- | --- |")
    for text, name in (("limits on / off, offload", "on_to_off"), ("limits on / off, no offload", "on_no_offload_to_off"),
                       ("flood / limits off, offload", "flood_to_off"), ("flood / limits off, no offload", "flood_no_offload_to_off"),
                       ("offload / none, limits off", "off_offload_gain"), ("offload / none, limits on", "on_offload_gain"),
                       ("offload / none, flood", "flood_offload_gain"),
                       ("offload / none, each packet alone", "plain_offload_gain")):
        print(f"| {text} | {row(figures[f'gateway/{name}_pps'], 3)} | {row(figures[f'gateway/{name}_pps_cpu'], 3)} |")
    print(f"\nUnder the flood, of the packets within their limit {100 * figures['gateway/flood_legit_answered']['value']:.1f} % were "
          f"answered, without offload {100 * figures['gateway/flood_no_offload_legit_answered']['value']:.1f} %.")
    print(f"{figures['gateway/ns_per_check']['value']} ns per check, key hashed, timed among the gateway's system calls")


def main():
    parser = argparse.ArgumentParser(prog="gateway.py", description="How many packets a second the gateway takes.")
    parser.add_argument("build")
    parser.add_argument("runs", nargs="?", type=int, default=7)
    parser.add_argument("--json", metavar="FILE", help="writes {name: {value, unit, low, high, samples}} as well")
    options = parser.parse_args()
    demo = gateway_demo.Demo(options.build)
    try:
        backend = demo.backend("--offload")
        subjects = {}
        for load in LOADS:
            limit = SOURCE_LIMIT if load == "flood" else 100000000
            policies = demo.policies(limit, 600000000) if load != "off" else None
            for offload in (True, False):
                subject = Subject(demo, backend, load, offload, policies)
                subjects[subject.name()] = subject
        for subject in subjects.values():
            subject.measure()  # warms up: sessions, memory
            subject.rows.clear()
        for run in range(options.runs):
            for subject in list(subjects.values())[::1 if run % 2 == 0 else -1]:
                subject.measure()
        figures = figures_of(subjects)
    finally:
        demo.close()
    show(figures, options.runs)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
