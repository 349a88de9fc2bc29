/* SPDX-License-Identifier: Apache-2.0 */
/* See fleet_round.h. */
#include "fleet_round.h"

#include <errno.h>
#include <poll.h>
#include <time.h>

#include "base/error.h"
#include "base/numbers.h"
#include "transport/redis/redis.h"

/* How long a server may take for one answer, and all of them for a round: a shard that hangs is left out after the
 * first of them. */
#define ANSWER_MS 1500
#define ROUND_MS  5000

static uint64_t now_ns(void)
{
    struct timespec now;
    (void) clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t) now.tv_sec * NS_PER_S + (uint64_t) now.tv_nsec;
}

static bool open_transport(struct redis_link *link, const char *prefix, weir_error *error)
{
    const uint64_t now = now_ns();
    const struct transport_config config = {
        .url = link->text, .prefix = prefix, .timeout_ms = ANSWER_MS, .jitter_seed = now, .now_ns = now};
    return link->transport != NULL || redis_transport_open(&config, &link->transport, error) == 0;
}

bool fleet_round(struct redis_link *link, const char *prefix, struct round *round, weir_error *error)
{
    if (!open_transport(link, prefix, error)) {
        return false;
    }
    struct transport *t = link->transport;
    const uint64_t end_ns = now_ns() + ROUND_MS * NS_PER_MS;
    bool begun = false;
    t->ops->retry(t, now_ns());
    for (uint64_t now = now_ns(); now < end_ns && (begun || !t->ops->refused(t)); now = now_ns()) {
        struct pollfd fds[TRANSPORT_MAX_POLLFDS];
        const enum transport_event event = t->ops->step(t, now);
        if (event == TRANSPORT_ROUND_DONE) {
            return true;
        }
        if (event == TRANSPORT_ROUND_FAILED) {
            break;
        }
        begun = begun || t->ops->begin(t, round, now) == 0;
        uint64_t deadline_ns = end_ns;
        const size_t count = t->ops->wait_for(t, fds, &deadline_ns);
        const uint64_t wait_ns = saturating_sub(deadline_ns, now_ns());
        (void) poll(fds, count, (int) min_u64(wait_ns / NS_PER_MS + 1, 50));
    }
    const char *problem = t->ops->problem(t);
    return error_set(error, -EIO, "%.60s: %.150s", t->ops->server(t), problem != NULL ? problem : "no answer") == 0;
}

bool fleet_inspect(struct redis_link *link, const char *prefix, struct inspection *inspection, weir_error *error)
{
    struct round round = {.node = "reader", .reads = true, .inspections = inspection, .inspection_count = 1};
    return fleet_round(link, prefix, &round, error);
}
