#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
How subcommands reach Redis by TLS: tls_test.py WEIR_PROGRAM [TEST...]. Prints TAP.

Guards: apps/weir/redis_connection.c, apps/weir/redis_link.c, src/transport/redis/tls.c
"""
import contextlib
import os
import pathlib
import shutil
import subprocess
import tempfile

from command_support import need, run, Skipped, weir
from link_support import all_answer, all_fail
from redis_support import free_port, Redis, SERVER

HAS_TLS = os.environ.get("HAS_TLS") == "true"


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
        all_answer(f"rediss://127.0.0.1:{free_port()},127.0.0.1:{redis.tls_port}?ca={place}/ca.pem")
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
