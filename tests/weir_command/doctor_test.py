#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
weir doctor, against real servers: doctor_test.py WEIR_PROGRAM [TEST...]. Prints TAP.

Guards: apps/weir/doctor/doctor.c, apps/weir/doctor/server_checks.c, apps/weir/doctor/pace_checks.c,
apps/weir/doctor/rights_checks.c, apps/weir/doctor/fleet_checks.c, apps/weir/doctor/record_checks.c,
apps/weir/doctor/key_checks.c, apps/weir/doctor/limit_checks.c
"""
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import time

from command_support import file, PLAIN, run, weir, WEIR
from node_support import Node, SEEN_LIVE_MS
from redis_support import Fake, Redis

SOURCE = pathlib.Path(os.environ["SOURCE"])
POLICIES = """policies:
  - name: api
    limits: [{algorithm: token_bucket, limit: 100, period: 1s}, {algorithm: fixed_window, limit: 9000, period: 1d}]
"""


def findings(url, *words, code=None):
    """{name: [(level, words, advice)]}"""
    done = subprocess.run([*WEIR, "doctor", "--json", "--redis", url, *map(str, words)], capture_output=True, text=True, timeout=120,
                          env=PLAIN, check=False)
    assert code is None or done.returncode == code, done
    said = json.loads(done.stdout)
    found = {}
    for finding in said["findings"]:
        assert finding["level"] == "ok" or finding.get("advice"), finding
        found.setdefault(finding["name"], []).append((finding["level"], finding["words"], finding.get("advice")))
    levels = [row[0] for rows in found.values() for row in rows]
    assert {"ok", "note", "warn", "bad"} >= set(levels)
    assert said["worst"] == ("bad" if "bad" in levels else "warn" if "warn" in levels else "ok"), said
    assert done.returncode in (0, 3) if "bad" not in levels else done.returncode in (1, 3), done
    return found


def level(found, name):
    return found[name][0][0]


def test_nodes_with_other_limits_under_one_name_are_told():
    small, large, other = (POLICIES.replace("limit: 100,", f"limit: {limit},") for limit in (100, 1000, 1000))
    with Redis() as redis:
        with Node(redis, file("small.yaml", small), SEEN_LIVE_MS) as one:
            one.sync()
            assert findings(redis.url)["limits"] == [("ok", "the same on all nodes", None)]
            with Node(redis, file("large.yaml", large), SEEN_LIVE_MS) as two, Node(redis, file("o.yaml", other), SEEN_LIVE_MS) as three:
                two.sync()
                three.sync()
                told = findings(redis.url)["limits"]
                assert len(told) == 1 and told[0][0] == "warn" and "a prefix of its own" in told[0][2], told
                assert re.match(r"policy api is token_bucket 1000? per 1s, fixed_window 9000 per 1d on node \S+, and "
                                r"token_bucket 1000? per 1s, fixed_window 9000 per 1d on node \S+$", told[0][1]), told
            assert findings(redis.url)["limits"] == [("ok", "the same on all nodes", None)]
        redis.call("HSET", "weir:limits", "x", "1 dead\napi token_bucket 7 per 1s\n", "y", "99999999999999 a\napi \x1b[0m\n",
                   "z", "99999999999999 b\napi two\n", "version", "1", "bad", "rubbish")
        told = findings(redis.url)["limits"]
        assert len(told) == 1 and "\\x1b" in told[0][1] and "\x1b" not in told[0][1], told


def test_a_fit_redis_has_nothing_bad_and_nothing_is_changed():
    path = file("policies.yaml", POLICIES)
    with Redis() as redis, Node(redis, path, SEEN_LIVE_MS) as node:
        node.charge("api", "x", 5)
        node.sync()
        found = findings(redis.url, "--policies", path, code=0)
        for name in ("version", "role", "memory", "eviction", "persistence", "rights", "latency", "clock", "nodes", "overrides",
                     "records"):
            assert level(found, name) == "ok" or name in ("latency", "nodes"), (name, found[name])
        assert node.id in found["nodes"][0][1] and found["records"][0][1].startswith("2 records, some 0.0 MB"), found
        node.child.stdin.close()
        node.child.wait()
        names = sorted(redis.call("KEYS", "*"))
        dumps = [redis.call("--no-raw", "DUMP", name) for name in names]
        findings(redis.url)
        assert sorted(redis.call("KEYS", "*")) == names and [redis.call("--no-raw", "DUMP", name) for name in names] == dumps
        out, _ = weir("doctor", "--redis", redis.url)
        assert re.search(r"^ok   version: (Redis|Valkey) \d", out) and re.search(r"^ok   rights: this user may run the 26 commands", out, re.M)
        assert re.search(r"^warn nodes: no node has reported under the prefix weir lately\n     -> see whether", out, re.M), out


def acl(*more):
    """The user of docs/redis.md."""
    text = (SOURCE / "docs/redis.md").read_text()
    block = re.search(r"^redis-cli (ACL SETUSER weir on .*?)^```", text, re.M | re.S)[1]
    return [*(word.strip("'") for word in block.replace("\\\n", " ").split()), *more]


def test_the_rights_of_the_user_are_tried():
    with Redis() as redis:
        url = f"redis://weir:password@127.0.0.1:{redis.port}"
        redis.call(*acl())
        found = findings(url, "--policies", file("policies.yaml", POLICIES), code=0)
        assert level(found, "rights") == "ok" and "may not run SCAN" in found["records"][0][1], found
        redis.call(*acl("-hscan", "-hstrlen"))
        found = findings(url)
        assert [row[0] for row in found["rights"]] == ["ok", "warn"] and "HSCAN, HSTRLEN" in found["rights"][1][1], found["rights"]
        for command in ("hset", "zadd", "hincrby", "pexpire", "del", "evalsha"):
            redis.call(*acl("-" + command))
            found = findings(url, code=1)
            assert level(found, "rights") == "bad" and f"may not run {command.upper()} on" in found["rights"][0][1], found["rights"]
            redis.call("ACL", "DELUSER", "weir")
        redis.call(*acl("-info"))
        found = findings(url)
        assert level(found, "server") == "warn" and "INFO is refused" in found["server"][0][1] and "version" not in found, found
        assert level(findings(url, "--prefix=other", code=1), "rights") == "bad"  # keys of another prefix


def test_memory_and_eviction_are_looked_at():
    with Redis() as redis:
        for policy, wanted in (("noeviction", "ok"), ("allkeys-lru", "ok"), ("volatile-ttl", "warn"), ("volatile-lru", "warn")):
            redis.call("CONFIG", "SET", "maxmemory-policy", policy, "maxmemory", "1gb")
            found = findings(redis.url, code=0)
            assert (level(found, "eviction"), level(found, "memory")) == (wanted, "ok"), (policy, found)
        used = int(next(line for line in redis.call("INFO", "memory") if line.startswith("used_memory:")).split(":")[1])
        for part, wanted in ((0.5, "ok"), (0.9, "warn"), (2, "bad")):
            redis.call("CONFIG", "SET", "maxmemory", int(used / part), "maxmemory-policy", "noeviction")
            found = findings(redis.url)["memory"][0]
            mb, percent = re.fullmatch(r"([\d.]+) MB in use, (\d+)% of maxmemory", found[1]).groups()
            assert found[0] == wanted and abs(float(mb) - used / 1e6) < 0.3 * used / 1e6, (part, found, used)
            assert abs(int(percent) - 100 * part) < 30 * part, (part, found, used)
        redis.call("CONFIG", "SET", "maxmemory", "0")
        found = findings(redis.url)
        assert level(found, "eviction") == "ok"  # nothing is evicted
        assert re.fullmatch(r"[\d.]+ MB in use, 0% of the machine's, as maxmemory is not set", found["memory"][0][1]), found["memory"]
        redis.call("CONFIG", "SET", "maxmemory", "100kb", "maxmemory-policy", "noeviction")
        assert level(findings(redis.url, code=1), "memory") == "bad"


def test_a_replica_a_broken_disk_and_a_broken_cluster_are_bad():
    with Redis() as redis, Redis() as primary:
        redis.call("REPLICAOF", "127.0.0.1", primary.port)
        assert level(findings(redis.url, code=1), "role") == "bad"
    with Redis() as redis:
        os.mkdir(pathlib.Path(redis.place.name) / "dump.rdb")  # where the file was to be
        redis.call("BGSAVE")
        end = time.monotonic() + 60
        while level(findings(redis.url), "persistence") != "bad":
            assert time.monotonic() < end
            time.sleep(0.05)
    with Redis("--cluster-enabled", "yes") as redis:
        found = findings(redis.url, code=1)
        assert level(found, "cluster") == "bad", found
        for name in ("nodes", "overrides"):
            (how, words, advice), = found[name]
            assert how == "bad" and ("CLUSTERDOWN" in words or "serves no slots" in words) and "slot" in advice and "rights" not in advice, found


def test_old_versions_are_bad():
    for version, wanted in (("5.0.7", "bad"), ("6.0.16", "bad"), ("6.2.0", "ok"), ("10.0.1", "ok"),
                            ("7.2.4\r\nserver_name:valkey\r\nvalkey_version:7.2.5", "bad"),
                            ("7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.0", "ok")):
        info = f"# Server\r\nredis_version:{version}\r\n".encode()
        with Fake(b"$%d\r\n%s\r\n" % (len(info), info)) as fake:
            found = findings(f"redis://127.0.0.1:{fake.port}")
            assert level(found, "version") == wanted, (version, found)


def test_the_clock_is_held_against_this_hosts():
    for apart, wanted in ((0, "ok"), (60, "warn"), (-60, "warn"), (90000, "bad")):
        seconds = int(time.time()) + apart
        with Fake(b"*2\r\n$%d\r\n%d\r\n$6\r\n500000\r\n" % (len(str(seconds)), seconds)) as fake:
            found = findings(f"redis://127.0.0.1:{fake.port}")
            assert level(found, "clock") in (wanted, "warn" if wanted == "ok" else wanted), (apart, found)


def test_nodes_and_overrides_are_looked_at():
    path = file("policies.yaml", POLICIES)
    with Redis() as redis:
        now_ms = int(time.time() * 1000)
        redis.call("ZADD", "weir:nodes", "inf", "!1", now_ms, "aa:60000:90000", now_ms - 70000, "bb:60000:90000", now_ms, "junk",
                   *(word for member in ("!1x", "!1:5", "!1:5:", "!1:x:5", "!", "!x") for word in ("inf", member)), now_ms, "!5", now_ms, "cc:1",
                   now_ms, "cc:1:2x", now_ms, ":1:2", now_ms, "c" * 99 + ":1:2", -5, "cc:1:2")
        redis.call("HSET", "weir:overrides", "api:x", "5 5", "api:y", "5", "zzz:x", "deny")
        found = findings(redis.url, code=0)
        assert [row[0] for row in found["nodes"]] == ["ok", "warn", "warn"] and found["nodes"][0][1].startswith("1 live: aa ("), found
        assert found["nodes"][2][1] == "11 members of weir:nodes that no node writes", found["nodes"]
        assert found["nodes"][1][1].startswith("1 suspect") and "bb" in found["nodes"][1][1] and level(found, "overrides") == "ok"
        found = findings(redis.url, "--policies", path, code=1)
        assert level(found, "overrides") == "bad" and "1 of 3 is malformed" in found["overrides"][0][1], found["overrides"]
        redis.call("HSET", "weir:{0f3}:f1s:other:x:7", "sum", "1")
        found = findings(redis.url, "--policies", path, code=1)
        assert found["records"][1][:2] == ("warn", "1 record is of policies that the file does not have, such as other"), found["records"]
        redis.call("DEL", "weir:nodes", "weir:overrides")
        redis.call("SET", "weir:nodes", "text")
        redis.call("SET", "weir:overrides", "text")
        found = findings(redis.url, code=1)
        assert level(found, "nodes") == level(found, "overrides") == "bad", found
        assert "something else has written the key" in found["overrides"][0][2], found
        redis.call(*acl("-zrange", "-hscan", "-hgetall", "-hmget"))
        found = findings(f"redis://weir:password@127.0.0.1:{redis.port}", code=1)
        assert ("NOPERM" in found["nodes"][0][1] or "user executing" in found["nodes"][0][1]) and found["nodes"][0][2] == "see the rights of this user", found


KEYS = """policies:
  - name: api
    limits: [{algorithm: fixed_window, limit: 100, period: 1d}, {algorithm: token_bucket, limit: 1000000, period: 1d}]
    tiers: [{name: pro, limits: [{algorithm: fixed_window, limit: 1000, period: 1d}]}]
  - {name: hour, limits: [{algorithm: sliding_window, limit: 50, period: 1d}]}
  - {name: log, limits: [{algorithm: sliding_log, limit: 20, period: 1d}]}
  - {name: login, limits: [{algorithm: token_bucket, limit: 10, period: 1d}]}
  - {name: tried, mode: shadow, limits: [{algorithm: fixed_window, limit: 10, period: 1d}]}
  - {name: here, scope: process, limits: [{algorithm: fixed_window, limit: 10, period: 1d}]}
overrides:
  "login:free": allow
"""


def keys_of(url, *words, code=0):
    """The findings of keys, by policy; all of what the command says with --json."""
    said = json.loads(weir("doctor", "--json", "--redis", url, *map(str, words), code=code)[0])
    return {finding.get("policy"): finding for finding in said["findings"] if finding["name"] == "keys"}


def test_keys_at_their_limit_are_named_with_the_command_that_says_why():
    path = file("keys.yaml", KEYS)
    with Redis() as redis, Node(redis, path, SEEN_LIVE_MS) as node:
        found = keys_of(redis.url, "--policies", path)
        assert [(one["level"], one["words"]) for one in found.values()] == [("ok", "none is at its limit now")], found
        node.charge("api", "quiet", 60)
        node.charge("api/pro", "partner", 900)  # of its tier it is not at its limit, and records do not say its tier
        node.charge("hour", "x", 50)
        node.charge("login", "free", 50)
        node.charge("here", "x", 50)
        node.charge("tried", "it's$(odd)", 31)
        node.charge("log", "busy", 20)
        for key in ("203.0.113.9", "203.0.113.10"):
            node.charge("login", key, 10)
            assert not node.check("login", key).allowed
        node.sync()
        found = keys_of(redis.url, "--policies", path)
        assert sorted(found) == ["hour", "log", "login", "tried"], found
        assert {one["level"] for one in found.values()} == {"note"}
        assert (found["login"]["keys"], found["login"]["limit"]) == (2, "login"), found["login"]
        assert found["login"]["words"].startswith("login: 2 keys are at or over their limit now; the most: 203.0.113."), found["login"]
        assert found["hour"]["words"] == "hour: 1 key is at or over its limit now; the most: x, which is at limit hour", found["hour"]
        assert "busy, which is at limit log" in found["log"]["words"], found["log"]
        tried = found["tried"]
        assert 3 < tried["times"] < 3.2 and "3.1 times limit tried; the policy is in shadow mode" in tried["words"], tried
        for one in found.values():  # the advice can be copied, whatever the key is
            command = shlex.split(one["advice"].partition(" says why")[0])
            assert command[:2] == ["weir", "explain"] and one["key"] in command, one
            assert f'{one["policy"]}:' in weir(*command[1:], "--redis", redis.url, code=0 if one["policy"] == "tried" else 1)[0]
        node.charge("api/pro", "partner", 900)
        node.sync()
        found = keys_of(redis.url, "--policies", path)["api/pro"]
        assert found["keys"] == 1 and found["key"] == "partner" and "1.8 times limit api/pro" in found["words"], found
        out, _ = weir("doctor", "--policies", path, "--redis", redis.url)  # notes are no failure
        assert re.search(r"^note keys: tried: 1 key is at or over .*\n     -> weir explain --policies \S+ tried '", out, re.M), out


def test_what_a_window_was_asked_for_and_overrides_count():
    path = file("keys.yaml", KEYS)
    with Redis() as redis, Node(redis, path, SEEN_LIVE_MS) as node:
        for _ in range(140):
            node.check("hour", "x")
        node.charge("hour", "y", 40)
        node.charge("hour", "z", 10)
        node.sync()
        found = keys_of(redis.url, "--policies", path)["hour"]
        assert found["keys"] == 1 and "x, which asked for 2.8 times limit hour" in found["words"], found
        redis.call("HSET", "weir:overrides", "hour:x", "1000", "hour:z", "5", "hour:y", "deny")
        found = keys_of(redis.url, "--policies", path)["hour"]
        assert (found["keys"], found["key"]) == (1, "z") and "has used 2.0 times" in found["words"], found


def test_a_large_database_is_read_in_part_and_it_says_so():
    path = file("keys.yaml", KEYS)
    with Redis() as redis, Node(redis, path, SEEN_LIVE_MS) as node:
        for number in range(2600):
            node.charge("tried", f"k{number}", 10 + number % 7)
        node.sync()
        redis.call("CONFIG", "RESETSTAT")
        found = keys_of(redis.url, "--policies", path)["tried"]
        calls = {line.split(":")[0].removeprefix("cmdstat_"): int(re.search(r"calls=(\d+)", line)[1])
                 for line in redis.call("INFO", "commandstats") if line.startswith("cmdstat_")}
        # 9,000 of the HMGETs are those of the script whose cost is measured.
        assert calls["hmget"] <= 9000 + 3000 + 2 * 2000 + 100 and calls["hgetall"] <= 100 and calls["scan"] <= 20 and "keys" not in calls, calls
        assert not found["whole"] and 0 < found["keys"] <= 2000 and "now, of those looked at; the most: k" in found["words"], found
        assert found["times"] == 1.6, found


def test_a_user_who_may_not_read_units_is_told_so():
    with Redis() as redis:
        redis.call("HSET", "weir:{0}:f1d:tried:k:7", "sum", "1")
        redis.call("HSET", f"weir:{{0}}:f1d:tried:k:{int(time.time()) // 86400}", "sum", "1")
        redis.call(*acl("+scan", "-hmget"))
        words = findings(f"redis://weir:password@127.0.0.1:{redis.port}", "--policies", file("keys.yaml", KEYS), code=1)
        assert "may not run SCAN, or not HMGET" in words["records"][0][1] and "keys" not in words, words


def test_wrong_words_and_a_redis_that_is_gone():
    with Redis() as redis:
        assert "takes no operands" in weir("doctor", "x", "--redis", redis.url, code=2)[1]
        assert "prefix" in weir("doctor", "--prefix={}", "--redis", redis.url, code=2)[1]
        assert "WEIR_REDIS_URL" in weir("doctor", code=2)[1]
        assert "cannot be read" in weir("doctor", "--policies=nowhere", "--redis", redis.url, code=3)[1]
        assert "there are no policies" in weir("doctor", "--policies", file("bad.yaml", "policies: []\n"), "--redis", redis.url, code=1)[1]
        for words in ((), ("--json",)):
            with open("/dev/full", "w") as full:
                done = subprocess.run([*WEIR, "doctor", "--redis", redis.url, *words], stdout=full, stderr=subprocess.PIPE, text=True,
                                      timeout=60, env=PLAIN, check=False)
            assert done.returncode == 4 and "No space left on device" in done.stderr, done
            reader, writer = os.pipe()
            os.close(reader)
            done = subprocess.run([*WEIR, "doctor", "--redis", redis.url, *words], stdout=writer, stderr=subprocess.PIPE, text=True,
                                  timeout=60, env=PLAIN, check=False)
            os.close(writer)
            assert done.returncode == 4 and "Broken pipe" in done.stderr, done
    assert weir("doctor", "--redis", redis.url, code=3) == ("", f"Redis at {redis.path}: cannot connect: No such file or directory\n")
    with Fake(b"junk\r\n") as fake:
        found = findings(f"redis://127.0.0.1:{fake.port}", code=3)
        assert level(found, "connection") == "bad" and set(found) == {"connection"}, found


def test_an_interrupted_command_leaves_nothing():
    with Fake(None) as fake:
        child = subprocess.Popen([*WEIR, "doctor", "--redis", f"redis://127.0.0.1:{fake.port}"], env=PLAIN, stdout=subprocess.PIPE)
        end = time.monotonic() + 60
        while b"CLUSTER" not in fake.seen:
            assert time.monotonic() < end and child.poll() is None
            time.sleep(0.01)
        child.send_signal(signal.SIGINT)
        assert child.communicate(timeout=60)[0] == b"" and child.returncode in (-signal.SIGINT, 128 + signal.SIGINT)


if __name__ == "__main__":
    run(globals())
