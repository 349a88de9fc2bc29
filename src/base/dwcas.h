/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two words that change together: Concurrency Kit's double-word compare-and-swap.
 *
 * What this file relies on: ck_pr_cas_64_2_value is one atomic compare-and-swap of sixteen aligned bytes. On x86-64
 * that is a lock cmpxchg16b, a full barrier. On other machines ck orders nothing, so the fences here do. Under
 * ThreadSanitizer and the static analyser, which cannot see into ck's assembly, the compiler's own sixteen-byte atomic
 * takes its place.
 */
#ifndef WEIR_BASE_DWCAS_H
#define WEIR_BASE_DWCAS_H

#include <ck_pr.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/atomics.h"
#include "base/compiler.h"

struct dwcas {
    _Alignas(16) _Atomic uint64_t a;
    _Atomic uint64_t b;
};

struct dwcas_value {
    uint64_t a, b;
};

_Static_assert(sizeof(struct dwcas) == 16, "one double word");

#if defined(COMPILER_THREAD_SANITIZER) || defined(__clang_analyzer__)
#define DWCAS_BY_COMPILER 1 /* a switch */
#endif

/*
 * If *p is *expected, writes `desired` and returns true. Else stores *p in *expected and returns false.
 * Ordering: sequentially consistent and a full barrier, also when it fails.
 */
static inline bool dwcas_swap(struct dwcas *p, struct dwcas_value *expected, struct dwcas_value desired)
{
#ifdef DWCAS_BY_COMPILER
    __extension__ typedef unsigned __int128 wide;
    wide e = (wide) expected->b << 64 | expected->a;
    const wide d = (wide) desired.b << 64 | desired.a;
    const bool done =
        __atomic_compare_exchange_n((wide *) (void *) p, &e, d, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    if (!done) {
        expected->a = (uint64_t) e;
        expected->b = (uint64_t) (e >> 64);
    }
    return done;
#else
    uint64_t compare[2] = {expected->a, expected->b};
    uint64_t set[2] = {desired.a, desired.b};
    uint64_t original[2];
#if !defined(__x86_64__)
    fence_seq_cst();
#endif
    const bool done = ck_pr_cas_64_2_value((uint64_t *) (void *) p, compare, set, original);
#if !defined(__x86_64__)
    fence_seq_cst();
#endif
    if (!done) {
        expected->a = original[0];
        expected->b = original[1];
    }
    return done;
#endif
}

/*
 * Both words as they were at one moment: read twice until both readings agree. A value that changed and changed back
 * in between is not noticed; a caller that acts on the value confirms it with dwcas_swap.
 */
static inline struct dwcas_value dwcas_read(const struct dwcas *p)
{
    struct dwcas_value v;
    do {
        /* Acquire keeps the second reading behind the first. */
        v.b = load_acquire(&p->b);
        v.a = load_acquire(&p->a);
    } while (load_acquire(&p->b) != v.b || load_acquire(&p->a) != v.a);
    return v;
}

/*
 * Both words, perhaps of two moments. For callers whose only act is a dwcas_swap, which fails if they are. b is read
 * first; what the caller reads afterwards is no older than either word.
 */
static inline struct dwcas_value dwcas_guess(const struct dwcas *p)
{
    struct dwcas_value v;
    v.b = load_acquire(&p->b);
    v.a = load_acquire(&p->a);
    return v;
}

#endif
