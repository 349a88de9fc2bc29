# SPDX-License-Identifier: Apache-2.0
"""Hosts that the tests of the gateway make, with wires between them: network namespaces, which end with the test."""
import contextlib
import os
import secrets
import shutil
import subprocess
import sys

from support import Skipped

sys.path.insert(0, sys.argv[2] + "/bench/packets")
from veth import ip, LIBC, on  # noqa: E402,F401


def host_names(letters):
    """A name for each host. No process number: a test that was killed leaves its names, and numbers come again."""
    mark = secrets.token_hex(4)
    return [f"weir-{mark}-{letter}" for letter in letters]


def wire(one, one_name, other, other_name, *more):
    """The words by which `ip` lays a wire between two hosts."""
    return ("link", "add", one_name, "netns", one, *more, "type", "veth", "peer", "name", other_name, "netns", other, *more)


def addresses(host, device, *all_of_it):
    """Gives a host's end of a wire its addresses."""
    for address in all_of_it:
        ip("addr", "add", address, "dev", device, *(["nodad"] if ":" in address else []), host=host)
    ip("link", "set", device, "up", host=host)
    ip("link", "set", "lo", "up", host=host)


@contextlib.contextmanager
def hosts(names, wires, lay):
    """Inside, this process is on the first of these hosts. `lay` gives them what they need beside their wires."""
    if shutil.which("ip") is None or os.getuid() != 0:
        raise Skipped("no network namespaces: they need root, and ip of iproute2")
    made = []
    try:
        try:
            for name in names:
                ip("netns", "add", name)
                made.append(name)
            for words in wires:
                ip(*words)
            ip("link", "show", host=names[0])  # in a chroot no namespace can be entered
        except subprocess.CalledProcessError as error:
            raise Skipped(f"no network namespaces: {error.stderr.decode().strip()}") from error
        lay()
        with on(names[0]):
            yield
    finally:
        for name in made:
            ip("netns", "del", name)
