#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
The gateway's units of systemd: units_test.py BUILD_DIRECTORY SOURCE_DIRECTORY. Prints TAP.

Guards: apps/gateway/service/weir-gateway.service.in, apps/gateway/service/gateway.env,
apps/gateway/service/gateway.yaml, apps/gateway/service/weir-gateway.socket, apps/gateway/meson.build
"""
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile

import tap
from tap import Failed, Skipped, run

BUILD, SOURCE = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
sys.path.insert(0, str(SOURCE / "apps/gateway"))
import demo  # noqa: E402

UNITS = ("weir-gateway.service", "weir-gateway@.service")
SOCKET = "apps/gateway/service/weir-gateway.socket"
EXPOSURE = 2.0  # of 10, as systemd-analyze counts; 1.4 when this was written


def need(program):
    if shutil.which(program) is None:
        if os.environ.get("CI"):
            raise Failed(f"{program} is missing; scripts/setup installs it")
        raise Skipped(f"there is no {program}")


def settings(unit):
    """Of each directive its values, in order."""
    found = {}
    for name, value in re.findall(r"^(\w+)=(.*)$", (BUILD / "apps/gateway" / unit).read_text(), re.M):
        found.setdefault(name, []).append(value)
    return found


def example():
    """The variables of gateway.env."""
    text = (SOURCE / "apps/gateway/service/gateway.env").read_text()
    return dict(re.findall(r"^(\w+)=(.*)$", text, re.M))


def command(directive, place, variables):
    """The words of a command as systemd makes them: ${X} is one word, $X as many as it has."""
    words = []
    for word in directive.split():
        if re.fullmatch(r"\$\w+", word):
            words += shlex.split(variables[word[1:]])
        else:
            words.append(re.sub(r"\$\{(\w+)\}", lambda found: variables[found[1]], word))
    words[0] = str(BUILD / "apps/gateway" / pathlib.Path(words[0]).name)
    return [str(place / "gateway.yaml") if word.endswith("/weir/gateway.yaml") else word for word in words]


def system_calls(words):
    """The calls of sets such as @system-service, sets in sets included."""
    groups = {}
    for line in run("systemd-analyze", "syscall-filter").splitlines():
        if line.startswith("@"):
            groups[line.strip()] = group = set()
        elif line.startswith("    ") and not line.strip().startswith("#"):
            group.add(line.strip())

    def expand(name):
        return set().union(*(expand(member) for member in groups[name])) if name.startswith("@") else {name}

    return set().union(*(expand(word) for word in words))


def main():
    with tempfile.TemporaryDirectory(prefix="weir-units-") as name:
        place = pathlib.Path(name)

        def copies():
            for unit in UNITS:
                text = (BUILD / "apps/gateway" / unit).read_text()
                (place / unit).write_text(re.sub(r"(?<=[=])\S*/weir-gateway(?= )", str(BUILD / "apps/gateway/weir-gateway"), text))
            shutil.copy2(SOURCE / SOCKET, place)
            return [place / unit for unit in UNITS]

        def verified():
            """systemd takes the units without a word"""
            need("systemd-analyze")
            said = run("systemd-analyze", "verify", "--man=no", *copies(), place / "weir-gateway.socket")
            if said.strip():
                raise Failed(said)

        def hardened():
            """what the units expose is little"""
            need("systemd-analyze")
            for unit in copies():
                done = subprocess.run(["systemd-analyze", "security", "--offline=yes", unit], capture_output=True, text=True)
                found = re.search(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
                if found is None:
                    raise Skipped(done.stderr.strip())  # before systemd 250
                if float(found[1]) > EXPOSURE:
                    raise Failed(done.stdout)

        def serve(*before):
            """Runs what the unit says, with the example's files, under load and through a reload."""
            unit = settings("weir-gateway.service")
            variables = {"OPTIONS": "", "MORE_OPTIONS": "", **example()}
            ports = {key: demo.free_port(kind) for key, kind in (("LISTEN", demo.socket.SOCK_DGRAM), ("HTTP", demo.socket.SOCK_STREAM))}
            if variables["LISTEN"] != ":7000" or "127.0.0.1:9100" not in variables["OPTIONS"]:
                raise Failed(f"the example is another one: {variables}")
            shutil.copy2(SOURCE / "apps/gateway/service/gateway.yaml", place)
            run(*command(unit["ExecReload"][0], place, variables))
            with_backend = demo.Demo(str(BUILD))
            try:
                variables.update(LISTEN=f"127.0.0.1:{ports['LISTEN']}", BACKEND=f"127.0.0.1:{with_backend.backend()}",
                                 OPTIONS=variables["OPTIONS"].replace("9100", str(ports["HTTP"])))
                gateway = with_backend.start(*before, *command(unit["ExecStart"][0], place, variables),
                                             stderr=subprocess.DEVNULL)
                demo.wait_for("it does not answer", lambda: demo.status(ports["HTTP"]), 60)
                out = run(BUILD / "apps/gateway/weir-traffic", "--to", variables["LISTEN"], "--client", "one,4,2000",
                          "--seconds", "1", "--json")
                returned = json.loads(out.splitlines()[-1])["clients"][0]["returned"]
                # strace is the one that was started, and the gateway its child.
                pid = gateway.pid if not before else int(pathlib.Path(
                    f"/proc/{gateway.pid}/task/{gateway.pid}/children").read_text().split()[0])
                os.kill(pid, signal.SIGHUP)
                demo.wait_for("it does not reload", lambda: demo.status(ports["HTTP"])["reloads"] == 1, 60)
                os.kill(pid, signal.SIGTERM)
                if gateway.wait(60) != 0 or returned == 0:
                    raise Failed(f"exit {gateway.returncode}, {returned} packets came back")
            finally:
                with_backend.close()

        def serves():
            """with the files of the example its command serves, reloads and ends"""
            if settings("weir-gateway.service")["Type"] != ["notify"]:
                raise Failed("the gateway notifies")
            serve()

        def permitted():
            """what it asks of the kernel meanwhile the units permit"""
            need("strace")
            need("systemd-analyze")
            try:
                run("strace", "-o", place / "calls", "true")
            except Failed as reason:
                raise Skipped(f"processes cannot be traced here: {reason}")
            serve("strace", "-f", "-qq", "-o", place / "calls")
            called = set(re.findall(r"^\d+ +(\w+)\(", (place / "calls").read_text(), re.M)) - {"execve"}
            filters = settings("weir-gateway.service")["SystemCallFilter"]
            allowed = system_calls(["@default", *filters[0].split()]) - system_calls(filters[1].removeprefix("~").split())
            if not {"recvmmsg", "sendmmsg"} & called or called - allowed:
                raise Failed(f"not permitted: {sorted(called - allowed)}, of {sorted(called)}")
            families = set(re.findall(r"\bsocket\((AF_\w+)", (place / "calls").read_text()))
            if families - set(settings("weir-gateway.service")["RestrictAddressFamilies"][0].split()):
                raise Failed(f"families: {families}")

        tap.main([verified, hardened, serves, permitted])


if __name__ == "__main__":
    main()
