/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compiled overrides: a key or network has other numbers than its policy, is always allowed, or is always denied.
 *
 * Compiled overrides are one block of memory. One pointer is left in it: that of a bucket's rule to the table of its
 * rates.
 *
 * Overrides are text (entry.h) of the program, the fleet and the policy file. They are compiled against a policy set.
 * An override of all policies is compiled into each whose keys its network can name, as if it were there for that
 * policy, and once more for itself, for programs that ask by an address. What a policy has of its own for the same
 * network stands above.
 *
 * A key is looked up on slow paths alone: by its hash, then by the hash of its record name, then in the networks that
 * contain it, the smallest first. Names: overrides_.
 */
#ifndef WEIR_POLICY_OVERRIDE_SET_H
#define WEIR_POLICY_OVERRIDE_SET_H

#include "base/hash.h"
#include "policy/policy.h"

/*
 * The most overrides that are read from Redis, the bytes of the longest one (name and value), and the bytes of all. The
 * rest is left out, which is logged. src/transport/redis/scripts/overrides.lua has the same numbers.
 */
#define OVERRIDES_MAX      10000
#define OVERRIDE_SIZE_MAX  4096
#define OVERRIDES_SIZE_MAX (2 << 20)

/* One override as text. The list owns both strings. */
struct override_text {
    char *field, *value;
    bool compiled; /* into the result of the last overrides_compile */
    bool in_force; /* in the result that was published last */
};

struct override_list {
    struct override_text *texts;
    size_t count;
};

/* Frees a list; NULL is allowed. */
void overrides_drop(struct override_text *texts, size_t count);

struct overrides;
struct policy_set;
struct record_hash;

/* What overrides_compile reads. */
struct override_context {
    struct policy_set *set; /* its histories keep as many units as overrides let pass */
    struct policy_names *names;
    const struct hash_secret *secret; /* of the hashes of keys */
    uint64_t tick_ns;
    uint64_t now_ns; /* fleet time: overrides that have ended are left out */
};

/* Overrides that are malformed and were left out. */
struct override_faults {
    size_t count;
    const struct override_text *first;
    weir_error error; /* of the first one */
};

/*
 * Compiles lists of overrides. Of two for one key the first is in force. Overrides of policies that are not in the set,
 * and those that have ended, are left out. 0; *out is NULL where there are no overrides. -ENOMEM.
 */
int overrides_compile(const struct override_context *context, const struct override_list *lists, size_t list_count,
                      struct overrides **out, struct override_faults *faults);

/*
 * How many entries these lists may need: one for each text, and for one of all policies one more for each policy of the
 * set. Where that is more than OVERRIDES_MAX, some of the latter may be left out.
 */
size_t overrides_wanted(const struct policy_set *set, const struct override_list *lists, size_t list_count);

void overrides_free(struct overrides *overrides); /* NULL is allowed */

/* The policy that overrides a key's; NULL: there is none. `secret`: the one of the context. */
const struct policy *overrides_find(const struct overrides *overrides, const weir_key *key,
                                    const struct hash_secret *secret, const struct record_hash *record_hash);

/* Fleet time at which the first override ends; UINT64_MAX: none does. NULL is allowed. */
uint64_t overrides_until_ns(const struct overrides *overrides);

/* Bytes of the block. */
size_t overrides_size(const struct overrides *overrides);

/* Bytes of the largest block there can be. */
size_t overrides_size_most(void);

/* How many of the texts are in force. NULL is allowed, as below. */
size_t overrides_listed(const struct overrides *overrides);

/*
 * The override of all policies for an address in network byte order, of 4 or 16 bytes: that of the smallest network,
 * whose bits are in *bits.
 */
enum override overrides_find_all(const struct overrides *overrides, const void *address, size_t length,
                                 const struct hash_secret *secret, unsigned *bits);

/* All compiled policies, for the outage mode; the id of those of all policies is WEIR_NO_POLICY. */
size_t overrides_count(const struct overrides *overrides);
struct policy *overrides_at(struct overrides *overrides, size_t index);

#endif
