/* SPDX-License-Identifier: Apache-2.0 */
/* What is measured of weir's own calls, as C functions; bench.cpp only registers them. */
#ifndef WEIR_BENCH_SUBJECTS_H
#define WEIR_BENCH_SUBJECTS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BENCH_KEYS       1000000 /* it has room for, where nothing else is said */
#define BENCH_BURST_MAX  256
#define BENCH_LIMITS_MAX 4
#define BENCH_ALL_MAX    4

/* How many keys the weir has room for: BENCH_KEYS, or as many as are used. Before it is opened. */
void bench_use_keys(uint64_t keys);
uint64_t bench_key_count(void);

/* One weir for all threads, opened by the first to come, and awake. It ends the program where it cannot be opened. */
void *bench_attach(void);
void bench_detach(void *thread);
void bench_close(void);

/* Has every key of bench_many and bench_burst in the table, so that it is not adding them that is measured. */
void bench_fill(void);

/* Each makes `count` calls and returns how many were allowed. */
uint64_t bench_floor(void *thread, uint64_t count);         /* floor.h, beside which weir stands */
uint64_t bench_floor_hash_16(void *thread, uint64_t count); /* the same, a key of 16 bytes hashed before */
uint64_t bench_floor_hash_64(void *thread, uint64_t count);
uint64_t bench_hot(void *thread, uint64_t count);         /* one key, prepared, verdict asked for */
uint64_t bench_hot_hash_16(void *thread, uint64_t count); /* one key of 16 bytes, hashed each time */
uint64_t bench_hot_hash_64(void *thread, uint64_t count);
uint64_t bench_denied(void *thread, uint64_t count);  /* one key at its limit, verdict asked for */
uint64_t bench_ask(void *thread, uint64_t count);     /* weir_check of cost 0 */
uint64_t bench_peek(void *thread, uint64_t count);    /* weir_peek; one in 64 is a weir_check, so that the key is hot */
uint64_t bench_log(void *thread, uint64_t count);     /* a hot key of a sliding log */
uint64_t bench_queue(void *thread, uint64_t count);   /* weir_reserve on a leaky bucket */
uint64_t bench_reserve(void *thread, uint64_t count); /* weir_reserve on a token bucket */
uint64_t bench_charge(void *thread, uint64_t count);  /* weir_charge */
uint64_t bench_used(void *thread, uint64_t count);    /* a weir_charge and a weir_refund */
uint64_t bench_refund(void *thread, uint64_t count);  /* a weir_check and a weir_refund */

uint64_t bench_limits(void *thread, uint64_t count, size_t limits); /* one key under 1 to BENCH_LIMITS_MAX limits */
uint64_t bench_all(void *thread, uint64_t count, size_t keys);      /* weir_check_all of 1 to BENCH_ALL_MAX hot keys */
uint64_t bench_own(void *thread, uint64_t count, uint64_t number);  /* a hot key of that number */

/* Random keys of 16 bytes, hashed; and the same in bursts of `size`, up to BENCH_BURST_MAX. */
uint64_t bench_many(void *thread, uint64_t count, uint64_t keys, uint64_t *rng);
uint64_t bench_burst(void *thread, uint64_t count, uint64_t keys, size_t size, uint64_t *rng);
/* The same one at a time, each prefetched so many checks before its own: a power of two, up to BENCH_AHEAD_MAX. */
#define BENCH_AHEAD_MAX 8
uint64_t bench_prefetched(void *thread, uint64_t count, uint64_t keys, size_t ahead, uint64_t *rng);

#ifdef __cplusplus
}
#endif

#endif
