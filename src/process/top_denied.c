/* SPDX-License-Identifier: Apache-2.0 */
/* See top_denied.h. */
#include "process/top_denied.h"

#include <errno.h>
#include <string.h>

#include "base/pages.h"
#include "process/key_name.h"
#include "process/process.h"

_Static_assert(WEIR_OFFENDER_KEY_SIZE >= KEY_NAME_TEXT_SIZE, "a key's text fits");
_Static_assert(WEIR_TOP_OFFENDERS <= TOP_K_COUNT, "there are as many");
_Static_assert(1 + KEY_NAME_SIZE <= TOP_K_KEY_SIZE, "a key, after its flags");

int top_denied_open(struct top_denied *top_denied, size_t cell_count, struct pages_owner *pages)
{
    const size_t bits_size = arena_padded(bitmap_size(cell_count) * sizeof(uint64_t));
    const size_t shared_size = arena_padded(sizeof(struct top_denied_shared));
    top_denied->cell_count = (uint32_t) cell_count;
    top_denied->entries_size = cell_count * sizeof(struct denied_entry);
    top_denied->memory_size = bits_size + shared_size;
    top_denied->lists_size = (WEIR_MAX_POLICIES + 1) * sizeof(struct top_k);
    top_denied->entries = pages_take(pages, top_denied->entries_size, PAGES_SPARSE);
    top_denied->memory = pages_take(pages, top_denied->memory_size, PAGES_SPARSE);
    /* Of the lists only those of policies that deny are ever present. */
    top_denied->lists = pages_take(pages, top_denied->lists_size, PAGES_SPARSE | PAGES_LATER);
    if (top_denied->entries == NULL || top_denied->memory == NULL || top_denied->lists == NULL) {
        return -ENOMEM;
    }
    unsigned char *next = top_denied->memory;
    bitmap_init(&top_denied->denied, arena_carve(&next, bits_size), cell_count);
    top_denied->shared = arena_carve(&next, shared_size);
    return 0;
}

void top_denied_close(struct top_denied *top_denied, const struct pages_owner *pages)
{
    /* The mutex stays: other processes may have the lists. */
    pages_give(pages, top_denied->entries, top_denied->entries_size);
    pages_give(pages, top_denied->memory, top_denied->memory_size);
    pages_give(pages, top_denied->lists, top_denied->lists_size);
}

/* Asks for a collection of the cell. */
static void request_collection(struct top_denied *top_denied, uint32_t cell)
{
    bitmap_set(&top_denied->denied, cell);             /* [O3] */
    if (load_seq_cst(&top_denied->shared->any) == 0) { /* [O3]; mostly read: no write to a shared line */
        (void) exchange_seq_cst(&top_denied->shared->any, 1);
    }
}

/* Drops units whose key is not known. */
static void drop_units(struct top_denied *top_denied, uint32_t cell)
{
    struct denied_entry *entry = &top_denied->entries[cell];
    if (load_relaxed(&entry->units) != 0) {
        (void) add_relaxed(&top_denied->shared->evicted_denied_units, exchange_seq_cst(&entry->units, 0));
    }
}

void top_denied_name(struct process *process, const struct policy *policy, const weir_key *key, uint32_t cell)
{
    struct denied_entry *entry = &process->top_denied.entries[cell];
    struct cell_meta *meta = &process->table.metas[cell];
    struct cell *at = &process->table.cells[cell];
    if (load_relaxed(&entry->naming) == NAMING_DONE || !cell_pin(at, cell_hash(policy, key, 0))) {
        return; /* it has a name, or the cell has another key */
    }
    /* Relaxed: the cell is pinned, and only one thread can win. */
    uint8_t naming = NAMING_NONE;
    if (cas_relaxed(&entry->naming, &naming, NAMING_BEGUN)) {
        key_name_make(&entry->key, process->record_hash, policy, key);
        store_release(&entry->naming, NAMING_DONE); /* [O4] */
    }
    cell_meta_record(meta, EVENT_DENIED);
    cell_unpin(at);
}

void top_denied_mend(struct process *process, uint32_t cell)
{
    uint8_t naming = NAMING_BEGUN;
    (void) cas_relaxed(&process->top_denied.entries[cell].naming, &naming, NAMING_NONE);
}

void top_denied_add(struct process *process, uint32_t cell, uint64_t units)
{
    struct top_denied *top_denied = &process->top_denied;
    struct denied_entry *entry = &top_denied->entries[cell];
    uint32_t was = load_relaxed(&entry->units); /* confirmed by the compare-and-swap */
    while (!cas_seq_cst(&entry->units, &was, (uint32_t) min_u64(saturating_add(was, units), UINT32_MAX))) {
    }
    if (was == 0) { /* else O2 */
        cell_meta_record(&process->table.metas[cell], EVENT_DENIED);
        request_collection(top_denied, cell);
    }
}

void top_denied_evict(struct process *process, uint32_t cell)
{
    const struct cell_meta *meta = &process->table.metas[cell];
    struct denied_entry *entry = &process->top_denied.entries[cell];
    /* Relaxed: the cell is locked, so no thread counts or names its key; O1 has the exception. */
    if (cell_meta_had(meta, EVENT_DENIED)) {
        store_relaxed(&entry->naming, NAMING_NONE);
        drop_units(&process->top_denied, cell);
    }
}

void top_denied_move(struct process *process, uint32_t from, uint32_t to)
{
    struct denied_entry *old = &process->top_denied.entries[from];
    struct denied_entry *new = &process->top_denied.entries[to];
    if (!cell_meta_had(&process->table.metas[from], EVENT_DENIED)) {
        return; /* `to` is empty, so it has no count either */
    }
    new->key = old->key;
    store_release(&new->naming, load_relaxed(&old->naming)); /* [O4] */
    const uint32_t units = exchange_seq_cst(&old->units, 0);
    if (units != 0) {
        top_denied_add(process, to, units);
    }
}

/* Has the list of a group present; under the lock. False: there is no room. */
static bool has_list(struct process *process, uint32_t group)
{
    const struct top_denied *top_denied = &process->top_denied;
    unsigned char *listed = &top_denied->shared->listed[group];
    struct top_k *list = &top_denied->lists[group];
    if (*listed == 0 && pages_commit(process->pages, list, sizeof(*list)) == 0) {
        memset(list, 0, sizeof(*list)); /* pages that were there before may be damaged */
        *listed = 1;
    }
    return *listed != 0;
}

/* Adds the denied units of a pinned cell's key to its policy's list; under the lock. */
static void count_cell(struct process *process, uint32_t cell)
{
    struct top_denied *top_denied = &process->top_denied;
    struct denied_entry *entry = &top_denied->entries[cell];
    const uint32_t units = exchange_seq_cst(&entry->units, 0);              /* [O3] */
    const uint32_t group = load_relaxed(&process->table.metas[cell].group); /* it is pinned */
    if (units == 0) {
        return;
    }
    const uint8_t naming = load_acquire(&entry->naming); /* [O4] */
    if (naming == NAMING_BEGUN) {
        top_denied_add(process, cell, units); /* another thread is writing the name: next time */
        return;
    }
    if (naming == NAMING_NONE) {
        (void) add_relaxed(&top_denied->shared->evicted_denied_units,
                           units); /* the cell got another key during a denial */
        return;
    }
    if (!has_list(process, group)) {
        (void) add_relaxed(&top_denied->shared->evicted_denied_units, units);
        return;
    }
    /* Keys that differ in their flags alone are different keys. */
    unsigned char key[1 + KEY_NAME_SIZE];
    const size_t length = min_u64(entry->key.length, KEY_NAME_SIZE);
    key[0] = entry->key.flags;
    memcpy(key + 1, entry->key.bytes, length);
    top_k_add(&top_denied->lists[group], key, 1 + length, units);
    if (top_denied->recent != NULL) {
        top_k_add(&top_denied->recent[group], key, 1 + length, units);
    }
    counter_add(&top_denied->shared->denied_units, units);
}

static void collect_cell(struct process *process, uint32_t cell)
{
    struct cell *at = &process->table.cells[cell];
    const uint64_t hash = load_acquire(&at->hash); /* [T1] */
    if (hash == 0) {
        drop_units(&process->top_denied, cell); /* no key, or between two keys */
        return;
    }
    if (!cell_pin(at, hash)) {
        request_collection(&process->top_denied, cell); /* locked: it may keep its key */
        return;
    }
    count_cell(process, cell);
    cell_unpin(at);
}

/* Collects from the cursor to `end`. False: *room is used up. */
static bool collect_until(struct process *process, uint32_t end, uint32_t *room)
{
    struct top_denied *top_denied = &process->top_denied;
    for (; *room != 0; (*room)--) {
        const uint32_t cell = bitmap_next(&top_denied->denied, &top_denied->shared->cursor, end);
        if (cell == BITMAP_NONE) {
            return true;
        }
        collect_cell(process, cell);
    }
    return false;
}

/*
 * Begins where the last piece ended, and goes once around: in a flood every key has its turn. False: some are left.
 */
static bool collect_denials(struct process *process, uint64_t late_ns)
{
    struct top_denied *top_denied = &process->top_denied;
    const uint32_t first = top_denied->shared->cursor;
    uint32_t room = (uint32_t) min_u64(TOP_DENIED_PIECE * (1 + late_ns / TOP_DENIED_PIECE_NS), TOP_DENIED_MOST);
    if (load_relaxed(&top_denied->shared->any) == 0 ||
        exchange_seq_cst(&top_denied->shared->any, 0) == 0) { /* [O3] before the bits */
        return true;
    }
    bool all = collect_until(process, top_denied->cell_count, &room);
    if (all) {
        top_denied->shared->cursor = 0;
        all = collect_until(process, first, &room);
    }
    if (!all) {
        (void) exchange_seq_cst(&top_denied->shared->any, 1);
    }
    return all;
}

static void halve(struct top_denied *top_denied, uint64_t times)
{
    for (uint32_t group = 0; group <= WEIR_MAX_POLICIES; group++) {
        if (top_denied->shared->listed[group] != 0 && top_denied->lists[group].total != 0) {
            top_k_halve(&top_denied->lists[group], times);
        }
    }
}

/* Empties the lists: a process died while it changed one of them. */
static void forget(struct top_denied *top_denied)
{
    for (uint32_t group = 0; group <= WEIR_MAX_POLICIES; group++) {
        if (top_denied->shared->listed[group] != 0) {
            memset(&top_denied->lists[group], 0, sizeof(top_denied->lists[group]));
        }
    }
}

uint64_t top_denied_next_ns(const struct top_denied *top_denied)
{
    return load_relaxed(&top_denied->shared->any) != 0 ? top_denied->shared->next_ns : UINT64_MAX;
}

void top_denied_step(struct process *process, uint64_t monotonic_ns)
{
    struct top_denied *top_denied = &process->top_denied;
    if (!top_denied_is_due(top_denied, monotonic_ns)) {
        return;
    }
    const enum robust_lock how = robust_mutex_trylock(process, &top_denied->shared->lock);
    if (how == ROBUST_BUSY) {
        top_denied->shared->next_ns = monotonic_ns + TOP_DENIED_PIECE_NS; /* a reader has it */
        return;
    }
    if (how == ROBUST_DIED) {
        forget(top_denied);
    }
    if (top_denied->shared->halve_ns == 0) {
        top_denied->shared->halve_ns = monotonic_ns + TOP_DENIED_HALF_LIFE_NS;
    }
    /* Halved first: what is collected now was denied since. */
    if (monotonic_ns >= top_denied->shared->halve_ns) {
        const uint64_t times = (monotonic_ns - top_denied->shared->halve_ns) / TOP_DENIED_HALF_LIFE_NS + 1;
        top_denied->shared->halve_ns += times * TOP_DENIED_HALF_LIFE_NS;
        halve(top_denied, times);
    }
    const bool all = collect_denials(process, monotonic_ns - top_denied->shared->next_ns);
    top_denied->shared->next_ns = monotonic_ns + (all ? TOP_DENIED_EVERY_NS : TOP_DENIED_PIECE_NS);
    robust_mutex_unlock(&top_denied->shared->lock);
}

void top_denied_read(struct process *process, weir_policy_id group, struct top_k *out)
{
    struct top_denied *top_denied = &process->top_denied;
    if (robust_mutex_lock(process, &top_denied->shared->lock) == ROBUST_DIED) {
        forget(top_denied);
    }
    if (top_denied->shared->listed[group] != 0) {
        *out = top_denied->lists[group];
    } else {
        memset(out, 0, sizeof(*out));
    }
    robust_mutex_unlock(&top_denied->shared->lock);
}

size_t top_denied_list(const struct top_k *list, const weir_key_form *form, weir_offender *out, size_t most)
{
    uint8_t top[WEIR_TOP_OFFENDERS];
    const size_t count = top_k_top(list, top, min_u64(most, WEIR_TOP_OFFENDERS));
    for (size_t i = 0; i < count; i++) {
        const struct top_k_key *key = &list->keys[top[i]];
        memset(&out[i], 0, sizeof(out[i]));
        struct key_name kept = {.flags = key->bytes[0], .length = (uint8_t) (key->length - 1)};
        memcpy(kept.bytes, key->bytes + 1, kept.length);
        (void) key_name_write(out[i].key, &kept, form);
        out[i].denied_units = list->counts[top[i]];
        out[i].error_units = list->counts[top[i]] - list->sure[top[i]];
    }
    return count;
}

uint64_t top_denied_sure(const struct top_k *list)
{
    uint8_t top[WEIR_TOP_OFFENDERS];
    const size_t count = top_k_top(list, top, WEIR_TOP_OFFENDERS);
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++) {
        sum = saturating_add(sum, list->sure[top[i]]);
    }
    return sum;
}

/* Whether a list's numbers are in range. */
static bool list_is_sound(const struct top_k *list)
{
    bool sound = list->used <= TOP_K_COUNT;
    for (uint32_t i = 0; i < list->used && sound; i++) {
        sound = list->keys[i].length != 0 && list->keys[i].length <= 1 + KEY_NAME_SIZE;
    }
    return sound;
}

void top_denied_salvage(struct process *process, uint64_t monotonic_ns)
{
    struct top_denied *top_denied = &process->top_denied;
    struct top_denied_shared *shared = top_denied->shared;
    bitmap_salvage(&top_denied->denied, top_denied->cell_count);
    shared->lock = (struct robust_mutex){0};
    shared->cursor = 0;
    shared->next_ns = monotonic_ns;
    shared->halve_ns = shared->halve_ns <= monotonic_ns + TOP_DENIED_HALF_LIFE_NS ? shared->halve_ns : 0;
    store_relaxed(&shared->any, 1);
    for (uint32_t group = 0; group <= WEIR_MAX_POLICIES; group++) {
        struct top_k *list = &top_denied->lists[group];
        shared->listed[group] = shared->listed[group] != 0 && pages_have_data(process->pages, list, sizeof(*list)) &&
                                pages_commit(process->pages, list, sizeof(*list)) == 0;
        if (shared->listed[group] != 0 && !list_is_sound(list)) {
            memset(list, 0, sizeof(*list));
        }
    }
}
