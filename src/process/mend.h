/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What processes that died leave in the table: locks, and cells between two keys. Further, units and pins that `held`
 * counts and no slot accounts for. dead[i] tells of the process whose lock_word is i + 1.
 *
 * First mend_locks() and mend_find(), while calls are at the table. Then, while none is: mend_count() for each slot
 * that pins cells, and mend_cells(). All may be done again by another process, where this one dies.
 */
#ifndef WEIR_PROCESS_MEND_H
#define WEIR_PROCESS_MEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct process;

/* A cell that is in use, and what its slots account for. */
struct mend_cell {
    uint32_t at;
    uint64_t held; /* pins and units */
};

/* The cells that were in use when mend_find() looked; ascending. */
struct mend {
    struct mend_cell *cells;
    size_t count;
    size_t memory_size;
};

/* Frees the locks that calls wait for and that are not of a set or a cell, and ends what they guard. */
void mend_locks(struct process *process, const bool *dead);

/* 0 or -ENOMEM. mend_end() may be called whatever came of it. */
int mend_find(struct mend *mend, const struct process *process);
void mend_end(struct mend *mend);

/*
 * Gives a cell that no call is at to nobody: it gets a key that nobody asks for, with no usage, of no policy, as it
 * must not become empty (I6 of table.h).
 */
void mend_occupy_by_none(struct process *process, uint32_t at);

/* A slot pins a cell and accounts for these units of the cell. */
void mend_count(const struct mend *mend, uint32_t at, uint64_t units);

/* Corrects `held`, and frees the locks of sets and cells. */
void mend_cells(const struct mend *mend, struct process *process, const bool *dead);

#endif
