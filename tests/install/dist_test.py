#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
The tarball of a release: dist_test.py SOURCE_DIRECTORY. Prints TAP.

meson dist packs what is committed: here the tree as it is, committed in a repository of the test's.

Guards: meson.build
"""
import os
import pathlib
import sys
import tarfile
import tempfile

import tap
from tap import Failed, run

# Nobody's own settings of git.
GIT = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", "GIT_AUTHOR_NAME": "test",
       "GIT_AUTHOR_EMAIL": "test@localhost", "GIT_COMMITTER_NAME": "test", "GIT_COMMITTER_EMAIL": "test@localhost"}
# The library, and of the unit tests those of the interface and of files: the others are built of the same lines.
PROGRAMS = ("unit_check_calls_test", "unit_policy_yaml_test", "unit_limiter_lifecycle_test")


def main():
    source = pathlib.Path(sys.argv[1])
    with tempfile.TemporaryDirectory(prefix="weir-dist-") as name:
        place = pathlib.Path(name)
        tree, unpacked = place / "tree", place / "unpacked"

        def packs():
            """meson dist makes a tarball of every file of the project, and of no other"""
            tap.copy_source(source, tree)
            for words in (["init", "--quiet"], ["add", "--all"], ["commit", "--quiet", "--message", "all"]):
                run("git", "-C", tree, *words, env=GIT)
            run("meson", "setup", tree / "build", tree, "-Dapps=disabled", "-Dnginx=disabled", "-Dtests=disabled", "-Dbench=disabled")
            run("meson", "dist", "-C", tree / "build", "--no-tests", "--formats", "gztar", env=GIT)
            made = sorted(path.name for path in (tree / "build/meson-dist").iterdir())
            version = run("meson", "introspect", "--projectinfo", tree / "build").split('"version": "')[1].split('"')[0]
            if made != [f"weir-{version}.tar.gz", f"weir-{version}.tar.gz.sha256sum"]:
                raise Failed(f"{made}")
            with tarfile.open(tree / "build/meson-dist" / made[0]) as archive:
                archive.extractall(unpacked)
            (unpacked / f"weir-{version}").rename(unpacked / "weir")
            packed = {str(path.relative_to(unpacked / "weir")) for path in (unpacked / "weir").rglob("*") if path.is_file()}
            known = set(run("git", "-C", tree, "ls-files", env=GIT).split("\n")) - {""}
            if packed != known or len(known) < 300:
                raise Failed(f"not in it: {sorted(known - packed)}, more: {sorted(packed - known)}")

        def builds():
            """what is in it builds where there is no git, and its unit tests pass"""
            build = place / "build"
            run("meson", "setup", build, unpacked / "weir", "--buildtype=debug", "-Dapps=disabled", "-Dnginx=disabled", "-Dbench=disabled")
            run("ninja", "-C", build, *(f"tests/{program}" for program in PROGRAMS))
            for program in PROGRAMS:
                run(build / "tests" / program, env={**os.environ, "CMOCKA_MESSAGE_OUTPUT": "TAP"})

        tap.main([packs, builds])


if __name__ == "__main__":
    main()
