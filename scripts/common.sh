#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What the scripts begin with: they source this file. --help prints the comment at the top of a script, and whatever its
# function more_help adds.
set -euo pipefail

# refuse SENTENCE [STATUS]
refuse() {
    echo "scripts/$(basename "$0"): $1" >&2
    exit "${2:-2}"
}

unknown() {
    refuse "\"$1\" is not known; scripts/$(basename "$0") --help says what is"
}

# As root, or through sudo that does not ask, which would take the proxies away: sets `run`.
find_root() {
    run=()
    [ "$(id -u)" -ne 0 ] || return 0
    sudo -n true 2>/dev/null || return 1
    run=(sudo -n env)
    for name in http_proxy https_proxy no_proxy; do
        [ -z "${!name:-}" ] || run+=("$name=${!name}")
    done
}

# What scripts/run and scripts/plots are built in.
configure_release() {
    [ -f build-release/build.ninja ] ||
        meson setup build-release -Dbuildtype=release -Dtests=disabled -Dbench=disabled "$@" >/dev/null
}

for argument in "$@"; do
    [[ $argument =~ ^(-h|--help)$ ]] || continue
    sed -n '3,/^[^#]/{s/^# \{0,1\}//p}' "$0"
    ! declare -F more_help >/dev/null || more_help
    exit
done
