#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
weir reset, against real servers and real nodes: reset_test.py WEIR_PROGRAM [TEST...]. Prints TAP.

Guards: apps/weir/reset/reset.c, apps/weir/reset/reset_round.c
"""
import json
import os
import pathlib
import re
import signal
import subprocess
import time

from command_support import data, file, PLAIN, run, weir, WEIR
from node_support import Node
from redis_support import Fake, Redis

SOURCE = pathlib.Path(os.environ["SOURCE"])
POLICIES = """policies:
  - name: fixed
    limits: [{algorithm: fixed_window, limit: 1000, period: 1d}]
  - name: sliding
    limits: [{algorithm: sliding_window, limit: 1000, period: 1d}]
  - name: log
    limits: [{algorithm: sliding_log, limit: 1000, period: 1h}]
  - name: token
    limits: [{algorithm: token_bucket, limit: 1000, period: 1h, burst: 1000}]
    tiers:
      - {name: pro, limits: [{algorithm: token_bucket, limit: 3000, period: 1h}, {algorithm: fixed_window, limit: 7000, period: 1d}]}
  - name: leaky
    limits: [{algorithm: leaky_bucket, limit: 1000, period: 1h, burst: 1000, delay: 999}]
  - name: secret
    hash_keys: true
    limits: [{algorithm: fixed_window, limit: 1000, period: 1d}]
  - name: own
    scope: process
    limits: [{algorithm: fixed_window, limit: 10, period: 1d}]
"""
KINDS = ("fixed", "sliding", "log", "token", "leaky", "secret")


def policies():
    return file("policies.yaml", POLICIES)


def reset(redis, *words, code=0):
    return weir("reset", "--policies", policies(), "--redis", redis.url, *words, code=code)


def explained(redis, policy, key):
    done = subprocess.run([*WEIR, "explain", "--json", "--policies", str(policies()), "--redis", redis.url, policy, key],
                          capture_output=True, text=True, timeout=60, env=PLAIN, check=False)
    return json.loads(done.stdout)


def test_a_key_of_any_algorithm_is_as_if_never_used_on_every_node():
    with Redis() as redis, Node(redis, policies()) as one, Node(redis, policies()) as other:
        for policy in KINDS:
            for turn in range(2):  # what is used after a reset counts, and is reset again
                one.charge(policy, "x", 700)
                other.charge(policy, "x", 400)
                one.sync()
                other.sync()
                assert explained(redis, policy, "x")["denied"], (policy, turn)
                members = sorted(redis.call("ZRANGE", "weir:nodes", "0", "-1"))
                out, _ = reset(redis, policy, "x")
                assert out.startswith(f"{policy}:x is as if never used, on each node with its next sync of the key\n"), out
                assert len(re.findall(r"^  \S+: 1,[01]\d\d ", out, re.M)) == 1, out  # what tiers share is told once
                seen = explained(redis, policy, "x")
                assert not seen["denied"] and seen["remaining"] == 1000 and seen["limits"][0]["count"] == 0, seen
                assert sorted(redis.call("ZRANGE", "weir:nodes", "0", "-1")) == members  # no node more or less
                for node in (one, other):
                    end = time.monotonic() + 60
                    while not node.check(policy, "x").allowed:  # its demand makes the node report the key
                        assert time.monotonic() < end, (policy, node.peek(policy, "x"))
                        node.sync()
        assert explained(redis, "fixed", "y")["limits"][0]["record"]["exists"] is False


def test_tiers_are_reset_together():
    with Redis() as redis, Node(redis, policies()) as node:
        node.charge("token", "x", 900)
        node.charge("token/pro", "x", 50)
        node.sync()
        out, _ = reset(redis, "token", "x")
        assert re.search(r"^  token: \d+ short of full$", out, re.M) and re.search(r"^  token/pro-2: 50 used in this window$", out, re.M), out
        assert explained(redis, "token/pro", "x")["limits"][1]["count"] == 0
        assert explained(redis, "token", "x")["remaining"] == 1000


def test_a_dry_run_changes_nothing():
    with Redis() as redis:
        with Node(redis, policies()) as node:
            for policy in KINDS:
                node.charge(policy, "x", 5)
            node.sync()
        names = sorted(redis.call("KEYS", "*"))
        dumps = [redis.call("--no-raw", "DUMP", name) for name in names]
        for policy in KINDS:
            out, _ = reset(redis, "--dry-run", policy, "x")
            assert out.startswith(f"{policy}:x would be as if never used\n") and f"  {policy}: 5 " in out.replace(" 4 ", " 5 "), out
        seen = data("reset", "-n", "--policies", policies(), "--redis", redis.url, "fixed", "x")
        assert seen["reset"] is False and seen["used"] and seen["limits"][0]["used"] == 5, seen
        assert sorted(redis.call("KEYS", "*")) == names and [redis.call("--no-raw", "DUMP", name) for name in names] == dumps


def test_a_key_that_was_never_used_leaves_nothing():
    with Redis() as redis:
        for policy in KINDS:
            assert reset(redis, policy, "x")[0] == f"{policy}:x had used nothing that is reported\n"
        assert redis.call("DBSIZE") == ["0"]
        seen = data("reset", "--policies", policies(), "--redis", redis.url, "fixed", "x")
        assert seen == {"name": "fixed:x", "reset": True, "used": False, "limits": []}, seen


def test_the_rights_of_the_nodes_suffice():
    text = (SOURCE / "docs/redis.md").read_text()
    block = re.search(r"^redis-cli (ACL SETUSER weir on .*?)^```", text, re.M | re.S)[1]
    with Redis() as redis, Node(redis, policies()) as node:
        redis.call(*(word.strip("'") for word in block.replace("\\\n", " ").split()))
        node.charge("fixed", "x", 999)
        node.sync()
        weir("reset", "--policies", policies(), "--redis", f"redis://weir:password@127.0.0.1:{redis.port}", "fixed", "x")
        assert explained(redis, "fixed", "x")["remaining"] == 1000
        redis.call("ACL", "SETUSER", "weir", "-eval", "-evalsha")
        node.charge("fixed", "x", 999)
        node.sync()
        out, fault = weir("reset", "--policies", policies(), "--redis", f"redis://weir:password@127.0.0.1:{redis.port}", "fixed", "x",
                          code=3)
        assert out == "" and "permission" in fault.lower(), fault
        assert explained(redis, "fixed", "x")["remaining"] < 1000


def test_wrong_words_and_records_of_another_type():
    with Redis() as redis:
        for words, says in (((), "give a POLICY and a KEY"), (("fixd", "x"), 'did you mean "fixed"?'), (("own", "x"), "of process scope"),
                            (("fixed", "198.51.100.0/24"), "is a network"), (("fixed", "x", "--keys=text"), "--keys is")):
            out, fault = reset(redis, *words, code=2)
            assert out == "" and says in fault, (words, fault)
        assert "give --policies=FILE" in weir("reset", "fixed", "x", "--redis", redis.url, code=2)[1]
        assert "WEIR_REDIS_URL" in weir("reset", "fixed", "x", "--policies", policies(), code=2)[1]
        assert "cannot be read" in weir("reset", "fixed", "x", "--policies", "nowhere", "--redis", redis.url, code=3)[1]
        redis.call("SET", explained(redis, "fixed", "x")["limits"][0]["record"]["name"], "text")
        out, fault = reset(redis, "fixed", "x", code=1)
        assert out == "" and "is of another type than weir's records" in fault, fault
        for stream, says in (("/dev/full", "No space left on device"),):
            with open(stream, "w") as full:
                done = subprocess.run([*WEIR, "reset", "--policies", str(policies()), "log", "x", "--redis", redis.url], stdout=full,
                                      stderr=subprocess.PIPE, text=True, timeout=60, env=PLAIN, check=False)
            assert done.returncode == 4 and says in done.stderr, done
        reader, writer = os.pipe()
        os.close(reader)
        done = subprocess.run([*WEIR, "reset", "--policies", str(policies()), "log", "x", "--redis", redis.url], stdout=writer,
                              stderr=subprocess.PIPE, text=True, timeout=60, env=PLAIN, check=False)
        os.close(writer)
        assert done.returncode == 4 and "Broken pipe" in done.stderr, done
    assert reset(redis, "fixed", "x", code=3) == ("", f"Redis at {redis.path}: cannot connect: No such file or directory\n")


def test_an_interrupted_command_leaves_nothing():
    with Fake(None) as fake:
        child = subprocess.Popen([*WEIR, "reset", "--policies", str(policies()), "fixed", "x", "--redis",
                                  f"redis://127.0.0.1:{fake.port}"], env=PLAIN, stdout=subprocess.PIPE)
        end = time.monotonic() + 60
        while b"INFO" not in fake.seen:
            assert time.monotonic() < end and child.poll() is None
            time.sleep(0.01)
        child.send_signal(signal.SIGINT)
        assert child.communicate(timeout=60)[0] == b"" and child.returncode in (-signal.SIGINT, 128 + signal.SIGINT)


if __name__ == "__main__":
    run(globals())
