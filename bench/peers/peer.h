/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What weir is measured against: other ways to limit rates, behind one interface.
 *
 * One peer is open at a time, with one limit for all of its keys. Every peer is given the same numbers, the same
 * sequence of keys and memory of the same kind; each reads its own clock, as it would in a server. What a peer is
 * known to do better than others (sized tables, quiescent states between batches) it is allowed to do.
 */
#ifndef WEIR_BENCH_PEER_H
#define WEIR_BENCH_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    PEER_KEY_SIZE = 16,
    PEER_BURST = 32 /* keys that are asked at once, by those that can */
};

/* So many units per period, and so many at once; a request takes one. */
struct peer_limit {
    uint64_t units;
    uint64_t period_ns;
    uint64_t burst;
};

/* A thread's place in a sequence of key numbers, which repeats: mask is its length, a power of two, less one. */
struct peer_draws {
    const uint32_t *numbers;
    size_t mask;
    size_t next;
};

struct peer {
    const char *name;
    const char *absent; /* why it is not in this build; NULL: it is, and what follows is set */
    bool keyed;         /* a state per key, found by its bytes at each check; else one state and no lookup */
    bool threads;       /* may run on several threads at once */
    bool sketch;        /* a table of fixed size that confuses keys */
    bool bursts;        /* asks PEER_BURST keys at once; else one at a time */
    bool floods;        /* has a row under a flood: it takes new keys without an end, and is the fastest of its kind */
    bool server;        /* starts a server of its own */
    size_t most_keys;   /* beyond which it takes too long to be of interest; 0: none */
    uint64_t batch;     /* checks to ask run() for at a time */

    /* Begins, with room for so many keys. Returns NULL, or why this machine cannot run it. */
    const char *(*open)(const struct peer_limit *limit, size_t key_count);
    void (*close)(void);

    /* What a thread needs before its first run(), and gives back; NULL where it needs nothing. */
    void *(*attach)(void);
    void (*detach)(void *thread);

    /* Makes `count` checks of the keys drawn, and returns how many were allowed. */
    uint64_t (*run)(void *thread, struct peer_draws *draws, uint64_t count);
};

/* All peers, weir first; those not in this build as well. */
extern const struct peer *const peer_list[];
extern const size_t peer_count;

/* How a sequence is drawn. */
enum peer_spread {
    PEER_UNIFORM,
    PEER_ZIPF, /* exponent 0.99; the frequent keys lie anywhere among the others */
};

/* A sequence over so many keys, the same each time, of at least twice as many draws; NULL: no memory. */
uint32_t *peer_draw(enum peer_spread spread, size_t key_count, size_t *mask);

/* Zeroed memory, on huge pages where the kernel gives them, as weir's tables are; NULL: none to be had. */
void *peer_allocate(size_t size);
void peer_free(void *memory, size_t size);

uint64_t peer_now_ns(void);

/* The bytes of a key, written by one store. */
typedef uint64_t peer_key_words __attribute__((vector_size(PEER_KEY_SIZE)));

/*
 * The bytes of a key, made rather than read: a server has them at hand, in the packet it is looking at. A load of
 * sixteen bytes cannot be served from two stores that are still on their way to the cache: it waits until both have
 * arrived. A peer that loads its key so would be charged for that.
 */
static inline void peer_key(uint32_t number, unsigned char key[PEER_KEY_SIZE])
{
    const peer_key_words words = {number * UINT64_C(0x9e3779b97f4a7c15), number};
    memcpy(key, &words, PEER_KEY_SIZE);
}

static inline uint32_t peer_next(struct peer_draws *draws)
{
    return draws->numbers[draws->next++ & draws->mask];
}

static inline void peer_next_key(struct peer_draws *draws, unsigned char key[PEER_KEY_SIZE])
{
    peer_key(peer_next(draws), key);
}

#ifdef __cplusplus
}
#endif

#endif
