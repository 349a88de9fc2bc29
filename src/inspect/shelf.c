/* SPDX-License-Identifier: Apache-2.0 */
/* See shelf.h. */
#include "inspect/shelf.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct shelf_block {
    struct shelf_block *before;
    max_align_t bytes[];
};

void *shelf_take(struct shelf *shelf, size_t count, size_t size)
{
    if (size != 0 && count > (SIZE_MAX - sizeof(struct shelf_block)) / size) {
        return NULL;
    }
    struct shelf_block *block = calloc(1, sizeof(*block) + count * size);
    if (block == NULL) {
        return NULL;
    }
    block->before = shelf->blocks;
    shelf->blocks = block;
    return block->bytes;
}

char *shelf_text(struct shelf *shelf, const char *text)
{
    const size_t size = strlen(text) + 1;
    char *copy = shelf_take(shelf, size, 1);
    return copy != NULL ? memcpy(copy, text, size) : NULL;
}

void shelf_clear(struct shelf *shelf)
{
    while (shelf->blocks != NULL) {
        struct shelf_block *block = shelf->blocks;
        shelf->blocks = block->before;
        free(block);
    }
}
