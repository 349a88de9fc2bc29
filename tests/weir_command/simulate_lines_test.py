#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
weir simulate reads lines as their writers mean them: the JSON of several servers, logs of AWS and of the W3C, lines behind what
carried them, addresses with what stands around them, and what it says
of a trace that it cannot read. simulate_lines_test.py WEIR_PROGRAM [TEST...]. Prints TAP.

Guards: apps/weir/trace/json.c, apps/weir/trace/alb.c, apps/weir/trace/w3c.c, apps/weir/trace/trace.c,
apps/weir/simulate/replay.c, apps/weir/simulate/choices.c, apps/weir/trace/prefix.c, apps/weir/trace/clf.c,
apps/weir/trace/fields.c, apps/weir/simulate/doubts.c
"""
import ipaddress
import json
import os
import random
import subprocess
import time

from command_support import file, PLACE, PLAIN, run, weir, WEIR
from traces import clf_time, combined, common, haproxy, nginx_json, Request, START_S

SEED = int(os.environ.get("WEIR_TEST_SEED") or random.SystemRandom().randrange(1 << 32))
DRAW = random.Random(SEED)
POLICIES = "policies:\n  - {name: web, limits: [{algorithm: token_bucket, limit: 1, period: 1s, burst: 5}]}\n"


def rows(lines, *words, code=0):
    """The decisions on the lines, as fields."""
    out, _ = weir("simulate", "-p", file("web.yaml", POLICIES), "--decisions=-", *words,
                  file("trace", "".join(line + "\n" for line in lines)), code=code)
    return [line.split(",") for line in out.splitlines()]


def iso(ms):
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(ms // 1000))


def caddy(ms, address, path="/", size=1):
    return json.dumps({"level": "info", "ts": ms / 1000 + 0.0001, "logger": "http.log.access.log0", "msg": "handled request",
                       "request": {"remote_ip": "10.0.0.1", "remote_port": "41342", "client_ip": address, "proto": "HTTP/2.0",
                                   "method": "GET", "host": "shop.example.org", "uri": path,
                                   "headers": {"User-Agent": ["curl/8", "x"], "Accept": ["*/*"]},
                                   "tls": {"resumed": False, "version": 772, "proto": "h2"}},
                       "bytes_read": 0, "user_id": "", "duration": 0.000929675, "size": size, "status": 200,
                       "resp_headers": {"Server": ["Caddy"]}})


def traefik(ms, address, path="/", size=1, start=True):
    line = {"ClientAddr": f"{address}:51234", "ClientHost": address, "ClientPort": "51234", "ClientUsername": "-",
            "DownstreamContentSize": size, "DownstreamStatus": 200, "RequestPath": path, "RequestMethod": "GET",
            "level": "info", "msg": "", "time": iso(ms) + "Z"}
    return json.dumps({**line, "StartUTC": f"{iso(ms)}.{ms % 1000:03}456789Z"} if start else line)


def envoy(ms, address, path="/", size=1):
    return json.dumps({"start_time": f"{iso(ms)}.{ms % 1000:03}Z", "path": path, "bytes_sent": size, "method": "GET",
                       "downstream_remote_address": address})


def elastic(ms, address, path="/", size=1):
    return json.dumps({"@timestamp": f"{iso(ms)}.{ms % 1000:03}Z", "client": {"ip": address, "port": 4000},
                       "url": {"path": path}, "http": {"response": {"bytes": size}}})


def alb(ms, address, path="/", size=1):
    return (f"https {iso(ms)}.{ms % 1000:03}000Z app/web/50dc6c495c0c9188 {address}:2817 10.0.0.1:80 0.000 0.001 0.000 200 200 "
            f'34 {size} "GET https://shop.example.org:443{path} HTTP/1.1" "curl/7.46.0" - - arn:aws:x "Root=1-58" "-" "-" 0')


def elb(ms, address, path="/", size=1):
    return (f"{iso(ms)}.{ms % 1000:03}000Z my-loadbalancer {address}:2817 10.0.0.1:80 0.000073 0.001048 0.000057 200 200 0 {size} "
            f'"GET http://shop.example.org:80{path} HTTP/1.1" "curl/7.38.0" - -')


def test_json_and_logs_of_balancers_are_known_without_options():
    requests = [(START_S * 1000 + i * 137, ("198.51.100.7", "203.0.113.9")[i % 2], f"/a{i % 3}/x?y=1", i + 1) for i in range(40)]
    for write in (caddy, traefik, envoy, elastic, alb, elb):
        lines = [write(*r) for r in requests]
        told = rows(lines)
        assert [(int(row[0]), row[1]) for row in told] == [r[:2] for r in requests], (write.__name__, told[:3])
        assert [row[1] for row in rows(lines, "--key=path")] == [r[2].split("/x")[0] for r in requests], write.__name__
        assert [int(row[2]) for row in rows(lines, "--cost=bytes")] == [r[3] for r in requests], write.__name__
    # Without its time to the millisecond Traefik has whole seconds.
    told = rows([traefik(*r, start=False) for r in requests])
    assert [row[1] for row in told] == [r[1] for r in requests] and told[0][0] == str(START_S * 1000), told
    assert rows([caddy(*r) for r in requests], "--key=field:request.headers.User-Agent")[0][1] == "curl/8"
    assert rows([alb(*r) for r in requests], "--key=header:user-agent")[0][1] == "curl/7.46.0"


def test_w3c_logs_say_themselves_where_their_fields_are():
    lines = ["#Version: 1.0", "#Fields: date time x-edge-location sc-bytes c-ip cs-method cs-uri-stem"]
    lines += [f"2025-11-25\t10:00:{i:02}\tLAX1\t{i + 1}\t198.51.100.{i % 2}\tGET\t/a/b" for i in range(20)]
    lines += ["#Fields: time date c-ip cs-username sc-bytes"]  # as IIS writes: with spaces, and anew when it starts
    lines += [f"10:00:{i:02} 2025-11-25 2001:db8::{i % 2 + 1} alice {i + 1}" for i in range(20, 40)]
    told = rows(lines, "--cost=bytes")
    assert [row[:3] for row in told] == [[str((START_S + i) * 1000), f"198.51.100.{i % 2}" if i < 20 else f"2001:db8::{i % 2 + 1}",
                                          str(i + 1)] for i in range(40)], told
    assert len(rows(lines, "--key=path")) == 20 and len(rows(lines, "--key=user")) == 20
    assert rows(lines[1:], "--format=w3c") == rows(lines)


def test_a_name_of_json_with_dots_leads_into_objects():
    nested = [{"t": START_S + i, "a": {"b": {"c": "198.51.100.7", "d": i}, "x": {"c": 1}}, "c": "203.0.113.1"} for i in range(9)]
    lines = [json.dumps(line) for line in nested]
    fields = "--fields=time=t,address=a.b.c,bytes=a.b.d"
    assert {row[1] for row in rows(lines, fields)} == {"198.51.100.7"}
    assert [int(row[2]) for row in rows(lines, fields, "--cost=bytes")] == [max(i, 1) for i in range(9)]
    # A name that has a dot in it, objects in another order and places, and lines that lack one.
    mixed = [json.dumps({"a.b.c": "198.51.100.1", "t": START_S}), json.dumps({"a": {"x": {"c": "203.0.113.3"}, "b": {"c": "198.51.100.2"}}, "t": START_S}),
             json.dumps({"t": START_S, "a": {"b": [{"c": "203.0.113.4"}]}}), json.dumps({"t": START_S, "b": {"c": "203.0.113.5"}}), lines[0]]
    for order in (mixed, mixed[::-1], mixed * 3):
        told = rows(order, fields)
        assert sorted({row[1] for row in told}) == ["198.51.100.1", "198.51.100.2", "198.51.100.7"], told
    deep = {"c": "198.51.100.9"}
    for _ in range(40):
        deep = {"a": deep}
    assert rows([lines[0], json.dumps({"t": START_S, **deep})], fields)[0][1] == "198.51.100.7"
    long = {"t": START_S, "a": {"n" * 300: {"c": 1}, "b": {"c": "198.51.100.8"}}}
    assert [row[1] for row in rows([json.dumps(long)], fields)] == ["198.51.100.8"]


def test_a_trace_of_no_known_format_is_shown_with_the_formats_there_are():
    policies = file("web.yaml", POLICIES)
    for lines, shown in ((["what \x1b[31mis \"this\"", "more"], r"what \x1b[31mis \x22this\x22"), (["", "x" * 500], "x" * 100 + "..."),
                         (['{"when": 1, "who": "198.51.100.7"}'], "--fields=time=...,address=...")):
        _, fault = weir("simulate", "-p", policies, file("unknown", "\n".join(lines) + "\n"), code=5)
        assert "of no known format" in fault and shown in fault and "\x1b" not in fault, fault
        for name in ("common", "combined", "json", "haproxy", "alb", "w3c", "csv", "pcap"):
            assert name in fault, (name, fault)
    assert "is empty" in weir("simulate", "-p", policies, file("empty", "\n\n"), code=5)[1]


def test_decisions_on_standard_output_are_alone_there():
    trace = file("trace", combined(Request(START_S * 1000)) + "\n")
    policies = file("web.yaml", POLICIES)
    for more in ([], ["--json"]):
        out, fault = weir("simulate", "-p", policies, "--decisions", "-", *more, trace)
        assert out == f"{START_S * 1000},198.51.100.7,1,admitted\n", out
        assert ('"requests":1' if more else "1 request of 1 key") in fault, fault
    assert not (PLACE / "-").exists()
    with open("/dev/full", "w", encoding="ascii") as full:
        done = subprocess.run([*WEIR, "simulate", "-p", policies, "--decisions=-", trace], stdout=full, stderr=subprocess.PIPE,
                              text=True, cwd=PLACE, env=PLAIN, timeout=60, check=False)
    assert done.returncode == 4 and "<stdout>: No space left" in done.stderr, done
    assert "ends in .svg or .png" in weir("simulate", "-p", policies, "--plot=-", trace, code=2)[1] and os.listdir(PLACE)


def stamp(ms, form):
    return time.strftime(form, time.gmtime(ms // 1000))


def word():
    return DRAW.choice(("web1", "lb", "edge-7.example.org", "ip-10-0-0-1", "x", "10.0.0.5", "2001:db8::5"))


def some_prefix(ms):
    """What something has written before a line: a name of it, and its text."""
    number = DRAW.randrange(1, 99999)
    pri = DRAW.choice(("", f"<{DRAW.randrange(192)}>"))
    tag = DRAW.choice(("nginx: ", f"nginx[{number}]: ", f"docker/web[{number}]: ", "apache2: "))
    zone = DRAW.choice(("Z", "+00:00", "+0100", "-05:00"))
    fraction = DRAW.choice(("", ".1", ".123", ".123456", ".123456789"))
    time_iso = stamp(ms, "%Y-%m-%dT%H:%M:%S") + fraction + zone
    prefixes = {
        "nothing": "",
        "rfc 3164": pri + stamp(ms, "%b %e %H:%M:%S ") + DRAW.choice(("", word() + " ")) + tag,
        "rfc 5424": DRAW.choice(("", "<34>")) + f"1 {time_iso} {word()} nginx {DRAW.choice((number, '-'))} - "
                    + DRAW.choice(("- ", '[a@1 b="c]d" e="\\""][x] ', "- \ufeff")),
        "journald": time_iso + f" {word()} " + tag,
        "short-full": stamp(ms, "%a %Y-%m-%d %H:%M:%S UTC ") + f"{word()} " + tag,
        "short-unix": f"{ms / 1000:.6f} {word()} " + tag,
        "cri": f"{time_iso} {DRAW.choice(('stdout', 'stderr'))} F ",
        "docker -t": time_iso + " ",
        "compose": DRAW.choice(("web-1  | ", "web_1 | ", "\x1b[36mweb-1  | \x1b[0m", f"web.1.{number}@node    | ")),
        "kubectl": "[pod/web-7d4b9c6f8-abcde/nginx] ",
        "go": stamp(ms, "%Y/%m/%d %H:%M:%S "),
    }
    return DRAW.choice(list(prefixes.items()))


def some_client():
    """An address, and a form in which logs have it."""
    kind = DRAW.randrange(3)
    address = ipaddress.ip_address(DRAW.randrange(1 << 32)) if kind != 1 else ipaddress.IPv6Address(0x20010db8 << 96 | DRAW.randrange(1 << 90))
    text = str(address) if kind != 2 else DRAW.choice((f"::ffff:{address}", "::ffff:%x:%x" % divmod(int(address), 1 << 16)))
    port = f":{DRAW.randrange(1, 65536)}"
    forms = [text, text, f"[{text}]", f"[{text}]{port}"]
    if address.version == 4 and kind == 0:
        forms += [text + port]
    others = ", ".join(DRAW.choice(("203.0.113.9", "2001:db8::9", "10.0.0.1:80")) for _ in range(DRAW.randrange(1, 3)))
    return str(address), DRAW.choice(forms), others


def some_line(ms, prefix, carried):
    """The client of a line, and the line of the Common or Combined format, or of JSON."""
    address, text, others = some_client()
    kind = DRAW.choice(("plain", "plain", "list", "quoted", "host", "vhost", "behind proxy"))
    whole = {"plain": text, "list": f"{text}, {others}", "quoted": f'"{text}, {others}"', "host": f"shop.example.org {text}",
             "vhost": f"shop.example.org:443 {text}", "behind proxy": f"- {text}"}[kind]
    line = DRAW.choice((common, combined))(Request(ms, whole, path=f"/{DRAW.randrange(9)}"))
    if DRAW.random() < 0.2 and not carried:
        line = nginx_json(Request(ms, text if kind == "plain" else f"{text}, {others}"))
    return address, prefix + line


def test_drawn_lines_behind_drawn_prefixes_have_their_clients():
    print(f"# WEIR_TEST_SEED={SEED}", flush=True)
    for carried in (False, False, True):
        for json_lines in (False, True):
            written = []
            for i in range(1500):
                name, prefix = some_prefix(START_S * 1000 + i * 1000)
                if DRAW.random() < 0.1:
                    more, behind = some_prefix(START_S * 1000 + i * 1000)
                    # Some have no end of their own to find, or are read only at the front.
                    name, prefix = (f"{name} + {more}", prefix + behind) if {name, more} <= {"rfc 3164", "journald", "cri", "compose", "nothing"} else (name, prefix)
                address, line = some_line(START_S * 1000 + i * 1000, prefix, carried)
                if line.endswith("}") != json_lines:
                    continue
                if carried:
                    fields = [("log", line + "\n"), ("stream", "stdout"), ("time", iso(START_S * 1000) + ".123456789Z")]
                    line = json.dumps(dict(DRAW.sample(fields, 3)))
                    if DRAW.random() < 0.3:
                        name_of = DRAW.choice(("MESSAGE", "message", "textPayload", "short_message", "line"))
                        line = json.dumps({"_PID": "1", name_of: dict(fields)["log"][:-1], "__REALTIME_TIMESTAMP": "1"})
                written.append((name, address, line))
            if not written:
                continue
            told = rows([line for _, _, line in written])
            left = [row for row in written if row[1] not in {row[1] for row in told}]
            assert len(told) == len(written), (len(told), len(written), left[:5])
            for (name, address, line), row in zip(written, told):
                assert row[1] == address, (name, address, row, line)


def test_a_host_before_the_client_may_be_an_address_where_most_lines_have_one():
    hosts = ["shop.example.org", "www.example.org", "192.0.2.1", "192.0.2.1:443", "[2001:db8::5]:80"]
    wanted, lines = [], []
    for i in range(300):
        address, text, _ = some_client()
        wanted.append(address)
        lines.append(common(Request(START_S * 1000 + i * 1000, f"{hosts[i % 2] if i < 20 else DRAW.choice(hosts)} {text}")))
    for words in ((), ("--format=combined",)):
        assert [row[1] for row in rows(lines, *words)] == wanted
    # Where none has one, the first address is the client, as of X-Forwarded-For with the peer behind it.
    lines = [common(Request(START_S * 1000 + i * 1000, f"{address} 192.0.2.1")) for i, address in enumerate(wanted)]
    assert [row[1] for row in rows(lines)] == wanted


def test_an_address_of_json_that_is_none_gives_way_to_another():
    lines = [json.dumps({"time": START_S, "remote_addr": none, "client_ip": "198.51.100.7"}) for none in (None, "", "-")]
    assert {row[1] for row in rows(lines + [json.dumps({"ip": "198.51.100.7", "remote_addr": None, "time": START_S})])} == {"198.51.100.7"}


def test_haproxy_behind_prefixes_and_in_containers():
    requests = [Request((START_S + i) * 1000 + i, some_client()[0]) for i in range(60)]
    lines = [haproxy(r) for r in requests]
    bare = [line[line.index("]: ") + 3:] for line in lines]
    for trace in (lines, ["haproxy-1  | " + line for line in bare], [f"{iso(0)}.1Z stdout F {line}" for line in bare],
                  [json.dumps({"log": line + "\n", "stream": "stdout", "time": iso(0)}) for line in bare]):
        told = rows(trace, "--format=haproxy")
        assert [row[:2] for row in told] == [[str(r.time_ms), r.address] for r in requests], (trace[0], told[0])
        assert rows(trace) == told


def test_a_line_that_says_that_there_is_no_client_is_counted_as_one():
    policies, ok = file("web.yaml", POLICIES), combined(Request(START_S * 1000))
    at = f"[{clf_time(START_S * 1000)} +0000]"
    for some, others in (
            (ok, [f'- - - {at} "GET / HTTP/1.1" 200 1', f'"-" - - {at} "GET / HTTP/1.1" 200 1', f'unknown - - {at} "GET / HTTP/1.1" 200 1',
                  f'"" - - {at} "GET / HTTP/1.1" 200 1']),
            (nginx_json(Request(START_S * 1000)), [json.dumps({"time": START_S, "ip": none}) for none in (None, "-", "", "unknown")])):
        for none in others:
            out, _ = weir("simulate", "-p", policies, file("trace", f"{some}\n{none}\n{none}\n{some}\n"))
            assert "2 requests of 1 key," in out and ", 2 without a client" in out, (none, out)
            assert "has no request" in weir("simulate", "-p", policies, file("trace", none + "\n"), code=5)[1], none
        assert [row[1] for row in rows([some] + others, "--key=all")] == ["all"] * 5
    assert len(rows([json.dumps({"time": START_S, "ip": None, "user": "a"})], "--key=user")) == 1


def test_of_several_doubts_the_largest_code_is_the_exit_code():
    steady = [Request(START_S * 1000 + 1000 * i) for i in range(3000)]
    late = steady + [Request(START_S * 1000)] * 40
    odd = [combined(r) for r in late] + [combined(Request((START_S + 3000) * 1000, "crawl.example.org"))] * 40
    told = json.loads(weir("simulate", "-p", file("web.yaml", POLICIES), "--json", file("trace", "\n".join(odd) + "\n"), code=7)[0])
    assert [doubt["code"] for doubt in told["doubts"]] == [6, 7], told["doubts"]
    out, _ = weir("simulate", "-p", "web.yaml", "trace", code=7)
    assert "were left out for their times" in out and '"crawl.example.org"' in out, out
    # What cannot be read at all is less than what is read and in doubt; what was interrupted is more.
    assert weir("simulate", "-p", "web.yaml", "trace", "nowhere.log", code=3)


def test_names_in_the_place_of_addresses_are_told_where_they_are_more_than_a_few():
    policies, ok = file("web.yaml", POLICIES), combined(Request(START_S * 1000)) + "\n"
    name = combined(Request(START_S * 1000, "crawl-7.exa\\mple.org")) + "\n"
    for count, code in ((0, 0), (10, 0), (11, 7), (1000, 7)):
        trace = file("trace", name * count + ok * (1000 - count))
        out, _ = weir("simulate", "-p", policies, trace, code=code)
        shown = f"in {count:,} of 1,000 requests the client is no address, as \"crawl-7.exa\\x5cmple.org\""
        assert (shown in out) == (code == 7), out
        told = json.loads(weir("simulate", "-p", policies, "--json", trace, code=code)[0])
        assert told["traces"][0]["no_addresses"] == count and [doubt["code"] for doubt in told["doubts"]] == [7] * (code == 7), told["doubts"]
    # One such trace of several is told; keys of CSV are what they are, and other keys are no addresses.
    (PLACE / "good").write_text(ok * 5000)
    weir("simulate", "-p", policies, PLACE / "good", file("trace", name * 2), code=7)
    weir("simulate", "-p", policies, file("k.csv", f"{START_S},name\n{START_S},198.51.100.7\n"))
    weir("simulate", "-p", policies, "--key=path", file("trace", name * 3))


if __name__ == "__main__":
    run(globals())
