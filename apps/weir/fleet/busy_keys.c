/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See busy_keys.h. docs/operations.md ("Reading a record") has the forms of what is read here.
 *
 * The records do not say which tier of its policy a key has. So a key is at its limit if it is at a limit of every
 * tier: what is said of it holds under the tier that lets most pass.
 */
#include "busy_keys.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "algorithm/window.h"
#include "base/error.h"
#include "base/numbers.h"
#include "fleet/tuning.h"
#include "limiter/weir_private.h"
#include "policy/policy_set.h"
#include "standing.h"

/* Keys that are read in any case, and the most keys that are read where many have half of a limit in use. */
#define READ_LEAST 500
#define READ_MOST  2000

/* The part of a limit from which on a key that is not read may be at it: of a sliding window, half may be in each
 * record. */
#define PART_LEAST 0.5

struct busy_limit {
    char name[POLICY_LABEL_SIZE + WEIR_MAX_NAME + 2]; /* "label:policy", as in the names of records */
    char base[WEIR_MAX_NAME + 1];
    struct rule rule;
    uint64_t at_once; /* units of the tier that lets most pass */
};

struct busy_key {
    const struct busy_limit *limit; /* of one of its records */
    char *text;
    double part; /* of that limit, in use */
};

/* A record of a page that is being read. */
struct busy_record {
    const struct busy_limit *limit;
    const char *name;
    char text[KEY_NAME_TEXT_SIZE];
    uint64_t unit_ps;
    double units;
};

static uint64_t clock_ns(void)
{
    struct timespec now;
    (void) clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t) now.tv_sec * NS_PER_S + (uint64_t) now.tv_nsec;
}

static bool fail_memory(weir_error *error)
{
    return error_set(error, -ENOMEM, "out of memory") == 0;
}

static int compare_limits(const void *left, const void *right)
{
    const struct busy_limit *a = left;
    const struct busy_limit *b = right;
    return strcmp(a->name, b->name);
}

/* Lists the limits of all policies with records: of tiers with one label, one limit. False: out of memory. */
static bool list_limits(struct busy_keys *out)
{
    const struct policy_set *set = process_policies(&out->key.weir->limiter.process); /* no thread changes it */
    size_t kept = 0;
    out->limits = calloc(set->count * WEIR_MAX_LIMITS + 1, sizeof(*out->limits));
    if (out->limits == NULL) {
        return false;
    }
    for (size_t i = 0; i < set->count; i++) {
        const struct policy *policy = &set->policies[i];
        for (size_t l = 0; l < policy->limit_count && policy->scope == WEIR_SCOPE_FLEET; l++) {
            struct busy_limit *limit = &out->limits[out->limit_count++];
            (void) snprintf(limit->name, sizeof(limit->name), "%s:%s", policy->limits[l].label, policy->base);
            (void) snprintf(limit->base, sizeof(limit->base), "%s", policy->base);
            limit->rule = policy_rule(&policy->limits[l]);
            limit->at_once = limit->rule.limit;
        }
    }
    if (out->limit_count != 0) {
        qsort(out->limits, out->limit_count, sizeof(*out->limits), compare_limits);
    }
    for (size_t i = 0; i < out->limit_count; i++) {
        struct busy_limit *before = kept != 0 ? &out->limits[kept - 1] : NULL;
        if (before != NULL && strcmp(before->name, out->limits[i].name) == 0) {
            before->at_once = max_u64(before->at_once, out->limits[i].at_once);
        } else {
            out->limits[kept++] = out->limits[i];
        }
    }
    out->limit_count = kept;
    return true;
}

bool busy_keys_open(struct busy_keys *out, const char *prefix, const char *file, uint64_t fleet_us, weir_error *error)
{
    const struct fleet_key_options options = {.file = file, .prefix = prefix};
    *out = (struct busy_keys){.begun_ns = clock_ns(), .fleet_ns = fleet_us * NS_PER_US};
    if (fleet_key_open_file(&out->key, &options, error) != FLEET_KEY_OPENED) {
        return false;
    }
    return list_limits(out) || fail_memory(error);
}

void busy_keys_close(struct busy_keys *keys)
{
    for (size_t i = 0; i < keys->count; i++) {
        free(keys->all[i].text);
    }
    free(keys->all);
    free(keys->limits);
    fleet_key_close(&keys->key);
}

/* Whether a window counts now: the present one, or of a sliding window the one before. */
static bool counts_now(const struct busy_keys *keys, const struct rule *rule, const char *number)
{
    const uint64_t window = strtoull(number, NULL, 10);
    const uint64_t now = window_span_at(rule, keys->fleet_ns + clock_ns() - keys->begun_ns).number;
    return window == now || (rule_slides(rule) && window == now - 1);
}

/* Reads "PREFIX:{tag}:label:policy:key", behind which a window has its number. False: it is no record to be read. */
static bool read_name(const struct busy_keys *keys, const char *name, struct busy_record *out)
{
    struct busy_limit wanted;
    const size_t prefix = strlen(keys->key.prefix);
    if (name == NULL || strncmp(name, keys->key.prefix, prefix) != 0 || strncmp(name + prefix, ":{", 2) != 0) {
        return false;
    }
    const char *label = strstr(name + prefix, "}:");
    const char *policy = label != NULL ? strpbrk(label + 2, ":?") : NULL;
    const char *key = policy != NULL && *policy == ':' ? strchr(policy + 1, ':') : NULL;
    if (key == NULL || (size_t) (key - label - 2) >= sizeof(wanted.name)) {
        return false;
    }
    (void) snprintf(wanted.name, sizeof(wanted.name), "%.*s", (int) (key - label - 2), label + 2);
    const struct busy_limit *limit =
        bsearch(&wanted, keys->limits, keys->limit_count, sizeof(*keys->limits), compare_limits);
    if (limit == NULL) {
        return false;
    }
    key++;
    const char *end = rule_kind(&limit->rule) == RULE_WINDOW ? strrchr(key, ':') : key + strlen(key);
    if (end == NULL || end == key || (size_t) (end - key) >= sizeof(out->text) ||
        (*end == ':' && !counts_now(keys, &limit->rule, end + 1))) {
        return false;
    }
    *out = (struct busy_record){.limit = limit, .name = name};
    (void) snprintf(out->text, sizeof(out->text), "%.*s", (int) (end - key), key);
    return true;
}

static const char *text_of(const redisReply *reply, size_t index)
{
    const bool there = reply->type == REDIS_REPLY_ARRAY && index < reply->elements;
    return there && reply->element[index]->str != NULL ? reply->element[index]->str : "";
}

/* Asks for what is in use: of a log its units, of a window its sum, of a bucket the rate of its times. */
static bool read_sums(struct busy_keys *keys, struct redis_link *link, struct busy_record *records, size_t count,
                      weir_error *error)
{
    bool good = true;
    for (size_t i = 0; i < count && good; i++) {
        const bool is_log = rule_kind(&records[i].limit->rule) == RULE_HISTORY;
        const char *ask[] = {is_log ? "ZCARD" : "HMGET", records[i].name, "sum", "unit"};
        good = redis_link_send(link, is_log ? 2 : 4, ask, error);
    }
    for (size_t i = 0; i < count && good; i++) {
        redisReply *reply = redis_link_receive(link, error);
        good = reply != NULL;
        if (good && reply->type == REDIS_REPLY_INTEGER) {
            records[i].units = (double) reply->integer;
        } else if (good) {
            keys->refused =
                keys->refused || (reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, "NOPERM", 6) == 0);
            records[i].units = strtod(text_of(reply, 0), NULL);
            records[i].unit_ps = strtoull(text_of(reply, 1), NULL, 10);
        }
        freeReplyObject(reply);
    }
    return good;
}

static bool is_bucket(const struct busy_record *record)
{
    return rule_kind(&record->limit->rule) == RULE_BUCKET && record->unit_ps != 0;
}

/* Asks for the time at which each bucket is full again. Its level is the time until then, in units. */
static bool read_levels(const struct busy_keys *keys, struct redis_link *link, struct busy_record *records,
                        size_t count, weir_error *error)
{
    bool good = true;
    for (size_t i = 0; i < count && good; i++) {
        char field[32];
        (void) snprintf(field, sizeof(field), "tat:%llu", (unsigned long long) records[i].unit_ps);
        const char *ask[] = {"HGET", records[i].name, field};
        good = !is_bucket(&records[i]) || redis_link_send(link, 3, ask, error);
    }
    for (size_t i = 0; i < count && good; i++) {
        if (!is_bucket(&records[i])) {
            continue;
        }
        redisReply *reply = redis_link_receive(link, error);
        good = reply != NULL;
        const uint64_t tat_us = good && reply->type == REDIS_REPLY_STRING ? strtoull(reply->str, NULL, 10) : 0;
        const uint64_t now_us = (keys->fleet_ns + clock_ns() - keys->begun_ns) / NS_PER_US;
        records[i].units = (double) saturating_sub(tat_us, now_us) * 1e6 / (double) records[i].unit_ps;
        freeReplyObject(reply);
    }
    return good;
}

/* Keeps the keys of records with units in use. False: out of memory. */
static bool keep(struct busy_keys *keys, const struct busy_record *records, size_t count)
{
    if (keys->capacity - keys->count < count) {
        const size_t capacity = 2 * keys->capacity + count;
        struct busy_key *larger = realloc(keys->all, capacity * sizeof(*larger));
        if (larger == NULL) {
            return false;
        }
        keys->all = larger;
        keys->capacity = capacity;
    }
    for (size_t i = 0; i < count; i++) {
        const uint64_t at_once = max_u64(records[i].limit->at_once, 1);
        char *text = records[i].units > 0 ? strdup(records[i].text) : NULL;
        if (text != NULL) {
            keys->all[keys->count++] = (struct busy_key){records[i].limit, text, records[i].units / (double) at_once};
        } else if (records[i].units > 0) {
            return false;
        }
    }
    return true;
}

bool busy_keys_take(struct busy_keys *keys, struct redis_link *link, const redisReply *names, weir_error *error)
{
    size_t count = 0;
    struct busy_record *records = calloc(names->elements + 1, sizeof(*records));
    if (records == NULL) {
        return fail_memory(error);
    }
    for (size_t i = 0; i < names->elements; i++) {
        count += read_name(keys, names->element[i]->str, &records[count]);
    }
    const bool good = read_sums(keys, link, records, count, error) && read_levels(keys, link, records, count, error);
    const bool kept = good && keep(keys, records, count);
    free(records);
    return good && (kept || fail_memory(error));
}

static int compare_names(const void *left, const void *right)
{
    const struct busy_key *a = left;
    const struct busy_key *b = right;
    const int bases = strcmp(a->limit->base, b->limit->base);
    const int texts = bases != 0 ? bases : strcmp(a->text, b->text);
    return texts != 0 ? texts : (a->part < b->part) - (a->part > b->part);
}

static int compare_parts(const void *left, const void *right)
{
    const struct busy_key *a = left;
    const struct busy_key *b = right;
    return a->part != b->part ? (a->part < b->part) - (a->part > b->part) : compare_names(left, right);
}

/* Leaves one row for each key, that with most in use first. */
static void sort_keys(struct busy_keys *keys)
{
    size_t kept = 0;
    if (keys->count == 0) {
        return;
    }
    qsort(keys->all, keys->count, sizeof(*keys->all), compare_names);
    for (size_t i = 0; i < keys->count; i++) {
        const struct busy_key *before = kept != 0 ? &keys->all[kept - 1] : NULL;
        if (before != NULL && strcmp(before->limit->base, keys->all[i].limit->base) == 0 &&
            strcmp(before->text, keys->all[i].text) == 0) {
            free(keys->all[i].text);
        } else {
            keys->all[kept++] = keys->all[i];
        }
    }
    keys->count = kept;
    qsort(keys->all, keys->count, sizeof(*keys->all), compare_parts);
}

/* The time of two intervals between reports, of the node with the longest ones. */
static uint64_t two_intervals_ns(const struct fleet_nodes *nodes)
{
    uint64_t suspect_ms = 0;
    for (size_t i = 0; i < nodes->count; i++) {
        suspect_ms =
            nodes->all[i].state == FLEET_NODE_LIVE ? max_u64(suspect_ms, nodes->all[i].suspect_ms) : suspect_ms;
    }
    return saturating_mul(suspect_ms, 2 * NS_PER_MS) / NODE_SUSPECT_INTERVALS;
}

/*
 * Whether requests of the key are denied now by this limit. Nodes share what is left, so a key may be denied while some
 * units are left in the fleet; and a bucket refills from its last report on.
 */
static bool is_full(const struct standing *s, const struct fleet_nodes *nodes)
{
    const bool some_denied = s->now.demand > s->now.net;
    switch (rule_kind(&s->rule)) {
    case RULE_WINDOW:
        return !s->fits || s->now.demand > s->at_once;
    case RULE_HISTORY:
        return !s->fits || (some_denied && s->remaining <= nodes->count);
    case RULE_BUCKET: {
        const uint64_t unit_ns = s->rule.unit >> BUCKET_FRACTION_BITS;
        const uint64_t refilled = two_intervals_ns(nodes) / max_u64(unit_ns, 1);
        return !s->fits || (some_denied && s->remaining <= refilled + nodes->count);
    }
    }
    return false;
}

/* Reads a key under one tier. *out: the limit of which it has used most, or `count` 0 if it is at none. */
static bool judge_tier(struct busy_keys *keys, struct redis_link *link, const struct fleet_nodes *nodes,
                       struct full_keys *out, weir_error *error)
{
    const struct fleet_key *key = &keys->key;
    bool good = true;
    out->count = 0;
    out->times = 0;
    for (size_t i = 0; i < key->policy->limit_count && good && key->in_force.override == OVERRIDE_NONE; i++) {
        struct standing limit;
        good = standing_read(&limit, link, key, &key->in_force.limits[i], nodes, 1, false, error);
        const bool window = rule_kind(&limit.rule) == RULE_WINDOW;
        const bool asked = window && limit.now.demand > limit.count;
        const double times = (double) (asked ? limit.now.demand : limit.count) / (double) max_u64(limit.at_once, 1);
        if (good && is_full(&limit, nodes) && (out->count == 0 || times > out->times)) {
            out->count = 1;
            out->times = times;
            out->asked = asked;
            (void) snprintf(out->limit, sizeof(out->limit), "%s", limit.limit->name);
        }
        standing_free(&limit);
    }
    out->shadow = key->policy->mode == WEIR_SHADOW;
    (void) snprintf(out->policy, sizeof(out->policy), "%s", key->policy->name);
    (void) snprintf(out->key, sizeof(out->key), "%s", key->text);
    return good;
}

/* What is read beside the records of a key. */
struct fleet_now {
    struct fleet_nodes nodes;
    struct hash_entries overrides;
};

/* Reads a key under each tier of its policy. out->count: 1 if it is at a limit of each of them. */
static bool judge_key(struct busy_keys *keys, struct redis_link *link, const struct fleet_now *now,
                      const struct busy_key *busy, struct full_keys *out, weir_error *error)
{
    bool first = true;
    *out = (struct full_keys){.count = 0};
    for (size_t i = 0;; i++) {
        /* Each key may make another set, with the same policies in it, and frees the one before. */
        const struct policy_set *set = process_policies(&keys->key.weir->limiter.process);
        struct full_keys of_tier = {.count = 0};
        if (i >= set->count) {
            break;
        }
        const struct policy *policy = &set->policies[i];
        if (strcmp(policy->base, busy->limit->base) != 0 || policy->scope != WEIR_SCOPE_FLEET) {
            continue;
        }
        char name[WEIR_MAX_NAME + 1];
        memcpy(name, policy->name, sizeof(name));
        const struct fleet_key_options options = {.policy = name, .key = busy->text};
        if (fleet_key_choose(&keys->key, &options, NULL) != FLEET_KEY_OPENED || keys->key.is_network) {
            out->count = 0; /* something else has written the record */
            break;
        }
        if (fleet_key_find_override(&keys->key, &now->overrides, now->nodes.fleet_us * NS_PER_US) != 0) {
            return fail_memory(error);
        }
        if (!judge_tier(keys, link, &now->nodes, &of_tier, error)) {
            return false;
        }
        if (first || of_tier.count == 0 || (out->count != 0 && of_tier.times < out->times)) {
            *out = of_tier;
        }
        first = false;
        if (out->count == 0) {
            break;
        }
    }
    (void) snprintf(out->base, sizeof(out->base), "%s", busy->limit->base);
    return true;
}

/* Adds a key that is at its limit to the row of its policy. False: out of memory. */
static bool add_full(struct full_keys **rows, size_t *count, const struct full_keys *one)
{
    size_t at = 0;
    while (at < *count && strcmp((*rows)[at].base, one->base) != 0) {
        at++;
    }
    if (at == *count) {
        struct full_keys *larger = realloc(*rows, (*count + 1) * sizeof(*larger));
        if (larger == NULL) {
            return false;
        }
        *rows = larger;
        larger[(*count)++] = *one;
        return true;
    }
    struct full_keys *row = &(*rows)[at];
    const size_t keys = row->count + 1;
    if (one->times > row->times) {
        *row = *one;
    }
    row->count = keys;
    return true;
}

bool busy_keys_judge(struct busy_keys *keys, struct redis_link *link, uint64_t ms, struct full_keys **out,
                     size_t *count, weir_error *error)
{
    struct fleet_now now = {.overrides = {.all = NULL}};
    char name[48];
    *out = NULL;
    *count = 0;
    sort_keys(keys);
    (void) snprintf(name, sizeof(name), "%s:overrides", keys->key.prefix);
    bool good = override_hash_list(link, name, &now.overrides, error) || redis_link_is_wrong_type(error);
    good = good && fleet_nodes_read(link, keys->key.prefix, &now.nodes, error);
    const uint64_t end_ns = clock_ns() + ms * NS_PER_MS;
    for (size_t i = 0; i < keys->count && good; i++) {
        struct full_keys one;
        const bool enough = i >= READ_LEAST && keys->all[i].part < PART_LEAST;
        keys->partly = !enough && (i == READ_MOST || clock_ns() > end_ns);
        if (enough || keys->partly) {
            break;
        }
        good = judge_key(keys, link, &now, &keys->all[i], &one, error);
        if (good && one.count != 0 && !add_full(out, count, &one)) {
            good = fail_memory(error);
        }
    }
    override_hash_free(&now.overrides);
    fleet_nodes_free(&now.nodes);
    return good;
}
