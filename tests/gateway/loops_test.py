#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Packets that answer each other without end: loops_test.py BUILD_DIRECTORY SOURCE_DIRECTORY [TEST...]. Prints TAP.

Guards: apps/gateway/loops.c, apps/gateway/worker.c, apps/gateway/listeners.c
"""
import contextlib
import ipaddress
import math
import os
import random
import signal
import socket
import time

from support import ask, Fixture, forge, in_a_network_of_its_own, run

MANY = "policies: [{name: source, limits: [{algorithm: token_bucket, limit: %d, period: 1s, burst: %d}]}]\n"
QUESTION, ANSWER = b"weir: a gateway?", b"weir: a gateway."
SERVICES = (7, 13, 17, 19, 37)


def test_packets_of_no_client_are_dropped_and_counted():
    """Drawn sources to each of three listeners, beside what the addresses and ports say."""
    def check():
        rng = random.Random(os.environ.get("WEIR_TEST_SEED", "35"))
        with Fixture("--listen", ":7001", "--listen", "[::1]:7002", "--listen", "0.0.0.0:7003", policies=MANY % (1000000, 1000000)) as f:
            listeners = [("127.0.0.1", f.port, False), ("", 7001, True), ("::1", 7002, False), ("0.0.0.0", 7003, True)]
            local = [ipaddress.ip_network(n) for n in ("127.0.0.0/8", "::1/128", "fd00:1::1/128", "fd00:1::2/128", "fd00:2::1/128")]
            v4 = ["127.0.0.1", "127.0.0.2", "127.9.8.7", "10.9.8.7", "203.0.113.5"]
            v6 = ["::1", "fd00:1::1", "fd00:2::1", "2001:db8::9", "fd00:1::9"]
            ports = [0, 1, *SERVICES, 9, 53, 123, f.port, 7001, 7002, 7003, f.backend_port, 7000, 40000, 65535]

            def is_of_no_client(address, port):
                here = any(ipaddress.ip_address(address) in n for n in local if n.version == ipaddress.ip_address(address).version)
                return port == 0 or port in SERVICES or (address, port) == ("127.0.0.1", f.backend_port) or any(
                    port == p and (here and not (name == "0.0.0.0" and ":" in address) if every else address == name)
                    for name, p, every in listeners)

            dropped = passed = 0
            for n in range(400):
                family = rng.choice((v4, v6))
                source = (rng.choice(family), rng.choice(ports))
                to = rng.choice([("127.0.0.1", f.port), ("127.0.0.5", 7001), ("127.0.0.5", 7003)] if family is v4 else
                                [("::1", 7001), ("::1", 7002), ("fd00:1::1", 7001)])
                forge(source, to)
                gone = is_of_no_client(*source)
                dropped, passed = dropped + gone, passed + (not gone)
                status = f.until(lambda: (s := f.status())["invalid_sources"] + s["passed"] > n and s)
                assert (status["invalid_sources"], status["passed"]) == (dropped, passed), (source, to, gone, status)
            assert dropped > 50 and passed > 50, (dropped, passed)
            f.until(lambda: sum(one["offered"] for one in f.status()["listeners"]) == f.status()["offered"] == passed)
            assert f"\nweir_gateway_invalid_source_packets_total {dropped}\n" in f.get("/metrics")
    in_a_network_of_its_own(check)


def test_listeners_and_backends_that_come_and_go_are_known():
    def check():
        with contextlib.ExitStack() as stack:
            f = stack.enter_context(Reloaded())
            for text, own, other in ((f"listen: [127.0.0.1:{f.port}, 127.0.0.1:7005]\nbackend: 127.0.0.1:7006\n", (7005, 7006), ()),
                                     (f"listen: 127.0.0.1:{f.port}\nbackend: 127.0.0.1:7007\n", (7007,), (7005, 7006))):
                f.reload(text)
                for port in own + other:
                    before = f.status()
                    forge(("127.0.0.1", port), ("127.0.0.1", f.port))
                    after = f.until(lambda: (s := f.status())["invalid_sources"] + s["offered"] > before["invalid_sources"] + before["offered"] and s)
                    assert after["invalid_sources"] - before["invalid_sources"] == (port in own), (port, text)
    in_a_network_of_its_own(check)


class Reloaded(Fixture):
    """A gateway with a file of settings."""

    def __init__(self):
        self.make_place("")
        self.settings = self.demo.dir / "gateway.conf"
        self.settings.write_text(f"listen: 127.0.0.1:{self.port}\nbackend: 127.0.0.1:7777\n")
        with self.starting():
            self.child = self.demo.start(self.demo.bin / "weir-gateway", "--config", self.settings, "--metrics", f"127.0.0.1:{self.http}",
                                         "--threads", 2, stderr=open(self.log, "w"))
            self.until(self.status)

    def reload(self, text):
        before = self.status()["reloads"]
        self.settings.write_text(text)
        self.child.send_signal(signal.SIGHUP)
        self.until(lambda: self.status()["reloads"] == before + 1)
        self.until(lambda: len(self.status()["listeners"]) == text.count("127.0.0.1") - 1)


def ends(f, count):
    """Whether what `count` says stands still for half a second."""
    before = count()
    time.sleep(0.5)
    return count() == before


def test_a_loop_of_two_gateways_ends():
    """One forged packet, and several; also where they listen on every address, and over IPv6."""
    def check():
        for limit, packets, listen, address in ((200, 1, "127.0.0.1", "127.0.0.1"), (1000000, 5, "", "127.0.0.7"), (1000000, 3, "[::1]", "::1")):
            with Fixture(listen=listen, policies=MANY % (limit, limit)) as one, Fixture(listen=listen, policies=MANY % (limit, limit)) as two:
                for _ in range(packets):
                    forge((address, two.port), (address, one.port))
                for f in (one, two):
                    f.until(lambda: f.status()["offered"] >= 30)
                one.until(lambda: one.status()["loops"] + two.status()["loops"] != 0)
                one.until(lambda: ends(one, lambda: one.status()["offered"] + two.status()["offered"]))
                found = [f for f in (one, two) if f.status()["loops"]]
                assert one.status()["looped"] + two.status()["looped"] > 0
                for f in found:
                    status = f.status()
                    other = two if f is one else one
                    assert status["loops"] == 1, status
                    place = f"[{address}]" if ":" in address else address
                    assert f"a loop with {place}:{other.port}, which answers" in f.log.read_text(), f.log.read_text()
                    metrics = f.get("/metrics")
                    assert "\nweir_gateway_loops_total 1\n" in metrics
                    assert f"\nweir_gateway_looped_packets_total {status['looped']}\n" in metrics
                    # The next one goes nowhere.
                    forge((address, other.port), (address, f.port))
                    f.until(lambda: f.status()["looped"] == status["looped"] + 1)
                    assert f.status()["offered"] == status["offered"]
                    with f.client(to=address) as client:
                        assert ask(client) == b"?"
    in_a_network_of_its_own(check)


def test_a_loop_with_an_echo_ends():
    def check():
        for address, port in (("127.0.0.1", 7200), ("::1", 7200), ("127.0.0.1", 7)):
            with Fixture(listen="", policies=MANY % (1000, 1000)) as f:
                place = f"[{address}]" if ":" in address else address
                f.demo.start(f.demo.bin / "weir-traffic", "--echo", f"{place}:{port}", "--seconds", 0)
                with f.client(to=address) as probe:
                    probe.connect((address, port))
                    probe.settimeout(0.1)
                    f.until(lambda: is_answered(probe))
                for _ in range(3):
                    forge((address, port), (address, f.port))
                status = f.until(lambda: (s := f.status())["loops"] + s["invalid_sources"] > 0 and s)
                if port in SERVICES:
                    assert f.until(lambda: f.status()["invalid_sources"] == 3) and f.status()["offered"] == 0, status
                    continue
                f.until(lambda: ends(f, lambda: f.status()["offered"]))
                assert f.status()["loops"] == 1 and f.status()["looped"] > 0, f.status()
    in_a_network_of_its_own(check)


def is_answered(client):
    with contextlib.suppress(OSError):
        client.send(b"?")
        return client.recv(100) == b"?"


def asked(f, client, count=64):
    """A client sends until it is asked whether it is a gateway: the question, and where it came from."""
    for n in range(count + 1):
        client.sendto(b"x%d" % n, ("127.0.0.1", f.port))
        while True:
            data, source = client.recvfrom(100)
            if source[1] != f.port:
                assert data[:16] == QUESTION and len(data) == 32 and n >= 63, (data, n)
                return data, source
            if data == b"x%d" % n:
                break


def echo(f, client, data):
    """Sends a packet, and waits until it has come back."""
    client.sendto(data, ("127.0.0.1", f.port))
    while client.recv(100) != data:
        pass


def plain_client(address):
    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    client.bind((address, 0))
    client.settimeout(20)
    return client


def test_nobody_answers_for_an_innocent_client():
    """Whoever does not see the question cannot have its client dropped, and neither can an answer that comes from elsewhere."""
    def check():
        with Fixture(threads=1, policies=MANY % (1000000, 1000000)) as f, plain_client("127.0.0.8") as client, plain_client("127.0.0.9") as other:
            question, source = asked(f, client)
            nonce, home = question[16:], client.getsockname()
            rng = random.Random(35)
            for data in (ANSWER + bytes(16), ANSWER + rng.randbytes(16), QUESTION + rng.randbytes(16), ANSWER + nonce[:15], ANSWER + nonce + b"x",
                         ANSWER + nonce[:15] + bytes([nonce[15] ^ 1]), ANSWER + bytes([nonce[0] ^ 128]) + nonce[1:]):
                forge(home, source, data)
            other.sendto(ANSWER + nonce, source)  # the right words of the wrong client
            forge((home[0], home[1] ^ 1), source, ANSWER + nonce)
            echo(f, client, ANSWER + nonce)  # and to the wrong place: a packet like any other
            for n in range(100):
                echo(f, client, b"y%d" % n)
            assert f.status()["loops"] == 0 and f.status()["looped"] == 0, f.status()
            # The right answer, too late.
            question, source = asked(f, client, 512)
            time.sleep(3.1)
            client.sendto(ANSWER + question[16:], source)
            echo(f, client, b"z")
            assert f.status()["loops"] == 0
            # In time it is one.
            question, source = asked(f, other)
            other.sendto(ANSWER + question[16:], source)
            f.until(lambda: f.status()["loops"] == 1)
            other.sendto(b"z", ("127.0.0.1", f.port))
            f.until(lambda: f.status()["looped"] == 1)
            # That port alone.
            with f.client(source="127.0.0.9") as third:
                assert ask(third) == b"?"
    in_a_network_of_its_own(check)


def test_clients_are_asked_seldom():
    """In 10,000 packets, one after another: with the 64th, 256th, 1,024th and 4,096th."""
    with Fixture(threads=1, policies="") as f, plain_client("127.0.0.8") as client:
        at = []
        for n in range(1, 10001):
            client.sendto(b"%d" % n, ("127.0.0.1", f.port))
            while (got := client.recvfrom(100))[0] != b"%d" % n:
                assert got[0][:16] == QUESTION and got[1][1] != f.port, got
                at.append(n)
        assert [n - (n & 1) for n in at] == [64, 256, 1024, 4096], at  # the question may be there a packet later


def test_a_question_is_answered_and_goes_no_farther():
    with Fixture(listen="", threads=1, policies="") as f:
        for to in ("127.0.0.1", "127.0.0.5", "::1"):
            with f.client(to=to) as client:
                nonce = random.randbytes(16)
                assert ask(client, QUESTION + nonce) == ANSWER + nonce
                for like in (QUESTION + nonce[:15], QUESTION + nonce + b"x", b"X" + QUESTION[1:] + nonce, ANSWER + nonce):
                    assert ask(client, like) == like  # the backend's answer
        status = f.status()
        assert status["offered"] == status["passed"] == 12, status
        # A flood of them is not sent on.
        with f.client() as client:
            client.settimeout(0.5)
            begin, sent, answers = time.monotonic(), 0, 0
            while time.monotonic() < begin + 0.2 or sent < 400:
                client.send(QUESTION + bytes(16))
                sent += 1
                if sent % 50 == 0:
                    time.sleep(0.01)
            with contextlib.suppress(TimeoutError):
                while client.recv(100):
                    answers += 1
            assert 0 < answers <= 64 * (math.ceil(time.monotonic() - begin) + 1), answers


if __name__ == "__main__":
    run(globals())
