#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
The Containerfile: container_test.py SOURCE_DIRECTORY PROGRAM_OR_LIBRARY... Prints TAP.

Its lines are held against what scripts/setup installs and what programs are linked with. Where there are buildah and
mmdebstrap, and this is root, the image is built and its programs run; its base is then made here, of the same Debian.

Guards: Containerfile, .dockerignore
"""
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import tap
from tap import Failed, Skipped, run

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "apps/gateway"))
from demo import free_port  # noqa: E402

SOURCE = pathlib.Path(sys.argv[1])
UNLINKED = {"ca-certificates"}  # of a Redis that is reached by TLS
EVERYWHERE = {"libc6"}


def instructions():
    """Instruction and words, in order; lines that go on are one."""
    text = re.sub(r"^#.*\n", "", (SOURCE / "Containerfile").read_text(), flags=re.M).replace("\\\n", " ")
    return [tuple(line.split(maxsplit=1)) for line in text.splitlines() if line.strip()]


def stages():
    found = []
    for instruction, rest in instructions():
        if instruction == "FROM":
            found.append([])
        found[-1].append((instruction, rest))
    return found


def installed(stage):
    """What a stage installs by apt-get."""
    words = " ".join(rest for instruction, rest in stage if instruction == "RUN" and "apt-get install" in rest)
    return set(re.sub(r"&&.*", "", words.split("--no-install-recommends", 1)[1]).split())


def form():
    """it has two stages of one slim Debian, and ends as a user without rights, with the gateway as its program"""
    build, image = stages()
    bases = [rest.split()[0] for stage in (build, image) for instruction, rest in stage if instruction == "FROM"]
    if len(set(bases)) != 1 or not bases[0].endswith("-slim"):
        raise Failed(f"{bases}")
    last = dict(image)
    if not re.fullmatch(r"[1-9]\d+:[1-9]\d+", last.get("USER", "")) or last.get("ENTRYPOINT") != '["/usr/bin/weir-gateway"]':
        raise Failed(f"{last}")
    for instruction, rest in build + image:
        if instruction not in ("FROM", "RUN", "COPY", "WORKDIR", "USER", "STOPSIGNAL", "ENTRYPOINT", "CMD"):
            raise Failed(f"{instruction} {rest}")
        if instruction == "RUN" and re.search(r"[|;`$]|(^|\s)(curl|wget|sudo)\s", rest):
            raise Failed(f"a trick of the shell: {rest}")


def builds_with():
    """its first stage installs what scripts/setup installs for building"""
    wanted = set(run(SOURCE / "scripts/setup", "--list", "run").split())
    known = set(run(SOURCE / "scripts/setup", "--list", "package").split())  # and what the weir command can be built with
    found = installed(stages()[0])
    if not wanted <= found <= known:
        raise Failed(f"not in the Containerfile: {sorted(wanted - found)}; not in scripts/setup: {sorted(found - known)}")


def runs_with():
    """its second stage installs the packages of the libraries that the programs are linked with"""
    base = dict(stages()[0])["FROM"]
    release = re.search(r'^VERSION_CODENAME="?(\w+)', pathlib.Path("/etc/os-release").read_text(), re.M)
    if release is None or f":{release[1]}-" not in base or shutil.which("dpkg-query") is None:
        raise Skipped(f"this machine is not {base.split()[0]}")
    needed = set()
    for program in sys.argv[2:]:
        needed |= set(re.findall(r"NEEDED.*\[(\S+)\]", run("readelf", "--dynamic", program)))
    owners = {}
    for name in needed - {"libweir.so.0"}:
        lines = run("dpkg-query", "--search", f"*lib/*/{name}").splitlines()
        owners[name] = lines[0].split(":")[0]
    # This build may have what the image is built without.
    without = {"libbpf1", "libxdp1"} if "-Dxdp=disabled" in (SOURCE / "Containerfile").read_text() else set()
    found, wanted = installed(stages()[1]) - UNLINKED, set(owners.values()) - EVERYWHERE - without
    if found != wanted:
        raise Failed(f"not in the Containerfile: {sorted(wanted - found)}; not needed: {sorted(found - wanted)}")


class Images:
    """buildah, with a storage of its own, without a daemon and without namespaces."""

    def __init__(self, place):
        self.place = place

    def __call__(self, *words, **options):
        return run("buildah", "--root", self.place / "storage", "--runroot", self.place / "run", "--storage-driver", "vfs", *words,
                   **options).strip()

    def make_base(self, name):
        """An image with this name: the packages that the release of the name has in each of its installations."""
        release = re.fullmatch(r"docker.io/library/debian:(\w+)-slim", name)
        if release is None:
            raise Failed(f"{name} is no release of Debian")
        made = subprocess.run(["mmdebstrap", "--mode=root", "--variant=minbase", "--format=tar", release[1], str(self.place / "base.tar")],
                              capture_output=True, text=True, check=False)
        if made.returncode != 0:
            raise Skipped(f"no base for an image is to be had here: {made.stderr.strip().splitlines()[-1]}")
        container = self("from", "scratch").splitlines()[-1]
        self("add", "--quiet", container, self.place / "base.tar", "/")
        self("commit", "--quiet", "--rm", container, name)


@contextlib.contextmanager
def built():
    """The root of the image, and its configuration."""
    for program in ("buildah", "mmdebstrap", "chroot"):
        if shutil.which(program) is None:
            raise Skipped(f"no image is built here: there is no {program}")
    if os.geteuid() != 0:
        raise Skipped("no image is built here: this is not root")
    with tempfile.TemporaryDirectory(prefix="weir-container-", dir="/var/tmp") as name:
        place = pathlib.Path(name)
        images = Images(place)
        images.make_base(dict(stages()[0])["FROM"].split()[0])
        tap.copy_source(SOURCE, place / "source")
        images("build", "--isolation", "chroot", "--pull=never", "--tag", "weir", "--file", place / "source/Containerfile",
               place / "source", timeout=1500)
        config = json.loads(images("inspect", "--type", "image", "localhost/weir"))["OCIv1"]["config"]
        container = images("from", "--pull=never", "localhost/weir").splitlines()[-1]
        yield pathlib.Path(images("mount", container).splitlines()[-1]), config


def serve(command, backend, port):
    """Has the gateway forward some packets to a backend, and no more than its policy lets pass. It then ends by SIGTERM."""
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        client = socket.socket(type=socket.SOCK_DGRAM)
        client.connect(("127.0.0.1", port))
        client.settimeout(0.1)
        passed, end = 0, time.monotonic() + 60
        while passed < 20:
            if child.poll() is not None or time.monotonic() > end:
                raise Failed(f"the gateway forwards {passed} packets, exit {child.poll()}")
            with contextlib.suppress(OSError):
                client.send(b"packet")
            with contextlib.suppress(TimeoutError):
                packet, source = backend.recvfrom(2048)
                backend.sendto(packet, source)
                passed += 1
                client.recv(2048)
        for _ in range(50):  # the limit is used up
            client.send(b"more")
        more = 0
        with contextlib.suppress(TimeoutError):
            while True:
                backend.recv(2048)
                more += 1
        if more != 0:
            raise Failed(f"{more} packets came through beyond the limit")
        child.send_signal(signal.SIGTERM)
        _, said = child.communicate(timeout=60)
        if child.returncode != 0:
            raise Failed(f"the gateway ended with {child.returncode}: {said}")
    finally:
        child.kill()
        child.communicate()


def image_works():
    """the image is built, its programs find their libraries, and its gateway limits traffic as the user of the image"""
    with built() as (root, config):
        def inside(*words):
            return ["chroot", f"--userspec={config['User']}", str(root), *map(str, words)]
        if config["StopSignal"] != "SIGTERM" or config["Entrypoint"] != ["/usr/bin/weir-gateway"]:
            raise Failed(f"{config}")
        for program in sorted((root / "usr/bin").glob("weir*")):
            needed = run(*inside("ldd", "/usr/bin/" + program.name))
            if "not found" in needed:
                raise Failed(f"{program.name}: {needed}")
        if "weir-gateway --listen ADDR" not in run(*inside(*config["Entrypoint"], *config["Cmd"])):
            raise Failed("the gateway prints no help")
        if "Usage: weir SUBCOMMAND" not in run(*inside("/usr/bin/weir", "--help")):
            raise Failed("weir prints no help")
        (root / "etc/weir").mkdir()
        (root / "etc/weir/gateway.yaml").write_text("policies:\n  - name: source\n"
                                                    "    limits: [{algorithm: fixed_window, limit: 20, period: 1d}]\n")
        if "20 a day" not in run(*inside("/usr/bin/weir", "check", "/etc/weir/gateway.yaml")):
            raise Failed("weir check does not read the policies")
        listen = free_port(socket.SOCK_DGRAM)
        with socket.socket(type=socket.SOCK_DGRAM) as backend:
            backend.bind(("127.0.0.1", 0))
            backend.settimeout(1)
            serve(inside(*config["Entrypoint"], "--listen", f"127.0.0.1:{listen}", "--backend",
                         f"127.0.0.1:{backend.getsockname()[1]}", "--policies", "/etc/weir/gateway.yaml", "--threads", "1",
                         "--allow-missing"), backend, listen)


tap.main([form, builds_with, runs_with, image_works])
