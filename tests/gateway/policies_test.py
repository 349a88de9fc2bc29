#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
The gateway and its policy file: policies_test.py BUILD_DIRECTORY SOURCE_DIRECTORY [TEST...]. Prints TAP.

Guards: apps/gateway/policies.c, apps/gateway/policy_look.c, apps/gateway/reload.c, apps/gateway/main.c
"""
import json
import signal
import subprocess
import time

from support import ask, Fixture, POLICIES, run


def test_a_broken_file_changes_nothing_and_a_good_one_applies():
    with Fixture() as f:
        f.path.write_text(POLICIES.format(200).replace("token_bucket", "token_bucked"))
        f.child.send_signal(signal.SIGHUP)
        f.until(lambda: "test.yaml:3:" in f.log.read_text() and "stay as they were" in f.log.read_text())
        start = time.monotonic()
        greedy = f.send(1, "greedy,1,3000")["greedy"]
        assert min(200, greedy["sent"]) <= greedy["returned"] <= 201 + 200 * (time.monotonic() - start), greedy
        assert json.loads(f.get("/status"))["reload_errors"] == 1
        f.path.write_text(POLICIES.format(20))
        f.child.send_signal(signal.SIGHUP)
        f.until(lambda: json.loads(f.get("/status"))["reloads"] == 1)
        # The first group takes the address that has used something: the second one's is new.
        start = time.monotonic()
        greedy = f.send(1, "a,1,1", "greedy,1,3000")["greedy"]
        assert min(20, greedy["sent"]) <= greedy["returned"] <= 21 + 20 * (time.monotonic() - start), greedy


LIMIT = "    limits: [{algorithm: fixed_window, limit: 100000, period: 1s}]\n"


def policies_of(*names):
    return "policies:\n" + "".join(f"  - name: {name}\n{LIMIT}" for name in names)


def in_force(f):
    policies = f.status()["policies"]
    values = {name: policies[name]["in_force"] for name in policies}
    metrics = f.get("/metrics")
    for name, value in values.items():
        assert f'weir_gateway_policy_in_force{{policy="{name}"}} {int(value)}\n' in metrics, (values, metrics)
    return {name for name in values if values[name]}


def reload(f, text):
    """Has it read the file anew; what it said about that."""
    before = f.status()
    said = len(f.log.read_text())
    f.path.write_text(text)
    f.child.send_signal(signal.SIGHUP)
    f.until(lambda: (s := f.status())["reloads"] + s["reload_errors"] == before["reloads"] + before["reload_errors"] + 1)
    return f.log.read_text()[said:]


def test_a_reload_that_would_lose_a_limit_is_refused():
    with Fixture(policies=policies_of("source", "overall")) as f:
        for names, lost, near in ((("sources", "overall"), "source", "sources"), (("source", "over-all"), "overall", "over-all"),
                                  (("Source", "overall", "other"), "source", "Source"), (("a", "b"), "source", '"a", "b"'),
                                  (("a", "b"), "overall", '"a", "b"'), (("source",), "overall", "")):
            said = reload(f, policies_of(*names))
            assert "policies stay as they were" in said and f'no policy "{lost}"' in said and near in said, (names, said)
            assert "other" not in said and "--allow-missing" in said and "in force\n" not in said, said
            assert in_force(f) == {"source", "overall"}, names
        assert (f.status()["reloads"], f.status()["reload_errors"]) == (0, 6)
        # A policy that nothing asks for is accepted, and logged.
        said = reload(f, policies_of("source", "overall", "other", "source/pro"))
        assert 'policy "other" limits nothing' in said and "source/pro" not in said, said
        assert f"policies of {f.path} are in force\n" in said, said
        assert (f.status()["reloads"], f.status()["reload_errors"]) == (1, 6)


def test_a_reload_may_lose_a_limit_where_that_is_allowed():
    with Fixture("--allow-missing", policies=POLICIES.format(20)) as f:
        assert in_force(f) == {"source", "overall"}
        said = reload(f, policies_of("other"))
        assert 'no policy "source" (it has "other"): that limit is off' in said, said
        assert in_force(f) == set() and f.status()["reloads"] == 1
        client = f.send(1, "greedy,1,100", linger=30)["greedy"]
        assert client["returned"] == client["sent"] > 0, client
        reload(f, policies_of("overall"))
        assert in_force(f) == {"overall"}


def test_a_missing_policy_is_off_and_said_so():
    with Fixture(policies=policies_of("source")) as f:
        assert 'no policy "overall": that limit is off' in f.log.read_text(), f.log.read_text()
        assert in_force(f) == {"source"}
        reload(f, policies_of("source", "overall"))
        assert in_force(f) == {"source", "overall"}
        # From now on it is needed.
        assert 'no policy "overall", which is in force' in reload(f, policies_of("source"))
        assert in_force(f) == {"source", "overall"}


def gateway(f, *options):
    return subprocess.run([str(f.demo.bin / "weir-gateway"), *map(str, options)], capture_output=True, text=True, timeout=20)


def test_a_file_without_a_policy_of_the_gateways_starts_nothing():
    with Fixture() as f:
        f.path.write_text(policies_of("a", "b"))
        result = gateway(f, "--listen", f"127.0.0.1:{f.port}", "--backend", "127.0.0.1:9", "--policies", f.path)
        assert result.returncode == 1 and 'no policy "source" (it has "a", "b")' in result.stderr, result


def test_a_file_is_checked_without_a_gateway():
    with Fixture() as f:
        f.path.write_text(policies_of("source", "overall", "other").replace("name: overall", "name: overall\n    mode: shadow"))
        result = gateway(f, "--check", f.path)
        assert result.returncode == 0, result
        assert result.stdout.splitlines() == ['source: enforce; 100000 at once; "source";q=100000;w=1',
                                              'overall: shadow; 100000 at once; "overall";q=100000;w=1',
                                              'other: enforce; 100000 at once; "other";q=100000;w=1 (limits nothing here)'], result
        assert 'policy "other" limits nothing here' in result.stderr, result
        # A tier names its policy, which is not there for that.
        f.path.write_text(policies_of("source", "api/pro"))
        result = gateway(f, "--check", f.path)
        assert [line.split(":")[0] for line in result.stdout.splitlines()] == ["source", "api/pro"], result
        assert '"api"' not in result.stderr and 'policy "api/pro" limits nothing here' in result.stderr, result
        f.path.write_text(policies_of("source").replace("fixed_window", "fixed"))
        result = gateway(f, "--check", f.path)
        assert result.returncode == 2 and "test.yaml:3:" in result.stderr and result.stdout == "", result
        f.path.write_text(policies_of("sources"))
        result = gateway(f, "--check", f.path)
        assert result.returncode == 2 and 'no policy "source" (it has "sources")' in result.stderr, result
        # Two letters more, fewer or others are near, and three are not; where none is near, all are named.
        for names, near in ((("sourec", "zzz"), '"sourec"'), (("xysource", "zzz"), '"xysource"'), (("SOURCE", "zzz"), '"SOURCE"'),
                            (("urce", "zzz"), '"urce"'), (("sourcexy", "zzz"), '"sourcexy"'), (("soxurxe", "zzz"), '"soxurxe"'),
                            (("xyzsource", "zzz"), '"xyzsource", "zzz"'), (("sourcexyz", "zzz"), '"sourcexyz", "zzz"'),
                            (("rce", "zzz"), '"rce", "zzz"'), (("s-o-u-rce", "zzz"), '"s-o-u-rce", "zzz"'),
                            (("all-the-source", "zzz"), '"all-the-source", "zzz"'), (("source" + "x" * 20, "zzz"), f'"source{"x" * 20}", "zzz"')):
            f.path.write_text(policies_of(*names))
            result = gateway(f, "--check", f.path)
            assert result.returncode == 2 and f'no policy "source" (it has {near})' in result.stderr, (names, result)
        f.path.write_text(policies_of("sources"))
        assert gateway(f, "--check", f.path, "--allow-missing").returncode == 0
        assert gateway(f, "--check", f.path.parent / "none.yaml").returncode == 2


def test_shadow_mode_is_told_from_enforcement():
    text = "policies:\n" + "".join(f"  - name: {name}\n    mode: shadow\n    limits: [{{algorithm: fixed_window, limit: {limit}, "
                                  "period: 30d}]\n" for name, limit in (("source", 20), ("source_bytes", 100), ("overall", 30)))
    with Fixture(policies=text, threads=1) as f:
        client = f.client()
        for _ in range(50):
            assert ask(client, b"four") == b"four"
        status = f.until(lambda: (s := f.status())["offenders"] and s["offenders"][0]["would_deny"] == 30 and s)
        assert sum(status["dropped"].values()) == 0 and status["passed"] == 50, status
        policies = {name: (policy["mode"], policy["in_force"], policy["would_deny"]) for name, policy in status["policies"].items()}
        assert policies == {"source": ("shadow", True, 30), "source_bytes": ("shadow", True, 25), "overall": ("shadow", True, 20),
                            "overall_bytes": ("off", False, 0)}, policies
        assert status["offenders"] == [{"source": "127.0.0.1", "hashed": False, "mode": "shadow", "denied": 0, "would_deny": 30,
                                        "error": 0}], status
        reload(f, text.replace("    mode: shadow\n", "", 1))
        client.send(b"four")
        status = f.until(lambda: (s := f.status())["dropped"]["source"] and s)
        policy = status["policies"]["source"]
        assert policy["mode"] == status["offenders"][0]["mode"] == "enforce" and policy["would_deny"] == 30, status


def test_a_source_that_is_hashed_is_told_as_such():
    with Fixture(policies=policies_of("source").replace("name: source", "name: source\n    hash_keys: true").replace("100000", "1")) as f:
        client = f.client()

        def is_denied():
            client.send(b"?")
            return f.status()["offenders"]
        offenders = f.until(is_denied)
        assert len(offenders) == 1 and offenders[0]["hashed"] is True and offenders[0]["source"].startswith("~"), offenders
        assert offenders[0]["mode"] == "enforce" and offenders[0]["denied"] > 0 and offenders[0]["would_deny"] == 0, offenders


def test_an_offender_is_denied_by_the_name_it_is_told_by():
    text = "policies:\n  - name: source\n    limits: [{algorithm: fixed_window, limit: 20, period: 30d}]\n"
    with Fixture(policies=text, threads=1) as f:
        clients = {address: f.client(source=address) for address in ("127.17.0.1", "127.17.0.2", "127.17.1.1")}
        for _ in range(30):
            clients["127.17.0.1"].send(b"?")
        source = f.until(lambda: f.status()["offenders"])[0]["source"]
        assert source == "127.17.0.1", source
        said = reload(f, text + "overrides: {\"source:127.17.0\": deny}\n")
        assert "test.yaml:4:13:" in said and "give an address such as" in said and "stay as they were" in said, said
        assert ask(clients["127.17.0.2"]) == b"?"
        reload(f, text + f"overrides:\n  source:{source}: allow\n  source:127.17.0.0/24: deny\n")
        for _ in range(50):
            assert ask(clients[source]) == b"?"
        assert ask(clients["127.17.1.1"]) == b"?"
        before = f.status()["dropped"]["source"]
        clients["127.17.0.2"].send(b"?")
        f.until(lambda: f.status()["dropped"]["source"] == before + 1)


if __name__ == "__main__":
    run(globals())
