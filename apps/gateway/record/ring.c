/* SPDX-License-Identifier: Apache-2.0 */
/* See ring.h. */
#include "ring.h"

#include <errno.h>
#include <stdlib.h>

/* Memory of a ring, about, and the packets it has room for at least. What no packet has touched is not backed. */
#define RING_SIZE   ((size_t) 4 << 20)
#define COUNT_LEAST 64
#define COUNT_MOST  8192

int ring_open(struct ring *ring, size_t snap)
{
    const size_t unit = _Alignof(struct ring_packet);
    ring->slot_size = (sizeof(struct ring_packet) + snap + unit - 1) / unit * unit;
    ring->count = COUNT_LEAST;
    while (ring->count < COUNT_MOST && 2 * ring->count * ring->slot_size <= RING_SIZE) {
        ring->count *= 2;
    }
    ring->slots = calloc(ring->count, ring->slot_size);
    return ring->slots != NULL ? 0 : -ENOMEM;
}

void ring_close(struct ring *ring)
{
    free(ring->slots);
    ring->slots = NULL;
}

static struct ring_packet *slot_of(const struct ring *ring, uint64_t number)
{
    return (struct ring_packet *) (void *) (ring->slots + (number & (ring->count - 1)) * ring->slot_size);
}

struct ring_packet *ring_next(struct ring *ring)
{
    const uint64_t written = atomic_load_explicit(&ring->written, memory_order_relaxed); /* its one writer */
    /* [G2] */
    const uint64_t read = atomic_load_explicit(&ring->read, memory_order_acquire);
    return written - read < ring->count ? slot_of(ring, written) : NULL;
}

void ring_push(struct ring *ring)
{
    const uint64_t written = atomic_load_explicit(&ring->written, memory_order_relaxed);
    atomic_store_explicit(&ring->written, written + 1, memory_order_release); /* [G1] */
}

const struct ring_packet *ring_first(struct ring *ring)
{
    const uint64_t read = atomic_load_explicit(&ring->read, memory_order_relaxed); /* its one writer */
    /* [G1] */
    const uint64_t written = atomic_load_explicit(&ring->written, memory_order_acquire);
    return read != written ? slot_of(ring, read) : NULL;
}

void ring_drop(struct ring *ring)
{
    const uint64_t read = atomic_load_explicit(&ring->read, memory_order_relaxed);
    atomic_store_explicit(&ring->read, read + 1, memory_order_release); /* [G2] */
}
