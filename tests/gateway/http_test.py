#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
The gateway's HTTP, on loopback: http_test.py BUILD_DIRECTORY SOURCE_DIRECTORY [TEST...]. Prints TAP.

Guards: apps/gateway/http.c, apps/gateway/address.c, apps/gateway/session.c
"""
import http.client
import json
import socket
import subprocess
import threading

from support import ask, check_sockets, Fixture, run


class Slow:
    """Connections that send a byte each half second, and are opened anew where they end."""

    def __init__(self, port, count):
        self.port, self.sockets, self.at = port, [None] * count, 0
        self.stopped = threading.Event()
        self.push()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def push(self):
        words = b"GET /status HTTP/1.1\r\nHost: here\r\nX-Long: " + b"x" * 10000
        for n, s in enumerate(self.sockets):
            try:
                if s is None:
                    s = self.sockets[n] = socket.create_connection(("127.0.0.1", self.port), timeout=20)
                s.send(words[self.at:self.at + 1])
            except OSError:
                if s:
                    s.close()
                self.sockets[n] = None
        self.at = (self.at + 1) % len(words)

    def run(self):
        while not self.stopped.wait(0.5):
            self.push()

    def close(self):
        self.stopped.set()
        self.thread.join()
        for s in self.sockets:
            if s:
                s.close()


def get(f, path):
    connection = http.client.HTTPConnection("127.0.0.1", f.http, timeout=20)
    connection.request("GET", path)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def test_its_sockets_are_its_own_and_wait_for_nobody():
    with Fixture() as f, f.client() as client, socket.create_connection(("127.0.0.1", f.http), timeout=20):
        assert ask(client) == b"?" and get(f, "/healthz")[0] == 200
        assert check_sockets(f.child) >= 4


def test_slow_connections_keep_nobody_out():
    with Fixture() as f:
        slow = Slow(f.http, 40)
        try:
            for _ in range(10):
                assert get(f, "/metrics")[0] == get(f, "/status")[0] == get(f, "/healthz")[0] == 200
                assert not slow.stopped.wait(0.3)
            # They are there all the time, but for a moment when the gateway has closed all that were there for long.
            f.until(lambda: sum(s is not None for s in list(slow.sockets)) >= 20)
        finally:
            slow.close()


def test_the_oldest_connection_makes_way():
    with Fixture() as f:
        others = [socket.create_connection(("127.0.0.1", f.http), timeout=20) for _ in range(60)]
        assert get(f, "/healthz") == (200, "ok\n")
        assert others[0].recv(10) == b"" and others[35].recv(10) == b""
        others[-1].sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
        assert others[-1].recv(100).startswith(b"HTTP/1.1 200 OK")
        for s in others:
            s.close()


def test_what_there_is_is_listed():
    with Fixture() as f:
        code, text = get(f, "/")
        assert code == 200, code
        for path in ("/metrics", "/status", "/healthz"):
            assert path in text and get(f, path)[0] == 200, (path, text)
        assert json.loads(get(f, "/status")[1])["threads"] == 2
        code, text = get(f, "/nothing")
        assert code == 404 and "/ lists" in text, text


def test_an_address_that_cannot_be_had_is_told_with_the_reason():
    with Fixture() as f:
        result = subprocess.run([str(f.demo.bin / "weir-gateway"), "--listen", f"127.0.0.1:{f.port}", "--backend",
                                 "127.0.0.1:9", "--metrics", f"127.0.0.1:{f.http}"], capture_output=True, text=True, timeout=20)
        assert result.returncode == 1 and f"--metrics 127.0.0.1:{f.http}: Address already in use" in result.stderr, result


if __name__ == "__main__":
    run(globals())
