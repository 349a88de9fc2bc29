/* SPDX-License-Identifier: Apache-2.0 */
/* See top_status.h. Adapter to jansson. */
#include "top_status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/plain.h"

static void read_text(const json_t *object, const char *name, char *out, size_t size)
{
    const char *text = json_string_value(json_object_get(object, name));
    (void) plain_line(out, size, text != NULL ? text : "");
}

/* What is no number, or below 0, reads as 0: a hostile answer must do no harm. */
static uint64_t read_number(const json_t *object, const char *name)
{
    const json_int_t value = json_integer_value(json_object_get(object, name));
    return value > 0 ? (uint64_t) value : 0;
}

static void read_policy(const json_t *from, struct top_policy *out)
{
    read_text(from, "name", out->name, sizeof(out->name));
    read_text(from, "group", out->group, sizeof(out->group));
    read_text(from, "mode", out->mode, sizeof(out->mode));
    read_text(from, "outage_mode", out->outage_mode, sizeof(out->outage_mode));
    read_text(from, "basis", out->basis, sizeof(out->basis));
    out->allowed = read_number(from, "allowed");
    out->denied = read_number(from, "denied");
    out->would_deny = read_number(from, "would_deny");
}

/* Tiers share the list of their group: the first policy of a group stands for all. */
static bool is_first_of_group(const struct top_status *status, size_t at)
{
    for (size_t i = 0; i < at; i++) {
        if (strcmp(status->policies[i].group, status->policies[at].group) == 0) {
            return false;
        }
    }
    return true;
}

static void read_keys(const json_t *from, const char *group, struct top_status *out)
{
    const json_t *offenders = json_object_get(from, "offenders");
    for (size_t i = 0; i < json_array_size(offenders) && i < WEIR_TOP_OFFENDERS; i++) {
        const json_t *offender = json_array_get(offenders, i);
        struct top_key *key = &out->keys[out->key_count_listed++];
        (void) snprintf(key->policy, sizeof(key->policy), "%s", group);
        read_text(offender, "key", key->key, sizeof(key->key));
        key->denied_units = read_number(offender, "denied_units");
        key->error_units = read_number(offender, "error_units");
        key->nodes = 1;
    }
}

static bool read_policies(const json_t *policies, struct top_status *out)
{
    const size_t count = json_array_size(policies) <= WEIR_MAX_POLICIES ? json_array_size(policies) : WEIR_MAX_POLICIES;
    out->policies = calloc(count + 1, sizeof(*out->policies));
    out->keys = calloc(count * WEIR_TOP_OFFENDERS + 1, sizeof(*out->keys));
    if (out->policies == NULL || out->keys == NULL) {
        return false;
    }
    for (out->policy_count = 0; out->policy_count < count; out->policy_count++) {
        const json_t *policy = json_array_get(policies, out->policy_count);
        read_policy(policy, &out->policies[out->policy_count]);
        if (is_first_of_group(out, out->policy_count)) {
            read_keys(policy, out->policies[out->policy_count].group, out);
        }
    }
    return true;
}

bool top_status_read(struct top_status *out, const char *text, size_t length, char *why, size_t size)
{
    json_error_t error;
    memset(out, 0, sizeof(*out));
    json_t *root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
    const json_t *policies = json_object_get(root, "policies");
    bool good = json_is_array(policies) && json_is_integer(json_object_get(root, "uptime_ms"));
    if (!good) {
        (void) snprintf(why, size, "the answer is no status of weir");
    } else if (!read_policies(policies, out)) {
        (void) snprintf(why, size, "out of memory");
        good = false;
    } else {
        const json_t *age = json_object_get(root, "fleet_age_ms");
        read_text(root, "version", out->version, sizeof(out->version));
        read_text(root, "node", out->node, sizeof(out->node));
        read_text(root, "name", out->name, sizeof(out->name));
        read_text(root, "link", out->link, sizeof(out->link));
        out->fleet_age_ms = json_is_integer(age) ? (int64_t) read_number(root, "fleet_age_ms") : -1;
        out->allowed = read_number(root, "allowed");
        out->denied = read_number(root, "denied");
        out->uptime_ms = read_number(root, "uptime_ms");
        out->live_nodes = read_number(root, "live_nodes");
        out->suspect_nodes = read_number(root, "suspect_nodes");
        out->syncs = read_number(root, "syncs");
        out->sync_errors = read_number(root, "sync_errors");
        out->key_count = read_number(root, "keys");
        out->key_capacity = read_number(root, "key_capacity");
    }
    json_decref(root);
    return good;
}

void top_status_free(struct top_status *status)
{
    free(status->policies);
    free(status->keys);
    memset(status, 0, sizeof(*status));
}

const struct top_policy *top_status_policy(const struct top_status *status, const char *name)
{
    for (size_t i = 0; i < status->policy_count; i++) {
        if (strcmp(status->policies[i].name, name) == 0) {
            return &status->policies[i];
        }
    }
    return NULL;
}
