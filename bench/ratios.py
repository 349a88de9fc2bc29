#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ratios from one run of weir-bench: ratios.py RESULTS.json. Medians, with the spread of the repetitions.

Peers are compared with weir in their group: those without keys with one prepared key, those with a table with a key made
from its bytes at each check.
"""
import json
import statistics
import sys


def main():
    runs = {}
    peers = {}
    for row in json.load(open(sys.argv[1]))["benchmarks"]:
        if row["run_type"] == "iteration" and not row.get("error_occurred"):
            runs.setdefault(row["run_name"], []).append(row["ns"])
            if "keyed" in row and "/" in row["name"].split("/real_time")[0]:
                peers[row["run_name"].replace("/real_time", "")] = row
    times = {name.replace("/real_time", ""): sorted(values) for name, values in runs.items()}
    print("| check | ns, median | min to max |\n| --- | --- | --- |")
    for name, values in times.items():
        print(f"| {name} | {statistics.median(values):.2f} | {values[0]:.2f} to {values[-1]:.2f} |")
    print("\n| ratio | value |\n| --- | --- |")
    for text, a, b in (("shared GCRA / weir, one thread", "shared_gcra/threads:1", "weir_hot/threads:1"),
                       ("shared GCRA / weir, two threads on one key", "shared_gcra/threads:2", "weir_hot/threads:2"),
                       ("weir, two threads on one key / one thread", "weir_hot/threads:2", "weir_hot/threads:1"),
                       ("weir, Redis hangs / no Redis", "weir_hot_redis_hangs/threads:1", "weir_hot/threads:1"),
                       ("weir denied, two threads / one thread", "weir_denied/threads:2", "weir_denied/threads:1")):
        print(f"| {text} | {statistics.median(times[a]) / statistics.median(times[b]):.2f} |")
    print("\n| group | peer | threads | a check / weir's | admitted | bytes a key |\n| --- | --- | --- | --- | --- | --- |")
    for name, row in peers.items():
        group, peer, threads = name.split("/")
        ours = times.get(f"{group}/{'weir_keyed' if row['keyed'] else 'weir'}/{threads}")
        ratio = f"{statistics.median(times[name]) / statistics.median(ours):.2f}" if ours else ""
        memory = f"{row['bytes_per_key']:.0f}" if "bytes_per_key" in row else ""
        print(f"| {group} | {peer} | {threads.removeprefix('threads:')} | {ratio} | {row['admitted']:.3g} | {memory} |")


if __name__ == "__main__":
    main()
