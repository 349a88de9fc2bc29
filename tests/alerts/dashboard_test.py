#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
The dashboard and the names of the metrics: dashboard_test.py BUILD_DIRECTORY SOURCE_DIRECTORY [TEST...]. Prints TAP.

Two gateways under traffic share a Redis; a third has none. A Prometheus on the loopback scrapes them. Every query of the
dashboard and every alert rule is asked of that Prometheus, with variables filled in as Grafana does.

Guards: docs/monitoring/weir-dashboard.json, docs/alerts/weir.rules.yml, src/limiter/prometheus.c, apps/gateway/status.c
"""
import contextlib
import functools
import json
import math
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

sys.path.insert(0, sys.argv[2] + "/tests/gateway")
sys.path.insert(0, sys.argv[2] + "/apps/gateway")
sys.path.insert(0, sys.argv[2] + "/apps/nginx")
import demo as gateway_demo  # noqa: E402
import nginx_demo  # noqa: E402
from support import Skipped, run  # noqa: E402

BUILD, SOURCE = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()
DASHBOARD = SOURCE / "docs/monitoring/weir-dashboard.json"
RULES = SOURCE / "docs/alerts/weir.rules.yml"

# Panels whose queries may find nothing, with the reason.
MAY_BE_EMPTY = {}

# A policy for each policy of the gateway. Few enough are passed by the last two that they deny, and there are more
# sources than entries.
POLICIES = """policies:
  - name: source
    limits: [{algorithm: token_bucket, limit: 20, period: 1s, burst: 20}]
  - name: source_bytes
    limits: [{algorithm: token_bucket, limit: 100000, period: 1s, burst: 70000}]
  - name: overall
    limits: [{algorithm: sliding_window, limit: 500, period: 1s}]
"""
SCRAPE_SECONDS = 0.25
RATE_INTERVAL = "3s"  # $__rate_interval: Grafana takes at least four scrapes
PATIENCE_SECONDS = 90


def need(program):
    path = shutil.which(program)
    if path is None:
        if os.environ.get("CI") == "true":
            raise AssertionError(f"there is no {program}; scripts/setup installs it")
        raise Skipped(f"there is no {program}")
    return path


def dashboard():
    return json.loads(DASHBOARD.read_text())


def panels():
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def variables(kind):
    return {v["name"]: v for v in dashboard()["templating"]["list"] if v["type"] == kind}


class Prometheus:
    """One that scrapes these ports of the loopback, has the alert rules, and keeps its data in the directory of a demo."""

    def __init__(self, demo, ports):
        self.port = gateway_demo.free_port(socket.SOCK_STREAM)
        config = demo.dir / "prometheus.yml"
        targets = ", ".join(f'"127.0.0.1:{port}"' for port in ports)
        config.write_text(f"global: {{scrape_interval: {SCRAPE_SECONDS * 1000:.0f}ms, scrape_timeout: 250ms, evaluation_interval: 500ms}}\n"
                          f"rule_files: ['{RULES}']\nscrape_configs: [{{job_name: weir, static_configs: [{{targets: [{targets}]}}]}}]\n")
        self.log = demo.dir / "prometheus.log"
        self.child = demo.start(need("prometheus"), f"--config.file={config}", f"--storage.tsdb.path={demo.dir}/tsdb",
                                f"--web.listen-address=127.0.0.1:{self.port}", stdout=open(self.log, "w"),
                                stderr=subprocess.STDOUT)
        self.until(lambda: self.ready(), "Prometheus is not ready")

    def until(self, condition, otherwise, seconds=PATIENCE_SECONDS):
        end = time.monotonic() + seconds
        while not (result := condition()):
            assert self.child.poll() is None, "Prometheus ended: " + self.log.read_text()[-2000:]
            assert time.monotonic() < end, otherwise() if callable(otherwise) else otherwise
            time.sleep(0.2)
        return result

    def ready(self):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=20) as answer:
                return answer.status == 200
        except OSError:
            return False

    def ask(self, path, **parameters):
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(parameters, doseq=True)}"
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                said = json.load(answer)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters}: {error.read().decode()}") from error
        assert said["status"] == "success" and not said.get("warnings"), (parameters, said)
        return said["data"]

    def values(self, expression, ranged):
        """The numbers that a panel gets: without NaN, which panels leave out."""
        if ranged:
            now = time.time()
            found = self.ask("query_range", query=expression, start=now - 10, end=now, step=1)["result"]
            numbers = [value for series in found for _, value in series["values"]]
        else:
            numbers = [series["value"][1] for series in self.ask("query", query=expression)["result"]]
        return [number for number in map(float, numbers) if not math.isnan(number)]


class Scene:
    """The gateways, their traffic, and the Prometheus. All tests look at one of them."""

    def __init__(self):
        need("redis-server")
        need("prometheus")
        self.demo = gateway_demo.Demo(BUILD)
        try:
            redis = gateway_demo.Redis(self.demo)
            redis.start()
            backend = self.demo.backend()
            path = self.demo.dir / "policies.yaml"
            path.write_text(POLICIES)
            started = [self.demo.gateway(backend, "--policies", path, "--max-keys", 1000, *more)
                       for more in (["--redis", f"unix://{redis.path}", "--expected-nodes", 2],) * 2 + ([],)]
            self.http = [http for _, _, http in started]
            # Few sources that are denied much, on both gateways; many sources, more than there are entries.
            self.senders = [self.demo.traffic(listen, 2 * PATIENCE_SECONDS, "few,5,1000", "many,1500,1500")
                            for _, listen, _ in started]
            self.prometheus = Prometheus(self.demo, self.http)
        except BaseException:
            self.demo.close()
            raise

    def metrics(self, number):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http[number]}/metrics", timeout=20) as answer:
            return answer.read().decode()


@functools.cache
def scene():
    return Scene()


def promtool_finds(text):
    need("promtool")
    return subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, timeout=60).stderr


# The names


def test_promtool_finds_nothing_in_the_metrics_of_a_gateway_with_redis():
    text = scene().metrics(0)
    assert "weir_redis_up " in text and "weir_gateway_sessions " in text
    assert not promtool_finds(text), promtool_finds(text)


def test_promtool_finds_nothing_in_the_metrics_of_a_gateway_without_redis():
    text = scene().metrics(2)
    assert "weir_redis_up " not in text and "weir_checks_total{" in text
    assert not promtool_finds(text), promtool_finds(text)


def test_promtool_finds_what_breaks_the_conventions():
    assert "counter" in promtool_finds("# HELP weir_checks Checks.\n# TYPE weir_checks counter\nweir_checks 1\n")


def test_promtool_finds_nothing_in_the_metrics_of_nginx():
    if nginx_demo.PROGRAM is None or not nginx_demo.module_path(BUILD).exists():
        raise Skipped("there is no nginx, or no module for it")
    with contextlib.closing(nginx_demo.Nginx(BUILD, """
            weir_limit_req_zone $arg_key zone=weir:1m rate=1r/s;
            server { listen 127.0.0.1:{port}; location / { weir_limit_req zone=weir; }
                     location /metrics { weir_status prometheus; } }""")) as nginx:
        for _ in range(3):
            nginx.get("/?key=a")
        text = nginx.get("/metrics").body
    assert re.search(r'^weir_checks_total\{.*answer="denied"\} [1-9]', text, re.M), text
    assert not promtool_finds(text), promtool_finds(text)


# The dashboard as a file


def test_panels_have_a_title_a_description_and_the_templated_data_source():
    titles = [panel["title"] for panel in panels()]
    assert len(set(titles)) == len(titles) > 20
    assert set(MAY_BE_EMPTY) <= set(titles)
    for panel in panels():
        assert panel["description"], panel["title"]
        for part in [panel, *panel["targets"]]:
            assert part["datasource"] == {"type": "prometheus", "uid": "${datasource}"}, panel["title"]
    assert set(variables("datasource")) == {"datasource"} and set(variables("query")) == {"node", "policy"}
    assert dashboard()["schemaVersion"] >= 39 and dashboard()["uid"] == "weir"


def test_panels_have_their_own_id_and_place():
    every = dashboard()["panels"]
    assert len({panel["id"] for panel in every}) == len(every)
    taken = set()
    for panel in every:
        at = panel["gridPos"]
        assert 0 <= at["x"] and at["x"] + at["w"] <= 24, panel["title"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, f"{panel['title']} lies on another panel"
        taken |= cells


def test_every_query_chooses_by_node_and_those_of_policies_by_policy():
    for panel in panels():
        for target in panel["targets"]:
            selectors = re.findall(r"(weir_\w+)\{(.*?)\}", target["expr"])
            assert selectors and len(selectors) == len(re.findall(r"\bweir_\w+", target["expr"])), target["expr"]
            for name, labels in selectors:
                assert 'instance=~"$node"' in labels, target["expr"]
                by_policy = re.search(rf'^{name}\{{[^}}]*policy="', scene().metrics(0), re.M)
                assert bool(by_policy) == ('policy=~"$policy"' in labels) or 'limit=~"$policy"' in labels, target["expr"]


# The dashboard against Prometheus


def fill_in(expression, node, policy):
    for name, value in {"$__rate_interval": RATE_INTERVAL, "$node": node, "$policy": policy}.items():
        expression = expression.replace(name, value)
    assert "$" not in expression, f"a variable that this test does not know: {expression}"
    return expression


def chosen(names):
    """A choice of several values, as Grafana writes it for Prometheus."""
    return "(" + "|".join(re.escape(name).replace("\\", "\\\\") for name in names) + ")"


def empty_queries(prometheus, node, policy):
    """Titles and queries of the panels that show nothing."""
    found = []
    for panel in panels():
        for target in panel["targets"]:
            expression = fill_in(target["expr"], node, policy)
            if not prometheus.values(expression, target["range"]):
                found.append((panel["title"], expression))
    return found


def expect_every_query_filled(node, policy):
    prometheus = scene().prometheus

    def surprises():
        return [pair for pair in empty_queries(prometheus, node, policy) if pair[0] not in MAY_BE_EMPTY]

    prometheus.until(lambda: not surprises(), lambda: f"these find nothing: {surprises()}")


def test_every_query_finds_something_for_all_nodes_and_policies():
    every = variables("query")["node"]["allValue"]
    expect_every_query_filled(every, variables("query")["policy"]["allValue"])


def test_every_query_finds_something_for_chosen_nodes_and_policies():
    nodes = [f"127.0.0.1:{port}" for port in scene().http[:2]]
    expect_every_query_filled(chosen(nodes), chosen(["source", "overall"]))


def test_no_query_finds_anything_for_a_node_that_is_not_there():
    expected = sum(len(panel["targets"]) for panel in panels())
    assert len(empty_queries(scene().prometheus, "nobody", ".+")) == expected


def test_the_variables_list_nodes_and_policies():
    prometheus = scene().prometheus
    wanted = {"node": {f"127.0.0.1:{port}" for port in scene().http}, "policy": {"source", "source_bytes", "overall"}}
    for name, variable in variables("query").items():
        selector, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"]).groups()
        selector = fill_in(selector, ".+", ".+")
        prometheus.until(lambda: set(prometheus.ask(f"label/{label}/values", **{"match[]": selector})) == wanted[name], f"the values of {label}")


def test_the_figures_are_those_of_the_gateways():
    prometheus = scene().prometheus
    prometheus.until(lambda: prometheus.values("sum(weir_redis_up)", False) == [2], "two gateways have a Redis")
    prometheus.until(lambda: prometheus.values("min(weir_live_nodes)", False) == [2], "the nodes do not see each other")
    denied = fill_in(next(panel for panel in panels() if panel["title"] == "Denied")["targets"][0]["expr"], ".+", "source")
    prometheus.until(lambda: 0 < sum(prometheus.values(denied, False)) < 1, f"{denied} is no part of the checks")


def test_prometheus_evaluates_every_alert_rule():
    prometheus = scene().prometheus
    written = re.findall(r"- alert: (\w+)", RULES.read_text())

    def evaluated():
        rules = [rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"]]
        assert [rule["name"] for rule in rules] == written
        assert not [rule for rule in rules if rule["health"] == "err"], rules
        return all(rule["health"] == "ok" for rule in rules)

    prometheus.until(evaluated, "some rules are not evaluated")


def main():
    try:
        run(globals())
    finally:
        if scene.cache_info().currsize:
            scene().demo.close()


main()
