#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The gateway under live traffic: what scripts/run shows.

demo.py BUILD_DIRECTORY [--seconds N] [--fleet]
"""
import argparse
import json
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

POLICIES = """\
policies:
  - name: source            # each source address
    limits:
      - {{algorithm: token_bucket, limit: {source}, period: 1s}}
  - name: overall           # all of them together
    limits:
      - {{algorithm: sliding_window, limit: {overall}, period: 1s}}
"""


def free_port(kind):
    with socket.socket(socket.AF_INET, kind) as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Demo:
    def __init__(self, build):
        self.bin = pathlib.Path(build) / "apps" / "gateway"
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="weir-demo-"))
        self.children = []

    def start(self, *command, **options):
        child = subprocess.Popen([str(c) for c in command], **options)
        self.children.append(child)
        return child

    def close(self):
        for child in self.children:
            if child.poll() is None:
                child.terminate()
        for child in self.children:
            try:
                child.wait(5)
            except subprocess.TimeoutExpired:
                child.kill()
        shutil.rmtree(self.dir, ignore_errors=True)

    def backend(self):
        port = free_port(socket.SOCK_DGRAM)
        self.start(self.bin / "weir-traffic", "--echo", f"127.0.0.1:{port}", "--seconds", 0)
        return port

    def gateway(self, backend, policies, *more):
        listen, http = free_port(socket.SOCK_DGRAM), free_port(socket.SOCK_STREAM)
        log = open(self.dir / f"gateway-{listen}.log", "w")
        child = self.start(self.bin / "weir-gateway", "--listen", f"127.0.0.1:{listen}", "--backend", f"127.0.0.1:{backend}",
                           "--policies", policies, "--metrics", f"127.0.0.1:{http}", "--threads", 1, *more, stderr=log)
        for _ in range(200):
            if status(http):
                return child, listen, http
            if child.poll() is not None:
                break
            time.sleep(0.02)
        sys.exit("the gateway did not start: " + open(log.name).read())

    def traffic(self, listen, seconds, *clients):
        command = [self.bin / "weir-traffic", "--to", f"127.0.0.1:{listen}", "--seconds", seconds, "--json", "--report-every", 1000]
        for client in clients:
            command += ["--client", client]
        return self.start(*command, stdout=subprocess.PIPE, text=True)

    def policies(self, source, overall):
        path = self.dir / "policies.yaml"
        path.write_text(POLICIES.format(source=source, overall=overall))
        return path


def status(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/status", timeout=2) as answer:
            return json.load(answer)
    except OSError:
        return None


def one_gateway(demo, seconds):
    source, overall = 200, 20000
    gateway, listen, http = demo.gateway(demo.backend(), demo.policies(source, overall))
    print(f"One gateway without Redis: {source} packets a second for each source address, {overall} for all together.\n")
    print(f"{'second':>6}  {'clients':<22} {'offered/s':>10} {'passed/s':>10} {'dropped/s':>10} {'limit/s':>9} {'ns per check':>13}")
    traffic = demo.traffic(listen, seconds, "polite,1,100", "greedy,1,5000", "swarm,400,12000")
    before = {}
    rows = []
    for line in traffic.stdout:
        row = json.loads(line)
        rows.append(row)
        now = status(http)
        span = row["seconds"] - before.get("seconds", 0)
        if span < 0.5:
            continue
        for client in row["clients"]:
            last = before.get(client["name"], {"sent": 0, "returned": 0})
            sent, back = (client["sent"] - last["sent"]) / span, (client["returned"] - last["returned"]) / span
            name = f"{client['name']} ({client['count']} address{'es' if client['count'] > 1 else ''})"
            first = client["name"] == "polite"
            print(f"{row['seconds']:6.0f}  {name:<22} {sent:10.0f} {back:10.0f} {max(sent - back, 0):10.0f} {source * client['count']:9}"
                  f" {now['ns_per_check'] if first else '':>13}", flush=True)
            before[client["name"]] = client
        before["seconds"] = row["seconds"]
    final, now = rows[-1], status(http)
    print(f"\nIn {final['seconds']:.0f} seconds:")
    held = True
    for client in final["clients"]:
        most = (source * final["seconds"] + source) * client["count"]
        held = held and client["returned"] <= most * 1.01
        print(f"  {client['name']:<7} offered {client['sent']:>7}, passed {client['returned']:>7} of at most {most:.0f}"
              f" ({source} at once and {source} a second, for each of {client['count']})")
    print(f"  the gateway: offered {now['offered']}, passed {now['passed']}, dropped {sum(now['dropped'].values())}; "
          f"{now['ns_per_check']} ns per check, key hashed, timed among its system calls")
    gateway.send_signal(signal.SIGTERM)
    gateway.wait(10)
    return held and gateway.returncode == 0


class Redis:
    def __init__(self, demo):
        self.demo, self.path = demo, demo.dir / "redis.sock"
        self.child = None

    def start(self):
        self.child = self.demo.start("redis-server", "--port", 0, "--unixsocket", self.path, "--save", "", "--appendonly", "no",
                                     "--dir", self.demo.dir, stdout=subprocess.DEVNULL)

    def kill(self):
        self.child.kill()
        self.child.wait()
        self.path.unlink(missing_ok=True)


def fleet(demo, seconds):
    overall, nodes, rate = 6000, 3, 4000
    redis = Redis(demo)
    redis.start()
    backend = demo.backend()
    path = demo.policies(100000, overall)
    gateways = [demo.gateway(backend, path, "--redis", f"unix://{redis.path}") for _ in range(nodes)]
    for _ in range(100):
        if all((status(http) or {}).get("live_nodes") == nodes for _, _, http in gateways):
            break
        time.sleep(0.05)
    print(f"{nodes} gateways share one limit of {overall} packets a second through Redis; each is offered {rate}.")
    print("Redis is killed half way, and comes back empty.\n")
    print(f"{'second':>6} {'offered/s':>10} {'admitted/s':>10} {'limit/s':>8} {'of limit':>8}  {'nodes':>5}  redis")
    senders = [demo.traffic(listen, seconds, f"clients,50,{rate}") for _, listen, _ in gateways]
    start = last_time = time.monotonic()
    last = [status(http) for _, _, http in gateways]
    killed = restarted = False
    admitted_all = offered_all = 0
    while (elapsed := time.monotonic() - start) < seconds:
        event = ""
        if not killed and elapsed >= seconds * 0.45:
            redis.kill()
            killed, event = True, "<- killed"
        elif killed and not restarted and elapsed >= seconds * 0.7:
            redis.start()
            restarted, event = True, "<- back, empty"
        time.sleep(max(0.0, last_time + 1 - time.monotonic()))
        now, at = [status(http) for _, _, http in gateways], time.monotonic()
        span = at - last_time
        offered = sum(n["offered"] - b["offered"] for n, b in zip(now, last))
        admitted = sum(n["passed"] - b["passed"] for n, b in zip(now, last))
        links = ",".join(n["redis"] for n in now)
        print(f"{at - start:6.0f} {offered / span:10.0f} {admitted / span:10.0f} {overall:8} {admitted / span / overall:8.2f}"
              f"  {now[0]['live_nodes']:5}  {links} {event}", flush=True)
        last, last_time = now, at
        admitted_all, offered_all = admitted_all + admitted, offered_all + offered
    for sender in senders:
        sender.wait()
    allowed = overall * (last_time - start)
    print(f"\nIn {last_time - start:.0f} seconds: offered {offered_all}, admitted {admitted_all}; "
          f"the limit allows {allowed:.0f}: {admitted_all / allowed:.3f} of it.")
    for gateway, _, _ in gateways:
        gateway.send_signal(signal.SIGTERM)
    return all(gateway.wait(10) == 0 for gateway, _, _ in gateways) and restarted


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--fleet", action="store_true")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    demo = Demo(options.build)
    try:
        good = fleet(demo, options.seconds) if options.fleet else one_gateway(demo, options.seconds)
    except KeyboardInterrupt:
        good = False
    finally:
        demo.close()
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
