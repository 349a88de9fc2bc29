/* SPDX-License-Identifier: Apache-2.0 */
/* Options to make a named segment with, and headers of it that were changed. */
#ifndef WEIR_TESTS_SOME_SEGMENT_H
#define WEIR_TESTS_SOME_SEGMENT_H

#include "base/atomics.h"
#include "base/hash.h"
#include "named/segment_header.h"

/* Numbers that no two options share. */
static inline weir_options some_options(void)
{
    weir_options options = WEIR_OPTIONS_INIT;
    options.max_keys = 2001;
    options.max_threads = 5;
    options.max_log_units = 100003;
    options.max_processes = 7;
    options.tick_us = 1009;
    options.sync_interval_ms = 211;
    options.redis_timeout_ms = 1013;
    options.expected_nodes = 17;
    options.prefix = "weir";
    options.redis_url = "redis://user:first@10.0.0.5:6379/1";
    options.fleet_secret = "0123456789abcdef";
    return options;
}

/* Makes the check agree with what was changed, as if the maker had written that. */
static inline void make_check_good(struct segment_header *header)
{
    uint64_t hash[2];
    const uint32_t ready = load_relaxed(&header->ready);
    store_relaxed(&header->ready, 0);
    hash_shared(header, offsetof(struct segment_header, check), hash);
    header->check = hash[0] ^ hash[1];
    store_relaxed(&header->ready, ready);
}

#endif
