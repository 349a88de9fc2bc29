# SPDX-License-Identifier: Apache-2.0
"""Where mutants are tried: in a copy of the project with a build of its own. The working tree is never touched."""
import collections
import filecmp
import os
import re
import shlex
import shutil
import subprocess
import sys
import time

import suites
from house_rules import guards
from house_rules.tree import Tree

QUICK = 10  # usual seconds: a test that takes longer is run for the files that it guards alone
FEW = 6  # tests that are linked at once: linking all of them takes longer than most mutants live
# A test is killed first where memory ends, and what it fills /tmp with and leaves running ends with it.
BOUNDS = "ulimit -c 0; echo 1000 >/proc/self/oom_score_adj; "
APART = "unshare --mount --pid --fork --kill-child --mount-proc".split()
MOUNT = "mount -t tmpfs -o size=2g tmpfs {} && "


def fail(sentence):
    sys.exit(f"scripts/mutate: {sentence}")


class Workshop:
    def __init__(self, folder, threads):
        self.threads, self.tree, self.build = threads, folder / "tree", folder / ("build-tsan" if threads else "build")
        self.usual = collections.defaultdict(lambda: QUICK, suites.Progress(suites.BUILD).usual)
        self.sound, self.aside = set(), set()  # tests that passed in this run, and that fail without a mutant
        # 8 GB for each process; ThreadSanitizer's own memory is beyond any bound.
        script, apart = BOUNDS + ("" if threads else "ulimit -d 8388608; "), []
        if subprocess.run([*APART, "true"], capture_output=True).returncode == 0:
            script += "".join(MOUNT.format(path) for path in ("/dev/shm", "/tmp") if not folder.is_relative_to(path))
            apart = APART
        self.room = [*apart, "sh", "-c", script + '"$@"; exit $?', "sh"]

    def refresh(self):
        """Makes the copy what the working tree is. What is the same stays as it is, so that little is compiled."""
        git = ["git", "-C", suites.ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.check_output(git, text=True).split("\0")
        wanted = {self.tree / name: suites.ROOT / name for name in names if (suites.ROOT / name).is_file()}
        for copy in set(self.tree.rglob("*")) - wanted.keys():
            if not copy.is_dir():
                copy.unlink()
        for copy, original in wanted.items():
            if not copy.exists() or not filecmp.cmp(original, copy, shallow=False):
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(original, copy)

    def prepare(self):
        """Builds the copy without a mutant, and takes down what mutants are held against."""
        if not self.usual:
            fail("run scripts/test first: it notes how long each test takes")
        self.refresh()
        options = ["-Doptimization=2", "-Ddebug=false", "-Dbench=disabled"]  # objects hold code and nothing about lines
        if self.threads:
            options += ["-Db_sanitize=thread", "-Db_lundef=false"]
            os.environ.setdefault("TSAN_OPTIONS", "halt_on_error=1:second_deadlock_stack=1")
        suites.configure(self.build, *options, root=self.tree)
        if not self.make("all") or self.rules_are_broken():
            fail(f"without a mutant the sources do not build, or break a rule: see {self.build}/last-build.log")
        self.tests = suites.listed(self.build, ["--suite=stress", "--suite=thread"] if self.threads else [])
        files = {target["id"]: target["filename"] for target in suites.introspect(self.build, "targets")}
        self.programs = {test["name"]: [os.path.relpath(file, self.build) for target in test["depends"]
                                        for file in files.get(target, [])]
                         for test in suites.introspect(self.build, "tests")}
        compiled = subprocess.check_output(["ninja", "-C", self.build, "-t", "deps"], text=True)
        objects = re.findall(r"^(?!tests/)(\S+): .*\(VALID\)$", compiled, re.M)
        self.code = {name: (self.build / name).read_bytes() for name in objects}

    def make(self, *targets):
        with open(self.build / "last-build.log", "w") as log:
            return not targets or not subprocess.call(["ninja", "-C", self.build, *targets], stdout=log, stderr=log)

    def rules_are_broken(self):
        """Those about atomics are of use to mutants of orderings alone."""
        return self.threads and subprocess.run([self.tree / "scripts/house"], stdout=subprocess.DEVNULL).returncode != 0

    def try_row(self, row):
        """(state, who noticed) of a row."""
        path = self.tree / row["file"]
        text = path.read_text(encoding="utf-8")
        at = sum(len(line) + 1 for line in text.split("\n")[:int(row["line"]) - 1]) + int(row["column"]) - 1
        if not text.startswith(row["before"], at):
            return "gone", ""
        path.write_text(text[:at] + row["after"] + text[at + len(row["before"]):], encoding="utf-8")
        state, by = self.judge(row["file"])
        path.write_text(text, encoding="utf-8")
        if by in self.tests - self.sound and self.make(*self.programs[by]) and self.failing([by]):
            self.aside.add(by)
            print(f"{by} fails without a mutant as well: it is set aside", flush=True)
            return self.try_row(row)
        return state, by

    def judge(self, path):
        """(state, who noticed) of the mutant that stands in a file of the copy. The file's guards are asked first."""
        began = time.time()
        if not self.make(*self.code):
            return "does not compile", ""
        fresh = self.built_since(began, self.code)
        if fresh and all((self.build / name).read_bytes() == self.code[name] for name in fresh):
            return "no change", ""
        files = guards.tests_for(Tree(self.tree), path)
        first = set().union(*suites.tests_of(self.build, files, root=self.tree).values())
        usual = {name: self.usual[name] for name in self.tests - self.aside}
        # Under ThreadSanitizer a test takes ten times as long: the guards alone are run.
        chosen = [name for name in usual if name in first or (usual[name] < QUICK and not self.threads)]
        chosen.sort(key=lambda name: (usual[name] >= QUICK, name not in first, usual[name]))
        quick = sum(usual[name] < QUICK for name in chosen)
        slow = [[name] for name in chosen[quick:]]  # each alone, so that its bound is not that of a quick one that hangs
        for few in [chosen[at:min(at + FEW, quick)] for at in range(0, quick, FEW)] + slow:
            if not self.make(*{program for name in few for program in self.programs[name]}):
                return "does not compile", ""
            if by := self.failing([name for name in few
                                   if name in first or self.built_since(began, self.programs[name])]):
                return "noticed", by
        return ("noticed", "lint") if self.rules_are_broken() else ("missed", "")

    def built_since(self, began, names):
        return [name for name in names if os.path.getmtime(self.build / name) >= began]

    def failing(self, names):
        """The first of these tests that fails, or None. One that fails is run twice, one that hangs once."""
        failed = None
        while names:
            limit = max(20, (100 if self.threads else 5) * max(self.usual[name] for name in names))
            wrapper = shlex.join(["timeout", "--signal=KILL", str(limit), *self.room])
            words = ["--no-rebuild", "--maxfail=1", "--num-processes=1", "--timeout-multiplier=0", "--wrapper", wrapper]
            ended = {name: rest for kind, name, *rest in suites.meson_events(self.build, [*words, *names])
                     if kind == "test" and rest[0] != "INTERRUPT"}
            bad = next((name for name, (result, *_) in ended.items() if result in suites.BAD), None)
            self.sound |= ended.keys() - {bad}
            if bad is None or bad == failed or ended[bad][1] >= limit:
                return bad
            names, failed = [name for name in names if name not in ended or name == bad], bad
        return None
