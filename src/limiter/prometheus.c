/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weir_write_metrics: the statistics in Prometheus' text format. Labels are names of policies and limits, never keys.
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/text.h"
#include "limiter/policy_lock.h"
#include "limiter/status/readings.h"
#include "limiter/weir_private.h"

static void add_metric(struct text *text, const char *name, const char *type, const char *help, uint64_t value)
{
    text_add(text, "# HELP %s %s\n# TYPE %s %s\n%s %" PRIu64 "\n", name, help, name, type, name, value);
}

/* Seconds, from nanoseconds. */
static void add_seconds(struct text *text, const char *name, const char *help, int64_t ns)
{
    const uint64_t absolute = ns < 0 ? (uint64_t) 0 - (uint64_t) ns : (uint64_t) ns;
    text_add(text, "# HELP %s %s\n# TYPE %s gauge\n%s %s%" PRIu64 ".%09" PRIu64 "\n", name, help, name, name,
             ns < 0 ? "-" : "", absolute / NS_PER_S, absolute % NS_PER_S);
}

static void add_policies(struct text *text, const weir *w)
{
    const struct policy_set *set = process_policies(&w->limiter.process); /* under the policy lock */
    text_add(text, "# HELP weir_checks_total Checks, by policy and answer.\n# TYPE weir_checks_total counter\n");
    for (size_t id = 1; id <= w->names.count; id++) {
        const struct policy_sums sums = policy_sums_read(&w->limiter, (weir_policy_id) id);
        text_add(text, "weir_checks_total{policy=\"%s\",answer=\"allowed\"} %" PRIu64 "\n", w->names.names[id],
                 sums.allowed);
        text_add(text, "weir_checks_total{policy=\"%s\",answer=\"denied\"} %" PRIu64 "\n", w->names.names[id],
                 sums.denied);
    }
    text_add(text, "# HELP weir_would_deny_total Allowed checks that shadow mode would have denied.\n"
                   "# TYPE weir_would_deny_total counter\n");
    for (size_t id = 1; id <= w->names.count; id++) {
        text_add(text, "weir_would_deny_total{policy=\"%s\"} %" PRIu64 "\n", w->names.names[id],
                 policy_sums_read(&w->limiter, (weir_policy_id) id).would_deny);
    }
    text_add(
        text,
        "# HELP weir_outage_mode 1: the policy is in this outage mode; fleet is normal operation. 0: in another one.\n"
        "# TYPE weir_outage_mode gauge\n");
    for (size_t i = 0; i < set->count; i++) {
        const unsigned stands_on = load_relaxed(&set->policies[i].outage_mode);
        for (unsigned outage_mode = OUTAGE_MODE_NONE; outage_mode <= OUTAGE_MODE_CLOSED; outage_mode++) {
            text_add(text, "weir_outage_mode{policy=\"%s\",mode=\"%s\"} %d\n", set->policies[i].name,
                     outage_mode_name(outage_mode), outage_mode == stands_on);
        }
    }
}

/* What limits are, as configured: entries of single keys and outages change nothing of it. */
enum limit_metric { LIMIT_UNITS, LIMIT_PERIOD, LIMIT_BURST, LIMIT_METRICS };

static const struct {
    const char *name, *help;
} limit_metrics[LIMIT_METRICS] = {
    [LIMIT_UNITS] = {"weir_limit_units", "Units that a limit lets pass in each period, of each key."},
    [LIMIT_PERIOD] = {"weir_limit_period_seconds", "Period of a limit; of a calendar month 31 days."},
    [LIMIT_BURST] = {"weir_limit_burst_units", "Units that a limit lets pass at once, of each key."},
};

/* Limits are told apart by their number, as two names may be the same. */
static void add_limit(struct text *text, enum limit_metric metric, const struct policy *policy, size_t index)
{
    const struct policy_limit *limit = &policy->limits[index];
    const uint64_t period_ns = limit->rule.period_ns;
    text_add(text, "%s{policy=\"%s\",limit=\"%zu\",name=", limit_metrics[metric].name, policy->name, index + 1);
    text_add_quoted(text, limit->name);
    text_add(text, ",algorithm=\"%s\"} ", algorithm_name(limit->rule.algorithm));
    if (metric == LIMIT_PERIOD) {
        text_add(text, "%" PRIu64 ".%09" PRIu64 "\n", period_ns / NS_PER_S, period_ns % NS_PER_S);
    } else {
        text_add(text, "%" PRIu64 "\n", metric == LIMIT_UNITS ? limit->per_period : limit->rule.limit);
    }
}

static void add_limits(struct text *text, const weir *w)
{
    const struct policy_set *set = process_policies(&w->limiter.process); /* under the policy lock */
    for (enum limit_metric metric = LIMIT_UNITS; metric < LIMIT_METRICS; metric++) {
        const char *const name = limit_metrics[metric].name;
        text_add(text, "# HELP %s %s\n# TYPE %s gauge\n", name, limit_metrics[metric].help, name);
        for (size_t i = 0; i < set->count; i++) {
            for (size_t j = 0; j < set->policies[i].limit_count; j++) {
                add_limit(text, metric, &set->policies[i], j);
            }
        }
    }
}

/* What the top offenders of a policy and its tiers make up. The keys themselves are told by weir_top_offenders alone.
 */
static void add_offenders(struct text *text, weir *w)
{
    static const char *const helps[] = {
        "# HELP weir_recent_denied_units Units denied lately, by policy with its tiers; halved every minute.\n"
        "# TYPE weir_recent_denied_units gauge\n",
        "# HELP weir_top_offenders_ratio Part of the recently denied units that the 16 most denied keys make up, at "
        "least.\n"
        "# TYPE weir_top_offenders_ratio gauge\n"};
    const struct policy_set *set = process_policies(&w->limiter.process); /* under the policy lock */
    for (size_t ratio = 0; ratio < 2; ratio++) {
        text_add(text, "%s", helps[ratio]);
        for (size_t i = 0; i < set->count; i++) {
            const weir_policy_id group = set->policies[i].group;
            if (policy_set_group(set, group) != &set->policies[i]) {
                continue; /* a policy of this group was before it */
            }
            struct top_k list;
            top_denied_read(&w->limiter.process, group, &list);
            const char *const name = w->names.names[group];
            if (ratio == 0) {
                text_add(text, "weir_recent_denied_units{policy=\"%s\"} %" PRIu64 "\n", name, list.total);
            } else {
                const uint64_t millionths =
                    list.total != 0 ? muldiv_floor(top_denied_sure(&list), 1000000, list.total) : 0;
                text_add(text, "weir_top_offenders_ratio{policy=\"%s\"} %" PRIu64 ".%06" PRIu64 "\n", name,
                         millionths / 1000000, millionths % 1000000);
            }
        }
    }
}

static void add_process(struct text *text, const weir_stats *stats)
{
    text_add(text,
             "# HELP weir_requests_total Requests, by answer. One of several policies counts once.\n"
             "# TYPE weir_requests_total counter\n"
             "weir_requests_total{answer=\"allowed\"} %" PRIu64 "\nweir_requests_total{answer=\"denied\"} %" PRIu64
             "\n",
             stats->allowed_count, stats->denied_count);
    add_metric(text, "weir_slow_checks_total", "counter",
               "Checks and other calls that the thread's own counters could not answer.", stats->slow_count);
    add_metric(text, "weir_unknown_policy_checks_total", "counter",
               "Checks of a policy that does not exist; they are allowed.", stats->unknown_policy_count);
    add_metric(text, "weir_dropped_policies", "gauge",
               "Policies that were in force and that the present set lacks; the log names them.",
               stats->dropped_policy_count);
    add_metric(text, "weir_untracked_checks_total", "counter",
               "Checks denied, and charges not counted, for want of an entry or of memory for logs.",
               stats->untracked_count);
    add_metric(text, "weir_late_units_total", "counter",
               "Units admitted on a grant after another thread had taken the grant back.", stats->late_units);
    add_metric(text, "weir_keys", "gauge", "Entries of the table in use, one per key and limit.", stats->key_count);
    add_metric(text, "weir_key_capacity", "gauge", "Entries of the table.", stats->key_capacity);
    text_add(text,
             "# HELP weir_evicted_keys_total Entries evicted for another key, by whether the key had used anything.\n"
             "# TYPE weir_evicted_keys_total counter\nweir_evicted_keys_total{state=\"unused\"} %" PRIu64
             "\nweir_evicted_keys_total{state=\"used\"} %" PRIu64 "\n",
             stats->evicted_unused_count, stats->evicted_used_count);
    add_metric(text, "weir_evicted_restored_total", "counter",
               "Evicted keys that came back and had their usage restored.", stats->evicted_restored_count);
    add_metric(text, "weir_evicted_unrecorded_total", "counter",
               "Usage records of evicted keys dropped for want of room; such a key starts with its full limit.",
               stats->evicted_unrecorded_count);
    add_metric(text, "weir_lost_reports_total", "counter",
               "Evicted keys whose last report was dropped for want of room.", stats->lost_report_count);
    add_metric(text, "weir_denied_units_total", "counter",
               "Denied units that were counted in the lists of top offenders.", stats->denied_units);
    add_metric(text, "weir_evicted_denied_units_total", "counter",
               "Denied units missing in the lists of top offenders, as the key was evicted first.",
               stats->evicted_denied_units);
    add_metric(text, "weir_threads", "gauge", "Threads attached.", stats->thread_count);
    add_metric(text, "weir_attach_errors_total", "counter",
               "Calls of weir_attach that gave no handle: what those threads check passes unlimited.",
               stats->attach_error_count);
    add_metric(text, "weir_processes", "gauge", "Processes that share the weir, this one included.",
               stats->process_count);
    add_metric(text, "weir_stalled_denied_checks_total", "counter",
               "Denials of requests that may have had room, while a stopped thread held units of the key.",
               stats->stalled_denied_count);
    add_metric(text, "weir_unlimited_requests_total", "counter",
               "Requests that the program let pass without asking, as it had no handle.", stats->unlimited_count);
    add_metric(text, "weir_memory_bytes", "gauge", "Memory reserved at open.", stats->memory_size);
}

/* Estimate less truth. Millionths, as decimal fractions. */
static void add_estimate(struct text *text, const struct fleet_stats *stats)
{
    static const char name[] = "weir_estimate_error_ratio";
    uint64_t count = 0;
    text_add(text,
             "# HELP %s Estimate of what the other nodes admitted between two syncs, less what they did admit, as a "
             "part of the limit.\n# TYPE %s histogram\n",
             name, name);
    for (size_t i = 0; i < ESTIMATE_BUCKETS - 1; i++) {
        const int32_t bound = estimate_bounds[i];
        count += load_relaxed(&stats->estimate_counts[i]);
        text_add(text, "%s_bucket{le=\"%s0.%03d\"} %" PRIu64 "\n", name, bound < 0 ? "-" : "",
                 (bound < 0 ? -bound : bound) / 1000, count);
    }
    count += load_relaxed(&stats->estimate_counts[ESTIMATE_BUCKETS - 1]);
    const int64_t sum = load_relaxed(&stats->estimate_sum);
    const uint64_t absolute = sum < 0 ? (uint64_t) 0 - (uint64_t) sum : (uint64_t) sum;
    text_add(text, "%s_bucket{le=\"+Inf\"} %" PRIu64 "\n%s_sum %s%" PRIu64 ".%06" PRIu64 "\n%s_count %" PRIu64 "\n",
             name, count, name, sum < 0 ? "-" : "", absolute / 1000000, absolute % 1000000, name, count);
}

static void add_troubles(struct text *text, const struct fleet_stats *stats)
{
    text_add(text, "# HELP weir_errors_total Failed attempts to connect, lost connections and failed syncs, by kind.\n"
                   "# TYPE weir_errors_total counter\n");
    for (size_t i = 0; i < LINK_ERROR_KINDS; i++) {
        text_add(text, "weir_errors_total{kind=\"%s\"} %" PRIu64 "\n", link_error_name(i),
                 load_relaxed(&stats->link_error_counts[i]));
    }
}

static void add_fleet(struct text *text, const weir *w, const weir_stats *stats)
{
    add_metric(text, "weir_redis_up", "gauge", "1: Redis is connected. 0: it is not.", stats->link == WEIR_LINK_UP);
    add_metric(text, "weir_live_nodes", "gauge", "Nodes with a recent heartbeat, this one included.",
               stats->live_nodes);
    add_metric(text, "weir_suspect_nodes", "gauge",
               "Nodes without a recent heartbeat whose share is still reserved for them.",
               load_relaxed(&w->fleet->stats.suspect_nodes));
    add_metric(text, "weir_awaiting_peers", "gauge",
               "1: after an outage, until all nodes have reported again; each node keeps to its share. 0: else.",
               load_relaxed(&w->fleet->stats.awaiting_peers));
    add_seconds(text, "weir_fleet_age_seconds", "Time since the last good sync; before the first one, since weir_open.",
                (int64_t) (stats->fleet_age_ns != UINT64_MAX ? stats->fleet_age_ns : since_open_ns(w)));
    add_seconds(text, "weir_round_trip_seconds", "Round trip of the last good sync.", (int64_t) stats->round_trip_ns);
    add_seconds(text, "weir_clock_skew_seconds",
                "Redis's clock less this node's estimate of it, at the last good sync.",
                load_relaxed(&w->fleet->stats.clock_skew_ns));
    add_metric(text, "weir_syncs_total", "counter", "Syncs that Redis answered.", stats->sync_count);
    add_metric(text, "weir_sync_errors_total", "counter",
               "Syncs that failed or timed out, and sync intervals without a connection.", stats->sync_error_count);
    add_metric(text, "weir_connection_attempts_total", "counter", "Attempts to connect to Redis, successful or not.",
               stats->connection_attempt_count);
    add_metric(text, "weir_connections_total", "counter",
               "Connections opened to Redis; it may refuse the login after that.", stats->connection_count);
    add_metric(text, "weir_redis_lost_state_total", "counter", "Times that Redis had lost what this node had reported.",
               stats->redis_lost_state_count);
    add_metric(text, "weir_reports_total", "counter", "Reports that Redis acknowledged.", stats->report_count);
    add_metric(text, "weir_rejected_reports_total", "counter", "Reports that Redis rejected.",
               stats->rejected_report_count);
    add_metric(text, "weir_overrides", "gauge", "Keys with an override.", stats->override_count);
    add_metric(text, "weir_overrides_left_out", "gauge",
               "Overrides in Redis that are not read, as there are too many or they are too long.",
               load_relaxed(&w->fleet->stats.overrides_left_out));
    add_metric(text, "weir_limit_differences", "gauge",
               "Limits under this node's names of policies that other nodes have with other numbers.",
               load_relaxed(&w->fleet->stats.limit_differences));
    add_metric(text, "weir_urgent_syncs_total", "counter",
               "Syncs begun ahead of the interval, for keys whose usage jumped.", stats->urgent_sync_count);
    add_metric(text, "weir_deferred_reports_total", "counter", "Times that a key's change was left for a later report.",
               stats->deferred_report_count);
    add_metric(text, "weir_report_retries_total", "counter",
               "Reports that got no answer in a good sync, as of a lost shard, and are sent again.",
               stats->report_retry_count);
    add_metric(text, "weir_pending_keys", "gauge",
               "Entries that have changed since they were last considered for a report.", stats->pending_key_count);
    add_metric(text, "weir_deferred_keys", "gauge", "Entries with a change that is left for a later report.",
               stats->deferred_key_count);
    add_troubles(text, &w->fleet->stats);
    add_estimate(text, &w->fleet->stats);
    add_metric(text, "weir_sent_bytes_total", "counter", "Bytes sent to Redis in good syncs.",
               load_relaxed(&w->fleet->stats.sent_size));
    text_add(
        text,
        "# HELP weir_node_info This node.\n# TYPE weir_node_info gauge\nweir_node_info{node=\"%s\",name=\"%s\"} 1\n",
        w->fleet->node, w->fleet->name);
}

int weir_write_metrics(const weir *w, char *buffer, size_t size)
{
    struct text text = {.buffer = buffer, .size = size, .length = 0};
    weir *unlocked = (weir *) (uintptr_t) w; /* the lock is no part of what const promises */
    weir_stats stats;
    weir_get_stats(w, &stats);
    text_add(&text,
             "# HELP weir_build_info The library's version.\n# TYPE weir_build_info gauge\n"
             "weir_build_info{version=\"%s\"} 1\n",
             weir_version());
    policy_lock_take(unlocked);
    add_policies(&text, w);
    add_limits(&text, w);
    add_offenders(&text, unlocked);
    policy_lock_release(unlocked);
    add_process(&text, &stats);
    if (w->has_fleet) {
        add_fleet(&text, w, &stats);
    }
    return (int) text.length;
}
