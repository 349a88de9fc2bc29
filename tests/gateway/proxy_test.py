#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
PROXY protocol headers to the backend, on loopback: proxy_test.py BUILD_DIRECTORY SOURCE_DIRECTORY [TEST...].
Prints TAP.

Guards: apps/gateway/proxy.c, apps/gateway/local.c, apps/gateway/worker.c
"""
import socket
import struct

from offload_test import needs_offload, offer, packets_of, sockets_of
from support import Fixture, POLICIES, run


def decode(data):
    """Client, address asked, payload."""
    assert data[:13] == b"\r\n\r\n\0\r\nQUIT\n\x21", data
    family, length = struct.unpack("!BH", data[13:16])
    kind, size = {0x12: (socket.AF_INET, 4), 0x22: (socket.AF_INET6, 16)}[family]
    assert length == 2 * size + 4, data
    sender, asked = data[16:16 + size], data[16 + size:16 + 2 * size]
    ports = struct.unpack("!HH", data[16 + 2 * size:16 + length])
    return (socket.inet_ntop(kind, sender), ports[0]), (socket.inet_ntop(kind, asked), ports[1]), data[16 + length:]


class Proxied(Fixture):
    """In front of a backend that is this process."""

    def __init__(self, *more, **options):
        super().__init__("--proxy-protocol", *more, threads=1, policies=POLICIES.format(100000), **options)
        self.end_backend()
        self.backend = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.backend.bind(("127.0.0.1", self.backend_port))
        self.backend.settimeout(20)

    def check(self, client, packets):
        expected = client.getsockname()[:2], client.getpeername()[:2]
        for packet in packets:
            data, home = self.backend.recvfrom(70000)
            assert decode(data) == (*expected, packet), (decode(data), expected)
        return home

    def __exit__(self, *_):
        self.backend.close()
        super().__exit__()


def test_the_backend_learns_who_the_client_is():
    for listen, to, header in (("127.0.0.1", "127.0.0.1", 28), ("[::1]", "::1", 52), ("", "127.0.0.5", 28), ("", "::1", 52),
                               ("0.0.0.0", "127.0.0.7", 28)):
        with Proxied(listen=listen) as f:
            client = f.client(to=to)
            for packet in (b"?", b"", b"x" * (65507 - header)):
                client.send(packet)
                home = f.check(client, [packet])
            f.backend.sendto(b"answer", home)  # replies have no header
            assert client.recv(100) == b"answer"
            assert f.status()["unsendable"] == 0
            client.send(b"x" * (65507 - header + 1))  # no room for the header
            f.until(lambda: f.status()["unsendable"] == 1)


def test_each_packet_of_a_burst_has_a_header():
    with Proxied() as f:
        needs_offload(f)
        one, other = f.client(), f.client()
        for client in (one, other):
            for count, size in ((64, 100), (40, 500), (1, 7)):
                packets = packets_of("p", 0, count, size)
                packets[-1] = packets[-1][:size - 3]
                offer(f, client, packets, size)
                f.check(client, packets)
        status = f.status()
        assert status["offload"]["segmented"] >= 150 and status["unsendable"] == 0, status


def test_headers_stay_where_segments_are_refused():
    # A socket that computes no checksums takes no segments.
    with Proxied() as f:
        needs_offload(f)
        client = f.client()
        client.send(b"?")
        f.check(client, [b"?"])
        for s in sockets_of(f.child.pid):
            s.setsockopt(socket.SOL_SOCKET, 11, 1)  # SO_NO_CHECK
        packets = packets_of("p", 0, 64)
        offer(f, client, packets, 100)
        f.check(client, packets)
        status = f.status()
        assert status["offload"]["send"] is False and status["unsendable"] == status["offload"]["segmented"] == 0, status


if __name__ == "__main__":
    run(globals())
