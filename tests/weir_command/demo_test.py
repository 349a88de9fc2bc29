#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
weir demo, from a folder like that of an installation: demo_test.py WEIR_PROGRAM BUILD_DIRECTORY SOURCE_DIRECTORY. Prints
TAP.

Guards: apps/weir/demo/demo.c, apps/gateway/demo.py
"""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import command_support
from command_support import need, PLACE, PLAIN, run

BUILD, SOURCE = pathlib.Path(sys.argv[2]).resolve(), pathlib.Path(sys.argv[3]).resolve()
del sys.argv[2:4]
BIN, SHARE = PLACE / "usr/bin", PLACE / "usr/share/weir"
ENVIRONMENT = {**PLAIN, "LD_LIBRARY_PATH": str(BUILD / "src")}


def install():
    for folder in (BIN, SHARE):
        folder.mkdir(parents=True)
    for program in (pathlib.Path(sys.argv[1]), BUILD / "apps/gateway/weir-gateway", BUILD / "apps/gateway/weir-traffic"):
        shutil.copy(program, BIN)
    shutil.copy(SOURCE / "apps/gateway/demo.py", SHARE)


def demo(*words, code=0, environment=None, **options):
    done = subprocess.run([*command_support.WRAPPER, BIN / "weir", "demo", *words], stdin=subprocess.DEVNULL, text=True,
                          timeout=120, env={**ENVIRONMENT, **(environment or {})}, check=False, stderr=subprocess.PIPE,
                          **({"stdout": subprocess.PIPE} | options))
    assert done.returncode == code, done
    return done.stdout, done.stderr


def test_it_shows_that_the_limits_are_held():
    out, fault = demo("--seconds", "3")
    assert fault == "" and "greedy (1 address)" in out and out.endswith("Every limit was held.\n"), out


def test_json_has_the_result_alone():
    out, fault = demo("--seconds=3", "--json")
    found = json.loads(out)
    assert fault == "" and found["held"] and [client["name"] for client in found["clients"]] == ["polite", "greedy", "swarm"]
    assert found["passed"] + sum(found["dropped"].values()) == found["offered"] > 0, found


def test_a_fleet_holds_its_limit_without_its_redis():
    need(shutil.which("redis-server") is not None, "there is no redis-server")
    found = json.loads(demo("--fleet", "--seconds=6", "--json")[0])
    assert found["held"] and [phase["name"] for phase in found["phases"]][-1] == "in all", found


def test_wrong_command_lines_are_named():
    for words, part in ((("--seconds=2",), "--seconds takes a whole number from 3 to 999999"), (("--seconds=3x",), "--seconds takes"),
                        (("--seconds=",), "--seconds takes"), (("--seconds=9999999",), "--seconds takes"), (("here",), "options alone")):
        out, fault = demo(*words, code=2)
        assert out == "" and part in fault, (words, fault)


def test_what_is_missing_is_named():
    assert "there is no python3" in demo(code=3, environment={"PATH": str(BIN)})[1]
    programs = PLACE / "programs"  # python3 alone
    programs.mkdir()
    (programs / "python3").symlink_to(sys.executable)
    assert "there is no redis-server" in demo("--fleet", code=3, environment={"PATH": str(programs)})[1]
    shutil.rmtree(programs)
    for path, part in ((SHARE / "demo.py", "the script of the demonstration is not installed"),
                       (BIN / "weir-gateway", "there is no weir-gateway beside this program")):
        away = path.with_suffix(".away")
        path.rename(away)
        try:
            assert part in demo(code=3)[1]
        finally:
            away.rename(path)


def test_output_that_cannot_be_written_is_an_error():
    with open("/dev/full", "w") as full:
        assert "standard output: No space left on device" in demo("--seconds=3", "--json", code=4, stdout=full)[1]
    reader, writer = os.pipe()
    os.close(reader)
    assert "standard output: Broken pipe" in demo("--seconds=3", code=4, stdout=writer)[1]
    os.close(writer)


def test_what_is_interrupted_leaves_nothing_behind():
    place = PLACE / "temporary"
    place.mkdir()
    child = subprocess.Popen([*command_support.WRAPPER, BIN / "weir", "demo", "--seconds=600"], stdout=subprocess.PIPE, text=True,
                             env={**ENVIRONMENT, "TMPDIR": str(place)}, start_new_session=True)
    assert child.stdout.readline().startswith("One gateway without Redis")
    child.send_signal(signal.SIGINT)
    assert child.wait(60) == 1
    child.stdout.close()
    end = time.monotonic() + 60
    while list(place.iterdir()):
        assert time.monotonic() < end, list(place.iterdir())
        time.sleep(0.05)


if __name__ == "__main__":
    install()
    run(globals())
