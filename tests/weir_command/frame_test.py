#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
The weir command as such: help, misspelt words, output that cannot be written, colours. frame_test.py WEIR_PROGRAM
[TEST...]. Prints TAP.

Guards: apps/weir/main.c, apps/weir/arguments.c, apps/weir/output.c, src/policy/words.c
"""
import os
import re
import subprocess

from command_support import file, on_terminal, PLACE, PLAIN, run, Skipped, weir, WEIR, WRAPPER

GOOD = """policies:
  - name: api
    limits: [{algorithm: token_bucket, limit: 100, period: 1s, burst: 200}]
"""
SUBCOMMANDS = re.findall(r"^  (\w+) +\S", re.search(r"Subcommands:\n(.*?)\n\n", weir("--help")[0], re.S)[1], re.M)


def refused(*words):
    """What it says on standard error of a wrong command line, on which it writes nothing else."""
    out, fault = weir(*words, code=2)
    assert out == "" and fault.endswith("\n"), (out, fault)
    return fault


def test_help_lists_every_subcommand_and_each_has_a_help_of_its_own():
    out, fault = weir("--help")
    assert fault == "" and weir("-h")[0] == out and weir("help")[0] == out
    assert max(map(len, out.splitlines())) <= 80
    assert SUBCOMMANDS[-1] == "help" and len(SUBCOMMANDS) >= 2, SUBCOMMANDS
    for name in SUBCOMMANDS[:-1]:
        text, fault = weir(name, "--help")
        assert fault == "" and text == weir("help", name)[0] == weir(name, "nofile", "-h")[0], name
        assert text.startswith(f"Usage: weir {name} "), text
        for part in ("\nOptions:\n", "\nExamples:\n", "\nExit codes:\n", "--json", "--color=WHEN", "--help"):
            assert part in text, (name, part)
        assert max(map(len, text.splitlines())) <= 80, name


def test_without_a_subcommand_the_overview_is_an_error():
    out, fault = weir(code=2)
    assert out == "" and fault == weir("--help")[0]


def test_the_version_is_that_of_the_program_and_of_the_library():
    out, fault = weir("--version")
    assert re.fullmatch(r"weir (\d+\.\d+\.\d+), library \1\n", out) and fault == ""


def test_the_nearest_subcommand_is_named():
    for typed, meant in (("chekc", "check"), ("Check", "check"), ("hlep", "help")):
        assert refused(typed).startswith(f'weir: there is no subcommand "{typed}"; did you mean "{meant}"?\n'), typed
    assert refused("help", "chek").startswith('weir: there is no subcommand "chek"; did you mean "check"?\n')
    assert refused("zzzzzz") == 'weir: there is no subcommand "zzzzzz"\nweir --help lists the subcommands\n'
    assert refused("\x1b[31m") == 'weir: there is no subcommand "\\x1b[31m"\nweir --help lists the subcommands\n'
    assert "stand behind it" in refused("--json", "check")
    refused("help", "check", "check")


def test_wrong_options_are_named():
    ends = "\nweir check --help lists the options\n"
    assert refused("check", "--jsn") == 'weir check: there is no option "--jsn"; did you mean "--json"?' + ends
    assert refused("check", "--zzzzzzzz=1") == 'weir check: there is no option "--zzzzzzzz"' + ends
    assert refused("check", "-x") == 'weir check: there is no option "-x"' + ends
    assert refused("check", "-qx") == 'weir check: there is no option "-x"' + ends
    assert refused("check", "--color") == "weir check: --color needs a value" + ends
    assert refused("check", "--json=1") == "weir check: --json takes no value\n"
    assert refused("check", "--color=red", "x") == "weir check: --color takes auto, always or never\n"
    assert refused("check", "--color=never", "--color", "auto", "x") == "weir check: --color is there twice; leave one out\n"


def test_options_stand_before_and_behind_operands_and_end_with_two_dashes():
    path = file("good.yaml", GOOD)
    dashes = file("--json", GOOD)
    assert weir("check", path, "-q")[0] == weir("check", "-q", path)[0] == weir("check", "-q", "-q", path)[0] == ""
    assert weir("check", path, "--json", "--color", "never")[0].startswith('{"files":[')
    assert weir("check", "--", "--json")[0].startswith("--json: good, 1 policy\n")
    dashes.unlink()
    path.unlink()


def ends_with(stdout, *words):
    done = subprocess.run([*WEIR, *words], stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE, text=True,
                          timeout=60, env=PLAIN, cwd=PLACE, check=False)
    return done.returncode, done.stderr


def test_output_that_cannot_be_written_is_an_error_of_its_own():
    path = str(file("good.yaml", GOOD))
    bad = str(file("bad.yaml", "policies: []\n"))
    for words in (("--help",), ("--version",), ("help", "check"), ("check", "--help"), ("check", path),
                  ("check", "--json", path), ("check", path, bad), ("check", path, "nowhere")):
        name = "weir" if words == ("--version",) else "weir check" if words[0] == "check" else "weir help"
        with open("/dev/full", "w") as full:
            code, fault = ends_with(full, *words)
        assert code == 4 and fault.endswith(f"{name}: standard output: No space left on device\n"), (words, code, fault)
        reader, writer = os.pipe()
        os.close(reader)
        code, fault = ends_with(writer, *words)
        os.close(writer)
        assert code == 4 and fault.endswith(f"{name}: standard output: Broken pipe\n"), (words, code, fault)
    # What writes nothing has nothing to fail with.
    with open("/dev/full", "w") as full:
        assert ends_with(full, "check", "--quiet", path) == (0, "")


def test_closed_standard_streams_are_no_place_for_output():
    if WRAPPER:
        raise Skipped("files of the emulator take the place of closed streams")
    path = file("good.yaml", GOOD)
    for close, code in ((">&-", 4), ("2>&-", 0), ("<&-", 0), (">&- 2>&-", 4)):
        done = subprocess.run(["sh", "-c", f'"$@" {close}', "sh", *WEIR, "check", str(path)], capture_output=True, text=True,
                              timeout=60, env=PLAIN, check=False)
        assert done.returncode == code, (close, done)
    assert path.read_text() == GOOD  # and no file has become one of them
    done = subprocess.run(["sh", "-c", '"$@" <&-', "sh", *WEIR, "check", "-"], capture_output=True, text=True, timeout=60,
                          env=PLAIN, check=False)
    assert done.returncode == 3 and done.stderr.startswith("<stdin>: cannot be read: "), done


def test_colours_are_for_terminals():
    path, bad = file("good.yaml", GOOD), file("bad.yaml", "policies: []\n")
    plain = weir("check", path)[0]
    assert "\x1b" not in plain

    def strip(text):
        return re.sub(r"\x1b\[\d*m", "", text).replace("\r\n", "\n")

    for words, environment, coloured in (((), {}, True), ((), {"NO_COLOR": "1"}, False), ((), {"NO_COLOR": ""}, True),
                                         ((), {"TERM": "dumb"}, False), (("--color=never",), {}, False),
                                         (("--color=auto",), {}, True), (("--color=always",), {"NO_COLOR": "1"}, True)):
        seen = on_terminal("check", path, *words, environment=environment)
        assert ("\x1b[" in seen) == coloured and strip(seen) == plain, (words, environment, seen)
        seen = on_terminal("check", bad, *words, stdout=False, environment=environment)
        assert ("\x1b[" in seen) == coloured and strip(seen) == weir("check", bad, code=1)[1], (words, environment, seen)
    coloured, fault = weir("check", path, "--color=always")
    assert "\x1b[1mapi\x1b[0m" in coloured and strip(coloured) == plain and fault == ""
    assert "\x1b" not in on_terminal("check", path, "--json", "--color=always")


if __name__ == "__main__":
    run(globals())
