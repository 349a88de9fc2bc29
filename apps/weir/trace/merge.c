/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See merge.h. A ring has a slot for each second that waits, and a slot a list of chunks, which come from a pool and go
 * back there. Of the traces the one whose next request is the earliest is read on until it is no longer that.
 */
#include "merge.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "timed.h"

#define MS_PER_S 1000

/* Requests between two pauses. */
#define PAUSE_EVERY 8192

/* So long after a second nearly all of its requests have come: it is given out as a whole where room is wanted. */
#define SETTLED_S 30

/* A request that waits. The next one in its chunk begins at the next multiple of 8. */
struct waiting {
    uint64_t cost;
    uint16_t length;
    uint16_t ms;
    unsigned char kind;
    bool whole, address;
    char key[];
};
static_assert(offsetof(struct waiting, key) == 15 && sizeof(struct waiting) == 16,
              "a request of an IPv4 address takes 24 bytes");

#define CHUNK_SIZE 1024

struct chunk {
    struct chunk *next;
    size_t used;
    _Alignas(8) char bytes[CHUNK_SIZE - 16];
};
static_assert(sizeof(struct chunk) == CHUNK_SIZE, "chunks fill pages");
static_assert(sizeof(struct waiting) + KEY_MOST + 8 <= sizeof(((struct chunk *) NULL)->bytes), "any request fits");

/* So many chunks are allocated at once. */
#define CHUNKS_AT_ONCE 256

struct block {
    struct block *next;
    struct chunk chunks[CHUNKS_AT_ONCE];
};

/* The requests of one second. */
struct slot {
    struct chunk *first, *last;
    size_t count;
    size_t whole;     /* requests without a time within the second */
    uint16_t from_ms; /* earlier parts of the second went already */
    bool unsorted;    /* a time is before the one that came before it */
    uint16_t last_ms;
};

struct merge {
    struct slot *slots;
    size_t slot_mask; /* a power of two, less one */
    uint64_t window_s;
    uint64_t first_s, newest_s; /* the earliest second that waits, and where the traces are */
    uint64_t last_s;            /* the latest second that waits */
    bool begun, failed;
    size_t waiting;
    struct chunk *free_chunks;
    struct block *blocks;
    struct merge_counts *counts;
    const struct merge_taker *taker;
    struct waiting **order; /* to sort a slot with */
    size_t order_capacity;
    struct request batch[MERGE_BATCH];
    size_t batch_count;
};

static struct slot *slot_of(struct merge *m, uint64_t second)
{
    return &m->slots[second & m->slot_mask];
}

/* A chunk of the pool; NULL: out of memory. */
static struct chunk *take_chunk(struct merge *m)
{
    if (m->free_chunks == NULL) {
        struct block *block = malloc(sizeof(*block));
        if (block == NULL) {
            return NULL;
        }
        block->next = m->blocks;
        m->blocks = block;
        for (size_t i = CHUNKS_AT_ONCE; i-- != 0;) {
            block->chunks[i].next = m->free_chunks;
            m->free_chunks = &block->chunks[i];
        }
    }
    struct chunk *chunk = m->free_chunks;
    m->free_chunks = chunk->next;
    chunk->next = NULL;
    chunk->used = 0;
    return chunk;
}

/* The next request of a slot, behind `at` in *chunk. NULL: there is none. */
static struct waiting *next_waiting(struct chunk **chunk, size_t *at)
{
    if (*chunk != NULL && *at == (*chunk)->used) {
        *chunk = (*chunk)->next;
        *at = 0;
        if (*chunk != NULL) {
            __builtin_prefetch((*chunk)->next);
        }
    }
    if (*chunk == NULL) {
        return NULL;
    }
    struct waiting *w = (struct waiting *) (void *) &(*chunk)->bytes[*at];
    *at += (offsetof(struct waiting, key) + w->length + 7) & ~(size_t) 7;
    return w;
}

static bool slot_add(struct merge *m, struct slot *slot, const struct record *r)
{
    const size_t size = (offsetof(struct waiting, key) + r->length + 7) & ~(size_t) 7;
    if (slot->last == NULL || slot->last->used + size > sizeof(slot->last->bytes)) {
        struct chunk *chunk = take_chunk(m);
        if (chunk == NULL) {
            return false;
        }
        *(slot->last != NULL ? &slot->last->next : &slot->first) = chunk;
        slot->last = chunk;
    }
    struct waiting *w = (struct waiting *) (void *) &slot->last->bytes[slot->last->used];
    slot->last->used += size;
    w->cost = r->cost;
    w->length = (uint16_t) r->length;
    w->kind = r->kind;
    w->ms = r->whole ? 0 : (uint16_t) (r->time_ms % MS_PER_S);
    w->whole = r->whole;
    w->address = r->address;
    memcpy(w->key, r->key, r->length);
    slot->whole += r->whole;
    slot->unsorted = slot->unsorted || w->ms < slot->last_ms;
    slot->last_ms = w->ms;
    slot->count++;
    return true;
}

/* Spreads the requests without a time over the second, or over half of what is left of it. */
static void slot_spread(struct slot *slot, bool partly)
{
    const uint64_t left = MS_PER_S - slot->from_ms;
    const uint64_t over = partly || slot->from_ms != 0 ? (left + 1) / 2 : left;
    /* Of the i-th request i * over / whole, as a quotient and a remainder: a division for each would be felt. */
    uint64_t quotient = 0, remainder = 0;
    const uint64_t step = over / slot->whole, rest = over % slot->whole;
    struct chunk *chunk = slot->first;
    size_t at = 0;
    uint16_t last_ms = 0;
    for (struct waiting *w = next_waiting(&chunk, &at); w != NULL; w = next_waiting(&chunk, &at)) {
        if (w->whole) {
            w->ms = (uint16_t) (slot->from_ms + quotient);
            remainder += rest;
            const bool carry = remainder >= slot->whole;
            remainder -= carry ? slot->whole : 0;
            quotient += step + carry;
        }
        slot->unsorted = slot->unsorted || w->ms < last_ms;
        last_ms = w->ms;
    }
}

/* The order of a slot's requests by time; of one time, as they came. */
static bool slot_sort(struct merge *m, const struct slot *slot)
{
    uint32_t starts[MS_PER_S + 1] = {0};
    if (slot->count > m->order_capacity) {
        const size_t wanted = slot->count > 2 * m->order_capacity ? slot->count : 2 * m->order_capacity;
        struct waiting **grown = (struct waiting **) realloc(
            (void *) m->order, wanted * sizeof(*grown)); /* NOLINT(bugprone-sizeof-expression) */
        if (grown == NULL) {
            return false;
        }
        m->order = grown;
        m->order_capacity = wanted;
    }
    struct chunk *chunk = slot->first;
    size_t at = 0;
    for (struct waiting *w = next_waiting(&chunk, &at); w != NULL; w = next_waiting(&chunk, &at)) {
        starts[w->ms + 1]++;
    }
    for (size_t ms = 0; ms < MS_PER_S; ms++) {
        starts[ms + 1] += starts[ms];
    }
    chunk = slot->first;
    at = 0;
    for (struct waiting *w = next_waiting(&chunk, &at); w != NULL; w = next_waiting(&chunk, &at)) {
        m->order[starts[w->ms]++] = w;
    }
    return true;
}

static void give(struct merge *m)
{
    if (m->batch_count != 0) {
        m->taker->each(m->taker->arg, m->batch, m->batch_count);
        m->batch_count = 0;
    }
}

static void give_one(struct merge *m, const struct waiting *w, uint16_t *last_ms)
{
    *last_ms = w->ms > *last_ms ? w->ms : *last_ms;
    m->batch[m->batch_count++] = (struct request){.time_ms = m->first_s * MS_PER_S + *last_ms,
                                                  .cost = w->cost,
                                                  .key = w->key,
                                                  .length = w->length,
                                                  .kind = w->kind,
                                                  .address = w->address};
    if (m->batch_count == MERGE_BATCH) {
        give(m);
    }
}

/* Gives the slot's chunks back to the pool. */
static void slot_reset(struct merge *m, struct slot *slot, uint16_t from_ms)
{
    if (slot->last != NULL) {
        slot->last->next = m->free_chunks;
        m->free_chunks = slot->first;
    }
    *slot = (struct slot){.from_ms = from_ms};
}

/* Gives out the earliest second; `partly`: more of it may come. */
static void give_first(struct merge *m, bool partly)
{
    struct slot *slot = slot_of(m, m->first_s);
    uint16_t last_ms = slot->from_ms;
    if (slot->whole != 0) {
        slot_spread(slot, partly);
    }
    const bool sorted = slot->unsorted && slot_sort(m, slot);
    m->failed = m->failed || (slot->unsorted && !sorted);
    struct chunk *chunk = slot->first;
    size_t at = 0;
    for (size_t i = 0; i < slot->count; i++) {
        give_one(m, sorted ? m->order[i] : next_waiting(&chunk, &at), &last_ms);
    }
    give(m);
    m->waiting -= slot->count;
    slot_reset(m, slot, partly ? last_ms : 0);
}

static void give_until(struct merge *m, uint64_t second)
{
    while (m->first_s < second) {
        if (m->waiting == 0) {
            slot_of(m, m->first_s)->from_ms = 0;
            m->first_s = second;
            return;
        }
        give_first(m, false);
        m->first_s++;
    }
}

/* Makes room by giving out the earliest requests. */
static void make_room(struct merge *m)
{
    while (slot_of(m, m->first_s)->count == 0 && m->first_s < m->last_s) {
        slot_of(m, m->first_s)->from_ms = 0;
        m->first_s++;
    }
    const bool partly = m->newest_s < m->first_s + SETTLED_S;
    give_first(m, partly);
    m->first_s += !partly;
    const uint64_t window_s = m->newest_s > m->first_s ? m->newest_s - m->first_s : 1;
    if (m->counts->shortened_s == 0 || window_s < m->counts->shortened_s) {
        m->counts->shortened_s = window_s;
    }
}

static void add(struct merge *m, const struct timed *t)
{
    const struct record *r = &t->head;
    const uint64_t second = r->time_ms / MS_PER_S;
    if (!m->begun) {
        m->begun = true;
        m->newest_s = m->last_s = second;
        m->first_s = second > m->window_s ? second - m->window_s : 0;
    }
    if (second > m->newest_s && !t->ahead) {
        m->newest_s = second;
        if (second - m->first_s > m->window_s) {
            give_until(m, second - m->window_s);
        }
    }
    if (second < m->first_s || second > m->newest_s + m->window_s) {
        m->counts->late++;
        t->trace->record_count--;
        return;
    }
    m->counts->reordered += second < m->newest_s;
    m->last_s = second > m->last_s ? second : m->last_s;
    if (m->waiting == MERGE_MOST) {
        make_room(m);
    }
    const bool gone = second < m->first_s; /* with what has just made room */
    m->failed = !slot_add(m, slot_of(m, gone ? m->first_s : second), r) || m->failed;
    m->waiting++;
}

/* Whether the next request of one trace comes before that of another; of one time, in the order of the traces. */
static bool is_before(const struct timed *one, const struct timed *other)
{
    return other == NULL || one->head.time_ms < other->head.time_ms ||
           (one->head.time_ms == other->head.time_ms && one < other);
}

/* The trace whose head is the earliest, and the earliest of the others; NULL: there is none. */
static struct timed *earliest(struct timed *traces, const bool *open, size_t count, const struct timed **next)
{
    struct timed *first = NULL;
    *next = NULL;
    for (size_t i = 0; i < count; i++) {
        if (!open[i]) {
            continue;
        }
        if (is_before(&traces[i], first)) {
            *next = first;
            first = &traces[i];
        } else if (is_before(&traces[i], *next)) {
            *next = &traces[i];
        }
    }
    return first;
}

static void read_all(struct merge *m, struct timed *traces, bool *open, size_t count)
{
    struct timed *t;
    const struct timed *next;
    uint64_t read = 0;
    bool go_on = true;
    for (size_t i = 0; i < count; i++) {
        open[i] = timed_next(&traces[i]);
    }
    while (go_on && (t = earliest(traces, open, count, &next)) != NULL) {
        bool more;
        do {
            add(m, t);
            more = timed_next(t);
            go_on = ++read % PAUSE_EVERY != 0 || m->taker->pause(m->taker->arg);
        } while (more && go_on && is_before(t, next) && !m->failed);
        open[t - traces] = more;
        go_on = go_on && !m->failed && !t->trace->stopped;
    }
}

static void free_merge(struct merge *m)
{
    while (m->blocks != NULL) {
        struct block *block = m->blocks;
        m->blocks = block->next;
        free(block);
    }
    free(m->slots);
    free((void *) m->order);
    free(m);
}

/* A merge of this window; NULL: out of memory. */
static struct merge *new_merge(unsigned window_s, const struct merge_taker *taker, struct merge_counts *counts)
{
    struct merge *m = calloc(1, sizeof(*m));
    if (m == NULL) {
        return NULL;
    }
    m->window_s = window_s;
    m->taker = taker;
    m->counts = counts;
    while (m->slot_mask < 2 * m->window_s + 2) { /* from a window behind to a window ahead */
        m->slot_mask = 2 * m->slot_mask + 1;
    }
    m->slots = calloc(m->slot_mask + 1, sizeof(*m->slots));
    if (m->slots == NULL) {
        free_merge(m);
        return NULL;
    }
    return m;
}

static void run(struct merge *m, struct timed *timed, bool *open, size_t count)
{
    read_all(m, timed, open, count);
    if (m->begun) {
        give_until(m, m->last_s + 1);
    }
    (void) m->taker->pause(m->taker->arg);
    for (size_t i = 0; i < count; i++) {
        m->counts->late += timed[i].late;
        m->counts->set_back += timed[i].set_back;
        m->counts->leaps += timed[i].leaps;
        timed[i].trace->record_count -= timed[i].late + timed[i].leaps + timed[i].count;
    }
}

bool merge_run(struct trace *traces, size_t count, unsigned window_s, const struct merge_taker *taker,
               struct merge_counts *counts)
{
    *counts = (struct merge_counts){.reordered = 0};
    struct merge *m = new_merge(window_s, taker, counts);
    struct timed *timed = calloc(count + 1, sizeof(*timed));
    bool *open = calloc(count + 1, sizeof(*open));
    bool good = m != NULL && timed != NULL && open != NULL;
    if (good) {
        for (size_t i = 0; i < count; i++) {
            timed_open(&timed[i], &traces[i], (uint64_t) window_s * MS_PER_S);
        }
        run(m, timed, open, count);
        for (size_t i = 0; i < count; i++) {
            timed_close(&timed[i]);
        }
        good = !m->failed;
    }
    if (m != NULL) {
        free_merge(m);
    }
    free(timed);
    free(open);
    return good;
}
