#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
The alert rules, and what docs/operations.md says of outages: alerts_test.py SCRAPE SOURCE_DIRECTORY. Prints TAP.

A real node on a real Redis goes through each failure (scrape.c). The table of outages in docs/operations.md, and the
series of the promtool tests beside this file, must behave as the node's metrics do.

Guards: docs/alerts/weir.rules.yml, docs/operations.md, src/limiter/stats.c
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import traceback

SCRAPE, SOURCE = sys.argv[1], pathlib.Path(sys.argv[2])
PAGE = SOURCE / "docs/operations.md"
RULES = SOURCE / "docs/alerts/weir.rules.yml"
TESTS = SOURCE / "tests/alerts"
PASSWORD = "hunter2"  # scrape.c's

# Rows of the table, and the failure of scrape.c that shows each.
ROWS = {
    "nothing: Redis is well": "well",
    "Redis was never there": "never",
    "Redis refuses connections": "refused",
    "Redis hangs": "hung",
    "Redis comes and goes": "flaps",
    "the password is wrong": "password",
}

# A promtool test has its failure from here on: 10 minutes, in samples of 15 s.
FAILS_AT = 40

# Gauges that are measured: a promtool test has them as a constant.
MEASURED = {"weir_pending_keys", "weir_round_trip_seconds", "weir_clock_skew_seconds"}


class Skipped(Exception):
    """There is no program for this test."""


def need(condition, why):
    if not condition:
        if os.environ.get("CI") == "true":
            raise AssertionError(why + "; scripts/setup installs it")
        raise Skipped(why)


# What a node writes


def run(failure, runs={}):
    """The scrapes of the phase in which it fails, as {series: value}, and the lines of the log."""
    if failure not in runs:
        result = subprocess.run([SCRAPE, failure], capture_output=True, text=True, timeout=300, check=False)
        need(result.returncode != 77, "there is no redis-server")
        assert result.returncode == 0, f"scrape {failure}: {result.returncode}\n{result.stdout[-500:]}{result.stderr}"
        scrapes, log = [], []
        for line in result.stdout.splitlines():
            if line.startswith("# scrape "):
                scrape = {}
                if line == "# scrape failing":
                    scrapes.append(scrape)
            elif line.startswith("# log "):
                log.append(line.removeprefix("# log "))
            elif not line.startswith("#"):
                series, value = line.rsplit(" ", 1)
                scrape[normal(series)] = float(value)
        runs[failure] = scrapes, log
    return runs[failure]


def normal(series):
    """A series without the labels that Prometheus adds, the others in order."""
    name, _, labels = series.partition("{")
    found = sorted(re.findall(r'(\w+)="([^"]*)"', labels))
    kept = ",".join(f'{label}="{value}"' for label, value in found if label not in ("instance", "job"))
    return f"{name}{{{kept}}}" if kept else name


def shape(values):
    """How a series behaves, in the words of the page's table."""
    if all(value is None for value in values):
        return "absent"
    if any(value is None for value in values):
        return "comes and goes"
    steps = [after - before for before, after in zip(values, values[1:])]
    if not any(steps):
        return "stays"
    if min(steps) >= 0:
        return "rises"
    return "rises and falls" if max(steps) > 0 else "falls"


def column(scrapes, series):
    return [scrape.get(series) for scrape in scrapes]


def measured_shape(failure, series):
    return shape(column(run(failure)[0], series))


# The page's table


def table():
    """{first cell: {metric: cell}} of the table after its mark in the page."""
    lines = PAGE.read_text().partition("<!-- table of outages")[2].splitlines()[1:]
    rows = []
    for line in lines:
        if line.startswith("|"):
            rows.append([cell.strip() for cell in line.strip().strip("|").split("|")])
        elif rows:
            break
    assert len(rows) > 2, f"{PAGE} has no table of outages"
    metrics = [re.fullmatch(r"`(weir_\w+)`", cell)[1] for cell in rows[0][1:]]
    return {row[0]: dict(zip(metrics, row[1:], strict=True)) for row in rows[2:]}


def kinds_that_rise(scrapes):
    kinds = {series for scrape in scrapes for series in scrape if series.startswith("weir_errors_total{")}
    return sorted(re.search(r'kind="(\w+)"', series)[1] for series in kinds if shape(column(scrapes, series)) != "stays")


def outage_modes(scrapes):
    """Those that the policy was in. Each mode has a series in every scrape, and one of them is 1."""
    found = []
    for scrape in scrapes:
        values = {re.search(r'mode="(\w+)"', series)[1]: scrape[series] for series in scrape if series.startswith("weir_outage_mode{")}
        assert len(values) == 5 and sorted(values.values()) == [0, 0, 0, 0, 1], values
        found += [mode for mode in values if values[mode] == 1]
    return sorted(set(found))


def expect_cell(failure, metric, cell):
    scrapes = run(failure)[0]
    if metric == "weir_errors_total":
        found = ", ".join(f"`{kind}` rises" for kind in kinds_that_rise(scrapes)) or "stays"
    elif metric == "weir_outage_mode":
        found = ", ".join(f"`{mode}`" for mode in outage_modes(scrapes))
        cell = found if cell == "any" else cell
    elif re.fullmatch(r"\d+( and \d+)*", cell):
        found = " and ".join(f"{value:g}" for value in sorted(set(column(scrapes, metric))))
    else:
        assert cell in ("rises", "stays", "rises and falls"), f"the page says \"{cell}\" of {metric}"
        found = shape(column(scrapes, metric))
    assert found == cell, f"{failure}: {metric}: the page says \"{cell}\", and it is \"{found}\""


def row_of(failure):
    return next(cells for name, cells in table().items() if ROWS.get(name) == failure)


def page_is_true_of(failure):
    for metric, cell in row_of(failure).items():
        expect_cell(failure, metric, cell)


def test_the_page_has_a_row_for_every_failure():
    assert list(table()) == list(ROWS), list(table())
    assert all(len(row) >= 8 for row in table().values())


# The rules


def rules():
    """[(name, text)] of the alerts."""
    parts = re.split(r"^ +- alert: (\w+)$", RULES.read_text(), flags=re.MULTILINE)[1:]
    return list(zip(parts[::2], parts[1::2], strict=True))


def names_of(text):
    return set(re.findall(r"\bweir_\w+", re.search(r"expr: (.*)", text)[1]))


def promtool(*words):
    need(shutil.which("promtool"), "there is no promtool")
    result = subprocess.run(["promtool", *map(str, words)], capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_rules_are_well_formed_and_say_what_to_do():
    promtool("check", "rules", RULES)
    assert re.search(r"expr: (.*)", rules()[0][1])[1] == "weir_redis_up == 0"
    for name, text in rules():
        assert re.search(r"labels: \{severity: (critical|warning)\}", text), name
        assert 'summary: "' in text and 'description: "' in text, name


def test_the_page_names_alerts_that_are_there():
    named = set(re.findall(r"\bWeir[A-Z]\w+", PAGE.read_text()))
    assert named and named <= {name for name, _ in rules()}, named


# The promtool tests


def expand(values):
    """The samples of promtool's notation."""
    samples = []
    for word in values.split():
        match = re.fullmatch(r"(_|-?[\d.]+)([+-][\d.]+)?(?:x(\d+))?", word)
        if word == "stale":
            samples.append(None)
        elif match[1] == "_":
            samples += [None] * int(match[3] or 1)
        else:
            step = float(match[2] or 0)
            samples += [float(match[1]) + step * i for i in range(int(match[3] or 0) + 1)]
    return samples


def inputs(path):
    """{series: samples} of a promtool test."""
    found = re.findall(r"- series: '(.*)'\n +values: '(.*)'", path.read_text())
    assert len(found) == path.read_text().count("series: "), path
    return {normal(series): expand(values) for series, values in found}


def test_every_alert_fires_somewhere():
    texts = [path.read_text() for path in TESTS.glob("*.test.yml")]
    for name, _ in rules():
        assert any(f'alertname="{name}"' in text for text in texts), f"no test lets {name} fire"


def test_every_alert_is_tried_at_its_threshold():
    text = (TESTS / "thresholds.test.yml").read_text()
    for name, rule in rules():
        assert f'alertname="{name}"' in text, f"thresholds.test.yml does not let {name} fire"
        for metric in names_of(rule):
            assert f"- series: '{metric}{{" in text, f"thresholds.test.yml has no {metric}, by which {name} goes"
    assert text.count("exp_samples: []") >= 2, "thresholds.test.yml has no time at which nothing fires"


def labels_of(series):
    return series.partition("{")[0], frozenset(re.findall(r'(\w+)=', series))


def test_other_alerts_go_by_series_that_a_node_writes():
    known = {labels_of(series) for series in run("well")[0][0]}
    for series in inputs(TESTS / "others.test.yml"):
        assert labels_of(series) in known, series


def series_are_those_of(failure):
    scrapes = run(failure)[0]
    given = inputs(TESTS / f"{failure}.test.yml")
    written = {series for scrape in scrapes for series in scrape}
    for series, samples in given.items():
        name = series.partition("{")[0]
        if name == "weir_outage_mode" and row_of(failure)[name] == "any":
            continue
        found, said = measured_shape(failure, series), shape(samples[FAILS_AT + 1:])
        assert said == "absent" or series in written, f"{failure}: no node writes {series}"
        assert name in MEASURED or found == said, f"{failure}: {series} {said} in the test, and {found} in truth"
    # What is left out is what has nothing to say.
    used = set().union(*(names_of(text) for _, text in rules()))
    for series in written - set(given):
        counts = re.fullmatch(r"weir_\w+(_total|_bucket|_count)", series.partition("{")[0])
        if series.partition("{")[0] in used and not (counts and measured_shape(failure, series) == "stays"):
            assert series.startswith("weir_outage_mode{"), f"{failure}: the test is without {series}"


def test_the_log_names_the_server_and_never_the_password():
    for failure in ROWS.values():
        log = run(failure)[1]
        assert log, failure
        for line in log:
            assert re.match(r"redis 127\.0\.0\.1:\d+\b", line) and PASSWORD not in line, line


def tests():
    found = {name: test for name, test in globals().items() if name.startswith("test_")}
    for path in sorted(TESTS.glob("*.test.yml")):
        found[f"test_promtool_{path.name}"] = lambda path=path: promtool("test", "rules", path)
    for failure in ROWS.values():
        found[f"test_page_is_true_of_{failure}"] = lambda failure=failure: page_is_true_of(failure)
        found[f"test_series_are_those_of_{failure}"] = lambda failure=failure: series_are_those_of(failure)
    return found


def main():
    failed = 0
    found = tests()
    print(f"TAP version 13\n1..{len(found)}")
    for number, (name, test) in enumerate(found.items(), 1):
        title = f"{number} - {name.removeprefix('test_').replace('_', ' ')}"
        try:
            test()
            print(f"ok {title}")
        except Skipped as why:
            print(f"ok {title} # SKIP {why}")
        except Exception as error:  # whatever it is, the others run
            failed += 1
            print(f"not ok {title}")
            for line in (str(error) or traceback.format_exc()).splitlines():
                print(f"# {line}")
        sys.stdout.flush()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
