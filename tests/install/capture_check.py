# SPDX-License-Identifier: Apache-2.0
"""What is asked of docs/examples/servers/packets.c. For servers_test.py."""
import re
import signal
import socket
import struct
import subprocess
import sys
import time

from tap import Failed, run

ETHERNET = 1
TIMEOUT_S = 120


def frame(source, vlan=False):
    """A packet from an address, of IPv4 or IPv6; None: of neither."""
    ends = b"\2" * 6 + b"\4" * 6 + (b"\x81\x00\x00\x07" if vlan else b"")
    if source is None:
        return ends + b"\x08\x06" + b"\0" * 28
    if ":" in source:
        return ends + b"\x86\xdd" + b"\x60" + b"\0" * 7 + socket.inet_pton(socket.AF_INET6, source) + b"\0" * 16 + b"data"
    return ends + b"\x08\x00" + b"\x45" + b"\0" * 11 + socket.inet_aton(source) + b"\0" * 4 + b"data"


def write_capture(path, packets):
    """Packets as (ms, bytes)."""
    with open(path, "wb") as out:
        out.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, ETHERNET))
        for ms, data in packets:
            out.write(struct.pack("<IIII", 1700000000 + ms // 1000, ms % 1000 * 1000, len(data), len(data)) + data)


def read_capture(path):
    data = path.read_bytes()
    at, found = 24, []
    while at + 16 <= len(data):
        size = struct.unpack_from("<I", data, at + 8)[0]
        found.append(data[at + 16 : at + 16 + size])
        at += 16 + size
    return found


def check_file(program, environment, place):
    # 10 in 1000 ms for each: 10 of 25 at once, and 5 of 10 after half a second.
    greedy, tagged, six, neighbour = frame("198.51.100.7"), frame("203.0.113.9", vlan=True), frame("2001:db8::1"), frame("2001:db8::2")
    packets = [(0, greedy)] * 25 + [(0, tagged)] * 3 + [(1, six)] * 8 + [(2, neighbour)] * 8
    packets += [(3, frame(None))] * 4 + [(3, b"\2" * 9), (3, greedy[:20])] + [(500, greedy)] * 10
    write_capture(place / "in.pcap", packets)
    done = subprocess.run([program, place / "in.pcap", place / "out.pcap", "10", "1000"], env=environment, capture_output=True,
                          text=True, timeout=TIMEOUT_S)
    out = read_capture(place / "out.pcap")
    counts = {name: out.count(data) for name, data in {"greedy": greedy, "tagged": tagged, "other": frame(None)}.items()}
    v6 = out.count(six) + out.count(neighbour)  # one /64, so one key
    if done.returncode != 0 or counts != {"greedy": 15, "tagged": 3, "other": 4} or v6 != 10:
        raise Failed(f"exit {done.returncode}, {counts}, IPv6 {v6}\n{done.stderr}")
    if not re.match(r"60 packets: 28 passed, 26 over the limit, 6 not IP\n198.51.100.7: some \d+ over the limit lately\n"
                    r"2001:db8::/64: some \d+ over the limit lately\n$", done.stderr):
        raise Failed(done.stderr)
    filtered = subprocess.run([program, place / "in.pcap", place / "out.pcap", "10", "1000", "ip6"], env=environment,
                              capture_output=True, text=True, timeout=TIMEOUT_S)
    if not filtered.stderr.startswith("16 packets: 10 passed, 6 over"):
        raise Failed(filtered.stderr)
    for words in ([], ["no-such-interface", "-"], [place / "in.pcap", place / "out.pcap", "10", "1000", "no filter"],
                  [place / "in.pcap", place / "out.pcap", "0"], [place / "in.pcap", place / "none" / "out.pcap"]):
        bad = subprocess.run([program, *words], env=environment, capture_output=True, text=True, timeout=TIMEOUT_S)
        if bad.returncode not in (1, 2) or not bad.stderr.startswith(("packets: ", "usage: ")):
            raise Failed(f"{words}: exit {bad.returncode}\n{bad.stderr}")
    full = subprocess.run([program, place / "in.pcap", "/dev/full"], env=environment, capture_output=True, text=True, timeout=TIMEOUT_S)
    if full.returncode != 1 or "cannot be written" not in full.stderr:
        raise Failed(f"on a full disk: exit {full.returncode}\n{full.stderr}")


def check_interface(program, environment, place):
    """Runs inside_namespace() in a network namespace, whose loopback has no other packets."""
    run("unshare", "-n", sys.executable, __file__, program, place / "live.pcap", env=environment, timeout=TIMEOUT_S)


def wait_until(condition, what, process):
    end = time.monotonic() + TIMEOUT_S / 2
    while not condition():
        if time.monotonic() > end or process.poll() is not None:
            process.kill()
            raise Failed(f"{what}\n{process.communicate()[1]}")
        time.sleep(0.02)


def inside_namespace(program, path):
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    process = subprocess.Popen([program, "lo", path, "5", "86400000", "udp and dst port 9"], stderr=subprocess.PIPE, text=True)
    wait_until(lambda: len(open("/proc/net/packet").readlines()) > 1, "it does not listen", process)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sent = 0

        def seen():
            nonlocal sent
            sender.sendto(b"data", ("127.0.0.1", 9))
            sent += 1
            return sent >= 30 and path_size(path) >= 5
        wait_until(seen, "it writes nothing", process)
    process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=TIMEOUT_S)[1]
    counts = re.match(r"(\d+) packets: (\d+) passed, (\d+) over the limit, 0 not IP\n", said)
    if process.returncode != 0 or not counts or int(counts[2]) != 5 or int(counts[1]) > sent or int(counts[3]) == 0:
        raise Failed(f"exit {process.returncode}, {sent} sent\n{said}")


def path_size(path):
    import pathlib
    return len(read_capture(pathlib.Path(path))) if pathlib.Path(path).exists() else 0


if __name__ == "__main__":
    try:
        inside_namespace(*sys.argv[1:3])
    except Failed as problem:
        sys.exit(str(problem))
