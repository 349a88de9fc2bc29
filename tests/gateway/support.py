#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the tests of the gateway share. Each is run with BUILD_DIRECTORY SOURCE_DIRECTORY [TEST...]."""
import contextlib
import ctypes
import fcntl
import functools
import json
import os
import pathlib
import shutil
import socket
import struct
import subprocess
import sys
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


NO_BYTES = {"source_bytes": 0, "overall_bytes": 0}  # dropped by these policies, where they are not in force


class Skipped(Exception):
    pass


class Fixture:
    """A gateway with 200 packets a second for each source, its backend, and its log."""

    def __init__(self, *more, listen="127.0.0.1", threads=2, policies=POLICIES.format(200), before=None, backend=(), suffix=""):
        self.make_place(policies)
        with self.starting():
            self.backend_port = self.demo.backend(*backend)
            self.launch(listen, "--backend", f"127.0.0.1:{self.backend_port}{suffix}", "--threads", threads, *more, before=before)

    def make_place(self, policies):
        """What a gateway needs beside its backends; `policies` may be empty."""
        self.demo = gateway_demo.Demo(sys.argv[1])
        self.path, self.log = self.demo.dir / "test.yaml", self.demo.dir / "log"
        self.path.write_text(policies)
        self.policies = ["--policies", self.path] if policies else []
        self.port, self.http = gateway_demo.free_port(socket.SOCK_DGRAM), gateway_demo.free_port(socket.SOCK_STREAM)

    @contextlib.contextmanager
    def starting(self):
        """What has been started ends if the rest does not start."""
        try:
            yield
        except BaseException:
            self.demo.close()
            raise

    def launch(self, listen, *words, before=None):
        self.child = self.demo.start(self.demo.bin / "weir-gateway", "--listen", f"{listen}:{self.port}", *self.policies, "--metrics",
                                     f"127.0.0.1:{self.http}", *words, stderr=open(self.log, "w"), preexec_fn=before)
        self.until(self.status)

    def until(self, condition, seconds=60):
        end = time.monotonic() + seconds
        while not (result := condition()):
            assert time.monotonic() < end, "waited in vain; the gateway said: " + self.log.read_text()
            time.sleep(0.02)
        return result

    def send(self, seconds, *clients, to=None, options=(), linger=3):
        """It ends with the last answer, or when none has come for `linger` seconds."""
        command = [self.demo.bin / "weir-traffic", "--to", to or f"127.0.0.1:{self.port}", "--seconds", seconds, "--json",
                   "--linger", 1000 * linger, *options]
        for client in clients:
            command += ["--client", client]
        out = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=True, timeout=60).stdout
        return {c["name"]: c for c in json.loads(out.splitlines()[-1])["clients"]}

    def client(self, to="127.0.0.1", source=None):
        """A socket that takes answers from the address it asks alone."""
        s = socket.socket(socket.AF_INET6 if ":" in to else socket.AF_INET, socket.SOCK_DGRAM)
        s.settimeout(20)
        if source:
            s.bind((source, 0))
        s.connect((to, self.port))
        return s

    def get(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http}{path}", timeout=20) as answer:
            return answer.read().decode()

    def status(self):
        return gateway_demo.status(self.http)

    def end_backend(self):
        self.demo.children[0].kill()
        self.demo.children[0].wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.demo.close()


class Redis:
    """One with a password."""

    PASSWORD = "a%b:c@d/e?f g"

    def __init__(self):
        if shutil.which("redis-server") is None:
            raise Skipped("there is no redis-server")
        self.demo = gateway_demo.Demo(sys.argv[1])
        self.socket = self.demo.dir / "redis"
        config = self.demo.dir / "redis.conf"
        config.write_text(f'port 0\nunixsocket {self.socket}\nsave ""\ndir {self.demo.dir}\nrequirepass "{self.PASSWORD}"\n'
                          f'user weir on ~* +@all ">{self.PASSWORD}"\n')
        self.demo.start("redis-server", config, stdout=subprocess.DEVNULL)

    def call(self, *arguments):
        command = ["redis-cli", "-s", str(self.socket), *arguments]
        return subprocess.run(command, env={**os.environ, "REDISCLI_AUTH": self.PASSWORD}, capture_output=True, text=True,
                              check=True, timeout=20).stdout

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.demo.close()


def ask(client, data=b"?"):
    client.send(data)
    return client.recv(65536)


def forge(source, to, data=b"forged"):
    """Sends a packet with a source of our choice. `source` and `to`: address and port."""
    (address, port), (there, there_port) = source, to
    udp = struct.pack("!4H", port, there_port, 8 + len(data), 0) + data
    if ":" in there:
        own, target = socket.inet_pton(socket.AF_INET6, address), socket.inet_pton(socket.AF_INET6, there)
        pseudo = own + target + struct.pack("!2I", len(udp), 17) + udp + b"\0" * (len(udp) % 2)
        total = sum(struct.unpack(f"!{len(pseudo) // 2}H", pseudo))
        while total >> 16:
            total = (total & 0xffff) + (total >> 16)
        udp = udp[:6] + struct.pack("!H", ~total & 0xffff or 0xffff) + udp[8:]
        packet = struct.pack("!IHBB", 6 << 28, len(udp), 17, 64) + own + target + udp
        family = socket.AF_INET6
    else:
        packet = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0) + socket.inet_aton(address) + socket.inet_aton(there) + udp
        family = socket.AF_INET
    with socket.socket(family, socket.SOCK_RAW, socket.IPPROTO_RAW) as s:
        s.sendto(packet, (there, 0))


def late_answers(f, clients, held, release):
    """
    The first client asks, and the backend works on it while the others come. Then all are answered: `held` is what the backend
    has got, and release() answers it. Each client gets its own answer or none. Who got one.
    """
    before = f.status()
    for number, client in enumerate(clients):
        client.send(b"%d" % number)
        if number == 0:
            f.until(lambda: len(held) == 1)
    f.until(lambda: f.status()["offered"] == before["offered"] + len(clients))
    f.until(lambda: len(held) == len(clients) - (f.status()["without_port"] - before["without_port"]))
    replies = f.status()["replies"]
    with_session = f.status()["sessions"]
    release()
    f.until(lambda: f.status()["replies"] >= replies + min(with_session, len(held)) - 1)
    got = set()
    for number, client in enumerate(clients):
        client.settimeout(0.02)
        try:
            while True:
                data = client.recv(100)
                assert data == b"%d" % number, (number, data)
                got.add(number)
        except (TimeoutError, ConnectionRefusedError):
            pass
    return got


def check_sockets(child, end=200):
    """
    A program that the child would start inherits none of its sockets, and no call of one waits. Returns how many there are.
    A socket that is open for a moment does not count: the C library asks the kernel for addresses by one that may wait.
    Descriptors from `end` on belong to whoever started the child.
    """
    place = pathlib.Path(f"/proc/{child.pid}")

    def look():
        sockets = {}
        for number in map(int, os.listdir(place / "fd")):
            try:
                link = os.readlink(place / "fd" / str(number))
                flags = int((place / "fdinfo" / str(number)).read_text().split("flags:")[1].split()[0], 8)
            except FileNotFoundError:
                continue  # closed meanwhile
            if 3 <= number < end and link.startswith("socket:"):
                sockets[link] = bool(flags & os.O_CLOEXEC and flags & os.O_NONBLOCK)
        return sockets
    sockets = look()
    time.sleep(0.5)
    later = look()
    lasting = [link for link in sockets if link in later]
    assert all(later[link] for link in lasting), later
    return len(lasting)


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


TRIES = 3


def measured(test):
    """
    For a test of a figure that a machine spoils which stands still for parts of a second: the test fails when it fails
    in each of the tries. A defect does.
    """
    @functools.wraps(test)
    def in_tries():
        for _ in range(TRIES - 1):
            try:
                return test()
            except AssertionError as fault:
                print(f"# {test.__name__} is tried again: {str(fault)[:500]}", flush=True)
        return test()

    return in_tries


def run(names):
    """Runs the tests among these names, or those that the command line names."""
    tests = [(name, test) for name, test in names.items() if name.startswith("test_")
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
