#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
weir_limit_req beside nginx's limit_req: stock_test.py BUILD_DIRECTORY SOURCE_DIRECTORY [TEST...]. Prints TAP.

Two nginx have one configuration, but for the names of the directives, and are asked the same.

Guards: apps/nginx/module.c
"""
import collections
import contextlib
import itertools
import re
import select
import socket

from nginx_support import BUILD, Watched, run, statuses

FOLDERS = ("", "a", "a/b", "auth", "conn", "deny", "real", "ssi", "try")


class Asked(Watched):
    """
    An nginx that is asked by numbers: `n` in the arguments of a request is its number, by which its lines in the log
    are found. A request has been decided when it is answered, or when the log says that it waits.
    """

    def __init__(self, http, **options):
        self.said, self.read_up_to = collections.defaultdict(list), 0
        super().__init__(BUILD, http, start=False, **options)
        try:
            for folder in FOLDERS:
                (self.dir / "html" / folder).mkdir(exist_ok=True)
                for name in ("index.html", "a.html"):
                    (self.dir / "html" / folder / name).write_text(f"/{folder}/{name}\n")
            (self.dir / "html" / "conn" / "held").write_bytes(bytes(1 << 20))  # by limit_rate it takes minutes
            (self.dir / "html" / "ssi" / "a.html").write_text('<!--#include virtual="/a/a.html?k=1"-->, <!--#include virtual="/a/b/a.html"-->')
            self.start()
        except BaseException:
            self.close()
            raise

    def take_log(self):
        with open(self.log_path, "rb") as log:
            log.seek(self.read_up_to)
            text = log.read()
        text = text[:text.rfind(b"\n") + 1]
        self.read_up_to += len(text)
        for line in text.decode(errors="replace").splitlines():
            found = re.search(r"\[(\w+)\] .*?: \*\d+ ((?:limiting|delaying) .*?), client: .*[?&]n=([\w.]+)", line)
            if found:
                self.said[found[3]].append((found[1], found[2]))

    def waits(self, number):
        return any(sentence.startswith("delaying") and "dry run" not in sentence for _, sentence in self.said[number])

    def ask(self, number, path, headers=(), host="127.0.0.1", method="GET"):
        client = socket.create_connection((host, self.port), timeout=60)
        client.sendall("\r\n".join([f"{method} {path}{'&' if '?' in path else '?'}n={number} HTTP/1.1", "Connection: close",
                                    *headers, "", ""]).encode())
        return Answer(client, number, path.startswith("/conn/held"))

    def decide(self, answers):
        """Waits until each of these requests is decided."""
        def all_decided():
            open_ones = [answer for answer in answers if not answer.whole]
            for answer in open_ones:
                answer.read()
            self.take_log()
            return all(answer.whole or self.waits(answer.number) for answer in open_ones)
        self.until(all_decided)
        return answers


class Answer:
    """What comes of one request; `held`: no more than the head is read."""

    def __init__(self, client, number, held):
        self.client, self.number, self.held = client, number, held
        self.data, self.whole = b"", False

    def read(self):
        while not self.whole and select.select([self.client], [], [], 0.002)[0]:
            try:
                more = self.client.recv(65536)
            except ConnectionResetError:
                more = b""
            self.data += more
            self.whole = not more or (self.held and b"\r\n\r\n" in self.data)

    def outcome(self):
        """The status, what the variable says, and the body; None: the request waits. 444 is no answer."""
        if not self.whole:
            return None
        head, _, body = self.data.partition(b"\r\n\r\n")
        said = re.findall(rb"^X-Status: (.*?)\r?$", head, re.M)
        return int((head.split() or [0, 444])[1]), b" ".join(said).decode(), b"" if self.held else body


@contextlib.contextmanager
def both(http, **options):
    """An nginx with limit_req, and one with weir_limit_req in its place."""
    with Asked(http, **options) as stock, Asked(re.sub(r"\blimit_req", "weir_limit_req", http), **options) as weir:
        yield stock, weir


PLACES = """
limit_conn_zone $server_port zone=conn:1m;
limit_req_zone $arg_k zone=quick:1m rate=20r/s;
limit_req_zone $arg_k zone=slow:1m rate=1r/m;
limit_req_zone $arg_k zone=other:1m rate=1r/m;
limit_req_zone $remote_addr zone=address:1m rate=1r/m;
server {
    listen 127.0.0.1:{port};
    set_real_ip_from 127.0.0.1;
    real_ip_header X-Real-IP;
    add_header X-Status $limit_req_status always;
    location /conn/ { limit_conn conn 3; limit_req zone=quick burst=20; }
    location /real/ { limit_req zone=address burst=1 nodelay; }
    location /auth/ { auth_request /no; limit_req zone=slow; limit_req_status 430; }
    location = /no  { limit_req zone=other; try_files /none =403; }
    location /deny/ { deny all; limit_req zone=other; }
    location /try/  { limit_req zone=slow; limit_req_status 430; try_files /none @other; }
    location @other { limit_req zone=other; try_files /a.html =404; }
    location /a/    { limit_req zone=slow; limit_req_status 430; error_page 430 =431 /a/b/a.html; }
    location /a/b/  { limit_req zone=other; }
}
"""


def test_other_modules_see_a_request_before_and_after_the_limit_as_with_limit_req():
    found = []
    with both(PLACES) as pair:
        for nginx in pair:
            numbers = itertools.count()

            def status(path, *headers):
                return nginx.decide([nginx.ask(next(numbers), path, ["Host: here", *headers])])[0].outcome()[:2]

            # Ten at once wait for their turns, one after the other: so they are never more than three connections.
            waiting = [nginx.ask(next(numbers), "/conn/a.html?k=1", ["Host: here"]) for _ in range(10)]

            def all_answered():
                for answer in waiting:
                    answer.read()
                return all(answer.whole for answer in waiting)
            nginx.until(all_answered)
            shown = {"conn": sorted(answer.outcome()[0] for answer in waiting)}
            shown["real"] = [status("/real/a.html", f"X-Real-IP: {address}")[0]
                             for address in ("198.51.100.1", "198.51.100.2", "2001:db8::1") for _ in range(3)]
            for name, path in (("auth", "/auth/?k=1"), ("deny", "/deny/?k=1"), ("try", "/try/?k=2"), ("page", "/a/a.html?k=3"),
                               ("other", "/a/b/a.html?k=2"), ("page's", "/a/b/a.html?k=3")):
                shown[name] = [status(path) for _ in range(2)]
            found.append(shown)
    stock, weir = found
    assert weir == stock, f"stock: {stock}\nweir:  {weir}"
    # A request is decided once: neither a subrequest nor the place that it is sent on to decides again.
    assert stock == {
        "conn": [200] * 10, "real": [200, 200, 503] * 3, "auth": [(403, "PASSED"), (430, "REJECTED")],
        "deny": [(403, "PASSED"), (503, "REJECTED")], "try": [(200, "PASSED"), (430, "REJECTED")],
        "page": [(200, "PASSED"), (431, "REJECTED")], "other": [(200, "PASSED"), (503, "REJECTED")],
        "page's": [(200, "PASSED"), (503, "REJECTED")]}, stock


def test_beside_a_limit_req_in_the_same_place_it_is_asked_second():
    http = ("limit_req_zone $arg_k zone=theirs:1m rate=1r/m; weir_limit_req_zone $arg_k zone=ours:1m rate=1r/m; "
            "server { listen 127.0.0.1:{port}; location /a.html { weir_limit_req zone=ours burst=1 nodelay; weir_limit_req_status 430; "
            "limit_req zone=theirs; } location /index.html { weir_limit_req zone=ours burst=1 nodelay; weir_limit_req_status 430; } }")
    with Watched(BUILD, http) as nginx:
        assert statuses(nginx, "/a.html?k=1", 3) == [200, 503, 503]
        assert statuses(nginx, "/index.html?k=1", 2) == [200, 430], "a request that limit_req refused has taken nothing"


if __name__ == "__main__":
    run(dict(globals()))
