#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""nginx with the weir module under live traffic: what scripts/run --nginx shows.

nginx_demo.py BUILD_DIRECTORY [--seconds N] [--quick]
"""
import argparse
import collections
import http.client
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "gateway"))
import demo as gateway_demo  # noqa: E402

PROGRAM = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
Answer = collections.namedtuple("Answer", "status headers body seconds")


def module_path(build):
    return pathlib.Path(build).resolve() / "apps" / "nginx" / "ngx_http_weir_module.so"


def sanitizer(module, directory):
    """What nginx needs in its environment to load a module of a build with AddressSanitizer."""
    linked = subprocess.run(["ldd", str(module)], capture_output=True, text=True).stdout
    runtime = [line.split()[2] for line in linked.splitlines() if re.search(r"lib(asan|ubsan)\.so", line)]
    if not runtime:
        return {}
    paths = f"exitcode=0:log_path={directory}/sanitizer"
    # Each module of nginx defines ngx_modules and two names more, which are no violation of C's one definition.
    options = "detect_leaks=1:fast_unwind_on_malloc=0:detect_odr_violation=0"
    return {"LD_PRELOAD": " ".join(runtime), "ASAN_OPTIONS": f"{options}:{paths}",
            "UBSAN_OPTIONS": f"print_stacktrace=1:{paths}"}


def sanitizer_reports(text):
    """What a sanitizer's log says of the module and the library: nginx does not free all that it has at its end."""
    if "LeakSanitizer" not in text:
        return [text] if re.search("ERROR: |runtime error: ", text) else []
    return [block for block in text.split("\n\n") if " leak of " in block and
            re.search("weir|apps/nginx/", block) and not is_of_a_pool(block)]


def is_of_a_pool(block):
    """nginx's allocator was called by nginx: nginx frees its pools, unless it ends with nginx -t."""
    frames = re.findall(r"#[12] .*", block)
    return len(frames) == 2 and all(f"({PROGRAM}+" in frame for frame in frames)


def alive(pid):
    """A child that nobody has waited for yet has ended, too."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def command_line(pid):
    """The arguments of a process; nothing where the process has ended."""
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


class Nginx:
    """An nginx of its own: private directory, one port of 127.0.0.1, the module of a build."""

    connections = 1024  # of each worker

    def __init__(self, build, http, workers=1, daemon=False, main="", level="info", start=True, environment=None,
                 user="root"):
        self.build, self.workers, self.daemon, self.main, self.level = build, workers, daemon, main, level
        self.user = f"user {user};" if os.geteuid() == 0 else ""
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="weir-nginx-"))
        self.dir.chmod(0o755)  # workers may be another user's
        self.port = gateway_demo.free_port(socket.SOCK_STREAM)
        self.log_path, self.pid_path = self.dir / "error.log", self.dir / "pid"
        self.sanitizer = sanitizer(module_path(build), self.dir)
        self.environment = {**os.environ, **self.sanitizer, **(environment or {})}
        self.child = None
        (self.dir / "html").mkdir()
        for name in ("index.html", "a.html"):
            (self.dir / "html" / name).write_text("served\n")
        self.write(http)
        if start:
            try:
                self.start()
            except BaseException:
                self.close()
                raise

    def write(self, http, main=None):
        """http is what stands in the http block: {port} and {dir} are filled in."""
        temp = " ".join(f"{kind}_temp_path {self.dir}/{kind};"
                        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        http = http.replace("{port}", str(self.port)).replace("{dir}", str(self.dir))
        (self.dir / "nginx.conf").write_text(
            f"load_module {module_path(self.build)};\n{self.user}\nworker_processes {self.workers};\n"
            f"daemon {'on' if self.daemon else 'off'};\npid {self.pid_path};\nerror_log {self.log_path} {self.level};\n"
            f"{self.kept()}\n{self.main if main is None else main}\n"
            f"events {{ worker_connections {self.connections}; }}\n"
            f"http {{\naccess_log off;\nroot {self.dir}/html;\n{temp}\n{http}\n}}\n")

    def kept(self):
        """The directives that leave a sanitizer's variables to the new binary of an upgrade."""
        return " ".join(f"env {name};" for name in self.sanitizer)

    def command(self, *more):
        return [PROGRAM, "-p", str(self.dir), "-c", str(self.dir / "nginx.conf"), "-e", str(self.log_path), *more]

    def test(self):
        """nginx -t: whether the configuration is good, and what nginx says."""
        done = subprocess.run(self.command("-t"), capture_output=True, text=True, timeout=60, env=self.environment)
        return done.returncode == 0, done.stderr

    def start(self):
        self.child = subprocess.Popen(self.command(), start_new_session=True, stderr=subprocess.PIPE, text=True,
                                      env=self.environment)
        if self.daemon:
            said = self.child.communicate(timeout=20)[1]
            assert self.child.returncode == 0, said
        self.until(lambda: self.answers() and len(self.worker_pids()) == self.workers)

    def answers(self):
        assert self.daemon or self.child.poll() is None, "nginx ended: " + self.log() + self.child.stderr.read()
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=20).close()
            return True
        except OSError:
            return False

    def until(self, condition, seconds=60):
        end = time.monotonic() + seconds
        while not (result := condition()):
            assert time.monotonic() < end, "waited in vain; nginx said: " + self.log()[-5000:]
            time.sleep(0.02)
        return result

    def log(self):
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def master_pid(self):
        return int(self.pid_path.read_text())

    def said_pid(self):
        """As master_pid(); None: nginx has made no file yet, or has written nothing to it."""
        try:
            return self.master_pid()
        except (OSError, ValueError):
            return None

    def worker_pids(self, master=None):
        try:
            pid = master or self.master_pid()
            pids = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        except (OSError, ValueError):
            return set()
        # A child that has not become a worker yet still has its parent's title.
        return {int(pid) for pid in pids if b"worker process" in command_line(pid)}

    def reload(self, http=None, wait=True):
        """Reloads, and waits until the old workers are gone."""
        old = self.worker_pids()
        if http is not None:
            self.write(http)
        os.kill(self.master_pid(), signal.SIGHUP)
        if wait:
            self.until(lambda: len(self.worker_pids() - old) == self.workers and not self.worker_pids() & old)

    def get(self, path, headers=None, timeout=20):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        begin = time.monotonic()
        try:
            connection.request("GET", path, headers=headers or {})
            answer = connection.getresponse()
            body = answer.read().decode()
            return Answer(answer.status, dict(answer.getheaders()), body, time.monotonic() - begin)
        finally:
            connection.close()

    def close(self):
        try:
            master = self.master_pid()
        except (OSError, ValueError):
            master = None
        if self.child is not None and not self.daemon and self.child.poll() is None:
            self.child.terminate()
            try:
                self.child.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(self.child.pid, signal.SIGKILL)
                self.child.wait()
        elif self.daemon and master is not None:
            try:
                os.kill(master, signal.SIGTERM)
                end = time.monotonic() + 20
                while alive(master) and time.monotonic() < end:
                    time.sleep(0.02)
            except ProcessLookupError:
                pass
        if self.child is not None and self.child.stderr:
            self.child.stderr.close()
        found = [text for path in self.dir.glob("sanitizer.*") for text in sanitizer_reports(path.read_text(errors="replace"))]
        shutil.rmtree(self.dir, ignore_errors=True)
        assert not found, "a sanitizer found:\n" + "\n".join(found)[:8000]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Load:
    """Clients with connections that are kept alive, each asking for the next answer at once or at a rate."""

    def __init__(self, port, path, clients=4, rate=None):
        self.port, self.path, self.rate = port, path, rate
        self.counts, self.lock = collections.Counter(), threading.Lock()
        self.answers = []  # when each came, and its status
        self.stopped = threading.Event()
        self.threads = [threading.Thread(target=self.run, daemon=True) for _ in range(clients)]
        for thread in self.threads:
            thread.start()

    def run(self):
        request = f"GET {self.path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
        connection, due = None, time.monotonic()
        while not self.stopped.is_set():
            try:
                if connection is None:
                    connection = socket.create_connection(("127.0.0.1", self.port), timeout=20)
                    data = b""
                connection.sendall(request)
                status, data, alive = self.read(connection, data)
                if not alive:
                    connection.close()
                    connection = None
            except (OSError, ValueError):
                status, connection = "error", None
            with self.lock:
                self.counts[status] += 1
                self.answers.append((time.monotonic(), status))
            if self.rate:
                due += 1 / self.rate
                self.stopped.wait(max(0, due - time.monotonic()))
        if connection is not None:
            connection.close()

    @staticmethod
    def read(connection, data):
        while b"\r\n\r\n" not in data:
            more = connection.recv(65536)
            if not more:
                raise ValueError("closed")
            data += more
        head, _, data = data.partition(b"\r\n\r\n")
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
        size = int(fields.get(b"content-length", 0))
        while len(data) < size:
            more = connection.recv(65536)
            if not more:
                raise ValueError("closed")
            data += more
        return int(head.split()[1]), data[size:], fields.get(b"connection") != b"close"

    def so_far(self):
        with self.lock:
            return collections.Counter(self.counts)

    def stop(self):
        self.stopped.set()
        for thread in self.threads:
            thread.join()
        return self.counts


CONFIGURATION = """
    weir_limit_req_zone $arg_client zone=per_client:10m rate={rate}r/s;
    server {
        listen 127.0.0.1:{port};
        weir_limit_req zone=per_client burst=20 nodelay;
        weir_limit_req_log_level info;
    }
"""


def show(build, seconds):
    rate, workers = 100, 4
    clients = {"polite": (1, 40), "greedy": (4, 400)}
    print(f"nginx with {workers} workers: {rate} requests a second for each client, by weir_limit_req.\n")
    held = True
    with Nginx(build, CONFIGURATION.replace("{rate}", str(rate)), workers=workers, level="error") as nginx:
        loads = {name: Load(nginx.port, f"/?client={name}", *how) for name, how in clients.items()}
        before = {name: collections.Counter() for name in loads}
        print(f"{'second':>6}  {'client':<10} {'asked/s':>9} {'served/s':>9} {'refused/s':>9} {'limit/s':>9}")
        begin = last = time.monotonic()
        while last - begin < seconds:
            time.sleep(1)
            now = time.monotonic()
            for name, load in loads.items():
                counts = load.so_far()
                new = counts - before[name]
                before[name] = counts
                row = [sum(new.values()), new[200], new[503]]
                print(f"{now - begin:6.0f}  {name:<10} " + " ".join(f"{n / (now - last):9.0f}" for n in row) + f" {rate:9}",
                      flush=True)
            last = now
        print(f"\nIn {last - begin:.0f} seconds:\n\n{'client':<10} {'asked':>9} {'served':>9} {'refused':>9} {'the limit':>9}")
        for name, load in loads.items():
            counts = load.stop()
            most = 21 + rate * (time.monotonic() - begin)
            held = held and counts[200] <= most
            print(f"{name:<10} {sum(counts.values()):9} {counts[200]:9} {counts[503]:9} {most:9.0f}")
    print("\nEvery limit was held." if held else "\nA LIMIT WAS NOT HELD.")
    return held


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--seconds", type=int)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--nginx", action="store_true", help="what this shows: scripts/run passes it on")
    options = parser.parse_args()
    if PROGRAM is None:
        sys.exit("there is no nginx: scripts/setup nginx installs it")
    sys.exit(0 if show(options.build, options.seconds or (3 if options.quick else 10)) else 1)


if __name__ == "__main__":
    main()
