#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
What scripts/mutate draws and tries: mutate_test.py SOURCE_DIRECTORY. Prints TAP.

Guards: scripts/mutate, scripts/mutation/kinds.py, scripts/mutation/workshop.py

The mutants are those of a made-up C file in a repository of its own. A workshop that judges at once takes the place of the
one that builds and tests, but for one check, which builds a library of three lines and its tests.
"""
import contextlib
import importlib.machinery
import io
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import types

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "install"))
from tap import Failed, main as run_checks  # noqa: E402

SOURCE = pathlib.Path(sys.argv[1]).resolve()
SCRIPT = SOURCE / "scripts/mutate"
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
    sum = max_u64(a, sum);
    if (strcmp(text, *b) == 0 || strcmp(text, *b + sum) < 0) {
        return 1;
    }
    return 0;
}

static void prefetch_some(int a)
{
    touch(a + 1);
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


class Shop(mutate.Workshop):
    """A workshop that builds nothing, and judges by a function."""

    def __init__(self, root, judge):
        self.tree, self.build, self.judge_row = root / "copy", root, judge
        self.sound, self.aside, self.tests, self.programs = set(), set(), {"unit/a"}, {"unit/a": []}

    def prepare(self):
        self.refresh()

    def judge(self, path):
        return self.judge_row((self.tree / path).read_text())

    def failing(self, names):
        self.sound |= set(names)


class Project:
    """A repository with the C file, and a workshop for it."""

    def __init__(self, judge=lambda text: ("noticed", "unit/a")):
        self.folder = tempfile.TemporaryDirectory(prefix="weir-mutate-")
        self.root = pathlib.Path(self.folder.name)
        self.source = self.root / "src/a/c.c"
        self.copy = self.root / "copy/src/a/c.c"
        self.table = self.root / "table.tsv"
        self.shop = Shop(self.root, judge)

    def __enter__(self):
        self.source.parent.mkdir(parents=True)
        self.source.write_text(C_FILE)
        (self.root / ".gitignore").write_text("/copy/\n/table.tsv\n")
        subprocess.run(["git", "init", "--quiet", self.root], check=True)
        mutate.suites.ROOT = self.root
        return self

    def __exit__(self, *_):
        self.folder.cleanup()

    def draw(self, seed=1, count=1000, part="src"):
        rows = mutate.draw(self.root, seed, count, part)
        mutate.write(self.table, f"# seed {seed}, part {part}, commit none", rows)
        return mutate.read(self.table)[1]

    def run(self, count=None):
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            mutate.run(self.shop, self.table, count)
        return said.getvalue()

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


def changes_that_change_nothing():
    """no prefetch is changed, fences are dropped among the orderings alone, and max_u64 keeps its arguments' order"""
    with Project() as project:
        rows = project.draw()
        swapped = {row["before"] for row in rows if row["kind"] == "arguments swapped"}
        expect(not {"a, sum", "text, *b"} & swapped and "text, *b + sum" in swapped, *swapped)
        code = [row for row in rows if "touch" in row["before"] or "barrier" in row["before"] or row["before"] == "a + 1"]
        lines = [number for number, line in enumerate(C_FILE.split("\n"), 1) if "touch(" in line]
        expect(not code and not {int(row["line"]) for row in rows} & set(lines), *code)


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
    """rows are tried one after another in a copy, and what was found is in the table; more is tried where it was stopped"""
    seen = []

    def judge(text):
        seen.append(text)
        return ("missed", "") if len(seen) == 2 else ("noticed", "unit/a")
    with Project(judge) as project:
        project.draw(3, 3)
        project.run(2)
        expect(project.states() == ["noticed", "missed", "", ""], project.states())
        project.run()
        expect(len(set(seen)) == 4 and C_FILE not in seen, "not four mutants", *seen)
        expect(project.source.read_text() == C_FILE == project.copy.read_text(), "not put back")
        expect(mutate.read(project.table)[1][0]["by"] == "unit/a", project.table.read_text())
        mutate.main(["again", str(project.table)])
        expect(project.states() == ["noticed", "", "noticed", "noticed"], project.states())


def sets_aside():
    """a test that never passed is run without the mutant before it counts, and set aside if it fails there as well"""
    with Project(lambda text: ("noticed", "unit/a") if not project.shop.aside else ("missed", "")) as project:
        project.draw(3, 1)
        project.run(1)
        expect(project.states()[0] == "noticed" and project.shop.sound == {"unit/a"}, project.states())
        project.shop.sound.clear()
        project.shop.failing = lambda names: names[0]
        said = project.run(1)
        expect(project.states()[1] == "missed" and "unit/a fails without a mutant as well" in said, project.states(), said)


def moved_places():
    """a row whose place is no longer there is gone, and changes nothing"""
    with Project() as project:
        project.draw(3, 3)
        project.source.write_text("\n\n" + C_FILE)
        project.run()
        expect(set(project.states()) == {"gone"} and project.copy.read_text() == "\n\n" + C_FILE, project.states())


def copies():
    """a run begins with a copy of the working tree, in which only what differs is written anew"""
    with Project() as project:
        same = project.root / "src/a/same.h"
        same.write_text("")
        project.shop.refresh()
        kept = (project.copy.parent / "same.h").stat().st_mtime_ns
        project.copy.write_text("a mutant of a run that was killed")
        (project.copy.parent / "gone.c").write_text("")
        project.shop.refresh()
        expect(project.copy.read_text() == C_FILE, "a mutant is left")
        expect(sorted(path.name for path in project.copy.parent.iterdir()) == ["c.c", "same.h"], "files are left")
        expect((project.copy.parent / "same.h").stat().st_mtime_ns == kept, "a file that is the same was written")


# A project with a library, a test that notices, one that fails by itself, and a table of one mutant of each state.
SMALL = {
    "meson.build": """project('small', 'c')
small = static_library('small', 'src/a/small.c')
test('unit/small', executable('small_test', 'tests/small_test.c', link_with: small), protocol: 'tap')
test('unit/broken', executable('broken_test', 'tests/broken_test.c', link_with: small), protocol: 'tap')
""",
    "meson_options.txt": "option('bench', type: 'feature')\n",
    "src/a/small.c": """int twice(int a);
int unused(int a);
int twice(int a) { return a + a; }
int unused(int a) { return a + 1; }
int same(int a); int same(int a) { return a * 1; }
int hang(int a); int hang(int a) { while (a > 7) { } return a; }
""",
    "tests/small_test.c": """/* Guards: src/a/small.c */
#include <stdio.h>
int twice(int a);
int hang(int a);
int main(void) { printf("1..1\\n%s 1 - twice\\n", twice(hang(3)) == 6 ? "ok" : "not ok"); return 0; }
""",
    "tests/broken_test.c": """/* Guards: src/a/small.c */
#include <stdio.h>
int main(void) { puts("1..1\\nnot ok 1 - always"); return 0; }
""",
    "build/meson-logs/durations.json": json.dumps({"unit/small": 0.2, "unit/broken": 0.1}),
    ".gitignore": "/build*/\n"}
MUTANTS = ((3, "a + a", "a - a", "noticed", "unit/small"), (4, "a + 1", "a - 1", "missed", ""), (5, "a * 1", "a / 1", "no change", ""),
           (3, "a + a", "b + a", "does not compile", ""), (6, "a > 7", "a < 7", "noticed", "unit/small"), (1, "double", "long", "gone", ""))


def builds_and_tests():
    """a mutant is built and tested: noticed, missed, without effect, not compiled, or gone; what fails by itself is set aside"""
    with tempfile.TemporaryDirectory(prefix="weir-mutate-") as folder:
        root = pathlib.Path(folder)
        shutil.copytree(SCRIPT.parent, root / "scripts")
        for name, text in SMALL.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        subprocess.run(["git", "init", "--quiet", root], check=True)
        lines = SMALL["src/a/small.c"].split("\n")
        rows = [{"number": number, "file": "src/a/small.c", "line": line, "column": lines[line - 1].find(before) + 1 or 1,
                 "kind": "made up", "before": before, "after": after}
                for number, (line, before, after, *_) in enumerate(MUTANTS, 1)]
        mutate.write(root / "table", "# seed 1, part src, commit none", rows)
        done = subprocess.run([root / "scripts/mutate", "run", root / "table"], capture_output=True, text=True, timeout=250)
        found = [(row["state"], row["by"]) for row in mutate.read(root / "table")[1]]
        expect(found == [mutant[3:] for mutant in MUTANTS], *found, done)
        expect("unit/broken fails without a mutant as well" in done.stdout, done)
        expect((root / "src/a/small.c").read_text() == SMALL["src/a/small.c"], "the working tree is not as it was")


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


def names_files():
    """the tables of the project number their rows, and name files that exist: take out the rows of a file that is gone"""
    for table in sorted(SOURCE.glob("tests/mutants/*.tsv")):
        rows = mutate.read(table)[1]
        gone = sorted({row["file"] for row in rows if not (SOURCE / row["file"]).is_file()})
        expect(not gone and [row["number"] for row in rows] == [str(number + 1) for number in range(len(rows))], table, *gone)


def helps():
    """--help helps, and what is not known is refused with a sentence"""
    for words, status, sentence in ((["--help"], 0, "scripts/mutate draw TABLE SEED COUNT"), (["run", "/nowhere"], 1, "/nowhere"),
                                    *((words.split(), 1, "see scripts/mutate --help") for words in
                                      ("", "bogus t", "draw t", "draw t x 3", "draw t 1 3 docs", "again", "run t x", "report t u"))):
        done = subprocess.run([SCRIPT, *words], capture_output=True, text=True)
        expect(done.returncode == status and sentence in done.stdout + done.stderr and "Traceback" not in done.stderr, words, done)


run_checks([every_kind, spares, changes_that_change_nothing, weakens_orderings, seeds, tries_rows, sets_aside, moved_places, copies,
            builds_and_tests, reports, names_files, helps])
