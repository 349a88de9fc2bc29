#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a flood costs the gateway, and what it does to its other clients, with packets dropped in the kernel and without:
gateway_flood.py BUILD_DIRECTORY [--rounds N] [--seconds N] [--quick] [--json FILE]

Two network namespaces and a veth pair between them; nothing leaves the machine. Needs root, ip, ethtool and taskset, Linux
5.18, and a gateway built with libbpf. The flood has forged sources: one, 10,000, and 10,000,000 in 153 networks of 65,536.
weir-flood makes its frames as a network card has them: no packet of the network stack before the receiver's driver.

The flood and the clients run on the first processor. On the second one the kernel receives, in a thread of its own (threaded
NAPI), and the gateway and its backend run. Processor time is that of the gateway and of the thread that receives, as the
scheduler counts it. So a packet's way from the driver on is in it, and the sender is not.

cost    The flood sends all it can, and the second processor is full; and then PART of what was denied so. Packets that a limit
        denied, by the gateway or in the kernel, over processor time: of pieces of PIECE seconds the upper quartile, as the host of
        a virtual machine slows some of them down, and of the two floods the better one. What found no room in a queue is not
        counted: part of a full processor goes into such packets, and into waiting for the sender, which gives them back to the
        pool that the receiver gives them back to. Each source or network may send one packet a minute. `all` is generic XDP
        with a program that drops every packet without a look, and no gateway: the least that generic XDP can cost.
polite  A flood that leaves the processor time to spare, beside 1,000 clients that keep to their limit: what is lost of their
        packets, and the time until 50 % and 99 % of the answers came, beside the same without a flood just before. `calm`
        is the lower quartile of the p99 of each quarter of a second. The p99 of a whole run is mostly the length of the
        moments in which the host of a virtual machine slows its processors down: a loop without system calls is slower then,
        too. The last line says how often that was so while the benchmark ran.

Modes take turns, round after round.
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

MODES = ("none", "generic", "native")
ALL = "all"
PART = 0.8
PIECE = 0.25
FLOODS = {"1": "11.0.0.1,1", "10,000": "11.0.0.1,10000", "10,000,000": "11.0.0.1,10000000"}
TITLES = {"1": "1 source", "10,000": "10,000 sources", "10,000,000": "10,000,000 sources"}
WARM_SECONDS, MANY_WARM_SECONDS = 1.5, 4  # until the kernel knows of the sources; of 10,000
# Of the source alone, or of its network, too.
ONCE = "{algorithm: fixed_window, limit: 1, period: 60s}"
POLITE_SOURCE = "{algorithm: token_bucket, limit: 6, period: 60s, burst: 8}"
POLITE_NETWORK = "{algorithm: token_bucket, limit: 5, period: 1s, burst: 20}"
POLITE_RATE, POLITE_COUNT = 500, 1000
PASSES_MOST = 1500  # packets a second: of 10,000 sources or of the networks, as much as their limits let pass
# So that both processors have time to spare. With XDP, each of 10,000 sources sends 9 packets a second: fewer do not repeat.
FLOOD_RATE, REPEATING_RATE = 40000, 90000
AT_ONCE = 32  # frames: a network card gathers some before it interrupts


def policies_of(flood, source, network):
    lines = [f"  - {{name: source, limits: [{source}]}}"]
    if flood == "10,000,000":
        lines.append(f"  - {{name: network16, limits: [{network}]}}")
    return "policies:\n" + "\n".join(lines) + "\n"


class Bench:
    def __init__(self, build, wire):
        self.build, self.wire = pathlib.Path(build).resolve(), wire
        self.demo = gateway_demo.Demo(build)
        self.cores = sorted(os.sched_getaffinity(0))[:2]
        if len(self.cores) < 2:
            raise veth.Unavailable("two processors are needed")
        self.mac = wire.mac(wire.gateway)
        with self.gateways_host():
            self.backend = self.demo.backend()

    @contextlib.contextmanager
    def gateways_host(self):
        """What is started inside runs on the gateway's host and processor."""
        before = os.sched_getaffinity(0)
        with self.wire.on(self.wire.gateway):
            os.sched_setaffinity(0, {self.cores[1]})
            try:
                yield
            finally:
                os.sched_setaffinity(0, before)

    def sender(self, program, *arguments):
        command = self.wire.command(self.wire.clients, "taskset", "-c", str(self.cores[0]), str(self.build / "bench" / "packets" / program),
                                    *(str(a) for a in arguments))
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def flood(self, sources, rate, seconds, alone=False):
        """`alone`: the sender has its processor to itself between frames."""
        return self.sender("weir-flood", "--interface", self.wire.name, "--to", f"{veth.GATEWAY}:{self.port}", "--mac", self.mac,
                           "--sources", sources, "--rate", rate, "--seconds", seconds, "--frames", "--at-once", AT_ONCE if rate else 1,
                           *(["--wait"] if alone else []))

    @contextlib.contextmanager
    def gateway(self, mode, policies, at_once=False):
        """`at_once`: the kernel receives before all else, as an interrupt does. A flood that it cannot take stops the gateway then."""
        path = self.demo.dir / "policies.yaml"
        path.write_text(policies)
        self.port, self.http = 7000, gateway_demo.free_port(gateway_demo.socket.SOCK_STREAM)
        xdp = [] if mode == "none" else ["--xdp", f"{self.wire.name},mode={mode}"]
        with self.gateways_host():
            log = self.demo.dir / "gateway.log"
            child = self.demo.start(self.demo.bin / "weir-gateway", "--listen", f"{veth.GATEWAY}:{self.port}", "--backend",
                                    f"127.0.0.1:{self.backend}", "--policies", path, "--metrics", f"127.0.0.1:{self.http}", "--threads", 1,
                                    "--sessions", 16384, *xdp, stderr=open(log, "w"))
            self.child = child
            try:
                gateway_demo.wait_for(f"the gateway did not start: {log.read_text()}", lambda: gateway_demo.status(self.http))
                if xdp and self.status()["kernel"] is None:
                    raise veth.Unavailable(log.read_text().strip())
                self.place_threads(at_once)
                yield
            finally:
                child.terminate()
                child.wait(20)

    def place_threads(self, at_once):
        for thread in self.wire.threads():
            os.sched_setaffinity(thread, {self.cores[1]})
            os.sched_setscheduler(thread, *((os.SCHED_FIFO, os.sched_param(1)) if at_once else (os.SCHED_OTHER, os.sched_param(0))))

    @contextlib.contextmanager
    def drops_all(self):
        """In place of a gateway: a program that drops every packet."""
        self.port, self.child = 7000, None
        program = str(self.build / "bench" / "packets" / "frames.bpf.o")
        veth.ip("link", "set", self.wire.name, "xdpgeneric", "obj", program, "program", "drop_all", host=self.wire.gateway)
        try:
            self.place_threads(False)
            yield
        finally:
            veth.ip("link", "set", self.wire.name, "xdpgeneric", "off", host=self.wire.gateway)

    def status(self):
        return gateway_demo.status(self.http)

    def counted(self, file, row):
        """Of a table of the gateway's host under /proc/net."""
        with self.wire.on(self.wire.gateway):
            return [line.split() for line in pathlib.Path("/proc/thread-self/net", file).read_text().splitlines() if line.split()[0] == row]

    def read(self):
        """Denied by the gateway, and in the kernel; processor time of the gateway, and of the thread that receives; time; passed."""
        received = sum(processor_ns(thread) for thread in self.wire.threads()) / 1e9
        packets = int(self.counted("dev", f"{self.wire.name}:")[0][2])
        if self.child is None:
            return 0, packets, 0, received, time.monotonic(), 0
        with self.wire.on(self.wire.gateway):
            status = self.status()
        gateway, passed = sum(status["dropped"].values()), status["passed"]
        names, counts = self.counted("snmp", "Udp:")
        no_room = int(counts[names.index("RcvbufErrors")])
        # The gateway's own count of the kernel's drops is late. What came and did not reach the gateway was dropped there.
        kernel = packets - gateway - passed - no_room if status["kernel"] else 0
        return gateway, kernel, processor_ns(self.child.pid) / 1e9, received, time.monotonic(), passed

    def denied(self, flood, rate, seconds):
        sender = self.flood(FLOODS[flood], rate, 30, alone=rate != 0)
        time.sleep(MANY_WARM_SECONDS if flood == "10,000" else WARM_SECONDS)
        reads = [self.read()]
        for _ in range(max(2, round(seconds / PIECE))):
            time.sleep(PIECE)
            reads.append(self.read())
        sender.terminate()
        sender.communicate()
        gateway, kernel, user, received, span, _ = (b - a for a, b in zip(reads[0], reads[-1]))
        pieces = [(b[0] + b[1] - a[0] - a[1]) / (b[2] + b[3] - a[2] - a[3]) for a, b in zip(reads, reads[1:])]
        denied = gateway + kernel
        return {"per_cpu": statistics.quantiles(pieces, n=4)[2], "kernel": kernel / max(denied, 1), "per_s": denied / span,
                "full": (user + received) / span}

    def cost(self, mode, flood, seconds):
        """Packets denied for a second of processor time; the part of them that was dropped in the kernel; a second of the clock."""
        place = self.drops_all() if mode == ALL else self.gateway(mode, policies_of(flood, ONCE, ONCE))
        with place:
            all_it_can = self.denied(flood, 0, seconds)
            part = self.denied(flood, round(PART * all_it_can["per_s"]), seconds)
        return max(all_it_can, part, key=lambda sample: sample["per_cpu"])

    def wait_for_denials(self):
        """Until the flood's sources have used what each may send at once, and the kernel knows of them."""
        before = self.read()
        for _ in range(20):
            time.sleep(1)
            now = self.read()
            denied, passed = now[0] + now[1] - before[0] - before[1], now[-1] - before[-1]
            if passed < PASSES_MOST and denied > 10 * passed:
                break
            before = now
        time.sleep(WARM_SECONDS)

    def clients(self, seconds):
        sender = self.sender("weir-polite", "--to", f"{veth.GATEWAY}:{self.port}", "--clients", "10.0.0.9,1000", "--step", 16384,
                             "--rate", POLITE_RATE, "--seconds", round(seconds))
        return json.loads(sender.communicate()[0])

    def polite(self, mode, flood, seconds):
        """Lost of the polite clients' packets, and their times, quiet and beside a flood; how full the processor was."""
        with self.gateway(mode, policies_of(flood, POLITE_SOURCE, POLITE_NETWORK), at_once=True):
            self.clients(1)  # opens sessions
            quiet = self.clients(2.5 * seconds)
            rate = REPEATING_RATE if flood == "10,000" and mode != "none" else FLOOD_RATE
            sender = self.flood(FLOODS[flood], rate, round(4 * seconds + 60))  # it is ended before
            self.wait_for_denials()
            before = self.read()
            beside = self.clients(4 * seconds)
            gateway, kernel, user, received, span, passed = (b - a for a, b in zip(before, self.read()))
            sender.terminate()
            sender.communicate()
        return {"quiet": quiet, "beside": beside, "full": (user + received) / span, "passed": passed / span,
                "denied": (gateway + kernel) / span, "kernel": kernel / max(gateway + kernel, 1)}


def slowed(core, seconds):
    """Of a loop alone on a processor: the part of pieces of 2 ms in which it did less than half of what it can."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    steps = [0] * int(seconds * 500)
    start = time.monotonic_ns()
    while (piece := (time.monotonic_ns() - start) // 2000000) < len(steps):
        steps[piece] += 1
    os.sched_setaffinity(0, before)
    most = statistics.quantiles(steps, n=10)[-1]
    return sum(2 * count < most for count in steps) / len(steps)


def spread(values, unit, digits=0):
    return {"value": statistics.median(values), "unit": unit, "low": min(values), "high": max(values), "samples": values, "digits": digits}


def cell(figure, scale=1, digits=None):
    digits = figure["digits"] if digits is None else digits
    return f"{figure['value'] / scale:,.{digits}f} ({figure['low'] / scale:,.{digits}f} to {figure['high'] / scale:,.{digits}f})"


def figures_of_cost(rows):
    figures = {}
    for flood, modes in rows.items():
        name = flood.replace(",", "")
        for mode, samples in modes.items():
            figures[f"gateway_flood/{name}/{mode}_per_cpu"] = spread([s["per_cpu"] for s in samples], "packets/s of processor time")
            figures[f"gateway_flood/{name}/{mode}_per_s"] = spread([s["per_s"] for s in samples], "packets/s")
            figures[f"gateway_flood/{name}/{mode}_full"] = spread([s["full"] for s in samples], "of a processor", 2)
            if mode != "none":
                ratios = [a["per_cpu"] / b["per_cpu"] for a, b in zip(samples, modes["none"])]
                figures[f"gateway_flood/{name}/{mode}_gain"] = spread(ratios, "ratio", 1)
                figures[f"gateway_flood/{name}/{mode}_kernel"] = spread([s["kernel"] for s in samples], "share", 4)
    return figures


def figures_of_polite(rows):
    figures = {}
    for flood, modes in rows.items():
        for mode, samples in modes.items():
            base = f"gateway_flood/{flood.replace(',', '')}/{mode}"
            for which in ("quiet", "beside"):
                lost = [1 - s[which]["returned"] / s[which]["sent"] for s in samples]
                figures[f"{base}_{which}_lost"] = spread(lost, "share", 5)
                for part in ("p50", "p99", "calm_p99"):
                    figures[f"{base}_{which}_{part}"] = spread([s[which][f"{part}_us"] for s in samples], "us")
            for part in ("p99", "calm_p99"):
                figures[f"{base}_{part}_ratio"] = spread([s["beside"][f"{part}_us"] / s["quiet"][f"{part}_us"] for s in samples], "ratio", 2)
            for what in ("full", "denied", "passed"):
                figures[f"{base}_polite_{what}"] = spread([s[what] for s in samples], "of a processor" if what == "full" else "packets/s", 2 if what == "full" else 0)
    return figures


def show_cost(figures):
    print("| flood | without | generic XDP | native XDP | generic, all dropped | generic / without | native / without | all dropped / without |\n"
          "| --- | --- | --- | --- | --- | --- | --- | --- |")
    for flood, title in TITLES.items():
        name = f"gateway_flood/{flood.replace(',', '')}/"
        cells = [cell(figures[f"{name}{mode}_per_cpu"], 1000) for mode in (*MODES, ALL)]
        cells += [cell(figures[f"{name}{mode}_gain"]) for mode in (*MODES[1:], ALL)]
        print(f"| {title} | " + " | ".join(cells) + " |")


def show_polite(figures):
    print("| flood | XDP | denied a second | processor | lost | p50 quiet, flood | calm p99 quiet, flood | ratio | p99 of all quiet, flood |\n"
          "| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for flood, title in TITLES.items():
        for mode in MODES:
            name = f"gateway_flood/{flood.replace(',', '')}/{mode}_"
            lost = figures[f"{name}beside_lost"]
            times, late, calm = (", ".join(f"{figures[f'{name}{which}_{part}']['value']:.0f}" for which in ("quiet", "beside"))
                                    for part in ("p50", "p99", "calm_p99"))
            print(f"| {title} | {mode} | {figures[name + 'polite_denied']['value']:,.0f} | {figures[name + 'polite_full']['value']:.2f} | "
                  f"{100 * lost['value']:.3f} % ({100 * lost['low']:.3f} to {100 * lost['high']:.3f}) | {times} us | {calm} us | "
                  f"{cell(figures[name + 'calm_p99_ratio'])} | {late} us |")


def measure(bench, options):
    cost = {flood: {mode: [] for mode in (*MODES, ALL)} for flood in FLOODS}
    polite = {flood: {mode: [] for mode in MODES} for flood in FLOODS}
    slow = []
    for number in range(max(options.rounds, options.polite_rounds)):
        modes = MODES[number % 3:] + MODES[:number % 3]
        for flood in FLOODS if number < options.rounds else ():
            for mode in (*modes, ALL):
                cost[flood][mode].append(bench.cost(mode, flood, options.seconds))
        if number < options.polite_rounds:
            for flood in FLOODS:
                for mode in modes:
                    polite[flood][mode].append(bench.polite(mode, flood, options.seconds))
        slow.append(slowed(bench.cores[1], options.seconds))
        print(f"round {number + 1} of {max(options.rounds, options.polite_rounds)}", file=sys.stderr, flush=True)
    return figures_of_cost(cost) if options.rounds else {}, figures_of_polite(polite) if options.polite_rounds else {}, statistics.median(slow)


def main():
    parser = argparse.ArgumentParser(prog="gateway_flood.py", description="What a flood costs the gateway and its clients.")
    parser.add_argument("build")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--polite-rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--quick", action="store_true", help="whether it runs, not how fast it is")
    parser.add_argument("--json", metavar="FILE", help="writes {name: {value, unit, low, high, samples}} as well")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.polite_rounds, options.seconds = min(options.rounds, 1), min(options.polite_rounds, 1), 1
    try:
        with veth.Veth() as wire:
            wire.receive_in_threads()
            bench = Bench(options.build, wire)
            try:
                cost, polite, slow = measure(bench, options)
            finally:
                bench.demo.close()
    except veth.Unavailable as reason:
        print(f"gateway_flood.py: {reason}", file=sys.stderr)
        sys.exit(77)
    if cost:
        print(f"Thousands of packets denied for a second of processor time, medians of {options.rounds} rounds, least and most.\n")
        show_cost(cost)
        print()
    if polite:
        print(f"{POLITE_COUNT:,} clients that keep to their limit, {POLITE_RATE} packets a second together; medians of {options.polite_rounds} rounds.\n")
        show_polite(polite)
        print(f"\nWith nothing else on it, the gateway's processor did less than half of its work in {100 * slow:.1f} % of pieces of 2 ms.")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps({**cost, **polite}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
