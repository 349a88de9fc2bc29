# SPDX-License-Identifier: Apache-2.0
"""What the tests of the weir command share. Each is run with WEIR_PROGRAM [TEST...]."""
import json
import os
import pathlib
import pty
import shlex
import subprocess
import sys
import tempfile
import traceback

# What runs programs of another processor; meson says it where there is one.
WRAPPER = shlex.split(os.environ.get("MESON_EXE_WRAPPER", ""))
WEIR = [*WRAPPER, os.path.abspath(sys.argv[1])]
DIRECTORY = tempfile.TemporaryDirectory(prefix="weir-command-")
PLACE = pathlib.Path(DIRECTORY.name)

# The environment says nothing of colours and of Redis, unless a test does.
PLAIN = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "TERM", "WEIR_REDIS_URL")}


class Skipped(Exception):
    """A test that cannot be made here."""


def need(condition, why):
    """On CI nothing is left out."""
    if not condition:
        if os.environ.get("CI") == "true":
            raise AssertionError(why + "; scripts/setup installs it")
        raise Skipped(why)


def weir(*words, code=0, stdin="", environment=None, **options):
    """Runs it to its end, and returns what it wrote on both streams. Fails where the exit code is another one."""
    done = subprocess.run([*WEIR, *map(os.fspath, words)], input=stdin, capture_output=True, text=True, timeout=60,
                          env={**PLAIN, **(environment or {})}, cwd=PLACE, check=False, **options)
    assert done.returncode == code, (words, done.returncode, done.stdout[-3000:], done.stderr[-3000:])
    return done.stdout, done.stderr


def data(*words, **options):
    """What it says with --json: one line."""
    out, _ = weir(words[0], "--json", *words[1:], **options)
    assert out.count("\n") == 1 and out.endswith("\n"), out
    return json.loads(out)


def file(name, text):
    """The path of a file with this text."""
    path = PLACE / name
    path.write_text(text)
    return path


def on_terminal(*words, stdout=True, environment=None):
    """What it writes with standard output, or else standard error, on a terminal."""
    try:
        main, end = pty.openpty()
    except OSError as error:
        raise Skipped(f"there is no terminal here: {error}") from error
    try:
        done = subprocess.Popen([*WEIR, *map(os.fspath, words)], stdin=subprocess.DEVNULL, cwd=PLACE,
                                stdout=end if stdout else subprocess.DEVNULL, stderr=subprocess.DEVNULL if stdout else end,
                                env={**PLAIN, "TERM": "xterm", **(environment or {})})
        os.close(end)
        end = -1
        seen = b""
        while True:
            try:
                more = os.read(main, 65536)
            except OSError:  # the other end is closed
                more = b""
            if not more:
                break
            seen += more
        done.wait(60)
        return seen.decode()
    finally:
        os.close(main)
        if end != -1:
            os.close(end)


def run(names):
    """Runs the tests among these names, or those that the command line names. Prints TAP."""
    tests = [(name, test) for name, test in names.items() if name.startswith("test_")
             and (len(sys.argv) < 3 or name in sys.argv[2:])]
    print(f"TAP version 13\n1..{len(tests)}", flush=True)
    failed = 0
    for number, (name, test) in enumerate(tests, 1):
        try:
            test()
            print(f"ok {number} - {name}", flush=True)
        except Skipped as reason:
            print(f"ok {number} - {name} # SKIP {reason}", flush=True)
        except Exception:  # every failure is a row
            failed += 1
            print(f"not ok {number} - {name}", flush=True)
            for line in traceback.format_exc().splitlines():
                print("# " + line, flush=True)
    DIRECTORY.cleanup()
    sys.exit(1 if failed else 0)
