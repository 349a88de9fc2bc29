/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a key of a fleet stands under one limit: the records of all nodes, and what the library's arithmetic makes of
 * them. The fleet's state is that of a node which has heard of all reports and has used nothing itself.
 */
#ifndef WEIR_INSPECT_STANDING_H
#define WEIR_INSPECT_STANDING_H

#include "inspect/inspector.h"
#include "inspect/limit_reports.h"

/* What is asked of a key. */
struct standing_question {
    const weir_inspected_fleet *fleet; /* of now */
    uint64_t cost;
    bool with_authors; /* what each node has reported is asked for, and whether the records exist */
};

/*
 * Reads the records of `count` limits of one key, in one round, into `out`, whose memory is of `shelf`. The policy's
 * limits are of[i].limit. Not 0: `error` has a sentence.
 */
int standing_read(weir_inspector *in, struct shelf *shelf, const struct limit_records *of, size_t count,
                  const struct standing_question *question, weir_inspected_limit *out, weir_error *error);

#endif
