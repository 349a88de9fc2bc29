/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread and process tiers: everything a check touches.
 *
 *   thread.c    weir_check's fast path, and the slow path's order of events
 *   all.c       weir_check_all
 *   cold.c      the short way through the table: a key without a slot; warm.c: one with a slot
 *   slot.c      a thread's slots: attaching, giving one to a key, what it answers until the next epoch
 *   settle.c    settling slots: by their owner, by the background thread, by a thread that is about to deny
 *   process.c   deciding in the table: headroom, grants, all or nothing over the limits of a request
 *   denial.c    what a denial says
 *   queue.c     reservations
 *   owner.c     giving back the handles of threads that end
 *   adjust.c    giving back, charging afterwards, resetting
 *   log.c       the logs that lie outside the table
 *   note.c      what the fleet has been told of a key, and has told of it
 *   place.c     giving a key a cell: adding, and forgetting another
 *   sketch.c    what is remembered of keys that were forgotten
 *   mirror.c    what may pass when the others' units are known only as of the fleet's last answer
 *   bitmap.c    sets of cells
 *   tick.c      the tick, time, falling asleep
 *   offenders.c which keys are denied most; key_text.c: as a person reads them
 */
#ifndef WEIR_THREAD_LIMITER_H
#define WEIR_THREAD_LIMITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "algorithm/history.h"
#include "base/atomics.h"
#include "base/buddy.h"
#include "policy/policy.h"
#include "process/evicted_sketch.h"
#include "process/sync_state.h"
#include "process/table.h"
#include "process/top_denied.h"
#include "weir/weir.h"

#define CACHE_LINE 64

/* A thread's slots: sets of SLOT_WAYS, at most SLOT_MAX in all. */
#define SLOT_WAYS 4
#define SLOT_MAX  1024

/* Fingerprints of keys a thread has charged straight to the table in this tick. */
#define SEEN_COUNT 2048

/* Most units in one grant: `end` and `used` are told apart by their low 32 bits. */
#define GRANT_MAX (UINT64_C(1) << 20)

/*
 * What every hit reads and only a tick writes: one line, shared by all cores.
 *
 * epoch: changes with every tick and every change of policies; a grant holds in the epoch it was given in.
 */
#define EPOCH_ASLEEP UINT32_MAX /* the background thread sleeps, and nothing holds */

struct tick_line {
    _Alignas(CACHE_LINE) _Atomic uint32_t epoch;
    _Atomic uint32_t thread_count; /* attached */
    _Atomic uint64_t now_ns;       /* fleet time at the tick */
    _Atomic uint64_t next_ns;      /* monotonic time of the next tick */
    _Atomic uint64_t offset_ns;    /* fleet time = monotonic time + offset (modulo 2^64) */
    _Atomic uint64_t news_ns;      /* fleet time of the last good sync; 0: none yet */
    _Atomic uint64_t age_ns;       /* how old the news is at now_ns; UINT64_MAX: none yet */
    _Atomic uint32_t last_epoch;   /* the last one that was not EPOCH_ASLEEP */
};

_Static_assert(sizeof(struct tick_line) == CACHE_LINE, "one line");

/*
 * One thread's private account of one key.
 *
 * Invariants
 *   used is written by the owner alone and never decreases.
 *   What the key's cells have been charged for this slot is `accounted`, to the unit; used - accounted passed since.
 *   While a grant is live, `granted` of the cells' held units are its own, and used - accounted <= granted. What passes
 *   after another thread took the grant back is late: charged at the next settling.
 *
 * The first line is what a hit reads and writes; all of it but `grant` is written by the owner alone.
 */
struct slot {
    _Alignas(CACHE_LINE) _Atomic uint64_t hash; /* the key's; 0: free. Changed under `lock` */
    _Atomic uint64_t
        grant;             /* epoch << 32 | low 32 bits of the `used` at which it ends; 0: none. Changed under `lock` */
    _Atomic uint64_t used; /* units, cumulative */
    /* What a grant is answered by, or a denial. */
    union {
        _Atomic uint64_t credit; /* remaining = credit - used */
        _Atomic uint64_t denied; /* units denied from this slot, cumulative; see slot_denied */
    };
    union {
        uint64_t reset; /* the key is as if never used at (reset - remaining * unit) / 64, in ns of fleet time */
        uint64_t reset_after_ns; /* of a denial, as it was found: what is answered may be one tick old */
    };
    union {
        uint64_t unit;           /* bucket: time one unit takes to refill, 1/64 ns; else 0 */
        uint64_t retry_after_ns; /* likewise; UINT64_MAX: never */
    };
    uint64_t limit;
    _Atomic uint64_t about; /* SLOT_*. Changed under `lock` */
};

_Static_assert(sizeof(struct slot) == CACHE_LINE, "a hit touches one line of its own");

/*
 * A slot in a word, so that a verdict's first word is this one's with a mask over it (verdict_head). From the lowest:
 * where its policy's tally lies (16 bits), the index of the limit, flags, the basis (at 32), and the cost from which on
 * requests were denied in the grant's epoch (at 34; 0: none were).
 */
#define SLOT_TALLY     UINT64_C(0xffff)
#define SLOT_LIMIT_AT  16
#define SLOT_LIMIT     (UINT64_C(3) << SLOT_LIMIT_AT)
#define SLOT_SHADOW    (UINT64_C(1) << 18)
#define SLOT_SET       (UINT64_C(1) << 19) /* the parity of the policy set its grant is by: see all.c */
#define SLOT_DENIES    (UINT64_C(1) << 20) /* a denial like most: not in shadow mode, not for good, with no units left */
#define SLOT_BASIS_AT  32
#define SLOT_BASIS     (UINT64_C(3) << SLOT_BASIS_AT)
#define SLOT_COST_AT   34
#define SLOT_COST_MOST (UINT64_MAX >> SLOT_COST_AT)

_Static_assert(WEIR_MAX_LIMITS <= 4 && WEIR_BASIS_OUTAGE < 4, "they have two bits each");

/* What settling needs of a slot. All under `lock` but where marked. */
struct slot_back {
    _Alignas(CACHE_LINE) _Atomic uint32_t lock; /* 1: someone settles it. Never waited for */
    uint32_t limit_count;                       /* cells pinned; 0: none */
    /* Atomic so that the background thread can see without the lock whether there is anything to settle. */
    _Atomic uint64_t accounted;   /* of `used`: charged to the cells */
    _Atomic uint64_t granted;     /* units that the cells' `held` counts for this slot */
    _Atomic uint64_t denied;      /* units denied, cumulative, where the slot does not say; see slot_denied */
    _Atomic uint64_t denied_told; /* of `denied`: added to the notes */
    uint32_t cells[WEIR_MAX_LIMITS];
    uint64_t granted_ns;                /* fleet time of the last grant */
    struct rule rules[WEIR_MAX_LIMITS]; /* of the last grant */
    bool fleet;                         /* the cells have something to tell the fleet */
    /* The owner's alone. */
    uint32_t grant_epoch, deny_epoch; /* of the last grant, of the last denial */
    uint64_t size;                    /* units of the last grant that was asked for */
    uint64_t straight;                /* units charged to the table in grant_epoch, beside grants */
    uint64_t used_before;             /* `used` when grant_epoch began for this slot */
    uint64_t denied_remaining;        /* of the denial */
    uint32_t touched;                 /* epoch of the last slow use, for replacement */
};

/* Checks of one policy by one thread. */
struct tally {
    _Atomic uint64_t allowed, denied;
    _Atomic uint64_t would_deny; /* of `allowed`: in shadow mode */
};

_Static_assert(WEIR_MAX_POLICIES * sizeof(struct tally) <= SLOT_TALLY, "a slot has room for where it lies");

struct tier;

struct weir_thread {
    struct tier *tier;
    struct tick_line *line;
    struct slot *slots;
    struct slot_back *backs;
    size_t slot_count;     /* a power of two */
    size_t slot_mask;      /* of the first slot of a set: slot_count - SLOT_WAYS */
    struct tally *tallies; /* by policy id */
    uint32_t *seen;
    uint64_t *tags;     /* by set of slots: see slot.h */
    uint32_t *full;     /* by set of slots: an epoch in which all were of use */
    struct cold *colds; /* by policy: see cold.h */
    uint32_t index;
    _Atomic uint64_t owner; /* the thread it belongs to: see owner.h */
    /* Counters of the owner. */
    _Alignas(CACHE_LINE) _Atomic uint64_t slow_count;
    uint64_t looked_count; /* slow_count when it last looked at the clock */
    _Atomic uint64_t unknown_count, untracked_count;
    _Atomic uint64_t late_units;                /* added to by whoever settles */
    _Atomic uint64_t slots_used[SLOT_MAX / 64]; /* a bit per slot that was ever used */
};

/* Latest times of a forgotten log that the fleet has not had. */
#define ORPHAN_TIMES 16

/* A key that was forgotten with something still to tell the fleet. */
struct orphan {
    struct owner owner;
    struct note note;
    struct given given;
    struct kept_key key;
    struct state state;
    uint64_t times[ORPHAN_TIMES], first; /* a log's: of its units first, first + 1, ... */
    uint32_t time_count;
};

#define ORPHAN_COUNT 4096

struct orphans {
    _Atomic uint32_t lock;
    size_t first, count;
    struct orphan *ring;
    /* Keys whose forgetting has begun, before their cell was vacated; and ended, after they were put here. */
    _Atomic uint64_t begun, ended;
};

/* Where a cell's log is. */
struct log_place {
    _Atomic uint32_t lock;
    uint32_t block; /* 0: none. Under the lock */
};

/* The memory of the sliding logs. */
struct logs {
    _Atomic uint32_t lock;    /* guards the blocks; a log itself is guarded by its place's */
    struct log_place *places; /* by cell; touched under limits that are logs alone */
    size_t places_size;
    struct buddy blocks;
    uint32_t *owners; /* by block: its cell */
    uint32_t cursor;  /* where the last search for logs that are over ended */
    void *memory;
    size_t memory_size;
};

struct tier {
    struct tick_line line;
    struct table table;
    struct notes notes; /* where there is a fleet */
    struct sketch sketch;
    struct weir_thread *threads; /* max_threads of them */
    uint32_t max_threads;
    _Atomic uint32_t thread_high; /* threads[] in use lie below */
    _Atomic(struct policy_set *) policies;
    const weir_clock *clock;
    uint64_t tick_ns;
    uint64_t origin_ns;     /* of bucket times; see struct rule */
    bool host_time;         /* time moves only in weir_poll */
    bool grants;            /* false: no asymmetric barrier here, everything is decided in the table */
    bool fleet;             /* there is a fleet to tell */
    _Atomic uint32_t nodes; /* that share the limits; 1 and up */
    uint64_t interval_ns;   /* between two answers of the fleet */
    /* From here on, what is written while others read what stands above. */
    _Alignas(CACHE_LINE) struct orphans orphans;
    struct logs logs;
    struct offenders offenders;
    _Alignas(CACHE_LINE) _Atomic uint32_t giants; /* lock: of the one request that holds more than HOLD_MOST units */
    _Atomic uint32_t urgent;                      /* 1: table.urgent is not empty */
    _Alignas(CACHE_LINE) _Atomic uint64_t evicted_fresh_count, evicted_used_count, lost_report_count, returned_count,
        forgiven_count;
    void *memory;
    size_t memory_size;
    struct tier *watched_next; /* owner.c's */
};

/* Asks for all that is known of a cell's key but its note, for the background thread. */
static inline void tier_prefetch(const struct tier *tier, uint32_t cell)
{
    __builtin_prefetch(&tier->table.cells[cell], 1);
    __builtin_prefetch(&tier->table.owners[cell]);
    __builtin_prefetch(&tier->notes.stubs[cell], 1);
}

/* 0; -ENOMEM. The table is opened with it. */
int tier_open(struct tier *tier, size_t max_keys, uint32_t max_threads, size_t max_log_units, bool fleet);
/* Bytes of what grows with the keys: roughly what tier_open takes. */
size_t tier_size(size_t max_keys, bool fleet);
void tier_close(struct tier *tier);

/* thread.c: what a call without a handle is answered. */
bool thread_allow_unattached(weir_verdict *verdict);

/* slot.c */
struct weir_thread *thread_attach(struct tier *tier);
/* Nothing is done where the handle is not attached, or somebody else is detaching it. */
void thread_detach(struct weir_thread *t);
/* The same by who has claimed the handle: see owner.h. */
void thread_leave(struct weir_thread *t);

/* settle.c */
bool slot_trylock(struct slot_back *back);
void slot_unlock(struct slot_back *back);
/* Settles a locked slot whose grant is taken back, and whose owner is the caller or has passed a barrier since. */
void slot_settle(struct weir_thread *t, size_t index);
/* Takes a locked slot back from its key: settled, unpinned, free. By its owner. */
void slot_release_owner(struct weir_thread *t, size_t index);
/*
 * Takes back what other threads hold of a key of this policy, and what any thread does under other tiers of it.
 * `asking` has settled its own slot of this key (NULL: nobody has). True: something was given back.
 */
bool settle_key(struct tier *tier, const struct weir_thread *asking, const struct policy *policy, const weir_key *key);
/*
 * Lets a thread run that stands where what it holds cannot be taken back: yields, at last naps. False: that was done
 * often enough, some 10 ms in all since *fruitless was 0.
 */
bool settle_wait(unsigned *fruitless);
/* Ends the denials of a key, and of other tiers, that threads answer from their slots. */
void settle_denials(struct tier *tier, const struct policy *policy, const weir_key *key);
/* Settles what has lapsed in all threads. Returns how many slots were not to be had. By the background thread. */
size_t settle_lapsed(struct tier *tier);

/* slot.c */
struct request;
struct claim;
/*
 * The key's slot, locked, settled and without a grant; SLOT_NONE: it has none, and is charged straight to the table.
 * `epoch` EPOCH_ASLEEP gives no new ones.
 */
size_t slot_take(struct weir_thread *t, const struct policy *policy, const weir_key *key, uint32_t epoch,
                 uint64_t now_ns);
/* Gives a key that has no slot one, locked; SLOT_NONE: there is none to be had. */
size_t slot_give(struct weir_thread *t, const struct policy *policy, const weir_key *key, uint32_t epoch,
                 uint64_t now_ns);
/*
 * Units worth granting to a slot beside a request. `straight_cost`: what the request costs, where it can be charged
 * straight to the table (warm.c); 0: it cannot.
 */
uint64_t slot_grant_size(const struct weir_thread *t, size_t index, uint32_t epoch, uint64_t straight_cost);
/* What a grant rests on. */
struct slot_terms {
    uint64_t now_ns;
    uint64_t granted;
    uint64_t limit;
    uint64_t left; /* units that may pass now, what was granted among them */
    uint64_t reset_after_ns;
    uint8_t limit_index; /* of the limit with the least left; its rule is in the slot's back */
    uint64_t about;      /* slot_about */
};

/* What a slot says of a policy, in `about`. */
static inline uint64_t slot_about(const struct policy *policy)
{
    /* Relaxed: a number that stands for itself. */
    return policy->id * sizeof(struct tally) | (uint64_t) load_relaxed(&policy->basis) << SLOT_BASIS_AT |
           (policy->odd_set ? SLOT_SET : 0);
}

/* Gives a locked, settled slot a grant that the cells hold already. */
void slot_publish(struct weir_thread *t, size_t index, uint32_t epoch, const struct slot_terms *terms);
/* Passes what the table has said of one claim on to its slot. */
void slot_learn(struct weir_thread *t, size_t index, uint32_t epoch, const struct request *r,
                const struct claim *claim);
/* A denial without a slot, for the list of offenders and what the key tells the fleet of the demand. (What can never
 * pass is no demand.) */
void slot_missing_denial(struct weir_thread *t, const struct policy *policy, const weir_key *key, const uint32_t *cells,
                         uint64_t cost);

/* thread.c */
/* The policy of a key in a set, with an entry of the key's own where there is one; NULL: none. */
const struct policy *thread_policy(const struct policy_set *set, const weir_key *key);
/* As weir_check, within an RCU section. */
bool thread_check_within(struct weir_thread *t, const weir_key *key, uint64_t cost);
/* The same of a key that has no slot, and is given none. */
bool thread_check_cold(struct weir_thread *t, const struct policy *policy, const weir_key *key, uint64_t cost,
                       uint64_t now_ns);
bool thread_allow_unknown(struct weir_thread *t, weir_verdict *verdict);
/* A key that is always allowed, or always denied. */
bool thread_answer_override(struct weir_thread *t, const struct policy *policy, bool take, weir_verdict *verdict);
void thread_tally(struct weir_thread *t, const struct policy *policy, bool allowed);

/* process.c */

/* What one limit says. */
struct opinion {
    uint64_t held;      /* the cell's word, read before its state */
    struct state state; /* as it was read */
    struct state level; /* as it is decided by: mirror_level */
    uint64_t left;
};

/* One key of a request. */
struct claim {
    const struct policy *policy;
    const weir_key *key;
    uint64_t cost;   /* 0: as if for 1, and nothing is taken */
    uint64_t want;   /* units of grant wanted beside the cost; 0 where it is not pinned by a slot */
    uint32_t *cells; /* one per limit */
    bool pinned;     /* by a slot of the caller's; else the cells are found here */
    bool optional;   /* where it has no room it is left out */
    bool unplaced;   /* there was no cell for it */
    bool placeless;  /* nor, or no memory for its log: it is left out, being optional */
    /* Answered. */
    bool short_of;                    /* it had no room */
    uint64_t granted;                 /* units beyond the cost, held */
    uint64_t before[WEIR_MAX_LIMITS]; /* units that earlier claims of the request take from the same cells */
    struct rule rules[WEIR_MAX_LIMITS];
    struct opinion opinions[WEIR_MAX_LIMITS];
};

/* Units a claim needs room for. */
static inline uint64_t claim_asked(const struct claim *claim)
{
    return claim->cost != 0 ? claim->cost : 1;
}

/* Spread of a grant: what all threads can hold at once is a quarter of what is left. */
#define GRANT_SHARE 4

/* The most that a thread is granted where so much is left. */
static inline uint64_t process_grant_share(const struct weir_thread *t, uint64_t left)
{
    /* Relaxed: the count of threads only sizes the grant. */
    const uint64_t threads = max_u64(load_relaxed(&t->line->thread_count), 1);
    return min_u64(left / (GRANT_SHARE * threads), GRANT_MAX);
}

struct decision {
    bool allowed;
    bool untracked; /* no cell, or no memory for a log, was to be had */
    bool left_out;  /* an optional claim was */
    uint8_t key_index, limit_index;
    uint64_t limit, remaining, retry_after_ns, reset_after_ns;
};

/* A request on its way through the table. Within an RCU section. */
struct request {
    struct weir_thread *t;
    struct claim *claims;
    size_t count;
    uint64_t now_ns;
    struct decision *out;
};

/* Decides in the table, and counts every claim's cost and grant where it allows; `take` false: counts nothing. */
void process_decide(struct request *r, bool take);

/* mirror.c */

/*
 * An answer is old when the ones after it have not come, and the background thread has not found that it will do: the
 * key was not used here. Others may have used it since, whatever they did before; as with a new key no more than an
 * even part passes before the next one.
 */
#define STALE_INTERVALS 3

/* Units of an even part that pass before the fleet is asked at once. */
#define URGENT_DIVISOR 128
#define URGENT_UNITS   2

static inline uint64_t mirror_urgent_units(uint64_t part)
{
    return max_u64(part / URGENT_DIVISOR, URGENT_UNITS);
}

/* Whether a policy's keys are used by other nodes as well. */
static inline bool mirror_concerns(const struct tier *tier, const struct policy *policy)
{
    return tier->fleet && policy->scope == WEIR_SCOPE_FLEET;
}

/* A rule where this part of it may pass (of PART_WHOLE; 0: all), for a request of so many units. */
struct rule mirror_part_rule(const struct rule *rule, uint64_t part, uint64_t asked);
/* This node's part of the demand last seen; 0: all of it. */
uint32_t mirror_demand_part(const struct tier *tier, const struct mirror *mirror);
/* The part of a key that has no note. `told`: the fleet has told of it. */
uint32_t mirror_stub_part(const struct tier *tier, const struct rule *rule, bool told);
/* Whether a key is decided by the limit as it is configured: not in part, nor by the outage ladder. */
bool mirror_is_whole(const struct tier *tier, const struct policy *policy, const struct rule *rule, uint32_t cell);
/* The rule in force for one limit of any policy at a cell, for a request of so many units. */
struct rule mirror_rule(const struct tier *tier, const struct policy *policy, size_t limit, uint32_t cell,
                        uint64_t asked);
/*
 * What a state comes to by that rule, of a policy that it concerns: of a queue, and in an outage of any bucket, with
 * the others' units that nobody has told of; where each node has the whole limit, without the others' units.
 */
struct state mirror_level(const struct tier *tier, const struct policy *policy, const struct rule *rule, uint32_t cell,
                          struct state state, uint64_t now_ns);
/*
 * Of a headroom by that rule and level, less the units that are held, the units that may pass, of which `asked` are
 * wanted now. It concerns the policy.
 */
uint64_t mirror_left(struct tier *tier, const struct policy *policy, const struct rule *rule, uint32_t cell,
                     struct state state, uint64_t headroom, uint64_t held, uint64_t asked, uint64_t now_ns);
/* The wait until the fleet's next answer at the latest, where that can let more pass; else 0. */
/* Units of a bucket were given back here. */
void mirror_returned(const struct tier *tier, uint32_t cell, const struct rule *rule, uint64_t units);
uint64_t mirror_retry_after(const struct tier *tier, const struct policy *policy, uint32_t cell, uint64_t now_ns);

/* denial.c: what a denial says of one claim alone. */
void process_denial(const struct request *r, const struct claim *claim, struct decision *out);

/* Of use to queue.c. */
enum charge { CHARGE_DONE, CHARGE_NO_ROOM, CHARGE_LOST, CHARGE_NO_MEMORY };

/* The state that a limit of a claim is charged from, as heard. */
struct state process_base(const struct request *r, const struct claim *claim, size_t limit);
/* Hears all limits of a claim; `mine`: units held there that are this request's. False: a cell is another key's. */
bool process_ask(struct request *r, struct claim *claim, uint64_t mine);
void process_hold(struct request *r, const struct claim *claim, uint64_t delta);
/*
 * Charges one cell, if it has `wanted` units left (of which `mine` are held for this request), and adds `add` to the
 * state's b: its generation.
 */
enum charge process_charge(struct request *r, struct claim *claim, size_t limit, uint64_t cost, uint64_t mine,
                           uint64_t wanted, uint64_t add);
/* Earliest wait until one limit of a claim has room, as heard. */
uint64_t process_retry_after(const struct request *r, const struct claim *claim, size_t limit);
/* Takes back what others hold of a claim, or lets them run. False: that was done often enough. */
bool process_wait(struct request *r, const struct claim *claim, unsigned *fruitless);
/* Tells the background thread that a claim was charged. */
void process_dirty(const struct request *r, const struct claim *claim);

/* queue.c: takes a place for the request's one claim. *wait_ns as weir_reserve. */
void queue_decide(struct request *r, uint64_t max_wait_ns, uint64_t *wait_ns);

/* adjust.c */
/* Adds to the units given back of the window with this tag; after the state was lowered. */
void adjust_back_window(struct given *given, uint32_t tag, uint64_t units);
/* Makes a reset known: to the fleet, if there is one and it can be reached; else it is done at once. -ENOENT. */
int adjust_reset(struct tier *tier, const weir_key *key, bool reachable);

/* log.c. A log is looked at, and its cell's state changed, under its lock. */
void logs_lock(struct tier *tier, uint32_t cell);
void logs_unlock(struct tier *tier, uint32_t cell);
/* NULL: nothing was ever counted there. */
struct log *logs_get(struct tier *tier, uint32_t cell);
/* The log with room for so many more units; NULL: no memory. */
struct log *logs_room(struct tier *tier, uint32_t cell, const struct rule *rule, uint64_t units, uint64_t now_ns);
/* Gives a cell that begins with what its key is remembered to have used its log, if there is room. */
void logs_resume(struct tier *tier, uint32_t cell, const struct rule *rule, uint64_t now_ns);
/* Drops what has left the window, and brings the state up to date. False: the cell is not this hash's. */
bool logs_refresh(struct tier *tier, uint32_t cell, uint64_t hash, const struct rule *rule, uint64_t now_ns);
/* Brings the state of a pinned cell up to date with its log. */
void logs_publish(struct tier *tier, uint32_t cell, const struct rule *rule);
/* Charges a pinned cell, whether there is room or not. False: there was no memory to count it in. */
bool logs_charge(struct tier *tier, uint32_t cell, const struct rule *rule, uint64_t now_ns, uint64_t units);
/* Frees the log of a claimed, vacant cell; keeps what the fleet has not had. Returns how many units that lost. */
uint64_t logs_forget(struct tier *tier, uint32_t cell, struct orphan *orphan);

/* place.c */
/* What keeps one policy's key apart from all others. */
static inline uint64_t cell_hash(const struct policy *policy, const weir_key *key, size_t limit_index)
{
    return table_hash(key->hash ^ policy->share, policy->limits[limit_index].salt);
}

uint32_t place_key(struct tier *tier, const struct policy *policy, size_t limit_index, const weir_key *key,
                   uint64_t now_ns);
/* Finds or makes the cells of a key, one per limit. False: the table has no room for it. */
bool place_locate(struct tier *tier, const struct policy *policy, const weir_key *key, uint64_t now_ns,
                  uint32_t cells[WEIR_MAX_LIMITS]);

/* Locates and pins. False: there is no room. */
bool place_pin(struct tier *tier, const struct policy *policy, const weir_key *key, uint64_t now_ns,
               uint32_t cells[WEIR_MAX_LIMITS]);
void place_unpin(struct tier *tier, const struct policy *policy, const uint32_t cells[WEIR_MAX_LIMITS]);

bool orphans_take(struct tier *tier, struct orphan *out);
/* Keys whose forgetting has begun, and ended, so far: as many, and none can be between the table and the ring. */
uint64_t orphans_begun(const struct tier *tier);
uint64_t orphans_ended(const struct tier *tier);

/* tick.c */
void tick_start(struct tier *tier, uint64_t monotonic_ns, uint64_t offset_ns);
/* A new epoch and time, if it is due. Any thread may. */
void tick_if_due(struct tier *tier, uint64_t monotonic_ns);
/* It is that late, or later: without a new epoch. Any thread may. */
void tick_raise(struct tick_line *line, uint64_t monotonic_ns);
/* The fleet was heard at that time. The background thread's. */
void tick_news(struct tick_line *line, uint64_t news_ns);
/* A new epoch now: every grant lapses. Any thread may. */
void tick_epoch(struct tier *tier);
void tick_sleep(struct tier *tier);
void tick_wake(struct tier *tier, uint64_t monotonic_ns);
/* Moves fleet time: offset is the background thread's. `step`: even backwards. */
void tick_set_offset(struct tier *tier, uint64_t monotonic_ns, uint64_t offset_ns, bool step);
/* Fleet time now, for whoever has no weir_thread. */
uint64_t tier_time(const struct tier *tier);
/* Every so many slow passes, some 10 us, a thread looks at the clock itself. */
#define CLOCK_EVERY 64

static inline bool tick_wants_look(const struct weir_thread *t)
{
    return load_relaxed(&t->slow_count) - t->looked_count >= CLOCK_EVERY;
}

/* Fleet time for a decision by this policy. */
uint64_t tick_now(struct weir_thread *t, const struct policy *policy);

static inline uint64_t grant_make(uint32_t epoch, uint64_t end)
{
    return (uint64_t) epoch << 32 | (uint32_t) end;
}

#endif
