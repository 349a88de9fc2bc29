# SPDX-License-Identifier: Apache-2.0
"""Builds weir, runs meson's tests and says how far they are. The command is scripts/test."""
import fcntl
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
QUICK = "unit property stress fleet redis chaos command model gateway nginx alerts docs install".split()
WHOLE = "long soak address thread sanitizers platforms trixie arm64 servers lint fuzz package".split()
BAD = ("FAIL", "ERROR", "TIMEOUT", "INTERRUPT", "UNEXPECTEDPASS")
# Meson's verbose lines: a test begins, one of its cases ends, a test ends.
BEGUN = re.compile(r" *(\d+)/(\d+) (?:.* / )?(\S+) +RUNNING\b")
CASE = re.compile(r"▶ +(\d+)/\d+ (?:- )?(.*?) +(OK|FAIL|SKIP|EXPECTEDFAIL|UNEXPECTEDPASS)\b *$")
ENDED = re.compile(r" *(\d+)/(\d+) (?:.* / )?(\S+) +(OK|SKIP|EXPECTEDFAIL|" + "|".join(BAD) + r") +([\d.]+)s")


def refuse(message):
    print(f"scripts/test: {message}", file=sys.stderr)
    sys.exit(2)


# Clones share what ccache keeps: what is compiled differs by the folder in its debugging information alone.
os.environ.setdefault("CCACHE_NOHASHDIR", "1")


def configure(build, *words, root=ROOT):
    if not (build / "build.ninja").exists():
        done = subprocess.run(["meson", "setup", build, root, *words], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(done.stdout + done.stderr)


def introspect(build, what):
    return json.loads((build / "meson-info" / f"intro-{what}.json").read_text())


def listed(build, words):
    """Names of the tests that meson test would run with these words."""
    command = ["meson", "test", "-C", build, "--no-rebuild", "--list", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return {line.split(" / ")[-1] for line in done.stdout.splitlines()}


def tests_of(build, files, root=ROOT):
    """Names of the tests that these files of tests/ are run by, by file; soaks left out."""
    sources = {}  # of each program
    for target in introspect(build, "targets"):
        for program in target["filename"]:
            sources[program] = [source for part in target["target_sources"] for source in part.get("sources", [])]
    runs = {}
    for test in introspect(build, "tests"):
        if "soak" not in [suite.split(":")[-1] for suite in test["suite"]]:
            for word in test["cmd"]:
                for source in [word, *sources.get(word, [])]:
                    runs.setdefault(os.path.realpath(source), []).append(test["name"])
    # A model is run by the script beside it.
    runners = [str(root / (os.path.dirname(file) + "/run" if file.endswith(".pml") else file)) for file in files]
    return {file: set(runs[runner]) for file, runner in zip(files, runners) if runner in runs}


def meson_events(build, words):
    """Runs meson test. Yields ("case", test, case, result) and ("test", test, result, seconds, number of tests)."""
    # Meson ends its tests when it is ended, and it is when this ends.
    command = ["setpriv", "--pdeathsig", "TERM", "meson", "test", "-C", build, "--verbose", "--no-stdsplit", *words]
    names, failed, ended, total = {}, set(), 0, 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                          text=True, errors="replace", env={**os.environ, "COLUMNS": "300"}) as process:
        last = ""
        for line in process.stdout:
            line = line.rstrip()
            if match := BEGUN.match(line):
                names[match[1]], total = match[3], int(match[2])
            elif (match := CASE.match(line)) and match[1] in names:
                failed |= {names[match[1]]} if match[3] in BAD else set()
                yield "case", names[match[1]], match[2], match[3]
            elif (match := ENDED.match(line)) and names.get(match[1]) == match[3]:
                # A test that died without a word is a failure, too.
                if match[4] in BAD and match[3] not in failed:
                    failed.add(match[3])
                    yield "case", match[3], f"ends well ({match[4].lower()})", "FAIL"
                del names[match[1]]  # meson says once more at its end which tests failed
                ended += 1
                yield "test", match[3], match[4], float(match[5]), int(match[2])
            else:
                last = line or last
    if ended != total or (process.returncode != 0 and not failed):
        yield "case", build.name, f"runs all tests: {ended} of {total} ended, exit {process.returncode}, {last}", "FAIL"


def said_by(build, log, names):
    """What the tests of these names printed, by name."""
    path = build / "meson-logs" / f"{log}.json"
    lines = path.read_text(errors="replace").splitlines() if path.exists() else []
    said = {entry["name"].split(" / ")[-1]: entry["stdout"] for entry in map(json.loads, lines)}  # "weir:unit / unit/x"
    return {name: said[name] for name in sorted(names & said.keys())}


def minutes(seconds):
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


class Progress:
    """How far a run is. The time that is left is told by how long each test took when it was last run."""

    def __init__(self, build):
        self.path = build / "meson-logs" / "durations.json"
        self.usual = json.loads(self.path.read_text()) if self.path.exists() else {}
        self.wanted, self.took, self.done = set(), {}, 0

    def left(self):
        known = [self.usual.get(name, 1.0) for name in self.wanted]
        return max([sum(known) / os.cpu_count(), *known], default=0.0) if self.usual else None

    def say(self, text, last=True):
        if last or sys.stdout.isatty():
            print(("\r\033[K" if sys.stdout.isatty() else "") + text, end="\n" if last else "", flush=True)

    def test_ended(self, name, result, seconds, count, cases):
        self.done += 1
        self.wanted.discard(name)
        self.took[name] = seconds
        left = self.left()
        time_left = f", {minutes(left)} left" if left is not None and self.done < count else ""
        word = "not ok" if result in BAD else result.lower()
        self.say(f"[{self.done}/{count}{time_left}] {word}: {name}, {cases} cases, {seconds:.1f} s")

    def keep(self):
        self.path.parent.mkdir(exist_ok=True)
        self.path.write_text(json.dumps(self.usual | self.took, indent=0, sort_keys=True))


def run_tests(build, words):
    """Runs meson test with these words and says what comes of it. How many cases passed, and how many failed."""
    # Most tests of a quick run wait for most of their time; a run of everything builds and computes as well.
    jobs = (2 if "all" in words else 3) * os.cpu_count()
    progress = Progress(build)
    subprocess.run(["ninja", "-C", build, "--quiet", "build.ninja"], check=True)  # for tests that were added
    progress.wanted = listed(build, words)
    passed, failures, cases = 0, [], {}
    for kind, test, *rest in meson_events(build, ["--num-processes", str(jobs), "--timeout-multiplier", "3", *words]):
        if kind == "case":
            cases[test] = cases.get(test, 0) + 1
            passed += rest[1] in ("OK", "EXPECTEDFAIL")
            progress.say(f"{test}: {rest[0]}", last=False)
            if rest[1] in BAD:
                failures.append((test, rest[0]))
                progress.say(f"not ok - {test}: {rest[0]}")
        else:
            if rest[0] == "OK" and test not in cases:  # a test without cases
                passed += 1
            progress.test_ended(test, *rest, cases.get(test, 0))
    progress.keep()
    log = "testlog-all" if "all" in words else "testlog"  # meson adds the setup that it was given
    for name, text in said_by(build, log, {test for test, _ in failures}).items():
        print(f"== {name}", *text.splitlines()[-60:], sep="\n")
    for test, case in failures:
        print(f"not ok - {test}: {case}")
    return passed, len(failures)


def print_tap(build, setup, words):
    """Tests of another build, as the cases of one test of this one."""
    build.mkdir(parents=True, exist_ok=True)
    with open(build / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two tests share a build
        configure(build, *setup)
        subprocess.run(["ninja", "-C", build, "--quiet"], check=True, stdout=sys.stderr)
    bad, log = set(), "-".join(word.strip("-").replace("/", "_") for word in words)[:100]
    for kind, test, *rest in meson_events(build, ["--no-rebuild", "--num-processes", "1", "--logbase", log, *words]):
        if kind == "case":
            name = f"{test}: {rest[0]}".replace("#", "no.")
            word, skipped = "not ok" if rest[1] in BAD else "ok", " # SKIP" if rest[1] == "SKIP" else ""
            print(f"{word} - {name}{skipped}", flush=True)
            bad |= {test} if rest[1] in BAD else set()
    for name, text in said_by(build, log, bad).items():
        print(f"# == {name}", *[f"# {line}" for line in text.splitlines()[-60:]], sep="\n")
    return 1 if bad else 0


def steady(path):
    """Five runs of the quick suites and one of all, each beside a busy loop on each core. Goes on where it stopped."""
    runs = [[]] * 5 + [["--all"]]
    kept = path.read_text().splitlines() if path.exists() else []
    for number, words in list(enumerate(runs, 1))[len(kept):]:
        loop = ["setpriv", "--pdeathsig", "KILL", sys.executable, "-c", "while True: pass"]
        busy = [subprocess.Popen(loop) for _ in range(os.cpu_count())]
        done = subprocess.run([ROOT / "scripts/test", *words], stdout=subprocess.PIPE, text=True, check=False)
        for process in busy:
            process.kill()
        print(done.stdout, flush=True)
        said = done.stdout.splitlines() or ["it says nothing"]
        kept.append(f"run {number} of {len(runs)}, scripts/test {' '.join(words)}: {said[-1]}")
        path.write_text("\n".join(kept) + "\n")
    print(*kept, sep="\n")
    path.unlink()
    return 0 if all(line.endswith(" 0 failed") for line in kept) else 1


def main(words):
    if words[:1] == ["--steady"] and len(words) == 1:
        return steady(BUILD / "steady.txt")
    if words[:1] == ["--tap"]:  # DIRECTORY "MESON SETUP WORDS" MESON TEST WORDS...: for meson.build and scripts/platform
        return print_tap(pathlib.Path(words[1]), words[2].split(), words[3:])
    if words[:1] == ["--for"]:
        if len(words) == 1:
            refuse("--for takes files: scripts/test --for src/thread/settle.c")
        files = [os.path.realpath(word) if os.path.exists(word) else word for word in words[1:]]
        found = subprocess.run([ROOT / "scripts/house", "--tests", *files], capture_output=True, text=True, check=False)
        if found.returncode != 0:
            refuse((found.stdout + found.stderr).strip().removeprefix("scripts/house: "))
    elif words not in ([], ["--all"]):
        for word in words:
            if word not in QUICK + WHOLE:
                refuse(f'there is no suite "{word}"; there are: {" ".join(QUICK + WHOLE)}')
    os.chdir(ROOT)
    subprocess.run([ROOT / "scripts/setup", "test"], check=True)
    configure(BUILD, "-Dbuildtype=debugoptimized", "-Dwerror=true")
    if words[:1] == ["--for"]:
        runs = tests_of(BUILD, found.stdout.split())
        for file in found.stdout.split():
            if file not in runs:
                refuse(f"{file} is not a test of this build: see tests/meson.build, and what the test needs")
        chosen = sorted(set().union(*runs.values()))
    else:
        subprocess.run(["ninja", "-C", BUILD, "--quiet"], check=True)
        chosen = (["--setup", "all"] if words else []) + [f"--suite={word}" for word in words if word != "--all"]
    passed, failed = run_tests(BUILD, chosen)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
