/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of the threads' handles and slots: reserved once, at open. */
#include "thread/limiter.h"

#include <errno.h>

#include "base/barrier.h"
#include "base/pages.h"
#include "thread/policy_snapshot.h"
#include "thread/slot.h"

/*
 * Slots pin cells, which then cannot be forgotten; so that the slots of all threads pin at most a quarter of the keys
 * asked for, there are fewer of them where the table is small.
 */
#define SLOT_TABLE_SHARE 4
#define SLOT_MIN         64

static size_t slots_per_thread(size_t max_keys, uint32_t max_threads)
{
    size_t slots = SLOT_MAX;
    while (slots > SLOT_MIN && slots * max_threads > max_keys / SLOT_TABLE_SHARE) {
        slots /= 2;
    }
    return slots;
}

static void *carve(unsigned char **next, size_t size)
{
    void *here = *next;
    *next += (size + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
    return here;
}

static size_t padded(size_t size)
{
    return (size + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
}

int limiter_open(struct limiter *limiter, size_t max_keys, uint32_t max_threads, size_t max_log_units, bool fleet)
{
    const size_t slots = slots_per_thread(max_keys, max_threads);
    const size_t slots_size = slots * sizeof(struct slot);
    const size_t backs_size = slots * sizeof(struct slot_back);
    const size_t tallies_size = padded((WEIR_MAX_POLICIES + 1) * sizeof(struct tally));
    const size_t seen_size = padded(SEEN_COUNT * sizeof(uint32_t));
    const size_t tags_size = padded(slots / SLOT_WAYS * sizeof(uint64_t));
    const size_t full_size = padded(slots / SLOT_WAYS * sizeof(uint32_t));
    const size_t colds_size = padded(COLD_KEPT * sizeof(struct cold));
    const size_t thread_size = slots_size + backs_size + tallies_size + seen_size + tags_size + full_size + colds_size;
    const size_t threads_size = padded(max_threads * sizeof(struct weir_thread));

    if (process_open(&limiter->process, max_keys, max_log_units, fleet) != 0) {
        return -ENOMEM;
    }
    limiter->memory_size = threads_size + max_threads * thread_size;
    limiter->memory = pages_reserve(limiter->memory_size, false);
    if (limiter->memory == NULL) {
        limiter_close(limiter);
        return -ENOMEM;
    }
    unsigned char *next = limiter->memory;
    limiter->threads = carve(&next, threads_size);
    for (uint32_t i = 0; i < max_threads; i++) {
        struct weir_thread *t = &limiter->threads[i];
        t->limiter = limiter;
        t->process = &limiter->process;
        t->line = &limiter->line;
        t->index = i;
        t->slot_count = slots;
        t->slot_mask = slots - SLOT_WAYS;
        t->slots = carve(&next, slots_size);
        t->backs = carve(&next, backs_size);
        t->tallies = carve(&next, tallies_size);
        t->seen = carve(&next, seen_size);
        t->tags = carve(&next, tags_size);
        t->full = carve(&next, full_size);
        t->colds = carve(&next, colds_size);
    }
    limiter->max_threads = max_threads;
    limiter->grants = barrier_available();
    return 0;
}

void limiter_close(struct limiter *limiter)
{
    process_close(&limiter->process);
    pages_release(limiter->memory, limiter->memory_size);
    limiter->memory = NULL;
}
