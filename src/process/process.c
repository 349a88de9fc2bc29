/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of the process layer: reserved once, at open. */
#include "process/process.h"

#include <errno.h>
#include <string.h>

#include "base/pages.h"

int process_open(struct process *process, size_t max_keys, size_t max_log_units, bool fleet)
{
    process->fleet = fleet;
    store_relaxed(&process->nodes, 1);
    process->memory_size = ORPHAN_COUNT * sizeof(struct orphan);
    process->memory = pages_reserve(process->memory_size, false);
    if (process->memory == NULL || table_open(&process->table, max_keys, fleet) != 0 ||
        (fleet && notes_open(&process->notes, process->table.cell_count) != 0) ||
        logs_open(&process->logs, max_log_units, process->table.cell_count) != 0 ||
        sketch_open(&process->sketch, max_keys, process->origin_ns) != 0 ||
        offenders_open(&process->offenders, process->table.cell_count) != 0) {
        process_close(process);
        return -ENOMEM;
    }
    process->orphans.ring = process->memory;
    if (fleet) {
        memset((void *) process->orphans.ring, 0,
               process->memory_size); /* present from the beginning, as the table is */
    }
    return 0;
}

size_t process_size(size_t max_keys, bool fleet)
{
    return table_size(max_keys, fleet) + (fleet ? notes_size(table_cells(max_keys, fleet)) : 0);
}

size_t process_reserved(const struct process *process)
{
    return process->memory_size + process->table.memory_size + process->notes.memory_size + process->notes.asides_size +
           process->notes.tails_size + process->sketch.memory_size + process->logs.memory_size +
           process->logs.places_size + process->offenders.offences_size + process->offenders.lists_size;
}

void process_close(struct process *process)
{
    offenders_close(&process->offenders);
    table_close(&process->table);
    notes_close(&process->notes);
    sketch_close(&process->sketch);
    logs_close(&process->logs);
    pages_release(process->memory, process->memory_size);
    process->memory = NULL;
}
