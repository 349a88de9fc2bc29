/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is known of each key, in fixed memory.
 *
 * Up to `max` keys all of them are known, and all figures are exact. Beyond that the table keeps a sample of the keys,
 * and those that were denied most. A key is in the sample when its hash is at most a threshold, which is halved when
 * the table is full. So each key of the sample is known from its first request on, and shares over the sample are those
 * over all keys, but for chance: with n keys in the sample a share p has the standard error sqrt(p (1 - p) / n). A key
 * outside of the sample is known from its first denial on. When the table is full those with the fewest denials go; a
 * count of denials may lack as many as `lost`.
 */
#ifndef WEIR_SIMULATE_CLIENTS_H
#define WEIR_SIMULATE_CLIENTS_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"
#include "candidates.h"

#define KEY_INSIDE 24

/* The first cache line is what a request needs that is not denied. */
struct client {
    _Alignas(64) uint64_t hash;
    uint64_t requests;
    union {
        char text[KEY_INSIDE];
        char *more; /* of a longer key, on the heap */
    } key;
    uint32_t second, in_second, peak; /* the present second, its requests, and the most of any second */
    uint16_t length;
    bool address, stretched; /* every request since stretch_ms was denied */
    uint64_t denied_old;
    uint64_t denied;
    uint64_t first_ms, last_ms;      /* of the denials */
    uint64_t stretch_ms, longest_ms; /* when the present stretch began; the longest from first to last denial */
};
static_assert(offsetof(struct client, denied_old) < 64, "what a request needs is in one cache line");

struct clients {
    struct client *all;
    struct candidate_row *rows; /* row_count for each client */
    size_t row_count;
    size_t count, max;
    uint64_t *slots; /* the number of a client + 1, under 32 bits of its hash */
    size_t slot_mask;
    uint64_t threshold;
    unsigned halvings; /* of the threshold */
    uint64_t lost;     /* see above */
    struct hash_secret secret;
};

/* `max` keys, with `row_count` limits that are tried. False: out of memory. */
bool clients_open(struct clients *c, size_t max, size_t row_count);
void clients_close(struct clients *c);

uint64_t clients_hash(const struct clients *c, const char *key, size_t length);
/* Ask for the memory that clients_get will look at: first for the slot, and some time later for the client in it. */
void clients_prefetch_slot(const struct clients *c, uint64_t hash);
void clients_prefetch_client(const struct clients *c, uint64_t hash);

/* A key as the table wants it. */
struct client_key {
    uint64_t hash;
    const char *text;
    size_t length;
    bool address;
};

/*
 * The client of a key, which is new where it was not known. `denied`: it is taken in outside of the sample too. NULL:
 * it is not, and is not known. The pointer is valid until the next call.
 */
struct client *clients_get(struct clients *c, const struct client_key *key, bool denied);

static inline struct candidate_row *clients_rows(const struct clients *c, const struct client *client)
{
    return &c->rows[(size_t) (client - c->all) * c->row_count];
}

static inline const char *client_key_text(const struct client *client)
{
    return client->length <= KEY_INSIDE ? client->key.text : client->key.more;
}

static inline bool clients_sampled(const struct clients *c, const struct client *client)
{
    return client->hash <= c->threshold;
}

#endif
