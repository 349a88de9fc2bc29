#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
The gateway end to end, on loopback: gateway_test.py BUILD_DIRECTORY SOURCE_DIRECTORY [TEST...]. Prints TAP.

Guards: apps/gateway/main.c, apps/gateway/worker.c, apps/gateway/session.c, apps/gateway/status.c,
apps/gateway/local.c
"""
import contextlib
import http.client
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from support import ask, Fixture, in_a_network_of_its_own, NO_BYTES, run, Skipped
from support import gateway_demo


def test_a_polite_client_is_served_and_a_greedy_one_held():
    with Fixture() as f:
        begin = time.monotonic()
        clients = f.send(3, "polite,1,50", "greedy,1,3000", "swarm,50,1000")  # what was not sent for a moment is sent at once
        assert clients["polite"]["returned"] == clients["polite"]["sent"], clients
        assert clients["swarm"]["returned"] == clients["swarm"]["sent"], clients
        # A burst of 200, and 200 a second, unless nobody sent for longer than a second.
        assert 200 <= clients["greedy"]["returned"] <= 201 + 200 * (time.monotonic() - begin), clients
        status = f.until(lambda: (s := f.status())["offered"] == sum(c["sent"] for c in clients.values()) and s)
        assert status["passed"] == status["replies"] == sum(c["returned"] for c in clients.values()), (status, clients)
        assert status["dropped"] == {"source": status["offered"] - status["passed"], "overall": 0, **NO_BYTES}, status
        source, overall = status["policies"]["source"], status["policies"]["overall"]
        assert source == {"in_force": True, "mode": "enforce", "would_deny": 0, "offered": status["offered"], "passed": status["passed"],
                          "dropped": status["dropped"]["source"]}, status
        assert overall == {**source, "offered": status["passed"], "dropped": 0}, status  # it was not asked of the others
        # All that was dropped, in packets: the greedy client's alone.
        offenders = f.until(lambda: (o := f.status()["offenders"]) and o[0]["denied"] == status["dropped"]["source"] and o)
        assert len(offenders) == 1 and offenders[0]["error"] == 0, offenders
        assert offenders[0]["source"].startswith("127."), offenders
        assert status["sessions"] == 52 and status["redis"] == "none" and status["limited"] is True, status
        with f.client(source=offenders[0]["source"]) as greedy:  # its bucket fills again
            greedy.setblocking(False)

            def is_answered():
                greedy.send(b"?")
                with contextlib.suppress(BlockingIOError):
                    return greedy.recv(100)
            f.until(is_answered)


def test_metrics_are_prometheus_text():
    with Fixture() as f:
        sent = f.send(1, "one,1,100", linger=30)["one"]["sent"]
        values = {}
        for line in f.get("/metrics").splitlines():
            if line.startswith("#"):
                assert line.split()[1] in ("HELP", "TYPE"), line
            else:
                name, value = line.rsplit(" ", 1)
                values[name] = float(value)
        assert values["weir_gateway_offered_packets_total"] == sent > 0, (sent, values)
        assert values['weir_checks_total{policy="source",answer="allowed"}'] == sent, (sent, values)
        for method, path, code in (("GET", "/nothing", 404), ("POST", "/status", 405), ("HEAD", "/status", 200)):
            connection = http.client.HTTPConnection("127.0.0.1", f.http, timeout=20)
            connection.request(method, path, body="x" if method == "POST" else None)
            assert connection.getresponse().status == code, (method, path)
            connection.close()


def test_sigterm_ends_it_quickly_with_its_counts():
    with Fixture() as f:
        sent = f.send(1, "one,1,100", linger=30)["one"]["sent"]
        f.child.send_signal(signal.SIGTERM)
        assert f.child.wait(20) == 0
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
        # A minute between two syncs: what Redis has at the end was reported at the end.
        policies = "policies: [{name: overall, limits: [{algorithm: fixed_window, limit: 100000, period: 30d}]}]\n"
        with Fixture("--redis", f"unix://{redis.path}", "--redis-prefix", "left", "--sync-interval-ms", 60000,
                     policies=policies) as f:
            f.until(lambda: f.status()["redis"] == "up")
            f.send(1, "one,1,500", linger=30)
            f.child.send_signal(signal.SIGTERM)
            assert f.child.wait(20) == 0
            passed = int(re.search(r"offered (\d+), passed \1,", f.log.read_text())[1])
            assert passed > 0
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
        backend.settimeout(20)
        listen, packet = gateway_demo.free_port(socket.SOCK_DGRAM), os.urandom(65507)
        f.demo.start(f.demo.bin / "weir-gateway", "--listen", f"127.0.0.1:{listen}", "--backend",
                     f"127.0.0.1:{backend.getsockname()[1]}", stderr=subprocess.DEVNULL)
        f.port = listen
        client = f.client()

        def arrives():
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
        swarm = f.send(2, "swarm,1200,2400", linger=30)["swarm"]
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


def test_the_table_of_descriptors_is_grown_before_the_first_packet():
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 2000:
        raise Skipped("this process may not have 2,000 file descriptors")
    with Fixture("--sessions", "700") as f:
        size = next(int(line.split()[1]) for line in pathlib.Path(f"/proc/{f.child.pid}/status").read_text().splitlines()
                    if line.startswith("FDSize:"))
        assert size >= 2 * 700, size


def test_an_ipv6_network_of_64_bits_shares_one_limit():
    def check():
        with Fixture(listen="[::1]") as f:
            start = time.monotonic()
            clients = [f.client(to="::1", source=source) for source in ("fd00:1::1", "fd00:1::2", "fd00:2::1")]
            for sent in range(1, 151):
                for client in clients:
                    client.send(b"?")
                if sent % 30 == 0:  # a socket has room for some 280 packets, and the gateway may stand still
                    f.until(lambda: f.status()["offered"] == 3 * sent)
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
            assert status["dropped"] == {"source": 450 - sum(counts), "overall": 0, **NO_BYTES}, (counts, status)
    in_a_network_of_its_own(check)


def test_no_port_is_given_to_two_processes():
    program = ("import random, socket, sys; random.seed(1); sys.path.insert(0, sys.argv[1]); import demo; "
               "print([demo.free_port(socket.SOCK_DGRAM) for _ in range(50)], flush=True); sys.stdin.read()")
    command = [sys.executable, "-c", program, sys.argv[2] + "/apps/gateway"]  # each begins at the same port
    with contextlib.ExitStack() as stack:
        children = [stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)) for _ in range(3)]
        given = [port for child in children for port in json.loads(child.stdout.readline())]
        assert len(set(given)) == 150, sorted(given)


def test_traffic_refuses_what_it_cannot_mean():
    program = str(pathlib.Path(sys.argv[1]) / "apps" / "gateway" / "weir-traffic")
    for options, says in ((("--client", "a,1,1", "--seconds", "soon"), "--seconds"), (("--client", 'a"b,1,1'), "--client"),
                          (("--client", "a,0,1"), "--client"), (("--client", "a,1,1,64x"), "--client"),
                          (("--client", "a,1,1,1401"), "--client"), (("--client", "a,1"), "--client"), ((), "--client")):
        result = subprocess.run([program, "--to", "127.0.0.1:9", *options], capture_output=True, text=True, timeout=20)
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


if __name__ == "__main__":
    run(globals())
