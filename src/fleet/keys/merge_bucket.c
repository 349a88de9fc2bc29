/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the fleet's answer on a bucket to the bucket's cell. The answer is a time: up to when the bucket is used. The
 * state moves to that time, but for the units that the fleet does not know yet (bucket_merge).
 *
 * Ordering: [A1] in refund.c.
 */
#include "fleet/keys/merge_bucket.h"

#include "algorithm/bucket.h"
#include "base/numbers.h"
#include "fleet/keys/demand.h"
#include "fleet/keys/merge_target.h"
#include "process/refund_ledger.h"

/* What has changed in a bucket's answer. */
struct bucket_change {
    struct merge_answer answer;
    uint64_t refunds;        /* units refunded elsewhere */
    uint64_t unseen_refunds; /* local units refunded since the report */
    bool in_parts;           /* the bucket was served in part */
    bool cleared;            /* a reset has cleared what the key was remembered to have used */
    bool alone;              /* the answer holds this node's units alone, which the state has counted already */
};

/* Moves the state by the answer; returns its new value. *news: what of it the fleet knows. */
static struct state move_bucket(const struct fleet *fleet, const struct merge_target *target, const struct rule *rule,
                                const struct bucket_change *change, struct bucket_news *news)
{
    const struct sync_full *sync = target->subject.sync;
    const bool listens = target->listens;
    const uint64_t restored = load_relaxed(&sync->now.restored);
    *news = (struct bucket_news){.returned = change->refunds + change->answer.reset};
    if (listens && !change->alone) {
        news->tat_ns = saturating_mul(target->report->tat_answer_us, NS_PER_US);
        news->unseen_returned = change->unseen_refunds;
        news->more = change->in_parts || change->cleared || sync->demand.learned_ns == 0
                         ? UINT64_MAX
                         : change->answer.remote - load_relaxed(&sync->now.remote);
    }
    struct cell *cell = merge_cell(fleet, target);
    struct dwcas_value value = dwcas_read(&cell->state);
    struct state merged;
    do {
        struct state state = cell_state(value);
        news->unseen =
            listens && !change->alone ? (bucket_total(state) - target->report->count) & BUCKET_TOTAL_MASK : 0;
        if ((change->in_parts || change->cleared) && listens) {
            /* `restored` may be of an evicted key, which the fleet has yet to hear of. */
            state.a = change->cleared ? 0 : restored;
        }
        merged = bucket_merge(rule, state, target->subject.now_ns, news);
    } while (!dwcas_swap(&cell->state, &value, cell_value(merged, value)));
    return merged;
}

/* Marks a bucket's cell dirty where its answer is not the last word. */
static void acknowledge_bucket(struct fleet *fleet, const struct merge_target *target,
                               const struct bucket_change *change)
{
    struct table *table = &fleet->process->table;
    struct sync_full *sync = target->subject.sync;
    const struct report *report = target->report;
    if (target->listens || !change->in_parts) {
        sync->now.acked = report->count;
    } else {
        /* What the units are worth is known while they count as unreported (sync_state.c). */
        table_set_dirty(table, target->subject.cell);
    }
    if (report->moves != 0 && !fleet->batch.tells_debt) {
        table_set_dirty(table, target->subject.cell); /* for what it held back: the key may not be used again */
    }
}

bool merge_bucket_report(struct fleet *fleet, const struct merge_target *target)
{
    struct process *process = fleet->process;
    struct sync_full *sync = target->subject.sync;
    const struct report *report = target->report;
    const bool listens = target->listens;
    struct bucket_change change = {.answer = merge_answer_of(report, &sync->now, listens)};
    const struct merge_answer *answer = &change.answer;
    change.refunds = answer->remote_refunds - load_relaxed(&sync->now.remote_refunds);
    struct rule rule = target->rule;
    rule_convert_rate(&rule, report->rate_id);
    sync->now.acked_refunds = max_u64(sync->now.acked_refunds, report->refunds + answer->reset);
    change.unseen_refunds = load_acquire(&sync->ledger->refunds[0]) - report->refunds; /* [A1] */
    /* Served in part, the bucket's units took more time than they were worth: the fleet's time is the right one. */
    change.in_parts = demand_in_parts(sync, fleet->gather.now_ns - process->interval_ns);
    acknowledge_bucket(fleet, target, &change);
    change.cleared = load_relaxed(&sync->now.restored) != 0 && report->reset_us != 0;
    change.alone = answer->remote == 0 && !change.in_parts && !change.cleared;
    const bool knows = sync->demand.learned_ns != 0 && sync->demand.known_rate_id == report->rate_id;
    const bool stays = knows && merge_is_behind(report, &sync->now) && !change.in_parts && !change.cleared;
    struct bucket_news news;
    const struct state merged = move_bucket(fleet, target, &rule, &change, &news);
    if (change.cleared && listens) {
        store_relaxed(&sync->now.restored, 0);
    }
    if (listens) {
        sync->demand.fraction_ns = sync->demand.shared ? fleet->gather.now_ns : sync->demand.fraction_ns;
        sync->demand.shared = false;
    }
    /* Where units of others are not in the record yet, its time may be of more than its units: what is known stays. */
    if (listens && !stays) {
        news.unseen = 0; /* as of the report */
        sync->demand.known_time = change.alone ? merged.a : bucket_news_time(&rule, &news);
        sync->demand.known_rate_id = report->rate_id;
        sync->demand.known_total = change.alone ? bucket_total(merged) : report->count & BUCKET_TOTAL_MASK;
        sync->demand.known_refunds = report->refunds + change.unseen_refunds + answer->reset;
    }
    store_relaxed(&sync->now.remote, answer->remote);
    store_relaxed(&sync->now.remote_refunds, answer->remote_refunds);
    if (answer->reset != 0) {
        (void) add_release(&refund_ledger_make(process, target->subject.cell)->refunds[0], answer->reset); /* [A1] */
    }
    return change.refunds + answer->reset != 0;
}
