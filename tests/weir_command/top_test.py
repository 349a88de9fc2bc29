#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
weir top: one reading as text and as JSON, and the full screen on a terminal. top_test.py WEIR_PROGRAM [TEST...]. Prints
TAP. Nodes are HTTP servers of this test; with GATEWAY in the environment, gateways and a private Redis as well.

Guards: apps/weir/top/top.c, apps/weir/top/top_nodes.c, apps/weir/top/top_status.c, apps/weir/top/top_view.c,
apps/weir/top/top_screen.c, apps/weir/top/top_terminal.c, apps/weir/top/tell_top.c, apps/weir/top/fleet_sample.c,
apps/weir/redis_link.c, apps/weir/redis_connection.c
"""
import http.server
import json
import os
import re
import resource
import signal
import socket
import socketserver
import subprocess
import threading
import time

from command_support import data, file, PLACE, PLAIN, run, Skipped, weir, WEIR
from redis_support import Fake, free_port, Redis
from screen import Screen

GATEWAY = os.environ.get("GATEWAY", "")


def status(name="edge1", at=0.0, **more):
    """The status of a node that has been up for `at` seconds, and denies 10 of 30 checks a second."""
    return {"version": "0.1.0", "link": "up", "live_nodes": 2, "fleet_age_ms": 120, "syncs": int(5 * at), "sync_errors": 0,
            "suspect_nodes": 0, "keys": 12, "key_capacity": 65536,
            "allowed": int(110 * at), "denied": int(5 * at),  # not the sums: a request of both policies is one
            "policies": [
                {"name": "api", "mode": "enforce", "scope": "fleet", "group": "api", "outage_mode": "fleet", "basis": "fleet",
                 "allowed": int(20 * at), "denied": int(10 * at), "would_deny": 0, "limits": [],
                 "offenders": [{"key": "203.0.113.9", "denied_units": 90, "error_units": 2}]},
                {"name": "api/pro", "mode": "shadow", "scope": "fleet", "group": "api", "outage_mode": "fleet", "basis": "fleet",
                 "allowed": int(100 * at), "denied": 0, "would_deny": int(4 * at), "limits": [],
                 "offenders": [{"key": "203.0.113.9", "denied_units": 90, "error_units": 2}]}],
            "node": "0123456789ab", "name": name, "uptime_ms": int(1000 * at), **more}


class Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    allow_reuse_address, daemon_threads = True, True

    def handle_error(self, *_):
        """A client that leaves in the middle of an answer is no news."""


class UnixServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


class Node:
    """An HTTP server whose answer is made by a function of the count of answers before; each is of one second later."""

    def __init__(self, make=lambda count: status(at=100 + count), path=None):
        self.asked, self.make, node = [], make, self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                answer = node.make(len(node.asked))
                node.asked.append(self.path)
                body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

            def address_string(self):
                return "here"

        self.server = Server(("127.0.0.1", 0), Handler) if path is None else UnixServer(str(path), Handler)
        self.address = f"unix:{path}" if path else f"127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def closed_port():
    return f"127.0.0.1:{free_port()}"


def top(*words, **more):
    return weir("top", "--interval=0.1", *words, **more)


def test_one_reading_has_nodes_policies_and_keys():
    with Node() as one, Node(lambda count: status("edge2", at=50 + count)) as two:
        out, fault = top("--once", "--status", one.address, two.address)
        assert fault == "" and one.asked == two.asked == ["/status.json"] * 2
        lines = out.splitlines()
        assert lines[0] == "Nodes: 2 of 2 answer"
        assert re.fullmatch(rf"{one.address} +edge1 +up +120 ms +2 +0 +none +110 +5 +12", lines[2]), lines
        assert re.fullmatch(r"api +enforce +2 +none +60 +40 +20 +0", lines[7]), lines
        assert re.fullmatch(r"api/pro +shadow +2 +none +200 +200 +0 +8", lines[8]), lines
        # Both tiers share one list of keys, and the nodes' lists are added up.
        assert re.fullmatch(r"203\.0\.113\.9 +api +180 +4 +2", lines[-1]), lines
        assert max(map(len, lines)) <= 110


def test_json_has_the_same_figures():
    with Node() as one:
        found = data("top", "--interval=0.1", "--status", one.address)
        node, = found["nodes"]
        assert node["up"] and node["name"] == "edge1" and node["fleet_age_ms"] == 120 and node["address"] == one.address
        assert node["policies"][0] == {"name": "api", "mode": "enforce", "outage_mode": "fleet", "basis": "fleet",
                                       "allowed": 2020, "denied": 1010, "would_deny": 0, "allowed_per_s": 20.0,
                                       "denied_per_s": 10.0, "would_deny_per_s": 0.0}, node
        assert found["keys"] == [{"key": "203.0.113.9", "policy": "api", "denied_units": 90, "error_units": 2, "nodes": 1}]


def test_an_outage_and_a_node_that_was_started_anew_are_told():
    def outage(count):
        now = status(at=100 + count, link="down", sync_errors=7 * count, fleet_age_ms=65000)
        now["policies"][0].update(basis="outage", outage_mode="share")
        return now
    with Node(outage) as out, Node(lambda count: status("edge2", at=100 - 90 * count)) as anew:
        lines = top("--once", "--status", out.address, anew.address)[0].splitlines()
        assert re.fullmatch(rf"{out.address} +edge1 +down +65 s +2 +7\.?0? +share +110 +5 +12", lines[2]), lines
        assert re.fullmatch(rf"{anew.address} +edge2 +up +120 ms +2 +- +none +- +- +12", lines[3]), lines
        assert re.fullmatch(r"api +enforce +2 +share on 1 +30 +20 +10 +0", lines[7]), lines


def test_nodes_that_cannot_be_asked_are_shown_with_the_reason():
    mute = socket.create_server(("127.0.0.1", 0))
    try:
        with Node() as good, Node(lambda _: b"<html>") as html, Node(lambda _: {"policies": [], "uptime_ms": "x"}) as wrong:
            addresses = [good.address, closed_port(), html.address, wrong.address, f"127.0.0.1:{mute.getsockname()[1]}",
                         f"unix:{PLACE}/nowhere"]
            out, fault = top("--once", "--status", *addresses, code=3)
            lines = out.splitlines()
            assert fault == "" and lines[0] == "Nodes: 1 of 6 answer", lines
            for line, reason in zip(lines[3:8], ("Connection refused", "the answer is no status of weir",
                                                 "the answer is no status of weir", "no answer within 2 s",
                                                 "No such file or directory")):
                assert line.endswith(f" unreachable: {reason}"), line
            found = data("top", "--interval=0.1", "--status", addresses[1], code=3)["nodes"][0]
            assert not found["up"] and found["error"] == "Connection refused", found
    finally:
        mute.close()


def test_answers_of_a_stranger_do_no_harm():
    nasty = status("\x1b[31m\u202e\n", at=1, keys=-5, live_nodes="x", node=["y"])
    nasty["policies"][0].update(name="p" * 500, offenders=[{"key": "k" * 500 + "\x07"}] * 999, allowed=1e300)
    for answer in (nasty, b"[" * 100000, b'{"policies":[1,null,[]],"uptime_ms":1}', b'{"policies":[],"uptime_ms":-1}', b"\0", b""):
        with Node(lambda _, answer=answer: answer) as node:
            done = subprocess.run([*WEIR, "top", "--interval=0.1", "--once", "--status", node.address], capture_output=True,
                                  text=True, timeout=60, env=PLAIN, check=False)
            assert done.returncode in (0, 3) and done.stderr == "", (answer, done)
            assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u202e]", done.stdout), done.stdout
    with Node(lambda _: b"x" * (17 << 20)) as node:
        assert "unreachable: " in top("--once", "--status", node.address, code=3)[0]


def test_addresses_may_be_sockets_paths_and_urls():
    path = PLACE / "node.sock"
    with Node(path=path) as unix, Node() as node:
        assert top("--once", "--status", unix.address)[0].startswith("Nodes: 1 of 1 answer\n")
        assert top("--once", f"{unix.address}:/weir?format=json")[0].startswith("Nodes: 1 of 1 answer\n")
        assert top("--once", f"{node.address}/weir?format=json", f"http://{node.address}")[0].startswith("Nodes: 2 of 2")
        assert unix.asked == ["/status.json"] * 2 + ["/weir?format=json"] * 2
        assert sorted(node.asked) == ["/status.json"] * 2 + ["/weir?format=json"] * 2
        assert "unreachable" in top("--once", "file:///etc/passwd", code=3)[0]
    path.unlink()


def test_wrong_command_lines_say_what_to_do():
    for words, part in (
            ((), "there is no node to ask; give --status ADDR..., --redis=URL, or WEIR_REDIS_URL in the environment"),
            (("--status",), "--status: there is no address; give one such as 10.0.0.7:9100"),
            (("--redis=unix:///x", "a:1"), "--redis takes no addresses"),
            (("--interval=0", "a:1"), "--interval takes a number from 0.1 to 3600"),
            (("--interval=nan", "a:1"), "--interval takes a number from 0.1 to 3600"),
            (("--sample=1x", "--redis=unix:///x"), "--sample takes a number from 100 to 100000"),
            (("--prefix=a*", "--redis=unix:///x"), "--prefix takes 1 to 32 bytes"),
            (("unix:",), '"unix:" is no address'),
            (("--redis=http://x",), "redis_url")):
        out, fault = weir("top", "--once", *words, code=2)
        assert out == "" and part in fault, (words, fault)


def test_output_that_cannot_be_written_is_an_error():
    with Node() as node:
        for words in (("--once",), ("--json",)):
            command = [*WEIR, "top", "--interval=0.1", *words, "--status", node.address]
            with open("/dev/full", "w") as full:
                done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, env=PLAIN, check=False)
            assert done.returncode == 4 and done.stderr == "weir top: standard output: No space left on device\n", done
            reader, writer = os.pipe()
            os.close(reader)
            done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60, env=PLAIN, check=False)
            os.close(writer)
            assert done.returncode == 4 and done.stderr == "weir top: standard output: Broken pipe\n", done


def test_a_screen_moves_and_ends_with_q():
    with Node() as node, Screen(*WEIR, "top", "--interval=0.1", "--status", node.address, columns=120) as screen:
        screen.until("Nodes: 1 of 1 answer")
        screen.until(lambda: re.search(r"api +enforce +1 +none +30 +20 +10 +0", screen.text()))
        count = len(node.asked)
        screen.until(lambda: len(node.asked) > count + 2)
        assert "203.0.113.9" in screen.text() and screen.lines()[0].startswith(" weir top, every 0.1 s, sorted by denied")
        screen.press("q")
        code, restored, fault = screen.ended()
        assert (code, restored, fault) == (0, True, ""), (code, restored, fault)


def test_keys_sort_pause_scroll_and_help():
    with Node() as node, Screen(*WEIR, "top", "--interval=0.1", "--status", node.address, rows=10, columns=120) as screen:
        screen.until(lambda: re.search(r"^api +enforce.*10 +0\napi/pro", screen.text(), re.M))
        screen.press("s")  # by what is offered
        screen.until(lambda: "sorted by offered" in screen.text() and re.search(r"^api/pro.*\napi ", screen.text(), re.M))
        screen.press("h")
        screen.until("this text, and back")
        screen.press("?")
        screen.until("Policies, by offered")
        assert "203.0.113.9" not in screen.text()  # it is below
        screen.press("q")
        assert screen.ended()[:2] == (0, True)
    with Node() as node, Screen(*WEIR, "top", "--interval=0.1", "--status", node.address, rows=10, columns=120) as screen:
        screen.until("Nodes: 1 of 1")
        screen.press("jjjjjjjjjjjj")
        screen.until(lambda: "203.0.113.9" in screen.text() and "Nodes: 1 of 1" not in screen.text())
        screen.press("k" * 12)
        screen.until("Nodes: 1 of 1")
        screen.press("p")
        screen.until("PAUSED")
        count = len(node.asked)
        screen.press(" ")  # reads once, all the same
        screen.until(lambda: len(node.asked) > count)
        screen.press("p")
        screen.until(lambda: "PAUSED" not in screen.text() and len(node.asked) > count + 3)
        screen.press("q")
        assert screen.ended()[:2] == (0, True)


def test_a_screen_survives_every_size():
    with Node() as node, Screen(*WEIR, "top", "--interval=0.1", "--status", node.address, columns=120) as screen:
        screen.until("203.0.113.9")
        for rows, columns in ((5, 30), (1, 1), (2, 3), (60, 200), (24, 80)):
            screen.resize(rows, columns)
            count = len(node.asked)
            screen.until(lambda: len(node.asked) > count + 1)
            title = " weir top, every 0.1 s"[:columns].rstrip()
            screen.until(lambda: screen.lines()[0].startswith(title))
            assert screen.child.poll() is None
        screen.until("203.0.113.9")
        screen.press("q")
        assert screen.ended()[:2] == (0, True)


def test_signals_end_it_with_the_terminal_as_it_was():
    with Node() as node:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with Screen(*WEIR, "top", "--interval=0.1", "--status", node.address) as screen:
                screen.until("Nodes: 1 of 1")
                screen.child.send_signal(number)
                code, restored, fault = screen.ended()
                assert (code, restored, fault) == (-number, True, ""), (number, code, restored, fault)


def test_it_ends_with_its_terminal():
    """Also where nobody sends a signal: the terminal is not that of its session."""
    with Node() as node, Screen(*WEIR, "top", "--interval=0.1", "--status", node.address) as screen:
        screen.until("Nodes: 1 of 1")
        os.close(screen.main)
        screen.main = os.open("/dev/null", os.O_RDWR)
        assert screen.child.wait(60) == -signal.SIGHUP, screen.child.returncode


def test_a_node_that_goes_and_comes_back_is_shown_so():
    node = Node()
    address = node.address
    with Screen(*WEIR, "top", "--interval=0.1", "--status", address, columns=120) as screen:
        screen.until("Nodes: 1 of 1")
        node.close()
        screen.until("unreachable: Connection refused")
        screen.press("q")
        assert screen.ended()[:2] == (0, True)


def test_a_terminal_without_a_screen_is_refused_with_a_sentence():
    with Node() as node:
        for term, part in (("dumb", 'TERM is "dumb"'), ("", 'TERM is ""'), ("no-such-terminal", "is not known here")):
            with Screen(*WEIR, "top", "--status", node.address, environment={"TERM": term}) as screen:
                code, restored, fault = screen.ended()
                assert code == 2 and restored and part in fault and "--once" in fault, (term, code, fault)
        out, fault = weir("top", "--status", node.address, code=2)
        assert out == "" and "no terminal; --once prints once" in fault


def test_colours_mark_what_is_wrong_and_can_be_turned_off():
    address = closed_port()
    for words, environment, coloured in (((), {}, True), (("--color=never",), {}, False), ((), {"NO_COLOR": "1"}, False)):
        with Screen(*WEIR, "top", *words, "--status", address, environment={"TERM": "xterm", **environment}) as screen:
            end = time.monotonic() + 60
            while b"unreachable" not in screen.all:
                assert time.monotonic() < end
                try:
                    screen.read(0.1)
                except AssertionError:  # a sequence of an xterm that this VT100 does not know
                    screen.pending = b""
            assert (b"\x1b[31m" in screen.all or b";31m" in screen.all) == coloured, screen.all


def test_redis_shows_heartbeats_and_the_hottest_records():
    with Redis() as redis:
        now_ms = int(redis.call("TIME")[0]) * 1000
        redis.call("ZADD", "weir:nodes", now_ms - 300, "aaaaaaaaaaaa:200000:400000", now_ms - 300000, "bbbbbbbbbbbb:200000:600000",
                   now_ms - 900000, "cccccccccccc:200000:400000", "+inf", "!1760000000000000")
        for key, units in (("hot", 900), ("warm", 30)):
            redis.call("HSET", f"weir:{{0f3}}:f1s:api:{key}:1760000000", "sum", f"{units} 0 0")
        redis.call("HSET", "weir:{0f3}:f1s:api:hot:1759999999", "sum", "5000 0 0")  # the window before
        redis.call("HSET", "weir:{0f4}:b1s:login:10.0.0.1", "unit", "1000000000", "tat:1000000000", (now_ms + 500000) * 1000)
        redis.call("ZADD", "weir:{0f5}:l1m:log:k", 1, "a:1", 2, "a:2")
        redis.call("HSET", "weir:{0f5}:l1m?log:k", "a", "1")
        redis.call("SET", "weir:{0f6}:f1s:api:string:1", "x")
        redis.call("HSET", "other:{0f3}:f1s:api:foreign:1", "sum", "9999")
        found = data("top", "--redis", redis.url)
        assert [(node["node"], node["state"]) for node in found["nodes"]] == [
            ("aaaaaaaaaaaa", "live"), ("bbbbbbbbbbbb", "suspect"), ("cccccccccccc", "failed")], found
        assert 300 <= found["nodes"][0]["heartbeat_age_ms"] < 60000, found
        rows = [(record["policy"], record["key"], record["limit"]) for record in found["records"]]
        assert rows == [("login", "10.0.0.1", "b1s"), ("api", "hot", "f1s"), ("api", "warm", "f1s"), ("log", "k", "l1m")], found
        assert 400000 < found["records"][0]["units"] <= 500000 and found["records"][1]["units"] == 900, found
        out, fault = weir("top", "--once", environment={"WEIR_REDIS_URL": redis.url})
        assert fault == "" and re.search(r"^hot +api +f1s +900$", out, re.M) and out.startswith("Nodes: 1 live of 3, "), out


def test_numbers_of_a_stranger_do_no_harm():
    least, most = -1 << 63, (1 << 63) - 1
    with Redis() as redis:
        for number in (least, most):
            redis.call("ZADD", "weir:nodes", "+inf", f"!1:{number}:1", "-inf", f"aaaaaaaaaaaa:{number}:{number}", "1e300", "bbbbbbbbbbbb:1:1")
            redis.call("HSET", f"weir:{{0f4}}:b1s:login:{number}", "unit", "1", "tat:1", number)
            redis.call("HSET", f"weir:{{0f4}}:f1s:api:{number}:{number}", "sum", f"{number} 0 0")
            data("top", "--redis", redis.url)
            redis.call("FLUSHALL")


def test_a_sample_is_bounded_and_goes_round():
    with Redis() as redis:
        lines = "".join(f"HSET weir:{{{n % 16:x}}}:f1s:api:k{n}:7 sum {n + 1}\n" for n in range(20000))
        subprocess.run(["redis-cli", "-s", str(redis.path)], input=lines, text=True, stdout=subprocess.DEVNULL, timeout=60, check=True)
        redis.call("CONFIG", "RESETSTAT")
        assert 0 < data("top", "--redis", redis.url, "--sample=500")["sampled"] <= 1000
        calls = {line.split(":")[0].removeprefix("cmdstat_"): int(re.search(r"calls=(\d+)", line)[1])
                 for line in redis.call("INFO", "commandstats") if line.startswith("cmdstat_")}
        assert calls["scan"] == 2 and calls["hmget"] <= 1000 and "keys" not in calls, calls
        # Reading after reading the walk comes by every record, and keeps the hottest.
        with Screen(*WEIR, "top", "--redis", redis.url, "--sample=2000", "--interval=0.1", columns=120) as screen:
            screen.until("k19999 ")
            screen.press("q")
            assert screen.ended()[:2] == (0, True)


def test_what_a_large_sample_takes_grows_with_its_size_alone():
    with Redis() as redis:
        lines = "".join(f"HSET weir:{{{n % 16:03x}}}:f1s:api:k{n // 2}:{7 + n % 2} sum {n + 1}\n" for n in range(65000))
        subprocess.run(["redis-cli", "-s", str(redis.path)], input=lines, text=True, stdout=subprocess.DEVNULL, timeout=60, check=True)
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        found = data("top", "--redis", redis.url, "--sample=100000")
        taken = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
        assert taken < 10, f"{taken} s of the processor"  # each name against each other: 20 s
        assert found["sampled"] >= 65000 and len(found["records"]) == 256, (found["sampled"], len(found["records"]))
        keys = [one["key"] for one in found["records"]]
        assert len(set(keys)) == 256 and all(one["units"] % 2 == 0 for one in found["records"]), keys  # of a key the later window


def test_a_record_that_readings_come_by_again_is_shown_once():
    with Redis() as redis:
        redis.call("HSET", "weir:{0f3}:f1s:api:again:7", "sum", "5 0 0")
        with Screen(*WEIR, "top", "--redis", redis.url, "--interval=0.1", columns=120) as screen:
            screen.until("again ")
            redis.call("HSET", "weir:{0f3}:f1s:api:again:7", "sum", "6 0 0")
            screen.until(lambda: re.search(r"again +api +f1s +6\b", screen.text()))
            assert screen.text().count("again ") == 1, screen.text()
            screen.press("q")
            assert screen.ended()[:2] == (0, True)


def test_a_redis_that_cannot_be_used_is_told():
    address = closed_port()
    assert weir("top", "--once", f"--redis=redis://{address}", code=3)[1].endswith("Connection refused\n")
    with Redis() as redis:
        redis.call("SET", "weir:nodes", "x")
        assert "is no set of nodes" in weir("top", "--once", f"--redis={redis.url}", code=3)[1]
    with Fake(b"+OK\r\n") as fake:  # no answer that fits
        out, fault = weir("top", "--once", f"--redis=redis://127.0.0.1:{fake.port}", code=3)
        assert out == "" and "not weir's" in fault, fault


def test_a_redis_that_goes_and_comes_back_is_shown_so():
    with Redis() as redis, Screen(*WEIR, "top", "--redis", redis.url, "--interval=0.1", columns=120) as screen:
        screen.until("Nodes: 0 live of 0")
        redis.child.kill()
        redis.child.wait()
        screen.until("no answer: Redis at ")
        screen.until("Connection refused")  # it has tried to connect again
        screen.until(f"in Redis at {redis.path}")
        redis.child = subprocess.Popen(redis.child.args, stdout=subprocess.DEVNULL)
        screen.until("every 0.1 s")
        screen.press("q")
        assert screen.ended()[:2] == (0, True)


def has_unread(port):
    """Whether the server of a port of loopback has not read what it was sent (proc(5): tcp)."""
    rows = [line.split() for line in open("/proc/net/tcp", encoding="ascii")][1:]
    return any(row[1] == f"0100007F:{port:04X}" and int(row[4].split(":")[1], 16) > 0 for row in rows)


def test_a_signal_ends_the_wait_for_a_redis_that_hangs():
    with Redis() as redis, Screen(*WEIR, "top", "--redis", f"redis://127.0.0.1:{redis.port}", "--interval=0.1", columns=120) as screen:
        screen.until("Nodes: 0 live of 0")
        redis.child.send_signal(signal.SIGSTOP)
        # A reading that Redis had read already, and did not answer, ends after 5 s. The next one waits now, for as long.
        screen.until(lambda: has_unread(redis.port))
        before = len(screen.all)
        screen.child.send_signal(signal.SIGINT)
        code, restored, fault = screen.ended()
        assert (code, restored, fault) == (-signal.SIGINT, True, ""), (code, restored, fault)
        assert b"no answer after" not in screen.all[before:]


def test_gateways_are_asked_as_they_serve():
    if not GATEWAY:
        raise Skipped("there is no weir-gateway")
    policies = file("top.yaml", "policies:\n  - name: source\n    limits: [{algorithm: token_bucket, limit: 100, period: 1s}]\n")
    with Redis() as redis:
        ports = free_port(), free_port()
        child = subprocess.Popen([GATEWAY, "--listen", f"127.0.0.1:{ports[0]}", "--backend", "127.0.0.1:9", "--policies",
                                  str(policies), "--allow-missing", "--metrics", f"127.0.0.1:{ports[1]}", "--redis", redis.url,
                                  "--state", str(policies.parent)],
                                 stderr=subprocess.PIPE, text=True)
        try:
            end, good = time.monotonic() + 60, False
            while not good:
                assert time.monotonic() < end and child.poll() is None, (child.poll(), child.stderr.read())
                done = subprocess.run([*WEIR, "top", "--interval=0.1", "--json", "--status", f"127.0.0.1:{ports[1]}"],
                                      capture_output=True, text=True, timeout=60, env=PLAIN, check=False)
                good = done.returncode == 0 and json.loads(done.stdout)["nodes"][0]["live_nodes"] == 1
            node = json.loads(done.stdout)["nodes"][0]
            assert node["link"] == "up" and node["policies"][0]["basis"] == "fleet", node
            # After a pause of this machine the node is no more live until its next report.
            while [(one["node"], one["state"]) for one in data("top", "--redis", redis.url)["nodes"]] != [(node["node"], "live")]:
                assert time.monotonic() < end, node
        finally:
            child.kill()
            child.communicate()


if __name__ == "__main__":
    run(globals())
