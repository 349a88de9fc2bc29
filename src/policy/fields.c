/* SPDX-License-Identifier: Apache-2.0 */
/* See fields.h. */
#include "policy/fields.h"

#include <errno.h>
#include <string.h>

#include "policy/colon.h"
#include "policy/words.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const char *const file_fields[] = {[FILE_POLICIES] = "policies", [FILE_OVERRIDES] = "overrides"};
static const char *const policy_fields[] = {[POLICY_NAME] = "name",
                                            [POLICY_LIMITS] = "limits",
                                            [POLICY_MODE] = "mode",
                                            [POLICY_SCOPE] = "scope",
                                            [POLICY_HASH_KEYS] = "hash_keys",
                                            [POLICY_ON_OUTAGE] = "on_outage",
                                            [POLICY_ON_LONG_OUTAGE] = "on_long_outage",
                                            [POLICY_OUTAGE_GRACE] = "outage_grace",
                                            [POLICY_LONG_OUTAGE] = "long_outage",
                                            [POLICY_TIERS] = "tiers"};
static const char *const tier_fields[] = {[TIER_NAME] = "name", [TIER_LIMITS] = "limits"};
static const char *const limit_fields[] = {
    [LIMIT_ALGORITHM] = "algorithm", [LIMIT_LIMIT] = "limit", [LIMIT_PERIOD] = "period", [LIMIT_CALENDAR] = "calendar",
    [LIMIT_BURST] = "burst",         [LIMIT_DELAY] = "delay", [LIMIT_NAME] = "name"};

/* The names of these fields in other limiters: nginx, Envoy, HAProxy, Kong, gubernator, limitador, Bucket4j. */
static const struct word_alias file_aliases[] = {
    {"rate_limits", "policies"}, {"rules", "policies"}, {"exceptions", "overrides"}};
static const struct word_alias policy_aliases[] = {{"dry_run", "mode: shadow"},
                                                   {"limit_req_dry_run", "mode: shadow"},
                                                   {"shadow", "mode: shadow"},
                                                   {"shadow_mode", "mode: shadow"},
                                                   {"fail_open", "on_outage: open"},
                                                   {"fail_closed", "on_outage: closed"},
                                                   {"failure_mode_deny", "on_outage: closed"},
                                                   {"fallback", "on_outage"},
                                                   {"rate_limits", "limits"},
                                                   {"rules", "limits"},
                                                   {"plans", "tiers"},
                                                   {"id", "name"},
                                                   {"hash", "hash_keys"}};
static const struct word_alias tier_aliases[] = {{"id", "name"}, {"plan", "name"}, {"tier", "name"}};
static const struct word_alias limit_aliases[] = {
    {"type", "algorithm"},   {"kind", "algorithm"},     {"strategy", "algorithm"},
    {"rate", "limit"},       {"requests", "limit"},     {"requests_per_unit", "limit"},
    {"max", "limit"},        {"max_value", "limit"},    {"quota", "limit"},
    {"window", "period"},    {"window_size", "period"}, {"interval", "period"},
    {"duration", "period"},  {"per", "period"},         {"unit", "period"},
    {"seconds", "period"},   {"capacity", "burst"},     {"burst_size", "burst"},
    {"max_tokens", "burst"}, {"nodelay", "delay"}};

#define LEVEL(fields, alias)                                                                                           \
    {                                                                                                                  \
        .names = (fields), .count = COUNT(fields), .aliases = (alias), .alias_count = COUNT(alias)                     \
    }
static const struct words fields_of[LEVEL_COUNT] = {[LEVEL_FILE] = LEVEL(file_fields, file_aliases),
                                                    [LEVEL_POLICY] = LEVEL(policy_fields, policy_aliases),
                                                    [LEVEL_TIER] = LEVEL(tier_fields, tier_aliases),
                                                    [LEVEL_LIMIT] = LEVEL(limit_fields, limit_aliases)};

static const char *const level_names[LEVEL_COUNT] = {"file", "policy", "tier", "limit"};

/* The fields of a level, as an error lists them. */
static const char *list_fields(enum level level, char *out, size_t size)
{
    return level == LEVEL_FILE ? "a list named \"policies\"" : words_list(&fields_of[level], out, size);
}

_Static_assert(COUNT(policy_fields) <= FIELDS_MAX, "struct fields has room for each field of a policy");

/* Whether a value is "", or a word that means null in YAML. */
static bool is_empty(const struct tree *tree, const struct tree_node *node)
{
    const char *text = tree_text(tree, node);
    return node->kind == TREE_VALUE && (*text == '\0' || strcmp(text, "~") == 0 || strcmp(text, "null") == 0);
}

/* The level that a field belongs to, when `level` has no such field; LEVEL_COUNT: no level has it. */
static enum level home_of(enum level level, const char *name)
{
    if (level != LEVEL_POLICY && words_find(&fields_of[LEVEL_POLICY], name) != WORD_NONE) {
        return LEVEL_POLICY;
    }
    return level != LEVEL_LIMIT && words_find(&fields_of[LEVEL_LIMIT], name) != WORD_NONE ? LEVEL_LIMIT : LEVEL_COUNT;
}

static int fail_misplaced(const struct text_file *file, struct place place, enum level level, enum level home,
                          const char *name)
{
    if (home == LEVEL_LIMIT) {
        return text_file_fail(file, place, -EINVAL, "%s is a limit's; give it in an entry of \"limits\"", name);
    }
    if (level == LEVEL_TIER) {
        return text_file_fail(file, place, -EINVAL, "a tier has name and limits; %s is the policy's", name);
    }
    return text_file_fail(file, place, -EINVAL, "%s is a policy's; give it %s", name,
                          level == LEVEL_FILE ? "in an entry of \"policies\"" : "beside \"limits\", not in an entry");
}

/* Whether the value of a field is a list or a mapping: the name of such a field is a plural. */
static bool takes_list(const char *field)
{
    return field[strlen(field) - 1] == 's' && strcmp(field, "hash_keys") != 0;
}

/* The error for a field that the level does not have. */
static int fail_unknown(const struct text_file *file, const struct tree *tree, enum level level,
                        const struct tree_node *key, const struct tree_node *value)
{
    const struct words *fields = &fields_of[level];
    const char *name = tree_text(tree, key);
    if (key->kind != TREE_VALUE) {
        return text_file_fail(file, key->place, -EINVAL, "the name of a field is a word, no list and no mapping");
    }
    const size_t word = colon_word(name, strlen(name));
    if (word != 0 && is_empty(tree, value)) {
        return colon_fail(file, key->place, name, word);
    }
    /*
     * A name that is one letter away from a field of this level, and has a value of the field's form, is a misspelling.
     * Else it may be a field of another level.
     */
    size_t distance = 0;
    const char *nearest = words_nearest(fields, name, &distance);
    const enum level home = home_of(level, name);
    const bool misspelt = nearest != NULL && distance <= 1 && takes_list(nearest) == (value->kind != TREE_VALUE);
    if (home != LEVEL_COUNT && !misspelt) {
        return fail_misplaced(file, key->place, level, home, name);
    }
    const char *meant = misspelt ? nearest : words_meant(fields, name);
    if (meant != NULL) {
        return text_file_fail(file, key->place, -EINVAL, "there is no field \"%.40s\" in a %s; did you mean \"%s\"?",
                              name, level_names[level], meant);
    }
    char all[160];
    return text_file_fail(file, key->place, -EINVAL, "there is no field \"%.40s\" in a %s; give %s", name,
                          level_names[level], list_fields(level, all, sizeof(all)));
}

/* The error for a list or a value in the place of a mapping. */
static int fail_no_mapping(const struct text_file *file, const struct tree *tree, enum level level, const char *subject,
                           const struct tree_node *node)
{
    const char *text = tree_text(tree, node);
    const size_t word = colon_word(text, strlen(text));
    char list[160];
    const char *all = list_fields(level, list, sizeof(list));
    if (word != 0) {
        return colon_fail(file, node->place, text, word);
    }
    if (node->kind == TREE_LIST) {
        return level == LEVEL_FILE
                   ? text_file_fail(file, node->place, -EINVAL,
                                    "the file begins with a list; put the list under \"policies:\"")
                   : text_file_fail(file, node->place, -EINVAL, "%s is a list of its own; give %s", subject, all);
    }
    return is_empty(tree, node)
               ? text_file_fail(file, node->place, -EINVAL, "%s is empty; give %s", subject, all)
               : text_file_fail(file, node->place, -EINVAL, "%s is \"%.40s\" alone; give %s", subject, text, all);
}

int fields_read(const struct text_file *file, const struct tree *tree, enum level level, const char *subject,
                const struct tree_node *mapping, struct fields *out)
{
    *out = (struct fields){.keys = {NULL}};
    if (mapping->kind != TREE_MAPPING) {
        return fail_no_mapping(file, tree, level, subject, mapping);
    }
    const struct tree_node *value;
    for (const struct tree_node *key = tree_child(tree, mapping); key != NULL; key = tree_next(tree, value)) {
        value = tree_next(tree, key);
        const size_t number = key->kind == TREE_VALUE ? words_find(&fields_of[level], tree_text(tree, key)) : WORD_NONE;
        if (number == WORD_NONE) {
            return fail_unknown(file, tree, level, key, value);
        }
        if (out->keys[number] != NULL) {
            return text_file_fail(file, key->place, -EINVAL, "%s has %s twice, first at line %u; leave one out",
                                  subject, tree_text(tree, key), out->keys[number]->place.line);
        }
        out->keys[number] = key;
        out->values[number] = value;
    }
    return 0;
}

int fields_check_list(const struct text_file *file, const struct tree *tree, const struct tree_node *key,
                      const struct tree_node *value, enum level level)
{
    const char *name = tree_text(tree, key);
    const struct tree_node *first = tree_child(tree, value);
    if (value->kind == TREE_LIST) {
        return 0;
    }
    if (is_empty(tree, value) || (value->kind == TREE_MAPPING && first == NULL)) {
        return text_file_fail(file, key->place, -EINVAL, "%s is empty; give a list, whose entries begin with \"- \"",
                              name);
    }
    if (value->kind == TREE_VALUE) {
        return text_file_fail(file, value->place, -EINVAL, "%s is a list; begin each entry with \"- \", below \"%s:\"",
                              name, name);
    }
    const char *entry = tree_text(tree, first);
    if (words_find(&fields_of[level], entry) == WORD_NONE && level != LEVEL_LIMIT) {
        return text_file_fail(file, first->place, -EINVAL,
                              "%s is a list: write \"- name: %.63s\", and the other fields below \"name\"", name,
                              entry);
    }
    return text_file_fail(file, first->place, -EINVAL, "%s is a list: put \"- \" before %.40s", name, entry);
}
