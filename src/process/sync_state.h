/* SPDX-License-Identifier: Apache-2.0 */
/* clang-format off */
/*
 * The sync state of each key: which of its units Redis has acknowledged, and what the other nodes reported.
 *
 * Few keys of a table are near their limits, and only these need much: demand, rates, times (struct sync_full). Every
 * other key needs only what keeps its counts right and names it: the remote units in its state, its acknowledged
 * units, its bytes (struct sync_compact, 48 bytes). So each cell has a compact state, and a pool holds full states for
 * a small part of the cells (sync_pool.h). compact_write makes the compact state of a full one, and compact_expand a
 * full one of the compact state.
 *
 * The compact state has two words for counts. Where these cannot tell them all, the counts lie beside it, as they were
 * in the full state: in the spill (struct sync_spill), an array whose pages are present only where they are used.
 *
 * A key without a full state is decided as one whose remote counts are old (allowance.c); a sync is requested as soon
 * as that matters. In a small table every cell has a full state of its own.
 *
 * Writers. L: a thread that has locked the cell. B: the background thread, which has pinned the cell. any: every
 * thread, by atomic operations.
 *
 *   field                                      writers                       read without a pin by
 *   compact.sync                               L, B; any (denied units)      sync_of, sync_add_denied [N4]
 *   compact.key, key_length                    L                             -
 *   compact.residency, acked_at, flags,        L, B                          allowance.c (an estimate)
 *     words
 *   full.allowance                             L, B; any (level, downward)   allowance.c (an estimate)
 *   full.denied                                L, B; any (adds)              -
 *   full.history_end                           L, B; any (lock of the log)   allowance.c (an estimate)
 *   full.now, full.before: remote,             L, B                          allowance.c (an estimate)
 *     remote_refunds, restored
 *   full.now, full.before: all else;           L, B                          -
 *     full.incarnation, demand, ledger, round
 *   full.cell                                  L, B                          sync_pool.c [N5]
 *   spill.ledger                               any, with the cell pinned     - (ordering [A1], check/refund.c)
 *   spill.now, spill.before: remote,           L, B                          allowance.c (an estimate)
 *     remote_refunds, restored
 *   spill.now, spill.before: all else          L, B                          -
 *   pool, hand                                 B                             -
 *
 * Invariants
 *   N1  A cell's compact, full and spilled state belong to its key. L and B exclude each other (I2 of cell.h), so each
 *       field has one writer at a time, but for those marked `any`.
 *   N2  compact.sync names the full state and full.cell names the cell, or neither does.
 *   N3  When a full state is demoted, the compact and spilled state keep its values; `acked` may be lower. Then more
 *       is reported again, which is harmless: reports are cumulative.
 *
 * Ordering
 *   [N4] compact.sync: published with release after the full state was written, or, when the full state is taken away,
 *        after the compact state was; read with acquire. A check does not pin the cell to read the full state. The
 *        state may be another key's by then; it only sizes an estimate.
 *   [N5] full.cell: TABLE_NONE with release when the key is evicted, after its last report was copied; read with
 *        acquire by the background thread, which then owns the full state.
 *
 * Names: sync_state_, counts_, compact_.
 */
/* clang-format on */
#ifndef WEIR_PROCESS_SYNC_STATE_H
#define WEIR_PROCESS_SYNC_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "algorithm/estimate.h"
#include "algorithm/window.h"
#include "base/atomics.h"
#include "base/numbers.h"
#include "process/allowance.h"
#include "process/key_name.h"
#include "process/refund_ledger.h"
#include "process/sync_states.h"

/*
 * The counts of one window. Of a bucket there is only `now`; its `before.acked` is the count up to which units are no
 * debt to the fleet.
 */
struct sync_counts {
    uint64_t acked, acked_refunds;           /* local units, and local refunds, as last acknowledged */
    _Atomic uint64_t remote, remote_refunds; /* units and refunds of the other nodes, as merged into the state */
    uint64_t deficit;                        /* units that were to be taken off the state when it had none left */
    uint64_t own;                            /* local units at the last inspection */
    uint64_t demand;                         /* units requested at this node, admitted or not */
    uint64_t remote_demand; /* of the other nodes, as last answered; of a log's `before`: author count */
    /*
     * What the key is known to have used before it was evicted here: remote units, until the fleet reports as many.
     * Of a bucket: its tat when it was restored. Of a log: units in `now`, and in `before` until when (ns).
     */
    _Atomic uint64_t restored;
};

_Static_assert(sizeof(struct sync_counts) == 9 * sizeof(uint64_t), "counts_copy names every field");

/* The remote units that are merged into the state. */
static inline uint64_t counts_merged(const struct sync_counts *counts)
{
    /* Acquire: for refunds [A2]; other readers want an estimate. */
    return max_u64(load_acquire(&counts->remote), load_relaxed(&counts->restored));
}

/* Those that the state still has: less what the other nodes refunded. */
static inline uint64_t counts_net(const struct sync_counts *counts)
{
    return saturating_sub(counts_merged(counts), load_relaxed(&counts->remote_refunds));
}

/*
 * The demand statistics of a key, from which its allowance is computed. The background thread's own. A bool of one bit
 * is in range in memory that is damaged, too.
 */
struct demand_stats {
    struct demand_rates rates;
    uint64_t presumed_rate;               /* of rates.remote_rate: demand of nodes that have not reported lately */
    uint16_t silent;                      /* suspect ones among these nodes */
    bool resumed : 1;                     /* such a node reported again, by the last answer */
    bool guessed : 1;                     /* the rates are unknown, and guessed by the age of a young window */
    bool again : 1;                       /* all counts are to be reported again, acknowledged or not */
    bool idle : 1;                        /* the key was not used here for some intervals before its present use */
    bool begun : 1;                       /* first contact, or a surge: the key's local demand is not known yet */
    bool risen : 1;                       /* recent_rate is above the local rate by more than chance */
    uint32_t round;                       /* the last round that reported the key */
    uint64_t learned_ns;                  /* fleet time of the last answer that was evaluated; 0: none yet */
    uint64_t local_demand, remote_demand; /* units since then */
    uint64_t first_ns;                    /* fleet time of the answer after which peers are awaited (demand.c) */
    uint64_t recent_units;                /* local demand between the last two inspections */
    uint64_t recent_rate;                 /* recent_units as a rate; 0: too few units */
    uint64_t recent_ns;                   /* when it was reported */
    uint64_t changed_ns;                  /* when demand was last seen to move between the nodes */
    uint64_t own;                         /* local units then, of the window or the bucket */
    uint64_t local_seen;                  /* of these, the units that the remote counts take account of */
    /*
     * Of a bucket of which a fraction is served here: its tat as the fleet knows it, without the fraction's slower
     * rate. Then its total at that time, and the local refunds that are taken off the total.
     */
    uint64_t known_time, known_total, known_refunds;
    uint64_t fraction_ns;  /* when the fraction was last computed */
    bool shared : 1;       /* in an outage, and no answer has been merged since it ended */
    uint8_t known_rate_id; /* the rate of known_time */
    /* Whether units were denied before the last inspection, and before the one before it. */
    bool denied : 1, denied_before : 1;
};

/* All atomics in it are relaxed: statistics or estimates. */
struct sync_full {
    struct allowance allowance;
    _Atomic uint64_t denied;        /* units requested and denied, since they were last counted */
    uint64_t incarnation;           /* that of the compact state */
    struct sync_counts now, before; /* the window allowance.seq, and the window before it */
    struct demand_stats demand;
    _Atomic uint64_t history_end; /* of a sliding log: the number of local units, for allowance.c */
    struct refund_ledger *ledger; /* the key's, since the full state was last loaded */
    _Atomic uint32_t cell;        /* the cell of the key; TABLE_NONE: the state is free */
    uint32_t round;               /* the last round that inspected the key */
};

/* Bytes of a key in its compact state; the rest is in sync_states.tails. */
#define COMPACT_KEY 16

/* Flags of a compact state. */
#define COMPACT_ACKED     1 /* the fleet has answered of the key */
#define COMPACT_AGAIN     2 /* all counts are to be reported again */
#define COMPACT_SPILLED   4 /* the counts are in the spill */
#define COMPACT_RESTORED  8 /* words[0] is what was restored, not what other nodes used; words[1]: the next bit */
#define COMPACT_KEY_SHIFT 6 /* above them: KEY_NAME_* of the key */

/*
 * The compact sync state; every cell has one. The words:
 *
 *   window  of this window and of the one before: counts_merged (44 bits), and above them `acked` as a minifloat
 *   bucket  [0]: remote or restored; [1]: acked
 *   log     [0]: restored units; [1]: until when
 *
 * Where the counts are in the spill, the words are right in `acked` alone. While the key has a full state, only `sync`,
 * the key's bytes with their flags and the incarnation are up to date.
 */
struct sync_compact {
    _Atomic uint32_t sync;      /* COMPACT_HAS_FULL and an index of the pool; or denied units, as many as fit */
    _Atomic uint16_t acked_at;  /* fleet time of the last answer, in units of 2^ACKED_AT_SHIFT ns */
    _Atomic uint8_t flags;      /* COMPACT_* */
    uint8_t key_length;         /* bytes */
    _Atomic uint64_t residency; /* the key's incarnation, which no other stay in this table has; a window's seq below */
    _Atomic uint64_t words[2];
    unsigned char key[COMPACT_KEY];
};

_Static_assert(sizeof(struct sync_compact) == 48, "memory of every cell; and sync_move names every field");

/* What few cells need: refunds, and the counts of a key without a full state that its compact state cannot tell. */
struct sync_spill {
    struct refund_ledger ledger;
    struct sync_counts now, before;
};

/* What a key longer than COMPACT_KEY has beyond its compact state. */
struct key_tail {
    unsigned char bytes[KEY_NAME_SIZE - COMPACT_KEY];
};

/* A flag of sync_compact.sync, above any index. */
#define COMPACT_HAS_FULL (UINT32_C(1) << 31)

struct process;

/* The full state of a cell; NULL: the cell has none. */
static inline struct sync_full *sync_of(const struct sync_states *syncs, uint32_t cell)
{
    const uint32_t word = load_acquire(&syncs->compacts[cell].sync); /* [N4] */
    return (word & COMPACT_HAS_FULL) != 0 ? &syncs->pool[word & ~COMPACT_HAS_FULL] : NULL;
}

static inline bool compact_is(const struct sync_compact *compact, uint8_t flag)
{
    return (load_relaxed(&compact->flags) & flag) != 0;
}

/* 2^28 ns are 0.27 s: 16 bits of them are five hours. */
#define ACKED_AT_SHIFT 28

/* The least age of the last answer. After five hours the clock wraps, and the age may seem short for one interval. */
static inline uint64_t compact_age_ns(const struct sync_compact *compact, uint64_t now_ns)
{
    const uint64_t ago = (uint16_t) ((now_ns >> ACKED_AT_SHIFT) - load_relaxed(&compact->acked_at));
    return saturating_sub(ago, 1) << ACKED_AT_SHIFT;
}

/* A compact state's incarnation stands above the window's number. */
#define RESIDENCY_SHIFT WINDOW_SEQ_BITS

/*
 * An estimate of the units that a state counts: in `now` and `before` the remote ones, less refunds. In `acked` the
 * acknowledged local ones of `now` or of the bucket; 0 if the cell has a full state.
 */
struct merged_counts {
    uint32_t seq; /* of `now` */
    uint64_t now, before, acked;
};

struct merged_counts sync_state_merged(const struct process *process, uint32_t cell);

/*
 * The units that the fleet's record of a bucket holds once all is reported, as far as this process knows: local and
 * remote ones, less refunds. UINT64_MAX: not known, because the state has units of an evicted key that came back. The
 * cell is pinned.
 */
uint64_t sync_state_bucket_units(const struct process *process, uint32_t cell, struct state state);

/* The name of a pinned or locked cell's key. */
struct key_name compact_key(const struct process *process, uint32_t cell);

void counts_clear(struct sync_counts *counts);
void counts_copy(struct sync_counts *to, const struct sync_counts *from);

/* Copies all but the cell. */
void sync_state_copy(struct sync_full *to, const struct sync_full *from);

/*
 * Writes what a cell's compact state stands for, with the counts in the spill, as a full state. Takes the denied units
 * out of the compact state.
 */
void compact_expand(const struct process *process, uint32_t cell, const struct rule *rule, uint64_t now_ns,
                    struct sync_full *sync);

/* Writes a full state, but for its denied units, to a cell's compact state, and to the spill what that cannot tell. */
void compact_write(struct process *process, uint32_t cell, const struct sync_full *sync);

#endif
