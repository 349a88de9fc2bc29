#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
A gateway that listens on several addresses, on loopback: listeners_test.py BUILD_DIRECTORY SOURCE_DIRECTORY [TEST...].
Prints TAP.

Guards: apps/gateway/listeners.c, apps/gateway/listen_socket.c, apps/gateway/session.c, apps/gateway/worker.c
"""
import re
import signal
import socket
import subprocess

from proxy_test import decode
from restart_test import Backend, HANDOVERS, Sender
from support import ask, Fixture, gateway_demo, POLICIES, run


def free_port():
    return gateway_demo.free_port(socket.SOCK_DGRAM)


def connected(to, port, source=None):
    s = socket.socket(socket.AF_INET6 if ":" in to else socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(20)
    if source:
        s.bind(source)
    s.connect((to, port))
    return s


def offered_of(f):
    return {l["address"]: l["offered"] for l in f.status()["listeners"]}


def test_each_listener_answers_its_own_clients():
    ports = [free_port() for _ in range(3)]
    addresses = f"127.0.0.2:{ports[0]}", f"[::1]:{ports[1]}", f":{ports[2]}"
    with Fixture(*(word for a in addresses for word in ("--listen", a))) as f:
        for to, port in (("127.0.0.1", f.port), ("127.0.0.2", ports[0]), ("::1", ports[1]), ("127.0.0.7", ports[2]),
                         ("::1", ports[2])):
            with connected(to, port) as client:  # takes answers from the address that it asks alone
                for size in (1, 0, 3000):
                    assert ask(client, b"x" * size) == b"x" * size
        f.until(lambda: offered_of(f) == {f"127.0.0.1:{f.port}": 3, addresses[0]: 3, addresses[1]: 3, addresses[2]: 6})
        metrics = f.get("/metrics")
        assert f'weir_gateway_listener_packets_total{{listen=":{ports[2]}"}} 6\n' in metrics, metrics
        said = ", ".join((f"127.0.0.1:{f.port}", *addresses))
        assert f"info: {said} -> 127.0.0.1:{f.backend_port}, 2 threads\n" in f.log.read_text(), f.log.read_text()


def test_sockets_on_one_address_and_on_all_of_them_take_turns():
    every = free_port()
    with Fixture("--listen", f":{every}", threads=1) as f:
        clients = [connected(*to) for to in (("127.0.0.1", f.port), ("127.0.0.7", every), ("::1", every))]
        for _ in range(3):
            for client in clients:  # takes answers from the address that it asks alone
                assert ask(client) == b"?"
        assert f.status()["sessions"] == 3
        for client in clients:
            client.close()


class Watched(Fixture):
    """Two listeners, in front of a backend that is this process."""

    def __init__(self, *more, **options):
        self.second = free_port()
        super().__init__("--listen", f"127.0.0.2:{self.second}", *more, policies=POLICIES.format(100000), **options)
        self.end_backend()
        self.backend = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.backend.bind(("127.0.0.1", self.backend_port))
        self.backend.settimeout(20)

    def __exit__(self, *_):
        self.backend.close()
        super().__exit__()


def test_one_client_has_a_session_at_each_listener():
    for threads in (1, 2):
        with Watched(threads=threads) as f, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.bind(("127.0.0.9", 0))
            client.settimeout(20)
            homes = {}
            for to in (("127.0.0.1", f.port), ("127.0.0.2", f.second)) * 3:
                client.sendto(b"?", to)
                data, home = f.backend.recvfrom(100)
                assert homes.setdefault(to, home) == home, "a session is kept"
            assert len(set(homes.values())) == 2 == f.status()["sessions"]
            for to in reversed(list(homes)):  # the answer leaves from where the question came to
                f.backend.sendto(b"!", homes[to])
                assert client.recvfrom(100) == (b"!", to)


def test_sessions_of_one_client_are_kept_apart_where_their_hashes_are_not():
    """With 64 chains, of 80 clients with 16 sessions each, some have two sessions in one chain."""
    ports = [free_port() for _ in range(14)]
    with Watched("--sessions", 64, *(word for port in ports for word in ("--listen", f"127.0.0.1:{port}")), threads=1) as f:
        for _ in range(80):
            homes = set()
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
                client.bind(("127.0.0.1", 0))
                for to in (("127.0.0.1", f.port), ("127.0.0.2", f.second), *(("127.0.0.1", port) for port in ports)):
                    client.sendto(b"?", to)
                    homes.add(f.backend.recvfrom(100)[1])
            assert len(homes) == 16, len(homes)
        f.until(lambda: (f.status()["sessions"], f.status()["evicted_sessions"]) == (64, 79 * 16 - 48))


def test_a_burst_of_many_listeners_comes_home():
    """Replies to clients of several listeners, in one turn of one thread."""
    ports = [free_port() for _ in range(7)]
    with Fixture(*(word for port in ports for word in ("--listen", f"127.0.0.1:{port}")), threads=1,
                 policies=POLICIES.format(100000)) as f:
        clients = [connected("127.0.0.1", port) for port in (f.port, *ports) for _ in range(5)]
        f.child.send_signal(signal.SIGSTOP)
        for n in range(20):
            for i, client in enumerate(clients):
                client.send(b"%d.%d" % (i, n))
        f.child.send_signal(signal.SIGCONT)
        for i, client in enumerate(clients):
            assert [client.recv(100) for _ in range(20)] == [b"%d.%d" % (i, n) for n in range(20)]
            client.close()
        f.until(lambda: set(offered_of(f).values()) == {100})


def test_the_backend_learns_which_listener_was_asked():
    with Watched("--proxy-protocol") as f:
        for to in (("127.0.0.1", f.port), ("127.0.0.2", f.second)):
            with connected(*to) as client:
                client.send(b"?")
                assert decode(f.backend.recv(100)) == (client.getsockname(), to, b"?")


def test_wrong_listeners_are_refused():
    with Fixture() as f:
        def start(*listeners):
            words = [word for listener in listeners for word in ("--listen", listener)]
            return subprocess.run([f.demo.bin / "weir-gateway", *words, "--backend", "127.0.0.1:2"], capture_output=True, text=True,
                                  timeout=20)
        taken = f.demo.bin and socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        taken.bind(("127.0.0.1", 0))
        busy = f"127.0.0.1:{taken.getsockname()[1]}"
        for listeners, code, says in (((":1", ":1"), 2, "--listen :1: is given twice"),
                                      ((":1", "127.0.0.1:2"), 2, "--backend 127.0.0.1:2: is the address it listens on"),
                                      ((":1", "x"), 2, "--listen x: is no address"),
                                      (tuple(f":{n}" for n in range(1, 18)), 2, "--listen :17: is one too many; a gateway listens on 16"),
                                      ((f"127.0.0.1:{free_port()}", busy), 1, f"--listen {busy}: Address already in use")):
            result = start(*listeners)
            assert result.returncode == code and says in result.stderr, (listeners, result)
        taken.close()


def test_a_handover_of_several_listeners_loses_no_packet():
    backend = Backend()
    hosts = [("127.0.0.1", free_port()), ("::1", free_port()), ("127.0.0.5", free_port())]
    listen = [f"127.0.0.1:{hosts[0][1]}", f"[::1]:{hosts[1][1]}", f":{hosts[2][1]}"]
    try:
        with Fixture(policies="policies: [{name: overall, limits: [{algorithm: fixed_window, limit: 100000000, period: 1s}]}]") as f:
            logs = []

            def start():
                http = gateway_demo.free_port(socket.SOCK_STREAM)
                logs.append(f.demo.dir / f"log{len(logs)}")
                child = f.demo.start(f.demo.bin / "weir-gateway", *(word for a in listen for word in ("--listen", a)), "--backend",
                                     f"127.0.0.1:{backend.port}", "--policies", f.path, "--metrics", f"127.0.0.1:{http}",
                                     "--threads", 2, stderr=open(logs[-1], "w"))
                f.until(lambda: gateway_demo.status(http))
                return child
            child = start()
            sender = Sender(backend, hosts)
            try:
                for _ in range(HANDOVERS):
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
            assert sum(offered) == sender.sent, (offered, sender.sent)
    finally:
        backend.close()


if __name__ == "__main__":
    run(globals())
