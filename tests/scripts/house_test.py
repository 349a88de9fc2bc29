#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
What scripts/house finds, and does not: house_test.py SOURCE_DIRECTORY. Prints TAP.

Guards: scripts/house, scripts/house.ini, scripts/house_rules/tree.py, scripts/house_rules/layers.py,
scripts/house_rules/names.py, scripts/house_rules/tags.py, scripts/house_rules/guards.py

Each rule is tried on a tiny tree that has its faults, and on one that has none.
"""
import collections
import contextlib
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "install"))
from tap import Failed, main as run_checks  # noqa: E402

SOURCE = pathlib.Path(sys.argv[1])
# `wanted` is what each finding in the faulty tree begins with, in their order.
Case = collections.namedtuple("Case", "faulty wanted clean table", defaults=("",))


def function(head, body=""):
    return f"{head}\n{{\n{body}}}\n\n"


def public_header(*rows):
    table = "".join(f" *   {row}   anything but weir_close\n" for row in rows)
    return f"""/*
 *   call    may run beside
 *   ----    --------------
{table} *
 */
extern "C" {{
WEIR_API int weir_open(void);
WEIR_API void weir_stop(int (*done)(void));
}}
"""


ORDERED = """/*
 * Orders.
 *
 * Ordering
 *   [X1] a before b: of the one
 *        and of the other.
 *   [X2] c before d.
 */
"""
ENDS = """void x_put(void)
{
    put(); /* [X1] */
    put(); /* [X2] */
}

/* [X1] */
void x_get(void)
{
    get(); /* [X2] */
}
"""

CASES = {
    "includes": Case(
        {"src/fleet/x.c": '#include "base/b.h"\n#include "check/a.h"\n#include "check/b.h"\n',
         "src/fleet/y.c": '#include "support.h"\n', "tests/support.h": "",
         "src/check/a.h": "", "src/check/b.h": "", "src/base/b.h": "", "src/other/o.c": "",
         "apps/tool/main.c": '#include "base/b.h"\n#include "check/a.h"\n'},
        ["apps/tool/main.c:2: check/a.h is private to the library", "src/fleet/x.c:3: fleet may not include check/b.h",
         "src/fleet/y.c:1: fleet may not include support.h",
         "src/other/o.c:1: its folder has no row"],
        {"src/fleet/x.c": '#include "check/a.h"\n#include <stdio.h>\n#include "weir/weir.h"\n',
         "src/fleet/y.c": '/*\n#include "check/b.h"\n*/\n',
         "src/check/a.h": "", "src/check/b.h": "", "include/weir/weir.h": "",
         "tests/unit/a_test.c": '#include "check/b.h"\n'},
        "[floors]\nbase =\nfleet = base check/a.h\ncheck = base\n[outside]\napps/tool/* = base\n"),
    "adapters": Case(
        {"src/check/x.c": "#include <urcu/urcu-bp.h>\n", "src/base/rcu.c": "#include <urcu/urcu-bp.h>\n"},
        ["src/check/x.c:1: <urcu/urcu-bp.h> belongs in src/base/rcu.c"],
        {"src/base/rcu.c": "#include <urcu.h>\n", "bench/peer.c": "#include <urcu.h>\n"},
        "[adapters]\nurcu* = src/base/rcu.c\n"),
    "foreign": Case(
        {"src/a/x.h": function("static inline int x_do(void)") + "int y_do(struct s *s,\n         int (*f)(void));\n",
         "src/a/y.c": function("int y_do(struct s *s, int (*f)(void))")},
        ["src/a/x.h:5: y_do is defined in src/a/y.c"],
        {"src/a/y.h": "int y_do(void);\nint (*x_do)(void);\n", "src/a/y.c": function("int y_do(void)"),
         "src/a/x.c": function("int x_do(void)")}),
    "circles": Case(
        {"src/a/x.c": function("void x_do(void)", "    y_do();\n    below();\n"),
         "src/a/y.c": function("void y_do(void)", "    x_do();\n"),
         "src/a/above.c": function("void above(void)", "    x_do();\n"), "src/a/below.c": function("void below(void)")},
        ["src/a/x.c: calls y_do of src/a/y.c in a circle", "src/a/y.c: calls x_do of src/a/x.c in a circle"],
        {"src/a/x.c": function("void x_do(void)", "    y_do(); /* y calls x_do */\n"),
         "src/a/y.c": function("static void x_do(void)") + function("void y_do(void)", "    x_do();\n")}),
    "prefixes": Case(
        {"src/a/x.c": function("void x_do(void)") + function("int other(void)") + function("int\nnoun_go(void)"),
         "src/a/y.h": "/* Names: noun_ */\n", "src/b/y.h": "/* Names: noun_ */\n"},
        ["src/b/y.h:1: noun_ is a noun of src/a/y as well", "src/a/x.c:5: other does not begin",
         "src/a/x.c:9: noun_go does not begin"],
        {"src/a/x.h": "/* Names: noun_,\n * nouns_ */\n",
         "src/a/x.c": function("int noun_go(void)") + function("void(weir_stop)(void)") + function("int x(void)") +
         function("__attribute__((aligned(64))) int nouns_go(void)") + function("static int help(void)")}),
    "basenames": Case(
        {"src/a/log.h": "", "src/b/log.c": "", "src/weir.h": "", "include/weir/weir.h": ""},
        ["src/weir.h:1: include/weir/weir.h has this name", "src/b/log.c:1: src/a/log.h has this name"],
        {"src/a/log.h": "", "src/a/log.c": "", "src/a/weir.c": "", "include/weir/weir.h": "", "tests/a/log.c": ""}),
    "file-names": Case(
        {"src/a/x.c": "/* As place.c and\n * b/y.h do. */\n"},
        ["src/a/x.c:1: there is no place.c", "src/a/x.c:2: there is no b/y.h"],
        {"src/a/x.c": "/* As y.h and a/y.h do, and <stdio.h>. */\n", "src/a/y.h": "", "tests/x.c": "/* place.c */\n"}),
    "unused": Case(
        {"src/a/x.h": "#define SPARE 1\n#define USED 2\nint x_do(void);\n" + function("static inline int x_in(void)"),
         "src/a/x.c": function("int x_do(void)", "    return USED;\n") + function("int x_kept(void)"),
         "tests/x.c": "int x = x_do();\n"},
        ["src/a/x.c:1: only tests use x_do", "src/a/x.h:1: nothing uses SPARE", "src/a/x.h:4: nothing uses x_in",
         "scripts/house.ini: [unused] names x_gone"],
        {"src/a/x.h": "#ifndef X_H\n#define X_H\nint x_do(void);\nint x_kept(void);\n#endif\n",
         "src/a/x.c": function("int x_do(void)") + function("int x_kept(void)"), "apps/a.c": "int x = x_do();\n",
         "src/a/y.c": function("int x_gone(void)") + function("WEIR_API void weir_go(void)")},
        "[unused]\nx_kept = the host's debugger calls this\nx_gone = a function that was removed\n"),
    "synchronization": Case(
        {"include/weir/weir.h": public_header("weir_open, weir_close")},
        ["include/weir/weir.h:1: weir_close is declared or", "include/weir/weir.h:9: weir_stop is declared or"],
        {"include/weir/weir.h": public_header("weir_open,", "  weir_stop")}),
    "tags": Case(
        {"src/a/x.c": ORDERED + ENDS.replace("get(); /* [X2]", "get(); /* [X3]"),
         "apps/a/y.c": "/*\n * Ordering\n *   [X1] something else.\n */\n"},
        ["src/a/x.c:18: [X3] is defined nowhere", "src/a/x.c:5: [X1] is another ordering in apps/a/y.c",
         "src/a/x.c:7: [X2] lacks an end"],
        {"src/a/x.c": ORDERED + ENDS, "src/a/y.c": "/*\n * Ordering: [X1] and [X2] in x.c.\n */\n"}),
    "orderings-page": Case(
        {"src/a/x.c": ORDERED + ENDS, "docs/internals/orderings.md": "# Orderings\n"},
        ["docs/internals/orderings.md: it is not what the code says"],
        None),  # see orderings()
    "guards": Case(
        {"tests/unit/x_test.c": "/* A test. */\n", "tests/unit/x_test.cpp": "/* A test. */\n",
         "tests/unit/y_test.py": '"""\nGuards: scripts/house.ini\n"""\n',
         "tests/unit/z_test.c": "/*\n * Guards: src/a/x.c,\n * src/a/z.c\n */\n", "src/a/x.c": ""},
        ["tests/unit/x_test.c:1: no \"Guards:\" line", "tests/unit/x_test.cpp:1: no \"Guards:\" line",
         "tests/unit/z_test.c:3: src/a/z.c does not exist"],
        {"tests/unit/x_test.c": "/* Guards: src/a/x.c, src/a/y.c */\n", "src/a/x.c": "", "src/a/y.c": "",
         "tests/model/m.pml": "/* Guards: src/a/x.c */\n", "tests/support.c": ""}),
    "guarded": Case(
        {"tests/unit/x_test.c": "/* Guards: src/a/x.c */\n", "src/a/x.c": "", "src/a/y.c": "",
         "src/a/z.h": function("static inline int z_do(void)"), "src/r/s.lua": ""},
        ["src/a/y.c:1: no test guards this file", "src/a/z.h:1: no test guards this file",
         "src/r/s.lua:1: no test guards this file"],
        {"tests/unit/x_test.c": "/* Guards: src/a/x.c */\n", "src/a/x.c": "",
         "src/a/x.h": function("static inline int x_do(void)"), "src/a/z.h": "int z_do(void);\n"}),
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
    return subprocess.run([sys.executable, SOURCE / "scripts/house", "--tree", root, *words], capture_output=True,
                          text=True, timeout=60)


def expect(good, *what):
    if not good:
        raise Failed("\n".join(str(part) for part in what))


def findings(rule, files, table):
    with tree_of(files, table) as root:
        done = house(root, rule)
        found = done.stdout.splitlines()
        expect(done.stderr == "" and done.returncode == (1 if found else 0), done)
        expect(all(line.startswith(f"{rule}: ") for line in found), done)
        return [line.removeprefix(f"{rule}: ") for line in found]


def every_rule():
    """each rule has a case here"""
    done = subprocess.run([sys.executable, SOURCE / "scripts/house", "bogus"], capture_output=True, text=True)
    expect(done.returncode == 2 and 'there is no rule "bogus"' in done.stderr, done)
    rules = set(re.search(r"there are: (.*)", done.stderr).group(1).split(", "))
    expect(rules == CASES.keys(), rules ^ CASES.keys())


def finds_faults():
    """each rule finds the faults of a tiny tree, where they are"""
    for rule, case in CASES.items():
        found = findings(rule, case.faulty, case.table)
        good = len(found) == len(case.wanted) and all(map(str.startswith, found, case.wanted))
        expect(good, f"{rule} found:", *found, "wanted:", *case.wanted)


def finds_nothing():
    """no rule finds anything in a tiny tree that is as it ought to be"""
    for rule, case in CASES.items():
        found = [] if case.clean is None else findings(rule, case.clean, case.table)
        expect(not found, f"{rule} found:", *found)


def checks():
    """--check has a line for each rule, and fails for one finding"""
    with tree_of({"src/a/x.c": "/* As place.c does. */\n", "tests/x_test.c": "/* Guards: src/a/x.c */\n"},
                 "[floors]\na =\n") as root:
        (root / "docs/internals").mkdir(parents=True)
        (root / "docs/internals/orderings.md").write_text(house(root, "--orderings").stdout)
        done = house(root, "--check")
        broken = re.findall("^not ok - house: ([a-z-]+): ", done.stdout, re.M)
        expect(done.returncode == 1 and broken == ["file-names"], done.stdout)
        expect("\n  src/a/x.c:1: there is no place.c" in done.stdout, done.stdout)
        expect(len(re.findall("^(?:not )?ok - house: ", done.stdout, re.M)) == len(CASES), done.stdout)
        (root / "src/a/x.c").write_text("")
        done = house(root, "--check")
        expect(done.returncode == 0 and "not ok" not in done.stdout, done.stdout)


def orderings():
    """the page of orderings has each tag with its text and ends, every ordering, and satisfies its rule"""
    body = "    exchange_acquire(&a, load_relaxed(&b));\n    or_seq_cst(&a, 1);\n    or_seq_cst(&b, 1);\n"
    code = ORDERED + ENDS.replace("get();", "return load_acquire(&a);") + function("static void help(void)", body)
    with tree_of({"src/a/x.c": code}) as root:
        text = house(root, "--orderings").stdout
        entry = ("## X1\n\n`src/a/x.c`: a before b: of the one and of the other.\n\n"
                 "- `src/a/x.c`: `x_put`, `x_get` (load_acquire)\n")
        expect(entry in text, text)
        untagged = "- `src/a/x.c`: `help` (exchange_acquire, or_seq_cst, or_seq_cst)\n"
        expect(text.endswith(f"## Without a tag\n\n{untagged}"), text)
        (root / "docs/internals").mkdir(parents=True)
        (root / "docs/internals/orderings.md").write_text(text)
        expect(house(root, "orderings-page").returncode == 0, text)
        for strong, weak in (("load_acquire", "load_relaxed"), ("    or_seq_cst(&b, 1);\n", "")):
            (root / "src/a/x.c").write_text(code.replace(strong, weak))
            expect(house(root, "orderings-page").returncode == 1, strong)


def tests_of_files():
    """tests are found by the source they guard, a header's by its .c file"""
    files = {"src/a/x.c": '#include "a/state.h"\n', "src/a/x.h": "", "src/a/state.h": "", "src/a/y.c": "",
             "tests/u/x_test.c": "/* Guards: src/a/x.c */\n",
             "tests/u/both_test.c": "/* Guards: src/a/x.h,\n * scripts/house.ini */\n"}
    with tree_of(files) as root:
        both = "tests/u/both_test.c\ntests/u/x_test.c\n"
        cases = [(["src/a/x.c"], "tests/u/x_test.c\n"),
                 (["src/a/state.h"], "tests/u/x_test.c\n"),
                 (["src/a/x.h"], both),
                 (["scripts/house.ini", str(root / "src/a/x.c")], both),
                 (["tests/u/x_test.c"], "tests/u/x_test.c\n")]
        for words, wanted in cases:
            expect(house(root, "--tests", *words).stdout == wanted, words, house(root, "--tests", *words))
        for word, sentence in (("src/a/z.c", 'there is no file "src/a/z.c": give a path'),
                               ("src/a/y.c", 'no test guards "src/a/y.c": add it')):
            done = house(root, "--tests", "src/a/x.c", word)
            expect(done.returncode == 2 and sentence in done.stderr and done.stdout == "", done)


def follows_moves():
    """paths of guards follow files that have moved, when one file alone has the name"""
    with tree_of({"src/b/x.c": "", "src/c/y.c": "", "src/d/y.c": "", "tests/x.c": "", "src/a/kept.c": "",
                  "src/b/kept.c": "",
                  "tests/u/x_test.c": "/* Guards: src/a/x.c, src/a/y.c,\n * src/a/x.c.in, src/a/kept.c */\n"}) as root:
        done = house(root, "--follow-moves")
        text = (root / "tests/u/x_test.c").read_text()
        expect(text == "/* Guards: src/b/x.c, src/a/y.c,\n * src/a/x.c.in, src/a/kept.c */\n", text, done)
        expect(done.stdout == "tests/u/x_test.c:1: src/a/x.c is src/b/x.c\n", done)


def wrong_tables():
    """a table that cannot be read is refused with a sentence"""
    with tree_of({}, "nothing\n") as root:
        done = house(root)
        expect(done.returncode == 2 and "house.ini cannot be read" in done.stderr, done)
        expect("Traceback" not in done.stderr, done)


def helps():
    """--help helps, and an unknown option is refused"""
    for word, status, sentence in (("--help", 0, "scripts/house --follow-moves"),
                                   ("--bogus", 2, "see scripts/house --help")):
        done = subprocess.run([SOURCE / "scripts/house", word], capture_output=True, text=True)
        expect(done.returncode == status and sentence in done.stdout + done.stderr, word, done)


run_checks([every_rule, finds_faults, finds_nothing, checks, orderings, tests_of_files, follows_moves, wrong_tables,
            helps])
