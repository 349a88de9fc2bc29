/* SPDX-License-Identifier: Apache-2.0 */
/* See config.h. The file's form is read by what reads policy files: tree.h. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "backends/choice.h"
#include "policy/text_file.h"
#include "policy/tree.h"
#include "policy/words.h"

/* What other programs call these settings. */
static const struct word_alias aliases[] = {
    {"bind", "listen"},          {"address", "listen"},
    {"listeners", "listen"},     {"upstream", "backend"},
    {"server", "backend"},       {"target", "backend"},
    {"limits", "policies"},      {"rate_limits", "policies"},
    {"policy_file", "policies"}, {"redis_url", "redis"},
    {"redis_host", "redis"},     {"hostname", "node-name"},
    {"workers", "threads"},      {"worker_processes", "threads"},
    {"timeout", "idle"},         {"idle_timeout", "idle"},
    {"session_timeout", "idle"}, {"offload", "no-offload"},
    {"verbosity", "log-level"},  {"denial_log", "no-denial-log"},
    {"prometheus", "metrics"},   {"status", "metrics"},
    {"http", "metrics"},
};

/* A file while it is read. */
struct load {
    struct text_file file;
    struct tree tree;
    struct words names;
    const char *words[SETTING_COUNT];
    struct settings *out;
};

static int fail_unknown(const struct load *load, const struct tree_node *key)
{
    const char *name = tree_text(&load->tree, key);
    if (key->kind != TREE_VALUE) {
        return text_file_fail(&load->file, key->place, -EINVAL, "the name of a setting is a word");
    }
    if (strncmp(name, "--", 2) == 0 && words_find(&load->names, name + 2) != WORD_NONE) {
        return text_file_fail(&load->file, key->place, -EINVAL,
                              "there is no setting \"%.40s\"; leave out the dashes: \"%s\"", name, name + 2);
    }
    if (strcmp(name, "overrides") == 0) {
        return text_file_fail(&load->file, key->place, -EINVAL,
                              "overrides belong to the policy file, which \"policies\" names");
    }
    const char *meant = words_meant(&load->names, name);
    if (meant != NULL) {
        return text_file_fail(&load->file, key->place, -EINVAL, "there is no setting \"%.40s\"; did you mean \"%s\"?",
                              name, meant);
    }
    return text_file_fail(&load->file, key->place, -EINVAL,
                          "there is no setting \"%.40s\"; weir-gateway --help lists them, with dashes before", name);
}

/* "true" or "false"; NULL: the text is no flag. */
static const char *read_flag(const char *text)
{
    static const char *const words[2][4] = {{"false", "no", "off", NULL}, {"true", "yes", "on", NULL}};
    for (size_t i = 0; i < 2; i++) {
        for (size_t j = 0; words[i][j] != NULL; j++) {
            if (strcasecmp(text, words[i][j]) == 0) {
                return words[i][0];
            }
        }
    }
    return NULL;
}

/* A path as the gateway opens it: a relative one is beside the file of settings. NULL: no memory. */
static char *path_beside(const char *file, const char *path)
{
    const char *slash = strrchr(file, '/');
    if (*path == '/' || slash == NULL) {
        return strdup(path);
    }
    const size_t folder = (size_t) (slash - file) + 1;
    const size_t length = strlen(path);
    char *out = malloc(folder + length + 1);
    if (out != NULL) {
        memcpy(out, file, folder);
        memcpy(out + folder, path, length + 1);
    }
    return out;
}

/* Takes a text of a setting, which stands at a place. */
static int take_text(const struct load *load, enum setting setting, struct place place, const char *text)
{
    const char *what = "";
    if (!settings_add(load->out, setting, text, &what)) {
        return text_file_fail(&load->file, place, -EINVAL, "%s %s: %s", setting_entries[setting].name, text, what);
    }
    struct setting_texts *texts = &load->out->of[setting];
    texts->places[texts->count - 1].line = place.line;
    texts->places[texts->count - 1].column = place.column;
    return 0;
}

/* Takes a backend that is given by fields: address, weight, drain. Its text is the one of the command line. */
static int take_backend(const struct load *load, const struct tree_node *mapping)
{
    static const char *const names[] = {"address", "weight", "drain"};
    static const struct words fields = {.names = names, .count = 3};
    const struct tree_node *values[3] = {NULL};
    const struct tree_node *value;
    for (const struct tree_node *key = tree_child(&load->tree, mapping); key != NULL;
         key = tree_next(&load->tree, value)) {
        value = tree_next(&load->tree, key);
        const char *name = tree_text(&load->tree, key);
        const size_t number = words_find(&fields, name);
        if (number == WORD_NONE) {
            const char *meant = words_meant(&fields, name);
            return text_file_fail(&load->file, key->place, -EINVAL, "there is no field \"%.40s\" in a backend; %s%s%s",
                                  name, meant != NULL ? "did you mean \"" : "give address, weight and drain",
                                  meant != NULL ? meant : "", meant != NULL ? "\"?" : "");
        }
        if (value->kind != TREE_VALUE || values[number] != NULL) {
            return text_file_fail(&load->file, key->place, -EINVAL, "%s of a backend is one value, given once", name);
        }
        values[number] = value;
    }
    const char *drain = values[2] != NULL ? read_flag(tree_text(&load->tree, values[2])) : "false";
    if (values[0] == NULL || drain == NULL) {
        return text_file_fail(&load->file, values[0] == NULL ? mapping->place : values[2]->place, -EINVAL,
                              values[0] == NULL ? "a backend needs an address" : "drain is true or false");
    }
    char text[BACKEND_TEXT_SIZE + 64];
    (void) snprintf(text, sizeof(text), "%.*s%s%.20s%s", BACKEND_TEXT_SIZE, tree_text(&load->tree, values[0]),
                    values[1] != NULL ? ",weight=" : "", values[1] != NULL ? tree_text(&load->tree, values[1]) : "",
                    strcmp(drain, "true") == 0 ? ",drain" : "");
    return take_text(load, SETTING_BACKEND, values[0]->place, text);
}

/* Takes one value of a setting. */
static int take_value(const struct load *load, enum setting setting, const struct tree_node *value)
{
    const struct setting_entry *entry = &setting_entries[setting];
    const char *text = tree_text(&load->tree, value);
    if (*text == '\0' || strcmp(text, "~") == 0 || strcmp(text, "null") == 0) {
        return text_file_fail(&load->file, value->place, -EINVAL, "%s has no value; give one, or leave the line out",
                              entry->name);
    }
    if (entry->form == FORM_FLAG || entry->form == FORM_FLAG_OFF) {
        const char *flag = read_flag(text);
        if (flag == NULL) {
            return text_file_fail(&load->file, value->place, -EINVAL, "%s is \"%.40s\"; give true or false",
                                  entry->name, text);
        }
        text = flag;
    }
    char *path = entry->form == FORM_PATH ? path_beside(load->file.path, text) : NULL;
    if (entry->form == FORM_PATH && path == NULL) {
        return text_file_fail(&load->file, value->place, -ENOMEM, "out of memory");
    }
    const int result = take_text(load, setting, value->place, path != NULL ? path : text);
    free(path);
    return result;
}

static int fail_form(const struct load *load, enum setting setting, const struct tree_node *value)
{
    if (setting == SETTING_POLICIES) {
        return text_file_fail(&load->file, value->place, -EINVAL,
                              "policies is the path of a policy file here; move the policies to a file of their own");
    }
    return text_file_fail(&load->file, value->place, -EINVAL,
                          setting_entries[setting].form == FORM_LIST ? "%s is an address, or a list of addresses"
                                                                     : "%s is one value; give no list and no mapping",
                          setting_entries[setting].name);
}

/* Takes an entry of a list. */
static int take_entry(const struct load *load, enum setting setting, const struct tree_node *one)
{
    if (one->kind == TREE_VALUE) {
        return take_value(load, setting, one);
    }
    return setting == SETTING_BACKEND && one->kind == TREE_MAPPING ? take_backend(load, one)
                                                                   : fail_form(load, setting, one);
}

/* Takes what a key has: a value, or a list of them. */
static int take_setting(const struct load *load, enum setting setting, const struct tree_node *value)
{
    const bool is_list = setting_entries[setting].form == FORM_LIST && value->kind == TREE_LIST;
    if (value->kind == TREE_VALUE) {
        return take_value(load, setting, value);
    }
    if (!is_list) {
        return fail_form(load, setting, value);
    }
    if (tree_child(&load->tree, value) == NULL) {
        return text_file_fail(&load->file, value->place, -EINVAL,
                              "%s is an empty list; give an address, or leave the line out",
                              setting_entries[setting].name);
    }
    int result = 0;
    for (const struct tree_node *one = tree_child(&load->tree, value); one != NULL && result == 0;
         one = tree_next(&load->tree, one)) {
        result = take_entry(load, setting, one);
    }
    return result;
}

/* The setting of a name; WORD_NONE: there is none. */
static size_t find_setting(const struct load *load, const char *name)
{
    return strcmp(name, "backends") == 0 ? (size_t) SETTING_BACKEND : words_find(&load->names, name);
}

static int take_all(const struct load *load)
{
    const struct tree_node *root = tree_root(&load->tree);
    const struct tree_node *firsts[SETTING_COUNT] = {NULL};
    if (root == NULL) {
        return 0; /* all settings are on the command line */
    }
    if (root->kind != TREE_MAPPING) {
        return text_file_fail(&load->file, root->place, -EINVAL,
                              "a file of settings is a mapping; give lines such as \"listen: 127.0.0.1:7000\"");
    }
    const struct tree_node *value;
    for (const struct tree_node *key = tree_child(&load->tree, root); key != NULL;
         key = tree_next(&load->tree, value)) {
        value = tree_next(&load->tree, key);
        const size_t number = key->kind == TREE_VALUE ? find_setting(load, tree_text(&load->tree, key)) : WORD_NONE;
        if (number == WORD_NONE) {
            return fail_unknown(load, key);
        }
        if (firsts[number] != NULL) {
            return text_file_fail(&load->file, key->place, -EINVAL,
                                  "%s is given twice, first at line %u; leave one out", load->words[number],
                                  firsts[number]->place.line);
        }
        firsts[number] = key;
        const int result = take_setting(load, (enum setting) number, value);
        if (result != 0) {
            return result;
        }
    }
    return 0;
}

int config_read(const char *path, struct settings *out, weir_error *error)
{
    struct load load = {.file = {.path = path, .error = error}, .out = out};
    for (size_t i = 0; i < SETTING_COUNT; i++) {
        load.words[i] = setting_entries[i].name;
    }
    load.names = (struct words){load.words, SETTING_COUNT, aliases, sizeof(aliases) / sizeof(aliases[0])};
    out->file = path;
    int result = text_file_read(&load.file);
    result = result != 0 ? result : tree_read(&load.file, &load.tree);
    result = result != 0 ? result : take_all(&load);
    free(load.file.text);
    tree_free(&load.tree);
    return result;
}
