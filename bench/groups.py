# SPDX-License-Identifier: Apache-2.0
"""The groups of figures: what each is, what measures it, and what its figures are held against."""
import contextlib
import itertools
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from typing import Callable

from figures import Skip
from redis_cost import Redis

HERE = pathlib.Path(__file__).resolve().parent
REPETITIONS = 7
KEY_COUNTS = (1000, 10000, 100000, 1000000)
MANY_KEYS = 10000000
NOTES = ("admitted", "keyed", "sketch", "bytes_per_key", "offenders_refused", "grown_mib")  # counters of weir-bench beside the time
BYTES_PER_KEY = 1000  # more than weir or any peer takes

INTERVALS_MS = (50, 100, 200, 500, 1000)
NODES = (2, 4, 16, 64)
ALGORITHMS = ("fixed", "sliding", "bucket")
PATTERNS = ("even", "skew")

INSTRUCTIONS_COUNT = 9600  # calls: a whole number of bursts


@dataclass
class Run:
    """How to measure: where the programs are, and how long (1: as it is meant to be)."""

    build: pathlib.Path
    scale: float = 1

    def program(self, *path):
        program = self.build.joinpath(*path)
        if not program.exists():
            raise Skip(f"{program.name} is not built here")
        return str(program)

    def seconds(self, full, least=0.02):
        return max(full * self.scale, least)

    def output(self, *command, errors=None):
        """What it prints. What it says on stderr goes there, unless it is collected in `errors`."""
        done = subprocess.run([str(word) for word in command], text=True, stdout=subprocess.PIPE,
                              stderr=None if errors is None else subprocess.PIPE)
        if errors is not None:
            errors.append(done.stderr)
        if done.returncode != 0:
            said = (done.stderr or "").strip().splitlines()[-1:]
            raise RuntimeError(": ".join([" ".join(str(word) for word in command), f"exit {done.returncode}", *said]))
        return done.stdout


@dataclass
class Group:
    name: str
    text: str
    measure: Callable  # (run, figures)
    baseline: Callable = lambda name, figures: None  # the name of the figure it is held against
    paired: bool = False


@contextlib.contextmanager
def redis_server():
    """The URL of a private server."""
    if shutil.which("redis-server") is None:
        raise Skip("there is no redis-server")
    redis = Redis("redis-server")
    try:
        yield redis.url
    finally:
        redis.close()


def available_memory():
    for line in open("/proc/meminfo", encoding="ascii"):
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


def need_memory(keys):
    if available_memory() < keys * BYTES_PER_KEY:
        raise Skip(f"{keys} keys need {keys * BYTES_PER_KEY >> 30} GiB of memory")


def figure_name(run_name):
    """hot/weir/real_time/threads:1 is hot/weir; the number of threads is said from two on."""
    return run_name.replace("/real_time", "").removesuffix("/threads:1")


def measure_benchmarks(run, figures, pattern, *more):
    """The benchmarks of weir-bench whose names begin so."""
    with tempfile.NamedTemporaryFile(suffix=".json") as results:
        errors = []
        run.output(run.program("bench", "weir-bench"), f"--benchmark_filter=^{pattern}/",
                   f"--benchmark_repetitions={REPETITIONS}", f"--benchmark_min_time={run.seconds(0.2):g}",
                   f"--benchmark_out={results.name}", "--benchmark_out_format=json", *more, errors=errors)
        rows = json.load(open(results.name, encoding="utf-8"))["benchmarks"]
    has_peers = any("keyed" in row for row in rows)
    for line in errors[0].splitlines():
        if has_peers and line.startswith("skipped: ") and line[9:] not in figures.left_out:
            figures.left_out.append(line[9:])
    for row in rows:
        if row["run_type"] == "iteration" and not row.get("error_occurred"):
            notes = {note: row[note] for note in NOTES if note in row}
            figures.add(figure_name(row["run_name"]), "ns", row["ns"], **notes)


def benchmarks(name, text, baseline):
    return Group(name, text, lambda run, figures: measure_benchmarks(run, figures, name), baseline)


def measure_many(run, figures):
    for count in KEY_COUNTS:
        measure_benchmarks(run, figures, f"many_{count}(_zipf)?", f"--keys={count}")
    if run.scale < 1:
        raise Skip(f"{MANY_KEYS} keys take too long for --quick")
    need_memory(MANY_KEYS)
    measure_benchmarks(run, figures, f"many_{MANY_KEYS}(_zipf)?/weir_keyed", f"--keys={MANY_KEYS}")


def measure_bursts(run, figures):
    measure_benchmarks(run, figures, "burst")
    if run.scale < 1:
        raise Skip(f"{MANY_KEYS} keys take too long for --quick")
    need_memory(MANY_KEYS)
    measure_benchmarks(run, figures, f"burst/{MANY_KEYS}/(1|32|256)", f"--keys={MANY_KEYS}")


def same_threads_as_weir(name, figures):
    """A peer is held against weir with as many threads: with its key at hand, or made at each check as the peer's."""
    group, _, *threads = name.split("/")
    keyed = figures.get(name).notes.get("keyed")
    return "/".join([group, "weir_keyed" if keyed else "weir", *threads])


def measure_flood(run, figures):
    need_memory(MANY_KEYS)  # governor keeps every key
    measure_benchmarks(run, figures, "flood")


def flood_baseline(name, figures):
    group, kind, _, *threads = name.split("/")
    return "/".join([group, kind, "weir_keyed", *threads])


def burst_baseline(name, figures):
    """weir's bursts are held against bursts of one key, those of peers against weir's of the same keys."""
    _, keys, size, *peer = name.split("/")
    return "/".join(["burst", keys, size, "weir_burst", *peer[1:]] if peer else ["burst", keys, "1"])


def floor_baseline(name, figures):
    """weir after hashing is held against the floor after hashing, all else against the bare floor."""
    subject = name.removeprefix("floor/")
    return f"floor/{subject.removeprefix('weir_')}" if subject.startswith("weir_") else "floor/function"


def alone(name, figures):
    return re.sub(r"/threads:\d+$", "", name)


def measure_instructions(run, figures):
    if shutil.which("valgrind") is None:
        raise Skip("there is no valgrind; scripts/setup installs it")
    program = run.program("bench", "weir-instructions")

    def collected(path, count):
        errors = []
        run.output("valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", program, path, count, errors=errors)
        return int(re.search(r"Collected *: *(\d+)", errors[0]).group(1))

    for path in run.output(program).split():
        once, twice = (collected(path, n * INSTRUCTIONS_COUNT) for n in (1, 2))
        figures.add(f"instructions/{path}", "instructions", (twice - once) / INSTRUCTIONS_COUNT)


def measure_latency(run, figures):
    if shutil.which("redis-server") is None:
        raise Skip("there is no redis-server")
    repetitions, each_ms, before_ms = (REPETITIONS, 2000, 1500) if run.scale == 1 else (2, 200, 500)
    figures.read_lines(run.output(run.program("bench", "weir-latency"), repetitions, each_ms, before_ms))


def measure_memory(run, figures):
    program = run.program("bench", "weir-memory")
    keys = KEY_COUNTS[-1 if run.scale == 1 else -2]
    for scope, repetition in itertools.product(("process", "fleet"), range(REPETITIONS)):
        figures.read_lines(run.output(program, scope, keys, *([] if repetition else [10 * keys])))
    if run.scale < 1:
        raise Skip(f"{MANY_KEYS} keys take too long for --quick")
    need_memory(MANY_KEYS)
    for scope in ("process", "fleet"):
        figures.read_lines(run.output(program, scope, MANY_KEYS, 10 * MANY_KEYS))


def measure_accuracy(run, figures):
    program = run.program("apps", "fleetsim", "weir-fleetsim")
    quick = run.scale < 1
    seconds = 6 if quick else 12
    for algorithm, pattern, nodes, interval in itertools.product(
            ALGORITHMS, PATTERNS, NODES[1:3] if quick else NODES, INTERVALS_MS[::2] if quick else INTERVALS_MS):
        name = f"accuracy/{algorithm}_{pattern}/{nodes}/{interval}"
        results = [json.loads(run.output(
            program, "--limit", f"{algorithm}:10000/1s", "--nodes", nodes, "--interval", interval, "--demand", 3,
            "--pattern", pattern, "--seconds", seconds, "--delay", "0.1-1", "--seed", seed, "--json"))
            for seed in range(1, REPETITIONS + 1)]
        figures.add(name, "of_the_limit", *(result["mean"] for result in results),
                    worst_window=max(result["most"] for result in results))


def measure_redis_cost(run, figures):
    if shutil.which("redis-server") is None:
        raise Skip("there is no redis-server")
    passes = 11 if run.scale == 1 else 2
    for row in json.loads(run.output(sys.executable, HERE / "redis_cost.py", "--json", "--passes", passes)):
        figures.add(row["name"], row["unit"], *row["samples"], **row["notes"])


def redis_cost_baseline(name, figures):
    base = figures.get(name).notes.get("baseline")
    return f"{base}/in_all" if base and name.endswith("/in_all") else None


def measure_reports(run, figures):
    """Under a virtual clock: it does not get more exact by being repeated."""
    keys, rate = (100000, 1000000) if run.scale == 1 else (10000, 100000)
    figures.read_lines(run.output(run.program("bench", "weir-bench-reports"), keys, rate, 62))


def measure_background(run, figures):
    with redis_server() as url:
        figures.read_lines(run.output(run.program("bench", "weir-background"), url, REPETITIONS, run.seconds(2, 0.4)))


def measure_idle(run, figures):
    program = run.program("bench", "weir-idle")
    seconds = run.seconds(3, 0.5)
    figures.read_lines(run.output(program, REPETITIONS, seconds))
    with redis_server() as url:
        figures.read_lines(run.output(program, REPETITIONS, seconds, url))


def measure_processes(run, figures):
    figures.read_lines(run.output(run.program("bench", "weir-processes"), REPETITIONS, run.seconds(0.5, 0.04)))


def processes_baseline(name, figures):
    """Sharing is held against not sharing, two processes against one in a weir of its kind."""
    kind = name.removeprefix("processes/").removeprefix("two_")
    return f"processes/{kind}" if "two_" in name else "processes/unshared"


def measure_gateway(run, figures):
    run.program("apps", "gateway", "weir-gateway")
    runs = REPETITIONS if run.scale == 1 else 2
    measure_script(run, figures, "gateway.py", runs)


def measure_script(run, figures, script, *arguments):
    """One of the scripts beside this one, that writes its figures with --json. It ends with 77 where something is missing."""
    with tempfile.NamedTemporaryFile(suffix=".json") as results:
        command = [sys.executable, HERE / script, run.build, *arguments, "--json", results.name]
        done = subprocess.run([str(word) for word in command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        said = (done.stderr.strip().splitlines() or [""])[-1]
        if done.returncode == 77:
            raise Skip(said)
        if done.returncode != 0:
            raise RuntimeError(f"{script}: exit {done.returncode}: {said}")
        for name, figure in json.load(open(results.name, encoding="utf-8")).items():
            figures.add(name, figure["unit"].replace(" ", "_"), *figure["samples"])


def measure_gateway_flood(run, figures):
    run.program("bench", "packets", "weir-flood")
    measure_script(run, figures, "gateway_flood.py", *([] if run.scale == 1 else ["--quick"]))


def gateway_flood_baseline(name, figures):
    return re.sub(r"(generic|native|all)_per_", "none_per_", name) if "_per_" in name else None


def measure_gateway_forward(run, figures):
    run.program("bench", "packets", "weir-flood")
    measure_script(run, figures, "gateway_forward.py", *([] if run.scale == 1 else ["--quick"]))


def gateway_forward_baseline(name, figures):
    """The time of a packet and the packets, against the sockets'."""
    return re.sub(r"(generic|native)_", "sockets_", name) if name.endswith(("_us", "_per_s")) else None


def measure_dns(run, figures):
    run.program("apps", "gateway", "weir-gateway")
    measure_script(run, figures, "dns.py", *([] if run.scale == 1 else ["--quick"]))


def dns_baseline(name, figures):
    return name.replace("dnsdist", "gateway") if "dnsdist" in name else None


def measure_simulate(run, figures):
    run.program("apps", "weir", "weir")
    measure_script(run, figures, "simulate.py", *([] if run.scale == 1 else ["--quick"]))


GROUPS = (
    benchmarks("floor", "What a check takes beside the least it can be: a counter at hand (one load, one comparison, one "
               "addition, one store), called in a shared library as weir is. `weir` is `weir_check` of a hot key with the "
               "verdict asked for; `hash_16`, `hash_64`: the key of so many bytes is hashed first, by XXH3 as in "
               "`weir_make_key`.",
               floor_baseline),
    Group("instructions", "Instructions of a call with the loop around it, counted by callgrind. They are the same in each "
          "run of the same build. `cold` is a key without a slot, `burst_32` is per key.", measure_instructions,
          lambda name, figures: "instructions/floor"),
    benchmarks("hot", "One key, far from its limit; no verdict asked for. `weir_keyed` and the peers with a table hash 16 "
               "bytes and look them up each time.", same_threads_as_weir),
    benchmarks("denied", "One key, at its limit.", same_threads_as_weir),
    Group("many", "`many_N`: N keys at random, all present and far from their limits; `many_N_zipf`: by Zipf's law.",
          measure_many, same_threads_as_weir),
    Group("burst", "`burst/KEYS/SIZE`: `weir_check_burst` of random keys, hashed; time of one key. `burst/KEYS/32/PEER`: peers "
          "that can ask 32 keys at once, all given the same sequence; `dpdk_bulk` is `rte_hash_lookup_bulk` with srTCM.",
          measure_bursts, burst_baseline),
    benchmarks("prefetch", "`prefetch/KEYS/AHEAD`: one of KEYS keys at random, hashed, and `weir_prefetch` of it so many checks before its "
               "own; time of one key.", lambda name, figures: f"prefetch/{name.split('/')[1]}/1"),
    Group("flood", "Peers that take new keys without an end, with room for 1,000,000, after 4,000,000 checks of such keys and under "
          "more of them. `new`: each key is new. `mixed`: one in ten is of 100,000 known sources, by Zipf's law. *offenders "
          "refused*: of 1,024 sources that were over their limit before the flood, the part that is refused after it. *admitted*: "
          "of the flood itself. *grown mib*: by how much the flood made the process grow.", measure_flood, flood_baseline),
    benchmarks("prefixes", "Requests of five keys, hashed: an IPv6 address, its /64, /56, /48 and /32; time of a request. "
               "`hot`: one address. `denied`: its /56 is at its limit. `flood`: addresses never seen, in a /48 that is at "
               "its limit. `many/N`: N addresses at random, by `weir_check_all`; `burst/N`: by `weir_check_all_burst`, 32 "
               "at once.", lambda name, figures: "prefixes/hot"),
    benchmarks("threads", "Time of one check on each of so many threads at once.", alone),
    Group("processes", "A hot key checked by processes, each on a processor of its own: `unshared` and `shared` by one process, "
          "in a weir that is not shared and in one that is; `two_shared` by two processes on one key of the shared weir; "
          "`two_unshared` by two, each in a weir of its own, which shows what the machine does to any two. Turns of 10 ms "
          "alternate.", measure_processes, processes_baseline, paired=True),
    benchmarks("limits", "A hot key under so many limits.", lambda name, figures: "limits/1"),
    benchmarks("call", "The public calls on hot keys; `check_all/N` of N keys, the nth under n limits.",
               lambda name, figures: "call/check"),
    Group("latency", "One hot key on a thread with a processor of its own, while Redis is up and nothing else goes on "
          "(`idle`), while the background thread reports 20,000 other keys a second (`syncing`), while Redis answers 300 ms "
          "late (`slow`), hangs by SIGSTOP (`hung`), and while its connection flaps (`flapping`). `floor`: the floor is called "
          "instead of weir, which shows what the machine does to anyone. `mean` is timed by the thousand; in the "
          "percentiles is the clock's own time. `past_the_thread`: checks a million that went to the table, of all "
          "threads (while syncing, those of the other keys among them).", measure_latency,
          lambda name, figures: None if "reports" in name or "/curve/" in name
          else "/".join(["latency", "idle", name.split("/")[2]]), paired=True),
    Group("memory", "A weir for N keys, in a process of its own: time to open and close, resident bytes per key when it is "
          "open and when N keys have been checked; `grown_by_M` MiB by M keys more, none of them twice.", measure_memory),
    Group("accuracy", "`accuracy/ALGORITHM_PATTERN/NODES/INTERVAL`: admitted by the limit, three times of which is asked "
          "for, in `weir-fleetsim`; a limit of 10,000 a second, intervals in ms, delays of 0.1 to 1 ms, a seed per "
          "repetition.", measure_accuracy),
    Group("redis_cost", "Processor time of Redis for one report, by its own account; the baseline is INCRBY and PEXPIRE.",
          measure_redis_cost, redis_cost_baseline, paired=True),
    Group("reports", "Reports a second and node when every key that has changed is told in every interval (`all`), and when "
          "what matters is (`due`); what the keys near their limits admitted.", measure_reports,
          lambda name, figures: name.replace("/due/", "/all/")),
    Group("background", "The background thread's part of a core at some 20,000 reports a second.", measure_background),
    Group("idle", "How often an idle process wakes up.", measure_idle),
    Group("gateway", "Packets the gateway takes, a second and (`_cpu`) a second of its own processor time: limits off, on, "
          "under a flood from one source, and with each packet alone (`plain`), with offload and without; `_to_off` and "
          "`_gain` are ratios, run by run.", measure_gateway),
    Group("gateway_flood", "Floods from 1, 10,000 and 10,000,000 forged sources at the gateway, without XDP (`none`), with generic "
          "and with native XDP. `all`: generic, with a program that drops every packet unseen. `_per_cpu`: packets denied for a second of processor time. `_beside`, `_quiet`: 1,000 other "
          "clients, beside a flood and without one.", measure_gateway_flood, gateway_flood_baseline, paired=True),
    Group("gateway_forward", "Packets of 200 clients that the gateway forwards, there and back, by sockets and by AF_XDP with generic and with native "
          "XDP, at 10,000 packets a second, at 40,000 and at all that the sender can (`all`). `_us`: processor time of a packet. "
          "`_lane`: packets that went by AF_XDP, of all.",
          measure_gateway_forward, gateway_forward_baseline, paired=True),
    Group("dns", "Processor time of the gateway and of dnsdist for a query that they forward, and for one that they drop.",
          measure_dns, dns_baseline, paired=True),
    Group("simulate", "Processor time of a line of a log that `weir simulate` reads (`weir`), that `wc -l` reads, whose client awk "
          "counts, and that GoAccess reports on.", measure_simulate,
          lambda name, figures: f"{name.rpartition('/')[0]}/awk", paired=True),
)
