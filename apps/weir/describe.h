/* SPDX-License-Identifier: Apache-2.0 */
/* What a policy admits, and what it does besides, in plain English. */
#ifndef WEIR_DESCRIBE_H
#define WEIR_DESCRIBE_H

#include <stdbool.h>
#include <weir/weir.h>

#include "quantity.h"

/* What a policy's limits admit: "100 a second with bursts of 200, and 5,000 an hour". Defaults are filled in. */
void describe_limits(struct sentence *s, const weir_limit *limits, size_t count);

/* The rest of a policy: "; while Redis is away a node admits its share". `as` is not NULL: "; otherwise as api". */
void describe_settings(struct sentence *s, const weir_policy *policy, const char *as);

/* Whether two policies differ in names and limits alone. */
bool describe_is_alike(const weir_policy *one, const weir_policy *other);

/* Whether an override's name is of all policies: "*:198.51.100.0/24". */
bool describe_is_of_all(const char *name);

/*
 * What an override does, behind its name: "is never limited", "has 200 a second with bursts of 50". `policy` NULL: it
 * is of all policies.
 */
void describe_override(struct sentence *s, const weir_policy *policy, const char *value);

#endif
