/* SPDX-License-Identifier: Apache-2.0 */
/* The nodes of the fleet, and its overrides. See doctor.h. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "../override_hash.h"
#include "../override_trial.h"
#include "base/numbers.h"
#include "base/plain.h"
#include "doctor.h"

/* The ids of nodes that a finding names. */
#define NAMED_MOST 20

/* A fleet of more nodes is no fleet: nodes delete such a set. */
#define NODES_MOST 10000

static void name_nodes(struct sentence *words, const weir_inspected_fleet *fleet, weir_node_state state)
{
    size_t named = 0;
    for (size_t i = 0; i < fleet->node_count && named < NAMED_MOST; i++) {
        const weir_inspected_node *node = &fleet->nodes[i];
        if (node->state == state) {
            sentence_add(words, "%s%s (", named++ == 0 ? ": " : ", ", node->id);
            const uint64_t age_ms = node->age_ns / NS_PER_MS;
            quantity_about(words, "", (double) age_ms * 1e6);
            sentence_add(words, " ago)");
        }
    }
}

static size_t count_nodes(const weir_inspected_fleet *fleet, weir_node_state state)
{
    size_t count = 0;
    for (size_t i = 0; i < fleet->node_count; i++) {
        count += fleet->nodes[i].state == state;
    }
    return count;
}

static void check_nodes(struct doctor *d, const weir_inspected_fleet *fleet)
{
    struct sentence words = {.length = 0};
    const size_t live = count_nodes(fleet, WEIR_NODE_LIVE);
    const size_t suspect = count_nodes(fleet, WEIR_NODE_SUSPECT);
    if (fleet->wrong_type || fleet->node_count > NODES_MOST) {
        sentence_add(&words, "%s is no set of nodes", fleet->record);
        doctor_tell(d, FINDING_BAD, "nodes", &words,
                    "something else writes under the prefix: the next heartbeat deletes the key, find out what it is");
        return;
    }
    if (live + suspect == 0) {
        sentence_add(&words, "no node has reported under the prefix %s lately", d->prefix);
        doctor_tell(d, FINDING_WARN, "nodes", &words,
                    "see whether the nodes run, with this prefix, this database and this server");
    } else {
        sentence_add(&words, "%zu live", live);
        name_nodes(&words, fleet, WEIR_NODE_LIVE);
        doctor_tell(d, FINDING_OK, "nodes", &words, NULL);
    }
    if (suspect != 0) {
        words = (struct sentence){.length = 0};
        sentence_add(&words, "%zu suspect, without a report for some intervals", suspect);
        name_nodes(&words, fleet, WEIR_NODE_SUSPECT);
        doctor_tell(d, FINDING_WARN, "nodes", &words, "see whether they have died, or cannot reach Redis");
    }
    if (fleet->foreign_count != 0) {
        words = (struct sentence){.length = 0};
        sentence_add(&words, "%zu %s of %s that no node writes", fleet->foreign_count,
                     plain_number(fleet->foreign_count, "member", "members"), fleet->record);
        doctor_tell(d, FINDING_WARN, "nodes", &words, "something else writes under the prefix: find out what it is");
    }
    if (fleet->ahead_ns != 0) {
        words = (struct sentence){.length = 0};
        sentence_add(&words, "fleet time is ");
        quantity_about(&words, "", fabs((double) fleet->ahead_ns));
        sentence_add(&words, " %s the server's clock, which was set", fleet->ahead_ns > 0 ? "ahead of" : "behind");
        doctor_tell(d, FINDING_WARN, "time", &words, "nodes slew it; run a time service that slews the clock");
    }
}

/* Tells the overrides that nodes leave out. */
static void try_overrides(struct doctor *d, struct override_trial *trial, const weir_inspected_overrides *entries)
{
    char name[OVERRIDE_NAME_SIZE];
    struct sentence words = {.length = 0};
    weir_error first = {.code = 0};
    size_t malformed = 0;
    for (size_t i = 0; i < entries->override_count; i++) {
        weir_error error = {.code = 0};
        const enum trial_result result =
            override_trial(trial, entries->overrides[i].name, entries->overrides[i].value, name, &error);
        if (result == TRIAL_BAD && malformed++ == 0) {
            first = error;
        }
    }
    if (malformed != 0) {
        sentence_add(&words, "%zu of %zu %s, such as: %s", malformed, entries->override_count,
                     plain_number(malformed, "is malformed", "are malformed"), first.message);
        doctor_tell(d, FINDING_BAD, "overrides", &words, "weir override list names them, and weir override rm removes");
    } else if (entries->override_count > OVERRIDE_HASH_MOST) {
        sentence_add(&words, "%zu, of which nodes read %d", entries->override_count, OVERRIDE_HASH_MOST);
        doctor_tell(d, FINDING_BAD, "overrides", &words, "take some out, or use networks");
    } else {
        sentence_add(&words, "%zu %s", entries->override_count,
                     entries->version != NULL ? "with a version" : "without a version");
        doctor_tell(d, FINDING_OK, "overrides", &words, NULL);
    }
}

static void check_overrides(struct doctor *d)
{
    const weir_inspected_overrides *entries;
    struct override_trial trial;
    weir_error error;
    struct sentence words = {.length = 0};
    if (weir_inspect_overrides(d->in, &entries, &error) != 0) {
        sentence_add(&words, "%s", error.message);
        doctor_tell(d, FINDING_BAD, "overrides", &words, doctor_advice(&error));
        return;
    }
    if (entries->wrong_type) {
        sentence_add(&words, "%s is no hash", entries->record);
        doctor_tell(d, FINDING_BAD, "overrides", &words, "nodes read no overrides: something else has written the key");
        return;
    }
    if (override_trial_open(&trial, d->prefix, d->policies, PROBE_KEYS_GUESSED, &error) == TRIAL_OPENED) {
        try_overrides(d, &trial, entries);
    } else {
        sentence_add(&words, "%s", error.message);
        doctor_tell(d, FINDING_BAD, "policies", &words, "weir check says what is wrong with the file");
    }
    override_trial_close(&trial);
}

void fleet_checks(struct doctor *d)
{
    const weir_inspected_fleet *fleet;
    weir_error error;
    if (weir_inspect_fleet(d->in, &fleet, &error) == 0) {
        d->node_count = fleet->node_count;
        d->server_ns = fleet->time_ns - (uint64_t) fleet->ahead_ns;
        check_nodes(d, fleet);
    } else {
        struct sentence words = {.length = 0};
        sentence_add(&words, "%s", error.message);
        doctor_tell(d, FINDING_BAD, "nodes", &words, doctor_advice(&error));
    }
    check_overrides(d);
}
