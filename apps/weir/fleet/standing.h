/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a key of a fleet stands under one limit: the records of all nodes, and what the library's arithmetic makes of
 * them. The fleet's state is that of a node which has heard of all reports and has used nothing itself.
 */
#ifndef WEIR_STANDING_H
#define WEIR_STANDING_H

#include <stdbool.h>
#include <stdint.h>

#include "../redis_link.h"
#include "fleet_key.h"
#include "fleet_nodes.h"
#include "key_record.h"

struct standing {
    const struct policy_limit *limit; /* with the numbers of the override */
    struct rule rule;
    struct key_record now;                    /* the record; of a window, that of the present one */
    struct key_record before;                 /* of a window: of the one before */
    uint64_t window_number, start_ns, end_ns; /* of a window; fleet time */
    uint64_t ends_after_ns;                   /* of a window */
    uint64_t at_once;                         /* units that the limit lets pass at once */
    uint64_t remaining;                       /* units that can pass now */
    uint64_t count;                           /* units that count against the limit */
    uint64_t carried;                         /* of a sliding window: of those, what counts of the window before */
    uint64_t retry_after_ns; /* until `cost` fits, if nothing else comes; 0: it fits; UINT64_MAX: never */
    uint64_t reset_after_ns; /* until the key is as if never used */
    bool fits;
};

/* Reads the records of a limit of the key's policy or of its tiers, and `with_authors` what each node has reported, and
 * whether the records exist. False: no answer, and `error` has a sentence. Free it in both cases. */
bool standing_read(struct standing *out, struct redis_link *link, const struct fleet_key *key,
                   const struct policy_limit *limit, const struct fleet_nodes *nodes, uint64_t cost, bool with_authors,
                   weir_error *error);
void standing_free(struct standing *standing);

/* A limit has so many records at most: of a window, the present one and the one before. */
#define STANDING_REPORTS 2

/* Makes the reports of an author that has used nothing, one for each record. Returns how many. */
size_t standing_reports(const struct standing *s, const struct fleet_key *key, const char *author, uint64_t fleet_us,
                        struct report reports[STANDING_REPORTS], struct history_report *history);

#endif
