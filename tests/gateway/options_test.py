#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
The gateway's command line, on loopback: options_test.py BUILD_DIRECTORY SOURCE_DIRECTORY [TEST...]. Prints TAP.

Guards: apps/gateway/options.c, apps/gateway/address.c, apps/gateway/secret.c, apps/gateway/main.c
"""
import os
import pathlib
import signal
import subprocess
import sys

from support import ask, Fixture, gateway_demo, Redis, run


def start(f, *options, **environment):
    return subprocess.run([str(f.demo.bin / "weir-gateway"), *map(str, options)], capture_output=True, text=True, timeout=20,
                          env={**os.environ, **environment})


def test_wrong_options_are_refused_by_name():
    with Fixture() as f:
        both = ("--listen", "127.0.0.1:1", "--backend", "127.0.0.1:2")
        policies = (*both, "--policies", f.path)
        secret = f.demo.dir / "secret"
        secret.write_text("word\n")
        empty = f.demo.dir / "empty"
        empty.write_text("\n")
        for options, code, says in ((("--listen", "nowhere", "--backend", "127.0.0.1:1"), 2, "--listen nowhere: is no address"),
                                    (("--listen", "::1:7", "--backend", "127.0.0.1:1"), 2, "--listen ::1:7: is no address"),
                                    (("--listen", "[::1:7", "--backend", "127.0.0.1:1"), 2, "--listen [::1:7: is no address"),
                                    (("--listen", "127.0.0.1:0", "--backend", "127.0.0.1:1"), 2, "is no address"),
                                    (("--listen", "127.0.0.1:70000", "--backend", "127.0.0.1:1"), 2, "is no address"),
                                    (("--listen", ":1", "--backend", "name.invalid:2"), 1, "--backend name.invalid:2: "),
                                    (("--listen", ":1", "--backend", ":1"), 2, "--backend :1: is the address it listens on"),
                                    (("--listen", "127.0.0.1:1"), 2, "--backend"),
                                    ((*both, "--threads", "0"), 2, "--threads 0"),
                                    ((*both, "--max-keys", "999"), 2, "--max-keys 999"),
                                    ((*both, "--idle", "0"), 2, "--idle 0"),
                                    ((*both, "--policies", "/nonexistent"), 1, "/nonexistent"),
                                    ((*policies, "--redis", "x"), 2, "--redis: there is no scheme"),
                                    ((*policies, "--redis", "redis://h/x"), 2, "--redis: the database"),
                                    ((*policies, "--redis-prefix", "x" * 40, "--redis", "redis://127.0.0.1:1"), 2, "prefix"),
                                    ((*both, "--redis", "redis://:word@127.0.0.1"), 2, "--redis: there are no limits"),
                                    ((*policies, "--redis-password-file", secret), 2, "there is no Redis"),
                                    ((*policies, "--redis", "redis://u:word@h", "--redis-password-file", secret), 2, "of its own"),
                                    ((*policies, "--redis", "redis://h", "--redis-password-file", empty), 1, "is empty"),
                                    ((*policies, "--redis", "redis://h", "--redis-password-file", "/none"), 1, "/none: No such"),
                                    ((*policies, "--fleet-secret-file", empty), 1, "is empty"),
                                    ((*policies, "--fleet-secret-file", secret), 2, "fleet_secret has too few bytes"),
                                    ((*both, "--metrics", "192.0.2.1:9"), 1, "--metrics 192.0.2.1:9: Cannot assign"),
                                    (("--listen", "192.0.2.1:9", "--backend", ":2"), 1, "--listen 192.0.2.1:9: Cannot assign")):
            result = start(f, *options)
            assert result.returncode == code and says in result.stderr, (options, result)
            assert "offered" not in result.stderr and "word" not in result.stderr.replace("password", ""), (options, result)
        result = start(f, *policies, WEIR_REDIS_URL="redis://:word@h/x")
        assert result.returncode == 2 and "WEIR_REDIS_URL: the database" in result.stderr, result
        for option in ("-h", "--help"):
            result = start(f, option)
            assert result.returncode == 0 and "--max-keys" in result.stdout and result.stderr == "", result


def test_a_file_is_checked_with_the_kinds_that_it_is_for():
    with Fixture() as f:
        kinds = f.demo.dir / "kinds.yaml"
        kinds.write_text("kinds:\n  - {name: initial, match: \"c.\", cost: 7}\n")
        result = start(f, "--check", f.path, "--kinds", kinds)
        assert (result.returncode, result.stderr) == (0, "") and "kind initial: costs 7\n" in result.stdout, result
        result = start(f, "--check", f.path, "--kinds", "/none")
        assert (result.returncode, result.stdout) == (2, "") and "/none" in result.stderr, result
        result = start(f, "--check", "/none")
        assert (result.returncode, result.stdout) == (2, "") and "/none" in result.stderr, result
        result = start(f, "--check", f.path, "more")
        assert result.returncode == 2 and "a word too many" in result.stderr, result


def test_names_are_looked_up():
    with Fixture(listen="localhost") as f:
        assert ask(f.client(to="127.0.0.1")) == b"?"
    with Fixture() as f:
        port, metrics = gateway_demo.free_port(2), gateway_demo.free_port(1)
        f.demo.start(f.demo.bin / "weir-gateway", "--listen", f"127.0.0.1:{port}", "--backend", f"localhost:{f.backend_port}",
                     "--metrics", f"localhost:{metrics}", stderr=subprocess.DEVNULL)
        f.until(lambda: gateway_demo.status(metrics))
        f.port = port
        assert ask(f.client()) == b"?"


def test_a_client_is_forgotten_after_so_many_silent_seconds():
    with Fixture("--idle", 1) as f:
        assert ask(f.client()) == b"?"
        f.until(lambda: f.status()["sessions"] == 0)
        assert f.status()["evicted_sessions"] == 0
    with Fixture("--max-keys", 5000) as f:
        capacity = int(next(line for line in f.get("/metrics").splitlines() if line.startswith("weir_key_capacity ")).split()[1])
        assert 5000 <= capacity < 20000, capacity


def check_secret(f, *words):
    """It is in Redis, and its password nowhere to be seen."""
    f.until(lambda: f.status()["redis"] == "up")
    seen = f.get("/status") + f.get("/metrics") + pathlib.Path(f"/proc/{f.child.pid}/cmdline").read_text()
    f.child.send_signal(signal.SIGTERM)
    assert f.child.wait(20) == 0
    seen += f.log.read_text()
    for word in (Redis.PASSWORD, *words):
        assert word not in seen, (word, seen)


def test_the_password_of_redis_is_in_a_file_or_in_the_environment():
    with Redis() as redis:
        encoded = "".join(c if c.isalnum() else f"%{ord(c):02x}" for c in redis.PASSWORD)
        secret = redis.demo.dir / "secret"
        for line, user in ((redis.PASSWORD, ""), (redis.PASSWORD + "\n", "weir@"), (redis.PASSWORD + "\r\nmore\n", "weir:@"),
                           (redis.PASSWORD, "@")):
            secret.write_text(line)
            with Fixture("--redis", f"unix://{user}{redis.socket}", "--redis-password-file", secret) as f:
                check_secret(f, encoded)
        os.environ["WEIR_REDIS_URL"] = f"unix://:{encoded}@{redis.socket}"
        try:
            with Fixture() as f:
                check_secret(f, encoded)
            os.environ["WEIR_REDIS_URL"] = f"unix://{redis.socket}"
            secret.write_text(redis.PASSWORD)
            with Fixture("--redis-password-file", secret) as f:
                check_secret(f, encoded)
            # The command line goes before the environment; its password is overwritten there.
            os.environ["WEIR_REDIS_URL"] = "unix:///nowhere"
            with Fixture("--redis", f"unix://weir:{encoded}@{redis.socket}") as f:
                check_secret(f, encoded)
        finally:
            del os.environ["WEIR_REDIS_URL"]


if __name__ == "__main__":
    run(globals())
