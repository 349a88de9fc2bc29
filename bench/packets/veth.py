# SPDX-License-Identifier: Apache-2.0
"""Two hosts and a wire: network namespaces with a veth pair between them, for the gateway's benchmarks and tests.

The gateway's host has 10.77.1.1, its clients' host all of 10.0.0.0/8 but that (and what is sent from elsewhere gets lost).
"""
import contextlib
import ctypes
import os
import pathlib
import shutil
import subprocess

LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNET = 0x40000000
GATEWAY, CLIENTS = "10.77.1.1", "10.77.1.2"


class Unavailable(Exception):
    """No namespaces can be made here. The message says why."""


def ip(*arguments, host=None):
    command = ["ip", *(["-n", host] if host else []), *arguments]
    return subprocess.run(command, check=True, capture_output=True, timeout=20).stdout.decode()


@contextlib.contextmanager
def on(host):
    """Inside, this thread and what it starts are on that host."""
    with open("/proc/thread-self/ns/net", encoding="utf-8") as before, open(f"/run/netns/{host}", encoding="utf-8") as there:
        if LIBC.setns(there.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")
        try:
            yield
        finally:
            LIBC.setns(before.fileno(), CLONE_NEWNET)


class Veth:
    """`name` is the interface's, on both hosts, and unique: threads of the kernel are found by it."""

    def __init__(self):
        if shutil.which("ip") is None or os.getuid() != 0:
            raise Unavailable("no network namespaces: they need root, and ip of iproute2")
        self.name = f"w{os.getpid()}"
        self.gateway, self.clients = f"weir-{os.getpid()}-gateway", f"weir-{os.getpid()}-clients"
        try:
            for host in (self.gateway, self.clients):
                self.ip("netns", "add", host)
            self.ip("link", "add", self.name, "netns", self.gateway, "type", "veth", "peer", "name", self.name, "netns", self.clients)
            self.ip("link", "show", host=self.gateway)  # in a chroot no namespace can be entered
        except subprocess.CalledProcessError as error:
            self.close()
            raise Unavailable(f"no network namespaces: {error.stderr.decode().strip()}") from error
        try:
            self.open()
        except BaseException:
            self.close()
            raise

    ip, on = staticmethod(ip), staticmethod(on)

    def mac(self, host):
        return self.ip("link", "show", self.name, host=host).split("link/ether ")[1].split()[0]

    def open(self):
        for host, address in ((self.gateway, GATEWAY), (self.clients, CLIENTS)):
            self.ip("addr", "add", f"{address}/30", "dev", self.name, host=host)
            self.ip("link", "set", self.name, "up", host=host)
            self.ip("link", "set", "lo", "up", host=host)
        # Nobody asks for addresses while a flood goes on.
        for host, address, other in ((self.gateway, CLIENTS, self.clients), (self.clients, GATEWAY, self.gateway)):
            self.ip("neigh", "replace", address, "lladdr", self.mac(other), "dev", self.name, "nud", "permanent", host=host)
        self.ip("route", "add", "default", "via", CLIENTS, host=self.gateway)
        self.ip("route", "add", "local", "10.0.0.0/8", "dev", "lo", host=self.clients)
        self.ip("route", "add", f"{GATEWAY}/32", "dev", self.name, host=self.clients)

    def command(self, host, *command):
        """The words of a command that runs on this host."""
        return ["ip", "netns", "exec", host, *command]

    def receive_in_threads(self):
        """
        Has the kernel receive on the gateway's host in a thread of its own (threaded NAPI), as it would be an interrupt of a
        network card; so the time that it takes is that of a thread. Needs ethtool.
        """
        if shutil.which("ethtool") is None:
            raise Unavailable("there is no ethtool")
        for host, words in ((self.gateway, ("gro", "on")), (self.clients, ("tso", "off", "gso", "off"))):
            subprocess.run(self.command(host, "ethtool", "-K", self.name, *words), check=True, capture_output=True, timeout=20)
        threaded = f"/sys/class/net/{self.name}/threaded"
        done = subprocess.run(self.command(self.gateway, "sh", "-c", f"echo 1 >{threaded}"), capture_output=True, timeout=20, check=False)
        if done.returncode != 0:
            raise Unavailable("this kernel receives in no threads of its own (Linux 5.12)")

    def threads(self):
        """The kernel's threads that receive."""
        found = []
        for comm in pathlib.Path("/proc").glob("[0-9]*/comm"):
            with contextlib.suppress(OSError):
                if comm.read_text().startswith(f"napi/{self.name}-"):
                    found.append(int(comm.parent.name))
        return found

    def close(self):
        for host in (self.gateway, self.clients):
            subprocess.run(["ip", "netns", "del", host], check=False, capture_output=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
