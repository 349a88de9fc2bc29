#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
weir-fleetsim as its users meet it: what it prints, what it refuses, and that a seed gives the same run again.

Guards: apps/fleetsim/main.c, apps/fleetsim/options.c, apps/fleetsim/entropy.c, apps/fleetsim/reference.c,
apps/fleetsim/result.c, apps/fleetsim/demand.c, apps/fleetsim/truth.c, tests/fleet/reference.py
"""
import json
import os
import subprocess
import sys
import tempfile

PROGRAM, REFERENCE = sys.argv[1:3]
POLICIES = """
policies:
  - name: api
    limits:
      - {algorithm: sliding_window, limit: 1000, period: 1s}
      - {algorithm: token_bucket, limit: 5000, period: 10s, burst: 6000}
  - name: alone
    scope: process
    limits:
      - {algorithm: fixed_window, limit: 5, period: 1s}
"""


def run(*words):
    return subprocess.run([PROGRAM, *words], capture_output=True, text=True, timeout=120, check=False)


def expect_usage_error(words, *parts):
    result = run(*words)
    assert result.returncode == 2, (words, result)
    for part in parts:
        assert part in result.stderr, (words, part, result.stderr)


def test_a_policy_file_is_run_and_told_as_a_table(path):
    result = run("--policies", path, "--policy", "api", "--nodes", "5", "--seconds", "6", "--pattern", "skew",
                 "--delay", "1-5", "--loss", "0.01", "--duplicates", "0.1:800", "--partition", "2@2-3",
                 "--deaf", "3@1-2", "--stuck", "4@2-4", "--redis-empty", "4", "--kill", "1@3", "--clock", "0=3600", "--quiet", "1")
    assert result.returncode == 0, result
    for part in ("admitted / limit", "false denials", "fairness", "0 units lost, 0 invented", "seed 1"):
        assert part in result.stdout, (part, result.stdout)


def test_a_large_fleet_of_which_a_third_is_replaced_loses_no_unit(_path):
    """Its records are in parts. They are lost once, when the new nodes have joined."""
    for limit in ("fixed:4500/2s", "bucket:2000/1s"):
        result = run("--limit", limit, "--nodes", "450", "--expected-nodes", "330", "--kill", "0-109@2", "--join", "330-449@3",
                     "--redis-flush", "4", "--seconds", "7", "--quiet", "2")
        assert result.returncode == 0 and "0 units lost, 0 invented" in result.stdout, (limit, result)


def test_what_the_first_line_does_not_stand_for_is_said(path):
    short = "of a part of a window: the traffic of 4 s is shorter than the period of 3600 s"
    assert short in run("--limit", "sliding:1000/1h", "--seconds", "5", "--quiet", "1").stdout
    whole = run("--limit", "sliding:1000/1s", "--seconds", "5", "--quiet", "1").stdout
    assert "of a part of a window" not in whole and "of the first of" not in whole, whole
    several = run("--policies", path, "--policy", "api", "--seconds", "5").stdout
    assert "of the first of 2 limits" in several and "of a part of a window" not in several, several


def test_the_same_seed_gives_the_same_json(path):
    words = ("--policies", path, "--seconds", "4", "--keys", "100", "--delay", "1-9", "--loss", "0.05", "--json")
    first, again, other = (run(*words, "--seed", seed) for seed in ("7", "7", "8"))
    assert first.returncode == 0 and first.stdout == again.stdout, (first, again)
    one, two = json.loads(first.stdout), json.loads(other.stdout)
    assert one["digest"] != two["digest"] and one["lost"] == one["invented"] == 0 and one["good"], one
    assert one["asked"] == one["admitted"] + one["denied"], one


SMALL = ("--limit", "sliding:100/1s", "--seconds", "4")
# Options, their values that are none, and one that is; beside words that let it matter.
NUMBERS = {
    "nodes": (("0", "1025", "x", "1.5", "3x"), "7"), "interval": (("9", "60001", "10.5"), "60"), "timeout": (("9", "60001"), "10", "--delay", "8-30"),
    "seconds": (("0", "0.09", "1000001"), "3"), "quiet": (("-1", "1000001"), "1"), "step": (("0", "101"), "7"), "demand": (("0", "1000001"), "0.5"),
    "jump-at": (("-1", "x", "1000001"), "1", "--pattern", "jump"), "between": (("-0.1", "1.1"), "0.9", "--pattern", "burst"),
    "keys": (("0", "1.5"), "20"), "zipf": (("-1", "11"), "0", "--keys", "20"), "cost": (("0", "1.5"), "3"), "seed": (("-1", "1.5"), "9"),
    "expected-nodes": (("-1", "65536", "1.5"), None), "loss": (("-0.1", "1.1", "0.1x"), "0.3"), "lost-answers": (("1.1",), "0.3"),
    "duplicates": (("1.1", "0.1:x", "0.1:1000001"), None), "unsaid": (("1.1",), "0.5"), "drift": (("-1", "100001", "5x"), "100000"),
    "delay": (("x", "5-4", "1-60001", "1-2x"), "1-40"),
}


def test_each_number_has_its_bounds_and_changes_the_run(_path):
    for option, (wrong, right, *beside) in NUMBERS.items():
        for value in wrong:
            expect_usage_error([*SMALL, *beside, f"--{option}={value}"], f"--{option} {value}: ")
        if right is None:  # nodes that have met know how many they are, and what comes twice changes nothing
            continue
        without, with_it = (json.loads(run(*SMALL, *beside, *more, "--json").stdout) for more in ((), (f"--{option}", right)))
        assert without["digest"] != with_it["digest"], (option, with_it)
        assert without["lost"] == with_it["lost"] == with_it["invented"] == 0, (option, with_it)


def test_faults_of_wrong_forms_are_named(_path):
    for option, values in {"partition": ("1", "1@2", "1@3-2", "1-0@1-2", "1@1-2x"), "deaf": ("1@2", "x@1-2"), "stuck": ("1@",),
                           "kill": ("1", "1@x", "1@1-2"), "leave": ("1@1x",), "join": ("@1",), "clock": ("1", "1@5", "1=x", "1=5x"),
                           "redis-empty": ("x", "1x", "1-2"), "redis-flush": ("1:5",), "redis-behind": ("1", "1:x", "1:5x"),
                           "redis-rollback": ("1=5",), "redis-hang": ("1", "2-1", "1-2x"), "redis-down": ("x",), "redis-refuse": ("1-",),
                           "redis-slow": ("1-2", "1-2:x", "1-2:60001", "1-2:5x"), "redis-clock": ("1", "1:5", "1=x")}.items():
        for value in values:
            expect_usage_error([*SMALL, f"--{option}={value}"], f"--{option} {value}: ")
    for value in ("sliding", "sliding:10", "slide:10/1s", "sliding:0/1s", "sliding:10/1y", "sliding:10/1s:0", "sliding:10/1s:5x", "sliding:10/0s"):
        expect_usage_error(["--limit", value], f"--limit {value}: ")
    expect_usage_error([*SMALL, *["--redis-empty=1"] * 65], "at most 64")
    expect_usage_error([*SMALL, "more"], "a word too many")
    expect_usage_error([*SMALL, "--reference", REFERENCE], "give one of")


def test_a_jump_comes_when_half_of_the_time_is_over_or_as_told(_path):
    default, half, third = (json.loads(run("--limit", "sliding:100/1s", "--seconds", "6", "--pattern", "jump", "--json", *more).stdout)
                            for more in ((), ("--jump-at", "3"), ("--jump-at", "2")))
    assert default == half and half["digest"] != third["digest"], (default, half, third)


def test_wrong_words_are_named(path):
    expect_usage_error([], "give one of --policies, --limit and --reference")
    expect_usage_error(["--limit", "fixed:10/1s", "--nodes", "0"], "--nodes 0", "1 to 1024")
    expect_usage_error(["--limit", "fixed:10/1s", "--partition", "2@5"], "--partition 2@5", "such as 2@10-20")
    expect_usage_error(["--limit", "fixed:10/1s", "--partition", "9@1-2"], "node 9")
    expect_usage_error(["--limit", "fixed:10/1s", "--pattern", "odd"], "--pattern odd", "skew")
    expect_usage_error(["--limit", "fixed:10"], "--limit fixed:10", "such as")
    expect_usage_error(["--limit", "fixed:0/1s"], "--limit fixed:0/1s")
    expect_usage_error(["--policies", path, "--policy", "none"], "--policy none", path)
    expect_usage_error(["--policies", path, "--policy", "alone"], "alone", "one process")
    expect_usage_error(["--policies", path + ".none"], path)
    expect_usage_error(["--reference", path + ".none"], path)
    expect_usage_error(["--reference", path], "line 2")
    expect_usage_error(["--limit", "fixed:10/1s", "--nonsense"], "--help")
    expect_usage_error(["--reference", REFERENCE, "--only", "nothing"], "--only nothing")


def test_help_and_version_are_printed(_path):
    assert "--partition" in run("--help").stdout and run("--help").returncode == 0
    assert run("--version").stdout.startswith("weir-fleetsim ")


def test_rows_of_the_reference_are_run_beside_its_figures(_path):
    result = run("--reference", REFERENCE, "--only", "fixed 4 1000 1 0.9", "--seeds", "2")
    assert result.returncode == 0 and "4 rows, 0 of them off" in result.stdout, result


def test_rows_of_several_seeds_have_their_mean_and_the_most_and_the_least_of_all(_path):
    def row(*words):
        out = run("--reference", REFERENCE, "--only", "sliding 4 1000 1 3 onoff", *words).stdout.splitlines()[1]
        numbers = [float(word) for word in out.replace("/", " ").split() if word.replace(".", "").replace("+", "").replace("-", "").isdigit()]
        return dict(zip(("mean", "most", "least"), numbers[2:5])) | dict(zip(("false", "jain"), numbers[-2:]))
    one, other, both = row("--seed", "5"), row("--seed", "6"), row("--seed", "5", "--seeds", "2")
    assert one != other
    for name in ("mean", "false", "jain"):
        assert abs(both[name] - (one[name] + other[name]) / 2) < 0.006, (name, one, other, both)
    assert both["most"] == max(one["most"], other["most"]) and both["least"] == min(one["least"], other["least"]), (one, other, both)


def test_the_figures_of_the_reference_are_what_its_program_prints(_path):
    part = " 4 1000 1 "  # a third of the rows, in seconds
    words = [sys.executable, os.path.join(os.path.dirname(REFERENCE), "reference.py"), "--only", part]
    printed = subprocess.run(words, capture_output=True, text=True, timeout=120, check=True).stdout.splitlines()
    with open(REFERENCE, encoding="utf-8") as file:
        lines = file.read().splitlines()
    assert printed == [line for line in lines if line.startswith("#") or part in line], printed
    assert sum(not line.startswith("#") for line in lines) == 72, lines


def main():
    tests = [(name, test) for name, test in globals().items() if name.startswith("test_")]
    print(f"1..{len(tests)}")
    failed = False
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "policies.yaml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(POLICIES)
        for number, (name, test) in enumerate(tests, 1):
            try:
                test(path)
                print(f"ok {number} - {name}", flush=True)
            except (AssertionError, subprocess.SubprocessError, ValueError) as error:
                failed = True
                print(f"not ok {number} - {name}\n# {error!r}", flush=True)
    sys.exit(failed)


main()
