/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One mutex around a hash table with a token bucket per key: open addressing with linear probing, half full at most,
 * state beside the key (32 bytes a slot, so a hit is one cache line). Keys are hashed before the lock is taken. The
 * table is sized at open and forgets nothing; a key that finds no room is denied.
 */
#include <pthread.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "peers/bucket.h"

struct slot {
    unsigned char key[PEER_KEY_SIZE];
    struct bucket bucket; /* filled_ns 0: the slot is free */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct bucket_rule rule;
static struct slot *slots;
static size_t slot_mask;
static size_t free_count; /* slots that may still be taken */

static const char *open_table(const struct peer_limit *limit, size_t key_count)
{
    size_t slot_count = 16;
    while (slot_count < 2 * key_count) {
        slot_count *= 2;
    }
    rule = bucket_rule_of(limit);
    slots = peer_allocate(slot_count * sizeof(*slots));
    slot_mask = slot_count - 1;
    free_count = slot_count / 2;
    return slots != NULL ? NULL : "no memory";
}

static void close_table(void)
{
    peer_free(slots, (slot_mask + 1) * sizeof(*slots));
    slots = NULL;
}

/* The key's slot, taken for it where there is none yet; NULL: the table is full. */
static struct slot *find(const unsigned char *key, uint64_t hash)
{
    for (size_t at = (size_t) hash & slot_mask;; at = (at + 1) & slot_mask) {
        struct slot *slot = &slots[at];
        if (slot->bucket.filled_ns == 0) {
            if (free_count == 0) {
                return NULL;
            }
            free_count--;
            memcpy(slot->key, key, PEER_KEY_SIZE);
            return slot;
        }
        if (memcmp(slot->key, key, PEER_KEY_SIZE) == 0) {
            return slot;
        }
    }
}

static uint64_t run_table(void *thread, struct peer_draws *draws, uint64_t count)
{
    (void) thread;
    uint64_t allowed = 0;
    for (uint64_t i = 0; i < count; i++) {
        unsigned char key[PEER_KEY_SIZE];
        peer_next_key(draws, key);
        const uint64_t hash = XXH3_64bits(key, sizeof(key));
        (void) pthread_mutex_lock(&lock);
        struct slot *slot = find(key, hash);
        allowed += slot != NULL && bucket_take(&slot->bucket, &rule, peer_now_ns());
        (void) pthread_mutex_unlock(&lock);
    }
    return allowed;
}

const struct peer peer_mutex_table = {.name = "mutex_table",
                                      .keyed = true,
                                      .threads = true,
                                      .batch = 1000,
                                      .open = open_table,
                                      .close = close_table,
                                      .run = run_table};
