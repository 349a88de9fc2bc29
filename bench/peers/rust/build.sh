#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the crate: build.sh DIRECTORY FEATURES [LIBRARY]. Cargo works in DIRECTORY; the library is copied to LIBRARY.
# Hashes such as ahash use the processor's instructions (AES) where they are told at build time that it has them.
set -euo pipefail
export RUSTFLAGS="${RUSTFLAGS-} -C target-cpu=native"
cargo build --quiet --release --locked --manifest-path "$(dirname "$0")/Cargo.toml" --target-dir "$1" --features "$2"
[ $# -lt 3 ] || cp "$1/release/libweir_peers.a" "$3"
