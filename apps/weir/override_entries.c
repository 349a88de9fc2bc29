/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weir override: the overrides of a fleet, in Redis. The library reads each name and each value before they are
 * written, by a weir that knows no Redis, so no entry is written that nodes leave out.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir/inspect.h>

#include "base/error.h"
#include "base/plain.h"
#include "command.h"
#include "describe.h"
#include "override_hash.h"
#include "override_notes.h"
#include "override_trial.h"
#include "policy/words.h"
#include "tell_policies.h"

enum { OPTION_BY = OPTION_OWN, OPTION_KEYS, OPTION_POLICIES, OPTION_PREFIX, OPTION_REDIS, OPTION_UNTIL, OPTION_COUNT };
static const struct option_form options[OPTION_COUNT] = {COMMON_OPTIONS,
                                                         [OPTION_BY] = {"by", 0, true},
                                                         [OPTION_KEYS] = {"keys", 0, true},
                                                         [OPTION_UNTIL] = {"until", 0, true},
                                                         [OPTION_POLICIES] = {"policies", 0, true},
                                                         [OPTION_PREFIX] = {"prefix", 0, true},
                                                         [OPTION_REDIS] = {"redis", 0, true}};

static const char help[] = "Usage: weir override list [OPTION]...\n"
                           "       weir override set [OPTION]... NAME VALUE\n"
                           "       weir override rm [OPTION]... NAME\n"
                           "       weir override log [OPTION]...\n"
                           "\n"
                           "Lists and changes the overrides of a fleet: the hash PREFIX:overrides in Redis.\n"
                           "NAME is policy:key, such as api:198.51.100.7. VALUE is \"allow\", \"deny\", or a\n"
                           "number for each limit of the policy, with a burst where wanted: \"200/50 10000\".\n"
                           "*:198.51.100.0/24 is of all policies, with \"allow\" or \"deny\".\n"
                           "A change is in force on every node within two sync intervals. \"log\" tells\n"
                           "the last 1,000 changes.\n"
                           "\n"
                           "Options:\n"
                           "      --by=NAME        who changes (the login name, behind sudo too)\n"
                           "      --keys=FORM      what keys are: gateway, as weir-gateway has them, or\n"
                           "                       bytes; else gateway where all policies of --policies have\n"
                           "                       names that it uses\n"
                           "      --until=TIME     set: the override ends by itself, at a time in UTC, as\n"
                           "                       2026-12-01T00:00Z, or after a duration: 90m, 2h, 7d\n"
                           "      --policies=FILE  the policy file of the nodes: values must fit its\n"
                           "                       limits, and are told in words\n"
                           "      --prefix=PREFIX  of every key in Redis (weir)\n"
                           "      --redis=URL      redis://[user:password@]host[:port][/database],\n"
                           "                       unix:///path, redis+sentinel:// or redis+cluster://,\n"
                           "                       or rediss:// with TLS, as nodes have it; else\n"
                           "                       WEIR_REDIS_URL in the environment\n"
                           "      --json           one line of JSON\n"
                           "      --color=WHEN     auto (default), always or never\n"
                           "  -h, --help           this text\n"
                           "\n"
                           "Examples:\n"
                           "  weir override list --redis unix:///run/redis/redis.sock\n"
                           "  weir override set --policies gateway.yaml api:198.51.100.7 '200/50 10000'\n"
                           "  weir override set --until 2h api:203.0.113.9 deny\n"
                           "  weir override rm api:198.51.100.7\n"
                           "\n"
                           "Exit codes:\n"
                           "  0  good\n"
                           "  1  an entry is malformed, or there is none of that name\n"
                           "  2  the command line is wrong\n"
                           "  3  Redis or a file cannot be reached\n"
                           "  4  the output cannot be written\n"
                           "Where several apply, the largest.\n";

/* "PREFIX:overrides", with the longest prefix that the library takes. */
#define KEY_SIZE 64

struct override_session {
    const struct arguments *arguments;
    struct output *out;
    struct override_trial trial;
    struct redis_link link;
    struct override_notes notes;
    const char *url, *prefix;
    char key[KEY_SIZE], by[OVERRIDE_AUTHOR_SIZE];
};

static int fail_usage(const struct arguments *arguments, const char *what)
{
    (void) fprintf(stderr, "%s: %s\n%s --help lists what it takes\n", arguments->command, what, arguments->command);
    return CODE_USAGE;
}

/* Connects to Redis. Returns an exit code. */
static int open_link(struct override_session *s)
{
    weir_error error = {.code = 0};
    const enum redis_link_result result = redis_link_open(&s->link, s->url, &error);
    if (result != REDIS_LINK_GOOD) {
        output_fault(s->out, error.message);
    }
    if (result == REDIS_LINK_URL) {
        return CODE_USAGE;
    }
    return result == REDIS_LINK_GOOD ? CODE_GOOD : CODE_UNASKED;
}

static int fail_unasked(struct override_session *s, const weir_error *error)
{
    output_fault(s->out, error->message);
    return CODE_UNASKED;
}

/* When a change was made, and by whom; in JSON, within an object that is open. */
static void tell_note(struct output *out, const struct override_note *note)
{
    char at[OVERRIDE_TIME_SIZE];
    override_notes_time(note->at_s, at);
    output_styled(out, STYLE_PLAIN, at);
    output_text(out, " by ");
    output_styled(out, STYLE_PLAIN, note->by);
    output_string(out, "by", note->by);
    output_string(out, "at", at);
    output_number(out, "change", note->version);
}

/* What is known of an entry besides: its end, and who has set it. */
static void tell_entry_note(struct override_session *s, const weir_inspected_override *entry)
{
    const struct override_note *note = override_notes_find(&s->notes, entry->name, entry->value);
    const bool ended = override_notes_ended(entry->value);
    if (ended) {
        output_flag(s->out, "ended", true);
        output_text(s->out, ", which is over");
    }
    if (note != NULL) {
        output_text(s->out, "; set ");
        tell_note(s->out, note);
    }
    output_close(s->out, '}');
    output_text(s->out, "\n");
}

/* An entry as weir_override_fn has them, and what the trial says of it. False: nodes leave it out. */
static bool tell_entry(struct override_session *s, const weir_inspected_override *entry)
{
    char name[OVERRIDE_NAME_SIZE];
    weir_error error;
    const enum trial_result result = override_trial(&s->trial, entry->name, entry->value, name, &error);
    const weir_policy *policy = override_trial_policy(&s->trial, entry->name);
    if (result == TRIAL_GOOD && (policy != NULL || describe_is_of_all(entry->name))) {
        tell_override(s->out, policy, entry->name, entry->value);
        tell_entry_note(s, entry);
        return true;
    }
    const bool good = result != TRIAL_BAD;
    output_text(s->out, "  ");
    output_styled(s->out, good ? STYLE_NAME : STYLE_BAD, entry->name);
    output_text(s->out, ": ");
    output_styled(s->out, STYLE_PLAIN, entry->value);
    output_text(s->out, "%s", !good ? ", malformed" : result == TRIAL_NO_POLICY ? ", of no policy of the file" : "");
    output_open(s->out, NULL, '{');
    output_string(s->out, "name", entry->name);
    output_string(s->out, "value", entry->value);
    if (!good) {
        output_string(s->out, "error", error.message);
    }
    tell_entry_note(s, entry);
    if (!good) {
        output_fault_of(s->out, entry->name, error.message);
    }
    return good;
}

static void tell_list_end(struct override_session *s, const weir_inspected_overrides *entries)
{
    output_text(s->out, "%zu %s in %s", entries->override_count,
                plain_number(entries->override_count, "override", "overrides"), s->key);
    if (entries->version != NULL) {
        output_text(s->out, ", version ");
        output_styled(s->out, STYLE_PLAIN, entries->version);
        output_string(s->out, "version", entries->version);
    }
    output_text(s->out, "\n");
    output_string(s->out, "key", s->key);
}

static int tell_list(struct override_session *s, const weir_inspected_overrides *entries)
{
    weir_error error;
    int code = CODE_GOOD;
    output_open(s->out, NULL, '{');
    output_open(s->out, "overrides", '[');
    for (size_t i = 0; i < entries->override_count; i++) {
        code = tell_entry(s, &entries->overrides[i]) ? code : CODE_BAD;
    }
    output_close(s->out, ']');
    tell_list_end(s, entries);
    output_close(s->out, '}');
    output_line(s->out);
    if (entries->override_count > OVERRIDE_HASH_MOST) {
        (void) error_set(&error, -ENOSPC, "%s: nodes read %d entries, and not the other %zu; take some out", s->key,
                         OVERRIDE_HASH_MOST, entries->override_count - OVERRIDE_HASH_MOST);
        output_fault(s->out, error.message);
        code = CODE_BAD;
    }
    return code;
}

static int list(struct override_session *s)
{
    const weir_inspected_overrides *entries;
    weir_inspector *in = NULL;
    weir_error error;
    int code = CODE_UNASKED;
    bool good =
        weir_inspect_open(s->url, s->prefix, &in, &error) == 0 && weir_inspect_overrides(in, &entries, &error) == 0;
    if (good && entries->wrong_type) {
        good = error_set(&error, -EPROTO, "%s is no hash: something else has written it", s->key) == 0;
    }
    if (good && override_notes_read(&s->link, s->key, false, &s->notes, &error)) {
        code = tell_list(s, entries);
    } else {
        code = fail_unasked(s, &error);
    }
    weir_inspect_close(in);
    return code;
}

/* What a change has done: a line, or JSON. `value` NULL: the entry is removed. */
static void tell_change(struct override_session *s, const char *name, const char *value,
                        const struct hash_change *change)
{
    const weir_policy *policy = value != NULL ? override_trial_policy(&s->trial, name) : NULL;
    output_open(s->out, NULL, '{');
    output_string(s->out, "name", name);
    output_flag(s->out, "changed", change->changed);
    if (value != NULL) {
        output_string(s->out, "value", value);
    }
    if (change->before != NULL) {
        output_string(s->out, "before", change->before);
    }
    output_close(s->out, '}');
    output_line(s->out);
    output_styled(s->out, STYLE_NAME, name);
    if (policy != NULL || (value != NULL && describe_is_of_all(name))) {
        tell_override_words(s->out, policy, value);
    } else {
        output_text(s->out, "%s%s", value != NULL ? ": " : " is removed", value != NULL ? value : "");
    }
    if (!change->changed) {
        output_text(s->out, ", as before");
    } else if (change->before != NULL) {
        output_text(s->out, "; before: ");
        output_styled(s->out, STYLE_PLAIN, change->before);
    }
    output_text(s->out, "\n");
}

static int set(struct override_session *s)
{
    const char *typed = s->arguments->operands[1];
    const char *until = s->arguments->values[OPTION_UNTIL];
    const char *value = s->arguments->operands[2];
    char with_end[OVERRIDE_HASH_ENTRY_SIZE + 1];
    char name[OVERRIDE_NAME_SIZE];
    struct hash_change change;
    weir_error error;
    if (until != NULL) {
        if (!override_notes_end(value, until, with_end, sizeof(with_end), &error)) {
            output_fault(s->out, error.message);
            return CODE_USAGE;
        }
        value = with_end;
    }
    if (override_trial(&s->trial, typed, value, name, &error) != TRIAL_GOOD) {
        output_fault(s->out, error.message);
        return CODE_BAD;
    }
    if (!override_hash_change(&s->link, s->key, &(struct hash_request){name, typed, value, s->by}, &change, &error)) {
        return fail_unasked(s, &error);
    }
    if (change.full) {
        (void) error_set(&error, -ENOSPC,
                         "%s: there are %d entries, and nodes read no more; take some out, or use a network", s->key,
                         OVERRIDE_HASH_MOST);
        output_fault(s->out, error.message);
    } else {
        tell_change(s, name, value, &change);
    }
    free(change.before);
    return change.full ? CODE_BAD : CODE_GOOD;
}

static int rm(struct override_session *s)
{
    const char *typed = s->arguments->operands[1];
    char name[OVERRIDE_NAME_SIZE];
    struct hash_change change;
    weir_error error;
    /* A malformed entry can be removed, too, by the name that it has. */
    const char *written = override_trial_name(&s->trial, typed, name) ? name : typed;
    if (strcmp(typed, "version") == 0) {
        (void) error_set(&error, -EINVAL, "\"version\" is no entry; give policy:key, such as api:198.51.100.7");
        output_fault(s->out, error.message);
        return CODE_BAD;
    }
    if (!override_hash_change(&s->link, s->key, &(struct hash_request){written, typed, NULL, s->by}, &change, &error)) {
        return fail_unasked(s, &error);
    }
    if (change.changed) {
        tell_change(s, written, NULL, &change);
    } else {
        (void) error_set(&error, -ENOENT, "%s: there is no entry \"%.100s\"", s->key, written);
        output_fault(s->out, error.message);
    }
    free(change.before);
    return change.changed ? CODE_GOOD : CODE_BAD;
}

/* The last changes, the latest at the end. */
static int tell_log(struct override_session *s)
{
    struct override_notes changes;
    weir_error error;
    if (!override_notes_read(&s->link, s->key, true, &changes, &error)) {
        override_notes_free(&changes);
        return fail_unasked(s, &error);
    }
    output_open(s->out, NULL, '{');
    output_open(s->out, "changes", '[');
    for (size_t i = 0; i < changes.count; i++) {
        const struct override_note *note = &changes.all[i];
        const bool set_one = strcmp(note->action, "set") == 0;
        output_open(s->out, NULL, '{');
        tell_note(s->out, note);
        output_string(s->out, "action", note->action);
        output_string(s->out, "name", note->name);
        if (set_one) {
            output_string(s->out, "value", note->value);
        }
        if (*note->before != '\0') {
            output_string(s->out, "before", note->before);
        }
        output_close(s->out, '}');
        output_text(s->out, ": ");
        output_styled(s->out, STYLE_NAME, note->name);
        output_text(s->out, set_one ? ": " : " is removed");
        output_styled(s->out, STYLE_PLAIN, note->value);
        output_text(s->out, *note->before != '\0' ? "; before: " : "");
        output_styled(s->out, STYLE_PLAIN, note->before);
        output_text(s->out, "\n");
    }
    output_close(s->out, ']');
    output_close(s->out, '}');
    output_line(s->out);
    override_notes_free(&changes);
    return CODE_GOOD;
}

/* What stands behind "weir override". */
static const struct action {
    const char *name;
    size_t operand_count; /* the action's name is one */
    const char *usage;
    int (*run)(struct override_session *s);
} actions[] = {{"list", 1, "list takes no operands", list},
               {"set", 3, "set takes a NAME and a VALUE", set},
               {"rm", 2, "rm takes a NAME", rm},
               {"log", 1, "log takes no operands", tell_log}};
#define ACTION_COUNT (sizeof(actions) / sizeof(actions[0]))

static const struct action *find_action(const struct arguments *arguments)
{
    const char *names[ACTION_COUNT];
    const struct words words = {.names = names, .count = ACTION_COUNT};
    for (size_t i = 0; i < ACTION_COUNT; i++) {
        names[i] = actions[i].name;
        if (arguments->operand_count != 0 && strcmp(arguments->operands[0], names[i]) == 0) {
            return &actions[i];
        }
    }
    const char *meant = arguments->operand_count != 0 ? words_meant(&words, arguments->operands[0]) : NULL;
    char sentence[80] = "give list, set, rm or log";
    if (meant != NULL) {
        (void) snprintf(sentence, sizeof(sentence), "did you mean \"%s\"?", meant);
    }
    (void) fail_usage(arguments, sentence);
    return NULL;
}

/* Opens what the action needs, and runs it. Returns an exit code. */
static int run_action(struct override_session *s, const struct action *action, const char *url)
{
    const char *given = s->arguments->values[OPTION_PREFIX];
    const char *prefix = given != NULL ? given : "weir";
    weir_error error;
    enum probe_keys keys;
    if (!policy_probe_read_keys(s->arguments->values[OPTION_KEYS], &keys)) {
        return fail_usage(s->arguments, "--keys is gateway or bytes");
    }
    switch (override_trial_open(&s->trial, prefix, s->arguments->values[OPTION_POLICIES], keys, &error)) {
    case TRIAL_OPENED:
        break;
    case TRIAL_PREFIX:
        output_fault(s->out, error.message);
        return CODE_USAGE;
    case TRIAL_FILE:
        output_fault(s->out, error.message);
        return CODE_BAD;
    case TRIAL_UNREAD:
    default:
        return fail_unasked(s, &error);
    }
    s->url = url;
    s->prefix = prefix;
    (void) snprintf(s->key, sizeof(s->key), "%s:overrides", prefix);
    override_notes_author(s->arguments->values[OPTION_BY], s->by);
    const int code = open_link(s);
    return code == CODE_GOOD ? action->run(s) : code;
}

static int override_entries(const struct arguments *arguments, struct output *out)
{
    const struct action *action = find_action(arguments);
    struct override_session s = {.arguments = arguments, .out = out};
    if (action == NULL) {
        return CODE_USAGE;
    }
    if (arguments->operand_count != action->operand_count) {
        return fail_usage(arguments, action->usage);
    }
    if (arguments->values[OPTION_UNTIL] != NULL && strcmp(action->name, "set") != 0) {
        return fail_usage(arguments, "--until is of set alone");
    }
    char *url = redis_link_take_url(arguments->values[OPTION_REDIS]);
    if (url == NULL) {
        return fail_usage(arguments, "there is no Redis; give --redis=URL, or WEIR_REDIS_URL in the environment");
    }
    const int code = run_action(&s, action, url);
    redis_link_close(&s.link);
    override_notes_free(&s.notes);
    override_trial_close(&s.trial);
    redis_link_drop_url(url);
    return code;
}

const struct command override_command = {.name = "override",
                                         .summary = "list and change the limits of single keys, in Redis",
                                         .help = help,
                                         .options = options,
                                         .option_count = OPTION_COUNT,
                                         .run = override_entries};
