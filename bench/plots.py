# SPDX-License-Identifier: Apache-2.0
"""The report's plots, by gnuplot."""
import re
import shutil
import subprocess

HEAD = """
set terminal svg size 900,480 fixed noenhanced font 'DejaVu Sans,Arial,sans-serif' background '#ffffff' name 'bench'
set encoding utf8
set border 3 linecolor '#555555'
set tics nomirror textcolor '#333333'
set grid xtics ytics linecolor '#dddddd' linetype 1
set key outside right top Left reverse samplen 3 spacing 1.2
"""
COLOURS = ("#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999", "#8c564b", "#bcbd22",
           "#17becf", "#7f3c8d")


def available():
    return shutil.which("gnuplot") is not None


def draw(path, heading, settings, series, style="linespoints pointtype 7 pointsize 0.5"):
    """`series`: (title, [(x, y), ...]) each; where x is a name, it stands below."""
    blocks, parts = [], []
    for i, (title, points) in enumerate(series):
        rows = "\n".join(f'"{x}" {y:.6g}' if isinstance(x, str) else f"{x:.10g} {y:.6g}" for x, y in points)
        blocks.append(f"$data{i} << EOD\n{rows}\nEOD\n")
        using = "2:xtic(1)" if points and isinstance(points[0][0], str) else "1:2"
        parts.append(f"$data{i} using {using} with {style} linecolor '{COLOURS[i % len(COLOURS)]}' linewidth 2 "
                     f"title '{title}'")
    script = (HEAD + f"set output '{path}'\nset title '{heading}'\n{settings}\n" + "".join(blocks) +
              "plot " + ", \\\n ".join(parts) + "\n")
    subprocess.run(["gnuplot"], input=script, text=True, check=True)


def by(figures, pattern):
    """Series of medians: the pattern's groups `title` and `x` of each figure it matches whole."""
    series = {}
    for figure in figures.by_name.values():
        match = re.fullmatch(pattern, figure.name)
        if match:
            series.setdefault(match["title"], []).append((float(match["x"]), figure.median()))
    return [(title, sorted(points)) for title, points in series.items()]


def keys(figures, directory):
    names = []
    for ending, heading in (("", "at random"), ("_zipf", "by Zipf's law".replace("'", "''"))):
        series = by(figures, rf"many_(?P<x>\d+){ending}/(?P<title>[^/]+)")
        if series:
            names.append(f"keys{ending}.svg")
            draw(directory / names[-1], f"A check of one of N keys, {heading}",
                 "set logscale x 10\nset format x '%.0s%c'\nset yrange [0:*]\nset xlabel 'keys'\nset ylabel 'ns'", series)
    return names


def threads(figures, directory):
    series = {}
    for figure in figures.by_name.values():
        _, title, *count = figure.name.split("/")
        if title != "charge_and_refund":
            x = int(count[0].removeprefix("threads:")) if count else 1
            series.setdefault(title, []).append((x, figure.median()))
    draw(directory / "threads.svg", "A check on each of N threads at once",
         "set logscale y\nset xtics 1\nset xlabel 'threads'\nset ylabel 'ns'", [(t, sorted(p)) for t, p in series.items()])
    return ["threads.svg"]


def bursts(figures, directory):
    series = [(f"{int(float(t))} keys", p) for t, p in by(figures, r"burst/(?P<title>\d+)/(?P<x>\d+)")]
    draw(directory / "burst.svg", "A key of a burst",
         "set logscale x 2\nset yrange [0:*]\nset xlabel 'keys in a burst'\nset ylabel 'ns a key'", series)
    return ["burst.svg"]


def latency(figures, directory):
    """As HdrHistogram draws it: each nine is as wide as the one before."""
    series = [(title, [(2 ** x, y) for x, y in points])
              for title, points in by(figures, r"latency/(?P<title>[^/]+)/curve/(?P<x>\d+)")]
    ticks = ", ".join(f'"{100 - 100 / 10 ** n:.10g}%%" {10 ** n}' for n in range(8))
    draw(directory / "latency.svg", "A hot check on a thread of its own",
         f"set logscale xy\nset xtics ({ticks})\nset xlabel 'percentile'\nset ylabel 'ns, with the clock'", series,
         "lines")
    return ["latency.svg"]


def redis_cost(figures, directory):
    rows = [(figure.name.split("/", 1)[1].removesuffix("/in_all"), figure.median())
            for figure in figures.by_name.values() if figure.name.endswith("/in_all")]
    draw(directory / "redis_cost.svg", "Processor time of Redis for one report",
         "set style fill solid 0.6\nset boxwidth 0.7\nset xtics rotate by -40\nset rmargin 16\nset yrange [0:*]\n"
         "set ylabel 'us'\nunset key", [("", rows)], "boxes")
    return ["redis_cost.svg"]


def accuracy(figures, directory):
    names = []
    for kind in dict.fromkeys(name.split("/")[1] for name in figures.by_name):
        series = [(f"{title} nodes", points)
                  for title, points in by(figures, rf"accuracy/{kind}/(?P<title>\d+)/(?P<x>\d+)")]
        names.append(f"accuracy_{kind}.svg")
        draw(directory / names[-1], f"Admitted by the limit, three times of which is asked for: {kind.replace('_', ', ')}",
             "set logscale x\nset xrange [40:1200]\nset xtics (50, 100, 200, 500, 1000)\nset xlabel 'sync interval, ms'\n"
             "set ylabel 'of the limit'", series)
    return names


PLOTS = {"many": keys, "threads": threads, "burst": bursts, "latency": latency, "redis_cost": redis_cost,
         "accuracy": accuracy}
