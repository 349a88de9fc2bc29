/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keys that are at their limit now. The records do not say which tier of its policy a key has. So a key is at its
 * limit if it is at a limit of every tier: what is said of it holds under the tier that lets most pass.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "algorithm/window.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/numbers.h"
#include "fleet/tuning.h"
#include "inspect/chosen_key.h"
#include "inspect/standing.h"
#include "limiter/policy_lock.h"
#include "limiter/shared_policies.h"
#include "limiter/weir_private.h"
#include "policy/policy_set.h"

/* Keys that are read in any case, and the most keys that are read where many have half of a limit in use. */
#define READ_LEAST 500
#define READ_MOST  2000

/* The part of a limit from which on a key that is not read may be at it: of a sliding window, half may be in each
 * record. */
#define PART_LEAST 0.5

/* A limit of the policies, as records are named by it. */
struct full_limit {
    char label[POLICY_LABEL_SIZE], base[WEIR_MAX_NAME + 1];
    struct rule rule;
    uint64_t at_once; /* units of the tier that lets most pass */
};

struct candidate {
    const weir_inspected_use *use;
    double part; /* of the limit, in use */
};

/* A search. */
struct search {
    weir_inspector *in;
    weir *w;
    const weir_inspected_overrides *overrides;
    struct full_limit *limits;
    size_t limit_count;
    char (*policies)[WEIR_MAX_NAME + 1]; /* of fleet scope, with tiers */
    char (*bases)[WEIR_MAX_NAME + 1];
    size_t policy_count;
    struct candidate *candidates;
    size_t candidate_count;
    weir_inspected_full *rows;
    struct shelf shelf; /* of the key that is read */
};

static int compare_limits(const void *left, const void *right)
{
    const struct full_limit *a = left;
    const struct full_limit *b = right;
    const int bases = strcmp(a->base, b->base);
    return bases != 0 ? bases : strcmp(a->label, b->label);
}

/* Makes one limit of those of tiers that have the same label. */
static void join_tiers(struct search *s)
{
    size_t kept = 0;
    if (s->limit_count != 0) {
        qsort(s->limits, s->limit_count, sizeof(*s->limits), compare_limits);
    }
    for (size_t i = 0; i < s->limit_count; i++) {
        if (kept != 0 && compare_limits(&s->limits[kept - 1], &s->limits[i]) == 0) {
            s->limits[kept - 1].at_once = max_u64(s->limits[kept - 1].at_once, s->limits[i].at_once);
        } else {
            s->limits[kept++] = s->limits[i];
        }
    }
    s->limit_count = kept;
}

/* Notes the policies that have records. Under the policy lock. 0; -ENOMEM; -EUCLEAN. */
static int list_policies(struct search *s)
{
    const struct policy_set *set = shared_policies_in_force(s->w);
    const size_t count = set != NULL ? set->count : 0;
    s->limits = shelf_take(&s->in->of_full_keys, count * WEIR_MAX_LIMITS + 1, sizeof(*s->limits));
    s->policies = shelf_take(&s->in->of_full_keys, count + 1, sizeof(*s->policies));
    s->bases = shelf_take(&s->in->of_full_keys, count + 1, sizeof(*s->bases));
    s->rows = shelf_take(&s->in->of_full_keys, count + 1, sizeof(*s->rows));
    if (set == NULL || s->limits == NULL || s->policies == NULL || s->bases == NULL || s->rows == NULL) {
        return set == NULL ? -EUCLEAN : -ENOMEM;
    }
    for (size_t i = 0; i < count; i++) {
        const struct policy *policy = &set->policies[i];
        if (policy->scope != WEIR_SCOPE_FLEET) {
            continue;
        }
        memcpy(s->policies[s->policy_count], policy->name, sizeof(policy->name));
        memcpy(s->bases[s->policy_count++], policy->base, sizeof(policy->base));
        for (size_t l = 0; l < policy->limit_count; l++) {
            struct full_limit *limit = &s->limits[s->limit_count++];
            memcpy(limit->label, policy->limits[l].label, sizeof(limit->label));
            memcpy(limit->base, policy->base, sizeof(limit->base));
            limit->rule = limit_reports_rule(&policy->limits[l], s->in->fleet.time_ns);
            limit->at_once = limit->rule.limit;
        }
    }
    join_tiers(s);
    return 0;
}

/* Whether a record counts now: of a window the present one, or of a sliding window the one before. */
static bool counts_now(const struct search *s, const struct rule *rule, const weir_inspected_use *use)
{
    if (rule_kind(rule) != RULE_WINDOW) {
        return true;
    }
    const uint64_t now = window_span_at(rule, s->in->fleet.time_ns).number;
    return use->window == now || (rule_slides(rule) && use->window == now - 1);
}

static int compare_keys(const void *left, const void *right)
{
    const struct candidate *a = left;
    const struct candidate *b = right;
    const int policies = strcmp(a->use->policy, b->use->policy);
    const int keys = policies != 0 ? policies : strcmp(a->use->key, b->use->key);
    return keys != 0 ? keys : (a->part < b->part) - (a->part > b->part);
}

static int compare_parts(const void *left, const void *right)
{
    const struct candidate *a = left;
    const struct candidate *b = right;
    return a->part != b->part ? (a->part < b->part) - (a->part > b->part) : compare_keys(left, right);
}

/* Lists the keys with units in use, each once, that with most in use first. False: no memory. */
static bool list_candidates(struct search *s, const weir_inspected_use *uses, size_t count)
{
    s->candidates = shelf_take(&s->in->of_full_keys, count + 1, sizeof(*s->candidates));
    if (s->candidates == NULL) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        struct full_limit wanted = {.at_once = 0};
        (void) snprintf(wanted.label, sizeof(wanted.label), "%s", uses[i].limit);
        (void) snprintf(wanted.base, sizeof(wanted.base), "%s", uses[i].policy);
        const struct full_limit *limit =
            s->limit_count != 0 ? bsearch(&wanted, s->limits, s->limit_count, sizeof(*s->limits), compare_limits)
                                : NULL;
        if (limit != NULL && uses[i].units != 0 && counts_now(s, &limit->rule, &uses[i])) {
            s->candidates[s->candidate_count++] =
                (struct candidate){&uses[i], (double) uses[i].units / (double) max_u64(limit->at_once, 1)};
        }
    }
    size_t kept = 0;
    if (s->candidate_count != 0) {
        qsort(s->candidates, s->candidate_count, sizeof(*s->candidates), compare_keys);
    }
    for (size_t i = 0; i < s->candidate_count; i++) {
        const weir_inspected_use *before = kept != 0 ? s->candidates[kept - 1].use : NULL;
        if (before == NULL || strcmp(before->policy, s->candidates[i].use->policy) != 0 ||
            strcmp(before->key, s->candidates[i].use->key) != 0) {
            s->candidates[kept++] = s->candidates[i];
        }
    }
    s->candidate_count = kept;
    if (kept != 0) {
        qsort(s->candidates, kept, sizeof(*s->candidates), compare_parts);
    }
    return true;
}

/* The time of two intervals between reports, of the node with the longest ones. */
static uint64_t two_intervals_ns(const weir_inspected_fleet *fleet)
{
    uint64_t suspect_ns = 0;
    for (size_t i = 0; i < fleet->node_count; i++) {
        const weir_inspected_node *node = &fleet->nodes[i];
        suspect_ns = node->state == WEIR_NODE_LIVE ? max_u64(suspect_ns, node->suspect_ns) : suspect_ns;
    }
    return saturating_mul(suspect_ns, 2) / NODE_SUSPECT_INTERVALS;
}

/*
 * Whether requests of the key are denied now by this limit. Nodes share what is left, so a key may be denied while some
 * units are left in the fleet; and a bucket refills from its last report on.
 */
static bool is_full(const weir_inspected_limit *limit, const struct rule *rule, const weir_inspected_fleet *fleet)
{
    const bool some_denied = limit->record.demand > limit->record.used;
    switch (rule_kind(rule)) {
    case RULE_WINDOW:
        return !limit->fits || limit->record.demand > limit->at_once;
    case RULE_HISTORY:
        return !limit->fits || (some_denied && limit->remaining <= fleet->node_count);
    case RULE_BUCKET: {
        const uint64_t unit_ns = rule->unit >> BUCKET_FRACTION_BITS;
        const uint64_t refilled = two_intervals_ns(fleet) / max_u64(unit_ns, 1);
        return !limit->fits || (some_denied && limit->remaining <= refilled + fleet->node_count);
    }
    }
    return false;
}

/* Takes what a tier's limits say of a key. *out: the limit of which it has used most, or `keys` 0 if it is at none. */
static void judge_tier(const struct search *s, const struct chosen_key *key, const weir_inspected_limit *limits,
                       weir_inspected_full *out)
{
    *out = (weir_inspected_full){
        .policy = key->policy.base, .top = key->full_name, .shadow = key->policy.mode == WEIR_SHADOW};
    for (size_t i = 0; i < key->policy.limit_count; i++) {
        const weir_inspected_limit *limit = &limits[i];
        const struct rule rule = limit_reports_rule(&key->policy.limits[i], s->in->fleet.time_ns);
        const bool asked = rule_kind(&rule) == RULE_WINDOW && limit->record.demand > limit->used;
        const double times =
            (double) (asked ? limit->record.demand : limit->used) / (double) max_u64(limit->at_once, 1);
        if (is_full(limit, &rule, &s->in->fleet) && (out->keys == 0 || times > out->times)) {
            out->keys = 1;
            out->times = times;
            out->asked = asked;
            out->limit = limit->limit.name;
        }
    }
}

/* Reads a key under one tier. *out: see judge_tier; its texts are of the key and of the search's shelf. 0; -ENOENT:
 * something else has written the record; or `error` has a sentence. */
static int read_tier(struct search *s, const char *policy, const char *text, struct chosen_key *key,
                     weir_inspected_full *out, weir_error *error)
{
    char name[ENTRY_NAME_SIZE];
    struct limit_records of[WEIR_MAX_LIMITS];
    weir_inspected_limit limits[WEIR_MAX_LIMITS];
    const struct standing_question question = {.fleet = &s->in->fleet, .cost = 1, .with_authors = false};
    if (snprintf(name, sizeof(name), "%s:%s", policy, text) >= (int) sizeof(name)) {
        return -ENOENT;
    }
    int result = chosen_key_read(key, &s->shelf, s->w, name, s->overrides, s->in->fleet.time_ns, error);
    if (result != 0) {
        return result == -EINVAL ? -ENOENT : result;
    }
    const size_t count = key->policy.override == OVERRIDE_NONE ? key->policy.limit_count : 0;
    for (size_t i = 0; i < count; i++) {
        of[i] = (struct limit_records){s->in->prefix, &key->policy, &key->policy.limits[i], text};
    }
    result = count != 0 ? standing_read(s->in, &s->shelf, of, count, &question, limits, error) : 0;
    *out = (weir_inspected_full){.keys = 0};
    if (result == 0 && count != 0) {
        judge_tier(s, key, limits, out);
    }
    return result;
}

/* Adds a key that is at its limit to the row of its policy. False: no memory. */
static bool add_full(struct search *s, const weir_inspected_full *one)
{
    weir_inspected_full_keys *out = &s->in->full_keys;
    struct shelf *shelf = &s->in->of_full_keys;
    size_t at = 0;
    while (at < out->policy_count && strcmp(s->rows[at].policy, one->policy) != 0) {
        at++;
    }
    const uint64_t keys = at < out->policy_count ? s->rows[at].keys + 1 : 1;
    if (keys == 1 || one->times > s->rows[at].times) {
        out->policy_count += keys == 1;
        s->rows[at] = *one;
        s->rows[at].policy = shelf_text(shelf, one->policy);
        s->rows[at].top = shelf_text(shelf, one->top);
        s->rows[at].limit = shelf_text(shelf, one->limit);
    }
    s->rows[at].keys = keys;
    return s->rows[at].policy != NULL && s->rows[at].top != NULL && s->rows[at].limit != NULL;
}

/* Reads a key under each tier of its policy, and adds it if it is at a limit of each of them. */
static int read_key(struct search *s, const weir_inspected_use *use, weir_error *error)
{
    struct chosen_key keys[2]; /* that of the tier that lets most pass so far, and the present one */
    weir_inspected_full least = {.keys = 0};
    size_t present = 0;
    bool first = true;
    for (size_t i = 0; i < s->policy_count; i++) {
        weir_inspected_full of_tier;
        if (strcmp(s->bases[i], use->policy) != 0) {
            continue;
        }
        const int result = read_tier(s, s->policies[i], use->key, &keys[present], &of_tier, error);
        if (result != 0) {
            return result == -ENOENT ? 0 : result;
        }
        if (of_tier.keys == 0) {
            return 0;
        }
        if (first || of_tier.times < least.times) {
            least = of_tier;
            present = 1 - present;
        }
        first = false;
    }
    return first || add_full(s, &least) ? 0 : error_set(error, -ENOMEM, "out of memory");
}

static int compare_rows(const void *left, const void *right)
{
    const weir_inspected_full *a = left;
    const weir_inspected_full *b = right;
    return a->times != b->times ? (a->times < b->times) - (a->times > b->times) : strcmp(a->policy, b->policy);
}

/* Reads the keys with most in use. */
static int read_keys(struct search *s, uint64_t end_ns, weir_error *error)
{
    weir_inspected_full_keys *out = &s->in->full_keys;
    int result = 0;
    for (size_t i = 0; i < s->candidate_count && result == 0; i++) {
        const bool enough = i >= READ_LEAST && s->candidates[i].part < PART_LEAST;
        if (enough || i == READ_MOST || clock_monotonic_ns(NULL) > end_ns) {
            out->partly = !enough || out->partly;
            break;
        }
        result = read_key(s, s->candidates[i].use, error);
        shelf_clear(&s->shelf);
        out->partly = result == -EIO || out->partly;
        result = result == -EIO ? 0 : result; /* the server of this key does not answer */
    }
    out->policies = s->rows;
    if (result == 0 && out->policy_count != 0) {
        qsort(s->rows, out->policy_count, sizeof(*s->rows), compare_rows);
    }
    return result;
}

int weir_inspect_full_keys(weir_inspector *in, weir *w, const weir_inspected_use *uses, size_t use_count,
                           uint32_t timeout_ms, const weir_inspected_full_keys **out, weir_error *error)
{
    const uint64_t end_ns = clock_monotonic_ns(NULL) + timeout_ms * NS_PER_MS;
    const weir_inspected_fleet *fleet;
    struct search s = {.in = in, .w = w};
    *out = NULL;
    shelf_clear(&in->of_full_keys);
    in->full_keys = (weir_inspected_full_keys){.policies = NULL};
    int result = weir_inspect_overrides(in, &s.overrides, error);
    result = result != 0 ? result : weir_inspect_fleet(in, &fleet, error);
    if (result != 0) {
        return result;
    }
    policy_lock_take(w);
    result = list_policies(&s);
    policy_lock_release(w);
    if (result != 0) {
        return shared_policies_refuse(result, error);
    }
    result = list_candidates(&s, uses, use_count) ? read_keys(&s, end_ns, error)
                                                  : error_set(error, -ENOMEM, "out of memory");
    *out = result == 0 ? &in->full_keys : NULL;
    return result != 0 ? result : error_clear(error); /* of a key that was left out */
}
