# SPDX-License-Identifier: Apache-2.0
"""What the tests of building and installing share: running programs, blocks of code of pages, and TAP."""
import os
import pathlib
import re
import shutil
import subprocess
import sys


class Failed(Exception):
    """A check that did not hold; what it says is printed."""


class Skipped(Exception):
    """A check that cannot be made here; what it says is printed."""


def run(*command, **options):
    """Runs a program and returns what it printed; fails the test where its exit status is not 0."""
    words = [str(word) for word in command]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", **options)
    if done.returncode != 0:
        raise Failed(f"{' '.join(words)}: exit {done.returncode}\n{done.stdout}")
    return done.stdout


def fenced(page, language):
    """The first block of code in a language on a page of documentation."""
    block = re.search(rf"^```{language}\n(.*?)^```$", pathlib.Path(page).read_text(), re.M | re.S)
    if block is None:
        raise Failed(f"there is no block of {language} in {page}")
    return block.group(1)


def copy_source(source, destination):
    """Copies what belongs to the project: what git knows or would take; without git, all but builds."""
    source, destination = pathlib.Path(source), pathlib.Path(destination)
    listed = subprocess.run(["git", "-C", str(source), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                            capture_output=True)
    if listed.returncode != 0:
        shutil.copytree(source, destination, ignore=shutil.ignore_patterns("build*", ".git"))
        return
    for name in {os.fsdecode(name) for name in listed.stdout.split(b"\0") if name}:
        if (source / name).is_file():
            (destination / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source / name, destination / name)


def main(checks):
    """Runs each check, a function with a sentence for its documentation, and prints TAP."""
    print(f"TAP version 13\n1..{len(checks)}", flush=True)
    good = True
    for number, check in enumerate(checks, 1):
        name = check.__doc__.strip()
        try:
            check()
        except Skipped as reason:
            print(f"ok {number} - {name} # SKIP {reason}", flush=True)
            continue
        except (Failed, OSError, ValueError, subprocess.SubprocessError) as problem:
            good = False
            print(f"not ok {number} - {name}")
            print("".join(f"# {line}\n" for line in str(problem).splitlines()[-40:]), end="", flush=True)
            continue
        print(f"ok {number} - {name}", flush=True)
    sys.exit(0 if good else 1)
