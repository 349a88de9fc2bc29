#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Denials in the kernel, between two network namespaces: xdp_test.py BUILD_DIRECTORY SOURCE_DIRECTORY [TEST...]. Prints TAP.

The gateway is at one end of a veth pair, its clients are at the other.

Guards: apps/gateway/xdp/xdp.c, apps/gateway/xdp/link.c, apps/gateway/xdp/locals.c, apps/gateway/xdp/drop.bpf.c
"""
import contextlib
import os
import pathlib
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

from hosts import addresses, host_names, hosts, ip, LIBC, on, wire
from support import Fixture, forge, Redis, run, Skipped

GATEWAY, CLIENTS = host_names("ab")
FIRST, SECOND = "10.77.1.2", "10.77.1.3"


def lay():
    addresses(GATEWAY, "wire", "10.77.1.1/16", "10.77.9.1/16", "fd77::1/64")
    addresses(CLIENTS, "wire", FIRST + "/16", SECOND + "/16", "10.77.2.2/16", "fd77::2/64", "fd77::3/64")


def network():
    """Two hosts and a wire. Inside, this process is on the gateway's host."""
    return hosts((GATEWAY, CLIENTS), (wire(GATEWAY, "wire", CLIENTS, "wire"),), lay)


def policies_of(mode="enforce", **limits):
    return "policies:\n" + "".join(f"  - {{name: {name}, mode: {mode}, limits: [{limit}]}}\n" for name, limit in limits.items())


ONCE = "{algorithm: fixed_window, limit: 5, period: 30d}"
HUNDRED = "{algorithm: token_bucket, limit: 100, period: 1s, burst: 1000}"  # room for ten seconds without a packet


# Gateways that are killed.
ROUNDS = int(os.environ.get("WEIR_KILLS", "25"))


class Client:
    """A socket on the clients' host."""

    def __init__(self, f, source, to="10.77.1.1"):
        with on(CLIENTS):
            self.socket = socket.socket(socket.AF_INET6 if ":" in source else socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind((source, 0))
        self.socket.connect((to, f.port))
        self.socket.setblocking(False)
        self.returned = 0

    def send(self, count=1, size=10):
        for _ in range(count):
            self.socket.send(b"x" * size)
        self.hear()

    def hear(self):
        with contextlib.suppress(BlockingIOError):
            while True:
                self.socket.recv(65536)
                self.returned += 1
        return self.returned

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()


@contextlib.contextmanager
def gateway(*more, listen="10.77.1.1", policies=policies_of(source=ONCE), option="wire"):
    with network(), Fixture("--xdp", option, *more, listen=listen, threads=1, policies=policies) as f:
        f.until(lambda: "is on" in f.log.read_text() or "->" in f.log.read_text())
        if f.status()["kernel"] is None:
            log = f.log.read_text()
            if "was built without" in log or "loads no program" in log or "cannot take the program" in log:
                raise Skipped([line for line in log.splitlines() if "--xdp" in line][0])
            raise AssertionError(log)
        yield f


def drops(f):
    return f.status()["kernel"]["dropped"]


def have_dropped(f, client):
    """Sends until the kernel drops packets of the client."""
    before = drops(f)

    def dropped():
        client.send(20)
        return drops(f) > before
    f.until(dropped)


def test_what_a_source_is_denied_is_dropped_in_the_kernel_and_counted():
    for option, mode in (("wire", "native"), ("wire,mode=generic", "generic"), ("wire,mode=native", "native")):
        with gateway(option=option) as f, Client(f, FIRST) as one, Client(f, SECOND) as other:
            assert f.status()["kernel"]["mode"] == mode and f"the kernel drops packets at wire (XDP, {mode})" in f.log.read_text()
            have_dropped(f, one)
            # It is let go after a second of silence, so it goes on until this has been seen.
            f.until(lambda: (one.send(), f.status()["kernel"]["keys"] == 1)[1])
            other.send(5)
            f.until(lambda: other.hear() == 5)
            f.until(lambda: (one.send(20), drops(f) >= 100)[1])
            status = f.status()
            assert one.hear() == 5 and status["passed"] == 10, status
            assert status["kernel"]["dropped_bytes"] == 10 * status["kernel"]["dropped"], status
            # Dropped here or there: the list of offenders has all of them.
            denied = f.until(lambda: (o := f.status()["offenders"]) and o[0]["denied"] >= status["kernel"]["dropped"] and o[0])
            assert denied["source"] == FIRST, denied
            assert "\nweir_gateway_kernel_dropped_packets_total " in f.get("/metrics")
            f.until(lambda: (one.send(), "\nweir_gateway_kernel_held_keys 1\n" in f.get("/metrics"))[1])
            # A key whose client has gone is let go.
            f.until(lambda: f.status()["kernel"]["keys"] == 0)


def test_a_source_passes_as_soon_as_its_limit_lets_it():
    """A bucket is never dropped dry: what comes back is what the bucket has, with and without the kernel."""
    with gateway(policies=policies_of(source=HUNDRED)) as f, Client(f, FIRST) as one:
        first = time.monotonic()
        f.until(lambda: (one.send(20), f.status()["dropped"]["source"] > 0)[1])
        empty, had = time.monotonic(), one.hear()
        behind = []  # how many packets the source could have had more
        while time.monotonic() - empty < 4:
            one.send(2)
            time.sleep(0.001)
            behind.append(had + 100 * (time.monotonic() - empty) - one.hear())
        assert statistics.median(behind) < 8, statistics.median(behind)  # single ones where this process stood still
        last = time.monotonic()
        f.until(lambda: (one.send(20), one.hear() + 2 >= had + 97 * (last - empty))[1])
        time.sleep(0.1)  # and no more comes than that
        heard, most = one.hear(), 1002 + 100 * (time.monotonic() - first)
        assert heard <= most, (heard, most)

        def is_kept_out():
            before = f.status()
            for _ in range(200):
                one.send(2)
                time.sleep(0.001)
            now = f.status()
            return now["kernel"]["dropped"] - before["kernel"]["dropped"] > now["offered"] - before["offered"]
        f.until(is_kept_out)


def test_a_source_that_goes_on_stays_out_of_the_gateway():
    """No packet in 2.5 s, though the kernel drops packets for a second at a time: the limit is asked in between."""
    with gateway() as f, Client(f, FIRST) as one:
        have_dropped(f, one)

        def flood():
            before, end = f.status(), time.monotonic() + 2.5
            while time.monotonic() < end:
                one.send(2)
                time.sleep(0.005)
            now = f.status()
            return now["offered"] == before["offered"] and now["kernel"]["dropped"] > before["kernel"]["dropped"]
        f.until(flood)


def test_a_reload_lets_a_source_pass_at_once():
    with gateway() as f, Client(f, FIRST) as one:
        have_dropped(f, one)
        f.path.write_text(policies_of(source=ONCE.replace("5", "1000")))
        f.child.send_signal(signal.SIGHUP)
        f.until(lambda: f.status()["reloads"] == 1)
        before = one.hear()
        one.send()
        f.until(lambda: one.hear() == before + 1)


def test_an_override_lets_a_source_pass():
    with Redis() as redis, gateway("--redis", f"unix://:a%25b%3Ac%40d%2Fe%3Ff%20g@{redis.socket}", "--sync-interval-ms", "50") as f, \
            Client(f, FIRST) as one:
        f.until(lambda: f.status()["redis"] == "up")
        have_dropped(f, one)
        redis.call("HSET", "weir:overrides", f"source:{FIRST}", "allow")
        before = one.hear()

        def passes():
            one.send()
            return one.hear() > before
        f.until(passes)
        redis.call("HSET", "weir:overrides", f"source:{FIRST}", "deny")
        f.until(lambda: (one.send(), f.status()["policies"]["source"]["dropped"])[1])
        have_dropped(f, one)


def test_a_network_that_all_policies_allow_passes_a_network_that_is_dropped():
    """The kernel drops no network with it; without it, and sources that are denied, it does."""
    limits = policies_of(source=ONCE.replace("5", "100000"), network24=ONCE)
    with gateway(policies=limits + f'overrides: {{"*:{FIRST}": allow, "*:10.77.2.2": deny}}\n') as f, Client(f, FIRST) as one, \
            Client(f, SECOND) as neighbour, Client(f, "10.77.2.2") as denied:
        have_dropped(f, denied)
        for _ in range(20):
            neighbour.send(50)
            one.send(5)
            time.sleep(0.05)
        status = f.until(lambda: (s := f.status()) and one.hear() == 100 and s)
        assert neighbour.hear() == 5 and status["passed"] == 105 and status["offered"] >= 1100, status  # all but the denied one's
        assert denied.hear() == 0
        f.path.write_text(limits)
        f.child.send_signal(signal.SIGHUP)
        f.until(lambda: f.status()["reloads"] == 1)
        have_dropped(f, neighbour)


def test_networks_and_ipv6_are_dropped_too():
    limits = policies_of(source=ONCE.replace("5", "100000"), network24=ONCE, network64=ONCE.replace("5", "7"))
    with gateway(listen="", policies=limits) as f, Client(f, FIRST) as one, Client(f, SECOND) as neighbour, \
            Client(f, "10.77.2.2", "10.77.9.1") as other, Client(f, "fd77::2", "fd77::1") as v6, Client(f, "fd77::3", "fd77::1") as v6_too:
        have_dropped(f, one)
        before = drops(f)
        f.until(lambda: (neighbour.send(20), drops(f) >= before + 100)[1])
        other.send(5)
        f.until(lambda: other.hear() == 5)  # another /24, to another address of the gateway
        have_dropped(f, other)
        v6.send(4)
        v6_too.send(3)
        f.until(lambda: v6.hear() == 4 and v6_too.hear() == 3)
        have_dropped(f, v6)
        have_dropped(f, v6_too)
        assert (one.hear() + neighbour.hear(), other.hear(), v6.hear() + v6_too.hear()) == (5, 5, 7)
        assert f.status()["dropped"]["source"] == 0


KINDS = "kinds:\n  - {name: dear, match: 'ff', cost: 10}\n  - {name: own, match: 'dd'}\n  - {name: free, match: 'ee', cost: 0}\n"


def send_of(client, first, count):
    for _ in range(count):
        client.socket.send(first + bytes(50))


def test_a_source_is_not_dropped_while_a_packet_of_another_kind_would_pass():
    """A limit of one kind, and a packet that costs more than is left, hold no source in the kernel."""
    with tempfile.TemporaryDirectory() as place:
        kinds = pathlib.Path(place) / "kinds.yaml"
        kinds.write_text(KINDS.replace("cost: 0", "cost: 2"))
        limits = policies_of(**{"source": ONCE.replace("5", "25"), "source.own": ONCE.replace("5", "1")})
        with gateway("--kinds", str(kinds), policies=limits) as f, Client(f, FIRST) as one:
            send_of(one, b"\xdd", 100)  # 1 passes
            send_of(one, b"\xff", 100)  # 2 pass, and 4 are left
            status = f.until(lambda: (s := f.status())["offered"] == 200 and s)
            assert status["kernel"]["keys"] == 0 and status["kernel"]["dropped"] == 0 and status["passed"] == 3, status
            send_of(one, b"\x00", 4)
            f.until(lambda: f.status()["passed"] == 7)
            have_dropped(f, one)  # nothing is left that any packet could cost
            # With a kind that costs nothing some packets always pass.
            kinds.write_text(KINDS)
            f.child.send_signal(signal.SIGHUP)
            f.until(lambda: f.status()["reloads"] == 1)
            f.until(lambda: f.status()["kernel"]["keys"] == 0)
            before = f.status()
            send_of(one, b"\x00", 100)
            send_of(one, b"\xee", 5)
            f.until(lambda: f.status()["passed"] == before["passed"] + 5)
            assert f.status()["kernel"]["dropped"] == before["kernel"]["dropped"]


def test_all_other_packets_pass():
    with gateway() as f, Client(f, FIRST) as one:
        have_dropped(f, one)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other, socket.create_server(("10.77.1.1", 0)) as tcp:
            other.bind(("10.77.1.1", 0))  # another port, of a source that is dropped
            other.settimeout(20)
            fixture = type("port", (), {"port": other.getsockname()[1]})
            with Client(fixture, FIRST) as to_other:
                for size in (0, 1, 1400, 4000):  # the last one in fragments
                    to_other.send(size=size)
                    assert len(other.recv(65536)) == size
            with Client(f, FIRST, "10.77.9.1") as elsewhere, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as there:
                there.bind(("10.77.9.1", f.port))  # the same port of another address
                there.settimeout(20)
                elsewhere.send()
                assert there.recv(100)
            with on(CLIENTS), socket.create_connection(tcp.getsockname(), timeout=20, source_address=(FIRST, 0)):
                pass
            tcp.accept()[0].close()


def test_packets_to_each_listener_are_dropped():
    port = 7001
    there = type("port", (), {"port": port})
    with gateway("--listen", f"10.77.9.1:{port}", "--listen", f"[fd77::1]:{port}") as f, Client(f, FIRST) as one, \
            Client(there, SECOND, "10.77.9.1") as two, Client(there, "fd77::2", "fd77::1") as three:
        for client in (one, two, three):
            have_dropped(f, client)
            assert client.hear() == 5
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other, Client(there, FIRST) as to_other:
            other.bind(("10.77.1.1", port))  # the address of one listener, and the port of another
            other.settimeout(20)
            to_other.send()
            assert other.recv(100)


def test_packets_of_no_client_are_dropped_in_the_kernel():
    for option in ("wire", "wire,mode=generic"):
        with gateway("--listen", "10.77.9.1:7001", "--listen", ":7002", "--listen", "[fd77::1]:7003", option=option) as f:
            of_none = [(FIRST, 0), (FIRST, 7), (FIRST, 19), ("10.77.1.1", f.port), ("10.77.9.1", 7001), ("10.77.9.1", 7002), ("10.77.1.1", 7002)]
            of_some = [(FIRST, 1), (FIRST, 9), (FIRST, f.port), (SECOND, 7001), (SECOND, 7002)]
            of_none6 = [("fd77::2", 0), ("fd77::2", 37), ("fd77::1", 7002), ("fd77::1", 7003)]
            of_some6 = [("fd77::2", 7002), ("fd77::2", 7003), ("fd77::2", 8)]
            dropped = offered = 0
            for sources, places in ((of_none, (("10.77.1.1", f.port), ("10.77.9.1", 7001), ("10.77.1.1", 7002))),
                                    (of_some, (("10.77.1.1", f.port),)), (of_none6, (("fd77::1", 7002), ("fd77::1", 7003))),
                                    (of_some6, (("fd77::1", 7003),))):
                for source in sources:
                    for to in places:
                        with on(CLIENTS):
                            forge(source, to)
                        dropped, offered = dropped + (sources in (of_none, of_none6)), offered + (sources in (of_some, of_some6))
                        status = f.until(lambda: (s := f.status())["invalid_sources"] + s["offered"] >= dropped + offered and s)
                        assert (status["invalid_sources"], status["offered"]) == (dropped, offered), (source, to, status)
            assert f"\nweir_gateway_invalid_source_packets_total {dropped}\n" in f.get("/metrics") and f.status()["kernel"]["dropped"] == 0


def test_shadow_mode_and_the_overall_limit_drop_nothing_in_the_kernel():
    with gateway(policies=policies_of(overall=ONCE) + policies_of(mode="shadow", source=ONCE).removeprefix("policies:\n")) as f, \
            Client(f, FIRST) as one:
        for _ in range(20):
            one.send(50)
        f.until(lambda: f.status()["dropped"]["overall"] == 995)
        assert f.status()["kernel"] == {"interface": "wire", "mode": "native", "keys": 0, "dropped": 0, "dropped_bytes": 0}


def attached():
    """What the kernel has at the gateway's interface."""
    return "xdp" in ip("link", "show", "wire", host=GATEWAY)


def mode(f):
    return f.status()["kernel"]["mode"]


def lay_anew():
    ip(*wire(GATEWAY, "wire", CLIENTS, "wire"))
    lay()


AWAY = "--xdp wire: there is no interface wire; packets are dropped here and not in the kernel until the program is on it again"


def test_an_interface_that_goes_and_comes_back_has_its_program_again():
    for option, its in (("wire", "native"), ("wire,mode=generic", "generic")):
        with gateway(option=option) as f, Client(f, FIRST) as one:
            have_dropped(f, one)
            for n in range(1, 4):
                ip("link", "del", "wire", host=GATEWAY)
                f.until(lambda: mode(f) == "off")
                assert "\nweir_gateway_kernel_attached 0\n" in f.get("/metrics")
                time.sleep(1.5)  # the next looks say nothing
                assert f.log.read_text().count(AWAY) == n, f.log.read_text()
                lay_anew()
                f.until(lambda: mode(f) == its)
                assert attached() and f.log.read_text().count(f"--xdp wire: the program is on the interface again (XDP, {its})") == n
                assert "\nweir_gateway_kernel_attached 1\n" in f.get("/metrics")
                have_dropped(f, one)
            before = drops(f)
            f.until(lambda: (one.send(20), drops(f) >= before + 100)[1])


def test_an_interface_that_is_replaced_between_two_looks_has_the_program():
    """Under another index, or by another one of its name; one that is down and up again keeps it."""
    with gateway() as f, Client(f, FIRST) as one:
        have_dropped(f, one)
        ip("link", "set", "wire", "down", host=GATEWAY)
        time.sleep(1.5)
        ip("link", "set", "wire", "up", host=GATEWAY)
        assert mode(f) == "native" and attached() and "again" not in f.log.read_text(), f.log.read_text()
        for n in range(1, 4):
            ip("link", "del", "wire", host=GATEWAY)
            lay_anew()
            f.until(lambda: f.log.read_text().count("on the interface again (XDP, native)") == n)
            assert attached() and AWAY not in f.log.read_text(), f.log.read_text()
            have_dropped(f, one)
        # The old one stays, by another name, and is free of the program then.
        ip("link", "set", "wire", "down", host=GATEWAY)
        ip("link", "set", "wire", "name", "before", host=GATEWAY)
        ip("link", "set", "wire", "name", "before", host=CLIENTS)
        ip("addr", "flush", "dev", "before", host=GATEWAY)
        ip("addr", "flush", "dev", "before", host=CLIENTS)
        lay_anew()
        f.until(lambda: f.log.read_text().count("on the interface again (XDP, native)") == 4)
        assert attached() and "xdp" not in ip("link", "show", "before", host=GATEWAY)
        have_dropped(f, one)
        # To another host and back.
        ip("link", "set", "wire", "netns", CLIENTS, "name", "away", host=GATEWAY)
        f.until(lambda: mode(f) == "off")
        assert "xdp" not in ip("link", "show", "away", host=CLIENTS)
        ip("link", "set", "away", "netns", GATEWAY, "name", "wire", host=CLIENTS)
        addresses(GATEWAY, "wire", "10.77.1.1/16", "10.77.9.1/16")
        f.until(lambda: mode(f) == "native")
        have_dropped(f, one)


def test_a_program_of_somebody_else_on_an_interface_that_is_back_is_said_and_waited_for():
    with gateway() as f, Client(f, FIRST) as one:
        have_dropped(f, one)
        with contextlib.ExitStack() as stack:
            ip("link", "del", "wire", host=GATEWAY)
            f.until(lambda: mode(f) == "off")
            # Another gateway has it, under a name that the first one does not look for until it is renamed.
            ip(*wire(GATEWAY, "early", CLIENTS, "wire"))
            second = stack.enter_context(Fixture("--xdp", "early", listen="127.0.0.1", threads=1))
            second.until(lambda: second.status()["kernel"]["mode"] == "native")
            os.kill(second.child.pid, signal.SIGSTOP)  # so that it does not take its program off
            ip("link", "set", "early", "name", "wire", host=GATEWAY)
            lay()
            f.until(lambda: "--xdp wire: another XDP program is on wire; take it off, or give another interface; packets" in f.log.read_text())
            time.sleep(1.5)
            assert f.log.read_text().count("another XDP program is on wire") == 1 and mode(f) == "off"
            os.kill(second.child.pid, signal.SIGCONT)
            f.until(lambda: mode(f) == "native")  # the other one is off: its interface is gone by name
            have_dropped(f, one)


def test_nothing_is_left_in_the_kernel_when_the_gateway_is_killed():
    bpftool = shutil.which("bpftool") or shutil.which("bpftool", path="/usr/sbin")
    with gateway() as f:
        assert attached()
        command = [str(word) for word in f.child.args]
        f.child.kill()
        f.child.wait()
        f.until(lambda: not attached())
        for n in range(ROUNDS):
            child = f.demo.start(*command, stderr=subprocess.DEVNULL)
            f.until(attached)
            if n % 10 == 0:
                f.until(f.status)
            child.send_signal(signal.SIGKILL if n % 5 else signal.SIGTERM)
            child.wait()
            f.until(lambda: not attached())
        if bpftool is None:
            print("# without bpftool it is not seen whether programs or maps are left", flush=True)
            return

        def left():
            for kind, name in (("prog", "drop_denied"), ("map", "lines"), ("map", "locals"), ("link", "wire")):
                shown = subprocess.run([bpftool, kind, "show"], capture_output=True, text=True, check=True, timeout=20).stdout
                if f"name {name}" in shown:
                    return True
            return False
        f.until(lambda: not left())


def drop_rights():
    """The gateway keeps root's files, and may not load programs: CAP_SYS_ADMIN, CAP_NET_ADMIN and CAP_BPF are gone."""
    for capability in (21, 12, 39):
        LIBC.prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP


def test_what_is_missing_is_said_in_a_sentence_and_the_gateway_runs():
    with gateway():
        with Fixture("--xdp", "wire", listen="10.77.1.1", threads=1) as second:
            assert "--xdp wire: another XDP program is on wire; take it off, or give another interface; packets are dropped here" \
                in second.log.read_text(), second.log.read_text()
            assert second.status()["kernel"] is None
        with Fixture("--xdp", "nothing0", listen="10.77.1.1", threads=1) as none:
            assert "there is no interface nothing0" in none.log.read_text()
            assert none.status()["limited"] is True
        with Fixture("--xdp", "wire", listen="10.77.1.1", threads=1, before=drop_rights) as weak:
            assert "--xdp wire: the kernel loads no program for this user; CAP_BPF and CAP_NET_ADMIN are needed; packets" \
                in weak.log.read_text(), weak.log.read_text()
        for wrong in ("", "wire,mode=fast", ",mode=native", "wire mode=native", "a" * 16, 'a"b'):
            child = subprocess.run([f"{sys.argv[1]}/apps/gateway/weir-gateway", "--listen", ":1", "--backend", ":2", "--xdp", wrong],
                                   capture_output=True, text=True, timeout=20, check=False)
            assert child.returncode == 2 and "--xdp" in child.stderr and "eth0,mode=generic" in child.stderr, (wrong, child)


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)
    run(globals())
