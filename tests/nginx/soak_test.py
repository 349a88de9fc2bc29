#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Reloads, upgrades and killed workers under load, for two minutes, or WEIR_NGINX_SECONDS:
soak_test.py BUILD_DIRECTORY SOURCE_DIRECTORY [TEST...]. Prints TAP. Runs where it is asked for: scripts/test soak.

Guards: apps/nginx/instance.c, apps/nginx/instance_name.c, apps/nginx/known_policies.c, apps/nginx/poller.c
"""
import collections
import http.client
import os
import pathlib
import random
import signal
import threading
import time

from nginx_support import Nginx, lines, open_files, run

SECONDS = int(os.environ.get("WEIR_NGINX_SECONDS", 120))
ZONES = 5
RATE, BURST = 200, 50
PATIENCE = 60


class Clients:
    """Each asks for the next answer until it has one: a killed worker takes its connections with it."""

    def __init__(self, nginx, paths, pause):
        self.nginx, self.pause, self.stopped = nginx, pause, threading.Event()
        self.counts = {path: collections.Counter() for path in paths}
        self.slowest, self.unanswered, self.begin = 0.0, 0, time.monotonic()
        self.threads = [threading.Thread(target=self.run, args=[path], daemon=True) for path in paths]
        for thread in self.threads:
            thread.start()

    def run(self, path):
        while not self.stopped.is_set():
            begin, status = time.monotonic(), None
            while status is None and time.monotonic() - begin < PATIENCE:
                try:
                    status = self.nginx.get(path).status
                except (OSError, http.client.HTTPException):
                    self.stopped.wait(0.005)
            self.unanswered += status is None
            self.slowest = max(self.slowest, time.monotonic() - begin)
            self.counts[path][status] += 1
            self.stopped.wait(self.pause)

    def stop(self):
        self.stopped.set()
        for thread in self.threads:
            thread.join()
        return time.monotonic() - self.begin


def used(nginx):
    """Descriptors, lines of maps and KiB of the master; KiB of all its workers; KiB and names in /dev/shm."""
    def resident(pid):
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
        return sum(int(line.split()[1]) for line in status.splitlines() if line.startswith(("RssAnon:", "RssFile:")))
    master = nginx.master_pid()
    names = nginx.names()
    return {"descriptors": len(open_files(master)),
            "maps": len(pathlib.Path(f"/proc/{master}/maps").read_text().splitlines()),
            "master": resident(master), "workers": max(resident(pid) for pid in nginx.worker_pids()),
            "segment": sum(pathlib.Path("/dev/shm", name).stat().st_blocks // 2 for name in names), "names": len(names)}


def disturb(nginx, seconds, seed):
    """Every second a reload, or now and then an upgrade; in between a worker is killed."""
    draw, end, n = random.Random(seed), time.monotonic() + seconds, 0
    while time.monotonic() < end:
        begin = time.monotonic()
        n += 1
        if n % 10 == 0:
            nginx.end(nginx.upgrade(), signal.SIGQUIT)
        else:
            nginx.reload()
        os.kill(draw.choice(sorted(nginx.worker_pids())), signal.SIGKILL)
        nginx.until(lambda: len(nginx.worker_pids()) == nginx.workers)
        time.sleep(max(0, 1 - (time.monotonic() - begin)))
    return n


def test_reloads_upgrades_and_killed_workers_under_load():
    zones = "".join(f"weir_limit_req_zone $arg_k zone=z{n}:1m rate=1r/m;" for n in range(ZONES))
    server = "".join(f"location /z{n} {{ try_files /index.html =404; weir_limit_req zone=z{n}; }}" for n in range(ZONES))
    zones += f"weir_limit_req_zone $arg_k zone=busy:1m rate={RATE}r/s;"
    server += f"location = /a.html {{ weir_limit_req zone=busy burst={BURST} nodelay; }}"
    seed = random.randrange(1 << 32)
    print(f"# seed {seed}", flush=True)
    with Nginx(zones, server, workers=3, daemon=True, level="warn") as nginx:
        few = Clients(nginx, [f"/z{n}?k=1" for n in range(ZONES)], 0.2)
        busy = Clients(nginx, [f"/a.html?k=1&client={n}" for n in range(8)], 0.005)
        disturb(nginx, min(20, SECONDS / 4), seed)
        before = used(nginx)
        count = disturb(nginx, SECONDS - min(20, SECONDS / 4), seed + 1)
        nginx.until(lambda: len(nginx.worker_pids()) == nginx.workers)
        after = used(nginx)
        elapsed = few.stop()
        busy_elapsed = busy.stop()
        print(f"# {count} reloads and upgrades; before {before}, after {after}; the slowest answer took "
              f"{max(few.slowest, busy.slowest):.2f} s", flush=True)
        assert few.unanswered + busy.unanswered == 0
        for path, counts in few.counts.items():
            # A request that passes is not counted where its worker is killed before it answers.
            assert 1 <= counts[200] <= 2 + elapsed / 60 and counts[503] > elapsed / 2, (path, counts)
            assert set(counts) <= {200, 503}, (path, counts)
        passed = sum(counts[200] for counts in busy.counts.values())
        most = 1 + BURST + RATE * busy_elapsed
        assert passed <= most, (passed, most)
        assert sum(counts[503] for counts in busy.counts.values()) > 0, "the load is less than the limit"
        assert passed > 0.9 * most, (passed, most)
        assert after["descriptors"] <= before["descriptors"] + 2 and after["maps"] <= before["maps"] + 8, (before, after)
        assert after["master"] <= before["master"] + 4096 and after["workers"] <= before["workers"] + 8192, (before, after)
        assert after["segment"] <= before["segment"] * 1.1 + 1024 and after["names"] == 1, (before, after)
        said = [line for line in lines(nginx, r"\[(alert|emerg|crit)\]") if "exited on signal 9" not in line]
        assert not said, said[:20]


if __name__ == "__main__":
    run(dict(globals()))
