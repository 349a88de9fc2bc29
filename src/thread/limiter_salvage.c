/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See limiter_salvage.h. As in a repair (repair.c), settlings that had begun are ended first: a lock of a log, and a
 * mark in a cell, tell how far they had come. Then the locks and marks are gone, nothing is held, and each slot is
 * settled. What is left of a slot then is made as new.
 *
 * An opener may die here at any instruction. So a slot is cleared only after all of it is settled, and the places of
 * the dead are free only at the end. The next opener finds what this one has not done. A forked child that joins
 * meanwhile finds dead processes, of which the opener is one, and repairs what they left.
 */
#include "thread/limiter_salvage.h"

#include <string.h>

#include "base/compiler.h"
#include "base/numbers.h"
#include "base/pages.h"
#include "policy/validate.h"
#include "process/process_salvage.h"
#include "thread/limiter.h"
#include "thread/rcu_halt.h"
#include "thread/settle.h"
#include "thread/settling.h"
#include "thread/slot.h"

/* Units that may have passed on a grant, and beside it, before they were charged: far more, where nothing is damaged.
 */
#define PASSED_MOST (4 * GRANT_MAX)

void limiter_salvage_begin(struct limiter *limiter)
{
    struct limiter_shared *shared = limiter->shared;
    uint32_t index = 0;
    while (index < limiter->max_processes && load_relaxed(&limiter->joined[index].pid) == 0) {
        index++;
    }
    index = index < limiter->max_processes ? index : 0;
    joined_take_place(limiter, index); /* of a dead one, so that there is room for a child; or of nobody */
    limiter_join(limiter, index);
    store_relaxed(&shared->repairing, index + 1);
    store_release(&limiter->process.shared->halted_by, index + 1); /* [Q1] of those that join: none has yet */
    memset((void *) limiter->lanes, 0, (size_t) limiter->max_processes * RCU_LANES * sizeof(*limiter->lanes));
    store_relaxed(&shared->rcu.lock, 0);
    store_relaxed(&shared->repair_from_ns, 0);
}

void limiter_salvage_end(struct limiter *limiter)
{
    for (uint32_t process = 0; process < limiter->max_processes; process++) {
        struct joined_process *entry = &limiter->joined[process];
        const bool is_new =
            load_relaxed(&entry->pid) == 0 && load_relaxed(&entry->started) == 0 && load_relaxed(&entry->leaving) == 0;
        if (process != limiter->joined_as && !is_new && !joined_lives(limiter, process)) {
            joined_leave(limiter, process);
        }
    }
    store_relaxed(&limiter->shared->repairing, 0);
    rcu_halt_end(limiter);
}

/* Whether the slots of a handle are there. A commitment that changes nothing makes sure that each page is. */
static int salvage_presence(const struct limiter *limiter, const struct weir_thread *t)
{
    struct thread_shared *shared = t->shared;
    const struct pages_owner *pages = limiter->process.pages;
    const bool present = pages_have_data(pages, t->slots, limiter->thread_size);
    const int result = present ? pages_commit(pages, t->slots, limiter->thread_size) : 0;
    store_relaxed(&shared->present, present && result == 0);
    return result;
}

static bool rule_is_sound(const struct rule *rule, const struct cell_meta *meta)
{
    return algorithm_name(rule->algorithm) != NULL && cell_meta_kind(meta) == rule_kind(rule) &&
           rule->calendar <= WEIR_CALENDAR_MONTH && rule->period_ns >= POLICY_PERIOD_MIN_NS &&
           rule->period_ns <= POLICY_PERIOD_MAX_NS;
}

/* Whether a slot's account leads to cells that there are, and to no others than the key's as far as they tell. */
static bool account_is_sound(const struct limiter *limiter, const struct slot_account *account)
{
    const struct table *table = &limiter->process.table;
    bool sound =
        account->limit_count <= WEIR_MAX_LIMITS && load_relaxed(&account->settling.step) <= 2 * account->limit_count;
    for (size_t i = 0; i < account->limit_count && sound; i++) {
        const uint32_t cell = account->cells[i];
        sound = cell < table->cell_count && rule_is_sound(&account->rules[i], &table->metas[cell]);
    }
    return sound;
}

/* Makes a slot such that it can be settled; one that makes no sense has nothing to settle. */
static void salvage_slot(struct weir_thread *t, size_t index, uint64_t now_ns)
{
    struct limiter *limiter = t->limiter;
    struct slot_account *account = &t->accounts[index];
    const uint64_t accounted = load_relaxed(&account->accounted);
    if (!account_is_sound(limiter, account)) {
        account->limit_count = 0;
        store_relaxed(&account->settling.step, 0);
    }
    if (load_relaxed(&t->slots[index].used) - accounted > PASSED_MOST) {
        store_relaxed(&t->slots[index].used, accounted);
    }
    if (account->settling.used - accounted > PASSED_MOST) {
        account->settling.used = accounted;
    }
    account->granted_ns = min_u64(account->granted_ns, now_ns);
    account->fleet = bool_of_byte(&account->fleet) && limiter->process.fleet;
    for (size_t i = 0; i < account->limit_count; i++) {
        struct rule *rule = &account->rules[i];
        rule->origin_ns = limiter->process.shared->origin_ns;
        rule->rate_table = rate_table_is_address(rule->rate_table) ? 0 : rule->rate_table;
    }
}

/* Ends what a settler had begun, as far as it cannot be begun anew. */
static void resolve_slot(struct weir_thread *t, size_t index)
{
    const struct slot_account *account = &t->accounts[index];
    const uint32_t step = load_relaxed(&account->settling.step);
    if (step % 2 != 0 && load_relaxed(&t->process->histories.places[account->cells[step / 2]].lock) != 0) {
        settling_resolve_log(t, index);
    }
    settling_resolve_cell(t, index);
}

/* The slots of a handle that may be touched. */
static size_t slots_present(const struct weir_thread *t)
{
    return load_relaxed(&t->shared->present) != 0 ? t->slot_count : 0;
}

/* Makes a handle as new, but for its counters. */
static void clear_thread(struct limiter *limiter, const struct weir_thread *t)
{
    struct thread_shared *shared = t->shared;
    if (load_relaxed(&shared->present) != 0) {
        limiter_clear_thread(limiter, t->index);
    }
    store_relaxed(&shared->rcu_count, 0);
    shared->rcu_depth = 0;
    shared->time_ns = 0;
    shared->looked_count = load_relaxed(&shared->slow_count);
    for (size_t i = 0; i < sizeof(shared->slots_used) / sizeof(shared->slots_used[0]); i++) {
        store_relaxed(&shared->slots_used[i], 0);
    }
    store_relaxed(&shared->owner, HANDLE_FREE);
}

int limiter_salvage(struct limiter *limiter, const struct policy_set *set, uint64_t now_ns, uint64_t monotonic_ns)
{
    uint32_t high = 0;
    int result = 0;
    for (uint32_t i = 0; i < limiter->max_threads && result == 0; i++) {
        result = salvage_presence(limiter, &limiter->threads[i]);
        high = load_relaxed(&limiter->threads[i].shared->present) != 0 ? i + 1 : high;
    }
    if (result != 0) {
        return result;
    }
    process_salvage(&limiter->process, set, now_ns, monotonic_ns);
    for (uint32_t i = 0; i < high; i++) {
        struct weir_thread *t = &limiter->threads[i];
        for (size_t index = 0; index < slots_present(t); index++) {
            salvage_slot(t, index, now_ns);
            resolve_slot(t, index);
        }
    }
    process_salvage_held(&limiter->process);
    for (uint32_t i = 0; i < high; i++) {
        struct weir_thread *t = &limiter->threads[i];
        for (size_t index = 0; index < slots_present(t); index++) {
            settle_alone(t, index, true);
        }
    }
    for (uint32_t i = 0; i < limiter->max_threads; i++) {
        clear_thread(limiter, &limiter->threads[i]);
    }
    store_relaxed(&limiter->shared->thread_high, high);
    thread_count(limiter);
    return 0;
}
