/* SPDX-License-Identifier: Apache-2.0 */
/* The list of peers, and what they share. A peer whose package is missing has its place in the list, and a reason. */
#include "peers/peer.h"

#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#define ABSENT(id, label, reason) static const struct peer id = {.name = label, .absent = reason}

extern const struct peer peer_weir, peer_weir_keyed, peer_weir_burst, peer_shared_gcra, peer_mutex_bucket,
    peer_mutex_table;

#ifdef PEER_URCU
extern const struct peer peer_lfht_gcra;
#else
ABSENT(peer_lfht_gcra, "lfht_gcra", "built without liburcu-cds and liburcu-qsbr");
#endif

#ifdef PEER_DPDK
extern const struct peer peer_dpdk_meter, peer_dpdk_hash, peer_dpdk_bulk;
#else
#define WITHOUT_DPDK "built without libdpdk"
ABSENT(peer_dpdk_meter, "dpdk_meter", WITHOUT_DPDK);
ABSENT(peer_dpdk_hash, "dpdk_hash_meter", WITHOUT_DPDK);
ABSENT(peer_dpdk_bulk, "dpdk_bulk", WITHOUT_DPDK);
#endif

#ifdef PEER_REDIS
extern const struct peer peer_redis_incr, peer_redis_gcra;
#else
ABSENT(peer_redis_incr, "redis_incr", "built without it");
ABSENT(peer_redis_gcra, "redis_gcra", "built without it");
#endif

#ifdef PEER_RUST
extern const struct peer peer_governor, peer_governor_upkeep, peer_governor_keyed, peer_governor_ahash,
    peer_governor_fold, peer_pingora;
#else
#define WITHOUT_RUST "built without its crate (needs cargo, its registry, and a release build)"
ABSENT(peer_governor, "governor", WITHOUT_RUST);
ABSENT(peer_governor_upkeep, "governor_upkeep", WITHOUT_RUST);
ABSENT(peer_governor_keyed, "governor_keyed", WITHOUT_RUST);
ABSENT(peer_governor_ahash, "governor_ahash", WITHOUT_RUST);
ABSENT(peer_governor_fold, "governor_fold", WITHOUT_RUST);
ABSENT(peer_pingora, "pingora_rate", WITHOUT_RUST);
#endif

#ifdef PEER_LIMITADOR
extern const struct peer peer_limitador, peer_limitador_cached;
#else
#define WITHOUT_LIMITADOR "built without it (-Dpeer_limitador=auto; needs cargo, its registry and OpenSSL)"
ABSENT(peer_limitador, "limitador_memory", WITHOUT_LIMITADOR);
ABSENT(peer_limitador_cached, "limitador_cached", WITHOUT_LIMITADOR);
#endif

const struct peer *const peer_list[] = {
    &peer_weir,        &peer_weir_keyed,      &peer_weir_burst,       &peer_shared_gcra,    &peer_mutex_bucket,
    &peer_mutex_table, &peer_lfht_gcra,       &peer_dpdk_meter,       &peer_dpdk_hash,      &peer_dpdk_bulk,
    &peer_governor,    &peer_governor_upkeep, &peer_governor_keyed,   &peer_governor_ahash, &peer_governor_fold,
    &peer_pingora,     &peer_limitador,       &peer_limitador_cached, &peer_redis_incr,     &peer_redis_gcra,
};
const size_t peer_count = sizeof(peer_list) / sizeof(peer_list[0]);

uint64_t peer_now_ns(void)
{
    struct timespec now;
    (void) clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t) now.tv_sec * UINT64_C(1000000000) + (uint64_t) now.tv_nsec;
}

void *peer_allocate(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        return NULL;
    }
    if (size >= (size_t) 4 << 20) {
        (void) madvise(memory, size, MADV_HUGEPAGE); /* a wish */
    }
    return memory;
}

void peer_free(void *memory, size_t size)
{
    if (memory != NULL) {
        (void) munmap(memory, size);
    }
}

/* Knuth's 64-bit linear congruential generator; the upper bits. */
static uint32_t random_bits(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t) (*state >> 32);
}

#define ZIPF_EXPONENT 0.99

/* The integral of x^-s, from 1. */
static double zipf_area(double x)
{
    return (pow(x, 1 - ZIPF_EXPONENT) - 1) / (1 - ZIPF_EXPONENT);
}

static double zipf_inverse(double area)
{
    return pow(1 + area * (1 - ZIPF_EXPONENT), 1 / (1 - ZIPF_EXPONENT));
}

/*
 * A rank from 1, by rejection from the continuous density x^-s: rank k takes the area from k - 1/2 to k + 1/2, which is
 * at least its share (the density is convex) but for the part that is thrown away.
 * W. Hoermann, G. Derflinger: Rejection-inversion to generate variates from monotone discrete distributions, 1996.
 */
static size_t zipf_rank(size_t key_count, uint64_t *state)
{
    const double lowest = zipf_area(1.5) - 1; /* rank 1 takes its share of 1 and no more */
    const double highest = zipf_area((double) key_count + 0.5);
    for (;;) {
        const double area = lowest + (highest - lowest) * ((random_bits(state) + 0.5) / 4294967296.0);
        const double rank = fmin(fmax(floor(zipf_inverse(area) + 0.5), 1), (double) key_count);
        if (area >= zipf_area(rank + 0.5) - pow(rank, -ZIPF_EXPONENT)) {
            return (size_t) rank;
        }
    }
}

uint32_t *peer_draw(enum peer_spread spread, size_t key_count, size_t *mask)
{
    const uint64_t stride = 2654435761; /* prime: a permutation of any number of keys that is not a multiple of it */
    size_t length = (size_t) 1 << 16;
    while (length < 2 * key_count) {
        length *= 2;
    }
    uint32_t *numbers = malloc(length * sizeof(*numbers));
    uint64_t state = 42;
    for (size_t i = 0; numbers != NULL && i < length; i++) {
        numbers[i] = spread == PEER_ZIPF ? (uint32_t) (zipf_rank(key_count, &state) * stride % key_count)
                                         : (uint32_t) (((uint64_t) random_bits(&state) * key_count) >> 32);
    }
    *mask = length - 1;
    return numbers;
}
