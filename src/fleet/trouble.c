/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is wrong with the way to the fleet: said once per change, and counted by kind. A kind is one of a few words, so
 * that it can be a label of a metric; what exactly was said is in the log.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/numbers.h"
#include "fleet/fleet.h"

/* By what a problem's text contains; the first that fits. An error reply begins with its code. */
static const struct {
    const char *kind, *text;
} kinds[TROUBLE_KINDS] = {
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

const char *trouble_kind(size_t kind)
{
    return kinds[kind].kind;
}

static void count(struct fleet *fleet, const char *problem)
{
    size_t kind = 0;
    while (strstr(problem, kinds[kind].text) == NULL) {
        kind++; /* the last fits all */
    }
    counter_add(&fleet->stats.trouble_counts[kind], 1);
}

void trouble_look(struct fleet *fleet, bool failed)
{
    const char *problem = fleet->transport->ops->problem(fleet->transport);
    const bool up = fleet->transport->ops->state(fleet->transport) != TRANSPORT_DOWN;
    store_relaxed(&fleet->stats.link, up ? WEIR_LINK_UP : WEIR_LINK_DOWN);
    store_relaxed(&fleet->stats.reconnect_count, fleet->transport->ops->connect_count(fleet->transport));
    const bool new = problem != NULL &&strncmp(problem, fleet->problem, sizeof(fleet->problem) - 1) != 0;
    if (problem != NULL && (new || failed)) {
        count(fleet, problem);
    }
    if (new) {
        (void) snprintf(fleet->problem, sizeof(fleet->problem), "%s", problem);
        fleet_log(fleet, WEIR_LOG_WARNING, "redis: %s; limiting goes on without it", problem);
    } else if (problem == NULL && fleet->problem[0] != '\0' && fleet->good_ns != 0 && up) {
        fleet->problem[0] = '\0';
        fleet_log(fleet, WEIR_LOG_INFO, "redis: answering again, %" PRIu32 " live nodes", fleet->membership.live);
    }
}
