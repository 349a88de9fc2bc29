#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
What systemd hears of the gateway, over a socket as systemd has it: notify_test.py BUILD_DIRECTORY SOURCE_DIRECTORY
[TEST...]. Prints TAP.

Guards: apps/gateway/notify.c, apps/gateway/main.c
"""
import ctypes
import os
import pathlib
import signal
import socket
import tempfile
import time

from support import ask, Fixture, gateway_demo, measured, POLICIES, Skipped, run

SEIZE, INTERRUPT, DETACH = 0x4206, 0x4207, 17  # of ptrace(2)
ALL_CHILDREN = 0x40000000  # of waitpid(2): threads, too


class Manager:
    """What systemd is to a service: a socket, and the variables that name it."""

    def __init__(self, abstract=False, **variables):
        self.place = tempfile.TemporaryDirectory(prefix="weir-notify-")
        path = f"@{self.place.name}/notify" if abstract else f"{self.place.name}/notify"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind("\0" + path[1:] if abstract else path)
        self.socket.settimeout(20)
        self.variables = {"NOTIFY_SOCKET": path, **variables}

    def next(self):
        """The next datagram's facts; the watchdog's pass."""
        while "WATCHDOG" in (facts := dict(line.split("=", 1) for line in self.socket.recv(4096).decode().split("\n"))):
            pass
        return facts

    def fed(self):
        """Waits until the watchdog is fed."""
        while self.socket.recv(4096) != b"WATCHDOG=1":
            pass

    def is_silent(self, seconds):
        self.socket.setblocking(False)
        try:
            while True:
                self.socket.recv(4096)  # what came before
        except BlockingIOError:
            self.socket.settimeout(seconds)
        try:
            self.socket.recv(4096)
            return False
        except TimeoutError:
            return True
        finally:
            self.socket.settimeout(20)

    def __enter__(self):
        self.before = {name: os.environ.get(name) for name in self.variables}
        os.environ.update(self.variables)
        return self

    def __exit__(self, *_):
        for name, value in self.before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
        self.socket.close()
        self.place.cleanup()


def test_it_is_ready_when_it_serves_and_says_when_it_ends():
    for abstract in (False, True):
        with Manager(abstract) as manager, Fixture() as f:
            said = manager.next()
            assert said["READY"] == "1" and f"127.0.0.1:{f.port} -> " in said["STATUS"], said
            with f.client() as client:
                assert ask(client) == b"?"
            f.child.send_signal(signal.SIGTERM)
            assert manager.next() == {"STOPPING": "1"}
            assert f.child.wait(20) == 0


def test_nothing_is_said_before_it_listens():
    with Manager() as manager, Fixture() as f:
        manager.next()
        # A second one whose address is not to be had for its metrics: it has opened the rest.
        code = f.demo.start(f.demo.bin / "weir-gateway", "--listen", f"127.0.0.1:{gateway_demo.free_port(socket.SOCK_DGRAM)}",
                            "--backend", "127.0.0.1:2", "--metrics", "192.0.2.1:9", stderr=open(f.log, "a")).wait(20)
        assert code == 1 and manager.is_silent(0.2), code


def test_a_reload_begins_and_ends_and_a_refused_one_says_so():
    with Manager() as manager, Fixture() as f:
        manager.next()
        for text, refused in ((POLICIES.format(300), False), ("policies: 5\n", True), (POLICIES.format(200), False)):
            f.path.with_suffix(".new").write_text(text)
            f.path.with_suffix(".new").rename(f.path)
            before = time.monotonic_ns() // 1000
            f.child.send_signal(signal.SIGHUP)
            said = manager.next()
            assert said["RELOADING"] == "1" and before <= int(said["MONOTONIC_USEC"]) <= time.monotonic_ns() // 1000, said
            said = manager.next()
            assert said["READY"] == "1" and ("a reload was refused" in said["STATUS"]) == refused, said


def test_the_watchdog_is_fed_while_all_threads_run():
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    with Manager(WATCHDOG_USEC="800000") as manager, Fixture() as f:
        for _ in range(3):
            manager.fed()
        others = {int(task.name) for task in pathlib.Path(f"/proc/{f.child.pid}/task").iterdir()} - {f.child.pid}
        for thread in others:
            if libc.ptrace(SEIZE, thread, None, None) != 0:
                raise Skipped("threads of another process cannot be stopped here")
            assert libc.ptrace(INTERRUPT, thread, None, None) == 0
            os.waitpid(thread, ALL_CHILDREN)
        assert f.until(lambda: "a thread stands still" in f.log.read_text())
        assert manager.is_silent(1.5)
        for thread in others:
            assert libc.ptrace(DETACH, thread, None, None) == 0
        manager.fed()
        assert f.child.poll() is None


@measured
def test_the_watchdog_is_fed_before_it_bites():
    with Manager(WATCHDOG_USEC="800000") as manager, Fixture():
        manager.fed()
        begin = time.monotonic()
        for _ in range(4):
            manager.fed()
        assert time.monotonic() - begin < 4 * 0.8


def test_a_watchdog_of_another_process_is_not_fed():
    with Manager(WATCHDOG_USEC="100000", WATCHDOG_PID="1") as manager, Fixture():
        manager.next()
        assert manager.is_silent(0.5)


def test_what_is_wrong_in_the_environment_is_told_and_it_serves():
    for variables, says in (({"NOTIFY_SOCKET": "relative"}, "NOTIFY_SOCKET is no path"),
                            ({"NOTIFY_SOCKET": "/" + "x" * 200}, "NOTIFY_SOCKET is no path"),
                            ({"NOTIFY_SOCKET": "/nonexistent/socket"}, "NOTIFY_SOCKET: No such file"),
                            ({"WATCHDOG_USEC": "soon"}, "WATCHDOG_USEC is no number"),
                            ({"WATCHDOG_USEC": "-5"}, "WATCHDOG_USEC is no number")):
        with Manager(**variables), Fixture() as f:
            assert f.until(lambda: says in f.log.read_text()), says
            with f.client() as client:
                assert ask(client) == b"?"


if __name__ == "__main__":
    run(globals())
