/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Multiply and fold: each bit of the result depends on many of both words. With a secret in the words, a sender of
 * packets cannot aim at one place of a table. The step is that of wyhash (Wang Yi, 2019).
 */
#ifndef WEIR_GATEWAY_MIX_H
#define WEIR_GATEWAY_MIX_H

#include <stdint.h>

#include "base/numbers.h"

static inline uint64_t mix(uint64_t a, uint64_t b)
{
    const wide_uint product = (wide_uint) a * b;
    return (uint64_t) product ^ (uint64_t) (product >> 64);
}

#endif
