/* SPDX-License-Identifier: Apache-2.0 */
/* See denial.h. */
#include "check/denial.h"
#include "base/numbers.h"
#include "base/probe.h"
#include "check/request.h"
#include "process/allowance.h"
#include "thread/limiter.h"

/* The wait until a log has room for units, by its entries. */
static uint64_t log_retry_after(const struct request *r, const struct claim *claim, size_t i, uint64_t units)
{
    struct process *process = r->t->process;
    const struct rule *rule = &claim->rules[i];
    uint64_t retry_ns = history_state_retry_after(rule, claim->readings[i].state, r->now_ns, units);
    history_store_lock(process, claim->cells[i]);
    struct history *history = history_store_get(process, claim->cells[i]);
    /* Relaxed: under the lock a log is its cell's while the cell has the hash. */
    if (history != NULL &&
        load_relaxed(&process->table.cells[claim->cells[i]].hash) == cell_hash(claim->policy, claim->key, i)) {
        retry_ns = history_retry_after(history, rule, r->now_ns, units);
    }
    history_store_unlock(process, claim->cells[i]);
    return retry_ns;
}

uint64_t denial_retry_after(const struct request *r, const struct claim *claim, size_t i)
{
    const struct rule *rule = &claim->rules[i];
    const uint64_t units = claim_asked(claim) + claim->before[i];
    uint64_t retry_ns = UINT64_MAX;
    switch (rule_kind(rule)) {
    case RULE_WINDOW:
    case RULE_BUCKET:
        retry_ns = rule_retry_after(rule, claim->readings[i].level, r->now_ns, units);
        break;
    case RULE_HISTORY:
        retry_ns = log_retry_after(r, claim, i, units);
        break;
    }
    return retry_ns;
}

/* Whether a denied request may have had room: all that denied it wait for a thread that stood still (settle_wait). */
static bool is_stalled(const struct request *r)
{
    bool stalled = false;
    for (size_t c = 0; c < r->count; c++) {
        const struct claim *claim = &r->claims[c];
        if (claim->status != CLAIM_NO_ROOM || claim->optional) {
            continue;
        }
        if (!claim->stalled || claim->policy->mode == WEIR_SHADOW) {
            return false; /* denied for good, or not denied */
        }
        stalled = true;
    }
    return stalled;
}

void denial_of_claim(const struct request *r, const struct claim *claim, struct decision *out)
{
    *out = (struct decision){.allowed = false, .remaining = UINT64_MAX};
    for (size_t i = 0; i < claim->policy->limit_count; i++) {
        out->remaining = min_u64(out->remaining, claim->readings[i].left);
        if (claim->readings[i].left >= claim_asked(claim)) {
            continue;
        }
        uint64_t retry_ns = denial_retry_after(r, claim, i);
        if (retry_ns == UINT64_MAX && claim_asked(claim) + claim->before[i] <= claim->policy->limits[i].rule.limit) {
            /* Only the numbers of an outage mode are too small for the cost: the next sync can change that. */
            retry_ns = NS_PER_S;
        }
        /* What is left to other nodes may be had after the fleet's next answer. */
        const bool shared = process_shares(r->t->process, claim->policy) && retry_ns != UINT64_MAX;
        const uint64_t answer_ns =
            shared ? allowance_retry_after(r->t->process, claim->policy, claim->cells[i], r->now_ns) : 0;
        retry_ns = answer_ns != 0 && (retry_ns == 0 || claim->rules[i].limit < claim->policy->limits[i].rule.limit)
                       ? answer_ns
                       : retry_ns;
        retry_ns = retry_ns != 0 ? retry_ns : 1; /* only held units stood in the way */
        if (retry_ns > out->retry_after_ns) {
            out->retry_after_ns = retry_ns;
            out->limit_index = (uint8_t) i;
            out->limit = claim->policy->limits[i].rule.limit;
            out->reset_after_ns = rule_reset_after(&claim->rules[i], claim->readings[i].level, r->now_ns);
        }
    }
    out->remaining = min_u64(out->remaining, out->limit);
}

/* Marks the cells that refused: of an evicted key the mark is the most important thing to know (evicted_sketch.c). */
static void mark_refused(const struct request *r)
{
    for (size_t c = 0; c < r->count; c++) {
        const struct claim *claim = &r->claims[c];
        for (size_t i = 0; claim->status == CLAIM_NO_ROOM && i < claim->policy->limit_count; i++) {
            if (claim->readings[i].left < claim_asked(claim)) {
                cell_meta_record(&r->t->process->table.metas[claim->cells[i]], EVENT_REFUSED);
            }
        }
    }
}

void denial_note(const struct request *r)
{
    mark_refused(r);
    counter_add(&r->t->shared->stalled_denied_count, is_stalled(r));
    if (probe_is_traced(deny)) {
        const struct claim *claim = &r->claims[r->out->key_index];
        denial_trace(claim->policy, claim->key, claim->cost, r->out->limit_index, r->out->retry_after_ns);
    }
}

__attribute__((cold)) void denial_trace(const struct policy *policy, const weir_key *key, uint64_t cost,
                                        size_t limit_index, uint64_t retry_after_ns)
{
    const struct denied_event event = {.policy_id = policy->id,
                                       .policy = policy->name,
                                       .key = key->data,
                                       .key_size = key->length,
                                       .cost = cost,
                                       .limit = (uint32_t) limit_index,
                                       .retry_after_ns = retry_after_ns,
                                       .shadow = policy->mode == WEIR_SHADOW};
    probe_deny(&event);
}
