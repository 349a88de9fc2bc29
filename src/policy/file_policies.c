/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See file_policies.h. Each field is read from the tree by its level (fields.h) and its type (values.h). Whether the
 * numbers of a policy are in range is found by validate_policies, as for policies from a program.
 */
#include "policy/file_policies.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/numbers.h"
#include "policy/fields.h"
#include "policy/policy_words.h"
#include "policy/validate.h"
#include "policy/values.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Where a policy or tier comes from: its mappings, and the memory of its limits and name. */
struct policy_source {
    const struct tree_node *mapping, *limit_mappings[WEIR_MAX_LIMITS];
    weir_limit limits[WEIR_MAX_LIMITS];
    char tier_name[2 * WEIR_MAX_NAME + 2]; /* of a tier: "policy/tier" */
};

/* A file while its policies are read. */
struct load {
    const struct text_file *file;
    const struct tree *tree;
    struct file_policies *out;
};

/* The policy, tier or limit that an error is about, in words: "policy "api": limit 2". */
struct file_subject {
    char text[2 * WEIR_MAX_NAME + 64];
};

/* The entry of this number in a list. `outer`: the policy that has the list; NULL: the file has it. */
static struct file_subject subject_of_entry(const struct file_subject *outer, const char *what, size_t number)
{
    struct file_subject subject;
    const char *before = outer != NULL ? outer->text : "";
    const char *colon = outer != NULL ? ": " : "";
    (void) snprintf(subject.text, sizeof(subject.text), "%.150s%s%.8s %zu", before, colon, what, number);
    return subject;
}

/* A policy: by its name where it has one of a valid length, else by its number. */
static struct file_subject subject_of_policy(const struct tree *tree, const struct tree_node *mapping, size_t number)
{
    const struct tree_node *name = tree_find(tree, mapping, "name");
    const char *text = name != NULL ? tree_text(tree, name) : "";
    struct file_subject subject = subject_of_entry(NULL, "policy", number);
    if (*text != '\0' && strlen(text) <= WEIR_MAX_NAME) {
        (void) snprintf(subject.text, sizeof(subject.text), "policy \"%s\"", text);
    }
    return subject;
}

static int fail_missing(const struct load *load, const struct tree_node *mapping, const struct file_subject *subject,
                        const char *field, const char *give)
{
    return text_file_fail(load->file, mapping->place, -EINVAL, "%s has no %s; give %s", subject->text, field, give);
}

/* A mapping whose fields are read one after the other. After the first error no field is read. */
struct field_reader {
    const struct load *load;
    const struct fields *fields;
    const struct file_subject *subject;
    int result; /* the first error */
};

/* Finds the text of a field. False: the mapping has no such field, or there is an error. */
static bool find_value(struct field_reader *r, size_t field, struct value *out)
{
    const struct tree_node *key = r->fields->keys[field];
    const struct tree_node *value = r->fields->values[field];
    if (key == NULL || r->result != 0) {
        return false;
    }
    const struct load *load = r->load;
    const char *name = tree_text(load->tree, key);
    if (value->kind != TREE_VALUE) {
        r->result = text_file_fail(load->file, value->place, -EINVAL, "%s has a %s as %s; give a single value",
                                   r->subject->text, value->kind == TREE_LIST ? "list" : "mapping", name);
        return false;
    }
    *out = (struct value){.file = load->file,
                          .place = value->place,
                          .subject = r->subject->text,
                          .field = name,
                          .text = tree_text(load->tree, value)};
    return true;
}

/* The functions below leave *out unchanged where the mapping has no such field. */

static void read_number(struct field_reader *r, size_t field, uint64_t *out)
{
    struct value value;
    if (find_value(r, field, &value)) {
        r->result = value_number(&value, out);
    }
}

static void read_period(struct field_reader *r, size_t field, uint64_t *out_ns)
{
    struct value value;
    if (find_value(r, field, &value)) {
        r->result = value_duration(&value, POLICY_PERIOD_MIN_NS, POLICY_PERIOD_MAX_NS,
                                   "a period such as \"10s\", from 1ms to 366d", out_ns);
    }
}

static void read_ms(struct field_reader *r, size_t field, uint32_t most_ms, const char *give, uint32_t *out_ms)
{
    struct value value;
    uint64_t ns = 0;
    if (find_value(r, field, &value)) {
        r->result = value_duration(&value, 0, most_ms * NS_PER_MS, give, &ns);
        *out_ms = (uint32_t) ((ns + NS_PER_MS - 1) / NS_PER_MS);
    }
}

static void read_flag(struct field_reader *r, size_t field, bool *out)
{
    struct value value;
    if (find_value(r, field, &value)) {
        r->result = value_flag(&value, out);
    }
}

/* The number of a field's word. 0 where the mapping has no such field: the default of each enumeration that has one. */
static unsigned read_word(struct field_reader *r, size_t field, const struct words *words)
{
    struct value value;
    unsigned word = 0;
    if (find_value(r, field, &value)) {
        r->result = value_word(&value, words, &word);
    }
    return word;
}

/* NULL: the mapping has no such field. */
static const char *read_text(struct field_reader *r, size_t field)
{
    struct value value;
    return find_value(r, field, &value) ? value.text : NULL;
}

/* Checks that a limit has an algorithm, a limit, and either a period or a calendar. */
static int check_limit_fields(const struct load *load, const struct tree_node *mapping,
                              const struct file_subject *subject, const struct fields *fields)
{
    const struct tree_node *calendar = fields->keys[LIMIT_CALENDAR];
    const struct tree_node *period = fields->keys[LIMIT_PERIOD];
    if (fields->keys[LIMIT_ALGORITHM] == NULL) {
        char list[120];
        return fail_missing(load, mapping, subject, "algorithm", words_list(&algorithm_words, list, sizeof(list)));
    }
    if (fields->keys[LIMIT_LIMIT] == NULL) {
        return fail_missing(load, mapping, subject, "limit", "a whole number of units such as 1000");
    }
    if (period == NULL && calendar == NULL) {
        return fail_missing(load, mapping, subject, "period", "a period such as \"10s\", or a calendar");
    }
    if (period != NULL && calendar != NULL) {
        const struct tree_node *second = period->place.line > calendar->place.line ? period : calendar;
        return text_file_fail(load->file, second->place, -EINVAL, "%s has a calendar and a period; give one of them",
                              subject->text);
    }
    return 0;
}

static int read_limit(const struct load *load, const struct tree_node *mapping, const struct file_subject *subject,
                      weir_limit *out)
{
    struct fields fields;
    int result = fields_read(load->file, load->tree, LEVEL_LIMIT, subject->text, mapping, &fields);
    result = result != 0 ? result : check_limit_fields(load, mapping, subject, &fields);
    if (result != 0) {
        return result;
    }
    struct field_reader r = {load, &fields, subject, 0};
    *out = (weir_limit){.algorithm = (weir_algorithm) read_word(&r, LIMIT_ALGORITHM, &algorithm_words)};
    read_number(&r, LIMIT_LIMIT, &out->limit);
    read_period(&r, LIMIT_PERIOD, &out->period_ns);
    out->calendar = (weir_calendar) read_word(&r, LIMIT_CALENDAR, &calendar_words);
    read_number(&r, LIMIT_BURST, &out->burst);
    read_number(&r, LIMIT_DELAY, &out->delay);
    out->name = read_text(&r, LIMIT_NAME);
    return r.result;
}

/* Reads the limits of a policy or tier: the field `key` with the list `list`. */
static int read_limits(const struct load *load, const struct tree_node *key, const struct tree_node *list,
                       const struct file_subject *subject, weir_policy *policy, struct policy_source *source)
{
    int result = fields_check_list(load->file, load->tree, key, list, LEVEL_LIMIT);
    if (result != 0) {
        return result;
    }
    policy->limits = source->limits;
    policy->limit_count = 0;
    const struct tree_node *entry = tree_child(load->tree, list);
    for (; entry != NULL && result == 0; entry = tree_next(load->tree, entry)) {
        if (policy->limit_count == WEIR_MAX_LIMITS) {
            return text_file_fail(load->file, entry->place, -EINVAL, "%s has more than %d limits; give 1 to %d",
                                  subject->text, WEIR_MAX_LIMITS, WEIR_MAX_LIMITS);
        }
        const struct file_subject limit = subject_of_entry(subject, "limit", policy->limit_count + 1);
        result = read_limit(load, entry, &limit, &source->limits[policy->limit_count]);
        source->limit_mappings[policy->limit_count++] = entry;
    }
    return result;
}

/* The source of the next policy or tier. NULL: the file has too many, and *result is the error. */
static struct policy_source *next_source(const struct load *load, const struct tree_node *mapping, int *result)
{
    struct file_policies *out = load->out;
    if (out->count == WEIR_MAX_POLICIES) {
        *result = text_file_fail(load->file, mapping->place, -ENOSPC,
                                 "there are more than %d policies, tiers among them; give fewer", WEIR_MAX_POLICIES);
        return NULL;
    }
    struct policy_source *source = &out->sources[out->count];
    source->mapping = mapping;
    return source;
}

/* Reads a tier: a copy of its policy, with the name "policy/tier" and limits of its own. */
static int read_tier(const struct load *load, const struct tree_node *mapping, const struct file_subject *outer,
                     const weir_policy *policy, size_t number)
{
    struct file_policies *out = load->out;
    struct file_subject subject = subject_of_entry(outer, "tier", number);
    struct fields fields;
    int result = fields_read(load->file, load->tree, LEVEL_TIER, subject.text, mapping, &fields);
    if (result != 0) {
        return result;
    }
    if (fields.keys[TIER_NAME] == NULL) {
        return fail_missing(load, mapping, &subject, "name", "a word such as pro");
    }
    struct field_reader r = {load, &fields, &subject, 0};
    const char *name = read_text(&r, TIER_NAME);
    result = r.result;
    struct policy_source *source = result == 0 ? next_source(load, mapping, &result) : NULL;
    if (source == NULL) {
        return result;
    }
    (void) snprintf(source->tier_name, sizeof(source->tier_name), "%.*s/%.*s", WEIR_MAX_NAME, policy->name,
                    WEIR_MAX_NAME, name);
    (void) snprintf(subject.text, sizeof(subject.text), "policy \"%s\"", source->tier_name);
    if (fields.keys[TIER_LIMITS] == NULL) {
        return fail_missing(load, mapping, &subject, "limits", "a list of 1 to 4");
    }
    weir_policy tier = *policy;
    tier.name = source->tier_name;
    result = read_limits(load, fields.keys[TIER_LIMITS], fields.values[TIER_LIMITS], &subject, &tier, source);
    out->policies[out->count++] = tier;
    return result;
}

static int read_tiers(const struct load *load, const struct fields *fields, const struct file_subject *subject,
                      const weir_policy *policy)
{
    const struct tree_node *list = fields->values[POLICY_TIERS];
    int result = fields_check_list(load->file, load->tree, fields->keys[POLICY_TIERS], list, LEVEL_TIER);
    const struct tree_node *tier = tree_child(load->tree, list);
    for (size_t number = 1; tier != NULL && result == 0; number++, tier = tree_next(load->tree, tier)) {
        result = read_tier(load, tier, subject, policy, number);
    }
    return result;
}

/* Reads the fields of a policy apart from its limits and tiers. */
static int read_settings(const struct load *load, const struct fields *fields, const struct file_subject *subject,
                         weir_policy *out)
{
    struct field_reader r = {load, fields, subject, 0};
    *out = (weir_policy){.name = read_text(&r, POLICY_NAME)};
    out->mode = (weir_mode) read_word(&r, POLICY_MODE, &mode_words);
    out->scope = (weir_scope) read_word(&r, POLICY_SCOPE, &scope_words);
    out->on_outage = (weir_outage) read_word(&r, POLICY_ON_OUTAGE, &outage_words);
    out->on_long_outage = (weir_outage) read_word(&r, POLICY_ON_LONG_OUTAGE, &outage_words);
    read_ms(&r, POLICY_OUTAGE_GRACE, POLICY_GRACE_MAX_MS, "at most 1d", &out->outage_grace_ms);
    read_ms(&r, POLICY_LONG_OUTAGE, POLICY_LONG_MAX_MS, "at most 30d, or 0s for never", &out->long_outage_ms);
    read_flag(&r, POLICY_HASH_KEYS, &out->hash_keys);
    return r.result;
}

static int read_policy(const struct load *load, const struct tree_node *mapping, size_t number)
{
    struct file_policies *out = load->out;
    const struct file_subject subject = subject_of_policy(load->tree, mapping, number);
    struct fields fields;
    int result = fields_read(load->file, load->tree, LEVEL_POLICY, subject.text, mapping, &fields);
    if (result != 0) {
        return result;
    }
    if (fields.keys[POLICY_NAME] == NULL) {
        return fail_missing(load, mapping, &subject, "name", "1 to 63 letters, digits, '.', '_', '-' or '/'");
    }
    if (fields.keys[POLICY_LIMITS] == NULL) {
        return fail_missing(load, mapping, &subject, "limits", "a list of 1 to 4");
    }
    struct policy_source *source = next_source(load, mapping, &result);
    if (source == NULL) {
        return result;
    }
    weir_policy policy;
    result = read_settings(load, &fields, &subject, &policy);
    if (result == 0) {
        result = read_limits(load, fields.keys[POLICY_LIMITS], fields.values[POLICY_LIMITS], &subject, &policy, source);
    }
    out->policies[out->count++] = policy;
    return result == 0 && fields.keys[POLICY_TIERS] != NULL ? read_tiers(load, &fields, &subject, &policy) : result;
}

int file_policies_read(const struct text_file *file, const struct tree *tree, const struct tree_node *list,
                       struct file_policies *out)
{
    const struct load load = {file, tree, out};
    /* There is room for as many policies as there may be, which takes half a megabyte. */
    *out = (struct file_policies){.policies = calloc(WEIR_MAX_POLICIES, sizeof(*out->policies)),
                                  .sources = calloc(WEIR_MAX_POLICIES, sizeof(*out->sources))};
    if (out->policies == NULL || out->sources == NULL) {
        return text_file_fail(file, (struct place){0}, -ENOMEM, "out of memory");
    }
    int result = 0;
    const struct tree_node *policy = tree_child(tree, list);
    for (size_t number = 1; policy != NULL && result == 0; number++, policy = tree_next(tree, policy)) {
        result = read_policy(&load, policy, number);
    }
    return result;
}

/* The name in a policy file of a field of weir.h. */
static const char *name_in_file(const char *field)
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

/* The place of a fault: of the field's value, or where the file lacks that field, of its limit or policy. */
static struct place place_of_fault(const struct file_policies *policies, const struct tree *tree,
                                   const struct policy_fault *fault)
{
    const struct policy_source *source = &policies->sources[fault->policy_index];
    const struct tree_node *mapping =
        fault->limit_index != SIZE_MAX ? source->limit_mappings[fault->limit_index] : source->mapping;
    const char *field = name_in_file(fault->field);
    const struct tree_node *value = tree_find(tree, mapping, field);
    if (value == NULL && strcmp(field, "period") == 0) {
        value = tree_find(tree, mapping, "calendar"); /* the calendar stands for the period */
    }
    return value != NULL ? value->place : mapping->place;
}

int file_policies_validate(const struct text_file *file, const struct tree *tree, const struct file_policies *policies)
{
    struct policy_fault fault = {0, SIZE_MAX, ""};
    weir_error error;
    const int result = validate_policies(policies->policies, policies->count, &fault, &error);
    return result == 0 ? 0 : text_file_fail(file, place_of_fault(policies, tree, &fault), result, "%s", error.message);
}

void file_policies_free(struct file_policies *policies)
{
    free(policies->policies);
    free(policies->sources);
    *policies = (struct file_policies){.policies = NULL};
}
