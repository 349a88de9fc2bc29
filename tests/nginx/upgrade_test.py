#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
What is kept when nginx's binary is replaced, and when all of nginx is killed:
upgrade_test.py BUILD_DIRECTORY SOURCE_DIRECTORY [TEST...]. Prints TAP.

Every test also holds that nginx leaves nothing in /dev/shm: see Nginx.close in nginx_support.py.

Guards: apps/nginx/instance_name.c, apps/nginx/instance.c, apps/nginx/known_policies.c
"""
import contextlib
import grp
import os
import pathlib
import pwd
import re
import signal
import socket
import subprocess
import time

from nginx_support import BUILD, Load, Nginx, Skipped, alive, check_admitted, gateway_demo, http, lines, run, statuses

ZONE = "weir_limit_req_zone $arg_k zone={0}:1m rate=1r/m;"
ONE = ZONE.format("one")
BIG = ONE + "weir_limit_req_zone $arg_k zone=big:8m rate=1r/m;"  # needs a larger table
NOWHERE = "listen 192.0.2.1:1;"  # an address that no machine has
CANNOT_BIND = r"bind\(\) to 192\.0\.2\.1:1 failed"
FOUR = "weir_limit_req zone=one burst=3 nodelay;"  # a key has four requests


def daemon(zones=ONE, server=FOUR, **options):
    """nginx ignores USR2 where the process that started it still runs, so it has to be a daemon."""
    return Nginx(zones, server, daemon=True, level="notice", **options)


def kill_all(nginx):
    """Kills master and workers, all at once as far as nginx can see."""
    master = nginx.master_pid()
    os.kill(master, signal.SIGSTOP)  # else the master starts other workers
    pids = [*nginx.worker_pids(), master]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    nginx.until(lambda: not any(alive(pid) for pid in pids))
    if nginx.child.poll() is None:
        nginx.child.wait(20)
    nginx.child.stderr.close()
    nginx.pid_path.unlink()


def test_an_upgrade_keeps_what_keys_have_used():
    for workers in (1, 4):
        with daemon(workers=workers) as nginx:
            assert statuses(nginx, "/?k=1", 5) == [200] * 4 + [503]
            assert statuses(nginx, "/?k=2", 2) == [200] * 2
            old = nginx.upgrade()
            assert nginx.names_of(old) == nginx.names_of(nginx.master_pid()) == nginx.names() and len(nginx.names()) == 1
            assert statuses(nginx, "/?k=1", 2) == [503] * 2
            nginx.end(old, signal.SIGQUIT)
            assert statuses(nginx, "/?k=1", 1) + statuses(nginx, "/?k=2", 3) == [503] + [200] * 2 + [503]
            # Once more: the first upgraded master is the old one now, and its place is free again.
            nginx.end(nginx.upgrade(), signal.SIGQUIT)
            nginx.reload()
            assert statuses(nginx, "/?k=1", 1) + statuses(nginx, "/?k=2", 1) == [503] * 2
            assert not lines(nginx, r"\[(alert|emerg|crit|warn)\]"), nginx.log()


def test_workers_of_another_user_keep_what_keys_have_used():
    nobody = pwd.getpwnam("nobody")
    with daemon(workers=2, user=f"nobody {grp.getgrgid(nobody.pw_gid).gr_name}") as nginx:
        assert {pathlib.Path(f"/proc/{pid}").stat().st_uid for pid in nginx.worker_pids()} <= {nobody.pw_uid, os.geteuid()}
        assert statuses(nginx, "/?k=1", 5) == [200] * 4 + [503]
        nginx.end(nginx.upgrade(), signal.SIGQUIT)
        assert statuses(nginx, "/?k=1", 1) == [503]
        kill_all(nginx)
        nginx.start()
        assert statuses(nginx, "/?k=1", 1) == [503]


def test_the_way_back_keeps_what_keys_have_used():
    with daemon() as nginx:
        assert statuses(nginx, "/?k=1", 2) == [200] * 2
        old = nginx.upgrade()
        new = nginx.master_pid()
        os.kill(old, signal.SIGWINCH)
        nginx.until(lambda: not nginx.worker_pids(old))
        assert statuses(nginx, "/?k=1", 1) == [200]
        os.kill(old, signal.SIGHUP)
        nginx.until(lambda: len(nginx.worker_pids(old)) == 1)
        nginx.end(new, signal.SIGQUIT)
        nginx.until(lambda: nginx.said_pid() == old)
        assert statuses(nginx, "/?k=1", 2) == [200, 503]
        nginx.reload()
        assert statuses(nginx, "/?k=1", 1) == [503] and len(nginx.names()) == 1


def test_limits_hold_over_an_upgrade_under_load():
    rate, burst = 100, 50
    zone = f"weir_limit_req_zone $arg_k zone=one:1m rate={rate}r/s;"
    with daemon(zone, f"weir_limit_req zone=one burst={burst} nodelay;", workers=2) as nginx:
        begin = time.monotonic()
        load = Load(nginx.port, "/?k=1", clients=4, rate=100)
        time.sleep(0.5)  # load in between
        for _ in range(2):
            old = nginx.upgrade()
            time.sleep(0.5)
            nginx.end(old, signal.SIGQUIT)
        counts = load.stop()
        check_admitted(load, begin, rate, burst, 0.97)
        # nginx closes idle connections of old workers: a request that is just coming finds its connection closed.
        assert counts["error"] <= 4 * 2, counts


def test_zones_that_the_new_binary_has_not_limit_in_the_old_workers():
    with daemon(ONE + ZONE.format("two"), FOUR + "location /two { weir_limit_req zone=two; }") as nginx:
        assert statuses(nginx, "/two?k=1", 2) == [404, 503]
        nginx.write(http(ONE, FOUR))
        old = nginx.upgrade()
        new = nginx.master_pid()
        os.kill(new, signal.SIGWINCH)
        nginx.until(lambda: not nginx.worker_pids(new))
        assert statuses(nginx, "/two?k=1", 1) + statuses(nginx, "/two?k=2", 2) == [503, 404, 503]
        nginx.end(old, signal.SIGQUIT)


def test_an_upgrade_with_other_settings_begins_anew_where_they_do_not_fit():
    with daemon() as nginx:
        assert statuses(nginx, "/?k=1", 5) == [200] * 4 + [503]
        nginx.write(http(BIG, FOUR))
        old = nginx.upgrade()
        assert lines(nginx, r"\[notice\].* weir: limits begin anew, as the other nginx's weir does not fit: .*too small")
        assert len(nginx.names()) == 2
        nginx.end(old, signal.SIGQUIT)
        assert len(nginx.names()) == 1 and nginx.names() == nginx.names_of(nginx.master_pid())
        assert statuses(nginx, "/?k=1", 5) == [200] * 4 + [503]
        # A smaller table than there is fits, and so do more workers.
        nginx.workers = 3
        nginx.write(http(ONE, FOUR))
        nginx.end(nginx.upgrade(), signal.SIGQUIT)
        assert statuses(nginx, "/?k=1", 1) == [503] and len(nginx.names()) == 1
        # Another Redis.
        nginx.write(http("weir_redis redis://127.0.0.1:1;" + ONE, FOUR))
        nginx.end(nginx.upgrade(), signal.SIGQUIT)
        assert lines(nginx, r"weir does not fit: .*redis_url")
        assert statuses(nginx, "/?k=1", 5) == [200] * 4 + [503] and len(nginx.names()) == 1


def test_a_new_binary_that_does_not_start_takes_nothing_away():
    with daemon() as nginx:
        assert statuses(nginx, "/?k=1", 4) == [200] * 4
        names = nginx.names()
        for zones in (ONE, BIG):  # with the weir of the old one, and with another
            nginx.write(http(zones, NOWHERE))
            os.kill(nginx.master_pid(), signal.SIGUSR2)
            nginx.until(lambda: lines(nginx, r"process \d+ exited with code 1"))
            assert lines(nginx, CANNOT_BIND)
            nginx.until(nginx.said_pid)  # the old master has its own again
            assert nginx.names() == names
            nginx.log_path.write_text("")
        nginx.write(http(ONE, FOUR))
        nginx.end(nginx.upgrade(), signal.SIGQUIT)
        assert statuses(nginx, "/?k=1", 1) == [503]


def start_in_vain(nginx):
    """A start that fails when it has the weir already."""
    before = (nginx.dir / "nginx.conf").read_text()
    nginx.write(http(ONE, NOWHERE).replace("{port}", str(gateway_demo.free_port(socket.SOCK_STREAM))))
    done = subprocess.run(nginx.command(), capture_output=True, text=True, timeout=60, env=nginx.environment)
    assert done.returncode != 0 and re.search(CANNOT_BIND, done.stderr), done.stderr
    (nginx.dir / "nginx.conf").write_text(before)


def test_a_second_start_takes_nothing_from_the_first():
    with daemon() as nginx:
        assert statuses(nginx, "/?k=1", 4) == [200] * 4
        names = nginx.names()
        start_in_vain(nginx)
        assert nginx.names() == names and nginx.test()[0] and nginx.names() == names
        nginx.end(nginx.upgrade(), signal.SIGQUIT)
        assert statuses(nginx, "/?k=1", 1) == [503] and nginx.names() == names


def test_two_nginx_with_one_pid_file_do_not_share_limits():
    with daemon() as first, daemon(start=False) as second:
        assert statuses(first, "/?k=1", 5) == [200] * 4 + [503]
        master, names = first.master_pid(), first.names()
        try:
            second.pid_path = first.pid_path
            second.write(http(ZONE.format("other"), FOUR.replace("=one", "=other")))
            second.start()
            assert second.master_pid() != master and len(first.names()) == 2
            assert statuses(second, "/?k=1", 5) == [200] * 4 + [503] and statuses(first, "/?k=1", 1) == [503]
            second.end(second.master_pid(), signal.SIGTERM)
            assert first.names() == names and statuses(first, "/?k=1", 1) == [503]
        finally:
            first.end(master, signal.SIGTERM)


def test_a_stop_a_quit_and_a_failed_start_leave_nothing():
    for background in (False, True):
        for main in ("", "master_process off;"):
            for sent in (signal.SIGTERM, signal.SIGQUIT):
                nginx = Nginx(ONE, FOUR, daemon=background, main=main, start=False)
                if main:
                    nginx.worker_pids = lambda nginx=nginx: {nginx.said_pid()} - {None}
                with nginx:
                    nginx.start()
                    assert len(nginx.names()) == 1
                    nginx.end(nginx.master_pid(), sent)
                    assert not nginx.names(), (background, main, sent)
                    if not main:
                        start_in_vain(nginx)
                        assert not nginx.names()


def test_reloads_to_other_settings_leave_nothing():
    with daemon() as nginx:
        for n in range(3):
            nginx.reload(http(f"weir_redis redis://127.0.0.1:1 prefix=p{n}; " + ONE, FOUR))
            assert len(nginx.names()) == 1 and nginx.names() == nginx.names_of(nginx.master_pid())
        nginx.reload(http("", ""))
        assert not nginx.names()
        nginx.reload(http(ONE, FOUR))
        assert len(nginx.names()) == 1


def test_a_start_goes_on_where_all_of_nginx_was_killed():
    for background in (False, True):
        with Nginx(ONE, FOUR, workers=2, daemon=background, level="notice") as nginx:
            assert statuses(nginx, "/?k=1", 5) == [200] * 4 + [503]
            names = nginx.names()
            kill_all(nginx)
            assert nginx.names() == names
            start_in_vain(nginx)
            assert nginx.names() == names, "the start after this one may go on"
            nginx.start()
            assert lines(nginx, r"\[notice\].* weir: goes on with the limits of an nginx that was killed")
            assert statuses(nginx, "/?k=1", 1) == [503] and nginx.names() == names
            kill_all(nginx)
            nginx.write(http("weir_redis redis://127.0.0.1:1; " + ONE, FOUR))
            nginx.start()
            assert statuses(nginx, "/?k=1", 5) == [200] * 4 + [503]
            assert len(nginx.names()) == 1 and nginx.names() == nginx.names_of(nginx.master_pid())


def test_nginx_starts_where_no_name_is_to_be_had():
    with contextlib.ExitStack() as stack:
        nginx = stack.enter_context(daemon())
        name, = nginx.names()
        nginx.end(nginx.master_pid(), signal.SIGTERM)
        for number in range(16):
            path = pathlib.Path("/dev/shm", name.rpartition("-")[0] + f"-{number}")
            path.mkdir()
            stack.callback(path.rmdir)
        prefix, nginx.prefix = nginx.prefix, None
        nginx.start()
        assert lines(nginx, r"\[warn\].* weir: limits will begin anew with an upgrade of nginx: .* are taken")
        assert nginx.prefix is None and prefix
        assert statuses(nginx, "/?k=1", 5) == [200] * 4 + [503]
        nginx.reload()
        assert statuses(nginx, "/?k=1", 1) == [503]
        nginx.end(nginx.upgrade(), signal.SIGQUIT)
        assert statuses(nginx, "/?k=1", 5) == [200] * 4 + [503]


def test_nginx_starts_where_dev_shm_is_too_small():
    # 4 MiB have no room for the table, 14 MiB none for what workers need later, and 40 MiB have room.
    for size, fits in ((4, False), (14, False), (40, True)):
        nginx = daemon(start=False)
        in_namespace = ["unshare", "-m", "sh", "-c", f'mount -t tmpfs -o size={size}m tmpfs /dev/shm && exec "$@"', "sh"]
        nginx.command = lambda *more, nginx=nginx, first=in_namespace: first + Nginx.command(nginx, *more)
        with nginx:
            if os.geteuid() != 0 or subprocess.run([*in_namespace, "true"], capture_output=True).returncode != 0:
                raise Skipped("it takes a namespace for mounts")
            nginx.start()
            assert len(lines(nginx, r"\[warn\].* weir: .*there is no room in /dev/shm")) == (not fits), nginx.log()
            assert statuses(nginx, "/?k=1", 5) == [200] * 4 + [503]
            nginx.prefix = None  # the namespace's end takes it away


def stop_workers(nginx, stack, generations):
    """Reloads so often. All workers before the last reload are stopped: they do not end, and keep their places."""
    stopped = set()
    for _ in range(generations):
        old = nginx.worker_pids()
        for pid in old:
            os.kill(pid, signal.SIGSTOP)
            stack.callback(end_stopped, pid)
        stopped |= old
        os.kill(nginx.master_pid(), signal.SIGHUP)
        nginx.until(lambda: len(nginx.worker_pids() - stopped) == nginx.workers)


def test_the_youngest_workers_limit_however_many_old_ones_still_serve():
    for workers, generations in ((15, 6), (30, 3)):
        with daemon(workers=workers) as nginx, contextlib.ExitStack() as stack:
            assert statuses(nginx, "/?k=1", 5) == [200] * 4 + [503]
            stop_workers(nginx, stack, generations)
            assert statuses(nginx, "/?k=1", 60) == [503] * 60
            assert not lines(nginx, r"\[alert\]"), nginx.log()
            assert len(nginx.names()) == 1
            # The places of the killed are free again, and those of reloads that end well are free at once.
            stack.close()
            for _ in range(3):
                nginx.reload()
            assert statuses(nginx, "/?k=1", 5) == [503] * 5


def metric(nginx, name):
    found = re.search(rf"^{name} (\d+)$", nginx.get("/status?format=prometheus").body, re.MULTILINE)
    return int(found[1])


def test_workers_that_find_no_place_count_what_passes_until_there_is_one():
    server = "weir_limit_req_status 429; location / { weir_limit_req zone=one burst=3 nodelay; } location = /status { weir_status; }"
    with daemon(ONE, server) as nginx:
        assert statuses(nginx, "/?k=1", 5) == [200] * 4 + [429]
        name, = nginx.names()
        crowd = subprocess.Popen([BUILD + "/tests/nginx-crowd", "/" + name, name.split("-")[-2]], stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, text=True)
        try:
            assert crowd.stdout.readline() == "full\n"
            begin = time.monotonic()
            places = 0
            # The crowd takes the place of the old worker, unless the new one is faster.
            while places != 1024 or nginx.get("/?k=1").status != 200:
                nginx.reload()
                places = nginx.until(lambda: metric(nginx, "weir_processes") == 1024 and 1024)
            before = metric(nginx, "weir_unlimited_requests_total")
            assert statuses(nginx, "/?k=1", 30) == [200] * 30
            assert metric(nginx, "weir_unlimited_requests_total") == before + 30
            assert nginx.get("/status?format=json").status == nginx.get("/status?format=table").status == 200
            told = lines(nginx, r"\[alert\].* weir: this worker does not limit: all 1,024 places are taken, .*; \d+ requests")
            assert 1 <= len(told) <= len(lines(nginx, "start worker process ")) + (time.monotonic() - begin) // 60, told
        finally:
            crowd.stdin.close()
            crowd.stdout.close()
            crowd.wait(60)
        nginx.until(lambda: statuses(nginx, "/?k=1", 40) == [429] * 40)
        assert lines(nginx, r"\[notice\].* weir: this worker limits again; \d+ requests had passed without a limit")
        # One after the other, the places of the killed ones are free, too.
        nginx.until(lambda: metric(nginx, "weir_processes") <= 4)


def end_stopped(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    run(dict(globals()))
