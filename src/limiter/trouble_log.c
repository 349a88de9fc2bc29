/* SPDX-License-Identifier: Apache-2.0 */
/* See trouble_log.h. */
#include "limiter/trouble_log.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/plain.h"
#include "limiter/weir_private.h"

/* How often the counters are looked at that have to be summed over all threads. */
#define LOOK_NS NS_PER_S

/* Between two lines about threads without a handle; weir.h promises this one. And between two lines of another kind. */
#define ATTACH_LINE_NS (60 * NS_PER_S)
#define LINE_NS        (600 * NS_PER_S)

/* Sets of the table overflow now and then before it is full: it has so many parts, and a line tells of one or more. */
#define EVICTED_PARTS 64

static void sum_threads(const struct limiter *limiter, uint64_t counts[TROUBLES])
{
    /* Counters with one writer each: relaxed, and what is missed now is in the next sum. */
    for (uint32_t i = 0; i < limiter_thread_high(limiter); i++) {
        const struct thread_shared *t = limiter->threads[i].shared;
        counts[TROUBLE_NO_POLICY] += load_relaxed(&t->unknown_count);
        counts[TROUBLE_UNTRACKED] += load_relaxed(&t->untracked_count);
        counts[TROUBLE_EVICTED] += load_relaxed(&t->admissions.recorded);
    }
    counts[TROUBLE_EVICTED] += load_relaxed(&limiter->process.shared->evicted_used_count);
    counts[TROUBLE_LOST_REPORTS] = load_relaxed(&limiter->process.shared->lost_report_count);
}

/* Writes the sentence about `count` new cases. */
static void describe(const weir *w, enum trouble trouble, uint64_t count, char *out, size_t size)
{
    const char *const calls = plain_number(count, "call", "calls");
    const char *const checks = plain_number(count, "check", "checks");
    const char *const keys = plain_number(count, "key", "keys");
    switch (trouble) {
    case TROUBLE_NO_HANDLE:
        (void) snprintf(out, size,
                        "threads are not limited: %" PRIu64 " %s of weir_attach gave no handle, as all %" PRIu32
                        " handles are in use; raise max_threads",
                        count, calls, w->limiter.max_threads);
        break;
    case TROUBLE_NO_MEMORY:
        (void) snprintf(out, size,
                        "threads are not limited: %" PRIu64 " %s of weir_attach gave no handle, as /dev/shm is full; "
                        "make that file system larger",
                        count, calls);
        break;
    case TROUBLE_NO_POLICY:
        (void) snprintf(out, size,
                        "%" PRIu64 " %s asked for a policy that is not in force, and passed: look for a misspelt name "
                        "in the program or in the policies; required_policies refuses policies that lack a name",
                        count, checks);
        break;
    case TROUBLE_UNTRACKED:
        (void) snprintf(out, size,
                        "%" PRIu64 " %s denied or not counted, as the table had no free entry or the sliding logs no "
                        "room: raise max_keys (%zu) or max_log_units (%zu)",
                        count, plain_number(count, "check was", "checks were"), w->options.max_keys,
                        w->options.max_log_units);
        break;
    case TROUBLE_EVICTED:
        (void) snprintf(out, size,
                        "%" PRIu64 " %s evicted that had used a part of their limits, as there are more keys than "
                        "max_keys (%zu), and some may begin anew: raise it, or limit by fewer keys, such as networks",
                        count, plain_number(count, "key was", "keys were"), w->options.max_keys);
        break;
    case TROUBLE_LOST_REPORTS:
    case TROUBLES:
    default:
        (void) snprintf(out, size,
                        "%" PRIu64 " evicted %s could not be reported, so the other nodes do not count what was used: "
                        "raise max_keys (%zu)",
                        count, keys, w->options.max_keys);
        break;
    }
}

/* Says what is new of one kind, if there is enough of it and the last line was long ago. */
static void tell(weir *w, enum trouble trouble, uint64_t count, uint64_t now_ns)
{
    const bool attach = trouble == TROUBLE_NO_HANDLE || trouble == TROUBLE_NO_MEMORY;
    const uint64_t wait_ns = attach ? ATTACH_LINE_NS : LINE_NS;
    const uint64_t least = trouble == TROUBLE_EVICTED ? w->limiter.process.table.cell_count / EVICTED_PARTS : 1;
    struct trouble_told *told = &w->shared->troubles;
    const uint64_t line_ns = told->of[trouble].line_ns;
    char line[320];
    if (count - told->of[trouble].count < least || count <= told->of[trouble].count ||
        (line_ns != 0 && now_ns - line_ns < wait_ns)) {
        return;
    }
    describe(w, trouble, count - told->of[trouble].count, line, sizeof(line));
    told->of[trouble].count = count;
    told->of[trouble].line_ns = now_ns;
    const bool passes = attach || trouble == TROUBLE_NO_POLICY;
    w->options.log(w->options.log_arg, passes ? WEIR_LOG_ERROR : WEIR_LOG_WARNING, line);
}

void trouble_log_step(weir *w, uint64_t monotonic_ns)
{
    struct trouble_told *told = &w->shared->troubles;
    if (w->options.log == NULL) {
        return;
    }
    tell(w, TROUBLE_NO_HANDLE, load_relaxed(&w->limiter.shared->attach_failures[ATTACH_FULL]), monotonic_ns);
    tell(w, TROUBLE_NO_MEMORY, load_relaxed(&w->limiter.shared->attach_failures[ATTACH_NO_ROOM]), monotonic_ns);
    if (monotonic_ns < told->look_ns) {
        return;
    }
    uint64_t counts[TROUBLES] = {0};
    told->look_ns = monotonic_ns + LOOK_NS;
    sum_threads(&w->limiter, counts);
    for (enum trouble trouble = TROUBLE_NO_POLICY; trouble < TROUBLES; trouble++) {
        tell(w, trouble, counts[trouble], monotonic_ns);
    }
}
