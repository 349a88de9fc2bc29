#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
The tracepoints of libweir are those of docs/tracing.md, and fire: probes_test.py LIBRARY TRACED_PROGRAM SOURCE_DIRECTORY.
Prints TAP.

Guards: src/base/probe.h, src/base/probe.c, src/fleet/round.c, docs/tracing.md
"""
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "install"))
import tap  # noqa: E402
from tap import Failed, Skipped, run  # noqa: E402

LIBRARY, TRACED, SOURCE = (os.path.abspath(path) for path in sys.argv[1:4])
PAGE = pathlib.Path(SOURCE) / "docs/tracing.md"
SERVER = os.environ.get("WEIR_TEST_REDIS_SERVER", "redis-server")

# probe: how gdb prints its arguments, and patterns: each of them matches what it prints at some time.
FIRES = {
    "deny": ("%lu %s %s %lu %lu %lu %lu %lu", r"\d+ few customer-17 11 1 0 [1-9]\d{9,} 0"),
    "grant": ("%lu %s %lu %lu", r"\d+ (hot 3|customer-17 11) [1-9]\d*"),
    "report": ("%s %lu %lu", r"weir:\S*few:customer-17:\d+ 5 [5-9]", r"weir:\S*few:customer-18:\d+ 1 1"),
    "round": ("%s %lu %lu %lu %lu", r"redis \S+ 1 0 [1-9]\d* 1", r"redis \S+ 1 2 [1-9]\d* 1"),
    "outage": ("%s %lu %lu", r"few 4 0"),
    "connection": ("%s %lu %lu", r"redis \S+ 1 0"),
    "evict": ("%lu %lu %lu", r"\d+ \d+ [01]"),
    "policies": ("%lu %lu", r"2 0"),
    "leader": ("%lu %lu %lu", r"\d+ 4294967295 0"),
}


def documented():
    """The probes of the page's table, and how many arguments each has."""
    rows = re.findall(r"^\| `(\w+)` \|(.*)\|$", PAGE.read_text(), re.M)
    return {name: len([cell for cell in cells.split("|")[1:] if cell.strip()]) for name, cells in rows}


def one_liners():
    """The programs of bpftrace on the page, in order."""
    programs = re.findall(r"^bpftrace -p \$PID -e '(.*?)'\n```", PAGE.read_text(), re.M | re.S)
    if len(programs) < 2:
        raise Failed(f"the page has {len(programs)} programs for bpftrace")
    return programs


class Redis:
    def __enter__(self):
        if shutil.which(SERVER) is None:
            raise Skipped("there is no redis-server")
        self.place = tempfile.TemporaryDirectory(prefix="weir-tracing-")
        path = pathlib.Path(self.place.name) / "socket"
        self.child = subprocess.Popen([SERVER, "--port", "0", "--unixsocket", str(path), "--save", "", "--dir", self.place.name],
                                      stdout=subprocess.DEVNULL)
        end = time.monotonic() + 60
        while not self.answers(path):
            if time.monotonic() > end or self.child.poll() is not None:
                raise Failed("the Redis server does not start")
            time.sleep(0.02)
        return f"unix://{path}"

    @staticmethod
    def answers(path):
        with socket.socket(socket.AF_UNIX) as link:
            try:
                link.connect(str(path))
            except OSError:
                return False
            return True

    def __exit__(self, *_):
        self.child.kill()
        self.child.wait()
        self.place.cleanup()


def listed():
    """the library lists each documented probe, at each of its places with the documented arguments"""
    notes = run("readelf", "-n", "-W", LIBRARY)
    found = re.findall(r"Provider: weir\s+Name: (\w+)\s+Location: (\S+), Base: \S+, Semaphore: (\S+)\s+Arguments: (.*)", notes)
    if {name for name, *_ in found} != set(documented()) or set(FIRES) != set(documented()):
        raise Failed(f"found {sorted({name for name, *_ in found})}, documented {sorted(documented())}, tested {sorted(FIRES)}")
    for name, _, semaphore, arguments in found:
        if len(arguments.split()) != documented()[name] or int(semaphore, 16) == 0:
            raise Failed(f"{name}: documented are {documented()[name]} arguments; semaphore {semaphore}, {arguments}")


def off_the_hit_path():
    """no probe lies in weir_check, nor in what it jumps to for a hit"""
    symbols = re.findall(r"^(\S+) (\S+) [tT] (weir_\w+)$", run("nm", "-S", "--defined-only", LIBRARY), re.M)
    places = [int(place, 16) for place in re.findall(r"Provider: weir\s+Name: \w+\s+Location: (\S+),", run("readelf", "-n", "-W", LIBRARY))]
    checks = {name: (int(start, 16), int(size, 16)) for start, size, name in symbols}
    for name in ("weir_check", "weir_charge", "weir_refund", "weir_reserve"):
        start, size = checks[name]
        inside = [hex(place) for place in places if start <= place < start + size]
        if inside:
            raise Failed(f"{name} has probes at {inside}")


def gdb_script(probes, words):
    lines = ["set pagination off", "set confirm off", "set breakpoint pending on", "set follow-fork-mode child",
             "set style enabled off"]
    for name in probes:
        form = FIRES[name][0]
        count = len(form.split())
        arguments = "".join(f", {'(char *) ' if word == '%s' else '(long) '}$_probe_arg{at}" for at, word in enumerate(form.split()))
        # What fires often is printed once.
        lines += [f"{'tbreak' if name in ('grant', 'evict') else 'break'} -probe-stap weir:{name}", "commands", "silent",
                  f'printf "fired {name} %d: {form}\\n", $_probe_argc{arguments}', "continue", "end"]
        assert count == documented()[name]
    return "\n".join([*lines, " ".join(["run", *words, "< go"]), ""])


def fires_in(probes, *words):
    """What the probes are said to have fired with, in a program under gdb."""
    if shutil.which("gdb") is None:
        raise Skipped("there is no gdb")
    with tempfile.TemporaryDirectory(prefix="weir-tracing-gdb-") as place:
        script = pathlib.Path(place) / "script"
        script.write_text(gdb_script(probes, words))
        (pathlib.Path(place) / "go").write_text("go\n")
        output = run("gdb", "-q", "-nx", "-batch", "-x", script, TRACED, cwd=place, timeout=240)
    if "ptrace" in output and "fired" not in output:
        raise Skipped("this machine does not let a debugger trace")
    for name in probes:
        fired = re.findall(rf"^fired {name} (\d+): (.*)$", output, re.M)
        wrong = {count for count, _ in fired} - {str(documented()[name])}
        if wrong or not all(any(re.fullmatch(pattern, arguments) for _, arguments in fired) for pattern in FIRES[name][1:]):
            raise Failed(f"{name}: {fired}\n{output[-3000:]}")
    if "closed" not in output and "led" not in output:
        raise Failed(output)


def fires():
    """each probe fires in a live node, with the documented arguments"""
    with Redis() as url:
        fires_in([name for name in FIRES if name != "leader"], url)


def leader_fires():
    """the probe of the leader fires in a process that takes up the work of one that has left"""
    fires_in(["leader"])


def need_bpftrace():
    """Skips the test where bpftrace cannot trace."""
    if shutil.which("bpftrace") is None or os.geteuid() != 0:
        raise Skipped("there is no bpftrace, or this is not root")
    trial = subprocess.run(["bpftrace", "-e", f"uprobe:{LIBRARY}:weir_open {{ exit(); }} BEGIN {{ exit(); }}"], capture_output=True,
                           text=True, timeout=120)
    if trial.returncode != 0 or "ERROR" in trial.stdout:
        raise Skipped("the kernel does not let bpftrace trace here")


def traced_by(program, url):
    """What a program of bpftrace prints over the life of a node."""
    with subprocess.Popen([TRACED, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as node:
        node.stdout.readline()
        with subprocess.Popen(["bpftrace", "-p", str(node.pid), "-e", program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True) as tracer:
            attached = tracer.stdout.readline()
            while attached and not attached.startswith("Attaching"):
                attached = tracer.stdout.readline()
            time.sleep(2)  # it says so before it has; a probe that is missed here fails the test below, and is tried again
            node.stdin.write("go\n")
            node.stdin.close()
            node.wait(timeout=120)
            return tracer.communicate(timeout=60)[0]  # it ends with the process


def one_liners_print():
    """the one-liners of the page print what happens in a process that runs"""
    need_bpftrace()
    wanted = (r"@units\[few, customer-17\]: [1-9]", r"@us: \n\[", r"few: mode 4 -> 0")
    for program, pattern in zip(one_liners(), wanted):
        for _ in range(3):
            with Redis() as url:
                output = traced_by(program, url)
            if re.search(pattern, output):
                break
        else:
            raise Failed(f"{program}\n{output}")


if __name__ == "__main__":
    tap.main([listed, off_the_hit_path, fires, leader_fires, one_liners_print])
