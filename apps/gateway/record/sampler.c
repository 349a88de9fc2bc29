/* SPDX-License-Identifier: Apache-2.0 */
/* See sampler.h. */
#include "sampler.h"

#define SECOND_NS UINT64_C(1000000000)
/* An allowance has room for so many packets at least. */
#define SAVED_PACKETS 4
#define EVERY_MOST    (UINT64_C(1) << 20)

void sampler_open(struct sampler *s, uint64_t price_ns, uint64_t seed)
{
    const uint64_t most_ns = SAVED_PACKETS * price_ns > SECOND_NS ? SAVED_PACKETS * price_ns : SECOND_NS;
    *s =
        (struct sampler){.price_ns = price_ns, .most_ns = most_ns, .random = seed | 1, .every = 1, .saved_ns = most_ns};
}

/* Marsaglia's xorshift64. */
static uint64_t draw(struct sampler *s, uint64_t below)
{
    s->random ^= s->random << 13;
    s->random ^= s->random >> 7;
    s->random ^= s->random << 17;
    return (s->random >> 16) % below;
}

bool sampler_take(struct sampler *s, uint64_t now_ns)
{
    const uint64_t price_ns = s->price_ns;
    const uint64_t passed_ns = now_ns > s->last_ns ? now_ns - s->last_ns : 0;
    s->last_ns = now_ns;
    s->saved_ns = passed_ns < s->most_ns - s->saved_ns ? s->saved_ns + passed_ns : s->most_ns;
    const bool takes = s->saved_ns >= price_ns;
    if (takes) {
        s->saved_ns -= price_ns;
    }
    /* Only while the allowance moves on in the same direction: else `every` would overshoot by far. */
    if (s->saved_ns < s->most_ns / 2 && passed_ns < price_ns) {
        s->every = s->every < EVERY_MOST ? 2 * s->every : EVERY_MOST;
    } else if (s->saved_ns > s->most_ns / 2 && passed_ns > price_ns && s->every > 1) {
        s->every /= 2;
    }
    s->skip = draw(s, 2 * s->every - 1); /* every - 1 on the average */
    return takes;
}
