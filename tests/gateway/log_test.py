#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
The gateway's log: log_test.py BUILD_DIRECTORY SOURCE_DIRECTORY [TEST...]. Prints TAP.

Guards: apps/gateway/log.c, apps/gateway/denial_line.c
"""
import contextlib
import json
import os
import re
import signal
import subprocess
import tempfile
import threading
import time

from support import ask, Fixture, POLICIES, run

# Ten packets of each source, and after that one a day: so what is denied is exact, however slow the machine.
POLICY = "  - {{name: {0}, {1}limits: [{{algorithm: token_bucket, limit: 1, period: 86400s, burst: {2}}}]}}\n"
SOURCE = "policies:\n" + POLICY.format("source", "", 10)
BOTH = SOURCE + POLICY.format("overall", "", 15)
SHADOW = "policies:\n" + POLICY.format("source", "mode: shadow, ", 10)

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
BEGINS = r"policy source begins to deny: 70 checks in \d+ s, most by source:127\.0\.0\.9 \(50 units\), source:127\.0\.0\.8 \(20 units\)"
OVER = r"policy source denies no more: 70 checks in \d+ s"


def flood(f):
    """60 packets of one source and 30 of another, which another thread may get. All are there when the gateway goes on."""
    f.child.send_signal(signal.SIGSTOP)
    for source, count in (("127.0.0.9", 60), ("127.0.0.8", 30)):
        client = f.client(source=source)
        for _ in range(count):
            client.send(b"x")
    f.child.send_signal(signal.SIGCONT)
    f.until(lambda: f.status()["offered"] == 90)


def lines_of(f):
    return f.log.read_text().splitlines()


def said(f, words):
    return [line for line in lines_of(f) if words in line]


def end(f):
    f.child.send_signal(signal.SIGTERM)
    assert f.child.wait(20) == 0
    return lines_of(f)


def is_all(pattern, lines):
    assert lines and all(re.fullmatch(pattern, line) for line in lines), lines


def the(pattern, lines):
    """The one line that is this."""
    found = [line for line in lines if re.fullmatch(pattern, line)]
    assert len(found) == 1, (pattern, lines)
    return found[0]


def test_a_flood_is_told_of_in_every_format_with_whom_it_was():
    with contextlib.ExitStack() as stack:
        def gateway(*options, **more):
            return stack.enter_context(Fixture(*options, **{"policies": SOURCE, **more}))
        text, journal, in_json = (gateway("--log-format", form) for form in ("text", "journal", "json"))
        # Of two threads either may be the first to take from the limit of all sources.
        both, shadow = gateway("--log-format", "json", policies=BOTH, threads=1), gateway("--log-format", "json", policies=SHADOW)
        quiet, without = gateway("--log-level", "warning"), gateway("--no-denial-log")
        everyone = (text, journal, in_json, both, shadow, quiet, without)
        begin = time.monotonic()
        for f in everyone:
            flood(f)
        for f in (text, journal, in_json, both, shadow):
            f.until(lambda: said(f, "no more"))
        logs = [end(f) for f in everyone]
        most = 2 + time.monotonic() - begin

    is_all(TIME + " weir-gateway: (warning|info): .*", logs[0])
    the(TIME + " weir-gateway: info: " + BEGINS, logs[0])
    the(TIME + " weir-gateway: info: " + OVER, logs[0])
    the(TIME + " weir-gateway: info: offered 90, passed 20, dropped 70, replies 20", logs[0])
    the(TIME + ' weir-gateway: warning: no policy "overall": that limit is off', logs[0])

    is_all("<[46]>.*", logs[1])
    the("<6>" + BEGINS, logs[1])
    the("<6>" + OVER, logs[1])
    the("<6>offered 90, passed 20, dropped 70, replies 20", logs[1])
    the('<4>no policy "overall": that limit is off', logs[1])

    begins, over = denials(logs[2])
    assert re.fullmatch(BEGINS, begins.pop("message")) and re.fullmatch(OVER, over.pop("message"))
    assert 1 <= begins.pop("seconds") <= most and 1 <= over.pop("seconds") <= most
    assert begins == {"level": "info", "policy": "source", "state": "begins", "denied": 70, "would_deny": 0, "offenders":
                      [{"key": "source:127.0.0.9", "units": 50}, {"key": "source:127.0.0.8", "units": 20}]}, begins
    assert over == {"level": "info", "policy": "source", "state": "ends", "denied": 70, "would_deny": 0, "offenders": []}, over
    first, last = json.loads(logs[2][1]), json.loads(logs[2][-1])
    assert first["listen"] == f"127.0.0.1:{in_json.port}" and first["threads"] == 2, first
    assert [last[name] for name in ("offered", "passed", "dropped", "replies")] == [90, 20, 70, 20], last

    overall = [line for line in denials(logs[3]) if line["policy"] == "overall"]
    # The 50 packets that their source's limit denied are none of these.
    assert [(line["state"], line["denied"], line["offenders"]) for line in overall] == [("begins", 25, []), ("ends", 25, [])], overall
    assert "most by" not in overall[0]["message"], overall
    begins, over = denials(logs[4])
    assert begins["message"].startswith("policy source would begin to deny: 70 checks in "), begins
    assert (begins["denied"], begins["would_deny"], len(begins["offenders"])) == (0, 70, 2), begins
    assert over["message"].startswith("policy source would deny no more: 70 checks in "), over
    is_all(TIME + " weir-gateway: warning: .*", logs[5])
    assert not [line for line in logs[6] if "policy source" in line], logs[6]


def denials(lines):
    """Those of a log in JSON, each without its time."""
    lines = [json.loads(line) for line in lines]
    for line in lines:
        assert re.fullmatch(TIME, line.pop("time")), line
    return [line for line in lines if "state" in line]


def test_a_key_of_a_line_can_be_blocked_as_it_stands_there():
    with Fixture("--log-format", "json", policies=SOURCE) as f:
        flood(f)
        f.until(lambda: said(f, "begins"))
        key = denials(lines_of(f))[0]["offenders"][0]["key"]
        assert key == "source:127.0.0.9", key
        # With a limit that nobody reaches only the entry denies.
        f.path.write_text(SOURCE.replace("limit: 1, ", "limit: 1000, ").replace("burst: 10", "burst: 1000") + f"overrides:\n  {key}: deny\n")
        f.child.send_signal(signal.SIGHUP)
        f.until(lambda: f.status()["reloads"] == 1)
        assert ask(f.client(source="127.0.0.8")) == b"?"
        dropped = f.status()["dropped"]["source"]
        f.client(source="127.0.0.9").send(b"?")
        f.until(lambda: f.status()["dropped"]["source"] == dropped + 1)


def test_a_flood_writes_at_most_one_line_in_ten_seconds_for_each_policy():
    with Fixture("--log-format", "json", policies=POLICIES.format(5).replace("50000", "100")) as f:
        begun = time.monotonic()
        flooding = threading.Thread(target=lambda: f.send(23, "one,1,3000", "many,200,3000"))
        flooding.start()
        while flooding.is_alive():
            f.child.send_signal(signal.SIGHUP)  # policies change meanwhile
            time.sleep(0.5)
        flooding.join()
        elapsed = time.monotonic() - begun
        lines = denials(lines_of(f))
        for policy in ("source", "overall"):
            states = [line["state"] for line in lines if line["policy"] == policy]
            assert 2 <= len(states) <= 1 + elapsed / 10, (policy, elapsed, lines)
            assert states[0] == "begins" and set(states[1:]) == {"lasts"}, lines
        assert f.status()["offered"] > 20000, f.status()


def test_levels_and_formats_are_refused_with_those_that_there_are():
    with Fixture() as f:
        for option, value, says in (("--log-level", "notice", '"info"? There are error, warning, info'),
                                    ("--log-level", "WARN", '"warning"? There are'), ("--log-level", "wraning", '"warning"?'),
                                    ("--log-level", "9", "give one of error, warning, info"), ("--log-level", "", "give one of"),
                                    ("--log-format", "JSON", '"json"? There are text, journal, json'),
                                    ("--log-format", "systemd", '"journal"?'), ("--log-format", "xml-ish", "give one of text, journal, json")):
            result = start(f, "--listen", ":1", "--backend", ":2", option, value)
            assert result.returncode == 2 and result.stderr.startswith(f"weir-gateway: {option} {value}: ") and says in result.stderr, result
            assert result.stderr.count("\n") == 1, result


def start(f, *options, **more):
    return subprocess.run([str(f.demo.bin / "weir-gateway"), *options], **{"stderr": subprocess.PIPE, "text": True, "timeout": 20, **more})


def test_the_journal_is_written_to_as_such_where_stderr_is_one():
    with Fixture() as f:
        lost = ("--listen", ":1", "--backend", ":2", "--policies", "/nonexistent")
        says = "/nonexistent: cannot be read: No such file or directory\n"
        for inode, options, begins in ((0, (), "<3>"), (1, (), None), (0, ("--log-format", "text"), None),
                                       (1, ("--log-format", "journal"), "<3>")):
            log = f.demo.dir / "stream"
            with open(log, "w") as out:
                stat = os.fstat(out.fileno())
                result = start(f, *lost, *options, stderr=out,
                               env={**os.environ, "JOURNAL_STREAM": f"{stat.st_dev}:{stat.st_ino + inode}"})
            assert result.returncode == 1
            pattern = re.escape(begins) if begins else TIME + " weir-gateway: error: "
            assert re.fullmatch(pattern + re.escape(says), log.read_text()), (inode, options, log.read_text())


def test_whatever_a_line_quotes_it_stays_one_line_of_its_format():
    hostile = os.fsdecode(b'a "b" \\ \n\x1b[31m \xff\xfe \xe2\x80\xae \xc3\xa4.yaml')
    plain = 'a "b" \\ \\x0a\\x1b[31m \\xff\\xfe \\xe2\\x80\\xae \xe4.yaml'
    for form, begins in (("text", TIME + " weir-gateway: info: "), ("journal", "<6>"), ("json", None)):
        with tempfile.TemporaryDirectory() as directory:
            path = f"{directory}/{hostile}"
            with open(path, "w") as file:
                file.write(SOURCE)
            with Fixture("--policies", path, "--log-format", form) as f:
                f.child.send_signal(signal.SIGHUP)
                f.until(lambda: said(f, "in force"))
                lines, message = lines_of(f), f"policies of {directory}/{plain} are in force"
                assert len(lines) == 4, lines
                told = json.loads(lines[-1])["message"] if form == "json" else re.sub("^" + begins, "", lines[-1])
                assert told == message, (told, message)
    # What a policy file says, and an error quotes.
    with Fixture() as f:
        f.path.write_text('policies:\n  - {name: source, "al\\"\\e[1m\\\\\\n": 1}\n')
        result = start(f, "--listen", ":1", "--backend", ":2", "--policies", str(f.path), "--log-format", "json")
        assert result.stderr.count("\n") == 1 and json.loads(result.stderr)["level"] == "error" and "\x1b" not in result.stderr, result


if __name__ == "__main__":
    run(globals())
