/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See held.h.
 *
 * Invariants:
 *   a held source or network is in the chain of its hash, and the kernel knows its number
 *   a key that was let go is in no chain, the kernel has no number of it, and its slot lets packets pass
 */
#include "held.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "../mix.h"

#define NO_NUMBER UINT32_MAX

/* The kernel's program writes the counts, and reads the time. */
static uint64_t load(const __u64 *word)
{
    return __atomic_load_n(word, __ATOMIC_RELAXED);
}

static void store(__u64 *word, uint64_t value)
{
    __atomic_store_n(word, value, __ATOMIC_RELAXED);
}

int held_open(struct held *held, uint32_t capacity, struct drop_slot *slots, const struct held_kernel *kernel)
{
    *held = (struct held){.kernel = *kernel, .slots = slots, .capacity = capacity, .first_free = NO_NUMBER};
    held->keys = calloc(capacity, sizeof(*held->keys));
    held->chains = malloc(capacity * sizeof(*held->chains));
    if (held->keys == NULL || held->chains == NULL ||
        getrandom(held->secret, sizeof(held->secret), 0) != sizeof(held->secret) ||
        pthread_mutex_init(&held->mutex, NULL) != 0) {
        free(held->keys);
        free(held->chains);
        return -ENOMEM;
    }
    memset(held->chains, 0xff, capacity * sizeof(*held->chains));
    return 0;
}

void held_close(struct held *held)
{
    free(held->keys);
    free(held->chains);
    (void) pthread_mutex_destroy(&held->mutex);
}

/* With a secret that senders of packets do not know: none can aim at one chain. */
static uint32_t *chain_of(const struct held *held, const struct drop_key *drop)
{
    uint64_t words[3] = {0, 0, 0};
    memcpy(words, drop, sizeof(*drop));
    const uint64_t first = mix(words[0] ^ held->secret[0], words[1] ^ held->secret[1]);
    return &held->chains[mix(first ^ held->secret[1], words[2] ^ held->secret[0] ^ first) & (held->capacity - 1)];
}

static uint32_t find(const struct held *held, const struct drop_key *drop)
{
    uint32_t number = *chain_of(held, drop);
    while (number != NO_NUMBER && memcmp(&held->keys[number].drop, drop, sizeof(*drop)) != 0) {
        number = held->keys[number].next;
    }
    return number;
}

static uint32_t take_number(struct held *held)
{
    const uint32_t number = held->first_free;
    if (number != NO_NUMBER) {
        held->first_free = held->keys[number].next;
        return number;
    }
    return held->used < held->capacity ? held->used++ : NO_NUMBER;
}

/* NO_NUMBER: there is no room. */
static uint32_t hold(struct held *held, const struct drop_key *drop, const weir_key *key, bool of_bytes)
{
    const uint32_t number = take_number(held);
    if (number == NO_NUMBER) {
        return number;
    }
    struct held_key *entry = &held->keys[number];
    if (!held->kernel.add(held->kernel.arg, drop, number)) {
        entry->next = held->first_free;
        held->first_free = number;
        return NO_NUMBER;
    }
    *entry = (struct held_key){.drop = *drop,
                               .key = *key,
                               .of_bytes = of_bytes,
                               .told_packets = load(&held->slots[number].packets),
                               .told_bytes = load(&held->slots[number].bytes),
                               .next = *chain_of(held, drop)};
    memcpy(entry->bytes, key->data, key->length);
    entry->key.data = entry->bytes;
    *chain_of(held, drop) = number;
    held->count++;
    return number;
}

bool held_until(struct held *held, const struct drop_key *drop, const weir_key *key, bool of_bytes, uint64_t until_ns)
{
    (void) pthread_mutex_lock(&held->mutex);
    uint32_t number = find(held, drop);
    number = number != NO_NUMBER ? number : hold(held, drop, key, of_bytes);
    if (number != NO_NUMBER && load(&held->slots[number].until_ns) < until_ns) {
        store(&held->slots[number].until_ns, until_ns);
    }
    (void) pthread_mutex_unlock(&held->mutex);
    return number != NO_NUMBER;
}

uint32_t held_used(struct held *held)
{
    (void) pthread_mutex_lock(&held->mutex);
    const uint32_t used = held->used;
    (void) pthread_mutex_unlock(&held->mutex);
    return used;
}

uint32_t held_count(struct held *held)
{
    (void) pthread_mutex_lock(&held->mutex);
    const uint32_t count = held->count;
    (void) pthread_mutex_unlock(&held->mutex);
    return count;
}

void held_release_all(struct held *held)
{
    (void) pthread_mutex_lock(&held->mutex);
    for (uint32_t i = 0; i < held->used; i++) {
        store(&held->slots[i].until_ns, 0);
    }
    (void) pthread_mutex_unlock(&held->mutex);
}

static void let_go(struct held *held, uint32_t number, uint64_t now_ns)
{
    struct held_key *entry = &held->keys[number];
    uint32_t *at = chain_of(held, &entry->drop);
    while (*at != number) {
        at = &held->keys[*at].next;
    }
    *at = entry->next;
    held->kernel.remove(held->kernel.arg, &entry->drop);
    store(&held->slots[number].until_ns, 0);
    entry->left_ns = now_ns;
    held->count--;
}

/* What was dropped of a key since the last call. False: nothing. */
static bool tell(struct held *held, uint32_t number, struct held_drops *out)
{
    struct held_key *entry = &held->keys[number];
    const uint64_t packets = load(&held->slots[number].packets) - entry->told_packets;
    const uint64_t bytes = load(&held->slots[number].bytes) - entry->told_bytes;
    if (packets == 0) {
        return false;
    }
    entry->told_packets += packets;
    entry->told_bytes += bytes;
    *out = (struct held_drops){
        .key = entry->key, .packets = packets, .units = entry->of_bytes ? bytes : packets, .packet_bytes = bytes};
    memcpy(out->bytes, entry->bytes, sizeof(out->bytes));
    out->key.data = out->bytes;
    return true;
}

size_t held_sweep(struct held *held, uint32_t *cursor, size_t most, uint64_t now_ns, struct held_drops *out)
{
    size_t count = 0;
    (void) pthread_mutex_lock(&held->mutex);
    uint32_t number = *cursor;
    for (size_t i = 0; i < most && number < held->used; i++, number++) {
        struct held_key *entry = &held->keys[number];
        if (entry->key.length == 0) {
            continue; /* its number is free */
        }
        count += tell(held, number, &out[count]);
        if (entry->left_ns == 0 && load(&held->slots[number].until_ns) + HELD_IDLE_NS < now_ns) {
            let_go(held, number, now_ns);
        } else if (entry->left_ns != 0 && entry->left_ns + HELD_REST_NS < now_ns) {
            entry->key.length = 0;
            entry->next = held->first_free;
            held->first_free = number;
        }
    }
    *cursor = number < held->used ? number : 0;
    (void) pthread_mutex_unlock(&held->mutex);
    return count;
}
