/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls of loopback.h. The records are in records.c, the nodes in nodes.c, the messages in network.c, and the
 * transport of one node in loopback_transport.c.
 *
 * Progress: blocking. Every call takes the fleet's lock, so that nodes with background threads can share a fleet.
 */
#include "transport/loopback/loopback.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "transport/loopback/network.h"

struct loopback_snapshot {
    struct records records;
    struct nodes nodes;
};

struct loopback_fleet *loopback_fleet_new(uint64_t (*wall_ns)(void *arg), void *arg)
{
    struct loopback_fleet *fleet = calloc(1, sizeof(*fleet));
    if (fleet != NULL) {
        (void) pthread_mutex_init(&fleet->lock, NULL);
        fleet->wall_ns = wall_ns;
        fleet->arg = arg;
        fleet->run = 1;
    }
    return fleet;
}

void loopback_fleet_free(struct loopback_fleet *fleet)
{
    network_clear(fleet);
    records_clear(&fleet->records);
    nodes_clear(&fleet->nodes);
    for (size_t i = 0; i < fleet->override_count; i++) {
        free(fleet->overrides[i].field);
        free(fleet->overrides[i].value);
    }
    free(fleet->overrides);
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
    records_clear(&fleet->records);
    nodes_clear(&fleet->nodes);
    memset(fleet->told, 0, sizeof(fleet->told));
    fleet->run++;
    network_unlock(fleet);
}

void loopback_fleet_flush(struct loopback_fleet *fleet)
{
    (void) network_lock(fleet);
    records_clear(&fleet->records);
    nodes_clear(&fleet->nodes);
    memset(fleet->told, 0, sizeof(fleet->told));
    network_unlock(fleet);
}

void loopback_fleet_refuse(struct loopback_fleet *fleet, const char *part, int status)
{
    (void) network_lock(fleet);
    (void) snprintf(fleet->refused, sizeof(fleet->refused), "%s", part != NULL ? part : "");
    fleet->refusal = status;
    network_unlock(fleet);
}

/* Copies records and nodes. False: out of memory, and the copies are empty. */
static bool copy_state(struct records *records, struct nodes *nodes, const struct records *from_records,
                       const struct nodes *from_nodes)
{
    if (records_copy(records, from_records) && nodes_copy(nodes, from_nodes)) {
        return true;
    }
    records_clear(records);
    nodes_clear(nodes);
    return false;
}

struct loopback_snapshot *loopback_fleet_snapshot(struct loopback_fleet *fleet)
{
    struct loopback_snapshot *snapshot = calloc(1, sizeof(*snapshot));
    if (snapshot == NULL) {
        return NULL;
    }
    (void) network_lock(fleet);
    const bool complete = copy_state(&snapshot->records, &snapshot->nodes, &fleet->records, &fleet->nodes);
    network_unlock(fleet);
    if (!complete) {
        free(snapshot);
        return NULL;
    }
    return snapshot;
}

void loopback_snapshot_free(struct loopback_snapshot *snapshot)
{
    if (snapshot != NULL) {
        records_clear(&snapshot->records);
        nodes_clear(&snapshot->nodes);
        free(snapshot);
    }
}

bool loopback_fleet_restore(struct loopback_fleet *fleet, const struct loopback_snapshot *snapshot, bool same_run)
{
    (void) network_lock(fleet);
    const bool complete = copy_state(&fleet->records, &fleet->nodes, &snapshot->records, &snapshot->nodes);
    fleet->run += same_run ? 0 : 1;
    network_unlock(fleet);
    return complete;
}

void loopback_fleet_set_override(struct loopback_fleet *fleet, const char *field, const char *value)
{
    (void) network_lock(fleet);
    size_t at = 0;
    while (at < fleet->override_count && strcmp(fleet->overrides[at].field, field) != 0) {
        at++;
    }
    if (at < fleet->override_count) {
        free(fleet->overrides[at].field);
        free(fleet->overrides[at].value);
        fleet->overrides[at] = fleet->overrides[--fleet->override_count];
    }
    if (value != NULL) {
        struct override_text *grown =
            realloc(fleet->overrides, (fleet->override_count + 1) * sizeof(*fleet->overrides));
        if (grown != NULL) {
            fleet->overrides = grown;
            grown[fleet->override_count++] = (struct override_text){.field = strdup(field), .value = strdup(value)};
        }
    }
    fleet->override_version++;
    network_unlock(fleet);
}

uint64_t loopback_fleet_sum(const struct loopback_fleet *fleet, const char *part)
{
    struct loopback_fleet *locked = network_lock(fleet);
    const uint64_t sum = records_total(&locked->records, locked->wall_ns(locked->arg), part, false);
    network_unlock(locked);
    return sum;
}

uint64_t loopback_fleet_record_count(const struct loopback_fleet *fleet)
{
    struct loopback_fleet *locked = network_lock(fleet);
    const uint64_t count = records_total(&locked->records, locked->wall_ns(locked->arg), "", true);
    network_unlock(locked);
    return count;
}

void loopback_fleet_each(const struct loopback_fleet *fleet, loopback_record_fn call, void *arg)
{
    struct loopback_fleet *locked = network_lock(fleet);
    records_each(&locked->records, locked->wall_ns(locked->arg), call, arg);
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
