/* SPDX-License-Identifier: Apache-2.0 */
/* See sync_pool.h. */
#include "process/sync_pool.h"

#include <errno.h>
#include <string.h>

#include "algorithm/bucket.h"
#include "algorithm/history.h"
#include "algorithm/window.h"
#include "base/compiler.h"
#include "base/pages.h"
#include "process/process.h"

/*
 * Full states: one for each cell of a table of SYNCS_LEAST cells, else one for SYNCS_DIVISOR cells. Keys that need one
 * are near their limit, or were not reported for long: one key in a hundred, of a million by Zipf's law.
 */
#define SYNCS_LEAST   16384
#define SYNCS_DIVISOR 64

/* States looked at to find one to demote, and searches before sync_promote gives up. */
#define SAMPLE   8
#define SEARCHES 4

static size_t pool_count(size_t cell_count)
{
    return min_u64(max_u64(cell_count / SYNCS_DIVISOR, SYNCS_LEAST), cell_count);
}

size_t syncs_size(size_t cell_count)
{
    return arena_padded(cell_count * sizeof(struct sync_compact)) +
           arena_padded(pool_count(cell_count) * sizeof(struct sync_full)) +
           arena_padded(sizeof(struct sync_states_shared));
}

int syncs_open(struct sync_states *syncs, size_t cell_count, struct pages_owner *pages)
{
    syncs->memory_size = syncs_size(cell_count);
    syncs->count = (uint32_t) pool_count(cell_count);
    syncs->all = syncs->count == cell_count;
    syncs->spills_size = cell_count * sizeof(*syncs->spills);
    syncs->tails_size = cell_count * sizeof(*syncs->tails);
    syncs->memory = pages_take(pages, syncs->memory_size, PAGES_PRESENT);
    syncs->spills = pages_take(pages, syncs->spills_size, PAGES_SPARSE);
    syncs->tails = pages_take(pages, syncs->tails_size, PAGES_SPARSE);
    if (syncs->memory == NULL || syncs->spills == NULL || syncs->tails == NULL) {
        return -ENOMEM;
    }
    unsigned char *next = syncs->memory;
    syncs->compacts = arena_carve(&next, cell_count * sizeof(*syncs->compacts));
    syncs->pool = arena_carve(&next, syncs->count * sizeof(*syncs->pool));
    syncs->shared = arena_carve(&next, sizeof(*syncs->shared));
    for (uint32_t i = 0; i < syncs->count && pages_are_fresh(pages); i++) {
        store_relaxed(&syncs->pool[i].cell, syncs->all ? i : TABLE_NONE);
    }
    return 0;
}

void syncs_close(struct sync_states *syncs, const struct pages_owner *pages)
{
    pages_give(pages, syncs->memory, syncs->memory_size);
    pages_give(pages, syncs->spills, syncs->spills_size);
    pages_give(pages, syncs->tails, syncs->tails_size);
}

void sync_store(struct process *process, uint32_t cell, const struct sync_full *sync)
{
    if (sync != sync_of(&process->syncs, cell)) {
        compact_write(process, cell, sync);
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

/* Gives a full state to a cell. */
static void attach(struct sync_states *syncs, struct sync_full *sync, uint32_t cell)
{
    store_relaxed(&sync->cell, cell);
    const uint32_t index = (uint32_t) (sync - syncs->pool);
    (void) add_relaxed(&sync->denied,
                       exchange_release(&syncs->compacts[cell].sync, index | COMPACT_HAS_FULL)); /* [N4] */
}

/* Takes the full state from a cell; `denied`: units that the compact state counts from now on. */
static void detach(struct sync_states *syncs, uint32_t cell, uint64_t denied)
{
    store_release(&syncs->compacts[cell].sync, (uint32_t) min_u64(denied, COMPACT_HAS_FULL - 1)); /* [N4] */
}

void sync_blank(struct process *process, uint32_t cell)
{
    struct sync_states *syncs = &process->syncs;
    struct sync_compact *compact = &syncs->compacts[cell];
    compact->key_length = 0;
    detach(syncs, cell, 0);
    /* Relaxed: the number only has to be new. */
    store_relaxed(&compact->residency, (add_relaxed(&syncs->shared->incarnations, 1) + 1) << RESIDENCY_SHIFT);
    store_relaxed(&compact->words[0], 0);
    store_relaxed(&compact->words[1], 0);
    store_relaxed(&compact->acked_at, 0);
    store_relaxed(&compact->flags, 0);
}

/* Writes to a new key's compact state that its state was restored. */
static void restore(struct sync_compact *compact, const struct rule *rule, struct state state)
{
    store_relaxed(&compact->flags, load_relaxed(&compact->flags) | COMPACT_RESTORED | COMPACT_RESTORED << 1);
    switch (rule_kind(rule)) {
    case RULE_WINDOW:
        store_relaxed(&compact->words[0], window_count(state));
        store_relaxed(&compact->words[1], window_previous(state));
        store_relaxed(&compact->residency, load_relaxed(&compact->residency) | window_seq(state));
        break;
    case RULE_HISTORY:
        store_relaxed(&compact->words[0], history_state_count(state));
        store_relaxed(&compact->words[1], history_state_until(state));
        break;
    case RULE_BUCKET:
        store_relaxed(&compact->words[0], bucket_tat(state));
        break;
    }
}

void sync_begin(struct process *process, uint32_t cell, const struct policy *policy, const struct rule *rule,
                const weir_key *key, const struct state *restored, uint64_t now_ns)
{
    struct sync_states *syncs = &process->syncs;
    struct sync_compact *compact = &syncs->compacts[cell];
    struct key_name kept;
    key_name_make(&kept, process->record_hash, policy, key);
    sync_blank(process, cell);
    memcpy(compact->key, kept.bytes, min_u64(kept.length, COMPACT_KEY));
    if (kept.length > COMPACT_KEY) {
        memcpy(syncs->tails[cell].bytes, kept.bytes + COMPACT_KEY, kept.length - (size_t) COMPACT_KEY);
    }
    compact->key_length = kept.length;
    store_relaxed(&compact->flags, (uint8_t) (kept.flags << COMPACT_KEY_SHIFT));
    if (restored != NULL) {
        restore(compact, rule, *restored);
    }
    if (syncs->all) {
        compact_expand(process, cell, rule, now_ns, &syncs->pool[cell]);
        syncs->pool[cell].round = 0;
        attach(syncs, &syncs->pool[cell], cell);
    }
}

void sync_evict(struct process *process, uint32_t cell, const struct rule *rule, uint64_t now_ns, struct sync_full *out)
{
    struct sync_states *syncs = &process->syncs;
    struct sync_full *sync = sync_of(syncs, cell);
    if (out != NULL && sync != NULL) {
        sync_state_copy(out, sync);
    } else if (out != NULL) {
        compact_expand(process, cell, rule, now_ns, out);
    }
    detach(syncs, cell, 0);
    if (sync != NULL && !syncs->all) {
        store_release(&sync->cell, TABLE_NONE); /* [N5] */
    }
}

void sync_move(struct process *process, uint32_t from, uint32_t to)
{
    struct sync_states *syncs = &process->syncs;
    struct sync_full *sync = sync_of(syncs, from);
    const struct sync_compact *old = &syncs->compacts[from];
    struct sync_compact *new = &syncs->compacts[to];
    store_relaxed(&new->acked_at, load_relaxed(&old->acked_at));
    store_relaxed(&new->flags, load_relaxed(&old->flags));
    store_relaxed(&new->residency, load_relaxed(&old->residency));
    store_relaxed(&new->words[0], load_relaxed(&old->words[0]));
    store_relaxed(&new->words[1], load_relaxed(&old->words[1]));
    new->key_length = old->key_length;
    memcpy(new->key, old->key, COMPACT_KEY);
    if (old->key_length > COMPACT_KEY) {
        syncs->tails[to] = syncs->tails[from];
    }
    if (compact_is(old, COMPACT_SPILLED)) {
        counts_copy(&syncs->spills[to].now, &syncs->spills[from].now);
        counts_copy(&syncs->spills[to].before, &syncs->spills[from].before);
    }
    refund_ledger_move(process, from, to);
    detach(syncs, to, sync == NULL ? load_relaxed(&old->sync) : 0);
    detach(syncs, from, 0);
    if (sync != NULL && syncs->all) {
        sync_state_copy(&syncs->pool[to], sync);
        sync = &syncs->pool[to];
    }
    if (sync != NULL) {
        attach(syncs, sync, to);
    }
}

struct sync_full *sync_load(struct process *process, uint32_t cell, const struct rule *rule, uint64_t now_ns,
                            struct sync_full *room)
{
    struct sync_full *sync = sync_of(&process->syncs, cell);
    if (sync == NULL) {
        compact_expand(process, cell, rule, now_ns, room);
        return room;
    }
    sync->ledger = refund_ledger_of(process, cell);
    return sync;
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
    /* The report of a reset needs the full state of the bucket; the reset is acknowledged soon. */
    const bool current = load_relaxed(&refund_ledger_of(process, at)->reset) == 0 &&
                         load_relaxed(&syncs->compacts[at].sync) ==
                             (index | COMPACT_HAS_FULL); /* else the key has just moved, or was evicted (N1) */
    if (current) {
        compact_write(process, at, sync);
        detach(syncs, at, load_relaxed(&sync->denied));
        store_relaxed(&sync->cell, TABLE_NONE);
    }
    cell_unpin(cell);
    return current;
}

/* Of SAMPLE full states the one inspected longest ago, but not in this round; `count`: none. */
static uint32_t oldest_sync(struct sync_states *syncs, uint32_t round)
{
    uint32_t oldest = syncs->count;
    uint32_t oldest_age = 0;
    for (unsigned i = 0; i < SAMPLE; i++) {
        const uint32_t index = syncs->shared->hand;
        const struct sync_full *sync = &syncs->pool[index];
        syncs->shared->hand = index + 1 < syncs->count ? index + 1 : 0;
        const uint32_t next = index + SAMPLE < syncs->count ? index + SAMPLE : 0; /* for the next search */
        prefetch_line(&syncs->pool[next].cell);
        const uint32_t age = load_relaxed(&sync->cell) == TABLE_NONE ? UINT32_MAX : round - sync->round;
        if (age > oldest_age) {
            oldest = index;
            oldest_age = age;
        }
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
            sync_state_copy(sync, room);
            sync->round = round;
            attach(syncs, sync, cell);
            return sync;
        }
    }
    return NULL;
}

void sync_mend(struct sync_states *syncs, size_t cell_count)
{
    for (uint32_t i = 0; i < syncs->count && !syncs->all; i++) {
        const uint32_t cell = load_relaxed(&syncs->pool[i].cell);
        const bool astray = cell >= cell_count || load_relaxed(&syncs->compacts[cell].sync) != (i | COMPACT_HAS_FULL);
        if (cell != TABLE_NONE && astray) {
            store_release(&syncs->pool[i].cell, TABLE_NONE); /* [N5] */
        }
    }
}

/* A cell has the full state that it names, if that is the cell's; else it goes on by its compact state. */
static void salvage_compact(struct sync_states *syncs, uint32_t cell, bool has_key)
{
    struct sync_compact *compact = &syncs->compacts[cell];
    const uint32_t word = load_relaxed(&compact->sync);
    const uint32_t index = word & ~COMPACT_HAS_FULL;
    const bool has_full = (word & COMPACT_HAS_FULL) != 0;
    if (syncs->all) {
        store_relaxed(&syncs->pool[cell].cell, cell);
        store_relaxed(&compact->sync, has_key ? cell | COMPACT_HAS_FULL : 0);
    } else if (has_full && (index >= syncs->count || load_relaxed(&syncs->pool[index].cell) != cell)) {
        detach(syncs, cell, 0);
    }
    compact->key_length = (uint8_t) min_u64(compact->key_length, KEY_NAME_SIZE);
    raise_relaxed(&syncs->shared->incarnations, load_relaxed(&compact->residency) >> RESIDENCY_SHIFT);
}

void syncs_salvage(struct process *process)
{
    struct sync_states *syncs = &process->syncs;
    const uint32_t cells = (uint32_t) process->table.cell_count;
    syncs->shared->hand = syncs->shared->hand < syncs->count ? syncs->shared->hand : 0;
    store_relaxed(&syncs->shared->incarnations, 0); /* raised by those that there are */
    for (uint32_t cell = 0; cell < cells; cell++) {
        salvage_compact(syncs, cell, load_relaxed(&process->table.cells[cell].hash) != 0);
    }
    sync_mend(syncs, cells);
}
