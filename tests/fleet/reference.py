#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Prints tests/fleet/reference.txt in a minute: how much an idealised fleet lets pass of one key that has one limit.

  tests/fleet/reference.py [--only TEXT] [--seed N] >tests/fleet/reference.txt

Once an interval a node tells the others what passed, and hears what they told. Each node has its own phase. Nothing is
late, and nothing is lost. Two rules bridge the time between two syncs:

naive    What the limit leaves may pass: the node knows its own units, and the others' as of its last sync.
mirror   The node also leaves room for what the others may have had since. That is no more than they are asked for. And
         they go by the same rule, so where room is short they have a part of it: their part of the whole demand.

The library goes by the second rule, with the additions of docs/decisions/007-estimate.md, and is compared with it here.
"""
import argparse
import collections
import itertools
import random

INTERVAL = 0.2  # seconds from one sync of a node to its next
NEWEST = 0.5  # weight of the last interval in a demand; the rest is that of all intervals before it
AGE = INTERVAL / 2  # mean age of what a node hears, which others told up to an interval ago
RULES = ("naive", "mirror")
SHAPES = ((4, 1000, 1, 3), (4, 1000, 10, 3), (16, 10000, 1, 3), (16, 6000, 60, 5), (64, 100000, 10, 4),
          (4, 1000, 1, 0.9))  # nodes, limit, period, demand
COLUMNS = ("algorithm nodes limit period_s demand pattern", *(f"{rule}_mean most least" for rule in RULES))


class Scenario:
    """The period is in seconds. The demand is a multiple of what the limit lets pass in the long run."""

    def __init__(self, algorithm, nodes, limit, period, demand, pattern):
        self.name = f"{algorithm} {nodes} {limit} {period} {demand} {pattern}"
        self.algorithm, self.nodes, self.limit, self.period, self.pattern = algorithm, nodes, limit, period, pattern
        self.rate = limit / period
        self.traffic = demand * self.rate  # units a second, of all nodes together
        self.seconds = min(max(8 * period, 12), 240)
        self.step = 0.005 if nodes > 30 or period > 10 else 0.002

    def asked_of(self, node, now):
        """How many units a second a node is asked for."""
        if self.pattern == "skew":
            return 0.9 * self.traffic if node == 0 else 0.1 * self.traffic / (self.nodes - 1)
        if self.pattern == "move":
            return self.traffic if int(now / 3.3) % self.nodes == node else 0
        if self.pattern == "onoff" and int(now / 1.7 + 0.37 * node) % 2:
            return 0
        return self.traffic / self.nodes


class Fleet:
    """All that the nodes have told."""

    def __init__(self):
        self.passed = collections.defaultdict(int)  # units by window
        self.asked = 0
        self.full_at = 0  # when the bucket will be full, if nothing else passes


class Node:
    def __init__(self, scenario, chance):
        self.scenario, self.chance = scenario, chance
        self.next_sync, self.last_sync = chance.random() * INTERVAL, 0
        self.begun = 0  # fraction of the next unit to be asked for
        self.own, self.others, self.untold = (collections.defaultdict(int) for _ in range(3))  # units by window
        self.full_at = 0
        self.asked = self.asked_told = self.asked_before = self.others_asked_before = 0
        self.demand = self.others_demand = 0  # units per second
        self.passed, self.passed_before = 0, (0, 0)  # until now, and until each of the last two syncs

    def room(self, now):
        """What the limit leaves, as far as this node knows."""
        limit, period = self.scenario.limit, self.scenario.period
        if self.scenario.algorithm == "bucket":
            return limit - max(self.full_at - now, 0) * self.scenario.rate
        window, into = divmod(now, period)
        room = limit - self.own[window] - self.others[window]
        if self.scenario.algorithm == "sliding":
            room -= (1 - into / period) * (self.own[window - 1] + self.others[window - 1])
        return room

    def left_to_others(self, room, now):
        """How much of this room the others may have had since they told."""
        since = now - self.last_sync + AGE
        passed_since = self.passed - sum(self.passed_before) / 2
        window, into = divmod(now, self.scenario.period)
        if self.scenario.algorithm != "bucket" and into < since:  # the window began after that
            since, passed_since = into, min(passed_since, self.own[window])
        demand = max(self.demand, 1 / INTERVAL)
        part = self.others_demand / (demand + self.others_demand)
        return min(self.others_demand * since, part * (room + passed_since))

    def ask(self, units, now, rule):
        """How many of these units pass."""
        self.asked += units
        room = self.room(now)
        if rule == "mirror" and self.others_demand > 0:
            # Half a unit of room lets one pass in half of the cases.
            room += self.chance.random() - self.left_to_others(room, now)
        passing = max(0, min(units, int(room + 1e-6)))
        if passing:
            window = now // self.scenario.period
            self.own[window] += passing
            self.untold[window] += passing
            self.passed += passing
            self.full_at = max(self.full_at, now) + passing / self.scenario.rate
        return passing

    def sync(self, fleet, now):
        """Tells the fleet what is new here, and hears what it knows."""
        if self.untold:
            fleet.full_at = max(fleet.full_at, now - AGE) + sum(self.untold.values()) / self.scenario.rate
        for window, units in self.untold.items():
            fleet.passed[window] += units
        self.untold.clear()
        present = now // self.scenario.period
        for window in (present - 1, present):
            self.others[window] = fleet.passed[window] - self.own[window]
        self.full_at = fleet.full_at
        fleet.asked += self.asked - self.asked_told
        self.asked_told = self.asked
        span = now - self.last_sync
        if span > INTERVAL / 2:  # the first one may be too short to tell a demand
            others_asked = fleet.asked - self.asked
            self.demand += NEWEST * ((self.asked - self.asked_before) / span - self.demand)
            self.others_demand += NEWEST * ((others_asked - self.others_asked_before) / span - self.others_demand)
            self.asked_before, self.others_asked_before = self.asked, others_asked
        self.passed_before = (self.passed, self.passed_before[0])
        self.last_sync = now
        self.next_sync += INTERVAL


def run(scenario, rule, seed):
    """What passes, over the limit: mean, most and least of the windows, or of a bucket's periods."""
    chance = random.Random(seed)
    fleet, nodes = Fleet(), [Node(scenario, chance) for _ in range(scenario.nodes)]
    passed = collections.defaultdict(int)
    for now in (number * scenario.step for number in range(round(scenario.seconds / scenario.step))):
        for number, node in enumerate(nodes):
            node.begun += scenario.asked_of(number, now) * scenario.step * (0.3 + 1.4 * chance.random())
            units = int(node.begun)
            if units:
                node.begun -= units
                passed[now // scenario.period] += node.ask(units, now, rule)
            if now >= node.next_sync:
                node.sync(fleet, now)
    windows = [passed[window] for window in sorted(passed)][2:-1]  # the fleet has met, and these are over
    return [units / scenario.limit for units in (sum(windows) / len(windows), max(windows), min(windows))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="TEXT", default="", help="the rows with this text in their first six columns")
    parser.add_argument("--seed", metavar="N", type=int, default=1, help="seed of the random numbers of each row (1)")
    words = parser.parse_args()
    scenarios = [Scenario(algorithm, *shape, pattern) for algorithm, shape, pattern in
                 itertools.product(("fixed", "sliding", "bucket"), SHAPES, ("even", "skew", "onoff", "move"))]
    print("# What an idealised fleet lets pass, over the limit: the mean, the most and the least of the windows.\n"
          f"# Made with seed {words.seed} by tests/fleet/reference.py, which says what naive and mirror mean.")
    print("#", *COLUMNS)
    for scenario in scenarios:
        if words.only in scenario.name:
            figures = [figure for rule in RULES for figure in run(scenario, rule, words.seed)]
            print(scenario.name, *(f"{figure:.3f}" for figure in figures), flush=True)


if __name__ == "__main__":
    main()
