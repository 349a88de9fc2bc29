#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the tests of the nginx module share. Each is run with BUILD_DIRECTORY SOURCE_DIRECTORY [TEST...]."""
import pathlib
import re
import shutil
import signal
import subprocess
import sys

sys.path.insert(0, sys.argv[2] + "/tests/gateway")
sys.path.insert(0, sys.argv[2] + "/apps/gateway")
sys.path.insert(0, sys.argv[2] + "/apps/nginx")
import demo as gateway_demo  # noqa: E402
import nginx_demo  # noqa: E402
from support import Skipped, run as run_all  # noqa: E402,F401

BUILD = sys.argv[1]
Load = nginx_demo.Load

# Each request of a client counts; "served" says what was decided.
SERVER = """server {{
        listen 127.0.0.1:{{port}};
        add_header X-Status $weir_limit_req_status always;
        {0}
    }}"""


def http(zones, server):
    return zones + "\n" + SERVER.format(server)


def Nginx(zones, server, **options):
    """An nginx with these zones in its http block, and these limits and locations in its server."""
    return nginx_demo.Nginx(BUILD, http(zones, server), **options)


def statuses(nginx, path, count):
    return [nginx.get(path).status for _ in range(count)]


def lines(nginx, pattern):
    return [line for line in nginx.log().splitlines() if re.search(pattern, line)]


def wrk(nginx, path, seconds, connections=16):
    """Load as much as there can be, on connections that are kept alive: how many passed, and the seconds it took."""
    if shutil.which("wrk") is None:
        raise Skipped("there is no wrk")
    out = subprocess.run(["wrk", "-t", "1", "-c", str(connections), "-d", str(seconds),
                          f"http://127.0.0.1:{nginx.port}{path}"], capture_output=True, text=True, check=True).stdout
    count, span = re.search(r"(\d+) requests in ([\d.]+)s", out).groups()
    refused = re.search(r"Non-2xx or 3xx responses: (\d+)", out)
    return int(count) - int(refused[1] if refused else 0), float(span)


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


__all__ = ["BUILD", "Load", "Nginx", "Redis", "Skipped", "gateway_demo", "http", "lines", "nginx_demo", "node_count",
           "pathlib", "run", "statuses", "wrk"]
