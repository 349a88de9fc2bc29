#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
The order in which weir simulate plays the lines of logs, beside a plain sort: lines that come late, clocks that were not set
or are set back, files far apart. simulate_time_test.py WEIR_PROGRAM [TEST...]. Prints TAP.

Guards: apps/weir/trace/timed.c, apps/weir/trace/merge.c, apps/weir/simulate/doubts.c, apps/weir/simulate/choices.c
"""
import json
import os
import random
import time

from command_support import data, file, run, weir
from traces import combined, csv, haproxy, nginx_json, Request, START_S

SEED = int(os.environ.get("WEIR_TEST_SEED") or random.SystemRandom().randrange(1 << 32))
DRAW = random.Random(SEED)
POLICIES = "policies:\n  - {name: web, limits: [{algorithm: token_bucket, limit: 1, period: 1s, burst: 5}]}\n"
START_MS = START_S * 1000


def write(name, lines):
    return file(name, "".join(line + "\n" for line in lines))


def played(traces, *words, code=0):
    """[(time_ms, key)] in the order in which they were decided."""
    out, _ = weir("simulate", "-p", file("web.yaml", POLICIES), "--decisions=-", *words, *traces, code=code)
    return [(int(line.split(",")[0]), line.split(",")[1]) for line in out.splitlines()]


def told(traces, *words, code=0):
    out, _ = weir("simulate", "-p", file("web.yaml", POLICIES), "--json", *words, *traces, code=code)
    return json.loads(out)


def late_order(requests, most_ms):
    """As a log that is written when requests end has them."""
    ends = [(r.time_ms + DRAW.choice((0, 0, DRAW.randrange(2000), DRAW.randrange(most_ms + 1))), i) for i, r in enumerate(requests)]
    return [requests[i] for _, i in sorted(ends)]


def plain_order(lines, window_s):
    """What is to be played of requests in the order of a log, and how many are late."""
    newest_s, kept, late = 0, [], 0
    for r in lines:
        newest_s = max(newest_s, r.time_ms // 1000)
        if r.time_ms // 1000 + window_s < newest_s:
            late += 1
        else:
            kept.append(r)
    return sorted(kept, key=lambda r: r.time_ms), late


def some_requests(count, step_ms=1000):
    now, requests = START_MS, []
    for i in range(count):
        now += DRAW.randrange(step_ms)
        requests.append(Request(now, f"10.0.{i >> 8}.{i & 255}"))
    return requests


def test_drawn_late_orders_are_those_of_a_plain_sort():
    print(f"# WEIR_TEST_SEED={SEED}", flush=True)
    for window, words, step_ms in ((900, (), 800), (900, ("--late=15m",), 100), (3600, ("--late=1h",), 3000), (60, ("--late=60",), 200),
                                   (86400, ("--late=24h",), 40000), (30, ("--late", "30s"), 500), (0, ("--late=0",), 300)):
        for over in (1, 1.2):
            requests = some_requests(3000, step_ms)
            lines = late_order(requests, int(1000 * window * over) if over > 1 else max(1000 * window - 1000, 0))
            wanted, late = plain_order(lines, window)
            code = 6 if late > len(lines) // 100 else 0
            got = played([write("late.json", map(nginx_json, lines))], *words, code=code)
            assert got == [(r.time_ms, r.address) for r in wanted], (words, over, len(got), len(wanted))
            findings = told(["late.json"], *words, code=code)
            assert (findings["late"], findings["leaps"], findings["requests"]) == (late, 0, len(wanted)), (words, findings["late"], late)
            assert findings["traces"][0]["requests"] == len(wanted)
            # In several files nothing is later than in one.
            traces = [write(f"part{i}.json", map(nginx_json, lines[i::3])) for i in range(3)]
            if late == 0 and window > 60:
                assert sorted(played(traces, *words)) == sorted(got), words


def test_connections_that_are_logged_at_their_end_deny_nobody():
    """One request a second of a client, logged when its connection ends, up to ten minutes later."""
    requests = [Request(START_MS + 1000 * i) for i in range(10800)]
    for write_line in (combined, haproxy, nginx_json):
        findings = told([write("ends.log", map(write_line, late_order(requests, 600000)))])
        assert (findings["requests"], findings["new"]["denied"], findings["late"]) == (10800, 0, 0), (write_line.__name__, findings["new"])


def test_one_time_that_is_wrong_makes_no_other_late():
    day = 86400
    steady = [Request(START_MS + 1000 * i) for i in range(1000)]
    for ahead_s, left_out in ((300, 0), (61, 0), (899, 0), (3600, 1), (day, 1), (400 * day, 1), (20 * 365 * day, 1)):
        for place in (0, 1, 3, 500, 990, 997):
            lines = steady[:place] + [Request(START_MS + 1000 * (place + ahead_s), "10.0.0.9")] + steady[place:]
            findings = told([write("ahead.log", map(combined, lines))])
            assert (findings["leaps"], findings["late"], findings["new"]["denied"]) == (left_out, 0, 0), (ahead_s, place, findings["leaps"])
            assert findings["requests"] == 1001 - left_out
    for before_s, left_out in ((START_S, "leaps"), (START_S - 86400, "leaps"), (25 * 365 * day, "leaps"), (3600, None), (day, None)):
        for count in (1, 4):
            lines = [Request(max(START_MS - 1000 * before_s, 0) + 1000 * i, "10.0.0.9") for i in range(count)] + steady
            findings = told([write("unset.log", map(combined, lines))])
            assert (findings["requests"], findings["new"]["denied"]) == (1000 + count * (left_out is None), 0), (before_s, findings["new"])
            assert findings["leaps"] == (count if left_out else 0) and findings["late"] == 0, (before_s, count, findings["leaps"])
    # Some in a row, as of a clock that was corrected.
    for count in (2, 10, 30):
        wrong = [Request(START_MS + 1000 * (day + i), "10.0.0.9") for i in range(count)]
        findings = told([write("ahead.log", map(combined, steady[:500] + wrong + steady[500:]))], code=6 if count > 10 else 0)
        assert (findings["leaps"], findings["late"], findings["new"]["denied"], findings["requests"]) == (count, 0, 0, 1000), (count, findings["leaps"], findings["late"])
    # In the middle such a line is late.
    findings = told([write("unset.log", map(combined, steady[:500] + [Request(5000)] + steady[500:]))])
    assert (findings["late"], findings["requests"], findings["new"]["denied"]) == (1, 1000, 0)
    # Eight lines, of which one is five minutes ahead.
    eight = [Request(START_MS + 1000 * i) for i in range(8)]
    for place in range(8):
        lines = eight[:place] + [eight[place]._replace(time_ms=eight[place].time_ms + 300000)] + eight[place + 1:]
        findings = told([write("eight.log", map(combined, lines))])
        assert (findings["requests"], findings["new"]["denied"]) == (8, 0), (place, findings["new"])


def test_local_times_when_clocks_are_set_back_are_left_out_until_they_are_passed():
    """Three hours, of which the last is the second one once more; then another one."""
    hours = [Request(START_MS + 1000 * i) for i in range(7200)]
    again = hours[3600:] + [Request(START_MS + 1000 * i) for i in range(7200, 10800)]
    for line in (haproxy, combined, lambda r: json.dumps({"time": time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(r.time_ms // 1000)), "ip": r.address})):
        for words in ((), ("--late=1h",), ("--late=2h",), ("--late=5m",)):
            path = write("autumn.log", map(line, hours + again))
            findings = told([path], *words, code=6)
            assert (findings["requests"], findings["late"], findings["new"]["denied"]) == (10800, 3600, 0), (words, findings["requests"], findings["late"])
            assert [doubt["code"] for doubt in findings["doubts"]] == [6] and "local times" in findings["doubts"][0]["words"]
            out, _ = weir("simulate", "-p", "web.yaml", *words, path, code=6)
            assert "3,600 of 14,400 requests were left out for their times" in out, out
            assert "3600 were left out: the clock was set back" in out and findings["set_back"] == 3600, out
        # The hour alone, at the end of a file.
        findings = told([write("autumn.log", map(line, hours + again[:3600]))], code=6)
        assert (findings["requests"], findings["late"], findings["new"]["denied"]) == (7200, 3600, 0)
    # Rotated logs in a wrong order.
    assert told([write("order.csv", map(csv, hours[3700:] + hours[:3500]))], code=6)["late"] == 3500
    assert told([write("one.csv", map(csv, hours[3700:])), write("two.csv", map(csv, hours[:3500]))])["late"] == 0


def test_few_late_lines_are_counted_and_more_have_an_exit_code():
    steady = [Request(START_MS + 1000 * i, f"10.0.{i >> 8}.{i & 255}") for i in range(10000)]
    for count, code in ((99, 0), (101, 0), (103, 6)):
        lines = steady[:]
        for place in sorted(DRAW.sample(range(3000, 10000), count), reverse=True):
            lines.insert(place, steady[place - 2900])
        findings = told([write("few.log", map(combined, lines))], code=code)
        assert (findings["late"], findings["requests"]) == (count, 10000), (count, findings["late"])


def test_files_far_apart_are_read():
    day = 86400
    for days in (1, 300, 367, 4000, 12000):
        first = [Request(START_MS + 1000 * i) for i in range(50)]
        second = [r._replace(time_ms=r.time_ms + 1000 * day * days) for r in first]
        a, b = write("a.log", map(combined, first)), write("b.log", map(combined, second))
        both = write("both.log", map(combined, first + second))
        for traces in ([a, b], [b, a], [both]):
            findings = told(traces)
            assert (findings["requests"], findings["late"] + findings["leaps"], findings["new"]["denied"]) == (100, 0, 0), (days, findings["requests"])
            assert findings["last_ms"] - findings["first_ms"] == 1000 * (day * days + 49)
    lonely = [write(f"{i}.log", [combined(Request(START_MS + 1000 * day * 367 * i))]) for i in range(3)]
    assert told(lonely)["requests"] == 3
    # A log with long gaps.
    gaps = [Request(START_MS + 1000 * day * i) for i in range(40)]
    assert told([write("gaps.log", map(combined, gaps))])["requests"] == 40


def test_what_waits_is_bounded_and_goes_early():
    """More requests than may wait within the window: the window is shorter, and what is later than that is told."""
    per_second = 3000
    lines = [f"{START_S + i // per_second}.{i % per_second * 1000 // per_second:03},k{i % 7}" for i in range(1300000)]
    path = write("many.csv", lines)
    findings = data("simulate", "-p", file("web.yaml", POLICIES), path)
    assert (findings["requests"], findings["late"], findings["reordered"]) == (1300000, 0, 0), findings["requests"]
    write("many.csv", lines + [f"{START_S + 1},late"])
    out, _ = weir("simulate", "-p", "web.yaml", path)
    assert "1 came more than 15 minutes late" in out and "there was room for 3" in out, out[:600]
    # The requests of a second are spread over it as evenly as those that need no room.
    lines = [f"{START_S + i // per_second},k" for i in range(1300000)]
    times = [time_ms for time_ms, _ in played([write("whole.csv", lines)])]
    assert times == [(START_S + i // per_second) * 1000 + i % per_second * 1000 // per_second for i in range(1299000)] + times[1299000:]


if __name__ == "__main__":
    run(globals())
