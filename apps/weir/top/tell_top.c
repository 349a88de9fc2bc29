/* SPDX-License-Identifier: Apache-2.0 */
/* See tell_top.h. */
#include "tell_top.h"

#include <stdlib.h>

#include "../fleet/node_state.h"
#include "base/numbers.h"

/* Nothing where the rate is not known. */
static void tell_rate(struct output *out, const char *key, double rate)
{
    if (rate >= 0) {
        output_decimal(out, key, rate);
    }
}

static void tell_policy(struct output *out, const struct top_node *node, const struct top_policy *policy)
{
    static const struct top_policy none = {.allowed = 0};
    const struct top_policy *before = top_status_policy(&node->before, policy->name);
    before = before != NULL ? before : &none;
    output_open(out, NULL, '{');
    output_string(out, "name", policy->name);
    output_string(out, "mode", policy->mode);
    output_string(out, "outage_mode", policy->outage_mode);
    output_string(out, "basis", policy->basis);
    output_number(out, "allowed", policy->allowed);
    output_number(out, "denied", policy->denied);
    output_number(out, "would_deny", policy->would_deny);
    tell_rate(out, "allowed_per_s", top_rate(node, policy->allowed, before->allowed));
    tell_rate(out, "denied_per_s", top_rate(node, policy->denied, before->denied));
    tell_rate(out, "would_deny_per_s", top_rate(node, policy->would_deny, before->would_deny));
    output_close(out, '}');
}

static void tell_node(struct output *out, const struct top_node *node)
{
    output_open(out, NULL, '{');
    output_string(out, "address", node->address);
    output_flag(out, "up", node->up);
    if (!node->up) {
        output_string(out, "error", node->error);
        output_close(out, '}');
        return;
    }
    const struct top_status *now = &node->now;
    output_string(out, "name", now->name);
    output_string(out, "node", now->node);
    output_string(out, "version", now->version);
    output_string(out, "link", now->link);
    output_number(out, "live_nodes", now->live_nodes);
    output_number(out, "suspect_nodes", now->suspect_nodes);
    if (now->fleet_age_ms >= 0) {
        output_number(out, "fleet_age_ms", (uint64_t) now->fleet_age_ms);
    }
    output_number(out, "syncs", now->syncs);
    output_number(out, "sync_errors", now->sync_errors);
    output_number(out, "keys", now->key_count);
    output_number(out, "key_capacity", now->key_capacity);
    output_number(out, "uptime_ms", now->uptime_ms);
    output_open(out, "policies", '[');
    for (size_t i = 0; i < now->policy_count; i++) {
        tell_policy(out, node, &now->policies[i]);
    }
    output_close(out, ']');
    output_close(out, '}');
}

void tell_top_nodes(struct output *out, const struct top_nodes *nodes)
{
    size_t count;
    struct top_key *keys = top_keys_merge(nodes, &count);
    output_open(out, NULL, '{');
    output_open(out, "nodes", '[');
    for (size_t i = 0; i < nodes->count; i++) {
        tell_node(out, &nodes->all[i]);
    }
    output_close(out, ']');
    output_open(out, "keys", '[');
    for (size_t i = 0; keys != NULL && i < count; i++) {
        output_open(out, NULL, '{');
        output_string(out, "key", keys[i].key);
        output_string(out, "policy", keys[i].policy);
        output_number(out, "denied_units", keys[i].denied_units);
        output_number(out, "error_units", keys[i].error_units);
        output_number(out, "nodes", keys[i].nodes);
        output_close(out, '}');
    }
    output_close(out, ']');
    output_close(out, '}');
    output_line(out);
    free(keys);
}

void tell_top_fleet(struct output *out, const struct fleet_sample *sample)
{
    const weir_inspected_records *read = sample->read;
    output_open(out, NULL, '{');
    output_open(out, "nodes", '[');
    for (size_t i = 0; i < read->fleet->node_count; i++) {
        const weir_inspected_node *node = &read->fleet->nodes[i];
        output_open(out, NULL, '{');
        output_string(out, "node", node->id);
        output_string(out, "state", node_state_name(node->state));
        output_number(out, "heartbeat_age_ms", node->age_ns / NS_PER_MS);
        output_close(out, '}');
    }
    output_close(out, ']');
    output_open(out, "shards", '[');
    for (size_t i = 0; i < read->server_count; i++) {
        const weir_inspected_server *server = &read->servers[i];
        output_open(out, NULL, '{');
        output_string(out, "server", server->server);
        output_flag(out, "up", server->error == NULL);
        if (server->error != NULL) {
            output_string(out, "error", server->error);
        }
        output_close(out, '}');
    }
    output_close(out, ']');
    output_number(out, "sampled", read->use_count);
    output_open(out, "records", '[');
    for (size_t i = 0; i < sample->record_count; i++) {
        const struct sample_record *record = &sample->records[i];
        output_open(out, NULL, '{');
        output_string(out, "policy", record->policy);
        output_string(out, "key", record->key);
        output_string(out, "limit", record->limit);
        output_number(out, "units", record->units);
        output_close(out, '}');
    }
    output_close(out, ']');
    output_close(out, '}');
    output_line(out);
}
