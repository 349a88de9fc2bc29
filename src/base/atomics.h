/* SPDX-License-Identifier: Apache-2.0 */
/*
 * C11 atomics through names that carry their ordering. No other file spells memory orders out.
 *
 * A comment at each use says what a non-relaxed operation pairs with, or why a relaxed one on shared data is enough.
 *
 * Names: load_, store_, add_, or_, and_, exchange_, cas_, fence_, counter_, raise_.
 */
#ifndef WEIR_BASE_ATOMICS_H
#define WEIR_BASE_ATOMICS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define load_relaxed(p)        atomic_load_explicit((p), memory_order_relaxed)
#define load_acquire(p)        atomic_load_explicit((p), memory_order_acquire)
#define load_seq_cst(p)        atomic_load_explicit((p), memory_order_seq_cst)
#define store_relaxed(p, v)    atomic_store_explicit((p), (v), memory_order_relaxed)
#define store_release(p, v)    atomic_store_explicit((p), (v), memory_order_release)
#define add_relaxed(p, v)      atomic_fetch_add_explicit((p), (v), memory_order_relaxed)
#define add_release(p, v)      atomic_fetch_add_explicit((p), (v), memory_order_release)
#define add_seq_cst(p, v)      atomic_fetch_add_explicit((p), (v), memory_order_seq_cst)
#define or_relaxed(p, v)       atomic_fetch_or_explicit((p), (v), memory_order_relaxed)
#define or_seq_cst(p, v)       atomic_fetch_or_explicit((p), (v), memory_order_seq_cst)
#define and_seq_cst(p, v)      atomic_fetch_and_explicit((p), (v), memory_order_seq_cst)
#define exchange_relaxed(p, v) atomic_exchange_explicit((p), (v), memory_order_relaxed)
#define exchange_acquire(p, v) atomic_exchange_explicit((p), (v), memory_order_acquire)
#define exchange_release(p, v) atomic_exchange_explicit((p), (v), memory_order_release)
#define exchange_seq_cst(p, v) atomic_exchange_explicit((p), (v), memory_order_seq_cst)
#define cas_acquire(p, e, v)                                                                                           \
    atomic_compare_exchange_strong_explicit((p), (e), (v), memory_order_acquire, memory_order_relaxed)
#define cas_relaxed(p, e, v)                                                                                           \
    atomic_compare_exchange_strong_explicit((p), (e), (v), memory_order_relaxed, memory_order_relaxed)
#define cas_release(p, e, v)                                                                                           \
    atomic_compare_exchange_strong_explicit((p), (e), (v), memory_order_release, memory_order_relaxed)
#define cas_seq_cst(p, e, v)                                                                                           \
    atomic_compare_exchange_strong_explicit((p), (e), (v), memory_order_seq_cst, memory_order_seq_cst)
#define fence_seq_cst() atomic_thread_fence(memory_order_seq_cst)
/* Keeps the compiler's order alone: one side of an asymmetric barrier (barrier.h). */
#define fence_compiler() atomic_signal_fence(memory_order_seq_cst)

/* A counter with one writer: no read-modify-write is needed, and readers may see it a little late. */
static inline void counter_add(_Atomic uint64_t *counter, uint64_t n)
{
    store_relaxed(counter, load_relaxed(counter) + n);
}

/* Raises *p to v, if *p is lower. Relaxed: for values that stand for themselves, such as times. */
static inline void raise_relaxed(_Atomic uint64_t *p, uint64_t v)
{
    uint64_t seen = load_relaxed(p);
    while (seen < v && !cas_relaxed(p, &seen, v)) {
    }
}

#endif
