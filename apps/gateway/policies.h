/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The policies that the gateway asks for by name, and how a policy file gets into force.
 *
 * A file is looked at first, in a weir of its own that has no thread and no Redis, and comes into force after that: a
 * limit that is in force is never lost to a file that does not name it, unless --allow-missing says that it may be.
 */
#ifndef WEIR_GATEWAY_POLICIES_H
#define WEIR_GATEWAY_POLICIES_H

#include <stdbool.h>
#include <stddef.h>

#include <weir/weir.h>

/* In the order in which a packet is checked by them. */
enum policy_index { POLICY_SOURCE, POLICY_SOURCE_BYTES, POLICY_OVERALL, POLICY_OVERALL_BYTES, POLICY_COUNT };

extern const char *const policy_names[POLICY_COUNT];

/* How many bits of an IPv6 address are a source. */
#define SOURCE_PREFIX 64

/* Limits each source rather than all of them together. */
static inline bool policy_is_of_sources(size_t index)
{
    return index == POLICY_SOURCE || index == POLICY_SOURCE_BYTES;
}

/* A packet costs its bytes rather than 1. */
static inline bool policy_is_of_bytes(size_t index)
{
    return index == POLICY_SOURCE_BYTES || index == POLICY_OVERALL_BYTES;
}

/* What is in force; written by the main thread, read by all. */
struct policies {
    _Atomic weir_policy_id ids[POLICY_COUNT]; /* WEIR_NO_POLICY: not in force */
    _Atomic bool shadow[POLICY_COUNT];        /* it counts what it would deny, and lets it pass */
};

/*
 * Loads the policies a gateway starts with into `w`. False, after a sentence on stderr: the file cannot be taken, or
 * has no policy that the gateway asks for and `allow_missing` is not set.
 */
bool policies_start(struct policies *policies, weir *w, const char *path, bool allow_missing);

/*
 * Loads them again. False, after a sentence on stderr: they stay as they were, as the file cannot be taken, or lacks a
 * policy that is in force and `allow_missing` is not set.
 */
bool policies_reload(struct policies *policies, weir *w, const char *path, bool allow_missing);

/* Prints on stdout what each policy of a file is. False, after a sentence on stderr: a gateway would not start with it.
 */
bool policies_check(const char *path, bool allow_missing);

#endif
