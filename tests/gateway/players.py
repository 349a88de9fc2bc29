#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Clients by the thousand, a backend that takes its time, and a gateway between them."""
import contextlib
import heapq
import ipaddress
import pathlib
import select
import socket
import struct
import threading
import time

from support import Fixture, gateway_demo

FIRST = int(ipaddress.ip_address("127.64.0.0"))
PKTINFO = 8  # IP_PKTINFO, which the module lacks


@contextlib.contextmanager
def local_ports(first, last):
    """A gateway that is started inside finds these ports. Outside of it everybody else has others, as many as are needed."""
    path = pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range")
    path.write_text(f"{first} {last}\n")
    yield
    path.write_text("50000 60999\n")


class Served:
    """What has a socket that a thread of its own serves."""

    def begin(self):
        self.stopped = False
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stopped = True
        self.thread.join()
        self.socket.close()


class Players(Served):
    """Clients, each with an address of its own, by one socket. A packet and its answers have the client's number."""

    def __init__(self, port):
        self.gateway = ("127.0.0.1", port)
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
        self.socket.setsockopt(socket.IPPROTO_IP, PKTINFO, 1)
        self.socket.bind(("0.0.0.0", gateway_demo.free_port(socket.SOCK_DGRAM)))
        self.right, self.wrong, self.answered = 0, [], set()
        self.begin()

    def send(self, number):
        source = struct.pack("I4s4s", 0, (FIRST + number).to_bytes(4, "big"), bytes(4))
        try:
            self.socket.sendmsg([struct.pack("I", number)], [(socket.IPPROTO_IP, PKTINFO, source)], 0, self.gateway)
        except ConnectionRefusedError:
            pass  # an earlier packet found no gateway

    def serve(self):
        while not self.stopped:
            if not select.select([self.socket], [], [], 0.1)[0]:
                continue
            try:
                data, more, _, _ = self.socket.recvmsg(100, 100)
            except ConnectionRefusedError:
                continue
            to = next(struct.unpack("I4s4s", value)[2] for _, kind, value in more if kind == PKTINFO)
            number, got = int.from_bytes(to, "big") - FIRST, struct.unpack("I", data[:4])[0]
            if number == got:
                self.right += 1
                self.answered.add(number)
            else:
                self.wrong.append((number, got))


class Backend(Served):
    """
    Answers each packet after `delay` seconds, and then every `again` seconds, for as long as it is open. Clients in `holds`
    wait for their answers until it is empty.
    """

    def __init__(self, delay=0, again=None, holds=()):
        self.delay, self.again, self.holds = delay, again, holds
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
        self.socket.bind(("127.0.0.1", gateway_demo.free_port(socket.SOCK_DGRAM)))
        self.port = self.socket.getsockname()[1]
        self.homes, self.owners, self.count = {}, {}, 0  # ports of each client, and clients of each port; packets
        self.begin()

    def serve(self):
        due, told = [], set()
        while not self.stopped:
            now = time.monotonic()
            while due and due[0][0] <= now:
                at, data, home = heapq.heappop(due)
                if struct.unpack("I", data[:4])[0] in self.holds:
                    heapq.heappush(due, (now + 0.05, data, home))
                    continue
                try:
                    self.socket.sendto(data, home)
                except ConnectionRefusedError:
                    pass
                if self.again:
                    heapq.heappush(due, (at + self.again, data, home))
            if not select.select([self.socket], [], [], min(0.05, max(0, due[0][0] - now)) if due else 0.05)[0]:
                continue
            try:
                data, home = self.socket.recvfrom(100)
            except ConnectionRefusedError:
                continue
            number = struct.unpack("I", data[:4])[0]
            self.count += 1
            self.homes.setdefault(number, set()).add(home[1])
            self.owners.setdefault(home[1], set()).add(number)
            if not self.again or (number, home) not in told:
                told.add((number, home))
                heapq.heappush(due, (now + self.delay, data, home))


class Gateway(Fixture):
    """One without limits, before given backends."""

    def __init__(self, *words, backends, threads=1, ports=(32768, 60999)):
        self.make_place("")
        with self.starting(), local_ports(*ports):
            self.launch("127.0.0.1", *[w for b in backends for w in ("--backend", f"127.0.0.1:{b.port}")], "--threads", threads, *words)


def until(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.002)
