/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work for the background thread: LOAD_KEYS keys that have news in every interval, 20,000 a second. Give them a limit
 * of which they are far beyond, so that none of the news can wait.
 */
#ifndef WEIR_BENCH_LOAD_H
#define WEIR_BENCH_LOAD_H

#include <pthread.h>
#include <stdatomic.h>

#include <weir/weir.h>

#define LOAD_KEYS        4000
#define LOAD_INTERVAL_MS 200 /* the sync interval it is made for */

/*
 * Charges so many keys in each of so many intervals, a part of them at a time. At least one is charged at a time, so
 * that the background thread does not fall asleep.
 */
void load_run(weir *w, weir_thread *t, weir_policy_id policy, size_t count, unsigned intervals);

/* The same in a thread of its own, where and while it is told to. */
struct load {
    weir *w;
    weir_policy_id policy;
    pthread_t thread;
    atomic_bool active, ends;
};

/* 0, or a positive errno value. It begins inactive. */
int load_start(struct load *load, weir *w, weir_policy_id policy);
void load_set(struct load *load, bool active);
void load_stop(struct load *load);

#endif
