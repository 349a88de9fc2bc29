/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Entries of single keys, compiled: other numbers than their policy's, always allowed, or always denied.
 *
 * Entries are text (entry.h), from the program and from the fleet. They are compiled against a policy set, and looked
 * up on slow paths alone: a key's own by its hash; then one by the hash that the key is told by; then those of the
 * networks it is in, the smallest first.
 */
#ifndef WEIR_POLICY_OVERRIDE_SET_H
#define WEIR_POLICY_OVERRIDE_SET_H

#include "base/hash.h"
#include "policy/policy.h"

/*
 * Most entries that are taken, bytes of the longest one (of its field and value), and bytes of all. Of more the rest is
 * left out, and that is logged. The same numbers stand in src/transport/redis/scripts/overrides.lua.
 */
#define OVERRIDES_MAX      10000
#define OVERRIDE_SIZE_MAX  4096
#define OVERRIDES_SIZE_MAX (2 << 20)

/* One entry as text, owned by whoever has the list. */
struct override_text {
    char *field, *value;
    bool in_force; /* as last compiled */
};

struct override_list {
    struct override_text *texts;
    size_t count;
};

/* Frees a list; NULL is allowed. */
void overrides_drop(struct override_text *texts, size_t count);

struct overrides;

/* What the compiling of entries needs to know. */
struct override_context {
    const struct policy_set *set;
    struct policy_names *names;
    const struct hash_secret *secret; /* as long as what is compiled */
    uint64_t tick_ns;
};

/* Entries that are malformed, and are left out. */
struct override_faults {
    size_t count;
    const struct override_text *first;
    weir_error error; /* what is wrong with that one */
};

/*
 * Compiles lists of entries; of two of one key the first is in force. Those of policies that are not in the set are
 * left out. 0, and *out is NULL where there are no entries; -ENOMEM.
 */
int overrides_compile(const struct override_context *context, const struct override_list *lists, size_t list_count,
                      struct overrides **out, struct override_faults *faults);

void overrides_free(struct overrides *overrides); /* NULL is allowed */

/* The policy of a key; NULL: it has no entry. */
const struct policy *overrides_find(const struct overrides *overrides, const weir_key *key);

/* Of the outage ladder: all there are. */
size_t overrides_count(const struct overrides *overrides);
struct policy *overrides_at(struct overrides *overrides, size_t index);

#endif
