/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Settling what has lapsed in the slots of all threads: at once, or as a pass by pieces. By the background thread.
 * Names: settle_.
 */
#ifndef WEIR_THREAD_SETTLE_PASS_H
#define WEIR_THREAD_SETTLE_PASS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct limiter;

/* Settles what has lapsed in all threads. Returns how many slots were locked by others. */
size_t settle_lapsed(struct limiter *limiter);

/* A slot of a thread. */
struct settle_place {
    uint32_t thread;
    size_t slot;
};

/* The first slot with something lapsed to settle: a hint, for which a caller needs no read section. False: none has. */
bool settle_find_lapsed(const struct limiter *limiter, struct settle_place *out);
/* As settle_lapsed(), of what stands from a place on. */
size_t settle_lapsed_from(struct limiter *limiter, struct settle_place from);

/* Where a pass over all slots is, which is done in pieces. Zero before the first one. */
struct settle_pass {
    struct settle_place at;
    size_t slots;                   /* of all threads, when the pass began */
    size_t settled, settled_before; /* slots, by this pass and by the one before */
};

static inline bool settle_pass_begins(const struct settle_pass *pass)
{
    return pass->at.thread == 0 && pass->at.slot == 0;
}

/*
 * The next piece of a pass, so that a server's thread that shares a processor with the background thread does not wait
 * for a whole pass. True: the pass has ended, and the next piece is the first of another one.
 */
bool settle_piece(struct limiter *limiter, struct settle_pass *pass);

#endif
