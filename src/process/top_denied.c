/* SPDX-License-Identifier: Apache-2.0 */
#include "process/top_denied.h"

#include <errno.h>
#include <string.h>

#include "base/pages.h"
#include "process/insert.h"
#include "process/key_name.h"
#include "process/process.h"

_Static_assert(WEIR_OFFENDER_KEY_SIZE >= KEY_TEXT_SIZE, "a key's text fits");
_Static_assert(WEIR_TOP_OFFENDERS <= HEAVY_COUNT, "there are as many");
_Static_assert(1 + KEPT_SIZE <= HEAVY_KEY_SIZE, "a key, after its flags");

int offenders_open(struct offenders *offenders, size_t cell_count)
{
    const size_t bits_size = bitmap_size(cell_count) * sizeof(uint64_t);
    const size_t all_lists_size = (WEIR_MAX_POLICIES + 1) * sizeof(struct heavy);
    offenders->cell_count = (uint32_t) cell_count;
    offenders->offences_size = cell_count * sizeof(struct offence);
    offenders->lists_size = all_lists_size + bits_size;
    offenders->offences = pages_reserve_sparse(offenders->offences_size);
    /* Of the lists only those of policies that deny are ever present. */
    offenders->lists_memory = pages_reserve_sparse(offenders->lists_size);
    if (offenders->offences == NULL || offenders->lists_memory == NULL) {
        return -ENOMEM;
    }
    const int result = pthread_mutex_init(&offenders->lock, NULL);
    if (result != 0) {
        return -result;
    }
    offenders->lists = offenders->lists_memory;
    bitmap_init(&offenders->denied,
                (_Atomic uint64_t *) (void *) ((unsigned char *) offenders->lists_memory + all_lists_size), cell_count);
    return 0;
}

void offenders_close(struct offenders *offenders)
{
    if (offenders->lists != NULL) {
        (void) pthread_mutex_destroy(&offenders->lock);
    }
    pages_release(offenders->offences, offenders->offences_size);
    pages_release(offenders->lists_memory, offenders->lists_size);
    offenders->offences = NULL;
    offenders->lists_memory = NULL;
    offenders->lists = NULL;
}

/* The cell is to be collected. */
static void mark(struct offenders *offenders, uint32_t cell)
{
    bitmap_set(&offenders->denied, cell);     /* [O3] */
    if (load_seq_cst(&offenders->any) == 0) { /* [O3]; a line that is mostly read */
        (void) exchange_seq_cst(&offenders->any, 1);
    }
}

/* Units that are nobody's. */
static void drop_units(struct offenders *offenders, uint32_t cell)
{
    struct offence *offence = &offenders->offences[cell];
    if (load_relaxed(&offence->units) != 0) {
        (void) add_relaxed(&offenders->evicted_denied_units, exchange_seq_cst(&offence->units, 0));
    }
}

void offenders_name(struct process *process, const struct policy *policy, const weir_key *key, uint32_t cell)
{
    struct offence *offence = &process->offenders.offences[cell];
    struct owner *owner = &process->table.owners[cell];
    struct cell *at = &process->table.cells[cell];
    if (load_relaxed(&offence->naming) == NAMING_DONE || !cell_pin(at, cell_hash(policy, key, 0))) {
        return; /* it has a name, or it has changed hands */
    }
    /* Relaxed: while the cell is pinned there is one who finds it unnamed. */
    uint8_t naming = NAMING_NONE;
    if (cas_relaxed(&offence->naming, &naming, NAMING_BEGUN)) {
        key_keep(&offence->key, policy, key);
        store_release(&offence->naming, NAMING_DONE); /* [O4] */
    }
    owner_mark(owner, MARK_OFFENDS);
    cell_unpin(at);
}

void offenders_denied(struct process *process, uint32_t cell, uint64_t units)
{
    struct offenders *offenders = &process->offenders;
    struct offence *offence = &offenders->offences[cell];
    uint32_t was = load_relaxed(&offence->units); /* looked at again by the exchange */
    while (!cas_seq_cst(&offence->units, &was, (uint32_t) min_u64(saturating_add(was, units), UINT32_MAX))) {
    }
    if (was == 0) { /* else O2 */
        owner_mark(&process->table.owners[cell], MARK_OFFENDS);
        mark(offenders, cell);
    }
}

void offenders_forget(struct process *process, uint32_t cell)
{
    const struct owner *owner = &process->table.owners[cell];
    struct offence *offence = &process->offenders.offences[cell];
    /* Relaxed: the cell is claimed, so it is nobody's who would count or name; O1 names the exception. */
    if ((load_relaxed(&owner->marks) & MARK_OFFENDS) != 0) {
        store_relaxed(&offence->naming, NAMING_NONE);
        drop_units(&process->offenders, cell);
    }
}

void offenders_move(struct process *process, uint32_t from, uint32_t to)
{
    struct offence *old = &process->offenders.offences[from];
    struct offence *new = &process->offenders.offences[to];
    if ((load_relaxed(&process->table.owners[from].marks) & MARK_OFFENDS) == 0) {
        return; /* and `to` is no offender's, either: it is empty */
    }
    new->key = old->key;
    store_release(&new->naming, load_relaxed(&old->naming)); /* [O4] */
    const uint32_t units = exchange_seq_cst(&old->units, 0);
    if (units != 0) {
        offenders_denied(process, to, units);
    }
}

/* Adds what the key of a pinned cell was denied to its policy's list; under the lock. */
static void count_cell(struct process *process, uint32_t cell)
{
    struct offenders *offenders = &process->offenders;
    struct offence *offence = &offenders->offences[cell];
    const uint32_t units = exchange_seq_cst(&offence->units, 0);             /* [O3] */
    const uint32_t group = load_relaxed(&process->table.owners[cell].group); /* it is pinned */
    if (units == 0) {
        return;
    }
    const uint8_t naming = load_acquire(&offence->naming); /* [O4] */
    if (naming == NAMING_BEGUN) {
        offenders_denied(process, cell, units); /* by another thread than the one that is writing its name: next time */
        return;
    }
    if (naming == NAMING_NONE) {
        (void) add_relaxed(&offenders->evicted_denied_units, units); /* it changed hands in the middle of a denial */
        return;
    }
    /* What is kept of keys can be the same text and another key; so the flags are a part of it. */
    unsigned char key[1 + KEPT_SIZE];
    key[0] = offence->key.flags;
    memcpy(key + 1, offence->key.bytes, offence->key.length);
    heavy_add(&offenders->lists[group], key, (size_t) 1 + offence->key.length, units);
    if (offenders->recent != NULL) {
        heavy_add(&offenders->recent[group], key, (size_t) 1 + offence->key.length, units);
    }
    offenders->highest = (uint32_t) max_u64(offenders->highest, group);
    counter_add(&offenders->denied_units, units);
}

static void collect_cell(struct process *process, uint32_t cell)
{
    struct cell *at = &process->table.cells[cell];
    const uint64_t hash = load_acquire(&at->hash); /* [T1] */
    if (hash == 0) {
        drop_units(&process->offenders, cell); /* it is changing hands */
        return;
    }
    if (!cell_pin(at, hash)) {
        mark(&process->offenders, cell); /* it is changing hands, or not after all */
        return;
    }
    count_cell(process, cell);
    cell_unpin(at);
}

/* Collects from the cursor to `end`. False: that was enough for now. */
static bool collect_until(struct process *process, uint32_t end, uint32_t *room)
{
    struct offenders *offenders = &process->offenders;
    for (; *room != 0; (*room)--) {
        const uint32_t cell = bitmap_next(&offenders->denied, &offenders->cursor, end);
        if (cell == BITMAP_NONE) {
            return true;
        }
        collect_cell(process, cell);
    }
    return false;
}

/* From where it ended last time, and once around: in a flood every key has its turn. */
static void collect(struct process *process)
{
    struct offenders *offenders = &process->offenders;
    const uint32_t first = offenders->cursor;
    uint32_t room = OFFENDERS_MOST;
    if (load_relaxed(&offenders->any) == 0 || exchange_seq_cst(&offenders->any, 0) == 0) { /* [O3] before the bits */
        return;
    }
    bool all = collect_until(process, offenders->cell_count, &room);
    if (all) {
        offenders->cursor = 0;
        all = collect_until(process, first, &room);
    }
    if (!all) {
        (void) exchange_seq_cst(&offenders->any, 1);
    }
}

static void halve(struct offenders *offenders, uint64_t times)
{
    for (uint32_t group = 0; group <= offenders->highest; group++) {
        if (offenders->lists[group].total != 0) {
            heavy_halve(&offenders->lists[group], times);
        }
    }
}

void offenders_step(struct process *process, uint64_t monotonic_ns)
{
    struct offenders *offenders = &process->offenders;
    if (monotonic_ns < offenders->next_ns || pthread_mutex_trylock(&offenders->lock) != 0) {
        return; /* a reader has it: next time */
    }
    offenders->next_ns = monotonic_ns + OFFENDERS_EVERY_NS;
    if (offenders->halve_ns == 0) {
        offenders->halve_ns = monotonic_ns + OFFENDERS_HALF_LIFE_NS;
    }
    /* First what is old: what is collected now was denied since. */
    if (monotonic_ns >= offenders->halve_ns) {
        const uint64_t times = (monotonic_ns - offenders->halve_ns) / OFFENDERS_HALF_LIFE_NS + 1;
        offenders->halve_ns += times * OFFENDERS_HALF_LIFE_NS;
        halve(offenders, times);
    }
    collect(process);
    (void) pthread_mutex_unlock(&offenders->lock);
}

void offenders_read(struct process *process, weir_policy_id group, struct heavy *out)
{
    struct offenders *offenders = &process->offenders;
    (void) pthread_mutex_lock(&offenders->lock);
    *out = offenders->lists[group];
    (void) pthread_mutex_unlock(&offenders->lock);
}

size_t offenders_top(const struct heavy *list, const weir_key_form *form, weir_offender *out, size_t most)
{
    uint8_t top[WEIR_TOP_OFFENDERS];
    const size_t count = heavy_top(list, top, min_u64(most, WEIR_TOP_OFFENDERS));
    for (size_t i = 0; i < count; i++) {
        const struct heavy_key *key = &list->keys[top[i]];
        memset(&out[i], 0, sizeof(out[i]));
        struct kept_key kept = {.flags = key->bytes[0], .length = (uint8_t) (key->length - 1)};
        memcpy(kept.bytes, key->bytes + 1, kept.length);
        (void) key_text_write(out[i].key, &kept, form);
        out[i].denied_units = list->counts[top[i]];
        out[i].error_units = list->counts[top[i]] - list->sure[top[i]];
    }
    return count;
}

uint64_t offenders_top_sure(const struct heavy *list)
{
    uint8_t top[WEIR_TOP_OFFENDERS];
    const size_t count = heavy_top(list, top, WEIR_TOP_OFFENDERS);
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++) {
        sum = saturating_add(sum, list->sure[top[i]]);
    }
    return sum;
}
