#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
weir simulate plays the gateway's files as the gateway does: captures that the gateway has recorded are sent through another
gateway, and what that one forwards is what weir simulate admits, packet by packet. simulate_test.py BUILD_DIRECTORY
SOURCE_DIRECTORY [TEST...]. Prints TAP.

Guards: apps/gateway/packet_rules.c, apps/gateway/policy_table.c, apps/gateway/decision.c, apps/weir/simulate/engine.c,
apps/weir/simulate/replay.c, apps/weir/trace/packets.c, apps/weir/trace/datagram.c
"""
import json
import os
import pathlib
import random
import socket
import subprocess
import sys

from support import Fixture, Skipped, run

SEED = int(os.environ.get("WEIR_TEST_SEED") or random.SystemRandom().randrange(1 << 32))
DRAW = random.Random(SEED)
KINDS = """kinds:
  - {name: dear, match: 'ff ff', cost: 10}
  - {name: free, match: ee, cost: 0}
  - {name: own, match: 'd.', minimum_length: 20, cost: 3}
"""
DENY_ALL = """policies: [{name: source, limits: [{algorithm: fixed_window, limit: 1, period: 1h}]}]
overrides: {"source:0.0.0.0/0": deny, "source:::/0": deny}
"""
WEIR = pathlib.Path(sys.argv[1]) / "apps/weir/weir"


class Lockstep(Fixture):
    """A gateway whose backend is a socket of the test. Each packet is sent when the gateway has had the one before."""

    def __init__(self, policies, *more, listen="127.0.0.1"):
        self.make_place(policies)
        self.family = socket.AF_INET6 if ":" in listen else socket.AF_INET
        self.host = listen.strip("[]")
        self.behind = socket.socket(self.family, socket.SOCK_DGRAM)
        self.behind.bind((self.host, 0))
        self.behind.setblocking(False)
        self.sockets = {}
        with self.starting():
            self.launch(listen, "--backend", f"{listen}:{self.behind.getsockname()[1]}", "--threads", 1, *more, before=self.enter)

    def enter(self):
        os.chdir(self.demo.dir)
        pathlib.Path("kinds.yaml").write_text(KINDS)

    def play(self, packets):
        """The payloads that came through."""
        through, offered = [], self.status()["offered"]
        for number, (source, payload) in enumerate(packets, 1):
            if source not in self.sockets:
                self.sockets[source] = self.client(self.host, source)
            self.sockets[source].send(payload)
            while self.status()["offered"] != offered + number:
                pass
        for _ in range(self.status()["passed"]):
            self.until(lambda: self.take(through))
        return through

    def take(self, through):
        try:
            through.append(self.behind.recv(65535))
            return True
        except BlockingIOError:
            return False

    def __exit__(self, *more):
        for one in [*self.sockets.values(), self.behind]:
            one.close()
        super().__exit__(*more)


def record(packets, listen="127.0.0.1", snap=256):
    """A capture of them, made by a gateway that denies all."""
    with Lockstep(DENY_ALL, "--record", "all.pcapng", "--record-rate", "100000", "--record-snap", str(snap), listen=listen) as f:
        assert f.play(packets) == []
        f.until(lambda: f.status()["record"]["packets"] == len(packets))
        return (f.demo.dir / "all.pcapng").read_bytes()


def simulate(place, capture, *words):
    """Whether each packet is admitted, in order, and the findings."""
    (place / "all.pcapng").write_bytes(capture)
    done = subprocess.run([WEIR, "simulate", "--json", "--decisions=-", *words, "all.pcapng"], cwd=place, capture_output=True, text=True, timeout=60)
    if "without libpcap" in done.stderr:
        raise Skipped("weir was built without libpcap")
    assert done.returncode in (0, 8), done
    return [line.endswith(",admitted") for line in done.stdout.splitlines()], json.loads(done.stderr.splitlines()[-1])


def some_packets(count):
    sources = [f"127.{DRAW.randrange(1, 4)}.{DRAW.randrange(3)}.{DRAW.randrange(1, 9)}" for _ in range(14)]
    packets = []
    for number in range(count):
        first = DRAW.choice((b"\xff\xff", b"\xff", b"\xee", b"\xd1", b"", b"plain"))
        packets.append((DRAW.choice(sources), first + b"%05d" % number + b"x" * DRAW.choice((0, 3, 40, 180))))
    return packets


def some_limit():
    algorithm = DRAW.choice(("fixed_window", "sliding_window", "sliding_log", "token_bucket"))
    limit = DRAW.choice((5, 20, 60))
    return f"{{algorithm: {algorithm}, limit: {limit}, period: 365d" + (f", burst: {limit}}}" if algorithm == "token_bucket" else "}")


def some_policies():
    names = DRAW.sample(("source", "overall", "network24", "network16", "network9", "source_bytes", "overall_bytes", "network24_bytes",
                         "source.dear", "source.own", "overall.free", "network16.dear", "source_bytes.own", "network48"), DRAW.randrange(1, 7))
    text = "policies:\n"
    for name in names:
        limit = some_limit()
        if "_bytes" in name:
            limit = limit.replace("limit: ", "limit: 1").replace("burst: ", "burst: 1").replace("sliding_log", "fixed_window")
        text += f"  - {{name: {name}, mode: {DRAW.choice(('enforce', 'enforce', 'enforce', 'shadow'))}, limits: [{limit}]}}\n"
    overrides = {}
    for _ in range(DRAW.randrange(4)):
        prefix = DRAW.choice((8, 15, 16, 24, 32))
        address = [127, DRAW.randrange(1, 4), DRAW.randrange(3), DRAW.randrange(1, 9)]
        bits = int.from_bytes(bytes(address), "big") >> (32 - prefix) << (32 - prefix)
        network = ".".join(map(str, bits.to_bytes(4, "big"))) + (f"/{prefix}" if prefix < 32 else "")
        overrides[f"*:{network}"] = DRAW.choice(("allow", "deny"))
        if "source" in names:
            overrides[f"source:{network}"] = DRAW.choice(("allow", "deny", "7"))
    text += "overrides:\n" + "".join(f'  "{name}": "{value}"\n' for name, value in overrides.items()) if overrides else ""
    return text


def compare(policies, packets, capture, listen="127.0.0.1"):
    with Lockstep(policies, "--kinds", "kinds.yaml", "--allow-missing", listen=listen) as f:
        through = f.play(packets)
        dropped = f.status()["dropped"]
        wanted = [payload in set(through) for _, payload in packets]
        got, findings = simulate(f.demo.dir, capture, "--policies", f.path.name, "--kinds=kinds.yaml")
        assert len(got) == len(wanted), (len(got), len(wanted))
        for number, pair in enumerate(zip(got, wanted)):
            assert pair[0] == pair[1], (number, packets[number], pair, policies)
        told = {row["policy"]: row["denied"] for row in findings["new"]["policies"] if not row["shadow"]}
        # Of several without room it counts for the last to have room again: that goes by the time, which differs.
        assert sum(told.values()) == sum(dropped[name] for name in told), (told, dropped, policies)
        assert len(told) > 1 or told == {name: dropped[name] for name in told}, (told, dropped, policies)
        assert findings["new"]["denied_of_all"] == dropped.get("*", 0), (findings["new"], dropped)
        return sum(got)


def test_drawn_files_admit_what_the_gateway_forwards():
    print(f"# WEIR_TEST_SEED={SEED}", flush=True)
    packets = some_packets(250)
    capture = record(packets)
    admitted = [compare(some_policies(), packets, capture) for _ in range(8)]
    assert len(set(admitted)) > 1, admitted


def test_each_policy_of_its_own():
    packets = some_packets(120)
    capture = record(packets, snap=40)
    for name, limit in (("source", 5), ("network24", 10), ("network16", 15), ("overall", 20), ("source_bytes", 500), ("source.dear", 1)):
        policies = f"policies: [{{name: {name}, limits: [{{algorithm: fixed_window, limit: {limit}, period: 365d}}]}}]\n"
        admitted = compare(policies, packets, capture)
        assert 0 < admitted < 120, (name, admitted)


def test_packets_of_ipv6():
    packets = [("::1", payload) for _, payload in some_packets(60)]
    capture = record(packets, "[::1]")
    for name, limit in (("source", 20), ("network64", 20), ("network6_32", 30), ("network24", 1), ("source_bytes", 900)):
        policies = f"policies: [{{name: {name}, limits: [{{algorithm: fixed_window, limit: {limit}, period: 365d}}]}}]\n"
        compare(policies, packets, capture, "[::1]")


def test_words_that_do_not_fit_the_gateway_are_refused():
    place = Fixture.__new__(Fixture)
    place.make_place("policies: [{name: web, limits: [{algorithm: fixed_window, limit: 1, period: 1h}]}]\n")
    with place:
        def fails(*words):
            done = subprocess.run([WEIR, "simulate", *words], cwd=place.demo.dir, capture_output=True, text=True, timeout=60, input="1764064800,a\n")
            return done.returncode, done.stderr
        web = str(place.path)
        (place.demo.dir / "gateway.yaml").write_text(DENY_ALL)
        (place.demo.dir / "bad.yaml").write_text("kinds: [{name: x, match: zz}]\n")
        code, fault = fails("-p", web, "--key=gateway", "-")
        assert code == 2 and "no policy that weir-gateway uses" in fault, fault
        code, fault = fails("-p", web, "--kinds=kinds.yaml", "-")
        assert code == 2 and "--kinds is for policies of weir-gateway" in fault, fault
        code, fault = fails("-p", "gateway.yaml", "--against", web, "-")
        assert code == 2 and "no policy that weir-gateway uses" in fault, fault
        code, fault = fails("-p", "gateway.yaml", "--kinds=bad.yaml", "-")
        assert code == 1 and "bad.yaml:1:" in fault, fault
        # A file with other policies beside the gateway's is played so when it is said.
        (place.demo.dir / "mixed.yaml").write_text(DENY_ALL.replace("policies: [", "policies: [{name: web, limits: [{algorithm: fixed_window, limit: 1, period: 1h}]}, "))
        assert fails("-p", "mixed.yaml", "-")[0] == 2 and fails("-p", "mixed.yaml", "--key=gateway", "-")[0] == 0
        assert fails("-p", "mixed.yaml", "--policy=source", "-k", "address", "-")[0] == 0


if __name__ == "__main__":
    run(globals())
