/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls of loopback.h. What the nodes share is in script_host.c and commands.lua, the messages are in network.c,
 * and the transport of one node in loopback_transport.c.
 *
 * Progress: blocking. Every call takes the fleet's lock, so that nodes with background threads can share a fleet.
 */
#include "transport/loopback/loopback.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/digits.h"
#include "transport/loopback/network.h"

struct loopback_snapshot {
    struct loopback_fleet *fleet;
    int of; /* see script_host_snapshot */
};

struct loopback_fleet *loopback_fleet_new(uint64_t (*wall_ns)(void *arg), void *arg)
{
    struct loopback_fleet *fleet = calloc(1, sizeof(*fleet));
    struct script_host *host = fleet != NULL ? script_host_open() : NULL;
    if (host == NULL) {
        free(fleet);
        return NULL;
    }
    (void) pthread_mutex_init(&fleet->lock, NULL);
    fleet->wall_ns = wall_ns;
    fleet->arg = arg;
    fleet->host = host;
    fleet->run = 1;
    return fleet;
}

void loopback_fleet_free(struct loopback_fleet *fleet)
{
    network_clear(fleet);
    script_host_close(fleet->host);
    (void) pthread_mutex_destroy(&fleet->lock);
    free(fleet);
}

void loopback_fleet_set_network_clock(struct loopback_fleet *fleet, uint64_t (*network_ns)(void *arg), void *arg)
{
    (void) network_lock(fleet);
    fleet->network_ns = network_ns;
    fleet->network_arg = arg;
    fleet->network_now_ns = 0;
    network_unlock(fleet);
}

void loopback_fleet_seed(struct loopback_fleet *fleet, uint64_t seed)
{
    (void) network_lock(fleet);
    fleet->random = seed;
    network_unlock(fleet);
}

void loopback_fleet_set_link(struct loopback_fleet *fleet, const struct loopback_link *link)
{
    (void) network_lock(fleet);
    fleet->link = *link;
    network_unlock(fleet);
}

static void set_flag(struct loopback_fleet *fleet, bool *flag, bool value)
{
    (void) network_lock(fleet);
    *flag = value;
    network_unlock(fleet);
}

void loopback_fleet_set_down(struct loopback_fleet *fleet, bool down)
{
    set_flag(fleet, &fleet->down, down);
}

void loopback_fleet_set_hung(struct loopback_fleet *fleet, bool hung)
{
    set_flag(fleet, &fleet->hung, hung);
}

void loopback_fleet_lose_answers(struct loopback_fleet *fleet, bool lose)
{
    set_flag(fleet, &fleet->loses_answers, lose);
}

void loopback_fleet_set_slow(struct loopback_fleet *fleet, uint64_t delay_ns)
{
    (void) network_lock(fleet);
    fleet->slow_ns = delay_ns;
    network_unlock(fleet);
}

void loopback_fleet_forget(struct loopback_fleet *fleet)
{
    (void) network_lock(fleet);
    script_host_clear(fleet->host, "");
    fleet->run++;
    network_unlock(fleet);
}

void loopback_fleet_flush(struct loopback_fleet *fleet)
{
    (void) network_lock(fleet);
    script_host_clear(fleet->host, "");
    network_unlock(fleet);
}

void loopback_fleet_evict(struct loopback_fleet *fleet, const char *part)
{
    (void) network_lock(fleet);
    script_host_clear(fleet->host, part);
    network_unlock(fleet);
}

void loopback_fleet_refuse(struct loopback_fleet *fleet, const char *part, int status)
{
    (void) network_lock(fleet);
    (void) snprintf(fleet->refused, sizeof(fleet->refused), "%s", part != NULL ? part : "");
    fleet->refusal = status;
    network_unlock(fleet);
}

struct loopback_snapshot *loopback_fleet_snapshot(struct loopback_fleet *fleet)
{
    struct loopback_snapshot *snapshot = calloc(1, sizeof(*snapshot));
    if (snapshot != NULL) {
        (void) network_lock(fleet);
        snapshot->fleet = fleet;
        snapshot->of = script_host_snapshot(fleet->host);
        network_unlock(fleet);
    }
    return snapshot;
}

void loopback_snapshot_free(struct loopback_snapshot *snapshot)
{
    if (snapshot != NULL) {
        (void) network_lock(snapshot->fleet);
        script_host_forget_snapshot(snapshot->fleet->host, snapshot->of);
        network_unlock(snapshot->fleet);
        free(snapshot);
    }
}

void loopback_fleet_restore(struct loopback_fleet *fleet, const struct loopback_snapshot *snapshot, bool same_run)
{
    (void) network_lock(fleet);
    script_host_restore(fleet->host, snapshot->of);
    fleet->run += same_run ? 0 : 1;
    network_unlock(fleet);
}

void loopback_fleet_set_override(struct loopback_fleet *fleet, const char *field, const char *value)
{
    (void) network_lock(fleet);
    char version[DECIMAL_SIZE];
    (void) decimal_write(version, ++fleet->override_version);
    const char *const set[] = {"HSET", LOOPBACK_OVERRIDES, "version", version, field, value};
    const char *const removed[] = {"HDEL", LOOPBACK_OVERRIDES, field};
    script_host_command(fleet->host, set, value != NULL ? 6 : 4);
    if (value == NULL) {
        script_host_command(fleet->host, removed, 3);
    }
    network_unlock(fleet);
}

/* The total of the records whose names contain `part`. */
static struct script_host_total total_of(const struct loopback_fleet *fleet, const char *part)
{
    struct loopback_fleet *locked = network_lock(fleet);
    const struct script_host_total total = script_host_total(locked->host, part, locked->wall_ns(locked->arg));
    network_unlock(locked);
    return total;
}

uint64_t loopback_fleet_sum(const struct loopback_fleet *fleet, const char *part)
{
    return total_of(fleet, part).units;
}

uint64_t loopback_fleet_record_count(const struct loopback_fleet *fleet)
{
    return total_of(fleet, "").records;
}

void loopback_fleet_each(const struct loopback_fleet *fleet, loopback_record_fn call, void *arg)
{
    struct loopback_fleet *locked = network_lock(fleet);
    script_host_each(locked->host, locked->wall_ns(locked->arg), call, arg);
    network_unlock(locked);
}

void loopback_fleet_get_counts(const struct loopback_fleet *fleet, struct loopback_counts *counts)
{
    struct loopback_fleet *locked = network_lock(fleet);
    *counts = locked->counts;
    network_unlock(locked);
}

void loopback_fleet_run(struct loopback_fleet *fleet)
{
    (void) network_lock(fleet);
    network_run(fleet, NULL);
    network_unlock(fleet);
}
