#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
weir-fleetsim as its users meet it: what it prints, what it refuses, and that a seed gives the same run again.

Guards: apps/fleetsim/main.c, apps/fleetsim/options.c, apps/fleetsim/entropy.c, apps/fleetsim/reference.c,
apps/fleetsim/result.c
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
