#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
weir override, on a private Redis: override_test.py WEIR_PROGRAM [TEST...]. Prints TAP. In the environment: SOURCE, the
directory of the project; GATEWAY, weir-gateway where there is one.

Guards: apps/weir/override_entries.c, apps/weir/override_hash.c, apps/weir/override_notes.c, apps/weir/override_trial.c,
apps/weir/redis_link.c, src/transport/redis/url.c, docs/redis.md
"""
import calendar
import os
import pathlib
import pwd
import re
import socket
import subprocess
import time

from command_support import data, file, need, PLAIN, run, weir, WEIR
from redis_support import Fake, free_port, Redis

SOURCE, GATEWAY = pathlib.Path(os.environ["SOURCE"]), os.environ.get("GATEWAY", "")

POLICIES = """policies:
  - name: api
    limits:
      - {algorithm: token_bucket, limit: 100, period: 1s, burst: 200}
      - {algorithm: sliding_window, limit: 5000, period: 1h}
  - name: login
    limits: [{algorithm: sliding_log, limit: 5, period: 1m}]
"""


NOTE = re.compile(r"; set \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ by \S+$", re.M)


def override(redis, *words, code=0, **more):
    """What it says; of who has set an override and when there are tests of their own."""
    out, fault = told(redis, *words, code=code, **more)
    return NOTE.sub("", out), fault


def told(redis, *words, code=0, **more):
    return weir("override", *words, code=code, environment={"WEIR_REDIS_URL": redis.url}, **more)


def override_data(redis, *words, code=0):
    said = data("override", *words, code=code, environment={"WEIR_REDIS_URL": redis.url})
    for entry in said.get("overrides", ()):
        for name in ("by", "at", "change"):
            entry.pop(name, None)
    return said


def test_what_is_set_is_listed_and_can_be_removed():
    path = file("policies.yaml", POLICIES)
    with Redis() as redis:
        assert override(redis, "list") == ("0 overrides in weir:overrides\n", "")
        assert override(redis, "set", "api:partner", "allow") == ("api:partner: allow\n", "")
        assert override(redis, "set", "--policies", path, "api:198.51.100.7", "200/50 10000") == (
            "api:198.51.100.7 has 200 a second with bursts of 50, and 10,000 an hour\n", "")
        assert redis.hash() == {"api:partner": "allow", "api:198.51.100.7": "200/50 10000"}
        assert override(redis, "list")[0] == (
            "  api:198.51.100.7: 200/50 10000\n  api:partner: allow\n2 overrides in weir:overrides\n")
        assert override(redis, "list", "--policies", path)[0] == (
            "  api:198.51.100.7 has 200 a second with bursts of 50, and 10,000 an hour\n  api:partner is never limited\n"
            "2 overrides in weir:overrides\n")
        assert override_data(redis, "list", "--policies", path) == {"key": "weir:overrides", "overrides": [
            {"name": "api:198.51.100.7", "value": "200/50 10000",
             "words": "has 200 a second with bursts of 50, and 10,000 an hour"},
            {"name": "api:partner", "value": "allow", "words": "is never limited"}]}
        assert override(redis, "set", "api:partner", "allow")[0] == "api:partner: allow, as before\n"
        assert override(redis, "set", "api:partner", "deny")[0] == "api:partner: deny; before: allow\n"
        assert override_data(redis, "set", "api:partner", "7 8") == {
            "name": "api:partner", "changed": True, "value": "7 8", "before": "deny"}
        assert override(redis, "rm", "api:partner")[0] == "api:partner is removed; before: 7 8\n"
        assert override(redis, "rm", "api:partner", code=1) == ("", 'weir:overrides: there is no entry "api:partner"\n')
        assert override_data(redis, "rm", "api:198.51.100.7") == {
            "name": "api:198.51.100.7", "changed": True, "before": "200/50 10000"}
        assert redis.call("EXISTS", "weir:overrides") == ["0"]


def test_who_and_when_are_noted_for_every_entry_and_change():
    path = file("policies.yaml", POLICIES)
    with Redis() as redis:
        told(redis, "set", "--by=alice", "api:x", "deny")
        told(redis, "set", "--by", "bob\tb", "api:y", "7 8")
        seen = data("override", "list", environment={"WEIR_REDIS_URL": redis.url})["overrides"]
        assert [(entry["by"], entry["change"]) for entry in seen] == [("alice", 1), ("bob_b", 2)], seen
        assert all(abs(calendar.timegm(time.strptime(entry["at"], "%Y-%m-%dT%H:%M:%SZ")) - time.time()) < 100 for entry in seen)
        assert re.search(r"^  api:x: deny; set \S+Z by alice$", told(redis, "list")[0], re.M), told(redis, "list")
        assert re.search(r"^  api:x is never served; set \S+Z by alice$", told(redis, "list", "--policies", path)[0], re.M)
        redis.call("HSET", "weir:overrides", "api:x", "allow")  # by hand: the note is of what was there
        assert "  api:x: allow\n" in told(redis, "list")[0]
        told(redis, "rm", "--by=carol", "api:x")
        told(redis, "set", "--by=alice", "api:y", "7 8")  # no change
        log = data("override", "log", environment={"WEIR_REDIS_URL": redis.url})["changes"]
        assert [(change["change"], change["by"], change["action"], change["name"], change.get("value"), change.get("before"))
                for change in log] == [(1, "alice", "set", "api:x", "deny", None), (2, "bob_b", "set", "api:y", "7 8", None),
                                       (3, "carol", "rm", "api:x", None, "allow")], log
        out = told(redis, "log")[0].splitlines()
        assert re.fullmatch(r"\S+Z by alice: api:x: deny", out[0]) and re.fullmatch(
            r"\S+Z by carol: api:x is removed; before: allow", out[2]), out
        assert redis.call("HKEYS", "weir:notes:{weir:overrides}") == ["!changes", "api:y"]
        for value, (environment, by) in enumerate((({"SUDO_USER": "dora"}, "dora"), ({"SUDO_USER": ""}, pwd.getpwuid(os.getuid()).pw_name)), 1):
            weir("override", "set", "api:z", str(value), environment={"WEIR_REDIS_URL": redis.url, **environment})
            changes = data("override", "log", environment={"WEIR_REDIS_URL": redis.url})["changes"]
            assert changes[-1]["by"] == by, (by, changes[-2:])
        # The last thousand changes are kept, and the notes are no entries of nodes.
        redis.call("EVAL", "for i = 100, 1200 do redis.call('ZADD', KEYS[1], i, i .. '\t1\ta\tset\tapi:x\t1\t') end", 1,
                   "weir:changes:{weir:overrides}")
        told(redis, "set", "api:z", "99")
        assert redis.call("ZCARD", "weir:changes:{weir:overrides}") == ["1000"]
        assert set(redis.hash()) == {"api:y", "api:z"}
        redis.call("SET", "weir:changes:{weir:overrides}", "text")
        assert "WRONGTYPE" in told(redis, "set", "api:z", "100", code=3)[1] and redis.hash()["api:z"] == "99"


def test_an_override_may_end_by_itself():
    path = file("policies.yaml", POLICIES)
    with Redis() as redis:
        out, _ = override(redis, "set", "--policies", path, "--until", "2499-12-01T00:00Z", "api:x", "200/50 10000")
        assert out == "api:x has 200 a second with bursts of 50, and 10,000 an hour until 2499-12-01T00:00Z\n", out
        assert redis.hash() == {"api:x": "200/50 10000 until 2499-12-01T00:00Z"}
        assert override(redis, "set", "api:x", "deny until 2499-12-01")[0].startswith("api:x: deny until 2499-12-01; before: 200/50")
        for until, seconds in (("90s", 90), ("5m", 300), ("2h", 7200), ("7d", 604800), ("1w", 604800)):
            override(redis, "set", "--until", until, "api:y", "deny")
            end = calendar.timegm(time.strptime(redis.hash()["api:y"], "deny until %Y-%m-%dT%H:%M:%SZ"))
            assert abs(end - time.time() - seconds) < 60, (until, redis.hash())
        for until, says in (("2001-01-01", "which is over"), ("tomorrow", "give a time in UTC"), ("0h", "give a time"), ("", "give a time"),
                            ("2h2", "give a time"), ("-2h", "give a time"), ("2026-02-30", "give a time")):
            out, fault = override(redis, "set", "--until", until, "api:z", "deny", code=2)
            assert out == "" and says in fault, (until, fault)
        assert "has an end already" in override(redis, "set", "--until=2h", "api:z", "deny until 2499-12-01", code=2)[1]
        assert "--until is of set alone" in override(redis, "list", "--until=2h", code=2)[1]
        assert "is no end of an override" in override(redis, "set", "api:z", "deny until later", code=1)[1]
        redis.call("HSET", "weir:overrides", "api:x", "deny until 2001-01-01")
        assert "  api:x: deny until 2001-01-01, which is over\n" in override(redis, "list")[0]
        assert override_data(redis, "list")["overrides"][0] == {"name": "api:x", "value": "deny until 2001-01-01", "ended": True}


def test_what_nodes_leave_out_is_not_written():
    path = file("policies.yaml", POLICIES)
    long_key = "k" * 1025
    with Redis() as redis:
        for words, says in ((("partner", "allow"), '"partner" names no policy; give policy:key'),
                            (("version", "allow"), '"version" names no policy'),
                            (("api:x", "permit"), '"permit" is no value for policy "api"'),
                            (("api:x", "1//2"), '"1//2" is no value'),
                            (("api:x", ""), '"" is no value'),
                            (("api:x", "1 2 3 4 5"), '"1 2 3 4 5" is no value'),
                            (("api:x", "4398046511104"), "is no value"),
                            (("a b:x", "allow"), "byte 0x20"),
                            (("api:" + long_key, "allow"), "is malformed; give at most 1024 bytes"),
                            (("api:x", "1" + " " * 5000), "the entry has more than 4096 bytes"),
                            (("api:x", "7", "--policies", path), "a number for each of its limits (2)"),
                            (("login:x", "65537", "--policies", path), "limit 65537, but a sliding log"),
                            (("apl:x", "allow", "--policies", path), 'there is no policy "apl"')):
            out, fault = override(redis, "set", *words, code=1)
            assert out == "" and says in fault and fault.count("\n") == 1, (words, fault)
        assert override(redis, "rm", "version", code=1)[1].startswith('"version" is no entry')
        assert redis.call("EXISTS", "weir:overrides") == ["0"]
        for value in ("1", "1/2 3", "1,2,3,4", "4398046511103", "4398046511103/4398046511103", "allow", "deny"):
            override(redis, "set", "any/tier:x", value)
            assert redis.hash() == {"any/tier:x": value}


def test_names_that_no_key_of_a_gateway_can_have_are_not_written():
    path = file("gateway.yaml", "policies:\n" + "".join(f"  - {{name: {name}, limits: [{{algorithm: fixed_window, limit: 9, period: 1h}}]}}\n"
                                                        for name in ("source", "network16", "overall")))
    with Redis() as redis:
        for name in ("overall:127.0.0.5", "network16:127.1.2.0/24", "source:partner"):
            for words in (("--policies", path), ("--keys=gateway",)):
                out, fault = override(redis, "set", *words, name, "allow", code=1)
                assert out == "" and f'policy "{name.split(":")[0]}" has no key' in fault, (words, fault)
            assert redis.call("EXISTS", "weir:overrides") == ["0"]
        for name in ("overall:", "network16:127.0.0.0/8", "source:198.51.100.7"):
            assert override(redis, "set", "--policies", path, name, "deny") == (f"{name} is never served\n", "")
        override(redis, "set", "overall:127.0.0.5", "allow")  # whose policy is nobody's here
        out, fault = override(redis, "list", "--policies", path, code=1)
        assert "overall:127.0.0.5: allow, malformed" in out and 'policy "overall" has no key' in fault, (out, fault)
        override(redis, "rm", "--policies", path, "overall:127.0.0.5")
        assert len(redis.hash()) == 3
        assert "--keys is gateway or bytes" in override(redis, "list", "--keys=addresses", code=2)[1]


def test_an_override_of_all_policies_needs_no_policy():
    path = file("policies.yaml", POLICIES)
    with Redis() as redis:
        for words in ((), ("--policies", path)):
            assert override(redis, "set", *words, "*:198.51.100.0/24", "allow")[0].startswith("*:198.51.100.0/24 is never limited")
            assert override(redis, "set", *words, "*:2001:DB8::7", "deny")[0].startswith("*:2001:db8::7 is never served")
            assert "  *:198.51.100.0/24 is never limited\n" in override(redis, "list", *words)[0]
            for name, value, says in (("*:partner", "allow", "is none; give one such as"), ("*:198.51.100.7", "200", "is no value for all policies")):
                out, fault = override(redis, "set", *words, name, value, code=1)
                assert out == "" and says in fault, fault
        assert redis.hash() == {"*:198.51.100.0/24": "allow", "*:2001:db8::7": "deny"}
        override(redis, "rm", "*:198.51.100.0/24")
        assert redis.hash() == {"*:2001:db8::7": "deny"}


def test_a_name_is_written_as_weir_writes_it():
    with Redis() as redis:
        redis.call("HSET", "weir:overrides", "api:a b", "deny")  # as somebody else has written it
        assert override(redis, "set", "api:a b", "allow")[0] == "api:a%20b: allow; before: deny\n"
        assert redis.hash() == {"api:a%20b": "allow"}
        assert override(redis, "rm", "api:a b")[0] == "api:a%20b is removed; before: allow\n"
        redis.call("HSET", "weir:overrides", "api:a b", "deny")
        assert override(redis, "rm", "api:a b")[0] == "api:a%20b is removed; before: deny\n"
        assert redis.call("EXISTS", "weir:overrides") == ["0"]


def test_the_field_version_is_changed_where_there_is_one():
    with Redis() as redis:
        override(redis, "set", "api:x", "allow")
        assert "version" not in redis.hash()
        redis.call("HSET", "weir:overrides", "version", "41")
        override(redis, "set", "api:x", "deny")
        assert redis.hash()["version"] == "42"
        override(redis, "set", "api:x", "deny")  # no change
        assert redis.hash()["version"] == "42"
        assert override(redis, "list")[0].endswith("\n1 override in weir:overrides, version 42\n")
        assert override_data(redis, "list")["version"] == "42"
        override(redis, "rm", "api:x")
        assert redis.hash() == {"version": "43"}
        override(redis, "rm", "api:x", code=1)
        assert redis.hash() == {"version": "43"}
        seen = {"a text"}
        redis.call("HSET", "weir:overrides", "version", "007")  # Redis takes it for no number
        override(redis, "set", "api:first", "5")
        assert redis.hash()["version"] not in ("007", "8") and redis.hash()["api:first"] == "5", redis.hash()
        override(redis, "rm", "api:first")
        redis.call("HSET", "weir:overrides", "version", "a text")
        for value in ("1", "2", "3"):
            override(redis, "set", "api:x", value)
            version = redis.hash()["version"]
            assert version not in seen and len(version) <= 40, version
            seen.add(version)


def test_shadow_mode_is_told():
    path = file("shadow.yaml", "policies:\n  - {name: api, mode: shadow, limits: [{algorithm: fixed_window, limit: 9, period: 1h}]}\n")
    with Redis() as redis:
        for value, words in (("deny", "is never served; shadow mode: everything passes all the same"),
                             ("7", "has 7 an hour (counted anew each hour); shadow mode: everything passes all the same"),
                             ("allow", "is never limited")):
            out, _ = override(redis, "set", "--policies", path, "api:x", value)
            assert out.startswith(f"api:x {words}"), out


def test_malformed_entries_are_told_and_can_be_removed():
    path = file("policies.yaml", POLICIES)
    with Redis() as redis:
        redis.call("HSET", "weir:overrides", "api:x", "\x1b[31mzzz", "nocolon", "allow", "other:y", "allow", "api:z", "1")
        out, fault = override(redis, "list", "--policies", path, code=1)
        assert "  api:x: \\x1b[31mzzz, malformed\n" in out and "  other:y: allow, of no policy of the file\n" in out, out
        assert re.search(r"^api:x: .* is no value for policy \"api\"", fault, re.M), fault
        assert re.search(r"^api:z: .* is no value for policy \"api\"", fault, re.M) and "\x1b" not in fault, fault
        assert re.search(r"^nocolon: .* names no policy", fault, re.M), fault
        told = {entry["name"]: entry for entry in override_data(redis, "list", "--policies", path, code=1)["overrides"]}
        assert "is no value" in told["api:z"]["error"] and "error" not in told["other:y"] and "words" not in told["other:y"]
        override(redis, "rm", "--policies", path, "api:x")
        override(redis, "rm", "--policies", path, "other:y")
        assert set(redis.hash()) == {"nocolon", "api:z"}
        override(redis, "rm", "nocolon")
        assert set(redis.hash()) == {"api:z"}
        assert override(redis, "list")[0].startswith("  api:z: 1\n")  # without a file the policy may have one limit


def test_there_are_as_many_entries_as_nodes_read():
    with Redis() as redis:
        redis.call("EVAL", "for i = 1, 9999 do redis.call('HSET', KEYS[1], 'api:' .. i, 'allow') end", 1, "weir:overrides")
        redis.call("HSET", "weir:overrides", "version", "1")
        override(redis, "set", "api:last", "allow")
        out, fault = override(redis, "set", "api:more", "allow", code=1)
        assert out == "" and "there are 10000 entries" in fault, fault
        override(redis, "set", "api:last", "deny")
        assert override(redis, "list")[0].endswith("10000 overrides in weir:overrides, version 3\n")
        redis.call("HSET", "weir:overrides", "api:more", "allow")
        out, fault = override(redis, "list", code=1)
        assert len(set(out.splitlines())) == 10002 and "read 10000 entries, and not the other 1;" in fault, fault
        assert len(override_data(redis, "list", code=1)["overrides"]) == 10001


def test_the_prefix_and_the_database_are_the_operators_choice():
    with Redis() as redis:
        override(redis, "set", "--prefix=edge", "api:x", "allow")
        assert redis.hash("edge:overrides") == {"api:x": "allow"} and redis.hash() == {}
        override(redis, "set", "api:y", "allow", "--redis", f"redis://127.0.0.1:{redis.port}/3")
        assert redis.hash() == {} and redis.call("-n", "3", "HGETALL", "weir:overrides") == ["api:y", "allow"]
        for prefix in ("", "a b", "x" * 33, "{a}"):
            out, fault = override(redis, "list", "--prefix", prefix, code=2)
            assert out == "" and "prefix" in fault, (prefix, fault)


def test_wrong_words_are_refused():
    with Redis() as redis:
        for words, says in (((), "give list, set, rm or log"), (("lst",), 'did you mean "list"?'), (("zzzzzz",), "give list, set, rm or log"),
                            (("list", "api"), "list takes no operands"), (("set", "api:x"), "set takes a NAME and a VALUE"),
                            (("set", "api:x", "1", "2"), "set takes a NAME and a VALUE"), (("rm",), "rm takes a NAME"),
                            (("list", "--redis", "http://h"), "the scheme is not known"),
                            (("list", "--redis", "redis://u:s3cret@h/x"), "the database is not a number"),
                            (("list", "--redis", "redis+sentinel://:s3cret@h"), "the name of the primary is missing")):
            out, fault = override(redis, *words, code=2)
            assert out == "" and says in fault and "s3cret" not in fault, (words, fault)
        assert "give --redis=URL, or WEIR_REDIS_URL" in weir("override", "list", code=2)[1]
        assert "cannot be read" in override(redis, "list", "--policies", "nowhere", code=3)[1]
        assert "there are no policies" in override(redis, "list", "--policies", file("bad.yaml", "policies: []\n"), code=1)[1]


def test_a_redis_that_does_not_answer_is_an_error_of_its_own():
    with Redis() as redis:
        redis.call("SET", "weir:overrides", "text")
        for words in (("list",), ("set", "api:x", "allow"), ("rm", "api:x")):
            out, fault = override(redis, *words, code=3)
            says = "weir:overrides is no hash" if words == ("list",) else f"Redis at {redis.path}: WRONGTYPE "
            assert out == "" and fault.startswith(says), fault
    out, fault = weir("override", "list", "--redis", redis.url, code=3)
    assert fault == f"Redis at {redis.path}: cannot connect: No such file or directory\n", fault
    for answer, says in ((b"-ERR no\r\n", "ERR no"), (b"junk\r\n", "an answer that is not Redis's protocol"), (b"+OK\r\n", "not weir's"),
                         (b"*2\r\n:0\r\n*1\r\n$1\r\na\r\n", "not weir's"),
                         (b"-MOVED 1 nowhere\r\n", "MOVED 1 nowhere"), (b"-MOVED\r\n", "MOVED"),
                         (b"-ERR \x1b[31m\xff\r\n", "ERR ")):
        with Fake(answer) as fake:
            out, fault = weir("override", "list", "--redis", f"redis://127.0.0.1:{fake.port}", code=3)
            assert out == "" and says in fault and "\x1b" not in fault, (answer, fault)
    with Fake(None) as fake:
        out, fault = weir("override", "list", "--redis", f"redis://127.0.0.1:{fake.port}", code=3)
        assert out == "" and fault.startswith(f"Redis at 127.0.0.1:{fake.port}: ") and ("timed out" in fault or "no answer" in fault), fault


def test_a_cluster_and_replicas_lead_to_the_server_that_writes():
    with Redis() as redis:
        with Fake(f"-MOVED 1 127.0.0.1:{redis.port}\r\n".encode()) as moved:
            override(redis, "set", "api:x", "allow", "--redis", f"redis+cluster://127.0.0.1:{moved.port}")
            assert b"EVAL" in moved.seen and redis.hash() == {"api:x": "allow"}
        with Fake(b"-READONLY You can't write against a read only replica.\r\n") as replica:
            hosts = f"127.0.0.1:1,127.0.0.1:{replica.port},127.0.0.1:{redis.port}"
            override(redis, "set", "api:x", "deny", "--redis", f"redis://{hosts}")
            assert b"EVAL" in replica.seen and redis.hash() == {"api:x": "deny"}
            fault = override(redis, "set", "api:x", "1", "--redis", f"redis://127.0.0.1:{replica.port}", code=3)[1]
            assert "READONLY" in fault, fault
    port = free_port()
    with Fake(f"-MOVED 1 :{port}\r\n".encode()) as moved:  # a server that leads nowhere, on its own host
        fault = weir("override", "list", "--redis", f"redis://127.0.0.1:{moved.port}", code=3)[1]
        assert fault.startswith("Redis at 127.0.0.1:") and "MOVED" in fault, fault
    with Fake(b"") as loop:
        loop.answer = f"-MOVED 1 127.0.0.1:{loop.port}\r\n".encode()
        assert "MOVED" in weir("override", "list", "--redis", f"redis://127.0.0.1:{loop.port}", code=3)[1]


def acl():
    """The user of docs/redis.md, with another password."""
    text = (SOURCE / "docs/redis.md").read_text()
    block = re.search(r"^redis-cli (ACL SETUSER weir on .*?)^```", text, re.M | re.S)[1]
    return [word.strip("'") for word in block.replace("\\\n", " ").split()]


def test_the_user_of_the_page_has_the_rights_and_passwords_stay_secret():
    with Redis() as redis:
        redis.call(*acl())
        redis.call("ACL", "SETUSER", "weir", ">a%b:c@d/e?f")
        encoded = "".join(c if c.isalnum() else f"%{ord(c):02x}" for c in "a%b:c@d/e?f")
        url = f"redis://weir:{encoded}@127.0.0.1:{redis.port}"
        redis.call("HSET", "weir:overrides", "version", "1")
        weir("override", "set", "api:x", "allow", "--redis", url)
        assert "api:x: allow" in weir("override", "list", environment={"WEIR_REDIS_URL": url})[0]
        weir("override", "rm", "api:x", "--redis", url)
        fault = weir("override", "list", "--redis", f"redis://weir:no{encoded}@127.0.0.1:{redis.port}", code=3)[1]
        assert "WRONGPASS" in fault and encoded not in fault, fault
        fault = weir("override", "list", "--prefix=other", "--redis", url, code=3)[1]
        assert "NOPERM" in fault or "No permissions" in fault, fault
        # One who may read the overrides, and neither who has set them nor what was changed.
        redis.call("ACL", "SETUSER", "few", "on", ">few", "~weir:overrides", "+@all")
        for words in (("list",), ("log",), ("list", "--json"), ("log", "--json")):
            fault = weir("override", *words, "--redis", f"redis://few:few@127.0.0.1:{redis.port}", code=3)[1]
            assert "NOPERM" in fault or "No permissions" in fault, fault
    with Fake(None) as fake:  # the command line of a command that waits
        child = subprocess.Popen([*WEIR, "override", "list", "--redis", f"redis://:{encoded}@127.0.0.1:{fake.port}"], env=PLAIN,
                                 stderr=subprocess.DEVNULL)
        end = time.monotonic() + 60
        while b"AUTH" not in fake.seen:
            assert time.monotonic() < end
            time.sleep(0.01)
        assert encoded not in pathlib.Path(f"/proc/{child.pid}/cmdline").read_text()
        child.wait(60)


def test_nodes_take_what_is_written():
    need(GATEWAY != "", "there is no weir-gateway in this build")
    path = file("gateway.yaml", "policies:\n  - name: source\n    limits: [{algorithm: token_bucket, limit: 9, period: 1s}]\n")
    with Redis() as redis, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as backend:
        backend.bind(("127.0.0.1", 0))
        port = free_port()
        log = open(file("gateway.log", ""), "w+")
        node = subprocess.Popen([GATEWAY, "--listen", f"127.0.0.1:{port}", "--backend", "127.0.0.1:%d" % backend.getsockname()[1],
                                 "--policies", str(path), "--redis", redis.url, "--sync-interval-ms", "20", "--state", str(path.parent)],
                                env=PLAIN, stderr=log)

        def until(says):
            end = time.monotonic() + 60
            while says not in pathlib.Path(log.name).read_text():
                assert time.monotonic() < end and node.poll() is None, pathlib.Path(log.name).read_text()
                time.sleep(0.01)

        try:
            until(f"127.0.0.1:{port} -> ")  # entries that a node finds before it has policies are not told again
            override(redis, "set", "--policies", path, "source:198.51.100.7", "20/5")
            until("overrides: 1 key has an entry of its own")
            redis.call("HSET", "weir:overrides", "version", "1")
            override(redis, "set", "source:198.51.100.0/24", "deny")
            override(redis, "set", "source:2001:db8::/64", "allow")
            until("overrides: 3 keys have entries of their own")
            override(redis, "rm", "source:198.51.100.7")
            until("overrides: 2 keys have entries of their own")
            assert "malformed" not in pathlib.Path(log.name).read_text()
        finally:
            node.kill()
            node.wait()
            log.close()


if __name__ == "__main__":
    run(globals())
