/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Problems of the transport: logged once per change, and again every ten minutes while they last. Every failure is
 * counted by kind. A kind is one of a few words, so that it can be a label of a metric; the log has the exact text.
 *
 * Invariant: an interval without a connection counts as one sync error; so does a round that failed. An interval in
 * which nothing has failed yet (the first attempt to connect is under way) is not counted until something has.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/numbers.h"
#include "base/plain.h"
#include "base/probe.h"
#include "fleet/fleet_log.h"
#include "fleet/state.h"
#include "fleet/tuning.h"
#include "process/process.h"

/* The kind of a problem is the first whose text the problem contains. An error reply begins with its code. */
static const struct {
    const char *kind, *text;
} kinds[LINK_ERROR_KINDS] = {
    {"timeout", "no answer after"},
    {"connection", "connect"}, /* "cannot connect", "no connection", "connection lost" */
    {"loading", "LOADING"},
    {"readonly", "READONLY"},
    {"replica", "replica"},
    {"masterdown", "MASTERDOWN"},
    {"clusterdown", "CLUSTERDOWN"},
    {"noauth", "NOAUTH"},
    {"wrongpass", "WRONGPASS"},
    {"noperm", "NOPERM"},
    {"busy", "BUSY"},
    {"oom", "OOM "},
    {"misconf", "MISCONF"},
    {"protocol", "an answer"}, /* "that is not Redis's protocol", "that is not weir's", "to no question" */
    {"other", ""},
};

const char *link_error_name(size_t kind)
{
    return kinds[kind].kind;
}

/* Counts the transport's failures since the last call, and a failed round that the transport counts no failure for. */
static void count(struct fleet *fleet, const char *problem, bool failed)
{
    const uint64_t failures = fleet->transport->ops->counts(fleet->transport).failures;
    const uint64_t more = max_u64(failures - fleet->link_health.failure_count, failed);
    fleet->link_health.failure_count = failures;
    if (more == 0) {
        return;
    }
    size_t kind = 0;
    while (kind < LINK_ERROR_KINDS - 1 && (problem == NULL || strstr(problem, kinds[kind].text) == NULL)) {
        kind++; /* the last kind fits all */
    }
    counter_add(&fleet->stats.link_error_counts[kind], more);
}

/* Counts the intervals that are over and had no connection for a round. */
static void count_missed(struct fleet *fleet, bool up, bool failed, uint64_t monotonic_ns)
{
    const uint64_t interval_ns = fleet->process->interval_ns;
    if (up) {
        fleet->link_health.missed_ns = 0;
        return;
    }
    if (fleet->link_health.missed_ns == 0) {
        fleet->link_health.missed_ns = max_u64(monotonic_ns, fleet->schedule.next_ns) + interval_ns;
    }
    if (failed && monotonic_ns >= fleet->link_health.missed_ns) {
        const uint64_t missed = (monotonic_ns - fleet->link_health.missed_ns) / interval_ns + 1;
        counter_add(&fleet->stats.sync_error_count, missed);
        fleet->link_health.missed_ns += missed * interval_ns;
    }
}

static void log_again(struct fleet *fleet, uint64_t monotonic_ns)
{
    const uint64_t minutes = (monotonic_ns - fleet->link_health.problem_ns) / (60 * NS_PER_S);
    char hours[24] = "";
    if (minutes >= 60) {
        (void) snprintf(hours, sizeof(hours), "%" PRIu64 " h ", minutes / 60);
    }
    fleet->link_health.logged_ns = monotonic_ns;
    fleet_log(fleet, WEIR_LOG_WARNING, "%s; down for %s%" PRIu64 " min; limiting goes on without it",
              fleet->link_health.problem, hours, minutes % 60);
}

void link_health_check(struct fleet *fleet, bool failed, uint64_t monotonic_ns)
{
    struct fleet_stats *stats = &fleet->stats;
    const struct transport_ops *ops = fleet->transport->ops;
    const struct transport_counts counts = ops->counts(fleet->transport);
    const char *problem = ops->problem(fleet->transport);
    const char *server = ops->server(fleet->transport);
    const bool up = ops->state(fleet->transport) != TRANSPORT_DOWN;
    const uint32_t link = up ? WEIR_LINK_UP : WEIR_LINK_DOWN;
    if (load_relaxed(&stats->link) != link) { /* this thread's own store */
        probe_connection(server, up, problem);
    }
    store_relaxed(&stats->link, link);
    store_relaxed(&stats->connection_count, counts.connections);
    store_relaxed(&stats->connection_attempt_count, counts.attempts);
    count(fleet, problem, failed);
    count_missed(fleet, up, problem != NULL, monotonic_ns);
    if (problem == NULL) {
        if (fleet->link_health.problem[0] != '\0' && fleet->news.good_ns != 0 && up) {
            fleet->link_health.problem[0] = '\0';
            fleet_log(fleet, WEIR_LOG_INFO, "%s: answering again, %" PRIu32 " live %s", server, fleet->membership.live,
                      plain_number(fleet->membership.live, "node", "nodes"));
        }
        return;
    }
    char words[sizeof(fleet->link_health.problem)];
    (void) snprintf(words, sizeof(words), "%s: %s", server, problem);
    if (strcmp(words, fleet->link_health.problem) != 0) {
        fleet->link_health.problem_ns =
            fleet->link_health.problem[0] == '\0' ? monotonic_ns : fleet->link_health.problem_ns;
        fleet->link_health.logged_ns = monotonic_ns;
        memcpy(fleet->link_health.problem, words, sizeof(words));
        fleet_log(fleet, WEIR_LOG_WARNING, "%s; limiting goes on without it", words);
    } else if (monotonic_ns - fleet->link_health.logged_ns >= LOG_AGAIN_NS) {
        log_again(fleet, monotonic_ns);
    }
}
