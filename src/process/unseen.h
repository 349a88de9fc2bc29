/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The units that the last answer of the fleet did not include, of a key with a full sync state. Local units passed
 * since; other nodes have not reported remote ones; silent nodes are presumed to have used some.
 *
 * Ordering: relaxed, as in allowance.c. Progress: wait-free.
 */
#ifndef WEIR_PROCESS_UNSEEN_H
#define WEIR_PROCESS_UNSEEN_H

#include <stdbool.h>
#include <stdint.h>

#include "algorithm/bucket.h"
#include "process/allowance.h"

struct process;
struct sync_full;

/* Local units of a bucket since the last answer. */
static inline uint64_t unseen_of_bucket(const struct allowance *allowance, struct state state)
{
    const uint64_t units = (bucket_total(state) - load_relaxed(&allowance->seen)) & BUCKET_TOTAL_MASK;
    return units <= BUCKET_TOTAL_MASK / 2 ? units : 0;
}

/* Local units since the last answer; *since_ns: raised to the beginning of the window that they are of. */
uint64_t unseen_local(const struct sync_full *sync, const struct allowance_query *query, uint64_t *since_ns);

/*
 * Of a sliding window: unreported remote units of the window before, as far as they count now. That window was over
 * before the next answer. In an outage (`alone`) the other nodes used, for each local unit, their fraction of demand.
 */
uint64_t unseen_before(const struct process *process, const struct allowance *allowance,
                       const struct allowance_query *query, bool alone);

/* Of a window or a log: units of nodes that have not reported lately, as far as they count now. */
uint64_t unseen_presumed(const struct allowance *allowance, const struct allowance_query *query);

#endif
