#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
The start pages, followed to the letter: start_test.py BUILD_DIRECTORY SOURCE_DIRECTORY [TEST...]. Prints TAP.

The files of a page are written as the page names them. Its consoles run in one shell, with the programs and the library
of the build, and print what the page shows; "..." on the page stands for any text. Ports are others than on the page.

Guards: docs/start/game-server.md, docs/start/http-server.md, docs/start/operator.md
"""
import contextlib
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

sys.path.insert(0, sys.argv[2] + "/tests/gateway")
sys.path.insert(0, sys.argv[2] + "/apps/gateway")
import demo as gateway_demo  # noqa: E402
from support import Skipped, run  # noqa: E402

BUILD, SOURCE = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
FENCE = r"^(?:[^\n]*`(?P<name>[\w.]+)`[^\n]*:\n)?```(?P<language>\w+)\n(?P<text>.*?)^```$"
PORT = r"\b(6390|7000|7777|7778|7779|8080|9100)\b"
END = "-- end of a command --"
# A bucket fills meanwhile where a machine stands still for seconds.
TRIES = 3

# Waits until each port of the command before is taken, by TCP or UDP.
PRELUDE = """
taken() { for port in "$@"; do grep -qi ":$(printf %04X "$port") " /proc/net/tcp /proc/net/udp /proc/net/tcp6 /proc/net/udp6 || return 1; done; }
ready() { for _ in $(seq 300); do taken "$@" && return 0; sleep 0.1; done
    echo "nobody listens at $*"; cat servers.log; exit 1; }
"""


def need(program):
    if shutil.which(program) is None:
        if os.environ.get("CI") == "true":
            raise AssertionError(f"there is no {program}; scripts/setup installs it")
        raise Skipped(f"there is no {program}")


def of_page(text, place):
    """Writes the files of a page into a directory; returns [(command, lines of output)] of its consoles."""
    ports = {port: str(gateway_demo.free_port(socket.SOCK_DGRAM)) for port in sorted(set(re.findall(PORT, text)))}
    text = re.sub(PORT, lambda match: ports[match[0]], text)
    commands = []
    for block in re.finditer(FENCE, text, re.M | re.S):
        if block["language"] == "console":
            for part in re.split(r"^\$ ", block["text"], flags=re.M)[1:]:
                command, *lines = part.splitlines()
                commands.append((command, lines))
        elif block["name"]:
            (place / block["name"]).write_text(block["text"])
    return commands


def script_of(commands):
    script = PRELUDE
    for command, _ in commands:
        if command.endswith(" &"):
            listening = re.findall(r"(?<=--listen 127\.0\.0\.1:)\d+|(?<=--echo 127\.0\.0\.1:)\d+|(?<=--metrics 127\.0\.0\.1:)\d+|"
                                   r"(?<=--port )\d+|(?<=^\./game )\d+|(?<=^\./http_server )\d+", command)
            script += f"{command[:-2]} >>servers.log 2>&1 &\nready {' '.join(listening)}\n"
        else:
            script += command + "\n"
        script += f"echo '{END}'\n"
    return script


def environment(place):
    """The programs and the library of the build, as if they were installed."""
    programs = place / "bin"
    programs.mkdir()
    for program in ("weir/weir", "gateway/weir-gateway", "gateway/weir-traffic"):
        (programs / pathlib.Path(program).name).symlink_to(BUILD / "apps" / program)
    (place / "weir.pc").write_text(f"Name: weir\nDescription: weir\nVersion: 0\nCflags: -I{SOURCE}/include\n"
                                   f"Libs: -L{BUILD}/src -lweir\n")
    clean = {name: value for name, value in os.environ.items() if name not in ("WEIR_REDIS_URL", "MAKEFLAGS")}
    return {**clean, "PATH": f"{programs}:{os.environ['PATH']}", "LD_LIBRARY_PATH": str(BUILD / "src"),
            "PKG_CONFIG_PATH": str(place), "LC_ALL": "C"}


def differences(page):
    """What a run of a page prints that the page does not show."""
    with tempfile.TemporaryDirectory(prefix="weir-start-") as name:
        place = pathlib.Path(name)
        (place / "docs").symlink_to(SOURCE / "docs")
        commands = of_page((SOURCE / "docs/start" / page).read_text(), place)
        assert len(commands) >= 5, page
        with subprocess.Popen(["bash", "-c", script_of(commands)], cwd=place, stdout=subprocess.PIPE, text=True,
                              stderr=subprocess.STDOUT, env=environment(place), start_new_session=True) as shell:
            try:
                said = shell.communicate(timeout=240)[0]
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(shell.pid, signal.SIGKILL)  # with the servers that the page starts
    outputs = said.split(END + "\n")
    found = []
    for (command, lines), output in zip(commands, [*outputs, *[""] * len(commands)], strict=False):
        pattern = re.escape("\n".join(lines)).replace(r"\.\.\.", ".*")
        if not re.fullmatch(pattern, output.replace("\r", "").strip("\n")):
            found.append(f"$ {command}\n{output}")
    return found


def expect_true(page):
    for _ in range(TRIES):
        if not (found := differences(page)):
            return
    raise AssertionError("\n".join(found))


def test_a_game_server_is_limited():
    for program in ("cc", "pkg-config", "redis-server"):
        need(program)
    expect_true("game-server.md")


def test_an_http_server_answers_429():
    for program in ("cc", "pkg-config", "curl"):
        need(program)
    expect_true("http-server.md")


def test_an_operator_limits_a_service():
    for program in ("curl", "redis-server"):
        need(program)
    expect_true("operator.md")


run(globals())
