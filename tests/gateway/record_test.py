#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
The gateway's captures of what it denied: record_test.py BUILD_DIRECTORY SOURCE_DIRECTORY [TEST...]. Prints TAP.

Guards: apps/gateway/record/record.c, apps/gateway/decision.c
"""
import json
import os
import pathlib
import resource
import signal
import socket
import struct
import subprocess
import sys
import time

from support import Fixture, POLICIES, Skipped, run

ONCE = "[{{algorithm: fixed_window, limit: {}, period: 30d}}]"


def once(limit, name="source"):
    return f"policies:\n  - name: {name}\n    limits: {ONCE.format(limit)}\n"


class Recorded(Fixture):
    def __init__(self, *more, at=None, **options):
        self.size = 0
        super().__init__("--record", at or "denied.pcapng", *more, threads=options.pop("threads", 1),
                         before=options.pop("before", None) or self.enter, **options)

    def enter(self):
        os.chdir(self.demo.dir)

    @property
    def capture(self):
        return self.demo.dir / "denied.pcapng"

    def flood(self, client, count, data=b"x" * 20):
        """Each packet when the gateway has had the one before."""
        for _ in range(count):
            before = self.status()["offered"]
            client.send(data)
            self.until(lambda: self.status()["offered"] == before + 1)

    def recorded(self, count):
        return self.until(lambda: (s := self.status()["record"])["packets"] >= count and s)


def blocks(path):
    """The kinds, bodies and comments of a pcapng file's blocks."""
    data, at, out = path.read_bytes(), 0, []
    while at < len(data):
        kind, length = struct.unpack_from("=II", data, at)
        assert length % 4 == 0 and at + length <= len(data), (at, length)
        assert struct.unpack_from("=I", data, at + length - 4)[0] == length
        out.append((kind, data[at + 8:at + length - 4]))
        at += length
    return out


def packets(path):
    out = []
    for kind, body in blocks(path):
        if kind == 6:
            _, high, low, captured, size = struct.unpack_from("=IIIII", body)
            at = 20 + (captured + 3) // 4 * 4
            options = {}
            while at < len(body):
                code, length = struct.unpack_from("=HH", body, at)
                options[code] = body[at + 4:at + 4 + length]
                at += 4 + (length + 3) // 4 * 4
            out.append({"ns": high << 32 | low, "data": body[20:20 + captured], "size": size, "comment": options[1].decode(),
                        "lost": struct.unpack("=Q", options[4])[0]})
    return out


def simulate(f, policies, *files):
    """What weir simulate says of a capture; skips where it cannot read captures."""
    path = f.demo.dir / "looser.yaml"
    path.write_text(policies)
    weir = pathlib.Path(sys.argv[1]) / "apps/weir/weir"
    done = subprocess.run([str(weir), "simulate", "--policies", str(path), "--json", *map(str, files)], capture_output=True,
                          text=True, timeout=60)
    if "without libpcap" in done.stderr:
        raise Skipped("weir was built without libpcap")
    assert done.returncode in (0, 8), done  # 8: it is too short to tell a rate
    return json.loads(done.stdout)


def test_what_is_denied_is_in_the_file_and_a_looser_policy_would_have_let_it_pass():
    with Recorded(policies=once(5)) as f:
        one, other = f.client(source="127.0.0.2"), f.client(source="127.0.0.3")
        f.flood(one, 25, b"one" * 10)
        f.flood(other, 9, b"other")
        f.recorded(24)
        assert (os.stat(f.capture).st_mode & 0o777) == 0o600
        kinds = [kind for kind, _ in blocks(f.capture)]
        assert kinds == [0x0A0D0D0A, 1] + [6] * 24, kinds
        seen = packets(f.capture)
        assert all(p["comment"] == "denied by source; stands for 1" and p["lost"] == 0 for p in seen), seen
        first = seen[0]["data"]
        assert first[:1] == b"\x45" and first[12:20] == socket.inet_aton("127.0.0.2") + socket.inet_aton("127.0.0.1")
        assert struct.unpack("!HH", first[20:24]) == (one.getsockname()[1], f.port) and first[28:] == b"one" * 10
        assert [p["ns"] for p in seen] == sorted(p["ns"] for p in seen)
        report = simulate(f, once(15), f.capture)
        assert report["requests"] == 24 and report["traces"][0]["malformed"] == 0, report
        assert report["new"]["denied"] == 5 and report["new"]["limited_keys"] == 1, report  # 20 - 15, of the first source
        assert report["top"][0]["key"] == "127.0.0.2", report["top"]
        assert simulate(f, once(20), f.capture)["new"]["denied"] == 0


def test_a_flood_is_sampled_and_what_the_packets_stand_for_is_counted():
    with Recorded("--record-rate", "50", policies=POLICIES.format(10), threads=2) as f:
        f.send(3, "flood,4,20000")
        status = f.until(lambda: (s := f.status())["record"]["packets"] > 50 and s)
        denied = status["offered"] - status["passed"]
        seen = packets(f.capture)
        assert 50 < len(seen) <= 50 * 30 < denied, (len(seen), denied)
        stand_for = sum(p["lost"] + 1 for p in seen)
        assert denied // 4 < stand_for <= denied, (stand_for, denied)
        assert all(p["comment"] == f"denied by source; stands for {p['lost'] + 1}" for p in seen)
        assert f.get("/metrics").count("weir_gateway_record_fails 0\n") == 1


def test_packets_are_cut_at_the_snap_length():
    with Recorded("--record-snap", "7", policies=once(1)) as f:
        f.flood(f.client(), 3, b"0123456789" * 100)
        f.recorded(2)
        assert [(p["data"][28:], p["size"]) for p in packets(f.capture)] == [(b"0123456", 1028)] * 2


def test_ipv6_and_the_address_that_was_asked():
    with Recorded(listen="", policies=once(1)) as f:
        f.flood(f.client("::1"), 3)
        f.flood(f.client("127.0.0.9", source="127.0.0.2"), 3)
        f.recorded(4)
        data = [p["data"] for p in packets(f.capture)]
        assert data[0][:1] == b"\x60" and data[0][8:40] == 2 * socket.inet_pton(socket.AF_INET6, "::1"), data[0]
        assert data[2][:1] == b"\x45" and data[2][12:20] == socket.inet_aton("127.0.0.2") + socket.inet_aton("127.0.0.9"), data[2]
        assert simulate(f, once(100), f.capture)


def test_a_reload_goes_on_in_a_new_file_where_the_old_one_was_moved():
    with Recorded(policies=once(1)) as f:
        client = f.client()
        f.flood(client, 3)
        f.recorded(2)
        f.capture.rename(f.demo.dir / "yesterday")
        f.child.send_signal(signal.SIGHUP)
        f.until(f.capture.exists)
        f.flood(client, 2)
        f.recorded(4)
        assert len(packets(f.demo.dir / "yesterday")) == len(packets(f.capture)) == 2
        f.child.send_signal(signal.SIGHUP)  # not moved: it goes on
        f.until(lambda: f.status()["reloads"] == 2)
        f.flood(client, 1)
        f.recorded(5)
        assert len(packets(f.capture)) == 3


def test_a_gateway_that_is_killed_leaves_whole_blocks_and_the_next_one_keeps_them():
    with Recorded(policies=once(1)) as f:
        f.flood(f.client(), 4)
        f.recorded(3)
        f.child.kill()
        f.child.wait()
        assert len(packets(f.capture)) == 3
        command = [*map(str, f.child.args)]
        child = f.demo.start(*command, stderr=subprocess.DEVNULL, cwd=str(f.demo.dir))
        f.until(lambda: (f.demo.dir / "denied.pcapng.1").exists() and f.capture.exists() and f.capture.stat().st_size)
        assert len(packets(f.demo.dir / "denied.pcapng.1")) == 3 and packets(f.capture) == []
        child.kill()
        child.wait()


def test_a_file_of_another_kind_stays_and_the_gateway_does_not_start():
    with Fixture() as f:
        other = f.demo.dir / "notes.txt"
        other.write_text("keep me")
        link = f.demo.dir / "link"
        link.symlink_to(other)
        for path, why in ((other, "no pcapng file"), (link, "symbolic link"), (f.demo.dir, "no pcapng file"),
                          (f.demo.dir / "none/x", "No such file")):
            done = subprocess.run([str(f.demo.bin / "weir-gateway"), "--listen", "127.0.0.1:1", "--backend", "127.0.0.1:9", "--policies",
                                   str(f.path), "--record", str(path)], capture_output=True, text=True, timeout=20)
            assert done.returncode == 1 and why in done.stderr and "--record" in done.stderr, (path, done)
        assert other.read_text() == "keep me"


def test_a_file_that_cannot_grow_stops_nothing():
    """A limit on the size of files stands for a disk without room."""
    def small():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1500, resource.RLIM_INFINITY))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        os.chdir(directory[0])
    directory = []

    class Small(Recorded):
        def enter(self):
            directory.append(self.demo.dir)
            small()
    with Small("--record-snap", "1000", "--no-denial-log", policies=once(5)) as f:
        client = f.client()
        f.flood(client, 20, b"y" * 500)
        status = f.until(lambda: (s := f.status())["record"]["fails"] and s)
        assert status["record"]["lost"] > 0 and status["record"]["packets"] < 15, status
        f.flood(f.client(source="127.0.0.2"), 3, b"z")
        assert f.status()["passed"] == 8 and f.child.poll() is None
        # It is tried again every five seconds, and the capture stays what it is.
        begin = time.monotonic()
        while time.monotonic() - begin < 11:
            f.flood(client, 2, b"y" * 500)
            time.sleep(0.2)
        status = f.status()
        assert status["record"]["fails"] and len(packets(f.capture)) == status["record"]["packets"] > 0  # whole blocks
        assert not (f.demo.dir / "denied.pcapng.1").exists()
        said = f.log.read_text()  # what is left of the file may have taken a packet between
        most = 1 + (time.monotonic() - begin) / 5
        assert 1 <= said.count("is not recorded until") == said.count("recorded again") + 1 <= most, said
        # There is room again.
        resource.prlimit(f.child.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

        def is_recorded():
            f.flood(client, 1, b"y" * 500)
            return not f.status()["record"]["fails"]
        f.until(is_recorded)
        f.until(lambda: len(packets(f.capture)) == f.status()["record"]["packets"] > status["record"]["packets"])


def test_a_start_that_records_nothing_keeps_the_last_capture():
    with Recorded(policies=once(1)) as f:
        f.flood(f.client(), 4)
        f.recorded(3)
        command = [*map(str, f.child.args)]
        for _ in range(3):
            f.child.terminate()
            assert f.child.wait(20) == 0
            f.child = f.demo.start(*command, stderr=subprocess.DEVNULL, cwd=str(f.demo.dir))
            f.until(f.status)
        assert len(packets(f.demo.dir / "denied.pcapng.1")) == 3 and packets(f.capture) == []


def test_a_full_file_is_moved_aside():
    with Recorded("--record-size", "1", "--record-snap", "60000", "--record-rate", "1000000", policies=once(1)) as f:
        older = f.demo.dir / "denied.pcapng.1"
        while not older.exists():
            f.flood(f.client(), 10, b"w" * 60000)
        f.until(lambda: f.capture.exists())
        assert older.stat().st_size <= 1 << 20 and packets(older)


if __name__ == "__main__":
    run(globals())
