/* SPDX-License-Identifier: Apache-2.0 */
#include "algorithm/history.h"

#include <string.h>

#include "base/numbers.h"

_Static_assert(sizeof(struct log) == 64, "what lies behind it begins on a cache line");

static struct log_group *groups_of(struct log *log)
{
    return (struct log_group *) (void *) (log + 1);
}

size_t log_size(uint32_t capacity, uint32_t group_capacity)
{
    return sizeof(struct log) + group_capacity * sizeof(struct log_group) + capacity * sizeof(uint64_t);
}

void log_init(struct log *log, uint32_t capacity, uint32_t group_capacity)
{
    *log = (struct log){.capacity = capacity, .group_capacity = group_capacity};
}

uint64_t *log_time(struct log *log, uint64_t number)
{
    uint64_t *times = (uint64_t *) (void *) (groups_of(log) + log->group_capacity);
    return &times[number & (log->capacity - 1)];
}

void log_copy(struct log *to, const struct log *from)
{
    struct log *old = (struct log *) (uintptr_t) from; /* read only */
    to->first = from->first;
    to->end = from->end;
    to->told = from->told;
    to->told_most = from->told_most;
    to->dropped = from->dropped;
    for (uint64_t number = from->first; number < from->end; number++) {
        *log_time(to, number) = *log_time(old, number);
    }
    log_set_others(to, groups_of(old) + old->group_first, old->group_end - old->group_first);
}

void log_expire(struct log *log, const struct rule *rule, uint64_t now_ns)
{
    const uint64_t gone_ns = saturating_sub(now_ns, rule->period_ns);
    log_clear(log, gone_ns);
}

void log_clear(struct log *log, uint64_t until_ns)
{
    while (log->first < log->end && *log_time(log, log->first) <= until_ns) {
        log->first++;
        log->dropped = 0; /* they were no later */
    }
    const struct log_group *groups = groups_of(log);
    while (log->group_first < log->group_end && groups[log->group_first].time_ns <= until_ns) {
        log->others -= groups[log->group_first++].units;
    }
}

uint64_t log_units(const struct log *log)
{
    return log->end - log->first + log->dropped + log->others;
}

void log_push(struct log *log, uint64_t now_ns, uint64_t units)
{
    if (log->end != log->first) {
        now_ns = max_u64(now_ns, *log_time(log, log->end - 1));
    }
    /* Of more units than there is room for, the last ones would push out the first. */
    for (uint64_t left = min_u64(units, log->capacity); left > 0; left--) {
        *log_time(log, log->end++) = now_ns;
    }
    const uint64_t first = max_u64(log->first, saturating_sub(log->end, log->capacity));
    log->dropped = saturating_add(log->dropped, first - log->first + units - min_u64(units, log->capacity));
    log->first = first;
}

uint64_t log_pop(struct log *log, uint64_t units)
{
    const uint64_t dropped = min_u64(units, log->dropped);
    const uint64_t taken = min_u64(units - dropped, log->end - log->first);
    log->dropped -= dropped;
    log->end -= taken;
    log->told = min_u64(log->told, log->end);
    return dropped + taken;
}

void log_set_others(struct log *log, const struct log_group *groups, size_t count)
{
    struct log_group *own = groups_of(log);
    log->group_first = log->group_end = 0;
    log->others = 0;
    /* `each` neighbours make one group. */
    const size_t each = log->group_capacity != 0 ? (count + log->group_capacity - 1) / log->group_capacity : 0;
    for (size_t i = 0; i < count && each != 0; i++) {
        if (i % each == 0) {
            own[log->group_end++].units = 0;
        }
        own[log->group_end - 1].time_ns = groups[i].time_ns;
        own[log->group_end - 1].units += groups[i].units;
        log->others += groups[i].units;
    }
}

uint64_t log_retry_after(struct log *log, const struct rule *rule, uint64_t now_ns, uint64_t cost)
{
    if (cost > rule->limit) {
        return UINT64_MAX;
    }
    const uint64_t units = log_units(log);
    if (units + cost <= rule->limit) {
        return 0;
    }
    /* `leave` units must leave. With the first j groups gone, so must as many own ones as are then missing: the later
     * of the two times; and of all j the earliest. */
    const uint64_t leave = units + cost - rule->limit;
    const uint64_t own = log->end - log->first;
    const struct log_group *groups = groups_of(log);
    uint64_t best_ns = UINT64_MAX;
    uint64_t gone = 0;
    for (uint32_t j = log->group_first;; j++) {
        const uint64_t group_ns = j != log->group_first ? groups[j - 1].time_ns : 0;
        uint64_t wanted = saturating_sub(leave, gone);
        if (wanted != 0 && log->dropped != 0) {
            wanted = max_u64(saturating_sub(wanted, log->dropped), 1); /* they leave with the first one at the latest */
        }
        if (wanted <= own) {
            const uint64_t own_ns = wanted != 0 ? *log_time(log, log->first + wanted - 1) : 0;
            best_ns = min_u64(best_ns, max_u64(group_ns, own_ns));
        }
        if (j == log->group_end || wanted == 0) {
            break;
        }
        gone += groups[j].units;
    }
    return best_ns == UINT64_MAX ? UINT64_MAX : saturating_sub(best_ns + rule->period_ns, now_ns);
}

struct state log_summary(struct log *log, const struct rule *rule)
{
    uint64_t last_ns = 0;
    if (log->end != log->first) {
        last_ns = *log_time(log, log->end - 1);
    }
    if (log->group_end != log->group_first) {
        last_ns = max_u64(last_ns, groups_of(log)[log->group_end - 1].time_ns);
    }
    return (struct state){last_ns != 0 ? last_ns + rule->period_ns : 0, log_units(log)};
}

struct state log_fresh(void)
{
    return (struct state){0, 0};
}

uint64_t log_headroom(const struct rule *rule, struct state s, uint64_t now_ns)
{
    return now_ns >= s.a ? rule->limit : saturating_sub(rule->limit, s.b);
}

uint64_t log_reset_after(struct state s, uint64_t now_ns)
{
    return saturating_sub(s.a, now_ns);
}

uint64_t log_state_retry_after(const struct rule *rule, struct state s, uint64_t now_ns, uint64_t cost)
{
    if (cost > rule->limit) {
        return UINT64_MAX;
    }
    return log_headroom(rule, s, now_ns) >= cost ? 0 : log_reset_after(s, now_ns);
}

struct trace log_trace(struct state s, uint64_t now_ns)
{
    return s.a > now_ns ? (struct trace){s.b, s.a} : (struct trace){0, 0};
}

struct state log_resume(struct trace trace, uint64_t now_ns)
{
    return trace.until_ns > now_ns ? (struct state){trace.until_ns, trace.units} : log_fresh();
}
