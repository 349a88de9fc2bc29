#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
weir-gateway beside others on a Redis: entries of sources, and sources whose names need the fleet's secret.

Guards: apps/gateway/secret.c, apps/gateway/policies.c, apps/gateway/options.c
"""
from support import Fixture, Redis, ask, run

POLICIES = "policies:\n  - name: source\n    limits: [{algorithm: fixed_window, limit: 20, period: 30d}]\n"
HASHED = POLICIES.replace("name: source", "name: source\n    hash_keys: true")


def gateway(redis, policies, *more):
    url = f"unix://:{''.join(f'%{ord(c):02x}' for c in redis.PASSWORD)}@{redis.socket}"
    f = Fixture("--redis", url, *more, policies=policies, threads=1)
    f.until(lambda: f.status()["redis"] == "up")
    return f


def denies(f, client):
    before = f.status()
    client.send(b"?")
    after = f.until(lambda: (s := f.status())["offered"] > before["offered"] and s)
    return after["dropped"]["source"] != before["dropped"]["source"]


def test_entries_in_redis_name_addresses_and_networks():
    with Redis() as redis, gateway(redis, POLICIES) as f:
        clients = {address: f.client(source=address) for address in ("127.17.0.1", "127.17.0.2", "127.17.1.1")}
        redis.call("HSET", "weir:overrides", "source:127.17.0.0/24", "deny", "source:127.17.0.1", "allow")
        f.until(lambda: denies(f, clients["127.17.0.2"]))
        for _ in range(50):
            assert ask(clients["127.17.0.1"]) == b"?"
        assert ask(clients["127.17.1.1"]) == b"?"
        redis.call("DEL", "weir:overrides")
        f.until(lambda: not denies(f, clients["127.17.0.2"]))


def test_gateways_of_one_secret_share_sources_that_nobody_else_can_name():
    with Redis() as redis:
        secrets = []
        for word in ("a secret of the fleet's own", "another secret of a fleet"):
            secrets.append(redis.demo.dir / f"secret{len(secrets)}")
            secrets[-1].write_text(word + "\n")
        with gateway(redis, HASHED, "--fleet-secret-file", secrets[0]) as a, \
                gateway(redis, HASHED, "--fleet-secret-file", secrets[0]) as b, \
                gateway(redis, HASHED, "--fleet-secret-file", secrets[1]) as c, gateway(redis, HASHED) as d:
            clients = {f: f.client(source="127.17.0.1") for f in (a, b, c, d)}
            a.until(lambda: denies(a, clients[a]))
            b.until(lambda: denies(b, clients[b]))
            for f in (c, d):  # a gateway with another secret, or none, has another record
                assert ask(clients[f]) == b"?"
            records = c.until(lambda: (found := redis.call("--scan", "--pattern", "weir:*:source:*").split())
                              and len({name.split(":")[4] for name in found}) == 3 and found)
            assert not [name for name in records if "127.17" in name], records
            # The name of the offender is that of the record, and an entry may be of it, on the gateways of this secret.
            name = a.until(lambda: a.status()["offenders"])[0]["source"]
            assert name in {record.split(":")[4] for record in records}, (name, records)
            redis.call("HSET", "weir:overrides", f"source:{name}", "allow")
            for f in (a, b):
                f.until(lambda f=f: not denies(f, clients[f]))
            redis.call("HSET", "weir:overrides", f"source:{name}", "deny")
            a.until(lambda: denies(a, clients[a]))
            for f in (c, d):
                assert ask(clients[f]) == b"?"


run(globals())
