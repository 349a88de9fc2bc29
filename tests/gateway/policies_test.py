#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The gateway and its policy file: policies_test.py BUILD_DIRECTORY SOURCE_DIRECTORY [TEST...]. Prints TAP."""
import json
import signal

from support import Fixture, POLICIES, run


def test_a_broken_file_changes_nothing_and_a_good_one_applies():
    with Fixture() as f:
        f.path.write_text(POLICIES.format(200).replace("token_bucket", "token_bucked"))
        f.child.send_signal(signal.SIGHUP)
        f.until(lambda: "test.yaml:3:" in f.log.read_text() and "stay as they were" in f.log.read_text())
        assert 350 <= f.send(1, "greedy,1,3000")["greedy"]["returned"] <= 450
        assert json.loads(f.get("/status"))["reload_errors"] == 1
        f.path.write_text(POLICIES.format(20))
        f.child.send_signal(signal.SIGHUP)
        f.until(lambda: json.loads(f.get("/status"))["reloads"] == 1)
        # The first group takes the address that has used something: the second one's is new.
        assert 20 <= f.send(1, "a,1,1", "greedy,1,3000")["greedy"]["returned"] <= 50


def test_a_missing_policy_is_off_and_said_so():
    with Fixture(policies=POLICIES.format(200).split("  - name: overall")[0]) as f:
        assert 'no policy "overall": that limit is off' in f.log.read_text(), f.log.read_text()
        assert f.status()["policies"]["overall"]["in_force"] is False
        f.path.write_text("policies:" + POLICIES.format(200).split("    limits: [{algorithm: token")[0].split("policies:")[1]
                          .replace("source", "other") + "    limits: [{algorithm: fixed_window, limit: 1, period: 1s}]\n")
        f.child.send_signal(signal.SIGHUP)
        f.until(lambda: f.status()["reloads"] == 1)
        assert f.status()["policies"]["source"]["in_force"] is False
        client = f.send(1, "greedy,1,1000")["greedy"]
        assert client["returned"] == client["sent"], client


if __name__ == "__main__":
    run(globals())
