/* SPDX-License-Identifier: Apache-2.0 */
/* The contents of a key's sync state, and its conversion between the compact and the full form; see sync_state.h. */
#include "process/sync_state.h"

#include <string.h>

#include "algorithm/bucket.h"
#include "algorithm/window.h"
#include "base/compiler.h"
#include "base/minifloat.h"
#include "process/fraction.h"
#include "process/process.h"

/*
 * A window's word holds its acknowledged units as a minifloat above the merged ones. The bit above the minifloat says
 * that all local units were acknowledged: of a window that is over, the state then says exactly how many.
 */
#define MINIFLOAT_SHIFT WINDOW_COUNT_BITS
#define MINIFLOAT_ALL   (UINT64_C(1) << MINIFLOAT_BITS)

void counts_copy(struct sync_counts *to, const struct sync_counts *from)
{
    to->acked = from->acked;
    to->acked_refunds = from->acked_refunds;
    store_relaxed(&to->remote, load_relaxed(&from->remote));
    store_relaxed(&to->remote_refunds, load_relaxed(&from->remote_refunds));
    to->deficit = from->deficit;
    to->own = from->own;
    to->demand = from->demand;
    to->remote_demand = from->remote_demand;
    store_relaxed(&to->restored, load_relaxed(&from->restored));
}

void counts_clear(struct sync_counts *counts)
{
    static const struct sync_counts none;
    counts_copy(counts, &none);
}

_Static_assert(offsetof(struct sync_full, round) == sizeof(struct allowance) + 2 * sizeof(struct sync_counts) +
                                                        sizeof(struct demand_stats) + 4 * sizeof(uint64_t) + 4,
               "sync_state_copy names every field, but `cell`; `round` stays the last one");

void sync_state_copy(struct sync_full *to, const struct sync_full *from)
{
    allowance_copy(&to->allowance, &from->allowance);
    store_relaxed(&to->denied, load_relaxed(&from->denied));
    to->incarnation = from->incarnation;
    counts_copy(&to->now, &from->now);
    counts_copy(&to->before, &from->before);
    to->demand = from->demand;
    store_relaxed(&to->history_end, load_relaxed(&from->history_end));
    to->ledger = from->ledger;
    to->round = from->round;
}

struct key_name compact_key(const struct process *process, uint32_t cell)
{
    const struct sync_compact *compact = &process->syncs.compacts[cell];
    struct key_name key = {.flags = load_relaxed(&compact->flags) >> COMPACT_KEY_SHIFT, .length = compact->key_length};
    memcpy(key.bytes, compact->key, COMPACT_KEY);
    if (key.length > COMPACT_KEY) {
        memcpy(key.bytes + COMPACT_KEY, process->syncs.tails[cell].bytes, KEY_NAME_SIZE - COMPACT_KEY);
    }
    return key;
}

/* The window of a compact state's words[0]. */
static uint32_t compact_seq(const struct sync_compact *compact)
{
    return (uint32_t) load_acquire(&compact->residency) & WINDOW_SEQ_MASK; /* [A2] */
}

/* Of a compact state's window: the acknowledged local units, or somewhat less. */
static uint64_t compact_acked(const struct sync_compact *compact, enum rule_kind kind, bool before)
{
    if (kind == RULE_BUCKET) {
        return before ? 0 : load_relaxed(&compact->words[1]);
    }
    return kind == RULE_WINDOW ? minifloat_decode(load_relaxed(&compact->words[before]) >> MINIFLOAT_SHIFT) : 0;
}

/* The local units of the window before, if the state still counts that window; else 0. */
static uint64_t local_before(const struct process *process, uint32_t cell, uint64_t merged)
{
    const struct state state = cell_state(dwcas_read(&process->table.cells[cell].state));
    const bool current = window_seq(state) == compact_seq(&process->syncs.compacts[cell]);
    return current ? saturating_sub(window_previous(state), merged) : 0;
}

/* Decodes one window's counts from the words of a compact state. Its demand is what was acknowledged. */
static void counts_decode(const struct process *process, uint32_t cell, bool before, struct sync_counts *counts)
{
    const struct sync_compact *compact = &process->syncs.compacts[cell];
    const enum rule_kind kind = cell_meta_kind(&process->table.metas[cell]);
    const uint64_t word = load_relaxed(&compact->words[before]);
    uint64_t merged = kind == RULE_BUCKET && before ? 0 : word;
    counts_clear(counts);
    counts->acked = compact_acked(compact, kind, before);
    if (kind == RULE_WINDOW) {
        merged &= WINDOW_COUNT_MASK;
        if (before && (word >> MINIFLOAT_SHIFT & MINIFLOAT_ALL) != 0) {
            counts->acked = max_u64(counts->acked, local_before(process, cell, merged));
        }
    }
    const bool restored = compact_is(compact, (uint8_t) (COMPACT_RESTORED << before));
    store_relaxed(restored ? &counts->restored : &counts->remote, merged);
    /* Unreported demand is lost: Redis keeps the greatest demand that was reported. */
    counts->own = counts->demand = counts->acked;
    counts->remote_demand = load_relaxed(&counts->remote);
}

/* One window's counts: where they are, or in *room. `sync`: the cell's full state, if it has one. */
static const struct sync_counts *counts_of(const struct process *process, uint32_t cell, const struct sync_full *sync,
                                           bool before, struct sync_counts *room)
{
    const struct sync_spill *spill = &process->syncs.spills[cell];
    if (sync != NULL) {
        return before ? &sync->before : &sync->now;
    }
    if (compact_is(&process->syncs.compacts[cell], COMPACT_SPILLED)) {
        return before ? &spill->before : &spill->now;
    }
    counts_decode(process, cell, before, room);
    return room;
}

struct merged_counts sync_state_merged(const struct process *process, uint32_t cell)
{
    const struct sync_compact *compact = &process->syncs.compacts[cell];
    const struct sync_full *sync = sync_of(&process->syncs, cell);
    struct sync_counts room[2];
    /* [A2] Before the counts. */
    struct merged_counts merged = {.seq = sync != NULL ? load_acquire(&sync->allowance.seq) : compact_seq(compact)};
    merged.now = counts_net(counts_of(process, cell, sync, false, &room[0]));
    merged.before = counts_net(counts_of(process, cell, sync, true, &room[1]));
    if (sync == NULL) {
        merged.acked = compact_acked(compact, cell_meta_kind(&process->table.metas[cell]), false);
    }
    return merged;
}

uint64_t sync_state_bucket_units(const struct process *process, uint32_t cell, struct state state)
{
    struct sync_counts room;
    const struct sync_counts *now = counts_of(process, cell, sync_of(&process->syncs, cell), false, &room);
    if (load_relaxed(&now->restored) != 0) {
        return UINT64_MAX;
    }
    /* Modulo 2^44, as the total: a node may have refunded more than it admitted, and then others have less. */
    const uint64_t admitted = bucket_total(state) + load_relaxed(&now->remote);
    const uint64_t refunds = load_relaxed(&refund_ledger_of(process, cell)->refunds[0]);
    return (admitted - refunds - load_relaxed(&now->remote_refunds)) & BUCKET_TOTAL_MASK;
}

/*
 * Of a bucket that is served in part: computes the tat that the fleet knows. The result is exact if all units since the
 * last report were charged without a pause between them. Else it is too early, which is harmless: of two tats Redis
 * keeps the later one.
 */
static void expand_known(const struct process *process, uint32_t cell, const struct rule *whole, uint64_t now_ns,
                         struct sync_full *sync)
{
    const struct state state = cell_state(dwcas_read(&process->table.cells[cell].state));
    const uint64_t since = (bucket_total(state) - sync->now.acked) & BUCKET_TOTAL_MASK;
    const struct rule rule = fraction_rule(whole, load_relaxed(&sync->allowance.fraction), 1);
    sync->demand.known_total = sync->now.acked & BUCKET_TOTAL_MASK;
    sync->demand.known_time = saturating_sub(bucket_tat(state), saturating_mul(since, rule.unit));
    sync->demand.known_refunds = load_relaxed(&sync->ledger->refunds[0]);
    sync->demand.known_rate_id = whole->rate_id;
    sync->demand.fraction_ns = now_ns;
}

void compact_expand(const struct process *process, uint32_t cell, const struct rule *rule, uint64_t now_ns,
                    struct sync_full *sync)
{
    struct sync_compact *compact = &process->syncs.compacts[cell];
    const bool acked = compact_is(compact, COMPACT_ACKED);
    struct sync_counts room;
    store_relaxed(&sync->denied, exchange_relaxed(&compact->sync, 0)); /* statistics */
    sync->incarnation = load_relaxed(&compact->residency) >> RESIDENCY_SHIFT;
    sync->ledger = refund_ledger_of(process, cell);
    sync->demand = (struct demand_stats){.again = compact_is(compact, COMPACT_AGAIN)};
    allowance_clear(&sync->allowance);
    store_relaxed(&sync->history_end, 0);
    counts_copy(&sync->now, counts_of(process, cell, NULL, false, &room));
    counts_copy(&sync->before, counts_of(process, cell, NULL, true, &room));
    sync->demand.own = sync->demand.local_seen = sync->now.acked;
    store_relaxed(&sync->allowance.seq, compact_seq(compact));
    /* What the state counted at the last answer, as far as it is known. Of a log nothing is. */
    store_relaxed(&sync->allowance.seen, rule_kind(rule) == RULE_WINDOW ? counts_net(&sync->now) + sync->now.acked
                                                                        : sync->now.acked & BUCKET_TOTAL_MASK);
    store_relaxed(&sync->allowance.fraction, fraction_compact(process, rule, acked));
    store_relaxed(&sync->allowance.quota_unacked, !acked && rule->calendar != WEIR_CALENDAR_NONE);
    if (acked) {
        sync->demand.learned_ns = max_u64(saturating_sub(now_ns, compact_age_ns(compact, now_ns)), 1);
        store_relaxed(&sync->allowance.since_ns, 1); /* known, and old */
    }
    if (rule_is_bucket(rule) && load_relaxed(&sync->allowance.fraction) != 0 && (acked || sync->now.acked != 0)) {
        expand_known(process, cell, rule, now_ns, sync);
    }
}

/* Encodes one window's counts as a word of a compact state. Returns flags: COMPACT_SPILLED, if it cannot tell them all.
 */
static unsigned counts_encode(enum rule_kind kind, const struct sync_counts *counts, bool before, uint64_t words[2])
{
    const uint64_t merged = counts_merged(counts);
    const uint64_t remote = load_relaxed(&counts->remote);
    const bool both = remote != 0 && load_relaxed(&counts->restored) != 0;
    bool fits =
        !both && counts->acked_refunds == 0 && counts->deficit == 0 && load_relaxed(&counts->remote_refunds) == 0;
    words[before] = merged;
    if (kind == RULE_WINDOW) {
        const uint64_t all = counts->own == counts->acked ? MINIFLOAT_ALL : 0;
        const uint64_t acked = minifloat_encode(min_u64(counts->acked, WINDOW_COUNT_MASK));
        words[before] = (merged & WINDOW_COUNT_MASK) | (acked | all) << MINIFLOAT_SHIFT;
        fits = fits && merged <= WINDOW_COUNT_MASK && counts->acked <= WINDOW_COUNT_MASK;
    }
    return (fits ? 0U : COMPACT_SPILLED) | (remote == 0 ? (unsigned) COMPACT_RESTORED << before : 0U);
}

void compact_write(struct process *process, uint32_t cell, const struct sync_full *sync)
{
    struct sync_compact *compact = &process->syncs.compacts[cell];
    const enum rule_kind kind = cell_meta_kind(&process->table.metas[cell]);
    uint64_t words[2];
    unsigned flags = load_relaxed(&compact->flags) & (3U << COMPACT_KEY_SHIFT);
    flags |= counts_encode(kind, &sync->now, false, words) | counts_encode(kind, &sync->before, true, words);
    flags |= load_relaxed(&sync->allowance.since_ns) != 0 ? COMPACT_ACKED : 0;
    flags |= sync->demand.again ? COMPACT_AGAIN : 0;
    if (kind == RULE_BUCKET) {
        words[1] = sync->now.acked;
        flags |= sync->before.acked > sync->now.acked ? COMPACT_SPILLED : 0;
    }
    if ((flags & COMPACT_SPILLED) != 0) {
        counts_copy(&process->syncs.spills[cell].now, &sync->now);
        counts_copy(&process->syncs.spills[cell].before, &sync->before);
    }
    /* Relaxed: a thread that has not pinned the cell reads estimates. */
    store_relaxed(&compact->words[0], words[0]);
    store_relaxed(&compact->words[1], words[1]);
    store_relaxed(&compact->acked_at, (uint16_t) (sync->demand.learned_ns >> ACKED_AT_SHIFT));
    store_relaxed(&compact->flags, (uint8_t) flags);
    const uint64_t seq = load_relaxed(&sync->allowance.seq) & WINDOW_SEQ_MASK;
    store_release(&compact->residency, sync->incarnation << RESIDENCY_SHIFT | seq); /* [A2] after the counts */
}
