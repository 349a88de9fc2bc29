# SPDX-License-Identifier: Apache-2.0
"""Traces of requests in every format that weir simulate reads, for its tests."""
import ipaddress
import json
import struct
import time
from typing import NamedTuple

START_S = 1764064800  # 2025-11-25 10:00:00 UTC


class Request(NamedTuple):
    time_ms: int
    address: str = "198.51.100.7"
    user: str = "-"
    path: str = "/"
    cost: int = 1
    agent: str = "test"


def clf_time(time_ms):
    return time.strftime("%d/%b/%Y:%H:%M:%S", time.gmtime(time_ms // 1000))


def combined(r):
    return (f'{r.address} - {r.user} [{clf_time(r.time_ms)} +0000] "GET {r.path} HTTP/1.1" 200 {r.cost} '
            f'"https://example.org/\\"quoted\\"" "{r.agent}"')


def common(r):
    return f'{r.address} - {r.user} [{clf_time(r.time_ms)} +0000] "GET {r.path} HTTP/1.1" 200 {r.cost}'


def nginx_json(r):
    return json.dumps({"time_iso8601": time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(r.time_ms // 1000)),
                       "msec": f"{r.time_ms // 1000}.{r.time_ms % 1000:03}", "remote_addr": r.address, "remote_user": r.user,
                       "nested": {"remote_addr": "203.0.113.1", "list": [1, "}"]}, "request_uri": r.path,
                       "bytes_sent": r.cost})


def haproxy(r):
    return (f"<134>Nov 25 10:00:00 lb haproxy[14]: {r.address}:40000 [{clf_time(r.time_ms)}.{r.time_ms % 1000:03}] web app/s1 "
            f'10/0/30/69/109 200 {r.cost} - - ---- 1/1/1/1/0 0/0 {{{r.agent}|second}} {{}} "GET {r.path} HTTP/1.1"')


def csv(r):
    return f"{r.time_ms // 1000}.{r.time_ms % 1000:03},{r.user},{r.cost}"


SERVER = {4: ipaddress.ip_address("192.0.2.1"), 6: ipaddress.ip_address("2001:db8:ffff::1")}


def udp(size, source_port=4000, port=27015, payload=b""):
    """A UDP header for a payload of that size, and as much of it as there is."""
    return struct.pack(">HHHH", source_port, port, 8 + size, 0) + payload


def ip(source, to, rest, protocol=17, size=None, offset=0, more=False):
    """A packet of IP; `size`: of what is behind its header, where that was not captured as a whole."""
    source, to = ipaddress.ip_address(source), ipaddress.ip_address(to)
    size = len(rest) if size is None else size
    if source.version == 4:
        flags = offset // 8 | (0x2000 if more else 0)
        return struct.pack(">BBHHHBBH", 0x45, 0, min(20 + size, 65535), 7, flags, 64, protocol, 0) + source.packed + to.packed + rest
    if offset or more:
        rest, protocol, size = struct.pack(">BBHI", protocol, 0, offset | more, 7) + rest, 44, size + 8
    return struct.pack(">IHBB", 6 << 28, min(size, 65535), protocol, 64) + source.packed + to.packed + rest


def frame(packet, tagged=False):
    """The packet in an Ethernet frame, in a VLAN or not."""
    return bytes(12) + (b"\x81\x00\x00\x05" if tagged else b"") + (b"\x08\x00" if packet[0] >> 4 == 4 else b"\x86\xdd") + packet


def capture(frames, link=1):
    """[(time_ms, frame, its size on the wire)] as a file."""
    out = [struct.pack("<IHHiIII", 0xa1b2c3d4, 2, 4, 0, 0, 65535, link)]
    for time_ms, bytes_of, size in frames:
        out.append(struct.pack("<IIII", time_ms // 1000, time_ms % 1000 * 1000, len(bytes_of), max(size, len(bytes_of))) + bytes_of)
    return b"".join(out)


def pcap(requests):
    """A capture of the headers of datagrams to port 27015 of the server, each with a payload of r.cost bytes."""
    frames = []
    for r in requests:
        server = SERVER[ipaddress.ip_address(r.address).version]
        packet = ip(r.address, server, udp(r.cost), size=8 + r.cost)
        frames.append((r.time_ms, frame(packet, tagged=r.time_ms % 2), 14 + len(packet) + r.cost))
    return capture(frames)


def in_order(requests, whole):
    """The requests as they are to be played, with their times: spread over their second where `whole`."""
    if not whole:
        return sorted(((r.time_ms, r) for r in requests), key=lambda pair: pair[0])
    seconds = {}
    for r in requests:
        seconds.setdefault(r.time_ms // 1000, []).append(r)
    return [(second * 1000 + i * 1000 // len(group), r) for second, group in sorted(seconds.items())
            for i, r in enumerate(group)]
