/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lines in which the kernel's program finds the keys whose packets it drops: where each key is. The program reads
 * them meanwhile. See struct drop_line.
 *
 * A line that a key has left lets packets pass and has no key, but stays taken until lines_free(): a core that found
 * the key just before may still look at the line's time.
 *
 * Threads: one at a time, beside the kernel's program.
 */
#ifndef WEIR_GATEWAY_XDP_LINES_H
#define WEIR_GATEWAY_XDP_LINES_H

#include <stdint.h>

#include "drop.h"

#define LINES_NONE UINT32_MAX

struct lines {
    struct drop_line *at;
    uint32_t count;     /* a power of two, above DROP_FARTHEST */
    uint64_t secret[2]; /* of drop_home() */
};

/* The line that has a key; LINES_NONE: no line has it. */
uint32_t lines_find(const struct lines *lines, const struct drop_key *key);

/* Gives a key that no line has a line, whose time is 0, and the line a number. LINES_NONE: there is no room. */
uint32_t lines_place(struct lines *lines, const struct drop_key *key, uint32_t number);

/* Takes the key from a line, whose time is 0 then. */
void lines_clear(struct lines *lines, uint32_t line);

/* Has a line without a key taken by another one. */
void lines_free(struct lines *lines, uint32_t line);

/* The line's number. */
uint32_t lines_number(const struct lines *lines, uint32_t line);

#endif
