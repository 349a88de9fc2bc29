#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
What scripts/mutate draws, tries and puts back: mutate_test.py SOURCE_DIRECTORY. Prints TAP.

Guards: scripts/mutate, scripts/mutation/kinds.py, scripts/mutation/workshop.py

The mutants are those of a made-up C file in a repository of its own. A workshop that judges at once takes the place of the
one that builds and tests.
"""
import contextlib
import importlib.machinery
import io
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import types

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "install"))
from tap import Failed, main as run_checks  # noqa: E402

SCRIPT = pathlib.Path(sys.argv[1]).resolve() / "scripts/mutate"
C_FILE = """\
#include "a/b.h" /* x < y && z */
#define TWICE(n) ((n) + (n))

_Static_assert(sizeof(int) == 4, "as wide as that");

int first(int a, int *b)
{
    /* if (a == 1) { go(1, 2); } */
    const char *text = "a < b && c + 1";
    int sum = 0;
    assert(a != 3);
    // a = 7;
    for (int i = 0; i < a; i++) {
        if (a == 5 && *b > 07777) {
            break;
        }
        sum += a * i;
        *b = sum - 0x10;
    }
    (void) store_release(b, a);
    note(text, a << 2, &sum, sum | 1);
    b->deep[sum].at = call(a,
                           sum);
    switch (a) {
    case 9:
        add_seq_cst(b, 1);
        or_seq_cst(b, a + 1);
        barrier_all_threads(a);
        continue;
    }
    return 0;
}
"""
# What is never changed: comments, strings, preprocessor lines and assertions stand on these lines.
SPARED = {1, 2, 4, 8, 9, 11, 12}
KINDS = {"comparison turned", "bound off by one", "plus and minus", "times and over", "and and or", "bits and and or",
         "shift turned", "added or taken", "step turned", "return changed", "jump dropped", "constant doubled",
         "condition negated", "call dropped", "assignment dropped", "arguments swapped"}


def load():
    loader = importlib.machinery.SourceFileLoader("mutate", str(SCRIPT))
    module = types.ModuleType("mutate")
    module.__file__ = str(SCRIPT)
    loader.exec_module(module)
    return module


mutate = load()


def expect(good, *said):
    if not good:
        raise Failed("\n".join(str(word) for word in said))


class Project:
    """A repository with the C file, and a workshop for it that judges by a function."""

    def __init__(self, judge=lambda row: ("noticed", "unit/a")):
        self.folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.folder.name)
        self.source = self.root / "src/a/c.c"
        self.table = self.root / "table.tsv"
        self.kept = self.root / "mutant.json"
        self.judge = judge
        self.prepare = lambda rows: None
        self.learned = []
        self.learn = self.learned.append

    def __enter__(self):
        self.source.parent.mkdir(parents=True)
        self.source.write_text(C_FILE)
        subprocess.run(["git", "init", "--quiet", self.root], check=True)
        return self

    def __exit__(self, *_):
        self.folder.cleanup()

    def draw(self, seed=1, count=1000, part="src"):
        rows = mutate.draw(self.root, seed, count, part)
        mutate.write(self.table, f"# seed {seed}, part {part}, commit none", rows)
        return mutate.read(self.table)[1]

    def run(self, count=None):
        with contextlib.redirect_stdout(io.StringIO()):
            mutate.run(self, self.table, count)

    def states(self):
        return [row["state"] for row in mutate.read(self.table)[1]]


def every_kind():
    """every kind of mutant is drawn, and changes what its row says"""
    with Project() as project:
        rows = project.draw()
        expect({row["kind"] for row in rows} == KINDS, {row["kind"] for row in rows} ^ KINDS)
        pairs = {(row["before"], row["after"].strip()) for row in rows}
        for pair in (("==", "!="), (">", ">="), ("0", "1"), ("0x10", "0x20"), ("07777", "017776"), ("*b = sum - 0x10;", ";"),
                     ("(void) store_release(b, a);", ";"), ("break;", ";"), ("continue;", ";"), ("text, a << 2", "a << 2, text"),
                     ("(a == 5 && *b > 07777)", "(!(a == 5 && *b > 07777))"), ("a,\n                           sum", "sum,\n                           a"),
                     ("b->deep[sum].at = call(a,\n                           sum);", ";")):
            expect(pair in pairs, pair, *sorted(pairs))
        expect(not any("&sum" in row["before"] for row in rows if row["kind"] == "arguments swapped"), "&sum is swapped")
        lines = C_FILE.split("\n")
        for row in rows:
            at = int(row["column"]) - 1
            expect(lines[int(row["line"]) - 1][at:].startswith(row["before"].split("\n")[0]), row)
            expect(row["before"].count("\n") == row["after"].count("\n"), "lines move", row)


def spares():
    """comments, strings, preprocessor lines and assertions are not changed"""
    with Project() as project:
        rows = project.draw() + project.draw(part="orderings")
        touched = {int(row["line"]) for row in rows}
        expect(not touched & SPARED, touched & SPARED)


def weakens_orderings():
    """orderings are weakened, and barriers dropped"""
    with Project() as project:
        found = {(row["before"], row["after"]) for row in project.draw(part="orderings")}
        expect(found == {("store_release", "store_relaxed"), ("add_seq_cst", "add_relaxed"), ("barrier_all_threads(a)", "(void) 0"),
                         ("or_seq_cst(b, a + 1)", "atomic_fetch_or_explicit(b, a + 1, memory_order_relaxed)")}, *found)


def seeds():
    """the same seed draws the same table, another seed another one; a third more is drawn than asked for"""
    with Project() as project:
        expect(project.draw(7, 9) == project.draw(7, 9) != project.draw(8, 9), "seeds")
        expect(len(project.draw(7, 9)) == 12, len(project.draw(7, 9)))


def tries_rows():
    """rows are tried one after another, and what was found is in the table; more is tried where it was stopped"""
    seen = []

    def judge(row):
        seen.append((row["number"], project.source.read_text()))
        return ("missed", "") if len(seen) == 2 else ("noticed", "unit/a")
    with Project(judge) as project:
        project.draw(3, 3)
        project.run(2)
        expect(project.states() == ["noticed", "missed", "", ""], project.states())
        project.run()
        expect([number for number, _ in seen] == ["1", "2", "3", "4"], seen)
        expect(all(text != C_FILE for _, text in seen) and project.source.read_text() == C_FILE, "not put back")
        expect(mutate.read(project.table)[1][0]["by"] == "unit/a", project.table.read_text())
        mutate.main(["again", str(project.table)])
        expect(project.states() == ["noticed", "", "noticed", "noticed"], project.states())


def learns():
    """a test that never passed is run without the mutant before it counts"""
    def judge(row):
        return ("noticed" if project.learned else "unknown"), "unit/a"
    with Project(judge) as project:
        project.draw(3, 1)
        project.run(1)
        expect(project.learned == ["unit/a"] and project.states()[0] == "noticed", project.learned, project.states())


def moved_places():
    """a row whose place is no longer there is gone, and changes nothing"""
    with Project() as project:
        project.draw(3, 3)
        project.source.write_text("\n\n" + C_FILE)
        project.run()
        expect(set(project.states()) == {"gone"} and project.source.read_text() == "\n\n" + C_FILE, project.states())


def stop(project, how):
    """Stops a run by a signal while a mutant stands in the sources."""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        project.judge = lambda row: time.sleep(60)
        try:
            project.run()
        finally:
            os._exit(1)
    until = time.monotonic() + 20
    while project.source.read_text() in (C_FILE, "") and time.monotonic() < until:
        time.sleep(0.01)
    os.kill(child, how)
    os.waitpid(child, 0)


def stopped():
    """SIGTERM and Ctrl-C put the source back"""
    for how in (signal.SIGTERM, signal.SIGINT):
        with Project() as project:
            project.draw(3, 3)
            stop(project, how)
            expect(project.source.read_text() == C_FILE and not project.kept.exists(), how, project.source.read_text())
            expect(not any(project.states()), project.states())


def killed():
    """what a killed run left in the sources is put back by the next one, but not over an edit"""
    with Project() as project:
        project.draw(3, 3)
        stop(project, signal.SIGKILL)
        left = project.source.read_text()
        expect(left != C_FILE, "nothing is left")
        kept = project.kept.read_text()
        project.run()
        expect(project.source.read_text() == C_FILE and set(project.states()) == {"noticed"}, project.states())
        project.kept.write_text(kept)
        project.source.write_text("/* edited */\n")
        try:
            project.run()
        except SystemExit as problem:
            expect("was edited while a mutant stood in it" in str(problem), problem)
        expect(project.source.read_text() == "/* edited */\n", "the edit is gone")
        expect(json.loads(kept)[2] == left, "what was kept is not the mutant")


def reports():
    """the report counts by module, and tells what nobody noticed"""
    with Project() as project:
        project.draw(3, 6)
        title, rows = mutate.read(project.table)
        for row, state in zip(rows, ("noticed", "noticed", "noticed", "missed", "changes nothing", "no change", "does not compile")):
            row.update(state=state, by="unit/a" if state == "noticed" else "", seconds="2.0", meaning=f"why {state}")
        mutate.write(project.table, title, rows)
        done = subprocess.run([SCRIPT, "report", project.table], capture_output=True, text=True)
        for line in ("| src/a | 3 | 1 | 1 | 75% |", "| all | 3 | 1 | 1 | 75% |", "| unit/a | 3 | 6 |", "why missed"):
            expect(line in done.stdout, line, done.stdout, done.stderr)


def helps():
    """--help helps, and what is not known is refused with a sentence"""
    for words, status, sentence in ((["--help"], 0, "scripts/mutate draw TABLE SEED COUNT"), (["bogus", "t"], 1, "see scripts/mutate --help"),
                                    (["draw", "t"], 1, "see scripts/mutate --help"), (["run", "/nowhere"], 1, "/nowhere"),
                                    (["draw", "t", "x", "3"], 1, "whole numbers"), (["draw", "t", "1", "3", "docs"], 1, "src, apps or orderings")):
        done = subprocess.run([SCRIPT, *words], capture_output=True, text=True)
        expect(done.returncode == status and sentence in done.stdout + done.stderr and "Traceback" not in done.stderr, words, done)


run_checks([every_kind, spares, weakens_orderings, seeds, tries_rows, learns, moved_places, stopped, killed, reports, helps])
