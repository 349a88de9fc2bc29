/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which of many packets are taken, so that no more than a number of packets a second are and each packet of a flood has
 * the same chance: one of `every` packets, at random. `every` doubles while the allowance of the second runs low, and
 * halves while more of the allowance is left. What a packet stands for is counted, not estimated: the packets since the
 * last one taken.
 *
 * Threads: one for each sampler.
 */
#ifndef WEIR_GATEWAY_RECORD_SAMPLER_H
#define WEIR_GATEWAY_RECORD_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

struct sampler {
    uint64_t price_ns;          /* the time between two packets that are taken, on the average; 1 or more */
    uint64_t most_ns;           /* the largest allowance */
    uint64_t random;            /* not 0 */
    uint64_t every;             /* one of so many packets is taken, about */
    uint64_t skip;              /* packets that are left out before the next one is looked at */
    uint64_t stands_for;        /* packets since the last one taken */
    uint64_t last_ns, saved_ns; /* when the allowance was added to last; the allowance as time, up to most_ns */
};

/* One packet may be taken in `price_ns`, 1 or more; those of a second, or four, at once. */
void sampler_open(struct sampler *s, uint64_t price_ns, uint64_t seed);

/* No packet was offered for a while: the next one is looked at, whatever the flood before it was. */
static inline void sampler_rest(struct sampler *s)
{
    s->every = 1;
    s->skip = 0;
}

/* Whether this packet is left out without a look at the clock. If not, the caller asks sampler_take(). */
static inline bool sampler_skips(struct sampler *s)
{
    s->stands_for++;
    if (s->skip != 0) {
        s->skip--;
        return true;
    }
    return false;
}

/* Whether the packet is taken. `now_ns`: of a clock that only goes on. */
bool sampler_take(struct sampler *s, uint64_t now_ns);

/* How many packets the packet that was taken stands for, itself included; begins to count anew. */
static inline uint64_t sampler_weight(struct sampler *s)
{
    const uint64_t weight = s->stands_for;
    s->stands_for = 0;
    return weight;
}

#endif
