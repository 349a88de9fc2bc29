/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of the process layer: reserved once, at open. */
#include "process/process.h"

#include <errno.h>
#include <string.h>

#include "base/pages.h"
#include "process/evict.h"
#include "process/sync_pool.h"

int process_open(struct process *process, const struct process_options *options)
{
    const size_t shared_size = arena_padded(sizeof(struct process_shared));
    const size_t ring_size = EVICTED_COUNT * sizeof(struct evicted_report);
    const bool fleet = options->fleet;
    process->fleet = fleet;
    process->memory_size = shared_size + ring_size;
    process->pages = options->pages;
    process->memory = pages_take(process->pages, process->memory_size, 0);
    if (process->memory == NULL || table_open(&process->table, options->max_keys, fleet, process->pages) != 0 ||
        (fleet && syncs_open(&process->syncs, process->table.cell_count, process->pages) != 0) ||
        history_store_open(&process->histories, options->max_log_units, process->table.cell_count, process->pages) !=
            0 ||
        sketch_open(&process->sketch, options->max_keys, options->origin_ns, process->pages) != 0 ||
        top_denied_open(&process->top_denied, process->table.cell_count, process->pages) != 0) {
        return -ENOMEM;
    }
    unsigned char *next = process->memory;
    process->shared = arena_carve(&next, shared_size);
    process->evicted_ring = arena_carve(&next, ring_size);
    process->lock_word = 1;
    process->ticket = 1;
    if (pages_are_fresh(process->pages)) {
        store_relaxed(&process->shared->nodes, 1);
        process->shared->origin_ns = options->origin_ns;
    }
    if (fleet && !pages_come_later(process->pages)) {
        memset((void *) process->evicted_ring, 0, ring_size); /* present from the beginning, as the table is */
    }
    return 0;
}

size_t process_size(size_t max_keys, bool fleet)
{
    return table_size(max_keys, fleet) + (fleet ? syncs_size(table_cells(max_keys, fleet)) : 0);
}

size_t process_reserved(const struct process *process)
{
    return process->memory_size + process->table.memory_size + process->syncs.memory_size + process->syncs.spills_size +
           process->syncs.tails_size + process->sketch.memory_size + process->histories.memory_size +
           process->histories.places_size + process->top_denied.entries_size + process->top_denied.lists_size +
           process->top_denied.memory_size;
}

void process_close(struct process *process)
{
    const struct pages_owner *pages = process->pages;
    top_denied_close(&process->top_denied, pages);
    table_close(&process->table, pages);
    syncs_close(&process->syncs, pages);
    sketch_close(&process->sketch, pages);
    history_store_close(&process->histories, pages);
    pages_give(pages, process->memory, process->memory_size);
}
