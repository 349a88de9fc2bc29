#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
What a request is asked for where internal redirects and subrequests bring it to several locations:
redirects_test.py BUILD_DIRECTORY SOURCE_DIRECTORY [TEST...]. Prints TAP.

Guards: apps/nginx/request.c, apps/nginx/request_state.c, apps/nginx/redirect.c, apps/nginx/check.c
"""
import contextlib
import os
import random
import re
import tempfile

from nginx_support import Nginx, lines, run

# A policy of a long window for each name: so many units for each key.
LIMITS = {"all": 7, "php": 3, "extra": 4, "auth": 5}
QUEUE = "  - name: queue\n    limits: [{algorithm: leaky_bucket, limit: 20, period: 1s, burst: 4}]\n"
SHOW = "add_header X-Weir '$weir_policy $weir_remaining $weir_limit_req_status' always;"

# What an upstream answers: it sends requests on to /inner.php, or to a location with a name.
UPSTREAM = """server { listen unix:{dir}/upstream.sock;
    location / { add_header X-Accel-Redirect /inner.php; return 200; }
    location /named { add_header X-Accel-Redirect @php; return 200; }
    location /auth { add_header X-User $http_x_k; return 200; } }"""

PHP = "weir php $http_x_k; %s try_files /a.html =500;"
LOCATIONS = ("location ~ \\.php$ { " + PHP + " } location @php { " + PHP + " } "
             "location /tried { try_files /none /index.php; } "
             "location /named { try_files /none @php; } "
             "location /folder/ { index index.php; } "
             "location /missing { error_page 404 = /index.php; } "
             "location /lost { error_page 404 = @php; } "
             "location /sent { proxy_pass http://unix:{dir}/upstream.sock:/; } "
             "location /called { proxy_pass http://unix:{dir}/upstream.sock:/named; } "
             "location /asked { auth_request /auth; try_files /none @php; } "
             "location = /auth { internal; proxy_pass http://unix:{dir}/upstream.sock:/auth; } ")
WAYS = ("/tried", "/named", "/folder/", "/missing", "/lost", "/sent", "/called", "/asked")


def policies(limits):
    return "policies:\n" + "".join(f"  - name: {name}\n    limits: [{{algorithm: fixed_window, limit: {limit}, period: 365d}}]\n"
                                   for name, limit in limits.items()) + QUEUE


@contextlib.contextmanager
def served(server, limits=None, zones="", **options):
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(policies(limits or LIMITS))
        file.flush()
        nginx = Nginx(f"weir_policies {file.name}; {zones} {UPSTREAM}", SHOW + server, start=False, **options)
        with nginx:
            (nginx.dir / "html" / "folder").mkdir()
            (nginx.dir / "html" / "folder" / "index.php").write_text("php\n")
            nginx.start()
            os.chmod(nginx.dir / "upstream.sock", 0o666)
            yield nginx


def says(server, zones=""):
    """What nginx -t says of a server, and whether it is good."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(policies(LIMITS))
        file.flush()
        nginx = Nginx(f"weir_policies {file.name}; {zones}", server, start=False)
        try:
            good, said = nginx.test()
        finally:
            nginx.close()
        assert good, said
        return said


def get(nginx, path, key, other=""):
    """A redirect or a subrequest loses the arguments, and keeps the fields of the request."""
    return nginx.get(path, headers={"X-K": str(key), "X-O": str(other)})


def statuses(nginx, path, key, count):
    return [get(nginx, path, key).status for _ in range(count)]


def test_without_the_directive_a_request_is_decided_once_as_by_limit_req():
    with served("weir all $http_x_k; " + LOCATIONS % ("", "")) as nginx:
        for i, way in enumerate(WAYS):
            assert statuses(nginx, way, i, 8) == [200] * 7 + [429], way
            assert get(nginx, way, i).headers["X-Weir"] == "all 0 REJECTED", way
            assert statuses(nginx, "/x.php", i, 4) == [200] * 3 + [429], way


def test_each_way_leads_to_what_was_not_asked_yet():
    again = "weir_ask_again on;"
    with served("weir all $http_x_k; " + LOCATIONS % (again, again)) as nginx:
        for i, way in enumerate(WAYS):
            answers = [get(nginx, way, i) for _ in range(5)]
            assert [answer.status for answer in answers] == [200] * 3 + [429] * 2, (way, answers)
            assert [answer.headers["X-Weir"] for answer in answers] == [f"php {left} PASSED" for left in (2, 1, 0)] + \
                ["php 0 REJECTED"] * 2, (way, answers)
            # The refused ones have taken nothing of "all": four of seven are left.
            assert statuses(nginx, "/a.html", i, 5) == [200] * 4 + [429], way
            assert statuses(nginx, "/x.php", i, 1) == [429], way


def test_a_refusal_by_the_first_location_asks_nothing_more():
    page = "error_page 429 @page; location @page { weir_ask_again on; weir extra $http_x_k; try_files /a.html =500; }"
    again = "weir_ask_again on;"
    with served("weir all $http_x_k; " + page + LOCATIONS % (again, again), {**LIMITS, "all": 2, "php": 9}) as nginx:
        for i, way in enumerate(WAYS):
            assert statuses(nginx, way, i, 4) == [200, 200, 429, 429], way
            assert get(nginx, way, i).headers["X-Weir"] == "all 0 REJECTED", way
            # "php" was asked twice, by those that passed.
            assert get(nginx, "/x.php", i).headers["X-Weir"] == "php 6 PASSED", way
        with_page = "location /extra { weir extra $http_x_k; } location = /all { weir all $http_x_k; }"
    with served(page + with_page) as nginx:
        assert statuses(nginx, "/all", 1, 7) == [404] * 7
        assert statuses(nginx, "/all", 1, 9) == [429] * 9
        assert get(nginx, "/extra", 1).headers["X-Weir"] == "extra 3 PASSED"


def test_what_is_new_is_all_or_nothing():
    server = ("weir all $http_x_k; location / { try_files /none @php; } location = /a.html { } location /php { weir php $http_x_k; } "
              "location /extra { weir extra $http_x_k; } location @php { weir_ask_again on; weir php $http_x_k; "
              "weir extra $http_x_k cost=2; try_files /a.html =500; }")
    with served(server) as nginx:
        assert statuses(nginx, "/", 1, 4) == [200, 200, 429, 429]  # "extra" has four units
        assert get(nginx, "/php", 1).headers["X-Weir"] == "php 0 PASSED"
        assert get(nginx, "/extra", 1).headers["X-Weir"] == "extra 0 REJECTED"
        assert statuses(nginx, "/a.html", 1, 1) == [200]


def test_the_same_check_of_two_locations_is_asked_once_and_another_key_is_another_check():
    server = ("weir all $http_x_k; location / { try_files /none @again; } location /other { try_files /none @other; } "
              "location @again { weir_ask_again on; weir all $http_x_k; weir php $http_x_k; try_files /a.html =500; } "
              "location @other { weir_ask_again on; weir all $http_x_o; try_files /a.html =500; } ")
    with served(server) as nginx:
        assert get(nginx, "/", 1).headers["X-Weir"] == "php 2 PASSED"
        assert get(nginx, "/a.html", 1).headers["X-Weir"] == "php 1 PASSED"
        assert get(nginx, "/other", 1, 2).headers["X-Weir"] == "all 4 PASSED"  # of key 1; key 2 has 6 left
        assert get(nginx, "/other", 3, 2).headers["X-Weir"] == "all 5 PASSED"
        assert get(nginx, "/other", 1, 1).headers["X-Weir"] == "all 2 PASSED"  # two checks of one key
    # A check whose key was empty was not asked.
    late = ("location / { auth_request /auth; auth_request_set $user $upstream_http_x_user; weir all $user; weir php $http_x_k; "
            "try_files /none @app; } location = /auth { internal; proxy_pass http://unix:{dir}/upstream.sock:/auth; } "
            "location @app { weir_ask_again on; weir all $user; try_files /a.html =500; }")
    with served(late, {**LIMITS, "all": 2}) as nginx:
        assert statuses(nginx, "/", 1, 3) == [200, 200, 429]
        assert get(nginx, "/", 1).headers["X-Weir"] == "all 0 REJECTED"
        assert statuses(nginx, "/", 2, 1) == [200]


def test_zones_are_asked_again_too_and_given_back():
    zones = "weir_limit_req_zone $http_x_k zone=one:1m rate=1r/m; weir_limit_req_zone $http_x_k zone=two:1m rate=1r/m;"
    server = ("weir_limit_req zone=one burst=4 nodelay; location / { try_files /none @two; } "
              "location @two { weir_ask_again on; weir_limit_req zone=one burst=4 nodelay; "
              "weir_limit_req zone=two burst=1 nodelay; weir php $http_x_k; try_files /a.html =500; } location /php { weir php $http_x_k; }"
              "location /free { }")
    with served(server, zones=zones) as nginx:
        assert statuses(nginx, "/", 1, 4) == [200, 200, 503, 503]
        assert get(nginx, "/php", 1).headers["X-Weir"] == "php 0 PASSED"  # and one place of zone one
        assert statuses(nginx, "/free", 1, 3) == [404, 404, 503]
        assert get(nginx, "/", 2).headers["X-Weir"] == "php 2 PASSED"


def test_a_later_location_may_let_a_request_wait():
    server = ("weir all $http_x_k; location / { try_files /none @slow; } "
              "location @slow { weir_ask_again on; weir queue $http_x_k; try_files /a.html =500; }")
    with served(server) as nginx:
        answers = [get(nginx, "/", 1) for _ in range(3)]
        assert [answer.status for answer in answers] == [200] * 3
        assert answers[0].headers["X-Weir"].endswith("PASSED")
        assert answers[2].headers["X-Weir"].endswith("DELAYED") or answers[2].seconds < 0.05
        assert statuses(nginx, "/", 1, 4) == [200] * 4
        assert statuses(nginx, "/", 1, 1) == [429]


def test_dry_run_of_a_later_location_refuses_nothing_and_takes_nothing():
    server = ("weir all $http_x_k; location / { try_files /none @dry; } location /php { weir php $http_x_k; } "
              "location @dry { weir_ask_again on; weir_limit_req_dry_run on; weir php $http_x_k; try_files /a.html =500; }")
    with served(server) as nginx:
        answers = [get(nginx, "/", 1) for _ in range(8)]
        assert [answer.status for answer in answers] == [200] * 7 + [429]
        assert [answer.headers["X-Weir"].split()[-1] for answer in answers] == ["PASSED"] * 3 + ["REJECTED_DRY_RUN"] * 4 + ["REJECTED"]
        assert len(lines(nginx, 'limiting requests, dry run, by policy "php"')) == 4


def test_each_location_charges_what_it_asked_for():
    server = ("weir all $http_x_k; weir_charge 1; location / { try_files /none @php; } location /php { weir php $http_x_k; } "
              "location @php { weir_ask_again on; weir extra $http_x_k cost=0; weir_charge 2; try_files /a.html =500; } "
              "location /extra { weir extra $http_x_k; } location /all { }")
    with served(server) as nginx:
        assert get(nginx, "/", 1).headers["X-Weir"] == "extra 4 PASSED"
        assert get(nginx, "/extra", 1).headers["X-Weir"] == "extra 1 PASSED"
        assert get(nginx, "/all", 1).headers["X-Weir"] == "all 4 PASSED"  # 2 and this one


def test_clients_are_told_of_the_strictest_policy():
    server = ("weir all $http_x_k; weir_headers trio; location / { try_files /none @php; } "
              "location @php { weir_ask_again on; weir extra $http_x_k; try_files /a.html =500; }")
    with served(server, {**LIMITS, "extra": 30}) as nginx:
        assert [get(nginx, "/", 1).headers["RateLimit-Remaining"] for _ in range(7)] == list("6543210")
    with served(server) as nginx:
        assert [get(nginx, "/", 1).headers["RateLimit-Limit"] for _ in range(5)] == ["4"] * 5


def test_a_subrequest_that_is_refused_refuses_itself_alone():
    (body, page) = ("<!--#include virtual=\"/part.php\" --><!--#include virtual=\"/part.php\" -->", "/page.shtml")
    server = ("weir all $http_x_k; ssi on; ssi_silent_errors on; location ~ \\.shtml$ { ssi_types *; } location /php { weir php $http_x_k; } "
              "location = /part.php { weir_ask_again on; weir php $http_x_k; try_files /a.html =500; }")
    with served(server) as nginx:
        (nginx.dir / "html" / page[1:]).write_text(body)
        # Each request asks "php" once, for the first of its two parts; the fourth request has no part.
        answers = [get(nginx, page, 1) for _ in range(5)]
        assert [answer.status for answer in answers] == [200] * 5, answers
        assert [answer.body.count("served") for answer in answers] == [2, 2, 2, 0, 0], answers
        assert [answer.status for answer in (get(nginx, "/a.html", 1) for _ in range(3))] == [200, 200, 429]  # 7 of "all"
        assert get(nginx, "/php", 1).status == 429
    # auth_request takes a refusal of its subrequest for a fault.
    server = ("weir all $http_x_k; location / { auth_request /auth; } location = /auth { internal; weir_ask_again on; weir php $http_x_k; "
              "proxy_pass http://unix:{dir}/upstream.sock:/auth; }")
    with served(server) as nginx:
        assert statuses(nginx, "/a.html", 1, 5) == [200] * 3 + [500] * 2


def test_requests_are_decided_as_a_plain_count_decides_them():
    """Drawn ways and keys, beside a model: what a location asks that was not asked yet, all or nothing, given back."""
    rng = random.Random(int(os.environ.get("WEIR_TEST_SEED", random.randrange(1 << 30))))
    limits = {"all": 20, "php": 9, "extra": 14, "auth": 11}
    asks = {"server": [("all", 1)], "/auth": [("auth", 1)], "@php": [("php", 1), ("extra", 2)], "@end": [("php", 1), ("auth", 1)]}
    locations = "".join(f"location {name} {{ weir_ask_again on; " + " ".join(f"weir {policy} $http_x_k cost={cost};" for policy, cost in asks[name]) +
                        f" {then} }} " for name, then in (("@php", "error_page 404 = @end; try_files /none =404;"),
                                                            ("@end", "try_files /a.html =500;"),
                                                            ("/auth", "internal; proxy_pass http://unix:{dir}/upstream.sock:/auth;")))
    ways = {"/a.html": ["server"], "/one": ["server", "@end"], "/two": ["server", "@php", "@end"],
            "/three": ["server", "/auth", "@php", "@end"], "/four": ["server", "/auth"]}
    server = ("weir all $http_x_k; location = /one { try_files /none @end; } location = /two { try_files /none @php; } "
              "location = /three { auth_request /auth; try_files /none @php; } location = /four { auth_request /auth; "
              "try_files /a.html =500; } " + locations)
    used = {}

    def decide(way, key):
        asked, taken = set(), {}
        for location in ways[way]:
            new = [(policy, cost) for policy, cost in asks[location] if policy not in asked]
            asked |= {policy for policy, _ in new}
            if any(used.get((policy, key), 0) + cost > limits[policy] for policy, cost in new):
                for policy, cost in ({} if location == "/auth" else taken).items():
                    used[policy, key] -= cost
                return 500 if location == "/auth" else 429
            for policy, cost in new:
                used[policy, key] = used.get((policy, key), 0) + cost
                taken[policy] = taken.get(policy, 0) + cost
        return 200

    with served(server, limits, workers=2) as nginx:
        for i in range(400):
            way, key = rng.choice(list(ways)), rng.randrange(9)
            expected = decide(way, key)
            answer = get(nginx, way, key)
            assert answer.status == expected, (i, way, key, answer, expected, used)


WARNING = r"\[warn\].* policy \"(\w+)\" is not asked for requests that an internal redirect .* in .*nginx.conf:(\d+)"


def warned(server, zones=""):
    return [policy for policy, _ in re.findall(WARNING, says(server, zones))]


def test_a_configuration_is_warned_of_checks_that_redirected_requests_are_not_asked_for():
    zone = "weir_limit_req_zone $http_x_k zone=one:1m rate=1r/s;"
    php = "location ~ \\.php$ { weir php $http_x_k; } "
    assert warned("weir all $http_x_k; location / { try_files $uri /index.php; } " + php) == ["php"]
    assert warned("weir_limit_req zone=one; " + php, zone) == ["php"]
    assert warned("location / { weir all $http_x_k; location /in { weir php $http_x_k; weir extra $http_x_k; } }") == ["php"]
    assert warned("location / { weir all $http_x_k; } location @php { weir php $http_x_k; }") == ["php"]
    assert warned("location / { weir all $http_x_k; } location /php { internal; weir php $http_x_k; }") == ["php"]
    two = "location @php { weir php $http_x_k; } location @extra { weir extra $http_x_k; }"
    assert warned("location / { weir_limit_req zone=one; } " + two, zone) == ["php", "extra"]


def test_a_configuration_is_not_warned_where_nothing_is_lost_or_somebody_has_decided():
    php = "location ~ \\.php$ { %s weir php $http_x_k; } "
    for said in ("on", "off"):
        assert warned("weir all $http_x_k; " + php % f"weir_ask_again {said};") == []
        assert warned(f"weir_ask_again {said}; weir all $http_x_k; " + php % "") == []
        assert warned("weir all $http_x_k; " + php % "", f"weir_ask_again {said};") == []
    assert warned(php % "") == []
    assert warned("location / { weir all $http_x_k; } " + php % "") == []  # other locations: nobody knows who leads where
    assert warned("weir all $http_x_k; location / { } location @named { }") == []
    assert warned("location @php { weir php $http_x_k; } location / { }") == []
    assert warned("weir all $http_x_k; location / { limit_except GET { deny all; } if ($arg_x) { return 204; } }") == []
    assert warned("weir all $http_x_k;", "server { listen 127.0.0.1:1; weir php $http_x_k; }") == []


if __name__ == "__main__":
    run(dict(globals()))
