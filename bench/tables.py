# SPDX-License-Identifier: Apache-2.0
"""The report as Markdown."""
import re

import figures as figures_module


def number(value, unit=""):
    """Three digits, or all of those before the point; parts of a limit in thousandths."""
    if value is None:
        return ""
    if unit == "of_the_limit":
        return f"{value:.3f}"
    if abs(value) >= 1000:
        return f"{value:.0f}"
    text = f"{value:.3g}"
    return text if "e" not in text else f"{value:.4f}"


def base_of(group, figure, figures):
    name = group.baseline(figure.name, figures)
    return figures.get(name) if name and name != figure.name else None


def ratio_of(group, figure, figures):
    base = base_of(group, figure, figures)
    return figures_module.ratio(figure, base, group.paired) if base else None


def columns_of(rows):
    """Notes that some row has and that are for people."""
    known = ("admitted", "bytes_per_key", "offenders_refused", "grown_mib", "worst_window")
    return [note for note in known if any(note in figure.notes for figure in rows)]


SKETCH = " (sketch)"
LEGEND = "(sketch): a table of fixed size that confuses keys. A key may be refused for what others have asked for, and no key " \
         "can be named. It does less than the others, and its figures do not depend on how many keys there are."


def mark(figure):
    return SKETCH if figure.notes.get("sketch") else ""


def table(group, rows, figures):
    notes = columns_of(rows)
    heads = ["figure", "median", "least", "most", "unit", "ratio", "to", *(note.replace("_", " ") for note in notes)]
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    for figure in rows:
        base = base_of(group, figure, figures)
        values = (figure.median(), min(figure.samples), max(figure.samples))
        cells = [f"`{figure.name}`{mark(figure)}", *(number(value, figure.unit) for value in values), figure.unit.replace("_", " "), number(ratio_of(group, figure, figures)),
                 f"`{base.name}`" if base else "", *(number(figure.notes.get(note)) for note in notes)]
        lines.append("| " + " | ".join(cells) + " |")
    return lines + (["", LEGEND] if any(mark(figure) for figure in rows) else [])


def grid(rows, row_of, column_of, corner):
    """Medians of figures by two parts of their names."""
    cells = {(row_of(figure.name) + mark(figure), column_of(figure.name)): number(figure.median(), figure.unit) for figure in rows}
    columns = list(dict.fromkeys(column for _, column in cells))
    lines = [f"| {corner} | " + " | ".join(columns) + " |", "| --- |" + " --- |" * len(columns)]
    for row in dict.fromkeys(row for row, _ in cells):
        lines.append(f"| {row} | " + " | ".join(cells.get((row, column), "") for column in columns) + " |")
    return lines + [""]


def overview(group, rows):
    """What is easier to see by two sides, beside the table of all figures."""
    def part(i):
        return lambda name: name.split("/")[i]

    if group.name == "many":
        lines = []
        for zipf in (False, True):
            some = [f for f in rows if ("_zipf/" in f.name) == zipf and "threads:" not in f.name]
            corner = "by Zipf's law" if zipf else "uniform"
            lines += grid(some, part(1), lambda name: re.search(r"\d+", name).group(), corner)
        return lines
    if group.name == "burst":
        own = [f for f in rows if f.name.count("/") == 2]
        peers = [f for f in rows if f.name.count("/") == 3]
        return grid(own, part(2), part(1), "size, of keys") + (grid(peers, part(3), part(1), "in bursts of 32, of keys") if peers else [])
    if group.name == "flood":
        return grid([f for f in rows if "threads:" not in f.name], part(2), part(1), "ns")
    if group.name == "accuracy":
        lines = []
        for kind in dict.fromkeys(part(1)(f.name) for f in rows):
            some = [f for f in rows if part(1)(f.name) == kind]
            lines += grid(some, part(3), part(2), f"{kind}: interval, ms, on nodes")
        return lines
    if group.name == "latency":
        return grid([f for f in rows if "/curve/" not in f.name], part(1), part(2), "ns")
    return []


def markdown(machine, groups, results, skipped, plots):
    """`results`: by group's name, its figures in a list; all of them in `figures` of the group's own run."""
    lines = ["# weir: benchmarks", "", "docs/performance.md says how to read this.", ""]
    lines += [f"- {name}: {value}" for name, value in machine.items()]
    for group in groups:
        if group.name not in results:
            continue
        figures = results[group.name]
        rows = list(figures.by_name.values())
        lines += ["", f"## {group.name}", "", group.text, ""]
        lines += [line for name in plots.get(group.name, []) for line in (f"![{group.name}]({name})", "")]
        if group.name in skipped:
            lines += [f"Left out: {skipped[group.name]}.", ""]
        lines += overview(group, rows)
        shown = [figure for figure in rows if "/curve/" not in figure.name]
        lines += table(group, shown, figures) if shown else []
    return "\n".join(lines) + "\n"
