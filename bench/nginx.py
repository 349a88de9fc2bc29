#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
What a request costs nginx with weir_limit_req, with its own limit_req, without a limit, and with a Redis that is asked
for each request.

  bench/nginx.py BUILD_DIRECTORY [--seconds N] [--rounds N] [--workers N]
  bench/nginx.py BUILD_DIRECTORY --instructions

The build is one of release. wrk asks for a picture of 43 bytes on 64 connections that are kept alive. All nginx run, and
one at a time is asked, each for a second or so, in turn, round after round. A row has the medians over the rounds:
requests a second, and processor time of all workers for one request, threads of the module included. Ratios are of each
round, so that what slows all of them down for a while does not count. Latencies are of wrk, with its 64 connections.

The Redis is of this machine, on a unix socket. With weir_redis nginx exchanges counts with it five times a second. In
the other case Lua asks it: one script, one round trip and a connection that is kept, as a limiter in Lua at its best.
That case is left out where nginx's Lua module is not installed (libnginx-mod-http-lua, lua-resty-core).

--instructions counts instead, by valgrind's callgrind: the instructions in user space of a whole request, and those
beyond "none". nginx is one process and has as many connections, each of which asks once in turn. A case runs twice, with
few requests and with many, and the difference counts. Background work is by the time and not by the request, and
callgrind makes nginx slow: so what the timer of the weir does is left out.
"""
import argparse
import contextlib
import os
import pathlib
import re
import shutil
import socket
import statistics
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "apps" / "nginx"))
import nginx_demo  # noqa: E402

ZONE = "{0}_zone {1} zone=bench:10m rate=1000000r/s;"
LIMIT = "{0} zone=bench burst=1000000 nodelay;"
# Name, key, and what stands before limit_req.
CASES = {
    "none": ("", ""),
    "limit_req, one key": ("limit_req", "$server_port"),
    "weir, one key": ("weir_limit_req", "$server_port"),
    "weir with Redis, one key": ("weir_limit_req", "fleet"),
    "limit_req, a key a connection": ("limit_req", "$connection"),
    "weir, a key a connection": ("weir_limit_req", "$connection"),
    "limit_req, refused": ("limit_req", "refused"),
    "weir, refused": ("weir_limit_req", "refused"),
    "Lua asks Redis, one key": ("lua", ""),
}
LUA_MODULES = [pathlib.Path("/usr/lib/nginx/modules") / name for name in ("ndk_http_module.so", "ngx_http_lua_module.so")]
CONNECTIONS = 64
# How often each connection asks in the two runs of --instructions.
FEW, MANY = 20, 220
# A window of a second, as scripts for Redis count.
LUA = """
access_by_lua_block {
    local socket = ngx.socket.tcp()
    if not socket:connect("unix:SOCKET") then return end
    local script = "local n = redis.call('INCR', KEYS[1]) if n == 1 then redis.call('EXPIRE', KEYS[1], 1) end return n"
    local key = "bench:" .. ngx.var.server_port
    socket:send("*4\\r\\n$4\\r\\nEVAL\\r\\n$" .. #script .. "\\r\\n" .. script .. "\\r\\n$1\\r\\n1\\r\\n$" .. #key .. "\\r\\n" .. key .. "\\r\\n")
    local line = socket:receive("*l")
    socket:setkeepalive(60000, 64)
    if line and tonumber(line:sub(2)) > 1000000 then return ngx.exit(503) end
}
"""


def configuration(directive, key, redis):
    zone = limit = ""
    if key == "refused":
        zone, limit = f"{directive}_zone $server_port zone=bench:10m rate=1r/m;", f"{directive} zone=bench;"
    elif key == "fleet":
        zone = f"weir_redis unix://{redis};" + ZONE.format(directive, "$server_port")
        limit = LIMIT.format(directive)
    elif directive == "lua":
        limit = LUA.replace("SOCKET", str(redis))
    elif directive:
        zone, limit = ZONE.format(directive, key), LIMIT.format(directive)
    return (f"{zone} keepalive_requests 100000000; server {{ listen 127.0.0.1:{{port}}; {limit} "
            "location / { empty_gif; } }")


def processor_seconds(pids):
    ticks = 0
    for pid in pids:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def measure(nginx, seconds):
    """Requests a second, microseconds of the workers for each, and microseconds until 99% of the answers."""
    pids = nginx.worker_pids()
    before = processor_seconds(pids)
    out = subprocess.run(["wrk", "--latency", "-t", "1", "-c", str(CONNECTIONS), "-d", str(seconds), f"http://127.0.0.1:{nginx.port}/"],
                         capture_output=True, text=True, check=True).stdout
    count, span = re.search(r"(\d+) requests in ([\d.]+)s", out).groups()
    late, unit = re.search(r"99%\s+([\d.]+)(us|ms|s)", out).groups()
    return (int(count) / float(span), (processor_seconds(pids) - before) / int(count) * 1e6,
            float(late) * {"us": 1, "ms": 1e3, "s": 1e6}[unit])


class CountedNginx(nginx_demo.Nginx):
    """nginx as one process that callgrind counts."""

    def command(self, *more):
        return ["valgrind", "--tool=callgrind", f"--callgrind-out-file={self.dir}/counts", "--toggle-collect=poller_look",
                "--collect-atstart=yes", *super().command(*more)]

    def worker_pids(self, master=None):
        return {self.child.pid}

    def end(self):
        """Ends nginx; returns the instructions since its start."""
        self.child.terminate()
        self.child.wait()
        return int(re.search(r"^totals: (\d+)", (self.dir / "counts").read_text(), re.MULTILINE).group(1))


def count_run(build, case, times):
    with CountedNginx(build, configuration(*case, None), main="master_process off;", level="crit") as nginx:
        clients = [socket.create_connection(("127.0.0.1", nginx.port)) for _ in range(CONNECTIONS)]
        for _ in range(times):
            for client in clients:
                client.sendall(b"GET / HTTP/1.1\r\nHost: bench\r\n\r\n")
            for client in clients:
                client.recv(65536)
        return nginx.end()


def count_instructions(build):
    if shutil.which("valgrind") is None:
        sys.exit("bench/nginx.py --instructions needs valgrind: scripts/setup installs it")
    print(f"{'':32} {'a request':>11} {'beyond none':>12}")
    none = None
    for name, case in CASES.items():
        if case[0] != "lua" and case[1] != "fleet":
            few, many = (count_run(build, case, times) for times in (FEW, MANY))
            each = (many - few) / (MANY - FEW) / CONNECTIONS
            none = each if none is None else none
            print(f"{name:32} {each:11.0f} {each - none:12.0f}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--seconds", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--instructions", action="store_true",
                        help="count the instructions of a request by callgrind, and measure no times")
    options = parser.parse_args()
    if nginx_demo.PROGRAM is None or shutil.which("wrk") is None:
        sys.exit("bench/nginx.py needs nginx and wrk: scripts/setup test installs them")
    if options.instructions:
        count_instructions(options.build)
        return
    rounds = []
    with contextlib.ExitStack() as stack:
        demo = nginx_demo.gateway_demo.Demo(options.build)
        stack.callback(demo.close)
        redis = nginx_demo.gateway_demo.Redis(demo)
        redis.start()
        has_lua = all(path.exists() for path in LUA_MODULES)
        servers = {}
        for name, case in CASES.items():
            if case[0] != "lua" or has_lua:
                main = "".join(f"load_module {path};" for path in LUA_MODULES) if case[0] == "lua" else ""
                servers[name] = stack.enter_context(nginx_demo.Nginx(options.build, configuration(*case, redis.path), main=main,
                                                                     workers=options.workers, level="crit"))
        for number in range(options.rounds):
            names = list(servers)
            shift = number % len(names)  # another one begins each round
            rounds.append({name: measure(servers[name], options.seconds) for name in names[shift:] + names[:shift]})
            print(f"round {number + 1} of {options.rounds}", file=sys.stderr, flush=True)
    print(f"{'':32} {'requests/s':>11} {'us/request':>11} {'99% us':>8} {'of none':>8} {'of limit_req':>13}")
    for name in servers:
        rate, used, late = (statistics.median(r[name][i] for r in rounds) for i in (0, 1, 2))
        of_none = statistics.median(r["none"][1] / r[name][1] for r in rounds)
        twin = name.replace("weir", "limit_req").replace(" with Redis", "")
        of_twin = statistics.median(r[twin][1] / r[name][1] for r in rounds) if twin != name else None
        print(f"{name:32} {rate:11.0f} {used:11.2f} {late:8.0f} {of_none:8.3f}" + (f" {of_twin:13.3f}" if of_twin else ""))
    print("\nof none, of limit_req: the processor time of that one, divided by this one's.")


if __name__ == "__main__":
    main()
