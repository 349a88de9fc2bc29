/* SPDX-License-Identifier: Apache-2.0 */
/* clang-format off */
/*
 * A set of cells: a bit each, and above them a summary of the words that may not be empty.
 *
 * Any thread sets bits; one thread at a time takes them out.
 *
 * Ordering
 *   [T4] A bit is set after the change that it stands for, which ends in a full barrier (dwcas_swap). A bit is cleared
 *        by a seq_cst operation before the changed cell is read. So either the setter finds the bit clear and sets it,
 *        or the reader sees the change. A summary bit relates to its word in this way, too: it is cleared before its
 *        word is read.
 *
 * Progress: wait-free.
 */
/* clang-format on */
#ifndef WEIR_PROCESS_BITMAP_H
#define WEIR_PROCESS_BITMAP_H

#include <stddef.h>
#include <stdint.h>

#define BITMAP_NONE UINT32_MAX

struct bitmap {
    _Atomic uint64_t *words;   /* a bit per cell */
    _Atomic uint64_t *summary; /* a bit per word */
    size_t word_count;
};

/* The 64-bit words of a bitmap of so many cells, with its summary. */
size_t bitmap_size(size_t cell_count);

/* `memory`: bitmap_size() words, zero. */
void bitmap_init(struct bitmap *bitmap, _Atomic uint64_t *memory, size_t cell_count);

void bitmap_set(struct bitmap *bitmap, uint32_t cell);

/* Takes a cell out, if it is there. */
void bitmap_clear(struct bitmap *bitmap, uint32_t cell);

/* Cells in it; statistics. */
size_t bitmap_count(const struct bitmap *bitmap);

/*
 * Takes out and returns the next cell from *cursor on and below `end`, and moves *cursor behind it; BITMAP_NONE when
 * there is none. `end` is at most the number of cells. One caller at a time.
 */
uint32_t bitmap_next(struct bitmap *bitmap, uint32_t *cursor, uint32_t end);

/* The cell that bitmap_next will probably return, if it is near; else BITMAP_NONE. A hint to prefetch. */
uint32_t bitmap_ahead(const struct bitmap *bitmap, uint32_t cursor);

/* Restores the summary after a change that was not ended, as its process died. A thread may set bits meanwhile. */
void bitmap_mend(struct bitmap *bitmap);

/* Makes the summary anew, and takes out cells that there are not; alone. */
void bitmap_salvage(struct bitmap *bitmap, size_t cell_count);

#endif
