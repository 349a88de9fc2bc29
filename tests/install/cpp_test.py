#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
README's program, the examples and weir.hpp as C++: cpp_test.py SOURCE_DIRECTORY [LIBRARY]. Prints TAP.

With LIBRARY, a libweir.so, the test of weir.hpp is compiled and run with clang++ and AddressSanitizer as well. meson
compiles and runs that test with the compiler of the build.

Guards: include/weir/weir.h, include/weir/weir.hpp, README.md, docs/embedding.md, docs/examples/limiter.cpp
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import tap
from tap import Failed, Skipped, run

STANDARDS = ("c++11", "c++17", "c++20")

# Those of weir.hpp, with what its programs ask of a compiler.
WRAPPER_STANDARDS = ("c++17", "c++20")
WRAPPER_WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror")

WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")

# What an example includes that may not be there.
LIBRARIES = ("uv.h", "event2/event.h", "microhttpd.h")


def compiled_by(compiler, source):
    def check():
        if shutil.which(compiler) is None:
            raise Skipped(f"there is no {compiler}")
        program = re.search(r"```c\n(.*?)```", (source / "README.md").read_text(), re.S)
        if program is None:
            raise Failed("there is no program in README.md")
        with tempfile.TemporaryDirectory(prefix="weir-cpp-") as place:
            file = pathlib.Path(place) / "program.cpp"
            file.write_text(program.group(1))
            for standard in STANDARDS:
                run(compiler, f"-std={standard}", *WARNINGS, f"-I{source}/include", "-fsyntax-only", file)
    check.__doc__ = f"{compiler} takes README's program as {', '.join(STANDARDS)} without a warning"
    return check


def includes(compiler, header):
    result = subprocess.run([compiler, "-x", "c++", "-fsyntax-only", "-"], input=f"#include <{header}>\n", text=True,
                            capture_output=True, check=False)
    return result.returncode == 0


def examples_by(compiler, source):
    def check():
        if shutil.which(compiler) is None:
            raise Skipped(f"there is no {compiler}")
        away = [header for header in LIBRARIES if not includes(compiler, header)]
        examples = sorted((source / "docs/examples").glob("*.c"))
        if len(examples) < 10:
            raise Failed(f"there are {len(examples)} examples")
        for example in examples:
            if not any(f"#include <{header}>" in example.read_text() for header in away):
                # The clocks of a host's own have designated initializers, which C++ has had since C++20.
                run(compiler, "-std=c++20", *WARNINGS, f"-I{source}/include", "-fsyntax-only", "-x", "c++", example)
    check.__doc__ = f"{compiler} takes the examples as c++20 without a warning"
    return check


def wrapper_by(compiler, source):
    def check():
        if shutil.which(compiler) is None:
            raise Skipped(f"there is no {compiler}")
        for standard in WRAPPER_STANDARDS:
            options = [f"-std={standard}", *WRAPPER_WARNINGS, f"-I{source}/include", "-fsyntax-only", "-x", "c++"]
            run(compiler, *options, source / "docs/examples/limiter.cpp")
            run(compiler, *options, "-fno-exceptions", "-include", "weir/weir.hpp", "/dev/null")
        refused = subprocess.run([compiler, "-std=c++14", f"-I{source}/include", "-fsyntax-only", "-x", "c++", "-"],
                                 input="#include <weir/weir.hpp>\n", text=True, capture_output=True, check=False)
        if refused.returncode == 0 or "weir.hpp needs C++17" not in refused.stderr:
            raise Failed(f"as C++14: exit {refused.returncode}\n{refused.stderr}")
    check.__doc__ = f"{compiler} takes weir.hpp as {', '.join(WRAPPER_STANDARDS)}, with and without exceptions, without a warning"
    return check


# Each pair is a call of weir.hpp and the call of weir.h that it stands for.
CALLS = """
#include <weir/weir.hpp>
#ifdef WRAPPED
#define PAIR(with_hpp, with_h) with_hpp
using thread = weirpp::handle;
using limiter = weirpp::limiter;
using verdict = weirpp::verdict;
#else
#define PAIR(with_hpp, with_h) with_h
struct thread { weir_thread *t; };
struct limiter { void *functions; weir *w; };
using verdict = weir_verdict;
#endif
extern "C" bool check(thread &t, const weir_key &k) { return PAIR(t.check(k), weir_check(t.t, &k, 1, nullptr)); }
extern "C" bool answer(thread &t, const weir_key &k, uint64_t cost, verdict &v)
{ return PAIR(t.check(k, cost, v), weir_check(t.t, &k, cost, &v)); }
extern "C" size_t burst(thread &t, const weir_key *k, size_t n, uint64_t *bits)
{ return PAIR(t.check_burst(k, nullptr, n, bits), weir_check_burst(t.t, k, nullptr, n, bits)); }
extern "C" bool all(thread &t, const weir_key *k, verdict &v)
{ return PAIR(t.check_all(k, nullptr, 3, v), weir_check_all(t.t, k, nullptr, 3, &v)); }
extern "C" void refund(thread &t, const weir_key &k) { PAIR(t.refund(k, 2), weir_refund(t.t, &k, 2)); }
extern "C" weir_key key(limiter &l, weir_policy_id p, const char *data, size_t length)
{ return PAIR(l.make_key(p, std::string_view(data, length)), weir_make_key(l.w, p, data, length)); }
extern "C" bool passed(const verdict &v) { return PAIR(v.allowed(), v.allowed); }
"""


def instructions(compiler, source, standard, place, *options):
    """The instructions of CALLS, without what the assembler alone reads."""
    file = place / "calls.cpp"
    file.write_text(CALLS)
    text = run(compiler, f"-std={standard}", "-O2", "-fno-asynchronous-unwind-tables", f"-I{source}/include", *options,
               "-S", "-o", "-", file)
    functions = text[text.index("check:"):]
    return [line.split("#")[0].split() for line in functions.splitlines() if not line.lstrip().startswith((".", "#"))]


def plain_calls_by(compiler, source):
    def check():
        if shutil.which(compiler) is None:
            raise Skipped(f"there is no {compiler}")
        with tempfile.TemporaryDirectory(prefix="weir-cpp-") as place:
            for standard in WRAPPER_STANDARDS:
                plain = instructions(compiler, source, standard, pathlib.Path(place))
                wrapped = instructions(compiler, source, standard, pathlib.Path(place), "-DWRAPPED")
                if plain != wrapped or not any("weir_check" in word for line in plain for word in line):
                    raise Failed("\n".join(["of weir.h:", *map(" ".join, plain), "of weir.hpp:", *map(" ".join, wrapped)]))
    check.__doc__ = f"{compiler} makes the same instructions of the checks of weir.hpp and those of weir.h"
    return check


def sanitized(compiler, source, library):
    def check():
        if library is None or shutil.which(compiler) is None:
            raise Skipped("there is no library to run with" if library is None else f"there is no {compiler}")
        with tempfile.TemporaryDirectory(prefix="weir-cpp-") as place:
            program = pathlib.Path(place) / "empty"
            if subprocess.run([compiler, "-fsanitize=address", "-x", "c++", "-o", program, "-"],
                              input="int main() {}\n", text=True, capture_output=True, check=False).returncode != 0:
                raise Skipped(f"{compiler} has no AddressSanitizer")
            for standard in WRAPPER_STANDARDS:
                program = pathlib.Path(place) / standard
                run(compiler, f"-std={standard}", *WRAPPER_WARNINGS, "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all",
                    f"-I{source}/include", source / "tests/unit/cpp/wrapper_test.cpp", library, "-pthread",
                    f"-Wl,-rpath,{library.parent}", "-o", program)
                run(program)
    check.__doc__ = f"the test of weir.hpp passes as {compiler} compiles it, under AddressSanitizer"
    return check


# The function of this name is for other languages; weir.hpp calls the one that takes a size.
NOT_WRAPPED = {"weir_get_stats"}


def whole(source):
    def check():
        """weir.hpp has every call of weir.h, and every field of weir_options"""
        header = (source / "include/weir/weir.h").read_text()
        wrapper = (source / "include/weir/weir.hpp").read_text()
        calls = set(re.findall(r"^WEIR_API [^(]*\b(weir_\w+)\(", header, re.M)) - NOT_WRAPPED
        called = set(re.findall(r"::(weir_\w+)\(", wrapper))
        options = re.search(r"^typedef struct weir_options {\n(.*?)^}", header, re.M | re.S)
        fields = set(re.findall(r"(\w+)(?:\[\d+\])?;", options.group(1))) - {"size", "reserved"}
        given = set(re.findall(r"\bhow\.(\w+) =", wrapper))
        if len(calls) < 30 or calls - called or len(fields) < 15 or fields - given:
            raise Failed(f"of {len(calls)} calls: {sorted(calls - called)}; of {len(fields)} options: {sorted(fields - given)}")
    return check


def page(source):
    def check():
        """the program of docs/embedding.md is docs/examples/limiter.cpp"""
        if tap.fenced(source / "docs/embedding.md", "cpp") != (source / "docs/examples/limiter.cpp").read_text():
            raise Failed("docs/embedding.md has another program")
    return check


def main():
    source = pathlib.Path(sys.argv[1])
    library = pathlib.Path(sys.argv[2]).resolve() if len(sys.argv) > 2 else None
    checks = [test(compiler, source) for compiler in ("g++", "clang++")
              for test in (compiled_by, examples_by, wrapper_by, plain_calls_by)]
    tap.main([*checks, sanitized("clang++", source, library), whole(source), page(source)])


if __name__ == "__main__":
    main()
