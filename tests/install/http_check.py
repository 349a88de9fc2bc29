# SPDX-License-Identifier: Apache-2.0
"""What is asked of an HTTP server of docs/examples/servers. For servers_test.py."""
import contextlib
import os
import pathlib
import re
import signal
import socket
import subprocess
import threading
import time

from tap import Failed

PATIENCE_S = 60  # for anything that a server is to do; far more than it takes
LIMIT, PERIOD_S = 4, 8
GET = b"GET /path HTTP/1.1\r\nHost: here\r\n\r\n"

# What http.h refuses, and evhttp as well where the last word is True.
MALFORMED = (
    (b"GET\r\n\r\n", 400, True),
    (b"\x00\x01\x02\x03\r\n\r\n", 400, True),
    (b"GET / HTTP/9.1\r\nHost: x\r\n\r\n", 505, False),
    (b"GET / HTTP/1.1 \r\nHost: x\r\n\r\n", 400, False),
    (b"GET / HTTP/1.1\r\n\r\n", 400, False),
    (b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400, False),
    (b"GET / HTTP/1.1\r\nHost : x\r\n\r\n", 400, False),
    (b"GET / HTTP/1.1\r\nHost: x\r\n folded\r\n\r\n", 400, False),
    (b"GET / HTTP/1.1\r\nHost: x\nA: b\r\n\r\n", 400, False),
    (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", 400, False),
    (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400, True),
    (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n", 413, True),
    (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", 501, False),
    (b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 20000, 431, True),
)


class Client:
    """A connection that reads one answer at a time."""

    def __init__(self, port, address="127.0.0.1"):
        self.link = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S, source_address=(address, 0))
        self.bytes = b""

    def send(self, request=GET):
        self.link.sendall(request)

    def fill(self):
        got = self.link.recv(65536)
        self.bytes += got
        return len(got) != 0

    def answer(self, body=True):
        """Status and header fields of the next answer; None: the server has closed the connection."""
        while b"\r\n\r\n" not in self.bytes:
            try:
                if not self.fill():
                    return None
            except ConnectionResetError:
                return None
        head, _, self.bytes = self.bytes.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        if body and "content-length" not in fields:
            while self.fill():  # the body ends with the connection
                pass
            self.bytes = b""
            return int(lines[0].split()[1]), fields
        size = int(fields["content-length"]) if body else 0
        while len(self.bytes) < size:
            if not self.fill():
                raise Failed(f"the body of an answer ends early: {head}")
        self.bytes = self.bytes[size:]
        return int(lines[0].split()[1]), fields

    def ask(self, request=GET, body=True):
        self.send(request)
        answer = self.answer(body)
        if answer is None:
            raise Failed(f"no answer to {request}")
        return answer

    def close(self):
        self.link.close()


@contextlib.contextmanager
def client(port, address="127.0.0.1"):
    opened = Client(port, address)
    try:
        yield opened
    finally:
        opened.close()


class Server:
    def __init__(self, program, environment, limit, period_s):
        self.process = subprocess.Popen([program, "0", str(limit), str(period_s)], env=environment, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, start_new_session=True)
        line = self.process.stdout.readline()
        address = re.fullmatch(r"http://127.0.0.1:(\d+)/\n", line)
        if not address:
            raise Failed(f"{program.name} said {line} {self.process.communicate(timeout=PATIENCE_S)[1]}")
        self.port = int(address[1])
        self.told = False
        self.name = program.name

    def __enter__(self):
        return self

    def terminate(self):
        self.told = True  # a second time would end a server of libuv at once
        self.process.send_signal(signal.SIGTERM)

    def __exit__(self, kind, *_):
        """Ends the server, which must say nothing of memory and end well."""
        if self.process.poll() is None and not self.told:
            self.terminate()
        try:
            said = self.process.communicate(timeout=PATIENCE_S)[1]
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)  # its workers too: they hold its standard error open
            said = f"it did not end by SIGTERM\n{self.process.communicate()[1]}"
        bad = self.process.returncode != 0 or "Sanitizer" in said or "runtime error" in said
        if bad and kind is None:
            raise Failed(f"{self.name}: exit {self.process.returncode}\n{said}")


def expect(good, what):
    if not good:
        raise Failed(what)


def check_limit(server):
    """The limit for each client address, and Retry-After that is true."""
    with client(server.port, "127.0.0.3") as here, client(server.port, "127.0.0.4") as other:
        for at in range(LIMIT):
            status, fields = here.ask()
            expect(status == 200, f"{server.name}: request {at} of {LIMIT} has {status}")
            expect(fields["ratelimit-policy"] == f'"api";q={LIMIT};w={PERIOD_S}', f"{server.name}: {fields}")
            expect(re.fullmatch(r'"api";r=[0-3];t=\d+', fields["ratelimit"]), f"{server.name}: {fields}")
        for _ in range(100):
            status, fields = here.ask()
            if status != 200:
                break
        expect(status == 429 and fields["retry-after"] in ("1", "2"), f"{server.name}: {status} {fields}")
        expect(other.ask()[0] == 200, f"{server.name}: another client is refused as well")
        time.sleep(int(fields["retry-after"]))
        expect(here.ask()[0] == 200, f"{server.name}: refused after its Retry-After")


def check_malformed(server):
    for request, wanted, everywhere in MALFORMED:
        if server.name == "libevent_server" and not everywhere:
            continue
        with client(server.port) as bad:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                bad.send(request)
            answer = bad.answer()
            status = answer and answer[0]
            if server.name == "libevent_server":
                expect(status in (None, 400, 413, 431, 500, 501), f"{server.name}: {request[:60]} has {status}")
                continue
            expect(status == wanted, f"{server.name}: {request[:60]} has {status}")
            expect(answer[1].get("connection") == "close" and bad.answer() is None, f"{server.name}: {request[:60]} is not the last")
    with client(server.port) as good:
        expect(good.ask()[0] in (200, 429), f"{server.name}: does not serve after malformed requests")


def check_requests(server):
    """HEAD, bodies, HTTP/1.0, and requests that come in pieces and many at once."""
    with client(server.port) as here:
        post = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 30000\r\n\r\n" + GET * (30000 // len(GET)) + b"x" * (30000 % len(GET))
        here.send(post + b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n" + GET)
        expect(here.answer() and here.answer(body=False) and here.answer(), f"{server.name}: a body is read as requests, or a HEAD has a body")
        for byte in (GET[at : at + 1] for at in range(len(GET))):
            here.send(byte)
            time.sleep(0.001)
        expect(here.answer()[0] in (200, 429), f"{server.name}: a request in pieces")
        answer = here.ask(b"GET / HTTP/1.0\r\n\r\n")
        expect(answer[0] in (200, 429) and here.answer() is None, f"{server.name}: HTTP/1.0 is not the last request")


def check_pipeline(server, count=5000):
    """More answers than fit the buffers, for a client that reads none of them before it has sent all it can."""
    with client(server.port) as here:
        sender = threading.Thread(target=here.send, args=(GET * count,))
        sender.start()
        time.sleep(0.3)  # the server runs into the client that does not read; a server that has not is no failure
        for at in range(count):
            expect(here.answer(), f"{server.name}: {at} of {count} answers to pipelined requests")
        sender.join()


def check_many(server, count=200):
    """Many connections at once, more than one for each worker."""
    closing = GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    clients = [Client(server.port) for _ in range(count)]
    for one in clients:
        one.send(closing)
    for one in clients:
        answer = one.answer()
        expect(answer and answer[0] in (200, 429) and one.answer() is None, f"{server.name}: of {count} connections one has {answer}")
        one.close()


def check_gone(server):
    """Clients that go away in the middle of everything."""
    for request in (b"", GET[:10], GET, GET * 500):
        for _ in range(5):
            with client(server.port) as here:
                here.link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # closes by a reset
                with contextlib.suppress(OSError):
                    here.send(request)
    with client(server.port) as here:
        expect(here.ask(), f"{server.name}: does not serve after clients that were gone")


def is_read(link):
    """Whether the other end of a connection on this machine has read all that it was sent (proc(5): tcp, tcp6)."""
    here, there = link.getsockname()[1], link.getpeername()[1]
    rows = [line.split() for table in pathlib.Path("/proc/net").glob("tcp*") for line in table.read_text().splitlines()]
    return any(row[1].endswith(f":{there:04X}") and row[2].endswith(f":{here:04X}") and row[4].endswith(":00000000") for row in rows)


def check_drain(server):
    """What is under way at SIGTERM is answered; nothing else is taken; the server ends."""
    with client(server.port) as under_way, client(server.port) as idle:
        expect(idle.ask(GET.replace(b"\r\n\r\n", b"\r\nX: y\r\n\r\n")), f"{server.name}: no answer")
        under_way.send(GET[:-10])
        end = time.monotonic() + PATIENCE_S
        while not is_read(under_way.link):  # else the request is one that is taken at the last moment
            expect(time.monotonic() < end, f"{server.name}: does not read a request")
            time.sleep(0.01)
        server.terminate()
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S).close()
            except ConnectionRefusedError:
                break
            except ConnectionResetError:
                pass
            expect(time.monotonic() < end, f"{server.name}: takes connections after SIGTERM")
            time.sleep(0.02)
            if server.name == "prefork_server":
                break  # its socket is open until the parent ends
        under_way.send(GET[-10:])
        answer = under_way.answer()
        expect(answer and answer[0] in (200, 429) and answer[1].get("connection") == "close" and under_way.answer() is None,
               f"{server.name}: the request under way has {answer}")


def check(program, environment):
    with Server(program, environment, LIMIT, PERIOD_S) as server:
        with client(server.port) as slow:
            slow.send(GET[:-5])  # and never the rest
            check_limit(server)
            check_malformed(server)
            check_requests(server)
            check_gone(server)
            check_pipeline(server)
            check_many(server)
            expect(slow.answer() is None or server.name == "libevent_server", f"{server.name}: waits for ever for a slow client")
        check_drain(server)


def workers_of(parent):
    return [int(pid) for pid in pathlib.Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]


def wait_for_workers(server, gone, count=4):
    """Waits for so many workers that are not among those that are gone, and returns them."""
    end = time.monotonic() + PATIENCE_S
    while True:
        workers = [pid for pid in workers_of(server.process.pid) if pid not in gone]
        if len(workers) == count:
            return workers
        expect(time.monotonic() < end, f"there are {len(workers)} workers of {count}")
        time.sleep(0.05)


def check_respawn(program, environment):
    """Kills all workers after the limit is used up."""
    with Server(program, environment, LIMIT, 86400) as server:
        with client(server.port) as here:
            statuses = [here.ask()[0] for _ in range(LIMIT + 1)]
            expect(statuses == [200] * LIMIT + [429], f"{statuses}")
        workers = wait_for_workers(server, [])
        for pid in workers:
            os.kill(pid, signal.SIGKILL)
        wait_for_workers(server, workers)
        with client(server.port) as here:
            statuses = [here.ask()[0] for _ in range(3)]
            expect(statuses == [429] * 3, f"after all workers were replaced: {statuses}")
