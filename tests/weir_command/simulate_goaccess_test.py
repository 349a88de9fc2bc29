#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
weir simulate finds the clients that goaccess finds, and as many requests of each: logs of many forms with drawn clients.
simulate_goaccess_test.py WEIR_PROGRAM [TEST...]. Prints TAP.

Guards: apps/weir/trace/clf.c, apps/weir/trace/json.c, apps/weir/trace/alb.c, apps/weir/trace/w3c.c, apps/weir/trace/prefix.c,
apps/weir/trace/haproxy.c
"""
import collections
import ipaddress
import json
import os
import random
import shutil
import subprocess
import time

from command_support import file, need, PLACE, PLAIN, run, weir
from traces import combined, common, haproxy, Request, START_S

SEED = int(os.environ.get("WEIR_TEST_SEED") or random.SystemRandom().randrange(1 << 32))
DRAW = random.Random(SEED)
POLICIES = "policies:\n  - {name: web, limits: [{algorithm: fixed_window, limit: 5, period: 10s}]}\n"


def iso(ms):
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(ms // 1000))


def caddy(r):
    return json.dumps({"level": "info", "ts": r.time_ms / 1000, "logger": "http.log.access", "msg": "handled request", "request": {
        "remote_ip": r.address, "remote_port": "4000", "client_ip": r.address, "proto": "HTTP/2.0", "method": "GET", "host": "shop.example.org",
        "uri": r.path, "headers": {"User-Agent": ["curl/8"]}}, "user_id": "", "duration": 0.001, "size": r.cost, "status": 200})


def alb(r):
    return (f"https {iso(r.time_ms)}.{r.time_ms % 1000:03}000Z app/web/50dc {r.address}:2817 10.0.0.1:80 0.000 0.001 0.000 200 200 34 {r.cost} "
            f'"GET https://shop.example.org:443{r.path} HTTP/1.1" "curl/8" ECDHE-RSA TLSv1.2 arn:aws:x "Root=1-58" "-" "-" 0')


def elb(r):
    return (f"{iso(r.time_ms)}.{r.time_ms % 1000:03}000Z lb {r.address}:2817 10.0.0.1:80 0.000073 0.001048 0.000057 200 200 0 {r.cost} "
            f'"GET http://shop.example.org:80{r.path} HTTP/1.1" "curl/8" - -')


def traefik(r):
    return combined(r._replace(agent="curl/8")).replace('"https://example.org/\\"quoted\\""', '"-"') + ' 7 "web@docker" "http://10.0.0.2:80" 1ms'


def cloudfront(r):
    day, clock = iso(r.time_ms).split("T")
    return (f"{day}\t{clock}\tLAX1\t{r.cost}\t{r.address}\tGET\td1.cloudfront.net\t{r.path}\t200\t-\tcurl/8\t-\t-\tHit\tid\tshop.example.org\t"
            "https\t23\t0.001\t-\tTLSv1.2\tECDHE\tHit\tHTTP/2.0\t-")


def iis(r):
    day, clock = iso(r.time_ms).split("T")
    return f"{day} {clock} 10.0.0.1 GET {r.path} - 443 - {r.address} curl/8 - 200 0 0 15"


def nginx(r):
    return json.dumps({"time_iso8601": iso(r.time_ms) + "+00:00", "remote_addr": r.address, "request_method": "GET", "request_uri": r.path,
                       "status": 200, "body_bytes_sent": r.cost})


W3C = "#Fields: date time s-ip cs-method cs-uri-stem cs-uri-query s-port cs-username c-ip cs(User-Agent) cs(Referer) sc-status sc-substatus sc-win32-status time-taken"
CLOUDFRONT = "#Version: 1.0\n#Fields: date time x-edge-location sc-bytes c-ip cs-method cs(Host) cs-uri-stem sc-status cs(Referer) cs(User-Agent) cs-uri-query"

# The line, what goaccess calls the form, what stands before the log, and what carries a line to weir simulate alone.
FORMS = {
    "common": (common, ["COMMON"], "", None),
    "combined": (combined, ["COMBINED"], "", None),
    "virtual host, common": (lambda r: "shop.example.org:443 " + common(r), ["VCOMMON"], "", None),
    "virtual host, combined": (lambda r: "shop.example.org:443 " + combined(r), ["VCOMBINED"], "", None),
    "Traefik": (traefik, ['%h - %e [%d:%t %^] "%r" %s %b "%R" "%u" %^', "%H:%M:%S", "%d/%b/%Y"], "", None),
    "Caddy": (caddy, ["CADDY"], "", None),
    "AWS ALB": (alb, ["AWSALB"], "", None),
    "AWS ELB": (elb, ['%dT%t.%^ %^ %h:%^ %^ %^ %^ %^ %^ %s %^ %b "%r" "%u" %^', "%H:%M:%S", "%Y-%m-%d"], "", None),
    "CloudFront": (cloudfront, ["CLOUDFRONT"], CLOUDFRONT, None),
    "IIS": (iis, ["W3C"], W3C, None),
    "JSON of nginx": (nginx, ['{"time_iso8601":"%dT%t+%^","remote_addr":"%h","request_method":"%m","request_uri":"%U","status":"%s",'
                              '"body_bytes_sent":"%b"}', "%H:%M:%S", "%Y-%m-%d"], "", None),
    "HAProxy": (lambda r: haproxy(r).split("]: ", 1)[1], ['%h:%^ [%d:%t.%^] %^ %^ %^ %s %b %^ %^ %^ %^ %^ {%^} {%^} "%r"', "%H:%M:%S", "%d/%b/%Y"],
                "", None),
    "Kubernetes": (combined, ["COMBINED"], "", lambda r, line: f"{iso(r.time_ms)}.123456789Z stdout F {line}"),
    "docker compose": (combined, ["COMBINED"], "", lambda r, line: f"web-1  | {line}"),
    "docker": (combined, ["COMBINED"], "", lambda r, line: json.dumps({"log": line + "\n", "stream": "stdout", "time": iso(r.time_ms) + ".1Z"})),
    "syslog": (combined, ["COMBINED"], "", lambda r, line: f"<134>{time.strftime('%b %e %H:%M:%S', time.gmtime(r.time_ms // 1000))} web1 nginx[14]: {line}"),
}


def goaccess(path, form):
    """How many requests of each client goaccess counts."""
    words = [f"--log-format={form[0]}"] + ([f"--time-format={form[1]}", f"--date-format={form[2]}"] if len(form) > 1 else [])
    done = subprocess.run(["goaccess", path, *words, "--no-global-config", "--no-progress", "--max-items=1000", "-o", PLACE / "goaccess.json"],
                          capture_output=True, text=True, env=PLAIN, cwd=PLACE, timeout=120, check=False)
    assert done.returncode == 0, (form, done.stdout[-500:], done.stderr[-500:])
    told = json.loads((PLACE / "goaccess.json").read_text())
    return {str(ipaddress.ip_address(row["data"])): row["hits"]["count"] for row in told["hosts"]["data"]}


def some_requests():
    addresses = [str(ipaddress.IPv4Address(DRAW.randrange(1 << 24, 0xdfffffff))) for _ in range(30)]
    addresses += [str(ipaddress.IPv6Address(0x20010db8 << 96 | DRAW.randrange(1 << 90))) for _ in range(10)]
    now, requests = START_S * 1000, []
    for _ in range(2000):
        now += DRAW.randrange(700)
        requests.append(Request(now, addresses[int(len(addresses) * DRAW.random() ** 2)], path=f"/a{DRAW.randrange(9)}/b", cost=DRAW.randrange(1, 5000)))
    return requests


def test_the_clients_are_those_of_goaccess():
    need(shutil.which("goaccess") is not None, "there is no goaccess")
    print(f"# WEIR_TEST_SEED={SEED}", flush=True)
    for name, (line, form, head, carry) in FORMS.items():
        requests = some_requests()
        if name in ("AWS ALB", "AWS ELB", "HAProxy"):  # goaccess takes the first colon for the one before the port
            requests = [r for r in requests if ":" not in r.address]
        lines = [line(r) for r in requests]
        plain = file("plain.log", (head + "\n" if head else "") + "".join(text + "\n" for text in lines))
        wanted = goaccess(plain, form)
        assert wanted == collections.Counter(r.address for r in requests), (name, len(wanted))
        carried = [carry(r, text) for r, text in zip(requests, lines)] if carry else lines
        trace = file("carried.log", (head + "\n" if head else "") + "".join(text + "\n" for text in carried))
        out, _ = weir("simulate", "-p", file("web.yaml", POLICIES), "--decisions=-", trace)
        assert collections.Counter(row.split(",")[1] for row in out.splitlines()) == wanted, name


if __name__ == "__main__":
    run(globals())
