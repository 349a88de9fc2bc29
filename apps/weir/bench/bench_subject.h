/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What weir bench measures: checks of weir, and beside them the baseline, one atomic theoretical arrival time (GCRA)
 * for each key that all threads change, with a clock_gettime at each check.
 */
#ifndef WEIR_BENCH_SUBJECT_H
#define WEIR_BENCH_SUBJECT_H

#include <stdint.h>
#include <weir/weir.h>

enum bench_load { LOAD_HOT, LOAD_DENIED, LOAD_MANY, LOAD_COUNT };

/* Keys of LOAD_MANY. The baseline finds a key by its number, and needs no table for it. */
#define BENCH_MANY_KEYS 100000

struct bench_subjects {
    weir *weir;
    weir_policy_id wide, narrow; /* a limit that is never reached, and one that always is */
    weir_key *keys;              /* of LOAD_MANY, hashed */
    _Atomic uint64_t *arrivals;  /* of the baseline */
};

/* 0, or a negative errno value after a sentence in `error`. The caller closes in both cases. */
int bench_subjects_open(struct bench_subjects *subjects, weir_error *error);
void bench_subjects_close(struct bench_subjects *subjects);

/* `count` checks. Return how many were allowed. */
uint64_t bench_weir(struct bench_subjects *subjects, weir_thread *t, enum bench_load load, uint64_t count,
                    uint64_t *rng);
uint64_t bench_baseline(struct bench_subjects *subjects, enum bench_load load, uint64_t count, uint64_t *rng);

#endif
