#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
What a minute admits with denials in the kernel and without, through changes: admitted_test.py BUILD_DIRECTORY SOURCE_DIRECTORY
[TEST...]. Prints TAP.

Two gateways on one host, each with its own names in one Redis, get the same packets of the same sources at the same times. One
has --xdp. A source is never dropped in the kernel while its limit would let it pass, so both admit the same, but for the moments
in which they notice a change.

Guards: apps/gateway/xdp/xdp.c, apps/gateway/xdp/held.c, apps/gateway/xdp/drop.bpf.c
"""
import contextlib
import os
import signal
import socket
import sys
import time

from support import Fixture, Redis, run, Skipped

sys.path.insert(0, sys.argv[2] + "/bench/packets")
import veth  # noqa: E402

SECONDS = float(os.environ.get("WEIR_SECONDS", "60"))
TOLERANCE = 0.01
# Packets a second of each source. The limit is 100, and 150 after the reload; the last source has an override for a while.
RATES = {"10.1.0.1": 60, "10.2.0.1": 130, "10.3.0.1": 600, "10.4.0.1": 2000, "10.5.0.1": 600}
OVERRIDDEN = "10.5.0.1"


def policies(limit):
    return f"policies: [{{name: source, limits: [{{algorithm: token_bucket, limit: {limit}, period: 1s, burst: {limit}}}, " \
           f"{{algorithm: sliding_window, limit: {20 * limit}, period: 20s}}]}}]\n"


class Server(Redis):
    """A Redis that can be away."""

    def outage(self, away):
        child = self.demo.children[0]
        child.send_signal(signal.SIGSTOP if away else signal.SIGCONT)


class Side:
    """A gateway, and its clients' sockets."""

    def __init__(self, wire, fixture):
        self.fixture, self.sockets, self.returned = fixture, {}, dict.fromkeys(RATES, 0)
        with wire.on(wire.clients):
            for source in RATES:
                s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                s.bind((source, 0))
                s.connect((veth.GATEWAY, fixture.port))
                s.setblocking(False)
                self.sockets[source] = s

    def send(self, source):
        with contextlib.suppress(BlockingIOError, ConnectionRefusedError):
            self.sockets[source].send(b"0123456789")

    def hear(self):
        for source, s in self.sockets.items():
            with contextlib.suppress(BlockingIOError, ConnectionRefusedError):
                while s.recv(100):
                    self.returned[source] += 1

    def restart(self, start):
        f = self.fixture
        if start:
            f.child = f.demo.start(*(str(word) for word in f.child.args), stderr=open(f.log, "a", encoding="utf-8"))
        else:
            f.child.send_signal(signal.SIGTERM)
            f.child.wait()

    def close(self):
        for s in self.sockets.values():
            s.close()


def reload(sides):
    for side in sides:
        side.fixture.path.write_text(policies(150))
        side.fixture.child.send_signal(signal.SIGHUP)


def restart(sides):
    for start in (False, True):
        for side in sides:
            side.restart(start)


def play(sides, events):
    """Sends for SECONDS, and does what is due at its time."""
    begin, sent = time.monotonic(), dict.fromkeys(RATES, 0)
    events = list(events)
    while (at := time.monotonic() - begin) < SECONDS:
        if events and at >= events[0][0] * SECONDS:
            events.pop(0)[1]()
        for source, rate in RATES.items():
            while sent[source] < int(at * rate):
                for side in sides:
                    side.send(source)
                sent[source] += 1
        for side in sides:
            side.hear()
        time.sleep(0.002)
    assert not events
    time.sleep(0.5)
    for side in sides:
        side.hear()
    return sent


@contextlib.contextmanager
def two_gateways(mode):
    with contextlib.ExitStack() as stack:
        try:
            wire = stack.enter_context(veth.Veth())
        except veth.Unavailable as reason:
            raise Skipped(str(reason)) from reason
        redis = stack.enter_context(Server())
        stack.enter_context(wire.on(wire.gateway))
        sides = []
        for name, option in (("without", ()), ("xdp", ("--xdp", f"{wire.name},mode={mode}"))):
            fixture = stack.enter_context(Fixture("--redis", f"unix://:a%25b%3Ac%40d%2Fe%3Ff%20g@{redis.socket}", "--redis-prefix", name, *option,
                                                  listen=veth.GATEWAY, threads=1, policies=policies(100)))
            if option and fixture.status()["kernel"] is None:
                raise Skipped(fixture.log.read_text().splitlines()[-1])
            fixture.until(lambda fixture=fixture: fixture.status()["redis"] == "up")
            sides.append(Side(wire, fixture))
            stack.callback(sides[-1].close)
        yield sides, redis


def override(redis, value):
    for prefix in ("without", "xdp"):
        redis.call("HSET" if value else "HDEL", f"{prefix}:overrides", f"source:{OVERRIDDEN}", *([value] if value else []))


def check(mode, events_of):
    with two_gateways(mode) as (sides, redis):
        without, xdp = sides
        sent = play(sides, events_of(sides, redis))
        kernel = xdp.fixture.status()["kernel"]
        print(f"# {mode}: sent {sent}; admitted without {without.returned}, with XDP {xdp.returned}; kernel {kernel}", flush=True)
        assert kernel["dropped"] > 1000, kernel
        for source in RATES:
            least = without.returned[source] * (1 - TOLERANCE) - 3
            assert least <= xdp.returned[source] <= without.returned[source] * (1 + TOLERANCE) + 3, (source, without.returned, xdp.returned)


def test_a_minute_admits_as_much_with_xdp_as_without():
    for mode in ("generic", "native"):
        check(mode, lambda sides, redis: [])


def test_a_minute_through_changes_admits_as_much_with_xdp_as_without():
    for mode in ("generic", "native"):
        check(mode, lambda sides, redis: [
            (0.15, lambda: reload(sides)),
            (0.3, lambda: override(redis, "deny")),
            (0.4, lambda: override(redis, "300")),
            (0.5, lambda: override(redis, None)),
            (0.6, lambda: restart(sides)),
            (0.75, lambda: redis.outage(True)),
            (0.9, lambda: redis.outage(False)),
        ])


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)
    run(globals())
