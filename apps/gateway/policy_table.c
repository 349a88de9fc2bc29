/* SPDX-License-Identifier: Apache-2.0 */
/* See policy_table.h. */
#include "policy_table.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

void policy_table_add(struct policies *policies, const char *name, const struct policy_kind *kind)
{
    const size_t count = atomic_load_explicit(&policies->count, memory_order_relaxed);
    struct gateway_policy *policy = &policies->all[count];
    (void) snprintf(policy->name, sizeof(policy->name), "%.*s", POLICY_KIND_SIZE - 1, name); /* no name is longer */
    policy->kind = *kind;
    atomic_store(&policy->id, WEIR_NO_POLICY);
    atomic_store(&policies->count, count + 1); /* workers see the entry whole */
}

void policy_table_init(struct policies *policies)
{
    for (size_t i = 0; i < POLICY_KIND_COUNT; i++) {
        struct policy_kind kind;
        if (policy_kind_read(policy_kind_names[i], &kind)) {
            policy_table_add(policies, policy_kind_names[i], &kind);
        }
    }
}

bool policy_table_knows(const struct policies *policies, const char *name)
{
    const size_t count = atomic_load(&policies->count);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(policies->all[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}
