/* SPDX-License-Identifier: Apache-2.0 */
/* What a cell's local units are, how many of them are not acknowledged, and whether a report of them is due. */
#ifndef WEIR_FLEET_ACCOUNT_H
#define WEIR_FLEET_ACCOUNT_H

#include <stdbool.h>
#include <stdint.h>

#include "fleet/reading.h"
#include "process/sync_state.h"

struct fleet;

/* What a cell's units are, and how many of them the fleet has not had. */
struct account {
    uint64_t own[2], refunds[2]; /* of this window and the one before; a bucket's in [0] */
    uint64_t unreported;         /* own units of this window, or of the bucket */
    uint64_t denied;             /* units, since the last look */
    bool news;                   /* of anything else */
    bool again;                  /* whatever has been told before */
};

/* How a cell is asked for its report. */
enum urge {
    URGE_IF_DUE, /* else the cell is deferred */
    URGE_SCAN,   /* the cell was deferred; half as much is due, or its age */
    URGE_NOW,
    URGE_AGAIN, /* including what was acknowledged before */
};

/* Lets a window's state follow the time, so that a key is reported as of now even where it is not used. */
void account_roll(struct cell *cell, const struct rule *rule, uint64_t now_ns);
struct account account_window(const struct fleet *fleet, struct sync_full *sync, const struct rule *rule,
                              const struct reading *reading, uint64_t now_ns);
struct account account_bucket(const struct fleet *fleet, struct sync_full *sync, const struct reading *reading,
                              uint64_t now_ns);
/* Whether the report of a cell cannot wait for its scan. */
bool account_due(const struct fleet *fleet, const struct sync_full *sync, const struct rule *rule, struct state state,
                 const struct account *account, uint64_t now_ns, enum urge urge);

#endif
