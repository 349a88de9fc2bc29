/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the tiers: reserved once, at open. */
#include "thread/limiter.h"

#include <errno.h>
#include <string.h>

#include "base/barrier.h"
#include "base/pages.h"
#include "check/direct_charge.h"

/*
 * Slots pin cells, which then cannot be forgotten; so that the slots of all threads pin at most a quarter of the keys
 * asked for, there are fewer of them where the table is small.
 */
#define SLOT_TABLE_SHARE 4
#define SLOT_MIN         64

static size_t slots_per_thread(size_t max_keys, uint32_t max_threads)
{
    size_t slots = SLOT_MAX;
    while (slots > SLOT_MIN && slots * max_threads > max_keys / SLOT_TABLE_SHARE) {
        slots /= 2;
    }
    return slots;
}

static void *carve(unsigned char **next, size_t size)
{
    void *here = *next;
    *next += (size + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
    return here;
}

static size_t padded(size_t size)
{
    return (size + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
}

/* Memory for logs is reserved, and present only when it is used. */
static int logs_open(struct logs *logs, size_t max_units, size_t cell_count)
{
    const size_t wanted = max_units * sizeof(uint64_t);
    const size_t size = (wanted + BUDDY_LARGEST - 1) / BUDDY_LARGEST * BUDDY_LARGEST;
    const size_t owners_size = size / BUDDY_SMALLEST * sizeof(uint32_t);
    logs->memory_size = size + owners_size + buddy_overhead(size);
    logs->memory = pages_reserve(logs->memory_size, false);
    logs->places_size = cell_count * sizeof(*logs->places);
    logs->places = pages_reserve_sparse(logs->places_size);
    if (logs->memory == NULL || logs->places == NULL) {
        return -ENOMEM;
    }
    logs->owners = (uint32_t *) (void *) ((unsigned char *) logs->memory + size);
    buddy_init(&logs->blocks, logs->memory, size, (unsigned char *) logs->memory + size + owners_size);
    return 0;
}

int tier_open(struct tier *tier, size_t max_keys, uint32_t max_threads, size_t max_log_units, bool fleet)
{
    const size_t slots = slots_per_thread(max_keys, max_threads);
    const size_t slots_size = slots * sizeof(struct slot);
    const size_t backs_size = slots * sizeof(struct slot_back);
    const size_t tallies_size = padded((WEIR_MAX_POLICIES + 1) * sizeof(struct tally));
    const size_t seen_size = padded(SEEN_COUNT * sizeof(uint32_t));
    const size_t tags_size = padded(slots / SLOT_WAYS * sizeof(uint64_t));
    const size_t full_size = padded(slots / SLOT_WAYS * sizeof(uint32_t));
    const size_t colds_size = padded(COLD_KEPT * sizeof(struct cold));
    const size_t thread_size = slots_size + backs_size + tallies_size + seen_size + tags_size + full_size + colds_size;
    const size_t threads_size = padded(max_threads * sizeof(struct weir_thread));
    const size_t orphans_size = padded(ORPHAN_COUNT * sizeof(struct orphan));

    tier->memory_size = threads_size + max_threads * thread_size + orphans_size;
    tier->memory = pages_reserve(tier->memory_size, false);
    if (tier->memory == NULL) {
        return -ENOMEM;
    }
    tier->fleet = fleet;
    store_relaxed(&tier->nodes, 1);
    if (table_open(&tier->table, max_keys, fleet) != 0 ||
        (fleet && notes_open(&tier->notes, tier->table.cell_count) != 0) ||
        logs_open(&tier->logs, max_log_units, tier->table.cell_count) != 0 ||
        sketch_open(&tier->sketch, max_keys, tier->origin_ns) != 0 ||
        offenders_open(&tier->offenders, tier->table.cell_count) != 0) {
        tier_close(tier);
        return -ENOMEM;
    }
    unsigned char *next = tier->memory;
    tier->threads = carve(&next, threads_size);
    tier->orphans.ring = carve(&next, orphans_size);
    if (fleet) {
        memset((void *) tier->orphans.ring, 0, orphans_size); /* present from the beginning, as the table is */
    }
    for (uint32_t i = 0; i < max_threads; i++) {
        struct weir_thread *t = &tier->threads[i];
        t->tier = tier;
        t->line = &tier->line;
        t->index = i;
        t->slot_count = slots;
        t->slot_mask = slots - SLOT_WAYS;
        t->slots = carve(&next, slots_size);
        t->backs = carve(&next, backs_size);
        t->tallies = carve(&next, tallies_size);
        t->seen = carve(&next, seen_size);
        t->tags = carve(&next, tags_size);
        t->full = carve(&next, full_size);
        t->colds = carve(&next, colds_size);
    }
    tier->max_threads = max_threads;
    tier->grants = barrier_available();
    return 0;
}

size_t tier_size(size_t max_keys, bool fleet)
{
    return table_size(max_keys, fleet) + (fleet ? notes_size(table_cells(max_keys, fleet)) : 0);
}

void tier_close(struct tier *tier)
{
    offenders_close(&tier->offenders);
    table_close(&tier->table);
    notes_close(&tier->notes);
    sketch_close(&tier->sketch);
    pages_release(tier->logs.memory, tier->logs.memory_size);
    pages_release(tier->logs.places, tier->logs.places_size);
    tier->logs.memory = NULL;
    tier->logs.places = NULL;
    pages_release(tier->memory, tier->memory_size);
    tier->memory = NULL;
}
