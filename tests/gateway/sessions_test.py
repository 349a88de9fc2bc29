#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Which clients keep their sessions where there are more clients than sessions, on loopback:
sessions_test.py BUILD_DIRECTORY SOURCE_DIRECTORY [TEST...]. Prints TAP.

Guards: apps/gateway/shares.c, apps/gateway/session.c, apps/gateway/run.c, apps/gateway/main.c
"""
import socket
import struct

from players import Backend, Gateway, local_ports, Players, until
from support import Fixture, in_a_network_of_its_own, run

PLAYER = 1000000  # its address is in a network of its own


def evicted(f, state):
    name = f'weir_gateway_evicted_sessions_total{{state="{state}"}} '
    return int(next(line for line in f.get("/metrics").splitlines() if line.startswith(name)).removeprefix(name))


def test_a_player_keeps_its_port_beside_sources_that_come_once():
    def inside():
        with Backend() as backend, Gateway("--sessions", 64, "--port-rest", 600, backends=[backend]) as f, Players(f.port) as players:
            for number in range(4000):
                if number % 200 == 0:  # its session makes way once, before it has come back
                    players.send(PLAYER)
                    until(lambda number=number: backend.count == number + number // 200 + 1)
                players.send(number * 7)  # some of each network
                until(lambda number=number: number - backend.count < 50)
            f.until(lambda: f.status()["offered"] == 4020)
            status = f.status()
            assert len(backend.homes[PLAYER]) == 1, backend.homes[PLAYER]
            assert status["evicted_used"] == 0 and status["evicted_sessions"] == 4002 - 64, status
            for state, count in (("answered", status["evicted_sessions"] - status["evicted_waiting"]),
                                 ("waiting", status["evicted_waiting"]), ("used", 0)):
                assert evicted(f, state) == count, (state, status)
            assert status["unsendable"] == 0 and players.wrong == []
    in_a_network_of_its_own(inside)


def test_sources_with_ever_new_ports_end_their_own_sessions():
    def inside():
        with Backend() as backend, Gateway("--sessions", 64, "--port-rest", 600, backends=[backend]) as f, Players(f.port) as players:
            sent = 0

            def send(send_one):
                nonlocal sent
                send_one()
                sent += 1
                until(lambda: backend.count == sent)
            for _ in range(2):
                send(lambda: players.send(PLAYER))
            for number in range(1200):
                with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as source:
                    source.bind((f"127.80.{number % 25}.1", 0))
                    for _ in range(2):  # as one that comes back
                        send(lambda source=source, number=number: source.sendto(struct.pack("I", 1 + number), ("127.0.0.1", f.port)))
            send(lambda: players.send(PLAYER))
            assert len(backend.homes[PLAYER]) == 1, backend.homes[PLAYER]
            f.until(lambda: f.status()["offered"] == sent)
            status = f.status()
            assert 1000 < status["evicted_used"] <= status["evicted_sessions"], status  # the kernel may give a port again
            assert evicted(f, "used") == status["evicted_used"]
            assert f.log.read_text().count("64 sessions for each thread are too few: new clients end sessions that are in use") == 1
    in_a_network_of_its_own(inside)


def test_a_query_that_waits_outlives_those_that_were_answered():
    def inside():
        waiters = 300
        with Backend(holds=range(waiters)) as backend, \
                Gateway("--sessions", 512, "--port-rest", 600, backends=[backend]) as f, Players(f.port) as players:
            for number in range(waiters):
                players.send(number)
                until(lambda number=number: backend.count == number + 1)
            for number in range(waiters, waiters + 3000):
                players.send(number)
                until(lambda number=number: number in players.answered)
            backend.holds = ()
            until(lambda: len(players.answered) == waiters + 3000)
            status = f.status()
            assert status["evicted_waiting"] == status["evicted_used"] == 0, status
            assert status["evicted_sessions"] == waiters + 3000 - 512 and players.wrong == [], status
            assert "are too few" not in f.log.read_text()
    in_a_network_of_its_own(inside)


def said_at_start(rate, *words):
    """What the gateway says of sessions when `overall` lets `rate` packets a second pass."""
    policies = f"policies: [{{name: source, limits: [{{algorithm: token_bucket, limit: 9, period: 1s}}]}}, {{name: overall, limits: " \
               f"[{{algorithm: token_bucket, limit: {60 * rate}, period: 1m, burst: 9}}, {{algorithm: fixed_window, limit: {9 * rate}, period: 1s}}]}}]"
    with Fixture(*words, policies=policies) as f:
        return [line.partition("policy ")[2] for line in f.log.read_text().splitlines() if "lets" in line]


def test_the_start_says_if_overall_lets_in_more_clients_than_there_is_room_for():
    def inside():
        with local_ports(20000, 29999):
            assert said_at_start(1500, "--sessions", 800) == []
            assert said_at_start(1601, "--sessions", 800) == [
                '"overall" lets 1601 packets pass a second, and each may be a new client\'s; there are 1600 sessions, and local '
                'ports for 2100 new clients a second']
            assert said_at_start(2000, "--sessions", 3000) == [
                '"overall" lets 2000 packets pass a second, and each may be a new client\'s; there are 6000 sessions, and local '
                'ports for 1000 new clients a second']
            assert said_at_start(2000, "--sessions", 3000, "--port-rest", 2) == []
            assert said_at_start(2, "--sessions", 5000) == [
                '"overall" lets 2 packets pass a second, and each may be a new client\'s; there are 10000 sessions, and local '
                'ports for 0 new clients a second']
    in_a_network_of_its_own(inside)


if __name__ == "__main__":
    run(globals())
