#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
A gateway that hands over to another one, on loopback: restart_test.py BUILD_DIRECTORY SOURCE_DIRECTORY [TEST...].
Prints TAP.

Guards: apps/gateway/session.c, apps/gateway/worker.c, apps/gateway/address.c, apps/gateway/main.c
"""
import re
import signal
import socket
import struct
import threading
import time

from support import Fixture, gateway_demo, run

# Packets that may be under way: no buffer is too small for so many, however long a process waits for its turn.
WINDOW = 100
RATE = 5000
HANDOVERS = 4


class Backend:
    """Remembers every packet it gets, and sends it back."""

    def __init__(self):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.socket.settimeout(0.1)
        self.port = self.socket.getsockname()[1]
        self.seen = bytearray(RATE * 60)
        self.count = self.twice = 0
        self.stopped = False
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def serve(self):
        while not self.stopped:
            try:
                data, home = self.socket.recvfrom(100)
            except TimeoutError:
                continue
            number = struct.unpack("I", data)[0]
            self.twice += self.seen[number]
            self.count += not self.seen[number]
            self.seen[number] = 1
            try:
                self.socket.sendto(data, home)
            except OSError:
                pass  # its session has ended

    def close(self):
        self.stopped = True
        self.thread.join()
        self.socket.close()


class Sender:
    """Numbered packets from many clients, RATE a second at most, until it is stopped or has none left."""

    def __init__(self, backend, targets):
        self.backend, self.sent, self.stopped, self.refused = backend, 0, False, 0
        self.sockets = []
        for host, port in targets:
            for _ in range(64 // len(targets)):
                s = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
                s.connect((host, port))
                s.setblocking(False)
                self.sockets.append(s)
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        start = time.monotonic()
        while not self.stopped and self.sent < len(self.backend.seen):
            due = min(int((time.monotonic() - start) * RATE), self.backend.count + WINDOW)
            while self.sent < due and self.sent < len(self.backend.seen):
                s = self.sockets[self.sent % len(self.sockets)]
                try:
                    while s.recv(100):
                        pass
                except BlockingIOError:
                    pass
                except ConnectionRefusedError:
                    self.refused += 1
                try:
                    s.send(struct.pack("I", self.sent))
                except ConnectionRefusedError:  # of an earlier one: this one has not been sent
                    self.refused += 1
                    continue
                self.sent += 1
            time.sleep(0.001)

    def stop(self):
        self.stopped = True
        self.thread.join()
        for s in self.sockets:
            s.close()


def check(listen, hosts):
    """One gateway after another on one address, under way all the time."""
    backend = Backend()
    try:
        with Fixture(listen=listen, threads=2, policies="policies: [{name: overall, limits: [{algorithm: fixed_window, "
                     "limit: 100000000, period: 1s}]}]") as f:
            logs = []

            def start():
                http = gateway_demo.free_port(socket.SOCK_STREAM)
                logs.append(f.demo.dir / f"log{len(logs)}")
                child = f.demo.start(f.demo.bin / "weir-gateway", "--listen", f"{listen}:{port}", "--backend",
                                     f"127.0.0.1:{backend.port}", "--policies", f.path, "--metrics", f"127.0.0.1:{http}",
                                     "--threads", 2, stderr=open(logs[-1], "w"))
                f.until(lambda: gateway_demo.status(http))
                return child
            port = gateway_demo.free_port(socket.SOCK_DGRAM)
            child = start()
            sender = Sender(backend, [(host, port) for host in hosts])
            try:
                for _ in range(HANDOVERS):
                    due = sender.sent + 1000
                    f.until(lambda: sender.sent >= due)
                    last, child = child, start()
                    due = sender.sent + 1000
                    f.until(lambda: sender.sent >= due)
                    last.send_signal(signal.SIGTERM)
                    assert last.wait(20) == 0
                due = sender.sent + 1000
                f.until(lambda: sender.sent >= due)
            finally:
                sender.stop()
            f.until(lambda: backend.count == sender.sent)
            child.send_signal(signal.SIGTERM)
            assert child.wait(20) == 0
            assert backend.twice == sender.refused == 0, (backend.twice, sender.refused)
            offered = [int(re.search(r"offered (\d+), passed \1,", log.read_text())[1]) for log in logs]
            assert sum(offered) == sender.sent and min(offered) > 0, (offered, sender.sent)
    finally:
        backend.close()


def test_a_handover_loses_no_packet():
    check("127.0.0.1", ["127.0.0.1"])


def test_a_handover_loses_no_packet_of_ipv6():
    check("[::1]", ["::1"])


def test_a_handover_on_every_address_loses_no_packet():
    check("", ["127.0.0.1", "127.0.0.5", "::1"])


def test_a_handover_on_every_ipv4_address_loses_no_packet():
    check("0.0.0.0", ["127.0.0.1", "127.0.0.5"])


def serve_after_sigterm(listen, to):
    """Sends 100 packets that the gateway has not read when SIGTERM comes. Returns how many replies came back."""
    with Fixture(listen=listen, threads=1) as f:
        clients = [f.client(to=to) for _ in range(20)]
        f.child.send_signal(signal.SIGSTOP)
        for client in clients:
            for n in range(5):
                client.send(b"%d" % n)
        f.child.send_signal(signal.SIGTERM)
        f.child.send_signal(signal.SIGCONT)
        assert f.child.wait(20) == 0
        log = f.log.read_text()
        replies = int(re.search(r"offered 100, passed 100, dropped 0, replies (\d+)\n", log)[1])
        home = 0
        for client in clients:
            client.setblocking(False)
            try:
                while client.recv(10):
                    home += 1
            except OSError:  # there are no more, and the gateway is gone
                pass
        assert home == replies, (listen, to, home, log)
        return replies


def test_what_a_gateway_was_given_is_served_after_sigterm():
    for listen, to in (("127.0.0.1", "127.0.0.1"), ("", "127.0.0.5"), ("", "::1"), ("[::1]", "::1")):
        # All replies, but where the backend had to wait for its turn for longer than the gateway does for replies.
        assert any(serve_after_sigterm(listen, to) == 100 for _ in range(10)), (listen, to)


if __name__ == "__main__":
    run(globals())
