#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Forwarding past the network stack (AF_XDP), between three network namespaces: forward_test.py BUILD_DIRECTORY SOURCE_DIRECTORY
[TEST...]. Prints TAP.

The gateway is at one end of a veth pair. Its clients are at the other end, and so is the router to the host of the backends.

Guards: apps/gateway/xsk/forward.c, apps/gateway/xsk/lane.c, apps/gateway/xsk/rings.c, apps/gateway/xsk/hops.c,
apps/gateway/xsk/route.c, apps/gateway/frames.c, apps/gateway/run.c, apps/gateway/loops.c, apps/gateway/xdp/drop.bpf.c, apps/gateway/xdp/link.c
"""
import contextlib
import ctypes
import fcntl
import json
import os
import platform
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

from hosts import addresses, host_names, hosts, ip, LIBC, on, wire
from support import Fixture, forge, gateway_demo, late_answers, POLICIES, run, Skipped

GATEWAY, CLIENTS, BACKENDS = host_names("fcb")
HERE, ROUTER, ROUTER6 = "10.77.1.1", "10.77.1.2", "fd77::2"
BACKEND, BACKEND6 = "10.78.1.2", "fd78::2"
MANY = POLICIES.format(1000000).replace("50000", "1000000")
ONCE = "policies: [{name: source, limits: [{algorithm: fixed_window, limit: 5, period: 30d}]}]\n"
ROUNDS = int(os.environ.get("WEIR_KILLS", "10"))
MANY_SIZES = [*range(0, 20), 63, 64, 65, 500, 501, 1199, 1200, 1231, 1232, 1233, 1400, 1451, 1452]


def lay_wire():
    addresses(GATEWAY, "wire", f"{HERE}/24", "10.77.1.100/24", "fd77::1/64")
    addresses(CLIENTS, "wire", *(f"10.77.1.{i}/24" for i in range(2, 12)), f"{ROUTER6}/64", "fd77::3/64")


def lay():
    lay_wire()
    addresses(CLIENTS, "inner", "10.78.1.1/24", "fd78::1/64")
    addresses(BACKENDS, "inner", f"{BACKEND}/24", f"{BACKEND6}/64")
    for host, via, via6 in ((GATEWAY, ROUTER, ROUTER6), (BACKENDS, "10.78.1.1", "fd78::1")):
        ip("route", "add", "default", "via", via, host=host)
        ip("-6", "route", "add", "default", "via", via6, host=host)
    for name in ("net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"):
        subprocess.run(["ip", "netns", "exec", CLIENTS, "sh", "-c", f"echo 1 >/proc/sys/{name}"], check=True, timeout=20)


def outer(queues):
    several = ("numrxqueues", str(queues), "numtxqueues", str(queues))
    return wire(GATEWAY, "wire", CLIENTS, "wire", *several)


def replace_wire(queues, between=lambda: None):
    """The interface goes, and comes back with so many queues."""
    ip("link", "del", "wire", host=GATEWAY)
    between()
    ip(*outer(queues))
    lay_wire()
    ip("route", "add", "default", "via", ROUTER, host=GATEWAY)
    ip("-6", "route", "add", "default", "via", ROUTER6, host=GATEWAY)


def network(queues=1):
    """Three hosts. Inside, this process is on the gateway's."""
    return hosts((GATEWAY, CLIENTS, BACKENDS), (outer(queues), wire(CLIENTS, "inner", BACKENDS, "inner")), lay)


class Backend:
    """An echo on the backends' host, which notes where packets came from."""

    def __init__(self, address=BACKEND, port=0):
        with on(BACKENDS):
            self.socket = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self.socket.bind((address, port))
        self.socket.settimeout(0.1)
        host = f"[{address}]" if ":" in address else address
        self.text = f"{host}:{self.socket.getsockname()[1]}"
        self.sources, self.last, self.is_open = set(), b"", True
        self.held = None  # a list: what is not answered yet
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self):
        while self.is_open:
            try:
                data, source = self.socket.recvfrom(65536)
            except socket.timeout:
                continue
            self.sources.add(source[:2])
            self.last = data
            if self.held is None:
                self.socket.sendto(data, source)
            else:
                self.held.append((data, source))

    def release(self):
        """Answers all that was held."""
        for data, source in self.held:
            self.socket.sendto(data, source)

    def close(self):
        if self.is_open:
            self.is_open = False
            self.thread.join(5)
            self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Forward(Fixture):
    """A gateway that forwards, with backends of the other host."""

    def __init__(self, *more, backends, listen=HERE, threads=1, policies=MANY, option="wire,forward", before=None):
        words = [word for backend in backends for word in ("--backend", backend.text)]
        words += ["--xdp", option] if option else []
        self.make_place(policies)
        with self.starting():
            self.launch(listen, *words, "--threads", threads, *more, before=before)

    def count(self):
        return self.status()["forward"]


@contextlib.contextmanager
def gateway(*more, **options):
    with Forward(*more, **options) as f:
        if f.count() is None:
            lines = [line for line in f.log.read_text().splitlines() if "--xdp" in line]
            if any(words in lines[0] for words in ("was built without", "loads no program", "this kernel")):
                raise Skipped(lines[0])
            raise AssertionError(f.log.read_text())
        yield f


class Client:
    """A socket on the clients' host."""

    def __init__(self, f, source="10.77.1.3", to=HERE):
        with on(CLIENTS):
            self.socket = socket.socket(socket.AF_INET6 if ":" in source else socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind((source, 0))
        self.socket.connect((to, f.port))
        self.socket.settimeout(20)
        self.number = 0

    def ask(self, size=10, count=1):
        """Packets of a size, each of which has to come back as it was."""
        for _ in range(count):
            self.number += 1
            data = (str(self.number).encode() * size)[:size]
            self.socket.send(data)
            got = self.socket.recv(65536)
            while size != 0 and len(got) == size and got != data:  # what was sent twice, before
                got = self.socket.recv(65536)
            assert got == data, (size, len(got))

    def send(self, count, size=10, back=0):
        """Packets without waiting. How many came back: waits for this many, and a second for more."""
        for _ in range(count):
            self.socket.send(b"x" * size)
        returned = 0
        with contextlib.suppress(socket.timeout):
            while returned < back:
                self.socket.recv(65536)
                returned += 1
        self.socket.settimeout(1)
        with contextlib.suppress(socket.timeout):
            while True:
                self.socket.recv(65536)
                returned += 1
        self.socket.settimeout(20)
        return returned

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()


def checksums(netns, on_the_card):
    """Whether senders of a host leave checksums to the card (ETHTOOL_STXCSUM); else packets leave whole, one by one."""
    with on(netns), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        value = ctypes.create_string_buffer(struct.pack("II", 0x17, on_the_card))
        fcntl.ioctl(s, 0x8946, struct.pack("16sQ16x", b"wire", ctypes.addressof(value)))


def both_ways(f, client, before):
    """Whether a packet and its reply went by AF_XDP, both in and out."""
    client.ask()
    now = f.until(lambda: (c := f.count())["received"] >= before["received"] + 1 and c)
    return now["received"] >= before["received"] + 2 and now["sent"] >= before["sent"] + 2


def warm(f, client):
    """Until all that a client sends, and all that comes back, goes by AF_XDP."""
    def goes():
        before = f.count()
        client.ask()
        time.sleep(0.05)  # the counts are of the turn's end
        now = f.count()
        return now["received"] == before["received"] + 2 and now["sent"] == before["sent"] + 2
    f.until(goes)


def settled(f, key, value):
    f.until(lambda: f.count()[key] >= value)
    assert f.count()[key] == value, f.count()


def test_packets_of_all_sizes_go_both_ways_past_the_stack():
    with network(), Backend() as backend, Backend(BACKEND6) as backend6:
        for option, mode in (("wire,forward", "native"), ("wire,mode=generic,forward", "generic")):
            checksums(CLIENTS, mode == "native")
            for of, source, to in ((backend, "10.77.1.3", HERE), (backend6, "fd77::3", "fd77::1")):
                with gateway(backends=[of], option=option, listen="") as f, Client(f, source, to) as client:
                    assert f"past the network stack at wire (AF_XDP, {mode}, 1 receive queue)" in f.log.read_text()
                    warm(f, client)
                    before = f.count()
                    for size in MANY_SIZES:
                        client.ask(size)
                    # Packets above the least that all paths of IPv6 take leave for the client by the socket.
                    large = sum(size > 1232 for size in MANY_SIZES) if of is backend6 else 0
                    settled(f, "received", before["received"] + 2 * len(MANY_SIZES))
                    settled(f, "sent", before["sent"] + 2 * len(MANY_SIZES) - large)
                    status = f.status()
                    assert status["offered"] == status["passed"] == status["replies"] and status["lost_replies"] == 0, status
                    assert status["sessions"] == 1 and status["forward"]["lost"] == 0 and status["unsendable"] == 0, status
                    assert status["backends"][0]["sent"] == status["backends"][0]["replies"] == status["offered"], status
                    assert status["bytes"]["replies"] == status["bytes"]["passed"] >= sum(MANY_SIZES), status
                    metrics = f.get("/metrics")
                    assert f"\nweir_gateway_forward_received_packets_total {status['forward']['received']}\n" in metrics
                    assert "\nweir_gateway_forward_sent_packets_total " in metrics and "_forward_lost_packets_total 0\n" in metrics
        checksums(CLIENTS, True)


def test_from_ipv4_to_ipv6_and_with_a_header_before_each_packet():
    with network(), Backend() as backend, Backend(BACKEND6) as backend6:
        for of, source, to in ((backend6, "10.77.1.3", "10.77.1.100"), (backend, "fd77::3", "fd77::1")):
            with gateway("--proxy-protocol", backends=[of], listen="") as f, Client(f, source, to) as client:
                def ask(size, got_at_most=65536):
                    client.socket.send(b"z" * size)
                    got = client.socket.recv(got_at_most)
                    assert got[:12] == b"\r\n\r\n\0\r\nQUIT\n" and got.endswith(b"z" * size), got
                    family = socket.AF_INET6 if ":" in source else socket.AF_INET
                    length = 16 if ":" in source else 4
                    assert got[16:16 + length] == socket.inet_pton(family, source), got
                    assert got[16 + length:16 + 2 * length] == socket.inet_pton(family, to), got
                    return len(got)

                def goes():
                    before = f.count()
                    ask(1)
                    time.sleep(0.05)
                    return f.count()["sent"] == before["sent"] + 2
                f.until(goes)
                before = f.count()
                for size in (0, 1, 2, 100, 1000, 1150):
                    ask(size)
                settled(f, "sent", before["sent"] + 12)
                ask(1450)  # too long with its header: in fragments, by the socket
                assert f.count()["lost"] == 0


def test_limits_are_the_same():
    with network(), Backend() as backend, tempfile.TemporaryDirectory() as place:
        for option in ("wire,forward", "wire,mode=generic,forward", ""):
            with contextlib.ExitStack() as stack:
                make = gateway if option else Forward
                f = stack.enter_context(make("--record", f"{place}/{len(option)}", backends=[backend], option=option, policies=ONCE))
                one, other = (stack.enter_context(Client(f, source)) for source in ("10.77.1.3", "10.77.1.4"))
                assert one.send(7, back=5) == 5 and other.send(3, back=3) == 3
                status = f.status()
                assert (status["offered"], status["passed"], status["dropped"]["source"]) == (10, 8, 2), status
                f.until(lambda: f.status()["record"]["packets"] == 2)
                f.path.write_text(ONCE.replace("5", "100"))
                f.child.send_signal(signal.SIGHUP)
                f.until(lambda: f.status()["reloads"] == 1)
                assert one.send(10, back=10) == 10


def test_packets_of_no_client_and_questions_of_gateways_go_no_farther():
    with network(), Backend() as backend, Backend(BACKEND6) as backend6:
        for of, source, to in ((backend, "10.77.1.3", HERE), (backend6, "fd77::3", "fd77::1")):
            with gateway(backends=[of], listen="") as f, Client(f, source, to) as client:
                warm(f, client)
                before, frames = f.status(), f.count()["received"]
                for n, (address, port) in enumerate(((BACKEND if of is backend else BACKEND6, int(of.text.rpartition(":")[2])), (to, f.port),
                                                     (source, 0), (source, 17)), 1):
                    with on(CLIENTS):
                        forge((address, port), (to, f.port))
                    f.until(lambda n=n: f.status()["invalid_sources"] == n)
                assert f.count()["received"] == frames + 1, f.count()  # the others were dropped in the kernel
                nonce = os.urandom(16)
                client.socket.send(b"weir: a gateway?" + nonce)
                assert client.socket.recv(100) == b"weir: a gateway." + nonce
                assert f.status()["offered"] == before["offered"] and f.count()["received"] == frames + 2
                client.ask(10, 3)


def test_a_source_that_is_denied_is_dropped_in_the_kernel_before():
    with network(), Backend() as backend, gateway(backends=[backend], policies=ONCE) as f, Client(f) as one, Client(f, "10.77.1.4") as other:
        def dropped():
            for _ in range(20):
                one.socket.send(b"x")
            time.sleep(0.02)
            return f.status()["kernel"]["dropped"] > 0
        f.until(dropped)
        other.ask(10, 5)


def looked_at(program):
    """How many instructions the kernel looked at to know that a program is safe (bpf_prog_info.verified_insns); 0: it does not say."""
    number = {"x86_64": 321, "aarch64": 280}[platform.machine()]
    by_id = struct.pack("I124x", program)
    fd = LIBC.syscall(number, 13, by_id, len(by_id))  # BPF_PROG_GET_FD_BY_ID
    assert fd >= 0, os.strerror(ctypes.get_errno())
    try:
        info = ctypes.create_string_buffer(232)
        by_fd = ctypes.create_string_buffer(struct.pack("IIQ112x", fd, len(info), ctypes.addressof(info)))
        assert LIBC.syscall(number, 15, by_fd, 128) == 0, os.strerror(ctypes.get_errno())  # BPF_OBJ_GET_INFO_BY_FD
        return struct.unpack_from("I", info, 216)[0]
    finally:
        os.close(fd)


def test_other_kernels_may_look_at_the_program_longer():
    with network(), Backend() as backend, gateway(backends=[backend]):
        program = json.loads(ip("-j", "link", "show", "wire", host=GATEWAY))[0]["xdp"]["prog"]["id"]
        count = looked_at(program)
        if count == 0:
            raise Skipped("this kernel does not say how long it looked at a program (Linux 5.16)")
        print(f"# the kernel looked at {count} instructions", flush=True)
        assert count < 1000000 / 4  # it gives up at a million, and what it looks at twice differs from kernel to kernel


def test_frames_are_used_again_whatever_became_of_their_packets():
    """There are 4,096 frames: more packets than that are denied, go by sockets, and are forwarded."""
    overall = "policies: [{name: overall, limits: [{algorithm: token_bucket, limit: 500, period: 1s, burst: 500}]}]\n"
    with network(), Backend() as backend, gateway(backends=[backend], policies=overall) as f, Client(f) as client:
        def pour(count):
            least = f.count()["received"] + count

            def received():
                for _ in range(200):
                    client.socket.send(b"x" * 30)
                return f.count()["received"] >= least
            f.until(received)
        warm(f, client)
        pour(10000)
        assert f.status()["dropped"]["overall"] > 5000, f.status()
        f.path.write_text(MANY)
        f.child.send_signal(signal.SIGHUP)
        f.until(lambda: f.status()["reloads"] == 1)
        client.send(0)
        mac = ip("link", "show", "wire", host=CLIENTS).split("link/ether ")[1].split()[0]
        for state in ("noarp", "permanent"):
            ip("neigh", "replace", ROUTER, "lladdr", mac, "dev", "wire", "nud", state, host=GATEWAY)
            time.sleep(1)
            pour(10000)
            client.send(0)
            client.ask(20)
        warm(f, client)


def test_without_policies_packets_are_forwarded_as_well():
    with network(), Backend() as backend, gateway(backends=[backend], policies="") as f, Client(f) as client:
        warm(f, client)
        assert f.status()["limited"] is False


def test_packets_that_are_not_plain_go_by_sockets():
    with network(), Backend() as backend, gateway(backends=[backend]) as f, Client(f) as client:
        warm(f, client)
        before = f.count()
        client.ask(4000)   # in fragments, both ways
        client.ask(20000)
        settled(f, "received", before["received"])
        client.socket.setsockopt(socket.IPPROTO_IP, socket.IP_OPTIONS, b"\1\1\1\1")
        client.ask(100)    # with options, and a reply without
        client.socket.setsockopt(socket.IPPROTO_IP, socket.IP_OPTIONS, b"")
        client.socket.setsockopt(socket.SOL_SOCKET, 11, 1)  # SO_NO_CHECK: no checksum
        client.ask(100)
        status = f.status()
        assert status["sessions"] == 1 and len(backend.sources) == 1 and status["forward"]["lost"] == 0, status


def test_packets_that_stand_for_many_are_taken_apart():
    """UDP_SEGMENT on the same machine: with generic XDP such a packet arrives as one."""
    with network(), Backend() as backend:
        for mode in ("native", "generic"):
            with gateway(backends=[backend], option=f"wire,mode={mode},forward") as f, Client(f) as client:
                client.ask()
                client.socket.setsockopt(socket.IPPROTO_UDP, 103, 50)
                client.socket.send(b"s" * 130)
                assert sorted(len(client.socket.recv(1000)) for _ in range(3)) == [30, 50, 50]
                assert f.status()["forward"]["lost"] == 0


def send_raw(payload, checksum, port, source_port=5555):
    header = struct.pack("!HHHH", source_port, port, 8 + len(payload), checksum)
    with on(CLIENTS), socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP) as s:
        s.sendto(header + payload, (HERE, 0))


def test_a_damaged_packet_is_lost_and_counted():
    with network(), Backend() as backend, gateway(backends=[backend]) as f, Client(f) as client:
        warm(f, client)
        before = f.status()
        send_raw(b"damaged", 0x1234, f.port)
        f.until(lambda: f.count()["lost"] == 1)
        client.ask()
        f.until(lambda: f.status()["offered"] == before["offered"] + 1)
        assert b"damaged" not in backend.last


def send_from(source, to, payload):
    """A whole packet of IPv4, of a source that need not be this host's."""
    udp = struct.pack("!HHHH", to[1], to[1], 8 + len(payload), 0) + payload
    header = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 0, 0, 0, 64, 17, 0, socket.inet_aton(source), socket.inet_aton(to[0]))
    with on(CLIENTS), socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as s:
        s.sendto(header + udp, to)


def test_sources_that_come_by_no_wire_are_left_to_the_stack():
    with network(), Backend() as backend, gateway(backends=[backend]) as f, Client(f) as client:
        warm(f, client)
        before = f.status()
        for source in (HERE, "10.77.1.100", "127.0.0.1", "127.1.2.3", "224.0.0.5", "255.255.255.255"):
            send_from(source, (HERE, f.port), b"martian")
        send_from("10.77.1.9", (HERE, f.port), b"good")
        f.until(lambda: backend.last == b"good")
        time.sleep(0.1)  # and nothing else comes
        status = f.status()
        assert status["offered"] == before["offered"] + 1 and status["forward"]["lost"] == 0, status


def test_no_answer_goes_to_all_on_the_wire():
    with network(), Backend() as backend, gateway(backends=[backend]) as f, Client(f) as client:
        warm(f, client)
        before = f.status()
        send_from("10.77.1.255", (HERE, f.port), b"broadcast")
        send_from("10.77.1.9", (HERE, f.port), b"good")
        f.until(lambda: f.status()["replies"] == before["replies"] + 1)
        # The stack takes the packet or does not (rp_filter); what it refuses is the answer.
        offered = f.until(lambda: f.status()["offered"]) - before["offered"]
        f.until(lambda: f.status()["lost_replies"] == offered - 1)
        assert offered in (1, 2) and f.count()["sent"] <= before["forward"]["sent"] + 2, f.status()


def test_an_address_of_another_interface_is_answered_by_the_socket():
    with network(), Backend() as backend:
        addresses(GATEWAY, "lo", "10.99.9.9/32")
        ip("route", "add", "10.99.9.9/32", "via", HERE, host=CLIENTS)
        with gateway(backends=[backend], listen="") as f, Client(f) as client, Client(f, "10.77.1.4", "10.99.9.9") as other:
            warm(f, client)
            before = f.count()
            other.ask(100, 20)
            settled(f, "received", before["received"] + 20)
            settled(f, "sent", before["sent"])


def test_while_the_next_hop_is_not_known_sockets_carry_packets():
    with network(), Backend() as backend:
        mac = ip("link", "show", "wire", host=CLIENTS).split("link/ether ")[1].split()[0]
        ip("neigh", "replace", ROUTER, "lladdr", mac, "dev", "wire", "nud", "noarp", host=GATEWAY)  # the gateway takes none of these
        with gateway(backends=[backend]) as f, Client(f) as client:
            client.ask()
            before = f.count()
            client.ask(10, 20)
            time.sleep(1.5)  # the gateway looks for the next hop every second, and does not take this one
            client.ask(10, 20)
            settled(f, "received", before["received"] + 80)
            settled(f, "sent", before["sent"] + 40)  # to the client alone
            ip("neigh", "replace", ROUTER, "lladdr", mac, "dev", "wire", "nud", "permanent", host=GATEWAY)
            warm(f, client)
            ip("neigh", "del", ROUTER, "dev", "wire", host=GATEWAY)
            time.sleep(1.5)  # until it has looked again
            client.ask(10, 20)  # a socket finds the neighbour anew
            warm(f, client)
        ip("route", "replace", "unreachable", f"{BACKEND}/32", host=GATEWAY)
        with gateway(backends=[backend]) as f, Client(f) as client:
            client.socket.send(b"x")
            f.until(lambda: f.status()["refused"] >= 1 or f.status()["unsendable"] >= 1)


def state_of_router():
    return ip("neigh", "show", ROUTER, "dev", "wire", host=GATEWAY).split()[-1]


def test_the_kernel_asks_a_neighbour_that_frames_go_to():
    with network(), Backend() as backend, gateway(backends=[backend]) as f, Client(f) as client:
        warm(f, client)
        mac = ip("link", "show", "wire", host=CLIENTS).split("link/ether ")[1].split()[0]
        ip("neigh", "replace", ROUTER, "lladdr", mac, "dev", "wire", "nud", "stale", host=GATEWAY)
        f.until(lambda: state_of_router() == "REACHABLE")  # without a packet of any socket
        warm(f, client)


def set_local_ports(text):
    subprocess.run(["ip", "netns", "exec", GATEWAY, "sh", "-c", f"echo {text} >/proc/sys/net/ipv4/ip_local_port_range"], check=True,
                   timeout=20)


def test_a_late_answer_reaches_its_client_or_nobody():
    with network(), Backend() as backend:
        set_local_ports("40000 40023")
        with gateway("--sessions", 16, backends=[backend]) as f, contextlib.ExitStack() as stack:
            set_local_ports("50000 60999")  # for all others
            first = stack.enter_context(Client(f))
            warm(f, first)
            clients = [first] + [stack.enter_context(Client(f, f"10.77.1.{3 + n % 9}")) for n in range(60)]
            before, backend.held = f.count(), []
            got = late_answers(f, [client.socket for client in clients], backend.held, backend.release)
            assert 0 in got and 14 <= len(got) <= 16, got  # who waits keeps the session
            assert f.count()["sent"] > before["sent"] + 24, (before, f.count())  # they go past the stack
            assert f.status()["without_port"] == 61 - 24 and len(backend.sources) == 24
            # The first comes back to its port, and gets what was held for it.
            backend.held = None
            first.ask()
            assert len(backend.sources) == 24


def test_packets_that_are_too_large_for_the_way_leave_in_fragments():
    with network(), Backend() as backend:
        ip("route", "replace", "default", "via", ROUTER, "mtu", "lock", "600", host=GATEWAY)
        with gateway(backends=[backend]) as f, Client(f) as client:
            warm(f, client)
            before = f.count()
            client.ask(572, 10)  # 600 with headers
            settled(f, "sent", before["sent"] + 20)
            client.ask(573, 10)
            settled(f, "sent", before["sent"] + 30)


def test_a_backend_of_this_host_is_served_by_sockets():
    with network():
        with Fixture("--xdp", "wire,forward", listen=HERE, threads=1, policies=MANY) as f, Client(f) as client:
            if f.status()["forward"] is None:
                raise Skipped(f.log.read_text().splitlines()[0])
            client.ask(10, 10)
            f.until(lambda: f.status()["forward"]["received"] == 10)
            assert f.status()["forward"]["sent"] == 0


def test_sessions_move_from_a_backend_that_refuses():
    with network(), Backend() as first, Backend() as second:
        with gateway(backends=[first, second]) as f, contextlib.ExitStack() as stack:
            clients = [stack.enter_context(Client(f, f"10.77.1.{i}")) for i in range(3, 11)]
            for client in clients:
                client.ask()
            warm(f, clients[0])
            first.close()

            def moved():
                for client in clients:
                    client.socket.send(b"?")
                time.sleep(0.05)
                return [b["state"] for b in f.status()["backends"]][0] == "refuses"
            f.until(moved)
            time.sleep(0.2)
            for client in clients:
                client.send(0)
                client.ask(20)
            warm(f, clients[-1])


def test_each_queue_has_a_thread_and_each_client_one_session():
    with network(queues=2), Backend() as backend, contextlib.ExitStack() as stack:
        f = stack.enter_context(gateway(backends=[backend], threads=2, listen=""))
        assert "2 receive queues" in f.log.read_text()
        clients = [stack.enter_context(Client(f, f"10.77.1.{i % 10 + 2}")) for i in range(40)]
        for _ in range(4):
            for client in clients:
                client.ask(100)
                client.ask(3000)  # by the socket of the same thread
        status = f.status()
        assert status["sessions"] == len(clients) and len(backend.sources) == len(clients), (status, len(backend.sources))
        assert status["forward"]["lost"] == 0 and status["forward"]["received"] >= 160, status


def test_threads_without_a_queue_serve_by_sockets():
    with network(), Backend() as backend, contextlib.ExitStack() as stack:
        f = stack.enter_context(gateway("--idle", "1", backends=[backend], threads=2, listen=""))
        clients = [stack.enter_context(Client(f, f"10.77.1.{i % 10 + 2}")) for i in range(20)]
        for client in clients[:10]:
            client.ask(3000)  # of either thread, which keeps the client
        for _ in range(3):
            for client in clients:
                client.ask(100)
                client.ask(3000)
        assert f.status()["sessions"] == 20 and len(backend.sources) == 20, f.status()
        f.until(lambda: f.status()["sessions"] == 0)
        before = f.count()["received"]
        for client in clients:
            client.ask(100)
        f.until(lambda: f.count()["received"] >= before + 20)  # no thread has them any more


class Configured(Forward):
    """A gateway whose listeners and backend are in a file of settings."""

    def __init__(self, listens, backend):
        self.demo = gateway_demo.Demo(sys.argv[1])
        self.config, self.log, self.path = (self.demo.dir / name for name in ("gateway.conf", "log", "test.yaml"))
        self.path.write_text(MANY)
        self.port, self.http = gateway_demo.free_port(socket.SOCK_DGRAM), gateway_demo.free_port(socket.SOCK_STREAM)
        self.write(listens, backend)
        self.child = self.demo.start(self.demo.bin / "weir-gateway", "--config", self.config, stderr=open(self.log, "w"))
        self.until(self.status)

    def write(self, listens, backend):
        self.config.write_text("listen: [" + ", ".join(f'"{listen}:{self.port}"' for listen in listens) +
                               f"]\nbackend: {backend.text}\npolicies: test.yaml\nxdp: wire,forward\nthreads: 2\nmetrics: 127.0.0.1:{self.http}\n")

    def reload(self, listens, backend):
        before = self.status()["reloads"]
        self.write(listens, backend)
        self.child.send_signal(signal.SIGHUP)
        self.until(lambda: self.status()["reloads"] == before + 1)


def test_a_reload_changes_listeners_and_backends():
    with network(), Backend() as one, Backend() as other, Configured([HERE], one) as f:
        if f.count() is None:
            raise Skipped(f.log.read_text().splitlines()[0])
        with Client(f) as client:
            warm(f, client)
            f.reload([HERE, "10.77.1.100"], other)
            with Client(f, "10.77.1.4", "10.77.1.100") as second:
                warm(f, second)
                warm(f, client)
                assert len(one.sources) == 1 and len(other.sources) == 2, (one.sources, other.sources)
                f.reload(["10.77.1.100"], other)
                f.until(lambda: len(f.status()["listeners"]) == 1 and f.status()["sessions"] == 1)
                warm(f, second)
                assert f.status()["lost_replies"] == 0 and f.count()["lost"] == 0, f.status()


def test_what_is_missing_is_said_in_a_sentence_and_sockets_serve():
    def without(*capabilities):
        return lambda: [LIBC.prctl(24, capability, 0, 0, 0) for capability in capabilities]  # PR_CAPBSET_DROP

    with network(queues=2), Backend() as backend:
        for words, options, more in (("the interface has 2 receive queues for 1 threads; give --threads 2, or fewer", {}, ()),
                                     ("this user may open no AF_XDP socket; CAP_NET_RAW is needed", {"threads": 2, "before": without(13)}, ()),
                                     ("with --transparent packets go by sockets", {"threads": 2}, ("--transparent",))):
            with Forward(*more, backends=[backend], **options) as f, Client(f) as client:
                log = f.log.read_text()
                if "was built without" in log or "loads no program" in log:
                    raise Skipped(log)
                assert f"--xdp wire,forward: {words}" in log and "packets go by sockets" in log, log
                assert f.count() is None and f.status()["kernel"]["mode"] == "native"
                if not more:
                    client.ask(100)
        child = subprocess.run([f"{sys.argv[1]}/apps/gateway/weir-gateway", "--listen", ":1", "--backend", ":2", "--xdp", "wire,forwards"],
                               capture_output=True, text=True, timeout=20, check=False)
        assert child.returncode == 2 and "eth0,forward" in child.stderr, child


def attached():
    return "xdp" in ip("link", "show", "wire", host=GATEWAY)


def left():
    """What is in the kernel of the program."""
    bpftool = shutil.which("bpftool") or shutil.which("bpftool", path="/usr/sbin")
    if bpftool is None:
        return False
    for kind, name in (("prog", "drop_or_forward"), ("map", "queues"), ("map", "sessions"), ("link", "wire")):
        shown = subprocess.run([bpftool, kind, "show"], capture_output=True, text=True, check=True, timeout=20).stdout
        if f"name {name}" in shown:
            return True
    return False


def test_nothing_is_left_when_the_gateway_is_killed_and_the_next_one_forwards():
    with network(), Backend() as backend, gateway(backends=[backend]) as f, Client(f) as client:
        warm(f, client)
        command = [str(word) for word in f.child.args]
        f.child.kill()
        f.child.wait()
        f.until(lambda: not attached())
        for n in range(ROUNDS):
            child = f.demo.start(*command, stderr=open(f.log, "w"))
            f.until(f.status)
            assert f.count() is not None, f.log.read_text()
            if n % 5 == 0:
                warm(f, client)
            client.ask()
            child.send_signal(signal.SIGKILL if n % 5 else signal.SIGTERM)
            child.wait()
            f.until(lambda: not attached())
        f.until(lambda: not left())


AGAIN = "packets are forwarded past the network stack at wire again"


def test_an_interface_that_goes_and_comes_back_forwards_again():
    """Clients keep their sessions; under load, and with a queue for each of several threads."""
    for queues, threads, option in ((1, 1, "wire,forward"), (1, 1, "wire,mode=generic,forward"), (2, 3, "wire,forward")):
        with network(queues), Backend() as backend, gateway(backends=[backend], threads=threads, option=option) as f:
            with contextlib.ExitStack() as stack:
                if "generic" in option:
                    checksums(CLIENTS, False)
                clients = [stack.enter_context(Client(f, f"10.77.1.{3 + n}")) for n in range(6)]
                for client in clients:
                    client.ask(10, 5)
                f.until(lambda: (clients[0].ask(), f.count()["sent"] > 20)[1])
                sources = set(backend.sources)
                for n in range(1, 4):
                    def gone():
                        f.until(lambda: f.count()["queues"] == 0)
                        assert f.status()["kernel"]["mode"] == "off"
                    replace_wire(queues, gone if n != 2 else lambda: None)
                    f.until(lambda n=n: f.log.read_text().count(AGAIN) == n)
                    if "generic" in option:
                        checksums(CLIENTS, False)
                    assert f.count()["queues"] == queues
                    before = f.count()
                    for client in clients:
                        client.socket.settimeout(1)
                        f.until(lambda client=client: came_back(client))
                        client.socket.settimeout(20)
                    f.until(lambda: (clients[n].ask(), f.count()["sent"] >= before["sent"] + 20)[1])
                assert backend.sources == sources, (backend.sources, sources)
                assert f.status()["lost_replies"] == 0 and f.log.read_text().count("--xdp wire: there is no interface wire; ") == 2, f.log.read_text()
                turns = busy(f)
                time.sleep(1)
                assert busy(f) - turns < 0.5, "a thread turns and turns"


def came_back(client):
    with contextlib.suppress(socket.timeout, OSError):
        client.ask()
        return True


def busy(f):
    """Seconds of processor time."""
    fields = open(f"/proc/{f.child.pid}/stat", encoding="utf-8").read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_while_an_interface_is_away_or_has_too_many_queues_sockets_serve():
    with network(), Backend() as backend, gateway(backends=[backend], listen="") as f, Client(f) as client, \
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as here:
        warm(f, client)
        ip("link", "del", "wire", host=GATEWAY)
        f.until(lambda: f.count()["queues"] == 0)
        turns = busy(f)
        time.sleep(1)
        assert busy(f) - turns < 0.5, "a thread turns and turns"
        here.connect(("127.0.0.1", f.port))
        here.send(b"x")  # whose backend is out of reach now
        f.until(lambda: f.status()["unsendable"] + f.status()["refused"] > 0)
        ip(*outer(4))
        lay_wire()
        ip("route", "add", "default", "via", ROUTER, host=GATEWAY)
        f.until(lambda: "--xdp wire: the interface has 4 receive queues for 1 threads; give --threads 4, or fewer queues (ethtool -L); packets go "
                "by sockets" in f.log.read_text())
        client.socket.settimeout(1)
        f.until(lambda: came_back(client))
        client.socket.settimeout(20)
        client.ask(10, 50)
        assert f.count()["queues"] == 0 and f.status()["kernel"]["mode"] == "native"
        time.sleep(2.5)
        assert f.log.read_text().count("4 receive queues for 1 threads") == 1
        replace_wire(1)
        f.until(lambda: AGAIN in f.log.read_text())
        client.socket.settimeout(1)
        f.until(lambda: came_back(client))
        client.socket.settimeout(20)
        warm(f, client)


def test_a_gateway_that_ends_hands_over_to_another_one():
    """It takes no more packets past the stack, so another gateway on its address has them from the first moment on."""
    with network(), Backend() as backend, gateway(backends=[backend]) as f, Client(f) as client:
        warm(f, client)
        http = gateway_demo.free_port(socket.SOCK_STREAM)
        f.demo.start(f.demo.bin / "weir-gateway", "--listen", f"{HERE}:{f.port}", "--backend", backend.text, "--policies", f.path,
                     "--metrics", f"127.0.0.1:{http}", stderr=subprocess.DEVNULL)
        f.until(lambda: gateway_demo.status(http))
        sent = 0
        while f.child.poll() is None:
            if sent == 20:
                f.child.send_signal(signal.SIGTERM)
            client.socket.send(b"x")
            sent += 1
            time.sleep(0.002)
        sent += 5
        assert client.send(5, back=sent) == sent, (sent, f.log.read_text())
        assert gateway_demo.status(http)["passed"] > 0


def test_a_gateway_that_ends_loses_nothing():
    """Packets in the rings are served, and replies to them."""
    with network(), Backend() as backend, gateway(backends=[backend]) as f, Client(f) as client:
        warm(f, client)
        for _ in range(50):
            client.socket.send(b"x")
        f.child.send_signal(signal.SIGTERM)
        assert f.child.wait(20) == 0
        assert client.send(0, back=50) == 50, f.log.read_text()


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)
    run(globals())
