/* SPDX-License-Identifier: Apache-2.0 */
/* What a cell's local units are, how many of them are not acknowledged, and whether a report of them is due. */
#ifndef WEIR_FLEET_KEYS_ACCOUNT_H
#define WEIR_FLEET_KEYS_ACCOUNT_H

#include <stdbool.h>
#include <stdint.h>

#include "algorithm/rule.h"

struct cell;
struct reading;
struct rule;
struct sync_full;
struct fleet;

struct account {
    uint64_t own[2], refunds[2]; /* local units of this window and of the one before; a bucket's in [0] */
    uint64_t unreported;         /* local units of this window, or of the bucket, that are not acknowledged */
    uint64_t denied;             /* units denied since the last inspection */
    bool news;                   /* of the window before or of refunds something is not acknowledged */
    bool again;                  /* everything is to be reported, acknowledged or not */
};

/* How a cell is asked for its report. */
enum urge {
    URGE_IF_DUE, /* a cell that is not due is deferred */
    URGE_SCAN,   /* the cell was deferred; half as many units make it due, and so does age */
    URGE_NOW,
    URGE_AGAIN, /* including what was acknowledged before */
};

/*
 * Takes the account of a window's or a bucket's cell, which counts as an inspection (demand.h). A window's state
 * follows the time first. A sliding log has no account: report_history.c.
 */
struct account account_take(const struct fleet *fleet, struct cell *cell, struct sync_full *sync,
                            const struct rule *rule, struct reading *reading, uint64_t now_ns);

/* The account of an evicted key, by its last reading. */
struct account account_of_evicted(const struct fleet *fleet, struct sync_full *sync, const struct rule *rule,
                                  const struct reading *reading, uint64_t now_ns);

/* What account_due looks at. */
struct account_view {
    const struct sync_full *sync;
    const struct rule *rule;
    struct state state;
    const struct account *account;
    uint64_t now_ns;
};

/* Whether the report of a cell cannot wait for its scan; `urge` is URGE_IF_DUE or URGE_SCAN. */
bool account_due(const struct fleet *fleet, const struct account_view *view, enum urge urge);

#endif
