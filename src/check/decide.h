/* SPDX-License-Identifier: Apache-2.0 */
/* Deciding in the table; see decide.c. */
#ifndef WEIR_CHECK_DECIDE_H
#define WEIR_CHECK_DECIDE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/numbers.h"
#include "check/request.h"
#include "thread/slot.h"
#include "thread/tick.h"

/* Spread of a grant: what all threads can hold at once is a quarter of what is left. */
#define GRANT_SHARE 4

/* The most that a thread is granted where so much is left. */
static inline uint64_t decide_grant_share(const struct weir_thread *t, uint64_t left)
{
    /* Relaxed: the count of threads only sizes the grant. */
    const uint64_t threads = max_u64(load_relaxed(&t->line->thread_count), 1);
    return min_u64(left / (GRANT_SHARE * threads), GRANT_MAX);
}

/* Decides in the table, and counts every claim's cost and grant where it allows; `take` false: counts nothing. */
void decide_request(struct request *r, bool take);

enum charge { CHARGE_DONE, CHARGE_NO_ROOM, CHARGE_LOST, CHARGE_NO_MEMORY };

/* The state that a limit of a claim is charged from, as heard. */
struct state claim_charge_base(const struct request *r, const struct claim *claim, size_t limit);
/* Hears all limits of a claim; `mine`: units held there that are this request's. False: a cell is another key's. */
bool claim_read(struct request *r, struct claim *claim, uint64_t mine);
void claim_hold(struct request *r, const struct claim *claim, uint64_t delta);
/*
 * Charges one cell, if it has `wanted` units left (of which `mine` are held for this request), and adds `add` to the
 * state's b: its generation.
 */
enum charge claim_charge_cell(struct request *r, struct claim *claim, size_t limit, uint64_t cost, uint64_t mine,
                              uint64_t wanted, uint64_t add);
/* Earliest wait until one limit of a claim has room, as heard. */
uint64_t denial_retry_after(const struct request *r, const struct claim *claim, size_t limit);
/* Takes back what others hold of a claim, or lets them run. False: that was done often enough. */
bool decide_wait(struct request *r, const struct claim *claim, unsigned *fruitless);
/* Tells the background thread that a claim was charged. */
void claim_set_dirty(const struct request *r, const struct claim *claim);

#endif
