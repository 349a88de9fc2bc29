#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The gateway under live traffic: what scripts/run and weir demo show.

demo.py DIRECTORY [--seconds N] [--fleet] [--quick] [--json]

The directory is that of a build, or the one where the gateway is installed. Exit codes: 0: the limits were held; 1: one
was not, or it was interrupted; 3: something could not be started; 4: the output cannot be written.
"""
import argparse
import itertools
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

LINGER_SECONDS = 0.3  # weir-traffic takes replies for so long after its last packet

POLICIES = """\
policies:
  - name: source            # each source address
    limits:
      - {{algorithm: token_bucket, limit: {source}, period: 1s}}
  - name: overall           # all of them together
    limits:
      - {{algorithm: sliding_window, limit: {overall}, period: 1s}}
"""


def fail(sentence):
    print(sentence, file=sys.stderr)
    sys.exit(3)


def ports():
    """The ports below the ephemeral ones, each once, from a random start; then any that the kernel gives."""
    least, end = 10000, int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    start = random.randrange(least, max(end, least + 1))
    yield from range(start, end)
    yield from range(least, min(start, end))
    yield from itertools.repeat(0)


PORTS = ports()
CLAIMS = []


def claim(port):
    """
    Takes a port until this process ends, so that no process is given it twice, nor two that run side by side. True: it
    was to be had. An abstract name belongs to a network namespace, as a port does, and ends with its process.
    """
    name = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        name.bind(f"\0weir-port-{port}")
    except OSError:
        name.close()
        return False
    CLAIMS.append(name)
    return True


def free_port(kind):
    """A port of 127.0.0.1 that nobody else is given."""
    while True:
        with socket.socket(socket.AF_INET, kind) as s:
            try:
                s.bind(("127.0.0.1", next(PORTS)))
            except OSError:
                continue
            port = s.getsockname()[1]
        if claim(port):
            return port


class Demo:
    def __init__(self, build):
        in_build = pathlib.Path(build) / "apps" / "gateway"
        self.bin = in_build if in_build.is_dir() else pathlib.Path(build)
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="weir-demo-"))
        os.environ["RUNTIME_DIRECTORY"] = str(self.dir)  # what gateways keep goes with the rest
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

    def backend(self, *more):
        port = free_port(socket.SOCK_DGRAM)
        self.start(self.bin / "weir-traffic", "--echo", f"127.0.0.1:{port}", "--seconds", 0, *more)
        wait_for("the backend did not start", lambda: answers(port))
        return port

    def gateway(self, backend, *more):
        listen, http = free_port(socket.SOCK_DGRAM), free_port(socket.SOCK_STREAM)
        log = open(self.dir / f"gateway-{listen}.log", "w")
        child = self.start(self.bin / "weir-gateway", "--listen", f"127.0.0.1:{listen}", "--backend", f"127.0.0.1:{backend}",
                           "--metrics", f"127.0.0.1:{http}", "--threads", 1, *more, stderr=log)
        for _ in range(200):
            if status(http):
                return child, listen, http
            if child.poll() is not None:
                break
            time.sleep(0.02)
        fail("the gateway did not start: " + open(log.name).read())

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
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/status", timeout=20) as answer:
            return json.load(answer)
    except OSError:
        return None


def answers(port):
    """Whether an echo of 127.0.0.1 sends back a packet."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(0.2)
        s.connect(("127.0.0.1", port))
        try:
            return s.send(b"?") == len(s.recv(1))
        except OSError:
            return False


def wait_for(otherwise, condition, seconds=15):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            fail(otherwise)
        time.sleep(0.05)


def one_gateway(demo, seconds):
    source, overall = 200, 20000
    clients = {"polite": (1, 100), "greedy": (1, 5000), "swarm": (400, 12000)}
    gateway, listen, http = demo.gateway(demo.backend(), "--policies", demo.policies(source, overall))
    print(f"One gateway without Redis: {source} packets a second for each source address, {overall} for all together.\n")
    print(f"{'second':>6}  {'clients':<22} {'offered/s':>10} {'passed/s':>10} {'dropped/s':>10} {'limit/s':>9} {'ns per check':>13}")
    traffic = demo.traffic(listen, seconds, *(f"{name},{count},{rate}" for name, (count, rate) in clients.items()))
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
    print(f"\nIn {final['seconds']:.0f} seconds:\n")
    print(f"{'clients':<22} {'offered':>10} {'passed':>10} {'dropped':>10} {'the limit':>10}")
    held = True
    for client in final["clients"]:
        # A full bucket at once, and its rate for as long as they sent, and while replies were still waited for: where the
        # gateway is slower than they, packets wait in its socket and are decided then.
        most = (source + source * (final["seconds"] + LINGER_SECONDS)) * client["count"]
        held = held and client["returned"] <= most * 1.01
        name = f"{client['name']} ({client['count']} address{'es' if client['count'] > 1 else ''})"
        print(f"{name:<22} {client['sent']:>10} {client['returned']:>10} {client['sent'] - client['returned']:>10} {most:>10.0f}")
    # Any second admits the overall limit at most, and so does the one that has just begun.
    most = overall * (final["seconds"] + 1)
    held = held and now["passed"] <= most
    print(f"{'overall':<22} {now['offered']:>10} {now['passed']:>10} {sum(now['dropped'].values()):>10} {most:>10.0f}")
    print(f"\n{now['ns_per_check']} ns per check: the key hashed, two checks a packet, timed among the gateway's system calls.")
    print("Every limit was held." if held else "A LIMIT WAS NOT HELD.")
    gateway.send_signal(signal.SIGTERM)
    result = {"seconds": final["seconds"], "offered": now["offered"], "passed": now["passed"], "dropped": now["dropped"],
              "ns_per_check": now["ns_per_check"],
              "clients": [{"name": client["name"], "addresses": client["count"], "offered": client["sent"],
                           "passed": client["returned"]} for client in final["clients"]]}
    return held and gateway.wait(10) == 0, result


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
    gateways = [demo.gateway(backend, "--policies", path, "--redis", f"unix://{redis.path}") for _ in range(nodes)]
    wait_for("the gateways did not find each other",
             lambda: all((status(http) or {}).get("live_nodes") == nodes for _, _, http in gateways))
    print(f"{nodes} gateways share one limit of {overall} packets a second through Redis; each is offered {rate}.")
    print("Redis is killed half way, and comes back empty.\n")
    print(f"{'second':>6} {'offered/s':>10} {'admitted/s':>10} {'limit/s':>8} {'of limit':>8}  {'nodes':>5}  redis")
    # Rows are seconds of the wall clock, as windows are: traffic that begins in the middle of one has most of two of them.
    time.sleep(1 - time.time() % 1)
    senders = [demo.traffic(listen, seconds + 1, f"clients,50,{rate}") for _, listen, _ in gateways]
    start = last_time = time.monotonic()
    last = [status(http) for _, _, http in gateways]
    killed = restarted = False
    phases = {}
    while (elapsed := time.monotonic() - start) < seconds - 0.5:
        event = ""
        if not killed and elapsed >= seconds * 0.4:
            redis.kill()
            killed, event = True, "<- killed"
        elif killed and not restarted and elapsed >= seconds * 0.7:
            redis.start()
            restarted, event = True, "<- back, empty"
        time.sleep(1 - time.time() % 1)
        now, at = [status(http) for _, _, http in gateways], time.monotonic()
        span = at - last_time
        offered = sum(n["offered"] - b["offered"] for n, b in zip(now, last))
        admitted = sum(n["passed"] - b["passed"] for n, b in zip(now, last))
        links = ",".join(n["redis"] for n in now)
        print(f"{at - start:6.0f} {offered / span:10.0f} {admitted / span:10.0f} {overall:8} {admitted / span / overall:8.2f}"
              f"  {now[0]['live_nodes']:5}  {links} {event}", flush=True)
        last, last_time = now, at
        phase = phases.setdefault("Redis is back" if restarted else "Redis is gone" if killed else "Redis is there", [0, 0, 0])
        phase[:] = (total + more for total, more in zip(phase, (span, offered, admitted)))
    for sender in senders:
        sender.wait()
    print(f"\n{'':<16} {'seconds':>8} {'offered':>10} {'admitted':>10} {'allowed':>10} {'of it':>6}")
    phases["in all"] = [sum(phase[i] for phase in phases.values()) for i in range(3)]
    for name, (span, offered, admitted) in phases.items():
        print(f"{name:<16} {span:8.1f} {offered:10} {admitted:10} {overall * span:10.0f} {admitted / (overall * span):6.2f}")
    for gateway, _, _ in gateways:
        gateway.send_signal(signal.SIGTERM)
    result = {"limit": overall, "nodes": nodes, "phases": [
        {"name": name, "seconds": span, "offered": offered, "admitted": admitted, "of_limit": admitted / (overall * span)}
        for name, (span, offered, admitted) in phases.items()]}
    return all(gateway.wait(10) == 0 for gateway, _, _ in gateways) and restarted, result


def give_up_output(error):
    """Standard output cannot be written, and is not tried again when the program ends."""
    print(f"standard output: {os.strerror(error.errno)}", file=sys.stderr)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def main():
    parser = argparse.ArgumentParser(prog="scripts/run")
    parser.add_argument("build", help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=int, help="how long (10; with --fleet 15)")
    parser.add_argument("--fleet", action="store_true", help="three gateways that share a limit, and a Redis that dies")
    parser.add_argument("--quick", action="store_true", help="as short as it makes sense: for tests")
    parser.add_argument("--json", action="store_true", help="nothing but the result, as one line of JSON")
    options = parser.parse_args()
    if options.quick:
        options.seconds = 6 if options.fleet else 3
    options.seconds = options.seconds or (15 if options.fleet else 10)
    if options.seconds < 3:
        parser.error("--seconds: 3 is the least")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    if options.fleet and shutil.which("redis-server") is None:
        fail("there is no redis-server, which the gateways of a fleet share a limit through; install it")
    out = sys.stdout
    if options.json:
        sys.stdout = open(os.devnull, "w")
    demo = Demo(options.build)
    try:
        good, result = fleet(demo, options.seconds) if options.fleet else one_gateway(demo, options.seconds)
        if options.json:
            print(json.dumps({"held": good, **result}), file=out)
        out.flush()
        code = 0 if good else 1
    except KeyboardInterrupt:
        code = 1
    except OSError as error:  # of what is started and asked, each error is seen to where it comes up
        give_up_output(error)
        code = 4
    finally:
        demo.close()
    sys.exit(code)


if __name__ == "__main__":
    main()
