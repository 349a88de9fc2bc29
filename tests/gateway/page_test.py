#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
The status page of the gateway in a headless Chromium, and what serves it: page_test.py BUILD_DIRECTORY SOURCE_DIRECTORY
[TEST...]. Prints TAP.

Guards: src/limiter/status/page.html, src/limiter/status/page.css, src/limiter/status/page.js,
src/limiter/status/embed_page.py, apps/gateway/http.c, apps/gateway/status_table.c
"""
import html.parser
import http.client
import json
import re
import socket
import threading
import types

from browser import Browser
from support import Fixture, gateway_demo, run

TAB, LEFT, ESCAPE, SPACE = "\ue004", "\ue012", "\ue00c", " "


def get(f, path, **fields):
    connection = http.client.HTTPConnection("127.0.0.1", f.http, timeout=20)
    connection.request("GET", path, headers=fields)
    answer = connection.getresponse()
    return answer.status, dict(answer.getheaders()), answer.read().decode()


class Traffic:
    """Traffic of which some is denied, until the end of the block."""

    def __init__(self, f):
        self.f, self.ended = f, threading.Event()
        self.thread = threading.Thread(target=self.send)

    def send(self):
        while not self.ended.is_set():
            self.f.send(1, "polite,1,100", "greedy,2,1000")

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()


def tile(b, name):
    """The number of a tile, or None."""
    text = b.run("""const all = [...document.querySelectorAll("#tiles div")];
                    const one = all.find((e) => e.firstChild.textContent === arguments[0]);
                    return one ? one.lastChild.firstChild.textContent : "";""", name)
    match = re.match(r"[\d,.]+", text)
    return float(match[0].replace(",", "")) if match else None


def seen_by(b):
    """What the browser says of the element that has the focus."""
    return b.run("""const e = document.activeElement;
                    const box = e.getBoundingClientRect();
                    const style = getComputedStyle(e);
                    return {tag: e.tagName.toLowerCase(), id: e.id, box: [box.left, box.width],
                            outline: parseFloat(style.outlineWidth) > 0 && style.outlineStyle !== "none",
                            label: e.getAttribute("aria-labelledby") || e.getAttribute("aria-label")};""")


def contrast(b, selector):
    """The contrast between text and what is behind the text, as WCAG has it."""
    def luminance(colour):
        parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
        linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    ink, ground = b.run("""let e = document.querySelector(arguments[0]);
                           const style = getComputedStyle(e);
                           const ink = e instanceof SVGElement ? style.fill : style.color;
                           let ground = "rgba(0, 0, 0, 0)";
                           for (; e && /, 0\\)$/.test(ground); e = e.parentElement) {
                             ground = getComputedStyle(e).backgroundColor;
                           }
                           return [ink, ground];""", selector)
    one, other = sorted((luminance(ink), luminance(ground)))
    return (other + 0.05) / (one + 0.05)


def test_the_page_is_served_with_its_figures():
    with Fixture() as f:
        code, fields, page = get(f, "/status.html")
        assert code == 200 and fields["Content-Type"] == "text/html; charset=utf-8", fields
        assert fields["Content-Security-Policy"] == "frame-ancestors 'none'" and fields["X-Content-Type-Options"] == "nosniff"
        assert get(f, "/", Accept="text/html,*/*")[2] == page
        assert get(f, "/")[2].startswith("weir-gateway\n") and get(f, "/", Accept="*/*")[2].startswith("weir-gateway\n")
        for path in ("/status.json", "/status.html?format=json", "/?format=json"):
            code, fields, text = get(f, path)
            assert code == 200 and fields["Content-Type"] == "application/json", (path, code, fields)
            assert [policy["name"] for policy in json.loads(text)["policies"]] == ["source", "overall"], text


def test_the_figures_count_what_the_gateway_did():
    with Fixture() as f:
        f.send(1, "greedy,1,2000")
        f.until(lambda: json.loads(get(f, "/status.json")[2])["policies"][0]["offenders"])
        status, packets = json.loads(get(f, "/status.json")[2]), f.status()
        source, overall = status["policies"]
        assert source["denied"] == packets["dropped"]["source"] > 0 and source["allowed"] == overall["allowed"], status
        assert overall["allowed"] == packets["passed"] and status["denied"] == source["denied"] + overall["denied"], status
        assert source["offenders"][0]["key"] == packets["offenders"][0]["source"], (status, packets)
        assert source["limits"] == [{"name": "source", "algorithm": "token_bucket", "limit": 200, "period_ns": 10**9,
                                     "burst": 200}], source


def test_without_a_script_there_are_tables():
    with Fixture() as f:
        f.send(1, "greedy,1,2000")
        f.until(lambda: f.status()["offenders"])
        _, fields, text = get(f, "/status.html?format=table")
        assert fields["Content-Type"] == "text/html; charset=utf-8" and "<script" not in text
        cells = []
        parser = html.parser.HTMLParser()
        parser.handle_data = lambda data: cells.append(data.strip())
        parser.feed(text)
        cells = [cell for cell in cells if cell]
        assert cells[cells.index("packets offered") + 1] == str(f.status()["offered"]), cells
        assert cells[cells.index("source") + 1] == str(f.status()["dropped"]["source"]), cells
        assert f.status()["offenders"][0]["source"] in cells, cells
        with Browser() as b:
            b.devtools("Emulation.setScriptExecutionDisabled", value=True)
            b.open(f"http://127.0.0.1:{f.http}/status.html")
            b.devtools("Emulation.setScriptExecutionDisabled", value=False)  # for what this test asks
            href = b.run("return [...document.querySelectorAll('noscript a')].map((a) => a.getAttribute('href'))")
            links = href or re.findall(r'href="(\?[^"]*)"', b.text("noscript"))
            assert links == ["?format=table", "?format=json"], links


def test_a_gateway_that_limits_nothing_says_so():
    with Fixture() as f:
        listen, port = gateway_demo.free_port(socket.SOCK_DGRAM), gateway_demo.free_port(socket.SOCK_STREAM)
        child = f.demo.start(f.demo.bin / "weir-gateway", "--listen", f"127.0.0.1:{listen}", "--backend", "127.0.0.1:9",
                             "--metrics", f"127.0.0.1:{port}", stderr=open(f.demo.dir / "other", "w"))
        other = types.SimpleNamespace(http=port)

        def answer():
            try:
                return get(other, "/status.json")
            except OSError:
                assert child.poll() is None, (f.demo.dir / "other").read_text()
                return None
        code, _, text = f.until(answer)
        assert code == 404 and "--policies" in text, (code, text)
        assert get(other, "/", Accept="text/html")[2].startswith("weir-gateway\n")


def test_figures_move_and_nothing_is_wrong_in_the_console():
    with Fixture() as f, Browser() as b, Traffic(f):
        b.open(f"http://127.0.0.1:{f.http}/")
        b.until(lambda: (tile(b, "Denied") or 0) > 0 and (tile(b, "Offered") or 0) > (tile(b, "Admitted") or 0) > 0)
        assert b.run("return document.title").startswith("weir")
        before = b.run("return document.querySelector('#offered path.line').getAttribute('d').length")
        b.until(lambda: b.run("return document.querySelector('#offered path.line').getAttribute('d').length") > before)
        rows = b.run("""return [...document.querySelectorAll("#policies tbody tr")].map((r) =>
                               [...r.cells].map((c) => c.textContent));""")
        assert [row[0] for row in rows] == ["source", "overall"] and rows[0][7] == "200 a second (token bucket)", rows
        keys = b.until(lambda: b.run("""return [...document.querySelectorAll("#keys tbody th")].map((c) => c.textContent);"""))
        assert set(keys) <= {offender["key"] for offender in json.loads(get(f, "/status.json")[2])["policies"][0]["offenders"]}, keys
        assert b.log() == []
        # What is not the page's own does not run: the policy is in force.
        b.run("const e = document.createElement('script'); e.textContent = 'window.ran = 1'; document.body.append(e);")
        assert b.run("return window.ran") is None and any("Content Security Policy" in line for line in b.log())
        loaded = b.run("return performance.getEntriesByType('resource').map((one) => one.name)")
        assert set(loaded) == {f"http://127.0.0.1:{f.http}/?format=json"}, loaded


def test_a_server_that_is_gone_is_told():
    with Fixture() as f, Browser() as b:
        b.open(f"http://127.0.0.1:{f.http}/")
        b.until(lambda: "no fleet" in b.text("#state"))
        f.child.terminate()
        f.child.wait(20)
        b.until(lambda: "No answer from this server" in b.text("#state"))
        assert b.run("return document.getElementById('state').className") == "bad"


def test_a_fleet_without_its_redis_is_told_in_words():
    with Fixture("--redis", "redis://127.0.0.1:1") as f, Browser() as b:
        b.open(f"http://127.0.0.1:{f.http}/")
        b.until(lambda: "Redis cannot be reached; outage modes: source (share), overall (share)" in b.text("#state"))
        b.until(lambda: (tile(b, "Sync errors") or 0) > 0)
        assert "outage: share" in b.text("#policies tbody tr") and "connection" in b.text("#errors tbody")
        assert b.run("return document.title").startswith("\u26a0 weir")
        b.until(lambda: b.run("return document.querySelectorAll('#failures path.line').length") > 0)


def test_the_keyboard_reaches_everything():
    with Fixture() as f, Browser() as b, Traffic(f):
        b.open(f"http://127.0.0.1:{f.http}/")
        b.until(lambda: b.run("return document.querySelectorAll('#offered path.line').length") > 0)
        found = []
        for _ in range(14):
            b.press(TAB)
            at = seen_by(b)
            if at["tag"] == "body":
                break
            assert at["outline"], at
            found.append((at["tag"], at["id"]))
            if at["tag"] in ("svg", "div"):
                assert at["label"], at
        assert found[:4] == [("a", ""), ("select", "policy"), ("select", "range"), ("button", "pause")], found
        assert [tag for tag, _ in found[4:8]] == ["svg", "summary", "svg", "summary"], found
        assert ("div", "policies") in found and ("div", "keys") in found, found
        # The arrows move through time, and the table of a chart opens.
        b.run("document.querySelector('#offered > svg').focus()")
        b.press(LEFT)
        b.until(lambda: "s ago" in b.text("#offered .legend"))
        b.press(ESCAPE)
        b.until(lambda: "s ago" not in b.text("#offered .legend"))
        b.press(TAB, SPACE)
        b.until(lambda: b.run("return document.querySelectorAll('#offered details tbody tr').length") > 0)
        # Pause stops the figures, and says so.
        b.run("document.getElementById('pause').focus()")
        b.press(SPACE)
        b.until(lambda: b.text("#pause") == "Go on")
        assert b.run("return document.getElementById('pause').getAttribute('aria-pressed')") == "true"
        assert b.log() == []


def test_both_colour_schemes_can_be_read():
    with Fixture("--redis", "redis://127.0.0.1:1") as f, Browser() as b, Traffic(f):
        b.open(f"http://127.0.0.1:{f.http}/")
        b.until(lambda: "outage modes" in b.text("#state") and b.run("return document.querySelectorAll('#keys tbody tr').length") > 0)
        grounds = {}
        for scheme in ("light", "dark"):
            b.emulate(prefers_color_scheme=scheme)
            b.until(lambda: b.run("return matchMedia('(prefers-color-scheme: dark)').matches") == (scheme == "dark"))
            grounds[scheme] = b.run("return getComputedStyle(document.body).backgroundColor")
            for selector in ("h1", "#about", "#state", "dt", "dd span", "dd small", "thead th", "tbody th", "td.number", "td.bad",
                             "#offered .axis", ".legend", "summary", "button", "select", ".note"):
                assert contrast(b, selector) >= 4.5, (scheme, selector, contrast(b, selector))
        assert grounds["light"] != grounds["dark"], grounds
        # Without colour the two lines differ in their dashes.
        assert b.run("return getComputedStyle(document.querySelector('#offered .line.s1')).strokeDasharray") != "none"


def test_a_narrow_window_scrolls_down_alone():
    with Fixture() as f, Browser("--window-size=500,900") as b:
        b.devtools("Emulation.setDeviceMetricsOverride", width=360, height=740, deviceScaleFactor=2, mobile=True)
        b.open(f"http://127.0.0.1:{f.http}/")
        b.until(lambda: b.run("return document.querySelectorAll('#policies tbody tr').length") == 2)
        assert b.run("return document.documentElement.scrollWidth") <= 360


if __name__ == "__main__":
    run(globals())
