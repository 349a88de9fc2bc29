/* SPDX-License-Identifier: Apache-2.0 */
/* What settling needs of a slot, and the lock of both. */
#ifndef WEIR_THREAD_SLOT_ACCOUNT_H
#define WEIR_THREAD_SLOT_ACCOUNT_H

#include <stdbool.h>
#include <stdint.h>

#include "algorithm/rule.h"
#include "base/atomics.h"
#include "base/compiler.h"
#include "thread/thread.h"
#include "weir/weir.h"

/*
 * How far the settling of a slot has come, so that another thread can end it. Zeros: none is under way. Where a weir is
 * not shared, always.
 */
struct settling {
    /* 2 * i + 1: limit i of the policy is about to be charged; 2 * i + 2: it was. The limits before it were charged. */
    _Atomic uint32_t step;
    uint64_t used;    /* what `accounted` is to be */
    uint64_t log_end; /* of the limit's log, before it is charged */
};

/* What settling needs of a slot. All under `lock`, unless a comment says otherwise. */
struct slot_account {
    _Alignas(
        CACHE_LINE) _Atomic uint32_t lock; /* weir_thread.lock_word of its holder; 0: free. Never waited for [S2] */
    uint32_t limit_count;                  /* cells pinned; 0: none */
    /* Atomic: the background thread reads them without the lock, to see whether there is anything to settle. */
    _Atomic uint64_t accounted;      /* of `used`: charged to the cells */
    _Atomic uint64_t granted;        /* units that the cells' `held` counts for this slot */
    _Atomic uint64_t denied;         /* units denied, cumulative, while the slot has a grant; see slot_denied() */
    _Atomic uint64_t denied_counted; /* of slot_denied(): counted in the demand of the key */
    uint32_t cells[WEIR_MAX_LIMITS];
    uint64_t granted_ns; /* fleet time of the last grant */
    struct settling settling;
    struct rule rules[WEIR_MAX_LIMITS]; /* of the last grant */
    bool fleet;                         /* the fleet shares the policy */
    /* Read and written by the owner alone, without the lock. */
    uint32_t grant_epoch, deny_epoch; /* of the last grant, of the last denial */
    uint64_t size;                    /* units of the last grant that was asked for */
    uint64_t direct;                  /* units charged to the table in grant_epoch, not from grants */
    uint64_t used_before;             /* `used` when grant_epoch began for this slot */
    uint64_t denied_remaining;        /* units left when the cached denial was made */
    uint64_t asked_reset_ns;          /* fleet time at which the key is as unused, if nothing passes on the grant */
    uint32_t touched;                 /* epoch of the last slow use, for replacement */
};

/* `t`: any handle of this process. */
static inline bool slot_account_trylock(const struct weir_thread *t, struct slot_account *account)
{
    uint32_t free = 0;
    return load_relaxed(&account->lock) == 0 && cas_acquire(&account->lock, &free, t->lock_word); /* [S2] */
}

static inline void slot_account_unlock(struct slot_account *account)
{
    store_release(&account->lock, 0); /* [S2] */
}

#endif
