/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fields of the mappings of a policy file. A mapping is read field by field. A field that is unknown, given twice,
 * or of another level is an error.
 */
#ifndef WEIR_POLICY_FIELDS_H
#define WEIR_POLICY_FIELDS_H

#include "policy/tree.h"

/* What a mapping describes: the file as a whole, a policy, a tier of a policy, or a limit. */
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

/* The most fields of a level. */
#define FIELDS_MAX 10

/* The fields of a mapping, by the enumerators of its level. NULL: the mapping has no such field. */
struct fields {
    const struct tree_node *keys[FIELDS_MAX], *values[FIELDS_MAX];
};

/* Reads the fields of a mapping. `subject` names the mapping in errors. 0, or -EINVAL with the file's error set. */
int fields_read(const struct text_file *file, const struct tree *tree, enum level level, const char *subject,
                const struct tree_node *mapping, struct fields *out);

/*
 * Checks that the value of a field is a list. `level`: of the list's entries, for errors. 0, or -EINVAL with the file's
 * error set.
 */
int fields_check_list(const struct text_file *file, const struct tree *tree, const struct tree_node *key,
                      const struct tree_node *value, enum level level);

#endif
