/* SPDX-License-Identifier: Apache-2.0 */
/* What several tests need: cmocka, a clock that the test moves, a seed that can be given again. */
#ifndef WEIR_TESTS_SUPPORT_H
#define WEIR_TESTS_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/draw.h"
#include "weir/weir.h"

#define SECOND      UINT64_C(1000000000)
#define MILLISECOND UINT64_C(1000000)
#define HOUR        (3600 * SECOND)

/* Whether a sanitizer slows the test down, and counts its memory and locks. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define SANITIZED true
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define SANITIZED true
#endif
#endif
#ifndef SANITIZED
#define SANITIZED false
#endif

/* Whether a sanitizer or an emulator makes each call take ten times as long: such a test draws fewer cases. */
#ifdef EMULATED
#define SLOWED true
#else
#define SLOWED SANITIZED
#endif

/* A clock that the test moves. */
struct fake_clock {
    uint64_t monotonic_ns, wall_ns;
    weir_clock clock;
};

void fake_clock_init(struct fake_clock *fake, uint64_t wall_ns);
void fake_clock_advance(struct fake_clock *fake, uint64_t ns); /* both readings */

/* The system's monotonic time; and its wall clock, in the form of a fleet's. */
uint64_t real_ns(void);
uint64_t real_wall_ns(void *arg);

void nap_ms(long ms);

/* The seed of this process for random_next(): that of WEIR_TEST_SEED, or a new one. It is printed. */
uint64_t test_seed(void);

/* Opens with these options (NULL: defaults), or fails the test. */
weir *open_or_fail(const weir_options *options);

/* Sets one policy "p" with these limits and returns its id, or fails the test. */
weir_policy_id set_one_policy(weir *w, const weir_limit *limits, size_t limit_count, weir_scope scope);

/*
 * How many denials of requests with room there may have been, as a thread was preempted for long while it held units.
 * Few where other programs have the processors, or the test fails; none else.
 */
uint64_t stalled_denials(const weir *w);

/*
 * Peeks until `least` units are left of the key, or for a minute. Returns how many are left: of a bucket more with
 * time, and a refund is of the clock of the thread that made it, which may be a tick ahead of this one's.
 */
uint64_t wait_for_units(weir_thread *t, const weir_key *key, uint64_t least);

/* Runs so many threads, at most 16, with the same argument, and waits for them. */
void run_threads(size_t count, void *(*run)(void *), void *arg);

/* Waits until so many threads are here; returns the number of this one, from 0. */
uint64_t threads_meet(_Atomic uint64_t *ready, uint64_t threads);

/* Threads and descriptors this process has. */
size_t count_threads(void);
/*
 * Waits: for a moment /proc still counts a thread that has been joined. The earlier count may have one too many, too.
 */
void expect_no_more_threads(size_t count);
size_t count_descriptors(void);

/*
 * Descriptor 0 is the next that the system gives, as in a server that has closed its standard input; until
 * give_back_0() with what this returned.
 */
int take_0_away(void);
void give_back_0(int kept);

/* Pages of address space that this process has taken, as the kernel counts them. */
size_t count_mapped_pages(void);

#endif
