#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
The Debian packages, as a user has them: package_test.py ROOT PACKAGES SOURCE_DIRECTORY. Prints TAP.

ROOT is a system of its own, in namespaces of mounts and of a network of its own, that is thrown away afterwards; the
packages that weir's depend on are in its /dependencies. PACKAGES is where scripts/package has put weir's.
scripts/platform package makes both.

Guards: scripts/package, debian/control, debian/rules, debian/libweir0.symbols, debian/weir-tools.install,
debian/libweir-dev.install, debian/not-installed, README.md, docs/packages.md
"""
import json
import os
import pathlib
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "install"))
import tap  # noqa: E402
from tap import Failed, run  # noqa: E402

ROOT, PACKAGES, SOURCE = (pathlib.Path(word).resolve() for word in sys.argv[1:4])
NAMES = ("libweir0", "libweir-dev", "weir-tools", "libnginx-mod-http-weir", "libnginx-mod-stream-weir")
CLEAN = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/tmp", "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
NGINX = """
weir_limit_req_zone $binary_remote_addr zone=per_ip:10m rate=10r/m;
server {
    listen 127.0.0.1:8080;
    location / { weir_limit_req zone=per_ip burst=5 nodelay; weir_limit_req_status 429; root /var/www/html; try_files /index.nginx-debian.html =404; }
}
"""
STREAM = """
stream {
    weir_policies /etc/weir/stream.yaml;
    server { listen 127.0.0.1:8081; weir connections $remote_addr; return "served"; }
}
"""
STREAM_POLICIES = """
policies:
  - name: connections
    limits: [{algorithm: fixed_window, limit: 3, period: 1h}]
"""


def inside(*words, **options):
    return run("chroot", ROOT, *words, env=CLEAN, **options)


def start(*words, user="nobody"):
    return subprocess.Popen(["chroot", f"--userspec={user}", str(ROOT), *map(str, words)], env=CLEAN, stdout=subprocess.DEVNULL,
                            stderr=open(ROOT / "tmp/log", "a"))


def until(condition, what):
    end = time.monotonic() + 60
    while not (found := condition()):
        if time.monotonic() > end:
            raise Failed(f"{what}\n{(ROOT / 'tmp/log').read_text()}")
        time.sleep(0.05)
    return found


def ask(url):
    """Status and text; None: nobody answers."""
    try:
        with urllib.request.urlopen(url, timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refusal:
        return refusal.code, ""
    except OSError:
        return None


def files():
    """What there is, beside what apt, dpkg and programs write as they go."""
    passing = ("proc", "dev", "tmp", "run", "packages", "dependencies", "var/cache", "var/lib/apt", "var/lib/dpkg", "var/log")
    found = set()
    for folder, folders, names in os.walk(ROOT):
        inner = pathlib.Path(folder).relative_to(ROOT)
        folders[:] = [name for name in folders if str(inner / name) not in passing]
        found.update(str(inner / name) for name in [*folders, *names])
    return found


def lintian():
    """lintian finds neither errors nor warnings, and nothing is overridden"""
    if shutil.which("lintian") is None:
        raise tap.Skipped("lintian is not installed")
    # A bug of Debian's archive that asks for the package: the packages are not for that archive.
    run("lintian", "--allow-root", "--fail-on", "error,warning", "--show-overrides", "--suppress-tags",
        "initial-upload-closes-no-bugs", *PACKAGES.glob("weir_*.changes"))
    if list((SOURCE / "debian").glob("**/*lintian-overrides")):
        raise Failed("there are overrides")


def installs():
    """apt installs the packages, with what they depend on, and nothing runs yet"""
    (ROOT / "packages").mkdir()
    for name in NAMES:
        for package in PACKAGES.glob(f"{name}_*.deb"):
            shutil.copy2(package, ROOT / "packages")
    archives = []
    for folder in ("packages", "dependencies"):
        listed = run("dpkg-scanpackages", "--multiversion", ".", cwd=ROOT / folder)
        (ROOT / folder / "Packages").write_text("".join(line for line in listed.splitlines(True) if not line.startswith("dpkg-scanpackages:")))
        archives.append(f"deb [trusted=yes] copy:/{folder} ./\n")
    for path in (ROOT / "etc/apt/sources.list.d").iterdir():
        path.unlink()
    (ROOT / "etc/apt/sources.list").write_text("".join(archives))
    inside("apt-get", "update")
    inside("apt-get", "install", "--yes", "--no-install-recommends", *NAMES)
    if list((ROOT / "etc/systemd/system").glob("**/*weir*")):
        raise Failed("the gateway's unit is enabled")


def compiles():
    """README's program is compiled with libweir-dev, and serves"""
    (ROOT / "tmp/embed.c").write_text(tap.fenced(SOURCE / "README.md", "c"))
    inside("sh", "-ec", "cc -Wall -Werror -o /tmp/embed /tmp/embed.c $(pkg-config --cflags --libs weir)")
    if inside("/tmp/embed").count("served") < 20:
        raise Failed("it does not serve")


def commands():
    """every program starts, and weir check takes the configuration of the package"""
    programs = inside("dpkg", "--listfiles", "weir-tools").split()
    programs = [path for path in programs if path.startswith("/usr/bin/")]
    if len(programs) < 4:
        raise Failed(f"{programs}")
    for program in programs:
        inside(program, "--version")
    said = inside("weir", "check", "/etc/weir/gateway.yaml")
    if "source" not in said:
        raise Failed(said)


def gateway():
    """the gateway limits traffic, with the command of its unit and the files in /etc/weir, changed as a user would"""
    unit = ROOT / inside("sh", "-c", "dpkg --listfiles weir-tools | grep /weir-gateway.service").strip().lstrip("/")
    variables = {"OPTIONS": "", "MORE_OPTIONS": ""}
    variables.update(re.findall(r"^(\w+)=(.*)$", (ROOT / "etc/weir/gateway.env").read_text(), re.M))
    words = []
    for word in re.search(r"^ExecStart=(.*)$", unit.read_text(), re.M)[1].split():
        words += shlex.split(variables[word[1:]]) if re.fullmatch(r"\$\w+", word) else \
            [re.sub(r"\$\{(\w+)\}", lambda found: variables[found[1]], word)]
    children = [start("/usr/bin/weir-traffic", "--echo", variables["BACKEND"], "--seconds", "0"), start(*words)]
    try:
        status = lambda: json.loads((ask("http://127.0.0.1:9100/status") or (0, "{}"))[1])  # noqa: E731
        until(status, "the gateway does not answer")
        policies = ROOT / "etc/weir/gateway.yaml"
        policies.write_text(policies.read_text().replace("mode: shadow", "mode: enforce"))
        children[1].send_signal(1)
        until(lambda: status().get("reloads") == 1, "the gateway does not reload")
        out = inside("weir-traffic", "--to", "127.0.0.1:7000", "--client", "polite,1,20", "--client", "greedy,1,5000",
                     "--seconds", "2", "--json")
        returned = {client["name"]: client for client in json.loads(out.splitlines()[-1])["clients"]}
        now = status()
        if now["dropped"] == 0 or returned["polite"]["returned"] == 0 or not returned["greedy"]["returned"] < returned["greedy"]["sent"]:
            raise Failed(f"{returned}\n{now}")
        children[1].terminate()
        if children[1].wait(60) != 0:
            raise Failed((ROOT / "tmp/log").read_text())
    finally:
        for child in children:
            child.kill()
            child.wait()


def kernel():
    """the gateway has what drops packets in the kernel"""
    options = ("--listen", "127.0.0.1:7001", "--backend", "127.0.0.1:7777", "--policies", "/etc/weir/gateway.yaml",
               "--metrics", "127.0.0.1:9101", "--xdp", "lo,mode=generic")
    child = start("/usr/bin/weir-gateway", *options, user="root")
    try:
        found = until(lambda: ask("http://127.0.0.1:9101/status"), "the gateway does not answer")
        if json.loads(found[1])["kernel"] is None:
            raise Failed((ROOT / "tmp/log").read_text())
    finally:
        child.kill()
        child.wait()


def nginx():
    """nginx has the modules enabled, and limits requests and connections"""
    (ROOT / "etc/nginx/conf.d/weir.conf").write_text(NGINX)
    (ROOT / "etc/weir/stream.yaml").write_text(STREAM_POLICIES)
    with open(ROOT / "etc/nginx/nginx.conf", "a") as configuration:
        configuration.write(STREAM)
    inside("nginx", "-t")
    child = start("/usr/sbin/nginx", "-g", "daemon off;", user="root")
    try:
        until(lambda: ask("http://127.0.0.1:8080/"), "nginx does not answer")
        codes = [ask("http://127.0.0.1:8080/")[0] for _ in range(20)]
        if 200 not in codes or 429 not in codes:
            raise Failed(f"{codes}")
        served = [connection() for _ in range(6)]
        if served.count("served") != 3:
            raise Failed(f"{served}")
    finally:
        child.terminate()
        child.wait()


def connection():
    """What one connection to the stream is sent."""
    with socket.create_connection(("127.0.0.1", 8081), 20) as client:
        try:
            return client.recv(100).decode()
        except OSError:
            return ""


def main():
    before = files()

    def purges():
        """after purging the packages nothing of them is left"""
        for path in ("etc/nginx/conf.d/weir.conf", "etc/weir/stream.yaml"):
            (ROOT / path).unlink()  # the user's own
        inside("apt-get", "purge", "--yes", *NAMES)
        left = sorted(path for path in files() - before if "weir" in path)
        listed = [line for line in inside("dpkg-query", "--show", "--showformat", "${Package} ${db:Status-Status}\\n").splitlines()
                  if "weir" in line]
        if left or listed:
            raise Failed(f"{left}, {listed}")

    tap.main([lintian, installs, compiles, commands, gateway, kernel, nginx, purges])


if __name__ == "__main__":
    main()
