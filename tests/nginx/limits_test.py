#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
What limits do to requests: limits_test.py BUILD_DIRECTORY SOURCE_DIRECTORY [TEST...]. Prints TAP. stock_test.py compares
with nginx's own limits what both decide.

Guards: apps/nginx/sentences.c, apps/nginx/http_protocol.c, apps/nginx/request.c, apps/nginx/request_state.c,
apps/nginx/wait.c, apps/nginx/messages.c
"""
import concurrent.futures
import contextlib
import http.client
import os
import re
import select
import signal
import socket
import time

from nginx_support import Load, Nginx, lines, measured, run, statuses, wrk

SLOW = "weir_limit_req_zone $arg_k zone=slow:1m rate=1r/m;"


def test_a_request_beyond_the_rate_is_refused_with_503():
    with Nginx(SLOW, "weir_limit_req zone=slow;") as nginx:
        assert statuses(nginx, "/?k=1", 3) == [200, 503, 503]
        assert statuses(nginx, "/?k=2", 2) == [200, 503], "keys are apart"


def test_a_key_of_more_than_65535_bytes_is_cut_there_and_limited():
    key = "$arg_k" * 64 + "$arg_end"
    with Nginx(f'weir_limit_req_zone "{key}" zone=slow:1m rate=1r/m;',
               "weir_limit_req zone=slow; large_client_header_buffers 4 32k;") as nginx:
        assert statuses(nginx, "/a.html?k=" + "x" * 1500, 2) == [200, 503]
        assert statuses(nginx, "/a.html?end=1&k=" + "x" * 1500, 2) == [503, 503], "the end is beyond 65,535 bytes"
        assert statuses(nginx, "/a.html?k=" + "x" * 1499 + "y", 2) == [200, 503]
        assert statuses(nginx, "/a.html?k=" + "x" * 1000, 2) == [200, 503]
        assert statuses(nginx, "/a.html?end=1&k=" + "x" * 1000, 2) == [200, 503]
        assert not lines(nginx, "65535"), "nothing is said of it"


def test_a_key_is_a_variable_a_part_of_the_path_or_a_text_with_several():
    for key in ("$arg_k", "${arg_k}", "$1", "$arg_k$arg_k", "-$arg_k", '"$arg_k-"', "$arg_k:$1"):
        with Nginx(f"weir_limit_req_zone {key} zone=keys:1m rate=1r/m;",
                   'weir_limit_req zone=keys; location ~ "^/(.*)$" { }') as nginx:
            found = [nginx.get(path).status for path in ("/one?k=1", "/two?k=2", "/one?k=1")]
            assert found == [404, 404, 503], (key, found)


def test_a_key_is_what_its_variable_is_when_the_request_is_decided():
    with Nginx(SLOW, "weir_limit_req zone=slow; "
               "location /go { set $before $arg_k; rewrite ^ /a.html?k=one? break; }") as nginx:
        assert [nginx.get(f"/go?k={k}").status for k in (1, 2)] == [200, 503]


def test_the_rate_lets_pass_again_and_refused_requests_are_not_counted():
    with Nginx("weir_limit_req_zone $arg_k zone=two:1m rate=2r/s;", "weir_limit_req zone=two;") as nginx:
        begin = time.monotonic()
        assert nginx.get("/?k=1").status == 200
        # If refused requests counted, these would be refused for as long as they come.
        nginx.until(lambda: nginx.get("/?k=1").status == 200)
        assert time.monotonic() - begin > 0.4


def arriving_together(nginx, path, count):
    """Sends requests that one worker reads at once: the seconds to each answer of 200, in their order."""
    worker, = nginx.worker_pids()
    os.kill(worker, signal.SIGSTOP)
    clients = [socket.create_connection(("127.0.0.1", nginx.port)) for _ in range(count)]
    try:
        for client in clients:
            client.sendall(f"GET {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n".encode())
        begin = time.monotonic()
        os.kill(worker, signal.SIGCONT)
        answers = []

        def all_answered():
            for client in select.select([c for c in clients if c.fileno() != -1], [], [], 0)[0]:
                assert receive(client).split()[1] == b"200"
                answers.append(time.monotonic() - begin)
                client.close()
            return len(answers) == count
        nginx.until(all_answered)
        return answers
    finally:
        for client in clients:
            client.close()


def test_waiting_requests_are_spaced_by_the_rate():
    with Nginx("weir_limit_req_zone $arg_k zone=ten:1m rate=10r/s;", "weir_limit_req zone=ten burst=99;") as nginx:
        answers = arriving_together(nginx, "/?k=1", 6)
        # A machine under load may answer later, not earlier; 20 ms are the resolution of nginx's clocks and timers.
        assert all(seconds > 0.1 * before - 0.02 for before, seconds in enumerate(answers)), answers


def test_a_wait_begins_when_it_is_decided_and_not_when_its_worker_last_read_the_clock():
    with Nginx("weir_limit_req_zone $arg_k zone=thirty:1m rate=30r/m;", "location = /index.html { weir_limit_req zone=thirty burst=5; } "
               "location = /a.html { auth_basic x; auth_basic_user_file {dir}/users; }") as nginx:
        (nginx.dir / "users").write_text("x:$6$rounds=1500000$salt$x\n")  # half a second or more of a worker's time
        worker, = nginx.worker_pids()
        busy, waiting = (http.client.HTTPConnection("127.0.0.1", nginx.port, timeout=60) for _ in range(2))
        with contextlib.closing(busy), contextlib.closing(waiting):
            for connection in (busy, waiting):
                connection.request("GET", "/")
                connection.getresponse().read()
            begin = time.monotonic()
            assert nginx.get("/index.html?k=1").status == 200
            os.kill(worker, signal.SIGSTOP)  # it finds both requests when it looks
            busy.request("GET", "/a.html", headers={"Authorization": "Basic eDp4"})
            waiting.request("GET", "/index.html?k=1")
            os.kill(worker, signal.SIGCONT)
            assert (busy.getresponse().status, waiting.getresponse().status) == (401, 200)
            assert time.monotonic() - begin > 1.98, "of 2 s; 20 ms are the resolution of nginx's clocks and timers"


def ask_and_go(nginx, count, path="/?k=1"):
    """Requests of clients that go away when it is decided for each of them."""
    with contextlib.ExitStack() as stack:
        for n in range(count):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", nginx.port)))
            client.sendall(f"GET {path} HTTP/1.1\r\nHost: here\r\n\r\n".encode())
            nginx.until(lambda: len(lines(nginx, "delaying request|limiting requests")) == n + 1)


def excesses(nginx, pattern):
    return [float(re.search(r"excess: (\d+\.\d{3})[, ]", line)[1]) for line in lines(nginx, pattern)]


def is_excess(found, wanted, begin):
    """Whether these are so many requests, less those that one of 1r/m had room for since."""
    return wanted - (time.monotonic() - begin) / 60 - 0.002 < found <= wanted


def test_each_waiting_request_waits_for_those_before_it():
    with Nginx(SLOW, "weir_limit_req zone=slow burst=5;") as nginx:
        begin = time.monotonic()
        assert nginx.get("/?k=1").status == 200
        ask_and_go(nginx, 7)
        found = excesses(nginx, "delaying request")
        assert len(found) == 5 and all(is_excess(excess, n, begin) for n, excess in enumerate(found, 1)), found
        assert len(lines(nginx, "limiting requests")) == 2


def test_delay_lets_some_requests_pass_at_once():
    slow = SLOW + "weir_limit_req_zone $arg_k zone=thirty:1m rate=30r/m;"
    with Nginx(slow, "weir_limit_req_dry_run on; weir_limit_req zone=slow burst=4 delay=2; "
               "location = /a.html { weir_limit_req_dry_run off; weir_limit_req zone=thirty burst=4 delay=2; }") as nginx:
        assert [nginx.get("/?k=1").headers["X-Status"] for _ in range(4)] == ["PASSED"] * 3 + ["DELAYED_DRY_RUN"]
        begin = time.monotonic()
        assert statuses(nginx, "/a.html?k=1", 4) == [200] * 4
        assert time.monotonic() - begin > 1.9, "an excess of 3 is 1 beyond the delay, which takes 2 s since the first one"


def test_a_client_that_goes_away_while_it_waits_is_logged_as_gone():
    with Nginx(SLOW, "weir_limit_req zone=slow burst=5;") as nginx:
        nginx.get("/?k=1")
        ask_and_go(nginx, 1)
        nginx.until(lambda: lines(nginx, "client prematurely closed connection"))


def test_a_client_that_has_gone_before_it_waits_is_logged_as_gone():
    with Nginx(SLOW, "weir_limit_req zone=slow burst=5; location /now { weir_limit_req zone=slow burst=5 nodelay; }") as nginx:
        # Who comes after these waits for minutes, so that its line in the log does not come of the end of its wait.
        assert statuses(nginx, "/now?k=1", 5) == [404] * 5
        worker, = nginx.worker_pids()
        os.kill(worker, signal.SIGSTOP)  # the request and its end arrive at once
        with socket.create_connection(("127.0.0.1", nginx.port)) as client:
            client.sendall(b"GET /?k=1 HTTP/1.1\r\nHost: here\r\n\r\n")
            client.shutdown(socket.SHUT_WR)
            os.kill(worker, signal.SIGCONT)
            nginx.until(lambda: lines(nginx, "client prematurely closed connection"))


def test_a_waiting_request_does_not_keep_a_worker_from_others():
    with Nginx(SLOW, "weir_limit_req zone=slow burst=5;") as nginx:
        nginx.get("/?k=1")
        with socket.create_connection(("127.0.0.1", nginx.port)) as client:
            client.sendall(b"GET /?k=1 HTTP/1.1\r\nHost: here\r\n\r\n")
            nginx.until(lambda: lines(nginx, "delaying request"))
            assert nginx.get("/?k=2").status == 200 and not select.select([client], [], [], 0)[0]


class FewConnections(Nginx):
    connections = 14


def without_free_connections(prefix):
    """What comes of 20 clients at once: how many wait, are closed, and are answered; and an alert of nginx."""
    with FewConnections(f"{prefix}limit_req_zone $arg_k zone=slow:1m rate=2r/m;", f"{prefix}limit_req zone=slow burst=50;") as nginx:
        nginx.get("/?k=1")
        worker, = nginx.worker_pids()
        os.kill(worker, signal.SIGSTOP)  # all of them are there when it goes on
        clients = [socket.create_connection(("127.0.0.1", nginx.port)) for _ in range(20)]
        try:
            for client in clients:
                client.sendall(b"GET /?k=1 HTTP/1.1\r\nHost: here\r\n\r\n")
            os.kill(worker, signal.SIGCONT)
            closed = []

            def settled():
                ready = select.select([c for c in clients if c not in closed], [], [], 0)[0]
                closed.extend(c for c in ready if not receive(c))
                return len(lines(nginx, "delaying request")) + len(closed) == len(clients)
            nginx.until(settled)
            delayed = len(lines(nginx, "delaying request"))
        finally:
            for client in clients:
                client.close()
        # Each client that waited and has gone gives its connection back.
        nginx.until(lambda: len(lines(nginx, "client prematurely closed")) == delayed)
        assert statuses(nginx, "/?k=2", 1) == [200]
        return delayed, len(closed), bool(lines(nginx, "worker_connections are not enough"))


def receive(client):
    try:
        return client.recv(4096)
    except ConnectionResetError:
        return b""


def test_a_worker_without_free_connections_does_as_with_limit_req():
    ours, theirs = without_free_connections("weir_"), without_free_connections("")
    # A client that has just gone may have its connection still.
    assert abs(ours[0] - theirs[0]) <= 1 and ours[0] > 5 and ours[1] > 5 and ours[2] and theirs[2], (ours, theirs)


def test_messages_are_those_of_limit_req():
    with Nginx(SLOW, "weir_limit_req zone=slow burst=1 nodelay; location /d { weir_limit_req zone=slow burst=9; "
               "weir_limit_req_dry_run on; }") as nginx:
        begin = time.monotonic()
        statuses(nginx, "/?k=1", 3)
        said = lines(nginx, "limiting requests")
        assert len(said) == 1, said
        assert re.search(r'\[error\] .*\*\d+ limiting requests, excess: \d\.\d{3} by zone "slow", client: 127\.0\.0\.1, '
                         r'server: , request: "GET /\?k=1 HTTP/1\.1"', said[0]), said
        nginx.get("/d?k=1")
        said = lines(nginx, "delaying request")
        assert re.search(r'\[warn\] .*\*\d+ delaying request, dry run, excess: \d\.\d{3}, by zone "slow", client:', said[0]), said
        found = excesses(nginx, "limiting requests|delaying request")
        assert all(is_excess(excess, 2, begin) for excess in found), found


def test_dry_run_refuses_and_delays_nobody():
    with Nginx(SLOW, "weir_limit_req zone=slow burst=1; weir_limit_req_dry_run on; "
               "location /real { weir_limit_req_dry_run off; }") as nginx:
        answers = [nginx.get("/a.html?k=1") for _ in range(3)]  # the second would wait for a minute, and get() does not
        assert [a.status for a in answers] == [200] * 3
        assert [a.headers["X-Status"] for a in answers] == ["PASSED", "DELAYED_DRY_RUN", "REJECTED_DRY_RUN"]
        assert re.search(r"limiting requests, dry run, excess: \d\.\d{3} by zone", lines(nginx, "limiting")[0])
        assert nginx.get("/real?k=1").status == 503, "dry run counts what passed"


def test_the_variable_says_what_was_decided():
    with Nginx("weir_limit_req_zone $arg_k zone=one:1m rate=20r/s;", "location /off { } location /on { "
               "weir_limit_req zone=one burst=1; alias {dir}/html/; }") as nginx:
        assert "X-Status" not in nginx.get("/off/").headers
        seen = set()
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            def more():
                seen.update(answer.headers.get("X-Status") for answer in pool.map(nginx.get, ["/on/?k=1"] * 8))
                return seen >= {"PASSED", "DELAYED", "REJECTED"}
            nginx.until(more)
        assert seen == {"PASSED", "DELAYED", "REJECTED"}


def test_the_variable_is_empty_until_the_request_is_decided():
    with Nginx(SLOW, "set $before [$weir_limit_req_status]; weir_limit_req zone=slow; error_page 503 /a.html; "
               "add_header X-Before $before always; location = /a.html { add_header X-After $weir_limit_req_status always; "
               "add_header X-Before $before always; }") as nginx:
        answers = [nginx.get("/a.html?k=1"), nginx.get("/?k=1")]
        assert [(a.status, a.headers["X-Before"], a.headers["X-After"]) for a in answers] == [
            (200, "[]", "PASSED"), (503, "[REJECTED]", "REJECTED")], "the redirect to the page runs the set again"


def test_several_limits_take_all_or_nothing():
    zones = ("weir_limit_req_zone $arg_a zone=wide:1m rate=1r/m; weir_limit_req_zone $arg_b zone=tight:1m rate=1r/m;")
    for order in (("tight", "wide"), ("wide", "tight")):
        limits = {"wide": "weir_limit_req zone=wide burst=5 nodelay;", "tight": "weir_limit_req zone=tight;"}
        with Nginx(zones, "".join(limits[name] for name in order)) as nginx:
            assert statuses(nginx, "/?a=1&b=1", 4) == [200, 503, 503, 503]
            assert all('"tight"' in line for line in lines(nginx, "limiting"))
            # Five of the wide limit's burst are left: the refused requests have taken none.
            assert [nginx.get(f"/?a=1&b={b}").status for b in range(2, 8)] == [200] * 5 + [503], order
            assert '"wide"' in lines(nginx, "limiting")[-1]


def test_several_limits_hold_while_four_workers_take_from_them():
    zones = ("weir_limit_req_zone $arg_a zone=wide:1m rate=1r/m; weir_limit_req_zone $arg_b zone=tight:1m rate=1r/m;")
    with Nginx(zones, "weir_limit_req zone=wide burst=99 nodelay; weir_limit_req zone=tight burst=49 nodelay;", workers=4,
               level="crit") as nginx:
        load = Load(nginx.port, "/?a=1&b=1", clients=8)
        nginx.until(lambda: load.so_far()[503] > 2000)
        assert load.stop()[200] == 50
        left = [nginx.get(f"/?a=1&b={n}").status for n in range(2, 70)].count(200)
        assert left == 50, left


def test_the_longest_delay_of_several_limits_counts():
    zones = "".join(f"weir_limit_req_zone $arg_a zone={name}:1m rate={rate};"
                    for name, rate in (("slow", "1r/s"), ("fast", "50r/s"), ("one", "1r/m"), ("two", "2r/m")))
    for names in (("slow", "fast", "one", "two"), ("fast", "slow", "two", "one")):
        limits = [f"weir_limit_req zone={name} burst=9;" for name in names]
        with Nginx(zones, f"{limits[0]} {limits[1]} location /dry {{ weir_limit_req_dry_run on; {limits[2]} {limits[3]} }}") as nginx:
            begin = time.monotonic()
            assert statuses(nginx, "/?a=1", 2) == [200] * 2 and time.monotonic() - begin > 0.9
            statuses(nginx, "/dry?a=1", 2)
            assert '"one"' in lines(nginx, "delaying request, dry run")[0]


@measured
def test_four_workers_admit_the_rate_over_ten_seconds():
    rate, burst, seconds = 200, 1000, 10  # the burst makes up for five seconds in which the machine stands still
    with Nginx(f"weir_limit_req_zone $arg_k zone=z:1m rate={rate}r/s;", f"weir_limit_req zone=z burst={burst} nodelay;",
               workers=4, level="crit") as nginx:
        begin = time.monotonic()
        load = Load(nginx.port, "/?k=1", clients=4)
        admitted = wrk(nginx, "/?k=1", seconds)
        refused = load.so_far()[503]
        nginx.until(lambda: load.so_far()[503] > refused)  # the bucket is empty at the end
        admitted += load.stop()[200]
        wanted = 1 + burst + rate * (max(at for at, status in load.answers if status == 503) - begin)
        # A request for each worker, and a twentieth of a second by which the clocks of both may differ under load.
        assert abs(admitted - wanted) <= 4 + rate * 0.05, (admitted, wanted)


if __name__ == "__main__":
    run(dict(globals()))
