/* SPDX-License-Identifier: Apache-2.0 */
/* See reset_round.h. */
#include "reset_round.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#include "base/error.h"
#include "base/numbers.h"
#include "fleet/tuning.h"
#include "inspect/inspector.h"
#include "policy/override_set.h"
#include "transport/author.h"

/* What the round is made of. */
struct resetting {
    char node[16], author[REPORT_AUTHOR_SIZE];
    struct round round;
    struct report reports[LIMIT_REPORTS * RESET_LIMITS_MOST];
    struct history_report histories[RESET_LIMITS_MOST];
};

static void fill(struct resetting *r, const struct fleet_key *key, const struct reset_limit *limits, size_t count,
                 uint64_t fleet_ns)
{
    uint64_t id = 0;
    (void) getrandom(&id, sizeof(id), 0);
    (void) snprintf(r->node, sizeof(r->node), "%012" PRIx64, id & 0xffffffffffff);
    author_write(r->author, r->node, 1);
    r->round = (struct round){.reports = r->reports,
                              .node = r->node,
                              .suspect_ms = NODE_SUSPECT_INTERVALS,
                              .node_lifetime_ms = NODE_SUSPECT_INTERVALS + 1,
                              .asks = true,
                              .first = true};
    for (size_t i = 0; i < count; i++) {
        const struct limit_records of = {key->prefix, limits[i].policy, limits[i].limit, key->text};
        struct report reports[LIMIT_REPORTS];
        const size_t made = limit_reports(&of, r->author, fleet_ns, reports, &r->histories[i]);
        for (size_t n = 0; n < made; n++) {
            if (limits[i].exists[n]) {
                reports[n].reset_us = fleet_ns / NS_PER_US;
                r->reports[r->round.report_count++] = reports[n];
            }
        }
    }
}

/* Whether each record has taken its reset. */
static int judge(const struct resetting *r, weir_error *error)
{
    for (size_t i = 0; i < r->round.report_count; i++) {
        if (r->reports[i].status != 0) {
            return error_set(error, r->reports[i].status, "%.180s: %s", r->reports[i].record,
                             r->reports[i].status == -EPROTO ? "is no record of weir's" : "its server does not answer");
        }
    }
    return 0;
}

int reset_round(weir_inspector *in, const struct fleet_key *key, const struct reset_limit *limits, size_t count,
                uint64_t fleet_ns, weir_error *error)
{
    struct resetting *r = calloc(1, sizeof(*r));
    if (r == NULL) {
        return error_set(error, -ENOMEM, "out of memory");
    }
    fill(r, key, limits, count, fleet_ns);
    int result = 0;
    if (r->round.report_count != 0) {
        result = inspector_round(in, &r->round, true, error);
        result = result == 0 ? judge(r, error) : result;
    }
    if (r->round.overrides_new) {
        overrides_drop(r->round.overrides, r->round.override_count);
    }
    free(r);
    return result;
}
