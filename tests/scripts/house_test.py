#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
What scripts/house finds, and does not: house_test.py SOURCE_DIRECTORY. Prints TAP.

Guards: scripts/house, scripts/house.ini, scripts/house_rules/tree.py, scripts/house_rules/includes.py,
scripts/house_rules/names.py, scripts/house_rules/shape.py, scripts/house_rules/prose.py, scripts/house_rules/tags.py,
scripts/house_rules/guards.py, scripts/house_rules/project.py

Each rule is tried on a tiny tree that has one fault, and on one that has none.
"""
import contextlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "install"))
from tap import Failed, main as run_checks  # noqa: E402

SOURCE = pathlib.Path(sys.argv[1])
FLOORS = "[floors]\nbase =\nfleet = base check/a.h\ncheck = base\n"
SHORT = "void x_do(void)\n{\n}\n"


def lines(count):
    return "int x;\n" * count


def many(count, folder="src/check", text="/* A header. */\n"):
    return {f"{folder}/f{number}.h": text for number in range(count)}


def callers(count):
    return {"src/check/seen.h": "", **{f"src/check/c{number}.c": '#include "check/seen.h"\n' for number in range(count)}}


def page(*entries):
    return "/*\n * call    may run beside\n" + "".join(f" *   {entry}   anything\n" for entry in entries) + " *\n */\n"


API = 'extern "C" {\nWEIR_API int weir_open(void);\nWEIR_API void weir_stop(int (*done)(void));\n}\n'
ORDERED = "/*\n * Orders.\n *\n * Ordering\n *   [X1] a before b: of the one\n *        and of the other.\n *   [X2] c before d.\n */\n"
ENDS = "void x_put(void)\n{\n    put(); /* [X1] */\n    put(); /* [X2] */\n}\n\n/* [X1] */\nvoid x_get(void)\n{\n    get(); /* [X2] */\n}\n"

# rule: (table, files with the fault, what each finding begins with, files without)
CASES = {
    "includes": (FLOORS + "[outside]\napps/tool/* = base\n",
                 {"src/fleet/x.c": '#include "base/b.h"\n#include "check/a.h"\n#include "check/b.h"\n', "src/check/a.h": "",
                  "src/check/b.h": "", "src/base/b.h": "",
                  "apps/tool/main.c": '#include "base/b.h"\n#include "check/a.h"\n',
                  "src/other/o.c": ""},
                 ["src/fleet/x.c:3: fleet may not include check/b.h", "src/other/o.c:1: the folder src/other has no row",
                  "apps/tool/main.c:2: check/a.h is of the library's inside"],
                 {"src/fleet/x.c": '#include "check/a.h"\n#include <stdio.h>\n#include "weir/weir.h"\n/* #include "check/b.h" */\n',
                  "src/check/a.h": "", "src/check/b.h": "", "include/weir/weir.h": "",
                  "tests/unit/a_test.c": '#include "check/b.h"\n'}),
    "adapters": ("[adapters]\nurcu* = src/base/rcu.c\n",
                 {"src/check/x.c": "#include <urcu/urcu-bp.h>\n", "src/base/rcu.c": "#include <urcu/urcu-bp.h>\n"},
                 ["src/check/x.c:1: <urcu/urcu-bp.h> belongs in src/base/rcu.c"],
                 {"src/base/rcu.c": "#include <urcu.h>\n", "bench/peer.c": "#include <urcu.h>\n"}),
    "foreign": ("", {"src/a/x.h": "struct s;\nint y_do(struct s *s,\n         int (*call)(void));\n",
                     "src/a/y.c": "int y_do(struct s *s, int (*call)(void))\n{\n}\n"},
                ["src/a/x.h:2: y_do is defined in src/a/y.c"],
                {"src/a/y.h": "int y_do(void);\n", "src/a/y.c": "int y_do(void)\n{\n}\n"}),
    "seen": ("[embedded]\ncheck/whole.h =\n", callers(17), ["src/check/seen.h:1: 17 .c files see this header"],
             {**callers(17), "src/check/whole.h": '#include "check/seen.h"\n'}),
    "unused-includes": ("", {"src/a/x.c": '#include "a/y.h"\n#include "a/z.h"\nint x = Y;\n',
                             "src/a/y.h": "#define Y 1\n",
                             "src/a/z.h": "extern const struct s z;\nstruct s *z_find(void); /* Y */\n"},
                        ["src/a/x.c:2: no name of a/z.h is used"],
                        {"src/a/x.c": '#include "a/x.h"\n#include "a/y.h"\n#include "a/z.h"\n#include <stdio.h>\nint x = sizeof(z.count);\n',
                         "src/a/x.h": "", "src/a/y.h": "struct y\n{\n    int count[3];\n};\n",
                         "src/a/z.h": "extern const struct s y, z;\n"}),
    "circles": ("", {"src/a/x.c": "void x_do(void)\n{\n    y_do();\n}\n",
                     "src/a/y.c": "void y_do(void)\n{\n    x_do();\n}\n"},
                ["src/a/x.c: 2 files call one another in a circle: x.c calls y_do of y.c; y.c calls x_do of x.c"],
                {"src/a/x.c": "void x_do(void)\n{\n    y_do(); /* y calls x_do */\n}\n",
                 "src/a/y.c": "static void x_do(void)\n{\n}\n\nvoid y_do(void)\n{\n    x_do();\n}\n"}),
    "prefixes": ("", {"src/a/x.c": SHORT + "\nint other(void)\n{\n}\n\nint\nnoun_go(void)\n{\n}\n",
                      "src/a/y.h": "/* Names: noun_ */\n",
                      "src/b/y.h": "/* Names: noun_ */\n"},
                 ["src/b/y.h:1: noun_ is a noun of src/a/y as well", "src/a/x.c:5: other has not its file's prefix",
                  "src/a/x.c:9: noun_go has not"],
                 {"src/a/x.c": "int noun_go(void)\n{\n}\n\nvoid(weir_stop)(void)\n{\n}\n\n__attribute__((aligned(64))) int nouns_go(void)\n{\n}\n\nstatic int help(void)\n{\n}\n",
                  "src/a/x.h": "/* Names: noun_,\n * nouns_ */\n"}),
    "statics": ("", {"src/a/x.c": "static int help(void)\n{\n}\n", "src/a/y.c": "static int help(void)\n{\n}\n"},
                ["src/a/x.c:1: static help is in src/a/y.c as well"],
                {"src/a/x.c": "static int help(void)\n{\n}\n", "tests/y.c": "static int help(void)\n{\n}\n"}),
    "basenames": ("", {"src/a/log.h": "", "src/b/log.c": "", "src/weir.h": "", "include/weir/weir.h": ""},
                  ["src/b/log.c:1: src/a/log.h has this base name", "src/weir.h:1: include/weir/weir.h has this base name"],
                  {"src/a/log.h": "", "src/a/log.c": "", "src/a/weir.c": "", "include/weir/weir.h": "",
                   "tests/a/log.c": ""}),
    "words": ("[words]\nlesson = demand_stats\nfold = merge @ src/fleet\n",
              {"src/a/lesson.c": "int lesson_count; /* a Lesson */\n", "src/fleet/x.c": "int unfold, fold;\n"},
              ["src/a/lesson.c:1: the file's name has \"lesson\": the word is demand_stats",
               "src/a/lesson.c:1: the code has \"lesson\"",
               "src/a/lesson.c:1: the comment has \"Lesson\"", "src/fleet/x.c:1: the code has \"fold\": the word is merge"],
              {"src/a/x.c": 'int lessons, fold = "lesson";\n'}),
    "unused": ("[unused]\nx_kept = the host's debugger calls this\nx_gone = a function that was removed\n",
               {"src/a/x.h": "#define SPARE 1\n#define USED 2\nint x_do(void);\nint x_kept(void);\nstatic inline int x_in(void)\n{\n}\n",
                "src/a/x.c": "int x_do(void)\n{\n    return USED;\n}\n\nint x_kept(void)\n{\n}\n",
                "tests/x.c": "int x = x_do();\n"},
               ["src/a/x.h:1: nothing uses SPARE", "src/a/x.c:1: only tests use x_do", "src/a/x.h:5: nothing uses x_in",
                "scripts/house.ini: [unused] names x_gone"],
               {"src/a/x.h": "#ifndef X_H\n#define X_H\nint x_do(void);\nint x_kept(void);\n#endif\n",
                "src/a/x.c": "int x_do(void)\n{\n}\n\nint x_kept(void)\n{\n}\n\nWEIR_API void weir_go(void)\n{\n}\n",
                "apps/a.c": "int x = x_do();\n", "src/a/y.c": "int x_gone(void)\n{\n}\n"}),
    "synchronization": ("", {"include/weir/weir.h": page("weir_open, _close") + API},
                        ["include/weir/weir.h:8: weir_stop is not in the synchronization table",
                         "include/weir/weir.h:1: the synchronization table has weir_close"],
                        {"include/weir/weir.h": page("weir_open, _stop") + API}),
    "decisions": ("", {"docs/decisions/001-a.md": "", "docs/decisions/002-b.md": "", "docs/decisions/003-c.md": "",
                       "README.md": "[a](docs/decisions/001-a.md)\n", "docs/decisions/README.md": "[b](002-b.md#why)\n"},
                  ["docs/decisions/003-c.md:1: no index links this page"],
                  {"docs/decisions/001-a.md": "", "README.md": "[a](docs/decisions/001-a.md)\n"}),
    "file-names": ("", {"src/a/x.c": "/* As place.c and\n * b/y.h do. */\n"}, ["src/a/x.c:1: there is no place.c",
                                                                      "src/a/x.c:2: there is no b/y.h"],
                   {"src/a/x.c": "/* As y.h and a/y.h do, and <stdio.h>. */\n", "src/a/y.h": "",
                    "tests/x.c": "/* place.c */\n"}),
    "who": ("", {"src/a/x.c": "/* The thread.\n * Who waits. */\n", "docs/a.md": "whoever\n```\nwho\n```\n"},
            ["src/a/x.c:2: \"Who\"", "docs/a.md:1: \"whoever\""],
            {"src/a/x.c": '/* The thread whose slot it is. */\nchar who[] = "who";\n'}),
    "leaning": ("", {"src/a/x.c": "/* Likewise. */\n/*\n * The same of a log.\n */\nint x; /* As before. */\nint y; /* a log, as above */\n"},
                ["src/a/x.c:1: \"Likewise\"", "src/a/x.c:3: \"The same\"", "src/a/x.c:5: \"As before\"",
                 "src/a/x.c:6: \"as above\""],
                {"src/a/x.c": "/* Reads the same word. As the lock is held, nothing changes. */\n"}),
    "sentences": ("", {"src/a/x.c": "/*\n * Short one. " + "A " + "word " * 14 + "\n * " + "word " * 15 + "end. Short.\n */\n"}, ["src/a/x.c:2: a sentence of 31 words, \"A word"],
                  {"src/a/x.c": "/*\n * " + "Word " * 29 + "end.\n * Next one, e.g. " + "word " * 20 + "\n *\n * " + "word " * 20 + "\n *   - " + "word " * 20 + "\n */\n"}),
    "md-columns": ("", {"docs/a.md": "a" * 100 + "\n" + "b" * 101 + "\n"}, ["docs/a.md:2: 101 columns"],
                   {"README.md": "|" + "a" * 200 + "\n```\n" + "b" * 200 + "\n```\n- [c](" + "c" * 200 + ")\nhttps://" + "d" * 200 + "\n"}),
    "function-lines": ("", {"src/a/x.c": "int x_do(int a,\n         int b)\n{\n" + lines(59) + "}\n"},
                       ["src/a/x.c:1: x_do has 61 lines"],
                       {"src/a/x.c": "int x_do(int a,\n         int b)\n{\n" + lines(58) + "}\n"}),
    "parameters": ("", {"src/a/x.c": "int x_do(int a, int b, int c, int d, int e, int f, int (*g)(int, int))\n{\n}\n"},
                   ["src/a/x.c:1: x_do has 7 parameters"],
                   {"src/a/x.c": "int x_do(int a, int b, int c, int d, int e, int (*f)(int, int))\n{\n}\n\nint x_none(void)\n{\n}\n"}),
    "file-lines": ("", {"src/a/x.c": lines(601)}, ["src/a/x.c:1: 601 lines"], {"src/a/x.c": lines(600),
                                                                      "include/weir/weir.h": lines(700)}),
    "file-lines-aim": ("", {"src/a/x.c": lines(401)}, ["src/a/x.c:1: 401 lines"], {"src/a/x.c": lines(400)}),
    "folder-files": ("", many(23), ["src/check: 23 modules"], many(20)),
    "numbers": ("", {"src/a/x.c": "/* SPDX */\n#define A 5\n\n#define B (1U << 3) /* bits */\n#define C UINT64_C(7)\n"},
                ["src/a/x.c:2: A is a number without", "src/a/x.c:5: C is a number"],
                {"src/a/x.c": "/* A group. */\n#define A 5\n#define B 6\n\n#define C A\n#define D(x) 5\n#define E 6 /* bits */\n\n#define F \\\n    7 /* bits */\n"}),
    "openings": ("", {"src/a/x.c": "/* SPDX */\n#include <a.h>\n/* A function. */\n"}, ["src/a/x.c:1: no opening comment"],
                 {"src/a/x.c": "/* SPDX */\n/* See x.h. */\n#include <a.h>\n", "src/a/y.h": "int y;\n"}),
    "nested-choices": ("", {"src/a/x.c": "int a = b ? c : d ? e : f;\nint g = b ? h(c ? d : e) : f;\nint i = b ? c ? d : e : f ? g : h;\n"},
                       ["src/a/x.c:1: ?: within ?:", "src/a/x.c:2: ?: within ?:", "src/a/x.c:3: ?: within ?:"],
                       {"src/a/x.c": "int a = f(b ? c : d, e ? f : g) + h[i ? j : k];\nint l = m ? '?' : 'n'; /* ? ? */\n"}),
    "phrases": ("[phrases]\nepoch = grant\\)* >> 32 ;; src/ ;; src/a/word.h ;; call slot_epoch\n",
                {"src/a/x.c": "int x;\nint y = (int) (load(grant) >> 32);\n"}, ["src/a/x.c:2: epoch: call slot_epoch"],
                {"src/a/word.h": "int x = grant >> 32;\n", "tests/x.c": "int x = grant >> 32;\n",
                 "src/a/y.c": "/* grant >> 32 */\n"}),
    "lua": ("", {"src/r/a.lua": "local first = 1\nlocal second = 2\nend\n",
                 "src/r/b.lua": "local second = 2 -- again\nend\nlocal first = 1\n"},
            ["src/r/b.lua:1: 2 of 2 lines stand in src/r/a.lua"],
            {"src/r/a.lua": "local first = 1\nend\n-- a comment of two\n",
             "src/r/b.lua": "local second = 2\nend\n-- a comment of two\n", "src/s/c.lua": "local first = 1\n"}),
    "tags": ("", {"src/a/x.c": ORDERED + ENDS.replace("[X2] */\n}\n\n", "[X3] */\n}\n\n"),
                  "src/a/y.c": "/*\n * [X1] in z.c.\n *\n * Ordering\n *   [X1] something else:\n * lost.\n */\n"},
             ["src/a/y.c:5: [X1] is another ordering in src/a/x.c", "src/a/y.c:6: the entry of [X1] is not indented",
              "src/a/x.c:7: [X2] has 1 of two ends",
              "src/a/x.c:12: [X3] is defined nowhere", "src/a/y.c:1: [X1] is said to be of z.c"],
             {"src/a/x.c": ORDERED + ENDS, "src/a/y.c": "/*\n * Ordering: [X1] and [X2] in x.c.\n */\n"}),
    "orderings-page": ("", {"src/a/x.c": ORDERED + ENDS, "docs/internals/orderings.md": "# Orderings\n"},
                       ["docs/internals/orderings.md: not what the tags"], None),
    "tests-say": ("", {"tests/unit/x_test.c": "/* A test. */\n", "tests/unit/x_test.cpp": "/* A test. */\n",
                       "tests/unit/y_test.py": '"""\nGuards: scripts/house\n"""\n'},
                       ["tests/unit/x_test.c:1: no \"Guards:\" line", "tests/unit/x_test.cpp:1: no \"Guards:\" line"],
                  {"tests/unit/x_test.c": "/*\n * Guards: src/a/x.c\n */\n",
                   "tests/model/m.pml": "/* Guards: src/a/x.c */\n", "tests/support.c": ""}),
    "guard-paths": ("", {"tests/unit/x_test.c": "/*\n * Guards: src/a/x.c,\n * src/a/z.c\n */\n", "src/a/x.c": ""},
                    ["tests/unit/x_test.c:3: src/a/z.c does not exist"],
                    {"tests/unit/x_test.c": "/* Guards: src/a/x.c, src/a/y.c */\n", "src/a/x.c": "", "src/a/y.c": ""}),
    "guarded": ("", {"tests/unit/x_test.c": "/* Guards: src/a/x.c */\n", "src/a/x.c": "", "src/a/y.c": "",
                     "src/a/z.h": "static inline int z_do(void)\n{\n}\n", "src/r/s.lua": ""},
                ["src/a/y.c:1: no test guards this file", "src/a/z.h:1: no test guards this file",
                 "src/r/s.lua:1: no test guards this file"],
                {"tests/unit/x_test.c": "/* Guards: src/a/x.c */\n", "src/a/x.c": "",
                 "src/a/x.h": "static inline int x_do(void)\n{\n}\n", "src/a/z.h": "int z_do(void);\n"}),
    # Judged by git: see commits(); and by what is built: see loopback_symbols().
    "commits": ("", None, [], {}),
    "loopback": ("", None, [], {"src/transport/loopback/l.c": SHORT}),
}


@contextlib.contextmanager
def tree_of(files, table=""):
    with tempfile.TemporaryDirectory(prefix="weir-house-") as place:
        root = pathlib.Path(place)
        for name, text in {**files, "scripts/house.ini": table}.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        yield root


def house(root, *words):
    return subprocess.run([sys.executable, SOURCE / "scripts/house", "--tree", root, "--table", root / "scripts/house.ini",
                           *words],
                          capture_output=True, text=True, timeout=60)


def findings(rule, files, table):
    with tree_of(files, table) as root:
        done = house(root, rule)
        if done.returncode != 0:
            raise Failed(f"{rule}: exit {done.returncode}\n{done.stderr}")
        return done.stdout.splitlines()[:-1], done.stdout.splitlines()[-1]


def expect(good, *what):
    if not good:
        raise Failed("\n".join(str(part) for part in what))


def rule_names():
    done = subprocess.run([sys.executable, SOURCE / "scripts/house", "bogus"], capture_output=True, text=True)
    expect(done.returncode == 2, done)
    return set(re.search(r"there are: (.*)", done.stderr).group(1).split(", "))


def every_rule():
    """each rule has a case here"""
    expect(rule_names() == CASES.keys(), rule_names() ^ CASES.keys())


def finds_faults():
    """each rule finds the fault of a tiny tree, where it is"""
    for rule, (table, faulty, wanted, _) in CASES.items():
        if faulty is not None:
            found, _ = findings(rule, faulty, table)
            good = len(found) == len(wanted) and all(line.startswith(begin) for line, begin in zip(found, wanted))
            expect(good, f"{rule} found:", *found, "wanted:", *wanted)


def finds_nothing():
    """no rule finds anything in a tiny tree that is as it ought to be"""
    for rule, (table, _, _, clean) in CASES.items():
        if clean is not None:
            found, _ = findings(rule, clean, table)
            expect(not found, f"{rule} found:", *found)


def weights():
    """what lies beyond a measure counts, not how often it is passed"""
    for rule, files, count in (("folder-files", many(23), 3), ("seen", callers(17), 17), ("circles", CASES["circles"][1],
                                                                      2), ("lua", CASES["lua"][1], 2)):
        _, last = findings(rule, files, "")
        expect(last == f"{rule}: {count} found, the ceiling is 0", last)


def ceilings():
    """a ceiling holds from both sides, and only goes down by itself"""
    files = {"src/a/x.c": "#define A 5\n\n#define B 6\n", "src/a/y.c": "/* y */\n"}
    for most, good, said in ((2, True, "ok - house: "), (1, False, "src/a/x.c:3: B is a number"), (3, False, "lower it")):
        with tree_of(files, f"[ceilings]\nnumbers = {most}\nopenings = 1\nunused = 2\ntests-say = 0\norderings-page = 1\n\n"
                     "[floors]\na =\n\n[aims]\nnumbers = 3\nguarded = 2\n") as root:
            (root / "tests").mkdir()
            (root / "tests/a_test.c").write_text("/* Guards: src/a/x.c, src/a/y.c */\n")
            done = house(root, "--check")
            expect((done.returncode == 0) == good and said in done.stdout, most, done.stdout)
            expect(len(re.findall("^(?:not )?ok - ", done.stdout, re.M)) == len(CASES), done.stdout)
            table = house(root).stdout
            expect(re.search(rf"^numbers +2 +{most} +3  ", table, re.M), table)
            house(root, "--lower")
            after = (root / "scripts/house.ini").read_text()
            expect(f"numbers = {min(most, 2)}\n" in after and after.endswith("numbers = 3\nguarded = 2\n"), after)


def loopback_symbols():
    """functions of the in-memory fleet are found in the library"""
    files = {"src/transport/loopback/l.c": "void loop_do(void)\n{\n}\n\nstatic int help(void)\n{\n}\n", "build/src/l.c": ""}
    for name, count in (("loop_do", 1), ("help", 0)):
        with tree_of(files) as root:
            subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", root / "build/src/libweir.so"],
                           input=f"void {name}(void) {{}}\n", text=True, check=True)
            found = house(root, "loopback").stdout.splitlines()
            expect(len(found) == count + 1, *found)
            expect(count == 0 or found[0].startswith("src/transport/loopback/l.c:1: loop_do is in build/src/libweir.so"),
                   *found)


def orderings():
    """the page of orderings has each tag with its text and ends, and satisfies its rule"""
    with tree_of({"src/a/x.c": ORDERED + ENDS}) as root:
        text = house(root, "--orderings").stdout
        expect("## X1\n\n`src/a/x.c`: a before b: of the one and of the other.\n\n- `src/a/x.c`: `x_put`, `x_get`\n" in text, text)
        (root / "docs/internals").mkdir(parents=True)
        (root / "docs/internals/orderings.md").write_text(text)
        expect(house(root, "orderings-page").stdout.startswith("orderings-page: 0 found"), text)


def tests_of_files():
    """tests are found by the source they guard, a header's by its .c file"""
    files = {"src/a/x.c": '#include "a/state.h"\n', "src/a/x.h": "", "src/a/state.h": "", "src/a/y.c": "",
             "tests/u/x_test.c": "/* Guards: src/a/x.c */\n",
             "tests/u/both_test.c": "/* Guards: src/a/x.h,\n * scripts/house.ini */\n"}
    with tree_of(files) as root:
        cases = [(["src/a/x.c"], "tests/u/x_test.c\n"), (["src/a/state.h"], "tests/u/x_test.c\n"), (["src/a/x.h"],
                                                                      "tests/u/both_test.c\ntests/u/x_test.c\n"),
                 (["scripts/house.ini", str(root / "src/a/x.c")], "tests/u/both_test.c\ntests/u/x_test.c\n"),
                 (["tests/u/x_test.c"], "tests/u/x_test.c\n")]
        for words, wanted in cases:
            expect(house(root, "--tests", *words).stdout == wanted, words, house(root, "--tests", *words))
        for word, sentence in (("src/a/z.c", 'there is no file "src/a/z.c": give a path'), ("src/a/y.c",
                                                                      'no test guards "src/a/y.c": add it')):
            done = house(root, "--tests", "src/a/x.c", word)
            expect(done.returncode == 2 and sentence in done.stderr and done.stdout == "", done)


def follows_moves():
    """paths of guards follow the files that git has moved"""
    text = "int x;\n" * 20
    with tree_of({"src/a/x.c": text, "src/a/y.c": text.replace("x", "y"),
                  "tests/u/x_test.c": "/* Guards: src/a/x.c, src/a/y.c, src/a/none.c */\n"}) as root:
        git = ["git", "-C", root, "-c", "user.name=t", "-c", "user.email=t@example.org"]
        for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"], ["mv", "src/a/x.c", "src/z.c"], ["commit",
                                                                      "-qm", "two"]):
            subprocess.run([*git, *words], check=True)
        (root / "src/b").mkdir()
        (root / "src/a/y.c").rename(root / "src/b/y.c")
        done = house(root, "--follow-moves")
        expect((root / "tests/u/x_test.c").read_text() == "/* Guards: src/z.c, src/b/y.c, src/a/none.c */\n", done)


def commits():
    """commits after a moment have a short subject with a module, and a body where they change src"""
    with tree_of({"src/a.c": ""}, "[commits]\nafter = 2026-01-01T00:00:00Z\n") as root:
        for number, (date, path, *words) in enumerate([("2025", "src/a.c", "no module"), ("2027", "src/a.c", "a: it",
                                                                      "Why."), ("2027", "docs/a.md", "docs: it"),
                                                       ("2027", "src/b.c", "a: without"), ("2027", "docs/b.md",
                                                                      "docs: " + "x" * 67), ("2027", "docs/c.md",
                                                                      "It is done")]):
            (root / path).parent.mkdir(exist_ok=True)
            (root / path).write_text(str(number))
            git = ["git", "-C", root, "-c", "user.name=t", "-c", "user.email=t@example.org"]
            environment = {**os.environ, "GIT_COMMITTER_DATE": f"{date}-06-01T00:00:{number:02}Z"}
            for command in (["init", "-q"], ["add", path], ["commit", "-q", *[part for word in words for part in ("-m",
                                                                      word)]]):
                subprocess.run([*git, *command], check=True, env=environment)
        found = [re.sub("commit [0-9a-f]+: ", "", line) for line in house(root, "commits").stdout.splitlines()]
        wanted = ['"It is done" names no module', "the subject has 73 columns", "a change of src without a body",
                  "commits: 3 found"]
        expect(len(found) == 4 and all(line.startswith(begin) for line, begin in zip(found, wanted)), *found)


def wrong_tables():
    """a table that cannot be meant is refused with a sentence"""
    for table, sentence in (("[ceilings]\nnumbres = 3\n", 'names the rule "numbres", which there is not'),
                            ("[aims]\nnumbers = few\n", "give a whole number"),
                            ("[phrases]\na = b\n", "[phrases] a: give regular expression"), ("nothing\n",
                                                                      "the table cannot be read")):
        with tree_of({}, table) as root:
            done = house(root)
            expect(done.returncode == 2 and sentence in done.stderr and "Traceback" not in done.stderr, table, done)


def helps():
    """--help helps, and what is not known is refused"""
    for words, status, sentence in ((["--help"], 0, "scripts/house --follow-moves"), (["--bogus"], 2,
                                                                      "see scripts/house --help"), (["bogus"], 2,
                                                                      'there is no rule "bogus"')):
        done = subprocess.run([SOURCE / "scripts/house", *words], capture_output=True, text=True)
        expect(done.returncode == status and sentence in done.stdout + done.stderr, words, done)


run_checks([every_rule, finds_faults, finds_nothing, weights, ceilings, loopback_symbols, orderings, tests_of_files,
            follows_moves, commits, wrong_tables, helps])
