#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Addresses of clients as keys, in http and in streams: addresses_test.py BUILD_DIRECTORY SOURCE_DIRECTORY [TEST...].
Prints TAP.

An IPv4 client comes to a socket of IPv4, to one for both families, which nginx shows as ::ffff:127.0.0.1, and behind a
proxy that tells its address in one spelling or another.

Guards: apps/nginx/address.c
"""
import contextlib
import ipaddress
import random
import socket

from nginx_support import BUILD, Redis, Watched, gateway_demo, run
from stream_test import Stream

ALONE = ("$binary_remote_addr", "${binary_remote_addr}", "$remote_addr", '"${remote_addr}"', "$realip_remote_addr", "$proxy_protocol_addr")
AMONG = ("$remote_addr:$server_name", '"a${binary_remote_addr}b"', "$remote_addr$proxy_protocol_addr", "$mapped", "x$proxy_protocol_addr")
SPELLINGS = ("TCP4 127.0.0.1", "TCP6 ::ffff:127.0.0.1", "TCP6 ::FFFF:7f00:1", "TCP6 0:0:0:0:0:ffff:7F00:0001", "TCP6 ::ffff:127.0.0.1")
MAP = "map $weir_client_128 $mapped { default -; 127.0.0.1 found; }"
LISTEN = ("listen 127.0.0.1:{port}; listen [::]:{both} ipv6only=off; listen 127.0.0.1:{proxy} proxy_protocol; "
          "set_real_ip_from 127.0.0.0/8; ")


def policy(name, limit=4, more=""):
    return f"  - {{name: {name}, limits: [{{algorithm: fixed_window, limit: {limit}, period: 365d}}]}}\n{more}"


class Ports:
    """The three ports of a server, in its configuration and for its clients."""

    def __init__(self):
        self.both, self.proxy = (gateway_demo.free_port(socket.SOCK_STREAM) for _ in range(2))

    def fill(self, text):
        return text.replace("{both}", str(self.both)).replace("{proxy}", str(self.proxy))

    def ways(self, port):
        """Each way of one client: a port, and what its proxy says first."""
        return [(port, b""), (self.both, b""), *[(self.proxy, f"PROXY {spelling} 127.0.0.1 1 2\r\n".encode()) for spelling in SPELLINGS]]


class Http(Watched):
    def __init__(self, http, policies="", **options):
        self.ports, self.policies = Ports(), f"policies:\n{policies or policy('none')}"
        super().__init__(BUILD, self.ports.fill(http), **options)

    def write(self, http, main=None):
        (self.dir / "policies.yaml").write_text(self.policies)
        super().write(f"weir_policies {{dir}}/policies.yaml;\n{http}", main)

    def status(self, path, way=None, source="127.0.0.1", fields=()):
        port, said = way or (self.port, b"")
        with socket.create_connection(("127.0.0.1", port), timeout=20, source_address=(source, 0)) as client:
            request = "\r\n".join([f"GET {path} HTTP/1.1", "Host: here", "Connection: close", *fields, "", ""])
            client.sendall(said + request.encode())
            data = b""
            while more := client.recv(65536):
                data += more
        self.answer = data.decode()
        return int(data.split()[1])

    def statuses(self, path, count, *more):
        return [self.status(path, *more) for _ in range(count)]


def ways_of(key, nginx):
    """A key with the address of a proxy is empty without one."""
    ways = nginx.ports.ways(nginx.port)
    return ways[2:] if "proxy_protocol" in key else ways


def test_an_ipv4_client_is_one_client_on_every_socket():
    keys = ALONE + AMONG
    zones = "".join(f"weir_limit_req_zone {key} zone=z{i}:1m rate=1r/m;\n" for i, key in enumerate(keys))
    places = "".join(f"location /z{i} {{ weir_limit_req zone=z{i} burst=3 nodelay; }} location /p{i} {{ weir p{i} {key}; }}\n"
                     for i, key in enumerate(keys))
    policies = "".join(policy(f"p{i}") for i in range(len(keys)))
    with Http(f"{MAP} {zones} server {{ {LISTEN} {places} }}", policies) as nginx:
        for i, key in enumerate(keys):
            ways = ways_of(key, nginx) if "$remote_addr$" not in key else nginx.ports.ways(nginx.port)[2:]
            for place in ("z", "p"):
                found = [nginx.status(f"/{place}{i}", ways[n % len(ways)]) for n in range(len(ways) + 4)]
                assert found[:4] == [404] * 4 and set(found[4:]) <= {429, 503}, (key, place, found)
                if "remote_addr" in key and "proxy" not in key:
                    assert nginx.status(f"/{place}{i}", ways[1], "127.0.0.2") == 404, "another client"


def test_entries_are_of_addresses_in_every_spelling():
    names = ("127.0.0.1", "127.0.0.0/8", "::ffff:127.0.0.0/104", "::FFFF:127.0.0.1", "::ffff:7f00:1", "0:0:0::ffff:7F00:0/112", "::ffff:0:0/96")
    cases = [(key, name) for key in ALONE for name in names]
    places = "".join(f"location /p{i} {{ weir p{i} {key}; }}\n" for i, (key, _) in enumerate(cases))
    policies = "".join(policy(f"p{i}") for i in range(len(cases)))
    entries = "overrides:\n" + "".join(f'  "p{i}:{name}": deny\n' for i, (_, name) in enumerate(cases))
    with Http(f"server {{ {LISTEN} {places} }}", policies + entries) as nginx:
        for i, (key, name) in enumerate(cases):
            for way in ways_of(key, nginx):
                assert nginx.status(f"/p{i}", way) == 429, (key, name, way)


def test_a_policy_with_other_keys_too_has_the_text_of_addresses():
    policies = (policy("text") + policy("bytes") + 'overrides:\n  "text:127.0.0.1": deny\n  "text:me": deny\n  "bytes:%7f%00%00%01": deny\n')
    with Http(f"server {{ {LISTEN} location /a {{ weir text $remote_addr; }} location /b {{ weir text $arg_k; }} "
              "location /c { weir bytes $binary_remote_addr; } location /d { weir bytes $arg_k; } }", policies) as nginx:
        for way in nginx.ports.ways(nginx.port)[:2]:
            assert [nginx.status(path, way) for path in ("/a", "/c", "/b?k=me", "/b?k=you")] == [429, 429, 429, 404], way


def test_entries_of_zones_in_redis_are_of_addresses():
    zones = "weir_limit_req_zone $remote_addr zone=one:1m rate=1r/m; weir_limit_req_zone $binary_remote_addr zone=two:1m rate=1r/m;"
    with Redis() as redis, Http(f"weir_redis {redis.url} prefix=test; {zones} server {{ {LISTEN} location /one {{ weir_limit_req zone=one "
                                "burst=1000000 nodelay; } location /two { weir_limit_req zone=two burst=1000000 nodelay; } }") as nginx:
        redis.call("hset", "test:overrides", "one:::FFFF:7f00:2", "deny", "two:::ffff:127.0.0.0/126", "deny")
        for path in ("/one", "/two"):
            for way in nginx.ports.ways(nginx.port)[:2]:
                nginx.until(lambda: nginx.status(path, way, "127.0.0.2") == 503)
                assert nginx.status(path, way, "127.0.0.9") == 404


CLIENTS = {"$weir_client": 64, '"${weir_client}"': 64, "${weir_client_56}": 56, "$weir_client_48": 48, "$weir_client_128": 128,
           "x$weir_client": 64, "$weir_client_56:$server_name": 56, "$weir_client_48$weir_client_48": 48}


def in_network(bits, other=0):
    """An address of a network, or of the one beside it."""
    base = int(ipaddress.IPv6Address("2001:db8:1:2700::")) ^ (other << (128 - bits))
    return str(ipaddress.IPv6Address(base >> (128 - bits) << (128 - bits) | random.getrandbits(128 - bits)))


def test_a_network_of_ipv6_is_one_client():
    zones = "".join(f"weir_limit_req_zone {key} zone=z{i}:1m rate=1r/m;\n" for i, key in enumerate(CLIENTS))
    places = "".join(f"location /z{i} {{ weir_limit_req zone=z{i} burst=3 nodelay; }} location /p{i} {{ weir p{i} {key}; }}\n"
                     for i, key in enumerate(CLIENTS))
    policies = "".join(policy(f"p{i}") for i in range(len(CLIENTS)))
    with Http(f"{zones} server {{ {LISTEN} real_ip_header X-Real-IP; {places} }}", policies) as nginx:
        for i, (key, bits) in enumerate(CLIENTS.items()):
            for path, refused in ((f"/z{i}", 503), (f"/p{i}", 429)):
                def found(*addresses):
                    return [nginx.status(path, fields=[f"X-Real-IP: {address}"]) for address in addresses]

                one = [in_network(bits) for _ in range(20)]
                assert found(*one) == [404] * 4 + [refused] * 16, (key, one)
                assert found(in_network(bits, other=1)) == [404], key
                assert found(*["198.51.100.7", "::ffff:198.51.100.7"] * 3) == [404] * 4 + [refused] * 2, key
                assert found("198.51.100.8") == [404], key


def test_entries_and_lists_are_of_networks_of_clients():
    entries = """overrides:
  "few:2001:db8:1:2::/64": deny
  "few:2001:db8:5::/48": deny
  "few:198.51.100.0/24": deny
  "wide:2001:db8:1::/48": deny
  "mixed:2001:db8:1:2::/64": deny
  "mixed:198.51.100.7": deny
"""
    server = (f"server {{ {LISTEN} real_ip_header X-Real-IP; add_header X-Client '$weir_client $weir_client_56 $weir_client_48 $weir_client_128' "
              "always; location /few { weir few $weir_client; } location /wide { weir wide $weir_client_48; } location /mixed "
              "{ weir mixed $weir_client; } location /other { weir mixed $remote_addr; } location /s { weir_status json; } }")
    with Http(server, policy("few") + policy("wide") + policy("mixed") + entries) as nginx:
        def found(path, *addresses):
            return [nginx.status(path, fields=[f"X-Real-IP: {address}"]) for address in addresses]

        assert found("/few", "2001:db8:1:2::9", "2001:db8:5:8::1", "198.51.100.9", "2001:db8:1:3::9", "192.0.2.1") == [429] * 3 + [404] * 2
        assert found("/wide", "2001:db8:1:2::9", "2001:db8:2::9") == [429, 404]
        assert found("/mixed", "2001:db8:1:2::9", "198.51.100.7", "2001:db8:1:3::9") == [429, 429, 404]
        assert found("/other", "198.51.100.7", "2001:db8:1:2::9") == [429, 404]
        found("/few", "2001:db8:a:b:c:d:e:f")
        assert "X-Client: 2001:db8:a:b::/64 2001:db8:a::/56 2001:db8:a::/48 2001:db8:a:b:c:d:e:f\r\n" in nginx.answer, nginx.answer
        found("/few", "198.51.100.9")
        assert "X-Client: 198.51.100.9 198.51.100.9 198.51.100.9 198.51.100.9\r\n" in nginx.answer, nginx.answer

        for path, address in (("/few", "2001:db8:7:8::1"), ("/few", "203.0.113.9"), ("/wide", "2001:db8:7:8::1")):
            assert found(path, *[address] * 5) == [404] * 4 + [429]

        def listed():
            found("/s", "192.0.2.1")
            return all(f'"{key}"' in nginx.answer for key in ("2001:db8:7:8::/64", "203.0.113.9", "2001:db8:7::/48"))
        nginx.until(listed)
    broken = Http(server, policy("few") + policy("wide") + policy("mixed") + 'overrides: {"few:2001:db8::1": deny}', start=False)
    try:
        good, said = broken.test()
        assert not good and 'policy "few" has no key "2001:db8::1"' in said and "2001:db8::/64" in said, said
    finally:
        broken.close()


def is_served(port, said=b""):
    """Whether a session is, whose proxy says this first."""
    with contextlib.suppress(ConnectionError), socket.create_connection(("127.0.0.1", port), timeout=20) as client:
        client.sendall(said)
        return client.recv(100) == b"served"
    return False


def test_sessions_of_streams_have_the_same_keys():
    keys = ALONE + AMONG
    ports = Ports()
    names = ("127.0.0.1", "::ffff:127.0.0.0/104")
    policies = "".join(policy(f"p{i}") for i in range(len(keys) + len(names)))
    policies += "overrides:\n" + "".join(f'  "p{len(keys) + i}:{name}": deny\n' for i, name in enumerate(names))
    servers = [(key, Ports(), gateway_demo.free_port(socket.SOCK_STREAM)) for key in (*keys, "$remote_addr", "$binary_remote_addr")]
    text = "".join(f"server {{ {ports.fill(LISTEN).replace('{port}', str(port)).replace('$server_name', '$server_port')} "
                   f"return served; weir p{i} {key.replace('$server_name', '$protocol')}; }}\n" for i, (key, ports, port) in enumerate(servers))
    with Stream(f"weir_policies {{dir}}/policies.yaml; {MAP} {text}", policies=f"policies:\n{policies}") as nginx:
        for i, (key, ports, port) in enumerate(servers):
            ways = ports.ways(port)[2 if "proxy" in key else 0:]
            found = [is_served(*ways[n % len(ways)]) for n in range(len(ways) + 4)]
            assert found == ([True] * 4 + [False] * len(ways) if i < len(keys) else [False] * len(found)), (key, found)


def test_a_network_of_ipv6_is_one_client_of_a_stream():
    servers = [(key, bits, gateway_demo.free_port(socket.SOCK_STREAM)) for key, bits in CLIENTS.items()]
    text = "".join(f"server {{ listen 127.0.0.1:{port} proxy_protocol; set_real_ip_from 127.0.0.1; return served; "
                   f"weir p{i} {key.replace('$server_name', '$protocol')}; }}\n" for i, (key, _, port) in enumerate(servers))
    policies = "policies:\n" + "".join(policy(f"p{i}") for i in range(len(servers)))
    with Stream(f"weir_policies {{dir}}/policies.yaml; {text}", policies=policies) as nginx:
        nginx.until(nginx.worker_pids)
        for key, bits, port in servers:
            found = [is_served(port, f"PROXY TCP6 {in_network(bits)} ::1 1 2\r\n".encode()) for _ in range(10)]
            assert found == [True] * 4 + [False] * 6, (key, found)
            assert is_served(port, f"PROXY TCP6 {in_network(bits, other=1)} ::1 1 2\r\n".encode()), key


if __name__ == "__main__":
    run(dict(globals()))
