# SPDX-License-Identifier: Apache-2.0
"""A private Redis, and servers that answer as a test wants, for the tests of the weir command."""
import contextlib
import os
import pathlib
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

from command_support import need

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "apps/gateway"))
from demo import claim  # noqa: E402

SERVER = os.environ.get("WEIR_TEST_REDIS_SERVER", "redis-server")


def free_port():
    """Below the ephemeral ports, which others are given; a Cluster has the port 10,000 above, too."""
    while True:
        port = random.randrange(10000, 20000)
        with socket.socket() as one, socket.socket() as other, contextlib.suppress(OSError):
            one.bind(("127.0.0.1", port))
            other.bind(("127.0.0.1", port + 10000))
            if claim(port):
                return port


class Redis:
    """A server on a unix socket, and on a port of loopback."""

    def __init__(self, *options, config=None):
        need(shutil.which(SERVER) is not None, "there is no redis-server")
        self.place = tempfile.TemporaryDirectory(prefix="weir-command-redis-")
        self.path = pathlib.Path(self.place.name) / "socket"
        self.port = free_port()
        words = [str(config)] if config else []
        more = ["--sentinel"] if config else ["--save", ""]
        self.child = subprocess.Popen([SERVER, *words, "--port", str(self.port), "--bind", "127.0.0.1", "--unixsocket", str(self.path),
                                       "--dir", self.place.name, *more, *options], stdout=subprocess.DEVNULL)
        self.url = f"unix://{self.path}"
        end = time.monotonic() + 60
        while not self.is_up():
            assert time.monotonic() < end and self.child.poll() is None, "the server does not start"
            time.sleep(0.01)

    def is_up(self):
        with socket.socket(socket.AF_UNIX) as link:
            try:
                link.connect(str(self.path))
                link.sendall(b"PING\r\n")
                return link.recv(64)[:1] in (b"+", b"-")
            except OSError:
                return False

    def call(self, *words):
        """The answer to a command of one line or more, as lines."""
        done = subprocess.run(["redis-cli", "-s", str(self.path), *map(str, words)], capture_output=True, text=True, timeout=60,
                              check=True)
        return done.stdout.splitlines()

    def hash(self, key="weir:overrides"):
        lines = self.call("HGETALL", key)
        return dict(zip(lines[::2], lines[1::2])) if lines != [""] else {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.child.kill()
        self.child.wait()
        self.place.cleanup()


class Sentinel(Redis):
    """A Sentinel that knows a primary by the name "main"."""

    def __init__(self, primary, *options):
        config = tempfile.NamedTemporaryFile("w", prefix="weir-command-sentinel-", suffix=".conf", delete=False)  # it writes there
        with config:
            config.write(f"sentinel monitor main 127.0.0.1 {primary.port} 1\n")
        self.config = pathlib.Path(config.name)
        super().__init__(*options, config=self.config)

    def __exit__(self, *_):
        super().__exit__()
        self.config.unlink()


class Cluster:
    """Three primaries that share the slots: the first third, the second one, the rest. Lost ones take no others with them."""

    SLOTS = 16384

    def __init__(self, *options):
        self.all = contextlib.ExitStack()
        self.servers = []
        try:
            for _ in range(3):
                self.servers.append(self.all.enter_context(Redis("--cluster-enabled", "yes", "--cluster-node-timeout", "20000",
                                                                 "--cluster-require-full-coverage", "no", *options)))
            for number, server in enumerate(self.servers):
                first, end = (self.SLOTS * part // 3 for part in (number, number + 1))
                server.call("CLUSTER", "ADDSLOTS", *range(first, end))
                server.call("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            for server in self.servers[1:]:
                self.servers[0].call("CLUSTER", "MEET", "127.0.0.1", server.port)
            self.wait()
        except BaseException:
            self.all.close()
            raise
        self.url = "redis+cluster://" + ",".join(f"127.0.0.1:{server.port}" for server in self.servers)

    def wait(self):
        end = time.monotonic() + 60
        while not all({"cluster_state:ok", "cluster_known_nodes:3", "cluster_size:3"} <= set(server.call("CLUSTER", "INFO"))
                      for server in self.servers):
            assert time.monotonic() < end, "the Cluster does not come together"
            time.sleep(0.05)

    def owner(self, key):
        """The server of a key, as the slots were given."""
        slot = int(self.servers[0].call("CLUSTER", "KEYSLOT", key)[0])
        return self.servers[max(number for number in range(3) if slot >= self.SLOTS * number // 3)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.all.close()


class Fake:
    """
    A server on a port of loopback that answers each command with the same bytes, or with what a function says of the
    words of one; with None it never answers.
    """

    def __init__(self, answer):
        self.answer = answer
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.links, self.seen = [], b""
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self):
        while True:
            try:
                link = self.listener.accept()[0]
            except OSError:
                return
            self.links.append(link)
            threading.Thread(target=self.talk, args=[link], daemon=True).start()

    @staticmethod
    def take(data):
        """The words of the first command in `data`, and what is behind it; None: it is not whole yet."""
        lines = data.split(b"\r\n")
        count = int(lines[0][1:]) if lines[0] else 0
        at, words = len(lines[0]) + 2, []
        for _ in range(count):
            end = data.find(b"\r\n", at)
            size = int(data[at + 1:end]) if end >= 0 else 0
            if end < 0 or len(data) < end + 2 + size + 2:
                return None, data
            words.append(data[end + 2:end + 2 + size])
            at = end + 2 + size + 2
        return words or None, data[at:]

    def talk(self, link):
        rest = b""
        try:
            while got := link.recv(65536):
                self.seen += got
                words, rest = self.take(rest + got)
                while words:
                    link.sendall(self.answer(words) if callable(self.answer) else self.answer or b"")
                    words, rest = self.take(rest)
        except OSError:
            return

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)  # ends the wait for a link: it would go on with whoever has the descriptor next
        self.thread.join()
        self.listener.close()
        for link in self.links:
            link.close()
