#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
What weir simulate takes for a key: networks of any length, one key for all, and which overrides of a file name such keys.
simulate_keys_test.py WEIR_PROGRAM [TEST...]. Prints TAP.

Guards: apps/weir/simulate/tried_file.c, apps/weir/simulate/engine.c, apps/weir/simulate/choices.c,
apps/weir/simulate/key_text.c, apps/weir/trace/fields.c, apps/weir/simulate/replay.c
"""
import collections
import ipaddress
import json
import os
import random

from command_support import data, file, run, weir
from traces import combined, nginx_json, Request, START_S

SEED = int(os.environ.get("WEIR_TEST_SEED") or random.SystemRandom().randrange(1 << 32))
DRAW = random.Random(SEED)


def policies(limit, overrides=(), name="web"):
    """So many in the hour in which the traces are."""
    text = f"policies:\n  - {{name: {name}, limits: [{{algorithm: fixed_window, limit: {limit}, period: 1h}}]}}\n"
    lines = "".join(f'  "{key}": {json.dumps(value)}\n' for key, value in overrides)
    return text + ("overrides:\n" + lines if lines else "")


def decisions(text, lines, *words, code=0):
    """[(key, whether admitted)], and what was said on standard error."""
    trace = file("trace", "".join(line + "\n" for line in lines))
    out, fault = weir("simulate", "-p", file("keys.yaml", text), "--decisions=-", *words, trace, code=code)
    return [(line.split(",")[1], line.endswith("admitted")) for line in out.splitlines()], fault


def network_of(address, prefix4, prefix6):
    address = ipaddress.ip_address(address)
    prefix = prefix4 if address.version == 4 else prefix6
    network = ipaddress.ip_network((int(address), prefix) if address.version == 4 else (address.packed, prefix), strict=False)
    return network, str(address) if prefix == address.max_prefixlen else str(network)


def some_addresses(count):
    base4, base6 = DRAW.randrange(1 << 32), DRAW.randrange(1 << 128)
    near4 = [str(ipaddress.IPv4Address(base4 ^ DRAW.randrange(1 << DRAW.choice((2, 8, 16, 32))))) for _ in range(count // 2)]
    near6 = [str(ipaddress.IPv6Address(base6 ^ DRAW.randrange(1 << DRAW.choice((2, 64, 80, 128))))) for _ in range(count // 2)]
    return near4 + [address for address in near6 if ipaddress.ip_address(address).ipv4_mapped is None]


def test_networks_of_any_length_are_keys():
    print(f"# WEIR_TEST_SEED={SEED}", flush=True)
    drawn = [(DRAW.randrange(1, 33), DRAW.randrange(1, 129)) for _ in range(10)]
    for prefix4, prefix6, words in [(24, 128, "address/24"), (16, 64, "address/16,64"), (32, 64, "address/64"), (32, 48, "address/32,48"),
                                    (32, 37, "address/37"), (1, 1, "address/1,1"), (32, 128, "address"),
                                    *((*pair, "address/{},{}".format(*pair)) for pair in drawn)]:
        addresses = some_addresses(30)
        requests = [Request(START_S * 1000 + i, DRAW.choice(addresses)) for i in range(600)]
        # A network that is allowed as a whole, and one that is denied; of several the smallest counts.
        some, other = DRAW.choice(addresses[:15]), DRAW.choice(addresses[15:])
        overrides = {}
        for address, value in ((some, "allow"), (other, "deny")):
            version = ipaddress.ip_address(address).version
            most = prefix4 if version == 4 else prefix6
            network, text = network_of(address, *([DRAW.randrange(1, most + 1)] * 2))
            overrides[network] = value
        counts, wanted = collections.Counter(), []
        for r in requests:
            network, text = network_of(r.address, prefix4, prefix6)
            value = next((overrides[over] for over in sorted(overrides, key=lambda n: -n.prefixlen)
                          if over.version == network.version and network.subnet_of(over)), None)
            counts[network] += value is None
            wanted.append((text, value == "allow" or (value is None and counts[network] <= 5)))
        text = policies(5, [(f"web:{network}", value) for network, value in overrides.items()])
        got, fault = decisions(text, map(nginx_json, requests), f"--key={words}")
        assert fault.startswith("/") and "left out" not in fault, fault
        for number, pair in enumerate(zip(got, wanted)):
            assert pair[0] == pair[1], (words, number, pair, overrides)
        assert len(got) == len(wanted)


def test_all_requests_may_have_one_key():
    requests = [Request(START_S * 1000, f"198.51.100.{i}") for i in range(3)]
    got, _ = decisions(policies(1), map(combined, requests), "-k", "all")
    assert got == [("all", True), ("all", False), ("all", False)], got
    told = data("simulate", "-p", "keys.yaml", "--key=all", "trace")
    assert (told["keys"], told["new"]["denied"], told["top"][0]["key"]) == (1, 2, "all"), told
    for name, lines, more in (("csv", [f"{START_S},a", f"{START_S},b"], ()), ("json", [nginx_json(r) for r in requests], ("--cost=bytes",))):
        assert {key for key, _ in decisions(policies(1), lines, "-k", "all", *more)[0]} == {"all"}, name
    _, fault = decisions(policies(1, [("web:198.51.100.7", "allow")]), map(combined, requests), "-k", "all")
    assert 'the override "web:198.51.100.7" is left out' in fault, fault
    got, fault = decisions(policies(1, [("web:", "allow")]), map(combined, requests), "-k", "all")
    assert [admitted for _, admitted in got] == [True] * 3 and "left out" not in fault, (got, fault)


def test_keys_that_there_are_not_are_refused():
    file("keys.yaml", policies(1))
    trace = file("trace", combined(Request(START_S * 1000)) + "\n")
    for key in ("address/0", "address/129", "address/24,0", "address/24,129", "address/64,64", "address/24,", "address/x", "address/,64",
                "all/24", "al"):
        assert "give address" in weir("simulate", "-p", "keys.yaml", "-k", key, trace, code=2)[1], key


def test_one_override_that_names_no_address_leaves_the_others_in_force():
    lines = [combined(Request(START_S * 1000 + i * 1000, address)) for i, address in
             enumerate(["198.51.100.7", "203.0.113.9", "203.0.113.9", "203.0.113.9", "2001:db8::1", "192.0.2.7", "192.0.2.7"])]
    overrides = [("web:198.51.100.0/24", "deny"), ("web:2001:db8::/32", "deny"), ("web:192.0.2.7", "allow")]
    wrong = [("web:health-check", "allow"), ("web:not%20one", "deny"), ("web:198.51.100.0.1/24", "allow"), ("web:203.0.113", "5")]
    want = [False, True, False, False, False, True, True]
    for order in (overrides + wrong, wrong + overrides, [overrides[0], wrong[0], *overrides[1:]]):
        for mode in ("enforce", "shadow"):
            for words in ((), ("--key=address/32,64",), ("--key=address/32,33",), ("--nodes=2",)):
                text = policies(1, order).replace("{name: web,", f"{{name: web, mode: {mode},")
                got, fault = decisions(text, lines, *words)
                if words != ("--nodes=2",):
                    assert [admitted for _, admitted in got] == want, (words, got, fault)
                assert got[0][1] is False and got[4][1] is False and got[5][1] and got[6][1], (words, got)
                for name, _ in wrong:
                    assert (f'the override "{name}" is left out' in fault) == ((name, "allow") in order or (name, "deny") in order or
                                                                               (name, "5") in order), (name, fault)
                assert '"web:198.51.100.0/24" is left out' not in fault and '"web:192.0.2.7"' not in fault, fault
    # Users are no addresses: every name is one of theirs.
    got, fault = decisions(policies(1, [("web:alice", "deny"), ("web:198.51.100.0/24", "deny")]),
                           [combined(Request(START_S * 1000, user="alice"))], "--key=user")
    assert got == [("alice", False)] and "left out" not in fault


def test_overrides_of_all_policies_hold_for_addresses_and_networks():
    lines = [combined(Request(START_S * 1000 + i * 1000, address)) for i, address in
             enumerate(["198.51.100.7", "2001:db8::1", "2001:db8::1", "203.0.113.1"])]
    for words in ((), ("--key=address/24,64",), ("--key=address/24",)):
        got, fault = decisions(policies(1, [("*:198.51.100.0/24", "deny"), ("*:2001:db8::/32", "allow")]), lines, *words)
        assert [admitted for _, admitted in got] == [False, True, True, True] and "left out" not in fault, (words, got, fault)


def test_ten_thousand_overrides_are_read_in_one_go():
    overrides = [(f"web:10.0.{i >> 8}.{i & 255}", "deny") for i in range(9990)] + [("web:nobody", "deny")]
    got, fault = decisions(policies(1, overrides), [combined(Request(START_S * 1000, address)) for address in ("10.0.39.5", "10.0.40.0")])
    assert [admitted for _, admitted in got] == [False, True] and fault.count("left out") == 1, (got, fault[:300])


def test_a_policy_file_may_be_standard_input():
    trace = file("trace", (combined(Request(START_S * 1000)) + "\n") * 3)
    text = policies(1, [("web:198.51.100.0/24", "deny")])
    out, _ = weir("simulate", "-p", "-", "--json", trace, stdin=text)
    assert json.loads(out)["new"]["denied"] == 3 and json.loads(out)["new"]["file"] == "<stdin>", out
    assert json.loads(weir("simulate", "-p", file("keys.yaml", policies(2)), "-a", "-", "--json", trace, stdin=text)[0])["old"]["denied"] == 3
    assert "there twice" in weir("simulate", "-p", "-", "-", code=2)[1]
    assert "there twice" in weir("simulate", "-p", "-", "-a", "-", trace, code=2)[1]


if __name__ == "__main__":
    run(globals())
