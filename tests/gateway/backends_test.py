#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Several backends, on loopback: backends_test.py BUILD_DIRECTORY SOURCE_DIRECTORY [TEST...]. Prints TAP.

Guards: apps/gateway/backends/backends.c, apps/gateway/backends/checker.c, apps/gateway/backends/report.c,
apps/gateway/session.c, apps/gateway/worker.c
"""
import contextlib
import re
import signal
import socket
import subprocess
import sys
import threading

from support import Fixture, POLICIES, run

LOOSE = POLICIES.format(100000)


class Backend:
    """Answers each packet with its name and the packet, unless it is mute. Notes who sent what."""

    def __init__(self, name, port=0, mute=False):
        self.name, self.mute, self.got = name, mute, []
        self.open(port)

    def open(self, port):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", port))
        self.socket.settimeout(0.1)
        self.port = self.socket.getsockname()[1]
        self.stopping = False
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self):
        while not self.stopping:
            with contextlib.suppress(TimeoutError, ConnectionError):
                data, home = self.socket.recvfrom(65536)
                self.got.append((data, home))
                if not self.mute:
                    self.socket.sendto(self.name.encode() + b":" + data, home)

    def close(self):
        self.stopping = True
        self.thread.join()
        self.socket.close()

    def address(self):
        return f"127.0.0.1:{self.port}"


class Gateway(Fixture):
    """With these backends beside a first one of its own, which drains: it gets no client."""

    def __init__(self, backends, *more, **keywords):
        self.backends = backends
        words = []
        for backend in backends:
            words += ["--backend", backend if isinstance(backend, str) else backend.address()]
        super().__init__(*words, *more, policies=LOOSE, suffix=",drain", **keywords)

    def of(self, backend):
        address = backend if isinstance(backend, str) else backend.address()
        return next(b for b in self.status()["backends"] if b["backend"] == address)

    def metric(self, name, backend):
        return int(re.search(rf'^weir_gateway_backend_{name}{{backend="{backend.address()}"}} (\d+)$', self.get("/metrics"), re.M)[1])

    def said(self, text):
        return self.log.read_text().count(text)

    def says_once(self, text):
        """The line of a change comes after the change itself."""
        self.until(lambda: self.said(text))
        assert self.said(text) == 1, self.log.read_text()


@contextlib.contextmanager
def backends(count, **keywords):
    all_of_them = [Backend("abcdefgh"[i], **keywords) for i in range(count)]
    try:
        yield all_of_them
    finally:
        for backend in all_of_them:
            if not backend.stopping:
                backend.close()


def addresses(count):
    return [f"127.0.{1 + n // 200}.{1 + n % 200}" for n in range(count)]


def ask(f, source, data=b"?"):
    """Who answers a client of this address that has just come. Packets that a backend refuses are sent again."""
    with f.client(source=source) as client:
        return ask_again(f, client, data)


def ask_again(f, client, data=b"?"):
    client.settimeout(0.2)

    def answer():
        try:
            client.send(data)
            return client.recv(65536).decode().split(":")[0]
        except (TimeoutError, ConnectionError):
            return None
    return f.until(answer)


def choices(f, sources):
    return {source: ask(f, source) for source in sources}


def test_a_client_goes_to_one_backend_in_every_thread_and_after_a_restart_in_any_order():
    sources = addresses(60)
    with backends(3) as three:
        with Gateway(three, threads=4) as f:
            first = choices(f, sources)
            assert choices(f, sources) == first  # other ports, so other threads
            counts = [list(first.values()).count(b.name) for b in three]
            assert min(counts) >= 5, counts  # 20 are expected; 4 standard deviations are 15
            f.until(lambda: f.status()["replies"] == 120)
            for backend, count in zip(three, counts):
                b = f.of(backend)
                assert b["sent"] == b["replies"] == 2 * count == b["sessions"] and b["state"] == "up", (b, count)
                assert f.metric("sent_packets_total", backend) == f.metric("reply_packets_total", backend) == 2 * count
                assert f.metric("up", backend) == 1 and f.metric("sessions", backend) == 2 * count
            assert f.status()["backends"][0]["sent"] == 0 and f.status()["backends"][0]["draining"]
            assert f.status()["backend"] == "ok"
            table = f.get("/status.html?format=table")
            for backend, count in zip(three, counts):
                assert f"{backend.address()}</th><td>up</td>" + 3 * f"<td>{2 * count}</td>" + "<td>0</td>" in table, table
        with Gateway(three[::-1], threads=1) as f:
            assert choices(f, sources) == first


def test_a_secret_makes_another_choice():
    sources = addresses(60)
    with backends(3) as three, Gateway(three) as plain:
        secret = plain.demo.dir / "secret"
        secret.write_text("nobody outside knows this\n")
        secret.chmod(0o600)
        first = choices(plain, sources)
        with Gateway(three, "--fleet-secret-file", secret) as f:
            moved = sum(a != b for a, b in zip(choices(f, sources).values(), first.values()))
            assert moved >= 20, moved  # 40 are expected


def test_a_weight_is_a_share_of_the_clients():
    with backends(2) as (a, b), Gateway([a, b.address() + ",weight=9"]) as f:
        got = list(choices(f, addresses(100)).values())
        assert 70 <= got.count("b") < 100 and f.of(b)["weight"] == 9, got  # 90 are expected


def test_clients_of_a_backend_that_dies_move_and_the_others_stay():
    sources = addresses(45)
    with backends(3) as three, Gateway(three) as f:
        before = choices(f, sources)
        clients = {source: f.client(source=source) for source in sources}
        assert {s: ask_again(f, c) for s, c in clients.items()} == before
        dead = three[1]
        dead.close()
        after = {s: ask_again(f, c) for s, c in clients.items()}
        assert "b" not in after.values()
        assert all(after[s] == before[s] for s in sources if before[s] != "b")
        moved = [s for s in sources if before[s] == "b"]
        assert {after[s] for s in moved} == {"a", "c"}, after  # to the next of each, not to one
        assert f.status()["moved_sessions"] == len(moved), f.status()
        f.says_once(f"backend {dead.address()} is down: it refuses packets: Connection refused")
        assert f.of(dead)["state"] == "refuses" and f.metric("up", dead) == 0 and f.status()["backend"] == "ok"
        assert f.metric("refused_packets_total", dead) >= 1
        # It comes back, found by what the gateway itself sends, as no client's packet goes there.
        dead.open(dead.port)
        f.until(lambda: f.of(dead)["state"] == "up")
        f.says_once(f"backend {dead.address()} is up: it ")
        assert {s: ask_again(f, c) for s, c in clients.items()} == after  # their games go on where they are
        assert choices(f, sources) == before  # and who comes now goes where he went first
        for client in clients.values():
            client.close()


def test_where_all_are_down_packets_go_on():
    with backends(2) as two, Gateway(two) as f:
        before = choices(f, addresses(20))
        for backend in two:
            backend.close()
        for source in addresses(20):
            with f.client(source=source) as client:
                client.send(b"?")
        f.until(lambda: [b["state"] for b in f.status()["backends"][1:]] == ["refuses", "refuses"])
        f.until(lambda: f.said("all 2 backends are down: packets go on to them as if all were up") == 1)
        assert f.status()["backend"] == "refuses"
        for backend in two:
            backend.open(backend.port)
        # Of one client: its reply is a word of its backend, and then packets go to that one.
        assert choices(f, addresses(1)).items() <= before.items()
        f.until(lambda: choices(f, addresses(20)) == before and f.said("packets go to the backends that are up") == 1)
        assert f.status()["backend"] == "ok"


def test_a_backend_that_is_silent_is_down_and_gets_clients_again():
    with backends(2) as (a, b), Gateway([a, b], "--backend-silence", 2) as f:
        sources = addresses(20)
        before = choices(f, sources)
        b.mute = True
        client = f.client(source=next(s for s in sources if before[s] == "b"))
        client.settimeout(0.1)

        def answered():
            with contextlib.suppress(TimeoutError):
                client.send(b"?")
                return client.recv(100)
        assert f.until(answered).startswith(b"a:")
        f.says_once(f"backend {b.address()} is down: clients sent it packets for 2 seconds, and it replied to none")
        assert f.of(b)["state"] == "silent"
        assert set(choices(f, sources).values()) == {"a"}  # and where it gets clients again meanwhile, it does not answer them
        b.mute = False
        f.until(lambda: f.of(b)["up"])
        f.until(lambda: f.said(f"backend {b.address()} is up: it gets clients again, to see whether it replies"))
        assert choices(f, sources) == before
        client.close()


def test_a_backend_that_no_client_needs_an_answer_of_is_not_silent():
    with backends(1, mute=True) as (a,), Gateway([a], "--backend-silence", 1) as f:
        with f.client() as client:
            for n in range(3):
                client.send(b"?")
                f.until(lambda: f.of(a)["sent"] == n + 1)
                with contextlib.suppress(TimeoutError):
                    client.settimeout(2.5)  # a pause: packets of every second count alone
                    client.recv(1)
        assert f.of(a)["up"] and f.said("is down") == 0, f.log.read_text()


def test_probes_find_a_backend_that_stands_still():
    # The backend of this process may have to wait for its turn for longer than three probes take.
    probes = ("--probe", "0x70696e67", "--probe-interval-ms", 100, "--probe-fall", 20)
    with Gateway([], *probes) as f, backends(1) as (a,):
        port = f.demo.backend()
        echo = f.demo.children[-1]
        with Gateway([f"127.0.0.1:{port}", a], *probes) as g:
            sources = addresses(20)
            f.until(lambda: b"ping" in [data for data, _ in a.got])
            assert set(choices(g, sources).values()) == {"a", "?"}
            echo.send_signal(signal.SIGSTOP)
            g.until(lambda: g.of(f"127.0.0.1:{port}")["state"] == "no answer")
            g.until(lambda: re.search(rf"backend 127.0.0.1:{port} is down: [0-9]+ probes in a row had no answer", g.log.read_text()))
            assert set(choices(g, sources).values()) == {"a"}
            echo.send_signal(signal.SIGCONT)
            g.until(lambda: g.of(f"127.0.0.1:{port}")["up"])
            g.says_once(f"backend 127.0.0.1:{port} is up: it answers probes")
            echo.kill()
            echo.wait()
            g.until(lambda: g.of(f"127.0.0.1:{port}")["state"] == "refuses")  # without a client's packet
            g.until(lambda: g.said("is down") >= 2)
            assert g.of(a)["up"] and g.said("is down") == 2, g.log.read_text()


def test_a_probe_is_as_the_backend_expects_it():
    with backends(1) as (a,), Gateway([a], "--probe", "are you there?", "--probe-interval-ms", 100, "--proxy-protocol") as f:
        f.until(lambda: a.got)
        assert a.got[0][0] == b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0are you there?", a.got


def test_a_backend_that_drains_gets_no_new_clients():
    with Gateway([]) as f:  # its own backend, which drains, is all there is
        with f.client() as client:
            client.send(b"?")
            f.until(lambda: f.status()["unsendable"] == 1)
        assert f.status()["sessions"] == 0 and f.said("is down") == 0, f.status()


def test_what_is_wrong_with_a_backend_is_said():
    def said(*words):
        out = subprocess.run([sys.argv[1] + "/apps/gateway/weir-gateway", "--listen", "127.0.0.1:1", *map(str, words)],
                             capture_output=True, text=True, timeout=20)
        assert out.returncode == 2, out
        return out.stderr
    b = "--backend"
    assert "--backend 127.0.0.1:2,weight=0: weight: give a number from 1 to 256; for no new clients give ,drain" in said(b, "127.0.0.1:2,weight=0")
    assert "weight: give a number" in said(b, "127.0.0.1:2,weight=257") and "weight: give a number" in said(b, "127.0.0.1:2,weight=1x")
    assert '"wait=1" is neither weight=N nor drain' in said(b, "127.0.0.1:2,wait=1")
    assert '"" is neither' in said(b, "127.0.0.1:2,")
    assert "is no address" in said(b, "127.0.0.1") and "is no address" in said(b, '127.0.0.1"x:7')
    assert "127.0.0.1:2 is given twice" in said(b, "127.0.0.1:2", b, "127.0.0.1:3", b, "127.0.0.1:2")
    assert "is given twice, also as" in said(b, "localhost:2", b, "127.0.0.1:2")
    assert "is the address it listens on" in said(b, "127.0.0.1:2", b, "127.0.0.1:1")
    assert "64 backends at most" in said(*[word for n in range(65) for word in (b, f"127.0.0.1:{n + 2}")])
    assert "give a text, or 0x" in said(b, "127.0.0.1:2", "--probe", "0x123")
    assert '"1g" is no pair of hex digits' in said(b, "127.0.0.1:2", "--probe", "0x1g")
    assert "give a number from 100 to 60000" in said(b, "127.0.0.1:2", "--probe-interval-ms", 99)


if __name__ == "__main__":
    run(globals())
