/* SPDX-License-Identifier: Apache-2.0 */
/* Rounds: when one is due, how it begins, and what its answer changes; see round.c. */
#ifndef WEIR_FLEET_ROUND_H
#define WEIR_FLEET_ROUND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fleet/keys/gather.h"

struct fleet;
struct override_text;
struct policy_set;

/* When rounds come. Times are monotonic. */
struct round_schedule {
    bool under_way;
    bool regular;                  /* the last round was a regular one, of a node that is not idle */
    uint32_t close_count;          /* regular rounds that were close to those of the next node */
    uint64_t begun_ns;             /* when the last round was begun */
    uint64_t phase_ns;             /* regular rounds are due at multiples of the interval after it */
    uint64_t next_ns;              /* when the next regular round is due */
    uint64_t extra_ns;             /* one more round, which leaves next_ns as it is; UINT64_MAX: none */
    uint64_t stepped_ns;           /* when fleet_step last ran */
    uint64_t transport_stepped_ns; /* when the transport was last stepped */
    uint64_t transport_due_ns;     /* when the transport is to be stepped, whatever is ready */
    bool logged_expected;          /* the log has had: more nodes are live than expected_nodes */
    bool logged_refused;           /* the last good round had refused records, and the log has had that */
    bool logged_lost;              /* the log has had that, at logged_lost_ns */
    uint64_t logged_lost_ns;
};

/* What the last good round has told. */
struct round_news {
    uint64_t good_ns;   /* when it was answered, monotonic; 0: there was none yet */
    uint64_t begun_ns;  /* when it was begun: its news is no older */
    uint64_t failed_ns; /* when a round failed since, or could not be begun, for the first time; monotonic; 0: none */
    uint64_t age_ns;    /* average age of the other nodes' news when it was gathered */
    bool slow;          /* it took long */
    bool awaits_peers;  /* nodes that were live before have not reported yet what they used */
    bool peers_resume;  /* nodes that were suspect are back, and have not had the time to report */
};

/* Overrides of single keys that a round has brought, until the limiter takes them. */
struct round_overrides {
    bool changed;
    char version[64]; /* of the entries last taken */
    struct override_text *texts;
    size_t count;
    uint64_t left_out; /* entries that exist and are not among these */
};

/* Whether a round is to begin, and which. */
bool round_due(const struct fleet *fleet, uint64_t monotonic_ns, enum round_kind *kind);
/* When to ask whether all nodes are back; UINT64_MAX: no node is awaited. */
uint64_t round_asks_at_ns(const struct fleet *fleet);
void round_begin(struct fleet *fleet, const struct policy_set *set, enum round_kind kind, uint64_t monotonic_ns);
/* The round was answered. */
void round_finish(struct fleet *fleet, struct policy_set *set, uint64_t monotonic_ns);
/* The round failed. */
void round_fail(struct fleet *fleet);

#endif
