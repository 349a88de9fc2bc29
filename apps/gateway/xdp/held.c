/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See held.h.
 *
 * Invariants:
 *   a held source or network has a line, and the line its number
 *   a key that was let go is in no line, and the line that it had lets packets pass and is nobody's until it has rested
 */
#include "held.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define NO_NUMBER UINT32_MAX

/* The kernel's program writes the counts, and reads the time. */
static uint64_t load(const __u64 *word)
{
    return __atomic_load_n(word, __ATOMIC_RELAXED);
}

/* Behind the line's key. */
static void store(__u64 *word, uint64_t value)
{
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

int held_open(struct held *held, uint32_t capacity, struct drop_line *lines, uint32_t line_count)
{
    *held = (struct held){.lines = {.at = lines, .count = line_count}, .capacity = capacity, .first_free = NO_NUMBER};
    held->keys = calloc(capacity, sizeof(*held->keys));
    if (held->keys == NULL ||
        getrandom(held->lines.secret, sizeof(held->lines.secret), 0) != sizeof(held->lines.secret) ||
        pthread_mutex_init(&held->mutex, NULL) != 0) {
        free(held->keys);
        return -ENOMEM;
    }
    return 0;
}

void held_close(struct held *held)
{
    free(held->keys);
    (void) pthread_mutex_destroy(&held->mutex);
}

static struct drop_line *line_of(const struct held *held, uint32_t number)
{
    return &held->lines.at[held->keys[number].line];
}

static uint32_t find(const struct held *held, const struct drop_key *drop)
{
    const uint32_t line = lines_find(&held->lines, drop);
    return line != LINES_NONE ? lines_number(&held->lines, line) : NO_NUMBER;
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
    const uint32_t line = lines_place(&held->lines, drop, number);
    if (line == LINES_NONE) {
        entry->next = held->first_free;
        held->first_free = number;
        return NO_NUMBER;
    }
    *entry = (struct held_key){.key = *key,
                               .of_bytes = of_bytes,
                               .told_packets = load(&held->lines.at[line].packets),
                               .told_bytes = load(&held->lines.at[line].bytes),
                               .line = line};
    memcpy(entry->bytes, key->data, key->length);
    entry->key.data = entry->bytes;
    held->count++;
    return number;
}

static void raise_until(struct drop_line *line, uint64_t until_ns)
{
    if (load(&line->until_ns) < until_ns) {
        store(&line->until_ns, until_ns);
    }
}

bool held_until(struct held *held, const struct drop_key *drop, const weir_key *key, bool of_bytes, uint64_t until_ns)
{
    (void) pthread_mutex_lock(&held->mutex);
    uint32_t number = find(held, drop);
    number = number != NO_NUMBER ? number : hold(held, drop, key, of_bytes);
    if (number != NO_NUMBER) {
        held->keys[number].renewals = 0;
        raise_until(line_of(held, number), until_ns);
    }
    (void) pthread_mutex_unlock(&held->mutex);
    return number != NO_NUMBER;
}

void held_renew(struct held *held, const struct drop_key *drop, uint64_t until_ns)
{
    (void) pthread_mutex_lock(&held->mutex);
    const uint32_t number = find(held, drop);
    if (number != NO_NUMBER && load(&line_of(held, number)->until_ns) != 0) {
        held->keys[number].renewals++;
        raise_until(line_of(held, number), until_ns);
    }
    (void) pthread_mutex_unlock(&held->mutex);
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
        store(&line_of(held, i)->until_ns, 0);
    }
    (void) pthread_mutex_unlock(&held->mutex);
}

static void let_go(struct held *held, uint32_t number, uint64_t now_ns)
{
    lines_clear(&held->lines, held->keys[number].line);
    held->keys[number].left_ns = now_ns;
    held->count--;
}

/* What was dropped of a key since the last call. False: nothing. */
static bool tell(struct held *held, uint32_t number, struct held_drops *out)
{
    struct held_key *entry = &held->keys[number];
    const uint64_t packets = load(&line_of(held, number)->packets) - entry->told_packets;
    const uint64_t bytes = load(&line_of(held, number)->bytes) - entry->told_bytes;
    if (packets == 0) {
        return false;
    }
    entry->told_packets += packets;
    entry->told_bytes += bytes;
    *out = (struct held_drops){.key = entry->key,
                               .packets = packets,
                               .units = entry->of_bytes ? bytes : packets,
                               .packet_bytes = bytes,
                               .drop = line_of(held, number)->key};
    if (entry->left_ns == 0 && entry->renewals < HELD_RENEWALS) {
        out->until_ns = load(&line_of(held, number)->until_ns);
    }
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
        if (entry->left_ns == 0 && load(&line_of(held, number)->until_ns) + HELD_IDLE_NS < now_ns) {
            let_go(held, number, now_ns);
        } else if (entry->left_ns != 0 && entry->left_ns + HELD_REST_NS < now_ns) {
            lines_free(&held->lines, entry->line);
            entry->key.length = 0;
            entry->next = held->first_free;
            held->first_free = number;
        }
    }
    *cursor = number < held->used ? number : 0;
    (void) pthread_mutex_unlock(&held->mutex);
    return count;
}
