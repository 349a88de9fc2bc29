#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
The weir command's manual pages and completions: command_extras_test.py WEIR_PROGRAM SOURCE_DIRECTORY. Prints TAP.

The help of each subcommand is the measure: pages and completions have its options and exit codes, and no others.

Guards: apps/weir/man/weir.1, apps/weir/man/weir-bench.1, apps/weir/man/weir-check.1, apps/weir/man/weir-demo.1,
apps/weir/man/weir-doctor.1, apps/weir/man/weir-explain.1,
apps/weir/man/weir-override.1, apps/weir/man/weir-reset.1, apps/weir/man/weir-simulate.1, apps/weir/man/weir-top.1,
apps/weir/completions/weir.bash, apps/weir/completions/_weir, apps/weir/completions/weir.fish
"""
import os
import pathlib
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time

import tap
from tap import Failed, run, Skipped

WEIR, APP = sys.argv[1], pathlib.Path(sys.argv[2]) / "apps/weir"
COMPLETIONS = APP / "completions"

BASH = """
source "$1"; shift
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_weir
printf '%s\\n' "${COMPREPLY[@]}"
"""


def need(program):
    if shutil.which(program) is None:
        if os.environ.get("CI") == "true":
            raise Failed(f"{program} is missing; scripts/setup installs it")
        raise Skipped(f"there is no {program}")


def expect(found, wanted, where):
    if sorted(found) != sorted(wanted):
        raise Failed(f"{where}: {sorted(found)}, and not {sorted(wanted)}")


def help_of(name):
    return run(WEIR, "help", name)


def subcommands():
    part = re.search(r"Subcommands:\n(.*?)\n\n", run(WEIR, "--help"), re.S)[1]
    return [name for name in re.findall(r"^  (\w+) +\S", part, re.M) if name != "help"]


def options(name):
    """The long options of a subcommand, without their dashes, and whether each takes a value."""
    found = re.findall(r"^ +(?:-\w, )? *--([\w-]+)(=?)", re.search(r"Options:\n(.*?)\n\n", help_of(name), re.S)[1], re.M)
    if len(found) < 3:
        raise Failed(f"weir help {name} lists {found}")
    return {option: value == "=" for option, value in found}


def page(name):
    return APP / f"man/weir-{name}.1"


def manual_pages_are_well_formed():
    """groff and mandoc read the manual pages without a warning"""
    pages = sorted((APP / "man").glob("*.1"))
    expect([path.name for path in pages], ["weir.1", *(page(name).name for name in subcommands())], "pages")
    need("man")
    for path in pages:
        said = run("man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", path,
                   env={**os.environ, "LC_ALL": "C.UTF-8", "MANWIDTH": "80", "MANROFFOPT": "-z"})
        if said.strip():
            raise Failed(f"{path.name}: {said}")
    need("mandoc")
    run("mandoc", "-T", "lint", "-W", "warning", *pages)


def manual_pages_say_what_help_says():
    """a page has the options, the exit codes and the summary of its subcommand's help"""
    overview = run(WEIR, "--help")
    for name in subcommands():
        source = page(name).read_text()
        found = [word.replace("\\-", "-").lstrip("-") for word in
                 re.findall(r"^\.It Fl (?:\w , Fl )?(-\S+)", source, re.M)]
        expect(found, options(name), f"options of {page(name).name}")
        codes = re.findall(r"^  (\d)  ", help_of(name), re.M)
        expect(re.findall(r"^\.It (\d)$", source, re.M), codes, f"exit codes of {page(name).name}")
        if f".Cm {name}\n" not in (APP / "man/weir.1").read_text().replace(".It Cm", ".Cm") or f"\n  {name} " not in overview:
            raise Failed(f"weir(1) lacks {name}")
    codes = re.findall(r"^  (\d)  ", overview, re.M)
    expect(re.findall(r"^\.It (\d)$", (APP / "man/weir.1").read_text(), re.M), codes, "exit codes of weir.1")


def bash_completes(*words, **more):
    return run("bash", "--norc", "-c", BASH, "bash", COMPLETIONS / "weir.bash", "weir", *words, **more).split()


def bash():
    """bash completes subcommands, options, their values, and files"""
    expect(bash_completes(""), [*subcommands(), "help", "--help", "--version"], "weir")
    expect(bash_completes("help", ""), subcommands(), "weir help")
    with tempfile.TemporaryDirectory(prefix="weir-completion-") as name:
        (pathlib.Path(name) / "gateway.yaml").touch()
        expect(bash_completes("check", "gate", cwd=name), ["gateway.yaml"], "weir check gate")
    for name in subcommands():
        wanted = [f"--{option}{'=' if value else ''}" for option, value in options(name).items()]
        expect(bash_completes(name, "--"), wanted, f"weir {name} --")
        expect(bash_completes(name, "--color", "=", "a"), ["auto", "always"], f"weir {name} --color=a")
        expect(bash_completes(name, "--color", "="), ["auto", "always", "never"], f"weir {name} --color=")
        expect(bash_completes(name, "--color", "n"), ["never"], f"weir {name} --color n")


    actions = re.findall(r"weir override (\w+) \[", help_of("override"))
    expect(bash_completes("override", ""), actions, "weir override")
    with tempfile.TemporaryDirectory(prefix="weir-completion-") as name:
        (pathlib.Path(name) / "gateway.yaml").touch()
        expect(bash_completes("override", "--policies", "=", "gate", cwd=name), ["gateway.yaml"], "weir override --policies=gate")
        expect(bash_completes("override", "rm", "", cwd=name), [], "weir override rm")
        expect(bash_completes("override", "--redis", "=", cwd=name), [], "weir override --redis=")


def fish_completes(words, **more):
    lines = run("fish", "--no-config", "-c", f'source {COMPLETIONS}/weir.fish; complete -C "{words}"', **more)
    return [line.split("\t")[0] for line in lines.splitlines()]


def fish():
    """fish completes subcommands, options, their values, and files"""
    need("fish")
    with tempfile.TemporaryDirectory(prefix="weir-completion-") as name:
        (pathlib.Path(name) / "gateway.yaml").touch()
        own = {"env": {**os.environ, "HOME": name, "XDG_CONFIG_HOME": name, "XDG_DATA_HOME": name}, "cwd": name}
        expect(fish_completes("weir ", **own), [*subcommands(), "help"], "weir")
        expect(fish_completes("weir --", **own), ["--help", "--version"], "weir --")
        expect(fish_completes("weir help ", **own), subcommands(), "weir help")
        expect(fish_completes("weir check gate", **own), ["gateway.yaml"], "weir check gate")
        expect(fish_completes("weir override ", **own), ["list", "log", "rm", "set"], "weir override")
        expect(fish_completes("weir override rm ", **own), [], "weir override rm")
        expect(fish_completes("weir override --policies gate", **own), ["gateway.yaml"], "weir override --policies gate")
        for subcommand in subcommands():
            expect(fish_completes(f"weir {subcommand} --", **own), [f"--{option}" for option in options(subcommand)],
                   f"weir {subcommand} --")
            expect(fish_completes(f"weir {subcommand} --color=a", **own), ["--color=auto", "--color=always"],
                   f"weir {subcommand} --color=a")


class Zsh:
    """zsh on a terminal of its own."""

    def __init__(self, place):
        self.place = place
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.chdir(place)
            os.execvpe("zsh", ["zsh", "-f", "-i"], {**os.environ, "TERM": "dumb", "ZDOTDIR": place, "HOME": place, "PS1": ""})
        self.seen = ""
        self.write(f"PS1=; unsetopt zle_bracketed_paste prompt_cr prompt_sp; fpath=({COMPLETIONS} $fpath); autoload -Uz compinit; "
                   "compinit -D -u; unset zle_bracketed_paste; print R''EADY\n")
        self.wait("READY\r\n")

    def write(self, text):
        os.write(self.terminal, text.encode())

    def wait(self, text):
        end = time.monotonic() + 60
        while text not in self.seen:
            ready, _, _ = select.select([self.terminal], [], [], max(0, end - time.monotonic()))
            if not ready:
                raise Failed(f"zsh did not write {text!r}, but {self.seen!r}")
            self.seen += os.read(self.terminal, 65536).decode(errors="replace")

    def complete(self, words):
        """The words of a command line after Tab."""
        self.seen = ""
        # The widget runs on the line as a key would, and what the line is then is printed.
        self.write(f"f() {{ zle complete-word; print -r -- \"<$BUFFER>\"; zle send-break }}; zle -N f; bindkey '^X' f\n")
        self.write(f"{words}\x18")
        self.wait(">\r\n")
        return re.findall(r"<([^<>]*)>\r\n", self.seen)[-1].rstrip()

    def close(self):
        os.kill(self.pid, 9)
        os.waitpid(self.pid, 0)
        os.close(self.terminal)


def zsh():
    """zsh completes subcommands, options, their values, and files"""
    need("zsh")
    with tempfile.TemporaryDirectory(prefix="weir-completion-") as name:
        (pathlib.Path(name) / "gateway.yaml").touch()
        shell = Zsh(name)
        try:
            cases = {"weir override se": "weir override set", "weir override --policies=gate": "weir override --policies=gateway.yaml",
                     "weir check gate": "weir check gateway.yaml", "weir check --color=al": "weir check --color=always"}
            for subcommand in subcommands():
                cases[f"weir {subcommand[:-1]}"] = f"weir {subcommand}"
                cases[f"weir help {subcommand[:-1]}"] = f"weir help {subcommand}"
                all_options = options(subcommand)
                for option, value in all_options.items():
                    # Of two options of one beginning the whole name is typed.
                    begins = sum(other.startswith(option[:-1]) for other in all_options)
                    typed = option[:-1] if begins == 1 else option
                    # One with which another begins stays as it is.
                    whole = not any(other != option and other.startswith(option) for other in all_options)
                    cases[f"weir {subcommand} --{typed}"] = f"weir {subcommand} --{option}{'=' if value and whole else ''}"
            for typed, wanted in cases.items():
                found = shell.complete(typed)
                if found != wanted:
                    raise Failed(f"{typed}: {found}, and not {wanted}")
        finally:
            shell.close()


if __name__ == "__main__":
    tap.main([manual_pages_are_well_formed, manual_pages_say_what_help_says, bash, fish, zsh])
