#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Every block of code of README, CONTRIBUTING and docs/ is compiled, executed, or listed here with the reason why not:
blocks_test.py BUILD_DIRECTORY SOURCE_DIRECTORY [TEST...]. Prints TAP.

A block is known by its page and the beginning of its first line. A listing without a block fails, too.

Guards: README.md, docs/choosing.md, docs/gateway.md, docs/nginx.md, docs/operations.md, docs/policies.md,
docs/processes.md, docs/redis.md, docs/simulator.md, docs/monitoring/README.md, docs/start/http-server.md
"""
import contextlib
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile

sys.path.insert(0, sys.argv[2] + "/tests/gateway")
sys.path.insert(0, sys.argv[2] + "/apps/gateway")
sys.path.insert(0, sys.argv[2] + "/apps/nginx")
import demo as gateway_demo  # noqa: E402
import nginx_demo  # noqa: E402
from support import Skipped, run  # noqa: E402

BUILD, SOURCE = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
WEIR = BUILD / "apps/weir/weir"

# Other tests that run the blocks of a page: the test names the page.
ELSEWHERE = {
    "README.md": {"meson setup build-install": "tests/install/install_test.py"},
    "docs/command.md": {"policies:": "tests/weir_command/page_test.py", "$ ": "tests/weir_command/page_test.py"},
    "docs/embedding.md": {"meson setup build-own": "tests/install/install_test.py",
                          "find_package(weir": "tests/install/cmake.py", "weir_dep =": "tests/install/subproject_test.py"},
    "docs/start/game-server.md": {"$ ": "tests/docs/start_test.py", "import socket": "tests/docs/start_test.py"},
    "docs/start/operator.md": {"$ ": "tests/docs/start_test.py"},
    "docs/start/http-server.md": {"$ ": "tests/docs/start_test.py"},
    "docs/start/memcached.md": {"": "tests/docs/memcached_test.py", "$ ": "tests/docs/memcached_test.py"},
    "docs/tracing.md": {"bpftrace -p": "tests/tracing/probes_test.py"},
}

ROOT = "it installs into the running system, as root; tests/install and tests/nginx build and load the same"
LOG = "lines of a log, not code"
LONG = "it takes minutes, and a quiet machine; tests/scripts runs the script"

# Blocks that no test runs: page, beginning of the first line, reason.
NOT_RUN = [
    ("README.md", "scripts/run ", LONG),
    ("docs/decisions/001-grants.md", "admitted =", "equations"),
    ("docs/embedding.md", "const char *format = MHD_lookup", "docs/examples/microhttpd_server.c does so, and tests/docs/run_examples_test.py runs it"),
    ("docs/command.md", "note keys: api", "what weir doctor may say: tests/weir_command/doctor_test.py reads such lines"),
    ("docs/command.md", "weir top --status edge1", "tests/weir_command/top_test.py runs its like"),
    ("docs/command.md", "weir demo --fleet", "tests/weir_command/demo_test.py"),
    ("docs/command.md", "weir bench --seconds 60", "tests/weir_command/bench_test.py"),
    ("docs/embedding.md", "cp -r docs/examples/servers", "tests/install/servers_test.py builds and runs a copy of that folder"),
    ("docs/gateway.md", "2026-", LOG),
    ("docs/gateway.md", "sudo cp", ROOT),
    ("docs/gateway.md", "sessions =", "an equation"),
    ("docs/gateway.md", "ip rule", "routes of the host; tests/gateway/transparent_test.py sets the same in a namespace"),
    ("docs/internals/architecture.md", " apps  bench", "a drawing"),
    ("docs/internals/testing.md", "tests/fuzz/run 5", "the suite fuzz runs it"),
    ("docs/internals/testing.md", "scripts/mutate draw", "it takes hours; tests/scripts/mutate_test.py runs the script"),
    ("docs/nginx.md", "scripts/setup nginx", ROOT),
    ("docs/nginx.md", "sudo ln -s", ROOT),
    ("docs/nginx.md", "limiting requests, excess", LOG),
    ("docs/nginx.md", "limiting requests by policy", LOG),
    ("docs/nginx.md", "limiting sessions by policy", LOG),
    ("docs/nginx.md", "stick-table", "HAProxy's configuration, that nginx's beside it is to replace"),
    ("docs/operations.md", "reports a second", "equations"),
    ("docs/simulator.md", "tests/fleet/reference.py", "it takes a minute; tests/fleet/fleetsim_test.py compares some of its rows"),
    ("docs/operations.md", "127.0.0.1:6379> HGETALL", "a record as Redis shows it, with notes"),
    ("docs/operations.md", "4 nodes are live, and expected_nodes is 2", LOG),
    ("docs/operations.md", "redis 10.0.0.5:6379", LOG),
    ("docs/operations.md", "policy api begins", LOG),
    ("docs/packages.md", "scripts/package", "the suite package builds, installs and purges them"),
    ("docs/packages.md", "sudo editor", ROOT),
    ("docs/packages.md", "  [Service]", "a unit of systemd; tests/install/units_test.py verifies the installed ones"),
    ("docs/packages.md", "podman build", "it needs an engine of containers"),
    ("docs/performance.md", "scripts/bench ", LONG),
    ("docs/performance.md", "perf c2c", "it needs a processor whose events perf can read"),
    ("docs/redis.md", "policy api: this node has", LOG),
    ("docs/policies.md", "policies.yaml: required policy", "an error, which tests/unit/limiter/required_test.c holds"),
    ("docs/policies.md", "gateway.yaml:4:20", "errors, shortened"),
    ("docs/policies.md", "# yaml-language-server", "a comment for editors"),
    ("docs/simulate.md", "weir simulate --policies api.yaml /var", "tests/weir_command/simulate_page_test.py runs the page's log"),
    ("docs/simulate.md", "function line", "tests/weir_command/simulate_page_test.py makes the log by this program"),
]


class Block:
    def __init__(self, page, line, language, text):
        self.page, self.line, self.language, self.text = page, line, language, text

    def __str__(self):
        return f"{self.page}:{self.line}: {self.text.splitlines()[0]}"


def blocks_of(page):
    """The fenced and the indented blocks of a page. Indented blocks have no language."""
    lines = (SOURCE / page).read_text().splitlines()
    found, at = [], 0
    while at < len(lines):
        fence = re.match(r"( *)```(\S*)", lines[at])
        if fence:
            end = next(i for i in range(at + 1, len(lines)) if re.match(r" *```$", lines[i]))
            found.append(Block(page, at + 1, fence[2], "\n".join(line[len(fence[1]):] for line in lines[at + 1:end])))
            at = end + 1
        elif lines[at].startswith("    ") and (at == 0 or not lines[at - 1]):
            end = at
            while end < len(lines) and (lines[end].startswith("    ") or not lines[end]):
                end += 1
            found.append(Block(page, at + 1, "", "\n".join(line[4:] for line in lines[at:end]).rstrip()))
            at = end
        else:
            at += 1
    return found


def pages():
    files = [SOURCE / "README.md", SOURCE / "CONTRIBUTING.md", *sorted((SOURCE / "docs").rglob("*.md"))]
    return [str(path.relative_to(SOURCE)) for path in files if "site" not in path.parts]


BLOCKS = [block for page in pages() for block in blocks_of(page)]


def need(program):
    path = shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin")
    if path is None:
        if os.environ.get("CI") == "true":
            raise AssertionError(f"there is no {program}; scripts/setup installs it")
        raise Skipped(f"there is no {program}")
    return path


def call(*words, **options):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=120, check=False, **options)
    return done.returncode, done.stdout + done.stderr


def chosen(language, pattern=""):
    """The blocks of a language whose text matches, but for those that another test runs."""
    return [block for block in BLOCKS if block.language == language and re.search(pattern, block.text, re.M)
            and elsewhere(block) is None]


def expect_good(block, code, said):
    assert code == 0, f"{block}\n{said}"


# What each language is checked by

# What a piece of C of a page may use, as a program around it would have it.
C_FRAME = """
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <weir/weir.h>
weir *w; weir_policy_id id, api; weir_error error; weir_thread *thread; const char *user;
const struct sockaddr *address;
{globals}
void page(void);
void page(void) {{
{text}
}}
"""
# And what those of one page use: includes and variables.
C_GLOBALS = {
    "docs/processes.md": "weir_options options;",
}


def compiles(text, language, standard):
    compiler = need("cc" if language == "c" else "c++")
    return call(compiler, "-x", language, f"-std={standard}", "-Wall", "-Wextra", "-Wno-unused-variable", "-Wno-unused-value",
                "-Werror", "-fsyntax-only", f"-I{SOURCE}/include", "-D_GNU_SOURCE", "-", input=text)


def test_c_compiles():
    blocks = chosen("c")
    assert len(blocks) >= 4
    # The blocks of one page are pieces of one program: a later one uses what an earlier one has declared.
    for page in dict.fromkeys(block.page for block in blocks):
        pieces = [block for block in blocks if block.page == page]
        whole = [block for block in pieces if "int main(" in block.text]
        for block in whole:
            expect_good(block, *compiles(block.text, "c", "c11"))
        text = "\n".join(block.text for block in pieces if block not in whole)
        if text:
            expect_good(pieces[0], *compiles(C_FRAME.format(globals=C_GLOBALS.get(page, ""), text=text), "c", "c11"))


def test_cpp_compiles():
    blocks = chosen("cpp")
    assert blocks
    for block in blocks:
        expect_good(block, *compiles(block.text, "c++", "c++17"))


def test_policy_files_are_good():
    blocks = [block for block in chosen("yaml", "^policies:|^overrides:") if not block.text.startswith("listen:")]
    assert len(blocks) >= 4
    for block in blocks:
        text = block.text
        if "policies:" not in text:  # entries alone: the policies of the page's first file are before them
            text = next(b.text for b in chosen("yaml", "^policies:") if b.page == block.page) + "\n" + text
        expect_good(block, *call(WEIR, "check", "-", input=text))


def test_files_of_kinds_are_good():
    blocks = chosen("yaml", "^kinds:")
    assert blocks
    with tempfile.TemporaryDirectory() as place:
        policies, kinds = pathlib.Path(place) / "policies.yaml", pathlib.Path(place) / "kinds.yaml"
        policies.write_text(next(b.text for b in blocks_of("docs/gateway.md") if b.language == "yaml"))
        for block in blocks:
            kinds.write_text(block.text)
            expect_good(block, *call(BUILD / "apps/gateway/weir-gateway", "--check", policies, "--kinds", kinds))


def test_configurations_of_prometheus_are_good():
    need("promtool")
    blocks = chosen("yaml", "^rule_files:|^scrape_configs:")
    assert len(blocks) >= 2
    for block in blocks:
        with tempfile.TemporaryDirectory(prefix="weir-blocks-") as name:
            path = pathlib.Path(name) / "prometheus.yml"
            path.write_text(block.text.replace("/usr/local/share/weir/weir.rules.yml", str(SOURCE / "docs/alerts/weir.rules.yml")))
            code, said = call("promtool", "check", "config", path)
            expect_good(block, code, said)
            assert "rules found" in said, said


def test_queries_of_prometheus_are_good():
    need("promtool")
    blocks = chosen("", r"^sum by")
    assert blocks
    for block in blocks:
        expect_good(block, *promql(block.text))


def promql(expression):
    """promtool reads an expression as that of a rule."""
    indented = expression.replace("\n", "\n          ")
    with tempfile.TemporaryDirectory(prefix="weir-blocks-") as name:
        path = pathlib.Path(name) / "rules.yml"
        path.write_text(f"groups:\n  - name: page\n    rules:\n      - record: page\n        expr: |\n          {indented}\n")
        return call("promtool", "check", "rules", path)


def test_provisioning_of_grafana_has_its_fields():
    try:
        import yaml
    except ImportError as error:
        raise Skipped("there is no python3-yaml") from error
    blocks = chosen("yaml", "^apiVersion:")
    fields = {"datasources": {"name", "type", "access", "url"}, "providers": {"name", "type", "options"}}
    assert len(blocks) == 2
    for block in blocks:
        read = yaml.safe_load(block.text)
        kind = next(name for name in fields if name in read)
        assert read["apiVersion"] == 1 and set(read[kind][0]) == fields[kind], str(block)


SYSTEM_MODULES = pathlib.Path("/usr/lib/nginx/modules")


def nginx_accepts(block, place):
    """nginx -t: a whole configuration, or what stands in its http block."""
    if nginx_demo.PROGRAM is None or not nginx_demo.module_path(BUILD).exists():
        raise Skipped("there is no nginx, or no module for it")
    text, built = block.text, BUILD / "apps/nginx"
    if "load_module" not in text:
        text = f"load_module modules/ngx_http_weir_module.so;\n{text}\n"
        text = text if re.search(r"^http \{", text, re.M) else text.replace("\n", "\nhttp {\n", 1) + "}\n"
    if not (SYSTEM_MODULES / "ngx_stream_module.so").exists():  # it is built in
        text = re.sub(r"load_module.*ngx_stream_module.*\n", "", text)
    text = re.sub(r"modules/(\w+\.so)", lambda name: str((built if (built / name[1]).exists() else SYSTEM_MODULES) / name[1]), text)
    (place / "policies.yaml").write_text("policies:\n" + "".join(
        f"  - {{name: {name}, limits: [{{algorithm: token_bucket, limit: 100, period: 1s}}]}}\n"
        for name in ("api", "api/free", "network", "php", "traffic", "connections", "lookups")))
    head = f"pid {place}/pid;\nerror_log {place}/error.log;\nevents {{}}\n"
    path = place / "nginx.conf"
    modules, rest = re.match(r"((?:load_module[^\n]*\n)*)(.*)", text, re.S).groups()
    path.write_text(modules + head + rest.replace("$plan", "$arg_plan"))
    return call(nginx_demo.PROGRAM, "-t", "-p", place, "-c", path, "-e", place / "error.log")


def test_nginx_accepts_its_configurations():
    blocks = chosen("nginx")
    assert len(blocks) >= 4
    for block in blocks:
        with tempfile.TemporaryDirectory(prefix="weir-blocks-") as name:
            expect_good(block, *nginx_accepts(block, pathlib.Path(name)))


@contextlib.contextmanager
def shell_with_redis():
    """What runs commands of a page: redis-cli is at a Redis of its own."""
    need("redis-server")
    demo = gateway_demo.Demo(BUILD)
    try:
        redis = gateway_demo.Redis(demo)
        redis.start()
        gateway_demo.wait_for("Redis did not start", redis.path.exists)
        (demo.dir / "bin").mkdir()
        wrapper = demo.dir / "bin/redis-cli"
        wrapper.write_text(f'#!/bin/sh\nexec {need("redis-cli")} -e -s {redis.path} "$@"\n')
        wrapper.chmod(0o755)
        for program in ("gateway/weir-gateway", "fleetsim/weir-fleetsim"):
            (demo.dir / "bin" / pathlib.Path(program).name).symlink_to(BUILD / "apps" / program)
        environment = {**os.environ, "PATH": f"{demo.dir}/bin:{os.environ['PATH']}"}
        yield demo, redis, lambda text: call("bash", "-e", "-c", text, env=environment, cwd=demo.dir)
    finally:
        demo.close()


def test_commands_of_redis_are_accepted():
    blocks = chosen("", "^redis-cli")
    assert len(blocks) >= 3
    with shell_with_redis() as (_, _, shell):
        for block in blocks:
            expect_good(block, *shell(block.text))


def test_the_simulator_runs_its_examples():
    (block,) = chosen("", "^weir-fleetsim")
    with shell_with_redis() as (demo, _, shell):
        (demo.dir / "policies.yaml").write_text(blocks_of("docs/policies.md")[0].text)
        expect_good(block, *shell(block.text))


def test_the_gateway_serves_by_its_examples():
    blocks = chosen("", "^weir-gateway")
    assert len(blocks) >= 6
    config = next(b for b in chosen("yaml", "^listen:"))
    with shell_with_redis() as (demo, redis, _):
        (demo.dir / "gateway.yaml").write_text(next(b.text for b in blocks_of("docs/gateway.md") if b.language == "yaml"))
        for block in blocks:
            text = re.split(r"\nweir ", block.text)[0].rstrip()  # the gateway alone
            text += "" if "--metrics" in text or "--config" in text else " --metrics 127.0.0.1:9100"
            ports = {number: str(gateway_demo.free_port(kind)) for number, kind in
                     (("7000", socket.SOCK_DGRAM), ("7001", socket.SOCK_DGRAM), ("7777", socket.SOCK_DGRAM),
                      ("27015", socket.SOCK_DGRAM), ("27016", socket.SOCK_DGRAM), ("9100", socket.SOCK_STREAM))}

            def here(text):
                text = re.sub(r"\b(7000|7001|7777|27015|27016|9100)\b", lambda match: ports[match[0]], text)
                text = text.replace("redis://10.0.0.5", f"unix://{redis.path}")
                text = re.sub(r"(gateway|p)\.yaml", f"{demo.dir}/gateway.yaml", text)
                text = text.replace("source_engine.", f"{SOURCE}/docs/examples/presets/source_engine.")
                text = text.replace("denied.pcapng", f"{demo.dir}/denied.pcapng")
                # tests/gateway/xdp_test.py has an interface; here the gateway serves without.
                return text.replace("198.51.100.1", "127.0.0.1").replace("2001:db8::1", "::1").replace("eth0", "nothing0")
            (demo.dir / "gateway.conf").write_text(here(config.text))
            text = here(text).replace("gateway.conf", f"{demo.dir}/gateway.conf")
            demo.start("bash", "-c", f"exec {demo.bin}/{text}", stderr=subprocess.DEVNULL)
            wanted = "up" if "--redis" in text or "--config" in text else "none"
            gateway_demo.wait_for(f"{block}: it does not serve",
                                  lambda: (gateway_demo.status(ports["9100"]) or {}).get("redis") == wanted)


# No block is left out

CHECKED = {"c": ".", "cpp": ".", "nginx": ".", "yaml": "^(listen|policies|kinds|overrides|rule_files|scrape_configs|apiVersion):",
           "": "^(redis-cli|weir-fleetsim|weir-gateway|sum by)"}


def elsewhere(block):
    """The other test that runs a block."""
    begins = ELSEWHERE.get(block.page, {})
    consoles = block.language == "console"  # they alone are run as what begins with a prompt
    return next((test for begin, test in begins.items() if block.text.startswith(begin) and consoles == (begin == "$ ")), None)


def listed(block):
    return [row for row in NOT_RUN if row[0] == block.page and block.text.startswith(row[1])]


def is_checked(block):
    return re.search(CHECKED.get(block.language, "$^"), block.text, re.M) is not None


def test_every_block_is_run_or_listed():
    missed = [str(block) for block in BLOCKS if not (is_checked(block) or elsewhere(block) or listed(block))]
    assert not missed, "no test runs these; add them to this one, or list them:\n" + "\n".join(missed)


def test_what_is_listed_is_there():
    for row in NOT_RUN:
        assert any(row in listed(block) for block in BLOCKS), f"there is no such block: {row}"
    for page, begins in ELSEWHERE.items():
        for begin, test in begins.items():
            assert any(elsewhere(block) == test for block in BLOCKS if block.page == page), f"no block: {page} {begin}"
            assert pathlib.Path(page).name in (SOURCE / test).read_text(), f"{test} does not name {page}"


run(globals())
