#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Of captures weir simulate takes the UDP datagrams towards the service for requests, and says what a capture does not show.
simulate_packets_test.py WEIR_PROGRAM [TEST...]. Prints TAP.

Guards: apps/weir/trace/packets.c, apps/weir/trace/datagram.c, apps/weir/simulate/doubts.c,
apps/weir/simulate/report_text.c, apps/weir/simulate/report_data.c, apps/weir/simulate/findings.c
"""
import ipaddress
import json
import os
import random
import struct
import subprocess

from command_support import file, need, PLACE, PLAIN, run, weir, WEIR
from traces import capture, combined, frame, ip, Request, SERVER, START_S, udp

SEED = int(os.environ.get("WEIR_TEST_SEED") or random.SystemRandom().randrange(1 << 32))
DRAW = random.Random(SEED)
START_MS = START_S * 1000
POLICIES = "policies:\n  - {name: web, limits: [{algorithm: token_bucket, limit: 1, period: 1s, burst: 5}]}\n"
HAS_PCAP = "libpcap" not in os.environ.get("WEIR_TEST_LACKS", "").split()


def write(frames, name="capture.pcap", link=1):
    (PLACE / name).write_bytes(capture(frames, link))
    return PLACE / name


def decisions(path, *words, code=0, policies=POLICIES):
    out, fault = weir("simulate", "-p", file("web.yaml", policies), "--decisions=-", *words, path, code=code)
    return [line.split(",") for line in out.splitlines()], fault


def told(path, *words, code=0, policies=POLICIES):
    return json.loads(weir("simulate", "-p", file("web.yaml", policies), "--json", *words, path, code=code)[0])


def client(version=4):
    return str(ipaddress.ip_address(f"198.51.100.{DRAW.randrange(1, 99)}" if version == 4 else f"2001:db8::{DRAW.randrange(1, 99):x}"))


def some_packet(version, port):
    """A kind, a packet, the client where it is a request, and the size of its payload."""
    one, server, size = client(version), SERVER[version], DRAW.choice((0, 1, 16, 1200))
    kind = DRAW.choice(("request", "request", "request", "answer", "other port", "other host", "tcp", "icmp", "first fragment",
                        "later fragment", "gre"))
    if kind == "request":
        return kind, ip(one, server, udp(size, port=port, payload=bytes(DRAW.choice((0, size)))), size=8 + size), one, size
    if kind == "first fragment":
        return kind, ip(one, server, udp(3000, port=port, payload=bytes(1472)), more=True), one, 3000
    packets = {
        "answer": lambda: ip(server, one, udp(size, port, 4000, bytes(size))),
        "other port": lambda: ip(one, server, udp(size, port=port + 1, payload=bytes(size))),
        "other host": lambda: ip(one, client(version), udp(size, port=port, payload=bytes(size))),
        "tcp": lambda: ip(one, server, struct.pack(">HHIIHHHH", 4000, port, 1, 1, 0x5002, 1024, 0, 0), protocol=6),
        "icmp": lambda: ip(one, server, bytes(8), protocol=1 if version == 4 else 58),
        "later fragment": lambda: ip(one, server, udp(size, port=port, payload=bytes(64)), offset=1480),
        "gre": lambda: ip(one, server, bytes(16), protocol=47),
    }
    return kind, packets[kind](), None, size


def test_datagrams_towards_the_service_alone_are_requests():
    need(HAS_PCAP, "there is no libpcap")
    print(f"# WEIR_TEST_SEED={SEED}", flush=True)
    for version, port, link in ((4, 27015, 1), (6, 443, 1), (4, 53, 101), (6, 19132, 101)):
        drawn = [some_packet(version, port) for _ in range(1500)]
        frames = [(START_MS + i * 20, frame(packet, tagged=i % 3 == 0) if link == 1 else packet, 14 + len(packet) + size)
                  for i, (_, packet, _, size) in enumerate(drawn)]
        path = write(frames, link=link)
        wanted = [(str(START_MS + i * 20), one, str(max(size, 1))) for i, (_, _, one, size) in enumerate(drawn) if one is not None]
        server = f"{SERVER[version]}:{port}" if version == 4 else f"[{SERVER[version]}]:{port}"
        for words in ((), ("--to", str(SERVER[version]), f"--port={port}"), ("--to", server)):
            got, fault = decisions(path, "--cost=bytes", *words)
            assert [tuple(row[:3]) for row in got] == wanted, (version, words, len(got), len(wanted))
            assert ("where most of them go" in fault) == (not words) and f"datagrams to {server}" in fault, fault
            left_out = told(path, *words)["traces"][0]["left_out"]
            count = {kind: sum(one == kind for one, *_ in drawn) for kind in {kind for kind, *_ in drawn}}
            assert left_out == {"tcp": count["tcp"], "icmp": count["icmp"], "fragments": count["later fragment"], "other_protocols": count["gre"],
                                "elsewhere": count["answer"] + count["other port"] + count["other host"]}, (left_out, count)
        # Of a port alone to any host, of a host alone at any port.
        kinds = [kind for kind, _, _, _ in drawn]
        both = ("request", "first fragment")
        assert len(decisions(path, f"--port={port}")[0]) == sum(kind in (*both, "other host") for kind in kinds)
        assert len(decisions(path, f"--to={SERVER[version]}")[0]) == sum(kind in (*both, "other port") for kind in kinds)
    assert "datagrams to port 53 of any address" in weir("simulate", "-p", "web.yaml", "--port=53", write(
        [(START_MS + i * 900, frame(ip(client(), SERVER[4], udp(5, port=53))), 0) for i in range(3)]))[0]


def test_the_service_is_what_most_datagrams_go_to():
    need(HAS_PCAP, "there is no libpcap")
    frames = []
    for i in range(300):
        one = f"198.51.100.{i % 3}"
        frames.append((START_MS + i * 10, frame(ip(one, SERVER[4], udp(20, 4000 + i % 7, 27015))), 0))
        frames.append((START_MS + i * 10 + 1, frame(ip(SERVER[4], one, udp(900, 27015, 4000 + i % 7))), 0))
    found = told(write(frames))
    assert found["traces"][0]["service"] == "192.0.2.1:27015" and found["traces"][0]["service_found"] and found["requests"] == 300, found["traces"]
    assert {row["key"] for row in found["top"]} <= {"198.51.100.0", "198.51.100.1", "198.51.100.2"}
    # One client: of two that get as much the lower port is the service.
    frames = [(START_MS + i * 20, frame(ip(*pair, udp(8, *ports))), 0) for i in range(100)
              for pair, ports in ((("198.51.100.9", SERVER[4]), (40000, 53)), ((SERVER[4], "198.51.100.9"), (53, 40000)))]
    assert told(write(frames))["traces"][0]["service"] == "192.0.2.1:53"
    # Through a pipe, and addresses of IPv4 within IPv6.
    frames = [(START_MS + i * 20, frame(ip("::ffff:198.51.100.9", "2001:db8:ffff::1", udp(8))), 0) for i in range(100)]
    path = write(frames)
    assert told(path)["top"][0]["key"] == "198.51.100.9"
    with open(path, "rb") as stream:
        done = subprocess.run([*WEIR, "simulate", "-p", "web.yaml", "--json", "-"], stdin=stream, capture_output=True, cwd=PLACE, env=PLAIN, timeout=60, check=True)
    assert json.loads(done.stdout)["requests"] == 100
    # Nothing to go by.
    frames = [(START_MS, frame(ip(client(), SERVER[4], bytes(20), protocol=6)), 0)]
    assert "none of its 1 packets" in weir("simulate", "-p", "web.yaml", write(frames), code=5)[1]


def test_headers_that_are_cut_are_counted():
    need(HAS_PCAP, "there is no libpcap")
    whole = frame(ip(client(), SERVER[4], udp(20)))
    six = frame(ip(client(6), SERVER[6], udp(20), more=True))
    frames = [(START_MS, whole, 0), (START_MS + 2000, whole, 0)]
    cut = [whole[:14 + length] for length in (1, 19, 20, 27)] + [six[:14 + length] for length in (1, 39, 40, 47, 48, 55)]
    found = told(write(frames + [(START_MS + i, part, 100) for i, part in enumerate(cut)]))
    assert (found["requests"], found["traces"][0]["malformed"], found["traces"][0]["lines"]) == (2, len(cut), 2 + len(cut)), found["traces"]
    arp = bytes(12) + b"\x08\x06" + bytes(28)
    assert told(write(frames + [(START_MS, arp, 0)]))["traces"][0]["left_out"]["other_protocols"] == 1


def test_a_short_capture_says_so_instead_of_a_rate():
    need(HAS_PCAP, "there is no libpcap")
    for span_ms, code in ((0, 8), (25, 8), (999, 8), (1000, 0), (5000, 0)):
        frames = [(START_MS + i * span_ms // 40, frame(ip("198.51.100.7", SERVER[4], udp(20))), 0) for i in range(41)]
        out, _ = weir("simulate", "-p", file("web.yaml", POLICIES), write(frames), code=code)
        assert (f"the capture lasts {span_ms} ms: too short" in out) == (code == 8), out
        assert ("in its busiest second" in out) == (code == 0) and ("Limits that would have let" in out) == (code == 0), out
        doubts = told(PLACE / "capture.pcap", code=code)["doubts"]
        assert [doubt["code"] for doubt in doubts] == ([8] if code else []), doubts
    minute = POLICIES.replace("period: 1s", "period: 1m")
    found = told(PLACE / "capture.pcap", policies=minute)
    assert [doubt["code"] for doubt in found["doubts"]] == [0] and "lasts 5 seconds, less than the limit's 1 minute" in found["doubts"][0]["words"]
    # A log of lines may be as short as it likes.
    weir("simulate", "-p", "web.yaml", file("short.log", combined(Request(START_MS)) + "\n"))


def test_a_flood_of_ever_new_sources_gets_networks_offered():
    need(HAS_PCAP, "there is no libpcap")

    def flood(sources, each, steady=0):
        frames = [(START_MS + i * 4000 // (len(sources) * each), frame(ip(source, SERVER[ipaddress.ip_address(source).version],
                                                                          udp(20))), 0) for i, source in enumerate(sources * each)]
        return frames + [(START_MS + i, frame(ip("192.0.2.200", SERVER[4], udp(20))), 0) for i in range(steady)]

    four = [f"10.{i >> 12}.{i >> 8 & 3}.{i & 255}" for i in range(1000)]
    six = [f"2001:db8:{i >> 6:x}:{i & 63:x}::{i:x}" for i in range(1000)]
    for sources, each, offers in ((four, 1, "address/24 (4 networks), address/16 (1), all"), (four, 2, "address/24"),
                                  (six, 1, "address/64 (1,000 networks), address/48 (16), all")):
        out, _ = weir("simulate", "-p", file("web.yaml", POLICIES), "--port=27015", write(flood(sources, each)), code=8)
        assert "1,000 of 1,000 sources come once or twice" in out and "does nothing" in out and offers in out, out
    for sources, each, steady in ((four, 3, 0), (four[:40], 1, 0), (four, 1, 1100)):
        found = told(write(flood(sources, each, steady)), "--port=27015")
        assert found["doubts"] == [], (len(sources), each, steady, found["doubts"])
    path = write(flood(four, 1))
    assert told(path, "--key=all", policies=POLICIES.replace("limit: 1,", "limit: 10,"))["new"]["denied"] > 900
    assert told(path, "--key=address/24")["new"]["denied"] > 900
    # It is no doubt of logs: visitors of a day may come once each.
    weir("simulate", "-p", "web.yaml", file("once.log", "".join(combined(Request(START_MS + 10 * i, s)) + "\n" for i, s in enumerate(four))))


def test_the_service_is_an_address_and_a_port():
    need(HAS_PCAP, "there is no libpcap")
    path = write([(START_MS + 2000 * i, frame(ip(client(), SERVER[4], udp(20))), 0) for i in range(2)])
    for words, says in ((("--to=x",), "give an address"), (("--to=1.2.3.4:0",), "1 to 65535"), (("--to=1.2.3.4:70000",), "1 to 65535"),
                        (("--port=0",), "1 to 65535"), (("--port=65536",), "1 to 65535"), (("--to=",), "give an address")):
        assert says in weir("simulate", "-p", file("web.yaml", POLICIES), *words, path, code=2)[1], words
    assert "has no packets" in weir("simulate", "-p", "web.yaml", "--port=53", file("a.log", combined(Request(START_MS)) + "\n"), code=5)[1]
    assert told(path, "--to=::ffff:192.0.2.1")["requests"] == 2


if __name__ == "__main__":
    run(globals())
