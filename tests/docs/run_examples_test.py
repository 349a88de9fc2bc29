#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every example runs, by itself and without complaint: run_examples_test.py PROGRAM... Prints TAP."""
import pathlib
import subprocess
import sys


def complaint(program):
    """What is wrong with a run of the program; empty where nothing is."""
    try:
        run = subprocess.run([program], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if run.returncode != 0:
        return f"exit status {run.returncode}; {run.stderr.strip()}"
    if run.stderr:
        return f"it wrote to stderr: {run.stderr.strip()}"
    return "" if run.stdout.strip() else "it printed nothing"


def main():
    programs = sys.argv[1:]
    if not programs:
        sys.exit("usage: run_examples_test.py PROGRAM...")
    failed = 0
    print(f"TAP version 13\n1..{len(programs)}")
    for number, program in enumerate(programs, 1):
        wrong = complaint(program)
        print(f"{'not ok' if wrong else 'ok'} {number} - {pathlib.Path(program).name} runs and does not complain")
        for line in wrong.splitlines():
            print(f"# {line}")
        failed += bool(wrong)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
