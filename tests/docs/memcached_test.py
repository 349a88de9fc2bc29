#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
The memcached of the distribution with the limits of docs/start/memcached.md, built and loaded:
memcached_test.py BUILD_DIRECTORY SOURCE_DIRECTORY. Prints TAP.

Guards: docs/start/memcached.md, bench/memcached_server.py, bench/memcached.py, src/limiter/weir_open.c
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import time

BUILD, SOURCE = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
sys.path += [str(SOURCE / "bench")]
from memcached_server import NoSource, Server, ask, blocks, build, fetch, page_policies  # noqa: E402

NAMES = {"policies": "policies.yaml", "log": "memcached.log"}


def policies(place, commands=1000000, bytes_=1000000000, name="commands"):
    """Buckets that refill in a day, and next to nothing while the test runs."""
    path = place / NAMES["policies"]
    path.write_text("policies:\n" + "".join(
        f"  - name: {policy}\n    limits: [{{algorithm: token_bucket, limit: {burst}, period: 1d}}]\n"
        for policy, burst in ((name, commands), ("bytes", bytes_))))
    return path


def test_the_policies_of_the_page(program, place):
    path = place / NAMES["policies"]
    path.write_text(page_policies())
    server = Server(program, place / NAMES["log"], policies=path)
    with server.connect() as connection:
        assert ask(connection, b"get key\r\n", 1000) == [b"END"] * 1000
    path.write_text(page_policies().replace("burst: 100000", "burst: 5").replace("limit: 50000, period: 1s", "limit: 5, period: 1d"))
    assert server.stop() == 0
    server = Server(program, place / NAMES["log"], policies=path)
    with server.connect() as connection:
        assert ask(connection, b"get key\r\n", 6) == [b"END"] * 5 + [b"SERVER_ERROR too many requests"]
    assert server.stop() == 0


def test_commands_pass_as_often_as_the_limit_says(program, place):
    server = Server(program, place / NAMES["log"], "-t", "2", policies=policies(place, commands=1000))
    answers = []
    for _ in range(4):  # connections on both threads; each is closed when it is refused
        with server.connect() as connection:
            answers += ask(connection, b"get key\r\n", 400)
    assert answers.count(b"END") == 1000, len(answers)
    assert answers[-1] == b"SERVER_ERROR too many requests", answers[-1]
    assert server.stop() == 0


def test_bytes_are_asked_for_and_charged_when_they_are_sent(program, place):
    server = Server(program, place / NAMES["log"], policies=policies(place, bytes_=500000))
    with server.connect() as connection:
        value = bytes(100000).replace(b"\0", b"x")
        assert ask(connection, b"set key 0 0 100000\r\n" + value + b"\r\n", 1) == [b"STORED"]
        answers = []
        for _ in range(20):
            answers += ask(connection, b"get key\r\n", 1)
            if not answers or answers[-1] != b"END":
                break
    # The last one begins while a byte is left, and is charged whole.
    assert answers == [b"END"] * 5 + [b"SERVER_ERROR too many requests"], answers
    assert server.stop() == 0


def test_behind_daemon_time_goes_on(program, place):
    (place / NAMES["policies"]).write_text("policies:\n  - name: commands\n    limits: [{algorithm: token_bucket, limit: 50, period: 1s, burst: 5}]\n"
                                           "  - name: bytes\n    limits: [{algorithm: token_bucket, limit: 100000000, period: 1s}]\n")
    pid_file = place / "pid"
    server = Server(program, place / NAMES["log"], "-d", "-P", str(pid_file), policies=place / NAMES["policies"])
    assert server.process.wait(60) == 0  # the parent
    passed, end = 0, time.monotonic() + 60
    while passed < 50 and time.monotonic() < end:
        with server.connect() as connection:
            passed += ask(connection, b"get key\r\n", 10).count(b"END")
        time.sleep(0.02)
    os.kill(int(pid_file.read_text()), 15)
    pid_file.unlink(missing_ok=True)
    assert passed >= 50, passed


def test_a_name_misspelt_is_an_error_at_the_start(program, place):
    server = Server(program, place / NAMES["log"], policies=policies(place, name="comands"))
    assert server.process.wait(60) != 0
    log = (place / NAMES["log"]).read_text()
    assert "commands" in log and "comands" in log, log


def test_what_was_counted_is_in_redis_when_it_ends(program, place):
    redis = place / "redis.sock"
    command = ["redis-server", "--port", "0", "--unixsocket", str(redis), "--save", "", "--appendonly", "no"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=place) as keeper:
        try:
            end = time.monotonic() + 60
            while not redis.exists():
                assert time.monotonic() < end
                time.sleep(0.02)
            for number in (1, 2):  # the second one goes on where the first one has ended
                server = Server(program, place / NAMES["log"], policies=policies(place, commands=1000), redis=f"unix://{redis}")
                with server.connect() as connection:
                    answers = ask(connection, b"get key\r\n", 300)
                assert answers == [b"END"] * 300, answers[-1]
                assert server.stop() == 0, (place / NAMES["log"]).read_text()
                out = subprocess.run([BUILD / "apps/weir/weir", "explain", f"--redis=unix://{redis}",
                                      f"--policies={place / NAMES['policies']}", "--keys=addresses", "commands", "127.0.0.1"], capture_output=True, text=True, check=False, timeout=60)
                assert f"{300 * number} short of full" in out.stdout, out.stdout + out.stderr
        finally:
            keeper.terminate()


def main():
    own, inserted = blocks()
    lines = len((own + "".join(inserted)).splitlines())
    try:
        fetch()
    except NoSource as error:
        print(f"1..0 # SKIP no source of memcached here: {str(error).splitlines()[0]}" if "CI" not in os.environ
              else f"1..1\nnot ok 1 - the source of memcached is to be had: {error}")
        return 0
    tests = [value for name, value in globals().items() if name.startswith("test_")]
    print(f"1..{len(tests) + 1}")
    failed = 0
    with tempfile.TemporaryDirectory(prefix="weir-test-") as directory:
        place = pathlib.Path(directory)
        program = build(BUILD, place / "memcached")
        print(f"{'ok' if lines <= 100 else 'not ok'} 1 - it takes {lines} lines in the page")
        for number, test in enumerate(tests, 2):
            try:
                test(program, place)
                print(f"ok {number} - {test.__name__}", flush=True)
            except (AssertionError, OSError, subprocess.TimeoutExpired) as error:
                failed += 1
                print(f"not ok {number} - {test.__name__}: {error}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
