#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
weir check: what policies admit, in words and as data, and what is wrong with a file. check_test.py WEIR_PROGRAM
[TEST...]. Prints TAP.

Guards: apps/weir/check_files.c, apps/weir/describe.c, apps/weir/quantity.c, apps/weir/tell_policies.c,
apps/weir/listed_policies.c, apps/weir/policy_probe.c, src/limiter/list_policies.c
"""
import os
import subprocess

from command_support import data, file, PLACE, PLAIN, run, weir, WEIR

REST = "; while Redis is away a node admits its share"

# The fields of a limit, and what it admits.
LIMITS = {
    "token_bucket, limit: 100, period: 1s, burst: 200": "100 a second with bursts of 200",
    "token_bucket, limit: 100, period: 1s": "100 a second with bursts of 100",
    "token_bucket, limit: 1, period: 1m": "1 a minute without bursts",
    "token_bucket, limit: 4398046511103, period: 366d, burst: 4398046511103":
        "4,398,046,511,103 every 366 days with bursts of 4,398,046,511,103",
    "sliding_window, limit: 5000, period: 1h": "5,000 an hour",
    "sliding_window, limit: 999, period: 1d": "999 a day",
    "sliding_window, limit: 1000, period: 1ms": "1,000 a millisecond",
    "sliding_window, limit: 5, period: 10s": "5 every 10 seconds",
    "sliding_window, limit: 5, period: 60s": "5 a minute",
    "sliding_window, limit: 5, period: 90s": "5 every 90 seconds",
    "sliding_window, limit: 5, period: 120m": "5 every 2 hours",
    "sliding_window, limit: 5, period: 36h": "5 every 36 hours",
    "sliding_window, limit: 5, period: 100m": "5 every 1 hour 40 minutes",
    "sliding_window, limit: 5, period: 1500ms": "5 every 1 second 500 milliseconds",
    "sliding_window, limit: 5, period: 250ms": "5 every 250 milliseconds",
    "sliding_window, limit: 5, period: 1d1h1m1s1ms1us1ns":
        "5 every 1 day 1 hour 1 minute 1 second 1 millisecond 1 microsecond 1 nanosecond",
    "sliding_log, limit: 5, period: 1h": "at most 5 in any hour",
    "sliding_log, limit: 65536, period: 10s": "at most 65,536 in any 10 seconds",
    "fixed_window, limit: 20, period: 1m": "20 a minute (counted anew each minute)",
    "fixed_window, limit: 20, period: 15m": "20 every 15 minutes (counted anew every 15 minutes)",
    "fixed_window, limit: 1000000, calendar: month": "1,000,000 each calendar month (UTC)",
    "fixed_window, limit: 10, calendar: day": "10 each calendar day (UTC)",
    "leaky_bucket, limit: 100, period: 1s, burst: 20":
        "100 a second evenly (one every 10 milliseconds) with a queue of 20 that waits up to 190 milliseconds",
    "leaky_bucket, limit: 3, period: 1s, burst: 20":
        "3 a second evenly (one about every 333 milliseconds) with a queue of 20 that waits up to about 6.33 seconds",
    "leaky_bucket, limit: 60, period: 1m, burst: 2":
        "60 a minute evenly (one every second) with a queue of 2 that waits up to 1 second",
    "leaky_bucket, limit: 1, period: 10s, burst: 7": "1 every 10 seconds evenly with a queue of 7 that waits up to 1 minute",
    "leaky_bucket, limit: 10, period: 1s, burst: 1": "10 a second evenly (one every 100 milliseconds) without a queue",
    "leaky_bucket, limit: 10, period: 1s, burst: 20, delay: 5":
        "10 a second evenly (one every 100 milliseconds) with a queue of 20 of which 6 pass at once and the rest waits up "
        "to 1.4 seconds",
    "leaky_bucket, limit: 10, period: 1s, burst: 20, delay: 18":
        "10 a second evenly (one every 100 milliseconds) with a queue of 20 of which 19 pass at once and the rest waits up "
        "to 100 milliseconds",
    "leaky_bucket, limit: 10, period: 1s, burst: 20, delay: 19": "10 a second with bursts of 20",
    "leaky_bucket, limit: 10, period: 1s, burst: 20, delay: 20": "10 a second with bursts of 20",
    "leaky_bucket, limit: 100000, period: 1s, burst: 100":
        "100,000 a second evenly (one every 10 microseconds) with a queue of 100 that waits up to 990 microseconds",
    "leaky_bucket, limit: 600000000, period: 1s, burst: 5":
        "600,000,000 a second evenly (one about every 1.67 nanoseconds) with a queue of 5 that waits up to about 6.67 "
        "nanoseconds",
}

# Fields of a policy, and what stands behind its limits.
SETTINGS = {
    "on_outage: local": "; while Redis is away a node admits the whole limit",
    "on_outage: open": "; while Redis is away a node lets everything pass",
    "on_outage: closed": "; while Redis is away a node lets nothing pass",
    "outage_grace: 90s": "; when Redis has been away for 90 seconds a node admits its share",
    "long_outage: 1h, on_long_outage: closed": REST + ", and after 1 hour more lets nothing pass",
    "long_outage: 1h": REST,  # nothing changes after it
    "on_long_outage: closed": REST,  # there is no long outage
    "outage_grace: 2s, on_outage: closed, long_outage: 30d, on_long_outage: open":
        "; when Redis has been away for 2 seconds a node lets nothing pass, and after 30 days more lets everything pass",
    "mode: shadow": "; shadow mode: everything passes" + REST,
    "hash_keys: true": REST + "; Redis sees hashes of the keys",
    "scope: process, on_outage: open, hash_keys: true": "; each process by itself",
    "mode: shadow, scope: process": "; shadow mode: everything passes; each process by itself",
}


def write(name, *policies, more=""):
    """A file of policies, each with its fields and its limits."""
    lines = [f"  - {{name: p{i}, {fields}limits: [{', '.join('{algorithm: ' + limit + '}' for limit in limits)}]}}"
             for i, (fields, *limits) in enumerate(policies)]
    return file(name, "\n".join(["policies:", *lines, more]))


def lines_of(path):
    """What it says of each policy, by name."""
    out, fault = weir("check", path)
    assert fault == ""
    return dict(line.strip().split(": ", 1) for line in out.splitlines()[1:])


def test_every_algorithm_is_told_in_words():
    path = write("limits.yaml", *(("", limit) for limit in LIMITS))
    assert list(lines_of(path).values()) == [words + REST for words in LIMITS.values()]


def test_limits_of_one_policy_are_one_sentence():
    a, b, c = "token_bucket, limit: 1, period: 1s", "sliding_window, limit: 2, period: 1m", "sliding_log, limit: 3, period: 1h"
    words = lines_of(write("several.yaml", ("", a, b), ("", a, b, c)))
    assert words["p0"] == "1 a second without bursts, and 2 a minute" + REST
    assert words["p1"] == "1 a second without bursts, 2 a minute, and at most 3 in any hour" + REST


def test_settings_are_told_behind_the_limits():
    path = write("settings.yaml", *((fields + ", ", "sliding_window, limit: 2, period: 1m") for fields in SETTINGS))
    assert list(lines_of(path).values()) == ["2 a minute" + words for words in SETTINGS.values()]


def test_a_tier_is_told_by_what_differs():
    path = file("tiers.yaml", """policies:
  - name: api
    mode: shadow
    limits: [{algorithm: sliding_window, limit: 2, period: 1m}]
    tiers: [{name: pro, limits: [{algorithm: sliding_window, limit: 20, period: 1m}]}]
  - name: api/own
    limits: [{algorithm: sliding_window, limit: 30, period: 1m}]
  - name: apis/own
    mode: shadow
    limits: [{algorithm: sliding_window, limit: 40, period: 1m}]
""")
    words = lines_of(path)
    assert words["api"] == "2 a minute; shadow mode: everything passes" + REST
    assert words["api/pro"] == "20 a minute; otherwise as api"
    assert words["api/own"] == "30 a minute" + REST
    assert words["apis/own"] == "40 a minute; shadow mode: everything passes" + REST


def test_overrides_are_told_by_their_policys_limits():
    path = write("overrides.yaml", ("", "token_bucket, limit: 100, period: 1s", "sliding_window, limit: 5000, period: 1h"),
                 ("", "leaky_bucket, limit: 10, period: 1s, burst: 20, delay: 5"),
                 more='overrides:\n  "p0:198.51.100.7": 200/50 10000\n  p0:b: 7,8\n  "p0:c d": allow\n  p1:e: deny\n'
                      '  p1:f: 20/10\n  p1:g: 20/3')
    out, fault = weir("check", path)
    assert fault == "" and out.splitlines()[0].endswith(": good, 2 policies, 6 overrides"), out
    assert out.splitlines()[3:] == [
        "  p0:198.51.100.7 has 200 a second with bursts of 50, and 10,000 an hour",
        "  p0:b has 7 a second with bursts of 7, and 8 an hour",
        "  p0:c%20d is never limited",
        "  p1:e is never served",
        "  p1:f has 20 a second evenly (one every 50 milliseconds) with a queue of 10 of which 6 pass at once and the rest "
        "waits up to 200 milliseconds",
        "  p1:g has 20 a second with bursts of 3"], out
    told = data("check", path)["files"][0]["overrides"]
    assert told[0] == {"name": "p0:198.51.100.7", "value": "200/50 10000",
                       "words": "has 200 a second with bursts of 50, and 10,000 an hour"}


GATEWAY = "policies:\n" + "".join(f"  - {{name: {name}, limits: [{{algorithm: fixed_window, limit: 9, period: 1h}}]}}\n"
                                    for name in ("source", "network16", "source.quic", "overall"))


def test_a_file_for_the_gateway_has_keys_of_the_gateway():
    """Where all policies have names that weir-gateway uses, or where --keys says so; from a pipe, too."""
    for name, says in (("overall:127.0.0.5", 'policy "overall" has no key "127.0.0.5"; give one such as "" ("overall:"), the one key of all packets'),
                       ("network16:127.1.2.0/24", 'policy "network16" has no key "127.1.2.0/24"; its keys are networks of IPv4 of 16 bits'),
                       ("source:partner", 'policy "source" has no key "partner"; give an address'),
                       ("source.quic:2001:db8::1", 'policy "source.quic" has no key "2001:db8::1"; give an address')):
        entry = f'overrides:\n  "{name}": allow\n'
        of_gateway, other = file("gateway.yaml", GATEWAY + entry), file("other.yaml", GATEWAY + "  - {name: api, limits: [{algorithm: fixed_window, "
                                                                                               "limit: 9, period: 1h}]}\n" + entry)
        for words, text in (((of_gateway,), None), (("-",), of_gateway.read_text()), (("--keys=gateway", of_gateway), None), (("--keys=gateway", other), None)):
            out, fault = weir("check", *words, code=1, stdin=text or "")
            assert out == "" and f":{8 if words[-1] is other else 7}:3: {says}" in fault, (words, fault)
            if len(words) == 1 and "overall" in name:  # the others have no room
                assert fault.endswith("(for weir-gateway; else give --keys=bytes)\n"), fault
        for words in (("--keys=bytes", of_gateway), (other,)):
            out, fault = weir("check", *words)
            assert fault == "" and f"  {name} is never limited\n" in out, out
    good = file("good.yaml", GATEWAY + 'overrides: {"overall:": 5, "network16:127.0.0.0/8": deny, "source:198.51.100.0/24": 7, "source:2001:db8::/64": allow}\n')
    out, fault = weir("check", good)
    assert fault == "" and "4 overrides" in out and "network16:127.0.0.0/8 is never served" in out, (out, fault)
    assert '--keys is "address"; give gateway or bytes' in weir("check", "--keys=address", good, code=2)[1]


def test_an_override_of_all_policies_is_told():
    entries = 'overrides:\n  "*:198.51.100.0/24": allow\n  "*:2001:DB8::1": deny until 2499-12-01\n'
    for name, text in (("all.yaml", GATEWAY), ("of_any.yaml", "policies: [{name: api, limits: [{algorithm: fixed_window, limit: 9, period: 1h}]}]\n")):
        path = file(name, text + entries)
        out, fault = weir("check", path)
        assert fault == "" and ", 2 overrides\n" in out, (out, fault)
        assert out.endswith("  *:198.51.100.0/24 is never limited\n  *:2001:db8::1 is never served until 2499-12-01\n"), out
        assert data("check", path)["files"][0]["overrides"][0] == {"name": "*:198.51.100.0/24", "value": "allow", "words": "is never limited"}
        for entry, says in (('"*:198.51.100.1/24": allow', 'an entry of all policies is of addresses, and "198.51.100.1/24" is none'),
                            ('"*:partner": deny', "is none; give one such as *:198.51.100.7"), ('"*:198.51.100.7": 200', '"200" is no value for all policies')):
            _, fault = weir("check", file(name, text + f"overrides: {{{entry}}}\n"), code=1)
            assert says in fault, fault


def test_json_says_all_that_the_words_say():
    path = write("json.yaml", ("mode: shadow, hash_keys: true, on_outage: open, outage_grace: 5s, long_outage: 1h, ",
                               "token_bucket, limit: 100, period: 1s, name: 'q\"\\u'",
                               "leaky_bucket, limit: 10, period: 1m, burst: 20, delay: 5"),
                 ("scope: process, ", "fixed_window, limit: 9, calendar: day"))
    told = data("check", path)
    assert {key: told[key] for key in ("good", "malformed", "unread")} == {"good": 1, "malformed": 0, "unread": 0}
    first, second = told["files"][0]["policies"]
    assert told["files"][0]["file"] == str(path) and told["files"][0]["good"] is True
    assert [first["words"], second["words"]] == list(lines_of(path).values())
    del first["words"], second["words"]
    assert first == {"name": "p0", "mode": "shadow", "scope": "fleet", "hash_keys": True, "on_outage": "open",
                     "on_long_outage": "share", "outage_grace_ms": 5000, "long_outage_ms": 3600000,
                     "limits": [{"name": 'q"\\u', "algorithm": "token_bucket", "limit": 100, "period_ns": 10**9, "burst": 100},
                                {"name": "p0-2", "algorithm": "leaky_bucket", "limit": 10, "period_ns": 60 * 10**9,
                                 "burst": 20, "delay": 5}]}, first
    assert second["limits"] == [{"name": "p1", "algorithm": "fixed_window", "limit": 9, "calendar": "day"}], second
    assert second["scope"] == "process" and second["hash_keys"] is False and second["mode"] == "enforce"


def test_a_malformed_file_is_told_as_the_library_tells_it():
    good = write("good.yaml", ("", "sliding_window, limit: 2, period: 1m"))
    bad = write("bad.yaml", ("", "slidingwindow, limit: 2, period: 1m"))
    sentence = ('policy "p0": limit 1 has algorithm "slidingwindow"; did you mean "sliding_window"? There are fixed_window, '
                "sliding_window, sliding_log, token_bucket, leaky_bucket")
    out, fault = weir("check", good, bad, good, code=1)
    assert fault == f"{bad}:2:37: {sentence}\n", fault
    assert out.splitlines()[-1] == "3 files: 2 good, 1 malformed" and out.count(": good, 1 policy\n") == 2, out
    told = data("check", good, bad, code=1)
    assert told["files"][1] == {"file": str(bad), "good": False, "error": {"line": 2, "column": 37, "message": sentence}}
    assert (told["good"], told["malformed"]) == (1, 1)
    # With --quiet only what is wrong is left.
    assert weir("check", "-q", good) == ("", "")
    assert weir("check", "--quiet", good, bad, code=1) == ("", f"{bad}:2:37: {sentence}\n")


def test_a_file_that_cannot_be_read_is_told_apart_from_a_malformed_one():
    good = write("good.yaml", ("", "sliding_window, limit: 2, period: 1m"))
    bad = file("bad.yaml", "policies: []\n")
    out, fault = weir("check", bad, "nowhere.yaml", good, code=3)
    assert fault.splitlines()[1] == "nowhere.yaml: cannot be read: No such file or directory", fault
    assert out.splitlines()[-1] == "3 files: 1 good, 1 malformed, 1 not read", out
    told = data("check", "nowhere.yaml", code=3)["files"][0]
    assert told == {"file": "nowhere.yaml", "good": False, "error": {"message": "cannot be read: No such file or directory"}}
    assert weir("check", PLACE, code=1)[1] == f"{PLACE}: is no regular file; give a YAML file\n"
    large = file("large.yaml", "#" * (1 << 20) + "\n")
    assert "is larger than 1 MiB" in weir("check", large, code=1)[1]
    weir("check", code=2)
    weir("check", "-", "-", code=2)


def test_standard_input_may_be_a_pipe_or_a_file():
    path = write("good.yaml", ("", "sliding_window, limit: 2, period: 1m"))
    out, fault = weir("check", "-", stdin=path.read_text())
    assert fault == "" and out == weir("check", path)[0].replace(str(path), "<stdin>"), out
    with open(path) as text:
        done = subprocess.run([*WEIR, "check", "-"], stdin=text, capture_output=True, text=True, env=PLAIN, timeout=60, check=True)
    assert done.stdout == out
    assert weir("check", "-", stdin="policies: []\n", code=1)[1].startswith("<stdin>:1:11: there are no policies")
    assert data("check", "-", stdin="polices: []\n", code=1)["files"][0] == {
        "file": "<stdin>", "good": False,
        "error": {"line": 1, "column": 1, "message": 'there is no field "polices" in a file; did you mean "policies"?'}}
    assert weir("check", "-", stdin="#" * (1 << 20) + "\n", code=1)[1].startswith("<stdin>: is larger than 1 MiB")
    assert weir("check", "-", stdin="#" * 3000000, code=1)[1].startswith("<stdin>: is larger than 1 MiB")
    directory = os.open("/", os.O_RDONLY)
    done = subprocess.run([*WEIR, "check", "-"], stdin=directory, capture_output=True, text=True, env=PLAIN, timeout=60)
    os.close(directory)
    assert done.returncode == 3 and done.stderr == "<stdin>: cannot be read: Is a directory\n", done


def test_names_of_files_are_made_plain():
    text = "policies: []\n"
    odd = os.path.join(os.fsencode(PLACE), b"a\xff\x1b[31m\n.yaml")
    with open(odd, "w") as odd_file:
        odd_file.write(text)
    done = subprocess.run([*WEIR, "check", odd], capture_output=True, env=PLAIN, timeout=60)
    assert done.returncode == 1 and b"/a??[31m?.yaml:1:11: there are" in done.stderr, done
    done = subprocess.run([*WEIR, "check", "--json", odd], capture_output=True, env=PLAIN, timeout=60)
    assert b'/a\\\\xff\\\\x1b[31m\\\\x0a.yaml"' in done.stdout and b'"line":1,"column":11' in done.stdout, done
    deep = PLACE / ("d" * 200) / ("e" * 200)
    deep.mkdir(parents=True)
    (deep / "limits.yaml").write_text("polices: []\n")
    told = data("check", deep / "limits.yaml", code=1)["files"][0]
    assert told["error"] == {"line": 1, "column": 1,
                             "message": 'there is no field "polices" in a file; did you mean "policies"?'}, told


if __name__ == "__main__":
    run(globals())
