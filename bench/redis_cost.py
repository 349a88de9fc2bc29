#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the fleet tier costs Redis, as Redis measures it: redis_cost.py [--scripts DIRECTORY] [--server REDIS-SERVER]
[--passes N] [--json]

Starts a private redis-server and sends the library's own scripts batches of 500 reports, as src/transport/redis/batch.c does.
"script" is what Redis says of EVALSHA (INFO commandstats), us per report: what the scripts themselves can help. "in all" is
the processor time of its main thread (INFO cpu), with reading the request and writing the answer. Every row is measured
once a pass, one after another; given are the least of PASSES passes, as whatever else the machine does only ever adds, and
the median of "in all" beside it. "ratio" is "in all" to the baseline of the same run: INCRBY and PEXPIRE, pipelined, which
is what a limiter that pushes increments sends for a key; new records to new keys.

Rows: a record that is new to Redis; one that is there, of 1 to 600 nodes, and the report has new units; one of a key
over its limit, whose counts of what was asked and admitted differ; a report that repeats what Redis has ("repeated"), and
one whose answer was lost and whose node does not know it ("answer lost"); and a bucket that was full again before the
report ("full"). Sliding logs of 4 nodes hold 10 to 65,536 units; a report tells of 5 more, while 5 leave the window. The
last row is of weir/inspect.h: a name that a walk looks at, with what its record has in use.

--json prints the same as a list of figures, with what every pass gave, for bench/report.py.
"""
import argparse
import contextlib
import hashlib
import json
import os
import pathlib
import shutil
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time

ADAPTER = pathlib.Path(__file__).resolve().parent.parent / "src" / "transport" / "redis"
sys.path.insert(0, str(ADAPTER))
from embed import code  # noqa: E402  (the scripts as the build puts them into the library)

SCRIPTS = ADAPTER / "scripts"
BATCH = 500
RECORDS = 5000
PASSES = 11
NODES = (1, 4, 16, 64, 200, 600)
PART_NODES = 150  # src/fleet/tuning.h
LIFE_MS = 600000
NOW_US = 1760000000000000
UNIT_PS = 1000000000  # a thousand units a second
OVER, REPEATED, LOST, FULL = ", over its limit", ", repeated", ", answer lost", ", full"
STATES = tuple((nodes, "") for nodes in NODES) + ((4, OVER), (600, OVER), (4, REPEATED), (4, LOST))
BUCKET_STATES = ((4, FULL),)
LOG_UNITS = (10, 100, 1000, 10000, 65536)
LOG_BATCH = 16  # as BATCH_HISTORIES of src/transport/redis/redis_state.h
LOG_CALLS = 4  # a pass
LOG_NEW = 5
LOG_STEP_US = 1000  # between two units of a log
WALK_PAGE, WALK_CALLS = 250, 8


class Redis:
    """A private server, and one connection to it."""

    def __init__(self, binary):
        self.directory = tempfile.mkdtemp(prefix="weir-cost-")
        path = os.path.join(self.directory, "redis.sock")
        self.url = f"unix://{path}"
        self.child = subprocess.Popen(
            [binary, "--port", "0", "--unixsocket", path, "--save", "", "--appendonly", "no", "--dir", self.directory],
            stdout=subprocess.DEVNULL)
        self.socket = socket.socket(socket.AF_UNIX)
        for _ in range(200):
            with contextlib.suppress(OSError):
                self.socket.connect(path)
                break
            time.sleep(0.05)
        else:
            raise RuntimeError(f"{binary} does not answer")
        self.replies = self.socket.makefile("rb", buffering=1 << 20)

    def close(self):
        self.socket.close()
        self.child.terminate()
        self.child.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    def reply(self):
        line = self.replies.readline()
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            raise RuntimeError(rest.decode())
        if kind == b"$":
            return None if rest == b"-1" else self.replies.read(int(rest) + 2)[:-2]
        if kind == b"*":
            return [self.reply() for _ in range(int(rest))]
        return int(rest) if kind == b":" else rest

    def send(self, payload, replies):
        """Sends what is packed already. Reads as it goes: a server that nobody reads from stops reading, too."""
        self.socket.sendall(payload)
        return [self.reply() for _ in range(replies)]

    def call(self, *arguments):
        return self.send(pack(*arguments), 1)[0]

    def info(self, section):
        lines = self.call("INFO", section).decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def script_us(self):
        stats = self.info("commandstats").get("cmdstat_evalsha", "calls=0,usec=0")
        return int(dict(pair.split("=") for pair in stats.split(","))["usec"])

    def cpu_us(self):
        info = self.info("cpu")
        thread = "_main_thread" if "used_cpu_user_main_thread" in info else ""
        return 1e6 * (float(info["used_cpu_user" + thread]) + float(info["used_cpu_sys" + thread]))


def pack(*arguments):
    parts = [b"*%d\r\n" % len(arguments)]
    for argument in arguments:
        data = argument if isinstance(argument, bytes) else str(argument).encode()
        parts.append(b"$%d\r\n%s\r\n" % (len(data), data))
    return b"".join(parts)


def record(kind, number, generation):
    key = f"198.51.{number >> 8 & 255}.{number & 255}"
    name = f"weir:{{{hashlib.md5(key.encode()).hexdigest()[:3]}}}:{kind[0]}1s:api:{key}"
    return name + f":{1760000000 + generation}" if kind == "window" else name + f"g{generation}"


def author(node, number):
    """As src/transport/author.h: three bytes of the node, and three of the key's stay there."""
    def digits(value):
        return bytes(digit + 5 + (digit + 5 >= 58) for digit in (value % 250, value // 250 % 250, value // 62500 % 250))
    return digits(node * 7919 + 11) + digits(node * 104729 + number + 1)


class Subject:
    """Reports of one kind, packed in batches before anything is measured."""

    def __init__(self, redis, scripts, kind):
        self.redis = redis
        self.kind = kind
        self.set_fleet(1)
        self.sha = redis.call("SCRIPT", "LOAD", code(scripts / f"report_{kind}.lua")).decode()

    def set_fleet(self, nodes):
        """How many nodes the fleet has whose reports come next. To make the records of a large one takes long."""
        self.nodes = nodes
        self.records = RECORDS if nodes <= 16 else RECORDS // 5

    def batch(self, numbers, generation, node, count, acked, asked, from_us, now_us):
        """The words of one call, as src/transport/redis/script_call.c puts them. acked None: the reports are merged."""
        added = acked is not None and asked == count and (self.kind == "window" or acked != 0)
        keys = [record(self.kind, n, generation) for n in numbers]
        # As src/fleet/round.c chooses it in a fleet of this size.
        part = node % max(self.nodes // PART_NODES, 1) or ""
        if self.kind == "window":
            number = 0 if not added else -count if acked == 0 else count
            merged = b"" if added else struct.pack("<ddddd", count, asked, 0, 0, 0)
            head = [part, struct.pack("<d", number) * len(keys), struct.pack("<H", 1) * len(keys), merged * len(keys), LIFE_MS]
            text = [count - acked] if added else []
        else:
            units_us = (count - acked) * UNIT_PS // 1000000 if added else 0
            numbers_of_record = struct.pack("<dddddH", count if added else 0, 0, from_us, units_us, 0, 1)
            merged = b"" if added else struct.pack("<9d", count, asked, 0, 0, 0, acked or 0, 0, 0, 0)
            head = [part, now_us, numbers_of_record * len(keys), merged * len(keys), UNIT_PS, 60000]
            text = [count - acked, units_us] if added else []
        argv = [word for n in numbers for word in (author(node, n), *text)]
        return pack("EVALSHA", self.sha, len(keys), *keys, *head, *argv)

    def batches(self, generation, node, step, before, over, full):
        """Step by step a node admits 25 units more of every key; `over`: and was asked for 75. `before`: the step of the
        node's last report (0: none), or None if the report is to be merged. `full`: a bucket is full in between."""
        count = 1000 + 25 * step
        asked = count + 50 * step if over else count
        acked = before and 1000 + 25 * before
        now_us = NOW_US + step * (5000000 if full else 20000)
        return [self.batch(range(first, first + BATCH), generation, node, count, acked, asked, now_us, now_us)
                for first in range(0, self.records, BATCH)]

    def run(self, generation, node=0, step=0, before=0, over=False, full=False):
        """us per report of the scripts, and in all."""
        batches = self.batches(generation, node, step, before, over, full)
        script_us, cpu_us = self.redis.script_us(), self.redis.cpu_us()
        for batch in batches:
            answer = self.redis.send(batch, 1)[0]
            if len(answer) < BATCH or -2 in answer:
                raise RuntimeError("a report was refused")
        return [(self.redis.script_us() - script_us) / self.records, (self.redis.cpu_us() - cpu_us) / self.records]

    def memory(self, nodes, over=False):
        """Bytes of a record, with its name and its entry in the key space: by the growth of used_memory, and by MEMORY USAGE."""
        self.redis.call("FLUSHALL")
        self.set_fleet(nodes)
        before = int(self.redis.info("memory")["used_memory"])
        for node in range(nodes):
            self.run(0, node, 1, 0, over)
        grown = int(self.redis.info("memory")["used_memory"]) - before
        name = record(self.kind, 0, 0)
        names = [name]
        if nodes >= 2 * PART_NODES:
            mark = self.redis.call("HGET", name, "mark").decode()
            names += [f"{name[:10]}{{{part}.{mark}}}" for part in range(1, nodes // PART_NODES)]
        return (grown / self.records, sum(self.redis.call("MEMORY", "USAGE", name, "SAMPLES", 0) for name in names),
                self.redis.call("OBJECT", "ENCODING", name).decode())

    def traffic(self):
        """Bytes of a report, and of its answer."""
        def read():
            info = self.redis.info("stats")
            return [int(info["total_net_input_bytes"]), int(info["total_net_output_bytes"])]
        self.run(0, 0, 1)
        batches = self.batches(0, 0, 2, 1, False, False)
        before = read()
        for batch in batches:
            self.redis.send(batch, 1)
        return [(b - a) / self.records for a, b in zip(before, read())]


class Log:
    """Reports of sliding logs, LOG_BATCH in a call. A unit of any node passes every LOG_STEP_US; the windows are full."""

    def __init__(self, redis, scripts, units):
        self.redis, self.units = redis, units
        self.sha = redis.call("SCRIPT", "LOAD", code(scripts / "report_history.lua")).decode()
        self.keys = [f"log of {units}, {number}" for number in range(LOG_BATCH)]
        self.told = 0
        while self.told < units:
            self.redis.send(self.report(min(250, units - self.told)), 1)

    def report(self, new):
        """Of the next `new` units of each log, by the next node."""
        node, first = self.told // LOG_NEW % 4, self.told
        self.told += new
        times = [NOW_US + number * LOG_STEP_US for number in range(first, self.told)]
        name = record("log", 0, 0)
        words = []
        for number in range(LOG_BATCH):
            words += [author(node, number), first, 0, 0, times[-1], self.units * LOG_STEP_US, self.units, self.told, 0, LIFE_MS, new, *times]
        return pack("EVALSHA", self.sha, 2 * LOG_BATCH, *(name + key for key in self.keys),
                    *(name.replace(":api:", "?api:") + key for key in self.keys), *words)

    def run(self):
        """us per report of the script, and in all."""
        calls = [self.report(LOG_NEW) for _ in range(LOG_CALLS)]
        script_us, cpu_us = self.redis.script_us(), self.redis.cpu_us()
        for call in calls:
            for answer in self.redis.send(call, 1)[0]:
                if answer[0] != 0 or answer[2] != self.units:
                    raise RuntimeError(f"a report was answered {answer[:3]}")
        reports = LOG_CALLS * LOG_BATCH
        return [(self.redis.script_us() - script_us) / reports, (self.redis.cpu_us() - cpu_us) / reports]


class Walk:
    """A walk over the names, as src/inspect/inspect_records.c does it: pages of WALK_PAGE, WALK_CALLS a pass."""

    def __init__(self, redis, scripts):
        self.redis, self.cursor = redis, b"0"
        self.sha = redis.call("SCRIPT", "LOAD", code(scripts / "read_page.lua")).decode()

    def run(self):
        """us per name of the script, and in all."""
        script_us, cpu_us, names = self.redis.script_us(), self.redis.cpu_us(), 0
        for _ in range(WALK_CALLS):
            page = self.redis.call("EVALSHA", self.sha, 0, self.cursor, "weir:{*}:*", WALK_PAGE, NOW_US)
            self.cursor, names = page[1], names + (len(page) - 2) // 2
        return [(self.redis.script_us() - script_us) / names, (self.redis.cpu_us() - cpu_us) / names]


class Increments:
    """The baseline."""

    def __init__(self, redis):
        self.redis = redis

    def run(self, generation):
        payloads = []
        for first in range(0, RECORDS, BATCH):
            names = [record("counter", n, generation) for n in range(first, first + BATCH)]
            payloads.append(b"".join(pack("INCRBY", n, 25) + pack("PEXPIRE", n, LIFE_MS) for n in names))
        before = self.redis.cpu_us()
        for payload in payloads:
            self.redis.send(payload, 2 * BATCH)
        return [0, (self.redis.cpu_us() - before) / RECORDS]


class Row:
    """One line of the table: `run(step)` measures once."""

    def __init__(self, title, run, base=None):
        self.title, self.run, self.base, self.results = title, run, base, []

    def least(self):
        return [min(column) for column in zip(*self.results)]

    def text(self):
        script_us, all_us = self.least()
        script = f"{script_us:.2f}" if script_us else "-"
        median_us = statistics.median(result[1] for result in self.results)
        ratio = all_us / self.base.least()[1] if self.base else 1
        return f"| {self.title} | {script} | {all_us:.2f} | {median_us:.2f} | {ratio:.2f} |"


def report(subject, generation, nodes, title, step):
    """One pass of a row: the nodes report in turn, from the middle one on: Redis looks through small records from their beginning."""
    subject.set_fleet(nodes)
    if title == REPEATED:
        return subject.run(generation, 0, 1, None)
    if title == LOST:
        return subject.run(generation, 0, 1, 0.5)
    return subject.run(generation, (nodes // 2 + step) % nodes, step, max(step - nodes, 1), title == OVER, title == FULL)


def rows_of(redis, subjects, logs, walk):
    increments = Increments(redis)
    there = Row("INCRBY + PEXPIRE", lambda step: increments.run(0))
    new = Row("INCRBY + PEXPIRE, new key", increments.run)
    rows = [there, new]
    generation = 1000  # of the rows' own records; those of the passes are below
    for subject in subjects:
        rows.append(Row(f"{subject.kind}, new", lambda step, s=subject: s.run(step), new))
        for nodes, title in STATES + BUCKET_STATES * (subject.kind == "bucket"):
            generation += 1
            subject.set_fleet(nodes)
            for node in range(nodes):
                subject.run(generation, node, 1, 0, title == OVER, title == FULL)
            rows.append(Row(f"{subject.kind}, {nodes} node{'s' * (nodes > 1)}{title}",
                            lambda step, s=subject, g=generation, n=nodes, t=title: report(s, g, n, t, step), there))
    rows += [Row(f"log, 4 nodes, {log.units} units", lambda step, log=log: log.run(), there) for log in logs]
    rows.append(Row("a name of a walk", lambda step: walk.run(), there))
    return rows


def sizes(subjects):
    """Of records of each kind: its title, and what Subject.memory says."""
    for subject in subjects:
        for nodes in NODES:
            for over in (False, True):
                title = f"{subject.kind}, {nodes} node{'s' * (nodes > 1)}{', over its limit' * over}"
                yield title, subject.memory(nodes, over)


def print_tables(rows, subjects):
    print("| one report | script, us | in all, us | median | ratio |\n| --- | --- | --- | --- | --- |")
    print("\n".join(row.text() for row in rows), flush=True)
    print("\n| one report | bytes sent | bytes answered |\n| --- | --- | --- |")
    for subject in subjects:
        print(f"| {subject.kind} | " + " | ".join(f"{size:.0f}" for size in subject.traffic()) + " |")
    print("\n| one record | bytes | MEMORY USAGE | encoding |\n| --- | --- | --- | --- |")
    for title, (grown, usage, encoding) in sizes(subjects):
        print(f"| {title} | {grown:.0f} | {usage} | {encoding} |")


def figure_name(title):
    """"window, 4 nodes, over its limit" is redis_cost/window/4_nodes/over_its_limit."""
    return "redis_cost/" + title.lower().replace(" + ", "_").replace(", ", "/").replace(" ", "_")


def figures(rows, subjects):
    """The same, as figures with a sample a pass."""
    out = []

    def add(title, what, unit, samples, **notes):
        out.append({"name": f"{figure_name(title)}/{what}", "unit": unit, "samples": samples, "notes": notes})

    for row in rows:
        script_us, all_us = zip(*row.results)
        if any(script_us):
            add(row.title, "script", "us", script_us)
        add(row.title, "in_all", "us", all_us, **({"baseline": figure_name(row.base.title)} if row.base else {}))
    for subject in subjects:
        for what, size in zip(("sent", "answered"), subject.traffic()):
            add(subject.kind, what, "bytes", [size])
    for title, (grown, _, _) in sizes(subjects):
        add(title, "record", "bytes", [grown])
    return out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--scripts", type=pathlib.Path, default=SCRIPTS)
    parser.add_argument("--server", default="redis-server")
    parser.add_argument("--passes", type=int, default=PASSES)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    redis = Redis(options.server)
    try:
        info = redis.info("server")
        if not options.json:
            print(f"redis {info.get('valkey_version') or info['redis_version']}, batches of {BATCH}, {RECORDS} records, "
                  f"{options.passes} passes\n")
        subjects = [Subject(redis, options.scripts, kind) for kind in ("window", "bucket")]
        rows = rows_of(redis, subjects, [Log(redis, options.scripts, units) for units in LOG_UNITS],
                       Walk(redis, options.scripts))
        for step in range(2, 2 + options.passes):
            for row in rows:
                row.results.append(row.run(step))
        if options.json:
            print(json.dumps(figures(rows, subjects)))
        else:
            print_tables(rows, subjects)
    finally:
        redis.close()


if __name__ == "__main__":
    main()
