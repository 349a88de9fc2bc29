#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Reloads, deaths and modes of nginx: lifecycle_test.py BUILD_DIRECTORY SOURCE_DIRECTORY [TEST...]. Prints TAP.

Guards: apps/nginx/instance.c, apps/nginx/module.c, apps/nginx/poller.c, apps/nginx/zone.c, apps/nginx/messages.c
"""
import concurrent.futures
import os
import pathlib
import re
import signal
import socket
import tempfile
import time

from nginx_support import Load, Nginx, check_admitted, http, lines, links_of, run, statuses

ZONE = "weir_limit_req_zone $arg_k zone={0}:1m rate=1r/m;"
ONE = ZONE.format("one")


def test_a_reload_keeps_what_keys_have_used():
    for workers in (1, 4):
        for daemon in (False, True):
            with Nginx(ONE, "weir_limit_req zone=one burst=3 nodelay;", workers=workers, daemon=daemon) as nginx:
                assert statuses(nginx, "/?k=1", 2) == [200, 200]
                nginx.reload()
                nginx.reload()
                assert statuses(nginx, "/?k=1", 3) == [200, 200, 503], (workers, daemon)
                assert not lines(nginx, r"\[(alert|emerg|crit)\]"), nginx.log()


def test_a_changed_rate_is_in_force_and_keeps_what_keys_have_used():
    with Nginx(ONE, "weir_limit_req zone=one burst=9 nodelay;", daemon=True) as nginx:
        assert statuses(nginx, "/?k=1", 11) == [200] * 10 + [503]
        nginx.reload(http(ONE.replace("1r/m", "2r/m"), "weir_limit_req zone=one burst=1 nodelay;"))
        assert nginx.get("/?k=1").status == 503, "ten requests are still owed"
        nginx.reload(http(ONE.replace("1r/m", "20r/s"), "weir_limit_req zone=one burst=1 nodelay;"))
        nginx.until(lambda: nginx.get("/?k=1").status == 200)  # with the old rate it would take minutes


def test_a_changed_burst_is_in_force():
    with Nginx(ONE, "weir_limit_req zone=one;") as nginx:
        assert statuses(nginx, "/?k=1", 2) == [200, 503]
        nginx.reload(http(ONE, "weir_limit_req zone=one burst=5 nodelay;"))
        assert statuses(nginx, "/?k=1", 6) == [200] * 5 + [503]
        nginx.reload(http(ONE, "weir_limit_req zone=one burst=2 nodelay;"))
        assert statuses(nginx, "/?k=2", 4) == [200] * 3 + [503]


def test_a_changed_key_is_refused_and_the_old_configuration_stays():
    with Nginx(ONE, "weir_limit_req zone=one;") as nginx:
        assert statuses(nginx, "/?k=1", 2) == [200, 503]
        workers = nginx.worker_pids()
        nginx.write(http(ONE.replace("$arg_k", "$arg_other"), "weir_limit_req zone=one;"))
        os.kill(nginx.master_pid(), signal.SIGHUP)
        said = nginx.until(lambda: lines(nginx, r"\[emerg\]"))
        assert 'weir_limit_req "one" uses the "$arg_other" key while previously it used the "$arg_k" key' in said[0], said
        assert nginx.get("/?k=1").status == 503 and nginx.worker_pids() == workers


def test_zones_of_long_and_of_odd_names_are_kept_apart():
    names = [*("long" * 30 + end for end in "ab"), *("." * 50 + end for end in "ab"), "w" * 63, "w" * 64, "a.b", "a+b"]
    server = "".join(f"location /{n} {{ weir_limit_req zone={name}; }} " for n, name in enumerate(names))
    with Nginx("".join(ZONE.format(name) for name in names), server) as nginx:
        for n in range(len(names)):
            assert statuses(nginx, f"/{n}?k=1", 2) == [404, 503], names[n]
        assert not lines(nginx, r"\[(alert|emerg|crit)\]"), nginx.log()


def test_zones_may_be_added_and_removed():
    with Nginx(ONE, "weir_limit_req zone=one;") as nginx:
        assert statuses(nginx, "/?k=1", 2) == [200, 503]
        nginx.reload(http(ONE + ZONE.format("two"), "weir_limit_req zone=one; location /two { weir_limit_req zone=two; }"))
        assert statuses(nginx, "/?k=1", 1) == [503]
        assert statuses(nginx, "/two?k=1", 2) == [404, 503]
        nginx.reload(http(ZONE.format("two"), "location /two { weir_limit_req zone=two; }"))
        assert statuses(nginx, "/?k=1", 2) == [200, 200]
        assert statuses(nginx, "/two?k=1", 1) == [503]
        nginx.reload(http("", ""))
        assert statuses(nginx, "/two?k=1", 1) == [404]
        nginx.reload(http(ONE, "weir_limit_req zone=one;"))
        assert statuses(nginx, "/?k=2", 2) == [200, 503]


def test_a_removed_zone_limits_in_the_workers_that_still_have_it():
    with Nginx(ONE, "weir_limit_req zone=one;") as nginx:
        assert nginx.get("/?k=1").status == 200
        old = nginx.worker_pids()
        worker, = old
        before = links_of(worker)
        with socket.create_connection(("127.0.0.1", nginx.port), timeout=20) as client:
            client.sendall(b"GET /?k=1 HTTP/1.1\r\nHost: here\r\n")
            nginx.until(lambda: links_of(worker) - before)  # the old worker waits for the rest
            nginx.write(http(ZONE.format("two"), "weir_limit_req zone=two;"))
            os.kill(nginx.master_pid(), signal.SIGHUP)
            nginx.until(lambda: nginx.worker_pids() - old)
            assert old <= nginx.worker_pids()
            client.sendall(b"\r\n")
            assert client.recv(4096).split()[1] == b"503"


def test_reloads_under_load_stop_no_request_and_lose_no_count():
    rate, burst = 100, 50
    zone = f"weir_limit_req_zone $arg_k zone=one:1m rate={rate}r/s;"
    with Nginx(zone, f"weir_limit_req zone=one burst={burst} nodelay;", workers=4, level="warn") as nginx:
        begin = time.monotonic()
        load = Load(nginx.port, "/?k=1", clients=4)
        for _ in range(8):
            time.sleep(0.5)  # load in between
            nginx.reload()
        counts = load.stop()
        check_admitted(load, begin, rate, burst, 0.9)
        # nginx closes idle connections of old workers: a request that is just coming finds its connection closed.
        assert counts["error"] <= 4 * 8 * 2, counts
        assert not lines(nginx, r"\[(alert|emerg|crit)\]"), nginx.log()


def test_a_killed_worker_is_replaced_and_limits_hold():
    for daemon in (False, True):
        with Nginx(ONE, "weir_limit_req zone=one burst=9 nodelay;", workers=4, daemon=daemon) as nginx:
            assert statuses(nginx, "/?k=1", 5) == [200] * 5
            for _ in range(2):
                old = nginx.worker_pids()
                for pid in old:
                    os.kill(pid, signal.SIGKILL)
                nginx.until(lambda: len(nginx.worker_pids() - old) == 4)
            assert statuses(nginx, "/?k=1", 6) == [200] * 5 + [503], daemon


def test_workers_killed_under_load_leave_limits_in_force():
    rate, burst = 100, 50
    zone = f"weir_limit_req_zone $arg_k zone=one:1m rate={rate}r/s;"
    with Nginx(zone, f"weir_limit_req zone=one burst={burst} nodelay;", workers=4, level="warn") as nginx:
        begin = time.monotonic()
        load = Load(nginx.port, "/?k=1", clients=4)
        for _ in range(10):
            time.sleep(0.3)  # load in between
            os.kill(min(nginx.worker_pids()), signal.SIGKILL)
            nginx.until(lambda: len(nginx.worker_pids()) == 4)
        load.stop()
        check_admitted(load, begin, rate, burst, 0.7)  # some 40 of the answers are lost with their workers
        assert nginx.get("/?k=2").status == 200


def test_more_workers_than_before_may_join():
    with Nginx(ONE, "weir_limit_req zone=one burst=3 nodelay;", workers=1) as nginx:
        assert statuses(nginx, "/?k=1", 2) == [200] * 2
        nginx.workers = 8
        nginx.reload(http(ONE, "weir_limit_req zone=one burst=3 nodelay;"))
        assert statuses(nginx, "/?k=1", 3) == [200, 200, 503]


def test_another_weir_is_opened_where_zones_outgrow_the_table():
    with Nginx(ONE, "weir_limit_req zone=one;", level="notice") as nginx:
        assert statuses(nginx, "/?k=1", 2) == [200, 503]
        nginx.reload(http(ONE + "weir_limit_req_zone $arg_k zone=big:64m rate=1r/m;", "weir_limit_req zone=one;"))
        assert lines(nginx, r"\[notice\].* weir: .*another weir, and limits begin anew")
        assert statuses(nginx, "/?k=1", 2) == [200, 503]
        nginx.reload()
        assert statuses(nginx, "/?k=1", 1) == [503]


def test_a_refused_reload_closes_what_it_opened():
    with Nginx(ONE, "weir_limit_req zone=one;") as nginx:
        assert statuses(nginx, "/?k=1", 2) == [200, 503]
        task = pathlib.Path(f"/proc/{nginx.master_pid()}/task")
        threads, descriptors = len(list(task.iterdir())), len(list(task.parent.joinpath("fd").iterdir()))
        with socket.create_server(("127.0.0.1", 0)) as taken:
            for n in range(3):
                # Another weir, and then an address that cannot be bound.
                nginx.write(http(ONE + "weir_limit_req_zone $arg_k zone=big:64m rate=1r/m;",
                                 f"weir_limit_req zone=one; listen 127.0.0.1:{taken.getsockname()[1]};"))
                os.kill(nginx.master_pid(), signal.SIGHUP)
                nginx.until(lambda: len(lines(nginx, r"\[emerg\].*still could not bind")) == n + 1)
        nginx.until(lambda: len(list(task.iterdir())) == threads and len(list(task.parent.joinpath("fd").iterdir())) <= descriptors + 1)
        assert nginx.get("/?k=1").status == 503


def test_reloads_leave_no_threads_descriptors_or_mappings():
    for daemon in (False, True):
        with Nginx(ONE, "weir_limit_req zone=one;", daemon=daemon) as nginx:
            def used():
                process = pathlib.Path(f"/proc/{nginx.master_pid()}")
                return [len(list(process.joinpath(name).iterdir())) for name in ("task", "fd")] + [
                    len(process.joinpath("maps").read_text().splitlines())]

            def reload(n):
                # Each of them needs another weir.
                nginx.reload(http(f"weir_redis redis://127.0.0.1:1 prefix=p{n}; " + ONE, "weir_limit_req zone=one;"))
            for n in range(2):
                reload(n)
            before = used()
            for n in range(6):
                reload(n)
            # Sockets come and go while Redis is looked for; the allocator may have another arena.
            most = [before[0], before[1], before[2] + 4]
            nginx.until(lambda: all(now <= limit for now, limit in zip(used(), most)))


def test_workers_have_a_thread_for_redis_alone_and_the_master_never():
    # A fork copies locks as other threads hold them, and a worker would wait for these for ever.
    for redis, threads in (("", 1), ("weir_redis redis://127.0.0.1:1;", 2)):
        for daemon in (False, True):
            with Nginx(redis + ONE, "weir_limit_req zone=one;", daemon=daemon) as nginx:
                for _ in range(3):
                    found = {pid: len(list(pathlib.Path(f"/proc/{pid}/task").iterdir()))
                             for pid in (nginx.master_pid(), *nginx.worker_pids())}
                    assert found.pop(nginx.master_pid()) == 1, daemon
                    assert list(found.values()) == [threads], (found, nginx.log()[-2000:])
                    nginx.reload()


def test_without_a_master_process_limits_hold():
    for daemon in (False, True):
        nginx = Nginx(ONE, "weir_limit_req zone=one burst=3 nodelay;", workers=1, daemon=daemon, main="master_process off;",
                      start=False)
        nginx.worker_pids = lambda nginx=nginx: {nginx.said_pid()} - {None}
        with nginx:
            nginx.start()
            # No reload: there nginx 1.22 loses its connections, with or without the module.
            assert statuses(nginx, "/?k=1", 5) == [200] * 4 + [503], daemon


def test_a_waiting_request_is_served_over_a_reload():
    with Nginx("weir_limit_req_zone $arg_k zone=one:1m rate=1r/s;", "weir_limit_req zone=one burst=5;") as nginx, \
            concurrent.futures.ThreadPoolExecutor(1) as pool:
        begin, asked = time.monotonic(), [pool.submit(nginx.get, "/?k=1")]

        def one_waits():
            if asked[-1].done():
                asked.append(pool.submit(nginx.get, "/?k=1"))
            return lines(nginx, "delaying request")
        nginx.until(one_waits)
        nginx.reload()
        assert asked[-1].result().status == 200 and time.monotonic() - begin > 0.9 * (len(asked) - 1), asked


def test_helpers_of_a_cache_do_not_join():
    with Nginx(ONE + " proxy_cache_path {dir}/cache keys_zone=cache:1m;", "weir_limit_req zone=one;") as nginx:
        helper = nginx.until(lambda: [p for p in pathlib.Path("/proc").iterdir() if p.name.isdigit() and is_helper(nginx, p)])
        nginx.until(lambda: len(list(helper[0].joinpath("task").iterdir())) == 1)
        assert "weir" not in helper[0].joinpath("maps").read_text().replace("weir_module", "").replace("libweir", "").replace(
            "/weir", "").replace("weir-nginx", "")


def is_helper(nginx, process):
    try:
        status = process.joinpath("status").read_text()
        return (f"\nPPid:\t{nginx.master_pid()}\n" in status and
                b"cache manager" in process.joinpath("cmdline").read_bytes())
    except OSError:
        return False


def test_lines_of_the_library_go_to_each_error_log():
    with tempfile.TemporaryDirectory(prefix="weir-syslog-") as place, \
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as syslog:
        syslog.bind(place + "/log")
        syslog.settimeout(20)
        with Nginx("weir_redis redis://127.0.0.1:1; " + ONE, "weir_limit_req zone=one;", daemon=True,
                   main=f"error_log syslog:server=unix:{place}/log warn;") as nginx:
            nginx.until(lambda: lines(nginx, r"\[(warn|error)\] \d+#\d+: weir: .*127\.0\.0\.1"))
            heard = b""
            while b"weir: " not in heard:
                heard = syslog.recv(4096)
            assert b"127.0.0.1" in heard, heard


def test_the_configuration_is_tested_without_a_weir():
    with Nginx(ONE, "weir_limit_req zone=one;") as nginx:
        good, said = nginx.test()
        assert good, said
        assert not re.search(r"\[(warn|error|alert)\].*weir", said)


if __name__ == "__main__":
    run(dict(globals()))
