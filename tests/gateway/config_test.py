#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
A gateway whose settings are in a file, on loopback: config_test.py BUILD_DIRECTORY SOURCE_DIRECTORY [TEST...].
Prints TAP.

Guards: apps/gateway/config.c, apps/gateway/settings.c, apps/gateway/reload.c, apps/gateway/options.c, apps/gateway/listeners.c,
apps/gateway/worker.c
"""
import ctypes
import os
import pathlib
import random
import re
import select
import signal
import socket
import subprocess
import sys
import time

from listeners_test import connected, free_port, offered_of
from notify_test import ALL_CHILDREN, DETACH, INTERRUPT, SEIZE
from restart_test import Backend, Sender
from support import ask, Fixture, gateway_demo, POLICIES, run, Skipped

SEED = int(os.environ.get("SEED", "0")) or time.time_ns() % 1000000


class Configured(Fixture):
    """A gateway with a file of settings, which says all; `more`: options of the command line."""

    def __init__(self, *more, **settings):
        self.demo = gateway_demo.Demo(sys.argv[1])
        self.path = self.demo.dir / "test.yaml"
        self.path.write_text(POLICIES.format(100000))
        self.config = self.demo.dir / "gateway.conf"
        self.log = self.demo.dir / "log"
        self.port, self.http = free_port(), gateway_demo.free_port(socket.SOCK_STREAM)
        self.reads = 0
        try:
            self.backend_port = self.demo.backend()
            self.settings = {"listen": f"127.0.0.1:{self.port}", "backend": f"127.0.0.1:{self.backend_port}", "policies": "test.yaml",
                             "metrics": f"127.0.0.1:{self.http}", "threads": 2, **settings}
            self.write()
            self.child = self.demo.start(self.demo.bin / "weir-gateway", "--config", self.config, *more, stderr=open(self.log, "w"))
            self.until(self.status)
        except BaseException:
            self.demo.close()
            raise

    def write(self, **settings):
        """None takes a setting out."""
        self.settings = {name: value for name, value in {**self.settings, **{k.replace("_", "-"): v for k, v in settings.items()}}.items()
                         if value is not None}
        new = self.config.with_suffix(".new")
        new.write_text("".join(f"{name}: {value}\n" for name, value in self.settings.items()))
        new.rename(self.config)

    def hup(self):
        """Reads again. Whether that was taken."""
        before = self.status()
        self.child.send_signal(signal.SIGHUP)
        after = self.until(lambda: (s := self.status())["reloads"] + s["reload_errors"] > before["reloads"] + before["reload_errors"] and s)
        return after["reloads"] > before["reloads"]

    def reload(self, **settings):
        self.write(**settings)
        return self.hup()

    def refused(self, text, says):
        """A file that is refused with a sentence, and changes nothing."""
        kept, before = self.config.read_text(), offered_of(self)
        self.config.write_text(text)
        length = len(self.log.read_text())
        assert not self.hup(), text
        said = self.log.read_text()[length:]
        assert "error: settings stay as they were: " in said and says in said, (text, said)
        assert offered_of(self).keys() == before.keys()
        self.config.write_text(kept)


def check(f, *options):
    return subprocess.run([f.demo.bin / "weir-gateway", *map(str, options)], capture_output=True, text=True, timeout=20)


def test_every_setting_may_be_in_the_file():
    names = re.findall(r"^  --([a-z-]+)", check(Named, "--help").stdout, re.M)
    settings = [name for name in names if name not in ("check", "config", "check-config")]
    assert len(settings) >= 22, settings
    values = {"listen": "['127.0.0.1:1', '[::1]:1']", "backend": "127.0.0.1:2", "policies": "test.yaml", "kinds": "kinds.yaml", "redis": "redis://127.0.0.1:1",
              "xdp": "eth0,mode=generic", "probe-rise": "5", "probe-fall": "5", "log-level": "warning", "log-format": "json", "metrics": "127.0.0.1:3"}
    with Fixture() as f:
        (f.demo.dir / "test.yaml").write_text(POLICIES.format(200))
        (f.demo.dir / "kinds.yaml").write_text("kinds: [{name: query, match: '3f', cost: 100}]\n")
        (f.demo.dir / "secret").write_text("word\n")
        config = f.demo.dir / "all.conf"
        for left_out in ("transparent", "proxy-protocol"):  # one of both
            lines = []
            for name in settings:
                flag = name in ("allow-missing", "proxy-protocol", "no-offload", "no-denial-log", "transparent")
                lines.append(f"{name}: {values.get(name) or ('secret' if name.endswith('-file') else 'yes' if flag else 1000)}")
            lines.remove(f"{left_out}: yes")
            config.write_text("# all of them\n" + "\n".join(lines).replace("threads: 1000", "threads: 10") + "\n")
            result = check(f, "--check-config", config)
            assert result.returncode == 0 and result.stdout.startswith("source: enforce; 200 at once") and \
                result.stdout.endswith(f"kind query: costs 100\n{config}: good\n"), result


class Named:
    """The demo's place, for a call that needs no gateway."""
    demo = type("demo", (), {"bin": pathlib.Path(sys.argv[1]) / "apps/gateway"})


WRONG = (
    ("listen 127.0.0.1:1\n", ":1:1: a file of settings is a mapping"),
    ("- listen\n", ":1:1: a file of settings is a mapping"),
    ("listne: :1\n", ':1:1: there is no setting "listne"; did you mean "listen"?'),
    ("listen: :1\nbackend: :2\nredis_prefix: x\n", ':3:1: there is no setting "redis_prefix"; did you mean "redis-prefix"?'),
    ("listen: :1\nbackend: :2\n--threads: 2\n", ':3:1: there is no setting "--threads"; leave out the dashes: "threads"'),
    ("listen: :1\nupstream: :2\n", ':2:1: there is no setting "upstream"; did you mean "backend"?'),
    ("listen: :1\nbackend: :2\nzzzzzzzzz: 1\n", ':3:1: there is no setting "zzzzzzzzz"; weir-gateway --help lists them'),
    ("listen: :1\nbackend: :2\noverrides: {a: deny}\n", ":3:1: overrides belong to the policy file"),
    ("listen: :1\nlisten: :2\nbackend: :3\n", ":2:1: listen is given twice, first at line 1"),
    ("listen: [':1', x]\nbackend: :3\n", ":1:16: listen x: is no address"),
    ("listen: [':1', ':1']\nbackend: :3\n", ":1:16: listen :1: is given twice"),
    ("listen: []\nbackend: :3\n", ":1:9: listen is an empty list"),
    ("listen: {a: b}\nbackend: :3\n", ":1:9: listen is an address, or a list of addresses"),
    ("listen: [[':1']]\nbackend: :3\n", ":1:10: listen is an address, or a list of addresses"),
    ("listen: :1\nthreads: [1, 2]\nbackend: :2\n", ":2:10: threads is one value"),
    ("listen: :1\nbackend: 'ho st:3'\n", ":2:10: backend ho st:3: is no address"),
    ("listen: :1\nbackends: [':3', ':3,weight=2']\n", ":2:18: backend :3,weight=2: :3 is given twice"),
    ("listen: :1\nbackends: [':3,weight=0']\n", ":2:12: backend :3,weight=0: weight: give a number from 1 to 256"),
    ("listen: :1\nbackends:\n  - {address: ':3', wieght: 2}\n", ':3:21: there is no field "wieght" in a backend; did you mean "weight"?'),
    ("listen: :1\nbackends:\n  - {address: ':3', weight: x}\n", ":3:15: backend :3,weight=x: weight: give a number"),
    ("listen: :1\nbackends:\n  - {weight: 3}\n", ":3:5: a backend needs an address"),
    ("listen: :1\nbackends:\n  - {address: ':3', drain: maybe}\n", ":3:28: drain is true or false"),
    ("listen: :1\nbackends:\n  - {address: [':3']}\n", ":3:6: address of a backend is one value"),
    ("listen: :1\nbackends: [':3']\nbackend: :4\n", ":3:1: backend is given twice, first at line 2"),
    ("listen: :1\nbackend: :2\nprobe: '0xzz'\n", ":3:8: probe 0xzz: "),
    ("listen: :1\nbackend:\n", ":2:9: backend has no value"),
    ("listen: :1\nbackend: :1\n", ":2:10: backend :1: is the address it listens on"),
    ("listen: :1\nbackend: :2\nthreads: 0\n", ":3:10: threads 0: give a number from 1 to 64"),
    ("listen: :1\nbackend: :2\nthreads: -1\n", ":3:10: threads -1: give a number from 1 to 64"),
    ("listen: :1\nbackend: :2\nidle: 99999999999999999999\n", ":3:7: idle 99999999999999999999: give a number"),
    ("listen: :1\nbackend: :2\nproxy-protocol: 2\n", ':3:17: proxy-protocol is "2"; give true or false'),
    ("listen: :1\nbackend: :2\nlog-level: warn\n", ':3:12: log-level warn: did you mean "warning"?'),
    ("listen: :1\nbackend: :2\nxdp: 'a b'\n", ":3:6: xdp a b: give an interface"),
    ("listen: :1\nbackend: :2\npolicies: [{name: source}]\n", ":3:11: policies is the path of a policy file here"),
    ("listen: :1\nbackend: :2\nredis: redis://h\n", ":3:8: redis: there are no limits to share"),
    ("listen: :1\n", "--listen and --backend are needed"),
    ("listen: [':1'\nbackend: :2\n", "this is not YAML"),
    ("listen: *a\n", "is an alias"),
    ("? [a]\n: b\n", ":1:3: the name of a setting is a word"),
    ("listen: [" + ", ".join(f"':{n}'" for n in range(1, 18)) + "]\nbackend: :2\n", "listen :17: is one too many"),
)


def test_a_wrong_file_is_refused_with_its_place():
    with Configured() as f:
        config = f.demo.dir / "wrong.conf"
        for text, says in WRONG:
            config.write_text(text)
            for options in (("--config", config), ("--check-config", config)):
                result = check(f, *options)
                assert result.returncode == 2 and says in result.stderr and "offered" not in result.stderr, (text, result)
                assert says.startswith(":") is False or str(config) + says in result.stderr, (text, result)
        result = check(f, "--config", "/nonexistent/x")
        assert result.returncode == 1 and "/nonexistent/x: cannot be read: No such file" in result.stderr, result
        config.write_text("listen: :1\nbackend: :2\npolicies: nothing.yaml\n")
        result = check(f, "--check-config", config)
        assert result.returncode == 2 and f"{f.demo.dir}/nothing.yaml: cannot be read" in result.stderr, result


def test_a_wrong_file_at_a_reload_changes_nothing():
    with Configured() as f:
        for text, says in WRONG:
            f.refused(text, says if not says.startswith(":") else str(f.config) + says)
        good = f.config.read_text()
        taken = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        taken.bind(("127.0.0.1", 0))
        busy, other = f"127.0.0.1:{taken.getsockname()[1]}", f"127.0.0.1:{free_port()}"
        with socket.create_server(("127.0.0.1", 0)) as http:
            for listen, more, says in ((busy, "", f":1:{14 + len(other)}: listen {busy}: Address already in use"),
                                       ("name.invalid:1", "", "listen name.invalid:1: "),
                                       (f"127.0.0.1:{f.port}", f"metrics: 127.0.0.1:{http.getsockname()[1]}\n",
                                        "metrics 127.0.0.1:%d: Address already in use" % http.getsockname()[1]),
                                       (f"127.0.0.1:{f.backend_port}", "", "is the address it listens on")):
                text = re.sub("listen: .*", f"listen: ['{other}', '{listen}']", good)
                f.refused((re.sub("metrics: .*\n", "", text) if more else text) + more, says)
        taken.close()
        # The policies belong to it: where they are refused, no listener comes.
        f.path.write_text("policies: x\n")
        f.refused(re.sub("listen: .*", f"listen: '{other}'", good), "the policies were refused")
        f.path.write_text(POLICIES.format(100000))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
            free.bind(("127.0.0.1", int(other.split(":")[1])))  # nobody has it
        with connected("127.0.0.1", f.port) as client:
            assert ask(client) == b"?"
        assert f.hup()


def test_the_command_line_goes_before_the_file():
    other = free_port()
    with Configured("--listen", f"127.0.0.1:{other}", "--threads", "1") as f:
        assert offered_of(f).keys() == {f"127.0.0.1:{other}"} and f.status()["threads"] == 1
        assert f.reload(threads=3, listen=f"127.0.0.1:{free_port()}")
        assert offered_of(f).keys() == {f"127.0.0.1:{other}"} and f.status()["waiting"] == []
        with connected("127.0.0.1", other) as client:
            assert ask(client) == b"?"


def test_listeners_come_and_go():
    ports = [free_port() for _ in range(4)]
    with Configured() as f:
        first = connected("127.0.0.1", f.port)
        assert ask(first) == b"?"
        for there in ([0], [0, 1], [1, 2], [2, 3, 0], [], [3]):
            assert f.reload(listen="[" + ", ".join(f"'127.0.0.1:{p}'" for p in [f.port, *(ports[i] for i in there)]) + "]")
            wanted = {f"127.0.0.1:{p}" for p in [f.port, *(ports[i] for i in there)]}
            assert offered_of(f).keys() == wanted, (offered_of(f), wanted, f.log.read_text())
            for i in there:
                with connected("127.0.0.1", ports[i]) as client:
                    assert ask(client, b"%d" % i) == b"%d" % i
            for i in set(range(4)) - set(there):
                def refused():
                    with connected("127.0.0.1", ports[i]) as client:
                        try:
                            client.settimeout(0.2)
                            client.send(b"?")
                            client.recv(10)
                        except ConnectionRefusedError:
                            return True
                        except TimeoutError:
                            return False
                f.until(refused)
            assert ask(first) == b"?"
        f.until(lambda: f.status()["sessions"] == 2)  # of the first client, and of the last listener's
        # From one address to all of them, and back: the port stays.
        for listen in (f":{f.port}", f"0.0.0.0:{f.port}", f"127.0.0.1:{f.port}"):
            assert f.reload(listen=listen)
            assert offered_of(f).keys() == {listen}
            f.until(lambda: ask_again(first))
        # More of them than there are places: one that has gone leaves its place to another.
        for _ in range(4):
            come = [f"'127.0.0.1:{free_port()}'" for _ in range(12)]
            assert f.until(lambda: f.reload(listen=f"[{', '.join(come)}]")), f.log.read_text()
        assert "packets that come now may be lost" not in f.log.read_text(), f.log.read_text()


def ask_again(client):
    try:
        client.settimeout(0.5)
        return ask(client) == b"?"
    except (TimeoutError, ConnectionRefusedError):
        return False


def test_a_change_of_other_listeners_loses_no_packet():
    backend = Backend()
    try:
        with Configured(backend=f"127.0.0.1:{backend.port}") as f:
            second = free_port()
            both = f"['127.0.0.1:{f.port}', '127.0.0.1:{second}']"
            assert f.reload(listen=both)
            sender = Sender(backend, [("127.0.0.1", f.port)])
            try:
                for listen in ([both, f"127.0.0.1:{f.port}"] * 8):
                    due = sender.sent + 300
                    assert f.reload(listen=listen)
                    f.until(lambda: sender.sent >= due)
            finally:
                sender.stop()
            f.until(lambda: backend.count == sender.sent)
            assert backend.twice == sender.refused == 0
            f.until(lambda: f.status()["offered"] == sender.sent)
    finally:
        backend.close()


def test_a_listener_that_goes_serves_what_it_was_given():
    """As a gateway that ends: another gateway takes over the address of one listener, and no packet is lost."""
    backend = Backend()
    try:
        with Configured(backend=f"127.0.0.1:{backend.port}") as f:
            port = free_port()
            one, both = f"127.0.0.1:{f.port}", f"['127.0.0.1:{f.port}', '127.0.0.1:{port}']"
            assert f.reload(listen=both)
            sender = Sender(backend, [("127.0.0.1", port)])
            http = gateway_demo.free_port(socket.SOCK_STREAM)
            try:
                for listen in (one, both) * 3:
                    due = sender.sent + 500
                    if listen == one:
                        other = f.demo.start(f.demo.bin / "weir-gateway", "--listen", f"127.0.0.1:{port}", "--backend",
                                             f"127.0.0.1:{backend.port}", "--metrics", f"127.0.0.1:{http}", stderr=subprocess.DEVNULL)
                        f.until(lambda: gateway_demo.status(http))
                    assert f.reload(listen=listen)
                    f.until(lambda: sender.sent >= due)
                    if listen == both:
                        other.send_signal(signal.SIGTERM)
                        assert other.wait(20) == 0
            finally:
                sender.stop()
            f.until(lambda: backend.count == sender.sent)
            assert backend.twice == sender.refused == 0, (backend.twice, sender.refused)
    finally:
        backend.close()


def test_a_listener_that_goes_serves_what_waits_in_its_socket():
    """More than a thread reads at once."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    with Configured(threads=1) as f:
        port = free_port()
        one, both = f"127.0.0.1:{f.port}", f"['127.0.0.1:{f.port}', '127.0.0.1:{port}']"
        assert f.reload(listen=both)
        clients = [connected("127.0.0.1", port) for _ in range(15)]
        others = {int(task.name) for task in pathlib.Path(f"/proc/{f.child.pid}/task").iterdir()} - {f.child.pid}
        for thread in others:
            if libc.ptrace(SEIZE, thread, None, None) != 0:
                raise Skipped("threads of another process cannot be stopped here")
            assert libc.ptrace(INTERRUPT, thread, None, None) == 0
            os.waitpid(thread, ALL_CHILDREN)
        for client in clients:
            for n in range(20):
                client.send(b"%d" % n)
        length = len(f.log.read_text())
        f.write(listen=one)
        f.child.send_signal(signal.SIGHUP)
        f.until(lambda: "are in force" in f.log.read_text()[length:])
        for thread in others:
            assert libc.ptrace(DETACH, thread, None, None) == 0
        for client in clients:
            assert [client.recv(10) for _ in range(20)] == [b"%d" % n for n in range(20)]
            client.close()
        f.until(lambda: f.status()["sessions"] == 0)
        assert f.status()["replies"] == 300


def test_kinds_of_packets_are_read_again_with_the_policies():
    with Configured() as f:
        kinds = f.demo.dir / "kinds.yaml"
        kinds.write_text("kinds: [{name: query, match: '3f', cost: 50000}]\n")
        assert f.reload(kinds="kinds.yaml")
        with connected("127.0.0.1", f.port) as client:
            for _ in range(10):
                client.send(b"?")
            f.until(lambda: f.status()["offered"] == 10)
        dropped = sum(f.status()["dropped"].values())
        assert dropped >= 6, dropped
        kinds.write_text("kinds: [{name: query, match: '3f', costs: 1}]\n")
        length = len(f.log.read_text())
        assert not f.hup() and "did you mean \"cost\"" in f.log.read_text()[length:], f.log.read_text()
        assert f.reload(kinds=None)
        with connected("127.0.0.1", f.port) as client:
            f.until(lambda: client.send(b"?") and f.status()["passed"] > 20)


def test_settings_that_may_change_do():
    with Configured(**{"log-format": "text"}) as f:
        # Policies of another file.
        (f.demo.dir / "other.yaml").write_text(POLICIES.format(7))
        assert f.reload(policies="other.yaml")
        with connected("127.0.0.1", f.port) as client:
            def denies():
                for _ in range(50):
                    client.send(b"?")
                return f.status()["dropped"]["source"] >= 40
            f.until(denies)
        f.until(lambda: "policy source begins to deny" in f.log.read_text())
        # How long clients are remembered.
        assert f.status()["sessions"] == 1 and f.reload(idle=1)
        f.until(lambda: f.status()["sessions"] == 0)
        # Where pages are served.
        old, f.http = f.http, gateway_demo.free_port(socket.SOCK_STREAM)
        f.write(metrics=f"127.0.0.1:{f.http}")
        f.child.send_signal(signal.SIGHUP)
        f.until(f.status)

        def is_closed():  # the new address is served first
            try:
                socket.create_connection(("127.0.0.1", old), 20).close()
            except ConnectionRefusedError:
                return True
            return False
        f.until(is_closed)
        # The log.
        assert f.reload(log_format="json")
        assert f.log.read_text().splitlines()[-1].startswith('{"time":')
        length = len(f.log.read_text())
        assert f.reload(log_level="error") and f.hup()
        assert len(f.log.read_text()) == length
        assert f.reload(log_level="info", no_denial_log="true")


def test_backends_come_and_go():
    """Clients go to the backends of the file; one that drains keeps those that it has."""
    ends = []
    for _ in range(3):
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        s.bind(("127.0.0.1", 0))
        s.settimeout(20)
        ends.append(s)
    ports = [s.getsockname()[1] for s in ends]

    def reached(f, client):
        """The end that a client's packet comes to."""
        client.send(b"?")
        ready, _, _ = select.select(ends, [], [], 20)
        ready[0].recv(10)
        return ends.index(ready[0])
    with Configured(backend=f"127.0.0.1:{ports[0]}") as f, connected("127.0.0.1", f.port) as first:
        assert reached(f, first) == 0
        f.write(backend=None)
        assert f.reload(backends=f"[{{address: '127.0.0.1:{ports[0]}', drain: true}}, {{address: '127.0.0.1:{ports[1]}', weight: 3}}]")
        assert {b["backend"]: b["weight"] for b in f.status()["backends"]} == {f"127.0.0.1:{ports[0]}": 1, f"127.0.0.1:{ports[1]}": 3}
        with connected("127.0.0.1", f.port) as second:
            f.until(lambda: reached(f, second) == 1)
            assert reached(f, first) == 0
            assert f.reload(backends=f"[127.0.0.1:{ports[2]}]")
            f.until(lambda: reached(f, first) == 2 == reached(f, second))
            f.refused(f"listen: 127.0.0.1:{f.port}\nbackends: ['127.0.0.1:{ports[0]}', '127.0.0.1:{ports[0]},weight=2']\n", "backend")
            assert reached(f, first) == 2
        assert f.status()["waiting"] == []
    for s in ends:
        s.close()


def test_the_lines_about_denials_can_be_turned_on_and_off():
    with Configured(**{"no-denial-log": "true"}) as f:
        def denies():
            with connected("127.0.0.1", f.port) as client:
                for _ in range(20):
                    client.send(b"?")
        f.path.write_text(POLICIES.format(7))
        assert f.hup()
        for _ in range(20):  # the line that it begins to deny comes within a second
            denies()
            time.sleep(0.1)
        assert f.status()["dropped"]["source"] != 0 and "policy source" not in f.log.read_text()
        assert f.reload(no_denial_log=None)
        f.until(lambda: (denies(), "policy source denies" in f.log.read_text())[1])


def test_what_needs_a_restart_is_named_once():
    with Configured(threads=1) as f:
        assert f.status()["waiting"] == []
        assert f.reload(threads=2, sessions=100, max_keys=5000)
        assert sorted(f.status()["waiting"]) == ["max-keys", "sessions", "threads"] and f.status()["threads"] == 1
        said = f"warning: {f.config}: threads, sessions, max-keys: a change waits for a restart\n"
        assert f.log.read_text().count(said) == 1 == f.log.read_text().count("waits for")
        assert "\nweir_gateway_waiting_settings 3\n" in f.get("/metrics")
        assert f.hup() and f.log.read_text().count("waits for") == 1
        assert f.reload(threads=3)
        assert f.log.read_text().endswith(" are in force, and policies of " + str(f.path) + "\n")
        assert f"warning: {f.config}: threads: a change waits" in f.log.read_text() and f.log.read_text().count("waits for") == 2
        assert f.reload(threads=1, sessions=None, max_keys=262144)  # as it began: the last is the default
        assert f.status()["waiting"] == [] and f.log.read_text().count("waits for") == 2
        assert f.reload(policies=None)
        assert f.status()["waiting"] == ["policies"] and f.status()["limited"] is True
        assert f.hup() and f.reload(policies="test.yaml") and f.status()["waiting"] == []


def test_random_files_are_taken_or_refused_with_a_place():
    print(f"# SEED={SEED}", flush=True)
    dice = random.Random(SEED)
    with Fixture() as f:
        config = f.demo.dir / "random.conf"
        good = ("listen: ['127.0.0.1:1', '[::1]:2']\nbackend: 127.0.0.1:3\nthreads: 2\nidle: 30\nproxy-protocol: yes\nlog-level: info\n"
                "no-denial-log: false\nredis-prefix: weir\nxdp: eth0\nmetrics: 127.0.0.1:4\n").encode()
        taken = 0
        for _ in range(150):
            text = bytearray(good)
            for _ in range(dice.randrange(3)):
                at, kind = dice.randrange(len(text)), dice.randrange(4)
                if kind == 0:
                    text[at] = dice.randrange(256)
                elif kind == 1:
                    del text[at:at + dice.randrange(1, 30)]
                elif kind == 2:
                    text[at:at] = bytes(dice.choice(b"[]{}:,-'\"#&*!|>%@`? \n\t0ax") for _ in range(dice.randrange(1, 5)))
                else:
                    text[at:at] = text[dice.randrange(len(text)):][:dice.randrange(1, 200)]
            config.write_bytes(text)
            result = subprocess.run([f.demo.bin / "weir-gateway", "--check-config", config], capture_output=True, timeout=20)
            said = result.stderr.decode(errors="replace")
            taken += result.returncode == 0
            assert result.returncode in (0, 2), (bytes(text), result)
            assert result.returncode == 0 or re.match(rf"weir-gateway: {re.escape(str(config))}:\d+:\d+: .+\n\Z", said, re.S) or \
                "are needed" in said, (bytes(text), said)
        assert taken > 5, taken


if __name__ == "__main__":
    run(globals())
