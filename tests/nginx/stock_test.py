#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
weir_limit_req beside nginx's limit_req: stock_test.py BUILD_DIRECTORY SOURCE_DIRECTORY [TEST...]. Prints TAP.

Two nginx have one configuration, but for the names of the directives, and are asked the same. Configurations and requests
are drawn.

Guards: apps/nginx/module.c, apps/nginx/limit.c, apps/nginx/configuration.c, apps/nginx/request.c,
apps/nginx/sentences.c
"""
import collections
import concurrent.futures
import contextlib
import itertools
import os
import random
import re
import select
import socket

from nginx_support import BUILD, Watched, run, statuses

SEED = int(os.environ.get("WEIR_TEST_SEED") or random.SystemRandom().randrange(1 << 32))

FOLDERS = ("", "a", "a/b", "auth", "conn", "deny", "real", "ssi", "try")
LISTEN = "listen 127.0.0.1:{port}; listen [::1]:{port};"


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


KEYS = ("$arg_k", "${arg_k}", '"$arg_k"', "$binary_remote_addr", "$remote_addr", "$http_x_key", '"$arg_k:$arg_j"', "$server_name$arg_k",
        '"$binary_remote_addr$arg_k"', "$uri", "all", "$cookie_k", "$mapped", '"$scheme://$host$uri"', "$request_method")
PAGES = ("/a/a.html", "/a/b/a.html", "=429 /a/a.html", "=200 /a/b/", "= /a/a.html", "@named", "=404 @named")
# nginx does all of these in one go, so that requests that come together are decided one after the other.
SIMPLE = ("/", "/a.html", "/a/", "/a/a.html", "/a/b/a.html", "/deny/", "/go/a.html", "/try/")
PATHS = SIMPLE + ("/auth/", "/back/a.html", "/conn/a.html", "/conn/held", "/mirror/", "/none", "/sent/", "/ssi/a.html", "/try/a.html")


class Drawn:
    """
    Drawn servers and requests. What time decides is not drawn: a rate lets nothing more pass while a server is asked, or
    it has room for all that comes.
    """

    def __init__(self, seed, workers):
        self.draw, self.workers, self.zones, self.texts = random.Random(seed), workers, [], []
        self.add_zone("top", "$server_name$arg_k")
        self.texts.append(self.limits(1))

    def maybe(self, chance, text):
        return text if self.draw.random() < chance else ""

    def shuffled(self, words):
        words = [word for word in words if word]
        self.draw.shuffle(words)
        return " ".join(words)

    def add_zone(self, name, key):
        roomy = self.draw.random() < 0.15
        rate = self.draw.choice(("1000r/s", "9000r/m", "999999r/s") if roomy else ("1r/m", "1r/m", "1r/m", "2r/m"))
        words = self.shuffled([f"zone={name}:{self.draw.choice(('32k', '64K', '1m', '65536'))}", f"rate={rate}"])
        self.texts.append(f"limit_req_zone {key} {words};")
        self.zones.append((name, roomy))

    def limits(self, most):
        """What one place has: limits of different zones, and other directives that may be inherited."""
        lines = []
        for name, roomy in self.draw.sample(self.zones, min(len(self.zones), self.draw.randint(0, most))):
            burst = "200" if roomy else self.draw.choice(("", "1", "2", "3", "05"))
            delay = "nodelay" if roomy else self.draw.choice(("nodelay", "nodelay", f"delay={self.draw.choice((1, 2, 3, 9))}", ""))
            lines.append(f"limit_req {self.shuffled([f'zone={name}', burst and f'burst={burst}', delay])};")
        return self.shuffled([*lines, self.maybe(0.3, f"limit_req_status {self.draw.choice((400, 429, 444, 503, 599))};"),
                              self.maybe(0.3, f"limit_req_log_level {self.draw.choice(('info', 'notice', 'warn', 'error'))};"),
                              self.maybe(0.15, f"limit_req_dry_run {self.draw.choice(('on', 'off'))};"),
                              self.maybe(0.2, f"error_page {self.draw.choice(('503', '429', '404', '403', '403 503 599'))} "
                                              f"{self.draw.choice(PAGES)};")])

    def add_server(self, name):
        self.zones = []
        for i in range(self.draw.choice((1, 1, 2, 3))):
            self.add_zone(f"{self.draw.choice(('z', 'Zone-', 'a.b_', 'ü', 'x' * 60))}_{name}_{i}", self.draw.choice(KEYS))
        tried = self.draw.choice(("/none @named", "$uri /a/a.html", "/none /a/b/a.html", "/a.html =404", "/none =404"))
        self.texts.append(f"""server {{
            {LISTEN} server_name {name}; add_header X-Status $limit_req_status always;
            {self.maybe(0.4, "set_real_ip_from 127.0.0.1; set_real_ip_from ::1; real_ip_header X-Real-IP;")}
            {self.limits(2)} {self.maybe(0.2, "limit_conn conn 2;") if self.workers == 1 else ""}
            location /a/ {{ {self.limits(2)} location /a/b/ {{ {self.limits(2)} }} }}
            location /auth/ {{ {self.limits(2)} auth_request {self.draw.choice(("/_yes", "/_no"))}; }}
            location = /_yes {{ internal; {self.limits(1)} alias {{dir}}/html/a.html; }}
            location = /_no {{ internal; {self.limits(1)} try_files /none =403; }}
            location /conn/ {{ {self.limits(1)} limit_conn conn {self.draw.choice((1, 2))}; limit_conn_status 430; limit_rate 1k; }}
            location /deny/ {{ {self.limits(2)} deny all; }}
            location /go/ {{ {self.limits(1)} rewrite ^/go(.*) {self.draw.choice(("/a$1", "/try$1", "/none$1"))} last; }}
            location /back/ {{ {self.limits(1)} rewrite ^/back(.*) /a$1 break; }}
            location /mirror/ {{ {self.limits(1)} mirror /_yes; try_files /a.html =404; }}
            location /sent/ {{ {self.limits(1)} proxy_pass http://127.0.0.1:{{port}}/_sent/; proxy_set_header Host {name}; }}
            location /_sent/ {{ {self.limits(1)} add_header X-Accel-Redirect {self.draw.choice(("/a/a.html", "/try/", "@named"))};
                                try_files /a.html =404; }}
            location /ssi/ {{ {self.limits(1)} ssi on; }}
            location /try/ {{ {self.limits(2)} try_files {tried}; }}
            location @named {{ {self.limits(2)} try_files /a.html =404; }}
        }}""")

    def request(self, server, path):
        """A request as Asked.ask() takes it."""
        draw = self.draw
        arguments = [word for word in (self.maybe(0.8, f"k={draw.choice('12')}"), self.maybe(0.5, f"j={draw.choice('12')}")) if word]
        headers = [word for word in (
            f"Host: {server}", self.maybe(0.5, f"X-Key: {draw.choice('ab')}"), self.maybe(0.3, f"Cookie: k={draw.choice('ab')}"),
            self.maybe(0.5, f"X-Real-IP: {draw.choice(('198.51.100.1', '198.51.100.2', '2001:db8::1', '2001:db8::2'))}")) if word]
        return {"path": "?".join([path, *(["&".join(arguments)] if arguments else [])]), "headers": headers,
                "host": draw.choice(("127.0.0.1", "::1")), "method": draw.choice(("GET", "GET", "GET", "HEAD", "POST"))}

    def requests(self, server, count):
        """Requests, and how many of each come together."""
        for _ in range(count):
            together = self.draw.choice((1, 1, 1, 2, 5)) if self.workers == 1 else 1
            yield self.request(server, self.draw.choice(PATHS if together == 1 else SIMPLE)), together


def told(nginx, number):
    """What the log says of a request: each sentence with its level, and apart from it the zone that delays, and the excess."""
    excess, delaying = r"\d+\.\d{3}(?=,? by)", r'(?<=, by zone ").*(?=")'
    return sorted((level, re.sub(delaying, "Z", re.sub(excess, "N", sentence)), (re.findall(delaying, sentence) or [""])[0],
                   float((re.findall(excess, sentence) or "0")[0])) for level, sentence in nginx.said[number])


def found(nginx, numbers, request, clients):
    """What comes of requests that come together."""
    answers = [nginx.ask(number, **request) for number in numbers]
    clients += answers
    nginx.decide(answers)
    return sorted(((answer.outcome(), told(nginx, answer.number)) for answer in answers), key=repr)


def parts(several, index):
    return [sentence[index] for _, sentences in several for sentence in sentences]


def zones(several):
    """The zones that are named as those that delay."""
    return [zone for zone in parts(several, 2) if zone]


def agree(stock, weir):
    """
    An excess sinks with time, which passes between the two; nginx's sinks by 16 thousandths in a second of 1r/m. Of two
    zones that delay for as long, milliseconds decide which is named, and with it the excess.
    """
    def but_excess(several):
        return [(outcome, [sentence[:2] for sentence in sentences]) for outcome, sentences in several]

    return but_excess(stock) == but_excess(weir) and (zones(stock) != zones(weir) or all(
        abs(one - other) < 0.5 for one, other in zip(parts(stock, 3), parts(weir, 3))))


def ask_both(pair, drawn, server, count, seen):
    """The first request of a server that the two decide differently, with those before it; None: there is none."""
    clients, before, number = [], [], 0
    try:
        for request, together in drawn.requests(server, count):
            numbers = range(number, number + together)
            number += together
            stock, weir = (found(nginx, [f"{server}.{n}" for n in numbers], request, clients) for nginx in pair)
            before.append((request, together, stock, weir))
            seen.update(outcome and outcome[:2] for outcome, _ in stock)
            if zones(stock):
                seen["another zone" if zones(stock) != zones(weir) else "the same zone"] += 1
            if not agree(stock, weir):
                return before
    finally:
        for answer in clients:
            answer.client.close()


def test_drawn_configurations_decide_as_with_limit_req():
    print(f"# WEIR_TEST_SEED={SEED}", flush=True)
    seen = collections.Counter()
    for part in range(8):
        drawn = Drawn(SEED + part, workers=(1, 1, 1, 4)[part % 4])
        servers = [f"s{i}" for i in range(25)]
        for server in servers:
            drawn.add_server(server)
        drawn.draw.shuffle(drawn.texts)  # a zone may stand below its limits
        http = ("server_names_hash_max_size 4096; limit_conn_zone $server_name zone=conn:1m; "
                "map $arg_k $mapped { 1 one; default ''; }\n" + "\n".join(drawn.texts))
        with both(http, workers=drawn.workers) as pair:
            for server in servers:
                different = ask_both(pair, drawn, server, 12, seen)
                if different:
                    text = next(text for text in drawn.texts if f"server_name {server};" in text)
                    zones = [text for text in drawn.texts if f"_{server}_" in text and "server_name" not in text or "zone=top" in text]
                    lines = [f"{request} x{together}\n  stock {stock}\n  weir  {weir}" for request, together, stock, weir in different]
                    raise AssertionError("\n".join([f"WEIR_TEST_SEED={SEED}", *zones, text, *lines]))
    print("# " + ", ".join(f"{count} x {outcome}" for outcome, count in seen.most_common(12)), flush=True)
    refused = sum(count for outcome, count in seen.items() if isinstance(outcome, tuple) and outcome[1] == "REJECTED")
    assert seen[None] > 20 and seen[(200, "PASSED")] > 100 and refused > 100, seen
    assert seen["the same zone"] > 50 and 20 * seen["another zone"] < seen["the same zone"], seen  # few delay for as long


def test_requests_wait_as_long_as_with_limit_req():
    draw = random.Random(SEED)
    cases = [(draw.randint(5, 25), draw.choice(("", "delay=1", "delay=3")), draw.randint(4, 6)) for _ in range(8)]
    zones = "".join(f"limit_req_zone $arg_k zone=z{i}:1m rate={rate}r/s;" for i, (rate, _, _) in enumerate(cases))
    places = "".join(f"location /a{i} {{ limit_req zone=z{i} burst=20 {delay}; alias {{dir}}/html/a.html; }}"
                     for i, (_, delay, _) in enumerate(cases))
    with both(f"{zones} server {{ listen 127.0.0.1:{{port}}; {places} }}") as pair, concurrent.futures.ThreadPoolExecutor(128) as pool:
        def seconds(nginx, place):
            answer = nginx.get(f"/a{place}?k=1", timeout=60)
            assert answer.status == 200
            return answer.seconds
        waits = [[[pool.submit(seconds, nginx, i) for _ in range(case[2])] for i, case in enumerate(cases)] for nginx in pair]
        for nginx, of_nginx in zip(("stock", "weir"), waits):
            for (rate, delay, count), one in zip(cases, of_nginx):
                longest = max(wait.result() for wait in one)
                wanted = (count - 1 - int(delay[6:] or 0)) / rate
                # The first one may have been alone for a while, and a machine under load answers late.
                assert wanted * 0.2 - 0.05 < longest < 10 * wanted + 20, (nginx, rate, delay, count, longest, wanted)


if __name__ == "__main__":
    run(dict(globals()))
