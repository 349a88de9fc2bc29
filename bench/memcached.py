#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
The processor time of a `get` in memcached: without limits, with a command and a byte counted by each check (costs 1 and
1), and with the byte asked for (costs 1 and 0), as docs/start/memcached.md does: memcached.py BUILD_DIRECTORY [ROUNDS].
Medians over rounds in which all three are measured, with the least and the greatest.
"""
import pathlib
import statistics
import sys
import tempfile

from memcached_server import Server, ask, build

BATCH, BATCHES = 500, 1500
KINDS = {"no limits": None, "costs 1, 1": "1, 1", "costs 1, 0": "1, 0"}


def nanoseconds(server):
    """Of the server's processors, for one command."""
    with server.connect() as connection:
        before = server.processor_seconds()
        for _ in range(BATCHES):
            assert ask(connection, b"get key\r\n", BATCH) == [b"END"] * BATCH
        return (server.processor_seconds() - before) / (BATCH * BATCHES) * 1e9


def main(weir_build, rounds):
    taken = {kind: [] for kind in KINDS}
    with tempfile.TemporaryDirectory(prefix="weir-bench-") as directory:
        place = pathlib.Path(directory)
        policies = place / "policies.yaml"
        policies.write_text("policies:\n" + "".join(
            f"  - name: {name}\n    limits: [{{algorithm: token_bucket, limit: 500000000, period: 1s}}]\n" for name in ("commands", "bytes")))
        servers = {}
        for number, (kind, costs) in enumerate(KINDS.items()):
            program = build(weir_build, place / str(number), costs is not None, costs)
            servers[kind] = Server(program, place / f"{number}.log", "-t", "1", policies=policies)
        for _ in range(rounds):
            for kind, server in servers.items():
                taken[kind].append(nanoseconds(server))
        for server in servers.values():
            server.stop()
    base = statistics.median(taken["costs 1, 1"])
    for kind, times in taken.items():
        print(f"{kind:12} {statistics.median(times):6.0f} ns a command ({min(times):.0f} to {max(times):.0f}), "
              f"{statistics.median(times) / base:.2f} of costs 1, 1")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 9)
