/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What any call changes of a key that the fleet shares is marked for the node's next report, in every cell; what the
 * node keeps to itself never is. And each call counts once for each of its keys, and at most once as slow. Random calls
 * of two threads of a node.
 *
 * Guards: src/check/decide.c, src/check/claim.c, src/check/charge.c, src/check/refund.c, src/check/reserve.c,
 * src/check/reset.c, src/check/check.c, src/check/check_burst.c, src/check/all_direct.c, src/check/subject.c,
 * src/check/direct_charge.c, src/check/direct_charge.h, src/check/slot_learn.c, src/check/denial.c,
 * src/check/verdict.h, src/check/reserved_charge.c, src/check/renew_grant.c
 */
#include <inttypes.h>

#include "check/reset.h"
#include "support/nodes.h"

#define NAMES 3 /* of a policy, at a time */
#define MOST  8 /* keys of a call */

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static const weir_limit limits[] = {
    {.algorithm = WEIR_FIXED_WINDOW, .limit = 400, .period_ns = 24 * HOUR},
    {.algorithm = WEIR_TOKEN_BUCKET, .limit = 200, .period_ns = 24 * HOUR, .burst = 300},
    {.algorithm = WEIR_SLIDING_LOG, .limit = 250, .period_ns = 24 * HOUR},
    {.algorithm = WEIR_SLIDING_WINDOW, .limit = 350, .period_ns = 24 * HOUR},
    {.algorithm = WEIR_LEAKY_BUCKET, .limit = 300, .period_ns = 24 * HOUR, .delay = 300},
};
#define HERE .scope = WEIR_SCOPE_PROCESS
static const weir_policy policies[] = {
    {.name = "window", .limits = &limits[0], .limit_count = 1},
    {.name = "bucket", .limits = &limits[1], .limit_count = 1},
    {.name = "log", .limits = &limits[2], .limit_count = 1},
    {.name = "sliding", .limits = &limits[3], .limit_count = 1},
    {.name = "queue", .limits = &limits[4], .limit_count = 1},
    {.name = "two", .limits = &limits[0], .limit_count = 2},
    {.name = "four", .limits = &limits[1], .limit_count = 4},
    {.name = "here/window", .limits = &limits[0], .limit_count = 1, HERE},
    {.name = "alone/queue", .limits = &limits[4], .limit_count = 1, HERE},
    {.name = "own/two", .limits = &limits[1], .limit_count = 2, HERE},
};
#define POLICIES COUNT_OF(policies)

static struct {
    struct nodes n;
    struct node *node;
    weir_thread *threads[2];
    uint64_t rng, named;
    uint64_t names[POLICIES][NAMES];
    /* Before a call. */
    struct dwcas_value *states;
    uint64_t *hashes;
    weir_stats stats;
} d;

static struct table *table(void)
{
    return &d.node->w->limiter.process.table;
}

static void note_all(void)
{
    uint32_t cursor = 0;
    while (bitmap_next(&table()->dirty, &cursor, (uint32_t) table()->cell_count) != BITMAP_NONE) {
    }
    for (uint32_t at = 0; at < table()->cell_count; at++) {
        d.states[at] = dwcas_read(&table()->cells[at].state);
        d.hashes[at] = load_relaxed(&table()->cells[at].hash);
    }
    weir_get_stats(d.node->w, &d.stats);
}

static bool is_dirty(uint32_t at)
{
    return (load_relaxed(&table()->dirty.words[at / 64]) >> at % 64 & 1) != 0;
}

static bool has_changed(uint32_t at)
{
    const struct state before = cell_state(d.states[at]);
    const struct state now = cell_state(dwcas_read(&table()->cells[at].state));
    return now.a != before.a || now.b != before.b;
}

/* Returns whether a cell was changed. */
static bool expect_marked(const char *call)
{
    bool changed = false;
    for (uint32_t at = 0; at < table()->cell_count; at++) {
        const bool shared = cell_meta_is(&table()->metas[at], CELL_SHARED);
        if (load_relaxed(&table()->cells[at].hash) == 0 || (shared && !has_changed(at))) {
            continue;
        }
        changed |= has_changed(at);
        if (is_dirty(at) != shared) {
            fail_msg("%s: a cell that %s is%s marked", call, shared ? "was changed" : "is the node's own",
                     shared ? " not" : "");
        }
    }
    return changed;
}

/* Keys that a call counted, of which so many were allowed; and how often the call was slow. */
static void expect_counted(const char *call, uint64_t keys, uint64_t allowed, uint64_t slow_least, uint64_t slow_most)
{
    weir_stats now;
    weir_get_stats(d.node->w, &now);
    const uint64_t slow = now.slow_count - d.stats.slow_count;
    assert_int_equal(now.stalled_denied_count, 0); /* no thread stands still, */
    assert_int_equal(now.untracked_count, 0);      /* and there is room */
    if (now.allowed_count - d.stats.allowed_count != allowed ||
        now.denied_count - d.stats.denied_count != keys - allowed || slow < slow_least || slow > slow_most) {
        fail_msg("%s of %" PRIu64 " keys, %" PRIu64 " allowed: counts %" PRIu64 " allowed, %" PRIu64 " denied, %" PRIu64
                 " slow",
                 call, keys, allowed, now.allowed_count - d.stats.allowed_count,
                 now.denied_count - d.stats.denied_count, slow);
    }
}

static weir_key draw_key(void)
{
    const size_t p = random_below(&d.rng, POLICIES);
    uint64_t *name = &d.names[p][random_below(&d.rng, NAMES)];
    /* Far fewer than the table has room for. */
    const bool new = *name == 0 || (d.named < 200 && draw_once_in(&d.rng, 200));
    *name = new ? ++d.named : *name;
    d.node->key = weir_make_key(d.node->w, weir_find_policy(d.node->w, policies[p].name), name, sizeof(*name));
    if (new) {
        (void) look(d.node); /* an unused key is in the table */
    }
    if (new &&draw_once_in(&d.rng, 2)) {
        know_all(d.node);
    }
    return d.node->key;
}

/* Whether a verdict says what is known of one of a call's keys, by one of its limits. */
static void expect_verdict(const weir_key *keys, size_t count, uint64_t cost, bool allowed, const weir_verdict *v)
{
    assert_true(v->allowed == allowed && !v->would_deny && v->key_index < count);
    weir_policy_id id = keys[v->key_index].policy;
    size_t p = 0;
    while (weir_find_policy(d.node->w, policies[p].name) != id) {
        p++;
    }
    assert_in_range(v->limit_index, 0, policies[p].limit_count - 1);
    const weir_limit *limit = &policies[p].limits[v->limit_index];
    assert_int_equal(v->limit, limit->burst != 0 ? limit->burst : limit->limit);
    assert_in_range(v->remaining, 0, v->limit);
    assert_int_equal(v->basis, policies[p].scope == WEIR_SCOPE_PROCESS ? WEIR_BASIS_PROCESS : WEIR_BASIS_FLEET);
    assert_true(allowed ? v->retry_after_ns == 0 : v->retry_after_ns != 0);
    assert_true(count != 1 || (v->retry_after_ns == UINT64_MAX) == (cost > v->limit));
    assert_in_range(v->fleet_age_ns, 0, 2 * INTERVAL_MS * MILLISECOND);
}

/* The bits of a burst that were set. */
static uint64_t burst(weir_thread *t, const weir_key *keys, const uint64_t *costs, size_t count)
{
    uint64_t bits;
    const uint64_t allowed = weir_check_burst(t, keys, costs, count, &bits);
    assert_int_equal(__builtin_popcountll(bits), allowed);
    return allowed;
}

static void one_call(void)
{
    weir_thread *t = d.threads[random_below(&d.rng, 2)];
    weir_key keys[MOST];
    uint64_t costs[MOST];
    uint64_t wait_ns;
    uint64_t passed;
    bool allowed;
    weir_verdict v;
    weir_verdict *verdict = draw_once_in(&d.rng, 2) ? &v : NULL;
    const size_t count = 1 + random_below(&d.rng, MOST);
    for (size_t i = 0; i < count; i++) {
        keys[i] = draw_key();
        costs[i] = draw_once_in(&d.rng, 12) ? random_below(&d.rng, 300) : 1 + random_below(&d.rng, 3);
    }
    note_all();
    switch (random_below(&d.rng, 12)) {
    case 0:
        weir_charge(t, keys, costs[0]);
        expect_counted("weir_charge", 0, 0, expect_marked("weir_charge"), 1);
        break;
    case 1:
        weir_refund(t, keys, costs[0]);
        expect_counted("weir_refund", 0, 0, expect_marked("weir_refund"), 1);
        break;
    case 2:
        allowed = weir_reserve(t, keys, costs[0], draw_once_in(&d.rng, 2) ? 0 : HOUR, &wait_ns);
        expect_counted("weir_reserve", 1, allowed, expect_marked("weir_reserve"), 1);
        break;
    case 3:
        allowed = weir_peek(t, keys, costs[0], &v);
        expect_verdict(keys, 1, costs[0], allowed, &v);
        expect_counted("weir_peek", 0, 0, expect_marked("weir_peek"), 1);
        break;
    case 4:
        assert_int_equal(reset_key(&d.node->w->limiter, keys, false), 0); /* what weir_reset does here */
        expect_counted("weir_reset", 0, 0, 0, 0);
        (void) expect_marked("weir_reset");
        break;
    case 5:
        weir_count_denied(t, keys, costs[0], 2 * costs[0]);
        expect_counted("weir_count_denied", costs[0], 0, 0, 0);
        assert_false(expect_marked("weir_count_denied"));
        break;
    case 6:
    case 7:
        passed = burst(t, keys, costs, count);
        expect_counted("weir_check_burst", count, passed, expect_marked("weir_check_burst"), count);
        break;
    case 8:
    case 9:
        allowed = weir_check_all(t, keys, costs, count, verdict);
        if (verdict != NULL) {
            expect_verdict(keys, count, costs[0], allowed, verdict);
        }
        expect_counted("weir_check_all", 1, allowed, expect_marked("weir_check_all"), 1);
        break;
    default:
        allowed = weir_check(t, keys, costs[0], verdict);
        if (verdict != NULL) {
            expect_verdict(keys, 1, costs[0], allowed, verdict);
        }
        expect_counted("weir_check", 1, allowed, expect_marked("weir_check"), 1);
        break;
    }
}

static void test_what_a_call_changes_is_marked_and_the_call_is_counted_once(void **state)
{
    (void) state;
    d.rng = test_seed();
    nodes_init(&d.n, policies, POLICIES);
    node_open(&d.n, 0, 0);
    d.node = &d.n.node[0];
    d.threads[0] = d.node->t;
    d.threads[1] = weir_attach(d.node->w);
    d.states = calloc(table()->cell_count, sizeof(d.states[0]));
    d.hashes = calloc(table()->cell_count, sizeof(d.hashes[0]));
    assert_true(d.states != NULL && d.hashes != NULL);
    pass(&d.n, 1000);
    for (unsigned i = test_draws(12000); i > 0; i--) {
        one_call();
        if (draw_once_in(&d.rng, 30)) {
            tick_epoch(&d.node->w->limiter);
        } else if (draw_once_in(&d.rng, 200)) {
            pass(&d.n, INTERVAL_MS);
        }
    }
    nodes_stop(&d.n);
    free(d.states);
    free(d.hashes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_a_call_changes_is_marked_and_the_call_is_counted_once),
    };
    return cmocka_run_group_tests_name("unit/check/marked_calls", tests, NULL, NULL);
}
