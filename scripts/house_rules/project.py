# SPDX-License-Identifier: Apache-2.0
"""What belongs together and is written in two places: exports, the synchronization table, pages and names of files."""
import os
import re
import subprocess

from .tree import Finding, rule

PUBLIC = "include/weir/weir.h"
LOOPBACK = "src/transport/loopback/"
LIBRARIES = ("build-lint-gcc/src/libweir.so", "build/src/libweir.so")
FILE_NAME = re.compile(r"(?<![\w/.<-])((?:\w+/)*\w+\.(?:c|h|lua))\b(?!>)")


@rule("loopback", "libweir.so has no function of the in-memory fleet; judged where it is built")
def loopback(tree, table):
    built = [tree.root / path for path in LIBRARIES if (tree.root / path).exists()]
    names = {function.name: (source.path, function.line) for source in tree.sources("src")
             if source.path.startswith(LOOPBACK) for function in source.functions if not function.static}
    if not built or not names:
        return None
    library = max(built, key=lambda path: path.stat().st_mtime)
    done = subprocess.run(["nm", "--defined-only", str(library)], capture_output=True, text=True)
    if done.returncode != 0:
        return None
    symbols = {line.split()[-1] for line in done.stdout.splitlines() if line.split()}
    return [Finding(*names[name], f"{name} is in {library.relative_to(tree.root)}: only tests and the simulator use it, so "
                    "link it to them") for name in sorted(names.keys() & symbols)]


def in_table(text):
    """The functions that the synchronization table of the public header names."""
    names, inside = set(), False
    for line in text.split("\n"):
        if re.match(r" \*\s+call\s{2,}may run beside", line):
            inside = True
        elif inside and not line.strip(" *"):
            break
        elif inside:
            cell = re.split(r"\s{2,}", line.lstrip(" *"))[0]
            for word in cell.split(","):
                match = re.match(r"\s*(weir)?(_\w+)(?:\((_\w+)\))?", word)
                if match:
                    names.add("weir" + match.group(2))
                    names.update(["weir" + match.group(2) + match.group(3)] if match.group(3) else [])
    return names


@rule("synchronization", "each function of weir.h is in its synchronization table, and nothing else is")
def synchronization(tree, table):
    if not tree.exists(PUBLIC):
        return []
    source = tree.source(PUBLIC)
    declared = {name: line for line, name, text in source.declarations if text.startswith("WEIR_API")}
    listed = in_table(tree.text(PUBLIC))
    return [Finding(PUBLIC, line, f"{name} is not in the synchronization table: say what it may run beside")
            for name, line in declared.items() if name not in listed] + \
        [Finding(PUBLIC, 1, f"the synchronization table has {name}, which is declared nowhere: remove it")
         for name in sorted(listed - declared.keys())]


@rule("decisions", "each page of docs/decisions is linked from its README.md or the project's")
def decisions(tree, table):
    linked = set()
    for index in ("README.md", "docs/decisions/README.md"):
        if tree.exists(index):
            for target in re.findall(r"\]\(([^)#\s]+)", tree.text(index)):
                linked.add(os.path.normpath(os.path.join(os.path.dirname(index), target)))
    return [Finding(path, 1, "no index links this page: add it to docs/decisions/README.md or README.md")
            for path in tree.matching("docs/decisions/*.md") if path not in linked and not path.endswith("README.md")]


@rule("file-names", "a file that a comment of src and include names exists")
def file_names(tree, table):
    found = []
    names = {os.path.basename(path) for path in tree.files}
    for source in tree.sources():
        for comment in source.comments:
            for number, line in enumerate(comment.lines, comment.line):
                for name in FILE_NAME.findall(line):
                    # "redis/internal.h" is right where some path ends in it.
                    good = name in names if "/" not in name else any(f"/{path}".endswith(f"/{name}") for path in tree.files)
                    if not good:
                        found.append(Finding(source.path, number, f"there is no {name}: name the file that has it now"))
    return found


SUBJECT = 72


@rule("commits", f"a commit's subject is \"module: what changed\" in {SUBJECT} columns, and one of src has a body; from [commits] on")
def commits(tree, table):
    after = table["commits"].get("after")
    done = subprocess.run(["git", "-C", str(tree.root), "log", f"--since={after}", "--no-merges", "--name-only",
                           "--format=%x01%h%x02%s%x02%b%x02"], capture_output=True, text=True)
    if done.returncode != 0 or not after:
        return None
    found = []
    for entry in done.stdout.split("\x01")[1:]:
        name, subject, body, files = entry.split("\x02")
        place = f"commit {name}"
        if len(subject) > SUBJECT:
            found.append(Finding(place, 0, f"the subject has {len(subject)} columns, {SUBJECT} are the most: shorten it"))
        if not re.match(r"[\w./ -]+: \S", subject):
            found.append(Finding(place, 0, f"\"{subject}\" names no module: \"module: what changed\""))
        if not body.strip() and any(path.startswith("src/") for path in files.split()):
            found.append(Finding(place, 0, "a change of src without a body: say why, and how it was verified"))
    return found
