/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BENCH_AWAKE_H
#define WEIR_BENCH_AWAKE_H

#include <stdint.h>

#include <weir/weir.h>

/*
 * A weir that nobody asks falls asleep, and what it is asked then goes to the table until its background thread looks,
 * ten times a second. That is not what is to be measured: checks `key` until most checks are hits (or for so long that
 * something else is wrong, which the figures will show).
 */
static inline void awake_wait(const weir *w, weir_thread *t, const weir_key *key)
{
    uint64_t slow = 1000;
    for (int round = 0; round < 2000 && slow > 100; round++) {
        weir_stats before;
        weir_stats after;
        weir_get_stats(w, &before);
        for (int i = 0; i < 1000; i++) {
            (void) weir_check(t, key, 1, NULL);
        }
        weir_get_stats(w, &after);
        slow = after.slow_count - before.slow_count;
    }
}

#endif
