#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
A gateway whose sockets are opened by systemd, which this test plays: activation_test.py BUILD_DIRECTORY SOURCE_DIRECTORY
[TEST...]. Prints TAP.

Guards: apps/gateway/activation.c, apps/gateway/listening.c, apps/gateway/listeners.c, apps/gateway/http.c,
apps/gateway/listen_socket.c
"""
import contextlib
import fcntl
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys

from listeners_test import connected, free_port, offered_of
from restart_test import Backend, HANDOVERS, Sender
from support import ask, check_sockets, Fixture, gateway_demo, POLICIES, run, Skipped

FAST = POLICIES.format(100000)


def udp(address=("127.0.0.1", 0), shared=False):
    s = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET, socket.SOCK_DGRAM)
    if shared:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    s.bind(address)
    return s


def tcp():
    return socket.create_server(("127.0.0.1", 0))


def hand_over(sockets, names=None, **variables):
    """What a child does before it becomes the gateway."""
    def before():
        fds = [fcntl.fcntl(s.fileno(), fcntl.F_DUPFD, 200) if s is not None else None for s in sockets]
        for number, fd in enumerate(fds, 3):
            if fd is None:
                with contextlib.suppress(OSError):
                    os.close(number)
            else:
                os.dup2(fd, number)
        os.environ.update({"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": str(len(sockets)),
                           **({"LISTEN_FDNAMES": ":".join(names)} if names else {}), **variables})
    return before


class Activated:
    """Sockets, and the gateways that they are handed to, one after the other."""

    def __init__(self, sockets, names=None, backend=None):
        self.sockets, self.names = sockets, names
        self.demo = gateway_demo.Demo(sys.argv[1])
        self.path = self.demo.dir / "test.yaml"
        self.path.write_text(FAST)
        self.log = self.demo.dir / "log"
        self.backend_port = backend or self.demo.backend()
        self.http = next((s.getsockname()[1] for s in sockets if s.type == socket.SOCK_STREAM), None)

    until, get, status = Fixture.until, Fixture.get, Fixture.status

    def start(self, *options, threads=2):
        self.child = self.demo.start(self.demo.bin / "weir-gateway", "--backend", f"127.0.0.1:{self.backend_port}", "--policies",
                                     self.path, "--threads", threads, *options, stderr=open(self.log, "w"), close_fds=False,
                                     preexec_fn=hand_over(self.sockets, self.names))
        self.until(self.status)
        return self.child

    def end(self):
        self.child.send_signal(signal.SIGTERM)
        assert self.child.wait(20) == 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.demo.close()
        for s in self.sockets:
            s.close()


def ask_many(port, to="127.0.0.1", count=60):
    """Clients of many ports, whichever thread the kernel gives them to."""
    for n in range(count):
        with connected(to, port) as client:
            assert ask(client, b"%d" % n) == b"%d" % n


def test_sockets_that_are_handed_over_are_served():
    for threads, many, shared in ((1, 1, False), (2, 2, True), (3, 3, True), (2, 1, True), (3, 2, True), (2, 1, False), (4, 1, False)):
        first = udp(shared=shared)
        sockets = [first, *(udp(first.getsockname(), shared) for _ in range(many - 1)), tcp()]
        with Activated(sockets) as f:
            f.start(threads=threads)
            port = first.getsockname()[1]
            ask_many(port)
            assert check_sockets(f.child) > threads
            f.until(lambda: offered_of(f) == {f"127.0.0.1:{port}": 60})
            # Beside one socket that nobody may share, the other threads have none, and nothing is stuck.
            warned = f"127.0.0.1:{port}: 1 of {threads} threads serve the sockets" in f.log.read_text()
            assert warned == (threads > 1 and not shared), f.log.read_text()


def test_every_address_is_answered_from_where_it_was_asked():
    with Activated([udp(("::", 0)), udp(("0.0.0.0", 0)), udp(("::1", 0)), tcp()]) as f:
        f.start(threads=1)
        for s, hosts in zip(f.sockets, (("127.0.0.5", "::1", "127.0.0.1"), ("127.0.0.6", "127.0.0.1"), ("::1",))):
            for host in hosts:
                ask_many(s.getsockname()[1], host, 3)
        ports = [s.getsockname()[1] for s in f.sockets]
        f.until(lambda: offered_of(f) == {f":{ports[0]}": 9, f"0.0.0.0:{ports[1]}": 6, f"[::1]:{ports[2]}": 3})


def test_packets_wait_for_the_next_gateway():
    with Activated([udp(), tcp()]) as f:
        port = f.sockets[0].getsockname()[1]
        for options in ((), ("--no-offload",), ()):
            clients = [connected("127.0.0.1", port) for _ in range(20)]
            for client in clients:  # before the gateway runs
                client.send(b"early")
            page = socket.create_connection(f.sockets[1].getsockname(), 20)
            page.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
            f.start(*options)
            for client in clients:
                assert client.recv(10) == b"early" and ask(client) == b"?"
                client.close()
            assert page.recv(4096).startswith(b"HTTP/1.")
            page.close()
            f.end()


def check_restarts(sockets):
    backend = Backend()
    try:
        with Activated(sockets, backend=backend.port) as f:
            f.start()
            sender = Sender(backend, [sockets[0].getsockname()[:2]])
            try:
                for _ in range(HANDOVERS):
                    due = sender.sent + 500
                    f.until(lambda: sender.sent >= due)
                    f.end()
                    f.start()
                due = sender.sent + 500
                f.until(lambda: sender.sent >= due)
            finally:
                sender.stop()
            f.until(lambda: backend.count == sender.sent)
            assert backend.twice == sender.refused == 0, (backend.twice, sender.refused)
    finally:
        backend.close()


def test_restarts_lose_no_packet():
    first = udp(shared=True)
    check_restarts([first, udp(first.getsockname(), True), tcp()])


def test_restarts_with_one_socket_of_several_threads_lose_no_packet():
    check_restarts([udp(), tcp()])


def test_listen_and_metrics_may_name_the_same_addresses():
    with Activated([udp(), tcp()]) as f:
        port, more = f.sockets[0].getsockname()[1], free_port()
        f.start("--listen", f"127.0.0.1:{port}", "--listen", f"127.0.0.1:{more}", "--metrics", f"127.0.0.1:{f.http}")
        ask_many(port)
        ask_many(more)
        f.until(lambda: offered_of(f) == {f"127.0.0.1:{port}": 60, f"127.0.0.1:{more}": 60})
        assert "LISTEN_" not in pathlib.Path(f"/proc/{f.child.pid}/cmdline").read_text()


def test_a_reload_keeps_them():
    with Activated([udp(), tcp()]) as f:
        port, more = f.sockets[0].getsockname()[1], free_port()
        config = f.demo.dir / "gateway.conf"
        config.write_text(f"idle: 10\nlisten: 127.0.0.1:{more}\n")
        f.start("--config", config)
        for text, addresses in (("idle: 20\n", {port}), (f"listen: ['127.0.0.1:{port}', '127.0.0.1:{more}']\n", {port, more}),
                                (f"metrics: 127.0.0.1:{free_port()}\n", {port})):
            before = f.status()["reloads"]
            config.write_text(text)
            f.child.send_signal(signal.SIGHUP)
            f.until(lambda: f.status()["reloads"] == before + 1)
            assert offered_of(f).keys() == {f"127.0.0.1:{p}" for p in addresses}
            ask_many(port, count=10)
        assert f.status()["waiting"] == ["metrics"]


def test_two_sockets_of_tcp_are_told_apart_by_name():
    with Activated([udp(), tcp(), tcp()], ["dns", "other", "metrics"]) as f:
        refused = start(f.sockets, f.names)
        assert refused.returncode == 2 and "socket 4 (other) of LISTEN_FDS is one of several of TCP; name the one" in refused.stderr, refused
        f.sockets[1].close()
        f.sockets = [f.sockets[0], f.sockets[2]]
        f.names = ["dns", "metrics"]
        f.http = f.sockets[1].getsockname()[1]
        f.start()
        assert "ok" in f.get("/healthz")


def start(sockets, names=None, options=(), **variables):
    command = [f"{sys.argv[1]}/apps/gateway/weir-gateway", "--backend", "127.0.0.1:9", "--threads", "1", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=20, close_fds=False,
                          preexec_fn=hand_over(sockets, names, **variables))


def test_wrong_sockets_are_refused_by_number_and_name():
    with contextlib.ExitStack() as stack:
        def opened(thing):
            return stack.enter_context(contextlib.closing(thing))
        local = opened(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        to_one = opened(udp())
        to_one.connect(("127.0.0.1", 9))
        listening = opened(tcp())
        other_listening = opened(tcp())
        connection = opened(socket.create_connection(listening.getsockname()))
        unbound = opened(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        file = opened(open("/dev/null", "rb"))
        good = opened(udp(shared=True))
        second = opened(udp(good.getsockname(), True))
        for sockets, names, says in (
                ((good, None), None, "socket 4 of LISTEN_FDS is not open"),
                ((file,), ("x",), "socket 3 (x) of LISTEN_FDS is no socket; give ListenDatagram="),
                ((local,), ("x", "y"), "socket 3 (x) of LISTEN_FDS is no socket of IPv4 or IPv6"),
                ((good, to_one), ("x", "y"), "socket 4 (y) of LISTEN_FDS is connected to one client"),
                ((good, connection), None, "socket 4 of LISTEN_FDS is a connection; give Accept=no"),
                ((unbound,), None, "socket 3 of LISTEN_FDS is bound to no port"),
                ((good,), ("metrics",), "socket 3 (metrics) of LISTEN_FDS is of UDP, and metrics are served over TCP"),
                ((good, listening, other_listening), None, "socket 4 of LISTEN_FDS is one of several of TCP"),
                ((good, listening, other_listening), ("", "metrics", "metrics"), "socket 5 (metrics) of LISTEN_FDS is a second one"),
                ((good, second), None, f"127.0.0.1:{good.getsockname()[1]}: 2 sockets were handed over for 1 threads; give --threads 2")):
            result = start(sockets, names)
            assert result.returncode == 2 and says in result.stderr, (says, result)
        result = start((good, listening), options=("--metrics", f"127.0.0.1:{free_port()}"))
        assert result.returncode == 2 and "a socket for the pages was handed over at another address" in result.stderr, result
        for count in ("x", "-1", "99999999", "1x", ""):
            result = start((good,), LISTEN_FDS=count)
            assert result.returncode == 2 and "LISTEN_FDS is no number of descriptors" in result.stderr, (count, result)
        # They are for another process.
        for variables in ({"LISTEN_PID": "1"}, {"LISTEN_FDS": "0"}):
            result = start((good,), **variables)
            assert result.returncode == 2 and "--listen and --backend are needed" in result.stderr, (variables, result)


def test_systemd_itself_hands_them_over():
    if shutil.which("systemd-socket-activate") is None:
        raise Skipped("there is no systemd-socket-activate")
    with Fixture() as f:
        port = free_port()
        f.demo.start("systemd-socket-activate", "--datagram", "--listen", f"127.0.0.1:{port}", "--fdname=clients",
                     f.demo.bin / "weir-gateway", "--backend", f"127.0.0.1:{f.backend_port}", "--threads", "1", "--state", f.demo.dir,
                     stderr=open(f.log, "w"))
        f.until(lambda: "Listening on" in f.log.read_text())
        with connected("127.0.0.1", port) as client:
            assert ask(client, b"it starts with this one") == b"it starts with this one"


if __name__ == "__main__":
    run(globals())
