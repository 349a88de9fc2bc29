#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the crate: build.sh DIRECTORY [LIBRARY]. Cargo works in DIRECTORY; the library is copied to LIBRARY.
set -euo pipefail
cargo build --quiet --release --locked --manifest-path "$(dirname "$0")/Cargo.toml" --target-dir "$1"
[ $# -lt 2 ] || cp "$1/release/libweir_peers.a" "$2"
