/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See merge.h. A ring has a slot for each second that waits. Of the traces the one whose next request is the earliest
 * is read on until it is no longer that.
 */
#include "merge.h"

#include <stdlib.h>
#include <string.h>

#define MS_PER_S 1000

/* A power of two above MERGE_WAIT_S: the slots of the ring. */
#define SLOTS 32

/* A slot that had more requests gives its memory back, or to a later slot. */
#define KEPT_MOST (1 << 16)

/* A request this far ahead of all others has a wrong time. */
#define LEAP_S (UINT64_C(366) * 86400)

/* Requests between two pauses. */
#define PAUSE_EVERY 8192

/* A request that waits. */
struct waiting {
    uint64_t cost;
    union {
        char text[8];    /* a short key */
        uint64_t offset; /* of a longer one, in the slot's keys */
    } key;
    uint32_t length;
    uint16_t ms;
    bool whole, address;
};

/* The requests of one second. */
struct slot {
    struct waiting *all;
    size_t count, capacity;
    char *keys;
    size_t keys_size, keys_capacity;
    size_t whole;     /* requests without a time within the second */
    uint16_t from_ms; /* earlier parts of the second went already */
    bool unsorted;    /* a time is before the one that came before it */
    uint16_t last_ms;
};

struct merge {
    struct slot slots[SLOTS];
    uint64_t first_s, newest_s; /* of the seconds that wait: first_s to newest_s */
    bool begun, failed;
    size_t waiting;
    struct merge_counts *counts;
    merge_fn each;
    merge_pause_fn pause;
    void *arg;
    struct waiting *spare; /* the memory of the last slot that had more than KEPT_MOST requests; NULL: none */
    size_t spare_capacity;
    uint32_t *order; /* to sort a slot with */
    size_t order_capacity;
    struct request batch[MERGE_BATCH];
    size_t batch_count;
};

static void *grow(void *memory, size_t *capacity, size_t wanted, size_t size)
{
    if (wanted <= *capacity) {
        return memory;
    }
    const size_t doubled = wanted > 2 * *capacity ? wanted : 2 * *capacity;
    void *grown = realloc(memory, doubled * size);
    *capacity = grown != NULL ? doubled : *capacity;
    return grown;
}

/* Makes room for one more request. */
static bool slot_grow(struct merge *m, struct slot *slot)
{
    if (slot->count == 0 && m->spare != NULL) {
        free(slot->all);
        slot->all = m->spare;
        slot->capacity = m->spare_capacity;
        m->spare = NULL;
        return true;
    }
    struct waiting *all = grow(slot->all, &slot->capacity, slot->count + 1, sizeof(*all));
    slot->all = all != NULL ? all : slot->all;
    return all != NULL;
}

static bool slot_add(struct merge *m, struct slot *slot, const struct record *r, bool timed)
{
    if (slot->count == slot->capacity && !slot_grow(m, slot)) {
        return false;
    }
    struct waiting *w = &slot->all[slot->count];
    *w = (struct waiting){
        .cost = r->cost != 0 ? r->cost : 1, .length = (uint32_t) r->length, .whole = r->whole, .address = r->address};
    w->ms = timed && !r->whole ? (uint16_t) (r->time_ms % MS_PER_S) : 0;
    if (r->length <= sizeof(w->key.text)) {
        memcpy(w->key.text, r->key, r->length);
    } else {
        char *keys = grow(slot->keys, &slot->keys_capacity, slot->keys_size + r->length, 1);
        if (keys == NULL) {
            return false;
        }
        slot->keys = keys;
        memcpy(keys + slot->keys_size, r->key, r->length);
        w->key.offset = slot->keys_size;
        slot->keys_size += r->length;
    }
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
    for (size_t i = 0; i < slot->count; i++) {
        if (slot->all[i].whole) {
            slot->all[i].ms = (uint16_t) (slot->from_ms + quotient);
            remainder += rest;
            const bool carry = remainder >= slot->whole;
            remainder -= carry ? slot->whole : 0;
            quotient += step + carry;
        }
        slot->unsorted = slot->unsorted || (i != 0 && slot->all[i].ms < slot->all[i - 1].ms);
    }
}

/* The order of a slot's requests by time; of one time, as they came. */
static bool slot_sort(struct merge *m, const struct slot *slot)
{
    uint32_t starts[MS_PER_S + 1] = {0};
    uint32_t *order = grow(m->order, &m->order_capacity, slot->count, sizeof(*order));
    if (order == NULL) {
        return false;
    }
    m->order = order;
    for (size_t i = 0; i < slot->count; i++) {
        starts[slot->all[i].ms + 1]++;
    }
    for (size_t ms = 0; ms < MS_PER_S; ms++) {
        starts[ms + 1] += starts[ms];
    }
    for (size_t i = 0; i < slot->count; i++) {
        order[starts[slot->all[i].ms]++] = (uint32_t) i;
    }
    return true;
}

static void give(struct merge *m)
{
    if (m->batch_count != 0) {
        m->each(m->arg, m->batch, m->batch_count);
        m->batch_count = 0;
    }
}

static void slot_reset(struct merge *m, struct slot *slot, uint16_t from_ms)
{
    if (slot->capacity > KEPT_MOST) {
        free(m->spare);
        m->spare = slot->all;
        m->spare_capacity = slot->capacity;
        free(slot->keys);
        *slot = (struct slot){.from_ms = from_ms};
        return;
    }
    slot->count = slot->keys_size = slot->whole = 0;
    slot->unsorted = false;
    slot->last_ms = 0;
    slot->from_ms = from_ms;
}

/* Gives out the earliest second; `partly`: more of it may come. */
static void give_first(struct merge *m, bool partly)
{
    struct slot *slot = &m->slots[m->first_s % SLOTS];
    uint16_t last_ms = slot->from_ms;
    if (slot->whole != 0) {
        slot_spread(slot, partly);
    }
    const bool sorted = slot->unsorted && slot_sort(m, slot);
    m->failed = m->failed || (slot->unsorted && !sorted);
    for (size_t i = 0; i < slot->count; i++) {
        const struct waiting *w = &slot->all[sorted ? m->order[i] : i];
        last_ms = w->ms > last_ms ? w->ms : last_ms;
        m->batch[m->batch_count++] = (struct request){
            .time_ms = m->first_s * MS_PER_S + last_ms,
            .cost = w->cost,
            .key = w->length <= sizeof(w->key.text) ? w->key.text : slot->keys + w->key.offset,
            .length = w->length,
            .address = w->address,
        };
        if (m->batch_count == MERGE_BATCH) {
            give(m);
        }
    }
    give(m);
    m->waiting -= slot->count;
    slot_reset(m, slot, partly ? last_ms : 0);
}

static void give_until(struct merge *m, uint64_t second)
{
    while (m->first_s < second) {
        if (m->waiting == 0) {
            m->slots[m->first_s % SLOTS].from_ms = 0;
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
    while (m->slots[m->first_s % SLOTS].count == 0 && m->first_s < m->newest_s) {
        m->slots[m->first_s % SLOTS].from_ms = 0;
        m->first_s++;
    }
    give_first(m, true);
}

static void add(struct merge *m, struct trace *t)
{
    const struct record *r = &t->head;
    uint64_t second = r->time_ms / MS_PER_S;
    if (!m->begun) {
        m->begun = true;
        m->newest_s = second;
        m->first_s = second > MERGE_WAIT_S ? second - MERGE_WAIT_S : 0;
    }
    if (second > m->newest_s + LEAP_S) {
        m->counts->leaps++;
        t->record_count--;
        return;
    }
    const bool late = second < m->first_s;
    if (second > m->newest_s) {
        m->newest_s = second;
        if (second - m->first_s > MERGE_WAIT_S) {
            give_until(m, second - MERGE_WAIT_S);
        }
    } else if (second < m->newest_s) {
        m->counts->reordered += !late;
        m->counts->late += late;
    }
    if (m->waiting == MERGE_MOST) {
        make_room(m);
    }
    second = second < m->first_s ? m->first_s : second;
    m->failed = !slot_add(m, &m->slots[second % SLOTS], r, !late) || m->failed;
    m->waiting++;
}

/* Whether the next request of one trace comes before that of another; of one time, in the order of the traces. */
static bool is_before(const struct trace *one, const struct trace *other)
{
    return other == NULL || one->head.time_ms < other->head.time_ms ||
           (one->head.time_ms == other->head.time_ms && one < other);
}

/* The trace whose head is the earliest, and the earliest of the others; NULL: there is none. */
static struct trace *earliest(struct trace *traces, const bool *open, size_t count, const struct trace **next)
{
    struct trace *first = NULL;
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

static void read_all(struct merge *m, struct trace *traces, bool *open, size_t count)
{
    struct trace *t;
    const struct trace *next;
    uint64_t read = 0;
    bool go_on = true;
    for (size_t i = 0; i < count; i++) {
        open[i] = trace_next(&traces[i]);
    }
    while (go_on && (t = earliest(traces, open, count, &next)) != NULL) {
        bool more;
        do {
            add(m, t);
            more = trace_next(t);
            go_on = ++read % PAUSE_EVERY != 0 || m->pause(m->arg);
        } while (more && go_on && is_before(t, next) && !m->failed);
        open[t - traces] = more;
        go_on = go_on && !m->failed && !t->stopped;
    }
}

bool merge_run(struct trace *traces, size_t count, merge_fn each, merge_pause_fn pause, void *arg,
               struct merge_counts *counts)
{
    struct merge *m = calloc(1, sizeof(*m));
    bool *open = calloc(count + 1, sizeof(*open));
    *counts = (struct merge_counts){0, 0, 0};
    bool good = m != NULL && open != NULL;
    if (good) {
        m->counts = counts;
        m->each = each;
        m->pause = pause;
        m->arg = arg;
        read_all(m, traces, open, count);
        if (m->begun) {
            give_until(m, m->newest_s + 1);
        }
        (void) m->pause(m->arg);
        good = !m->failed;
        for (size_t i = 0; i < SLOTS; i++) {
            free(m->slots[i].all);
            free(m->slots[i].keys);
        }
        free(m->spare);
        free(m->order);
    }
    free(open);
    free(m);
    return good;
}
