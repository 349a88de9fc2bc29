#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Several nginx that share limits by Redis: fleet_test.py BUILD_DIRECTORY SOURCE_DIRECTORY [TEST...]. Prints TAP.

Guards: apps/nginx/redis.c, apps/nginx/instance.c, apps/nginx/zone.c
"""
import contextlib
import json
import os
import signal
import time

from nginx_support import Load, Nginx, Redis, lines, measured, node_count, passed_by_one_bucket, run

RATE, BURST = 300, 30
ZONE = f"weir_limit_req_zone $arg_k zone=shared:1m rate={RATE}r/s;"


@contextlib.contextmanager
def fleet(redis, count, zone=ZONE, server=f"weir_limit_req zone=shared burst={BURST} nodelay;", workers=2, timeout="300ms", **options):
    """So many nginx, which know of each other."""
    with contextlib.ExitStack() as stack:
        directive = f"weir_redis {redis.url} prefix=test interval=100ms timeout={timeout} nodes={count};"
        server += " location /status { weir_status json; }"
        nodes = [stack.enter_context(Nginx(directive + zone, server, workers=workers, level="notice", **options)) for _ in range(count)]
        for node in nodes:
            node.until(lambda node=node: status(node)["live_nodes"] == count)
        yield nodes


def status(node):
    return json.loads(node.get("/status").body)


def exchange(*nodes):
    """Each of these, one after another, has told Redis what it had counted, and has heard what Redis had."""
    for node in nodes:
        before = status(node)["syncs"]
        node.until(lambda node=node, before=before: status(node)["syncs"] >= before + 2)  # the first may have begun before


def admitted(nodes, seconds, rate, path="/?k=1", buckets=1, part=1.0):
    """
    What so many requests a second at each node are admitted at, against one bucket for all of them, or one for each. The
    requests come when this machine lets the clients run: the buckets are given those that came.
    """
    loads = [Load(node.port, path, clients=2, rate=rate / 2) for node in nodes]
    time.sleep(1)  # the bucket is empty then
    begin = time.monotonic()
    time.sleep(seconds)
    for load in loads:
        load.stop()
    answers = [load.answers for load in loads]
    served = sum(at >= begin and status == 200 for each in answers for at, status in each)
    if buckets == 1:
        answers = [[answer for each in answers for answer in each]]
    return served / sum(passed_by_one_bucket(each, begin, part * RATE, part * BURST) for each in answers)


@measured
def test_three_nginx_share_a_limit():
    with Redis() as redis, fleet(redis, 3) as nodes:
        part = admitted(nodes, 10, RATE)
        assert 0.97 <= part <= 1.02, part


@measured
def test_a_local_zone_is_not_shared():
    with Redis() as redis, fleet(redis, 2, zone=ZONE.replace(";", " redis=off;")) as nodes:
        part = admitted(nodes, 3, 2 * RATE, buckets=2)
        assert 0.98 <= part <= 1.02, part
        assert not [key for key in redis.call("keys", "*") if "shared" in key]


def test_the_second_node_learns_what_the_first_one_admitted():
    zone = "weir_limit_req_zone $arg_k zone=shared:1m rate=1r/m;"
    with Redis() as redis, fleet(redis, 2, zone=zone) as nodes:
        assert [nodes[0].get("/?k=1").status for _ in range(BURST // 2)].count(200) >= 10
        exchange(nodes[0])
        nodes[1].get("/?k=1")  # what others have used is the answer to a report
        exchange(nodes[1])
        both = [nodes[1].get("/?k=1").status for _ in range(2 * BURST)].count(200)
        assert both <= BURST // 2 + 1, both


def test_records_in_redis_have_the_names_of_zones_and_keys():
    zone = ('weir_limit_req_zone $arg_k "zone=a zone:1m" rate=1r/m; weir_limit_req_zone $arg_k zone=' + "x" * 70 +
            ":1m rate=1r/m;")
    with Redis() as redis, fleet(redis, 1, zone=zone, server='weir_limit_req "zone=a zone"; location /x { '
                                 f'weir_limit_req zone={"x" * 70}; }}') as nodes:
        nodes[0].get("/?k=198.51.100.7")
        nodes[0].get("/x?k=198.51.100.7")
        nodes[0].until(lambda: any("a.20zone" in key and "198.51.100.7" in key and key.startswith("test:")
                                   for key in redis.call("keys", "*")))
        nodes[0].until(lambda: any("x" * 53 + ".." in key for key in redis.call("keys", "*")))


@measured
def test_limits_hold_while_redis_is_away():
    with Redis() as redis, fleet(redis, 3) as nodes:
        redis.server.child.send_signal(signal.SIGSTOP)
        hung = admitted(nodes, 4, RATE, buckets=3, part=1 / 3)
        redis.server.child.send_signal(signal.SIGCONT)
        redis.server.kill()
        gone = admitted(nodes, 4, RATE, buckets=3, part=1 / 3)
        redis.server.start()
        nodes[0].until(lambda: node_count(redis) == 3)
        back = admitted(nodes, 5, RATE)
        # By the outage mode each node has its share; a node may lose a unit of it, and the bucket's units come on top.
        assert 0.85 <= hung <= 1.1 and 0.85 <= gone <= 1.1, (hung, gone)
        assert 0.95 <= back <= 1.04, back
        nodes[0].until(lambda: all(lines(node, r"\[(warn|error)\].* weir: ") for node in nodes))


def test_no_request_waits_for_a_redis_that_hangs():
    with Redis() as redis, fleet(redis, 1, timeout="60s") as (node,):
        redis.server.child.send_signal(signal.SIGSTOP)
        load = Load(node.port, "/?k=1", clients=4)  # which wait for 20 seconds
        time.sleep(1)  # ten intervals
        load.stop()
        redis.server.child.send_signal(signal.SIGCONT)
        assert load.counts.keys() <= {200, 503} and load.counts[503] > 0, load.counts


@measured
def test_workers_of_one_nginx_are_one_node():
    with Redis() as redis, fleet(redis, 1, workers=4) as nodes:
        part = admitted(nodes, 3, 2 * RATE)
        assert 0.95 <= part <= 1.03, part
        assert node_count(redis) == 1


@measured
def test_an_upgrade_stays_one_node_and_holds_the_limit():
    with Redis() as redis, fleet(redis, 1, daemon=True) as nodes:
        node, = nodes
        load = Load(node.port, "/?k=1", clients=4, rate=RATE / 2)
        name, counts = redis.call("zrange", "test:nodes", "0", "-1"), set()
        for _ in range(2):
            time.sleep(0.4)  # load in between
            old = node.upgrade()
            time.sleep(0.4)
            counts.add(node_count(redis))
            node.end(old, signal.SIGQUIT)
            counts.add(node_count(redis))
        time.sleep(0.4)
        served = load.stop()[200]
        most = passed_by_one_bucket(load.answers, 0, RATE, BURST + 1)
        assert counts == {1} and redis.call("zrange", "test:nodes", "0", "-1") == name
        # A new key may have the share of a node before the first answer; there is one node.
        assert 0.95 * most <= served <= 1.01 * most + 2, (served, most)


@measured
def test_the_reports_go_on_when_workers_are_killed_and_nginx_reloads():
    with Redis() as redis, fleet(redis, 2) as nodes:
        for node in nodes:
            for pid in node.worker_pids():
                os.kill(pid, signal.SIGKILL)
            node.until(lambda node=node: len(node.worker_pids()) == 2)
            node.reload()
        part = admitted(nodes, 4, RATE)
        assert 0.95 <= part <= 1.04, part


if __name__ == "__main__":
    run(dict(globals()))
