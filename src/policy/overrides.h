/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Entries of single keys: other numbers than their policy's, always allowed, or always denied.
 *
 * The fleet keeps them as text (docs/policies.md): a field "policy:key", the key's bytes escaped as in the names of
 * records, and a value "allow", "deny", or one number per limit of the policy, with a burst where wanted: "200",
 * "200/50 10000". They are compiled against a policy set, and looked up by a key's hash on slow paths alone.
 */
#ifndef WEIR_POLICY_OVERRIDES_H
#define WEIR_POLICY_OVERRIDES_H

#include "base/hash.h"
#include "policy/policy.h"

/* Most entries that are taken; of more the rest is left, and that is logged. */
#define OVERRIDES_MAX 10000

/* One entry as text, owned by whoever has the list. */
struct override_text {
    char *field, *value;
};

/* Frees a list; NULL is allowed. */
void overrides_drop(struct override_text *texts, size_t count);

struct overrides;

/* What the compiling of one entry needs to know. */
struct override_context {
    const struct policy_set *set;
    struct policy_names *names;
    const struct hash_secret *secret;
    uint64_t tick_ns;
};

/*
 * Compiles entries. Those of policies that are not in the set are left out; *first_bad is the first that is malformed,
 * which are left out too (NULL: none). NULL: out of memory, or no entries.
 */
struct overrides *overrides_compile(const struct override_context *context, const struct override_text *texts,
                                    size_t count, const struct override_text **first_bad, size_t *bad_count);

void overrides_free(struct overrides *overrides); /* NULL is allowed */

/* The policy of a key, by the key's hash; NULL: it has no entry. */
const struct policy *overrides_find(const struct overrides *overrides, uint64_t key_hash, weir_policy_id policy);

/* Of the outage ladder: all there are. */
size_t overrides_count(const struct overrides *overrides);
struct policy *overrides_at(struct overrides *overrides, size_t index);

#endif
