/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a check of a new key costs beside a check of a held key, in nanoseconds, one at a time and in bursts of 32.
 *
 *     weir-new-keys [KEYS [ROUNDS]]
 *
 * Two limiters: in `room` the new keys find room, in `full` all cells that were made for are taken. In a round each
 * subject is measured once, in turn, so that the ratios are of the same minute. Held keys come in a random order. A key
 * has used a small part of its limit, and no key is back at its fresh state. Printed are the medians of the rounds, and
 * the median of the rounds' ratios.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weir/weir.h>

#include "tools.h"

#define BURST      32
#define PART       65536 /* checks of a subject in a round */
#define MAX_ROUNDS 64

struct subject {
    const char *name;
    weir *limiter;
    weir_thread *thread;
    weir_policy_id policy;
    uint64_t first; /* new keys: the number of the next one */
    uint64_t held;  /* held keys: how many there are; 0: the keys are new */
    bool burst;
    double ns[MAX_ROUNDS];
};

static uint64_t random_state = UINT64_C(0x9e3779b97f4a7c15);

static uint64_t random_next(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static weir_key key_of(const struct subject *subject, uint64_t bytes[2])
{
    const uint64_t number = subject->held != 0 ? random_next() % subject->held : subject->first;
    bytes[0] = number;
    bytes[1] = 0;
    return weir_make_key(subject->limiter, subject->policy, bytes, 2 * sizeof(bytes[0]));
}

static double measure(struct subject *subject)
{
    static uint64_t bytes[PART][2];
    static weir_key keys[PART];
    uint64_t bits;
    for (size_t i = 0; i < PART; i++) {
        keys[i] = key_of(subject, bytes[i]);
        subject->first += subject->held == 0;
    }
    const uint64_t begun_ns = tools_now_ns();
    for (size_t i = 0; i < PART && subject->burst; i += BURST) {
        (void) weir_check_burst(subject->thread, &keys[i], NULL, BURST, &bits);
    }
    for (size_t i = 0; i < PART && !subject->burst; i++) {
        (void) weir_check(subject->thread, &keys[i], 1, NULL);
    }
    return (double) (tools_now_ns() - begun_ns) / PART;
}

static void fill(const struct subject *subject, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t bytes[2] = {i, 0};
        const weir_key key = weir_make_key(subject->limiter, subject->policy, bytes, sizeof(bytes));
        (void) weir_check(subject->thread, &key, 1, NULL);
    }
}

static weir *open_limiter(uint64_t max_keys)
{
    static const weir_limit limit = {.algorithm = WEIR_TOKEN_BUCKET, .limit = 1000, .period_ns = 3600000 * NS_PER_MS};
    static const weir_policy policy = {.name = "api", .limits = &limit, .limit_count = 1};
    weir_options options = WEIR_OPTIONS_INIT;
    weir *w = NULL;
    weir_error error;
    options.max_keys = max_keys;
    if (weir_open(&options, &w, &error) != 0 || weir_set_policies(w, &policy, 1, &error) != 0) {
        (void) fprintf(stderr, "weir-new-keys: %s\n", error.message);
        exit(1);
    }
    return w;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *) a;
    const double y = *(const double *) b;
    return (x > y) - (x < y);
}

static double median(const double *values, size_t count)
{
    double sorted[MAX_ROUNDS];
    memcpy(sorted, values, count * sizeof(*values));
    qsort(sorted, count, sizeof(*sorted), compare);
    return sorted[count / 2];
}

enum { HELD, ROOM, FULL, KINDS };

int main(int argc, char **argv)
{
    const uint64_t keys = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000000;
    const uint64_t rounds = argc > 2 ? strtoull(argv[2], NULL, 10) : 15;
    if (keys == 0 || rounds == 0 || rounds > MAX_ROUNDS) {
        (void) fprintf(stderr, "usage: weir-new-keys [KEYS [ROUNDS]], at most %d rounds\n", MAX_ROUNDS);
        return 2;
    }
    /* `room`: for all its new keys, those of the bursts too. */
    weir *limiters[KINDS] = {open_limiter(keys), open_limiter(keys + 2 * rounds * PART), open_limiter(keys)};
    static struct subject subjects[2 * KINDS];
    static const char *const names[KINDS] = {"held", "room", "full"};
    for (size_t i = 0; i < (size_t) 2 * KINDS; i++) {
        const size_t kind = i / 2;
        struct subject *subject = &subjects[i];
        *subject = (struct subject){.name = names[kind], .limiter = limiters[kind], .burst = i % 2 != 0};
        subject->policy = weir_find_policy(subject->limiter, "api");
        subject->thread = i % 2 == 0 ? weir_attach(subject->limiter) : subjects[i - 1].thread;
        subject->held = kind == HELD ? keys : 0;
        subject->first = keys + (uint64_t) (i % 2) * (UINT64_C(1) << 32);
        if (i % 2 == 0) {
            fill(subject, keys);
        }
    }
    double ratios[2 * KINDS][MAX_ROUNDS];
    for (size_t round = 0; round < rounds; round++) {
        for (size_t i = 0; i < (size_t) 2 * KINDS; i++) {
            subjects[i].ns[round] = measure(&subjects[i]);
            ratios[i][round] = subjects[i].ns[round] / subjects[i % 2].ns[round];
        }
    }
    for (size_t i = 0; i < (size_t) 2 * KINDS; i++) {
        const char *burst = subjects[i].burst ? "burst_32" : "one";
        tools_figure(median(subjects[i].ns, rounds), "ns", "new_keys/%llu/%s/%s", (unsigned long long) keys,
                     subjects[i].name, burst);
        if (i / 2 != HELD) {
            tools_figure(median(ratios[i], rounds), "of_held", "new_keys/%llu/%s/%s/ratio", (unsigned long long) keys,
                         subjects[i].name, burst);
        }
    }
    for (size_t kind = 0; kind < KINDS; kind++) {
        weir_detach(subjects[2 * kind].thread);
        weir_close(limiters[kind]);
    }
    return 0;
}
