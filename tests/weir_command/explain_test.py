#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
weir explain, against real servers and real nodes: explain_test.py WEIR_PROGRAM [TEST...]. Prints TAP.

Guards: apps/weir/explain/explain.c, src/inspect/standing.c, apps/weir/explain/tell_text.c,
apps/weir/explain/tell_data.c, apps/weir/fleet/fleet_key.c, src/inspect/chosen_key.c, src/inspect/authors.c,
apps/weir/fleet/node_status.c, src/fleet/keys/record_text.c
"""
import http.server
import json
import os
import random
import re
import signal
import socket
import struct
import subprocess
import threading
import time

from command_support import data, file, PLACE, PLAIN, run, weir, WEIR
from node_support import Node, SEEN_LIVE_MS
from redis_support import Fake, Redis

POLICIES = """policies:
  - name: fixed
    limits: [{algorithm: fixed_window, limit: 1000, period: 1d}]
  - name: sliding
    limits: [{algorithm: sliding_window, limit: 1000, period: 2s}]
  - name: log
    limits: [{algorithm: sliding_log, limit: 1000, period: 1h}]
  - name: token
    limits: [{algorithm: token_bucket, limit: 100, period: 1s, burst: 1000}]
    tiers:
      - {name: pro, limits: [{algorithm: token_bucket, limit: 350, period: 1s, burst: 3000}]}
  - name: leaky
    limits: [{algorithm: leaky_bucket, limit: 100, period: 1s, burst: 1000, delay: 500}]
  - name: month
    limits: [{algorithm: fixed_window, limit: 1000, calendar: month}]
  - name: both
    limits:
      - {algorithm: token_bucket, limit: 1000, period: 1h, burst: 300}
      - {algorithm: sliding_window, limit: 500, period: 1d}
  - name: secret
    hash_keys: true
    limits: [{algorithm: fixed_window, limit: 1000, period: 1d}]
  - name: shadow
    mode: shadow
    limits: [{algorithm: fixed_window, limit: 10, period: 1d}]
  - name: own
    scope: process
    limits: [{algorithm: fixed_window, limit: 10, period: 1d}]
overrides:
  "fixed:of-file": 7
  "fixed:of-both": 7
"""
KINDS = ("fixed", "sliding", "log", "token", "leaky", "month", "both", "token/pro", "secret")


def policies():
    return file("policies.yaml", POLICIES)


def explain(redis, *words, code=0, **options):
    return weir("explain", "--policies", policies(), "--redis", redis.url, *words, code=code, **options)


def explain_data(redis, *words, code=0):
    return data("explain", "--policies", policies(), "--redis", redis.url, *words, code=code)


def told(redis, *words):
    """What is explained, whether a request is denied or not."""
    done = subprocess.run([*WEIR, "explain", "--json", "--policies", str(policies()), "--redis", redis.url, *map(str, words)],
                          capture_output=True, text=True, timeout=60, env=PLAIN, cwd=PLACE, check=False)
    assert done.returncode in (0, 1) and done.stderr == "", done
    seen = json.loads(done.stdout)
    assert done.returncode == (seen["denied"] and seen["mode"] == "enforce"), done
    return seen


# A node knows fleet time to within a round trip, and moves a bucket in Redis from the heartbeat before its units on. So
# its answer differs by what is refilled, or leaves the window, in some intervals.
SLACK_NS, CLOCK_NS = 2000000000, 200000000
SLACK = {"sliding": 100, "token": 50, "token/pro": 175, "leaky": 50, "both": 1}


def agrees(redis, node, policy, key, cost=1, words=()):
    """What is explained lies between what a lone node says before and after."""
    slack = SLACK.get(policy, 0)
    slack_ns = SLACK_NS if slack else CLOCK_NS
    node.peek(policy, key, cost)  # a quota that the node has not heard of yet may be used up elsewhere: the sync asks
    node.sync()
    before = node.peek(policy, key, cost)
    seen = told(redis, policy, key, "--cost", cost, *words)
    after = node.peek(policy, key, cost)
    if before.allowed == after.allowed and not slack:
        assert seen["denied"] != before.allowed, (policy, key, cost, before, seen, after)
    if len(seen["limits"]) == 1:
        assert before.remaining - slack <= seen["remaining"] <= after.remaining + slack, (policy, before, seen, after)
    if seen["denied"] and not before.allowed and not after.allowed and before.retry_ns < 1 << 63:
        assert after.retry_ns - slack_ns <= seen["retry_after_ns"] <= before.retry_ns + slack_ns, (policy, before, seen, after)
    return seen


def test_a_lone_node_and_the_explanation_agree_whatever_was_done():
    seed = int(os.environ.get("WEIR_TEST_SEED", time.time_ns() % 1000000))
    print(f"# WEIR_TEST_SEED={seed}", flush=True)
    chance = random.Random(seed)
    with Redis() as redis, Node(redis, policies()) as node:
        for turn in range(60):
            policy, key = chance.choice(KINDS), f"k{chance.randrange(4)}"
            for _ in range(chance.randrange(1, 5)):
                cost = chance.choice((1, 7, 90, 400, 999, 1500))
                verb = chance.choice(("check", "check", "check", "charge", "refund", "reset"))
                if verb == "check":
                    node.check(policy, key, cost)
                elif verb == "reset" and turn % 3 == 0:
                    node.reset(policy, key)
                elif verb in ("charge", "refund"):
                    getattr(node, verb)(policy, key, cost)
            agrees(redis, node, policy, key, chance.choice((1, 1, 50, 1000, 1001)))


def test_a_bucket_refills_at_the_rate_of_the_tier_that_was_checked_last():
    """In a node and in Redis. A peek changes nothing; a denial does, and is all that the fleet hears of."""
    with Redis() as redis, Node(redis, policies()) as node:

        def reading(key):
            """The units that are used, as of a time between two others."""
            since = time.monotonic()
            return since, told(redis, "token", key)["limits"][0]["count"], time.monotonic()

        for checked, rate in (("token", 100), ("token/pro", 350)):
            end = time.monotonic() + 60
            enough = False
            while not enough:  # on a busy machine the denial may be reported too late to be seen at work
                assert time.monotonic() < end, "the bucket does not refill at the rate of " + checked
                node.charge("token", checked, 800)
                node.sync()
                assert not node.check(checked, checked, 1000 if rate == 100 else 3000).allowed
                time.sleep(0.6)  # the denial is reported without a call for it
                since, used, by = reading(checked)
                agrees(redis, node, "token", checked, 1001)
                agrees(redis, node, "token/pro", checked, 3001)
                time.sleep(0.3)
                since_then, left, until = reading(checked)
                assert used - left <= (until - since) * rate + 1, (checked, used, left, until - since)
                enough = used - left >= (since_then - by) * rate - 1 and left > 0
                agrees(redis, node, "token", checked, 1001)
                agrees(redis, node, "token/pro", checked, 3001)


def test_the_counts_of_all_nodes_are_told():
    with Redis() as redis, Node(redis, policies(), SEEN_LIVE_MS) as one, Node(redis, policies(), SEEN_LIVE_MS) as other:
        for policy in ("fixed", "log", "both"):
            one.charge(policy, "x", 120)
            other.charge(policy, "x", 30)
            other.refund(policy, "x", 10)
        one.sync()
        other.sync()
        for policy in ("fixed", "log"):
            seen = explain_data(redis, policy, "x")
            assert seen["remaining"] == 860 and seen["limits"][0]["count"] == 140, seen
            parts = {part["node"]: part for part in seen["limits"][0]["record"]["nodes"]}
            gone = 0 if policy == "log" else 10
            assert parts[one.id]["admitted"] == 120 and parts[other.id]["admitted"] == 20 + gone, parts
            assert parts[other.id]["refunds"] == gone and set(parts) == {one.id, other.id}
        seen = explain_data(redis, "both", "x")
        assert [limit["name"] for limit in seen["limits"]] == ["both-1", "both-2"] and seen["deciding_limit"] == "both-1"
        assert 160 <= seen["limits"][0]["remaining"] < 200 and seen["limits"][1]["remaining"] == 360, seen
        assert {node["node"]: node["state"] for node in seen["nodes"]} == {one.id: "live", other.id: "live"}
        out, _ = explain(redis, "fixed", "x")
        assert out.startswith("fixed:x is admitted: 860 may still pass at once in the whole fleet\n"), out
        assert re.search(r"^    860 left of 1,000; 140 used in this window, which ends in about .* hours?$|minute", out, re.M), out
        assert f"    node {one.id} admitted 120 (80%) of 120 (80%) asked for\n" in out, out
        assert f"    node {other.id} admitted 30 (20%) of 30 (20%) asked for, and gave back 10\n" in out, out
        assert re.search(rf"^  node {one.id}: live, has reported up to (.*seconds?|no time) ago$", out, re.M), out
        assert "a sync interval is 2 seconds" in out


def test_policies_are_told_as_weir_check_tells_them():
    checked = dict(re.findall(r"^  (\S+): (.*?)(?:;.*)?$", weir("check", policies())[0], re.M))
    with Redis() as redis:
        for policy in (*KINDS, "shadow", "own"):
            assert f"\n  policy {policy}: {checked[policy]}\n" in explain(redis, policy, "x")[0], (policy, checked[policy])


def test_a_denial_says_which_limit_and_until_when():
    with Redis() as redis, Node(redis, policies()) as node:
        node.charge("both", "x", 600)
        node.charge("log", "x", 999)
        node.sync()
        out, _ = explain(redis, "both", "x", code=1)
        assert re.match(r"both:x is denied: limit both-2 has no room, and will have it in about .* (days?|hours?)\n", out), out
        out, _ = explain(redis, "log", "x", "--cost=5", code=1)
        assert re.match(r"log:x is denied: limit log has room for 1 of 5, and will have it in (about )?.*\n", out), out
        out, _ = explain(redis, "log", "new", "--cost=1001", code=1)
        assert out.startswith("log:new is denied: limit log has never room for 1,001 at once\n"), out
        node.charge("shadow", "x", 99)
        node.sync()
        out, _ = explain(redis, "shadow", "x")
        assert out.startswith("shadow:x would be denied, but passes in shadow mode: limit shadow has no room"), out
        out, _ = explain(redis, "own", "x")
        assert out.startswith("own:x: each process limits it by itself, and nothing of it is in Redis\n"), out


def test_nothing_is_changed_and_no_node_appears():
    with Redis() as redis:
        with Node(redis, policies()) as node:
            for policy in KINDS:
                if policy != "sliding":  # whose record would be gone soon
                    node.charge(policy, "x", 5)
            node.sync()
        redis.call("HSET", "weir:overrides", "fixed:x", "deny")
        names = sorted(redis.call("KEYS", "*"))
        dumps = [redis.call("--no-raw", "DUMP", name) for name in names]
        redis.call("CONFIG", "RESETSTAT")
        for policy in (*KINDS, "own"):
            told(redis, policy, "x")
        ran = set(re.findall(r"cmdstat_([\w|]+):", "\n".join(redis.call("INFO", "commandstats"))))
        assert ran <= {"time", "zrange", "zcard", "zcount", "zscore", "hget", "hmget", "hgetall", "hlen", "hscan", "exists", "eval", "evalsha",
                       "select", "config|resetstat", "config", "info", "command", "command|docs", "hello", "client|setinfo"}, ran
        assert sorted(redis.call("KEYS", "*")) == names and [redis.call("--no-raw", "DUMP", name) for name in names] == dumps


def test_overrides_are_those_of_the_nodes():
    with Redis() as redis, Node(redis, policies(), 50, "", ("token", 128)) as node:
        redis.call("HSET", "weir:overrides", "fixed:x", "400", "fixed:of-both", "9", "token:198.51.100.0/24", "50/60",
                   "token:198.51.100.7", "allow", "token:198.51.0.0/16", "deny", "log:x", "zzz", "token:2001:db8::/32", "deny",
                   "token:203.0.112.0/20", "deny", "token:2001:db9:8000::/33", "deny", "version", "1")
        end = time.monotonic() + 60
        while node.peek("fixed", "x").remaining != 400:
            assert time.monotonic() < end
            node.sync()
        for policy, key, name in (("fixed", "x", "fixed:x"), ("fixed", "of-file", "fixed:of-file"), ("fixed", "of-both", "fixed:of-both"),
                                  ("fixed", "y", None), ("log", "x", None), ("token", "198.51.100.9", "token:198.51.100.0/24")):
            node.check(policy, key, 3)
            seen = agrees(redis, node, policy, key)
            assert seen.get("override", {}).get("name") == name, seen
        for key, denied, name in (("198.51.100.7", False, "token:198.51.100.7"), ("198.51.9.9", True, "token:198.51.0.0/16"),
                                  ("2001:db8::1", True, "token:2001:db8::/32"), ("203.0.127.255", True, "token:203.0.112.0/20"),
                                  ("203.0.128.1", False, None), ("203.0.111.255", False, None), ("2001:db9:7fff::1", False, None),
                                  ("2001:db9:ffff::1", True, "token:2001:db9:8000::/33")):
            seen = told(redis, "token", key)
            assert seen["denied"] == denied == (not node.peek("token", key).allowed), (key, seen)
            found = seen.get("override", {})
            assert found.get("name") == name and found.get("source") == (name and "redis"), seen
        assert told(redis, "fixed", "of-file")["override"] == {"name": "fixed:of-file", "value": "7", "source": "file"}
        out, _ = explain(redis, "token", "198.51.9.9", code=1)
        assert out.startswith("token:198.51.9.9 is denied: an override says so\n"), out
        assert "\n  override in Redis: token:198.51.0.0/16 is never served\n" in out, out
        out, _ = explain(redis, "token", "198.51.100.7")
        assert out.startswith("token:198.51.100.7 is admitted: an override says that it is never limited\n"), out
        out, _ = explain(redis, "token", "198.51.100.0/25")  # a network has no counts of its own
        assert out.startswith("token:198.51.100.0/25 is admitted by the limits of its policy, each key of the network by itself"), out
        assert "override in Redis: token:198.51.100.0/24 has 50 a second with bursts of 60" in out, out
        assert explain_data(redis, "token", "198.51.100.0/25")["limits"] == []


def test_overrides_of_all_policies_are_those_of_the_nodes():
    with Redis() as redis, Node(redis, policies(), 50, "", ("token", 128)) as node:
        redis.call("HSET", "weir:overrides", "*:198.51.100.0/24", "deny", "*:198.51.0.0/16", "allow", "token:198.51.100.0/24", "50/60",
                   "*:198.51.100.7", "allow", "token:198.51.100.8", "deny", "*:198.51.100.8", "allow", "*:2001:db8::/32", "deny")
        end = time.monotonic() + 60
        while node.peek("token", "2001:db8::1").allowed:
            assert time.monotonic() < end
            node.sync()
        for key, name, denied in (("198.51.100.7", "*:198.51.100.7", False), ("198.51.100.8", "token:198.51.100.8", True),
                                  ("198.51.100.9", "token:198.51.100.0/24", False), ("198.51.9.9", "*:198.51.0.0/16", False),
                                  ("2001:db8::1", "*:2001:db8::/32", True), ("203.0.113.1", None, False)):
            seen = told(redis, "token", key)
            assert seen["denied"] == denied == (not node.peek("token", key).allowed), (key, seen)
            assert seen.get("override", {}).get("name") == name, seen
        assert node.peek("fixed", "198.51.100.9").allowed and "override" not in told(redis, "fixed", "198.51.100.9", "--keys=bytes")
        assert "\n  override in Redis: *:198.51.0.0/16 is never limited\n" in explain(redis, "token", "198.51.9.9")[0]


def test_an_override_ends_on_nodes_and_in_the_explanation():
    with Redis() as redis, Node(redis, policies()) as node:
        environment = {"WEIR_REDIS_URL": redis.url}
        weir("override", "set", "--until=2499-12-01", "--policies", policies(), "fixed:y", "deny", environment=environment)
        for until, denied in (("1h", True), ("2s", False)):
            weir("override", "set", "--until", until, "--policies", policies(), "fixed:x", "deny", environment=environment)
            end = time.monotonic() + 60
            while node.peek("fixed", "x").allowed == denied or told(redis, "fixed", "x")["denied"] != denied:
                assert time.monotonic() < end, (denied, node.peek("fixed", "x"), told(redis, "fixed", "x"))
        assert not node.peek("fixed", "y").allowed and told(redis, "fixed", "y")["denied"]
        assert "fixed:y is never served until 2499-12-01\n" in explain(redis, "fixed", "y", code=1)[0]
        assert "  no override\n" in explain(redis, "fixed", "x")[0]


def test_keys_are_named_as_nodes_name_them():
    long_key = "k" * 90
    secret = "a secret of the fleet, of many bytes"
    path = file("secret.txt", secret + "\nmore\n")
    with Redis() as redis:
        for words, of_node in (((), ""), (("--fleet-secret-file", path), secret)):
            with Node(redis, policies(), 50, of_node) as node:
                for policy, key in (("secret", "token-1"), ("fixed", long_key), ("secret", "198.51.100.7"), ("fixed", "a/b:c")):
                    node.charge(policy, key, 321)
                    form = ("--keys=bytes",) if "." in key else ()
                    seen = agrees(redis, node, policy, key, words=(*words, *form))
                    assert seen["limits"][0]["count"] == 321 and seen["limits"][0]["record"]["exists"], seen
                    record = seen["limits"][0]["record"]["name"].split(":")
                    if "~" in record[4]:  # the name that weir_top_offenders shows
                        assert explain_data(redis, policy, record[4])["limits"][0]["count"] == 321
            redis.call("FLUSHALL")
        with Node(redis, policies(), 50, "", ("secret", 128)) as node:
            node.charge("secret", "198.51.100.7", 5)
            node.charge("secret", "2001:db8::7", 6)
            assert agrees(redis, node, "secret", "198.51.100.7")["limits"][0]["count"] == 5
            assert explain_data(redis, "secret", "::FFFF:c633:6407")["limits"][0]["count"] == 5
            assert agrees(redis, node, "secret", "2001:db8::7", words=("--keys=addresses",))["limits"][0]["count"] == 6
            out, _ = explain(redis, "secret", "198.51.100.8")
            assert "no records: the key was read as an address; --keys=FORM reads it in another form" in out, out
        with Node(redis, policies(), 50, "", ("month", 64)) as node:
            node.charge("month", "2001:db8::/64", 8)
            node.sync()
            for words in (("2001:db8::/64",), ("2001:db8::7", "--keys=addresses/64"), ("2001:db8::/64", "--keys=addresses/64")):
                seen = explain_data(redis, "month", *words)
                assert seen["limits"][0]["count"] == 8 and seen["name"] == "month:2001:db8::/64", seen
            seen = explain_data(redis, "month", "::ffff:198.51.100.7", "--keys=addresses/64")
            assert seen["name"] == "month:198.51.100.7", seen


def test_keys_of_a_gateway_are_found_by_an_address():
    path = file("gateway.yaml", "policies:\n" + "".join(f"  - {{name: {name}, limits: [{{algorithm: fixed_window, limit: 9, period: 1h}}]}}\n"
                                                        for name in ("source", "network16", "network33", "overall")) +
                "overrides: {'network16:198.0.0.0/8': deny, 'network16:198.52.0.0/16': 4}\n")
    with Redis() as redis:
        for policy, key, name, denied in (("source", "198.51.100.7", "source:198.51.100.7", 0), ("source", "2001:db8::7", "source:2001:db8::/64", 0),
                                          ("network16", "198.51.100.7", "network16:198.51.0.0/16", 1),
                                          ("network16", "198.52.0.0/16", "network16:198.52.0.0/16", 0),
                                          ("network16", "198.0.0.0/9", "network16:198.0.0.0/9", 1),
                                          ("network33", "2001:db8:8001::1", "network33:2001:db8:8000::/33", 0), ("overall", "", "overall:", 0)):
            seen = data("explain", "--policies", path, "--redis", redis.url, policy, key, code=denied)
            assert seen["name"] == name and seen["denied"] == bool(denied), seen
            assert "another form" not in weir("explain", "--policies", path, "--redis", redis.url, policy, key, code=denied)[0]
        for policy, key in (("overall", "198.51.100.7"), ("network16", "198.51.100.0/24"), ("network16", "2001:db8::7")):
            out, fault = weir("explain", "--policies", path, "--redis", redis.url, policy, key, code=2)
            assert out == "" and f'policy "{policy}" has no key "{key}"' in fault, (out, fault)


def test_tiers_share_what_is_used():
    with Redis() as redis, Node(redis, policies()) as node:
        node.sync()
        node.charge("token/pro", "x", 2500)
        for policy in ("token", "token/pro"):
            assert 2000 < agrees(redis, node, policy, "x")["limits"][0]["count"] <= 2500


def test_a_record_of_another_type_is_told():
    with Redis() as redis:
        for policy in ("fixed", "sliding", "log", "token", "leaky"):
            redis.call("SET", told(redis, policy, "x")["limits"][0]["record"]["name"], "text")
            if policy == "sliding":
                continue  # the window may be over by now
            out, fault = explain(redis, policy, "x", code=1)
            assert "is of another type than weir's records" in fault and fault.startswith("weir:{"), fault
            assert out.startswith(f"{policy}:x is admitted"), out
        redis.call("SET", "weir:overrides", "text")
        redis.call("SET", "weir:nodes", "text")
        out, fault = explain(redis, "month", "x", code=1)
        assert fault == "weir:overrides: is no hash, so nodes read no overrides from it\n", fault
        assert "  no node has been in the fleet lately\n" in out, out


def test_fields_that_weir_has_not_written_count_as_for_nodes():
    with Redis() as redis:
        name = told(redis, "fixed", "x")["limits"][0]["record"]["name"]
        for sum_field, used in (("12", 12), ("12 20", 12), ("-3 20 4", 0), ("8 20 4", 8), ("zzz", 0), ("12 x", 0), ("", 0), ("-1", 0),
                                ("99999999999999999999", 0), ("9223372036854775807", 0), ("\x1b[31m", 0)):
            redis.call("HSET", name, "sum", sum_field, "a\x1b[31m", "7", "noincarnation", "8 9")
            seen = explain_data(redis, "fixed", "x")
            assert seen["limits"][0]["count"] == used, (sum_field, seen)
            out, _ = explain(redis, "fixed", "x")
            assert "\x1b" not in out and "admitted 7 " in out, out
        for field, admitted, demand, refunds in (("7", 7, 7, 0), ("0", 0, 0, 0), ("0 50", 0, 50, 0), ("8 9", 8, 9, 0), ("8 9 3", 8, 9, 3), ("8 9 3 1", 8, 9, 3),
                                                 ("8 9 3 1 5", 0, 0, 0), ("-1 9", 0, 0, 0), ("-4 9 3", 0, 0, 0), ("8 9x", 0, 0, 0), ("8 ", 8, 8, 0)):
            redis.call("DEL", name)
            redis.call("HSET", name, "sum", "1", "abc", field)
            part, = explain_data(redis, "fixed", "x")["limits"][0]["record"]["nodes"]
            assert part | {"node": "abc", "admitted": admitted, "demand": demand, "refunds": refunds} == part, (field, part)
        redis.call("DEL", name)
        redis.call("ZADD", "weir:nodes", "inf", "!1", "5", "junk", "-1", "a:1:2", "7", "n:600:9999999999", "9", "x" * 99 + ":1:2")
        assert explain_data(redis, "fixed", "x")["nodes"] == []


def test_the_counts_of_all_parts_of_a_record_are_told():
    """Authors are named by three bytes of the node and three of the key's stay there; here of those that are typed easily."""
    with Redis() as redis:
        name = told(redis, "fixed", "x")["limits"][0]["record"]["name"]
        part = name[:name.index("}") + 1] + "{12.77}"
        redis.call("ZADD", "weir:nodes", "inf", "!1", "5", "1ea3e0aaaaaa:600:20000")
        redis.call("HSET", name, "mark", "77", "sum", "23", "parts", ",12,3,", "%%%abc", "5", "%%&abc", "6", "part:9", "100")
        redis.call("HSET", part, "%%%abd", "7", "%%'%%%", "5 9")
        seen = {part["node"]: (part["admitted"], part["demand"]) for part in explain_data(redis, "fixed", "x")["limits"][0]["record"]["nodes"]}
        assert seen == {"1ea3e0aaaaaa": (12, 12), "1f9804...": (6, 6), "208c28...": (5, 9)}, seen
        redis.call("SET", part, "text")
        assert len(explain_data(redis, "fixed", "x")["limits"][0]["record"]["nodes"]) == 2


def test_a_node_that_is_gone_is_told():
    with Redis() as redis:
        redis.call("ZADD", "weir:nodes", "inf", "!1000000", "1000", "abc:600:20000")
        out, _ = explain(redis, "fixed", "x")
        assert re.search(r"^  node abc: failed, has reported up to .* days ago$", out, re.M), out
        ahead = int(time.time() * 1000) + 1800000  # the clock of Redis has stepped back by half an hour
        redis.call("ZADD", "weir:nodes", ahead, "new:600:20000")
        assert abs(explain_data(redis, "fixed", "x")["fleet_time_ns"] // 1000000 - ahead) < 1000


class Status(http.server.BaseHTTPRequestHandler):
    text = ""

    def do_GET(self):
        self.send_response(200 if self.path == "/metrics" else 404)
        self.end_headers()
        self.wfile.write(Status.text.encode())

    def log_message(self, *_):
        pass


def test_answers_of_an_unknown_form_are_told_by_what_was_asked():
    info = b"role:master\r\nrun_id:" + b"a" * 40 + b"\r\n"
    nodes = b"*4\r\n:2\r\n:%d\r\n:0\r\n:0\r\n" % (time.time() * 1e6)
    good = {"entries": b"*2\r\n:0\r\n$1\r\n0\r\n", b"INFO": b"$%d\r\n%s\r\n" % (len(info), info), "nodes": nodes,
            "authors": b"*1\r\n:2\r\n", "reports": b"*2\r\n:0\r\n:0\r\n"}
    wrong = {"entries": ("", (b":1", b"*1\r\n:0", b"*2\r\n:0\r\n*0", b"*2\r\n$1\r\n0\r\n$1\r\n0", b"*3\r\n:0\r\n$1\r\n0\r\n$1\r\na",
                             b"*4\r\n:0\r\n$1\r\n0\r\n$1\r\na\r\n:1", b"*4\r\n:0\r\n$1\r\n0\r\n:1\r\n$1\r\na")),
             "nodes": ("an answer that is not weir's", (b":1", b"$1\r\na", b"*0", b"*1\r\n$1\r\na")),
             "authors": ("an answer that is not weir's", (b":1", b"*0", b"*1\r\n$1\r\na")),
             "reports": ("an answer that is not weir's", (b":1", b"*1\r\n:0", b"*2\r\n$1\r\na\r\n:1"))}

    def asked(words):
        """Which script a call is of, by the keys that it has."""
        if words[0] not in (b"EVALSHA", b"EVAL"):
            return words[0]
        keys = {b"weir:nodes": "nodes", b"weir:overrides": "entries"}
        return keys[words[3]] if words[3] in keys else "authors" if words[2] == b"1" else "reports"

    def explained(answers, code):
        with Fake(lambda words: answers.get(asked(words), b"-ERR unknown command\r\n")) as fake:
            return weir("explain", "--policies", policies(), "--redis", f"redis://127.0.0.1:{fake.port}", "fixed", "x", code=code), fake.port

    (out, fault), _ = explained(good, 0)
    assert out.startswith("fixed:x is admitted: 1,000 may still pass") and fault == "", (out, fault)
    for command, (says, answers) in wrong.items():
        for answer in answers:
            (_, fault), _ = explained({**good, command: answer + b"\r\n"}, 3)
            assert says in fault and ("an answer that is not weir's" in fault or "an answer of an unknown form" in fault), (command, answer, fault)


def test_the_status_of_nodes_is_told_beside():
    with Redis() as redis, Node(redis, policies(), SEEN_LIVE_MS) as node, http.server.HTTPServer(("127.0.0.1", 0), Status) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"127.0.0.1:{server.server_port}"
        Status.text = node.metrics()
        seen = explain_data(redis, "fixed", "x", "--status", address)["status"]
        assert len(seen) == 1 and seen[0]["node"] == node.id and seen[0]["outage_mode"] == "fleet" and seen[0]["redis_up"], seen
        out, _ = explain(redis, "fixed", "x", "--status", f"{address},{address}")
        assert re.search(rf"^  node {node.id} \(\S+, {address}\): live, has reported .* ago; last sync .* ago$", out, re.M), out
        Status.text = Status.text.replace('{policy="fixed",mode="fleet"} 1', '{policy="fixed",mode="fleet"} 0').replace(
            '{policy="fixed",mode="share"} 0', '{policy="fixed",mode="share"} 1')
        assert "outage mode share\n" in explain(redis, "fixed", "x", "--status", address)[0]
        Status.text = "junk"
        out, fault = explain(redis, "fixed", "x", "--status", address, code=3)
        assert fault == f"{address}: its /metrics are no metrics of a node with Redis\n" and "fixed:x is admitted" in out, fault
        for wrong, says in (("nowhere", "give host:port"), (":1", "give host:port"), ("127.0.0.1:1", "refused")):
            assert says in explain(redis, "fixed", "x", "--status", wrong, code=3)[1], wrong
        server.shutdown()

        def reset(listener):
            with listener.accept()[0] as link:
                link.recv(65536)
                link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # its end is a reset
        with socket.create_server(("127.0.0.1", 0)) as listener:
            threading.Thread(target=reset, args=[listener], daemon=True).start()
            address = f"127.0.0.1:{listener.getsockname()[1]}"
            assert explain(redis, "fixed", "x", "--status", address, code=3)[1] == f"{address}: no answer\n"


def test_wrong_words_are_refused():
    with Redis() as redis:
        for words, says in (((), "give a POLICY and a KEY"), (("fixed",), "give a POLICY and a KEY"),
                            (("fixd", "x"), 'no policy "fixd"; did you mean "fixed"?'), (("zzzzzz", "x"), 'no policy "zzzzzz"; weir check'),
                            (("fixed", "x", "--cost=0"), "--cost takes"), (("fixed", "x", "--cost=x"), "--cost takes"),
                            (("fixed", "x", "--cost=-1"), "--cost takes"), (("fixed", "x", "--cost=4398046511104"), "--cost takes"),
                            (("fixed", "x", "--keys=text"), '--keys is "text"; give bytes'),
                            (("fixed", "x", "--keys=addresses"), 'has no key "x"; give'),
                            (("fixed", "k" * 1025), "the key "), (("fixed", "%zz"), "is malformed"),
                            (("fixed", "k" * 9000), "the key is too long"),
                            (("fixed", "x", "--prefix={}"), "prefix")):
            out, fault = explain(redis, *words, code=2)
            assert out == "" and says in fault, (words, fault)
        assert "give --policies=FILE" in weir("explain", "fixed", "x", "--redis", redis.url, code=2)[1]
        assert "WEIR_REDIS_URL" in weir("explain", "fixed", "x", "--policies", policies(), code=2)[1]
        assert "cannot be read" in weir("explain", "a", "x", "--redis", redis.url, "--policies", "nowhere", code=3)[1]
        bad = file("bad.yaml", "policies: []\n")
        assert "there are no policies" in weir("explain", "a", "x", "--redis", redis.url, "--policies", bad, code=1)[1]
        assert "No such file" in explain(redis, "fixed", "x", "--fleet-secret-file=nowhere", code=3)[1]
        assert "is no secret" in explain(redis, "fixed", "x", "--fleet-secret-file", file("empty", ""), code=3)[1]


def test_a_redis_that_does_not_answer_is_an_error_of_its_own():
    with Redis() as redis:
        pass
    assert explain(redis, "fixed", "x", code=3) == ("", f"Redis at {redis.path}: cannot connect: No such file or directory\n")
    for answer, says in ((b"-ERR no\r\n", "ERR no"), (b"junk\r\n", "protocol"), (b"+OK\r\n", "not weir's"),
                         (b"-NOAUTH Authentication required.\r\n", "NOAUTH")):
        with Fake(answer) as fake:
            out, fault = weir("explain", "--policies", policies(), "fixed", "x", "--redis", f"redis://127.0.0.1:{fake.port}", code=3)
            assert out == "" and says in fault, (answer, fault)


def test_an_interrupted_command_leaves_nothing():
    with Fake(None) as fake:
        child = subprocess.Popen([*WEIR, "explain", "--policies", str(policies()), "fixed", "x", "--redis",
                                  f"redis://127.0.0.1:{fake.port}"], env=PLAIN, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        end = time.monotonic() + 60
        while b"INFO" not in fake.seen:
            assert time.monotonic() < end and child.poll() is None
            time.sleep(0.01)
        child.send_signal(signal.SIGINT)
        out, fault = child.communicate(timeout=60)
        assert child.returncode in (-signal.SIGINT, 128 + signal.SIGINT) and out == b"", (child.returncode, out, fault)


def test_output_that_cannot_be_written_is_an_error():
    with Redis() as redis:
        for words in ((), ("--json",)):
            command = [*WEIR, "explain", "--policies", str(policies()), "fixed", "x", "--redis", redis.url, *words]
            with open("/dev/full", "w") as full:
                done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, env=PLAIN, check=False)
            assert done.returncode == 4 and "No space left on device" in done.stderr, done
            reader, writer = os.pipe()
            os.close(reader)
            done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60, env=PLAIN, check=False)
            os.close(writer)
            assert done.returncode == 4 and "Broken pipe" in done.stderr, done


if __name__ == "__main__":
    run(globals())
