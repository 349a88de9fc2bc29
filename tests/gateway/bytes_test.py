#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
The gateway's limits of bytes, on loopback: bytes_test.py BUILD_DIRECTORY SOURCE_DIRECTORY [TEST...]. Prints TAP.

Guards: apps/gateway/burst.c, apps/gateway/decision.c, apps/gateway/policies.c
"""
import re

from support import Fixture, run

SIZES = (10, 1400, 0, 500, 3000, 100)


def limits(**policies):
    return "policies:\n" + "".join(f"  - name: {name}\n    limits: [{{algorithm: fixed_window, limit: {limit}, period: 30d}}]\n"
                                   for name, limit in policies.items())


def send(f, client, sizes):
    """One after another, each when the gateway has had the one before."""
    offered = f.status()["offered"]
    for n, size in enumerate(sizes, 1):
        client.send(b"x" * size)
        f.until(lambda: f.status()["offered"] == offered + n)
    return f.until(lambda: (s := f.status())["replies"] == s["passed"] and s)


def test_bytes_are_counted():
    with Fixture(policies=limits(overall=1000)) as f:
        status = send(f, f.client(), SIZES)
        assert status["bytes"] == dict.fromkeys(("offered", "passed", "replies"), sum(SIZES)), status
        metrics = dict(re.findall(r"^(weir_gateway_\w+_bytes_total) (\d+)$", f.get("/metrics"), re.M))
        assert metrics == {f"weir_gateway_{name}_bytes_total": str(sum(SIZES)) for name in ("offered", "passed", "reply")}, metrics


def test_a_source_has_so_many_bytes():
    with Fixture(policies=limits(source_bytes=1000), threads=1) as f:
        assert f.log.read_text().count("that limit is off") == 2, f.log.read_text()
        one, other = f.client(source="127.0.0.2"), f.client(source="127.0.0.3")
        # What has no room takes nothing. What has no bytes passes while there are some left.
        status = send(f, one, (600, 500, 300, 0, 101, 100, 1))
        assert status["passed"] == 4 and status["dropped"]["source_bytes"] == 3, status
        assert status["bytes"] == {"offered": 1602, "passed": 1000, "replies": 1000}, status
        assert send(f, other, (1000,))["passed"] == 5
        policy = f.status()["policies"]["source_bytes"]
        assert policy["in_force"] is True and (policy["offered"], policy["passed"], policy["dropped"]) == (8, 5, 3), policy
        assert 'weir_gateway_dropped_packets_total{limit="source_bytes"} 3\n' in f.get("/metrics")


def test_a_packet_that_one_limit_denies_takes_nothing_of_the_others():
    with Fixture(policies=limits(source=6, source_bytes=1000, overall=8, overall_bytes=1500), threads=1) as f:
        assert "limit is off" not in f.log.read_text(), f.log.read_text()
        one, other = f.client(source="127.0.0.2"), f.client(source="127.0.0.3")
        # The second packet has too many bytes, and is none of the source's six packets; the eighth is one too many.
        assert send(f, one, (500, 600, 100, 100, 100, 100, 1, 1))["dropped"] == {
            "source": 1, "source_bytes": 1, "overall": 0, "overall_bytes": 0}
        # 599 bytes and two packets are left of all: the first has no room for its bytes, and the last is one too many.
        assert send(f, other, (700, 200, 10, 1))["dropped"] == {"source": 1, "source_bytes": 1, "overall": 1, "overall_bytes": 1}
        policies = f.status()["policies"]
        # What another policy dropped is offered to that one alone.
        assert {(policy["offered"], policy["passed"], policy["dropped"]) for policy in policies.values()} == {(9, 8, 1)}, policies


def test_bytes_of_many_packets_in_a_burst():
    with Fixture(policies=limits(source_bytes=50 * 1000), threads=1) as f:
        f.send(2, "one,1,5000,100", "two,1,5000,50")
        status = f.status()
        assert status["passed"] == 1500 and status["bytes"]["passed"] == 100000, status
        assert status["bytes"]["offered"] >= 50 * status["offered"], status


if __name__ == "__main__":
    run(globals())
