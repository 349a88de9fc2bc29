/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Policies from a YAML file. The file is read as a tree; its fields and their values are taken from there, and what is
 * wrong with the policies themselves is found by validate_policies, as for policies from a program.
 */
#include "policy/policy_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "algorithm/algorithm.h"
#include "base/error.h"
#include "base/numbers.h"
#include "policy/fields.h"
#include "policy/tree.h"
#include "policy/validate.h"
#include "policy/values.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* A policy or a tier. */
struct file_policy {
    const struct tree_node *mapping, *limit_mappings[WEIR_MAX_LIMITS];
    weir_limit limits[WEIR_MAX_LIMITS];
    char name[2 * WEIR_MAX_NAME + 2]; /* of a tier, whole */
};

struct policy_file {
    struct tree tree; /* has the names */
    weir_policy *policies;
    struct file_policy *details; /* of each of the policies */
    size_t policy_count, policy_room;
    struct file_entry *entries;
    size_t entry_count;
};

static const char *const algorithm_names[] = {ALGORITHM_TABLE(ALGORITHM_NAME_ENTRY)};
static const char *const calendar_names[] = {[WEIR_CALENDAR_DAY] = "day", [WEIR_CALENDAR_MONTH] = "month"};
static const char *const mode_names[] = {[WEIR_ENFORCE] = "enforce", [WEIR_SHADOW] = "shadow"};
static const char *const scope_names[] = {[WEIR_SCOPE_FLEET] = "fleet", [WEIR_SCOPE_PROCESS] = "process"};
static const char *const outage_names[] = {[WEIR_OUTAGE_SHARE] = "share",
                                           [WEIR_OUTAGE_LOCAL] = "local",
                                           [WEIR_OUTAGE_OPEN] = "open",
                                           [WEIR_OUTAGE_CLOSED] = "closed"};

static const struct word_alias algorithm_aliases[] = {{"fixed", "fixed_window"},
                                                      {"counter", "fixed_window"},
                                                      {"sliding", "sliding_window"},
                                                      {"sliding_counter", "sliding_window"},
                                                      {"rolling_window", "sliding_window"},
                                                      {"log", "sliding_log"},
                                                      {"sliding_window_log", "sliding_log"},
                                                      {"gcra", "token_bucket"},
                                                      {"token", "token_bucket"},
                                                      {"leaky", "leaky_bucket"},
                                                      {"limit_req", "leaky_bucket"}};
static const struct word_alias calendar_aliases[] = {
    {"hour", "period: 1h"},   {"hourly", "period: 1h"}, {"daily", "day"},         {"week", "period: 7d"},
    {"weekly", "period: 7d"}, {"monthly", "month"},     {"year", "period: 365d"}, {"minute", "period: 1m"}};
static const struct word_alias mode_aliases[] = {
    {"dry_run", "shadow"}, {"dryrun", "shadow"},   {"log_only", "shadow"},  {"monitor", "shadow"},
    {"report", "shadow"},  {"observe", "shadow"},  {"test", "shadow"},      {"on", "enforce"},
    {"block", "enforce"},  {"enabled", "enforce"}, {"enforcing", "enforce"}};
static const struct word_alias scope_aliases[] = {{"global", "fleet"},   {"cluster", "fleet"},   {"redis", "fleet"},
                                                  {"shared", "fleet"},   {"local", "process"},   {"node", "process"},
                                                  {"memory", "process"}, {"instance", "process"}};
static const struct word_alias outage_aliases[] = {{"fail_open", "open"},     {"allow", "open"},    {"pass", "open"},
                                                   {"fail_closed", "closed"}, {"deny", "closed"},   {"close", "closed"},
                                                   {"block", "closed"},       {"process", "local"}, {"even", "share"}};

#define WORDS(names_, aliases_)                                                                                        \
    {                                                                                                                  \
        .names = (names_), .count = COUNT(names_), .aliases = (aliases_), .alias_count = COUNT(aliases_)               \
    }
static const struct words algorithms = WORDS(algorithm_names, algorithm_aliases);
static const struct words calendars = WORDS(calendar_names, calendar_aliases);
static const struct words modes = WORDS(mode_names, mode_aliases);
static const struct words scopes = WORDS(scope_names, scope_aliases);
static const struct words outages = WORDS(outage_names, outage_aliases);

/* Everything one load works with. */
struct load {
    struct text_file file;
    struct policy_file *out;
};

/* Whose field it is, in words: "policy "api": limit 2". */
struct subject {
    char text[2 * WEIR_MAX_NAME + 64];
};

static struct subject entry_of(const struct subject *outer, const char *what, size_t number)
{
    struct subject subject;
    const char *before = outer != NULL ? outer->text : "";
    const char *colon = outer != NULL ? ": " : "";
    (void) snprintf(subject.text, sizeof(subject.text), "%.150s%s%.8s %zu", before, colon, what, number);
    return subject;
}

/* By its name, where it has one that can be one. */
static struct subject policy_of(const struct tree *tree, const struct tree_node *mapping, size_t number)
{
    const struct tree_node *name = tree_find(tree, mapping, "name");
    const char *text = name != NULL ? tree_text(tree, name) : "";
    struct subject subject = entry_of(NULL, "policy", number);
    if (*text != '\0' && strlen(text) <= WEIR_MAX_NAME) {
        (void) snprintf(subject.text, sizeof(subject.text), "policy \"%s\"", text);
    }
    return subject;
}

static int missing(const struct load *load, const struct tree_node *mapping, const struct subject *subject,
                   const char *field, const char *give)
{
    return text_file_fail(&load->file, mapping->place, -EINVAL, "%s has no %s; give %s", subject->text, field, give);
}

/* A mapping whose fields are read one after the other. The first error stays in `result`. */
struct reader {
    const struct load *load;
    const struct fields *fields;
    const struct subject *subject;
    int result;
};

/* A field's value as text. False: the field is absent, or there is an error. */
static bool has_value(struct reader *r, size_t field, struct value *out)
{
    const struct tree_node *key = r->fields->keys[field];
    const struct tree_node *value = r->fields->values[field];
    if (key == NULL || r->result != 0) {
        return false;
    }
    const struct load *load = r->load;
    const char *name = tree_text(&load->out->tree, key);
    if (value->kind != TREE_VALUE) {
        r->result = text_file_fail(&load->file, value->place, -EINVAL, "%s has a %s as %s; give a single value",
                                   r->subject->text, value->kind == TREE_LIST ? "list" : "mapping", name);
        return false;
    }
    *out = (struct value){.file = &load->file,
                          .place = value->place,
                          .subject = r->subject->text,
                          .field = name,
                          .text = tree_text(&load->out->tree, value)};
    return true;
}

static void read_number(struct reader *r, size_t field, uint64_t *out)
{
    struct value value;
    if (has_value(r, field, &value)) {
        r->result = value_number(&value, out);
    }
}

/* 0 where the field is absent: the default of each enumeration that has one. */
static unsigned read_word(struct reader *r, size_t field, const struct words *words)
{
    struct value value;
    unsigned word = 0;
    if (has_value(r, field, &value)) {
        r->result = value_word(&value, words, &word);
    }
    return word;
}

static const char *read_text(struct reader *r, size_t field)
{
    struct value value;
    return has_value(r, field, &value) ? value.text : NULL;
}

static void read_ms(struct reader *r, size_t field, uint32_t most_ms, const char *give, uint32_t *out)
{
    struct value value;
    uint64_t ns = 0;
    if (has_value(r, field, &value)) {
        r->result = value_duration(&value, 0, most_ms * NS_PER_MS, give, &ns);
        *out = (uint32_t) ((ns + NS_PER_MS - 1) / NS_PER_MS);
    }
}

static int read_limit(const struct load *load, const struct tree_node *mapping, const struct subject *subject,
                      weir_limit *out)
{
    struct fields fields;
    int result = fields_read(&load->file, &load->out->tree, LEVEL_LIMIT, subject->text, mapping, &fields);
    if (result != 0) {
        return result;
    }
    const struct tree_node *calendar = fields.keys[LIMIT_CALENDAR];
    const struct tree_node *period = fields.keys[LIMIT_PERIOD];
    if (fields.keys[LIMIT_ALGORITHM] == NULL) {
        char list[120];
        return missing(load, mapping, subject, "algorithm", words_list(&algorithms, list, sizeof(list)));
    }
    if (fields.keys[LIMIT_LIMIT] == NULL) {
        return missing(load, mapping, subject, "limit", "a whole number of units such as 1000");
    }
    if (period == NULL && calendar == NULL) {
        return missing(load, mapping, subject, "period", "a period such as \"10s\", or a calendar");
    }
    if (period != NULL && calendar != NULL) {
        return text_file_fail(&load->file, period->place.line > calendar->place.line ? period->place : calendar->place,
                              -EINVAL, "%s has a calendar and a period; give one of them", subject->text);
    }
    struct reader r = {load, &fields, subject, 0};
    *out = (weir_limit){.algorithm = (weir_algorithm) read_word(&r, LIMIT_ALGORITHM, &algorithms)};
    read_number(&r, LIMIT_LIMIT, &out->limit);
    struct value value;
    if (has_value(&r, LIMIT_PERIOD, &value)) {
        r.result = value_duration(&value, POLICY_PERIOD_MIN_NS, POLICY_PERIOD_MAX_NS,
                                  "a period such as \"10s\", from 1ms to 366d", &out->period_ns);
    }
    out->calendar = (weir_calendar) read_word(&r, LIMIT_CALENDAR, &calendars);
    read_number(&r, LIMIT_BURST, &out->burst);
    read_number(&r, LIMIT_DELAY, &out->delay);
    out->name = read_text(&r, LIMIT_NAME);
    return r.result;
}

/* The list of limits of a policy or a tier, which `key` and `list` are. */
static int read_limits(const struct load *load, const struct tree_node *key, const struct tree_node *list,
                       const struct subject *subject, weir_policy *policy, struct file_policy *detail)
{
    int result = fields_check_list(&load->file, &load->out->tree, key, list, LEVEL_LIMIT);
    if (result != 0) {
        return result;
    }
    policy->limits = detail->limits;
    policy->limit_count = 0;
    const struct tree_node *entry = tree_child(&load->out->tree, list);
    for (; entry != NULL && result == 0; entry = tree_next(&load->out->tree, entry)) {
        if (policy->limit_count == WEIR_MAX_LIMITS) {
            return text_file_fail(&load->file, entry->place, -EINVAL, "%s has more than %d limits; give 1 to %d",
                                  subject->text, WEIR_MAX_LIMITS, WEIR_MAX_LIMITS);
        }
        const struct subject limit = entry_of(subject, "limit", policy->limit_count + 1);
        result = read_limit(load, entry, &limit, &detail->limits[policy->limit_count]);
        detail->limit_mappings[policy->limit_count++] = entry;
    }
    return result;
}

/* Room for one more policy or tier; its place. NULL: there is none, and *result is an error. */
static struct file_policy *add_policy(const struct load *load, const struct tree_node *mapping, int *result)
{
    struct policy_file *out = load->out;
    if (out->policy_count == out->policy_room) {
        *result = text_file_fail(&load->file, mapping->place, -ENOSPC,
                                 "there are more than %d policies, tiers among them; give fewer", WEIR_MAX_POLICIES);
        return NULL;
    }
    struct file_policy *policy = &out->details[out->policy_count];
    policy->mapping = mapping;
    return policy;
}

/* A tier: its policy's name goes before its own, and what it does not say is the policy's. */
static int read_tier(const struct load *load, const struct tree_node *mapping, const struct subject *of,
                     const weir_policy *policy, size_t number)
{
    struct policy_file *out = load->out;
    struct subject subject = entry_of(of, "tier", number);
    struct fields fields;
    int result = fields_read(&load->file, &out->tree, LEVEL_TIER, subject.text, mapping, &fields);
    if (result != 0) {
        return result;
    }
    if (fields.keys[TIER_NAME] == NULL) {
        return missing(load, mapping, &subject, "name", "a word such as pro");
    }
    struct reader r = {load, &fields, &subject, 0};
    const char *own = read_text(&r, TIER_NAME);
    result = r.result;
    struct file_policy *detail = result == 0 ? add_policy(load, mapping, &result) : NULL;
    if (detail == NULL) {
        return result;
    }
    (void) snprintf(detail->name, sizeof(detail->name), "%.*s/%.*s", WEIR_MAX_NAME, policy->name, WEIR_MAX_NAME, own);
    (void) snprintf(subject.text, sizeof(subject.text), "policy \"%s\"", detail->name);
    if (fields.keys[TIER_LIMITS] == NULL) {
        return missing(load, mapping, &subject, "limits", "a list of 1 to 4");
    }
    weir_policy tier = *policy;
    tier.name = detail->name;
    result = read_limits(load, fields.keys[TIER_LIMITS], fields.values[TIER_LIMITS], &subject, &tier, detail);
    out->policies[out->policy_count++] = tier;
    return result;
}

static int read_policy(const struct load *load, const struct tree_node *mapping, size_t number)
{
    struct policy_file *out = load->out;
    const struct subject subject = policy_of(&out->tree, mapping, number);
    struct fields fields;
    int result = fields_read(&load->file, &out->tree, LEVEL_POLICY, subject.text, mapping, &fields);
    if (result != 0) {
        return result;
    }
    if (fields.keys[POLICY_NAME] == NULL) {
        return missing(load, mapping, &subject, "name", "1 to 63 letters, digits, '.', '_', '-' or '/'");
    }
    if (fields.keys[POLICY_LIMITS] == NULL) {
        return missing(load, mapping, &subject, "limits", "a list of 1 to 4");
    }
    struct file_policy *detail = add_policy(load, mapping, &result);
    if (detail == NULL) {
        return result;
    }
    struct reader r = {load, &fields, &subject, 0};
    weir_policy policy = {.name = read_text(&r, POLICY_NAME)};
    policy.mode = (weir_mode) read_word(&r, POLICY_MODE, &modes);
    policy.scope = (weir_scope) read_word(&r, POLICY_SCOPE, &scopes);
    policy.on_outage = (weir_outage) read_word(&r, POLICY_ON_OUTAGE, &outages);
    policy.on_long_outage = (weir_outage) read_word(&r, POLICY_ON_LONG_OUTAGE, &outages);
    read_ms(&r, POLICY_OUTAGE_GRACE, POLICY_GRACE_MAX_MS, "at most 1d", &policy.outage_grace_ms);
    read_ms(&r, POLICY_LONG_OUTAGE, POLICY_LONG_MAX_MS, "at most 30d, or 0s for never", &policy.long_outage_ms);
    struct value value;
    if (has_value(&r, POLICY_HASH_KEYS, &value)) {
        r.result = value_flag(&value, &policy.hash_keys);
    }
    result = r.result;
    if (result == 0) {
        result = read_limits(load, fields.keys[POLICY_LIMITS], fields.values[POLICY_LIMITS], &subject, &policy, detail);
    }
    out->policies[out->policy_count++] = policy;
    if (result != 0 || fields.keys[POLICY_TIERS] == NULL) {
        return result;
    }
    const struct tree_node *tiers = fields.values[POLICY_TIERS];
    result = fields_check_list(&load->file, &out->tree, fields.keys[POLICY_TIERS], tiers, LEVEL_TIER);
    const struct tree_node *tier = tree_child(&out->tree, tiers);
    for (size_t i = 1; tier != NULL && result == 0; i++, tier = tree_next(&out->tree, tier)) {
        result = read_tier(load, tier, &subject, &policy, i);
    }
    return result;
}

static size_t count_children(const struct tree *tree, const struct tree_node *node)
{
    size_t count = 0;
    for (const struct tree_node *child = tree_child(tree, node); child != NULL; child = tree_next(tree, child)) {
        count++;
    }
    return count;
}

/* Reserves what the policies of a list, tiers among them, take in weir.h's form. */
static bool reserve(struct policy_file *out, const struct tree_node *list)
{
    size_t count = 0;
    const struct tree_node *policy = tree_child(&out->tree, list);
    for (; policy != NULL && count < WEIR_MAX_POLICIES; policy = tree_next(&out->tree, policy)) {
        const struct tree_node *tiers = tree_find(&out->tree, policy, "tiers");
        count += 1 + (tiers != NULL ? count_children(&out->tree, tiers) : 0);
    }
    out->policy_room = count < WEIR_MAX_POLICIES ? count : WEIR_MAX_POLICIES;
    out->policies = calloc(out->policy_room, sizeof(*out->policies));
    out->details = calloc(out->policy_room, sizeof(*out->details));
    return out->policies != NULL && out->details != NULL;
}

/* The mapping of entries, which `key` and `mapping` are: each a name and a single value. */
static int read_entries(const struct load *load, const struct tree_node *key, const struct tree_node *mapping)
{
    struct policy_file *out = load->out;
    if (mapping->kind != TREE_MAPPING) {
        return text_file_fail(&load->file, mapping->place, -EINVAL,
                              "%s is a mapping; give lines such as \"api:198.51.100.7\": deny",
                              tree_text(&out->tree, key));
    }
    out->entries = calloc(count_children(&out->tree, mapping) / 2 + 1, sizeof(*out->entries));
    if (out->entries == NULL) {
        return text_file_fail(&load->file, (struct place){0}, -ENOMEM, "out of memory");
    }
    const struct tree_node *value;
    for (const struct tree_node *name = tree_child(&out->tree, mapping); name != NULL;
         name = tree_next(&out->tree, value)) {
        value = tree_next(&out->tree, name);
        if (name->kind != TREE_VALUE || value->kind != TREE_VALUE) {
            return text_file_fail(&load->file, name->place, -EINVAL,
                                  "an entry is a name and a value, such as \"api:198.51.100.7\": deny");
        }
        out->entries[out->entry_count++] = (struct file_entry){.name = tree_text(&out->tree, name),
                                                               .value = tree_text(&out->tree, value),
                                                               .name_place = name->place,
                                                               .value_place = value->place};
    }
    return 0;
}

static int read_policies(const struct load *load)
{
    struct policy_file *out = load->out;
    const struct tree_node *root = tree_root(&out->tree);
    const struct tree_node *list = NULL;
    struct fields fields = {.keys = {NULL}};
    int result = root != NULL ? fields_read(&load->file, &out->tree, LEVEL_FILE, "the file", root, &fields) : 0;
    if (result == 0 && fields.keys[FILE_POLICIES] != NULL) {
        list = fields.values[FILE_POLICIES];
        result = fields_check_list(&load->file, &out->tree, fields.keys[FILE_POLICIES], list, LEVEL_POLICY);
    }
    if (result != 0) {
        return result;
    }
    if (list == NULL || tree_child(&out->tree, list) == NULL) {
        return text_file_fail(&load->file, list != NULL ? list->place : (struct place){1, 1}, -EINVAL,
                              "there are no policies; give a list named \"policies\" with at least one");
    }
    if (!reserve(out, list)) {
        return text_file_fail(&load->file, (struct place){0}, -ENOMEM, "out of memory");
    }
    const struct tree_node *policy = tree_child(&out->tree, list);
    for (size_t i = 1; policy != NULL && result == 0; i++, policy = tree_next(&out->tree, policy)) {
        result = read_policy(load, policy, i);
    }
    return result == 0 && fields.keys[FILE_OVERRIDES] != NULL
               ? read_entries(load, fields.keys[FILE_OVERRIDES], fields.values[FILE_OVERRIDES])
               : result;
}

/* The file's own name for a field of weir.h. */
static const char *field_in_file(const char *field)
{
    static const char *const names[][2] = {
        {"period_ns", "period"}, {"outage_grace_ms", "outage_grace"}, {"long_outage_ms", "long_outage"}};
    for (size_t i = 0; i < COUNT(names); i++) {
        if (strcmp(field, names[i][0]) == 0) {
            return names[i][1];
        }
    }
    return field;
}

/* Where a fault stands: the value of its field, or where that is not there, its limit or policy. */
static struct place place_of_fault(const struct policy_file *out, const struct policy_fault *fault)
{
    const struct tree *tree = &out->tree;
    const struct file_policy *detail = &out->details[fault->policy_index];
    const struct tree_node *node =
        fault->limit_index != SIZE_MAX ? detail->limit_mappings[fault->limit_index] : detail->mapping;
    const char *field = fault->field != NULL ? field_in_file(fault->field) : "";
    const struct tree_node *value = tree_find(tree, node, field);
    if (value == NULL && strcmp(field, "period") == 0) {
        value = tree_find(tree, node, "calendar"); /* which stands for it */
    }
    const struct tree_node *at = value != NULL ? value : node;
    return at != NULL ? at->place : (struct place){1, 1};
}

static int validate(const struct load *load)
{
    struct policy_fault fault = {0, SIZE_MAX, NULL};
    weir_error error;
    const int result = validate_policies(load->out->policies, load->out->policy_count, &fault, &error);
    return result == 0 ? 0
                       : text_file_fail(&load->file, place_of_fault(load->out, &fault), result, "%s", error.message);
}

int policy_file_load(const char *path, struct policy_file **out, weir_error *error)
{
    struct load load = {.file = {.path = path, .error = error}, .out = calloc(1, sizeof(*load.out))};
    if (load.out == NULL) {
        return text_file_fail(&load.file, (struct place){0}, -ENOMEM, "out of memory");
    }
    int result = text_file_read(&load.file);
    result = result != 0 ? result : tree_read(&load.file, &load.out->tree);
    result = result != 0 ? result : read_policies(&load);
    result = result != 0 ? result : validate(&load);
    free(load.file.text);
    if (result != 0) {
        policy_file_free(load.out);
        return result;
    }
    *out = load.out;
    return error_clear(error);
}

const weir_policy *policy_file_policies(const struct policy_file *file, size_t *count)
{
    *count = file->policy_count;
    return file->policies;
}

const struct file_entry *policy_file_entries(const struct policy_file *file, size_t *count)
{
    *count = file->entry_count;
    return file->entries;
}

void policy_file_free(struct policy_file *file)
{
    if (file != NULL) {
        tree_free(&file->tree);
        free(file->policies);
        free(file->details);
        free(file->entries);
        free(file);
    }
}
