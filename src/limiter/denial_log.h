/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The log lines of policies that deny: the first denial, the running count, the end, and the keys that were denied
 * most.
 *
 * A policy and its tiers share one line, as in the lists of top offenders. Once a second the background thread sums the
 * counters of the threads; checks do no work for the log.
 *
 * Invariants
 *   L1  Two lines of one policy are at least DENIAL_LINE_NS apart, so a policy has at most six lines a minute.
 *
 *   L2  A policy's lines are "begins", any number of "denies", "no more", and again from the start. Every denial is in
 *       the count of one line before "no more", and of the "no more".
 *
 *   L3  A list in `recent` has the denials since the last line of its policy.
 *
 * Progress: the policy lock is only tried, and never held while the host's log function runs.
 */
#ifndef WEIR_LIMITER_DENIAL_LOG_H
#define WEIR_LIMITER_DENIAL_LOG_H

#include <stddef.h>
#include <stdint.h>

#include "algorithm/top_k.h"
#include "base/numbers.h"
#include "weir/weir.h"

/* weir.h and docs/operations.md promise this one. */
#define DENIAL_LINE_NS (10 * NS_PER_S)

/* How often the counters are summed up. */
#define DENIAL_LOOK_NS NS_PER_S

/* Checks of a policy and its tiers, from weir_open on. */
struct denial_counts {
    uint64_t denied, would_deny;
};

enum denial_phase {
    DENIAL_NONE,  /* nothing was denied since the last line "no more", or since weir_open */
    DENIAL_FOUND, /* the policy denies, and there is no line yet */
    DENIAL_SAID
};

/* Of a policy and its tiers. All zero: no denial since weir_open. */
struct denial_state {
    struct denial_counts counts; /* at the last look */
    struct denial_counts told;   /* in the last line */
    struct denial_counts before; /* when the denials began */
    uint64_t begun_ns;           /* the last look without a denial */
    uint64_t denied_ns;          /* the last look with one */
    uint64_t line_ns;            /* the last line; 0: there was none */
    enum denial_phase phase;
};

struct denial_log {
    struct denial_state *states; /* by the id of the policy before the '/'; NULL: the log is not wanted */
    struct top_k *recent;        /* by the same id: the lists of top_denied.h, since the last line */
    struct denial_counts *sums;  /* by the same id: the sums, while they are made */
    weir_policy_id *groups;      /* by any policy's id: whose list and state it goes to; 0: not looked up */
    size_t known;                /* ids with a group */
    uint64_t look_ns, next_ns;   /* monotonic */
    void *memory;
    size_t memory_size;
};

/* 0 or -ENOMEM. `log` is zeroed before. denial_log_close is allowed after an error. */
int denial_log_open(struct denial_log *log, uint64_t monotonic_ns);
void denial_log_close(struct denial_log *log);

/* This process begins to log what is denied from now on; another process did. */
void denial_log_begin(weir *w, uint64_t monotonic_ns);

/* Sums the counters and logs what is due. Called by the background thread, after top_denied_step. */
void denial_log_step(weir *w, uint64_t monotonic_ns);

#endif
