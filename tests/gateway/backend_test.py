#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
The gateway and its backend, on loopback: backend_test.py BUILD_DIRECTORY SOURCE_DIRECTORY [TEST...]. Prints TAP.

Guards: apps/gateway/backends/health.c, apps/gateway/worker.c, apps/gateway/outbox.c, apps/gateway/run.c
"""
import re
import socket

from support import Fixture, POLICIES, run


def backend_at(port, address="127.0.0.1"):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind((address, port))
    s.settimeout(20)
    return s


def refusals(f):
    log = f.log.read_text()
    return len(re.findall("backend 127.0.0.1:[0-9]+ is down: it refuses packets: Connection refused\n", log)), log.count(" is up: it ")


def metric(f, name):
    return int(re.search(rf'^{name}{{backend="127.0.0.1:{f.backend_port}"}} (\d+)$', f.get("/metrics"), re.M)[1])


def check_a_dead_backend(replies):
    with Fixture(policies=POLICIES.format(100000)) as f:
        f.end_backend()
        client = f.client()
        assert f.status()["backend"] == "ok" and f.status()["refused"] == 0 and refusals(f) == (0, 0)
        client.send(b"?")
        f.until(lambda: f.status()["backend"] == "refuses")
        for n in range(20):  # each refusal is read before the next packet is sent
            client.send(b"?")
            f.until(lambda: f.status()["refused"] >= n + 2)
        status = f.status()
        assert status["refused"] == status["offered"] == status["passed"] == 21, status
        f.until(lambda: refusals(f) == (1, 0))  # the line comes after the state
        assert metric(f, "weir_gateway_backend_refused_packets_total") == 21 and metric(f, "weir_gateway_backend_up") == 0
        backend = backend_at(f.backend_port)

        def serves():
            client.send(b"?")
            data, home = backend.recvfrom(100)
            if replies:
                backend.sendto(data, home)
            return f.status()["backend"] == "ok"
        f.until(serves)
        f.until(lambda: refusals(f) == (1, 1))
        assert metric(f, "weir_gateway_backend_up") == 1
        assert f.status()["refused"] == 21, f.status()
        backend.close()
        client.send(b"?")
        f.until(lambda: f.status()["backend"] == "refuses" and refusals(f) == (2, 1))


def test_a_backend_that_refuses_is_told_of_once_and_is_back_with_its_first_reply():
    check_a_dead_backend(True)


def test_a_backend_that_never_replies_is_back_when_it_refuses_no_more():
    check_a_dead_backend(False)


def test_refusals_among_many_packets_are_told_of():
    with Fixture(policies=POLICIES.format(100000)) as f:
        f.end_backend()
        f.send(2, "many,8,4000")
        status = f.status()
        assert status["backend"] == "refuses" and 0 < status["refused"] <= status["offered"], status
        f.until(lambda: refusals(f) == (1, 0))


if __name__ == "__main__":
    run(globals())
