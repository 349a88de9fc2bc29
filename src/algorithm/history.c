/* SPDX-License-Identifier: Apache-2.0 */
/* See history.h. */
#include "algorithm/history.h"

#include <string.h>

#include "base/atomics.h"
#include "base/numbers.h"

/* More units than any log counts. */
#define NUMBER_MOST (UINT64_C(1) << 56)

_Static_assert(sizeof(struct history) == 64, "what lies behind it begins on a cache line");

static struct history_group *groups_of(struct history *history)
{
    return (struct history_group *) (void *) (history + 1);
}

size_t history_size(uint32_t capacity, uint32_t group_capacity)
{
    return sizeof(struct history) + group_capacity * sizeof(struct history_group) + capacity * sizeof(uint64_t);
}

void history_init(struct history *history, uint32_t capacity, uint32_t group_capacity)
{
    *history = (struct history){.capacity = capacity, .group_capacity = (uint16_t) group_capacity};
}

uint64_t *history_time(struct history *history, uint64_t number)
{
    uint64_t *times = (uint64_t *) (void *) (groups_of(history) + history->group_capacity);
    return &times[number & (history->capacity - 1)];
}

void history_copy(struct history *to, const struct history *from)
{
    struct history *old = (struct history *) (uintptr_t) from; /* read only */
    to->first = from->first;
    to->end = from->end;
    to->counts = from->counts;
    to->acked_most = from->acked_most;
    to->dropped = from->dropped;
    to->renumbered = from->renumbered;
    for (uint64_t number = from->first; number < from->end; number++) {
        *history_time(to, number) = *history_time(old, number);
    }
    history_set_remote(to, groups_of(old) + old->group_first, old->group_end - old->group_first);
}

void history_expire(struct history *history, const struct rule *rule, uint64_t now_ns)
{
    const uint64_t gone_ns = saturating_sub(now_ns, rule->period_ns);
    history_clear(history, gone_ns);
}

void history_clear(struct history *history, uint64_t until_ns)
{
    while (history->first < history->end && *history_time(history, history->first) <= until_ns) {
        history->first++;
        history->dropped = 0; /* the dropped units were no later */
    }
    const struct history_group *groups = groups_of(history);
    while (history->group_first < history->group_end && groups[history->group_first].time_ns <= until_ns) {
        history->remote -= groups[history->group_first++].units;
    }
}

uint64_t history_units(const struct history *history)
{
    return history->end - history->first + history->dropped + history->remote;
}

void history_push(struct history *history, uint64_t now_ns, uint64_t units)
{
    if (history->end != history->first) {
        now_ns = max_u64(now_ns, *history_time(history, history->end - 1));
    }
    /* Only the last `capacity` units stay in the ring. A process that dies before the end moves has added none. */
    const uint64_t count = min_u64(units, history->capacity);
    for (uint64_t i = 0; i < count; i++) {
        *history_time(history, history->end + i) = now_ns;
    }
    fence_compiler();
    history->end += count;
    fence_compiler();
    const uint64_t first = max_u64(history->first, saturating_sub(history->end, history->capacity));
    history->dropped = saturating_add(history->dropped, first - history->first + units - count);
    history->first = first;
}

/*
 * Dropped units are refunded. Not all of them had numbers, and the fleet may have none of them: then other units get
 * the numbers of units that have left the window.
 */
static void renumber(struct history *history, uint64_t dropped)
{
    const uint64_t before = history_fleet_number(history, history->first);
    history->renumbered += (uint32_t) min_u64(dropped, min_u64(before, UINT32_MAX - history->renumbered));
    history->counts = history->first;
}

uint64_t history_pop(struct history *history, uint64_t units)
{
    const uint64_t dropped = min_u64(units, history->dropped);
    const uint64_t taken = min_u64(units - dropped, history->end - history->first);
    history->dropped -= dropped;
    history->end -= taken;
    history->counts = min_u64(history->counts, history->end);
    if (dropped != 0) {
        renumber(history, dropped);
    }
    return dropped + taken;
}

void history_mend(struct history *history)
{
    const struct history_group *groups = groups_of(history);
    history->first = max_u64(history->first, saturating_sub(history->end, history->capacity));
    history->end = max_u64(history->end, history->first);
    history->group_end = history->group_end <= history->group_capacity ? history->group_end : history->group_capacity;
    history->remote = 0;
    for (uint32_t i = history->group_first; i < history->group_end; i++) {
        history->remote += groups[i].units;
    }
}

bool history_salvage(struct history *history, uint64_t now_ns)
{
    struct history_group *groups = groups_of(history);
    if (history->end > NUMBER_MOST || history->first > NUMBER_MOST || history->dropped > WEIR_MAX_UNITS ||
        history->renumbered > history->first) {
        return false;
    }
    history_mend(history);
    history->group_first = history->group_first < history->group_end ? history->group_first : history->group_end;
    history->counts = min_u64(history->counts, history->end);
    history->remote = 0;
    for (uint32_t i = history->group_first; i < history->group_end; i++) {
        groups[i].time_ns = min_u64(groups[i].time_ns, now_ns);
        groups[i].units = min_u64(groups[i].units, WEIR_MAX_UNITS);
        history->remote += groups[i].units;
    }
    for (uint64_t number = history->first; number < history->end; number++) {
        uint64_t *time_ns = history_time(history, number);
        *time_ns = min_u64(*time_ns, now_ns);
    }
    return true;
}

void history_set_remote(struct history *history, const struct history_group *groups, size_t count)
{
    struct history_group *own = groups_of(history);
    history->group_first = history->group_end = 0;
    history->remote = 0;
    /* `each` neighbours are joined to one group. */
    const size_t each =
        history->group_capacity != 0 ? (count + history->group_capacity - 1) / history->group_capacity : 0;
    for (size_t i = 0; i < count && each != 0; i++) {
        if (i % each == 0) {
            own[history->group_end++].units = 0;
        }
        own[history->group_end - 1].time_ns = groups[i].time_ns;
        own[history->group_end - 1].units += groups[i].units;
        history->remote += groups[i].units;
    }
}

uint64_t history_retry_after(struct history *history, const struct rule *rule, uint64_t now_ns, uint64_t cost)
{
    if (cost > rule->limit) {
        return UINT64_MAX;
    }
    const uint64_t units = history_units(history);
    if (units + cost <= rule->limit) {
        return 0;
    }
    /* `leave` units must leave the window. When the first j groups have left, the remaining ones must be local units.
     * The wait for a given j is the later of the two times; the result is the earliest over all j. */
    const uint64_t leave = units + cost - rule->limit;
    const uint64_t own = history->end - history->first;
    const struct history_group *groups = groups_of(history);
    uint64_t best_ns = UINT64_MAX;
    uint64_t gone = 0;
    for (uint32_t j = history->group_first;; j++) {
        const uint64_t group_ns = j != history->group_first ? groups[j - 1].time_ns : 0;
        uint64_t wanted = saturating_sub(leave, gone);
        if (wanted != 0 && history->dropped != 0) {
            wanted = max_u64(saturating_sub(wanted, history->dropped),
                             1); /* the dropped units leave with the first unit of the ring */
        }
        if (wanted <= own) {
            const uint64_t own_ns = wanted != 0 ? *history_time(history, history->first + wanted - 1) : 0;
            best_ns = min_u64(best_ns, max_u64(group_ns, own_ns));
        }
        if (j == history->group_end || wanted == 0) {
            break;
        }
        gone += groups[j].units;
    }
    return best_ns == UINT64_MAX ? UINT64_MAX : saturating_sub(best_ns + rule->period_ns, now_ns);
}

struct state history_summary(struct history *history, const struct rule *rule)
{
    uint64_t last_ns = 0;
    if (history->end != history->first) {
        last_ns = *history_time(history, history->end - 1);
    }
    if (history->group_end != history->group_first) {
        last_ns = max_u64(last_ns, groups_of(history)[history->group_end - 1].time_ns);
    }
    return (struct state){last_ns != 0 ? last_ns + rule->period_ns : 0, history_units(history)};
}

struct state history_fresh(void)
{
    return (struct state){0, 0};
}

uint64_t history_headroom(const struct rule *rule, struct state s, uint64_t now_ns)
{
    return now_ns >= history_state_until(s) ? rule->limit : saturating_sub(rule->limit, history_state_count(s));
}

uint64_t history_reset_after(struct state s, uint64_t now_ns)
{
    return saturating_sub(history_state_until(s), now_ns);
}

uint64_t history_state_retry_after(const struct rule *rule, struct state s, uint64_t now_ns, uint64_t cost)
{
    if (cost > rule->limit) {
        return UINT64_MAX;
    }
    return history_headroom(rule, s, now_ns) >= cost ? 0 : history_reset_after(s, now_ns);
}

struct usage history_usage(struct state s, uint64_t now_ns)
{
    return history_state_until(s) > now_ns ? (struct usage){history_state_count(s), history_state_until(s)}
                                           : (struct usage){0, 0};
}

struct state history_resume(struct usage usage, uint64_t now_ns)
{
    return usage.until_ns > now_ns ? (struct state){usage.until_ns, usage.units} : history_fresh();
}
