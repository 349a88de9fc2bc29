#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Processor time of the background thread while it reports: background.sh BUILD_DIRECTORY [SECONDS]
set -euo pipefail
directory=$(mktemp -d)
redis-server --port 0 --unixsocket "$directory/redis.sock" --save "" --dir "$directory" >/dev/null &
redis=$!
trap 'kill "$redis" 2>/dev/null || true; wait "$redis" 2>/dev/null || true; rm -rf "$directory"' EXIT
while [ ! -S "$directory/redis.sock" ]; do sleep 0.05; done
"$1/bench/weir-background" "unix://$directory/redis.sock" 7 "${2:-2}"
