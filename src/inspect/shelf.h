/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of one answer, which is freed as a whole. Names: shelf_. */
#ifndef WEIR_INSPECT_SHELF_H
#define WEIR_INSPECT_SHELF_H

#include <stddef.h>

struct shelf {
    struct shelf_block *blocks; /* the last one first */
};

/* Zeroed memory of `count` times `size` bytes. NULL: there is none. */
void *shelf_take(struct shelf *shelf, size_t count, size_t size);

/* A copy of a text. NULL: no memory. */
char *shelf_text(struct shelf *shelf, const char *text);

/* Frees all that was taken. */
void shelf_clear(struct shelf *shelf);

#endif
