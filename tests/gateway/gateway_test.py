#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The gateway end to end, on loopback: gateway_test.py BUILD_DIRECTORY SOURCE_DIRECTORY [TEST...]. Prints TAP."""
import ctypes
import errno
import fcntl
import http.client
import json
import os
import pathlib
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.request

sys.path.insert(0, sys.argv[2] + "/apps/gateway")
import demo as gateway_demo  # noqa: E402

POLICIES = """policies:
  - name: source
    limits: [{{algorithm: token_bucket, limit: {0}, period: 1s, burst: {0}}}]
  - name: overall
    limits: [{{algorithm: sliding_window, limit: 50000, period: 1s}}]
"""


class Skipped(Exception):
    pass


class Fixture:
    """A gateway with 200 packets a second for each source, its backend, and its log."""

    def __init__(self, *more, listen="127.0.0.1", threads=2, policies=POLICIES.format(200), before=None, backend=()):
        self.demo = gateway_demo.Demo(sys.argv[1])
        self.path = self.demo.dir / "test.yaml"
        self.path.write_text(policies)
        self.log = self.demo.dir / "log"
        self.port, self.http = gateway_demo.free_port(socket.SOCK_DGRAM), gateway_demo.free_port(socket.SOCK_STREAM)
        try:
            self.child = self.demo.start(self.demo.bin / "weir-gateway", "--listen", f"{listen}:{self.port}", "--backend",
                                         f"127.0.0.1:{self.demo.backend(*backend)}", "--policies", self.path, "--metrics",
                                         f"127.0.0.1:{self.http}", "--threads", threads, *more, stderr=open(self.log, "w"),
                                         preexec_fn=before)
            self.until(self.status)
        except BaseException:
            self.demo.close()
            raise

    def until(self, condition, seconds=10):
        end = time.monotonic() + seconds
        while not (result := condition()):
            assert time.monotonic() < end, "waited in vain; the gateway said: " + self.log.read_text()
            time.sleep(0.02)
        return result

    def send(self, seconds, *clients, to=None, options=()):
        command = [self.demo.bin / "weir-traffic", "--to", to or f"127.0.0.1:{self.port}", "--seconds", seconds, "--json", *options]
        for client in clients:
            command += ["--client", client]
        out = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=True, timeout=60).stdout
        return {c["name"]: c for c in json.loads(out.splitlines()[-1])["clients"]}

    def client(self, to="127.0.0.1", source=None):
        """A socket that takes answers from the address it asks alone."""
        s = socket.socket(socket.AF_INET6 if ":" in to else socket.AF_INET, socket.SOCK_DGRAM)
        s.settimeout(5)
        if source:
            s.bind((source, 0))
        s.connect((to, self.port))
        return s

    def get(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http}{path}", timeout=5) as answer:
            return answer.read().decode()

    def status(self):
        return gateway_demo.status(self.http)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.demo.close()


def ask(client, data=b"?"):
    client.send(data)
    return client.recv(65536)


def test_a_polite_client_is_served_and_a_greedy_one_held():
    with Fixture() as f:
        clients = f.send(3, "polite,1,100", "greedy,1,3000", "swarm,50,1000")
        assert clients["polite"]["returned"] == clients["polite"]["sent"], clients
        assert clients["swarm"]["returned"] == clients["swarm"]["sent"], clients
        # A burst of 200, and 200 a second; the sender's three seconds may be a little longer.
        assert 750 <= clients["greedy"]["returned"] <= 850, clients
        status = json.loads(f.get("/status"))
        assert status["offered"] == sum(c["sent"] for c in clients.values()), (status, clients)
        assert status["passed"] == status["replies"] == sum(c["returned"] for c in clients.values()), (status, clients)
        assert status["dropped"] == {"source": status["offered"] - status["passed"], "overall": 0}, status
        source, overall = status["policies"]["source"], status["policies"]["overall"]
        assert source == {"in_force": True, "offered": status["offered"], "passed": status["passed"],
                          "dropped": status["dropped"]["source"]}, status
        # What a source's limit drops is not taken from the overall one.
        assert overall == {"in_force": True, "offered": status["passed"], "passed": status["passed"], "dropped": 0}, status
        # All that was dropped, in packets: the greedy client's alone.
        offenders = f.until(lambda: (o := f.status()["offenders"]) and o[0]["denied"] == status["dropped"]["source"] and o)
        assert len(offenders) == 1 and offenders[0]["error"] == 0, offenders
        assert offenders[0]["source"].startswith("127."), offenders
        assert status["sessions"] == 52 and status["redis"] == "none" and status["limited"] is True, status


def test_metrics_are_prometheus_text():
    with Fixture() as f:
        f.send(1, "one,1,100")
        values = {}
        for line in f.get("/metrics").splitlines():
            if line.startswith("#"):
                assert line.split()[1] in ("HELP", "TYPE"), line
            else:
                name, value = line.rsplit(" ", 1)
                values[name] = float(value)
        assert values["weir_gateway_offered_packets_total"] >= 99, values
        assert values['weir_checks_total{policy="source",answer="allowed"}'] >= 99, values
        for method, path, code in (("GET", "/nothing", 404), ("POST", "/status", 405), ("HEAD", "/status", 200)):
            connection = http.client.HTTPConnection("127.0.0.1", f.http, timeout=5)
            connection.request(method, path, body="x" if method == "POST" else None)
            assert connection.getresponse().status == code, (method, path)
            connection.close()


def test_a_broken_file_changes_nothing_and_a_good_one_applies():
    with Fixture() as f:
        f.path.write_text(POLICIES.format(200).replace("token_bucket", "token_bucked"))
        f.child.send_signal(signal.SIGHUP)
        f.until(lambda: "test.yaml:3:" in f.log.read_text() and "stay as they were" in f.log.read_text())
        assert 350 <= f.send(1, "greedy,1,3000")["greedy"]["returned"] <= 450
        assert json.loads(f.get("/status"))["reload_errors"] == 1
        f.path.write_text(POLICIES.format(20))
        f.child.send_signal(signal.SIGHUP)
        f.until(lambda: json.loads(f.get("/status"))["reloads"] == 1)
        # The first group takes the address that has used something: the second one's is new.
        assert 20 <= f.send(1, "a,1,1", "greedy,1,3000")["greedy"]["returned"] <= 50


def test_a_missing_policy_is_off_and_said_so():
    with Fixture(policies=POLICIES.format(200).split("  - name: overall")[0]) as f:
        assert 'no policy "overall": that limit is off' in f.log.read_text(), f.log.read_text()
        assert f.status()["policies"]["overall"]["in_force"] is False
        f.path.write_text("policies:" + POLICIES.format(200).split("    limits: [{algorithm: token")[0].split("policies:")[1]
                          .replace("source", "other") + "    limits: [{algorithm: fixed_window, limit: 1, period: 1s}]\n")
        f.child.send_signal(signal.SIGHUP)
        f.until(lambda: f.status()["reloads"] == 1)
        assert f.status()["policies"]["source"]["in_force"] is False
        client = f.send(1, "greedy,1,1000")["greedy"]
        assert client["returned"] == client["sent"], client


def test_sigterm_ends_it_quickly_with_its_counts():
    with Fixture() as f:
        sent = f.send(1, "one,1,100")["one"]["sent"]
        start = time.monotonic()
        f.child.send_signal(signal.SIGTERM)
        assert f.child.wait(5) == 0
        assert time.monotonic() - start < 3
        assert f"offered {sent}, passed {sent}, dropped 0, replies {sent}\n" in f.log.read_text(), f.log.read_text()


def test_sigterm_reports_to_redis_what_is_left():
    if shutil.which("redis-server") is None or shutil.which("redis-cli") is None:
        raise Skipped("there is no redis-server")
    directory = gateway_demo.Demo(sys.argv[1])
    redis = gateway_demo.Redis(directory)
    redis.start()

    def cli(*words):
        return subprocess.run(["redis-cli", "-s", str(redis.path), *words], capture_output=True, text=True).stdout.split()
    try:
        # A minute between two syncs: what Redis has at the end was told at the end.
        policies = "policies: [{name: overall, limits: [{algorithm: fixed_window, limit: 100000, period: 30d}]}]\n"
        with Fixture("--redis", f"unix://{redis.path}", "--redis-prefix", "left", "--sync-interval-ms", 60000,
                     policies=policies) as f:
            f.until(lambda: f.status()["redis"] == "up")
            passed = f.send(1, "one,1,500")["one"]["returned"]
            assert passed > 400
            f.child.send_signal(signal.SIGTERM)
            assert f.child.wait(5) == 0
        sums = [int(value) for key in cli("--raw", "keys", "left:*") for value in cli("--raw", "hget", key, "sum") if value.isdigit()]
        assert sum(sums) == passed, (sums, passed, cli("keys", "*"))
    finally:
        directory.close()


def test_replies_leave_from_the_address_that_was_asked():
    for listen, asked in (("", ("127.0.0.1", "127.0.0.5", "::1")), ("0.0.0.0", ("127.0.0.1", "127.0.0.5"))):
        with Fixture(listen=listen) as f:
            for address in asked:
                assert ask(f.client(to=address)) == b"?", (listen, address)


def test_the_largest_packet_comes_whole():
    with Fixture() as f:
        # Not through the echo of weir-traffic, which has no room for it.
        backend = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        backend.bind(("127.0.0.1", 0))
        backend.settimeout(5)
        listen, packet = gateway_demo.free_port(socket.SOCK_DGRAM), os.urandom(65507)
        f.demo.start(f.demo.bin / "weir-gateway", "--listen", f"127.0.0.1:{listen}", "--backend",
                     f"127.0.0.1:{backend.getsockname()[1]}", stderr=subprocess.DEVNULL)
        f.port, client = listen, None

        def arrives():
            nonlocal client
            client = f.client()
            try:
                client.send(packet)
                backend.settimeout(0.2)
                return backend.recvfrom(70000)
            except OSError:  # the gateway is not there yet
                return None
        data, home = f.until(arrives)
        assert data == packet
        backend.sendto(packet, home)
        assert client.recv(70000) == packet


def test_the_client_that_was_silent_longest_makes_way():
    with Fixture("--sessions", 16, threads=1) as f:
        clients = [f.client() for _ in range(17)]

        def ask_all(some):
            assert all(ask(client) == b"?" for client in some)
            return f.until(lambda: (s := f.status())["replies"] == s["passed"] and s)
        assert ask_all(clients[:16])["evicted_sessions"] == 0
        # The first to come speaks again, so the second is the one that makes way for a new one.
        assert ask_all(clients[:1])["evicted_sessions"] == 0
        assert ask_all(clients[16:])["evicted_sessions"] == 1
        status = ask_all(clients[:1] + clients[2:])
        assert status["evicted_sessions"] == 1 and status["sessions"] == 16, status
        assert ask_all(clients[1:2])["evicted_sessions"] == 2


def test_status_answers_beside_more_than_a_thousand_clients():
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 2000:
        raise Skipped("there are not enough file descriptors")
    with Fixture(threads=1) as f:
        swarm = f.send(2, "swarm,1200,2400")["swarm"]
        assert swarm["returned"] == swarm["sent"], swarm
        status = json.loads(f.get("/status"))
        assert status["sessions"] == 1200 and status["evicted_sessions"] == 0, status


def test_few_descriptors_mean_few_sessions_and_no_silence():
    def few():
        resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
    with Fixture(threads=1, before=few) as f:
        assert "--sessions 4096: 100 file descriptors allow" in f.log.read_text(), f.log.read_text()
        clients = [f.client() for _ in range(150)]  # all open at once: each has a port of its own
        assert all(ask(client) == b"?" for client in clients)
        status = f.status()
        assert status["unsendable"] == 0 and status["evicted_sessions"] == 150 - status["sessions"] > 0, status


def in_a_network_of_its_own(function):
    """Runs it in a process whose loopback has addresses of two IPv6 networks."""
    pid = os.fork()
    if pid != 0:
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if code == 77:
            raise Skipped("no network namespace to be had")
        assert code == 0, code
        return
    code = 1
    try:
        user, group = os.getuid(), os.getgid()
        new_user, new_net = 0x10000000, 0x40000000
        unshare = ctypes.CDLL(None, use_errno=True).unshare
        if unshare(new_net) != 0:
            if unshare(new_user | new_net) != 0:
                os._exit(77)
            pathlib.Path("/proc/self/setgroups").write_text("deny")
            pathlib.Path("/proc/self/uid_map").write_text(f"0 {user} 1")
            pathlib.Path("/proc/self/gid_map").write_text(f"0 {group} 1")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            fcntl.ioctl(s, 0x8914, struct.pack("16sh14x", b"lo", 0x41))  # SIOCSIFFLAGS: up and running
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as s:
            for address in ("fd00:1::1", "fd00:1::2", "fd00:2::1"):
                fcntl.ioctl(s, 0x8916, struct.pack("16sIi", socket.inet_pton(socket.AF_INET6, address), 128, 1))  # SIOCSIFADDR
        function()
        code = 0
    except BaseException:  # the parent's assertion tells
        for line in traceback.format_exc().splitlines():
            print("# " + line, flush=True)
    os._exit(code)


def test_an_ipv6_network_of_64_bits_shares_one_limit():
    def check():
        with Fixture(listen="[::1]") as f:
            start = time.monotonic()
            clients = [f.client(to="::1", source=source) for source in ("fd00:1::1", "fd00:1::2", "fd00:2::1")]
            for _ in range(150):
                for client in clients:
                    client.send(b"?")
            status = f.until(lambda: (s := f.status())["offered"] == 450 and s["replies"] == s["passed"] and s)
            refilled = 200 * (time.monotonic() - start) + 1
            counts = []
            for client in clients:
                client.setblocking(False)
                counts.append(0)
                try:
                    while client.recv(100):
                        counts[-1] += 1
                except BlockingIOError:
                    pass
            assert counts[2] == 150, counts
            assert 200 <= counts[0] + counts[1] <= 200 + refilled and min(counts) > 0, (counts, refilled)
            assert status["dropped"] == {"source": 450 - sum(counts), "overall": 0}, (counts, status)
    in_a_network_of_its_own(check)


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
        client.settimeout(5)
    return taken


def needs_offload(f):
    if not (f.status()["offload"]["receive"] and f.status()["offload"]["send"]):
        raise Skipped("this kernel has no UDP_GRO or no UDP_SEGMENT")


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
    assert status["dropped"] == {"source": 184, "overall": 0}, status
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


def test_the_generator_counts_the_same_with_offload():
    with Fixture(policies=POLICIES.format(100000), backend=("--offload",)) as f:
        client = f.send(1, "one,1,20000", options=("--offload",))["one"]
        assert client["returned"] == client["sent"] >= 19000, (client, f.status())
        status = f.status()
        assert status["offered"] == client["sent"], (client, status)
        assert not status["offload"]["receive"] or status["offload"]["merged"] > 0, status


def test_wrong_options_are_refused_by_name():
    with Fixture() as f:
        def run(*options):
            return subprocess.run([str(f.demo.bin / "weir-gateway"), *options], capture_output=True, text=True, timeout=10)
        for options, code, says in ((("--listen", "nowhere", "--backend", "127.0.0.1:1"), 2, "--listen nowhere"),
                                    (("--listen", "127.0.0.1:1"), 2, "--backend"),
                                    (("--listen", ":1", "--backend", ":2", "--threads", "0"), 2, "--threads 0"),
                                    (("--listen", ":1", "--backend", ":2", "--policies", "/nonexistent"), 1, "/nonexistent"),
                                    (("--listen", ":1", "--backend", ":2", "--policies", str(f.path), "--redis", "x"), 1, "redis_url"),
                                    (("--listen", ":1", "--backend", ":2", "--redis", "redis://127.0.0.1"), 2, "--redis"),
                                    (("--help",), 0, "")):
            result = run(*options)
            assert result.returncode == code and says in result.stderr, (options, result)


def test_traffic_refuses_what_it_cannot_mean():
    program = str(pathlib.Path(sys.argv[1]) / "apps" / "gateway" / "weir-traffic")
    for options, says in ((("--client", "a,1,1", "--seconds", "soon"), "--seconds"), (("--client", 'a"b,1,1'), "--client"),
                          (("--client", "a,0,1"), "--client"), (("--client", "a,1,1,64x"), "--client"),
                          (("--client", "a,1,1,1401"), "--client"), (("--client", "a,1"), "--client"), ((), "--client")):
        result = subprocess.run([program, "--to", "127.0.0.1:9", *options], capture_output=True, text=True, timeout=10)
        assert result.returncode == 2 and says in result.stderr, (options, result)


def demonstration(*options):
    """Starts it with a temporary directory of its own."""
    place = tempfile.mkdtemp(prefix="weir-test-")
    command = [sys.executable, "-u", sys.argv[2] + "/apps/gateway/demo.py", sys.argv[1], *options]
    return place, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                   env={**os.environ, "TMPDIR": place})


def left_of(place):
    """Files, and processes that were told of them."""
    lines = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(path.read_bytes())
        except OSError:  # it has just ended
            pass
    return list(pathlib.Path(place).iterdir()) + [line for line in lines if place.encode() in line]


def finish(place, child, code):
    try:
        out, _ = child.communicate(timeout=60)
        assert child.returncode == code, (child.returncode, out)
        assert left_of(place) == [], left_of(place)
        return out
    finally:
        child.kill()
        shutil.rmtree(place, ignore_errors=True)


def test_the_demonstration_holds_its_limits_and_leaves_nothing():
    out = finish(*demonstration("--quick"), 0)
    assert "Every limit was held." in out and "ns per check" in out, out


def test_the_fleet_demonstration_outlives_its_redis_and_leaves_nothing():
    if shutil.which("redis-server") is None:
        raise Skipped("there is no redis-server")
    out = finish(*demonstration("--fleet", "--quick"), 0)
    assert "<- killed" in out and "<- back, empty" in out and "Redis is gone" in out and "in all" in out, out


def test_a_demonstration_that_is_ended_leaves_nothing():
    place, child = demonstration("--seconds", "30")
    for line in child.stdout:
        if "polite" in line:
            break
    child.send_signal(signal.SIGTERM)
    finish(place, child, 1)


def main():
    tests = [(name, test) for name, test in globals().items() if name.startswith("test_")
             and (len(sys.argv) < 4 or name in sys.argv[3:])]
    print(f"TAP version 13\n1..{len(tests)}", flush=True)
    failed = 0
    for number, (name, test) in enumerate(tests, 1):
        try:
            test()
            print(f"ok {number} - {name}", flush=True)
        except Skipped as reason:
            print(f"ok {number} - {name} # SKIP {reason}", flush=True)
        except Exception:  # every failure is a row
            failed += 1
            print(f"not ok {number} - {name}", flush=True)
            for line in traceback.format_exc().splitlines():
                print("# " + line, flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
