#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures everything and writes one report: report.json (every figure, by its name, with all repetitions), report.md
(the same in tables) and plots. Run by scripts/bench.

Each figure is the median of its repetitions, given with the least and the most of them, and its ratio to another figure
of the same group of the same run, where it has one to be held against: machines and their hours differ, ratios do so
less. A part that something is missing for is left out with a message.
"""
import argparse
import json
import os
import pathlib
import platform
import re
import shlex
import subprocess
import sys
import time

import plots
import tables
from figures import Figures, Skip
from groups import GROUPS, REPETITIONS, Run


def first_line(*command):
    try:
        return subprocess.run(command, text=True, capture_output=True, check=True).stdout.splitlines()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        return "unknown"


def compiler_of(build):
    """What the library was compiled by, and those of its flags that matter for speed."""
    commands = json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
    words = next(shlex.split(c["command"]) for c in commands if c["file"].endswith("check/check.c"))
    while words[0].endswith("ccache"):
        words.pop(0)
    flags = [word for word in words if re.match(r"-O|-m|-f(lto|profile)|-DNDEBUG", word)]
    return f"{first_line(words[0], '--version')}, {' '.join(flags)}"


def machine_of(build):
    """What the figures depend on."""
    lscpu = subprocess.run(["lscpu"], text=True, capture_output=True, env={**os.environ, "LC_ALL": "C"}).stdout
    fields = dict(line.split(":", 1) for line in lscpu.splitlines() if ":" in line)
    parts = {part: " ".join(fields.get(name, "unknown").split()) for part, name in (
        ("processor", "Model name"), ("NUMA nodes", "NUMA node(s)"), ("L1d", "L1d cache"), ("L2", "L2 cache"),
        ("L3", "L3 cache"), ("hypervisor", "Hypervisor vendor"))}
    return {
        "processor": parts.pop("processor"),
        "processors": f"{os.cpu_count()}, " + ", ".join(f"{part} {value}" for part, value in parts.items()),
        "system": f"{platform.system()} {platform.release()}",
        "compiler": compiler_of(build),
        "source": first_line("git", "-C", str(pathlib.Path(__file__).resolve().parent), "describe", "--always", "--dirty"),
        "measured": time.strftime("%Y-%m-%d %H:%M", time.gmtime()) + " UTC",
        "load before": " ".join(f"{load:.2f}" for load in os.getloadavg()),
    }


def measure(groups, run, keep):
    """
    Figures by group, and what was left out of which and why; whether all went well besides. What there is so far is
    given to `keep` after each group.
    """
    results, skipped, good = {}, {}, True
    for group in groups:
        begun = time.monotonic()
        figures = Figures()
        try:
            group.measure(run, figures)
        except Skip as reason:
            figures.left_out.append(str(reason))
        except Exception as error:  # whatever it is, the others are measured
            figures.left_out.append(f"failed: {error!r}")
            good = False
        results[group.name] = figures
        if figures.left_out:
            skipped[group.name] = "; ".join(figures.left_out)
            print(f"{group.name}: left out: {skipped[group.name]}", file=sys.stderr)
        print(f"{group.name}: {len(figures.by_name)} figures, {time.monotonic() - begun:.0f} s", flush=True)
        keep(results, skipped)
    return results, skipped, good


def as_json(group, figures):
    out = {}
    for name, figure in figures.by_name.items():
        base = tables.base_of(group, figure, figures)
        out[name] = {"unit": figure.unit, "median": figure.median(), "least": min(figure.samples),
                     "most": max(figure.samples), "samples": figure.samples, "notes": figure.notes}
        if base:
            out[name].update(ratio=tables.ratio_of(group, figure, figures), baseline=base.name)
    return out


def kept(path, quick):
    """Figures by group of the last report; what it left out."""
    if not path.exists():
        return {}, {}
    last = json.loads(path.read_text(encoding="utf-8"))
    if last["quick"] != quick:
        print("nothing is kept: the last report is quick and this one is not, or the other way round", file=sys.stderr)
        return {}, {}
    results = {}
    for name, figures in last["groups"].items():
        results[name] = Figures()
        for figure, row in figures.items():
            results[name].add(figure, row["unit"], *row["samples"], **row["notes"])
    return results, last["skipped"]


def write_figures(directory, quick, machine, groups, results, skipped):
    with open(directory / "report.json", "w", encoding="utf-8") as out:
        json.dump({"machine": machine, "quick": quick, "skipped": skipped,
                   "groups": {group.name: as_json(group, results[group.name]) for group in groups}}, out, indent=1)
        out.write("\n")


def write_report(directory, machine, groups, results, skipped):
    for old in directory.glob("*.svg"):
        old.unlink()
    images = {}
    if plots.available():
        images = {name: plot(results[name], directory) for name, plot in plots.PLOTS.items()
                  if name in results and results[name].by_name}
    else:
        print("no plots: there is no gnuplot; scripts/setup --bench installs it", file=sys.stderr)
    (directory / "report.md").write_text(tables.markdown(machine, groups, results, skipped, images), encoding="utf-8")
    print(directory / "report.md")


def main():
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__.split("\n\n")[0])
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build-bench"), help=argparse.SUPPRESS)
    parser.add_argument("--only", default=".*", metavar="REGEX",
                        help="groups whose whole name it matches: " + ", ".join(group.name for group in GROUPS))
    parser.add_argument("--quick", action="store_true", help="a small part of the time: whether it runs, not how fast it is")
    parser.add_argument("--keep", action="store_true",
                        help="groups that are not measured now stay in the report as they are; --only=- measures none, "
                             "and draws again")
    options = parser.parse_args()
    groups = [group for group in GROUPS if re.fullmatch(options.only, group.name)]
    if not groups and not options.keep:
        parser.error(f"--only {options.only}: there is no such group")
    directory = options.build / "report"
    directory.mkdir(parents=True, exist_ok=True)
    machine = machine_of(options.build)
    machine["repetitions"] = f"{REPETITIONS}" + (", --quick: do not quote" if options.quick else "")
    old, old_skipped = kept(directory / "report.json", options.quick) if options.keep else ({}, {})

    def all_of(results, skipped):
        skipped = {**{name: reason for name, reason in old_skipped.items() if name not in results}, **skipped}
        results = {**old, **results}
        return [group for group in GROUPS if group.name in results], results, skipped

    def keep(results, skipped):
        """The figures are dear: a run that is broken off leaves those it has."""
        write_figures(directory, options.quick, machine, *all_of(results, skipped))

    results, skipped, good = measure(groups, Run(options.build, 0.1 if options.quick else 1), keep)
    keep(results, skipped)
    write_report(directory, machine, *all_of(results, skipped))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
