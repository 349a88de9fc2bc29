/* SPDX-License-Identifier: Apache-2.0 */
/* See kind_file.h. */
#include "kind_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "policy/text_file.h"
#include "policy/tree.h"
#include "policy/words.h"

enum kind_field { NAME, MATCH, MASK, MINIMUM_LENGTH, MAXIMUM_LENGTH, COST, FIELD_COUNT };

static const char *const field_names[FIELD_COUNT] = {"name",           "match",          "mask",
                                                     "minimum_length", "maximum_length", "cost"};
static const struct word_alias field_aliases[] = {{"pattern", "match"},
                                                  {"bytes", "match"},
                                                  {"min_length", "minimum_length"},
                                                  {"max_length", "maximum_length"},
                                                  {"min_size", "minimum_length"},
                                                  {"max_size", "maximum_length"},
                                                  {"price", "cost"},
                                                  {"kind", "name"}};
static const struct words fields = {.names = field_names,
                                    .count = FIELD_COUNT,
                                    .aliases = field_aliases,
                                    .alias_count = sizeof(field_aliases) / sizeof(field_aliases[0])};
static const char *const top_names[] = {"kinds"};
static const struct words tops = {.names = top_names, .count = 1};

/* A file while it is read, and the entry at hand. */
struct reader {
    struct text_file file;
    struct tree tree;
    const struct tree_node *keys[FIELD_COUNT], *values[FIELD_COUNT];
};

static const char *text_of(const struct reader *r, enum kind_field field)
{
    return r->values[field] != NULL ? tree_text(&r->tree, r->values[field]) : NULL;
}

static int fail_unknown(struct reader *r, const struct tree_node *key, const struct words *words, const char *where)
{
    char list[120];
    const char *name = tree_text(&r->tree, key);
    const char *meant = words_meant(words, name);
    if (meant != NULL) {
        return text_file_fail(&r->file, key->place, -EINVAL, "there is no field \"%.40s\" in %s; did you mean \"%s\"?",
                              name, where, meant);
    }
    return text_file_fail(&r->file, key->place, -EINVAL, "there is no field \"%.40s\" in %s; give %s", name, where,
                          words_list(words, list, sizeof(list)));
}

/* Finds the fields of an entry. */
static int find_fields(struct reader *r, const struct tree_node *entry)
{
    memset(r->keys, 0, sizeof(r->keys));
    memset(r->values, 0, sizeof(r->values));
    if (entry->kind != TREE_MAPPING) {
        return text_file_fail(&r->file, entry->place, -EINVAL,
                              "a kind is no mapping; give \"- name: a2s_info\", and match");
    }
    const struct tree_node *value;
    for (const struct tree_node *key = tree_child(&r->tree, entry); key != NULL; key = tree_next(&r->tree, value)) {
        value = tree_next(&r->tree, key);
        const size_t number = words_find(&fields, tree_text(&r->tree, key));
        if (number == WORD_NONE) {
            return fail_unknown(r, key, &fields, "a kind");
        }
        if (r->keys[number] != NULL) {
            return text_file_fail(&r->file, key->place, -EINVAL, "a kind has %s twice; leave one out",
                                  field_names[number]);
        }
        if (value->kind != TREE_VALUE || *tree_text(&r->tree, value) == '\0') {
            return text_file_fail(&r->file, value->place, -EINVAL, "%s is no single value; give one",
                                  field_names[number]);
        }
        r->keys[number] = key;
        r->values[number] = value;
    }
    return 0;
}

static int read_name(struct reader *r, const struct tree_node *entry, const struct packet_kinds *kinds,
                     struct packet_kind *kind)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    const char *name = text_of(r, NAME);
    if (name == NULL) {
        return text_file_fail(&r->file, entry->place, -EINVAL,
                              "a kind has no name; give one such as \"name: a2s_info\"");
    }
    if (strlen(name) >= PACKET_KIND_NAME_SIZE || name[strspn(name, letters)] != '\0') {
        return text_file_fail(&r->file, r->values[NAME]->place, -EINVAL,
                              "name \"%.40s\": give 1 to %d letters, digits, '_' and '-'", name,
                              PACKET_KIND_NAME_SIZE - 1);
    }
    if (packet_kinds_find(kinds, name) != 0) {
        return text_file_fail(&r->file, r->values[NAME]->place, -EINVAL,
                              "there are two kinds of the name \"%s\"; give the second another one", name);
    }
    memcpy(kind->name, name, strlen(name) + 1);
    return 0;
}

static int read_number(struct reader *r, const struct packet_kind *kind, enum kind_field field, unsigned long most,
                       unsigned long *out)
{
    const char *text = text_of(r, field);
    if (text == NULL) {
        return 0;
    }
    const size_t digits = strspn(text, "0123456789");
    if (text[digits] != '\0' || digits > 9 || (text[0] == '0' && digits > 1) || strtoul(text, NULL, 10) > most) {
        return text_file_fail(&r->file, r->values[field]->place, -EINVAL,
                              "kind \"%s\" has %s \"%.40s\"; give a number from 0 to %lu", kind->name,
                              field_names[field], text, most);
    }
    *out = strtoul(text, NULL, 10);
    return 0;
}

/* Reads match and mask. *count: the bytes that the pattern looks at. */
static int read_pattern(struct reader *r, struct packet_kind *kind, size_t *count)
{
    unsigned char value[PACKET_KIND_PATTERN];
    unsigned char mask[PACKET_KIND_PATTERN];
    unsigned char given[PACKET_KIND_PATTERN];
    unsigned char all[PACKET_KIND_PATTERN];
    const char *match = text_of(r, MATCH);
    const char *mask_text = text_of(r, MASK);
    if (match == NULL && mask_text != NULL) {
        return text_file_fail(&r->file, r->keys[MASK]->place, -EINVAL, "kind \"%s\" has a mask and no match; give both",
                              kind->name);
    }
    if (match == NULL) {
        return 0;
    }
    *count = packet_kind_pattern(match, value, mask);
    if (*count == 0) {
        return text_file_fail(
            &r->file, r->values[MATCH]->place, -EINVAL,
            "kind \"%s\" has match \"%.80s\"; give 1 to %d bytes such as \"ff ff ff ff 54\", with '.' "
            "for a digit that may be any",
            kind->name, match, PACKET_KIND_PATTERN);
    }
    if (mask_text != NULL) {
        const size_t given_count = packet_kind_pattern(mask_text, given, all);
        if (given_count != *count || memchr(mask_text, '.', strlen(mask_text)) != NULL) {
            return text_file_fail(&r->file, r->values[MASK]->place, -EINVAL,
                                  "kind \"%s\" has mask \"%.80s\"; give as many bytes as match has, %zu", kind->name,
                                  mask_text, *count);
        }
        for (size_t i = 0; i < *count; i++) {
            if ((value[i] & (unsigned char) ~given[i]) != 0) {
                return text_file_fail(&r->file, r->values[MATCH]->place, -EINVAL,
                                      "kind \"%s\" matches nothing: byte %zu of match has bits that mask leaves out; "
                                      "make them 0",
                                      kind->name, i + 1);
            }
            mask[i] &= given[i];
        }
    }
    packet_kind_set(kind, value, mask, *count);
    return 0;
}

static int read_kind(struct reader *r, const struct tree_node *entry, const struct packet_kinds *kinds,
                     struct packet_kind *kind)
{
    size_t count = 0;
    unsigned long least = 0;
    unsigned long most = SIZE_MAX; /* a packet of IPv6 may be larger than PACKET_KIND_SIZE_MAX */
    unsigned long cost = 1;
    int result = find_fields(r, entry);
    result = result == 0 ? read_name(r, entry, kinds, kind) : result;
    result = result == 0 ? read_pattern(r, kind, &count) : result;
    result = result == 0 ? read_number(r, kind, MINIMUM_LENGTH, PACKET_KIND_SIZE_MAX, &least) : result;
    result = result == 0 ? read_number(r, kind, MAXIMUM_LENGTH, PACKET_KIND_SIZE_MAX, &most) : result;
    result = result == 0 ? read_number(r, kind, COST, PACKET_KIND_COST_MAX, &cost) : result;
    if (result != 0) {
        return result;
    }
    if (r->keys[MATCH] == NULL && r->keys[MINIMUM_LENGTH] == NULL && r->keys[MAXIMUM_LENGTH] == NULL) {
        return text_file_fail(&r->file, entry->place, -EINVAL,
                              "kind \"%s\" would be every packet; give match, minimum_length or maximum_length",
                              kind->name);
    }
    least = least > count ? least : count;
    if (most < least) {
        return text_file_fail(&r->file, r->values[MAXIMUM_LENGTH]->place, -EINVAL,
                              "kind \"%s\" matches nothing: maximum_length %lu is less than %lu, the least that it may "
                              "have",
                              kind->name, most, least);
    }
    kind->least_size = least;
    kind->most_size = most;
    kind->cost = (uint32_t) cost;
    return 0;
}

static int read_list(struct reader *r, const struct tree_node *key, const struct tree_node *list,
                     struct packet_kinds *out)
{
    const size_t count = list->kind == TREE_LIST ? tree_child_count(&r->tree, list) : 0;
    if (count == 0) {
        return text_file_fail(&r->file, key->place, -EINVAL, "kinds is no list of kinds; begin each with \"- name:\"");
    }
    if (count > PACKET_KINDS_MAX) {
        return text_file_fail(&r->file, key->place, -EINVAL, "there are %zu kinds; give %d or fewer", count,
                              PACKET_KINDS_MAX);
    }
    for (const struct tree_node *entry = tree_child(&r->tree, list); entry != NULL;
         entry = tree_next(&r->tree, entry)) {
        const int result = read_kind(r, entry, out, &out->all[out->count]);
        if (result != 0) {
            return result;
        }
        out->count++;
    }
    return 0;
}

static int read_root(struct reader *r, struct packet_kinds *out)
{
    const struct tree_node *root = tree_root(&r->tree);
    if (root == NULL || root->kind != TREE_MAPPING) {
        const struct place place = root != NULL ? root->place : (struct place){.line = 1, .column = 1};
        return text_file_fail(&r->file, place, -EINVAL, "the file has no kinds; begin it with \"kinds:\"");
    }
    const struct tree_node *key = tree_child(&r->tree, root);
    if (key == NULL || words_find(&tops, tree_text(&r->tree, key)) == WORD_NONE) {
        return key != NULL ? fail_unknown(r, key, &tops, "a file of kinds")
                           : text_file_fail(&r->file, root->place, -EINVAL, "the file has no kinds; give some");
    }
    const struct tree_node *list = tree_next(&r->tree, key);
    const struct tree_node *more = tree_next(&r->tree, list);
    return more != NULL ? fail_unknown(r, more, &tops, "a file of kinds") : read_list(r, key, list, out);
}

bool kind_file_read(const char *path, struct packet_kinds *out, weir_error *error)
{
    struct reader r = {.file = {.path = path, .error = error}};
    memset(out, 0, sizeof(*out));
    if (path == NULL) {
        return true;
    }
    int result = text_file_read(&r.file);
    if (result == 0) {
        result = tree_read(&r.file, &r.tree);
        result = result == 0 ? read_root(&r, out) : result;
        tree_free(&r.tree);
    }
    free(r.file.text);
    return result == 0;
}
