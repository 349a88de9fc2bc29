/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The least a check can be: a counter that is at hand, asked through a call of a shared library as weir is. What weir
 * takes beyond it is what a limiter takes.
 */
#ifndef WEIR_BENCH_FLOOR_H
#define WEIR_BENCH_FLOOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FLOOR_SECRET_SIZE 192

struct floor_counter {
    uint64_t left;
};

/* One load, one comparison, one addition, one store. */
bool floor_check(struct floor_counter *counter, uint64_t cost);

/* XXH3 with a secret, as weir_make_key's. */
uint64_t floor_hash(const unsigned char secret[FLOOR_SECRET_SIZE], const void *data, size_t length);

#ifdef __cplusplus
}
#endif

#endif
