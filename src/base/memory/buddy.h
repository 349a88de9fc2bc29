/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks of a power of two bytes out of one region, by halving and joining buddies (Knuth, The Art of Computer
 * Programming, 2.5). Memory that was never handed out is never touched.
 *
 * Not thread-safe. Allocates: nothing after buddy_init.
 */
#ifndef WEIR_BASE_MEMORY_BUDDY_H
#define WEIR_BASE_MEMORY_BUDDY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BUDDY_SMALLEST 256 /* bytes: a log of a few units with its header */
#define BUDDY_ORDERS   13  /* 256 bytes to 1 MiB */
#define BUDDY_LARGEST  ((size_t) BUDDY_SMALLEST << (BUDDY_ORDERS - 1))

/* What changes beside the blocks. It has no pointers: the region may lie at other addresses in other processes. */
struct buddy_shared {
    size_t present;              /* bytes of the region that may be handed out; a multiple of BUDDY_LARGEST */
    size_t fresh;                /* bytes of the region that were ever handed out */
    size_t used;                 /* bytes handed out */
    uint32_t free[BUDDY_ORDERS]; /* lists of free blocks */
};

/* Blocks are named by their number: offset / BUDDY_SMALLEST, plus 1; 0: none. */
struct buddy {
    struct buddy_shared *shared;
    unsigned char *region;
    size_t size;     /* a multiple of BUDDY_LARGEST */
    uint8_t *orders; /* by number - 1: order + 1 of the block that begins here; | BUDDY_FREE */
};

/* Bytes that buddy_init needs beside a region of `size`. */
size_t buddy_overhead(size_t size);

/*
 * `orders`: buddy_overhead bytes. They and *shared are zeros, or as another buddy of this region left them. The caller
 * raises shared->present, at most to `size`.
 */
void buddy_init(struct buddy *buddy, struct buddy_shared *shared, void *region, size_t size, void *orders);

/* A block of at least `size` bytes; 0: there is none. */
uint32_t buddy_take(struct buddy *buddy, size_t size);
void buddy_give(struct buddy *buddy, uint32_t block);

/*
 * Makes the blocks anew after a change that was not ended: buddy_clear(), then buddy_restore() for each block that is
 * in use, with the size that was asked for, then buddy_restore_free().
 */
void buddy_clear(struct buddy *buddy);
void buddy_restore(struct buddy *buddy, uint32_t block, size_t size);
void buddy_restore_free(struct buddy *buddy);

/* Whether a block of this number and size can be: it lies in the region, and overlaps no block that was restored. */
bool buddy_may_restore(const struct buddy *buddy, uint32_t block, size_t size);

/* The first block that is in use at or after `block`; 0: none. */
uint32_t buddy_next(const struct buddy *buddy, uint32_t block);

static inline void *buddy_at(const struct buddy *buddy, uint32_t block)
{
    return buddy->region + (size_t) (block - 1) * BUDDY_SMALLEST;
}

#endif
