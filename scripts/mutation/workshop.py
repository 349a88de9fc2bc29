# SPDX-License-Identifier: Apache-2.0
"""Where mutants are tried: a build directory of its own, and the tests of it that may notice."""
import contextlib
import json
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import time

from house_rules import guards
from house_rules.tree import Tree


def fail(sentence):
    sys.exit(f"scripts/mutate: {sentence}")


class Workshop:
    """A build directory, its tests, and what they are without a mutant."""
    APART = {"soak", "install", "docs", "alerts", "model"}  # suites that test little C, or test it for hours
    SUITES = {"apps/gateway": "gateway", "apps/weir": "command", "apps/nginx": "nginx", "apps/fleetsim": "fleet"}
    QUICK = 10  # seconds: a test that takes longer is run for the files that it guards alone
    OTHERS = {"unit", "property", "stress", "redis"}  # suites whose quick tests are run for any file, but last
    FEW = 16  # tests that are linked at once
    MEMORY = 4 << 30  # bytes of each process: more than any test needs, less than a machine has
    ROOM = 'mount -t tmpfs -o size=2g tmpfs /dev/shm && {} && "$@"; exit $?'

    def __init__(self, root, part):
        self.root, self.threads, self.tree = pathlib.Path(root), part == "orderings", Tree(root)
        self.build = self.root / ("build-mutate-tsan" if self.threads else "build-mutate")
        self.kept, self.usual_file = self.build / "mutant.json", self.build / "usual.json"
        # A room of its own for a test: what it fills /tmp with, and what it leaves running, ends with it.
        inside = self.root.resolve().is_relative_to("/tmp")
        mounts = self.ROOM.format("true" if inside else "mount -t tmpfs -o size=2g tmpfs /tmp")
        self.room = "unshare --mount --pid --fork --kill-child --mount-proc sh -c".split() + [mounts, "sh"]
        if subprocess.run([*self.room, "true"], capture_output=True).returncode:
            self.room = []

    def prepare(self, rows):
        """Builds the sources without a mutant, and sees that the first row's tests pass."""
        options = ["-Db_sanitize=thread", "-Db_lundef=false"] if self.threads else []
        if not (self.build / "build.ninja").exists():
            options += ["-Dbuildtype=debugoptimized", "-Dbench=disabled"]
            subprocess.run(["meson", "setup", self.build, self.root, *options], check=True, stdout=subprocess.DEVNULL)
        if not self.make("build.ninja"):
            fail("meson cannot configure the sources as they are")
        tests, targets = {}, {}
        for target in json.loads((self.build / "meson-info/intro-targets.json").read_text()):
            sources = [source for part in target["target_sources"] for source in part.get("sources", [])]
            targets[target["id"]] = [os.path.relpath(name, self.build) for name in target["filename"]], sources
        for test in json.loads((self.build / "meson-info/intro-tests.json").read_text()):
            test["suites"] = {suite.split(":")[-1] for suite in test["suite"]}
            parts = [targets[target] for target in test["depends"] if target in targets]
            test["targets"] = {name for names, _ in parts for name in names}
            words = [*test["cmd"], *(source for names, sources in parts for source in sources
                                     if str(self.build / names[0]) == test["cmd"][0])]
            test["files"] = {os.path.relpath(word, self.root) for word in words if os.path.isabs(word)}
            if not test["suites"] & self.APART and (not self.threads or test["suites"] & {"stress", "thread"}):
                tests[test["name"]] = test
        self.tests, self.usual = tests, json.loads(self.usual_file.read_text()) if self.usual_file.exists() else {}
        fresh = not self.usual
        self.build_or_fail({target for test in tests.values() for target in test["targets"] if fresh})
        self.objects = {}  # of each source
        for part in subprocess.check_output(["ninja", "-C", self.build, "-t", "deps"], text=True).split("\n\n"):
            name, *files = part.split("\n")
            for file in files if "VALID" in name else []:
                path = os.path.relpath(os.path.join(self.build, file.strip()), self.root)
                self.objects.setdefault(path, []).append(name.split(":")[0])
        objects = {name for row in rows for name in self.objects_of(row["file"])}
        self.build_or_fail(objects)
        self.code = {name: self.read_code(name) for name in objects}
        self.complaints = self.lint()
        first = self.guards_of(rows[0]["file"], True) if rows else []
        for name in first:
            if (self.usual.get(name) or 0) < self.QUICK:
                self.learn(name)
        if bad := [name for name in first if self.usual[name] is None]:
            fail(f"{', '.join(bad)} fails without a mutant: see {self.build}/last-test.log")

    def learn(self, name):
        """Runs a test on the sources as they are. One that fails there says nothing about mutants, and is set aside."""
        self.usual.pop(name, None)
        self.build_or_fail(self.tests[name]["targets"])
        if not self.passes(name, self.tests[name]["timeout"]):
            self.note(name, None)
            print(f"{name} fails without a mutant: it is set aside", flush=True)

    def note(self, name, seconds):
        self.usual[name] = seconds
        self.usual_file.write_text(json.dumps(self.usual, indent=1))

    def make(self, *targets):
        with open(self.build / "last-build.log", "w") as log:
            done = subprocess.run(["ninja", "-C", self.build, *targets], stdout=log, stderr=log) if targets else None
        return done is None or done.returncode == 0

    def build_or_fail(self, targets):
        if not self.make(*targets):
            fail(f"the sources do not build as they are, without a mutant: see {self.build}/last-build.log")

    def objects_of(self, path):
        objects = self.objects.get(path, [])
        return [name for name in objects if not name.startswith("tests/")] or objects

    def read_code(self, name):
        copy = self.build / "last-object.o"
        subprocess.run(["objcopy", "--strip-debug", self.build / name, copy], check=True)
        return hash(copy.read_bytes())

    def lint(self):
        """What the rules complain of. Those about atomics are of use to mutants of orderings alone."""
        if not self.threads:
            return set()
        done = subprocess.run([self.root / "scripts/house", "--check"], capture_output=True, text=True)
        return set(re.findall("^not ok.*", done.stdout, re.M))

    def by_time(self, names, aside=False):
        """The quick ones first, as far as they pass without a mutant, or have not been run yet."""
        known = [name for name in names if aside or self.usual.get(name, 0) is not None]
        return sorted(known, key=lambda name: (self.usual.get(name) or 0, name.split("/")[0] != "unit", name))

    def suite_of(self, path):
        return self.SUITES.get("/".join(path.split("/")[:2]), "stress" if self.threads else "unit")

    def guards_of(self, path, aside=False):
        files = set(guards.tests_for(self.tree, path))
        found = [name for name, test in self.tests.items() if test["files"] & files]
        of_suite = [name for name, test in self.tests.items() if self.suite_of(path) in test["suites"]]
        return self.by_time(found or of_suite, aside)

    def passes(self, name, patience=60):
        """By its exit status and its lines of TAP. A test that fails is run twice, one that hangs once."""
        test = self.tests[name]
        usual = self.usual.get(name)
        limit = patience if usual is None else max(20, 10 * usual)
        environment = {"TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1", **os.environ, **test["env"]}

        def bound():
            pathlib.Path("/proc/self/oom_score_adj").write_text("1000")  # where memory ends, a test is killed first
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            if not self.threads:  # the sanitizer's own memory is beyond any bound
                resource.setrlimit(resource.RLIMIT_DATA, (self.MEMORY, self.MEMORY))
        for _ in range(2):
            began = time.monotonic()
            with open(self.build / "last-test.log", "w+", errors="replace") as log:
                child = subprocess.Popen([*self.room, *test["cmd"]], cwd=test["workdir"] or self.build, env=environment,
                                         stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                                         preexec_fn=bound)
                try:
                    code = child.wait(limit)
                except subprocess.TimeoutExpired:
                    return False
                finally:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(child.pid, signal.SIGKILL)
                    child.wait()
                log.seek(0)
                text = log.read()
            planned = sum(int(number) for number in re.findall(r"^1\.\.(\d+)", text, re.M))
            lines = re.findall("^(?:not )?ok", text, re.M)
            if code in (0, 77) and "not ok" not in lines and planned <= len(lines):
                if name not in self.usual:  # a mutant that passes takes as long as none
                    self.note(name, round(time.monotonic() - began, 1))
                return True
        return False

    def judge(self, row):
        """(state, who noticed) of the mutant in the sources; "unknown" where a test fails that never passed."""
        began, objects = time.time(), self.objects_of(row["file"])
        if not self.make(*objects):
            return "does not compile", ""
        if objects and all(self.read_code(name) == self.code[name] for name in objects):
            return "no change", ""
        if self.lint() - self.complaints:
            return "noticed", "lint"
        first = self.guards_of(row["file"])
        quick = {name for name in self.tests if (self.usual.get(name) or 0) < self.QUICK}
        suites = set() if self.threads else self.OTHERS | {self.suite_of(row["file"])}
        others = self.by_time(name for name in quick - set(first) if self.tests[name]["suites"] & suites)
        slow = [name for name in first if name not in quick]
        # Linking all tests takes longer than most mutants live: a few at a time.
        parts = [others[at:at + self.FEW] for at in range(0, len(others), self.FEW)]
        for names in ([name for name in first if name in quick], *parts, slow):
            if not self.make(*{target for name in names for target in self.tests[name]["targets"]}):
                return "does not compile", ""
            for name in names:
                built = [os.path.getmtime(self.build / target) >= began for target in self.tests[name]["targets"]]
                if (any(built) or name in first) and not self.passes(name):
                    return "noticed" if name in self.usual else "unknown", name
        return "missed", ""
