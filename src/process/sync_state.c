/* SPDX-License-Identifier: Apache-2.0 */
#include "process/sync_state.h"

#include <errno.h>
#include <string.h>

#include "algorithm/bucket.h"
#include "algorithm/history.h"
#include "algorithm/window.h"
#include "base/arena.h"
#include "base/minifloat.h"
#include "base/pages.h"
#include "process/process.h"

/*
 * Notes there are at least, and where there are fewer cells a note for each; else one for so many cells. What needs one
 * is near its limit, or has not been told of for long: of a million keys by Zipf's law one in a hundred is.
 */
#define SYNCS_LEAST   16384
#define SYNCS_DIVISOR 64

/* Of so many notes the one that was looked at least lately is taken away; looked for so often. */
#define SAMPLE   8
#define SEARCHES 4

/* A stub's tag stands below its incarnation. */
#define RESIDENCY_SEQ_MASK WINDOW_SEQ_MASK
#define RESIDENCY_SHIFT    WINDOW_SEQ_BITS

/*
 * A window's word has own units told in their short form above the others'. The bit above says that all had been told,
 * as many as there were: of a window that is over it says how many.
 */
#define MINIFLOAT_SHIFT WINDOW_COUNT_BITS
#define MINIFLOAT_ALL   (UINT64_C(1) << MINIFLOAT_BITS)

void counts_clear(struct sync_counts *counts)
{
    counts->acked = counts->acked_refunds = counts->deficit = 0;
    counts->own = counts->demand = counts->remote_demand = 0;
    store_relaxed(&counts->remote, 0);
    store_relaxed(&counts->remote_refunds, 0);
    store_relaxed(&counts->restored, 0);
}

void counts_copy(struct sync_counts *to, const struct sync_counts *from)
{
    to->acked = from->acked;
    to->acked_refunds = from->acked_refunds;
    to->deficit = from->deficit;
    to->own = from->own;
    to->demand = from->demand;
    to->remote_demand = from->remote_demand;
    store_relaxed(&to->remote, load_relaxed(&from->remote));
    store_relaxed(&to->remote_refunds, load_relaxed(&from->remote_refunds));
    store_relaxed(&to->restored, load_relaxed(&from->restored));
}

void sync_clear_remote(struct sync_full *sync)
{
    sync->demand = (struct demand_stats){.learned_ns = 0};
    store_relaxed(&sync->allowance.remote_rate, 0);
    store_relaxed(&sync->allowance.remote_fraction, 0);
    store_relaxed(&sync->allowance.since_ns, 0);
    store_relaxed(&sync->allowance.inspected_ns, 0);
    store_relaxed(&sync->allowance.seen, 0);
    store_relaxed(&sync->allowance.urgent_threshold, UINT64_MAX);
    store_relaxed(&sync->allowance.fraction, 0);
    store_relaxed(&sync->allowance.dither, 0);
    store_relaxed(&sync->allowance.seq, SEQ_NONE);
    store_relaxed(&sync->allowance.quota_unacked, 0);
    store_relaxed(&sync->allowance.level, 0);
    store_relaxed(&sync->allowance.flags, ALLOWANCE_DEMAND_UNKNOWN);
    store_relaxed(&sync->history_end, 0);
}

/* All but whose it is. */
static void sync_copy(struct sync_full *to, const struct sync_full *from)
{
    store_relaxed(&to->allowance.remote_rate, load_relaxed(&from->allowance.remote_rate));
    store_relaxed(&to->allowance.remote_fraction, load_relaxed(&from->allowance.remote_fraction));
    store_relaxed(&to->allowance.since_ns, load_relaxed(&from->allowance.since_ns));
    store_relaxed(&to->allowance.inspected_ns, load_relaxed(&from->allowance.inspected_ns));
    store_relaxed(&to->allowance.seen, load_relaxed(&from->allowance.seen));
    store_relaxed(&to->allowance.urgent_threshold, load_relaxed(&from->allowance.urgent_threshold));
    store_relaxed(&to->allowance.fraction, load_relaxed(&from->allowance.fraction));
    store_relaxed(&to->allowance.dither, load_relaxed(&from->allowance.dither));
    store_relaxed(&to->allowance.seq, load_relaxed(&from->allowance.seq));
    store_relaxed(&to->allowance.quota_unacked, load_relaxed(&from->allowance.quota_unacked));
    store_relaxed(&to->allowance.level, load_relaxed(&from->allowance.level));
    store_relaxed(&to->allowance.flags, load_relaxed(&from->allowance.flags));
    store_relaxed(&to->denied, load_relaxed(&from->denied));
    to->incarnation = from->incarnation;
    counts_copy(&to->now, &from->now);
    counts_copy(&to->before, &from->before);
    to->demand = from->demand;
    store_relaxed(&to->history_end, load_relaxed(&from->history_end));
    to->ledger = from->ledger;
    to->round = from->round;
}

enum { PART_COMPACTS, PART_POOL, PARTS };

static size_t pool_count(size_t cell_count)
{
    const size_t some = max_u64(cell_count / SYNCS_DIVISOR, SYNCS_LEAST);
    return min_u64(some, cell_count);
}

static size_t part_sizes(size_t cell_count, size_t sizes[PARTS])
{
    sizes[PART_COMPACTS] = cell_count * sizeof(struct sync_compact);
    sizes[PART_POOL] = pool_count(cell_count) * sizeof(struct sync_full);
    return arena_padded(sizes[PART_COMPACTS]) + arena_padded(sizes[PART_POOL]);
}

size_t syncs_size(size_t cell_count)
{
    size_t sizes[PARTS];
    return part_sizes(cell_count, sizes);
}

int syncs_open(struct sync_states *syncs, size_t cell_count)
{
    size_t sizes[PARTS];
    syncs->memory_size = part_sizes(cell_count, sizes);
    syncs->count = (uint32_t) pool_count(cell_count);
    syncs->all = syncs->count == cell_count;
    syncs->spills_size = cell_count * sizeof(*syncs->spills);
    syncs->tails_size = cell_count * sizeof(*syncs->tails);
    syncs->memory = pages_reserve(syncs->memory_size, true);
    syncs->spills = pages_reserve_sparse(syncs->spills_size);
    syncs->tails = pages_reserve_sparse(syncs->tails_size);
    if (syncs->memory == NULL || syncs->spills == NULL || syncs->tails == NULL) {
        return -ENOMEM;
    }
    unsigned char *next = syncs->memory;
    syncs->compacts = arena_carve(&next, sizes[PART_COMPACTS]);
    syncs->pool = arena_carve(&next, sizes[PART_POOL]);
    for (uint32_t i = 0; i < syncs->count; i++) {
        store_relaxed(&syncs->pool[i].cell, syncs->all ? i : TABLE_NONE);
        store_relaxed(&syncs->pool[i].allowance.seq, SEQ_NONE);
    }
    return 0;
}

void syncs_close(struct sync_states *syncs)
{
    pages_release(syncs->memory, syncs->memory_size);
    pages_release(syncs->spills, syncs->spills_size);
    pages_release(syncs->tails, syncs->tails_size);
    syncs->memory = NULL;
    syncs->spills = NULL;
    syncs->tails = NULL;
}

struct key_name sync_key(const struct process *process, uint32_t cell)
{
    const struct sync_compact *compact = &process->syncs.compacts[cell];
    struct key_name key = {.flags = load_relaxed(&compact->flags) >> COMPACT_KEY_SHIFT, .length = compact->key_length};
    memcpy(key.bytes, compact->key, COMPACT_KEY);
    if (key.length > COMPACT_KEY) {
        memcpy(key.bytes + COMPACT_KEY, process->syncs.tails[cell], KEY_NAME_SIZE - COMPACT_KEY);
    }
    return key;
}

/* Own units of the window before that the fleet has had, where it has had all there were. */
static uint64_t all_before(const struct process *process, uint32_t cell, const struct sync_counts *before)
{
    const struct state state = cell_state(dwcas_read(&process->table.cells[cell].state));
    const bool its = window_seq(state) == compact_seq(&process->syncs.compacts[cell]);
    return its ? saturating_sub(window_previous(state), counts_merged(before)) : 0;
}

/* A stub's two words as what was told. */
static void counts_read(const struct process *process, uint32_t cell, struct sync_counts *now,
                        struct sync_counts *before)
{
    const struct sync_compact *compact = &process->syncs.compacts[cell];
    const struct cell_meta *meta = &process->table.metas[cell];
    const uint64_t words[2] = {load_relaxed(&compact->now), load_relaxed(&compact->before)};
    struct sync_counts *const counts[2] = {now, before};
    if (compact_is(compact, COMPACT_SPILLED)) {
        counts_copy(now, &process->syncs.spills[cell].now);
        counts_copy(before, &process->syncs.spills[cell].before);
        return;
    }
    const bool word_each = cell_meta_is(meta, CELL_BUCKET) || cell_meta_is(meta, CELL_HISTORY);
    for (unsigned i = 0; i < 2; i++) {
        counts_clear(counts[i]);
        const bool restores = compact_is(compact, i == 0 ? COMPACT_RESTORED_NOW : COMPACT_RESTORED_BEFORE);
        const uint64_t units = word_each ? words[i] : words[i] & WINDOW_COUNT_MASK;
        if (!cell_meta_is(meta, CELL_BUCKET) || i == 0) {
            store_relaxed(restores ? &counts[i]->restored : &counts[i]->remote, units);
        }
        if (!word_each) {
            counts[i]->acked = minifloat_decode(words[i] >> MINIFLOAT_SHIFT);
            if (i == 1 && (words[i] >> MINIFLOAT_SHIFT & MINIFLOAT_ALL) != 0) {
                counts[i]->acked = max_u64(counts[i]->acked, all_before(process, cell, counts[i]));
            }
        } else if (cell_meta_is(meta, CELL_BUCKET) && i == 0) {
            now->acked = words[1];
        }
        /* What was asked beyond that is forgotten: the fleet keeps the most it was ever told. */
        counts[i]->own = counts[i]->demand = counts[i]->acked;
        counts[i]->remote_demand = load_relaxed(&counts[i]->remote);
    }
}

struct merged_counts sync_merged(const struct process *process, uint32_t cell)
{
    const struct sync_full *sync = sync_of(&process->syncs, cell);
    struct sync_counts room[2];
    if (sync == NULL) {
        counts_read(process, cell, &room[0], &room[1]);
    }
    const struct sync_counts *now = sync != NULL ? &sync->now : &room[0];
    const struct sync_counts *before = sync != NULL ? &sync->before : &room[1];
    return (struct merged_counts){
        .seq = sync != NULL ? load_relaxed(&sync->allowance.seq) : compact_seq(&process->syncs.compacts[cell]),
        .now = saturating_sub(counts_merged(now), load_relaxed(&now->remote_refunds)),
        .before = saturating_sub(counts_merged(before), load_relaxed(&before->remote_refunds)),
        .acked = sync == NULL ? now->acked : 0};
}

/*
 * A bucket without a note that is served in part: what its state would be without that, if all it was charged since
 * the fleet was told came one behind the other; else less, which does no harm: of two times the fleet takes the later.
 */
static void know(const struct process *process, uint32_t cell, const struct rule *whole, uint64_t now_ns,
                 struct sync_full *sync)
{
    const struct state state = cell_state(dwcas_read(&process->table.cells[cell].state));
    const uint64_t since = (bucket_total(state) - sync->now.acked) & BUCKET_TOTAL_MASK;
    const struct rule rule = allowance_fraction_rule(whole, load_relaxed(&sync->allowance.fraction), 1);
    sync->demand.known_total = sync->now.acked & BUCKET_TOTAL_MASK;
    sync->demand.known_time = saturating_sub(state.a, saturating_mul(since, rule.unit));
    sync->demand.known_refunds = load_relaxed(&sync->ledger->refunds[0]);
    sync->demand.known_rate_id = whole->rate_id;
    sync->demand.fraction_ns = now_ns;
}

/* A stub in the form of a note. */
static void expand(const struct process *process, uint32_t cell, const struct rule *rule, uint64_t now_ns,
                   struct sync_full *sync)
{
    const struct sync_compact *compact = &process->syncs.compacts[cell];
    const bool counts = compact_is(compact, COMPACT_ACKED);
    const uint32_t denied = load_relaxed(&compact->sync);
    store_relaxed(&sync->denied, (denied & COMPACT_HAS_FULL) == 0 ? denied : 0);
    sync->incarnation = load_relaxed(&compact->residency) >> RESIDENCY_SHIFT;
    sync->ledger = refund_ledger_of(process, cell);
    sync_clear_remote(sync);
    counts_read(process, cell, &sync->now, &sync->before);
    store_relaxed(&sync->allowance.seq, compact_seq(compact));
    sync->demand.again = compact_is(compact, COMPACT_AGAIN);
    sync->demand.own = sync->demand.local_seen = sync->now.acked;
    const bool bucket = rule_is_bucket(rule);
    if (!rule_has_history(rule)) {
        const uint64_t merged = saturating_sub(counts_merged(&sync->now), load_relaxed(&sync->now.remote_refunds));
        store_relaxed(&sync->allowance.seen, bucket ? sync->now.acked & BUCKET_TOTAL_MASK : merged + sync->now.acked);
    }
    store_relaxed(&sync->allowance.fraction, allowance_compact_fraction(process, rule, counts));
    store_relaxed(&sync->allowance.quota_unacked, !counts && rule->calendar != WEIR_CALENDAR_NONE);
    if (counts) {
        sync->demand.learned_ns = max_u64(saturating_sub(now_ns, compact_age_ns(compact, now_ns)), 1);
        store_relaxed(&sync->allowance.since_ns, 1); /* it is old */
    }
    if (bucket && load_relaxed(&sync->allowance.fraction) != 0 && (counts || sync->now.acked != 0)) {
        know(process, cell, rule, now_ns, sync);
    }
}

/* One window's worth as a word, without what its flag says. False: it does not fit. */
static bool window_word(const struct sync_counts *counts, uint64_t *word, bool *restores)
{
    const uint64_t remote = load_relaxed(&counts->remote);
    const uint64_t merged = counts_merged(counts);
    *restores = remote == 0;
    *word = merged | (minifloat_encode(counts->acked) | (counts->own == counts->acked ? MINIFLOAT_ALL : 0))
                         << MINIFLOAT_SHIFT;
    return (remote == 0 || load_relaxed(&counts->restored) == 0) && merged <= WINDOW_COUNT_MASK &&
           counts->acked <= WINDOW_COUNT_MASK;
}

static bool counts_are_plain(const struct sync_counts *counts)
{
    return counts->acked_refunds == 0 && counts->deficit == 0 && load_relaxed(&counts->remote_refunds) == 0;
}

/* What was told as a stub's two words. False: it has to lie aside. */
static bool counts_words(const struct cell_meta *meta, const struct sync_counts *now, const struct sync_counts *before,
                         uint64_t words[2], bool restores[2])
{
    const uint64_t remote = load_relaxed(&now->remote);
    const uint64_t restored = load_relaxed(&now->restored);
    if (cell_meta_is(meta, CELL_HISTORY)) {
        restores[0] = restores[1] = true;
        words[0] = restored;
        words[1] = load_relaxed(&before->restored);
        return true;
    }
    if (!counts_are_plain(now) || !counts_are_plain(before)) {
        return false;
    }
    if (cell_meta_is(meta, CELL_BUCKET)) {
        restores[0] = restored != 0;
        restores[1] = false;
        words[0] = restored != 0 ? restored : remote;
        words[1] = now->acked;
        return (restored == 0 || remote == 0) && before->acked <= now->acked;
    }
    return window_word(now, &words[0], &restores[0]) && window_word(before, &words[1], &restores[1]);
}

/* A note in the form of a stub, and what lies aside. */
static void put_back(struct process *process, uint32_t cell, const struct sync_full *sync)
{
    struct sync_compact *compact = &process->syncs.compacts[cell];
    const uint32_t seq = load_relaxed(&sync->allowance.seq);
    const uint64_t none[2] = {0, 0};
    uint64_t words[2] = {0, 0};
    bool restores[2] = {false, false};
    unsigned flags = load_relaxed(&compact->flags) & (3U << COMPACT_KEY_SHIFT);
    if (!counts_words(&process->table.metas[cell], &sync->now, &sync->before, words, restores)) {
        struct sync_spill *spill = &process->syncs.spills[cell];
        counts_copy(&spill->now, &sync->now);
        counts_copy(&spill->before, &sync->before);
        memcpy(words, none, sizeof(words));
        restores[0] = restores[1] = false;
        flags |= COMPACT_SPILLED;
    }
    flags |= load_relaxed(&sync->allowance.since_ns) != 0 ? COMPACT_ACKED : 0;
    flags |= sync->demand.again ? COMPACT_AGAIN : 0;
    flags |= (restores[0] ? COMPACT_RESTORED_NOW : 0U) | (restores[1] ? COMPACT_RESTORED_BEFORE : 0U);
    flags |= seq != SEQ_NONE ? COMPACT_HAS_SEQ : 0;
    /* Relaxed: to whoever does not pin the cell they are guesses. */
    store_relaxed(&compact->now, words[0]);
    store_relaxed(&compact->before, words[1]);
    store_relaxed(&compact->residency,
                  sync->incarnation << RESIDENCY_SHIFT | (seq != SEQ_NONE ? seq & RESIDENCY_SEQ_MASK : 0));
    store_relaxed(&compact->acked_at, (uint16_t) (sync->demand.learned_ns >> ACKED_AT_SHIFT));
    store_relaxed(&compact->flags, (uint8_t) flags);
}

void sync_store(struct process *process, uint32_t cell, const struct sync_full *sync)
{
    if (sync != sync_of(&process->syncs, cell)) {
        put_back(process, cell, sync);
        sync_add_denied(&process->syncs, cell, load_relaxed(&sync->denied));
    }
}

void sync_add_denied(const struct sync_states *syncs, uint32_t cell, uint64_t units)
{
    _Atomic uint32_t *word = &syncs->compacts[cell].sync;
    uint32_t was = load_acquire(word); /* [N4] */
    while ((was & COMPACT_HAS_FULL) == 0) {
        if (cas_acquire(word, &was, (uint32_t) min_u64(saturating_add(was, units), COMPACT_HAS_FULL - 1))) {
            return;
        }
    }
    (void) add_relaxed(&syncs->pool[was & ~COMPACT_HAS_FULL].denied, units);
}

/* The note is this cell's from now on. */
static void attach(struct sync_states *syncs, struct sync_full *sync, uint32_t cell)
{
    store_relaxed(&sync->cell, cell);
    const uint32_t index = (uint32_t) (sync - syncs->pool);
    (void) add_relaxed(&sync->denied,
                       exchange_release(&syncs->compacts[cell].sync, index | COMPACT_HAS_FULL)); /* [N4] */
}

/* Takes a cell's note off it; `denied`: units that it has not counted. */
static void detach(struct sync_states *syncs, uint32_t cell, uint64_t denied)
{
    store_relaxed(&syncs->compacts[cell].sync, (uint32_t) min_u64(denied, COMPACT_HAS_FULL - 1));
}

void sync_begin(struct process *process, uint32_t cell, const struct policy *policy, const weir_key *key)
{
    struct sync_states *syncs = &process->syncs;
    struct sync_compact *compact = &syncs->compacts[cell];
    struct key_name kept;
    key_name_make(&kept, policy, key);
    memcpy(compact->key, kept.bytes, min_u64(kept.length, COMPACT_KEY));
    if (kept.length > COMPACT_KEY) {
        memcpy(syncs->tails[cell], kept.bytes + COMPACT_KEY, kept.length - (size_t) COMPACT_KEY);
    }
    compact->key_length = kept.length;
    detach(syncs, cell, 0);
    /* Relaxed: any other number will do. */
    store_relaxed(&compact->residency, (add_relaxed(&syncs->incarnations, 1) + 1) << RESIDENCY_SHIFT);
    store_relaxed(&compact->now, 0);
    store_relaxed(&compact->before, 0);
    store_relaxed(&compact->acked_at, 0);
    store_relaxed(&compact->flags, (uint8_t) (kept.flags << COMPACT_KEY_SHIFT));
}

void sync_restore(struct process *process, uint32_t cell, const struct rule *rule, struct state state)
{
    struct sync_compact *compact = &process->syncs.compacts[cell];
    unsigned flags = load_relaxed(&compact->flags) | COMPACT_RESTORED_NOW;
    if (rule_is_bucket(rule)) {
        store_relaxed(&compact->now, state.a);
    } else if (rule_has_history(rule)) {
        flags |= COMPACT_RESTORED_BEFORE;
        store_relaxed(&compact->now, history_state_count(state));
        store_relaxed(&compact->before, state.a);
    } else {
        flags |= COMPACT_RESTORED_BEFORE | COMPACT_HAS_SEQ;
        store_relaxed(&compact->now, window_count(state));
        store_relaxed(&compact->before, window_previous(state));
        store_relaxed(&compact->residency, load_relaxed(&compact->residency) | window_seq(state));
    }
    store_relaxed(&compact->flags, (uint8_t) flags);
}

void sync_begin_full(struct process *process, uint32_t cell, const struct rule *rule, uint64_t now_ns)
{
    struct sync_states *syncs = &process->syncs;
    if (syncs->all) {
        struct sync_full *sync = &syncs->pool[cell];
        expand(process, cell, rule, now_ns, sync);
        sync->round = 0;
        attach(syncs, sync, cell);
    }
}

void sync_evict(struct process *process, uint32_t cell, const struct rule *rule, uint64_t now_ns, struct sync_full *out)
{
    struct sync_states *syncs = &process->syncs;
    struct sync_full *sync = sync_of(syncs, cell);
    if (out != NULL && sync != NULL) {
        sync_copy(out, sync);
    } else if (out != NULL) {
        expand(process, cell, rule, now_ns, out);
    }
    if (sync != NULL) {
        detach(syncs, cell, 0);
        if (!syncs->all) {
            store_release(&sync->cell, TABLE_NONE); /* [N5] */
        }
    }
}

void sync_clear(struct process *process, uint32_t cell)
{
    /* Relaxed: the cell is claimed. */
    if (cell_meta_had(&process->table.metas[cell], EVENT_REFUNDED)) {
        struct refund_ledger *ledger = &process->syncs.spills[cell].ledger;
        store_relaxed(&ledger->refunds[0], 0);
        store_relaxed(&ledger->refunds[1], 0);
        store_relaxed(&ledger->reset, 0);
        store_relaxed(&ledger->reset_emptied, 0);
    }
}

void sync_move(struct process *process, uint32_t from, uint32_t to)
{
    struct sync_states *syncs = &process->syncs;
    const struct sync_compact *old = &syncs->compacts[from];
    struct sync_compact *new = &syncs->compacts[to];
    struct sync_full *sync = sync_of(syncs, from);
    store_relaxed(&new->acked_at, load_relaxed(&old->acked_at));
    store_relaxed(&new->flags, load_relaxed(&old->flags));
    new->key_length = old->key_length;
    store_relaxed(&new->residency, load_relaxed(&old->residency));
    store_relaxed(&new->now, load_relaxed(&old->now));
    store_relaxed(&new->before, load_relaxed(&old->before));
    memcpy(new->key, old->key, COMPACT_KEY);
    if (old->key_length > COMPACT_KEY) {
        memcpy(syncs->tails[to], syncs->tails[from], sizeof(syncs->tails[to]));
    }
    if (cell_meta_had(&process->table.metas[from], EVENT_REFUNDED)) {
        const struct refund_ledger *was = &syncs->spills[from].ledger;
        struct refund_ledger *is = &syncs->spills[to].ledger;
        store_relaxed(&is->refunds[0], load_relaxed(&was->refunds[0]));
        store_relaxed(&is->refunds[1], load_relaxed(&was->refunds[1]));
        store_relaxed(&is->reset, load_relaxed(&was->reset));
        store_relaxed(&is->reset_emptied, load_relaxed(&was->reset_emptied));
    }
    if (compact_is(old, COMPACT_SPILLED)) {
        counts_copy(&syncs->spills[to].now, &syncs->spills[from].now);
        counts_copy(&syncs->spills[to].before, &syncs->spills[from].before);
    }
    if (sync == NULL) {
        detach(syncs, to, load_relaxed(&old->sync));
        return;
    }
    detach(syncs, from, 0);
    detach(syncs, to, 0);
    if (syncs->all) {
        sync_copy(&syncs->pool[to], sync);
        sync = &syncs->pool[to];
    }
    attach(syncs, sync, to);
}

struct sync_full *sync_load(struct process *process, uint32_t cell, const struct rule *rule, uint64_t now_ns,
                            struct sync_full *room)
{
    struct sync_full *sync = sync_of(&process->syncs, cell);
    if (sync != NULL) {
        sync->ledger = refund_ledger_of(process, cell);
        return sync;
    }
    expand(process, cell, rule, now_ns, room);
    store_relaxed(&room->denied, exchange_relaxed(&process->syncs.compacts[cell].sync, 0)); /* statistics */
    return room;
}

bool sync_demote(struct process *process, uint32_t index)
{
    struct sync_states *syncs = &process->syncs;
    struct sync_full *sync = &syncs->pool[index];
    const uint32_t at = load_acquire(&sync->cell); /* [N5] */
    if (at == TABLE_NONE) {
        return true;
    }
    struct cell *cell = &process->table.cells[at];
    const uint64_t hash = load_acquire(&cell->hash);
    if (hash == 0 || !cell_pin(cell, hash)) {
        return false;
    }
    /* A reset is told by what the note knows of the bucket, and soon confirmed. */
    const bool busy = load_relaxed(&refund_ledger_of(process, at)->reset) != 0;
    const bool its = !busy && load_relaxed(&syncs->compacts[at].sync) ==
                                  (index | COMPACT_HAS_FULL); /* else it has just moved, or gone (N1) */
    if (its) {
        put_back(process, at, sync);
        detach(syncs, at, load_relaxed(&sync->denied));
        store_relaxed(&sync->cell, TABLE_NONE);
    }
    cell_unpin(cell);
    return its;
}

/* Of some notes the one that was looked at least lately, of those that no report of this round is about; `count`: none.
 */
static uint32_t oldest_sync(struct sync_states *syncs, uint32_t round)
{
    uint32_t oldest = syncs->count;
    uint32_t oldest_age = 0;
    for (unsigned i = 0; i < SAMPLE; i++) {
        const uint32_t index = syncs->hand;
        const struct sync_full *sync = &syncs->pool[index];
        syncs->hand = index + 1 < syncs->count ? index + 1 : 0;
        const uint32_t age = load_relaxed(&sync->cell) == TABLE_NONE ? UINT32_MAX : round - sync->round;
        if (age > oldest_age) {
            oldest = index;
            oldest_age = age;
        }
    }
    /* The next search is near. */
    for (uint32_t i = 0; i < SAMPLE; i++) {
        const uint32_t next = syncs->hand + i;
        __builtin_prefetch(&syncs->pool[next < syncs->count ? next : next - syncs->count].cell);
    }
    return oldest;
}

struct sync_full *sync_promote(struct process *process, uint32_t cell, const struct sync_full *room, uint32_t round)
{
    struct sync_states *syncs = &process->syncs;
    for (unsigned i = 0; i < SEARCHES; i++) {
        const uint32_t index = oldest_sync(syncs, round);
        if (index < syncs->count && sync_demote(process, index)) {
            struct sync_full *sync = &syncs->pool[index];
            sync_copy(sync, room);
            sync->round = round;
            attach(syncs, sync, cell);
            return sync;
        }
    }
    return NULL;
}
