#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Wakeups per second of an idle process with weir open: idle.sh BUILD_DIRECTORY
set -euo pipefail
directory=$(mktemp -d)
redis-server --port 0 --unixsocket "$directory/redis.sock" --save "" --dir "$directory" >/dev/null &
redis=$!
trap 'kill "$redis" 2>/dev/null || true; wait "$redis" 2>/dev/null || true; rm -rf "$directory"' EXIT
while [ ! -S "$directory/redis.sock" ]; do sleep 0.05; done
"$1/bench/weir-idle" 7 3
"$1/bench/weir-idle" 7 3 "unix://$directory/redis.sock"
