#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
The docs site: site_test.py BUILD_DIRECTORY SOURCE_DIRECTORY [TEST...]. Prints TAP. scripts/docs renders the site, and
each warning of Doxygen and Sphinx is an error. The test reads the HTML, and opens it in a browser where there is one.

Guards: docs/site/comments.py, docs/site/layout.py, docs/site/conf.py, scripts/docs, include/weir/weir.h,
include/weir/weir.hpp
"""
import functools
import html.parser
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.parse

sys.path.insert(0, sys.argv[2] + "/tests/gateway")
sys.path.insert(0, sys.argv[2] + "/apps/gateway")
from support import Skipped, run  # noqa: E402

INTO, SOURCE = pathlib.Path(sys.argv[1]).resolve() / "tests/site", pathlib.Path(sys.argv[2]).resolve()
SITE = INTO / "html"


@functools.cache
def rendered():
    """Renders the site, once, whether or not it comes out well."""
    return subprocess.run([SOURCE / "scripts/docs", "--into", INTO], capture_output=True, text=True, timeout=900, check=False)


def site():
    """The pages of the site."""
    if shutil.which("doxygen") is None and os.environ.get("CI") != "true":
        raise Skipped("there is no doxygen")
    done = rendered()
    if done.returncode == 77 and os.environ.get("CI") != "true":
        raise Skipped("Sphinx is not to be had")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == f"{SITE}/index.html", done.stdout
    return sorted(SITE.rglob("*.html"))


class Page(html.parser.HTMLParser):
    """The links, the ids and what a page loads."""

    def __init__(self, path):
        super().__init__()
        self.links, self.ids, self.loads, self.text = [], {""}, [], []
        self.feed(path.read_text())

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.ids.add(given.get("id"))
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        elif tag in ("script", "img", "iframe") and given.get("src"):
            self.loads.append(given["src"])
        elif tag == "link" and given.get("rel") in ("stylesheet", "icon", "preload"):
            self.loads.append(given["href"])

    def handle_data(self, data):
        self.text.append(data)


@functools.cache
def parsed(path):
    return Page(path)


def test_the_site_is_rendered_without_a_warning():
    assert len(site()) > 50


def test_links_and_anchors_of_the_site_lead_somewhere():
    count = 0
    for path in site():
        for link in parsed(path).links:
            url = urllib.parse.urlparse(link)
            if url.scheme:
                assert url.scheme == "https", f"{path}: {link}"
                continue
            target = (path.parent / urllib.parse.unquote(url.path)).resolve() if url.path else path
            assert target.is_file() and SITE in target.parents, f"{path}: {link}"
            if target.suffix == ".html":
                assert urllib.parse.unquote(url.fragment) in parsed(target).ids, f"{path}: {link}"
                count += bool(url.fragment)
    assert count > 1000, count


def test_the_site_loads_nothing_from_elsewhere():
    for path in site():
        for source in parsed(path).loads:
            url = urllib.parse.urlparse(source)
            assert not url.scheme and not url.netloc, f"{path}: {source}"
            assert (path.parent / url.path).is_file(), f"{path}: {source}"


def test_every_page_of_the_repository_is_on_the_site():
    site()
    for page in (SOURCE / "docs").rglob("*.md"):
        if "site" not in page.parts:
            assert (SITE / page.relative_to(SOURCE).with_suffix(".html")).is_file(), page


def test_the_reference_has_every_name_of_the_headers():
    site()
    for page, name, least in (("c", "weir.h", 60), ("inspect", "inspect.h", 15)):
        header = (SOURCE / "include/weir" / name).read_text()
        names = set(re.findall(r"^WEIR_API [^(]*\b(weir_\w+)\(", header, re.M))
        names |= set(re.findall(r"^typedef (?:enum|struct) (weir_\w+) \{", header, re.M))
        names |= set(re.findall(r"^    (WEIR_[A-Z0-9_]+) = ", header, re.M))
        assert len(names) > least
        ids = {(identifier or "").rpartition(".")[2] for identifier in parsed(SITE / f"reference/{page}.html").ids}
        missing = names - ids
        assert not missing, missing
    text = "".join(parsed(SITE / "reference/c.html").text)
    assert "Opens a limiter and stores it in" in text and "the caller closes it with" in text
    for name in ("limiter", "handle", "verdict", "options", "policy", "limit", "error"):
        assert f"_CPPv4N6weirpp{len(name)}{name}E" in parsed(SITE / "reference/cpp.html").ids, name


def test_comments_come_through_whole():
    site()
    for name in ("c", "cpp"):
        text = "".join(parsed(SITE / f"reference/{name}.html").text)
        for mark in (":**", "__Threads", "\\verbatim", "\\file", "/*"):
            assert mark not in text, f"{name}: {mark}: {text[max(0, text.find(mark) - 80):][:160]}"
        assert re.search(r"\bThreads: (any|as any value)\.", text), name


def test_a_name_in_a_page_is_a_link_to_the_reference():
    site()
    assert "../reference/c.html#c.weir_check_burst" in parsed(SITE / "docs/embedding.html").links
    assert "../reference/c.html" in parsed(SITE / "docs/gateway.html").links or \
        "reference/c.html" in parsed(SITE / "index.html").links


def open_in_browser(path, *options):
    """The page's HTML after its scripts ran, and what the console says."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        raise Skipped("there is no chromium")
    with tempfile.TemporaryDirectory(prefix="weir-site-", ignore_cleanup_errors=True) as profile:
        done = subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync",
                               "--disable-background-networking", "--disable-component-update", "--enable-logging=stderr",
                               f"--user-data-dir={profile}", *options, "--dump-dom", path.as_uri()],
                              capture_output=True, text=True, timeout=240, check=False)
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def test_a_browser_opens_the_site():
    site()
    for path in (SITE / "index.html", SITE / "reference/c.html"):
        dom, console = open_in_browser(path)
        assert "theme-toggle" in dom and 'data-theme="auto"' in dom and "no-js" not in dom[:500], dom[:500]
        assert not console, console


run(globals())
