#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
The static library: static_test.py [--tls] LIBRARY SOURCE_DIRECTORY COMPILER... Prints TAP.

--tls: hiredis knows TLS, and the library asks for its part of that.

Guards: src/localize
"""
import pathlib
import sys
import tempfile

import tap
from tap import Failed, run

LIBRARIES = ["-lhiredis", "-lyaml", "-lnettle", "-pthread"]


def main():
    arguments = [word for word in sys.argv[1:] if word != "--tls"]
    tls = ["-lhiredis_ssl", "-lssl", "-lcrypto"] if "--tls" in sys.argv else []
    library, source, compiler = pathlib.Path(arguments[0]), pathlib.Path(arguments[1]), arguments[2:]

    def names():
        """its global symbols are the public functions, and no others"""
        listed = run("nm", "-g", "--defined-only", library).splitlines()
        symbols = {line.split()[-1] for line in listed if len(line.split()) == 3}
        if "weir_open" not in symbols:
            raise Failed("weir_open is not in it")
        foreign = sorted(symbol for symbol in symbols if not symbol.startswith("weir_"))
        if foreign:
            raise Failed(f"{len(foreign)} names without the prefix weir_, such as {foreign[:10]}")

    def host():
        """a program with functions of the same names as those inside links with it and runs"""
        with tempfile.TemporaryDirectory(prefix="weir-static-") as place:
            program = pathlib.Path(place) / "host"
            run(*compiler, "-std=c11", f"-I{source}/include", source / "tests/install/static_host.c", library,
                *LIBRARIES, *tls, "-o", program)
            run(program)

    tap.main([names, host])


if __name__ == "__main__":
    main()
