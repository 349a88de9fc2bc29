/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of keys: fixed memory, state inline, nothing allocated after open.
 *
 * One cell holds one limit of one key. Cells lie in groups of eight (four cache lines); a hash names a group to live in
 * and a second one for when the first is full. A search begins at the hash's home line, so that most find their cell
 * with one cache miss. What only slow paths need lies in parallel arrays: who lives in a cell, and, where there is a
 * fleet, a note of what it has been told.
 *
 * Invariants
 *   I1  A hash is in at most one cell: whoever adds or moves one holds the insertion lock of its first group.
 *   I2  A cell changes its key only while it is claimed, and it can be claimed only while nobody pins it or holds
 *       units of it: (held & HELD_IN_USE) == 0 -> HELD_CLAIMED.
 *   I3  A cell's generation (top bits of state.b) changes with its key, and with every grant. A charge reads hash,
 *       state and hash again, and compare-and-swaps state with the generation in it: it cannot fall on another key, nor
 *       overlook a grant.
 *
 *   I4  State counts units that have passed; it never decreases but by time. held counts units that may yet pass: of
 *       grants that are not settled, and of requests under way. What may pass now is the state's headroom less held.
 *       held is raised before anyone is let pass on it, and lowered after what passed was charged; its version changes
 *       each time.
 *
 *   I5  A dirty bit that is clear means that the background thread has seen the cell's last change.
 *
 *   I6  A group that has room has always had: cells are given up to another key alone, that takes them at once. So what
 *       is in its second group found its first one full, and is not looked for there while that has room.
 *
 * Ordering
 *   [T1] hash: published with release after state and note were written; read with acquire.
 *   [T2] state: pair_cas is a full barrier. cell_read loads with acquire, so what it reads after (the hash again, I3)
 *        is no older than the state.
 *   [T3] held: seq_cst read-modify-writes, loads with acquire. Pairs with itself in the denial rule (process.c).
 *   [T4] dirty: see bitmap.h.
 *
 * Progress: reading, charging, pinning: lock-free. Adding a key: a lock per group, held for some 50 ns.
 */
#ifndef WEIR_TIER_TABLE_H
#define WEIR_TIER_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "algorithm/rule.h"
#include "base/atomics.h"
#include "base/numbers.h"
#include "base/pair.h"
#include "fleet/estimate.h"
#include "tier/bitmap.h"
#include "tier/key_text.h"
#include "weir/weir.h"

#define TABLE_NONE UINT32_MAX

#define GROUP_CELLS 8
#define LINE_CELLS  2

/*
 * held: version (8 bits), claimed (1), pins (12), units (43). Pins: one by a slot of every thread, one by what every
 * thread is just doing, one by the background thread: 2 * 1,024 + 1 at most. Units: every thread up to HOLD_MOST, and
 * one request at a time more than that, up to WEIR_MAX_UNITS (process.c).
 */
#define HELD_VERSION (UINT64_C(1) << 56)
#define HELD_CLAIMED (UINT64_C(1) << 55)
#define HELD_PIN     (UINT64_C(1) << 43)
#define HOLD_MOST    (UINT64_C(1) << 30)
#define HELD_UNITS   (HELD_PIN - 1)
#define HELD_IN_USE  (HELD_VERSION - 1)

/* A cell's generation: the bits of state.b that the algorithms leave. */
#define GENERATION_ONE (UINT64_C(1) << STATE_B_BITS)

struct cell {
    _Atomic uint64_t hash; /* 0: empty, or changing hands */
    _Atomic uint64_t held;
    struct pair state;
};

_Static_assert(sizeof(struct cell) == 32, "two cells to a cache line");

/* Who lives in a cell. Written while it is claimed; read by anyone who looks for a key to forget. */
struct owner {
    _Atomic uint32_t limit_tag; /* of the limit: POLICY_LIMIT_TAG of its salt */
    _Atomic uint16_t group;     /* of the policy and its tiers */
    _Atomic uint8_t flags;      /* OWNER_* */
    _Atomic uint8_t marks;      /* MARK_*; set by anyone (statistics) */
};

#define OWNER_FLEET 1 /* has something to tell the fleet */
#define OWNER_LOG   2 /* is under a sliding log */

#define MARK_OFFENDS 1 /* there may be something of it in offenders.h */
#define MARK_REFUSED 2 /* more was asked for than there was room for */

static inline bool owner_is(const struct owner *owner, uint8_t flag)
{
    return (load_relaxed(&owner->flags) & flag) != 0;
}

/* Written once, so that a flood of denials is answered from reads. */
static inline void owner_mark(struct owner *owner, uint8_t mark)
{
    if ((load_relaxed(&owner->marks) & mark) == 0) {
        (void) or_seq_cst(&owner->marks, mark);
    }
}

/*
 * What one window's worth of a record is known to be in the fleet. Of a bucket `now` is all there is, and
 * `before.reported` the count up to which units are no debt to the fleet.
 */
struct told {
    uint64_t reported, reported_back;     /* own units, and own ones given back, as last acknowledged */
    _Atomic uint64_t others, others_back; /* the same of the others, as folded into the state */
    uint64_t deficit;                     /* units that were to be taken off the state when it had none left */
    uint64_t own;                         /* own units when last looked at */
    uint64_t asked;                       /* units asked here, admitted or not */
    uint64_t others_asked;                /* and elsewhere, as last answered */
    /* What the key is remembered to have used before it was forgotten here: they are others' units until the fleet
     * tells of as many. Of a bucket: its a, as it was resumed; of a log, units in `now`, and until when in `before`
     * (ns). */
    _Atomic uint64_t remembered;
};

/* Units of the others as they are folded into the state. */
static inline uint64_t told_folded(const struct told *told)
{
    /* Relaxed: the background thread's own; to anyone else a guess. */
    return max_u64(load_relaxed(&told->others), load_relaxed(&told->remembered));
}

#define TAG_NONE UINT32_MAX /* no window's */

/* What the fleet last told of a key's demand, for checks (mirror.c). Written by the background thread alone. */
struct mirror {
    _Alignas(64) _Atomic uint64_t others_rate; /* see struct estimate */
    _Atomic uint64_t since_ns;                 /* likewise; 0: it has told nothing yet */
    _Atomic uint64_t looked_ns; /* when the background thread last found that the answer does, or was given one */
    _Atomic uint64_t seen;  /* what the state counted then: of the note's window, a bucket's total, or a log's end */
    _Atomic uint64_t alarm; /* so many units later the fleet's news is too old to go by */
    _Atomic uint32_t others_part, dither;
    /* Not 0: what the others have is not known, and this part of the limit may pass here; of 2^32. A queue is always
     * served in parts. */
    _Atomic uint32_t part;
    _Atomic uint32_t tag;         /* the window of `seen`, and of the note's `now`; TAG_NONE: none yet */
    _Atomic uint8_t quota_untold; /* 1: a quota's key that may have been used up before this process began */
    _Atomic uint8_t waits;        /* 1: the others may not have told yet what they have just begun */
};

_Static_assert(sizeof(struct mirror) == 64, "a check reads one line of it");

/* What the background thread learns that from. */
struct lesson {
    struct demand demand;
    bool guessed;                     /* before it is known: by the age of a young window */
    bool again;                       /* it is to be told whatever has been told before */
    bool idle;                        /* it was not used here for some intervals before the present use */
    uint32_t round;                   /* the last one that it was reported in */
    uint64_t learned_ns;              /* fleet time of the last answer that was learned from; 0: none yet */
    uint64_t own_asked, others_asked; /* units since then */
    uint64_t first_ns;                /* of an answer after which the others' are waited for (learn.c) */
    uint64_t recent_units;            /* own demand between the last two looks */
    uint64_t recent_rate;             /* and as a rate; 0: too little to tell one */
    uint64_t changed_ns;              /* when demand was last seen to move between the nodes */
    uint64_t own;                     /* own units then, of the note's window or of the bucket */
    uint64_t own_seen;                /* of them, what the others' news covers */
    /* Served in part: the bucket's a as the fleet knows it, without what that adds, and its total then. */
    uint64_t known_time, known_total;
    uint64_t part_ns; /* when it was last found to be */
};

/*
 * What a key has told the fleet, and was told. Changed only while the cell is claimed; where not marked otherwise, read
 * only while it is pinned or claimed. Atomics in it are relaxed, statistics or guesses, but for `back` (report.c).
 */
struct note {
    struct mirror mirror;
    _Atomic uint64_t denied; /* units asked and denied, since they were last counted; added to by anyone (statistics) */
    /* Units given back, cumulative; added to by anyone. A window's stand in [tag & 1], under the tag as in state.a;
     * others' in [0]. */
    _Atomic uint64_t back[2];
    _Atomic uint64_t reset;        /* fleet time of a reset that the fleet has not confirmed; 0: none */
    _Atomic uint8_t reset_emptied; /* 1: the state was emptied then, and what it counts has been used since */
    uint64_t incarnation;          /* a number no other stay of any key in this table has */
    /* The background thread's own. */
    struct told now, before; /* the window of mirror.tag, and the one before it */
    struct lesson lesson;
    _Atomic uint64_t log_end; /* a sliding log's number of own units, for mirror.c */
    struct kept_key key;
};

/* A key of which the fleet has told nothing yet. */
static inline void note_clear_fleet(struct note *note)
{
    note->lesson = (struct lesson){.learned_ns = 0};
    store_relaxed(&note->mirror.others_rate, 0);
    store_relaxed(&note->mirror.others_part, 0);
    store_relaxed(&note->mirror.since_ns, 0);
    store_relaxed(&note->mirror.looked_ns, 0);
    store_relaxed(&note->mirror.seen, 0);
    store_relaxed(&note->mirror.alarm, UINT64_MAX);
    store_relaxed(&note->mirror.part, 0);
    store_relaxed(&note->mirror.dither, 0);
    store_relaxed(&note->mirror.tag, TAG_NONE);
    store_relaxed(&note->mirror.quota_untold, 0);
    store_relaxed(&note->mirror.waits, 0);
    store_relaxed(&note->log_end, 0);
}

static inline void told_clear(struct told *told)
{
    told->reported = told->reported_back = told->deficit = 0;
    told->own = told->asked = told->others_asked = 0;
    store_relaxed(&told->others, 0);
    store_relaxed(&told->others_back, 0);
    store_relaxed(&told->remembered, 0);
}

struct table {
    size_t group_count, cell_count;
    struct cell *cells;
    struct owner *owners;
    struct note *notes;      /* NULL: there is no fleet */
    _Atomic uint32_t *locks; /* one per group */
    struct bitmap dirty;     /* changed since the background thread looked (I5) */
    struct bitmap urgent;    /* the fleet is to be asked at once */
    struct bitmap postponed; /* has something to tell the fleet that can wait */
    void *memory;
    size_t memory_size;
    /* Written for every new key, and by nobody else: on a line of their own. */
    _Alignas(64) _Atomic uint64_t key_count; /* statistics */
    _Atomic uint64_t incarnations;
};

/* 0 or -ENOMEM. Holds at least `max_keys` cells at a load that leaves nearly no set full. `fleet`: with notes. */
int table_open(struct table *table, size_t max_keys, bool fleet);
void table_close(struct table *table);

/* A cell's hash for a key's: never 0. */
static inline uint64_t table_hash(uint64_t key_hash, uint64_t salt)
{
    const uint64_t hash = key_hash ^ salt;
    return hash != 0 ? hash : 1;
}

static inline size_t table_group(const struct table *table, uint64_t hash)
{
    return (size_t) (((wide_uint) hash * table->group_count) >> 64);
}

/* Where a hash lives when its first group is full. */
static inline size_t table_second_group(const struct table *table, uint64_t hash)
{
    const size_t first = table_group(table, hash);
    const size_t second = (size_t) (((wide_uint) (hash * UINT64_C(0x9e3779b97f4a7c15)) * table->group_count) >> 64);
    return second != first ? second : (first + 1) % table->group_count;
}

/* The cell of a hash, or TABLE_NONE. It may change hands at any time: see cell_read. */
uint32_t table_find(const struct table *table, uint64_t hash);

/* Asks for the line a hash's cell most probably lies in. */
static inline void table_prefetch(const struct table *table, uint64_t hash)
{
    const size_t home = (size_t) hash & (GROUP_CELLS - LINE_CELLS);
    __builtin_prefetch(&table->cells[table_group(table, hash) * GROUP_CELLS + home], 1);
}

/* Asks for all that is known of a cell's key, for the background thread. */
static inline void table_prefetch_all(const struct table *table, uint32_t cell)
{
    __builtin_prefetch(&table->cells[cell], 1);
    __builtin_prefetch(&table->owners[cell]);
    for (size_t at = 0; at < sizeof(struct note); at += 64) {
        __builtin_prefetch((const char *) &table->notes[cell] + at, 1);
    }
}

/* As table_find, looking in both groups whatever they hold; for adding keys, under the first group's lock. */
uint32_t table_find_both(const struct table *table, uint64_t hash);

/* The state, where the cell still is this hash's. False: it is not. */
static inline bool cell_read(const struct cell *cell, uint64_t hash, struct pair_value *value)
{
    *value = pair_read(&cell->state);
    /* Relaxed: ordered behind the state by [T2]. */
    return load_relaxed(&cell->hash) == hash;
}

static inline struct state cell_state(struct pair_value value)
{
    return (struct state){value.a, value.b & STATE_B_MASK};
}

static inline struct pair_value cell_value(struct state state, struct pair_value like)
{
    return (struct pair_value){state.a, (like.b & ~STATE_B_MASK) | (state.b & STATE_B_MASK)};
}

/* [T3] Changes held by `delta` (units, pins; may be negative) and its version; returns what it was. */
static inline uint64_t cell_hold(struct cell *cell, uint64_t delta)
{
    return add_seq_cst(&cell->held, delta + HELD_VERSION);
}

/* Keeps the cell this hash's until cell_unpin. False: it is not, and was not pinned. */
bool cell_pin(struct cell *cell, uint64_t hash);
void cell_unpin(struct cell *cell);

/* Claims the cell (I2). True: nobody else changes it until cell_release. */
bool cell_claim(struct cell *cell);
void cell_release(struct cell *cell);

/*
 * Empties a claimed cell: it is nobody's, its generation has changed, and no charge can reach it. Returns its last
 * state.
 */
struct state cell_vacate(struct table *table, struct cell *cell);

/* Gives a vacant claimed cell to a hash. The note must be written before. */
void cell_occupy(struct table *table, struct cell *cell, uint64_t hash, struct state fresh);

/* Blocks (spins, then yields) while another thread adds a key to the group. */
void table_lock(struct table *table, size_t group);
void table_unlock(struct table *table, size_t group);
bool table_trylock(struct table *table, size_t group);

/* [T4] After a change of the cell's state. */
static inline void table_set_dirty(struct table *table, uint32_t cell)
{
    bitmap_set(&table->dirty, cell);
}

/* Bytes that a table of so many keys takes in all. */
size_t table_size(size_t max_keys, bool fleet);

#endif
