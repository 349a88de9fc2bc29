#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
The scripts read their arguments before they do anything: scripts_test.py SOURCE_DIRECTORY. Prints TAP.

Whatever would install or build is replaced by a program that writes down how it was called.
"""
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "install"))
from tap import Failed, main as run_checks  # noqa: E402

SOURCE = pathlib.Path(sys.argv[1])
SCRIPTS = ("run", "test", "bench", "setup", "lint", "servers", "plots")
# Says of every package that it is not installed.
RECORD = '#!/bin/sh\necho "$(basename "$0") $*" >>"$RECORD_PATH"\n'
SUDO = '#!/bin/sh\n[ "$1" != -n ] || shift\nexec "$@"\n'
RECORDED = ("apt-get", "apt-cache", "dpkg-query", "meson", "ninja", "clang", "clang-format", "cppcheck", "gnuplot", "pip")
HEAVY = {"clang", "clang-tidy", "cppcheck", "spin", "valgrind", "libcmocka-dev", "libbenchmark-dev", "g++", "python3-pip"}


def call(*words, record_python=False):
    """Exit status, output and the recorded calls of a script."""
    with tempfile.TemporaryDirectory(prefix="weir-scripts-") as place:
        directory = pathlib.Path(place)
        for name in (*RECORDED, *(["python3"] if record_python else [])):
            (directory / name).write_text(RECORD)
            (directory / name).chmod(0o755)
        (directory / "sudo").write_text(SUDO)
        (directory / "sudo").chmod(0o755)
        record = directory / "record"
        record.touch()
        done = subprocess.run(["bash", SOURCE / "scripts" / words[0], *words[1:]], capture_output=True, text=True, timeout=60,
                              env={**os.environ, "PATH": f"{place}:{os.environ['PATH']}", "RECORD_PATH": str(record)})
        return done.returncode, done.stdout + done.stderr, record.read_text().splitlines()


def expect(good, *what):
    if not good:
        raise Failed("\n".join(str(part) for part in what))


def helps():
    """--help and -h help at once"""
    for script in SCRIPTS:
        for option in ("--help", "-h"):
            status, output, calls = call(script, option)
            comment = (SOURCE / "scripts" / script).read_text().splitlines()[2].removeprefix("# ")
            expect(status == 0 and comment in output, script, option, status, output)
            expect(not calls, f"scripts/{script} {option} did something first:", *calls)


def refuses():
    """what is not known is refused with exit status 2 before anything is done"""
    cases = [(script, "--bogus") for script in SCRIPTS]
    cases += [("test", "unti"), ("test", "unit", "--bogus"), ("run", "--quick", "bogus"), ("run", "--seconds", "soon"),
              ("run", "--seconds"), ("bench", "--quick", "--keys=5"), ("bench", "--only"), ("setup", "run", "test"),
              ("lint", "src"), ("servers", "build", "--bogus")]
    for case in cases:
        status, output, calls = call(*case)
        expect(status == 2 and f"scripts/{case[0]}: " in output, case, status, output)
        expect(not calls, f"{case} did something first:", *calls)


def installed_by(*words):
    status, output, calls = call(*words, record_python=True)
    expect(status == 0, words, status, output)
    installs = [line.split() for line in calls if line.startswith("apt-get install")]
    return {word for words in installs for word in words[2:] if not word.startswith("-")}, calls


def small_set():
    """scripts/run installs and builds what the gateway needs, and no more"""
    packages, calls = installed_by("run", "--quick")
    expect({"meson", "gcc", "libhiredis-dev", "libmicrohttpd-dev"} <= packages, packages)
    # Without it hiredis that has TLS is not built with.
    expect("libssl-dev" in packages, packages)
    expect(not packages & (HEAVY | {"redis-server"}), "too many:", packages & (HEAVY | {"redis-server"}))
    built = [line.split() for line in calls if line.startswith("ninja ")]
    expect(len(built) == 1 and {"apps/gateway/weir-gateway", "apps/gateway/weir-traffic"} ==
           {word for word in built[0] if "/" in word}, *calls)
    with_redis, _ = installed_by("run", "--fleet", "--seconds", "3")
    expect(with_redis == packages | {"redis-server"}, with_redis ^ packages)


def whole_set():
    """scripts/setup without arguments installs what the tests need"""
    packages, _ = installed_by("setup")
    expect(HEAVY | {"redis-server"} <= packages, HEAVY - packages)
    expect(packages == installed_by("setup", "test")[0], packages)
    status, output, calls = call("setup", "--list", "test")
    expect(status == 0 and set(output.split()) == packages and not calls, output, *calls)


run_checks([helps, refuses, small_set, whole_set])
