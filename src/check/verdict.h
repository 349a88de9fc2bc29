/* SPDX-License-Identifier: Apache-2.0 */
/* The verdict on what the table has decided. A slot's verdicts are in slot_word.h. */
#ifndef WEIR_CHECK_VERDICT_H
#define WEIR_CHECK_VERDICT_H

#include "base/numbers.h"
#include "check/request.h"
#include "policy/policy.h"
#include "process/process.h"
#include "thread/thread.h"

/* The age of the last good sync at `now_ns`; UINT64_MAX: there was none. */
static inline uint64_t verdict_fleet_age(const struct process *process, uint64_t now_ns)
{
    const uint64_t news_ns = load_relaxed(&process->shared->news_ns); /* a number that stands for itself */
    return news_ns == 0 ? UINT64_MAX : saturating_sub(now_ns, news_ns);
}

/* The verdict of a decision. */
static inline void verdict_write(weir_verdict *verdict, const struct weir_thread *t, const struct policy *policy,
                                 const struct decision *decision, uint64_t now_ns)
{
    const bool shadow = policy->mode == WEIR_SHADOW && !decision->allowed;
    *verdict = (weir_verdict){
        .allowed = decision->allowed || shadow,
        .would_deny = shadow,
        .limit_index = decision->limit_index,
        .basis = (weir_basis) load_relaxed(&policy->basis),
        .limit = decision->limit,
        .remaining = decision->remaining,
        .retry_after_ns = decision->allowed ? 0 : decision->retry_after_ns,
        .reset_after_ns = decision->reset_after_ns,
        .fleet_age_ns = verdict_fleet_age(t->process, now_ns),
        .key_index = decision->key_index,
        .decided_ns = now_ns,
    };
}

#endif
