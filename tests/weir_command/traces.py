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


def pcap(requests):
    """A capture of Ethernet frames, some of them in a VLAN, each of r.cost bytes on the wire."""
    out = [struct.pack("<IHHiIII", 0xa1b2c3d4, 2, 4, 0, 0, 65535, 1)]
    for r in requests:
        source = ipaddress.ip_address(r.address)
        tag = b"\x81\x00\x00\x05" if r.time_ms % 2 else b""
        if source.version == 4:
            frame = bytes(12) + tag + b"\x08\x00\x45" + bytes(11) + source.packed + bytes(4)
        else:
            frame = bytes(12) + tag + b"\x86\xdd\x60" + bytes(7) + source.packed + bytes(16)
        out.append(struct.pack("<IIII", r.time_ms // 1000, r.time_ms % 1000 * 1000, len(frame), max(r.cost, 1)) + frame)
    return b"".join(out)


def in_order(requests, whole):
    """The requests as they are to be played, with their times: spread over their second where `whole`."""
    if not whole:
        return sorted(((r.time_ms, r) for r in requests), key=lambda pair: pair[0])
    seconds = {}
    for r in requests:
        seconds.setdefault(r.time_ms // 1000, []).append(r)
    return [(second * 1000 + i * 1000 // len(group), r) for second, group in sorted(seconds.items())
            for i, r in enumerate(group)]
