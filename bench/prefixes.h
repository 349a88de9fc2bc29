/* SPDX-License-Identifier: Apache-2.0 */
/* What is measured of requests of several keys: an IPv6 address and four of its prefixes. */
#ifndef WEIR_BENCH_PREFIXES_H
#define WEIR_BENCH_PREFIXES_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BENCH_PREFIX_BURST 32 /* requests */

/* A limiter of their own, opened by the first to come. It ends the program where it cannot be opened. */
void *prefixes_attach(void);
void prefixes_detach(void *thread);
void prefixes_close(void);

/* Has every key of prefixes_many and prefixes_burst for so many addresses in the table. */
void prefixes_fill(uint64_t addresses);

/* Each makes `count` requests and returns how many were allowed. The keys are hashed for each request. */
uint64_t prefixes_hot(void *thread, uint64_t count);    /* one address */
uint64_t prefixes_denied(void *thread, uint64_t count); /* one address, whose /56 is at its limit */
/* Addresses that were never seen, in one /48 that is at its limit. */
uint64_t prefixes_flood(void *thread, uint64_t count, uint64_t *rng);
/* Random addresses of so many. Each /64 has four of them, each /56 four of those, and so on. */
uint64_t prefixes_many(void *thread, uint64_t count, uint64_t addresses, uint64_t *rng);
/* The same in bursts of BENCH_PREFIX_BURST. */
uint64_t prefixes_burst(void *thread, uint64_t count, uint64_t addresses, uint64_t *rng);

#ifdef __cplusplus
}
#endif

#endif
