/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weir_charge: units counted afterwards, whether there is room for them or not.
 *
 * Progress: lock-free, but for logs and settle_key.
 */
#include "base/numbers.h"
#include "base/rcu.h"
#include "check/check.h"
#include "check/subject.h"
#include "process/allowance.h"
#include "process/process.h"
#include "thread/settle.h"
#include "thread/thread.h"

/* Charges one limit. Returns whether what other threads hold there is no longer left. */
static bool charge_limit(const struct subject *s, size_t limit, uint64_t units)
{
    const uint32_t at = s->cells[limit];
    const struct rule rule = allowance_rule(s->process, s->policy, limit, at, 1);
    struct cell *cell = &s->process->table.cells[at];
    switch (rule_kind(&rule)) {
    case RULE_HISTORY:
        if (!history_store_charge(s->process, at, &rule, s->now_ns, units)) {
            counter_add(&s->t->untracked_count, 1);
        }
        break;
    case RULE_WINDOW:
    case RULE_BUCKET: {
        struct dwcas_value value = dwcas_read(&cell->state);
        struct state charged;
        do {
            charged = rule_charge(&rule, cell_state(value), s->now_ns, units);
        } while (!dwcas_swap(&cell->state, &value, cell_value(charged, value)));
        break;
    }
    }
    subject_set_dirty(s->process, s->policy, at);
    const uint64_t left = rule_headroom(&rule, cell_state(dwcas_read(&cell->state)), s->now_ns);
    return left < (load_acquire(&cell->held) & HELD_UNITS); /* [T3] after the state */
}

/* Charges a key of a policy with limits; within an RCU section. */
static void charge_key(struct weir_thread *t, const struct policy *policy, const weir_key *key, uint64_t units)
{
    struct subject s;
    if (!subject_pin(&s, t, policy, key)) {
        counter_add(&t->untracked_count, 1);
        return;
    }
    bool over = false;
    for (size_t i = 0; i < policy->limit_count; i++) {
        over = charge_limit(&s, i, units) || over;
    }
    if (over) {
        /* What other threads were granted is no longer there. */
        (void) settle_key(t->limiter, t, policy, key);
    }
    subject_unpin(&s);
}

void weir_charge(weir_thread *t, const weir_key *key, uint64_t cost)
{
    const uint64_t units = min_u64(cost, WEIR_MAX_UNITS);
    if (t == NULL) {
        return;
    }
    counter_add(&t->slow_count, 1);
    rcu_enter();
    const struct policy *policy = check_policy(load_acquire(&t->process->policies), key);
    if (policy != NULL && policy->override == OVERRIDE_NONE && units != 0) {
        charge_key(t, policy, key, units);
    }
    rcu_leave();
}
