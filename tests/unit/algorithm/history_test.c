/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A history against a list of times: what is in the window, what is refunded, the numbers of units, and waits.
 *
 * Guards: src/algorithm/history.c, src/algorithm/history.h
 */
#include "algorithm/history.h"

#include <stdlib.h>
#include <string.h>

#include "base/numbers.h"
#include "support/support.h"

#define UNITS_MOST  64 /* of a ring */
#define GROUPS_MOST 8
#define REMOTE_MOST 20 /* groups of an answer */
#define PERIOD_NS   UINT64_C(1000)

/* All units in the window, one by one. */
struct model {
    size_t capacity, group_capacity;
    uint64_t times[UNITS_MOST];
    size_t count;
    uint64_t dropped;
    struct history_group groups[GROUPS_MOST];
    size_t group_count;
    uint64_t fleet_number; /* of the first unit */
    uint64_t counts;       /* the numbers before this one are reported, less the number of the first unit */
};

static void remove_first(struct model *m)
{
    memmove(m->times, m->times + 1, --m->count * sizeof(m->times[0]));
    m->fleet_number++;
    m->counts -= m->counts != 0;
}

static uint64_t units_of(const struct model *m)
{
    uint64_t units = m->count + m->dropped;
    for (size_t i = 0; i < m->group_count; i++) {
        units += m->groups[i].units;
    }
    return units;
}

/* Of more units than the ring holds the latest have numbers. */
static void model_push(struct model *m, uint64_t now_ns, uint64_t units)
{
    const uint64_t last_ns = m->count != 0 ? m->times[m->count - 1] : 0;
    m->dropped += saturating_sub(units, m->capacity);
    for (uint64_t i = 0; i < min_u64(units, m->capacity); i++) {
        if (m->count == m->capacity) {
            remove_first(m);
            m->dropped++;
        }
        m->times[m->count++] = max_u64(last_ns, now_ns);
    }
}

static void model_clear(struct model *m, uint64_t until_ns)
{
    while (m->count != 0 && m->times[0] <= until_ns) {
        remove_first(m);
        m->dropped = 0;
    }
    while (m->group_count != 0 && m->groups[0].time_ns <= until_ns) {
        memmove(m->groups, m->groups + 1, --m->group_count * sizeof(m->groups[0]));
    }
}

static uint64_t model_pop(struct model *m, uint64_t units)
{
    uint64_t popped = 0;
    const uint64_t dropped = min_u64(units, m->dropped);
    m->dropped -= dropped;
    if (dropped != 0) { /* their numbers are free: those behind them move down, and are told anew */
        m->fleet_number -= min_u64(dropped, m->fleet_number);
        m->counts = 0;
    }
    for (popped = dropped; popped < units && m->count != 0; popped++) {
        m->count--;
    }
    m->counts = min_u64(m->counts, m->count);
    return popped;
}

/* Neighbours are joined, as many as must be, at the later time. */
static void model_set_remote(struct model *m, const struct history_group *groups, size_t count)
{
    size_t each = 1;
    while (m->group_capacity != 0 && each * m->group_capacity < count) {
        each++;
    }
    m->group_count = 0;
    for (size_t i = 0; i < count && m->group_capacity != 0; i += each) {
        struct history_group *joined = &m->groups[m->group_count++];
        *joined = (struct history_group){0, 0};
        for (size_t j = i; j < i + each && j < count; j++) {
            joined->time_ns = groups[j].time_ns;
            joined->units += groups[j].units;
        }
    }
}

/* The wait until so much fits, by trying each time at which something leaves. */
static uint64_t model_retry_after(const struct model *m, uint64_t limit, uint64_t now_ns, uint64_t cost)
{
    if (cost > limit) {
        return UINT64_MAX;
    }
    if (units_of(m) + cost <= limit) {
        return 0;
    }
    uint64_t least_ns = UINT64_MAX;
    for (size_t i = 0; i < m->count + m->group_count; i++) {
        struct model later = *m;
        const uint64_t time_ns = i < m->count ? m->times[i] : m->groups[i - m->count].time_ns;
        model_clear(&later, time_ns);
        if (units_of(&later) + cost <= limit && time_ns < least_ns) {
            least_ns = time_ns;
        }
    }
    return saturating_sub(least_ns + PERIOD_NS, now_ns);
}

static void expect_same(struct history *history, const struct model *m)
{
    assert_int_equal(history_units(history), units_of(m));
    assert_int_equal(history->end - history->first, m->count);
    assert_int_equal(history->dropped, m->dropped);
    assert_int_equal(history_fleet_number(history, history->first), m->fleet_number);
    assert_int_equal(max_u64(history->counts, history->first) - history->first, m->counts);
    for (size_t i = 0; i < m->count; i++) {
        assert_int_equal(*history_time(history, history->first + i), m->times[i]);
    }
    assert_int_equal(history->group_end - history->group_first, m->group_count);
    const struct history_group *groups = (const struct history_group *) (const void *) (history + 1);
    uint64_t remote = 0;
    for (size_t i = 0; i < m->group_count; i++) {
        assert_int_equal(groups[history->group_first + i].time_ns, m->groups[i].time_ns);
        assert_int_equal(groups[history->group_first + i].units, m->groups[i].units);
        remote += m->groups[i].units;
    }
    assert_int_equal(history->remote, remote);
    const struct rule rule = {.algorithm = WEIR_SLIDING_LOG, .limit = 20, .period_ns = PERIOD_NS};
    const struct state summary = history_summary(history, &rule);
    uint64_t last_ns = m->count != 0 ? m->times[m->count - 1] : 0;
    last_ns = m->group_count != 0 ? max_u64(last_ns, m->groups[m->group_count - 1].time_ns) : last_ns;
    assert_int_equal(history_state_until(summary), last_ns != 0 ? last_ns + PERIOD_NS : 0);
    assert_int_equal(history_state_count(summary), units_of(m));
}

static struct history *history_new(uint32_t capacity, uint32_t group_capacity)
{
    const size_t size = history_size(capacity, group_capacity);
    assert_int_equal(size, 64 + group_capacity * 16 + capacity * 8);
    unsigned char *bytes = malloc(size + 8);
    assert_non_null(bytes);
    memset(bytes, 0xee, size + 8);
    struct history *history = (struct history *) (void *) bytes;
    history_init(history, capacity, group_capacity);
    return history;
}

static void history_free(struct history *history)
{
    const unsigned char *end = (unsigned char *) history + history_size(history->capacity, history->group_capacity);
    for (size_t i = 0; i < 8; i++) {
        assert_int_equal(end[i], 0xee); /* nothing was written behind it */
    }
    free(history);
}

static void draw_answer(uint64_t *rng, struct history *history, struct model *m, uint64_t now_ns)
{
    struct history_group groups[REMOTE_MOST];
    const size_t count = random_below(rng, REMOTE_MOST + 1);
    uint64_t time_ns = now_ns - random_below(rng, PERIOD_NS);
    for (size_t i = 0; i < count; i++) {
        groups[i] = (struct history_group){time_ns, random_below(rng, 4)};
        time_ns += random_below(rng, 2) * random_below(rng, 100);
    }
    history_set_remote(history, groups, count);
    model_set_remote(m, groups, count);
}

static void play(uint64_t *rng, uint32_t capacity, uint32_t group_capacity)
{
    struct history *history = history_new(capacity, group_capacity);
    struct model m = {.capacity = capacity, .group_capacity = group_capacity};
    const struct rule rule = {.algorithm = WEIR_SLIDING_LOG, .limit = 20, .period_ns = PERIOD_NS};
    uint64_t now_ns = 1000000;
    for (int step = 0; step < 300; step++) {
        now_ns += random_below(rng, 2) * random_below(rng, PERIOD_NS / 3);
        history_expire(history, &rule, now_ns);
        model_clear(&m, now_ns - PERIOD_NS);
        const uint64_t units = draw_once_in(rng, 10) ? random_below(rng, 3 * capacity + 1) : random_below(rng, 4);
        switch (random_below(rng, 6)) {
        case 0:
            assert_int_equal(history_pop(history, units), model_pop(&m, units));
            break;
        case 1:
            draw_answer(rng, history, &m, now_ns);
            break;
        case 2: /* so many have been reported */
            m.counts = random_below(rng, m.count + 1);
            history->counts = history->first + m.counts;
            break;
        case 3: /* a thread with an older reading of the clock */
            history_push(history, now_ns - random_below(rng, 50), 0);
            break;
        default:
            history_push(history, now_ns - (step % 2 == 0 ? 30 : 0), units);
            model_push(&m, now_ns - (step % 2 == 0 ? 30 : 0), units);
            break;
        }
        expect_same(history, &m);
        for (uint64_t cost = 1; cost <= rule.limit + 1; cost += 4) {
            assert_int_equal(history_retry_after(history, &rule, now_ns, cost),
                             model_retry_after(&m, rule.limit, now_ns, cost));
        }
        if (draw_once_in(rng, 10)) { /* it moves to where there is more room */
            struct history *larger = history_new(2 * capacity, group_capacity + 1);
            history->acked_most = now_ns;
            history_copy(larger, history);
            assert_true(larger->acked_most == now_ns && larger->first == history->first);
            assert_true(larger->renumbered == history->renumbered && larger->counts == history->counts);
            expect_same(larger, &m);
            history_free(larger);
        }
    }
    history_free(history);
}

static void test_a_history_is_a_list_of_times_of_which_the_ring_keeps_the_latest(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    for (uint32_t capacity = 1; capacity <= UNITS_MOST / 2; capacity *= 2) {
        for (uint32_t groups = 0; groups <= GROUPS_MOST; groups += 1 + groups / 2) {
            for (unsigned i = 0; i < test_draws(6); i++) {
                play(&rng, capacity, groups);
            }
        }
    }
}

static void test_a_change_that_a_process_did_not_end_is_mended(void **state)
{
    (void) state;
    struct history *history = history_new(4, 2);
    history_push(history, 100, 3);
    history_set_remote(history, (struct history_group[]){{50, 5}, {60, 7}}, 2);
    /* It died between the new end and the new begin: the ring has the latest four. */
    for (uint64_t i = 0; i < 3; i++) {
        *history_time(history, history->end + i) = 200;
    }
    history->end += 3;
    history->remote = 99;
    history_mend(history);
    assert_true(history->first == 2 && history->end == 6 && history->remote == 12);
    assert_int_equal(*history_time(history, 2), 100);
    assert_int_equal(*history_time(history, 5), 200);
    /* No end is before its begin, and there are no more groups than there is room for. */
    history->end = history->first - 1;
    history->group_first = 1;
    history->group_end = 9;
    history_mend(history);
    assert_true(history->end == history->first && history->group_end == 2 && history->remote == 7);
    /* What is whole stays. */
    const struct history before = *history;
    history_mend(history);
    assert_memory_equal(history, &before, sizeof(before));
    history_free(history);
}

static void test_numbers_in_the_fleet_end_at_zero(void **state)
{
    (void) state;
    struct history *history = history_new(2, 0);
    history_push(history, 100, 9); /* seven are dropped, and had no numbers */
    assert_true(history->first == 0 && history->end == 2 && history->dropped == 7);
    assert_int_equal(history_pop(history, 3), 3);
    assert_true(history->renumbered == 0 && history->dropped == 4 && history->end == 2);
    history_push(history, 100, 1); /* one more is pushed out */
    assert_true(history->first == 1 && history->dropped == 5);
    assert_int_equal(history_pop(history, 5), 5);
    assert_true(history->renumbered == 1 && history_fleet_number(history, history->first) == 0);
    assert_int_equal(history_pop(history, 5), 2); /* no more than there are */
    assert_int_equal(history_units(history), 0);
    /* So many refunds of dropped units that their number has no room. */
    history->renumbered = UINT32_MAX - 1;
    history->first = history->end = UINT64_C(1) << 40;
    history_push(history, 200, 5);
    history->first += 5;
    history->end += 5;
    history->dropped = 5;
    assert_int_equal(history_pop(history, 5), 5);
    assert_int_equal(history->renumbered, UINT32_MAX);
    history_free(history);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_history_is_a_list_of_times_of_which_the_ring_keeps_the_latest),
        cmocka_unit_test(test_a_change_that_a_process_did_not_end_is_mended),
        cmocka_unit_test(test_numbers_in_the_fleet_end_at_zero),
    };
    return cmocka_run_group_tests_name("unit/algorithm/history", tests, NULL, NULL);
}
