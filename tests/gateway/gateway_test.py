#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The gateway end to end, on loopback: gateway_test.py BUILD_DIRECTORY SOURCE_DIRECTORY. Prints TAP."""
import json
import signal
import socket
import subprocess
import sys
import time
import traceback
import urllib.error
import urllib.request

sys.path.insert(0, sys.argv[2] + "/apps/gateway")
import demo as gateway_demo  # noqa: E402

POLICIES = """policies:
  - name: source
    limits: [{{algorithm: token_bucket, limit: {0}, period: 1s, burst: {0}}}]
  - name: overall
    limits: [{{algorithm: sliding_window, limit: 50000, period: 1s}}]
"""


class Fixture:
    """A backend, a gateway with 200 packets a second for each source, and its log."""

    def __init__(self, listen="127.0.0.1", *more):
        self.demo = gateway_demo.Demo(sys.argv[1])
        self.path = self.demo.dir / "test.yaml"
        self.path.write_text(POLICIES.format(200))
        self.log = self.demo.dir / "log"
        self.port, self.http = gateway_demo.free_port(socket.SOCK_DGRAM), gateway_demo.free_port(socket.SOCK_STREAM)
        self.child = self.demo.start(self.demo.bin / "weir-gateway", "--listen", f"{listen}:{self.port}", "--backend",
                                     f"127.0.0.1:{self.demo.backend()}", "--policies", self.path, "--metrics",
                                     f"127.0.0.1:{self.http}", "--threads", 2, *more, stderr=open(self.log, "w"))
        self.until(lambda: gateway_demo.status(self.http))

    def until(self, condition, seconds=10):
        end = time.monotonic() + seconds
        while not (result := condition()):
            assert time.monotonic() < end, "waited in vain; the gateway said: " + self.log.read_text()
            time.sleep(0.02)
        return result

    def send(self, seconds, *clients, to=None):
        command = [self.demo.bin / "weir-traffic", "--to", to or f"127.0.0.1:{self.port}", "--seconds", seconds, "--json"]
        for client in clients:
            command += ["--client", client]
        out = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=True, timeout=60).stdout
        return {c["name"]: c for c in json.loads(out.splitlines()[-1])["clients"]}

    def get(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http}{path}", timeout=5) as answer:
            return answer.read().decode()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.demo.close()


def test_a_polite_client_is_served_and_a_greedy_one_held():
    with Fixture() as f:
        clients = f.send(3, "polite,1,100", "greedy,1,3000", "swarm,50,1000")
        assert clients["polite"]["returned"] == clients["polite"]["sent"], clients
        assert clients["swarm"]["returned"] == clients["swarm"]["sent"], clients
        # A burst of 200, and 200 a second; the sender's three seconds may be a little longer.
        assert 750 <= clients["greedy"]["returned"] <= 850, clients
        status = json.loads(f.get("/status"))
        assert status["offered"] == sum(c["sent"] for c in clients.values()), (status, clients)
        assert status["passed"] == status["replies"] == sum(c["returned"] for c in clients.values()), (status, clients)
        assert status["dropped"] == {"source": status["offered"] - status["passed"], "overall": 0}, status
        assert status["sessions"] == 52 and status["redis"] == "none" and status["limited"] is True, status


def test_metrics_are_prometheus_text():
    with Fixture() as f:
        f.send(1, "one,1,100")
        values = {}
        for line in f.get("/metrics").splitlines():
            if line.startswith("#"):
                assert line.split()[1] in ("HELP", "TYPE"), line
            else:
                name, value = line.rsplit(" ", 1)
                values[name] = float(value)
        assert values["weir_gateway_offered_packets_total"] >= 99, values
        assert values['weir_checks_total{policy="source",answer="allowed"}'] >= 99, values
        try:
            f.get("/nothing")
            assert False, "there was something"
        except urllib.error.HTTPError as error:
            assert error.code == 404


def test_a_broken_file_changes_nothing_and_a_good_one_applies():
    with Fixture() as f:
        f.path.write_text(POLICIES.format(200).replace("token_bucket", "token_bucked"))
        f.child.send_signal(signal.SIGHUP)
        f.until(lambda: "test.yaml:3:" in f.log.read_text() and "stay as they were" in f.log.read_text())
        assert 350 <= f.send(1, "greedy,1,3000")["greedy"]["returned"] <= 450
        assert json.loads(f.get("/status"))["reload_errors"] == 1
        f.path.write_text(POLICIES.format(20))
        f.child.send_signal(signal.SIGHUP)
        f.until(lambda: json.loads(f.get("/status"))["reloads"] == 1)
        assert f.send(1, "a,1,1", "greedy,1,3000")["greedy"]["returned"] <= 50


def test_sigterm_ends_it_quickly_with_its_counts():
    with Fixture() as f:
        f.send(1, "one,1,100")
        start = time.monotonic()
        f.child.send_signal(signal.SIGTERM)
        assert f.child.wait(5) == 0
        assert time.monotonic() - start < 3
        assert "offered 1" in f.log.read_text() or "offered 9" in f.log.read_text(), f.log.read_text()


def test_ipv6_is_served():
    with Fixture("[::1]") as f:
        clients = f.send(1, "polite,2,100", to=f"[::1]:{f.port}")
        assert clients["polite"]["returned"] == clients["polite"]["sent"], clients
        # Both clients are of one /64.
        assert 350 <= f.send(1, "greedy,2,3000", to=f"[::1]:{f.port}")["greedy"]["returned"] <= 450


def test_wrong_options_are_refused_by_name():
    with Fixture() as f:
        def run(*options):
            return subprocess.run([str(f.demo.bin / "weir-gateway"), *options], capture_output=True, text=True, timeout=10)
        for options, code, says in ((("--listen", "nowhere", "--backend", "127.0.0.1:1"), 2, "--listen nowhere"),
                                    (("--listen", "127.0.0.1:1"), 2, "--backend"),
                                    (("--listen", ":1", "--backend", ":2", "--threads", "0"), 2, "--threads 0"),
                                    (("--listen", ":1", "--backend", ":2", "--policies", "/nonexistent"), 1, "/nonexistent"),
                                    (("--listen", ":1", "--backend", ":2", "--policies", str(f.path), "--redis", "x"), 1, "redis_url"),
                                    (("--help",), 0, "")):
            result = run(*options)
            assert result.returncode == code and says in result.stderr, (options, result)


def main():
    tests = [(name, test) for name, test in globals().items() if name.startswith("test_")]
    print(f"TAP version 13\n1..{len(tests)}", flush=True)
    failed = 0
    for number, (name, test) in enumerate(tests, 1):
        try:
            test()
            print(f"ok {number} - {name}", flush=True)
        except Exception:  # every failure is a row
            failed += 1
            print(f"not ok {number} - {name}", flush=True)
            for line in traceback.format_exc().splitlines():
                print("# " + line, flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
