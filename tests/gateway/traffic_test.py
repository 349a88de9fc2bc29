#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
weir-traffic, on loopback: traffic_test.py BUILD_DIRECTORY SOURCE_DIRECTORY [TEST...]. Prints TAP.

Guards: apps/gateway/traffic.c, apps/gateway/echo.c
"""
import json
import signal
import socket
import subprocess
import sys
import threading

from support import gateway_demo, measured, run

PROGRAM = sys.argv[1] + "/apps/gateway/weir-traffic"


class Backend:
    """Notes each packet, and sends those back that come from the first group of clients."""

    def __init__(self, host="127.0.0.1"):
        self.socket = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self.socket.bind((host, 0))
        self.socket.settimeout(0.1)
        self.address = (f"[{host}]:" if ":" in host else f"{host}:") + str(self.socket.getsockname()[1])
        self.packets, self.ends = [], False
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def serve(self):
        while True:
            try:
                data, source = self.socket.recvfrom(65536)
            except socket.timeout:
                if self.ends:
                    return
                continue
            self.packets.append((source[0], data))
            if source[0].startswith("127.16."):
                self.socket.sendto(data, source)

    def sizes(self, group):
        return {len(data) for source, data in self.packets if source.startswith(group)}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.ends = True
        self.thread.join(60)
        self.socket.close()


def start(*words):
    return subprocess.Popen([PROGRAM, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@measured
def test_each_group_sends_its_packets_at_its_rate_and_counts_what_comes_back():
    groups = ("--client", "back,3,90", "--client", "gone,251,2510,700")
    with Backend() as table, Backend() as rows, Backend("::1") as six:
        children = [start("--to", table.address, "--seconds", 1, *groups), start("--to", rows.address, "--seconds", 1, "--json", *groups),
                    start("--to", rows.address, "--seconds", 1, "--json", "--offload", "--client", "a,1,0,1400"),
                    start("--to", six.address, "--seconds", 1, "--json", "--client", "six,2,20,1")]
        outs = [child.communicate(timeout=60) for child in children]
        assert all(child.returncode == 0 and fault == "" for child, (_, fault) in zip(children, outs)), outs
        head, *told = outs[0][0].splitlines()
        assert head.split() == ["seconds", "clients", "count", "sent/s", "returned/s", "returned"], head
        for row, (name, count, most) in zip(told, (("back", "3", 90), ("gone", "251", 2510)), strict=True):
            seconds, its_name, its_count, sent, returned, part = row.split()
            assert (its_name, its_count) == (name, count) and float(seconds) >= 1 and 0 < float(sent) <= most + 1, row
            assert abs(float(part.rstrip("%")) - 100 * float(returned) / float(sent)) < 3, row
            assert (float(returned) > 0) == (name == "back"), row
        seen, = map(json.loads, outs[1][0].splitlines())
        back, gone = seen["clients"]
        assert (back["name"], back["count"], gone["name"], gone["count"]) == ("back", 3, "gone", 251), seen
        assert 1 <= seen["seconds"] < 60 and 0 < back["sent"] <= 90 and 251 <= gone["sent"] <= 2510, seen
        assert 0 < back["returned"] <= back["sent"] and gone["returned"] == 0, seen
        fast, = json.loads(outs[2][0])["clients"]
        assert fast["sent"] > 1000, fast
        only, = json.loads(outs[3][0])["clients"]
        assert only["sent"] == len(six.packets) > 0, (only, six.packets)
    sources = {source for source, _ in table.packets}
    assert sources == {f"127.16.0.{n}" for n in (1, 2, 3)} | {f"127.17.0.{n}" for n in range(1, 251)} | {"127.17.1.1"}, sources
    assert (table.sizes("127.16."), table.sizes("127.17.")) == ({64}, {700}), table.sizes("127.")
    assert {len(data) for _, data in six.packets} == {1} and all(data.startswith(b"weir-traffic") for _, data in table.packets)


def test_it_reports_so_far_until_it_is_interrupted():
    with Backend() as backend:
        for number in (signal.SIGINT, signal.SIGTERM):
            child = start("--to", backend.address, "--seconds", 0, "--report-every", 20, "--json", "--client", "back,1,1000")
            seen = [json.loads(child.stdout.readline()) for _ in range(3)]
            child.send_signal(number)
            out, fault = child.communicate(timeout=60)
            assert child.returncode == 0 and fault == "", fault
            seen += map(json.loads, out.splitlines())
            times, sent = [row["seconds"] for row in seen], [row["clients"][0]["sent"] for row in seen]
            assert 0.02 <= times[0] and times == sorted(times) and sent == sorted(sent) and sent[-1] > 0, seen


@measured
def test_an_echo_sends_each_packet_back_until_its_time_has_passed():
    for options in ((), ("--offload",)):
        port = gateway_demo.free_port(socket.SOCK_DGRAM)
        child = start("--echo", f"127.0.0.1:{port}", "--seconds", 1, *options)
        got, number = set(), 0
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.connect(("127.0.0.1", port))
            client.settimeout(0.05)
            while child.poll() is None:
                number += 1
                try:
                    client.send(str(number).encode() * (number % 100))
                    got.add(client.recv(65536))
                except (socket.timeout, ConnectionRefusedError):  # it has not begun yet, or has ended
                    continue
        out, fault = child.communicate(timeout=60)
        assert child.returncode == 0 and (out, fault) == ("", ""), fault
        assert len(got) > 5 and got <= {str(n).encode() * (n % 100) for n in range(number + 1)}, got
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("127.0.0.1", 0))
        child = start("--echo", f"127.0.0.1:{other.getsockname()[1]}", "--seconds", 1)
        assert child.communicate(timeout=60)[1] == "weir-traffic: --echo: Address already in use\n" and child.returncode == 1


def test_wrong_words_are_refused_with_what_is_taken():
    to, client = ("--to", "127.0.0.1:9"), ("--client", "a,1,1")
    long = "n" * 31
    for words, says in (((), "--to and at least one --client are needed"), (to, "are needed"), (client, "are needed"),
                        (("--to", "nowhere", *client), "--to takes an address"), (("--echo", "nowhere"), "--echo takes an address"),
                        ((*to, *client, "more"), "a word too many"), ((*to, *client, "--what"), "unknown option"),
                        ((*to, *client * 9), "8 is the most"), ((*to, "--seconds", "x", *client), "--seconds takes"),
                        ((*to, "--seconds", "1000001", *client), "--seconds takes"), ((*to, "--report-every", "-1"), "takes milliseconds"),
                        ((*to, "--linger", "1000001", *client), "--linger takes milliseconds"),
                        *((("--client", text), "--client takes NAME,COUNT,RATE[,SIZE]") for text in
                          ("a", "a,1", "a,0,1", "a,4097,1", "a,1,100000001", "a,1,1,0", "a,1,1,1401", "a,1,1,", "a,1,1,1,1", ",1,1",
                           f"{long}n,1,1", 'a",1,1', "a,-1,1", "a,1x,1", "a, 1,1", "a,1,99999999999999999999"))):
        child = start(*words)
        assert says in child.communicate(timeout=60)[1] and child.returncode == 2, (words, child.returncode)
    child = start("--seconds", 1, "--client", f"{long},1,0,1400", "--client", "B-_.9,4096,100000000,1", "--help")
    assert "--report-every" in child.communicate(timeout=60)[0] and child.returncode == 0


if __name__ == "__main__":
    run(globals())
