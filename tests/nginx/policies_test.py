#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Policies of a file in nginx: policies_test.py BUILD_DIRECTORY SOURCE_DIRECTORY [TEST...]. Prints TAP.

Guards: apps/nginx/policies.c, apps/nginx/check.c, apps/nginx/charge.c, apps/nginx/answer.c, apps/nginx/status.c,
apps/nginx/text.c, apps/nginx/known_policies.c, apps/nginx/unkeyed.c
"""
import contextlib
import html.parser
import json
import os
import random
import re
import tempfile
import time
import urllib.parse

from nginx_support import Load, Nginx, check_log, http, lines, nginx_demo, run, statuses

POLICIES = """
policies:
  - name: few
    limits: [{algorithm: fixed_window, limit: 3, period: 365d}]
  - name: many
    limits: [{algorithm: sliding_window, limit: 5, period: 365d}]
    tiers:
      - name: pro
        limits: [{algorithm: sliding_window, limit: 8, period: 365d}]
  - name: bucket
    limits: [{algorithm: token_bucket, limit: 1, period: 1h, burst: 2}]
  - name: queue
    limits: [{algorithm: leaky_bucket, limit: 10, period: 1s, burst: 4}]
  - name: bytes
    limits: [{algorithm: fixed_window, limit: 1000, period: 365d}]
  - name: tried
    mode: shadow
    limits: [{algorithm: fixed_window, limit: 1, period: 365d}]
overrides:
  "few:partner": 6
"""
SHOW = "add_header X-Weir '$weir_policy $weir_remaining $weir_retry_after $weir_basis' always;"


@contextlib.contextmanager
def served(server, policies=POLICIES, zones="", **options):
    """An nginx with this file of policies."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(policies)
        file.flush()
        with Nginx(f"weir_policies {file.name}; {zones}", server, **options) as nginx:
            nginx.policies = file.name
            yield nginx


def says(server, zones="", policies=POLICIES):
    """What nginx -t says of a configuration."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(policies)
        file.flush()
        nginx = Nginx(f"{zones.replace('FILE', file.name)}", server, start=False)
        try:
            good, said = nginx.test()
        finally:
            nginx.close()
        return good, said.replace(file.name, "FILE").replace(str(nginx.dir), "DIR")


def test_a_policy_of_the_file_decides_by_its_key_with_429():
    server = f'weir few $arg_k; location = /long {{ set $long "{"$arg_k" * 20}"; weir few $long; try_files /a.html =404; }}'
    with served(server) as nginx:
        assert statuses(nginx, "/?k=1", 5) == [200] * 3 + [429] * 2
        assert statuses(nginx, "/?k=2", 1) == [200]
        assert statuses(nginx, "/", 5) == [200] * 5, "an empty key is not limited"
        # 20 of them are 65,520 bytes, 65,540 and 65,560: the last two are one key, which is cut behind 65,535.
        for length, wanted in ((3276, [200] * 3 + [429]), (3277, [200] * 2), (3278, [200] + [429])):
            assert statuses(nginx, "/long?k=" + "x" * length, len(wanted)) == wanted, length
        assert not lines(nginx, "65535"), "nothing is said of it"
        assert len(lines(nginx, r'\[error\].* limiting requests by policy "few", client: 127.0.0.1')) == 4
        assert nginx.get("/?k=1").headers["X-Status"] == "REJECTED"
        assert nginx.get("/?k=3").headers["X-Status"] == "PASSED"


def test_requests_without_a_key_are_counted_and_named():
    zone = ('weir_limit_req_zone $arg_z zone=slow:1m rate=1r/m; map $http_x_api_key $caller { "" "address:$weir_client"; '
            'default "key:$http_x_api_key"; }')
    server = ("location /caller { weir bucket $caller; } add_header X-Without $weir_without_key always; add_header X-Weir $weir_policy always; location / { weir few $arg_k; } "
              "location /two { weir few $arg_k; weir many $arg_m tier=$arg_t; weir_limit_req zone=slow; } "
              "location /zone { weir_limit_req zone=slow; } location /again { weir few $arg_k; error_page 404 /two/none; } "
              "location /sent { weir few $arg_k; rewrite ^ /two last; } location /s { weir_status; }")
    with served(server, zones=zone, workers=2) as nginx:
        def counts():
            found = json.loads(nginx.get("/s?format=json").body)["without_key"]
            metrics = dict(re.findall(r'^weir_nginx_without_key_total\{policy="([^"]+)"\} (\d+)$', nginx.get("/s?format=prometheus").body, re.M))
            assert {name: int(value) for name, value in metrics.items()} == found, (found, metrics)
            table = nginx.get("/s?format=table").body
            assert f"enforced; {found['few']} requests without a key" in table, table
            return {name: found[name] for name in ("few", "many", "slow", "many/pro")}

        assert counts() == {"few": 0, "many": 0, "slow": 0, "many/pro": 0}
        for path, without, policy in (("/", "few", None), ("/?k=1", None, "few"), ("/two?m=1", "slow,few", "many"),
                                      ("/two?m=1&t=pro", "slow,few", "many/pro"), ("/two?k=1&z=2&t=pro", "many", "few"), ("/zone", "slow", None)):
            headers = nginx.get(path).headers
            assert (headers.get("X-Without"), headers.get("X-Weir")) == (without, policy), (path, headers)
        assert counts() == {"few": 3, "many": 1, "slow": 3, "many/pro": 0}
        # The request is asked again where it is sent on, and counts once.
        assert nginx.get("/again").headers["X-Without"] == "few,slow,many"
        assert counts() == {"few": 4, "many": 2, "slow": 4, "many/pro": 0}
        for fields in ({}, {"X-Api-Key": "127.0.0.1"}, {"X-Api-Key": "a"}):
            assert [nginx.get("/caller", fields).status for _ in range(3)] == [404, 404, 429], fields
        nginx.reload()
        assert nginx.get("/sent").headers["X-Without"] == "slow,few,many", "a rewrite comes before"
        assert counts() == {"few": 5, "many": 3, "slow": 5, "many/pro": 0}


def test_an_entry_of_the_file_is_in_force():
    with served("weir few $arg_k;") as nginx:
        assert statuses(nginx, "/?k=partner", 8) == [200] * 6 + [429] * 2


def test_keys_that_are_addresses_are_written_as_such():
    policies = POLICIES.replace('"few:partner": 6', '"few:127.0.0.0/8": 5\n  "many:127.0.0.1": deny')
    zone = "weir_limit_req_zone $binary_remote_addr zone=slow:1m rate=1r/m;"
    server = "location / { weir few $binary_remote_addr; } location /both { weir many $binary_remote_addr; } " \
             "location /z { weir_limit_req zone=slow; } location /s { weir_status json; } location /text { weir many $arg_k; }"
    with served(server, policies=policies, zones=zone, workers=2) as nginx:
        assert statuses(nginx, "/", 6) == [200] * 5 + [429]
        assert statuses(nginx, "/both", 1) == [404], "a policy with other keys too has keys of bytes"
        assert statuses(nginx, "/z", 2) == [404, 503]
        nginx.reload()
        assert statuses(nginx, "/", 1) == [429]

        def offenders():
            found = json.loads(nginx.get("/s").body)["policies"]
            return {policy["name"]: [each["key"] for each in policy["offenders"]] for policy in found}

        nginx.until(lambda: offenders()["few"] == ["127.0.0.1"] and offenders()["slow"] == ["127.0.0.1"])
    good, said = says("weir few $binary_remote_addr;", "weir_policies FILE;", policies=POLICIES)
    assert not good and re.search('FILE:20:3: policy "few" has no key "partner"', said), said


def test_a_file_that_changes_while_the_configuration_is_read_takes_no_limit_away():
    """nginx reads the file to find the policies of its directives, and loads it after the rest of the configuration."""
    with served("weir few $arg_k;") as nginx:
        assert statuses(nginx, "/?k=1", 4) == [200] * 3 + [429]
        passed, waits = nginx.dir / "passed.conf", nginx.dir / "waits.conf"
        os.mkfifo(passed)
        os.mkfifo(waits)
        conf = (nginx.dir / "nginx.conf").read_text()
        directive = f"weir_policies {nginx.policies};"
        (nginx.dir / "nginx.conf").write_text(conf.replace(directive, f"{directive} include {passed}; include {waits};"))
        old = nginx.worker_pids()
        nginx.reload(wait=False)
        with open(passed, "w"):  # nginx opens it behind the directive
            pass
        with open(nginx.policies, "w") as file:
            file.write(POLICIES.replace("name: few", "name: fewe").replace('"few:partner": 6', '"fewe:partner": 6'))
        with open(waits, "w"):  # until then it waits
            pass
        nginx.until(lambda: nginx.worker_pids() and not nginx.worker_pids() & old)
        assert statuses(nginx, "/?k=1", 1) == [429], "the policies before stay in force"
        assert len(lines(nginx, r'stay in force: .*required policy "few" is missing; did you mean it by "fewe"\?')) == 1, nginx.log()
        (nginx.dir / "nginx.conf").write_text(conf.replace("weir few", "weir fewe"))
        nginx.reload()
        assert statuses(nginx, "/?k=1", 4) == [200] * 3 + [429]


def test_keys_that_are_addresses_no_more_are_bytes_again():
    zone = "weir_limit_req_zone {key} zone=slow:1m rate=1r/m;"
    with served("weir few $binary_remote_addr; location /s { weir_status json; }",
                policies=POLICIES.replace('"few:partner": 6', '"few:127.0.0.1": 2')) as nginx:
        assert statuses(nginx, "/", 3) == [200, 200, 429]
        with open(nginx.policies, "w") as file:
            file.write(POLICIES)
        conf = (nginx.dir / "nginx.conf").read_text()
        (nginx.dir / "nginx.conf").write_text(conf.replace("$binary_remote_addr", "$arg_k"))
        nginx.reload()
        assert statuses(nginx, "/?k=partner", 8) == [200] * 6 + [429] * 2
        assert statuses(nginx, "/?k=four", 4) == [200] * 3 + [429]

        def offenders():
            found = json.loads(nginx.get("/s").body)["policies"]
            return {each["key"] for policy in found for each in policy["offenders"]}

        nginx.until(lambda: {"four", "partner"} <= offenders())
        assert not lines(nginx, "alert"), nginx.log()
    with Nginx(zone.format(key="$binary_remote_addr"), "weir_limit_req zone=slow;") as nginx:
        assert statuses(nginx, "/", 2) == [200, 503]
        nginx.reload(http("", ""))
        nginx.reload(http(zone.format(key="$arg_k"), "weir_limit_req zone=slow;"))
        assert statuses(nginx, "/?k=1", 2) == [200, 503]
        assert not lines(nginx, "alert")


def test_realip_comes_before_the_decision():
    with served("location / { set_real_ip_from 127.0.0.1; real_ip_header X-Real-IP; weir many $remote_addr; }") as nginx:
        for number in range(3):
            found = [nginx.get("/", {"X-Real-IP": f"198.51.100.{number}"}).status for _ in range(6)]
            assert found == [200] * 5 + [429], (number, found)


def test_several_policies_take_all_or_nothing():
    with served("weir few $arg_a; weir many $arg_b;") as nginx:
        assert statuses(nginx, "/?a=1&b=1", 5) == [200] * 3 + [429] * 2
        assert statuses(nginx, "/?a=2&b=1", 4) == [200] * 2 + [429] * 2, "refused ones took none of the second"
        assert statuses(nginx, "/?a=2", 2) == [200, 429], "refused ones took none of the first"


def test_a_cost_is_a_number_or_a_variable():
    with served("location / { weir many $arg_k cost=2; } location = /v { weir many $arg_k cost=$arg_c; try_files /a.html =404; }") as nginx:
        assert statuses(nginx, "/?k=1", 3) == [200, 200, 429]
        assert statuses(nginx, "/v?k=2&c=5", 2) == [200, 429]
        assert statuses(nginx, "/v?k=3&c=6", 1) == [429]
        assert statuses(nginx, "/v?k=4&c=0", 9) == [200] * 9
        assert statuses(nginx, "/v?k=5&c=one", 6) == [200] * 5 + [429], "what is no number costs 1"
        assert statuses(nginx, "/v?k=6", 6) == [200] * 5 + [429], "what is empty costs 1"
        assert lines(nginx, r'the cost "\$arg_c" of policy "many" is no number: "one"')


def test_what_is_no_number_is_logged_once_and_not_for_each_request():
    server = "location / { weir queue $arg_k cost=$arg_c; weir few $arg_j cost=$arg_c; } location /after { weir many $arg_k cost=0; weir_charge $arg_c; }"
    with served(server) as nginx:
        for n in range(50):
            nginx.get(f"/?k={n}&j={n}&c=x{n}")
            nginx.get(f"/after?k={n}&c=x{n}")
        assert len(lines(nginx, "is no number")) == 3 and len(lines(nginx, 'is no number: "x0"')) == 3, lines(nginx, "is no number")


def test_what_a_client_sends_writes_no_line_of_its_own():
    # No file is looked for: nginx's own line about one that is not there has the raw name.
    server = ("location / { weir many $remote_addr cost=$uri; try_files /a.html =404; } "
              "location /c { set $sent $uri; weir few all cost=0; weir_charge $sent; try_files /a.html =404; }")
    seed = time.time_ns() % 2**32
    print(f"# seed: {seed}", flush=True)
    draw = random.Random(seed)
    bad = b"\n2026/01/01 00:00:00 [alert] 1#1: \x1b[2J\x1b]0;mine\x07\r\xe2\x80\xae\xc2\x9b\xff\"\\"
    with served(server) as nginx:
        for path, policy in (("/", "many"), ("/c/", "weir_charge")):
            nginx.get(path + urllib.parse.quote_from_bytes(bad, safe=""))
            said = nginx.until(lambda: [line for line in check_log(nginx).splitlines() if policy in line and "mine" in line])
            assert path + r"\x0a2026/01/01 00:00:00 [alert] 1#1: \x1b[2J\x1b]0;mine\x07\x0d" in said[-1], said
            assert f'is no number: "{path}' in said[-1], said
        for _ in range(100):
            some = bytes(draw.choice((draw.randrange(1, 256), draw.randrange(1, 32), 0x5c, 0x22)) for _ in range(draw.randrange(1, 200)))
            nginx.get(draw.choice(("/", "/c/")) + urllib.parse.quote_from_bytes(some.replace(b"/", b"x").replace(b".", b"x"), safe=""))
    with served(server) as nginx:  # that has not written such a line yet
        nginx.get("/" + "y" * 3000)
        said = nginx.until(lambda: [line for line in check_log(nginx).splitlines() if "yyy" in line])
        assert 'is no number: "/' + "y" * 63 + '...", client' in said[0], said


def test_a_tier_is_chosen_by_a_variable():
    with served("weir many $arg_k tier=$arg_t;") as nginx:
        assert statuses(nginx, "/?k=1&t=pro", 9) == [200] * 8 + [429]
        assert statuses(nginx, "/?k=2&t=unknown", 6) == [200] * 5 + [429]
        assert statuses(nginx, "/?k=2&t=pro", 4) == [200] * 3 + [429], "tiers share what a key has used"


def test_a_queue_lets_requests_wait_for_their_turn():
    with served("weir queue $arg_k;") as nginx:
        begin = time.monotonic()
        load = Load(nginx.port, "/?k=1", clients=8)
        nginx.until(lambda: load.so_far()[429] and load.so_far()[200] > 10)
        assert set(load.stop()) == {200, 429}, load.counts
        assert lines(nginx, r'\[warn\].* delaying request by policy "queue"')
        # Ten have their turn in a second. None is answered before its turn, but for the one that nginx's clock may be behind.
        passed = sorted(at - begin for at, status in load.answers if status == 200)
        assert all(number <= 1 + 10 * at for number, at in enumerate(passed)), passed


def test_a_limit_that_refuses_gives_back_what_the_policy_took():
    zone = "weir_limit_req_zone $arg_z zone=slow:1m rate=1r/m;"
    with served("weir few $arg_k; weir_limit_req zone=slow;", zones=zone) as nginx:
        assert statuses(nginx, "/?k=1&z=1", 4) == [200] + [503] * 3
        assert statuses(nginx, "/?k=1", 3) == [200, 200, 429]


def test_the_status_code_of_limits_counts_for_policies_where_it_is_set():
    with served("weir few $arg_k; weir_limit_req_status 420; location /own { weir_limit_req_status 421; }") as nginx:
        assert statuses(nginx, "/?k=1", 4)[-1] == 420
        assert statuses(nginx, "/own?k=1", 1) == [421]
    with served("weir few $arg_k;", zones="weir_limit_req_status 430;") as nginx:
        assert statuses(nginx, "/?k=1", 4)[-1] == 430


def test_dry_run_refuses_nothing_and_says_so():
    with served("weir few $arg_k; weir_limit_req_dry_run on;") as nginx:
        assert statuses(nginx, "/?k=1", 5) == [200] * 5
        assert nginx.get("/?k=1").headers["X-Status"] == "REJECTED_DRY_RUN"
        assert lines(nginx, 'limiting requests, dry run, by policy "few"')


def test_dry_run_tells_clients_of_no_refusal_and_charges_none():
    server = ("weir_limit_req_dry_run on; weir_headers trio; location / { weir few $arg_k; } "
              "location = /bytes { weir bytes $arg_k cost=$arg_c; weir_charge 400; try_files /a.html =404; }")
    with served(server) as nginx:
        for _ in range(6):
            assert "Retry-After" not in nginx.get("/?k=1").headers
        assert nginx.get("/bytes?k=1&c=500").headers["X-Status"] == "PASSED"
        for _ in range(5):
            assert nginx.get("/bytes?k=1&c=500").headers["X-Status"] == "REJECTED_DRY_RUN"
        assert nginx.get("/bytes?k=1&c=100").headers["X-Status"] == "PASSED", "the five were not charged"


def test_subrequests_are_not_charged_again():
    server = ("log_subrequest on; location / { weir bytes $arg_k cost=0; weir_charge 100; auth_request /auth; } "
              "location = /auth { return 204; }")
    with served(server) as nginx:
        assert statuses(nginx, "/?k=1", 12).count(200) == 10


def test_shadow_mode_of_a_policy_refuses_nothing():
    with served("weir tried $arg_k;") as nginx:
        assert statuses(nginx, "/?k=1", 3) == [200] * 3


def test_variables_tell_what_was_decided():
    with served(f"weir bucket $arg_k; {SHOW}") as nginx:
        assert nginx.get("/?k=1").headers["X-Weir"] == "bucket 1  process"
        assert nginx.get("/?k=1").headers["X-Weir"] == "bucket 0  process"
        found = nginx.get("/?k=1").headers["X-Weir"]
        assert re.fullmatch(r"bucket 0 (3600|35\d\d) process", found), found
        assert nginx.get("/").headers["X-Weir"].strip() == ""
    with served(f"weir bucket $arg_k cost=3; {SHOW}") as nginx:
        assert nginx.get("/?k=1").headers["X-Weir"] == "bucket 2 never process"


def test_headers_are_on_passed_and_on_refused_answers():
    draft, trio, x, off = ({"weir_headers draft;": "/d", "weir_headers trio;": "/t", "weir_headers x;": "/x", "": "/o"}).values()
    server = "weir few $arg_k; " + " ".join(f"location {path} {{ weir_headers {name}; }}" for path, name in
                                            ((draft, "draft"), (trio, "trio"), (x, "x"), (off, "off")))
    with served(server) as nginx:
        first = nginx.get("/t?k=1").headers
        assert (first["RateLimit-Limit"], first["RateLimit-Remaining"]) == ("3", "2"), first
        assert "Retry-After" not in first
        assert "few" in nginx.get("/d?k=1").headers["RateLimit-Policy"]
        assert nginx.get("/x?k=1").headers["X-RateLimit-Remaining"] == "0"
        refused = nginx.get("/t?k=1")
        assert refused.status == 429 and int(refused.headers["Retry-After"]) > 0, refused
        assert refused.headers["RateLimit-Remaining"] == "0"
        for path in ("/o?k=1", "/?k=1", "/t"):
            assert not [name for name in nginx.get(path).headers if "ratelimit" in name.lower()], path


QUICK = """
policies:
  - name: quick
    limits: [{algorithm: fixed_window, limit: 100, period: 2s}]
overrides:
  "quick:outlaw": deny
"""


def test_a_reset_is_told_as_of_the_decision_however_late_the_answer_is():
    """A window of two seconds, and an answer after three: the window has ended by then."""
    server = ("weir quick $arg_k; weir_limit_req zone=slow burst=9; location /x { weir_headers x; } "
              "location /t { weir_headers trio; } location /d { weir_headers draft; }")
    with served(server, QUICK, "weir_limit_req_zone $arg_k zone=slow:1m rate=20r/m;") as nginx:
        nginx.get("/x?k=1")
        late = nginx.get("/x?k=1").headers
        reset = int(late["X-RateLimit-Reset"])
        assert reset % 2 == 0 and reset <= time.time(), (reset, time.time())
        nginx.get("/t?k=2")
        assert nginx.get("/t?k=2").headers["RateLimit-Reset"] == "0"
        nginx.get("/d?k=3")
        assert nginx.get("/d?k=3").headers["RateLimit"].endswith(";t=0")
    with served("weir_headers x; weir few $arg_k;") as nginx:  # its window is 365 days
        for _ in range(5):
            assert int(nginx.get("/?k=1").headers["X-RateLimit-Reset"]) % (365 * 86400) == 0
            time.sleep(0.01)


def test_a_key_that_is_denied_for_good_is_told_of_no_reset():
    server = "weir quick $arg_k; " + " ".join(f"location /{style} {{ weir_headers {style}; }}" for style in
                                              ("draft", "trio", "x", "x_iso8601", "retry_after"))
    with served(server, QUICK) as nginx:
        for style in ("draft", "trio", "x", "x_iso8601", "retry_after"):
            refused = nginx.get(f"/{style}?k=outlaw")
            assert refused.status == 429, refused
            told = {name: value for name, value in refused.headers.items() if "ratelimit" in name.lower()}
            assert not [name for name in told if name.endswith("Reset")] and ";t=" not in str(told), told
            assert bool(told) == (style != "retry_after") and "Retry-After" not in refused.headers, refused.headers


def test_an_error_page_keeps_the_headers_and_is_not_decided_again():
    with served("weir few $arg_k; weir_headers trio; error_page 429 /sorry.html; location /sorry.html { weir many $arg_k; "
                "return 429 sorry; }") as nginx:
        assert statuses(nginx, "/?k=1", 3) == [200] * 3
        for _ in range(7):
            refused = nginx.get("/?k=1")
            assert (refused.status, refused.body, refused.headers["RateLimit-Limit"]) == (429, "sorry", "3"), refused


def test_units_that_are_known_afterwards_are_charged():
    server = ("location / { weir bytes $arg_k cost=0; weir_charge $arg_c; } location /sent { weir bytes $arg_k cost=0; "
              "weir_charge $body_bytes_sent; } location /two { weir few $arg_k; weir bytes $arg_k cost=0; "
              "weir_charge 400.5 policy=bytes; }")
    with served(server) as nginx:
        assert statuses(nginx, "/?k=1&c=600", 3) == [200, 200, 429], "the last one that fits may go beyond"
        assert statuses(nginx, "/?k=2&c=-", 9) == [200] * 9, "no upstream was asked"
        assert statuses(nginx, "/?k=3&c=200,-:300", 1) == [200]
        assert statuses(nginx, "/?k=4&c=x", 2) == [200, 200]
        assert lines(nginx, r'"\$arg_c" of "weir_charge" is no number: "x"')
        body = len(nginx.get("/sent?k=5").body)  # of the error page for what is not there
        passed = [nginx.get("/sent?k=5").status for _ in range(1000 // body + 3)]
        assert passed.count(429) in (2, 3, 4), (body, passed)
        assert statuses(nginx, "/two?k=6", 4) == [404, 404, 404, 429]
        assert statuses(nginx, "/sent?k=6", 1) == [429], "three times 401 units"


def test_refused_requests_are_not_charged():
    with served("weir bytes $arg_k cost=$arg_c; weir_charge 100;") as nginx:
        assert nginx.get("/?k=1&c=800").status == 200
        assert statuses(nginx, "/?k=1&c=101", 5) == [429] * 5
        assert statuses(nginx, "/?k=1&c=100", 1) == [200]


class Page(html.parser.HTMLParser):
    """The texts of the cells of a page."""

    def __init__(self, text):
        super().__init__()
        self.cells, self.tags = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)

    def handle_data(self, data):
        if self.tags and self.tags[-1] in ("td", "th", "h2"):
            self.cells.append(data.strip())


def test_the_status_is_json_metrics_or_a_page():
    zone = "weir_limit_req_zone $arg_z zone=slow:1m rate=1r/m;"
    server = ("location / { weir few $arg_k; } location /z { weir_limit_req zone=slow; } location /status { weir_status; } "
              "location /metrics { weir_status prometheus; }")
    with served(server, zones=zone, workers=2) as nginx:
        for name in ("<b>%22&amp;", "plain"):
            assert 429 in statuses(nginx, f"/?k={name}", 5)
        found = {}

        def listed():
            nonlocal found
            found = json.loads(nginx.get("/status?format=json").body)
            few = next(policy for policy in found["policies"] if policy["name"] == "few")
            return len(few["offenders"]) == 2

        nginx.until(listed)
        assert found["denied"] == 4 and found["allowed"] >= 6 and found["link"] == "none", found
        assert found["processes"] >= 2 and found["fleet_age_ms"] is None
        # The fields that were there before the library wrote the status, and some of its own.
        assert {"version", "live_nodes", "syncs", "sync_errors", "keys", "key_capacity", "would_deny", "untracked"} < set(found)
        few = next(policy for policy in found["policies"] if policy["name"] == "few")
        assert few["mode"] == "enforce" and few["scope"] == "fleet" and few["denied"] == 4 and few["limits"][0]["limit"] == 3, few
        assert {"key", "denied_units", "error_units"} <= set(few["offenders"][0]), few
        assert {policy["name"] for policy in found["policies"]} >= {"few", "many", "many/pro", "slow"}
        metrics = nginx.get("/metrics")
        assert metrics.headers["Content-Type"] == "text/plain; version=0.0.4"
        assert re.search(r'^weir_checks_total\{policy="few",answer="denied"\} 4$', metrics.body, re.M), metrics.body[:2000]
        assert nginx.get("/status").body.startswith("# HELP")
        page = nginx.get("/status", {"Accept": "text/html,*/*"})
        assert page.headers["Content-Type"] == "text/html; charset=utf-8"
        assert page.headers["Content-Security-Policy"] == "frame-ancestors 'none'", page.headers
        assert page.body.startswith("<!DOCTYPE html>") and 'connect-src \'self\'' in page.body, page.body[:500]
        table = nginx.get("/status?format=table")
        assert table.headers["Content-Type"] == "text/html; charset=utf-8" and "<script" not in table.body
        cells = Page(table.body).cells
        assert "few" in cells and cells[cells.index("denied") + 1] == "4" and "b" not in Page(table.body).tags, cells
        assert json.loads(nginx.get("/status", {"Accept": "application/json"}).body)["denied"] == 4
        connection = nginx_demo.http.client.HTTPConnection("127.0.0.1", nginx.port, timeout=20)
        connection.request("POST", "/status")
        assert connection.getresponse().status == 405
        connection.close()


def test_a_reload_takes_the_new_file_and_keeps_what_was_used():
    with served("weir few $arg_k;", workers=2) as nginx:
        assert statuses(nginx, "/?k=1", 4) == [200] * 3 + [429]
        with open(nginx.policies, "w") as file:
            file.write(POLICIES.replace("limit: 3", "limit: 5"))
        nginx.reload()
        assert statuses(nginx, "/?k=1", 3) == [200, 200, 429]
        with open(nginx.policies, "w") as file:
            file.write(POLICIES.replace("limit: 3", "limit: none"))
        nginx.reload(wait=False)
        nginx.until(lambda: lines(nginx, r"\[emerg\].*few.*limit.* in .*nginx.conf:\d+"))
        assert statuses(nginx, "/?k=2", 6) == [200] * 5 + [429]


def test_a_zone_may_become_a_policy_and_back():
    zone = "weir_limit_req_zone $arg_k zone=other:1m rate=1r/m;"
    with served("weir_limit_req zone=other;", zones=zone) as nginx:
        assert statuses(nginx, "/?k=1", 2) == [200, 503]
        as_zone = (nginx.dir / "nginx.conf").read_text()
        as_policy = as_zone.replace(zone, "").replace("weir_limit_req zone=other;", "weir other $arg_k;")
        for text, refused in ((as_policy, 429), (as_zone, 503)):
            with open(nginx.policies, "w") as file:
                file.write(POLICIES.replace("few", "other") if text is as_policy else POLICIES)
            (nginx.dir / "nginx.conf").write_text(text)
            nginx.reload()
            assert statuses(nginx, f"/?k={refused}", 5)[-1] == refused
        assert not lines(nginx, "alert|emerg")


def test_four_workers_admit_the_limit_and_no_more():
    policies = "policies:\n  - name: window\n    limits: [{algorithm: fixed_window, limit: 2000, period: 365d}]\n"
    with served("weir window $arg_k;", policies=policies, workers=4) as nginx:
        load = Load(nginx.port, "/?k=1", clients=8)
        nginx.until(lambda: load.so_far()[429] > 500)
        counts = load.stop()
        assert 2000 <= counts[200] <= 2004, counts


def test_configuration_errors_have_file_and_line():
    wrong = {
        ("weir few $arg_k;", ""): r'"weir" needs a file of policies: "weir_policies" in DIR/nginx.conf:\d+',
        ("weir fwe $arg_k;", "weir_policies FILE;"): r'there is no policy "fwe" in "FILE", for "weir" in DIR/nginx.conf:\d+',
        ("weir few $arg_k cost=x;", "weir_policies FILE;"): r'invalid cost "x": .* in DIR/nginx.conf:\d+',
        ("weir few $arg_k size=1;", "weir_policies FILE;"): r'invalid parameter "size=1" in DIR/nginx.conf:\d+',
        ("weir few $unknown_variable;", "weir_policies FILE;"): r'unknown "unknown_variable" variable',
        ("weir few;", "weir_policies FILE;"): r'invalid number of arguments in "weir" directive in DIR/nginx.conf:\d+',
        ("weir few $arg_k; weir_charge 1 policy=many;", "weir_policies FILE;"): r'has policy=many, and no "weir" asks',
        ("weir few $arg_k; weir many $arg_k; weir_charge 1;", "weir_policies FILE;"): r"or policy=NAME; here are 2",
        ("weir_charge 1;", "weir_policies FILE;"): r"or policy=NAME; here are 0",
        ("weir_headers y;", "weir_policies FILE;"): r'invalid value "y" in DIR/nginx.conf:\d+',
        ("weir_status xml;", ""): r'"weir_status" directive takes html, json or prometheus in DIR/nginx.conf:\d+',
        ("weir few $arg_k;" * 17, "weir_policies FILE;"): r'there are more than 16 "weir" in one place',
        ("", "weir_policies FILE; weir_policies FILE;"): r'"weir_policies" directive is duplicate',
        ("", "weir_policies FILE keys=0;"): r'invalid parameter "keys=0"',
        ("", "weir_policies /nowhere/p.yaml;"): r"/nowhere/p.yaml: .*in DIR/nginx.conf:\d+",
        ("", "weir_policies FILE; weir_limit_req_zone $arg_k zone=few:1m rate=1r/s;"):
            r'policy "few" of "FILE" has the name of a zone',
    }
    for (server, zones), pattern in wrong.items():
        good, said = says(server, zones)
        assert not good and re.search(pattern, said), (server, zones, said)
    good, said = says("", "weir_policies FILE;", policies="policies:\n  - name: a\n    limit: []\n")
    assert not good and re.search(r"FILE:3:5: .*in DIR/nginx.conf:\d+", said), said
    good, said = says("weir few $arg_k cost=$request_length tier=$arg_t; weir_headers x_iso8601;", "weir_policies FILE keys=5000;")
    assert good, said


def test_a_relative_path_begins_at_the_folder_of_the_configuration():
    nginx = Nginx("weir_policies here.yaml;", "weir few $arg_k;", start=False)
    try:
        (nginx.dir / "here.yaml").write_text(POLICIES)
        assert nginx.test()[0], nginx.test()[1]
        os.remove(nginx.dir / "here.yaml")
        assert not nginx.test()[0]
    finally:
        nginx.close()


if __name__ == "__main__":
    run(dict(globals()))
