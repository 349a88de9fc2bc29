/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the fleet has been told of each key, and has told of it.
 *
 * Few of a table's keys are near their limits, and only of these there is much to know: demand, rates, when what was
 * learned (struct sync_full). Of every other key it is enough what keeps counts right and names it: which units of its
 * state are the others', how many of its own the fleet has had, its bytes (struct sync_compact, 48 bytes). So each cell
 * has a stub, and there is a pool of notes, a small part of the cells. The background thread gives a key a note when
 * there is something to tell or to ask, and takes it away from the key that was looked at least lately of a few
 * (sampled LRU, as Redis evicts); what matters of it goes back to the stub. What does not fit there (units given back,
 * and the like) lies aside, in memory that is only present where it is used.
 *
 * A key without a note is decided as one whose news is old (allowance.c); it is asked for as soon as it matters.
 *
 * Where the table is small every cell has a note of its own, which nobody takes away.
 *
 * Invariants
 *   N1  A cell's stub, note and aside are its key's. They are written by who gives the cell to a key, while it is
 *       claimed, and by the background thread, while it is pinned; so never by two. Exceptions are marked.
 *   N2  stub.note names the note, and note.cell the cell, or neither does.
 *   N3  What a stub and what is aside say is what the note said when it was taken away; but `reported` may be less:
 *       more is told again, which is harmless (R2).
 *
 * Ordering
 *   [N4] stub.note: published with release after the note was written; read with acquire. A check does not pin the cell
 *        to read the note: it may be another key's by then, and sizes an estimate (allowance.c).
 *   [N5] note.cell: TABLE_NONE with release when its key is forgotten, after that one's last words were copied; read
 *        with acquire by the background thread, which then has the note for itself.
 */
#ifndef WEIR_PROCESS_SYNC_STATE_H
#define WEIR_PROCESS_SYNC_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "algorithm/estimate.h"
#include "algorithm/window.h"
#include "base/atomics.h"
#include "base/numbers.h"
#include "policy/policy.h"
#include "process/allowance.h"
#include "process/key_name.h"
#include "process/refund_ledger.h"
#include "process/table.h"

/*
 * What one window's worth of a record is known to be in the fleet. Of a bucket `now` is all there is, and
 * `before.reported` the count up to which units are no debt to the fleet.
 */
struct sync_counts {
    uint64_t acked, acked_refunds;           /* own units, and own ones given back, as last acknowledged */
    _Atomic uint64_t remote, remote_refunds; /* the same of the others, as folded into the state */
    uint64_t deficit;                        /* units that were to be taken off the state when it had none left */
    uint64_t own;                            /* own units when last looked at */
    uint64_t demand;                         /* units asked here, admitted or not */
    uint64_t remote_demand; /* and elsewhere, as last answered; of a log `before`: by so many authors */
    /* What the key is remembered to have used before it was forgotten here: they are others' units until the fleet
     * tells of as many. Of a bucket: its a, as it was resumed; of a log, units in `now`, and until when in `before`
     * (ns). */
    _Atomic uint64_t restored;
};

/* Units of the others as they are folded into the state. */
static inline uint64_t counts_merged(const struct sync_counts *counts)
{
    /* Relaxed: the background thread's own; to anyone else a guess. */
    return max_u64(load_relaxed(&counts->remote), load_relaxed(&counts->restored));
}

/*
 * Units that silent nodes are presumed to have used of a sliding window, and of the one before, in one word: as that
 * slides out between two answers, they leave like all others. Each is kept as a part of the limit, in 2^-32.
 */
static inline uint64_t presumed_pack(uint64_t limit, uint64_t now, uint64_t before)
{
    const uint64_t whole = max_u64(limit, 1);
    const uint64_t most = UINT32_MAX;
    return min_u64(muldiv_ceil(now, most, whole), most) << 32 | min_u64(muldiv_ceil(before, most, whole), most);
}

static inline uint64_t presumed_now(uint64_t limit, uint64_t packed)
{
    return muldiv_floor(limit, packed >> 32, UINT32_MAX);
}

static inline uint64_t presumed_before(uint64_t limit, uint64_t packed)
{
    return muldiv_floor(limit, packed & UINT32_MAX, UINT32_MAX);
}

/* What the background thread learns that from. */
struct demand_stats {
    struct demand_rates rates;
    uint64_t presumed_rate;               /* of demand.remote_rate: of nodes that have not spoken lately */
    uint16_t silent;                      /* so many of those are suspect */
    bool resumed;                         /* with the last answer, there was an end to that */
    bool guessed;                         /* before it is known: by the age of a young window */
    bool again;                           /* it is to be told whatever has been told before */
    bool idle;                            /* it was not used here for some intervals before the present use */
    bool begun;                           /* after that, or all at once; and its own demand is not known yet */
    uint32_t round;                       /* the last one that it was reported in */
    uint64_t learned_ns;                  /* fleet time of the last answer that was learned from; 0: none yet */
    uint64_t local_demand, remote_demand; /* units since then */
    uint64_t first_ns;                    /* of an answer after which the others' are waited for (demand.c) */
    uint64_t recent_units;                /* own demand between the last two looks */
    uint64_t recent_rate;                 /* and as a rate; 0: too little to tell one */
    uint64_t recent_ns;                   /* when it was told */
    uint64_t changed_ns;                  /* when demand was last seen to move between the nodes */
    uint64_t own;                         /* own units then, of the note's window or of the bucket */
    uint64_t local_seen;                  /* of them, what the others' news covers */
    /* Served in part: the bucket's a as the fleet knows it, without what that adds; its total then; and own units given
     * back, which are taken off it. */
    uint64_t known_time, known_total, known_refunds;
    uint64_t fraction_ns;  /* when it was last found to be */
    bool shared;           /* in an outage, and no answer has been taken in since */
    uint8_t known_rate_id; /* the rate that known_time is by */
    bool denied[2];        /* whether any was denied before the last look, and before the one before it */
};

/* Atomics in it are relaxed, statistics or guesses. What is not atomic is the background thread's own. */
struct sync_full {
    struct allowance allowance;
    _Atomic uint64_t denied; /* units asked and denied, since they were last counted; added to by anyone (statistics) */
    uint64_t incarnation;    /* as in the stub */
    struct sync_counts now, before; /* the window of mirror.tag, and the one before it */
    struct demand_stats demand;
    _Atomic uint64_t history_end; /* a sliding log's number of own units, for allowance.c */
    struct refund_ledger *ledger; /* the key's, as of when the note was last opened */
    _Atomic uint32_t cell;        /* whose it is; TABLE_NONE: nobody's */
    uint32_t round;               /* the last one that looked at it */
};

/* Bytes of a key that lie in its stub. */
#define COMPACT_KEY 16

/*
 * Flags of a stub: whether the fleet has told of the key; whether it is to be told everything again; whether what it
 * was told lies aside; whether `now` and `before` are what is remembered, not what the others have; whether there is a
 * tag; then a kept key's own.
 */
#define COMPACT_ACKED           1
#define COMPACT_AGAIN           2
#define COMPACT_SPILLED         4
#define COMPACT_RESTORED_NOW    8
#define COMPACT_RESTORED_BEFORE 16
#define COMPACT_HAS_SEQ         32
#define COMPACT_KEY_SHIFT       6

/*
 * What every cell's key has. `now` and `before`, where they do not lie aside:
 *
 *   window  of this one and of the one before: counts_merged (44 bits), and a short form of `reported` above
 *   bucket  now: others or remembered; before: reported
 *   log     now: units remembered; before: until when
 *
 * While the key has a note, only `stay`'s incarnation, the key's bytes and flags of it, and `note`, are of the day.
 */
struct sync_compact {
    _Atomic uint32_t sync; /* COMPACT_HAS_FULL and the note's index; or units denied, as note.denied, as many as fit */
    _Atomic uint16_t acked_at; /* fleet time of the last answer, in 2^28 ns */
    _Atomic uint8_t flags;     /* STUB_* */
    uint8_t key_length;
    _Atomic uint64_t residency; /* incarnation, a number no other stay of the key in this table has; the tag below it */
    _Atomic uint64_t now, before;
    unsigned char key[COMPACT_KEY];
};

_Static_assert(sizeof(struct sync_compact) == 48, "for every cell");

/* What few cells need: see sync_state.h's beginning. */
struct sync_spill {
    struct refund_ledger ledger;
    struct sync_counts now, before;
};

#define COMPACT_HAS_FULL (UINT32_C(1) << 31)

struct sync_states {
    struct sync_compact *compacts; /* one per cell */
    struct sync_full *pool;
    uint32_t count;
    bool all;      /* a note for every cell, at its index */
    uint32_t hand; /* where the search for one to take away goes on; the background thread's */
    _Atomic uint64_t incarnations;
    struct sync_spill *spills; /* by cell; touched where EVENT_REFUNDED or COMPACT_SPILLED says so */
    size_t spills_size;
    unsigned char (*tails)[KEY_NAME_SIZE - COMPACT_KEY]; /* by cell: of keys longer than a stub's */
    size_t tails_size;
    void *memory;
    size_t memory_size;
};

struct process;

/* 0 or -ENOMEM. */
int syncs_open(struct sync_states *syncs, size_t cell_count);
void syncs_close(struct sync_states *syncs);

/* The note of a cell; NULL: it has none. */
static inline struct sync_full *sync_of(const struct sync_states *syncs, uint32_t cell)
{
    const uint32_t word = load_acquire(&syncs->compacts[cell].sync); /* [N4] */
    return (word & COMPACT_HAS_FULL) != 0 ? &syncs->pool[word & ~COMPACT_HAS_FULL] : NULL;
}

static inline bool compact_is(const struct sync_compact *compact, uint8_t flag)
{
    return (load_relaxed(&compact->flags) & flag) != 0;
}

/* Counts units denied, for what the key tells of its demand. */
void sync_add_denied(const struct sync_states *syncs, uint32_t cell, uint64_t units);

/*
 * Of the units that a state counts in its windows those that are the others' (net), and own ones of `now` (or of the
 * bucket) that the fleet has had. A guess.
 */
struct merged_counts {
    uint32_t seq; /* of `now`; SEQ_NONE: none is known */
    uint64_t now, before, acked;
};

struct merged_counts sync_merged(const struct process *process, uint32_t cell);

/* acked_at counts these. */
#define ACKED_AT_SHIFT 28

/* How long ago the fleet has told of a key without a note, at least; once in five hours it seems to be short. */
static inline uint64_t compact_age_ns(const struct sync_compact *compact, uint64_t now_ns)
{
    const uint64_t ago = (uint16_t) ((now_ns >> ACKED_AT_SHIFT) - load_relaxed(&compact->acked_at));
    return saturating_sub(ago, 1) << ACKED_AT_SHIFT;
}

/* The window of a stub's `now`; SEQ_NONE: none. */
static inline uint32_t compact_seq(const struct sync_compact *compact)
{
    return compact_is(compact, COMPACT_HAS_SEQ) ? (uint32_t) load_relaxed(&compact->residency) & WINDOW_SEQ_MASK
                                                : SEQ_NONE;
}

/* What is kept of a pinned or claimed cell's key. */
struct key_name sync_key(const struct process *process, uint32_t cell);

/*
 * Of a claimed cell.
 *
 * sync_begin   a new key's stub. Its note, where it has one from the beginning, follows from that: sync_begin_full
 * sync_evict   a key goes: its last words are copied to `out` (NULL: nobody wants them), its note is nobody's
 * sync_move    a key goes to another claimed cell, with all it has
 * sync_clear   what the cell's last key has left aside
 */
void sync_begin(struct process *process, uint32_t cell, const struct policy *policy, const weir_key *key);
void sync_restore(struct process *process, uint32_t cell, const struct rule *rule, struct state state);
void sync_begin_full(struct process *process, uint32_t cell, const struct rule *rule, uint64_t now_ns);
void sync_evict(struct process *process, uint32_t cell, const struct rule *rule, uint64_t now_ns,
                struct sync_full *out);
void sync_move(struct process *process, uint32_t from, uint32_t to);
void sync_clear(struct process *process, uint32_t cell);

/*
 * By the background thread, of a pinned cell.
 *
 * sync_load    its note, or what the stub says in the form of one, in *room; units denied are taken out of the stub
 * sync_promote    gives the cell the note that sync_load has made in *room; NULL: in this round there is none to be
 * had. `round`: what was looked at in it keeps its note sync_store    what was made of *room, and changed, goes back to
 * the stub sync_demote    takes a note of the pool away from its key. False: it is not to be had just now
 */
struct sync_full *sync_load(struct process *process, uint32_t cell, const struct rule *rule, uint64_t now_ns,
                            struct sync_full *room);
struct sync_full *sync_promote(struct process *process, uint32_t cell, const struct sync_full *room, uint32_t round);
void sync_store(struct process *process, uint32_t cell, const struct sync_full *sync);
bool sync_demote(struct process *process, uint32_t index);

/* Asks for the note of a cell whose stub is there. */
static inline void sync_prefetch(const struct sync_states *syncs, uint32_t cell)
{
    const struct sync_full *sync = sync_of(syncs, cell);
    for (size_t at = 0; sync != NULL && at < sizeof(*sync); at += 64) {
        __builtin_prefetch((const char *) sync + at, 1);
    }
}

/* A key of which the fleet has told nothing yet. */
void sync_clear_remote(struct sync_full *sync);
void counts_clear(struct sync_counts *counts);
void counts_copy(struct sync_counts *to, const struct sync_counts *from);

/* Bytes for so many cells. */
size_t syncs_size(size_t cell_count);

#endif
