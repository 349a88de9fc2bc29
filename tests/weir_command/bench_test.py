#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
weir bench: what it prints, not how fast anything is. bench_test.py WEIR_PROGRAM [TEST...]. Prints TAP.

Guards: apps/weir/bench/bench.c, apps/weir/bench/bench_subject.c
"""
import os
import re
import signal
import subprocess

from command_support import data, PLAIN, run, weir, WEIR

LOADS = ("one hot key", "one key, denied", "100,000 keys at random")


def test_every_load_is_measured_beside_the_baseline():
    out, fault = weir("bench", "--seconds=0.5", "--threads=3")
    lines = out.splitlines()
    assert fault == "" and re.fullmatch(r"weir \d+\.\d+\.\d+ on .+, \d+ processors", lines[0]), out
    rows = [re.fullmatch(r"(.+?) +(\d+) +([\d.]+) +([\d.]+) +([\d.]+)", line) for line in lines[3:]]
    assert [(row[1], row[2]) for row in rows] == [(load, threads) for load in LOADS for threads in ("1", "3")], out
    assert all(float(row[3]) > 0 and float(row[4]) > 0 for row in rows), out


def test_json_has_the_same_figures():
    found = data("bench", "--seconds=0.5")
    assert [(row["load"], row["threads"]) for row in found["results"]] == [(load, n) for load in LOADS for n in (1, 2)], found
    for row in found["results"]:
        assert abs(row["ratio"] - row["weir_ns"] / row["baseline_ns"]) < 0.01, row


def test_wrong_command_lines_are_named():
    for words, part in ((("--seconds=0",), "--seconds takes a number from 0.5 to 600"), (("--seconds=nan",), "--seconds takes"),
                        (("--threads=1",), "--threads takes a number from 2 to 64"), (("--threads=2x",), "--threads takes"),
                        (("here",), "it takes options alone")):
        out, fault = weir("bench", *words, code=2)
        assert out == "" and part in fault, (words, fault)


def test_output_that_cannot_be_written_is_an_error():
    with open("/dev/full", "w") as full:
        done = subprocess.run([*WEIR, "bench", "--seconds=0.5"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60,
                              env=PLAIN, check=False)
    assert done.returncode == 4 and "weir bench: standard output: " in done.stderr, done
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([*WEIR, "bench", "--seconds=0.5"], stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60,
                          env=PLAIN, check=False)
    os.close(writer)
    assert done.returncode == 4 and "weir bench: standard output: Broken pipe" in done.stderr, done


def test_it_can_be_interrupted():
    child = subprocess.Popen([*WEIR, "bench", "--seconds=600"], stdout=subprocess.PIPE, text=True, env=PLAIN)
    assert child.stdout.readline().startswith("weir ")
    child.send_signal(signal.SIGINT)
    assert child.wait(60) in (-signal.SIGINT, 128 + signal.SIGINT)
    child.stdout.close()


if __name__ == "__main__":
    run(globals())
