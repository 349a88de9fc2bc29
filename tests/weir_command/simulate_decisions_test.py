#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
weir simulate decides as the library does, request by request: random traces of every format, played by the command and
through the library. simulate_decisions_test.py WEIR_PROGRAM DECISION_PLAYER [TEST...]. Prints TAP.

Guards: apps/weir/simulate/engine.c, apps/weir/simulate/replay.c, apps/weir/trace/merge.c, apps/weir/trace/clf.c,
apps/weir/trace/json.c, apps/weir/trace/haproxy.c, apps/weir/trace/csv.c, apps/weir/trace/packets.c
"""
import gzip
import ipaddress
import os
import random
import subprocess
import sys

PLAYER = os.path.abspath(sys.argv.pop(2))

from command_support import need, PLACE, PLAIN, run, weir, WRAPPER  # noqa: E402: it reads the command line
from traces import combined, csv, haproxy, in_order, nginx_json, pcap, Request, START_S  # noqa: E402

SEED = int(os.environ.get("WEIR_TEST_SEED") or random.SystemRandom().randrange(1 << 32))
DRAW = random.Random(SEED)
ROUNDS = 4


def some_limit(algorithm):
    period = DRAW.choice(("1s", "250ms", "10s", "1m", "1h"))
    limit = DRAW.choice((1, 2, 5, 10, 50, 200))
    burst = f", burst: {DRAW.choice((1, 3, 20, 100))}" if algorithm.endswith("bucket") else ""
    return f"{{algorithm: {algorithm}, limit: {limit}, period: {period}{burst}}}"


def some_policies():
    """(path, whether it queues). In shadow mode the command says what would be denied, as the player by enforced.yaml."""
    print(f"# WEIR_TEST_SEED={SEED}", flush=True)
    algorithms = ["fixed_window", "sliding_window", "sliding_log", "token_bucket"] + ["leaky_bucket"] * DRAW.choice((0, 1))
    limits = [some_limit(algorithm) for algorithm in DRAW.sample(algorithms, DRAW.choice((1, 1, 2)))]
    path = PLACE / "policies.yaml"
    text = f"policies:\n  - {{name: api, mode: enforce, limits: [{', '.join(limits)}]}}\n"
    (PLACE / "enforced.yaml").write_text(text)
    path.write_text(text.replace("enforce", DRAW.choice(("enforce", "shadow"))))
    return path, any("leaky" in limit for limit in limits)


def some_requests(count, costs=(1,), wide=False):
    addresses = [str(ipaddress.ip_address(DRAW.randrange(1 << 32))) for _ in range(DRAW.choice((1, 5, 40)))]
    addresses += [str(ipaddress.ip_address(DRAW.randrange(1 << 128))) for _ in range(DRAW.choice((1, 5)))]
    users = ["alice", "bob", "x", "u" * 200, "a-user-of-more-than-24-bytes"]
    now, requests = START_S * 1000 + DRAW.randrange(1000), []
    for _ in range(count):
        now += DRAW.choice((0, 0, 1, 7, 40, 300, 2500) if not wide else (0, 100, 20000, 400000, 90000000))
        path = DRAW.choice(("/", "/api/v1/users?id=7", "/api/v1", "/api/v2/x/y", "/static/a.css"))
        requests.append(Request(now, DRAW.choice(addresses), DRAW.choice(users), path, DRAW.choice(costs)))
    return requests


def jumbled(requests):
    """Out of order by a few seconds."""
    return sorted(requests, key=lambda r: r.time_ms + DRAW.randrange(-9000, 9000))


def player(queues, prefix, played):
    """What the library says of [(time, key, cost)]."""
    text = "".join(f"{at} {key.hex() or '-'} {cost}\n" for at, key, cost in played)
    done = subprocess.run([*WRAPPER, PLAYER, PLACE / "enforced.yaml", "api", str(prefix), str(int(queues))], input=text, capture_output=True,
                          text=True, timeout=300, env=PLAIN, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def compare(traces, policies, queues, played, prefix=0, options=()):
    """Plays traces by the command, and [(time, key, its text, cost)] through the library."""
    weir("simulate", "-p", policies, "--decisions", "decisions.csv", *options, *traces)
    lines = (PLACE / "decisions.csv").read_text().splitlines()
    wanted = player(queues, prefix, [(at, key, cost) for at, key, _, cost in played])
    assert len(lines) == len(wanted) == len(played), (len(lines), len(wanted), len(played))
    for number, (line, (at, _, text, cost), decision) in enumerate(zip(lines, played, wanted)):
        assert line == f"{at},{text},{cost},{decision}", (number, line, at, text, cost, decision)
    return wanted


def by_address(requests, whole, prefix=128):
    def key(address):
        address = ipaddress.ip_address(address)
        return address.packed if address.version == 4 else address.packed[:prefix // 8]

    def text(address):
        address = ipaddress.ip_address(address)
        whole_address = address.version == 4 or prefix == 128
        return str(address if whole_address else ipaddress.ip_network((int(address), prefix), strict=False))

    return [(at, key(r.address), text(r.address), max(r.cost, 1)) for at, r in in_order(requests, whole)]


def rows(name, lines):
    path = PLACE / name
    path.write_text("".join(line + "\n" for line in lines))
    return path


def test_combined_by_address_out_of_order_and_with_malformed_lines():
    for _ in range(ROUNDS):
        policies, queues = some_policies()
        requests = jumbled(some_requests(3000))
        lines = [combined(r) for r in requests]
        for _ in range(20):
            lines.insert(DRAW.randrange(len(lines)), DRAW.choice(("", "junk", lines[0][:40], '1.2.3.4 - - [x] "GET"')))
        played = [row[:3] + (1,) for row in by_address(requests, True)]
        compare([rows("combined.log", lines)], policies, queues, played, 128)


def test_combined_by_user_by_path_and_by_network():
    for _ in range(ROUNDS):
        policies, queues = some_policies()
        requests = some_requests(2000, costs=(0, 1, 3, 500))
        path = rows("combined.log", map(combined, requests))
        played = [(at, r.user.encode(), r.user, 1) for at, r in in_order(requests, True)]
        compare([path], policies, queues, played, options=("--key=user",))
        for depth in (1, 2):
            def prefix(r):
                return "/" + "/".join(r.path.split("?")[0].split("/")[1:1 + depth])
            played = [(at, prefix(r).encode(), prefix(r), 1) for at, r in in_order(requests, True)]
            compare([path], policies, queues, played, options=(f"--key=path:{depth}",))
        played = by_address(requests, True, 64)
        compare([path], policies, queues, played, 64, options=("--key=address/64", "--cost=bytes"))


def test_what_has_no_size_costs_one_and_a_line_without_one_is_malformed():
    policies, queues = some_policies()
    requests = some_requests(200, costs=(0, 1, 3, 500))
    lines = [combined(r).replace(f" 200 {r.cost} ", " 304 - ") if r.cost == 0 else combined(r) for r in requests]
    plain = [line.split(' "https')[0] for line in lines]  # the size ends the line
    broken = [lines[0].replace(" 304 - ", " 304 -- ").replace(f" 200 {requests[0].cost} ", " 200 -- "), plain[0].rsplit(" ", 1)[0], "x"]
    compare([rows("sizes.log", lines)], policies, queues, by_address(requests, True), options=("--cost=bytes",))
    compare([rows("sizes.log", plain + broken)], policies, queues, by_address(requests, True), options=("--cost=bytes",))


def test_json_haproxy_and_pcap_have_milliseconds():
    for _ in range(ROUNDS):
        policies, queues = some_policies()
        requests = jumbled(some_requests(2000, costs=(1, 40)))
        once = [row[:3] + (1,) for row in by_address(requests, False)]
        sized = by_address(requests, False)
        for name, line in (("access.json", nginx_json), ("haproxy.log", haproxy)):
            path = rows(name, map(line, requests))
            compare([path], policies, queues, once, 128)
            compare([path], policies, queues, sized, 128, options=("--cost=bytes",))
        if "pcap" not in os.environ.get("WEIR_TEST_LACKS", ""):
            (PLACE / "capture.pcap").write_bytes(pcap(requests))
            compare([PLACE / "capture.pcap"], policies, queues, once, 128, options=("--port=27015",))
            compare([PLACE / "capture.pcap"], policies, queues, sized, 128, options=("--cost=bytes", "--port=27015"))


def test_csv_has_keys_and_costs_of_its_own():
    for _ in range(ROUNDS):
        policies, queues = some_policies()
        requests = some_requests(2000, costs=(0, 1, 2, 7))
        played = [(at, r.user.encode(), r.user, max(r.cost, 1)) for at, r in in_order(requests, False)]
        compare([rows("trace.csv", ["time,key,cost", *map(csv, requests)])], policies, queues, played)


def test_long_gaps_and_days_make_no_difference():
    for _ in range(ROUNDS):
        policies, queues = some_policies()
        requests = some_requests(1500, wide=True)
        played = [row[:3] + (1,) for row in by_address(requests, True)]
        compare([rows("wide.log", map(combined, requests))], policies, queues, played, 128)


def test_several_files_are_merged_by_time():
    need("zlib" not in os.environ.get("WEIR_TEST_LACKS", ""), "there is no zlib")
    policies, queues = some_policies()
    requests = some_requests(3000)
    parts = [[], [], []]
    for r in requests:
        parts[DRAW.randrange(3)].append(r)
    names = [rows(f"part{i}.log", map(combined, part)) for i, part in enumerate(parts)]
    (PLACE / "part2.log.gz").write_bytes(gzip.compress(names[2].read_bytes()))
    names[2] = PLACE / "part2.log.gz"
    # Within a second, the files come in the order in which they are named.
    merged = sorted((r for part in parts for r in part), key=lambda r: r.time_ms // 1000)
    compare(names, policies, queues, [row[:3] + (1,) for row in by_address(merged, True)], 128)


def test_overrides_of_keys_and_networks_are_in_force():
    requests = [Request(START_S * 1000 + i, address) for i in range(50) for address in
                ("198.51.100.7", "203.0.113.5", "203.0.113.6", "2001:db8::7")]
    path = rows("overrides.json", map(nginx_json, requests))
    for mode, address, network in (("enforce", "198.51.100.7", "203.0.113.0/24"), ("shadow", "198.51.100.7", "203.0.113.0/24"),
                                   ("enforce", "::ffff:198.51.100.7", "::FFFF:cb00:7100/120")):
        (PLACE / "policies.yaml").write_text(f"""policies:
  - {{name: api, mode: {mode}, limits: [{{algorithm: fixed_window, limit: 2, period: 1h}}]}}
overrides:
  "api:{address}": deny
  "api:{network}": allow
  "api:2001:db8::/32": "5"
""")
        weir("simulate", "-p", "policies.yaml", "--decisions", "decisions.csv", path)
        lines = (PLACE / "decisions.csv").read_text().splitlines()
        admitted = {address: sum(f",{address}," in line and line.endswith(",admitted") for line in lines) for address in
                    ("198.51.100.7", "203.0.113.5", "2001:db8::7")}
        assert admitted == {"198.51.100.7": 0, "203.0.113.5": 50, "2001:db8::7": 5}, (mode, admitted)
    # Where an override names a key that is no address, keys are text; addresses are then written as text.
    (PLACE / "policies.yaml").write_text("""policies:
  - {name: api, limits: [{algorithm: fixed_window, limit: 2, period: 1h}]}
overrides:
  "api:198.51.100.7": deny
  "api:partner": allow
""")
    weir("simulate", "-p", "policies.yaml", "--decisions", "decisions.csv", path)
    lines = (PLACE / "decisions.csv").read_text().splitlines()
    assert sum(line.endswith("198.51.100.7,1,admitted") for line in lines) == 0
    assert sum(line.endswith("203.0.113.5,1,admitted") for line in lines) == 2


if __name__ == "__main__":
    run(globals())
