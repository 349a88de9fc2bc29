/* SPDX-License-Identifier: Apache-2.0 */
/* The nodes of the fleet, and its overrides. See doctor.h. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "../override_hash.h"
#include "../override_trial.h"
#include "base/plain.h"
#include "doctor.h"

/* The ids of nodes that a finding names. */
#define NAMED_MOST 20

/* A fleet of more nodes is no fleet: nodes delete such a set. */
#define NODES_MOST 10000

static void name_nodes(struct sentence *words, const struct fleet_nodes *nodes, enum fleet_node_state state)
{
    size_t named = 0;
    for (size_t i = 0; i < nodes->count && named < NAMED_MOST; i++) {
        const struct fleet_node *node = &nodes->all[i];
        if (node->state == state) {
            sentence_add(words, "%s%s (", named++ == 0 ? ": " : ", ", node->id);
            quantity_about(words, "", (double) fleet_node_age_ms(nodes, node) * 1e6);
            sentence_add(words, " ago)");
        }
    }
}

static size_t count_nodes(const struct fleet_nodes *nodes, enum fleet_node_state state)
{
    size_t count = 0;
    for (size_t i = 0; i < nodes->count; i++) {
        count += nodes->all[i].state == state;
    }
    return count;
}

static void check_nodes(struct doctor *d)
{
    const struct fleet_nodes *nodes = &d->nodes;
    struct sentence words = {.length = 0};
    const size_t live = count_nodes(nodes, FLEET_NODE_LIVE);
    const size_t suspect = count_nodes(nodes, FLEET_NODE_SUSPECT);
    if (nodes->wrong_type || nodes->count > NODES_MOST) {
        sentence_add(&words, "%s is no set of nodes", nodes->key);
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
        name_nodes(&words, nodes, FLEET_NODE_LIVE);
        doctor_tell(d, FINDING_OK, "nodes", &words, NULL);
    }
    if (suspect != 0) {
        words = (struct sentence){.length = 0};
        sentence_add(&words, "%zu suspect, without a report for some intervals", suspect);
        name_nodes(&words, nodes, FLEET_NODE_SUSPECT);
        doctor_tell(d, FINDING_WARN, "nodes", &words, "see whether they have died, or cannot reach Redis");
    }
    if (nodes->foreign != 0) {
        words = (struct sentence){.length = 0};
        sentence_add(&words, "%zu %s of %s that no node writes", nodes->foreign,
                     plain_number(nodes->foreign, "member", "members"), nodes->key);
        doctor_tell(d, FINDING_WARN, "nodes", &words, "something else writes under the prefix: find out what it is");
    }
    if (nodes->ahead_us != 0) {
        words = (struct sentence){.length = 0};
        sentence_add(&words, "fleet time is ");
        quantity_about(&words, "", (nodes->ahead_us > 0 ? 1e3 : -1e3) * (double) nodes->ahead_us);
        sentence_add(&words, " %s the server's clock, which was set", nodes->ahead_us > 0 ? "ahead of" : "behind");
        doctor_tell(d, FINDING_WARN, "time", &words, "nodes slew it; run a time service that slews the clock");
    }
}

/* Tells the overrides that nodes leave out. */
static void try_overrides(struct doctor *d, struct override_trial *trial, const struct hash_entries *entries)
{
    char name[OVERRIDE_NAME_SIZE];
    struct sentence words = {.length = 0};
    weir_error first = {.code = 0};
    size_t malformed = 0;
    for (size_t i = 0; i < entries->count; i++) {
        weir_error error = {.code = 0};
        const enum trial_result result =
            override_trial(trial, entries->all[i].name, entries->all[i].value, name, &error);
        if (result == TRIAL_BAD && malformed++ == 0) {
            first = error;
        }
    }
    if (malformed != 0) {
        sentence_add(&words, "%zu of %zu %s, such as: %s", malformed, entries->count,
                     plain_number(malformed, "is malformed", "are malformed"), first.message);
        doctor_tell(d, FINDING_BAD, "overrides", &words, "weir override list names them, and weir override rm removes");
    } else if (entries->count > OVERRIDE_HASH_MOST) {
        sentence_add(&words, "%zu, of which nodes read %d", entries->count, OVERRIDE_HASH_MOST);
        doctor_tell(d, FINDING_BAD, "overrides", &words, "take some out, or use networks");
    } else {
        sentence_add(&words, "%zu %s", entries->count,
                     entries->version != NULL ? "with a version" : "without a version");
        doctor_tell(d, FINDING_OK, "overrides", &words, NULL);
    }
}

static void check_overrides(struct doctor *d)
{
    char key[64];
    struct hash_entries entries;
    struct override_trial trial;
    weir_error error;
    struct sentence words = {.length = 0};
    (void) snprintf(key, sizeof(key), "%s:overrides", d->prefix);
    if (!override_hash_list(d->link, key, &entries, &error)) {
        sentence_add(&words, "%s", error.message);
        doctor_tell(d, FINDING_BAD, "overrides", &words,
                    redis_link_is_wrong_type(&error) ? "nodes read no overrides: something else has written the key"
                                                     : doctor_advice(&error));
    } else if (override_trial_open(&trial, d->prefix, d->policies, PROBE_KEYS_GUESSED, &error) == TRIAL_OPENED) {
        try_overrides(d, &trial, &entries);
        override_trial_close(&trial);
    } else {
        override_trial_close(&trial);
        sentence_add(&words, "%s", error.message);
        doctor_tell(d, FINDING_BAD, "policies", &words, "weir check says what is wrong with the file");
    }
    override_hash_free(&entries);
}

void fleet_checks(struct doctor *d)
{
    weir_error error;
    if (fleet_nodes_read(d->link, d->prefix, &d->nodes, &error)) {
        check_nodes(d);
    } else {
        struct sentence words = {.length = 0};
        sentence_add(&words, "%s", error.message);
        doctor_tell(d, FINDING_BAD, "nodes", &words, doctor_advice(&error));
    }
    check_overrides(d);
}
