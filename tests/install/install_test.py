#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Installing as README and docs/embedding.md say: install_test.py SOURCE_DIRECTORY. Prints TAP.

README's lines install below /usr/local: here, in a mount namespace in which /usr/local and /etc are copies.

Guards: meson.build, src/meson.build, apps/weir/meson.build, cmake/weirConfig.cmake.in,
cmake/weirConfigVersion.cmake.in, README.md, docs/embedding.md
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import cmake
import tap
from tap import Failed, Skipped, run

NAMESPACE = """
set -e
mount --bind /usr/local "$PLACE/orig"
mount --bind "$PLACE/local" /usr/local
mount --bind "$PLACE/etc" /etc
cd "$PLACE/weir"
PATH="$PLACE/bin:$PATH" exec sh -ex "$PLACE/recipe"
"""
SUDO = '#!/bin/sh\nPATH="$PATH:/usr/sbin:/sbin" exec "$@"\n'


def indented_after(page, heading):
    """The lines of the first indented block of a section."""
    section = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#|\Z)", page, re.M | re.S)
    block = section and re.search(r"(?:^    .*\n)+", section.group(1), re.M)
    if not block:
        raise Failed(f"there are no commands below the heading {heading}")
    return re.sub(r"^    ", "", block.group(0), flags=re.M)


def prepare(place):
    """Copies of /etc and /usr/local, into which nothing can be installed but what the recipe installs."""
    for name in ("orig", "bin", "local", "local/bin", "local/lib"):
        (place / name).mkdir()
    (place / "bin" / "sudo").write_text(SUDO)
    (place / "bin" / "sudo").chmod(0o755)
    for directory, pattern in (("bin", "*"), ("lib", "python*")):
        for entry in (pathlib.Path("/usr/local") / directory).glob(pattern):
            (place / "local" / directory / entry.name).symlink_to(place / "orig" / directory / entry.name)
    subprocess.run(["cp", "-a", "/etc", place / "etc"], stderr=subprocess.DEVNULL)  # what is not readable is not needed


def namespace():
    """How a mount namespace is entered here."""
    for command in (["unshare", "-rm"], ["unshare", "-m"]):
        try:
            if subprocess.run([*command, "mount", "--bind", "/usr", "/usr"], capture_output=True).returncode == 0:
                return command
        except OSError:
            break
    raise Skipped("there are no mount namespaces to be had")


def main():
    source = pathlib.Path(sys.argv[1])
    with tempfile.TemporaryDirectory(prefix="weir-install-") as name:
        place = pathlib.Path(name)
        tree = place / "weir"
        tap.copy_source(source, tree)

        def recipe():
            """README's commands install a library, and end in a program that runs"""
            lines = indented_after((source / "README.md").read_text(), "Install")
            if "--buildtype=release" not in lines or "-Dtests=disabled" not in lines:
                raise Failed("they are not those of a release build without tests\n" + lines)
            command = namespace()
            prepare(place)
            (place / "recipe").write_text(lines)
            output = run(*command, "sh", "-c", NAMESPACE, env={**os.environ, "PLACE": str(place)})
            if output.count("served") < 20:
                raise Failed(output)

        prefix = place / "prefix"
        environment = {key: value for key, value in os.environ.items() if key not in ("LD_LIBRARY_PATH", "PKG_CONFIG_PATH")}

        def own_prefix():
            """below a prefix of one's own the installed programs start, and one that is built as docs/embedding.md says"""
            lines = indented_after((source / "docs/embedding.md").read_text(), "Below a prefix of your own")
            lines = lines.replace("/opt/weir", str(prefix))
            output = run("sh", "-exc", lines, cwd=tree, env=environment)
            if output.count("served") < 20:
                raise Failed(output)
            programs = [program for program in (prefix / "bin").iterdir()]
            for program in programs:
                run(program, "--version", env=environment)
            if not programs:
                raise Failed("no programs were installed")

        def metadata():
            """pkg-config needs the metadata of no other package, and says what the static library takes"""
            found = list(prefix.glob("**/weir.pc"))
            if len(found) != 1:
                raise Failed(f"{found}")
            alone = {**environment, "PKG_CONFIG_LIBDIR": str(found[0].parent)}
            flags = run("pkg-config", "--cflags", "--libs", "weir", env=alone).split()
            if [flag for flag in flags if not flag.startswith("-I") and not flag.startswith("-L")] != ["-lweir"]:
                raise Failed(f"{flags}")
            libraries = run("pkg-config", "--static", "--libs-only-l", "--libs-only-other", "weir", env=alone).split()
            libraries = [word for word in libraries if word != "-lweir"]
            run(os.environ.get("CC", "cc"), "-std=c11", f"-I{prefix}/include", tree / "docs/examples/embed.c",
                found[0].parent.parent / "libweir.a", *libraries, "-o", place / "static")
            if run(place / "static").count("served") < 20:
                raise Failed("the program with the static library does not serve")

        def command():
            """the weir command is installed with manual pages, completions and the schema of policy files"""
            share = prefix / "share"
            names = [path.name for path in sorted((source / "apps/weir/man").glob("*.1"))]
            wanted = [f"man/man1/{name}" for name in names]
            wanted += ["bash-completion/completions/weir", "zsh/site-functions/_weir", "fish/vendor_completions.d/weir.fish",
                       "weir/policies.schema.json", "weir/weir.rules.yml", "weir/weir-dashboard.json"]
            missing = [path for path in wanted if not (share / path).is_file()]
            if missing or len(names) < 2:
                raise Failed(f"not installed: {missing}; there are {names}")
            json.loads((share / "weir/policies.schema.json").read_text())
            run(prefix / "bin" / "weir", "check", source / "tests/fuzz/corpus/yaml/quotas.yaml", env=environment)

        def everything():
            """every manual page is installed, and the gateway's units with the files to begin with"""
            pages = [path for folder in ("apps/*/man", "docs/man") for path in source.glob(f"{folder}/*.[1-9]")]
            wanted = [prefix / f"share/man/man{path.suffix[1]}" / path.name for path in pages]
            if (prefix / "bin/weir-gateway").exists():
                wanted += [prefix / "lib/systemd/system" / name for name in ("weir-gateway.service", "weir-gateway@.service")]
                wanted += [prefix / "share/weir/examples" / name for name in ("gateway.env", "gateway.yaml", "weir-gateway.socket")]
                unit = (prefix / "lib/systemd/system/weir-gateway.service").read_text()
                if f"ExecStart={prefix}/bin/weir-gateway " not in unit or f"EnvironmentFile={prefix}/etc/weir/gateway.env" not in unit:
                    raise Failed(unit)
            missing = [str(path) for path in wanted if not path.is_file()]
            if missing or len(pages) < 8:
                raise Failed(f"not installed: {missing}; there are {pages}")

        tap.main([recipe, own_prefix, metadata, command, everything, *cmake.checks(prefix, tree, source, environment)])


if __name__ == "__main__":
    main()
