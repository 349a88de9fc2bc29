#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
TCP connections and UDP sessions in nginx: stream_test.py BUILD_DIRECTORY SOURCE_DIRECTORY [TEST...]. Prints TAP.

Guards: apps/nginx/session.c, apps/nginx/stream_module.c, apps/nginx/stream_configuration.c, apps/nginx/stream_protocol.c,
apps/nginx/block.c, apps/nginx/variables.c
"""
import contextlib
import os
import re
import signal
import socket
import socketserver
import subprocess
import threading

from nginx_support import BUILD, Redis, Watched, check_log, gateway_demo, lines, nginx_demo, node_count, pathlib, run, statuses

MODULE = pathlib.Path(BUILD).resolve() / "apps" / "nginx" / "ngx_stream_weir_module.so"
POLICIES = """
policies:
  - name: few
    limits: [{algorithm: fixed_window, limit: 3, period: 365d}]
  - name: many
    limits: [{algorithm: sliding_window, limit: 5, period: 365d}]
    tiers:
      - name: pro
        limits: [{algorithm: sliding_window, limit: 8, period: 365d}]
  - name: window
    limits: [{algorithm: fixed_window, limit: 1000, period: 365d}]
  - name: fleet
    limits: [{algorithm: fixed_window, limit: 20, period: 365d}]
  - name: bucket
    limits: [{algorithm: token_bucket, limit: 1, period: 1h, burst: 2}]
  - name: queue
    limits: [{algorithm: leaky_bucket, limit: 1, period: 1h, burst: 4}]
  - name: tried
    mode: shadow
    limits: [{algorithm: fixed_window, limit: 1, period: 365d}]
"""
FILE = "weir_policies {dir}/policies.yaml;"
SERVER = "server {{ listen 127.0.0.1:{{port}}; return served; {0} }}"
LOG = ("log_format weir '$remote_addr: $weir_session_status $weir_policy $weir_remaining $weir_retry_after $weir_basis $status'; "
       "access_log {dir}/access.log weir; ")


def stream_module():
    """The line that loads nginx's own stream module; empty: nginx has it inside. None: there is none."""
    said = subprocess.run([nginx_demo.PROGRAM, "-V"], capture_output=True, text=True).stderr
    if re.search(r"--with-stream(\s|$)", said):
        return ""
    folder = re.search(r"--modules-path=(\S+)", said)
    path = pathlib.Path(folder[1] if folder else "/usr/lib/nginx/modules") / "ngx_stream_module.so"
    return f"load_module {path};" if path.exists() else None


class Stream(Watched):
    """An nginx with this stream block, and with an http block where one is given."""

    def __init__(self, stream, http=None, policies=POLICIES, loads=None, **options):
        self.http, self.policies = http, policies
        self.loads = f"{stream_module()} load_module {MODULE};" if loads is None else loads
        self.udp, self.http_port = gateway_demo.free_port(socket.SOCK_DGRAM), gateway_demo.free_port(socket.SOCK_STREAM)
        super().__init__(BUILD, stream, **options)

    def write(self, text, main=None):
        (self.dir / "policies.yaml").write_text(self.policies)
        user = "user root;" if os.geteuid() == 0 else ""
        loads, http = self.loads, ""
        if self.http is not None:
            loads += f" load_module {nginx_demo.module_path(self.build)};"
            http = f"http {{\naccess_log off; root {self.dir}/html;\n{self.http}\n}}\n"
        text = (f"{loads}\n{user} worker_processes {self.workers}; daemon {'on' if self.daemon else 'off'};\n"
                f"pid {self.pid_path}; error_log {self.log_path} {self.level};\n{self.kept()}\n{main or ''}\n"
                f"events {{ worker_connections 1024; }}\nstream {{\n{text}\n}}\n{http}")
        for name, value in (("port", self.port), ("udp", self.udp), ("http_port", self.http_port), ("dir", self.dir)):
            text = text.replace("{" + name + "}", str(value))
        (self.dir / "nginx.conf").write_text(text)

    def answers(self):
        """A session would count. Workers are called so when they serve."""
        assert self.daemon or self.child.poll() is None, "nginx ended: " + self.log() + self.child.stderr.read()
        return True

    def access_log(self):
        path = self.dir / "access.log"
        return path.read_text().splitlines() if path.exists() else []


def stream(server, **options):
    return Stream(FILE + SERVER.format(server), **options)


def connect(nginx, source="127.0.0.1", port=None):
    return socket.create_connection(("127.0.0.1", port or nginx.port), timeout=20, source_address=(source, 0))


def visit(nginx, source="127.0.0.1", port=None):
    """Whether a connection from this address is served."""
    data = b""
    try:
        with connect(nginx, source, port) as client:
            while more := client.recv(4096):
                data += more
    except ConnectionError:
        pass
    assert data in (b"served", b""), data
    return data != b""


def visits(nginx, count, source="127.0.0.1", port=None):
    """How many of so many connections were served; those are the first ones."""
    served = [visit(nginx, source, port) for _ in range(count)]
    assert served == sorted(served, reverse=True), served
    return sum(served)


class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        if isinstance(self.request, tuple):
            self.request[1].sendto(self.request[0], self.client_address)
            return
        with contextlib.suppress(ConnectionError):
            while data := self.request.recv(65536):
                self.request.sendall(data)


@contextlib.contextmanager
def echo(kind=socketserver.ThreadingTCPServer):
    """A server that answers with what it gets; gives its port."""
    with kind(("127.0.0.1", 0), Echo) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def exchange(nginx, size, source="127.0.0.1"):
    """Sends so many bytes and gets them back. False: the connection was closed at once."""
    got = 0
    try:
        with connect(nginx, source) as client:
            client.sendall(b"x" * size)
            while got < size and (data := client.recv(65536)):
                got += len(data)
    except ConnectionError:
        pass
    assert got in (0, size), got
    return got == size


def test_sessions_without_a_key_pass_and_say_so():
    log = "log_format named '$weir_session_status/$weir_policy/$weir_without_key'; access_log {dir}/access.log named; "
    with Stream(FILE + log + SERVER.format("weir few $empty; weir many $remote_addr; weir queue $empty;") +
                'map $server_port $empty { default ""; } server { listen 127.0.0.1:{http_port}; return served; weir few $empty; }') as nginx:
        assert visits(nginx, 6) == 5 and visits(nginx, 4, port=nginx.http_port) == 4
        nginx.until(lambda: len(nginx.access_log()) == 10)
        assert nginx.access_log() == ["PASSED/many/few,queue"] * 5 + ["REJECTED/many/few,queue"] + ["-/-/few"] * 4, nginx.access_log()


def test_a_session_is_decided_before_limit_conn_counts_it():
    with echo() as port, Stream(FILE + "limit_conn_zone $server_port zone=open:1m; " + SERVER.format("limit_conn open 1; weir few $remote_addr; ").replace(
            "return served;", f"proxy_pass 127.0.0.1:{port};")) as nginx:
        with connect(nginx) as client:
            client.sendall(b"one")
            assert client.recv(3) == b"one"
            for _ in range(2):
                assert not visit(nginx)
            assert len(lines(nginx, 'limiting connections by zone "open"')) == 2
        assert not visit(nginx)
        assert len(lines(nginx, 'limiting sessions by policy "few"')) == 1, "limit_conn refused what had been counted"


def test_connections_of_an_address_are_limited():
    for key in ("$remote_addr", "$binary_remote_addr"):
        with stream(f"weir few {key};") as nginx:
            assert visits(nginx, 5) == 3, key
            assert visits(nginx, 5, "127.0.0.2") == 3, key
            assert len(lines(nginx, r'\[error\].* limiting sessions by policy "few"')) == 4, nginx.log()
            assert lines(nginx, r'limiting sessions by policy "few".* client: 127\.0\.0\.2')


def test_an_empty_key_is_not_limited():
    server = "map $remote_addr $asked { 127.0.0.2 ''; default all; } " + SERVER.format("weir few $asked;")
    with Stream(FILE + server) as nginx:
        assert visits(nginx, 5, "127.0.0.2") == 5
        assert visits(nginx, 5) == 3


def test_entries_are_of_networks_where_keys_are_addresses():
    policies = POLICIES + 'overrides:\n  "few:127.0.1.0/24": 5\n'
    with stream("weir few $binary_remote_addr;", policies=policies) as nginx:
        assert visits(nginx, 7, "127.0.1.9") == 5
        assert visits(nginx, 5) == 3


def test_four_workers_admit_the_limit():
    for key in ("$remote_addr", "$binary_remote_addr"):
        with stream(f"weir window {key}; weir_log_level info;", workers=4, level="error") as nginx:
            served, lock = [0, 0], threading.Lock()

            def client():
                while served[False] < 200 and served[True] < 1500:
                    found = visit(nginx)
                    with lock:
                        served[found] += 1

            threads = [threading.Thread(target=client) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            # A worker that is preempted in the middle of a check may be charged for one unit later.
            assert 1000 <= served[True] <= 1004, (key, served)
            assert visit(nginx, "127.0.0.2")


def test_a_udp_session_counts_once():
    with echo(socketserver.ThreadingUDPServer) as port:
        server = ("server { listen 127.0.0.1:{udp} udp reuseport; weir few $remote_addr; proxy_timeout 60s; "
                  f"proxy_pass 127.0.0.1:{port}; }}")
        with Stream(FILE + server, workers=4) as nginx, contextlib.ExitStack() as stack:
            def client():
                s = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
                s.connect(("127.0.0.1", nginx.udp))
                s.settimeout(20)
                return s

            for s in [client() for _ in range(3)]:
                for n in range(10):
                    s.send(b"%d" % n)
                    assert s.recv(100) == b"%d" % n
            refused = client()
            for n in range(1, 4):
                refused.send(b"?")
                nginx.until(lambda: len(lines(nginx, 'limiting sessions by policy "few"')) == n)  # each asks again
            refused.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                assert not refused.recv(100)


def test_each_packet_is_asked_where_a_session_is_one_packet():
    with echo(socketserver.ThreadingUDPServer) as port, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        server = ("server { listen 127.0.0.1:{udp} udp; weir few $remote_addr; proxy_requests 1; proxy_responses 1; "
                  f"proxy_pass 127.0.0.1:{port}; }}")
        with Stream(FILE + server) as nginx:
            client.connect(("127.0.0.1", nginx.udp))
            client.settimeout(20)
            for n in range(3):
                client.send(b"%d" % n)
                assert client.recv(100) == b"%d" % n
            client.send(b"?")
            nginx.until(lambda: lines(nginx, 'limiting sessions by policy "few"'))


def test_several_policies_take_all_or_nothing():
    servers = "server { listen 127.0.0.1:{port}; return served; weir few $remote_addr; weir many all; }"
    with Stream(FILE + servers) as nginx:
        assert visits(nginx, 6) == 3
        assert visits(nginx, 5, "127.0.0.2") == 2, "refused ones took none of the second policy"
        port = gateway_demo.free_port(socket.SOCK_STREAM)
        nginx.reload(FILE + servers + f"server {{ listen 127.0.0.1:{port}; return served; weir few $remote_addr; }}")
        assert visits(nginx, 3, "127.0.0.2", port) == 1, "refused ones took none of the first policy"


def test_a_cost_is_a_number_or_a_variable():
    server = "map $remote_addr $cost { 127.0.0.2 5; 127.0.0.3 6; 127.0.0.4 0; 127.0.0.5 one; default 2; }"
    with Stream(FILE + server + SERVER.format("weir many $remote_addr cost=$cost;")) as nginx:
        assert [visits(nginx, 7, f"127.0.0.{n}") for n in range(1, 6)] == [2, 1, 0, 7, 5]
        assert lines(nginx, r'the cost "\$cost" of policy "many" is no number: "one"')


def test_a_tier_is_chosen_by_a_variable():
    server = "map $remote_addr $plan { 127.0.0.2 pro; 127.0.0.3 other; }" + SERVER.format("weir many $remote_addr tier=$plan;")
    with Stream(FILE + server) as nginx:
        assert [visits(nginx, 10, f"127.0.0.{n}") for n in range(1, 4)] == [5, 8, 5]


def test_a_queue_refuses_what_would_have_to_wait():
    with stream("weir queue $remote_addr;") as nginx:
        assert visits(nginx, 3) == 1
        assert visits(nginx, 1, "127.0.0.2") == 1


def test_shadow_mode_and_dry_run_refuse_nothing():
    with Stream(FILE + LOG + "weir_dry_run on; weir few $remote_addr; weir_log_level warn;" + SERVER.format("")) as nginx:
        assert visits(nginx, 5) == 5
        assert len(lines(nginx, r'\[warn\].* limiting sessions, dry run, by policy "few"')) == 2
        nginx.until(lambda: len(nginx.access_log()) == 5)
        assert nginx.access_log()[-1].startswith("127.0.0.1: REJECTED_DRY_RUN few 0 ")
    with stream("weir tried $remote_addr;") as nginx:
        assert visits(nginx, 3) == 3


def test_variables_tell_what_was_decided():
    with Stream(FILE + LOG + SERVER.format("weir bucket $remote_addr;")) as nginx:
        assert visits(nginx, 3) == 2
        nginx.until(lambda: len(nginx.access_log()) == 3)
        first, second, third = nginx.access_log()
        assert first == "127.0.0.1: PASSED bucket 1 - process 200", first
        assert second == "127.0.0.1: PASSED bucket 0 - process 200", second
        assert re.fullmatch(r"127\.0\.0\.1: REJECTED bucket 0 (3600|35\d\d) process 503", third), third
    with Stream(FILE + LOG + SERVER.format("")) as nginx:
        assert visit(nginx)
        nginx.until(nginx.access_log)
        assert nginx.access_log() == ["127.0.0.1: - - - - - 200"]


def test_a_server_inherits_checks_or_has_its_own():
    port = gateway_demo.free_port(socket.SOCK_STREAM)
    text = f"weir few $remote_addr; server {{ listen 127.0.0.1:{port}; return served; weir many $remote_addr; }}"
    with Stream(FILE + text + SERVER.format("")) as nginx:
        assert visits(nginx, 6) == 3
        assert visits(nginx, 6, port=port) == 5


def test_bytes_of_a_session_are_charged_afterwards():
    with echo() as port:
        # 300 bytes in and 300 bytes out come to 600 units of 1000.
        server = "weir window $remote_addr cost=0; weir_charge $bytes_sent; weir_charge $bytes_received; " \
                 f"proxy_pass 127.0.0.1:{port};"
        with Stream(FILE + LOG + SERVER.format(server).replace("return served;", ""), workers=2) as nginx:
            for n, remaining in enumerate((1000, 400)):
                assert exchange(nginx, 300)
                nginx.until(lambda: len(nginx.access_log()) == n + 1)
                assert nginx.access_log()[n].startswith(f"127.0.0.1: PASSED window {remaining} "), nginx.access_log()
            assert not exchange(nginx, 300)
            assert exchange(nginx, 300, "127.0.0.2")
            assert not lines(nginx, r"\[(alert|emerg|crit)\]")


def hello(name):
    """The beginning of a TLS connection to a server of this name, whatever bytes it has."""
    def sized(data, size=2):
        return len(data).to_bytes(size, "big") + data

    extension = b"\0\0" + sized(sized(b"\0" + sized(name)))
    body = b"\x03\x03" + bytes(32) + b"\0" + sized(b"\x13\x01") + sized(b"\0", 1) + sized(extension)
    return b"\x16\x03\x01" + sized(b"\x01" + sized(body, 3))


def test_what_a_client_sends_writes_no_line_of_its_own():
    name = b"\n2026/01/01 00:00:00 [alert] 1#1: \x1b[2J\x07\0\xff"
    with stream("ssl_preread on; weir few $remote_addr cost=0; weir_charge $ssl_preread_server_name;") as nginx:
        with connect(nginx) as client:
            client.sendall(hello(name))
            assert client.recv(4096) == b"served"
        said = nginx.until(lambda: [line for line in check_log(nginx).splitlines() if "is no number" in line])
        assert r'is no number: "\x0a2026/01/01 00:00:00 [alert] 1#1: \x1b[2J\x07\x00\xff"' in said[0], said


def test_refused_sessions_are_not_charged_and_a_policy_is_chosen():
    server = "weir few $remote_addr; weir window all cost=0; weir_charge 100.5 policy=window; weir_charge x policy=few;"
    with Stream(FILE + LOG + SERVER.format(server)) as nginx:
        assert visits(nginx, 6) == 3
        assert lines(nginx, '"x" of "weir_charge" is no number: "x"')
        port = gateway_demo.free_port(socket.SOCK_STREAM)
        nginx.reload(FILE + LOG + f"server {{ listen 127.0.0.1:{port}; return served; weir window all cost=0; }}")
        assert visit(nginx, port=port)
        nginx.until(lambda: len(nginx.access_log()) == 7)
        assert nginx.access_log()[-1].startswith("127.0.0.1: PASSED window 697 "), "three times 101 units"


def test_a_reload_keeps_what_keys_have_used():
    for workers, daemon in ((1, False), (4, True)):
        with stream("weir many $remote_addr;", workers=workers, daemon=daemon) as nginx:
            assert visits(nginx, 2) == 2
            nginx.reload()
            assert visits(nginx, 1) == 1
            nginx.policies = POLICIES.replace("limit: 5,", "limit: 6,")
            nginx.reload(FILE + SERVER.format("weir many $remote_addr;"))
            assert visits(nginx, 5) == 3
            nginx.policies = POLICIES.replace("limit: 5,", "limit: none,")
            nginx.write(FILE + SERVER.format("weir many $remote_addr;"))
            nginx.reload(wait=False)
            nginx.until(lambda: lines(nginx, r"\[emerg\].*many.*limit.* in .*nginx.conf:\d+"))
            assert visits(nginx, 6, "127.0.0.2") == 6
            assert not lines(nginx, r"\[(alert|crit)\]"), nginx.log()


def test_an_upgrade_keeps_what_keys_have_used_in_both_modules():
    http = ("weir_limit_req_zone $arg_k zone=one:1m rate=1r/m; "
            "server { listen 127.0.0.1:{http_port}; weir_limit_req zone=one burst=1 nodelay; }")
    with stream("weir few $binary_remote_addr;", http=http, daemon=True) as nginx:
        port, nginx.port = nginx.port, nginx.http_port
        assert visits(nginx, 2, port=port) == 2 and statuses(nginx, "/?k=1", 1) == [200]
        names = nginx.names()
        assert len(names) == 2, names
        old = nginx.upgrade()
        assert nginx.names_of(old) == nginx.names_of(nginx.master_pid()) == nginx.names() == names
        assert visits(nginx, 1, port=port) == 1
        nginx.end(old, signal.SIGQUIT)
        assert visits(nginx, 2, port=port) == 0 and statuses(nginx, "/?k=1", 2) == [200, 503] and nginx.names() == names
        assert not lines(nginx, r"\[(alert|emerg|crit|warn)\]"), nginx.log()


def test_killed_workers_leave_limits_in_force():
    with stream("weir many $remote_addr;", workers=2) as nginx:
        assert visits(nginx, 2) == 2
        old = nginx.worker_pids()
        for pid in old:
            os.kill(pid, signal.SIGKILL)
        nginx.until(lambda: len(nginx.worker_pids() - old) == 2)
        assert visits(nginx, 5) == 3


def share_of_twenty(nginx, askers, served=0):
    """
    Of all that these ask for, a limit of 20 is served, and what two nodes admit before they hear of each other. Two limits
    would serve 40. On a machine with other load the nodes hear late.
    """
    def all_served():
        nonlocal served
        served += sum(ask() for ask in askers)
        return served >= 20

    nginx.until(all_served)
    for _ in range(30):
        all_served()
    assert served <= 32, served


def test_two_nginx_share_a_limit_by_redis():
    text = LOG + FILE + SERVER.format("weir fleet $binary_remote_addr;")
    with Redis() as redis, contextlib.ExitStack() as stack:
        share = f"weir_redis {redis.url} prefix=test interval=100ms nodes=2;"
        nodes = [stack.enter_context(Stream(share + text, workers=2)) for _ in range(2)]
        nodes[0].until(lambda: node_count(redis) == 2)
        assert visits(nodes[0], 8) == 8
        nodes[0].until(lambda: any(":fleet:127.0.0.1" in key for key in redis.call("keys", "test:*")))
        share_of_twenty(nodes[0], [lambda node=node: visit(node) for node in nodes], served=8)
        # Where a machine under load has lost Redis for a moment, the word is another one for as long.
        nodes[1].until(lambda: not visit(nodes[1]) and nodes[1].access_log()[-1].split()[-2] == "fleet")


def test_http_and_streams_of_one_nginx_are_two_nodes():
    with Redis() as redis:
        share = f"weir_redis {redis.url} prefix=test interval=100ms nodes=2; {FILE}"
        http = share + "server { listen 127.0.0.1:{http_port}; location / { weir fleet everyone; } }"
        with Stream(share + SERVER.format("weir fleet everyone;"), http=http, workers=2) as nginx:
            nginx.until(lambda: node_count(redis) == 2)
            port, nginx.port = nginx.port, nginx.http_port
            share_of_twenty(nginx, [lambda: visit(nginx, port=port), lambda: nginx.get("/").status == 200])


def test_both_modules_limit_in_one_nginx_each_on_its_own():
    http = ("weir_policies {dir}/policies.yaml; weir_limit_req_zone $arg_k zone=one:1m rate=1r/m; "
            "server { listen 127.0.0.1:{http_port}; weir few $remote_addr; location /z { weir_limit_req zone=one; } }")
    with Stream(FILE + SERVER.format("weir few $remote_addr;"), http=http, workers=2) as nginx:
        assert visits(nginx, 4) == 3
        port, nginx.port = nginx.port, nginx.http_port
        assert statuses(nginx, "/", 4) == [200] * 3 + [429]
        nginx.reload()
        assert visits(nginx, 2, port=port) == 0 and statuses(nginx, "/", 2) == [429] * 2
        assert not lines(nginx, r"\[(alert|emerg|crit)\]"), nginx.log()


def test_a_module_without_policies_does_nothing():
    with Stream(SERVER.format("")) as nginx:
        assert visits(nginx, 3) == 3
        nginx.reload()
        assert visits(nginx, 3) == 3


def says(text, loads=None):
    """What nginx -t says of a configuration."""
    nginx = Stream(text, loads=loads, start=False)
    try:
        good, said = nginx.test()
        return good, said.replace(str(nginx.dir), "DIR")
    finally:
        nginx.close()


def test_configuration_errors_have_file_and_line():
    line = r" in DIR/nginx\.conf:\d+"
    wrong = {
        SERVER.format("weir few $remote_addr;"): r'"weir" needs a file of policies: "weir_policies"' + line,
        FILE + SERVER.format("weir fwe all;"): r'there is no policy "fwe" in "DIR/policies.yaml", for "weir"' + line,
        FILE + SERVER.format("weir few all cost=x;"): r'invalid cost "x": .*' + line,
        FILE + SERVER.format("weir few all size=1;"): r'invalid parameter "size=1"' + line,
        FILE + SERVER.format("weir few $arg_k;"): r'unknown "arg_k" variable',
        FILE + SERVER.format("weir few;"): r'invalid number of arguments in "weir" directive' + line,
        FILE + SERVER.format("weir few all;" * 17): r'there are more than 16 "weir" in one place' + line,
        FILE + SERVER.format("weir few all; weir_charge 1 policy=many;"): r'has policy=many, and no "weir" asks',
        FILE + SERVER.format("weir few all; weir many all; weir_charge 1;"): r"or policy=NAME; here are 2",
        FILE + SERVER.format("weir_dry_run maybe;"): r'invalid value "maybe" in "weir_dry_run" directive.*' + line,
        FILE + SERVER.format("weir_log_level crit;"): r'invalid value "crit"' + line,
        FILE + SERVER.format("weir_redis redis://127.0.0.1;"): r'"weir_redis" directive is not allowed here' + line,
        FILE + SERVER.format("weir_headers draft;"): r'unknown directive "weir_headers"' + line,
        FILE + "weir_redis http://127.0.0.1;": r"redis.*" + line,
        FILE + "weir_redis off; weir_redis off;": r'"weir_redis" directive is duplicate' + line,
        FILE + FILE: r'"weir_policies" directive is duplicate' + line,
        "weir_policies /nowhere/p.yaml;": r"/nowhere/p.yaml: .*" + line,
    }
    for text, pattern in wrong.items():
        good, said = says(text)
        assert not good and re.search(pattern, said), (text, said)
    good, said = says("weir_redis redis://127.0.0.1:1 nodes=2; weir_policies {dir}/policies.yaml keys=5000; weir_dry_run on; "
                      "weir_log_level notice;" + SERVER.format("weir many $binary_remote_addr cost=2 tier=$protocol; "
                                                               "weir_charge $session_time; weir_charge $bytes_sent;"))
    assert good, said


def test_the_stream_module_of_nginx_has_to_be_loaded_before():
    if stream_module():
        good, said = says(SERVER.format(""), loads=f"load_module {MODULE};")
        assert not good and "undefined symbol: ngx_stream" in said, said


if __name__ == "__main__":
    if nginx_demo.PROGRAM is not None and (stream_module() is None or not MODULE.exists()):
        print("1..0 # SKIP nginx has no stream module: scripts/setup nginx installs libnginx-mod-stream")
    else:
        run(dict(globals()))
