#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
weir simulate: what it says, what is wrong with traces and options, and how it ends. simulate_test.py WEIR_PROGRAM
[TEST...]. Prints TAP. WEIR_TEST_LACKS has the packages that the program was built without.

Guards: apps/weir/simulate/simulate.c, apps/weir/simulate/choices.c, apps/weir/simulate/report_text.c,
apps/weir/simulate/report_data.c, apps/weir/simulate/findings.c, apps/weir/simulate/candidates.c,
apps/weir/simulate/clients.c, apps/weir/simulate/timeline.c, apps/weir/simulate/progress.c, apps/weir/simulate/plot.c,
apps/weir/simulate/key_text.c, apps/weir/simulate/replay.c, apps/weir/trace/trace.c, apps/weir/trace/bytes.c,
apps/weir/trace/decoder.c, apps/weir/trace/fields.c, apps/weir/trace/text_time.c, apps/weir/trace/json.c
"""
import array
import fcntl
import gzip
import json
import os
import random
import re
import shutil
import signal
import subprocess
import termios
import time

from command_support import data, file, need, on_terminal, PLACE, PLAIN, run, Skipped, weir, WEIR, WRAPPER
from traces import combined, common, csv, haproxy, nginx_json, pcap, Request, START_S

LACKS = os.environ.get("WEIR_TEST_LACKS", "").split()
# Fonts that fontconfig keeps until the program ends are no leak of the program.
PLAIN["LSAN_OPTIONS"] = f"suppressions={file('suppressions', 'leak:libfontconfig')}:print_suppressions=0"
POLICIES = "policies:\n  - {name: api, limits: [{algorithm: fixed_window, limit: 2, period: 10s}]}\n"


def write(name, lines):
    return file(name, "".join(line + "\n" for line in lines))


def some(count=100, step_ms=1000):
    return [Request(START_S * 1000 + i * step_ms, f"198.51.100.{i % 4}", cost=i % 7 + 1) for i in range(count)]


def simulate(*words, policies=POLICIES, **options):
    return data("simulate", "-p", file("policies.yaml", policies), *words, **options)


def test_the_tables_say_who_when_and_how_much():
    requests = [Request(START_S * 1000 + second * 1000, address) for second in range(60)
                for address in (["198.51.100.1"] * (1 if second % 10 else 4) + ["198.51.100.2"] * (second % 20 == 0))]
    path = write("access.log", [combined(r) for r in requests[:5]] + ["junk \x1b[31m"] + [combined(r) for r in requests[5:]])
    out, fault = weir("simulate", "--policies", file("policies.yaml", POLICIES), path)
    assert fault == "" and "\x1b" not in out
    for line in (f"{path}: 82 lines, combined, 1 malformed", r"  line 6 is malformed: junk \x1b[31m",
                 "81 requests of 2 keys, from 2025-11-25 10:00:00 to 2025-11-25 10:00:59 UTC",
                 f"policy api of {PLACE}/policies.yaml: 2 every 10 seconds (counted anew every 10 seconds)",
                 "  admitted           15   18.52%", "  denied             66   81.48%, of 1 key (50.00%)",
                 "By time, in steps of 5 seconds (UTC)", "Keys that were denied most"):
        assert line in out.splitlines(), (line, out)
    assert re.search(r"^2025-11-25 10:00:05 +5 +5 +100.00%  ##+$", out, re.M), out
    assert re.search(r"^198.51.100.1 +78 +66 +84.62% +[\d.]+ s$", out, re.M), out
    assert max(map(len, re.findall(r"^(?!policy|/).*$", out, re.M))) <= 80, out


def test_json_has_the_findings_as_numbers():
    told = simulate(write("access.log", map(combined, some())), "--top=2")
    assert told["traces"][0]["format"] == "combined" and told["traces"][0]["requests"] == 100
    assert (told["requests"], told["units"], told["keys"], told["keys_sampled"]) == (100, 100, 4, False)
    assert (told["new"]["denied"], told["new"]["limited_keys"], told["new"]["nodes"]) == (100 - 10 * 4 * 2 + 0, 4, 1), told["new"]
    assert (told["first_ms"], told["last_ms"]) == (START_S * 1000, START_S * 1000 + 99000)
    assert sum(step["requests"] for step in told["steps"]) == 100 and sum(step["denied"] for step in told["steps"]) == 20
    assert len(told["top"]) == 2 and told["top"][0]["denied"] == 5, told["top"]
    assert {"first_ms", "last_ms", "longest_ms", "peak", "requests", "key"} <= told["top"][0].keys()
    assert told["limits"][0]["for_keys"]["limit"] == 3 and told["limits"][0]["for_keys"]["keys_ppm"] == 1000000


def test_of_keys_denied_alike_the_busier_comes_first_then_the_bytes_decide():
    long = "n" * 24  # is kept elsewhere than a longer one
    keys = ["b", "ab", "a", long + "!", long, "abc", long + "~z", long + "~", "c"]
    second = START_S - START_S % 256 + 200  # the keys of before come in one second
    lines = [f"{second},{key}" for key in keys for _ in range(4)] + [f"{second + 10},c", f"{second + 10},more"]
    lines += [f"{second},more"] * 5
    told = simulate(write("alike.csv", lines), "--top=20")
    assert [row["key"] for row in told["top"]] == ["more", "c"] + sorted(keys[:-1]), told["top"]
    assert [row["denied"] for row in told["top"]] == [3] + [2] * 9, told["top"]


def test_every_format_and_compression_is_found_by_its_content():
    requests = some()
    files = {"combined": map(combined, requests), "json": map(nginx_json, requests), "haproxy": map(haproxy, requests),
             "csv": map(csv, requests)}
    plain = {name: simulate(write(name, lines)) for name, lines in files.items()}
    plain["common"] = simulate(write("common", map(common, requests)))
    for name, told in plain.items():
        assert told["traces"][0]["format"] == name.replace("common", "combined") and told["requests"] == 100, told["traces"]
        path = PLACE / name
        if "zlib" not in LACKS:
            (PLACE / "packed").write_bytes(gzip.compress(path.read_bytes()[:3000]) + gzip.compress(path.read_bytes()[3000:]))
            assert simulate(PLACE / "packed")["new"] == told["new"], name
        if "libzstd" not in LACKS and shutil.which("zstd"):
            (PLACE / "packed").write_bytes(subprocess.run(["zstd", "-c", path], capture_output=True, check=True).stdout)
            assert simulate(PLACE / "packed")["new"] == told["new"], name
        assert simulate("-", stdin=path.read_text())["new"] == told["new"], name
        assert simulate(f"--format={name}", path)["new"] == told["new"], name
        file("crlf", path.read_text().replace("\n", "\r\n").rstrip("\r\n"))
        assert simulate(PLACE / "crlf")["new"] == told["new"], name
    if "libpcap" not in LACKS:
        (PLACE / "capture").write_bytes(pcap(requests))
        assert simulate(PLACE / "capture")["new"] == plain["json"]["new"]
        (PLACE / "capture.gz").write_bytes(gzip.compress(pcap(requests)))
        if "zlib" not in LACKS:
            assert simulate(PLACE / "capture.gz")["traces"][0]["format"] == "pcap"


def test_times_of_every_form_are_read():
    at = START_S * 1000 + 123
    for text, wanted in ((f"{START_S}", START_S * 1000), (f"{START_S}.123", at), (f"{START_S}123", at), (f"{START_S}123456", at),
                         (f"{START_S}123456789", at), ("2025-11-25T10:00:00Z", START_S * 1000),
                         ("2025-11-25 11:00:00.123456+01:00", at), ("2025-11-25T05:00:00.1234-0500", at),
                         ("25/Nov/2025:10:00:00 +0000", START_S * 1000), ("2024-02-29T00:00:00", 1709164800000),
                         ("1970-01-01T00:00:01", 1000), ("1970-01-01T00:00:00Z", 0), ("1970-01-01T01:00:00+01:00", 0), ("0", 0)):
        told = simulate("-f", "csv", "-", stdin=f"{text},key\n")
        assert told["first_ms"] == wanted, (text, told["first_ms"], wanted)
    for text in ("", "x", "2025-13-25T10:00:00", "2025-11-25T25:00:00", "2025-11-25T10:00", "12a", "1.", "99999999999999999999",
                 "2025-11-25T10:00:00+1", "32/Nov/2025:10:00:00 +0000", "1970-01-01T00:59:59+01:00", "2025-11-25T10:00:00+24:00",
                 "2025-11-25T10:00:00+00:60", "1969-12-31T23:59:59Z"):
        told = simulate("-f", "csv", "-", stdin=f"{START_S},key\n{text},key\n")
        assert told["traces"][0]["malformed"] == 1, text


def test_names_of_json_can_be_chosen():
    lines = [json.dumps({"ts": START_S + i, "who": {"a": "]"}, "ip": "198.51.100.9", "tenant": "a\\\"é", "n": 7}) for i in range(9)]
    path = write("named.json", lines)
    assert simulate(path)["top"][0]["key"] == "198.51.100.9"
    told = simulate("--fields=time=ts,address=ip,bytes=n", "--cost=bytes", path)
    assert told["units"] == 63
    assert simulate("--key=field:tenant", path)["top"][0]["key"] == 'a\\%22%c3%a9'
    escaped = "".join('{"ts": %d, "ip": "198.51.100.9", "k": "%s"}\n' % (START_S, r"\u00FF\u0aAf\u9090\/\"\\") for _ in range(3))
    assert simulate("--key=field:k", file("escaped.json", escaped))["top"][0]["key"] == \
        "".join(f"%{byte:02x}" for byte in "\u00ff\u0aaf\u9090".encode()) + '/%22\\'
    assert "has no request" in weir("simulate", "-p", "policies.yaml", "--key=field:none", path, code=5)[1]


def test_json_may_have_other_names_on_each_line():
    """The reader remembers which name stood where in the line before."""
    long = "n" * 24  # and a name that differs behind what is remembered of it
    times = {"msec": f"{START_S + 1}.000", "time": START_S + 9, "ts": START_S + 10}
    lines = [{**times, "ip": "198.51.100.2", "remote_addr": "198.51.100.1", long: "a"},
             {long + "x": "b", "remote_addr": "198.51.100.1", **times, "ip": "198.51.100.2"},
             {long: "c", "ip": "198.51.100.2", "ts": START_S + 10, "remote_addr": "198.51.100.1", "msec": f"{START_S + 1}.000"},
             {**{f"x{i}": i for i in range(40)}, "remote_addr": "198.51.100.1", "msec": f"{START_S + 1}.000"},
             {"": "", **times, "remote_addr": "198.51.100.1", long: "d"},
             {"user": "u", **times, "remote_addr": "198.51.100.1"}]  # msec where time stood
    orders = [lines, lines[::-1], [lines[i % 6] for i in range(0, 50, 5)], [lines[0], lines[5]] * 5]
    for order in orders:
        told = simulate(write("orders.json", map(json.dumps, order)))
        assert (told["requests"], told["keys"], told["first_ms"], told["last_ms"]) == \
            (len(order), 1, (START_S + 1) * 1000, (START_S + 1) * 1000), told
        assert told["top"][0]["key"] == "198.51.100.1", told["top"]
        decisions = PLACE / "orders.csv"
        simulate(f"--key=field:{long}", f"--decisions={decisions}", PLACE / "orders.json")
        keys = [line.split(",")[1] for line in decisions.read_text().splitlines()]
        assert keys == [line[long] for line in order if long in line], keys
    # Of two fields of one name the first one counts.
    twice = '{"ip":"198.51.100.1","ip":"198.51.100.2","ts":%d}' % START_S
    assert simulate(write("twice.json", [twice] * 9))["top"][0]["key"] == "198.51.100.1"


def test_header_fields_are_keys():
    requests = [r._replace(agent=f"agent/{i % 2}") for i, r in enumerate(some())]
    told = simulate("--key=header:User-Agent", write("access.log", map(combined, requests)))
    assert sorted(row["key"] for row in told["top"]) == ["agent/0", "agent/1"] and told["keys"] == 2
    assert simulate("--key=header:referer", PLACE / "access.log")["top"][0]["key"] == "https://example.org/\\%22quoted\\%22"
    told = simulate("--key=header:1", write("haproxy.log", map(haproxy, requests)))
    assert sorted(row["key"] for row in told["top"]) == ["agent/0", "agent/1"]
    assert simulate("--key=header:2", PLACE / "haproxy.log")["top"][0]["key"] == "second"


def test_two_policies_are_compared():
    old = file("old.yaml", POLICIES.replace("limit: 2", "limit: 1"))
    path = write("access.log", map(combined, some()))
    told = simulate("--against", old, path, "--decisions", "decisions.csv")
    new, alone = simulate(path)["new"], simulate(path, policies=old.read_text())["new"]
    assert told["new"] == new and told["old"]["denied"] == alone["denied"] == 60 and told["denied_both"] == 20
    assert (told["keys_only_new"], told["keys_only_old"]) == (0, 0)
    rows = [line.split(",") for line in (PLACE / "decisions.csv").read_text().splitlines()]
    assert [sum(row[column] == "denied" for row in rows) for column in (3, 4)] == [20, 60] and len(rows[0]) == 5
    # 1 a second limits c, g and h; 2 a minute limits c, d, e and f.
    lines = [f"{START_S},{key}" for key in "ccgghh"] + [f"{START_S + second},{key}" for second in (1, 2, 3) for key in "cdef"]
    second, minute = POLICIES.replace("limit: 2", "limit: 1").replace("10s", "1s"), POLICIES.replace("10s", "1m")
    for new, other, wanted in ((second, minute, (3, 4, 2, 3)), (minute, second, (4, 3, 3, 2))):
        both = simulate("-f", "csv", "-", "--against", file("other.yaml", other), stdin="\n".join(lines), policies=new)
        assert (both["new"]["limited_keys"], both["old"]["limited_keys"], both["keys_only_new"], both["keys_only_old"]) == wanted, both
        by_second, by_minute = {"c": 1, "g": 1, "h": 1}, {"c": 3, "d": 1, "e": 1, "f": 1}
        counts = (by_second, by_minute) if new == second else (by_minute, by_second)
        assert {row["key"]: (row["denied"], row["denied_old"]) for row in both["top"]} == \
            {key: tuple(of.get(key, 0) for of in counts) for key in "cdefgh"}, both["top"]
    out, _ = weir("simulate", "-p", file("policies.yaml", POLICIES), "-a", old, path)
    assert re.search(r"^  by the old alone +40 +0$", out, re.M) and "old denied" in out, out
    assert "has no policy" in weir("simulate", "-p", "policies.yaml", "-a", file("other.yaml", POLICIES.replace("api", "web")),
                                   path, code=2)[1]


def skewed(count, seed):
    """Keys of very different rates."""
    draw = random.Random(seed)
    at, requests = START_S * 1000, []
    for _ in range(count):
        at += draw.choice((0, 5, 20, 100))
        key = int(300 * draw.random() ** 4)
        requests += [Request(at, f"10.0.{key // 250}.{key % 250}")] * draw.choice((1, 1, 1, 6))
    return requests


def test_a_suggested_limit_does_what_was_said():
    """Each candidate that is told is tried as a policy of its own."""
    path = write("skewed.json", map(nginx_json, skewed(4000, 7)))
    for algorithm in ("fixed_window", "sliding_window", "token_bucket", "leaky_bucket"):
        def policies(limit, burst, name=algorithm):
            more = f", burst: {burst}" if name.endswith("bucket") else ""
            return f"policies:\n  - {{name: api, limits: [{{algorithm: {name}, limit: {limit}, period: 10s{more}}}]}}\n"

        told = simulate("--through=95", path, policies=policies(10, 12))
        limit = told["limits"][0]
        for candidate in limit["candidates"][:12:3] + [limit["for_keys"], limit["for_requests"]]:
            tried = simulate(path, policies=policies(candidate["limit"], candidate.get("burst", 0)))
            admitted = 1e6 * (tried["requests"] - tried["new"]["denied"]) / tried["requests"]
            free = 1e6 * (tried["keys"] - tried["new"]["limited_keys"]) / tried["keys"]
            assert abs(admitted - candidate["requests_ppm"]) <= 300, (algorithm, candidate, admitted)
            assert abs(free - candidate["keys_ppm"]) <= 1e6 / tried["keys"] + 1, (algorithm, candidate, free)
        below = [c for c in limit["candidates"] if c["limit"] < limit["for_keys"]["limit"]]
        assert limit["for_keys"]["keys_ppm"] >= 950000 and all(c["keys_ppm"] < 950000 for c in below[-1:]), limit["for_keys"]
        assert limit["for_requests"]["requests_ppm"] >= 950000
        if algorithm.endswith("bucket"):
            def limited(burst):
                tried = simulate(path, policies=policies(10, burst))
                return tried["new"]["limited_keys"] / tried["keys"]
            assert limited(limit["burst_for_keys"]) <= 0.05 < limited(limit["burst_for_keys"] - 1), limit["burst_for_keys"]


def test_more_keys_than_are_counted_are_sampled():
    draw = random.Random(3)
    requests = []
    for i in range(30000):
        key = draw.randrange(20000) if i % 3 else 20000 + i % 5
        requests.append(Request(START_S * 1000 + i * 10, f"10.{key >> 16}.{key >> 8 & 255}.{key & 255}"))
    path = write("many.log", map(combined, requests))
    whole, part = simulate(path), simulate(path, "--max-keys=1000")
    assert not whole["keys_sampled"] and part["keys_sampled"] and part["keys_known"] <= 1000
    assert abs(part["keys"] - whole["keys"]) < 0.25 * whole["keys"], (part["keys"], whole["keys"])
    # The busiest keys are found all the same.
    heavy = {row["key"]: row for row in whole["top"][:5]}
    found = {row["key"]: row for row in part["top"][:5]}
    assert heavy.keys() == found.keys() and len(heavy) == 5, (heavy, found)
    out, _ = weir("simulate", "-p", "policies.yaml", "--max-keys=1000", path)
    assert "about" in out and "denials may be missing" in out, out


def test_a_fleet_admits_about_what_one_node_does():
    requests = [Request(START_S * 1000 + i * 20, f"198.51.100.{i // 7 % 3}") for i in range(6000)]
    path = write("fleet.json", map(nginx_json, requests))
    policies = "policies:\n  - {name: api, limits: [{algorithm: sliding_window, limit: 50, period: 10s}]}\n"
    one, three = simulate(path, policies=policies), simulate(path, "--nodes=3", policies=policies)
    admitted = [told["requests"] - told["new"]["denied"] for told in (one, three)]
    assert three["new"]["nodes"] == 3 and 0.8 < admitted[1] / admitted[0] < 1.25, admitted
    out, _ = weir("simulate", "-p", "policies.yaml", "-n", "3", path)
    assert "on 3 nodes, which take requests in turn" in out
    process = simulate(path, "--nodes=3", policies=policies.replace("name: api,", "name: api, scope: process,"))
    assert process["new"]["denied"] < three["new"]["denied"] / 2


def test_wrong_words_are_refused():
    path = write("access.log", map(combined, some()))
    file("policies.yaml", POLICIES)
    file("two.yaml", POLICIES + POLICIES.split("\n")[1].replace("api", "web") + "\n")
    for words, says in ((("--key=adress", path), "give address"), (("--key=address/129", path), "give address"),
                        (("--key=path:0", path), "1 to 16"), (("--format=xml", path), "give auto"), (("--cost=2", path), "1 or bytes"),
                        (("--late=25h", path), "up to 24 hours"), (("--late=x", path), "such as 90s"), (("--late=", path), "such as 90s"),
                        (("--late=1w", path), "up to 24"), (("--nodes=0", path), "1 to 64"), (("--nodes=65", path), "1 to 64"), (("--max-keys=9", path), "1000 to"),
                        (("--through=100", path), "99.9"), (("--through=9x", path), "99.9"), (("--plot=a.gif", path), ".svg or .png"),
                        (("--fields=tim=x", path), "time=ts"), (("--fields=time", path), "time=ts"), (("--top=-1", path), "0 to"),
                        ((), "there is no TRACE"), (("-", "-"), "there twice"), (("--policy=ap", path), 'did you mean "api"'),
                        (("--policy=zzzzz", path), "give one of api")):
        out, fault = weir("simulate", "-p", "policies.yaml", *words, code=2)
        assert out == "" and says in fault, (words, fault)
    assert "give --policies=FILE" in weir("simulate", path, code=2)[1]
    assert "give --policy=NAME, one of api, web" in weir("simulate", "-p", "two.yaml", path, code=2)[1]
    weir("simulate", "-p", "two.yaml", "--policy=web", path)


def test_files_that_cannot_be_read_are_told():
    path = write("access.log", map(combined, some()))
    bad = file("bad.yaml", "policies: []\n")
    file("policies.yaml", POLICIES)
    for words, code, says in (((path, "nowhere.log"), 3, "nowhere.log: cannot be read: No such file"),
                              ((PLACE,), 3, "is a directory"), (("/proc/self/mem",), 3, "cannot be read: "),
                              ((file("empty.log", ""),), 5, "empty.log: is empty"),
                              ((file("prose.log", "once upon\na time\n"),), 5, "no known format"),
                              (("--format=json", path), 5, "has no request in format json; its first malformed line: 198."),
                              (("--key=user", file("k.csv", "1,a\n")), 5, 'a csv trace has no key "user"'),
                              (("--cost=bytes", PLACE / "k.csv"), 5, "has no sizes")):
        out, fault = weir("simulate", "-p", "policies.yaml", *words, code=code)
        assert out == "" and says in fault, (words, fault)
    assert "there are no policies" in weir("simulate", "-p", bad, path, code=1)[1]
    assert "cannot be read" in weir("simulate", "-p", "nowhere.yaml", path, code=3)[1]


def test_a_cut_or_damaged_file_is_told_up_to_there():
    need("zlib" not in LACKS, "there is no zlib")
    lines = "".join(combined(r) + "\n" for r in some(5000))
    packed = gzip.compress(lines.encode())
    file("policies.yaml", POLICIES)
    for name, content, says in (("cut.gz", packed[:len(packed) // 2], "is cut off"),
                                ("damaged.gz", packed[:-8] + b"\0" * 8, "is damaged")):
        (PLACE / name).write_bytes(content)
        out, fault = weir("simulate", "-p", "policies.yaml", PLACE / name, code=3)
        assert says in fault and re.search(r"^[\d,]{3,} requests of 4 keys", out, re.M), (fault, out[:200])


def test_output_that_cannot_be_written_is_an_error_of_its_own():
    path = write("access.log", map(combined, some()))
    file("policies.yaml", POLICIES)
    words = [*WEIR, "simulate", "-p", "policies.yaml", str(path)]
    for more in ([], ["--json"]):
        with open("/dev/full", "w") as full:
            done = subprocess.run(words + more, stdout=full, stderr=subprocess.PIPE, text=True, cwd=PLACE, env=PLAIN, timeout=60)
        assert done.returncode == 4 and "No space left" in done.stderr, done
        reader, writer = os.pipe()
        os.close(reader)
        done = subprocess.run(words + more, stdout=writer, stderr=subprocess.PIPE, text=True, cwd=PLACE, env=PLAIN, timeout=60)
        os.close(writer)
        assert done.returncode == 4 and "Broken pipe" in done.stderr, done
    assert "/dev/full: No space left" in weir("simulate", "-p", "policies.yaml", "--decisions=/dev/full", path, code=4)[1]
    assert "nowhere/d: No such file" in weir("simulate", "-p", "policies.yaml", "--decisions=nowhere/d", path, code=4)[1]
    if "cairo" not in LACKS:
        assert "nowhere/a.png: " in weir("simulate", "-p", "policies.yaml", "--plot=nowhere/a.png", path, code=4)[1]
        assert "nowhere/a.svg: " in weir("simulate", "-p", "policies.yaml", "--plot=nowhere/a.svg", path, code=4)[1]


def test_an_interrupt_tells_what_was_read_so_far():
    if WRAPPER:
        raise Skipped("the emulator reads ahead")
    lines = "".join(combined(r) + "\n" for r in some(200)).encode()
    file("policies.yaml", POLICIES)
    for count in (5, 200):
        child = subprocess.Popen([*WEIR, "simulate", "-p", "policies.yaml", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, cwd=PLACE, env=PLAIN)
        child.stdin.write(b"".join(lines.splitlines(keepends=True)[:count]))
        child.stdin.flush()
        left, end = array.array("i", [1]), time.monotonic() + 60
        while left[0] != 0 or b"S" not in open(f"/proc/{child.pid}/stat", "rb").read().split(b")")[-1].split()[0]:
            assert time.monotonic() < end
            time.sleep(0.01)
            fcntl.ioctl(child.stdin, termios.FIONREAD, left)
        child.send_signal(signal.SIGINT)
        out, fault = child.communicate(timeout=60)
        assert child.returncode == 130, (child.returncode, fault)
        assert f"interrupted after {count} requests" in fault.decode() and f"{count} requests of" in out.decode(), (out, fault)


def test_progress_is_for_terminals_and_files():
    path, other = write("access.log", map(combined, some(20000, 50))), write("other.log", map(combined, some(5000, 50)))
    file("policies.yaml", POLICIES)
    traces = [(path, other)]
    if "zlib" not in LACKS:  # of a compressed file it is the part of what is read
        (PLACE / "packed.gz").write_bytes(gzip.compress(b"".join(b"%d,%s\n" % (START_S + i, random.randbytes(16).hex().encode()) for i in range(20000))))
        traces.append((PLACE / "packed.gz",))
    for paths in traces:
        seen = on_terminal("simulate", "-p", "policies.yaml", *paths, stdout=False)
        shown = re.findall(r"\r\[(#*)(\.*)\] +(\d+)% of (\d+\.\d) MiB", seen)
        assert shown and seen.endswith("\r\x1b[K"), seen
        mib = sum(path.stat().st_size for path in paths) / (1 << 20)
        for done, rest, percent, size in shown:
            assert len(done + rest) == 40 and len(done) - 1 <= 40 * (int(percent) + 1) / 100 and len(done) >= 40 * int(percent) / 100, seen
            assert int(percent) <= 100 and size == f"{mib:.1f}", (size, mib, seen)
        percents = [int(percent) for _, _, percent, _ in shown]
        assert 0 < percents[0] < 100 and percents == sorted(percents), percents
    assert on_terminal("simulate", "-p", "policies.yaml", "--json", path, stdout=False) == ""
    assert weir("simulate", "-p", "policies.yaml", path)[1] == ""


def test_plots_are_pictures():
    need("cairo" not in LACKS, "there is no cairo")
    path = write("access.log", map(combined, some()))
    simulate(path, "--plot=a.svg", "--against", PLACE / "policies.yaml")
    simulate(path, "--plot=a.png")
    svg, png = (PLACE / "a.svg").read_bytes(), (PLACE / "a.png").read_bytes()
    assert svg.startswith(b"<?xml") and b"</svg>" in svg and png.startswith(b"\x89PNG\r\n") and len(png) > 5000


def drawn(path, kind):
    """The corners of what a picture has of a kind, "stroke" or "fill": [(colour in percent, [(x, y)...])...]."""
    # An attribute, or up to cairo 1.16 a part of one.
    found = re.findall(rf'<path[^>]*{kind}(?::|=")rgb\(([^)]*)\)[^>]* d="([^"]*)"', path.read_text())
    return [(tuple(round(float(part)) for part in colour.replace("%", "").split(",")),
             [(float(x), float(y)) for x, y in re.findall(r"([-\d.]+) ([-\d.]+)", corners)]) for colour, corners in found]


def test_plots_show_each_step_and_the_peaks_of_keys():
    need("cairo" not in LACKS, "there is no cairo")
    requests = [Request(START_S * 1000 + second * 1000, f"198.51.100.{key}") for second in range(40) for key in range(9)
                for _ in range(1 if key < 4 else 2 if key == 4 else 3 if key < 7 else 5) if (second * key) % 5 == 0]
    path = write("access.log", map(combined, requests))
    told = simulate(path, "--plot=b.svg", "--against", file("old.yaml", POLICIES.replace("limit: 2", "limit: 1")))
    left, width, top, height, lower = 80, 790, 50, 220, 370
    lines, bars = drawn(PLACE / "b.svg", "stroke"), drawn(PLACE / "b.svg", "fill")
    most, step_s = max(step["requests"] for step in told["steps"]), told["steps"][1]["time_s"] - told["steps"][0]["time_s"]

    def curve(colour):
        (corners,) = [corners for its, corners in lines if its == colour]
        flat = [(x, to, y) for (x, y), (to, same) in zip(corners, corners[1:]) if y == same]
        middles = [left + width * (i + 0.5) / len(told["steps"]) for i in range(len(told["steps"]))]
        return [round((top + height - next(y for x, to, y in flat if x <= at <= to)) * most / height, 2) for at in middles]

    assert step_s == 1 and curve((60, 60, 60)) == [step["requests"] for step in told["steps"]]
    assert curve((10, 45, 75)) == [step["requests"] - step["denied"] for step in told["steps"]]
    assert curve((85, 25, 15)) == [step["denied"] for step in told["steps"]]
    assert curve((90, 60, 10)) == [step["denied_old"] for step in told["steps"]]
    grid = [corners for colour, corners in lines if colour == (85, 85, 85)]
    assert {x for line in grid for x, _ in line} == {left, left + width} and all(len({y for _, y in line}) == 1 for line in grid), grid
    # 22 requests at the most: marks at 0, 5 ... 20; below 4 keys at the most: 0 to 4.
    levels = [line[0][1] for line in grid]
    assert most == 22 and [round(top + height - level, 2) for level in levels[:5]] == [round(height * 5 * i / 22, 2) for i in range(5)]
    assert [lower + height - level for level in levels[5:]] == [height * i / 4 for i in range(5)], levels
    # Four keys had 1 request in their busiest second, one 2, two 3 and two 5: so 1, 2, 3-4, 5-8.
    rectangles = [corners for colour, corners in bars if colour == (10, 45, 75) and corners[0][1] >= lower]
    assert [[max(y for _, y in r) - min(y for _, y in r) for r in rectangles], [min(r)[0] for r in rectangles]] == \
        [[220, 55, 110, 110], [left + width / 4 * i + 2 for i in range(4)]], rectangles
    assert all(max(y for _, y in r) == lower + height and max(r)[0] - min(r)[0] == width / 4 - 4 for r in rectangles), rectangles


def test_packages_that_are_missing_are_named():
    if not LACKS:
        raise Skipped("nothing is missing from this build")
    file("policies.yaml", POLICIES)
    for package, name, content in (("zlib", "zlib1g-dev", gzip.compress(b"1,a\n")), ("libzstd", "libzstd-dev", b"\x28\xb5\x2f\xfd123"),
                                   ("libpcap", "libpcap-dev", pcap(some(2)))):
        if package in LACKS:
            (PLACE / "packed").write_bytes(content)
            assert name in weir("simulate", "-p", "policies.yaml", PLACE / "packed", code=5 if package == "libpcap" else 3)[1]
    if "cairo" in LACKS:
        assert "libcairo2-dev" in weir("simulate", "-p", "policies.yaml", "--plot=a.svg", file("k.csv", "1,a\n"), code=3)[1]


if __name__ == "__main__":
    run(globals())
