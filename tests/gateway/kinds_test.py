#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
The gateway's kinds of packets, and the presets: kinds_test.py BUILD_DIRECTORY SOURCE_DIRECTORY [TEST...]. Prints TAP.

Guards: apps/gateway/kinds/kind_file.c, apps/gateway/decision.c, apps/gateway/policy_look.c, docs/examples/presets/quic.kinds.yaml
"""
import contextlib
import os
import pathlib
import signal
import subprocess
import sys

from support import Fixture, run

KINDS = "kinds:\n  - {name: dear, match: 'ff ff', cost: 10}\n  - {name: free, match: ee, cost: 0}\n  - {name: own, match: dd, cost: 3}\n"
DEAR, FREE, OWN, PLAIN = b"\xff\xffx", b"\xeex", b"\xddx", b"x"
PRESETS = pathlib.Path(sys.argv[2]) / "docs/examples/presets"


def limits(**policies):
    return "policies:\n" + "".join(f"  - name: {name.replace('__', '.')}\n    limits: [{{algorithm: fixed_window, limit: {limit}, "
                                   "period: 30d}]\n" for name, limit in policies.items())


class Kinds(Fixture):
    def __init__(self, kinds=KINDS, more=(), threads=1, **options):
        self.kinds_text = kinds
        super().__init__("--kinds", "kinds.yaml", *more, threads=threads, before=self.prepare, **options)

    def prepare(self):
        os.chdir(self.demo.dir)
        pathlib.Path("kinds.yaml").write_text(self.kinds_text)

    def passes(self, client, *packets):
        """Sends one after another. How many of them the gateway let pass."""
        before = self.status()
        for n, packet in enumerate(packets, 1):
            client.send(packet)
            self.until(lambda: self.status()["offered"] == before["offered"] + n)
        return self.status()["passed"] - before["passed"]

    def reload(self, policies=None, kinds=None):
        before, said = self.status(), len(self.log.read_text())
        if policies is not None:
            self.path.write_text(policies)
        if kinds is not None:
            (self.demo.dir / "kinds.yaml").write_text(kinds)
        self.child.send_signal(signal.SIGHUP)
        self.until(lambda: (s := self.status())["reloads"] + s["reload_errors"] == before["reloads"] + before["reload_errors"] + 1)
        return self.log.read_text()[said:]


def check(policies, kinds=None, *more):
    command = [pathlib.Path(sys.argv[1]) / "apps/gateway/weir-gateway", "--check", policies, *(("--kinds", kinds) if kinds else ()), *more]
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=20)


def test_a_packet_costs_what_its_kind_costs():
    with Kinds(policies=limits(source=100, overall=150, source_bytes=100000)) as f:
        one, other = f.client(source="127.0.0.2"), f.client(source="127.0.0.3")
        assert f.passes(one, *[DEAR] * 7) == 7
        assert f.passes(one, *[PLAIN] * 25) == 25
        assert f.passes(one, DEAR, OWN, PLAIN, OWN, PLAIN, PLAIN) == 3  # 5 are left: own 3, plain 1, and plain 1
        assert f.passes(other, *[DEAR] * 7) == 5  # 50 are left of all
        assert f.status()["dropped"]["overall"] == 2 and f.status()["dropped"]["source_bytes"] == 0


def test_what_costs_nothing_passes_all_but_limits_of_bytes_and_of_its_kind():
    with Kinds(policies=limits(source=2, source_bytes=20, source__free=4)) as f:
        one, other = f.client(source="127.0.0.2"), f.client(source="127.0.0.3")
        assert f.passes(one, *[PLAIN] * 3) == 2
        assert f.passes(one, *[FREE] * 6) == 4
        policies = f.status()["policies"]
        assert policies["source"]["offered"] == 3 and policies["source.free"]["offered"] == 6, policies
        assert policies["source.free"]["dropped"] == 2 and policies["source_bytes"]["offered"] == 6, policies
        assert f.passes(other, b"\xee" + b"x" * 19, FREE) == 1


def test_a_kind_has_limits_of_its_own_and_those_of_all():
    with Kinds(policies=limits(source=60, source__own=4, overall__own=6, source_bytes__dear=3)) as f:
        one, other = f.client(source="127.0.0.2"), f.client(source="127.0.0.3")
        assert f.passes(one, *[OWN] * 6) == 4  # each costs 1 of its own limit, and 3 of the source's
        assert f.passes(other, *[OWN] * 6) == 2
        assert f.passes(one, DEAR, DEAR) == 1  # the second one has bytes of its kind too many
        assert f.passes(one, *[PLAIN] * 45) == 60 - 12 - 10
        dropped = f.status()["dropped"]
        assert dropped == dropped | {"source.own": 2, "overall.own": 4, "source_bytes.dear": 1, "source": 7, "overall": 0}, dropped
        assert 'weir_gateway_dropped_packets_total{limit="source.own"} 2\n' in f.get("/metrics")


def test_kinds_in_one_burst_are_told_apart():
    """Many packets at once, in messages that the kernel merged and others."""
    with Kinds(policies=limits(source=100000, source__own=50)) as f:
        client = f.client()
        for _ in range(200):
            client.send(OWN)
            client.send(PLAIN + b"y")
        status = f.until(lambda: (s := f.status())["offered"] == 400 and s)
        assert status["passed"] == 250 and status["dropped"]["source.own"] == 150, status


def test_shadow_mode_counts_costs():
    text = limits(source=25).replace("- name: source\n", "- name: source\n    mode: shadow\n")
    with Kinds(policies=text) as f:
        assert f.passes(f.client(), *[DEAR] * 5, *[FREE] * 2) == 7
        policy = f.status()["policies"]["source"]
        assert policy["would_deny"] == 3 and policy["offered"] == 5, policy


def test_an_override_is_of_a_kind():
    with Kinds(policies=limits(source=100000, source__own=4) + "overrides:\n  source.own:127.0.0.2: deny\n") as f:
        assert f.passes(f.client(source="127.0.0.2"), OWN, PLAIN) == 1
        assert f.passes(f.client(source="127.0.0.3"), OWN, PLAIN) == 2


def test_a_reload_takes_both_files_or_none():
    with Kinds(policies=limits(source=100, source__own=1)) as f:
        client = f.client(source="127.0.0.2")
        assert f.passes(client, OWN, OWN) == 1
        said = f.reload(kinds=KINDS.replace("match: dd", "mach: dd"), policies=limits(source=1000, source__own=1000))
        assert "kinds.yaml:4:17: there is no field \"mach\"" in said and "did you mean \"match\"" in said and "stay" in said, said
        assert f.passes(client, OWN) == 0
        said = f.reload(kinds=KINDS.replace("name: own", "name: owns"))
        assert 'policy "source.own" is for packets of kind "own"' in said and '(there is "owns")' in said, said
        assert f.passes(client, OWN) == 0
        assert f.status()["reload_errors"] == 2
        # Another pattern: what was of the kind is plain, and costs 1.
        f.reload(kinds=KINDS.replace("match: dd", "match: cc"), policies=limits(source=100, source__own=1))
        assert f.status()["reloads"] == 1
        assert f.passes(client, *[OWN] * 5) == 5
        f.reload(policies=limits(source=100, source__own=1, source__dear=1))
        assert f.passes(client, DEAR, DEAR) == 1


def test_the_check_names_what_is_wrong_with_kinds():
    with Kinds(policies=limits(source=100)) as f:
        kinds = f.demo.dir / "kinds.yaml"
        good = check(f.path, kinds)
        assert good.returncode == 0 and "kind dear: costs 10\n" in good.stdout and (good.stderr == "" or "overall" in good.stderr), good
        f.path.write_text(limits(source=5, source__own=3))
        told = check(f.path, kinds)
        assert told.returncode == 0 and 'no packet of kind "dear" passes policy "source": it costs 10, and 5 pass at once' in told.stderr, told
        for text, words in ((limits(source=5, source__dea=3), 'kind "dea"'), (limits(source=5, source__own=3), "give --kinds")):
            f.path.write_text(text)
            bad = check(f.path, kinds if "dea" in text else None)
            assert bad.returncode == 2 and words in bad.stderr, bad
            assert check(f.path, kinds if "dea" in text else None, "--allow-missing").returncode == 0
        kinds.write_text("kinds:\n  - {name: a}\n")
        bad = check(f.path, kinds)
        assert bad.returncode == 2 and "kinds.yaml:2:5: kind \"a\" would be every packet" in bad.stderr, bad
        alone = subprocess.run([str(f.demo.bin / "weir-gateway"), "--listen", "127.0.0.1:1", "--backend", "127.0.0.1:9", "--kinds", str(kinds)],
                               capture_output=True, text=True, timeout=20)
        assert alone.returncode == 2 and "give --policies as well" in alone.stderr, alone


MAGIC = bytes.fromhex("00ffff00fefefefefdfdfdfd12345678")
# Of each preset: packets of a kind that is flooded, how many of 40 at once pass at the most, and traffic that goes on.
FLOODS = {
    "source_engine": [(b"\xff\xff\xff\xffTSource Engine Query\0", 6), (b"\xff\xff\xff\xffU\xff\xff\xff\xff", 6),
                      (b"\xff\xff\xff\xffV\xff\xff\xff\xff", 6)],
    "minecraft_bedrock": [(b"\x01" + bytes(8) + MAGIC + bytes(8), 10), (b"\x02" + bytes(8) + MAGIC + bytes(8), 10),
                          (b"\x05" + MAGIC + b"\x0b" + bytes(1400), 24), (b"\x07" + MAGIC + bytes(17), 8)],
    "quic": [(b"\xc3\0\0\0\1" + bytes(1195), 240), (b"\xd3\x6b\x33\x43\xcf" + bytes(1195), 240), (b"\x8f\x1a\x2a\x3a\x4a" + bytes(1195), 240),
             (b"\xc0\0\0\0\1" + bytes(30), 1), (b"\xf0\0\0\0\1" + bytes(40), 1), (b"\xc5\0\0\0\0" + bytes(40), 1),
             (b"\xe1\0\0\0\1" + bytes(60), 240), (b"\xb1\x6b\x33\x43\xcf" + bytes(60), 240), (b"\xd2\0\0\0\1" + bytes(1195), 600)],
}
TRAFFIC = {"source_engine": b"\x12\0\0\0game", "minecraft_bedrock": b"\x84\0\0\0" + bytes(60), "quic": b"\x41" + bytes(200)}


def test_each_preset_checks_and_does_what_it_promises():
    names = {path.name.removesuffix(".kinds.yaml") for path in PRESETS.glob("*.kinds.yaml")}
    assert names == set(FLOODS) and {path.name for path in PRESETS.glob("*.yaml")} == {f"{n}{e}" for n in names for e in (".yaml", ".kinds.yaml")}
    for name in sorted(names):
        policies, kinds = PRESETS / f"{name}.yaml", PRESETS / f"{name}.kinds.yaml"
        done = check(policies, kinds)
        assert done.returncode == 0 and "passes policy" not in done.stderr and "limits nothing" not in done.stdout, done
        for packet, most in FLOODS[name]:
            with Kinds(kinds.read_text(), policies=policies.read_text()) as f:
                attacker, bystander = f.client(source="127.0.0.2"), f.client(source="127.0.0.3")
                count = 4 * most + 40
                for n in range(count):
                    attacker.send(packet)
                    if n % 50 == 49:  # no more than a socket has room for
                        f.until(lambda n=n: f.status()["offered"] > n)
                flooded = f.until(lambda: (s := f.status())["offered"] == count and s)
                # The bucket fills on while the flood runs: a second is generous for so few packets, on any machine.
                assert most <= flooded["passed"] < count, (name, packet[:8], flooded["passed"])
                kind = [p for p in flooded["dropped"] if p.startswith("source.") and flooded["dropped"][p]]
                assert len(kind) == 1 and flooded["dropped"][kind[0]] == count - flooded["passed"], flooded["dropped"]
                # Traffic of the very source goes on, and so does another source's query.
                assert f.passes(attacker, *[TRAFFIC[name]] * 20) == 20, (name, packet[:8])
                assert f.passes(bystander, packet, TRAFFIC[name]) == 2, (name, packet[:8])


def test_the_preset_of_quic_lets_as_many_connections_pass_as_it_says():
    """Behind one address, with hellos of one, two or three datagrams, and one that acknowledges; of each version."""
    kinds, policies = (PRESETS / f"quic{end}" for end in (".kinds.yaml", ".yaml"))
    for first, version, hello in ((0xc0, b"\0\0\0\1", 1), (0xc0, b"\0\0\0\1", 3), (0xd0, b"\x6b\x33\x43\xcf", 2), (0xd0, b"\xfa\xce\xb0\x0c", 3)):
        with Kinds(kinds.read_text(), policies=policies.read_text()) as f:
            with contextlib.ExitStack() as stack:
                clients = [stack.enter_context(f.client(source="127.0.0.2")) for _ in range(60)]
                sent = 0
                for n in range(hello + 1):
                    for client in clients:
                        client.send(bytes([first | (7 * n & 15)]) + version + bytes(1195 + n))
                        sent += 1
                    f.until(lambda: f.status()["offered"] == sent)
                status = f.status()
                assert status["passed"] == status["offered"] == 60 * (hello + 1), status


if __name__ == "__main__":
    run(globals())
