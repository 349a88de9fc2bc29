#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
What docs/simulate.md shows is what weir simulate does: simulate_page_test.py WEIR_PROGRAM SOURCE_DIRECTORY. Prints TAP.

The page's first blocks of awk and YAML are its files. The commands of its consoles run in one shell, one after the other.

Guards: docs/simulate.md
"""
import os
import pathlib
import re
import subprocess
import sys

from command_support import PLACE, run

PAGE = (pathlib.Path(sys.argv.pop(2)) / "docs/simulate.md").read_text()


def block(language):
    return re.search(rf"^```{language}\n(.*?)^```", PAGE, re.M | re.S)[1]


def test_the_consoles_of_the_page_show_what_is_printed():
    (PLACE / "weir").symlink_to(os.path.abspath(sys.argv[1]))
    (PLACE / "traffic.awk").write_text(block("awk"))
    (PLACE / "guess.yaml").write_text(block("yaml"))
    consoles = re.findall(r"^```console\n(.*?)^```", PAGE, re.M | re.S)
    commands = [part.split("\n", 1) for text in consoles for part in re.split(r"^\$ ", text, flags=re.M)[1:]]
    assert len(commands) == 4, commands
    for command, wanted in commands:
        done = subprocess.run(["sh", "-c", command], cwd=PLACE, capture_output=True, text=True, timeout=300, check=False,
                              env={**os.environ, "PATH": f"{PLACE}:{os.environ['PATH']}"})
        assert done.stdout == wanted and done.stderr == "", (command, done)


def test_the_log_format_of_the_page_is_read():
    names = re.findall(r'"(\w+)":', block("nginx"))
    assert names == ["msec", "remote_addr", "remote_user", "request_uri", "bytes_sent"], names
    text = "".join(re.findall(r"'(.*?)'", block("nginx")))
    for name, value in (("msec", "1764064800.123"), ("remote_addr", "198.51.100.7"), ("remote_user", "alice"),
                        ("request_uri", "/a?b=1"), ("bytes_sent", "17")):
        text = text.replace(f"${name}", value)
    done = subprocess.run([PLACE / "weir", "simulate", "-p", PLACE / "guess.yaml", "--cost=bytes", "--json", "-"], input=text + "\n",
                          capture_output=True, text=True, timeout=60, check=True)
    assert '"format":"json"' in done.stdout and '"units":17' in done.stdout and '"first_ms":1764064800123' in done.stdout


if __name__ == "__main__":
    run(globals())
