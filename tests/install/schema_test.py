#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
The JSON Schema of policy files says what the parser says: schema_test.py WEIR_PROGRAM YAML_TEST SOURCE_DIRECTORY.
Prints TAP.

The files are those of the unit test of the parser (unit/policy/yaml), of the fuzzer, and of the pages. A file that the
parser takes is valid by the schema. Of the files that the parser refuses, the schema refuses all but those that a JSON
Schema cannot refuse: DIFFER lists them.

Guards: docs/policies.schema.json, src/policy/fields.c, src/policy/policy_words.c
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import tap
from tap import Failed, Skipped

try:
    import jsonschema
    import yaml
except ImportError:
    jsonschema = yaml = None

# Above this size a file is about the parser's own work.
SIZE_MOST = 1 << 16

# What the parser refuses, by its sentence, and why a JSON Schema cannot.
DIFFER = {
    r"with a leading 0|is hexadecimal|has limit \"0o17\"": "a reader of YAML 1.2 gives the same number without the form it was written in",
    r"has (limit|burst|delay) \"[-+]\d+\"": "the sign is gone from the data; a negative number is refused all the same",
    r"has limit \"1e3\"": "it is the number 1000 in YAML 1.2",
    r"has [a-z]+ twice|is there twice": "a mapping of JSON has each key once; editors tell of it by themselves",
    r"policy \"a\" is there twice|has the algorithm and the period of": "items are compared as wholes, not by a field",
    r"\"\*\w+\" is an alias": "readers put the value in the alias's place",
    r"%TAG is not taken": "directives are gone from the data",
    r"has (period|outage_grace|long_outage) \"(\d+[a-z]+)+\"; give": "a duration is a text, and its range is no pattern of text",
    r"has burst \d+, but only buckets have one": "a burst that is equal to the limit is allowed, and fields cannot be compared",
    r"has delay \d+; give 0 to its burst": "fields cannot be compared",
    r"units a second through its bucket|two years or more to refill": "fields cannot be computed with",
    r"has a name that is too long": "the name of a tier is joined to that of its policy",
    r"there is no policy|is no value for policy|names no policy|has no key": "names within the file are not looked up",
}

# Files for rows of DIFFER that the unit test has no file for, as it is of the parser alone.
LIMIT = "{algorithm: token_bucket, limit: 1, period: 1s}"
MORE = (
    f"policies: [{{name: a, limits: &l [{LIMIT}]}}, {{name: b, limits: *l}}]",
    f"%TAG ! tag:example.org,2000:\n---\npolicies: [{{name: a, limits: [{LIMIT}]}}]",
    "policies: [{name: a, limits: [{algorithm: sliding_window, limit: 2, period: 1s, burst: 3}]}]",
    "policies: [{name: a, limits: [{algorithm: token_bucket, limit: 700000001, period: 1s}]}]",
    "policies: [{name: a, limits: [{algorithm: token_bucket, limit: 1, period: 1d, burst: 1000}]}]",
    f"policies: [{{name: a, limits: [{LIMIT}], tiers: [{{name: {'b' * 63}, limits: [{LIMIT}]}}]}}]",
    f"policies: [{{name: a, limits: [{LIMIT}]}}]\noverrides: {{'b:1': allow}}",
    f"policies: [{{name: a, limits: [{LIMIT}]}}]\noverrides: {{'a:1': 1 2}}",
    # The schema refuses these.
    f"policies: [{{name: a, limits: [{LIMIT}]}}]\noverrides: {{'a:1': permit}}",
    f"policies: [{{name: a, limits: [{LIMIT}]}}]\noverrides: {{a: allow}}",
    f"policies: [{{name: a, limits: [{LIMIT}]}}]\noverrides: ['a:1']",
    "policies: [{name: a, limits: [{algorithm: sliding_log, limit: 65537, period: 1s}]}]",
    "policies: [{name: a, limits: [{algorithm: token_bucket, limit: 2, period: 1s, delay: 1}]}]",
    "policies: [{name: a, limits: [{algorithm: token_bucket, limit: 2, calendar: day}]}]",
    # And takes these.
    f"policies: [{{name: a, limits: [{LIMIT}]}}]\noverrides: {{'a:1': 7, 'a:b c': 7/8, 'a:2': ' 7/8 ', 'a:::1': deny}}",
    "policies: [{name: 2024, limits: [{algorithm: sliding_log, limit: 65536, period: 1s, burst: 65536, delay: 0, name: 1.5}]}]",
    "policies: [{name: a, limits: [{algorithm: leaky_bucket, limit: '5', period: 1d2h, burst: 9, delay: 9}], tiers: []}]",
    "policies: [{name: a/b, limits: [{algorithm: fixed_window, limit: 4398046511103, calendar: month}]}]\noverrides: {}",
)


def reader():
    """A loader of YAML 1.2's core schema, as editors read it."""
    class Core(yaml.SafeLoader):
        yaml_implicit_resolvers = {}

    for tag, pattern, first in (("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
                                ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
                                ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
                                 "-+0123456789."),
                                ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""])):
        Core.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(rf"^(?:{pattern})$"), list(first))
    Core.add_constructor("tag:yaml.org,2002:int", lambda loader, node: number(loader.construct_scalar(node)))
    Core.add_constructor("tag:yaml.org,2002:bool", lambda loader, node: loader.construct_scalar(node).lower() == "true")
    Core.add_constructor("tag:yaml.org,2002:float", lambda loader, node: float(loader.construct_scalar(node)))
    return Core


def number(text):
    return int(text, 0) if re.match(r"0[xo]", text) else int(text, 10)


def schema_says(validator, core, text):
    """What the schema has against a text; empty: nothing."""
    try:
        loaded = yaml.load(text, Loader=core)
    except (yaml.YAMLError, ValueError, UnicodeDecodeError) as problem:
        return f"no YAML: {problem}"
    try:
        loaded = json.loads(json.dumps(loaded))  # keys become texts
    except (TypeError, ValueError) as problem:
        return f"no JSON: {problem}"
    return "; ".join(f"{list(error.absolute_path)}: {error.message[:80]}" for error in validator.iter_errors(loaded))


def pages(source):
    """The YAML blocks of README and of the pages, but for pieces of other files."""
    for page in [source / "README.md", *sorted((source / "docs").rglob("*.md"))]:
        for block in re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.M | re.S):
            if re.match(r"(#.*\n)*policies:", block):
                yield page, block


def write_files(place, yaml_test, source):
    """Writes every file into the place."""
    done = subprocess.run([yaml_test], env={**os.environ, "WEIR_TEST_YAML_FILES": str(place)}, capture_output=True, timeout=300)
    if done.returncode != 0:
        raise Failed(f"{yaml_test}: exit {done.returncode}")
    for path in sorted((source / "tests/fuzz/corpus/yaml").iterdir()):
        (place / ("fuzz-" + path.name)).write_bytes(path.read_bytes())
    for index, (page, block) in enumerate(pages(source)):
        (place / f"page-{index}-{page.stem}.yaml").write_text(block)
    for index, text in enumerate(MORE):
        (place / f"more-{index}.yaml").write_text(text + "\n")
    return sorted(path for path in place.iterdir() if path.stat().st_size <= SIZE_MOST)


def parser_says(weir, files):
    """The parser's sentence about each file; empty: it takes the file."""
    done = subprocess.run([weir, "check", "--json", *map(str, files)], capture_output=True, text=True, timeout=300)
    if done.returncode not in (0, 1):
        raise Failed(f"weir check: exit {done.returncode}\n{done.stderr}")
    return {pathlib.Path(one["file"]): one.get("error", {}).get("message", "") for one in json.loads(done.stdout)["files"]}


def main():
    weir, yaml_test, source = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
    with tempfile.TemporaryDirectory(prefix="weir-schema-") as name:
        place = pathlib.Path(name)
        known = {}

        def verdicts():
            """{file: (what the parser says, what the schema says)}, once."""
            if jsonschema is None:
                if os.environ.get("CI") == "true":
                    raise Failed("python3-jsonschema or python3-yaml is missing; scripts/setup installs them")
                raise Skipped("there is no python3-jsonschema or no python3-yaml")
            if not known:
                schema = json.loads((source / "docs/policies.schema.json").read_text())
                jsonschema.Draft7Validator.check_schema(schema)
                validator, core = jsonschema.Draft7Validator(schema), reader()
                files = write_files(place, yaml_test, source)
                for path, sentence in parser_says(weir, files).items():
                    known[path] = (sentence, schema_says(validator, core, path.read_bytes()))
            return known

        def takes():
            """what the parser takes is valid by the schema"""
            taken = {path: schema for path, (parser, schema) in verdicts().items() if parser == ""}
            wrong = [f"{path.name}: {schema}\n{path.read_text()}" for path, schema in taken.items() if schema]
            if wrong or len(taken) < 20:
                raise Failed("\n".join(wrong) or f"{len(taken)} files")

        def refuses():
            """what the parser refuses the schema refuses, but for what no JSON Schema can say"""
            bad = {path: (parser, schema) for path, (parser, schema) in verdicts().items() if parser != ""}
            wrong = [f"{path.name}: {parser}\n{path.read_text(errors='replace')}" for path, (parser, schema) in bad.items()
                     if not schema and not any(re.search(pattern, parser) for pattern in DIFFER)]
            unneeded = [pattern for pattern in DIFFER if not any(re.search(pattern, parser) and not schema
                                                                 for parser, schema in bad.values())]
            if unneeded:
                raise Failed(f"the schema refuses, or no file has, {unneeded}")
            caught = sum(bool(schema) for _, schema in bad.values())
            if wrong or caught < 100:
                raise Failed("\n".join(wrong) or f"{caught} of {len(bad)} files")

        def examples():
            """the examples of the pages are good"""
            blocks = [path for path in verdicts() if path.name.startswith("page-")]
            wrong = [f"{path.name}: {known[path][0]}" for path in blocks if known[path][0]]
            if wrong or len(blocks) < 2:
                raise Failed("\n".join(wrong) or f"{len(blocks)} blocks")

        def lists():
            """fields and words are those that the parser lists"""
            schema = json.loads((source / "docs/policies.schema.json").read_text())
            policy, limit = schema["definitions"]["policy"], schema["definitions"]["limit"]
            tier = policy["properties"]["tiers"]["items"]
            good = "limits: [{algorithm: fixed_window, limit: 1, period: 1s}]"

            def listed(text, pattern):
                path = place / "listed.yaml"
                path.write_text(text)
                sentence = parser_says(weir, [path])[path]
                path.unlink()
                found = re.search(pattern, sentence)
                return sentence if found is None else found[1].split(", ")

            for where, fields, text in (
                    ("policy", policy, f"policies: [{{name: a, zzzzzz: 1, {good}}}]"),
                    ("tier", tier, f"policies: [{{name: a, {good}, tiers: [{{name: b, zzzzzz: 1, {good}}}]}}]"),
                    ("limit", limit, "policies: [{name: a, limits: [{zzzzzz: 1}]}]")):
                found = listed(text, r"give (.*)$")
                if sorted(found) != sorted(fields["properties"]):
                    raise Failed(f"{where}: the parser has {found}, the schema {list(fields['properties'])}")
            for name, words in (("mode", policy["properties"]["mode"]), ("scope", policy["properties"]["scope"]),
                                ("on_outage", schema["definitions"]["outage"])):
                found = listed(f"policies: [{{name: a, {name}: zzzzzz, {good}}}]", r"give one of (.*)$")
                if found != words["enum"]:
                    raise Failed(f"{name}: the parser has {found}, the schema {words['enum']}")
            for name in ("algorithm", "calendar"):
                fields = {"algorithm": "fixed_window", "limit": "1", "calendar": "day", name: "zzzzzz"}
                found = listed("policies: [{name: a, limits: [" + json.dumps(fields) + "]}]", r"give one of (.*)$")
                if found != limit["properties"][name]["enum"]:
                    raise Failed(f"{name}: the parser has {found}, the schema {limit['properties'][name]['enum']}")

        tap.main([takes, refuses, examples, lists])


if __name__ == "__main__":
    main()
