# SPDX-License-Identifier: Apache-2.0
"""The memcached of the distribution, built from its source with the limits of docs/start/memcached.md, or without."""
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/start/memcached.md"
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "weir/memcached"

# Where the blocks of the page go, in its order: the file, what is there already, and whether the block goes before it.
PLACES = [("memcached.h", r"\Z", True),
          ("memcached.c", r'(?m:^)#include "[^\n]*\n(?!(?:.|\n)*(?m:^)#include ")', False),
          ("memcached.c", r"(?<=\n)#ifdef EXTSTORE\n    slabs_set_storage", True),
          ("thread.c", r"(?<=\n)    register_thread_initialized\(\);\n\n    event_base_loop", True),
          ("proto_text.c", r"(?<=\n)    ntokens = tokenize_command\(command, tokens, MAX_TOKENS\);\n    // All commands", True),
          ("memcached.c", r"res = c->sendmsg\(c, &msg, 0\);\n    if \(res >= 0\) \{\n(?=        pthread_mutex_lock\(&c->thread->stats.mutex\);\n"
                          r"        c->thread->stats.bytes_written \+= res;\n        pthread_mutex_unlock\(&c->thread->stats.mutex\);\n\n"
                          r"        // Decrement)", False),
          ("memcached.c", r"(?<=\n)    /\* remove the PID file", True)]


class NoSource(Exception):
    """There is no source to be had here."""


def run(*words, where=None, **more):
    done = subprocess.run([str(w) for w in words], cwd=where, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **more)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(str(w) for w in words)}: {done.stdout[-2000:]}")
    return done.stdout


def fetch():
    """The source's folder, which lasts: it is of the release that this machine has its packages from."""
    release = re.search(r"^VERSION_CODENAME=(\w+)", pathlib.Path("/etc/os-release").read_text(), re.M)
    uris = run("apt-get", "indextargets", "--format", "$(REPO_URI)|$(CODENAME)|$(COMPONENT)", "Created-By: Packages").split()
    archives = [uri.split("|")[0] for uri in uris if release and uri.endswith(f"|{release[1]}|main")]
    if not archives:
        raise NoSource("apt knows no archive of this release")
    place = CACHE / release[1]
    if not list(place.glob("memcached-*/configure")):
        for folder in ("lists/partial", "archives/partial"):
            (place / folder).mkdir(parents=True, exist_ok=True)
        (place / "sources.list").write_text(f"deb-src {archives[0]} {release[1]} main\n")
        apt = ["apt-get", "-o", f"Dir::Etc::sourcelist={place}/sources.list", "-o", "Dir::Etc::sourceparts=-", "-o", f"Dir::State::lists={place}/lists",
               "-o", f"Dir::Cache={place}", "-o", "APT::Sandbox::User="]
        try:
            run(*apt, "update")
            run(*apt, "source", "memcached", where=place)
        except RuntimeError as error:
            raise NoSource(str(error)) from error
    return next(place.glob("memcached-*/configure")).parent


def blocks():
    """The page's own file, and what goes into the server's files."""
    found = re.findall(r"^```c\n(.*?)^```\n", PAGE.read_text(), re.M | re.S)
    assert len(found) == 1 + len(PLACES), len(found)
    return found[0], found[1:]


def page_policies():
    return re.search(r"^```yaml\n(.*?)^```\n", PAGE.read_text(), re.M | re.S)[1]


def patch(place):
    """Puts the page's blocks where the page says."""
    own, inserted = blocks()
    (place / "limits.c").write_text(own)
    for (name, pattern, before), block in zip(PLACES, inserted):
        text = (place / name).read_text()
        found = list(re.finditer(pattern, text))
        assert len(found) == 1, (name, pattern, len(found))
        at = found[0].start() if before else found[0].end()
        (place / name).write_text(text[:at] + ("\n" if name == "memcached.h" else "") + block + text[at:])


def build(weir_build, place, limited=True, costs=None):
    """A program in a new folder. `costs`: in place of the page's, as in the page."""
    shutil.copytree(fetch(), place)
    words = []
    if limited:
        patch(place)
        if costs:
            own = (place / "limits.c").read_text()
            (place / "limits.c").write_text(own.replace("costs[] = {1, 0}", f"costs[] = {{{costs}}}"))
        library = pathlib.Path(weir_build).resolve() / "src"
        words = [f"CPPFLAGS=-I{ROOT}/include", f"LDFLAGS=-L{library} -Wl,-rpath,{library}", "LIBS=-lweir"]
    run("./configure", "CFLAGS=-O2 -g", *words, where=place)
    run("make", "-j2", "memcached", where=place)
    return place / "memcached"


class Server:
    """A memcached that runs, with what it says in a file."""

    def __init__(self, program, log, *words, policies=None, redis=None):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.log = log
        more = {"MEMCACHED_POLICIES": str(policies)} if policies else {}
        more |= {"MEMCACHED_REDIS": redis} if redis else {}
        user = ["-u", "root"] if os.getuid() == 0 else []
        with open(log, "w", encoding="utf-8") as out:
            self.process = subprocess.Popen([str(program), "-p", str(self.port), "-U", "0", "-l", "127.0.0.1", *user, *words],
                                            stderr=out, env=os.environ | more)

    def connect(self):
        end = time.monotonic() + 60
        while True:
            try:
                connection = socket.create_connection(("127.0.0.1", self.port), timeout=60)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return connection
            except ConnectionRefusedError:
                if self.process.poll() not in (None, 0) or time.monotonic() > end:
                    raise AssertionError(f"memcached is not there: {pathlib.Path(self.log).read_text()}") from None
                time.sleep(0.02)

    def stop(self):
        """SIGTERM; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    def processor_seconds(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ask(connection, request, count):
    """`count` requests in one piece; the answers, each ended by END or an error, as far as the server stays."""
    connection.sendall(request * count)
    text, answers = b"", []
    while len(answers) < count:
        data = connection.recv(1 << 20)
        if not data:
            break
        *lines, text = (text + data).split(b"\r\n")
        answers += [line for line in lines if line in (b"END", b"STORED") or line.startswith(b"SERVER_ERROR")]
    return answers
