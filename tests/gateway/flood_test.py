#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Floods from one, many and forged sources beside clients that keep to their limit, between two network namespaces, without XDP
and with it: flood_test.py BUILD_DIRECTORY SOURCE_DIRECTORY [TEST...]. Prints TAP.

Guards: apps/gateway/xdp/xdp.c, apps/gateway/xdp/repeats.c, apps/gateway/decision.c
"""
import contextlib
import json
import pathlib
import subprocess
import sys

from support import Fixture, run, Skipped

sys.path.insert(0, sys.argv[2] + "/bench/packets")
import veth  # noqa: E402

PROGRAMS = pathlib.Path(sys.argv[1]) / "bench" / "packets"
MODES = ("none", "generic", "native")
ONE, MANY, FORGED = "11.0.0.1,1", "11.0.0.1,100", "11.0.0.1,10000000"
# Forged sources come once each, from 153 networks.
POLICIES = """policies:
  - {name: source, limits: [{algorithm: token_bucket, limit: 5, period: 1s, burst: 10}]}
  - {name: network16, limits: [{algorithm: token_bucket, limit: 2000, period: 1s, burst: 4000}]}
"""
OF_NETWORKS = "policies: [{name: source, limits: [{algorithm: token_bucket, limit: 5, period: 1s, burst: 10}]}, " \
              "{name: network16, limits: [{algorithm: token_bucket, limit: 10, period: 1s, burst: 20}]}]\n"
PACKETS, RATE = 20000, 5000


@contextlib.contextmanager
def network():
    try:
        with veth.Veth() as wire:
            yield wire
    except veth.Unavailable as reason:
        raise Skipped(str(reason)) from reason


@contextlib.contextmanager
def gateway(wire, mode, policies):
    options = [] if mode == "none" else ["--xdp", f"{wire.name},mode={mode}"]
    with wire.on(wire.gateway), Fixture(*options, listen=veth.GATEWAY, threads=1, policies=policies) as f:
        if options and f.status()["kernel"] is None:
            raise Skipped(f.log.read_text().splitlines()[-1])
        yield f


def start(wire, program, *arguments):
    command = wire.command(wire.clients, str(PROGRAMS / program), *(str(a) for a in arguments))
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def overflown(wire):
    """Packets that found a queue full on their way to the gateway: of its socket, or of the kernel before that."""
    lines = [line.split() for line in pathlib.Path("/proc/thread-self/net/snmp").read_text().splitlines() if line.startswith("Udp: ")]
    counts = dict(zip(*lines))
    dropped = sum(json.loads(wire.ip("-s", "-j", "link", "show", wire.name, host=host))[0]["stats64"][way]["dropped"]
                  for host, way in ((wire.gateway, "rx"), (wire.clients, "tx")))
    return int(counts["RcvbufErrors"]) + dropped


def beside(wire, f, sources):
    """What the senders and the gateway have counted when a flood and the clients beside it are over."""
    before = overflown(wire)
    flood = start(wire, "weir-flood", "--interface", wire.name, "--to", f"{veth.GATEWAY}:{f.port}", "--mac", wire.mac(wire.gateway),
                  "--sources", sources, "--rate", RATE, "--packets", PACKETS, "--seconds", 60)
    polite = start(wire, "weir-polite", "--to", f"{veth.GATEWAY}:{f.port}", "--clients", "10.0.0.9,100", "--step", 65536, "--rate", 200,
                   "--seconds", 3)
    flood, polite = (json.loads(child.communicate(timeout=100)[0]) for child in (flood, polite))

    def all_counted():
        status = f.status()
        kernel = (status["kernel"] or {"dropped": 0})["dropped"]
        counted = kernel + sum(status["dropped"].values()) + status["passed"] + overflown(wire) - before
        if counted == flood["sent"] + polite["sent"] - polite["unsent"]:
            return status, kernel
        assert counted < flood["sent"] + polite["sent"], (counted, flood, polite, status)
        return None
    status, kernel = f.until(all_counted)
    return flood, polite, status, kernel, overflown(wire) - before


def check(sources, policies):
    with network() as wire:
        for mode in MODES:
            for _ in range(3):
                with gateway(wire, mode, policies) as f:
                    flood, polite, status, kernel, overflow = beside(wire, f, sources)
                if overflow == 0:
                    break  # else this machine was too busy to tell
            print(f"# {mode}: {flood}, {polite}, kernel {kernel}, passed {status['passed']}, dropped {status['dropped']}, "
                  f"overflown {overflow}", flush=True)
            assert flood["sent"] + flood["refused"] == PACKETS
            # Where sockets overflow on a machine that busy, no more is lost of the others than that.
            assert polite["sent"] - polite["unsent"] - polite["returned"] <= overflow, (mode, polite, overflow)
            assert (kernel > 0) == (mode != "none"), (mode, status)
            assert sum(status["dropped"].values()) > 0, status


def test_a_flood_of_one_source_costs_the_others_nothing_and_all_packets_are_counted():
    check(ONE, POLICIES)


def test_a_flood_of_many_sources_costs_the_others_nothing_and_all_packets_are_counted():
    check(MANY, POLICIES)


def test_a_flood_of_forged_sources_is_dropped_by_its_networks():
    check(FORGED, OF_NETWORKS)


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)
    run(globals())
