/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the log says of policies that deny: that one begins to, that it goes on, that it is over, and which keys were
 * denied most.
 *
 * A policy and its tiers are one here, as in the lists of offenders. Once a second the background thread sums up what
 * the threads have counted anyway; no check does anything for it.
 *
 * Invariants
 *   L1  Two lines of one policy are DENIAL_LINE_NS apart at least, so there are at most six of it a minute.
 *
 *   L2  A policy's lines are "begins", any number of "denies", "no more", and again from the start. Every denial is in
 *       the count of one line before "no more", and of the "no more".
 *
 *   L3  A list in `recent` is of what was denied since the last line of that policy.
 *
 * Progress: the policy lock is only tried, and never held while the host's log function runs.
 */
#ifndef WEIR_LIMITER_DENIAL_LOG_H
#define WEIR_LIMITER_DENIAL_LOG_H

#include <stddef.h>
#include <stdint.h>

#include "algorithm/top_k.h"
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
    DENIAL_NONE,  /* nothing was denied since the last line said so, or ever */
    DENIAL_FOUND, /* it denies, and no line has said so */
    DENIAL_SAID
};

/* Of a policy and its tiers. All zero: it never denied. */
struct denial_state {
    struct denial_counts counts; /* when last looked at */
    struct denial_counts told;   /* by the last line */
    struct denial_counts before; /* when it began */
    uint64_t begun_ns;           /* the last look without a denial */
    uint64_t denied_ns;          /* the last look with one */
    uint64_t line_ns;            /* the last line; 0: there was none */
    enum denial_phase phase;
};

struct denial_log {
    struct denial_state *states; /* by the id of the policy before the '/'; NULL: the log is not wanted */
    struct top_k *recent;        /* likewise; the lists of top_denied.h, since the last line */
    struct denial_counts *sums;  /* likewise, while they are summed up */
    weir_policy_id *groups;      /* by any policy's id: whose list and state it goes to; 0: not looked up */
    size_t known;                /* ids with a group */
    uint64_t look_ns, next_ns;   /* monotonic */
    void *memory;
    size_t memory_size;
};

/* 0; -ENOMEM. Takes zeroed memory; denial_log_close may be called whatever came of it. */
int denial_log_open(struct denial_log *log, uint64_t monotonic_ns);
void denial_log_close(struct denial_log *log);

/* Looks, and logs what is due. By the background thread, after top_denied_step. */
void denial_log_step(weir *w, uint64_t monotonic_ns);

#endif
