# SPDX-License-Identifier: Apache-2.0
"""Every subcommand that reads Redis, by one URL."""
import os
import types

from command_support import file, weir
from node_support import Node

POLICIES = """policies:
  - name: api
    limits: [{algorithm: fixed_window, limit: 100, period: 1d}]
"""
HAS_TOP = os.environ.get("HAS_TOP") == "true"


def subcommands(url, path):
    """Each subcommand that takes --redis, as words."""
    yield ("override", "set", "--redis", url, "api:x", "50")
    yield ("override", "list", "--policies", path, "--redis", url)
    yield ("override", "log", "--redis", url)
    yield ("override", "rm", "--redis", url, "api:x")
    yield ("explain", "--policies", path, "--redis", url, "api", "x")
    yield ("reset", "--policies", path, "--redis", url, "api", "x")
    yield ("doctor", "--policies", path, "--redis", url)
    if HAS_TOP:
        yield ("top", "--once", "--redis", url)


def all_answer(url):
    """Each subcommand, with a node that reaches Redis by the same URL."""
    path = file("policies.yaml", POLICIES)

    with Node(types.SimpleNamespace(url=url), path) as node:
        node.charge("api", "x", 7)
        node.sync()
        assert "93 left of 100" in weir("explain", "--policies", path, "--redis", url, "api", "x")[0]
        for words in subcommands(url, path):
            weir(*words)
        node.sync()
        assert "100 left of 100" in weir("explain", "--policies", path, "--redis", url, "api", "x")[0]


def all_fail(url, *says, code=3):
    """Each subcommand says one of these, and shows no password."""
    path = file("policies.yaml", POLICIES)
    for words in subcommands(url, path):
        fault = weir(*words, code=code)[1]
        assert any(one in fault for one in says) and "s3cret" not in fault, (words, fault)
