/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kinds in force. A thread that decides has a copy of its own, and takes a new one when the generation has moved
 * on: one load for each burst.
 *
 * Ordering:
 *   [K1] release of `generation` in kind_store_set: pairs with the acquire in kind_store_moved
 * Threads: one that sets, any that copy.
 */
#ifndef WEIR_GATEWAY_KINDS_KIND_STORE_H
#define WEIR_GATEWAY_KINDS_KIND_STORE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "packet_kind.h"

struct kind_store {
    pthread_mutex_t mutex;
    _Atomic uint32_t generation; /* 0: never set */
    struct packet_kinds kinds;
};

void kind_store_open(struct kind_store *store);
void kind_store_set(struct kind_store *store, const struct packet_kinds *kinds);

/* Whether `generation` is another one than that of the kinds in force. */
static inline bool kind_store_moved(struct kind_store *store, uint32_t generation)
{
    return atomic_load_explicit(&store->generation, memory_order_acquire) != generation; /* [K1] */
}

/* Copies the kinds in force. Returns their generation. */
uint32_t kind_store_copy(struct kind_store *store, struct packet_kinds *out);

#endif
