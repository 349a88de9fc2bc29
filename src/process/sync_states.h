/* SPDX-License-Identifier: Apache-2.0 */
/* The arrays with the sync states of all keys: a part of struct process. What they hold: sync_state.h. */
#ifndef WEIR_PROCESS_SYNC_STATES_H
#define WEIR_PROCESS_SYNC_STATES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct key_tail;
struct sync_compact;
struct sync_full;
struct sync_spill;

/* What changes beside the states. It has no pointers, as struct process_shared. */
struct sync_states_shared {
    _Atomic uint64_t incarnations;
    uint32_t hand; /* where the next search for a full state to demote begins; the background thread's own */
};

struct sync_states {
    struct sync_states_shared *shared;
    struct sync_compact *compacts; /* one per cell */
    struct sync_full *pool;
    uint32_t count;            /* of the pool */
    bool all;                  /* every cell has a full state, at its index */
    struct sync_spill *spills; /* by cell; touched if EVENT_REFUNDED or COMPACT_SPILLED says so */
    size_t spills_size;
    struct key_tail *tails; /* by cell; touched for keys longer than COMPACT_KEY */
    size_t tails_size;
    void *memory;
    size_t memory_size;
};

#endif
