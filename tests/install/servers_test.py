#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
The servers of docs/examples/servers, built as a user would against an installed weir, do what a server has to:
servers_test.py BUILD_DIRECTORY SOURCE_DIRECTORY. Prints TAP. They are built with AddressSanitizer, which finds leaks,
and with UndefinedBehaviorSanitizer. prefork_server has only the latter: the AddressSanitizer of gcc 12 lets a child
that is forked from a process with threads wait for ever for a lock that one of those threads held.

Guards: docs/examples/servers/http.h, docs/examples/servers/http_server.c, docs/examples/servers/libevent_server.c,
docs/examples/servers/libuv_server.c, docs/examples/servers/packets.c, docs/examples/servers/prefork_server.c
"""
import concurrent.futures
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import capture_check
import http_check
import tap
from tap import Failed, Skipped, run

SERVERS = ("http_server", "libuv_server", "libevent_server", "prefork_server")


def install(build, place):
    """Installs what the build has made below a folder, and returns the environment in which it is found."""
    run("meson", "install", "-C", build, "--no-rebuild", "--quiet", "--tags", "devel,runtime", "--destdir", place)
    found = list(place.glob("**/weir.pc"))
    if len(found) != 1:
        raise Failed(f"found {found}")
    prefix = next(line for line in found[0].read_text().splitlines() if line.startswith("prefix=")).split("=")[1]
    moved = place / prefix.lstrip("/")
    # As a prefix of one's own: the rest of the system stays where it is.
    found[0].write_text(found[0].read_text().replace(f"prefix={prefix}\n", f"prefix={moved}\n"))
    return {**os.environ, "PKG_CONFIG_PATH": str(found[0].parent), "LD_LIBRARY_PATH": str(found[0].parent.parent)}


def main():
    build, source = (pathlib.Path(path).resolve() for path in sys.argv[1:3])
    with tempfile.TemporaryDirectory(prefix="weir-servers-") as name:
        place = pathlib.Path(name)
        out, out_forked = place / "servers" / "build", place / "servers" / "forked"
        programs = {server: (out_forked if server == "prefork_server" else out) / server for server in SERVERS}
        pool = concurrent.futures.ThreadPoolExecutor(8)
        environment = {}
        waited = {}

        def builds():
            """they build outside of the tree against an installed weir, without a warning, and are below 300 lines"""
            shutil.copytree(source / "docs/examples/servers", place / "servers")
            environment.update(install(build, place / "root"))
            for folder, sanitizers, targets in (out, "address,undefined", []), (out_forked, "undefined", ["prefork_server"]):
                run("meson", "setup", folder, place / "servers", "--buildtype=debugoptimized", "-Dwerror=true", f"-Db_sanitize={sanitizers}",
                    "-Db_lundef=false", env=environment)
                run("ninja", "-C", folder, *targets, env=environment)
            libraries = run("ldd", out / "http_server", env=environment)
            if str(place / "root") not in libraries:
                raise Failed(libraries)
            for file in (place / "servers").glob("*.[ch]"):
                if len(file.read_text().splitlines()) >= 300:
                    raise Failed(f"{file.name} is too long for a program to copy")
            # The servers are tried at the same time: most of it is waiting.
            for server, program in programs.items():
                if program.exists():
                    waited[server] = pool.submit(http_check.check, program, environment)

        def serves(server):
            def check():
                if not (out / "http_server").exists():
                    raise Failed("it was not built")
                if server not in waited:
                    raise Skipped("its library is not there")
                waited[server].result()
            check.__doc__ = f"{server}: limits by client, refuses what is malformed, outlives slow clients, drains, leaks nothing"
            return check

        def respawns():
            """prefork_server replaces workers that die, and they go by the same counts"""
            http_check.check_respawn(programs["prefork_server"], environment)

        def takes_files():
            """packets: of a capture file what may pass is written, by the times of the file"""
            if not (out / "packets").exists():
                raise Skipped("there is no libpcap")
            capture_check.check_file(out / "packets", environment, place)

        def takes_interfaces():
            """packets: an interface is limited until SIGTERM"""
            if not (out / "packets").exists():
                raise Skipped("there is no libpcap")
            try:
                possible = subprocess.run(["unshare", "-n", "ip", "link", "set", "lo", "up"], capture_output=True).returncode == 0
            except OSError:
                possible = False
            if not possible:
                raise Skipped("there are no network namespaces to be had")
            capture_check.check_interface(out / "packets", environment, place)

        tap.main([builds, *map(serves, SERVERS), respawns, takes_files, takes_interfaces])


if __name__ == "__main__":
    main()
