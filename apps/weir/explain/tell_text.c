/* SPDX-License-Identifier: Apache-2.0 */
/* An explanation in words. See explanation.h. */
#include <string.h>

#include "../describe.h"
#include "../fleet/node_state.h"
#include "../quantity.h"
#include "algorithm/algorithm.h"
#include "base/numbers.h"
#include "base/plain.h"
#include "explanation.h"
#include "fleet/tuning.h"

static void add_about(struct sentence *s, uint64_t ns)
{
    if (ns == 0) {
        sentence_add(s, "no time");
        return;
    }
    quantity_about(s, "", (double) ns);
}

/* Why the limit that decides has no room. */
static void add_reason(struct sentence *s, const struct explanation *e, const weir_inspected_limit *deciding)
{
    sentence_add(s, "limit %s has ", deciding->limit.name);
    if (deciding->retry_after_ns == UINT64_MAX) {
        sentence_add(s, "never room for ");
        quantity_number(s, e->cost);
        sentence_add(s, " at once");
        return;
    }
    if (deciding->remaining == 0) {
        sentence_add(s, "no room");
    } else {
        sentence_add(s, "room for ");
        quantity_number(s, deciding->remaining);
        sentence_add(s, " of ");
        quantity_number(s, e->cost);
    }
    sentence_add(s, ", and will have it in ");
    add_about(s, deciding->retry_after_ns);
}

static void add_verdict(struct sentence *s, const struct explanation *e)
{
    const weir_inspected_key *at = e->at;
    const weir_inspected_limit *deciding = explanation_deciding(e);
    const bool shadow = e->at->mode == WEIR_SHADOW;
    if (e->key.policy->scope == WEIR_SCOPE_PROCESS && at->override == WEIR_NO_OVERRIDE) {
        sentence_add(s, ": each process limits it by itself, and nothing of it is in Redis");
        return;
    }
    if (e->at->denied) {
        sentence_add(s, shadow ? " would be denied, but passes in shadow mode: " : " is denied: ");
    } else {
        sentence_add(s, " is admitted");
    }
    if (at->override == WEIR_OVERRIDE_DENY) {
        sentence_add(s, "an override says so");
    } else if (at->override == WEIR_OVERRIDE_ALLOW) {
        sentence_add(s, ": an override says that it is never limited");
    } else if (e->at->denied && deciding != NULL) {
        add_reason(s, e, deciding);
    } else if (deciding != NULL) {
        sentence_add(s, ": ");
        quantity_number(s, deciding->remaining);
        sentence_add(s, " may still pass at once in the whole fleet");
    } else if (e->key.is_network) {
        sentence_add(s, " by the limits of its policy, each key of the network by itself");
    }
}

static void tell_override_in_force(const struct explanation *e, struct output *out, const weir_policy *policy)
{
    if (e->at->override_name == NULL) {
        output_text(out, "  no override\n");
        return;
    }
    struct sentence s = {.length = 0};
    describe_override(&s, policy, e->at->override_value);
    output_text(out, "  override %s: ", e->at->override_from_fleet ? "in Redis" : "in the policy file");
    output_styled(out, STYLE_NAME, e->at->override_name);
    output_text(out, " %s\n", s.text);
}

/* What counts against the limit, by the kind of its algorithm. */
static void add_counts(struct sentence *s, const weir_inspected_limit *limit, uint64_t now_ns)
{
    const bool queue = algorithm_is_queue(limit->limit.algorithm);
    quantity_number(s, limit->remaining);
    sentence_add(s, " left of ");
    quantity_number(s, limit->at_once);
    switch (algorithm_kind(limit->limit.algorithm)) {
    case RULE_WINDOW:
        sentence_add(s, "; ");
        quantity_number(s, limit->record.used);
        sentence_add(s, " used in this window, which ends in ");
        add_about(s, limit->end_ns - now_ns);
        if (algorithm_slides(limit->limit.algorithm)) {
            sentence_add(s, "; ");
            quantity_number(s, limit->before.used);
            sentence_add(s, " in the one before, of which ");
            quantity_number(s, limit->carried);
            sentence_add(s, " count%s", limit->carried == 1 ? "s" : "");
        }
        return;
    case RULE_BUCKET:
        sentence_add(s, "; ");
        quantity_number(s, limit->used);
        sentence_add(s, queue ? " in the queue" : " short of full");
        if (limit->used != 0) {
            sentence_add(s, queue ? ", empty in " : ", full in ");
            add_about(s, limit->reset_after_ns);
        }
        return;
    case RULE_HISTORY:
        sentence_add(s, "; ");
        quantity_number(s, limit->used);
        sentence_add(s, " in the log");
        if (limit->used != 0) {
            sentence_add(s, ", empty in ");
            add_about(s, limit->reset_after_ns);
        }
        return;
    }
}

static void add_part(struct sentence *s, uint64_t part, uint64_t whole)
{
    if (whole != 0) {
        sentence_add(s, " (%.0f%%)", 100.0 * (double) part / (double) whole);
    }
}

/* What each node has reported of the key. A bucket's counts go back to when its record began. */
static void tell_parts(struct output *out, const weir_inspected_record *record, const char *when)
{
    uint64_t admitted = 0;
    uint64_t demand = 0;
    for (size_t i = 0; i < record->author_count; i++) {
        admitted += record->authors[i].admitted;
        demand += record->authors[i].demand;
    }
    for (size_t i = 0; i < record->author_count; i++) {
        const weir_inspected_author *part = &record->authors[i];
        struct sentence s = {.length = 0};
        sentence_add(&s, " admitted ");
        quantity_number(&s, part->admitted);
        add_part(&s, part->admitted, admitted);
        if (part->demand != 0) {
            sentence_add(&s, " of ");
            quantity_number(&s, part->demand);
            add_part(&s, part->demand, demand);
            sentence_add(&s, " asked for");
        }
        if (part->refunds != 0) {
            sentence_add(&s, ", and gave back ");
            quantity_number(&s, part->refunds);
        }
        output_text(out, "    node ");
        output_styled(out, STYLE_NAME, part->node);
        output_text(out, "%s%s\n", s.text, when);
    }
}

static void tell_limit(const weir_inspected_limit *limit, uint64_t now_ns, struct output *out)
{
    struct sentence words = {.length = 0};
    struct sentence counts = {.length = 0};
    describe_limits(&words, &limit->limit, 1);
    output_text(out, "  ");
    output_styled(out, limit->fits ? STYLE_NAME : STYLE_BAD, limit->limit.name);
    output_text(out, ": %s\n", words.text);
    if (limit->record.wrong_type || limit->before.wrong_type) {
        return; /* the fault says it */
    }
    add_counts(&counts, limit, now_ns);
    output_text(out, "    %s\n", counts.text);
    switch (algorithm_kind(limit->limit.algorithm)) {
    case RULE_WINDOW:
        tell_parts(out, &limit->record, "");
        if (algorithm_slides(limit->limit.algorithm)) {
            tell_parts(out, &limit->before, ", in the window before");
        }
        return;
    case RULE_BUCKET:
        tell_parts(out, &limit->record, ", since the record began");
        return;
    case RULE_HISTORY:
        tell_parts(out, &limit->record, "");
        return;
    }
}

static const struct node_status *status_of(const struct explanation *e, const char *id)
{
    for (size_t i = 0; i < e->status_count; i++) {
        if (strcmp(e->status[i].id, id) == 0) {
            return &e->status[i];
        }
    }
    return NULL;
}

static void add_status(struct sentence *s, const struct node_status *status)
{
    sentence_add(s, "; ");
    if (status->fleet_age_s >= 0) {
        sentence_add(s, "last sync ");
        add_about(s, (uint64_t) (status->fleet_age_s * 1e9));
        sentence_add(s, " ago");
    } else {
        sentence_add(s, "no sync yet");
    }
    if (status->outage_mode[0] == '\0') {
        sentence_add(s, ", without this policy");
    } else if (strcmp(status->outage_mode, "fleet") != 0) {
        sentence_add(s, ", outage mode %s", status->outage_mode);
    }
}

/* A node of the fleet; NULL: there is none of this id. */
static const weir_inspected_node *node_of(const struct explanation *e, const char *id)
{
    for (size_t i = 0; i < e->at->fleet->node_count; i++) {
        if (strcmp(e->at->fleet->nodes[i].id, id) == 0) {
            return &e->at->fleet->nodes[i];
        }
    }
    return NULL;
}

static void tell_node(const struct explanation *e, const char *id, struct output *out)
{
    const weir_inspected_node *node = node_of(e, id);
    const struct node_status *status = status_of(e, id);
    struct sentence s = {.length = 0};
    if (node == NULL) {
        sentence_add(&s, " is not among the nodes in Redis");
    } else {
        sentence_add(&s, ": %s, has reported up to ", node_state_name(node->state));
        add_about(&s, node->age_ns / NS_PER_MS * NS_PER_MS);
        sentence_add(&s, " ago");
    }
    output_text(out, "  node ");
    output_styled(out, node == NULL || node->state != WEIR_NODE_LIVE ? STYLE_BAD : STYLE_NAME, id);
    if (status != NULL) {
        output_text(out, " (");
        output_styled(out, STYLE_PLAIN, status->name);
        output_text(out, ", %s)", status->address);
        add_status(&s, status);
    }
    output_text(out, "%s\n", s.text);
}

static void tell_nodes(const struct explanation *e, struct output *out)
{
    const weir_inspected_fleet *fleet = e->at->fleet;
    uint64_t interval_ns = 0;
    for (size_t i = 0; i < fleet->node_count; i++) {
        interval_ns = max_u64(interval_ns, fleet->nodes[i].suspect_ns / NODE_SUSPECT_INTERVALS);
        tell_node(e, fleet->nodes[i].id, out);
    }
    for (size_t i = 0; i < e->status_count; i++) {
        if (node_of(e, e->status[i].id) == NULL) {
            tell_node(e, e->status[i].id, out);
        }
    }
    if (fleet->node_count == 0) {
        output_text(out, "  no node has been in the fleet lately\n");
        return;
    }
    struct sentence s = {.length = 0};
    add_about(&s, interval_ns);
    output_text(
        out,
        "  a node admits its part of what is left, by the demand for the key; since its report it may have admitted\n"
        "  more: a sync interval is %s\n",
        s.text);
}

void explanation_tell_text(const struct explanation *e, struct output *out)
{
    struct sentence verdict = {.length = 0};
    struct sentence words = {.length = 0};
    weir_limit limits[WEIR_MAX_LIMITS];
    const weir_policy configured = fleet_key_policy(&e->key, limits);
    add_verdict(&verdict, e);
    output_styled(out, e->at->denied ? STYLE_BAD : STYLE_GOOD, e->key.full_name);
    output_text(out, "%s\n", verdict.text);
    describe_limits(&words, configured.limits, configured.limit_count);
    output_text(out, "  policy ");
    output_styled(out, STYLE_NAME, e->key.policy->name);
    output_text(out, ": %s\n", words.text);
    tell_override_in_force(e, out, &configured);
    for (size_t i = 0; i < e->at->limit_count; i++) {
        tell_limit(&e->at->limits[i], e->at->fleet->time_ns, out);
    }
    if (e->at->limit_count != 0 || e->key.is_network) {
        tell_nodes(e, out);
    }
}
