#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
The scripts read their arguments before they do anything: scripts_test.py SOURCE_DIRECTORY. Prints TAP.

Whatever would install or build is replaced by a program that writes down how it was called.

Guards: scripts/run, scripts/test, scripts/bench, scripts/setup, scripts/lint, scripts/servers, scripts/plots,
scripts/platform, scripts/suites.py, scripts/common.sh
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "install"))
from tap import Failed, Skipped, main as run_checks  # noqa: E402

SOURCE = pathlib.Path(sys.argv[1])
SCRIPTS = ("run", "test", "bench", "setup", "lint", "servers", "plots", "platform", "package", "docs")
# Says of every package that it is not installed.
RECORD = '#!/bin/sh\necho "$(basename "$0") $*" >>"$RECORD_PATH"\n'
SUDO = '#!/bin/sh\n[ "$1" != -n ] || shift\nexec "$@"\n'
RECORDED = ("apt-get", "apt-cache", "dpkg-query", "meson", "ninja", "clang", "clang-format", "cppcheck", "gnuplot", "pip")
HEAVY = {"clang", "clang-tidy", "cppcheck", "cmake", "spin", "valgrind", "libcmocka-dev", "libbenchmark-dev", "g++",
         "python3-pip", "mmdebstrap", "lintian", "strace"}


def call(*words, record_python=False):
    """Exit status, output and the recorded calls of a script."""
    with tempfile.TemporaryDirectory(prefix="weir-scripts-") as place:
        directory = pathlib.Path(place)
        for name in (*RECORDED, *(["python3"] if record_python else [])):
            (directory / name).write_text(RECORD)
            (directory / name).chmod(0o755)
        (directory / "sudo").write_text(SUDO)
        (directory / "sudo").chmod(0o755)
        record = directory / "record"
        record.touch()
        done = subprocess.run([SOURCE / "scripts" / words[0], *words[1:]], capture_output=True, text=True,
                              timeout=60,
                              env={**os.environ, "PATH": f"{place}:{os.environ['PATH']}", "RECORD_PATH": str(record)})
        return done.returncode, done.stdout + done.stderr, record.read_text().splitlines()


def expect(good, *what):
    if not good:
        raise Failed("\n".join(str(part) for part in what))


def helps():
    """--help and -h help at once"""
    for script in SCRIPTS:
        for option in ("--help", "-h"):
            status, output, calls = call(script, option)
            comment = (SOURCE / "scripts" / script).read_text().splitlines()[2].removeprefix("# ")
            expect(status == 0 and comment in output, script, option, status, output)
            expect(not calls, f"scripts/{script} {option} did something first:", *calls)


def refuses():
    """what is not known is refused with exit status 2 before anything is done"""
    cases = [(script, "--bogus") for script in SCRIPTS]
    cases += [("test", "unti"), ("test", "unit", "--bogus"), ("run", "--quick", "bogus"), ("run", "--seconds", "soon"),
              ("run", "--seconds"), ("run", "--fleet", "--nginx"), ("bench", "--quick", "--keys=5"), ("bench", "--only"), ("setup", "run", "test"),
              ("lint", "src"), ("test", "--for"), ("test", "--for", "src/nothing.c"), ("test", "unit", "--for"), ("servers",
                                                                      "build", "--bogus"), ("test", "--all", "unit"), ("test", "--steady", "unit"),
                                                                      ("platform",), ("platform", "arm46"),
              ("platform", "trixie", "arm64"), ("package", "--output")]
    for case in cases:
        status, output, calls = call(*case)
        expect(status == 2 and f"scripts/{case[0]}: " in output, case, status, output)
        expect(not calls, f"{case} did something first:", *calls)


def installed_by(*words):
    status, output, calls = call(*words, record_python=True)
    expect(status == 0, words, status, output)
    installs = [line.split() for line in calls if line.startswith("apt-get install")]
    return {word for words in installs for word in words[2:] if not word.startswith("-")}, calls


def small_set():
    """scripts/run installs and builds what the gateway needs, and no more"""
    packages, calls = installed_by("run", "--quick")
    expect({"meson", "gcc", "libhiredis-dev", "libmicrohttpd-dev"} <= packages, packages)
    # Without it hiredis that has TLS is not built with.
    expect("libssl-dev" in packages, packages)
    expect(not packages & (HEAVY | {"redis-server"}), "too many:", packages & (HEAVY | {"redis-server"}))
    built = [line.split() for line in calls if line.startswith("ninja ")]
    expect(len(built) == 1 and {"apps/gateway/weir-gateway", "apps/gateway/weir-traffic"} ==
           {word for word in built[0] if "/" in word}, *calls)
    with_redis, _ = installed_by("run", "--fleet", "--seconds", "3")
    expect(with_redis == packages | {"redis-server"}, with_redis ^ packages)
    with_nginx, calls = installed_by("run", "--nginx", "--quick")
    expect(with_nginx == packages | {"nginx", "nginx-dev", "libnginx-mod-stream"}, with_nginx ^ packages)
    expect(any(line.startswith("ninja ") and line.endswith(" apps/nginx/ngx_http_weir_module.so") for line in calls), *calls)


def whole_set():
    """scripts/setup without arguments installs what the tests need"""
    packages, _ = installed_by("setup")
    expect(HEAVY | {"redis-server", "nginx", "nginx-dev", "wrk"} <= packages, HEAVY - packages)
    expect(packages == installed_by("setup", "test")[0], packages)
    status, output, calls = call("setup", "--list", "test")
    expect(status == 0 and set(output.split()) == packages and not calls, output, *calls)


def copy_of_scripts(place):
    """A directory that has the scripts and nothing else, for what they make beside themselves."""
    tree = pathlib.Path(place).resolve() / "a tree"
    shutil.copytree(SOURCE / "scripts", tree / "scripts")
    (tree / "debian").mkdir()
    shutil.copy(SOURCE / "debian/control", tree / "debian")
    return tree


def in_namespace(*words, **options):
    """Runs words with mounts of its own, as root of a user namespace where this is not run by root."""
    user = [] if os.getuid() == 0 else ["--user", "--map-root-user"]
    if subprocess.run(["unshare", "--mount", "--pid", "--fork", *user, "true"], capture_output=True).returncode != 0:
        raise Skipped("namespaces are not allowed here")
    return subprocess.run(["unshare", "--mount", *user, *words], capture_output=True, text=True, timeout=60, **options)


def keeps_what_is_mounted():
    """a chroot is not removed while something is mounted in it"""
    with tempfile.TemporaryDirectory(prefix="weir-scripts-") as place:
        tree = copy_of_scripts(place)
        of_host = tree / "of the host"
        cache = tree / "cache/weir"
        mounted = cache / "trixie/srv/place"
        environment = {**os.environ, "XDG_CACHE_HOME": str(tree / "cache")}
        for directory in (of_host, mounted):
            directory.mkdir(parents=True)
        (of_host / "kept").touch()
        mount = 'mount --bind "$1" "$2" && exec scripts/platform --remove'
        done = in_namespace("bash", "-c", mount, "bash", of_host, mounted, cwd=tree, env=environment)
        expect((of_host / "kept").exists(), "what was mounted is gone", done)
        expect(done.returncode == 1 and f"is not removed: mounted in it: {mounted}\n" in done.stderr, done)
        done = in_namespace("scripts/platform", "--remove", cwd=tree, env=environment)
        expect(done.returncode == 0 and not (cache / "trixie").exists(), done)


def chroot_packages():
    """the chroot is of the archive that apt has Debian from; without it the tests are skipped, and fail with CI set"""
    with tempfile.TemporaryDirectory(prefix="weir-scripts-") as place:
        tree = copy_of_scripts(place)
        programs, record = tree / "programs", tree / "record"
        programs.mkdir()
        for name, text in {"apt-get": "#!/bin/sh\n[ $1 != indextargets ] || echo http://archive.example/debian/\n",
                           "dpkg-query": "#!/bin/sh\necho installed\n",
                           "mmdebstrap": RECORD + 'echo "E: there is no archive" >&2\nexit 1\n'}.items():
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "RECORD_PATH": str(record), "CI": "",
                       "XDG_CACHE_HOME": str(tree / "cache")}
        done = in_namespace("scripts/platform", "trixie", cwd=tree, env=environment)
        expect(done.returncode == 0 and "1..0 # SKIP no chroot of Debian here: E: there is no archive" in done.stdout, done)
        called = record.read_text().split()
        expect(called[-1] == "http://archive.example/debian/", called)
        packages = next(word for word in called if word.startswith("--include=")).removeprefix("--include=").split(",")
        expect({"gcc", "redis-server", "libhiredis-dev", "libhiredis-dev:arm64", "libcmocka-dev:arm64"} <= set(packages),
               packages)
        unneeded = HEAVY - {"libcmocka-dev"}
        expect(not set(packages) & (unneeded | {"libck-dev:arm64"}), packages)
        for platform in ("arm64", "package"):
            done = in_namespace("scripts/platform", platform, cwd=tree, env={**environment, "CI": "true"})
            expect(done.returncode == 1 and done.stdout.startswith("not ok - there is a chroot of Debian: "), done)


# What meson writes of a build: two tests of one program, one that soaks, one of Python, and a model's.
INTROSPECTION = """
import json, os, pathlib, sys
if sys.argv[1] == "setup":
    tree, info = os.getcwd(), pathlib.Path("build/meson-info")
    info.mkdir(parents=True)
    program = tree + "/build/tests/unit_x_test"
    pathlib.Path("build/build.ninja").touch()
    json.dump([{"filename": [program], "target_sources": [{"sources": [tree + "/tests/unit/x_test.c"]}]}], open(info / "intro-targets.json", "w"))
    json.dump([{"name": "unit/x", "suite": ["weir:unit"], "cmd": [program]},
               {"name": "few/x", "suite": ["weir:unit"], "cmd": [program]},
               {"name": "soak/x", "suite": ["weir:soak"], "cmd": [program]},
               {"name": "gateway/y", "suite": ["weir:gateway"], "cmd": ["python3", tree + "/build/../tests/gateway/y_test.py", tree]},
               {"name": "model/m", "suite": ["weir:model"], "cmd": [tree + "/tests/model/run"]}], open(info / "intro-tests.json", "w"))
"""


def tests_of_files():
    """scripts/test --for runs the tests that guard files, and no others"""
    with tempfile.TemporaryDirectory(prefix="weir-scripts-") as place:
        tree = copy_of_scripts(place)
        for name, text in {"src/x.c": "", "src/x.h": "", "src/m.c": "", "src/none.c": "", "src/away.c": "",
                           "tests/unit/x_test.c": "/* Guards: src/x.c */",
                           "tests/gateway/y_test.py": "# Guards: src/x.h", "tests/model/m.pml": "/* Guards: src/m.c */",
                           "tests/unit/away_test.c": "/* Guards: src/away.c */",
                           "programs/meson": RECORD + f"exec python3 -c '{INTROSPECTION}' \"$@\"\n",
                           "programs/ninja": RECORD,
                           "programs/dpkg-query": "#!/bin/sh\necho installed\n"}.items():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            (tree / name).write_text(text)
            if name.startswith("programs/"):
                (tree / name).chmod(0o755)
        record = tree / "record"
        environment = {**os.environ, "PATH": f"{tree}/programs:{os.environ['PATH']}", "RECORD_PATH": str(record)}

        def call_in(folder, *files):
            record.write_text("")
            done = subprocess.run([tree / "scripts/test", "--for", *files], cwd=tree / folder, capture_output=True,
                                  text=True,
                                  timeout=60, env=environment)
            return done, [line.split("--timeout-multiplier 3 ")[1] for line in record.read_text().splitlines() if "--timeout-multiplier" in line]

        for folder, files, wanted in ((".", ["src/x.c"], "few/x unit/x"), ("src", ["x.h"], "few/x gateway/y unit/x"),
                                      ("tests", ["src/m.c"], "model/m"),
                                      (".", ["src/m.c", "tests/unit/x_test.c"], "few/x model/m unit/x")):
            done, tests = call_in(folder, *files)
            expect(done.returncode == 0 and tests == [wanted], files, tests, done)
        for name, status, sentence in (("src/nothing.c", 2, 'there is no file "src/nothing.c": give a path below'),
                                       ("src/none.c", 2, 'no test guards "src/none.c"'),
                                       ("src/away.c", 2, "tests/unit/away_test.c is not a test of this build")):
            done, tests = call_in(".", "src/x.c", name)
            expect(done.returncode == status and f"scripts/test: {sentence}" in done.stderr and not tests, name, done)


# What meson says: a test with two cases, one with a bad case, one that dies, one without cases; then which of them failed.
SAID = """ninja: no work to do.
 1/4 weir:unit / unit/a        RUNNING
>>> build/tests/unit_a_test
 2/4 weir:unit+thread / unit/b RUNNING
▶  1/4 - first OK
▶  2/4 - bad FAIL
▶  1/4 - second # of two OK
 1/4 weir:unit / unit/a        OK               0.21s   2 subtests passed
 2/4 weir:unit+thread / unit/b ERROR            0.30s   exit status 1
 3/4 weir:unit / unit/c        RUNNING
 4/4 weir:unit / unit/d        RUNNING
 3/4 weir:unit / unit/c        TIMEOUT          9.00s   killed by signal 15 SIGTERM
"""
SAID_LAST = """ 4/4 weir:unit / unit/d        OK               0.10s
Summary of Failures:
 2/4 weir:unit+thread / unit/b ERROR            0.30s   exit status 1
 3/4 weir:unit / unit/c        TIMEOUT          9.00s   killed by signal 15 SIGTERM
"""


def counts():
    """a test that dies, and a run that ends before its tests do, are failures"""
    sys.path.insert(0, str(SOURCE / "scripts"))
    import suites
    path = os.environ["PATH"]
    with tempfile.TemporaryDirectory(prefix="weir-scripts-") as place:
        meson = pathlib.Path(place) / "meson"
        os.environ["PATH"] = f"{place}:{path}"

        def events(text, status):
            meson.write_text(f"#!/bin/sh\ncat <<'END'\n{text}END\nexit {status}\n")
            meson.chmod(0o755)
            found = list(suites.meson_events(pathlib.Path(place), []))
            ended = [(test, rest[0]) for kind, test, *rest in found if kind == "test"]
            return ended, [(test, rest[0]) for kind, test, *rest in found if kind == "case" and rest[1] == "FAIL"], len(found)

        bad = [("unit/b", "bad"), ("unit/c", "ends well (timeout)")]
        whole = events(SAID + SAID_LAST, 1)
        expect(whole == ([("unit/a", "OK"), ("unit/b", "ERROR"), ("unit/c", "TIMEOUT"), ("unit/d", "OK")], bad, 8), whole)
        _, failed, _ = events(SAID, 1)
        expect(failed[:2] == bad and failed[2][1].startswith("runs all tests: 3 of 4 ended, exit 1"), failed)
        _, failed, _ = events("ninja: error: no such thing\n", 1)
        expect(len(failed) == 1 and "ninja: error: no such thing" in failed[0][1], failed)
        expect(events("No suitable tests defined.\n", 0) == ([], [], 0), "nothing to run")
        os.environ["PATH"] = path


def says_what_failed():
    """what a test printed is printed again when it fails"""
    with tempfile.TemporaryDirectory(prefix="weir-scripts-") as place:
        tree = pathlib.Path(place)
        (tree / "meson.build").write_text("""project('x')
add_test_setup('default', is_default: true)
add_test_setup('all')
test('unit/bad', find_program('bad'), suite: ['unit', 'long'], protocol: 'tap')
test('unit/good', find_program('good'), suite: 'unit', protocol: 'tap')
""")
        for name, text in {"bad": "echo 1..1; echo not ok - broken; echo '# expected 3'; exit 1", "good": "echo 1..1; echo ok - whole"}.items():
            (tree / name).write_text("#!/bin/sh\n" + text + "\n")
            (tree / name).chmod(0o755)
        program = ("import pathlib, sys; sys.path.insert(0, sys.argv[1]); import suites; build = pathlib.Path(sys.argv[2]) / 'build'; "
                   "suites.configure(build, root=sys.argv[2]); print(suites.run_tests(build, sys.argv[3:]))")
        for words in ([], ["--setup", "all"]):
            done = subprocess.run([sys.executable, "-c", program, SOURCE / "scripts", tree, *words], capture_output=True, text=True, timeout=120)
            expect("== unit/bad\n" in done.stdout and "# expected 3\n" in done.stdout and "== unit/good" not in done.stdout, words, done)
            expect(done.stdout.endswith("not ok - unit/bad: broken\n(1, 1)\n"), words, done)


def steadiness():
    """scripts/test --steady goes on where it was stopped, and fails if one of its runs did"""
    with tempfile.TemporaryDirectory(prefix="weir-scripts-") as place:
        tree = copy_of_scripts(place)
        (tree / "build").mkdir()
        kept = tree / "build/steady.txt"
        for last, status in (("3 passed, 0 failed", 0), ("3 passed, 10 failed", 1), ("", 1)):
            (tree / "scripts/test").write_text(f"#!/bin/sh\necho run >>'{tree}/runs'\nprintf '{last}'\n")
            (tree / "runs").write_text("")
            kept.write_text("run 1 of 6, scripts/test : 3 passed, 0 failed\nrun 2 of 6, scripts/test : 3 passed, 0 failed\n")
            done = subprocess.run(["python3", tree / "scripts/suites.py", "--steady"], capture_output=True, text=True, timeout=60)
            runs = (tree / "runs").read_text().count("run")
            expect(done.returncode == status and runs == 4 and not kept.exists(), last, runs, done)


run_checks([counts, says_what_failed, steadiness, helps, refuses, small_set, whole_set, keeps_what_is_mounted, chroot_packages, tests_of_files])
