#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Clients' addresses kept towards the backends, between three network namespaces: transparent_test.py BUILD_DIRECTORY
SOURCE_DIRECTORY [TEST...]. Prints TAP.

The gateway's host is between that of the clients and that of the backends, whose way to the clients leads over it.

Guards: apps/gateway/backends/transparent.c, apps/gateway/options.c
"""
import contextlib
import os
import socket
import subprocess
import sys
import threading

from hosts import addresses, host_names, hosts, ip, LIBC, on, wire
from support import Fixture, late_answers, POLICIES, run, Skipped

CLIENTS, GATEWAY, BACKENDS = host_names("abc")


def lay():
    addresses(CLIENTS, "wire", "10.78.1.2/24", "10.78.1.3/24", "fd78:1::2/64")
    addresses(GATEWAY, "front", "10.78.1.1/24", "fd78:1::1/64")
    addresses(GATEWAY, "back", "10.78.2.1/24", "fd78:2::1/64")
    addresses(BACKENDS, "wire", "10.78.2.2/24", "10.78.2.3/24", "fd78:2::2/64")
    ip("route", "add", "default", "via", "10.78.2.1", host=BACKENDS)
    ip("-6", "route", "add", "default", "via", "fd78:2::1", host=BACKENDS)
    for version in ("-4", "-6"):
        ip(version, "rule", "add", "iif", "back", "ipproto", "udp", "lookup", "100", host=GATEWAY)
        ip(version, "route", "add", "local", "default", "dev", "lo", "table", "100", host=GATEWAY)


def network():
    """Three hosts in a row. Inside, this process is on the gateway's host, with the routes of docs/gateway.md."""
    wires = (wire(GATEWAY, "front", CLIENTS, "wire"), wire(GATEWAY, "back", BACKENDS, "wire"))
    return hosts((GATEWAY, CLIENTS, BACKENDS), wires, lay)


def socket_on(host, address, port=0):
    with on(host):
        s = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
    s.bind((address, port))
    s.settimeout(20)
    return s


def serve(backend, seen):
    """Answers each packet with where it came from, until an empty one comes."""
    while True:
        data, client = backend.recvfrom(100)
        if data == b"end":
            return
        seen.append(client[:2])
        backend.sendto(f"{client[0]} {client[1]}".encode(), client)


@contextlib.contextmanager
def backend_on(address):
    backend, seen = socket_on(BACKENDS, address), []
    backend.settimeout(None)
    thread = threading.Thread(target=serve, args=(backend, seen), daemon=True)
    thread.start()
    try:
        yield backend.getsockname()[1], seen
    finally:
        with socket_on(BACKENDS, address) as end:
            end.sendto(b"end", backend.getsockname())
        thread.join()
        backend.close()


def ask(f, client, to):
    client.sendto(b"?", (to, f.port))
    data, home = client.recvfrom(100)
    assert home[:2] == (to, f.port), home
    return data.decode().split()


def test_the_backend_sees_the_client_and_its_answers_come_home():
    with network(), backend_on("10.78.2.2") as (port, seen), backend_on("10.78.2.3") as (other, also), \
            Fixture("--backend", f"10.78.2.2:{port}", "--backend", f"10.78.2.3:{other}", "--transparent", listen="10.78.1.1",
                    policies=POLICIES.format(100000), suffix=",drain") as f:
        for source in ("10.78.1.2", "10.78.1.3"):
            for _ in range(5):
                with socket_on(CLIENTS, source) as client:
                    for _ in range(2):
                        assert ask(f, client, "10.78.1.1") == [source, str(client.getsockname()[1])]
        f.until(lambda: f.status()["replies"] == 20)
        assert len(seen) + len(also) == 20 and f.status()["unsendable"] == 0


def test_a_late_answer_reaches_its_client_or_nobody():
    with network(), contextlib.ExitStack() as stack:
        backend = stack.enter_context(socket_on(BACKENDS, "10.78.2.2"))
        f = stack.enter_context(Fixture("--backend", f"10.78.2.2:{backend.getsockname()[1]}", "--transparent", "--sessions", 16,
                                        listen="10.78.1.1", policies=POLICIES.format(100000), suffix=",drain", threads=1))
        clients = [stack.enter_context(socket_on(CLIENTS, f"10.78.1.{2 + n % 2}")) for n in range(60)]
        for client in clients:
            client.connect(("10.78.1.1", f.port))
        held = []

        def collect():
            while len(held) < 60:
                held.append(backend.recvfrom(100))
        thread = threading.Thread(target=collect)
        thread.start()

        def release():
            thread.join()
            for data, home in held:
                backend.sendto(data, home)
        got = late_answers(f, clients, held, release)
        assert got == set(range(44, 60)), got


def test_a_client_may_have_the_port_that_the_gateway_listens_on():
    with network(), backend_on("10.78.2.2") as (port, seen), \
            Fixture("--backend", f"10.78.2.2:{port}", "--transparent", listen="0.0.0.0", policies=POLICIES.format(100000),
                    suffix=",drain") as f:
        with socket_on(CLIENTS, "10.78.1.2", f.port) as client:
            for _ in range(3):
                assert ask(f, client, "10.78.1.1") == ["10.78.1.2", str(f.port)]
        with socket_on(CLIENTS, "10.78.1.3") as client:
            assert ask(f, client, "10.78.1.1")[0] == "10.78.1.3"
        assert len(seen) == 4 and f.status()["unsendable"] == 0


def without_low_ports():
    assert LIBC.prctl(24, 10, 0, 0, 0) == 0  # PR_CAPBSET_DROP, CAP_NET_BIND_SERVICE


def test_a_client_whose_address_cannot_be_had_brings_no_backend_down():
    with network(), backend_on("10.78.2.2") as (port, seen), \
            Fixture("--backend", f"10.78.2.2:{port}", "--transparent", listen="10.78.1.1", policies=POLICIES.format(100000),
                    suffix=",drain", before=without_low_ports) as f:
        with socket_on(CLIENTS, "10.78.1.2", 123) as client:
            client.sendto(b"?", ("10.78.1.1", f.port))
            f.until(lambda: f.status()["unsendable"] == 1)
        with socket_on(CLIENTS, "10.78.1.3") as client:
            assert ask(f, client, "10.78.1.1")[0] == "10.78.1.3"
        assert len(seen) == 1 and "is down" not in f.log.read_text(), f.log.read_text()


def test_ipv6_and_mapped_clients():
    with network(), backend_on("fd78:2::2") as (port, seen), \
            Fixture("--backend", f"[fd78:2::2]:{port}", "--transparent", listen="[::]", policies=POLICIES.format(100000),
                    suffix=",drain") as f:
        with socket_on(CLIENTS, "fd78:1::2") as client:
            assert ask(f, client, "fd78:1::1") == ["fd78:1::2", str(client.getsockname()[1])]
        with socket_on(CLIENTS, "10.78.1.2") as client:  # IPv4 does not fit a backend of IPv6
            client.sendto(b"?", ("10.78.1.1", f.port))
            f.until(lambda: f.status()["unsendable"] == 1)
        assert len(seen) == 1


def test_mapped_clients_of_a_backend_of_ipv4():
    with network(), backend_on("10.78.2.2") as (port, _), \
            Fixture("--backend", f"10.78.2.2:{port}", "--transparent", listen="[::]", policies=POLICIES.format(100000),
                    suffix=",drain") as f, socket_on(CLIENTS, "10.78.1.2") as client:
        assert ask(f, client, "10.78.1.1") == ["10.78.1.2", str(client.getsockname()[1])]


def test_what_is_missing_is_said():
    def said(*more, before=None):
        return subprocess.run([sys.argv[1] + "/apps/gateway/weir-gateway", "--listen", "127.0.0.1:1", "--backend", "127.0.0.1:2",
                               "--transparent", *more], capture_output=True, text=True, timeout=20, preexec_fn=before)

    out = said("--proxy-protocol")
    assert out.returncode == 2 and "--transparent: the client's address is told by --proxy-protocol" in out.stderr, out
    if os.getuid() != 0:
        raise Skipped("without root there is no privilege to give up")
    out = said(before=lambda: os.setuid(65534))
    assert out.returncode == 1 and "--transparent: Operation not permitted; it needs CAP_NET_ADMIN" in out.stderr, out


if __name__ == "__main__":
    run(globals())
