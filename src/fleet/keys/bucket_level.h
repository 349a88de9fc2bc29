/* SPDX-License-Identifier: Apache-2.0 */
/* The level of a bucket: its time with the units that no node has reported yet (see process/allowance.c). */
#ifndef WEIR_FLEET_KEYS_BUCKET_LEVEL_H
#define WEIR_FLEET_KEYS_BUCKET_LEVEL_H

#include <stdint.h>

#include "algorithm/rule.h"

struct demand_rates;
struct estimate;
struct report;
struct sync_full;
struct fleet;

/* What a limit admits in the long run, as a rate. */
uint64_t bucket_level_rule_rate(const struct rule *rule);
/* The level with `count` local units, less the units of other nodes that their reports do not have yet. */
uint64_t bucket_level_reported(const struct fleet *fleet, const struct sync_full *sync, const struct rule *rule,
                               uint64_t count, uint64_t now_ns);

/* An answer on a bucket: its report, and its state with the answer merged. */
struct bucket_level_input {
    const struct sync_full *sync;
    const struct rule *rule;
    const struct report *report;
    struct state state;
};

/* The level as of an answer, for allowance.level. */
uint64_t bucket_level_answer(const struct fleet *fleet, const struct bucket_level_input *input,
                             const struct demand_rates *rates, const struct estimate *estimate);

#endif
