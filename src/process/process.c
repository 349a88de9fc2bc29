/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of the process layer: reserved once, at open. */
#include "process/process.h"

#include <errno.h>
#include <string.h>

#include "base/pages.h"
#include "process/evict.h"
#include "process/sync_pool.h"

int process_open(struct process *process, size_t max_keys, size_t max_log_units, bool fleet)
{
    process->fleet = fleet;
    store_relaxed(&process->nodes, 1);
    process->memory_size = EVICTED_COUNT * sizeof(struct evicted_report);
    process->memory = pages_reserve(process->memory_size, false);
    if (process->memory == NULL || table_open(&process->table, max_keys, fleet) != 0 ||
        (fleet && syncs_open(&process->syncs, process->table.cell_count) != 0) ||
        history_store_open(&process->histories, max_log_units, process->table.cell_count) != 0 ||
        sketch_open(&process->sketch, max_keys, process->origin_ns) != 0 ||
        top_denied_open(&process->top_denied, process->table.cell_count) != 0) {
        process_close(process);
        return -ENOMEM;
    }
    process->evicted_reports.ring = process->memory;
    if (fleet) {
        memset((void *) process->evicted_reports.ring, 0,
               process->memory_size); /* present from the beginning, as the table is */
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
           process->histories.places_size + process->top_denied.entries_size + process->top_denied.lists_size;
}

void process_close(struct process *process)
{
    top_denied_close(&process->top_denied);
    table_close(&process->table);
    syncs_close(&process->syncs);
    sketch_close(&process->sketch);
    history_store_close(&process->histories);
    pages_release(process->memory, process->memory_size);
    process->memory = NULL;
}
