#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
How subcommands reach Redis: by Sentinels, by TLS and in a Cluster. link_test.py WEIR_PROGRAM [TEST...]. Prints TAP.

Guards: apps/weir/redis_link.c, apps/weir/redis_connection.c, src/transport/redis/url.c
"""
import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

from command_support import file, need, run, Skipped, weir
from node_support import Node
from redis_support import Fake, free_port, Redis, Sentinel, SERVER

POLICIES = """policies:
  - name: api
    limits: [{algorithm: fixed_window, limit: 100, period: 1d}]
"""
HAS_TLS = os.environ.get("HAS_TLS") == "true"
HAS_TOP = os.environ.get("HAS_TOP") == "true"


def subcommands(url, path):
    """Each subcommand that takes --redis, as words."""
    yield ("override", "set", "--redis", url, "api:x", "50")
    yield ("override", "list", "--policies", path, "--redis", url)
    yield ("override", "log", "--redis", url)
    yield ("override", "rm", "--redis", url, "api:x")
    yield ("explain", "--policies", path, "--redis", url, "api", "x")
    yield ("reset", "--policies", path, "--redis", url, "api", "x")
    yield ("doctor", "--policies", path, "--redis", url)
    if HAS_TOP:
        yield ("top", "--once", "--redis", url)


def all_answer(url):
    """Each subcommand, with a node that reaches Redis by the same URL."""
    path = file("policies.yaml", POLICIES)

    class Way:
        pass

    way = Way()
    way.url = url
    with Node(way, path) as node:
        node.charge("api", "x", 7)
        node.sync()
        assert "93 left of 100" in weir("explain", "--policies", path, "--redis", url, "api", "x")[0]
        for words in subcommands(url, path):
            weir(*words)
        node.sync()
        assert "100 left of 100" in weir("explain", "--policies", path, "--redis", url, "api", "x")[0]


def all_fail(url, says, code=3):
    """Each subcommand says this, and shows no password."""
    path = file("policies.yaml", POLICIES)
    for words in subcommands(url, path):
        fault = weir(*words, code=code)[1]
        assert says in fault and "s3cret" not in fault, (words, fault)


def closed_port():
    return free_port()


def test_sentinels_name_the_primary():
    with Redis() as redis, Sentinel(redis) as sentinel:
        all_answer(f"redis+sentinel://127.0.0.1:{sentinel.port}/main")
        # A Sentinel that is not there is passed over, and one that names a replica.
        with Redis("--replicaof", "127.0.0.1", str(redis.port)) as replica:
            named = b"*2\r\n$9\r\n127.0.0.1\r\n$5\r\n%d\r\n" % replica.port
            with Fake(named) as stale:
                all_answer(f"redis+sentinel://127.0.0.1:{closed_port()},127.0.0.1:{stale.port},127.0.0.1:{sentinel.port}/main/2")
                all_fail(f"redis+sentinel://127.0.0.1:{stale.port}/main",
                         f"Redis at 127.0.0.1:{replica.port}: is a replica, not a primary")
        all_fail(f"redis+sentinel://127.0.0.1:{sentinel.port}/other",
                 f'the Sentinel at 127.0.0.1:{sentinel.port}: knows no primary named "other"')
        all_fail("redis+sentinel://127.0.0.1:1/main", "the Sentinel at 127.0.0.1:1: Connection refused")
        all_fail("redis+sentinel://:s3cret@127.0.0.1:1", "the name of the primary is missing", code=2)
    all_fail(f"redis+sentinel://127.0.0.1:{sentinel.port}/main", "Connection refused")


def test_sentinels_have_users_of_their_own():
    with Redis("--requirepass", "s3cret") as redis, Sentinel(redis, "--requirepass", "s3cret2") as sentinel:
        host = f"127.0.0.1:{sentinel.port}/main"
        all_answer(f"redis+sentinel://:s3cret@{host}?sentinel_password=s3cret2")
        all_fail(f"redis+sentinel://:s3cret@{host}", f"the Sentinel at 127.0.0.1:{sentinel.port}: NOAUTH")
        fault = weir("override", "list", "--redis", f"redis+sentinel://{host}?sentinel_password=s3cret2", code=3)[1]
        assert fault.startswith(f"Redis at 127.0.0.1:{redis.port}: NOAUTH"), fault
        all_fail(f"redis+sentinel://:wrong@{host}?sentinel_password=s3cret2", f"Redis at 127.0.0.1:{redis.port}: WRONGPASS")


def test_replicas_among_the_hosts_are_passed_over():
    with Redis() as redis, Redis("--replicaof", "127.0.0.1", str(redis.port)) as replica:
        all_answer(f"redis://127.0.0.1:{closed_port()},127.0.0.1:{replica.port},127.0.0.1:{redis.port}")
        all_fail(f"redis://127.0.0.1:{replica.port},127.0.0.1:1", "Redis at 127.0.0.1:1: Connection refused")


def certificates(place):
    """An authority, another one, and certificates of a server and a client by the first."""
    subprocess.run(["sh", "-ec", """
        for name in ca other; do
            openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=$name -keyout $name.key -out $name.pem
        done
        printf 'subjectAltName=IP:127.0.0.1,DNS:redis.example\\n' >names
        for name in server client; do
            openssl req -newkey rsa:2048 -nodes -subj /CN=$name -keyout $name.key -out $name.csr
            openssl x509 -req -days 2 -in $name.csr -CA ca.pem -CAkey ca.key -CAcreateserial -extfile names -out $name.pem
        done"""], cwd=place, check=True, capture_output=True, timeout=60)


@contextlib.contextmanager
def tls_redis(*options):
    """A server with TLS on its port and none on its unix socket, and the place of the certificates."""
    need(shutil.which("openssl") is not None, "there is no openssl")
    tried = subprocess.run([SERVER, "--tls-port", "0", "--port", "0", "--bogus", "1"], capture_output=True, text=True, timeout=60, check=False)
    if "tls-port" in tried.stdout + tried.stderr:
        raise Skipped("this redis-server has no TLS")
    with tempfile.TemporaryDirectory(prefix="weir-command-tls-") as place:
        certificates(place)
        port = free_port()
        with Redis("--tls-port", str(port), "--tls-cert-file", f"{place}/server.pem", "--tls-key-file", f"{place}/server.key",
                   "--tls-ca-cert-file", f"{place}/ca.pem", "--tls-auth-clients", "no", *options) as redis:
            redis.tls_port = port
            yield redis, pathlib.Path(place)


def test_tls_is_the_librarys():
    if not HAS_TLS:
        all_fail("rediss://:s3cret@127.0.0.1:1", "its hiredis_ssl, and OpenSSL", code=2)
        all_fail("rediss+sentinel://:s3cret@127.0.0.1:1/main", "its hiredis_ssl, and OpenSSL", code=2)
        raise Skipped("this build has no TLS: that much was tried")
    with tls_redis() as (redis, place):
        url = f"rediss://127.0.0.1:{redis.tls_port}"
        all_answer(f"{url}?ca={place}/ca.pem")
        all_answer(f"{url}?ca={place}/ca.pem&servername=redis.example")
        all_answer(f"{url}/3?ca={place}/ca.pem")
        all_answer(f"rediss://127.0.0.1:{closed_port()},127.0.0.1:{redis.tls_port}?ca={place}/ca.pem")
        all_fail(f"{url}?ca={place}/other.pem", f"Redis at 127.0.0.1:{redis.tls_port}: ")
        fault = weir("override", "list", "--redis", url, code=3)[1]
        assert "certificate" in fault, fault
        assert "mismatch" in weir("override", "list", "--redis", f"{url}?ca={place}/ca.pem&servername=other.example", code=3)[1]
        all_fail(f"{url}?ca={place}/nowhere.pem", "nowhere.pem", code=2)
        plain = f"rediss://127.0.0.1:{redis.port}?ca={place}/ca.pem"  # a port without TLS
        assert f"Redis at 127.0.0.1:{redis.port}: " in weir("override", "list", "--redis", plain, code=3)[1]


def test_a_server_may_ask_for_a_certificate_of_the_client():
    if not HAS_TLS:
        raise Skipped("this build has no TLS")
    with tls_redis("--tls-auth-clients", "yes") as (redis, place):
        url = f"rediss://127.0.0.1:{redis.tls_port}?ca={place}/ca.pem"
        all_answer(f"{url}&cert={place}/client.pem&key={place}/client.key")
        all_fail(url, f"Redis at 127.0.0.1:{redis.tls_port}: ")


if __name__ == "__main__":
    run(globals())
