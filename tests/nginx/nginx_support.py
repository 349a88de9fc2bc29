#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the tests of the nginx module share. Each is run with BUILD_DIRECTORY SOURCE_DIRECTORY [TEST...]."""
import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
import unicodedata

sys.path.insert(0, sys.argv[2] + "/tests/gateway")
sys.path.insert(0, sys.argv[2] + "/apps/gateway")
sys.path.insert(0, sys.argv[2] + "/apps/nginx")
import demo as gateway_demo  # noqa: E402
import nginx_demo  # noqa: E402
from support import Skipped, measured, run as run_all  # noqa: E402,F401

BUILD = sys.argv[1]
Load = nginx_demo.Load
alive = nginx_demo.alive

# Each request of a client counts; "served" says what was decided.
SERVER = """server {{
        listen 127.0.0.1:{{port}};
        add_header X-Status $weir_limit_req_status always;
        {0}
    }}"""


def http(zones, server):
    return zones + "\n" + SERVER.format(server)


class Watched(nginx_demo.Nginx):
    """An nginx that leaves nothing in /dev/shm when it ends, and can be upgraded."""

    prefix = None  # of the names of its memory in /dev/shm, once there is one

    def start(self):
        super().start()
        for name in self.names_of(self.master_pid()):
            self.prefix = re.match(r"nginx-weir-\w+-", name)[0]

    def names_of(self, pid):
        """The names of memory in /dev/shm that a master has."""
        return {link.removeprefix("/dev/shm/") for link in links_of(pid)
                if link.startswith("/dev/shm/nginx-weir-") and not link.endswith(" (deleted)")}

    def names(self):
        """What there is in /dev/shm of this nginx and of those before it."""
        return {path.name for path in pathlib.Path("/dev/shm").glob(f"{self.prefix}*")} if self.prefix else set()

    def upgrade(self):
        """Executes a new binary beside the old master, whose id is returned; both have workers then."""
        old = self.master_pid()
        os.kill(old, signal.SIGUSR2)
        # The pid file is the new master's once the old one's has another name.
        self.until(lambda: (self.dir / "pid.oldbin").exists() and len(self.worker_pids()) == self.workers)
        return old

    def end(self, pid, sent):
        """Sends a signal that ends a master, and waits until it has gone."""
        os.kill(pid, sent)
        self.until(lambda: not alive(pid))

    def close(self):
        old = self.dir / "pid.oldbin"
        if old.exists():
            self.end(int(old.read_text()), signal.SIGTERM)
        try:
            super().close()
            assert not self.names(), f"nginx left {self.names()} in /dev/shm"
        finally:
            for name in self.names():
                pathlib.Path("/dev/shm", name).unlink()


class Nginx(Watched):
    """An nginx with these zones in its http block, and these limits and locations in its server."""

    def __init__(self, zones, server, **options):
        super().__init__(BUILD, http(zones, server), **options)


def open_files(pid):
    return [entry for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir() if entry.is_symlink()]


def passed_by_one_bucket(answers, begin, rate, burst):
    """How many of these requests one bucket would have let pass, from `begin` on."""
    level, last, passed = burst, None, 0
    for at, _ in sorted(answers):
        level = min(burst, level + (at - (last or at)) * rate)
        last = at
        if level >= 1:
            level -= 1
            passed += at >= begin
    return passed


def links_of(pid):
    """What a process has open: a socket has a name of its own there."""
    links = set()
    for link in open_files(pid):
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            links.add(os.readlink(link))
    return links


def check_admitted(load, begin, rate, burst, part):
    """
    No more than one bucket admits from `begin` to now, and of what it had admitted of the requests that came at least this
    part: where the machine stood still, none came, and a bucket has room for its burst alone.
    """
    served, most = load.counts[200], 1 + burst + rate * (time.monotonic() - begin)
    assert served <= most + 4, (load.counts, most)  # a unit of a worker that was preempted in the middle of a check
    least = part * passed_by_one_bucket(load.answers, 0, rate, burst + 1) - len(load.threads)
    assert served >= least, (load.counts, least)


def statuses(nginx, path, count):
    return [nginx.get(path).status for _ in range(count)]


def lines(nginx, pattern):
    return [line for line in nginx.log().splitlines() if re.search(pattern, line)]


def check_log(nginx):
    """Each line of the error log is a line of nginx's own, of text that commands no terminal."""
    log = nginx.log_path.read_bytes()
    text = log.decode()  # UTF-8 alone
    found = [c for c in text if c != "\n" and unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp")]
    assert not found, (found, text[-2000:])
    strange = [line for line in text.splitlines() if not re.match(r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d \[\w+\] \d+#\d+: ", line)]
    assert not strange, strange
    return text


def wrk(nginx, path, seconds, connections=16):
    """Load as much as there can be, on connections that are kept alive: how many passed."""
    if shutil.which("wrk") is None:
        raise Skipped("there is no wrk")
    out = subprocess.run(["wrk", "-t", "1", "-c", str(connections), "-d", str(seconds),
                          f"http://127.0.0.1:{nginx.port}{path}"], capture_output=True, text=True, check=True).stdout
    count = re.search(r"(\d+) requests in ", out)[1]
    refused = re.search(r"Non-2xx or 3xx responses: (\d+)", out)
    return int(count) - int(refused[1] if refused else 0)


class Redis:
    """One on a unix socket, without a password."""

    def __init__(self):
        if shutil.which("redis-server") is None:
            raise Skipped("there is no redis-server")
        self.demo = gateway_demo.Demo(BUILD)
        self.server = gateway_demo.Redis(self.demo)
        self.server.start()
        self.url = f"unix://{self.server.path}"

    def call(self, *arguments):
        done = subprocess.run(["redis-cli", "-s", str(self.server.path), *arguments], capture_output=True, text=True, timeout=20)
        return done.stdout.split()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.server.child.poll() is None:
            self.server.child.send_signal(signal.SIGCONT)
        self.demo.close()


def node_count(redis):
    """How many nodes have a heartbeat; beside them the set has a mark with an infinite time."""
    return int((redis.call("zcount", "test:nodes", "0", "(inf") or ["0"])[0])


def run(names):
    if nginx_demo.PROGRAM is None or not nginx_demo.module_path(BUILD).exists():
        print("1..0 # SKIP there is no nginx: scripts/setup nginx installs it")
        return
    run_all(names)


__all__ = ["BUILD", "Load", "Nginx", "Redis", "Skipped", "Watched", "alive", "check_admitted", "check_log", "gateway_demo", "http", "lines", "links_of",
           "nginx_demo", "node_count", "open_files", "passed_by_one_bucket", "pathlib", "run", "statuses", "wrk"]
