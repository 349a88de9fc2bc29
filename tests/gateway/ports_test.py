#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
An answer reaches its client or nobody: late answers while sessions end and ports go from client to client, on loopback:
ports_test.py BUILD_DIRECTORY SOURCE_DIRECTORY [TEST...]. Prints TAP.

Guards: apps/gateway/ports.c, apps/gateway/session.c, apps/gateway/run.c, apps/gateway/worker.c, apps/gateway/main.c
"""
import os
import random
import signal
import socket
import struct
import subprocess
import threading
import time

from players import Backend, Gateway, local_ports, Players, until
from support import ask, Fixture, gateway_demo, in_a_network_of_its_own, run

def test_ports_of_evicted_clients_are_given_to_nobody():
    def inside():
        with Backend(holds=range(200)) as backend, Gateway("--sessions", 16, "--port-rest", 3600, backends=[backend], ports=(40000, 40023)) as f, Players(f.port) as players:
            players.send(0)
            until(lambda: backend.count == 1)
            for number in range(1, 101):
                players.send(number)
            f.until(lambda: f.status()["offered"] == 101)
            status = f.status()
            # Each of the 24 ports has had one client. The others were dropped.
            assert status["without_port"] == status["unsendable"] == 101 - 24, status
            assert status["evicted_sessions"] == 24 - 16 and status["sessions"] == 16, status
            assert f"weir_gateway_without_port_packets_total {101 - 24}" in f.get("/metrics")
            assert f.log.read_text().count("none of 24 local ports has rested for 3600 s: packets of new clients are dropped") == 1
            backend.holds = ()
            until(lambda: players.right == 16)
            time.sleep(0.5)  # all answers have left by now
            assert players.wrong == [] and players.right == 16, players.wrong
            # Who was evicted comes back to the port that it had, before all others.
            players.send(0)
            until(lambda: 0 in players.answered)
            assert len(backend.homes[0]) == 1, backend.homes[0]
    in_a_network_of_its_own(inside)


def test_ten_thousand_clients_get_no_answer_of_another():
    def inside():
        with Backend(1.5) as backend, Gateway(backends=[backend]) as f, Players(f.port) as players:
            start = time.monotonic()
            for number in range(10000):
                due = start + number / 5000
                if (wait := due - time.monotonic()) > 0:
                    time.sleep(wait)
                until(lambda number=number: number - backend.count < 200)  # no buffer is too small on a slow machine
                players.send(number)
            until(lambda: backend.count == 10000)
            status = f.status()
            assert status["without_port"] == 0 and status["evicted_sessions"] == 10000 - 4096, status
            # Those who were not evicted get their answers.
            until(lambda: len(players.answered) >= 4096)
            time.sleep(0.5)
            assert players.wrong == [], len(players.wrong)
            assert all(len(owners) == 1 for owners in backend.owners.values())
    in_a_network_of_its_own(inside)


def check_restart(end_with, players_count=300):
    """A server that pushes to all players, while the gateway ends and another one begins."""
    with Backend(0.1, again=0.25) as backend, Gateway("--threads", 2, backends=[backend]) as f, Players(f.port) as players:
        numbers = list(range(players_count))
        for _ in range(2):
            random.shuffle(numbers)
            for number in numbers:
                players.send(number)
                time.sleep(0.0005)
            f.until(lambda: len(backend.homes) == players_count)
            child = f.demo.children[-1]
            child.send_signal(end_with)
            child.wait(60)
            with local_ports(32768, 60999):
                f.launch("127.0.0.1", "--backend", f"127.0.0.1:{backend.port}", "--threads", 2)
        seen = backend.count
        random.shuffle(numbers)
        for number in numbers:
            players.send(number)
            time.sleep(0.0005)
        f.until(lambda: backend.count == seen + players_count)
        before = players.right
        until(lambda: players.right > before + 3 * players_count)
        assert players.wrong == [], len(players.wrong)
        assert all(len(home) == 1 for home in backend.homes.values())  # the server knows each by its port
        assert all(len(owners) == 1 for owners in backend.owners.values())
        assert f.status()["unsendable"] == 0


def test_a_restart_gives_each_player_its_port_again():
    in_a_network_of_its_own(lambda: check_restart(signal.SIGTERM))


def test_a_gateway_that_is_killed_gives_each_player_its_port_again():
    in_a_network_of_its_own(lambda: check_restart(signal.SIGKILL))


def test_players_keep_their_ports_while_one_gateway_takes_over_from_another():
    def inside():
        with Backend(0.05, again=0.3) as backend, Gateway("--threads", 2, backends=[backend]) as f, Players(f.port) as players:
            stopped = threading.Event()

            def play():
                while not stopped.is_set():
                    for number in range(200):
                        players.send(number)
                        time.sleep(0.001)
            thread = threading.Thread(target=play)
            thread.start()
            try:
                for _ in range(3):
                    f.until(lambda: len(players.answered) == 200)
                    old = f.demo.children[-1]
                    f.http = gateway_demo.free_port(socket.SOCK_STREAM)
                    with local_ports(32768, 60999):
                        f.launch("127.0.0.1", "--backend", f"127.0.0.1:{backend.port}", "--threads", 2)
                    time.sleep(0.5)  # both serve
                    old.send_signal(signal.SIGTERM)
                    assert old.wait(60) == 0
                    players.answered.clear()
                f.until(lambda: len(players.answered) == 200)
            finally:
                stopped.set()
                thread.join()
            assert players.wrong == [], len(players.wrong)
            assert all(len(home) == 1 for home in backend.homes.values()), backend.homes
            assert f.status()["unsendable"] == 0
    in_a_network_of_its_own(inside)


def test_answers_of_a_backend_that_was_left_reach_nobody_else():
    def inside():
        with Backend(holds=range(100)) as left, Backend(holds=range(100)) as stays:
            f = Gateway.__new__(Gateway)
            f.make_place("")
            with f.starting():
                f.config = f.demo.dir / "gateway.conf"
                f.config.write_text(f"backends: ['127.0.0.1:{left.port}', '127.0.0.1:{stays.port}']\n")
                with local_ports(40000, 40199):
                    f.launch("127.0.0.1", "--config", f.config, "--threads", 1, "--port-rest", 3600)
            with f, Players(f.port) as players:
                for number in range(100):
                    players.send(number)
                until(lambda: left.count + stays.count == 100)
                assert left.count > 20 and stays.count > 20
                f.config.write_text(f"backends: ['127.0.0.1:{stays.port}']\n")
                f.demo.children[-1].send_signal(signal.SIGHUP)
                f.until(lambda: f.status()["reloads"] == 1 and f.status()["sessions"] == stays.count)
                for number in range(100, 300):
                    players.send(number)
                f.until(lambda: f.status()["offered"] == 300)
                until(lambda: stays.count == 200 - left.count)
                assert f.status()["without_port"] == 100, f.status()
                left.holds = stays.holds = ()
                # Who comes back has its port again, towards the other backend.
                before = stays.count
                for number in range(100):
                    players.send(number)
                f.until(lambda: stays.count == before + 100)
                until(lambda: players.answered.issuperset(range(100)))
                time.sleep(0.5)
                assert players.wrong == [], players.wrong
                for number, home in left.homes.items():
                    assert home == stays.homes[number], number
    in_a_network_of_its_own(inside)


def test_a_client_that_was_silent_for_long_leaves_its_port_to_rest():
    def inside():
        with Backend(holds=range(200)) as backend, Gateway("--idle", 1, "--port-rest", 3600, backends=[backend], ports=(40000, 40015)) as f, Players(f.port) as players:
            for number in range(16):
                players.send(number)
            f.until(lambda: backend.count == 16 and f.status()["offered"] == 16)
            f.until(lambda: f.status()["sessions"] == 0)
            for number in range(100, 116):
                players.send(number)
            f.until(lambda: f.status()["offered"] == 32)
            assert f.status()["without_port"] == 16 and backend.count == 16
            backend.holds = ()
            time.sleep(0.5)
            assert players.wrong == [] and players.right == 0
    in_a_network_of_its_own(inside)


def test_packets_of_strangers_to_its_ports_reach_no_client():
    def inside():
        with Backend() as backend, Gateway("--sessions", 16, "--port-rest", 1, backends=[backend], ports=(40000, 40999)) as f, Players(f.port) as players:
            stopped = threading.Event()

            def spray():
                with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
                    stranger.setblocking(False)
                    while not stopped.is_set():
                        for port in range(40000, 41000):
                            try:
                                stranger.sendto(struct.pack("I", 0xffffffff), ("127.0.0.1", port))
                            except OSError:
                                pass
            sprayers = [threading.Thread(target=spray) for _ in range(2)]
            for thread in sprayers:
                thread.start()
            try:
                for number in range(3000):
                    players.send(number)
                    if number % 100 == 0:
                        time.sleep(0.2)
                f.until(lambda: f.status()["replies"] >= 500)
            finally:
                stopped.set()
                for thread in sprayers:
                    thread.join()
            assert players.wrong == [], players.wrong[:5]
    in_a_network_of_its_own(inside)


def test_gateways_with_one_directory_share_what_rests():
    def inside():
        with Backend(holds=range(200)) as backend, Gateway("--port-rest", 3600, backends=[backend], ports=(40000, 40031)) as f, Players(f.port) as players:
            other = gateway_demo.free_port(socket.SOCK_DGRAM)
            http = gateway_demo.free_port(socket.SOCK_STREAM)
            for number in range(32):
                players.send(number)
            until(lambda: backend.count == 32)
            f.demo.children[-1].send_signal(signal.SIGKILL)
            f.demo.children[-1].wait()
            with local_ports(40000, 40031):
                f.demo.start(f.demo.bin / "weir-gateway", "--listen", f"127.0.0.1:{other}", "--backend", f"127.0.0.1:{backend.port}",
                             "--metrics", f"127.0.0.1:{http}", "--threads", 1, "--port-rest", 3600, stderr=open(f.log, "w"))
                f.until(lambda: gateway_demo.status(http))
            with Players(other) as others:
                for number in range(100, 132):
                    others.send(number)
                f.until(lambda: gateway_demo.status(http)["offered"] == 32)
                assert gateway_demo.status(http)["without_port"] == 32
                backend.holds = ()
                time.sleep(0.5)
                assert others.wrong == [] and others.right == 0
    in_a_network_of_its_own(inside)


def start_with(f, *words, **environment):
    port = gateway_demo.free_port(socket.SOCK_DGRAM)
    return subprocess.run([f.demo.bin / "weir-gateway", "--listen", f"127.0.0.1:{port}", "--backend", "127.0.0.1:9", *map(str, words)],
                          env={**os.environ, **environment}, capture_output=True, text=True, timeout=60)


def test_a_directory_that_cannot_be_used_is_refused_by_name():
    with Fixture() as f:
        file = f.demo.dir / "file"
        file.write_text("")
        open_to_all = f.demo.dir / "open"
        open_to_all.mkdir()
        open_to_all.chmod(0o777)
        for place, why in ((file, "Not a directory"), (f.demo.dir / "none/deep", "No such file or directory"),
                           (open_to_all, "it is another user's, or others may write to it")):
            done = start_with(f, "--state", place)
            assert done.returncode == 1 and f"error: --state {place}: {why}" in done.stderr, done.stderr
        for seconds in (0, 3601, "x"):
            done = start_with(f, "--port-rest", seconds)
            assert done.returncode == 2 and f"--port-rest {seconds}: give a number from 1 to 3600" in done.stderr, done.stderr
        # Where nobody gave the directory the gateway serves without.
        f.port, f.http = gateway_demo.free_port(socket.SOCK_DGRAM), gateway_demo.free_port(socket.SOCK_STREAM)
        f.demo.start(f.demo.bin / "weir-gateway", "--listen", f"127.0.0.1:{f.port}", "--backend", f"127.0.0.1:{f.backend_port}",
                     "--metrics", f"127.0.0.1:{f.http}", stderr=open(f.log, "w"), env={**os.environ, "RUNTIME_DIRECTORY": f"{file}:/other"})
        f.until(f.status)
        with f.client() as client:
            assert ask(client) == b"?"
        assert f"warning: {file}: Not a directory; a restart will not know which client has which local port" in f.log.read_text()


if __name__ == "__main__":
    run(globals())
