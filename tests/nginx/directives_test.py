#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
What nginx says of directives: directives_test.py BUILD_DIRECTORY SOURCE_DIRECTORY [TEST...]. Prints TAP.

Most tests ask nginx of a file with its own limit_req, and of the same file with the module's directives: the sentences
must be the same but for the names.

Guards: apps/nginx/zone.c, apps/nginx/limit.c, apps/nginx/redis.c, apps/nginx/configuration.c, apps/nginx/module.c
"""
import pathlib
import re
import subprocess
import tempfile

from nginx_support import BUILD, Nginx, run

ZONE = "weir_limit_req_zone $arg_k zone=one:1m rate=1r/s;"


def verdict(zones, server):
    """Whether nginx -t takes it, and its sentences."""
    nginx = Nginx(zones, server, start=False)
    try:
        good, said = nginx.test()
        said = said.replace(str(nginx.dir), "DIR")
        return good, re.sub(r"^.*? \[", "[", said, flags=re.M)
    finally:
        nginx.close()


def own(text):
    """The same with nginx's own limit_req."""
    return re.sub(r"weir_(limit_req)", r"\1", text)


def same(zones, server, good=False):
    """As nginx's own, which refuses it, or takes it."""
    ours, theirs = verdict(zones, server), verdict(own(zones), own(server).replace("$weir_", "$"))
    assert (ours[0], own(ours[1])) == theirs, (ours, theirs)
    assert ours[0] == good, ours
    return ours[1]


def test_zones_are_refused_as_nginx_refuses_its_own():
    for arguments in ("", "$arg_k", "$arg_k zone=one:1m", "$arg_k rate=1r/s zone=", "$arg_k rate=1r/s zone=one",
                      "$arg_k zone=one: rate=1r/s", "$arg_k zone=one:x rate=1r/s", "$arg_k zone=one:31k rate=1r/s",
                      "$arg_k zone=:1m rate=1r/s", "$arg_k zone=one:1m rate=0r/s", "$arg_k zone=one:1m rate=-1r/s",
                      "$arg_k zone=one:1m rate=xr/s", "$arg_k zone=one:1m rate=r/s", "$arg_k zone=one:1m rate=1.5r/s",
                      "$arg_k zone=one:1m rate=", "$arg_k zone=one:1m burst=5", "$arg_k zone=one:1m rats=1r/s",
                      "$arg_k rate=1r/s rate=1r/s", "$nothing zone=one:1m rate=1r/s", "${arg_k zone=one:1m rate=1r/s",
                      "$arg_k zone=one:-1 rate=1r/s"):
        same(f"weir_limit_req_zone {arguments};", "")


def test_zones_are_taken_as_nginx_takes_its_own():
    for arguments in ("$arg_k zone=one:32k rate=1r/s", "$arg_k rate=30r/m zone=one:1M", "$arg_k$uri zone=one:1m rate=1",
                      '"" zone=one:1m rate=1r/s', "$arg_k rate=1000000r/s zone=one:1000m"):
        same(f"weir_limit_req_zone {arguments};", "weir_limit_req zone=one;", good=True)


def test_limits_are_refused_as_nginx_refuses_its_own():
    for arguments in ("", "zone=", "burst=5", "nodelay", "zone=one burst=0", "zone=one burst=-1", "zone=one burst=x",
                      "zone=one burst=", "zone=one delay=0", "zone=one delay=x", "zone=one nodelays", "zone=one foo",
                      "zone=one burst=1 nodelay more", "zone=none", "zone=one rate=1r/s"):
        same(ZONE, f"weir_limit_req {arguments};")
    same(ZONE, "weir_limit_req zone=one; weir_limit_req zone=one burst=5;")


def test_limits_are_taken_as_nginx_takes_its_own():
    same(ZONE, "weir_limit_req zone=one burst=5 delay=3; location /a { weir_limit_req nodelay zone=one burst=999999; } "
         "location /b { weir_limit_req zone=one burst=3 delay=9; }", good=True)
    same("", "weir_limit_req_status 429; weir_limit_req_dry_run on; weir_limit_req_log_level notice;", good=True)


def test_a_zone_may_be_defined_after_it_is_used():
    same("weir_limit_req zone=one; " + ZONE, "", good=True)


def test_zones_of_one_name_conflict():
    same(ZONE + "weir_limit_req_zone $arg_other zone=one:1m rate=2r/s;", "")
    same(ZONE + "weir_limit_req_zone $arg_k zone=one:2m rate=1r/s;", "")
    same(ZONE + "limit_conn_zone $arg_k zone=one:1m;", "")


def test_other_directives_are_refused_as_nginx_refuses_its_own():
    for directive in ("weir_limit_req_status 399", "weir_limit_req_status 600", "weir_limit_req_status x", "weir_limit_req_status",
                      "weir_limit_req_status 429; weir_limit_req_status 430", "weir_limit_req_log_level crit",
                      "weir_limit_req_log_level", "weir_limit_req_dry_run maybe", "weir_limit_req_dry_run",
                      "weir_limit_req_zone $arg_k zone=two:1m rate=1r/s", "weir_limit_req_log_level info; weir_limit_req_log_level warn",
                      "weir_limit_req_dry_run on; weir_limit_req_dry_run off"):
        same(ZONE, directive + ";")


def test_a_rate_that_no_bucket_has_is_refused():
    good, said = verdict("weir_limit_req_zone $arg_k zone=one:1m rate=640000001r/s;", "")
    assert not good and 'invalid rate "rate=640000001r/s" in DIR/nginx.conf:' in said, said
    assert verdict("weir_limit_req_zone $arg_k zone=one:1m rate=640000000r/s;", "weir_limit_req zone=one burst=9;")[0]


def test_redis_is_refused_with_file_and_line():
    for arguments, sentence in (
            ("http://127.0.0.1", "redis"),
            ("redis://", "redis"),
            ("redis://127.0.0.1:99999", "a port is not a number"),
            ("redis://127.0.0.1 prefix=a{b}", "prefix"),
            ("redis://127.0.0.1 timeout=1ms", "redis_timeout_ms"),
            ("redis://127.0.0.1 interval=5m", "sync_interval_ms"),
            ("redis://127.0.0.1 timeout=0", 'invalid parameter "timeout=0"'),
            ("redis://127.0.0.1 timeout=soon", 'invalid parameter "timeout=soon"'),
            ("redis://127.0.0.1 nodes=0", 'invalid parameter "nodes=0"'),
            ("redis://127.0.0.1 nodes=99999", "expected_nodes"),
            ("redis://127.0.0.1 prefix=", 'invalid parameter "prefix="'),
            ("redis://127.0.0.1 password=x", 'invalid parameter "password=x"'),
            ("off timeout=1s", 'invalid parameter "timeout=1s"'),
            ("off; weir_redis off", "is duplicate"),
            ("", "invalid number of arguments")):
        arguments = arguments.replace("{b}", "\\{b\\}")
        good, said = verdict(ZONE + f"\nweir_redis {arguments};", "weir_limit_req zone=one;")
        first = said.splitlines()[0]
        assert not good and first.startswith("[emerg] "), (arguments, said)
        assert sentence in first and re.search(r"DIR/nginx\.conf:\d+$", first), (arguments, said)


def test_redis_that_cannot_be_reached_is_no_error_and_takes_no_time():
    for url in ("redis://127.0.0.1:1 timeout=60s", "redis://nowhere.invalid timeout=60s", "unix:///nowhere timeout=60s", "off",
                "redis://user:secret@127.0.0.1:1/3 timeout=60s interval=100ms prefix=web nodes=3"):
        good, said = verdict(ZONE + f"weir_redis {url};", "weir_limit_req zone=one;")  # does not wait as long as this timeout
        assert good, said


def test_redis_stands_in_the_http_block_alone():
    good, said = verdict(ZONE, "weir_redis redis://127.0.0.1;")
    assert not good and '"weir_redis" directive is not allowed here' in said, said


def test_a_zone_may_be_kept_local():
    assert verdict("weir_limit_req_zone $arg_k zone=one:1m rate=1r/s redis=off;", "weir_limit_req zone=one;")[0]
    assert verdict("weir_limit_req_zone $arg_k zone=one:1m rate=1r/s redis=on;", "weir_limit_req zone=one;")[0]
    good, said = verdict("weir_limit_req_zone $arg_k zone=one:1m rate=1r/s redis=maybe;", "")
    assert not good and 'invalid parameter "redis=maybe"' in said, said


def test_more_zones_than_policies_are_refused():
    zones = "\n".join(f"weir_limit_req_zone $arg_k zone=z{n}:32k rate=1r/s;" for n in range(1024))
    good, said = verdict(zones, "")
    assert not good and re.search(r"there are more than 1023 zones in DIR/nginx\.conf:\d+$", said, re.M), said


def test_a_module_without_zones_does_nothing():
    with Nginx("", "") as nginx:
        assert nginx.get("/").status == 200
        nginx.reload()
        assert nginx.get("/").status == 200


def test_what_is_installed_loads_as_the_modules_of_a_distribution_do():
    """A file of modules-available names the module where it is installed."""
    with tempfile.TemporaryDirectory(prefix="weir-install-") as root:
        subprocess.run(["meson", "install", "-C", BUILD, "--destdir", root, "--no-rebuild", "--quiet"], check=True,
                       capture_output=True)
        found = {path.name: path for path in pathlib.Path(root).rglob("modules-available/mod-*-weir.conf")}
        assert "mod-http-weir.conf" in found, found
        for protocol, path in ((name.split("-")[1], path) for name, path in found.items()):
            assert path.parent.parent.name == "nginx" and path.parent.parent.parent.name == "share", path
            line = path.read_text()
            module = re.fullmatch(r"load_module (/.*/nginx/modules/ngx_(\w+)_weir_module\.so);\n", line)
            assert module and module[2] == protocol, line
            assert pathlib.Path(root + module[1]).is_file(), line


def test_names_of_zones_may_have_any_bytes():
    names = ["a/b", "a/c", "a.b", "ä", "a b", "x" * 200, "x" * 199 + "y"]
    zones = "".join(f'weir_limit_req_zone $arg_k "zone={name}:1m" rate=1r/m;' for name in names)
    server = "".join(f'location /{n} {{ weir_limit_req "zone={name}"; }}' for n, name in enumerate(names))
    with Nginx(zones, server) as nginx:
        for n in range(len(names)):
            # Were two of them one policy, the second one would refuse.
            assert [nginx.get(f"/{n}?k=1").status for _ in range(2)] == [404, 503], names[n]


if __name__ == "__main__":
    run(dict(globals()))
