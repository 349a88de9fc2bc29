/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keys of a fleet that are at their limit now, or over it. A walk over the names in Redis gives the names of
 * records, page by page. Of each record one or two small commands read how much is in use, all of a page in pipelines.
 * The keys with most in use are then read as weir explain reads a key. Nothing is written.
 */
#ifndef WEIR_BUSY_KEYS_H
#define WEIR_BUSY_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fleet_key.h"
#include "fleet_nodes.h"

struct busy_limit;
struct busy_key;

struct busy_keys {
    struct fleet_key key;      /* the policy file, and the key that is read */
    struct busy_limit *limits; /* of all policies with records, sorted by "label:policy" */
    size_t limit_count;
    struct busy_key *all; /* with units in use */
    size_t count, capacity;
    uint64_t begun_ns, fleet_ns; /* the monotonic clock and fleet time at busy_keys_open */
    bool refused;                /* a command that reads units is denied to the user */
    bool partly;                 /* busy_keys_judge: further keys may be at their limit */
};

/* The keys of a policy and its tiers that are at their limit, or over it. */
struct full_keys {
    char base[WEIR_MAX_NAME + 1]; /* the policy without its tier */
    size_t count;
    /* Of them the one that has used most, or asked for most. */
    char policy[WEIR_MAX_NAME + 1]; /* with the tier that lets most pass */
    char key[KEY_NAME_TEXT_SIZE];
    char limit[WEIR_MAX_NAME + 1];
    double times; /* of the limit */
    bool asked;   /* asked for; else: used */
    bool shadow;  /* the policy denies nothing */
};

/* Reads the policy file. False: it cannot be used, and `error` has a sentence. The caller closes in both cases. */
bool busy_keys_open(struct busy_keys *out, const char *prefix, const char *file, uint64_t fleet_us, weir_error *error);
void busy_keys_close(struct busy_keys *keys);

/* Takes a page: an array of names, of which some are records. False: no answer, and `error` has a sentence. */
bool busy_keys_take(struct busy_keys *keys, struct redis_link *link, const redisReply *names, weir_error *error);

/*
 * Reads the keys with most in use, for at most `ms`. *out has a row for each policy that has keys at their limit, and
 * the caller frees it. False: no answer, or no memory, and `error` has a sentence.
 */
bool busy_keys_judge(struct busy_keys *keys, struct redis_link *link, uint64_t ms, struct full_keys **out,
                     size_t *count, weir_error *error);

#endif
