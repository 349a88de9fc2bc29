/* SPDX-License-Identifier: Apache-2.0 */
/* See kind_store.h. */
#include "kind_store.h"

void kind_store_open(struct kind_store *store)
{
    (void) pthread_mutex_init(&store->mutex, NULL);
}

void kind_store_set(struct kind_store *store, const struct packet_kinds *kinds)
{
    (void) pthread_mutex_lock(&store->mutex);
    store->kinds = *kinds;
    /* [K1] */
    (void) atomic_fetch_add_explicit(&store->generation, 1, memory_order_release);
    (void) pthread_mutex_unlock(&store->mutex);
}

uint32_t kind_store_copy(struct kind_store *store, struct packet_kinds *out)
{
    (void) pthread_mutex_lock(&store->mutex);
    *out = store->kinds;
    const uint32_t generation = atomic_load_explicit(&store->generation, memory_order_relaxed); /* under the lock */
    (void) pthread_mutex_unlock(&store->mutex);
    return generation;
}
