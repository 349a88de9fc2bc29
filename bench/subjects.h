/* SPDX-License-Identifier: Apache-2.0 */
/* What is measured, as C functions; bench.cpp only registers them. */
#ifndef WEIR_BENCH_SUBJECTS_H
#define WEIR_BENCH_SUBJECTS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* weir: opened once for all threads. */
void bench_weir_open(size_t max_keys);
void bench_weir_close(void);
void *bench_weir_attach(void);
void *bench_hung_attach(void);
void bench_weir_detach(void *thread);

/* Each makes `count` checks and returns how many were allowed. */
uint64_t bench_hot(void *thread, uint64_t count);         /* one key, prepared, verdict asked for */
uint64_t bench_hot_hashed(void *thread, uint64_t count);  /* one key of 16 bytes, hashed each time */
uint64_t bench_denied(void *thread, uint64_t count);      /* one key at its limit, verdict asked for */
uint64_t bench_four_limits(void *thread, uint64_t count); /* one key under four limits */
uint64_t bench_log(void *thread, uint64_t count);         /* a hot key of a sliding log */
uint64_t bench_queue(void *thread, uint64_t count);       /* weir_reserve on a leaky bucket */
uint64_t bench_all(void *thread, uint64_t count);         /* weir_check_all of two hot keys, five limits */
uint64_t bench_used(void *thread, uint64_t count);        /* a weir_charge and a weir_refund */
uint64_t bench_hot_hung(void *thread, uint64_t count);    /* as bench_hot, on a weir whose Redis never answers */
uint64_t bench_many_keys(void *thread, uint64_t count, uint64_t keys, uint64_t *rng); /* random keys of 16 bytes */

/* The same in bursts of `size`, up to BENCH_BURST_MAX. */
#define BENCH_BURST_MAX 256
uint64_t bench_burst(void *thread, uint64_t count, uint64_t keys, size_t size, uint64_t *rng);

#ifdef __cplusplus
}
#endif

#endif
