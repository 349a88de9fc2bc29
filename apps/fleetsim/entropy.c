/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel's random numbers, drawn from a seed.
 *
 * Nodes draw their ids and the secret of their hashes from getrandom, and with those the places of keys in tables, so
 * no two runs would be quite the same. A program has the first word on the meaning of a library's symbols: this one
 * is linked before the system's.
 */
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/hash.h"
#include "sim.h"

static uint64_t state;
static bool seeded;

void entropy_seed(uint64_t seed)
{
    state = seed;
    seeded = true;
}

ssize_t getrandom(void *buffer, size_t length, unsigned flags)
{
    if (!seeded) {
        return syscall(SYS_getrandom, buffer, length, flags);
    }
    unsigned char *bytes = buffer;
    for (size_t i = 0; i < length; i++) {
        state += UINT64_C(0x9e3779b97f4a7c15);
        bytes[i] = (unsigned char) hash_mix(state);
    }
    return (ssize_t) length;
}
