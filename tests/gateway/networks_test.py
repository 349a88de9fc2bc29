#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
The gateway's limits of networks: networks_test.py BUILD_DIRECTORY SOURCE_DIRECTORY [TEST...]. Prints TAP.

Guards: apps/gateway/decision.c, apps/gateway/network.c, apps/gateway/policy_kind.c, apps/gateway/policy_look.c
"""
import ipaddress
import random
import signal
import subprocess
import time

from support import ask, Fixture, in_a_network_of_its_own, Redis, run


def policies_of(mode="enforce", **limits):
    return "policies:\n" + "".join(
        f"  - name: {name}\n    mode: {mode}\n    limits: [{{algorithm: fixed_window, limit: {limit}, period: 30d}}]\n"
        for name, limit in limits.items())


def offer(f, *packets):
    """Sends packets of (source, size) one after another; whether each passed."""
    passed = []
    for source, size in packets:
        before = f.status()
        with f.client(source=source, to="::1" if ":" in source else "127.0.0.1") as client:
            client.send(b"x" * size)
        after = f.until(lambda: (s := f.status())["offered"] == before["offered"] + 1 and s)
        passed.append(after["passed"] > before["passed"])
    return passed


def reload(f, text, good=True):
    name = "reloads" if good else "reload_errors"
    before, said = f.status()[name], len(f.log.read_text())
    f.path.write_text(text)
    f.child.send_signal(signal.SIGHUP)
    f.until(lambda: f.status()[name] == before + 1)
    return f.log.read_text()[said:]


def model(limits, packets):
    """What the plainest limiter lets pass: all policies of a packet count it, or none does."""
    used, passed = {}, []
    for source, size in packets:
        address, asked = ipaddress.ip_address(source), {}
        for name, limit in limits.items():
            of_bytes, scope = name.endswith("_bytes"), name.removesuffix("_bytes")
            if scope.startswith("network"):
                bits = int(scope.removeprefix("network6_").removeprefix("network"))
                if (address.version == 6) != ("6_" in scope or bits > 32):
                    continue
                key = ipaddress.ip_network((source, bits), strict=False)
            else:
                key = source if scope == "source" else None
            cost = size if of_bytes else 1
            # What has no bytes asks whether one would pass, and takes none.
            asked[name, key] = (cost, max(cost, 1), limit)
        fits = all(used.get(key, 0) + room <= limit for key, (_, room, limit) in asked.items())
        for key, (cost, _, _) in asked.items():
            used[key] = used.get(key, 0) + (cost if fits else 0)
        passed.append(fits)
    return passed


def test_limits_of_drawn_networks_are_those_of_the_plainest_limiter():
    seed = time.time_ns() % 2**32
    print(f"# seed: {seed}", flush=True)
    rng = random.Random(seed)
    for _ in range(4):
        bits = rng.sample(range(1, 33), 4)
        limits = {name: rng.randint(2, 12) for name in ["source", *(f"network{b}" for b in bits[:3])]}
        limits |= {f"network{bits[3]}_bytes": rng.randint(50, 300), "network48": 1, "network6_20": 1, "overall": rng.randint(10, 30)}
        packets = [(f"127.{rng.choice((1, 17))}.{rng.choice((0, 1, 128))}.{rng.randint(1, 3)}", rng.choice((0, 1, 10, 40)))
                   for _ in range(60)]
        with Fixture(policies=policies_of(**limits), threads=1) as f:
            expected, passed = model(limits, packets), offer(f, *packets)
            assert passed == expected, (seed, limits, packets, passed)
            dropped = f.status()["dropped"]
            assert sum(dropped.values()) == passed.count(False), dropped


def test_networks_of_ipv6_are_limited_beside_those_of_ipv4():
    def check():
        limits = {"source": 4, "network24": 5, "network48": 5, "network6_16": 6, "network128": 3, "overall": 20}
        packets = [(source, 10) for source in ("fd00:1::1", "fd00:1::2", "fd00:2::1", "127.0.0.1") for _ in range(5)]
        with Fixture(listen="", policies=policies_of(**limits), threads=1) as f:
            for source, size in packets:  # to the address of its own host: all are on this loopback
                before = f.status()
                with f.client(source=source, to=source) as client:
                    client.send(b"x" * size)
                f.until(lambda: f.status()["offered"] == before["offered"] + 1)
            passed = model(limits, packets).count(True)
            status = f.status()
            assert status["passed"] == passed == 3 + 1 + 2 + 4, (passed, status)
            dropped = {name: count for name, count in status["dropped"].items() if count}
            assert dropped == {"source": 4 + 1, "network128": 2, "network6_16": 3}, dropped
    in_a_network_of_its_own(check)


def test_an_entry_of_a_network_is_named_by_its_prefix():
    text = policies_of(network24=2)
    with Fixture(policies=text, threads=1) as f:
        assert offer(f, *[("127.17.3.4", 1)] * 3) == [True, True, False]
        reload(f, text + "overrides:\n  network24:::ffff:127.17.3.0/120: allow\n  network24:127.18.0.0/24: deny\n")
        assert offer(f, ("127.17.3.4", 1), ("127.18.0.9", 1), ("127.18.1.9", 1)) == [True, False, True]
        for wrong in ("127.17.3.4/24", "127.17.3.0/33", "127.17.3.0", "127.17.3.0/x", "fd00::/129"):
            said = reload(f, text + f'overrides: {{"network24:{wrong}": deny}}\n', good=False)
            assert "its keys are networks of IPv4 of 24 bits: give one, such as 198.51.100.0/24" in said, (wrong, said)


def entry_is_good(name):
    """Whether some key of the policy has that name, or it is a network of several; by the plainest reading."""
    policy, text = name.split(":", 1)
    scope = policy.removesuffix("_bytes")
    try:
        network = ipaddress.ip_network(text)
    except ValueError:
        return scope == "overall" and text == ""
    if scope == "source":
        return network.prefixlen <= (64 if network.version == 6 else 32)
    bits = int(scope.removeprefix("network6_").removeprefix("network")) if scope != "overall" else 0
    version = 6 if "6_" in scope or bits > 32 else 4
    return bits != 0 and "/" in text and network.version == version and network.prefixlen <= bits


def test_an_entry_that_no_key_can_have_is_refused():
    """Drawn entries of all policies, in a file that is checked, a file of a gateway, and Redis; what is refused is named."""
    rng = random.Random(35)
    policies = ["source", "source_bytes", "overall", "overall_bytes", "network16", "network24_bytes", "network6_20", "network48", "network128"]
    texts = ["", "x", "127.0.0.5", "127.1.2.0/24", "127.0.0.0/8", "127.1.0.0/16", "127.1.2.3/16", "0.0.0.0/0", "::/0", "2001:db8::1", "2001:db8::/32",
             "2001::/20", "2001:db8:1::/48", "2001:db8::/64", "2001:db8::1/128", "127.0.0.5/32", "overall", "*"]
    text = policies_of(**{name: 1000 for name in policies[:7]})
    names = [f"{policy}:{key}" for policy in policies[:7] for key in texts]
    rng.shuffle(names)
    refused = set()
    with Fixture(policies=text, threads=1) as f:
        def check(entry):
            f.path.write_text(f'{text}overrides:\n  "{entry}": deny\n')
            return subprocess.run([f.demo.bin / "weir-gateway", "--check", f.path], capture_output=True, text=True, timeout=20)
        for entry in names:
            done = check(entry)
            assert (done.returncode == 0) == entry_is_good(entry), (entry, done)
            if done.returncode != 0:
                policy, key = entry.split(":", 1)
                assert f'{f.path}:24:3: policy "{policy}" has no key "{key}"; ' in done.stderr, done.stderr
                refused.add(policy)
        assert refused == set(policies[:7])
        said = reload(f, f'{text}overrides: {{"overall:127.0.0.5": deny}}\n', good=False)
        assert 'policies stay as they were: ' in said and 'policy "overall" has no key "127.0.0.5"; give one such as ""' in said, said
        assert offer(f, ("127.0.0.5", 1)) == [True]


def test_an_entry_of_a_larger_network_is_of_all_networks_in_it():
    text = policies_of(network16=2, network24=1000)
    with Fixture(policies=text, threads=1) as f:
        assert offer(f, *[("127.17.3.4", 1)] * 3) == [True, True, False]
        reload(f, text + "overrides:\n  network16:127.0.0.0/8: allow\n  network16:127.18.0.0/16: deny\n  network16:127.20.0.0/14: 1\n")
        assert offer(f, *[("127.17.3.4", 1)] * 5, ("127.18.0.9", 1), *[("127.21.9.9", 1)] * 2) == [True] * 5 + [False, True, False]
        reload(f, text + "overrides:\n  network16:0.0.0.0/0: deny\n")
        assert offer(f, ("127.17.3.4", 1), ("127.99.0.9", 1)) == [False, False]


def test_a_fleet_leaves_out_what_no_key_can_have():
    with Redis() as redis, Fixture("--redis", f"unix://:a%25b%3Ac%40d%2Fe%3Ff%20g@{redis.socket}",
                                   policies=policies_of(network16=1000, overall=1000), threads=1) as f:
        f.until(lambda: f.status()["redis"] == "up")
        redis.call("HSET", "weir:overrides", "overall:127.0.0.5", "deny", "network16:127.1.2.0/24", "deny", "network16:127.0.0.0/8", "deny")
        f.until(lambda: "2 entries are malformed, such as" in f.log.read_text())
        assert 'has no key "' in f.log.read_text(), f.log.read_text()
        assert offer(f, ("127.0.0.5", 1)) == [False] and f.status()["dropped"]["network16"] == 1


def of_all(entries, source):
    """What the smallest network of an entry of all policies says; None: there is none."""
    networks = [ipaddress.ip_network(text) for text in entries]
    found = [n for n in networks if n.version == ipaddress.ip_address(source).version and ipaddress.ip_address(source) in n]
    return entries[next(text for text in entries if ipaddress.ip_network(text) == max(found, key=lambda n: n.prefixlen))] if found else None


def lines_of(entries):
    return "overrides:\n" + "".join(f'  "*:{text}": {value}\n' for text, value in entries.items())


def test_an_entry_of_all_policies_exempts_or_denies_a_network():
    """Drawn policies, with and without one of sources, and drawn entries: what is allowed uses nothing of any limit."""
    seed = time.time_ns() % 2**32
    print(f"# seed: {seed}", flush=True)
    rng = random.Random(seed)
    for n in range(6):
        bits = rng.sample(range(1, 33), 3)
        limits = {f"network{b}": rng.randint(2, 12) for b in bits} | {"overall": rng.randint(5, 25), "network48": 1}
        limits |= {"source": rng.randint(1, 8)} if n % 2 else {"source_bytes": 50} if n % 3 else {}
        entries = {}
        while len(entries) < 5:
            size = rng.choice((8, 16, 17, 24, 25, 30, 31, 32))
            network = ipaddress.ip_network((f"127.{rng.choice((1, 17))}.{rng.choice((0, 1, 128))}.{rng.randint(1, 3)}", size), strict=False)
            entries[str(network) if size < 32 else str(network.network_address)] = rng.choice(("allow", "deny"))
        packets = [(f"127.{rng.choice((1, 17, 18))}.{rng.choice((0, 1, 128))}.{rng.randint(1, 3)}", rng.choice((0, 1, 10, 40))) for _ in range(60)]
        says = [of_all(entries, source) for source, _ in packets]
        rest = iter(model(limits, [packet for packet, said in zip(packets, says) if said is None]))
        expected = [said == "allow" if said else next(rest) for said in says]
        with Fixture(policies=policies_of(**limits) + lines_of(entries), threads=1) as f:
            passed = offer(f, *packets)
            assert passed == expected, (seed, limits, entries, packets, passed, expected)
            status = f.status()
            assert sum(status["dropped"].values()) == passed.count(False) == status["offered"] - status["passed"], status
            assert f"weir_gateway_dropped_packets_total{{limit=\"*\"}} {status['dropped'].get('*', 0)}\n" in f.get("/metrics")


def test_an_entry_of_all_policies_holds_whatever_policies_there_are():
    def check():
        for limits, mode in (({"overall": 3}, "enforce"), ({"source": 3, "overall": 100}, "shadow"), ({"network64": 3}, "enforce")):
            text = policies_of(mode=mode, **limits) + lines_of({"127.0.0.8": "deny", "127.0.0.0/24": "allow", "fd00:1::/64": "allow",
                                                                 "fd00:1::2": "deny", "fd00:2::/32": "deny"})
            with Fixture(listen="", policies=text, threads=1) as f:
                assert offer(f, *[("127.0.0.9", 1)] * 9, *[("127.0.0.8", 1)] * 2, *[("127.0.1.8", 1)] * 4) == \
                    [True] * 9 + [False] * 2 + [True] * 3 + [mode == "shadow" or "overall" not in limits]
                for source, passes in (("fd00:1::1", True), ("fd00:1::2", False), ("fd00:2::1", False)):
                    before = f.status()
                    with f.client(source=source, to=source) as client:
                        for _ in range(9):
                            client.send(b"x")
                    after = f.until(lambda: (s := f.status())["offered"] == before["offered"] + 9 and s)
                    assert after["passed"] - before["passed"] == 9 * passes, (limits, source, after)
    in_a_network_of_its_own(check)


def test_an_entry_of_a_single_policy_stands_above_one_of_all_for_the_same_network_or_a_smaller_one():
    text = policies_of(source=4, network24=6, overall=1000) + lines_of({"127.0.0.0/24": "allow", "127.0.1.0/24": "deny"}) + \
        "  source:127.0.0.7: deny\n  source:127.0.1.7: allow\n  network24:127.0.1.0/24: 2\n"
    with Fixture(policies=text, threads=1) as f:
        passed = offer(f, *[("127.0.0.8", 1)] * 9, ("127.0.0.7", 1))
        assert passed == [True] * 9 + [False], passed
        # Of the network that is denied one source is allowed, and the network has a number of its own.
        assert offer(f, ("127.0.1.8", 1), *[("127.0.1.7", 1)] * 3) == [False] + [True] * 2 + [False]
        dropped = f.status()["dropped"]
        assert dropped == dropped | {"source": 2, "network24": 1}, dropped
        for wrong, says in (("*:127.0.0.1/24", "is none; give one such as *:198.51.100.7"), ("*:partner", "is none; give one such as")):
            said = reload(f, policies_of(source=4, network24=6, overall=9) + f'overrides: {{"{wrong}": deny}}\n', good=False)
            assert says in said, said
        said = reload(f, policies_of(source=4, network24=6, overall=9) + 'overrides: {"*:127.0.0.1": 200}\n', good=False)
        assert '"200" is no value for all policies; give "allow" or "deny"' in said, said


def test_an_entry_of_all_policies_in_redis_holds_for_all_gateways():
    with Redis() as redis, Fixture("--redis", f"unix://:a%25b%3Ac%40d%2Fe%3Ff%20g@{redis.socket}", policies=policies_of(overall=2), threads=1) as f:
        f.until(lambda: f.status()["redis"] == "up")
        redis.call("HSET", "weir:overrides", "*:127.0.0.0/24", "allow", "*:127.0.1.0/24", "deny")
        f.until(lambda: "2 keys have entries of their own" in f.log.read_text())
        assert offer(f, *[("127.0.0.8", 1)] * 5, ("127.0.1.8", 1), *[("127.0.2.8", 1)] * 3) == [True] * 5 + [False] + [True] * 2 + [False]
        redis.call("HDEL", "weir:overrides", "*:127.0.0.0/24", "*:127.0.1.0/24")
        f.until(lambda: "0 keys" in f.log.read_text() or "overrides: 0" in f.log.read_text())
        assert offer(f, ("127.0.0.8", 1)) == [False]


def test_shadow_mode_counts_what_a_network_would_be_denied():
    with Fixture(policies=policies_of(source=3) + policies_of(mode="shadow", network16=2).removeprefix("policies:\n"), threads=1) as f:
        assert offer(f, *[("127.17.3.4", 1)] * 5) == [True] * 3 + [False] * 2
        network = f.status()["policies"]["network16"]
        # It is asked about what passes.
        assert network == {"in_force": True, "mode": "shadow", "offered": 3, "passed": 3, "dropped": 0, "would_deny": 1}, network


def test_a_reload_adds_networks_and_drops_none_by_mistake():
    with Fixture(policies=policies_of(source=100), threads=1) as f:
        assert list(f.status()["policies"]) == ["source", "source_bytes", "overall", "overall_bytes"]
        reload(f, policies_of(source=100, network24=2, network28=1))
        assert offer(f, ("127.17.3.4", 1), ("127.17.3.5", 1), ("127.17.3.16", 1), ("127.17.3.17", 1)) == [True, False, True, False]
        status = f.status()
        assert (status["dropped"]["network28"], status["dropped"]["network24"]) == (1, 1), status
        assert 'weir_gateway_policy_in_force{policy="network28"} 1\n' in f.get("/metrics")
        said = reload(f, policies_of(source=100, network24=2), good=False)
        assert 'no policy "network28", which is in force' in said, said
        said = reload(f, policies_of(source=100, network24=2, network28=1, network6_48=1, network0=1, network129=1, networks=1, network024=1))
        for name in ("network6_48", "network0", "network129", "networks", "network024"):
            assert f'policy "{name}" limits nothing here' in said and "network33 to network128" in said, said


def test_more_policies_than_a_packet_can_be_checked_by_are_refused():
    many = {f"network{bits}": 1 for bits in range(1, 16)}
    with Fixture(policies=policies_of(source=100, **many), threads=1) as f:
        assert offer(f, ("127.17.3.4", 1)) == [True]
        said = reload(f, policies_of(source=100, overall=100, **many), good=False)
        assert "17 policies for one packet of IPv4; give 16 or fewer" in said, said
        # Counters are kept by name for as long as the gateway runs.
        child = subprocess.run([str(f.demo.bin / "weir-gateway"), "--check", f.path], capture_output=True, text=True, timeout=20)
        assert child.returncode == 2 and "17 policies for one packet" in child.stderr, child
    with Fixture("--allow-missing", policies=policies_of(source=100, **many), threads=1) as f:
        reload(f, policies_of(source=100, **{f"network{bits}": 1 for bits in range(16, 29)}))
        said = reload(f, policies_of(source=100, network30=1), good=False)
        assert "33 policies since the start" in said and "a gateway counts 32" in said, said


if __name__ == "__main__":
    run(globals())
