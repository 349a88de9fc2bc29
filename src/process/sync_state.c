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

void counts_clear(struct sync_counts *counts)
{
#define CLEAR_PLAIN(field)  counts->field = 0;
#define CLEAR_ATOMIC(field) store_relaxed(&counts->field, 0);
    SYNC_COUNTS_PLAIN(CLEAR_PLAIN)
    SYNC_COUNTS_ATOMIC(CLEAR_ATOMIC)
}

void counts_copy(struct sync_counts *to, const struct sync_counts *from)
{
#define COPY_PLAIN(field)  to->field = from->field;
#define COPY_ATOMIC(field) store_relaxed(&to->field, load_relaxed(&from->field));
    SYNC_COUNTS_PLAIN(COPY_PLAIN)
    SYNC_COUNTS_ATOMIC(COPY_ATOMIC)
}

void sync_state_clear_remote(struct sync_full *sync)
{
    sync->demand = (struct demand_stats){.learned_ns = 0};
    allowance_clear(&sync->allowance);
    store_relaxed(&sync->history_end, 0);
}

/* Of struct sync_full, every field that sync_state_copy names, and `cell`. */
#define FULL_SIZE(field) sizeof(((struct sync_full *) NULL)->field) /* NOLINT(bugprone-sizeof-expression) */
_Static_assert(offsetof(struct sync_full, round) + FULL_SIZE(round) ==
                   FULL_SIZE(allowance) + FULL_SIZE(denied) + FULL_SIZE(incarnation) + FULL_SIZE(now) +
                       FULL_SIZE(before) + FULL_SIZE(demand) + FULL_SIZE(history_end) + FULL_SIZE(ledger) +
                       FULL_SIZE(cell) + FULL_SIZE(round),
               "sync_state_copy copies every field; `round` stays the last one");

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

void sync_state_salvage(struct sync_full *sync)
{
    struct demand_stats *demand = &sync->demand;
    bool *const bools[] = {&demand->resumed, &demand->guessed, &demand->again,     &demand->idle,     &demand->begun,
                           &demand->risen,   &demand->shared,  &demand->denied[0], &demand->denied[1]};
    for (size_t i = 0; i < sizeof(bools) / sizeof(bools[0]); i++) {
        *bools[i] = bool_of_byte(bools[i]);
    }
}

void compact_copy(struct sync_states *syncs, uint32_t from, uint32_t to)
{
    const struct sync_compact *old = &syncs->compacts[from];
    struct sync_compact *new = &syncs->compacts[to];
#define COPY_COMPACT(field) store_relaxed(&new->field, load_relaxed(&old->field));
    SYNC_COMPACT_ATOMIC(COPY_COMPACT)
    new->key_length = old->key_length;
    memcpy(new->key, old->key, COMPACT_KEY);
    if (old->key_length > COMPACT_KEY) {
        syncs->tails[to] = syncs->tails[from];
    }
    if (compact_is(old, COMPACT_SPILLED)) {
        counts_copy(&syncs->spills[to].now, &syncs->spills[from].now);
        counts_copy(&syncs->spills[to].before, &syncs->spills[from].before);
    }
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

/* The local units of the window before, if the state still counts that window; else 0. */
static uint64_t local_before(const struct process *process, uint32_t cell, const struct sync_counts *before)
{
    const struct state state = cell_state(dwcas_read(&process->table.cells[cell].state));
    const bool current = window_seq(state) == compact_seq(&process->syncs.compacts[cell]);
    return current ? saturating_sub(window_previous(state), counts_merged(before)) : 0;
}

static void set_merged(struct sync_counts *counts, uint64_t units, bool restored)
{
    store_relaxed(restored ? &counts->restored : &counts->remote, units);
}

static void expand_window(struct sync_counts *counts, uint64_t word, bool restored)
{
    set_merged(counts, word & WINDOW_COUNT_MASK, restored);
    counts->acked = minifloat_decode(word >> MINIFLOAT_SHIFT);
}

/* Unreported demand is lost in the compact form: Redis keeps the greatest demand that was reported. */
static void set_demand(struct sync_counts *counts)
{
    counts->own = counts->demand = counts->acked;
    counts->remote_demand = load_relaxed(&counts->remote);
}

/* The counts that a compact state stands for. */
static void expand_counts(const struct process *process, uint32_t cell, struct sync_counts *now,
                          struct sync_counts *before)
{
    const struct sync_compact *compact = &process->syncs.compacts[cell];
    if (compact_is(compact, COMPACT_SPILLED)) {
        counts_copy(now, &process->syncs.spills[cell].now);
        counts_copy(before, &process->syncs.spills[cell].before);
        return;
    }
    const uint64_t word_now = load_relaxed(&compact->now);
    const uint64_t word_before = load_relaxed(&compact->before);
    const bool restored_now = compact_is(compact, COMPACT_RESTORED_NOW);
    const bool restored_before = compact_is(compact, COMPACT_RESTORED_BEFORE);
    counts_clear(now);
    counts_clear(before);
    switch (cell_meta_kind(&process->table.metas[cell])) {
    case RULE_WINDOW:
        expand_window(now, word_now, restored_now);
        expand_window(before, word_before, restored_before);
        if ((word_before >> MINIFLOAT_SHIFT & MINIFLOAT_ALL) != 0) {
            before->acked = max_u64(before->acked, local_before(process, cell, before));
        }
        break;
    case RULE_HISTORY:
        set_merged(now, word_now, restored_now);
        set_merged(before, word_before, restored_before);
        break;
    case RULE_BUCKET:
        set_merged(now, word_now, restored_now);
        now->acked = word_before;
        break;
    }
    set_demand(now);
    set_demand(before);
}

struct merged_counts sync_state_merged(const struct process *process, uint32_t cell)
{
    const struct sync_full *sync = sync_of(&process->syncs, cell);
    struct sync_counts room[2];
    if (sync == NULL) {
        expand_counts(process, cell, &room[0], &room[1]);
    }
    const struct sync_counts *now = sync != NULL ? &sync->now : &room[0];
    const struct sync_counts *before = sync != NULL ? &sync->before : &room[1];
    /* [A2] Before the counts. */
    const uint32_t seq =
        sync != NULL ? load_acquire(&sync->allowance.seq) : compact_seq(&process->syncs.compacts[cell]);
    return (struct merged_counts){.seq = seq,
                                  .now = saturating_sub(counts_merged(now), load_relaxed(&now->remote_refunds)),
                                  .before =
                                      saturating_sub(counts_merged(before), load_relaxed(&before->remote_refunds)),
                                  .acked = sync == NULL ? now->acked : 0};
}

uint64_t sync_state_bucket_units(const struct process *process, uint32_t cell, struct state state)
{
    const struct sync_full *sync = sync_of(&process->syncs, cell);
    struct sync_counts room[2];
    if (sync == NULL) {
        expand_counts(process, cell, &room[0], &room[1]);
    }
    const struct sync_counts *now = sync != NULL ? &sync->now : &room[0];
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

/* What the state counted at the last answer, as far as the compact state knows. */
static uint64_t expand_seen(const struct rule *rule, const struct sync_counts *now)
{
    switch (rule_kind(rule)) {
    case RULE_WINDOW:
        return saturating_sub(counts_merged(now), load_relaxed(&now->remote_refunds)) + now->acked;
    case RULE_HISTORY:
        return 0;
    case RULE_BUCKET:
        return now->acked & BUCKET_TOTAL_MASK;
    }
    return 0;
}

void compact_expand(const struct process *process, uint32_t cell, const struct rule *rule, uint64_t now_ns,
                    struct sync_full *sync)
{
    const struct sync_compact *compact = &process->syncs.compacts[cell];
    const bool acked = compact_is(compact, COMPACT_ACKED);
    const uint32_t denied = load_relaxed(&compact->sync);
    store_relaxed(&sync->denied, (denied & COMPACT_HAS_FULL) == 0 ? denied : 0);
    sync->incarnation = load_relaxed(&compact->residency) >> RESIDENCY_SHIFT;
    sync->ledger = refund_ledger_of(process, cell);
    sync_state_clear_remote(sync);
    expand_counts(process, cell, &sync->now, &sync->before);
    store_relaxed(&sync->allowance.seq, compact_seq(compact));
    store_relaxed(&sync->allowance.seen, expand_seen(rule, &sync->now));
    sync->demand.again = compact_is(compact, COMPACT_AGAIN);
    sync->demand.own = sync->demand.local_seen = sync->now.acked;
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

/* The two words of a compact state, and which of them are restored units. */
struct compact_words {
    uint64_t now, before;
    bool restored_now, restored_before;
};

/* One window's counts as a word. False: they do not fit. */
static bool compress_window(const struct sync_counts *counts, uint64_t *word, bool *restored)
{
    const uint64_t remote = load_relaxed(&counts->remote);
    const uint64_t merged = counts_merged(counts);
    const uint64_t all = counts->own == counts->acked ? MINIFLOAT_ALL : 0;
    *restored = remote == 0;
    *word = merged | (minifloat_encode(counts->acked) | all) << MINIFLOAT_SHIFT;
    return (remote == 0 || load_relaxed(&counts->restored) == 0) && merged <= WINDOW_COUNT_MASK &&
           counts->acked <= WINDOW_COUNT_MASK;
}

static bool has_refunds(const struct sync_counts *counts)
{
    return counts->acked_refunds != 0 || counts->deficit != 0 || load_relaxed(&counts->remote_refunds) != 0;
}

/* The counts as the two words of a compact state. False: they must be spilled. */
static bool compress_counts(enum rule_kind kind, const struct sync_counts *now, const struct sync_counts *before,
                            struct compact_words *out)
{
    const uint64_t remote = load_relaxed(&now->remote);
    const uint64_t restored = load_relaxed(&now->restored);
    const bool fits = !has_refunds(now) && !has_refunds(before);
    switch (kind) {
    case RULE_WINDOW:
        return fits && compress_window(now, &out->now, &out->restored_now) &&
               compress_window(before, &out->before, &out->restored_before);
    case RULE_HISTORY:
        *out = (struct compact_words){restored, load_relaxed(&before->restored), true, true};
        return true;
    case RULE_BUCKET:
        *out = (struct compact_words){restored != 0 ? restored : remote, now->acked, restored != 0, false};
        return fits && (restored == 0 || remote == 0) && before->acked <= now->acked;
    }
    return false;
}

void compact_write(struct process *process, uint32_t cell, const struct sync_full *sync)
{
    struct sync_compact *compact = &process->syncs.compacts[cell];
    const uint32_t seq = load_relaxed(&sync->allowance.seq);
    struct compact_words words;
    unsigned flags = load_relaxed(&compact->flags) & (3U << COMPACT_KEY_SHIFT);
    if (!compress_counts(cell_meta_kind(&process->table.metas[cell]), &sync->now, &sync->before, &words)) {
        struct sync_spill *spill = &process->syncs.spills[cell];
        counts_copy(&spill->now, &sync->now);
        counts_copy(&spill->before, &sync->before);
        words = (struct compact_words){.now = 0};
        flags |= COMPACT_SPILLED;
    }
    flags |= load_relaxed(&sync->allowance.since_ns) != 0 ? COMPACT_ACKED : 0;
    flags |= sync->demand.again ? COMPACT_AGAIN : 0;
    flags |= words.restored_now ? COMPACT_RESTORED_NOW : 0;
    flags |= words.restored_before ? COMPACT_RESTORED_BEFORE : 0;
    flags |= seq != SEQ_NONE ? COMPACT_HAS_SEQ : 0;
    /* Relaxed: a thread that has not pinned the cell reads estimates. */
    store_relaxed(&compact->now, words.now);
    store_relaxed(&compact->before, words.before);
    store_relaxed(&compact->residency,
                  sync->incarnation << RESIDENCY_SHIFT | (seq != SEQ_NONE ? seq & RESIDENCY_SEQ_MASK : 0));
    store_relaxed(&compact->acked_at, (uint16_t) (sync->demand.learned_ns >> ACKED_AT_SHIFT));
    store_relaxed(&compact->flags, (uint8_t) flags);
}
