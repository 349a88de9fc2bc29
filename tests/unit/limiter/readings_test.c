/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each counter and gauge of a node under its own name: in the statistics, the metrics and the status. The test plants a
 * number of its own in each place that they are read from, so that no two may be taken for each other.
 *
 * Guards: src/limiter/stats.c, src/limiter/prometheus.c, src/limiter/status/write_status.c,
 * src/limiter/status/readings.h, src/limiter/weir.c
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "algorithm/rate_table.h"
#include "support/nodes.h"

#define TEXT_SIZE ((size_t) 1 << 17)

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static const weir_limit limits[] = {{.algorithm = WEIR_FIXED_WINDOW, .limit = 10, .period_ns = HOUR},
                                    {.algorithm = WEIR_TOKEN_BUCKET, .limit = 9, .period_ns = SECOND, .burst = 4}};
static const weir_policy policies[] = {
    {.name = "api", .limits = limits, .limit_count = 1},
    {.name = "api/pro", .limits = limits, .limit_count = 2, .mode = WEIR_SHADOW, .on_outage = WEIR_OUTAGE_LOCAL},
    {.name = "own",
     .limits = limits + 1,
     .limit_count = 1,
     .scope = WEIR_SCOPE_PROCESS,
     .on_outage = WEIR_OUTAGE_CLOSED,
     .on_long_outage = WEIR_OUTAGE_OPEN},
};

static struct nodes n;
static char text[TEXT_SIZE];

/* The counters of one handle, all different; those of another one differ by `scale`. */
static void plant_thread(weir_thread *t, uint64_t scale)
{
    struct thread_shared *shared = t->shared;
    store_relaxed(&shared->slow_count, 1 * scale);
    store_relaxed(&shared->unknown_count, 2 * scale);
    store_relaxed(&shared->untracked_count, 3 * scale);
    store_relaxed(&shared->stalled_denied_count, 4 * scale);
    store_relaxed(&shared->late_units, 5 * scale);
    store_relaxed(&shared->admissions.recorded, 6 * scale);
    store_relaxed(&shared->admissions.records_dropped, 7 * scale);
    store_relaxed(&shared->admissions.idle_replaced, 8 * scale);
    for (weir_policy_id id = 1; id <= COUNT_OF(policies); id++) {
        store_relaxed(&t->tallies[id].allowed, (10 + id) * scale);
        store_relaxed(&t->tallies[id].denied, (20 + id) * scale);
        store_relaxed(&t->tallies[id].would_deny, (30 + id) * scale);
    }
}

static void plant_process(struct process *process)
{
    struct process_shared *shared = process->shared;
    store_relaxed(&shared->evicted_unused_count, 41000000);
    store_relaxed(&shared->evicted_used_count, 42000000);
    store_relaxed(&shared->lost_report_count, 43);
    store_relaxed(&shared->evicted_restored_count, 44);
    store_relaxed(&shared->evicted_unrecorded_count, 45000000);
    store_relaxed(&process->top_denied.shared->denied_units, 46);
    store_relaxed(&process->top_denied.shared->evicted_denied_units, 47);
    store_relaxed(&process->table.shared->key_count, 48);
    for (uint32_t cell = 0; cell < 49; cell++) {
        table_set_dirty(&process->table, cell);
    }
    for (uint32_t cell = 0; cell < 50; cell++) {
        bitmap_set(&process->table.deferred, cell);
    }
}

static void plant_fleet(struct fleet_stats *stats)
{
    store_relaxed(&stats->live_nodes, 51);
    store_relaxed(&stats->suspect_nodes, 52);
    store_relaxed(&stats->awaiting_peers, 1);
    store_relaxed(&stats->round_trip_ns, 54000321);
    store_relaxed(&stats->sync_count, 55);
    store_relaxed(&stats->sync_error_count, 56);
    store_relaxed(&stats->connection_count, 57);
    store_relaxed(&stats->connection_attempt_count, 58);
    store_relaxed(&stats->redis_lost_state_count, 59);
    store_relaxed(&stats->report_count, 60);
    store_relaxed(&stats->rejected_report_count, 61);
    store_relaxed(&stats->report_retry_count, 62);
    store_relaxed(&stats->deferred_report_count, 63);
    store_relaxed(&stats->sent_size, 64);
    store_relaxed(&stats->overrides_left_out, 65);
    store_relaxed(&stats->urgent_sync_count, 66);
    store_relaxed(&stats->limit_differences, 165);
    store_relaxed(&stats->clock_skew_ns, -1067000000);
    store_relaxed(&stats->estimate_sum, -3000007);
    store_relaxed(&stats->link, WEIR_LINK_DOWN);
    for (size_t i = 0; i < LINK_ERROR_KINDS; i++) {
        store_relaxed(&stats->link_error_counts[i], 70 + i);
    }
    for (size_t i = 0; i < ESTIMATE_BUCKETS; i++) {
        store_relaxed(&stats->estimate_counts[i], UINT64_C(1) << i);
    }
}

/* 20 keys of "api", of which key i is denied i + 1 units. */
static void deny_keys(struct node *node)
{
    for (uint8_t i = 0; i < 20; i++) {
        const uint8_t byte = (uint8_t) ('a' + i);
        const weir_key key = weir_make_key(node->w, weir_find_policy(node->w, "api"), &byte, 1);
        uint64_t denied = 0;
        while (denied < i + UINT64_C(1)) {
            denied += !weir_check(node->t, &key, 1, NULL);
        }
    }
}

static weir *node_w;

/* A node of a fleet with a second handle, on which nothing happens any more. Its age is 2.5 s, a second after it
 * opened.
 */
static int plant(void **state)
{
    (void) state;
    nodes_init(&n, policies, COUNT_OF(policies));
    n.key_is_new = true;
    node_open(&n, 0, 0);
    struct node *node = &n.node[0];
    weir *w = node_w = node->w;
    deny_keys(node);
    pass(&n, 1000);
    weir_thread *u = weir_attach(w);
    assert_non_null(u);
    plant_thread(node->t, 1);
    plant_thread(u, 1000);
    plant_process(&w->limiter.process);
    plant_fleet(&w->fleet->stats);
    store_relaxed(&w->shared->override_count, 67);
    weir_count_unlimited(w, 80);
    weir_count_unlimited(w, 0);
    weir_count_unlimited(w, 5);
    store_relaxed(&w->shared->dropped.dropped[0], UINT64_C(1) << 63);
    store_relaxed(&w->shared->dropped.dropped[15], 3);
    store_relaxed(&w->limiter.shared->attach_failures[ATTACH_FULL], 68000);
    store_relaxed(&w->limiter.shared->attach_failures[ATTACH_NO_ROOM], 69);
    store_relaxed(&w->limiter.process.shared->news_ns, tick_time(&w->limiter) - 2500000000);
    return 0;
}

/* A fleet whose counters are not the ones that were planted would not end as it does. */
static int uproot(void **state)
{
    (void) state;
    struct process *process = &node_w->limiter.process;
    for (uint32_t cell = 0; cell < 50; cell++) {
        bitmap_clear(&process->table.deferred, cell);
        bitmap_clear(&process->table.dirty, cell);
    }
    nodes_stop(&n);
    return 0;
}

#define FIELD(field, expected)                                                                                         \
    {                                                                                                                  \
#field, offsetof(weir_stats, field), sizeof(((weir_stats *) NULL)->field), expected                            \
    }

static void test_each_field_of_the_statistics_has_its_own_number(void **state)
{
    (void) state;
    static const struct {
        const char *name;
        size_t at, size;
        uint64_t value;
    } fields[] = {
        FIELD(allowed_count, 36036 + 2002), /* with the checks of no policy */
        FIELD(denied_count, 66066),
        FIELD(would_deny_count, 96096),
        FIELD(unknown_policy_count, 2002),
        FIELD(slow_count, 1001),
        FIELD(untracked_count, 3003),
        FIELD(late_units, 5005),
        FIELD(key_count, 48),
        FIELD(evicted_unused_count, 41008008),
        FIELD(evicted_used_count, 42006006),
        FIELD(lost_report_count, 43),
        FIELD(thread_count, 2),
        FIELD(live_nodes, 51),
        FIELD(link, WEIR_LINK_DOWN),
        FIELD(fleet_age_ns, 2500000000),
        FIELD(round_trip_ns, 54000321),
        FIELD(sync_count, 55),
        FIELD(sync_error_count, 56),
        FIELD(connection_count, 57),
        FIELD(redis_lost_state_count, 59),
        FIELD(report_count, 60),
        FIELD(rejected_report_count, 61),
        FIELD(override_count, 67),
        FIELD(deferred_report_count, 63),
        FIELD(urgent_sync_count, 66),
        FIELD(report_retry_count, 62),
        FIELD(pending_key_count, 49),
        FIELD(deferred_key_count, 50),
        FIELD(denied_units, 46),
        FIELD(evicted_denied_units, 47),
        FIELD(evicted_restored_count, 44),
        FIELD(evicted_unrecorded_count, 45007007),
        FIELD(connection_attempt_count, 58),
        FIELD(process_count, 1),
        FIELD(stalled_denied_count, 4004),
        FIELD(unlimited_count, 85),
        FIELD(attach_error_count, 68069),
        FIELD(dropped_policy_count, 3),
    };
    weir_stats stats;
    weir_get_stats(node_w, &stats);
    for (size_t i = 0; i < COUNT_OF(fields); i++) {
        uint64_t value = 0;
        memcpy(&value, (const unsigned char *) &stats + fields[i].at, fields[i].size); /* little-endian */
        if (value != fields[i].value) {
            fail_msg("%s is %" PRIu64 ", and not %" PRIu64, fields[i].name, value, fields[i].value);
        }
    }
    assert_int_equal(stats.key_capacity, node_w->limiter.process.table.cell_count);
    /* A key may be evicted before it is counted: the count is below 0 for a moment. */
    store_relaxed(&node_w->limiter.process.table.shared->key_count, UINT64_MAX);
    weir_get_stats(node_w, &stats);
    assert_int_equal(stats.key_count, 0);
    store_relaxed(&node_w->limiter.process.table.shared->key_count, stats.key_capacity);
    weir_get_stats(node_w, &stats);
    assert_int_equal(stats.key_count, stats.key_capacity);
    store_relaxed(&node_w->limiter.process.table.shared->key_count, 48);
}

static void expect_counters(const weir_policy_stats *stats, uint64_t id)
{
    assert_int_equal(stats->allowed_count, (10 + id) * 1001);
    assert_int_equal(stats->denied_count, (20 + id) * 1001);
    assert_int_equal(stats->would_deny_count, (30 + id) * 1001);
}

static void test_the_statistics_of_a_policy_are_its_own(void **state)
{
    (void) state;
    for (size_t i = 0; i < COUNT_OF(policies); i++) {
        weir_policy_stats stats;
        const weir_policy_id id = weir_find_policy(node_w, policies[i].name);
        memset((void *) &stats, 0xa5, sizeof(stats));
        assert_int_equal(weir_get_policy_stats(node_w, id, &stats, sizeof(stats)), 0);
        expect_counters(&stats, id);
        assert_int_equal(stats.limit_count, policies[i].limit_count);
        for (size_t j = 0; j < stats.limit_count; j++) {
            const weir_limit *given = &policies[i].limits[j];
            const weir_limit *limit = &stats.limits[j];
            assert_true(limit->algorithm == given->algorithm && limit->calendar == given->calendar);
            assert_true(limit->limit == given->limit && limit->period_ns == given->period_ns);
            assert_true(limit->burst == (given->burst != 0 ? given->burst : given->limit) && limit->name == NULL);
        }
        assert_false(stats.in_outage);
        assert_int_equal(stats.outage_mode, policies[i].on_outage);
    }
    weir_policy_stats none;
    assert_int_equal(weir_get_policy_stats(node_w, WEIR_NO_POLICY, &none, sizeof(none)), -ENOENT);
    assert_int_equal(none.allowed_count + none.denied_count + none.would_deny_count + none.limit_count, 0);
    assert_int_equal(weir_get_policy_stats(node_w, 1000, &none, sizeof(none)), -ENOENT);
    assert_int_equal(weir_get_policy_stats(node_w, UINT32_MAX, &none, sizeof(none)), -ENOENT);
    assert_int_equal(weir_get_policy_stats(node_w, 1, NULL, sizeof(none)), -EINVAL);
}

static void test_a_policy_that_is_no_longer_in_the_set_keeps_its_counters(void **state)
{
    (void) state;
    weir_policy_stats stats;
    const weir_policy_id own = weir_find_policy(node_w, "own");
    assert_int_equal(weir_set_policies(node_w, policies, 2, NULL), 0);
    assert_int_equal(weir_get_policy_stats(node_w, own, &stats, sizeof(stats)), -ENOENT);
    expect_counters(&stats, own);
    assert_int_equal(stats.limit_count, 0);
    assert_int_equal(weir_set_policies(node_w, policies, COUNT_OF(policies), NULL), 0);
    assert_int_equal(weir_get_policy_stats(node_w, own, &stats, sizeof(stats)), 0);
    expect_counters(&stats, own);
}

/* Each outage mode, as outage.c writes it. */
static void test_the_outage_mode_of_a_policy_is_told_with_its_statistics(void **state)
{
    (void) state;
    static const weir_outage modes[] = {WEIR_OUTAGE_SHARE, WEIR_OUTAGE_LOCAL, WEIR_OUTAGE_OPEN, WEIR_OUTAGE_CLOSED};
    struct policy_set *set = process_policies(&node_w->limiter.process);
    const weir_policy_id id = weir_find_policy(node_w, "api");
    struct policy *policy = &set->policies[0];
    for (size_t i = 0; i < COUNT_OF(modes); i++) {
        weir_policy_stats stats;
        store_relaxed(&policy->outage_mode, (uint8_t) (OUTAGE_MODE_SHARE + i));
        assert_int_equal(weir_get_policy_stats(node_w, id, &stats, sizeof(stats)), 0);
        assert_true(stats.in_outage);
        assert_int_equal(stats.outage_mode, modes[i]);
    }
    store_relaxed(&policy->outage_mode, OUTAGE_MODE_NONE);
}

static void test_the_statistics_of_a_policy_stay_within_the_room_of_the_caller(void **state)
{
    (void) state;
    union {
        weir_policy_stats stats;
        unsigned char bytes[sizeof(weir_policy_stats) + 32];
    } room;
    for (size_t size = 0; size <= sizeof(room); size++) {
        memset(&room, 0xa5, sizeof(room));
        assert_int_equal(weir_get_policy_stats(node_w, 1, &room.stats, size), 0);
        for (size_t i = 0; i < sizeof(room); i++) {
            const bool later = i >= sizeof(weir_policy_stats);
            if (i >= size ? room.bytes[i] != 0xa5 : later && room.bytes[i] != 0) {
                fail_msg("of %zu bytes, byte %zu is 0x%02x", size, i, room.bytes[i]);
            }
        }
    }
}

/* The lines of the metrics that are no comments, but for those that the test cannot know. */
static const char *const series[] = {
    "weir_checks_total{policy=\"api\",answer=\"allowed\"} 11011",
    "weir_checks_total{policy=\"api\",answer=\"denied\"} 21021",
    "weir_checks_total{policy=\"api/pro\",answer=\"allowed\"} 12012",
    "weir_checks_total{policy=\"api/pro\",answer=\"denied\"} 22022",
    "weir_checks_total{policy=\"own\",answer=\"allowed\"} 13013",
    "weir_checks_total{policy=\"own\",answer=\"denied\"} 23023",
    "weir_would_deny_total{policy=\"api\"} 31031",
    "weir_would_deny_total{policy=\"api/pro\"} 32032",
    "weir_would_deny_total{policy=\"own\"} 33033",
    "weir_outage_mode{policy=\"api\",mode=\"fleet\"} 1",
    "weir_outage_mode{policy=\"api\",mode=\"share\"} 0",
    "weir_outage_mode{policy=\"api\",mode=\"local\"} 0",
    "weir_outage_mode{policy=\"api\",mode=\"open\"} 0",
    "weir_outage_mode{policy=\"api\",mode=\"closed\"} 0",
    "weir_limit_units{policy=\"api/pro\",limit=\"2\",name=\"api/pro-2\",algorithm=\"token_bucket\"} 9",
    "weir_limit_burst_units{policy=\"api/pro\",limit=\"2\",name=\"api/pro-2\",algorithm=\"token_bucket\"} 4",
    "weir_recent_denied_units{policy=\"api\"} 210",
    "weir_recent_denied_units{policy=\"own\"} 0",
    "weir_top_offenders_ratio{policy=\"api\"} 0.952380", /* 5 to 20 of 1 to 20 */
    "weir_top_offenders_ratio{policy=\"own\"} 0.000000",
    "weir_slow_checks_total 1001",
    "weir_unknown_policy_checks_total 2002",
    "weir_untracked_checks_total 3003",
    "weir_late_units_total 5005",
    "weir_keys 48",
    "weir_evicted_keys_total{state=\"unused\"} 41008008",
    "weir_evicted_keys_total{state=\"used\"} 42006006",
    "weir_evicted_restored_total 44",
    "weir_evicted_unrecorded_total 45007007",
    "weir_lost_reports_total 43",
    "weir_denied_units_total 46",
    "weir_evicted_denied_units_total 47",
    "weir_threads 2",
    "weir_processes 1",
    "weir_stalled_denied_checks_total 4004",
    "weir_unlimited_requests_total 85",
    "weir_attach_errors_total 68069",
    "weir_dropped_policies 3",
    "weir_redis_up 0",
    "weir_live_nodes 51",
    "weir_suspect_nodes 52",
    "weir_awaiting_peers 1",
    "weir_fleet_age_seconds 2.500000000",
    "weir_round_trip_seconds 0.054000321",
    "weir_clock_skew_seconds -1.067000000",
    "weir_syncs_total 55",
    "weir_sync_errors_total 56",
    "weir_connection_attempts_total 58",
    "weir_connections_total 57",
    "weir_redis_lost_state_total 59",
    "weir_reports_total 60",
    "weir_rejected_reports_total 61",
    "weir_overrides 67",
    "weir_overrides_left_out 65",
    "weir_limit_differences 165",
    "weir_urgent_syncs_total 66",
    "weir_deferred_reports_total 63",
    "weir_report_retries_total 62",
    "weir_pending_keys 49",
    "weir_deferred_keys 50",
    "weir_errors_total{kind=\"timeout\"} 70",
    "weir_errors_total{kind=\"connection\"} 71",
    "weir_errors_total{kind=\"other\"} 84",
    "weir_estimate_error_ratio_bucket{le=\"-0.100\"} 1",
    "weir_estimate_error_ratio_bucket{le=\"-0.030\"} 3",
    "weir_estimate_error_ratio_bucket{le=\"-0.010\"} 7",
    "weir_estimate_error_ratio_bucket{le=\"-0.003\"} 15",
    "weir_estimate_error_ratio_bucket{le=\"0.003\"} 31",
    "weir_estimate_error_ratio_bucket{le=\"0.100\"} 255",
    "weir_estimate_error_ratio_bucket{le=\"+Inf\"} 1023",
    "weir_estimate_error_ratio_sum -3.000007",
    "weir_estimate_error_ratio_count 1023",
    "weir_sent_bytes_total 64",
};

static void write_metrics(const weir *w)
{
    const int size = weir_write_metrics(w, text, sizeof(text));
    assert_true(size > 0 && (size_t) size < sizeof(text));
    assert_int_equal(strlen(text), size);
}

static void expect_line(const char *line)
{
    char whole[300];
    (void) snprintf(whole, sizeof(whole), "\n%s\n", line);
    if (strstr(text, whole) == NULL) {
        fail_msg("there is no line %s in\n%s", line, text);
    }
}

static void test_each_metric_has_its_own_number(void **state)
{
    (void) state;
    char line[200];
    write_metrics(node_w);
    for (size_t i = 0; i < COUNT_OF(series); i++) {
        expect_line(series[i]);
    }
    /* A policy and its tiers have one series. */
    const char *second = strstr(strstr(text, "\nweir_recent_denied_units{") + 1, "\nweir_recent_denied_units{");
    assert_true(second != NULL && strstr(second + 1, "\nweir_recent_denied_units{") == NULL);
    weir_stats stats;
    weir_get_stats(node_w, &stats);
    (void) snprintf(line, sizeof(line), "weir_memory_bytes %" PRIu64, stats.memory_size);
    expect_line(line);
    (void) snprintf(line, sizeof(line), "weir_key_capacity %" PRIu64, stats.key_capacity);
    expect_line(line);
    (void) snprintf(line, sizeof(line), "weir_node_info{node=\"%s\",name=\"%s\"} 1", node_w->fleet->node,
                    node_w->fleet->name);
    expect_line(line);
}

/* Signs, and what is not known, the other way round; and an outage mode. */
static void test_metrics_of_a_node_that_is_up_and_never_had_an_answer(void **state)
{
    (void) state;
    struct fleet_stats *stats = &node_w->fleet->stats;
    struct policy *policy = &process_policies(&node_w->limiter.process)->policies[0];
    const uint64_t news_ns = load_relaxed(&node_w->limiter.process.shared->news_ns);
    store_relaxed(&stats->link, WEIR_LINK_UP);
    store_relaxed(&stats->clock_skew_ns, 5);
    store_relaxed(&stats->estimate_sum, 2000003);
    store_relaxed(&node_w->limiter.process.shared->news_ns, 0);
    store_relaxed(&policy->outage_mode, OUTAGE_MODE_LOCAL);
    write_metrics(node_w);
    expect_line("weir_redis_up 1");
    expect_line("weir_clock_skew_seconds 0.000000005");
    expect_line("weir_estimate_error_ratio_sum 2.000003");
    expect_line("weir_fleet_age_seconds 1.000000000"); /* since weir_open */
    expect_line("weir_outage_mode{policy=\"api\",mode=\"fleet\"} 0");
    expect_line("weir_outage_mode{policy=\"api\",mode=\"local\"} 1");
    expect_line("weir_outage_mode{policy=\"api/pro\",mode=\"fleet\"} 1");
    store_relaxed(&policy->outage_mode, OUTAGE_MODE_NONE);
    store_relaxed(&node_w->limiter.process.shared->news_ns, news_ns);
    plant_fleet(stats);
}

/* "# HELP name Sentence.", "# TYPE name type", and then lines of that name: nothing else, and no name twice. */
static void test_each_metric_is_explained_and_has_its_type(void **state)
{
    (void) state;
    char name[100] = "";
    char type[100] = "";
    size_t lines = 0;
    size_t series_count = 0;
    write_metrics(node_w);
    assert_int_equal(text[strlen(text) - 1], '\n');
    for (char *line = text, *next; *line != '\0'; line = next, lines++) {
        next = strchr(line, '\n');
        assert_non_null(next);
        *next++ = '\0';
        if (strncmp(line, "# HELP ", 7) == 0) {
            assert_true(lines == 0 || series_count > 0);
            assert_int_equal(sscanf(line, "# HELP %99s", name), 1);
            assert_int_equal(next[-2], '.');
            assert_true(strlen(line) > strlen("# HELP  .") + strlen(name));
            char wanted[220];
            (void) snprintf(wanted, sizeof(wanted), "# TYPE %s ", name);
            assert_int_equal(strncmp(next, wanted, strlen(wanted)), 0);
            series_count = 0;
        } else if (strncmp(line, "# TYPE ", 7) == 0) {
            assert_int_equal(sscanf(line, "# TYPE %*s %99s", type), 1);
            const bool total = strcmp(name + strlen(name) - 6, "_total") == 0;
            const bool histogram = strcmp(name, "weir_estimate_error_ratio") == 0;
            assert_string_equal(type, histogram ? "histogram" : total ? "counter" : "gauge");
        } else {
            assert_int_equal(strncmp(line, name, strlen(name)), 0);
            assert_true(strchr("{ _", line[strlen(name)]) != NULL);
            assert_true(line[strlen(name)] != '_' || strcmp(type, "histogram") == 0);
            series_count++;
        }
    }
}

static void test_each_field_of_the_status_has_its_own_number(void **state)
{
    (void) state;
    static char expected[TEXT_SIZE];
    static char offenders[4096];
    size_t used = 0;
    for (int units = 20; units > 4; units--) { /* 16 of them */
        used += (size_t) snprintf(offenders + used, sizeof(offenders) - used,
                                  "%s{\"key\":\"%c\",\"denied_units\":%d,\"error_units\":0}", units < 20 ? "," : "",
                                  'a' + units - 1, units);
    }
    weir_stats stats;
    weir_get_stats(node_w, &stats);
    (void) snprintf(
        expected, sizeof(expected),
        "{\"version\":\"%s\",\"processes\":1,\"link\":\"down\",\"live_nodes\":51,\"fleet_age_ms\":2500,\"syncs\":55,"
        "\"sync_errors\":56,\"suspect_nodes\":52,\"awaiting_peers\":true,\"round_trip_us\":54000,\"connections\":57,"
        "\"connection_attempts\":58,\"reports\":60,\"rejected_reports\":61,\"redis_lost_state\":59,\"overrides\":67,"
        "\"keys\":48,\"key_capacity\":%" PRIu64 ",\"allowed\":38038,\"denied\":66066,\"would_deny\":96096,"
        "\"untracked\":3003,\"policies\":["
        "{\"name\":\"api\",\"mode\":\"enforce\",\"scope\":\"fleet\",\"offenders\":[%s],\"group\":\"api\","
        "\"outage_mode\":\"fleet\",\"basis\":\"fleet\",\"on_outage\":\"share\",\"on_long_outage\":\"share\","
        "\"allowed\":11011,\"denied\":21021,\"would_deny\":31031,\"recent_denied_units\":210,\"limits\":[{\"name\":"
        "\"api\",\"algorithm\":\"fixed_window\",\"limit\":10,\"period_ns\":3600000000000,\"burst\":10}]},"
        "{\"name\":\"api/pro\",\"mode\":\"shadow\",\"scope\":\"fleet\",\"offenders\":[%s],\"group\":\"api\","
        "\"outage_mode\":\"fleet\",\"basis\":\"fleet\",\"on_outage\":\"local\",\"on_long_outage\":\"share\","
        "\"allowed\":12012,\"denied\":22022,\"would_deny\":32032,\"recent_denied_units\":210,\"limits\":[{\"name\":"
        "\"api/pro-1\",\"algorithm\":\"fixed_window\",\"limit\":10,\"period_ns\":3600000000000,\"burst\":10},{\"name\":"
        "\"api/pro-2\",\"algorithm\":\"token_bucket\",\"limit\":9,\"period_ns\":1000000000,\"burst\":4}]},"
        "{\"name\":\"own\",\"mode\":\"enforce\",\"scope\":\"process\",\"offenders\":[],\"group\":\"own\","
        "\"outage_mode\":\"fleet\",\"basis\":\"process\",\"on_outage\":\"closed\",\"on_long_outage\":\"open\","
        "\"allowed\":13013,\"denied\":23023,\"would_deny\":33033,\"recent_denied_units\":0,\"limits\":[{\"name\":"
        "\"own\",\"algorithm\":\"token_bucket\",\"limit\":9,\"period_ns\":1000000000,\"burst\":4}]}],"
        "\"node\":\"%s\",\"name\":\"%s\",\"time_ms\":%" PRIu64 ",\"uptime_ms\":1000,\"threads\":2,"
        "\"unknown_policy\":2002,\"evicted_used\":42006006,\"late_units\":5005,\"memory_bytes\":%" PRIu64
        ",\"errors\":{\"timeout\":70,\"connection\":71,\"loading\":72,\"readonly\":73,\"replica\":74,\"masterdown\":75,"
        "\"clusterdown\":76,\"noauth\":77,\"wrongpass\":78,\"noperm\":79,\"busy\":80,\"oom\":81,\"misconf\":82,"
        "\"protocol\":83,\"other\":84},\"estimate_error\":{\"sum_ppm\":-3000007,\"bounds_ppm\":[-100000,-30000,-10000,"
        "-3000,3000,10000,30000,100000,300000],\"counts\":[1,2,4,8,16,32,64,128,256,512]},\"unlimited\":85,\"attach_"
        "errors\":68069,\"dropped_policies\":3}\n",
        weir_version(), stats.key_capacity, offenders, offenders, node_w->fleet->node, node_w->fleet->name,
        (START_NS + SECOND) / MILLISECOND, stats.memory_size);
    const int size = weir_write_status(node_w, text, sizeof(text));
    assert_string_equal(text, expected);
    assert_int_equal(size, strlen(expected));
}

/* What the verdicts rest on, and the link, in each state. */
static void test_the_status_says_what_verdicts_rest_on(void **state)
{
    (void) state;
    static const struct {
        bool answered;
        uint8_t outage_mode;
        const char *part, *own;
    } rows[] = {
        {true, OUTAGE_MODE_NONE, "\"outage_mode\":\"fleet\",\"basis\":\"fleet\"", "\"basis\":\"process\""},
        {true, OUTAGE_MODE_SHARE, "\"outage_mode\":\"share\",\"basis\":\"outage\"", "\"basis\":\"process\""},
        {false, OUTAGE_MODE_NONE, "\"outage_mode\":\"fleet\",\"basis\":\"process\"", "\"basis\":\"process\""},
        {false, OUTAGE_MODE_CLOSED, "\"outage_mode\":\"closed\",\"basis\":\"outage\"", "\"basis\":\"process\""},
    };
    struct policy_set *set = process_policies(&node_w->limiter.process);
    const uint64_t news_ns = load_relaxed(&node_w->limiter.process.shared->news_ns);
    store_relaxed(&node_w->fleet->stats.awaiting_peers, 0);
    store_relaxed(&node_w->fleet->stats.link, WEIR_LINK_UP);
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        for (size_t j = 0; j < set->count; j++) {
            store_relaxed(&set->policies[j].outage_mode, rows[i].outage_mode);
        }
        store_relaxed(&node_w->limiter.process.shared->news_ns, rows[i].answered ? news_ns : 0);
        assert_true(weir_write_status(node_w, text, sizeof(text)) > 0);
        const char *const api = strstr(text, "\"name\":\"api\"");
        const char *const own = strstr(text, "\"name\":\"own\"");
        assert_true(api != NULL && own != NULL && strstr(api, rows[i].part) < own);
        assert_non_null(strstr(api, rows[i].part));
        assert_non_null(strstr(own, rows[i].own));
        assert_non_null(strstr(text, rows[i].answered ? "\"fleet_age_ms\":2500," : "\"fleet_age_ms\":null,"));
        assert_non_null(strstr(text, "\"awaiting_peers\":false,"));
        assert_non_null(strstr(text, "\"link\":\"up\","));
    }
    for (size_t j = 0; j < set->count; j++) {
        store_relaxed(&set->policies[j].outage_mode, OUTAGE_MODE_NONE);
    }
    store_relaxed(&node_w->limiter.process.shared->news_ns, news_ns);
    plant_fleet(&node_w->fleet->stats);
}

static void test_the_most_denied_keys_are_those_of_a_policy_and_its_tiers(void **state)
{
    (void) state;
    weir_offender out[WEIR_TOP_OFFENDERS + 4];
    static const char *const tiers[] = {"api", "api/pro"};
    static const size_t rooms[] = {1, 3, WEIR_TOP_OFFENDERS, COUNT_OF(out)};
    for (size_t i = 0; i < 2 * COUNT_OF(rooms); i++) {
        const size_t most = rooms[i / 2] < WEIR_TOP_OFFENDERS ? rooms[i / 2] : WEIR_TOP_OFFENDERS;
        memset(out, 0xa5, sizeof(out));
        assert_int_equal(weir_top_offenders(node_w, weir_find_policy(node_w, tiers[i % 2]), out, rooms[i / 2]), most);
        for (size_t j = 0; j < most; j++) {
            assert_true(out[j].key[0] == (char) ('t' - j) && out[j].key[1] == '\0');
            assert_true(out[j].denied_units == 20 - j && out[j].error_units == 0);
        }
        assert_int_equal(out[most].key[0], (char) 0xa5);
    }
    assert_int_equal(weir_top_offenders(node_w, weir_find_policy(node_w, "api"), NULL, 0), 0);
    assert_int_equal(weir_top_offenders(node_w, weir_find_policy(node_w, "own"), out, 4), 0);
    assert_int_equal(weir_top_offenders(node_w, WEIR_NO_POLICY, out, 4), 0);
    assert_int_equal(weir_top_offenders(node_w, 4, out, 4), 0);
    assert_int_equal(weir_top_offenders(node_w, UINT32_MAX, out, 4), 0);
}

/* A weir without a fleet writes no metrics of one. */
static void test_a_weir_alone_writes_nothing_of_a_fleet(void **state)
{
    (void) state;
    weir *w = open_or_fail(NULL);
    write_metrics(w);
    assert_non_null(strstr(text, "\nweir_memory_bytes "));
    assert_null(strstr(text, "weir_redis_up"));
    assert_null(strstr(text, "weir_sent_bytes_total"));
    weir_close(w);
}

static void test_a_handle_that_nobody_has_attached_counts_nothing(void **state)
{
    (void) state;
    static char before[TEXT_SIZE];
    struct fake_clock clock;
    fake_clock_init(&clock, START_NS);
    weir_options options = WEIR_OPTIONS_INIT;
    options.clock = &clock.clock;
    options.max_threads = 2;
    weir *w = open_or_fail(&options);
    assert_int_equal(weir_set_policies(w, policies, COUNT_OF(policies), NULL), 0);
    plant_thread(weir_attach(w), 1);
    weir_stats stats[2];
    weir_get_stats(w, &stats[0]);
    const int metrics = weir_write_metrics(w, before, TEXT_SIZE);
    const int status = weir_write_status(w, before + metrics, TEXT_SIZE - (size_t) metrics);
    plant_thread(&w->limiter.threads[1], 100000);
    weir_get_stats(w, &stats[1]);
    assert_memory_equal(&stats[0], &stats[1], sizeof(stats[0]));
    assert_int_equal(weir_write_metrics(w, text, TEXT_SIZE), metrics);
    assert_int_equal(weir_write_status(w, text + metrics, TEXT_SIZE - (size_t) metrics), status);
    assert_string_equal(text, before);
    weir_close(w);
}

/* But for the heap, which grows by pieces. */
static size_t mapped_size(void)
{
    unsigned long pages = 0;
    FILE *in = fopen("/proc/self/statm", "re");
    assert_non_null(in);
    assert_int_equal(fscanf(in, "%lu", &pages), 1);
    (void) fclose(in);
    return pages * (size_t) sysconf(_SC_PAGESIZE) - (uintptr_t) sbrk(0);
}

/* Opens, and says how much of the process's memory is not in the statistics. The table of rates never is. */
static int64_t untold(weir_options *options, bool fleet, uint64_t *told)
{
    struct fake_clock clock;
    struct transport *transport = NULL;
    const struct transport_config config = {.timeout_ms = 1000};
    fake_clock_init(&clock, START_NS);
    struct loopback_fleet *memory = loopback_fleet_new(nodes_wall, &clock);
    options->clock = &clock.clock;
    if (fleet) {
        assert_int_equal(loopback_transport_open(memory, &config, &transport, NULL), 0);
    }
    weir *w = NULL;
    weir_stats stats;
    const size_t before = mapped_size();
    assert_int_equal(weir_open_on(options, transport, &w, NULL), 0);
    const size_t after = mapped_size();
    weir_get_stats(w, &stats);
    *told = stats.memory_size;
    loopback_fleet_set_down(memory, true);
    weir_close(w);
    loopback_fleet_free(memory);
    return (int64_t) (after - before) - (int64_t) (stats.memory_size - sizeof(struct weir)); /* that is of the heap */
}

static void test_the_memory_that_is_told_is_what_the_process_takes(void **state)
{
    (void) state;
    struct node logs = {.w = NULL};
    weir_options least = WEIR_OPTIONS_INIT;
    least.max_keys = 1000;
    least.max_threads = 1;
    least.max_log_units = 1000;
    weir_options options[5] = {least, least, least, least, least};
    options[1].max_keys = 50000;
    options[2].max_threads = 65;
    options[3].max_log_units = 1000000;
    options[4].log = node_logs;
    options[4].log_arg = &logs;
    uint64_t first = 0;
    for (size_t i = 0; i < 2 * COUNT_OF(options); i++) {
        uint64_t told = 0;
        const int64_t beside = untold(&options[i % COUNT_OF(options)], i >= COUNT_OF(options), &told);
        const int64_t rates = (int64_t) sizeof(struct rate_list);
        /* Pages are whole. */
        assert_in_range(beside - rates, 0, 64 << 10);
        first = i == 0 ? told : first;
        assert_true(i == 0 || told > first + (1 << 19));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_field_of_the_statistics_has_its_own_number),
        cmocka_unit_test(test_the_statistics_of_a_policy_are_its_own),
        cmocka_unit_test(test_the_outage_mode_of_a_policy_is_told_with_its_statistics),
        cmocka_unit_test(test_the_statistics_of_a_policy_stay_within_the_room_of_the_caller),
        cmocka_unit_test(test_each_metric_has_its_own_number),
        cmocka_unit_test(test_metrics_of_a_node_that_is_up_and_never_had_an_answer),
        cmocka_unit_test(test_each_metric_is_explained_and_has_its_type),
        cmocka_unit_test(test_each_field_of_the_status_has_its_own_number),
        cmocka_unit_test(test_the_status_says_what_verdicts_rest_on),
        cmocka_unit_test(test_the_most_denied_keys_are_those_of_a_policy_and_its_tiers),
        cmocka_unit_test(test_a_weir_alone_writes_nothing_of_a_fleet),
        cmocka_unit_test(test_a_handle_that_nobody_has_attached_counts_nothing),
        cmocka_unit_test(test_the_memory_that_is_told_is_what_the_process_takes),
        cmocka_unit_test(test_a_policy_that_is_no_longer_in_the_set_keeps_its_counters),
    };
    /* Without the last one under a sanitizer, which maps memory of its own. */
    return _cmocka_run_group_tests("unit/limiter/readings", tests, COUNT_OF(tests) - (SLOWED ? 1 : 0), plant, uproot);
}
