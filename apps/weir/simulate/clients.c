/* SPDX-License-Identifier: Apache-2.0 */
/* See clients.h. A slot is found by the low bits of the hash; the threshold goes by the high bits. */
#include "clients.h"

#include <stdlib.h>
#include <string.h>

#include "base/pages.h"

/* A key outside of the sample may have every fourth place. */
#define HEAVY_PART 4

#define TAG_OF(hash) ((hash) &UINT64_C(0xffffffff00000000))

/*
 * Zeros, which begin a page, and are present when they are touched: clients are in the order of their first requests,
 * so that huge pages cost no memory. NULL: out of memory.
 */
static void *take(size_t size)
{
    return pages_reserve(size, 0);
}

static void give_back(void *memory, size_t size)
{
    pages_release(memory, size);
}

/* Memory begins somewhere, also where nothing is tried. */
static size_t rows_size(const struct clients *c)
{
    return c->max * (c->row_count != 0 ? c->row_count : 1) * sizeof(*c->rows);
}

bool clients_open(struct clients *c, size_t max, size_t row_count)
{
    size_t slots = 16;
    while (slots < 2 * max) {
        slots *= 2;
    }
    *c = (struct clients){.max = max, .row_count = row_count, .slot_mask = slots - 1, .threshold = UINT64_MAX};
    c->all = take(max * sizeof(*c->all));
    c->rows = take(rows_size(c));
    c->slots = take(slots * sizeof(*c->slots));
    return c->all != NULL && c->rows != NULL && c->slots != NULL && hash_secret_fill(&c->secret) == 0;
}

static void forget_key(const struct client *client)
{
    if (client->length > KEY_INSIDE) {
        free(client->key.more);
    }
}

void clients_close(struct clients *c)
{
    for (size_t i = 0; c->all != NULL && i < c->count; i++) {
        forget_key(&c->all[i]);
    }
    give_back(c->all, c->max * sizeof(*c->all));
    give_back(c->rows, rows_size(c));
    give_back(c->slots, (c->slot_mask + 1) * sizeof(*c->slots));
    *c = (struct clients){NULL};
}

uint64_t clients_hash(const struct clients *c, const char *key, size_t length)
{
    return hash_keyed(&c->secret, key, length);
}

void clients_prefetch_slot(const struct clients *c, uint64_t hash)
{
    __builtin_prefetch(&c->slots[hash & c->slot_mask]);
}

/* Bytes of a cache line. */
#define LINE_SIZE 64

/* Of a key that is not in its first slot the wrong client is asked for, which costs time alone. */
void clients_prefetch_client(const struct clients *c, uint64_t hash)
{
    const uint64_t slot = c->slots[hash & c->slot_mask];
    if (slot == 0) {
        return;
    }
    const size_t number = (uint32_t) slot - 1;
    const char *client = (const char *) &c->all[number];
    const char *rows = (const char *) &c->rows[number * c->row_count];
    __builtin_prefetch(client, 1);
    /* What a bucket needs: the row without the window before. */
    for (size_t at = 0; at < offsetof(struct candidate_row, previous); at += LINE_SIZE) {
        __builtin_prefetch(rows + at, 1);
    }
}

static bool is_key(const struct client *client, const struct client_key *key)
{
    return client->hash == key->hash && client->length == key->length &&
           memcmp(client_key_text(client), key->text, key->length) == 0;
}

/* The slot of a key, or the free one where it belongs. */
static uint64_t *find_slot(struct clients *c, const struct client_key *key)
{
    size_t at = key->hash & c->slot_mask;
    while (c->slots[at] != 0) {
        if (TAG_OF(c->slots[at]) == TAG_OF(key->hash) && is_key(&c->all[(uint32_t) c->slots[at] - 1], key)) {
            break;
        }
        at = (at + 1) & c->slot_mask;
    }
    return &c->slots[at];
}

static int compare_down(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *) a, y = *(const uint64_t *) b;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* The denials at or below which keys outside of the sample go. False: out of memory. */
static bool heavy_cutoff(const struct clients *c, uint64_t *cutoff)
{
    uint64_t *denials = malloc((c->count + 1) * sizeof(*denials));
    size_t count = 0;
    *cutoff = 0;
    if (denials == NULL) {
        return false;
    }
    for (size_t i = 0; i < c->count; i++) {
        if (!clients_sampled(c, &c->all[i]) && c->all[i].denied != 0) {
            denials[count++] = c->all[i].denied;
        }
    }
    if (count > c->max / HEAVY_PART) {
        qsort(denials, count, sizeof(*denials), compare_down);
        *cutoff = denials[c->max / HEAVY_PART];
    }
    free(denials);
    return true;
}

/* Moves the clients that stay together, and finds their slots anew. */
static void keep_clients(struct clients *c, uint64_t cutoff)
{
    size_t kept = 0;
    const size_t row_size = c->row_count * sizeof(*c->rows);
    memset(c->slots, 0, (c->slot_mask + 1) * sizeof(*c->slots));
    for (size_t i = 0; i < c->count; i++) {
        const struct client *client = &c->all[i];
        if (!clients_sampled(c, client) && client->denied <= cutoff) {
            forget_key(client);
            continue;
        }
        if (kept != i) {
            c->all[kept] = *client;
            memcpy(&c->rows[kept * c->row_count], &c->rows[i * c->row_count], row_size);
        }
        size_t at = c->all[kept].hash & c->slot_mask;
        while (c->slots[at] != 0) {
            at = (at + 1) & c->slot_mask;
        }
        c->slots[at] = TAG_OF(c->all[kept].hash) | (kept + 1);
        kept++;
    }
    memset(&c->rows[kept * c->row_count], 0, (c->count - kept) * row_size);
    c->count = kept;
}

static size_t count_sampled(const struct clients *c)
{
    size_t count = 0;
    for (size_t i = 0; i < c->count; i++) {
        count += clients_sampled(c, &c->all[i]);
    }
    return count;
}

/*
 * Makes room: the sample has at most half of the places, and the others that stay HEAVY_PART of them. So at least a
 * quarter is free, and the cost of this is that of many keys. False: out of memory.
 */
static bool cull(struct clients *c)
{
    uint64_t cutoff;
    while (count_sampled(c) > c->max / 2) {
        c->threshold /= 2;
        c->halvings++;
    }
    if (!heavy_cutoff(c, &cutoff)) {
        return false;
    }
    c->lost += cutoff;
    keep_clients(c, cutoff);
    return true;
}

static bool set_key(struct client *client, const struct client_key *key)
{
    *client = (struct client){.hash = key->hash, .length = (uint16_t) key->length, .address = key->address};
    if (key->length <= KEY_INSIDE) {
        memcpy(client->key.text, key->text, key->length);
        return true;
    }
    client->key.more = malloc(key->length);
    if (client->key.more != NULL) {
        memcpy(client->key.more, key->text, key->length);
    }
    return client->key.more != NULL;
}

struct client *clients_get(struct clients *c, const struct client_key *key, bool denied)
{
    uint64_t *slot = find_slot(c, key);
    if (*slot != 0) {
        return &c->all[(uint32_t) *slot - 1];
    }
    if (key->hash > c->threshold && !denied) {
        return NULL;
    }
    if (c->count == c->max) {
        if (!cull(c) || (key->hash > c->threshold && !denied)) {
            return NULL;
        }
        slot = find_slot(c, key);
    }
    if (!set_key(&c->all[c->count], key)) {
        return NULL;
    }
    *slot = TAG_OF(key->hash) | (c->count + 1);
    return &c->all[c->count++];
}
