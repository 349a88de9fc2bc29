/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fields that a file, a policy, a tier and a limit have, and the mappings they stand in: which are there, which are
 * unknown, twice, or in another mapping than theirs.
 */
#ifndef WEIR_POLICY_FIELDS_H
#define WEIR_POLICY_FIELDS_H

#include "policy/tree.h"
#include "policy/words.h"

enum level { LEVEL_FILE, LEVEL_POLICY, LEVEL_TIER, LEVEL_LIMIT, LEVEL_COUNT };

enum file_field { FILE_POLICIES, FILE_OVERRIDES };
enum policy_field {
    POLICY_NAME,
    POLICY_LIMITS,
    POLICY_MODE,
    POLICY_SCOPE,
    POLICY_HASH_KEYS,
    POLICY_ON_OUTAGE,
    POLICY_ON_LONG_OUTAGE,
    POLICY_OUTAGE_GRACE,
    POLICY_LONG_OUTAGE,
    POLICY_TIERS
};
enum tier_field { TIER_NAME, TIER_LIMITS };
enum limit_field { LIMIT_ALGORITHM, LIMIT_LIMIT, LIMIT_PERIOD, LIMIT_CALENDAR, LIMIT_BURST, LIMIT_DELAY, LIMIT_NAME };

#define FIELDS_MAX 10

extern const struct words fields_of[LEVEL_COUNT];

/* A mapping's fields by their number; NULL: it does not have that one. */
struct fields {
    const struct tree_node *keys[FIELDS_MAX], *values[FIELDS_MAX];
};

/* Reads a mapping. `subject` names it, for errors. 0, or -EINVAL with the file's error set. */
int fields_read(const struct text_file *file, const struct tree *tree, enum level level, const char *subject,
                const struct tree_node *mapping, struct fields *out);

/* Checks that a field, which is there, is a list of mappings of this level. 0, or -EINVAL with the file's error set. */
int fields_check_list(const struct text_file *file, const struct tree *tree, const struct tree_node *key,
                      const struct tree_node *value, enum level level);

#endif
