#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
The memory of weir simulate does not grow with the trace: simulate_memory_test.py WEIR_PROGRAM [TEST...]. Prints TAP.

Guards: apps/weir/simulate/clients.c, apps/weir/simulate/timeline.c, apps/weir/trace/merge.c, apps/weir/trace/trace.c
"""
import os
import subprocess
import time

from command_support import file, PLACE, PLAIN, run, Skipped, WEIR, WRAPPER
from traces import START_S

RATE = 10000  # lines a second
POLICIES = """policies:
  - name: api
    limits: [{algorithm: token_bucket, limit: 1, period: 10s, burst: 2}]
"""


def blocks():
    """Three seconds of lines, of 30,000 keys in all, whose time is still to be put in."""
    return [b"".join(b'10.%d.%d.%d - - [@] "GET /%d HTTP/1.1" 200 1\n' % (key >> 16, key >> 8 & 255, key & 255, key)
                     for key in range(RATE * i, RATE * (i + 1))) for i in range(3)]


def peak_kb(lines, *words):
    """The most memory that a run had present."""
    child = subprocess.Popen([*WEIR, "simulate", "-p", file("policies.yaml", POLICIES), "--json", *words, "-"],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=PLACE, env=PLAIN)
    second_blocks = blocks()
    for second in range(lines // RATE):
        text = time.strftime("%d/%b/%Y:%H:%M:%S +0000", time.gmtime(START_S + second)).encode()
        child.stdin.write(second_blocks[second % 3].replace(b"@", text))
    child.stdin.close()
    told = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0 and f'"requests":{lines},'.encode() in told, (child.returncode, told[:300])
    return usage.ru_maxrss


def test_ten_times_the_lines_take_no_more_memory():
    if WRAPPER:
        raise Skipped("the emulator has memory of its own")
    # There are more keys than are counted exactly.
    small, large = peak_kb(10**6, "--max-keys=20000"), peak_kb(10**7, "--max-keys=20000")
    print(f"# {small} kB for 10^6 lines, {large} kB for 10^7", flush=True)
    assert large < small * 1.05 + 2048, (small, large)


if __name__ == "__main__":
    run(globals())
