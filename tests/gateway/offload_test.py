#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Packets that the kernel merges, on loopback: offload_test.py BUILD_DIRECTORY SOURCE_DIRECTORY [TEST...]. Prints TAP.

Guards: apps/gateway/offload.c, apps/gateway/outbox.c, apps/gateway/burst.c
"""
import ctypes
import errno
import fcntl
import os
import pathlib
import signal
import socket
import struct
import subprocess

from support import ask, Fixture, in_a_network_of_its_own, measured, NO_BYTES, POLICIES, run, Skipped


UDP_SEGMENT, UDP_GRO = 103, 104
# Nothing comes back to a source once it has used its 200.
ONCE = POLICIES.format(200).replace("token_bucket, limit: 200, period: 1s, burst: 200", "fixed_window, limit: 200, period: 30d")
assert "30d" in ONCE


def packets_of(name, first, count, size=100):
    """Numbered, all of one size and none like another."""
    return [(f"{name}:{n}:" + str(n) * size)[:size].encode() for n in range(first, first + count)]


def offer(f, client, packets, segment=None):
    """Sends them, as one message of `segment` bytes each where that is given, and waits until the gateway has had them."""
    before = f.status()["offered"]
    if segment:
        try:
            client.sendmsg([b"".join(packets)], [(socket.IPPROTO_UDP, UDP_SEGMENT, struct.pack("H", segment))])
        except OSError as error:
            raise Skipped(f"no UDP_SEGMENT: {error}")
    else:
        for packet in packets:
            client.send(packet)
    f.until(lambda: f.status()["offered"] == before + len(packets))


def offer_at_once(f, client, packets):
    """Each leaves alone, and all of them wait for the gateway when it looks."""
    f.child.send_signal(signal.SIGSTOP)
    f.until(lambda: pathlib.Path(f"/proc/{f.child.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T")
    for packet in packets:
        client.send(packet)
    f.child.send_signal(signal.SIGCONT)


def take(f, *clients):
    """What came home to each, once all has."""
    f.until(lambda: (s := f.status())["replies"] == s["passed"])
    taken = []
    for client in clients:
        client.setblocking(False)
        taken.append([])
        try:
            while True:
                taken[-1].append(client.recv(65536))
        except BlockingIOError:
            pass
        client.settimeout(20)
    return taken


def needs_offload(f):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        try:
            s.setsockopt(socket.IPPROTO_UDP, 103, 0)  # UDP_SEGMENT
            s.setsockopt(socket.IPPROTO_UDP, 104, 1)  # UDP_GRO
        except OSError as error:
            raise Skipped("this kernel has no UDP_GRO or no UDP_SEGMENT") from error
    assert f.status()["offload"]["receive"] and f.status()["offload"]["send"], f.status()["offload"]


def exchange(f, to="127.0.0.1"):
    """Two clients of one source offer it messages of 64 in turn: 384 packets, of which its limit passes the first 200."""
    one, two = f.client(to=to), f.client(to=to)
    sent = []
    for turn in range(3):
        for name, client in (("one", one), ("two", two)):
            some = packets_of(name, 64 * turn, 64)
            some[-1] = some[-1][:37]  # the last of a message may be shorter
            offer(f, client, some, 100)
            sent += some
    status = f.until(lambda: (s := f.status())["replies"] == s["passed"] and s)
    assert status["offered"] == 384 and status["passed"] == 200, status
    assert status["dropped"] == {"source": 184, "overall": 0, **NO_BYTES}, status
    assert status["unsendable"] == status["lost_replies"] == 0, status
    passed = sent[:200]
    home = take(f, one, two)
    for name, replies in zip((b"one", b"two"), home):
        assert replies == [packet for packet in passed if packet.startswith(name)], (name, len(replies))
    return f.status()["offload"]


def test_merged_packets_are_checked_one_by_one_and_go_home_in_order():
    for backend in ((), ("--offload",)):
        for listen, to in (("127.0.0.1", "127.0.0.1"), ("[::1]", "::1"), ("", "127.0.0.5"), ("", "::1")):
            with Fixture(listen=listen, threads=1, policies=ONCE, backend=backend) as f:
                needs_offload(f)
                offload = exchange(f, to)
                assert offload["merged"] >= 384 + (backend != ()) * 190, (listen, offload)
                # To the backend; and home, where the backend's come merged.
                assert offload["segmented"] >= 200 + (backend != ()) * 190, (listen, offload)


def test_without_offload_the_same_packets_pass():
    with Fixture("--no-offload", threads=1, policies=ONCE, backend=("--offload",)) as f:
        assert exchange(f) == {"receive": False, "send": False, "merged": 0, "segmented": 0}


def test_a_kernel_without_offload_changes_nothing_else():
    numbers = {"x86_64": (0xc000003e, 54), "aarch64": (0xc00000b7, 208)}
    if os.uname().machine not in numbers:
        raise Skipped("the number of setsockopt is not known here")
    architecture, setsockopt = numbers[os.uname().machine]
    # seccomp: setsockopt of UDP_SEGMENT and UDP_GRO fails with ENOPROTOOPT, as in kernels that do not have them.
    load, equal, give = 0x20, 0x15, 0x06
    allow, refuse = 0x7fff0000, 0x00050000 | errno.ENOPROTOOPT
    rows = ((load, 0, 0, 4), (equal, 0, 7, architecture), (load, 0, 0, 0), (equal, 0, 5, setsockopt), (load, 0, 0, 24),
            (equal, 0, 3, socket.IPPROTO_UDP), (load, 0, 0, 32), (equal, 2, 0, UDP_SEGMENT), (equal, 1, 0, UDP_GRO),
            (give, 0, 0, allow), (give, 0, 0, refuse))
    filters = b"".join(struct.pack("HBBI", *row) for row in rows)

    def before():
        libc = ctypes.CDLL(None, use_errno=True)
        code = ctypes.create_string_buffer(filters, len(filters))
        program = struct.pack("HxxxxxxP", len(rows), ctypes.addressof(code))
        for words in ((38, 1, 0, 0, 0), (22, 2, program, 0, 0)):  # no new privileges; the filter
            assert libc.prctl(*words) == 0, ctypes.get_errno()
    try:
        fixture = Fixture(threads=1, policies=ONCE, before=before)
    except subprocess.SubprocessError:
        raise Skipped("seccomp is not to be had")
    with fixture as f:
        assert exchange(f) == {"receive": False, "send": False, "merged": 0, "segmented": 0}


def sockets_of(pid):
    """Copies of a process's UDP sockets, which share what they are set to."""
    found = []
    process = os.pidfd_open(pid)
    for path in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        if os.readlink(path).startswith("socket:"):
            fd = ctypes.CDLL(None, use_errno=True).syscall(438, process, int(path.name), 0)  # pidfd_getfd
            if fd < 0:
                raise Skipped("pidfd_getfd is not to be had")
            found.append(socket.socket(fileno=fd))
    os.close(process)
    return [s for s in found if s.type & socket.SOCK_DGRAM]


def test_segments_that_are_refused_leave_one_by_one_and_none_is_lost():
    # A socket that computes no checksums takes no segments.
    with Fixture(policies=ONCE, threads=1) as f:
        needs_offload(f)
        client = f.client()
        assert ask(client) == b"?"
        for s in sockets_of(f.child.pid):
            s.setsockopt(socket.SOL_SOCKET, 11, 1)  # SO_NO_CHECK
        first, second = packets_of("a", 0, 64), packets_of("b", 0, 64)
        offer(f, client, first, 100)
        assert take(f, client) == [first]
        status = f.status()
        assert status["offload"]["receive"] is True and status["offload"]["send"] is False, status
        assert status["offload"]["merged"] == 64 and status["offload"]["segmented"] == 0, status
        offer(f, client, second, 100)
        assert take(f, client) == [second]
        status = f.status()
        assert status["unsendable"] == status["lost_replies"] == status["offload"]["segmented"] == 0, status


def test_packets_larger_than_the_path_leave_one_by_one_and_smaller_ones_in_segments():
    def check():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            fcntl.ioctl(s, 0x8922, struct.pack("16si12x", b"lo", 1400))  # SIOCSIFMTU
        with Fixture(threads=1) as f:
            if not f.status()["offload"]["send"]:
                return
            client = f.client()
            large, small = packets_of("large", 0, 10, size=1500), packets_of("small", 0, 10, size=1000)
            offer_at_once(f, client, large)
            f.until(lambda: f.status()["offered"] == 10)
            assert take(f, client) == [large]
            status = f.status()
            assert status["offload"]["send"] is True and status["offload"]["segmented"] == 0, status
            offer_at_once(f, client, small)
            f.until(lambda: f.status()["offered"] == 20)
            assert take(f, client) == [small]
            status = f.status()
            assert status["offload"]["send"] is True and status["offload"]["segmented"] >= 10, status
            assert status["unsendable"] == status["lost_replies"] == 0, status
    in_a_network_of_its_own(check)


def test_packets_of_any_size_keep_their_order():
    with Fixture(threads=1, backend=("--offload",)) as f:
        client = f.client()
        sizes = [100, 100, 100, 60, 100, 100, 0, 0, 100, 1, 1, 1, 1400, 1400, 2000, 2000, 0, 40000, 40000, 40000, 3]
        packets = [packets_of("p", n, 1, size)[0] for n, size in enumerate(sizes)]
        offer_at_once(f, client, packets)
        f.until(lambda: f.status()["offered"] == len(packets))
        assert take(f, client) == [packets], f.status()


def test_a_packet_that_is_dropped_amid_merged_ones_changes_no_other():
    # So fast a bucket that it lets some of each message pass.
    policies = POLICIES.format(200).replace("limit: 200, period: 1s, burst: 200", "limit: 300000, period: 1s, burst: 3")
    assert "burst: 3" in policies
    with Fixture(policies=policies, threads=1) as f:
        needs_offload(f)
        client = f.client()
        sent, home = [], []
        for turn in range(50):
            some = packets_of("p", 64 * turn, 64, size=50)
            offer(f, client, some, 50)
            sent += some
            home += take(f, client)[0]
        status = f.status()
        assert len(home) == status["passed"] == status["offered"] - status["dropped"]["source"], (len(home), status)
        assert status["offered"] == status["offload"]["merged"] == 3200 and 150 <= len(home) < 3200, (len(home), status)
        places = [sent.index(packet) for packet in home]
        assert places == sorted(set(places)), places


@measured
def test_the_generator_counts_the_same_with_offload():
    with Fixture(policies=POLICIES.format(100000), backend=("--offload",)) as f:
        client = f.send(1, "one,1,20000", options=("--offload",), linger=30)["one"]
        assert client["returned"] == client["sent"] > 0, (client, f.status())
        status = f.status()
        assert status["offered"] == client["sent"], (client, status)
        assert not status["offload"]["receive"] or status["offload"]["merged"] > 0, status


if __name__ == "__main__":
    run(globals())
