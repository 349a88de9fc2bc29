#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Bytes that change in the memory of an nginx that runs: damage_test.py BUILD_DIRECTORY SOURCE_DIRECTORY [TEST...]. Prints TAP.

The workers may write all of it, and the master, which is root, reads some of it at each reload. WEIR_TEST_SEED and WEIR_DRAWS
are as in tests in C.

Guards: src/limiter/shared_policies.c, src/limiter/configured_policies.c, src/limiter/set_policies.c, src/policy/policy_set.c,
src/policy/rate_list.c, src/thread/rcu.c, src/thread/thread.c, src/process/robust_mutex.c
"""
import contextlib
import os
import pathlib
import random
import signal
import tempfile
import time

from nginx_support import Nginx, alive, lines, run

SEED = int(os.environ.get("WEIR_TEST_SEED", random.randrange(1 << 32)))
ROUNDS = max(1, 8 * int(os.environ.get("WEIR_DRAWS", "100")) // 100)
PAGE = 4096
POLICIES = """
policies:
  - name: few
    limits: [{algorithm: fixed_window, limit: 3, period: 365d}]
    tiers:
      - name: pro
        limits: [{algorithm: sliding_window, limit: 8, period: 365d}, {algorithm: token_bucket, limit: 5, period: 1m}]
  - name: log
    limits: [{algorithm: sliding_log, limit: 5, period: 1h}]
overrides:
  "few:partner": 6
"""
SERVER = "location /few { weir few $arg_k; } location /log { weir log $arg_k; } location /zone { weir_limit_req zone=one; }"


@contextlib.contextmanager
def used():
    """An nginx whose weir was used, and a descriptor of its memory: the name may be another memory's later."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(POLICIES)
        file.flush()
        zone = f"weir_policies {file.name}; weir_limit_req_zone $arg_k zone=one:1m rate=1r/m;"
        with Nginx(zone, SERVER, workers=2) as nginx:
            for path in ("few", "log", "zone"):
                for key in range(20):
                    nginx.get(f"/{path}?k={key % 7}")
            nginx.reload()  # the master has joined
            name, = nginx.names_of(nginx.master_pid())
            with open(pathlib.Path("/dev/shm", name), "r+b", buffering=0) as memory:
                yield nginx, memory.fileno()


def pieces(fd):
    """What there is of the memory, and no holes."""
    found, at = [], 0
    with contextlib.suppress(OSError):  # there is nothing behind
        while True:
            at = os.lseek(fd, at, os.SEEK_DATA)
            end = os.lseek(fd, at, os.SEEK_HOLE)
            found.append((at, end))
            at = end
    return found


def scribble(rng, fd, how):
    """Changes drawn bits, words or pages, of each piece as many, or all there is."""
    there = pieces(fd)
    if how == "all":
        for begin, end in there:
            os.pwrite(fd, rng.randbytes(end - begin), begin)
    for _ in range({"bits": 400, "words": 200, "pages": 12, "all": 0}[how]):
        begin, end = rng.choice(there)
        at = rng.randrange(begin, end)
        if how == "bits":
            os.pwrite(fd, bytes([os.pread(fd, 1, at)[0] ^ 1 << rng.randrange(8)]), at)
        elif how == "words":
            word = rng.choice([0, 1, 2, 3, 0xffffffff, 1 << 63, (1 << 64) - 1, rng.getrandbits(64)])
            os.pwrite(fd, word.to_bytes(8, "little"), at // 8 * 8)
        else:
            os.pwrite(fd, rng.randbytes(PAGE), at // PAGE * PAGE)


def reload(nginx, master):
    """Reloads. The settings may be refused, as the policies cannot be read any more; the master goes on in any case."""
    workers, refused = nginx.worker_pids(), len(lines(nginx, r"\[emerg\]"))
    os.kill(master, signal.SIGHUP)
    nginx.until(lambda: not alive(master) or len(lines(nginx, r"\[emerg\]")) > refused or nginx.worker_pids() - workers)
    time.sleep(0.1)
    assert alive(master) and nginx.master_pid() == master, nginx.log()[-3000:]


def test_the_master_outlives_a_reload_whatever_was_written_to_its_memory():
    print(f"# seed: WEIR_TEST_SEED={SEED}")
    rng = random.Random(SEED)
    for number in range(ROUNDS):
        how = ["bits", "words", "pages", "all"][number % 4]
        with used() as (nginx, fd):
            master = nginx.master_pid()
            scribble(rng, fd, how)
            reload(nginx, master)
            scribble(rng, fd, how)
            reload(nginx, master)


if __name__ == "__main__":
    run(globals())
