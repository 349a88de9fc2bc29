/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A round of reports that reset the records of a key, over the library's own transport: the scripts in Redis refund all
 * that counts, as they do for weir_reset. The round is no heartbeat, so no node appears.
 */
#ifndef WEIR_RESET_ROUND_H
#define WEIR_RESET_ROUND_H

#include <stddef.h>
#include <weir/weir.h>

#include "../fleet/standing.h"

/* The most limits with records of one key: those of all tiers of a policy. */
#define RESET_LIMITS_MOST 64

/*
 * Resets the records that exist, of `count` limits. 0, or a negative errno with a sentence: -EPROTO: a record was
 * refused; else Redis has not answered, and some of the records may be reset.
 */
int reset_round(struct redis_link *link, const struct fleet_key *key, const struct standing *limits, size_t count,
                uint64_t fleet_us, weir_error *error);

#endif
