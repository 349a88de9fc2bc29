# SPDX-License-Identifier: Apache-2.0
"""Nodes of a fleet that do as a test says (node.c)."""
import collections
import os
import re
import subprocess

from command_support import PLAIN, WRAPPER

Verdict = collections.namedtuple("Verdict", "allowed remaining retry_ns reset_ns")


# A node of this interval is live for as long as a test lasts, although a busy machine gives it no processor for seconds. It
# hears and tells of units when the test asks it to sync.
SEEN_LIVE_MS = 2000


class Node:
    """A node. Units that it has charged are in Redis after sync()."""

    def __init__(self, redis, policies, interval_ms=50, secret="", addresses=None):
        words = [os.environ["COMMAND_NODE"], redis.url, str(policies), str(interval_ms), secret]
        self.child = subprocess.Popen([*WRAPPER, *words, *map(str, addresses or ())], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                      text=True, env=PLAIN)
        self.sync()

    def ask(self, verb, policy=".", key=".", cost=0):
        self.child.stdin.write(f"{verb} {policy} {key} {cost}\n")
        self.child.stdin.flush()
        line = self.child.stdout.readline()
        assert line != "", "the node has ended"
        return line

    def verdict(self, verb, policy, key, cost=1):
        allowed, *rest = map(int, self.ask(verb, policy, key, cost).split())
        return Verdict(bool(allowed), *rest)

    def check(self, policy, key, cost=1):
        return self.verdict("check", policy, key, cost)

    def peek(self, policy, key, cost=1):
        return self.verdict("peek", policy, key, cost)

    def charge(self, policy, key, cost=1):
        self.ask("charge", policy, key, cost)

    def refund(self, policy, key, cost=1):
        self.ask("refund", policy, key, cost)

    def reset(self, policy, key):
        assert self.ask("reset", policy, key) == "0\n"

    def sync(self):
        assert self.ask("sync") == "0\n"

    def metrics(self):
        lines = [self.ask("metrics")]
        while lines[-1] != ".\n":
            lines.append(self.child.stdout.readline())
        return "".join(lines[:-1])

    @property
    def id(self):
        return re.search(r'weir_node_info{node="(\w+)"', self.metrics())[1]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.child.stdin.close()
        self.child.wait(60)
        self.child.stdout.close()
