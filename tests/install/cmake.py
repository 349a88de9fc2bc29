# SPDX-License-Identifier: Apache-2.0
"""find_package(weir) from a project of CMake's, with a weir that was installed below DESTDIR. For install_test.py."""
import re
import shutil
import subprocess

from tap import Failed, Skipped, fenced, run

# Around the lines of docs/embedding.md, for a program called server.
BEFORE = """\
cmake_minimum_required(VERSION 3.16)
project(host LANGUAGES C CXX)
add_executable(server embed.c)
"""
AFTER = """\
add_executable(static embed.c)
target_link_libraries(static PRIVATE weir::weir_static)
add_executable(wrapper limiter.cpp)
find_package(Threads REQUIRED)
target_link_libraries(wrapper PRIVATE weir::weir Threads::Threads)
target_compile_features(wrapper PRIVATE cxx_std_17)
"""

# Prints which versions, and which components, are found.
ASK = """\
cmake_minimum_required(VERSION 3.19)
project(ask LANGUAGES NONE)
foreach(words IN ITEMS @WORDS@)
  string(REPLACE " " ";" arguments "${words}")
  unset(weir_DIR CACHE)
  find_package(weir ${arguments} QUIET)
  message(STATUS "asked: ${words}: ${weir_FOUND}")
endforeach()
"""
FOUND = {"0.1": True, "0.1.0": True, "0.1.0 EXACT": True, "0": True, "0.1...0.2": True, "0.1...<0.1.1": True, "0.2": False,
         "0.1.9": False, "1": False, "1.0": False, "0.0": False, "0.0...<0.1.0": False}


def checks(prefix, tree, source, environment):
    """Those of a weir that was built in tree/build-own for the prefix."""
    place = prefix.parent
    staged = place / "staged"
    # Where Debian has libraries, the way from them to the headers is longer by a folder.
    architecture = run("cc", "-print-multiarch").strip()
    libdir = f"lib/{architecture}".rstrip("/")

    def needed():
        if shutil.which("cmake") is None:
            raise Skipped("there is no cmake")

    def configure(name):
        # Without a compiler cmake does not know the architecture's folder.
        return ["cmake", "-S", place / name, "-B", place / f"{name}-build", f"-DCMAKE_PREFIX_PATH={staged}{prefix}",
                "-DCMAKE_BUILD_TYPE=Debug", f"-DCMAKE_LIBRARY_ARCHITECTURE={architecture}"]

    def builds():
        """find_package(weir) finds what was installed below DESTDIR; programs of C and C++ link with both libraries"""
        needed()
        run("meson", "configure", tree / "build-own", f"-Dlibdir={libdir}")
        run("ninja", "-C", tree / "build-own", "install", env={**environment, "DESTDIR": str(staged)})
        # The files must lead to nothing outside of the staged tree.
        for file in (staged / str(prefix).lstrip("/")).glob("**/*.cmake"):
            if str(place) in file.read_text():
                raise Failed(f"{file} names an absolute path")
        host = place / "host"
        host.mkdir()
        (host / "CMakeLists.txt").write_text(BEFORE + fenced(source / "docs/embedding.md", "cmake") + AFTER)
        for example in ("embed.c", "limiter.cpp"):
            shutil.copy(source / "docs/examples" / example, host)
        run(*configure("host"), env=environment)
        run("cmake", "--build", place / "host-build", env=environment)
        for program, links in {"server": True, "wrapper": True, "static": False}.items():
            libraries = run("ldd", place / "host-build" / program, env=environment)
            if (f"{staged}{prefix}/{libdir}/libweir.so.0" in libraries) != links or ("libweir" in libraries) != links:
                raise Failed(f"{program}: {libraries}")
            if run(place / "host-build" / program, env=environment).count("served") < 20:
                raise Failed(f"{program} does not serve")

    def versions():
        """find_package(weir VERSION) accepts the series of the installed version alone"""
        needed()
        if not (staged / str(prefix).lstrip("/")).exists():
            raise Failed("nothing was installed")
        number = re.search(r"version (\d+)\.(\d+)", run("cmake", "--version"))
        if tuple(map(int, number.groups())) < (3, 19):
            raise Skipped("this cmake knows no ranges of versions")
        ask = place / "ask"
        ask.mkdir()
        (ask / "CMakeLists.txt").write_text(ASK.replace("@WORDS@", " ".join(f'"{words}"' for words in FOUND)))
        said = dict(re.findall(r"asked: (.*): (\w+)$", run(*configure("ask"), env=environment), re.M))
        wrong = {words: said.get(words) for words, found in FOUND.items() if (said.get(words) in ("1", "TRUE")) != found}
        if wrong:
            raise Failed(f"{wrong}")
        (ask / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.16)\nproject(ask LANGUAGES NONE)\n"
                                            "find_package(weir REQUIRED COMPONENTS tls)\n")
        refused = subprocess.run(configure("ask"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                 env=environment)
        if refused.returncode == 0 or "weir has no component tls" not in " ".join(refused.stdout.split()):
            raise Failed(refused.stdout)

    return [builds, versions]
