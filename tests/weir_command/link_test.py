#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
How subcommands reach Redis by Sentinels and in a Cluster. link_test.py WEIR_PROGRAM [TEST...]. Prints TAP.

Guards: apps/weir/redis_link.c, apps/weir/redis_connection.c, apps/weir/top/fleet_sample.c,
apps/weir/doctor/doctor.c, apps/weir/doctor/record_checks.c, src/inspect/inspect_records.c, src/transport/redis/url.c
"""
import contextlib
import re
import signal
import subprocess
import time

from command_support import data, file, run, Skipped, weir
from link_support import all_answer, all_fail, HAS_TOP
from node_support import Node
from redis_support import Cluster, Fake, free_port, Redis, Sentinel


def test_sentinels_name_the_primary():
    with Redis() as redis, Sentinel(redis) as sentinel:
        all_answer(f"redis+sentinel://127.0.0.1:{sentinel.port}/main")
        # A Sentinel that is not there is passed over, and one that names a replica.
        with Redis("--replicaof", "127.0.0.1", str(redis.port)) as replica:
            named = b"*2\r\n$9\r\n127.0.0.1\r\n$5\r\n%d\r\n" % replica.port
            with Fake(named) as stale:
                all_answer(f"redis+sentinel://127.0.0.1:{free_port()},127.0.0.1:{stale.port},127.0.0.1:{sentinel.port}/main/2")
                all_fail(f"redis+sentinel://127.0.0.1:{stale.port}/main",
                         f"Redis at 127.0.0.1:{replica.port}: is a replica, not a primary")
        all_fail(f"redis+sentinel://127.0.0.1:{sentinel.port}/other",
                 f'the Sentinel at 127.0.0.1:{sentinel.port}: knows no primary named "other"')
        all_fail("redis+sentinel://127.0.0.1:1/main", "the Sentinel at 127.0.0.1:1: cannot connect: Connection refused")
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
        all_answer(f"redis://127.0.0.1:{free_port()},127.0.0.1:{replica.port},127.0.0.1:{redis.port}")
        all_fail(f"redis://127.0.0.1:{replica.port},127.0.0.1:1", "is a replica, not a primary", "Redis at 127.0.0.1:1: cannot connect: Connection refused")


CLUSTER = """policies:
  - {name: api, limits: [{algorithm: fixed_window, limit: 100, period: 1d}]}
  - {name: login, limits: [{algorithm: token_bucket, limit: 10, period: 1d}]}
"""


def names_of(server):
    """Of records: the heartbeats of shards have shorter names."""
    return [name for name in server.call("--scan", "--pattern", "weir:{*}:*:*:*") if name]


KEPT = []


@contextlib.contextmanager
def empty_cluster(whole=True):
    """A Cluster without keys: one for all tests, as servers of a new one answer after 2 s alone. `whole`: it is so at the end."""
    cluster = KEPT.pop() if KEPT else Cluster()
    with contextlib.ExitStack() as end:
        end.enter_context(cluster)
        yield cluster
        if whole:
            for server in cluster.servers:
                server.call("FLUSHALL")
            end.pop_all()
            KEPT.append(cluster)


@contextlib.contextmanager
def busy_cluster(whole=True):
    """A Cluster, its policy file, and a node that has used 40 keys: every shard has some, and all of api are at their limit."""
    path = file("cluster.yaml", CLUSTER)
    with empty_cluster(whole) as cluster, Node(cluster, path) as node:
        for number in range(20):
            node.charge("api", f"k{number}", 100 + number)
            node.charge("login", f"k{number}", 1)
        node.sync()
        assert all(len(names_of(server)) > 2 for server in cluster.servers)
        yield cluster, path, node


def test_every_shard_of_a_cluster_is_read():
    with busy_cluster() as (cluster, path, node):
        # By any server of it.
        for url in (cluster.url, *(f"redis://127.0.0.1:{server.port}" for server in cluster.servers)):
            for number in (0, 7, 19):
                assert f"0 left of 100; {100 + number} used" in weir("explain", "--policies", path, "--redis", url, "api", f"k{number}",
                                                                     code=1)[0]
            if HAS_TOP:
                found = data("top", "--redis", url)
                assert {one["key"] for one in found["records"]} == {f"k{number}" for number in range(20)}, found
                assert sorted(one["server"] for one in found["shards"]) == sorted(f"127.0.0.1:{server.port}" for server in cluster.servers)
                assert all(one["up"] for one in found["shards"]) and found["sampled"] == 40, found
                assert [one["state"] for one in found["nodes"]] == ["live"] and found["records"][0]["key"] == "k19"
            found = {one["name"]: one for one in data("doctor", "--policies", path, "--redis", url)["findings"]}
            assert found["shards"]["words"].startswith("3 of 3 answer: 127.0.0.1:"), found["shards"]
            assert found["records"]["words"].startswith("40 records"), found["records"]
            assert found["keys"]["keys"] == 20 and found["keys"]["key"] == "k19" and found["keys"]["whole"], found["keys"]
            assert found["cluster"]["server"].startswith("127.0.0.1:") and "server" not in found["nodes"], found
        if HAS_TOP:
            assert "live of 1, in a Cluster of 3 shards" in weir("top", "--once", "--redis", cluster.url)[0]
        weir("reset", "--policies", path, "--redis", cluster.url, "api", "k19")
        node.sync()
        assert "100 left of 100" in weir("explain", "--policies", path, "--redis", cluster.url, "api", "k19")[0]
        all_answer(cluster.url)
        all_answer(f"redis://127.0.0.1:{cluster.servers[1].port}")


def test_each_server_of_a_cluster_has_findings_of_its_own():
    with busy_cluster() as (cluster, path, _):
        cluster.servers[2].call("CONFIG", "SET", "maxmemory", "100kb", "maxmemory-policy", "noeviction")
        out = weir("doctor", "--policies", path, "--redis", f"redis://127.0.0.1:{cluster.servers[0].port}", code=1)[0]
        lines = [line for line in out.splitlines() if re.match(r"\w+ +memory: ", line)]
        assert len(lines) == 2 and lines[0].startswith(f"ok   memory: 127.0.0.1:{cluster.servers[0].port}: "), out
        assert lines[1].startswith(f"bad  memory: 127.0.0.1:{cluster.servers[2].port}: "), out
        cluster.servers[2].call("CONFIG", "SET", "maxmemory", "0")


def test_a_reading_of_a_cluster_is_bounded_and_goes_round():
    if not HAS_TOP:
        raise Skipped("there is no weir top")
    with empty_cluster() as cluster:
        for server in cluster.servers:
            lines = "".join(f"SET weir:{{{n:03x}}}:f1s:api:k{n}:7 x\n" for n in range(1024))
            subprocess.run(["redis-cli", "-s", str(server.path)], input=lines, text=True, stdout=subprocess.DEVNULL, timeout=60, check=True)
        total = sum(len(names_of(server)) for server in cluster.servers)
        assert total == 1024
        for server in cluster.servers:
            server.call("CONFIG", "RESETSTAT")
        assert 90 <= data("top", "--sample=100", "--redis", cluster.url)["sampled"] <= 300
        for server in cluster.servers:
            assert any(line.startswith("cmdstat_scan:calls=1,") for line in server.call("INFO", "commandstats"))


def test_a_shard_that_is_gone_is_told_and_the_others_are_read():
    with busy_cluster(whole=False) as (cluster, path, _):
        needed = {cluster.owner("weir:nodes"), cluster.owner("weir:overrides")}
        gone = next(server for server in cluster.servers if server not in needed)
        for server in cluster.servers:
            server.call("CONFIG", "SET", "cluster-node-timeout", "2000")
        left = next(server for server in cluster.servers if server is not gone)
        lost = len(names_of(gone))
        gone.child.send_signal(signal.SIGSTOP)
        found = data("doctor", "--policies", path, "--redis", f"redis://127.0.0.1:{left.port}", code=3)["findings"]
        hangs = [one for one in found if one["name"] == "connection"]
        assert [(one["level"], one["server"]) for one in hangs] == [("bad", f"127.0.0.1:{gone.port}")] and "timed out" in hangs[0]["words"], found
        assert any(one["words"].startswith("2 of 3 answer") for one in found), found
        assert any(one["name"] == "keys" and not one["whole"] for one in found), found
        gone.child.kill()
        gone.child.wait()
        end = time.monotonic() + 60  # until the others know: they answer nothing for a moment
        while "cluster_state:ok" not in left.call("CLUSTER", "INFO") or not any("fail" in line for line in left.call("CLUSTER", "NODES")):
            assert time.monotonic() < end
            time.sleep(0.05)
        url = f"redis://127.0.0.1:{left.port}"
        says = f"Redis at 127.0.0.1:{gone.port}: cannot connect: Connection refused"
        if HAS_TOP:
            found = data("top", "--redis", url, code=3)
            assert [one["error"] for one in found["shards"] if not one["up"]] == [says] and found["sampled"] == 40 - lost, found
            assert f"a shard is not read: {says}" in weir("top", "--once", "--redis", url, code=3)[0]
        found = data("doctor", "--policies", path, "--redis", url, code=3)["findings"]
        shards = [one for one in found if one["name"] == "shards"]
        assert [(one["level"], one["words"][:12]) for one in shards] == [("bad", says[:12]), ("ok", "2 of 3 answe")], shards
        keys = next(one for one in found if one["name"] == "keys")
        assert not keys["whole"] and 0 < keys["keys"] < 20 and "of those looked at" in keys["words"], keys


def test_a_slot_that_is_moving_is_followed():
    with busy_cluster() as (cluster, path, _):
        name = next(name for name in names_of(cluster.servers[0]) if ":api:" in name)
        key = name.split(":")[4]
        source, target = cluster.servers[0], cluster.servers[1]
        slot = source.call("CLUSTER", "KEYSLOT", name)[0]
        target.call("CLUSTER", "SETSLOT", slot, "IMPORTING", source.call("CLUSTER", "MYID")[0])
        source.call("CLUSTER", "SETSLOT", slot, "MIGRATING", target.call("CLUSTER", "MYID")[0])
        for moved in source.call("CLUSTER", "GETKEYSINSLOT", slot, 100):
            assert source.call("MIGRATE", "127.0.0.1", target.port, moved, 0, 5000) == ["OK"]
        assert "0 left of 100" in weir("explain", "--policies", path, "--redis", cluster.url, "api", key, code=1)[0]
        weir("explain", "--policies", path, "--redis", f"redis://127.0.0.1:{cluster.servers[2].port}", "api", key, code=1)
        for server in (source, target):
            server.call("CLUSTER", "SETSLOT", slot, "STABLE")


def test_a_cluster_whose_shards_are_not_told_is_read_in_part_and_it_says_so():
    with busy_cluster() as (cluster, path, _):
        for server in cluster.servers:
            server.call("ACL", "SETUSER", "few", "on", ">s3cret", "~*", "+@all", "-cluster|slots")
        hosts = cluster.url.partition("//")[2]
        found = data("doctor", "--policies", path, "--redis", f"redis+cluster://few:s3cret@{hosts}", code=1)["findings"]
        shards = next(one for one in found if one["name"] == "shards")
        assert shards["level"] == "warn" and "one of them was looked at" in shards["words"] and "+cluster|slots" in shards["advice"], shards
        nodes = next(one for one in found if one["name"] == "nodes")
        assert nodes["level"] == "bad" and "NOPERM" in nodes["words"], nodes  # as it is for nodes
        if HAS_TOP:
            assert "NOPERM" in weir("top", "--once", "--redis", f"redis+cluster://few:s3cret@{hosts}", code=3)[1]
        for server in cluster.servers:
            server.call("ACL", "DELUSER", "few")


if __name__ == "__main__":
    try:
        run(globals())
    finally:
        while KEPT:
            KEPT.pop().all.close()
