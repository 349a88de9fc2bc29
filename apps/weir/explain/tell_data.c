/* SPDX-License-Identifier: Apache-2.0 */
/* An explanation as JSON. See explanation.h. */
#include "../fleet/node_state.h"
#include "algorithm/algorithm.h"
#include "base/numbers.h"
#include "explanation.h"

/* A time that never comes is left out. */
static void tell_wait(struct output *out, const char *key, uint64_t ns)
{
    if (ns != UINT64_MAX) {
        output_number(out, key, ns);
    }
}

static void tell_override_data(const struct explanation *e, struct output *out)
{
    if (e->at->override_name == NULL) {
        return;
    }
    output_open(out, "override", '{');
    output_string(out, "name", e->at->override_name);
    output_string(out, "value", e->at->override_value);
    output_string(out, "source", e->at->override_from_fleet ? "redis" : "file");
    output_close(out, '}');
}

static void tell_record(struct output *out, const char *key, const weir_inspected_record *record)
{
    output_open(out, key, '{');
    output_string(out, "name", record->name);
    output_flag(out, "exists", record->exists);
    output_flag(out, "wrong_type", record->wrong_type);
    output_number(out, "used", record->used);
    output_number(out, "demand", record->demand);
    output_number(out, "refunds", record->refunds);
    output_open(out, "nodes", '[');
    for (size_t i = 0; i < record->author_count; i++) {
        const weir_inspected_author *part = &record->authors[i];
        output_open(out, NULL, '{');
        output_string(out, "node", part->node);
        output_number(out, "admitted", part->admitted);
        output_number(out, "demand", part->demand);
        output_number(out, "refunds", part->refunds);
        output_close(out, '}');
    }
    output_close(out, ']');
    output_close(out, '}');
}

static void tell_limit_data(const weir_inspected_limit *limit, struct output *out)
{
    const bool window = explanation_is_window(limit);
    output_open(out, NULL, '{');
    output_string(out, "name", limit->limit.name);
    output_string(out, "algorithm", algorithm_name(limit->limit.algorithm));
    output_number(out, "limit", limit->limit.limit);
    output_number(out, "period_ns", limit->limit.period_ns);
    output_number(out, "at_once", limit->at_once);
    output_number(out, "remaining", limit->remaining);
    output_number(out, "count", limit->used);
    output_flag(out, "fits", limit->fits);
    tell_wait(out, "retry_after_ns", limit->retry_after_ns);
    output_number(out, "reset_after_ns", limit->reset_after_ns);
    if (window) {
        output_number(out, "window_start_ns", limit->start_ns);
        output_number(out, "window_end_ns", limit->end_ns);
        output_number(out, "carried", limit->carried);
    }
    tell_record(out, "record", &limit->record);
    if (window && algorithm_slides(limit->limit.algorithm)) {
        tell_record(out, "record_before", &limit->before);
    }
    output_close(out, '}');
}

static void tell_nodes_data(const struct explanation *e, struct output *out)
{
    output_open(out, "nodes", '[');
    for (size_t i = 0; i < e->at->fleet->node_count; i++) {
        const weir_inspected_node *node = &e->at->fleet->nodes[i];
        output_open(out, NULL, '{');
        output_string(out, "node", node->id);
        output_string(out, "state", node_state_name(node->state));
        output_number(out, "reported_ago_ms", node->age_ns / NS_PER_MS);
        output_close(out, '}');
    }
    output_close(out, ']');
    output_open(out, "status", '[');
    for (size_t i = 0; i < e->status_count; i++) {
        const struct node_status *status = &e->status[i];
        output_open(out, NULL, '{');
        output_string(out, "address", status->address);
        output_string(out, "node", status->id);
        output_string(out, "name", status->name);
        output_flag(out, "redis_up", status->redis_up);
        output_string(out, "outage_mode", status->outage_mode);
        if (status->fleet_age_s >= 0) {
            output_number(out, "fleet_age_ns", (uint64_t) (status->fleet_age_s * 1e9));
        }
        output_close(out, '}');
    }
    output_close(out, ']');
}

void explanation_tell_data(const struct explanation *e, struct output *out)
{
    const weir_inspected_key *at = e->at;
    const weir_inspected_limit *deciding = explanation_deciding(e);
    output_open(out, NULL, '{');
    output_string(out, "name", e->key.full_name);
    output_string(out, "policy", e->key.policy->name);
    output_string(out, "mode", e->key.policy->mode == WEIR_SHADOW ? "shadow" : "enforce");
    output_string(out, "scope", e->key.policy->scope == WEIR_SCOPE_PROCESS ? "process" : "fleet");
    output_number(out, "cost", e->cost);
    output_flag(out, "denied", at->denied);
    if (deciding != NULL) {
        output_string(out, "deciding_limit", deciding->limit.name);
        output_number(out, "remaining", deciding->remaining);
        tell_wait(out, "retry_after_ns", deciding->retry_after_ns);
    }
    tell_override_data(e, out);
    output_number(out, "fleet_time_ns", at->fleet->time_ns);
    output_open(out, "limits", '[');
    for (size_t i = 0; i < at->limit_count; i++) {
        tell_limit_data(&at->limits[i], out);
    }
    output_close(out, ']');
    tell_nodes_data(e, out);
    output_close(out, '}');
    output_line(out);
}
