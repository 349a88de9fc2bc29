#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Every example runs, by itself and without complaint: run_examples_test.py PROGRAM... Prints TAP.

Guards: docs/examples/charge.c, docs/examples/check_all.c, docs/examples/cost.c, docs/examples/deny.c,
docs/examples/embed.c, docs/examples/epoll_loop.c, docs/examples/headers.c, docs/examples/host_loop.c,
docs/examples/limiter.cpp, docs/examples/login.c, docs/examples/microhttpd_server.c, docs/examples/offenders.c, docs/examples/peek_reset.c, docs/examples/prefork.c,
docs/examples/quota.c, docs/examples/reload.c, docs/examples/reserve.c, docs/examples/shadow.c, docs/examples/tiers.c,
docs/examples/udp_server.c
"""
import http.client
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import threading

# What runs programs of another processor; meson says it where there is one.
WRAPPER = shlex.split(os.environ.get("MESON_EXE_WRAPPER", ""))


def complaint(program):
    """What is wrong with a run of the program; empty where nothing is."""
    try:
        run = subprocess.run([*WRAPPER, program], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if run.returncode != 0:
        return f"exit status {run.returncode}; {run.stderr.strip()}"
    if run.stderr:
        return f"it wrote to stderr: {run.stderr.strip()}"
    return "" if run.stdout.strip() else "it printed nothing"


def get(port, path="/"):
    """Status, header fields and text of one answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.headers, response.read().decode()
    finally:
        connection.close()


def is_limited(port):
    """What is wrong with how it limits; empty where nothing is. A burst of 10 passes whole, and 5 a second after it."""
    answers = [get(port) for _ in range(10)]
    if [status for status, _, _ in answers] != [200] * 10:
        return f"of the first requests some are refused: {[status for status, _, _ in answers]}"
    for _, fields, _ in answers:
        if fields["RateLimit-Policy"] != '"api";q=5;w=1' or not re.fullmatch(r'"api";r=\d;t=\d+', fields["RateLimit"]):
            return f"header fields: {fields}"
    for _ in range(1000):
        status, fields, text = get(port)
        if status == 429:
            return "" if fields["Retry-After"] == "1" and "RateLimit" in fields else f"header fields of a 429: {fields}"
    return "nothing is refused"


def keeps_count(port):
    """Whether many connections at once, on all threads, are answered, and each is in the metrics."""
    before = re.findall(r'^weir_checks_total\{.*\} (\d+)$', get(port, "/metrics")[2], re.M)
    wrong = []

    def ask():
        for _ in range(25):
            status = get(port)[0]
            if status not in (200, 429):
                wrong.append(status)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    after = re.findall(r'^weir_checks_total\{.*\} (\d+)$', get(port, "/metrics")[2], re.M)
    counted = sum(map(int, after)) - sum(map(int, before))
    return "" if counted == 200 and not wrong else f"200 requests, {counted} counted; {wrong}"


def shows_status(port):
    """Whether the status page is there, and the JSON that it asks for."""
    status, fields, page = get(port, "/status")
    if status != 200 or fields["Content-Type"] != "text/html; charset=utf-8" or not page.startswith("<!DOCTYPE html>"):
        return f"/status: {status}, {fields}"
    found = json.loads(get(port, "/status?format=json")[2])
    return "" if found["policies"][0]["denied"] > 0 else f"/status?format=json: {found}"


def complaint_of_server(program, *more):
    """Runs a program that serves until SIGTERM, and that prints its address first."""
    with subprocess.Popen([*WRAPPER, program, "0", *more], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True) as server:
        try:
            port = int(re.fullmatch(r"http://127.0.0.1:(\d+)/\n", server.stdout.readline())[1])
            wrong = is_limited(port) or keeps_count(port) or shows_status(port)
            server.send_signal(signal.SIGTERM)
            said = server.communicate(timeout=20)[1]
        except (OSError, TypeError, subprocess.TimeoutExpired) as error:
            server.kill()
            return f"{error}; {server.communicate()[1]}"
    if server.returncode != 0:
        return f"exit status {server.returncode}; {said}"
    return wrong or ("" if more or not said else f"it wrote to stderr: {said}")


def complaint_of(program):
    if pathlib.Path(program).name != "microhttpd_server":
        return complaint(program)
    # With a Redis that is not there it serves all the same.
    return complaint_of_server(program) or complaint_of_server(program, "redis://127.0.0.1:1")


def main():
    programs = sys.argv[1:]
    if not programs:
        sys.exit("usage: run_examples_test.py PROGRAM...")
    failed = 0
    print(f"TAP version 13\n1..{len(programs)}")
    for number, program in enumerate(programs, 1):
        wrong = complaint_of(program)
        print(f"{'not ok' if wrong else 'ok'} {number} - {pathlib.Path(program).name} runs and does not complain")
        for line in wrong.splitlines():
            print(f"# {line}")
        failed += bool(wrong)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
