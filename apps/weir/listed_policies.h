/* SPDX-License-Identifier: Apache-2.0 */
/* A copy of the policies in force, which outlives weir_list_policies. */
#ifndef WEIR_LISTED_POLICIES_H
#define WEIR_LISTED_POLICIES_H

#include <stdbool.h>
#include <stddef.h>
#include <weir/weir.h>

struct listed_policy {
    weir_policy policy; /* its pointers lead into this struct */
    char name[WEIR_MAX_NAME + 1];
    weir_limit limits[WEIR_MAX_LIMITS];
    char limit_names[WEIR_MAX_LIMITS][WEIR_MAX_NAME + 1];
};

struct listed_policies {
    struct listed_policy *all;
    size_t count, capacity;
};

/* False: out of memory. The caller calls listed_policies_free. */
bool listed_policies_take(struct listed_policies *out, const weir *w);
void listed_policies_free(struct listed_policies *list);

/* The policy of a name of `length` bytes; NULL: there is none. */
const weir_policy *listed_policies_find(const struct listed_policies *list, const char *name, size_t length);

#endif
