/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weir override: the overrides of a fleet, in Redis. The library reads each name and each value before they are
 * written, by a weir that knows no Redis, so no entry is written that nodes leave out.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/plain.h"
#include "command.h"
#include "override_hash.h"
#include "override_trial.h"
#include "policy/words.h"
#include "tell_policies.h"

enum { OPTION_POLICIES = OPTION_OWN, OPTION_PREFIX, OPTION_REDIS, OPTION_COUNT };
static const struct option_form options[OPTION_COUNT] = {
    COMMON_OPTIONS, [OPTION_POLICIES] = {"policies", 0, true}, [OPTION_PREFIX] = {"prefix", 0, true},
    [OPTION_REDIS] = {"redis", 0, true}};

static const char help[] = "Usage: weir override list [OPTION]...\n"
                           "       weir override set [OPTION]... NAME VALUE\n"
                           "       weir override rm [OPTION]... NAME\n"
                           "\n"
                           "Lists and changes the overrides of a fleet: the hash PREFIX:overrides in Redis.\n"
                           "NAME is policy:key, such as api:198.51.100.7. VALUE is \"allow\", \"deny\", or a\n"
                           "number for each limit of the policy, with a burst where wanted: \"200/50 10000\".\n"
                           "A change is in force on every node within two sync intervals.\n"
                           "\n"
                           "Options:\n"
                           "      --policies=FILE  the policy file of the nodes: values must fit its\n"
                           "                       limits, and are told in words\n"
                           "      --prefix=PREFIX  of every key in Redis (weir)\n"
                           "      --redis=URL      redis://[user:password@]host[:port][/database] or\n"
                           "                       unix:///path; else WEIR_REDIS_URL in the environment\n"
                           "      --json           one line of JSON\n"
                           "      --color=WHEN     auto (default), always or never\n"
                           "  -h, --help           this text\n"
                           "\n"
                           "Examples:\n"
                           "  weir override list --redis unix:///run/redis/redis.sock\n"
                           "  weir override set --policies gateway.yaml api:198.51.100.7 '200/50 10000'\n"
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
    char key[KEY_SIZE];
};

static int fail_usage(const struct arguments *arguments, const char *what)
{
    (void) fprintf(stderr, "%s: %s\n%s --help lists what it takes\n", arguments->command, what, arguments->command);
    return CODE_USAGE;
}

/* Connects to Redis. Returns an exit code. */
static int open_link(struct override_session *s, const char *url)
{
    weir_error error = {.code = 0};
    const enum redis_link_result result = redis_link_open(&s->link, url, &error);
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

/* An entry as weir_override_fn has them, and what the trial says of it. False: nodes leave it out. */
static bool tell_entry(struct override_session *s, const struct hash_entry *entry)
{
    char name[OVERRIDE_NAME_SIZE];
    weir_error error;
    const enum trial_result result = override_trial(&s->trial, entry->name, entry->value, name, &error);
    const weir_policy *policy = override_trial_policy(&s->trial, entry->name);
    if (result == TRIAL_GOOD && policy != NULL) {
        tell_override(s->out, policy, entry->name, entry->value);
        return true;
    }
    const bool good = result != TRIAL_BAD;
    output_text(s->out, "  ");
    output_styled(s->out, good ? STYLE_NAME : STYLE_BAD, entry->name);
    output_text(s->out, ": ");
    output_styled(s->out, STYLE_PLAIN, entry->value);
    output_text(s->out, "%s\n", !good ? ", malformed" : result == TRIAL_NO_POLICY ? ", of no policy of the file" : "");
    output_open(s->out, NULL, '{');
    output_string(s->out, "name", entry->name);
    output_string(s->out, "value", entry->value);
    if (!good) {
        output_string(s->out, "error", error.message);
        output_fault_of(s->out, entry->name, error.message);
    }
    output_close(s->out, '}');
    return good;
}

static void tell_list_end(struct override_session *s, const struct hash_entries *entries)
{
    output_text(s->out, "%zu %s in %s", entries->count, plain_number(entries->count, "override", "overrides"), s->key);
    if (entries->version != NULL) {
        output_text(s->out, ", version ");
        output_styled(s->out, STYLE_PLAIN, entries->version);
        output_string(s->out, "version", entries->version);
    }
    output_text(s->out, "\n");
    output_string(s->out, "key", s->key);
}

static int list(struct override_session *s)
{
    struct hash_entries entries;
    weir_error error;
    int code = CODE_GOOD;
    if (!override_hash_list(&s->link, s->key, &entries, &error)) {
        code = fail_unasked(s, &error);
        override_hash_free(&entries);
        return code;
    }
    output_open(s->out, NULL, '{');
    output_open(s->out, "overrides", '[');
    for (size_t i = 0; i < entries.count; i++) {
        code = tell_entry(s, &entries.all[i]) ? code : CODE_BAD;
    }
    output_close(s->out, ']');
    tell_list_end(s, &entries);
    output_close(s->out, '}');
    output_line(s->out);
    if (entries.count > OVERRIDE_HASH_MOST) {
        (void) error_set(&error, -ENOSPC, "%s: nodes read %d entries, and not the other %zu; take some out", s->key,
                         OVERRIDE_HASH_MOST, entries.count - OVERRIDE_HASH_MOST);
        output_fault(s->out, error.message);
        code = CODE_BAD;
    }
    override_hash_free(&entries);
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
    if (policy != NULL) {
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
    const char *value = s->arguments->operands[2];
    char name[OVERRIDE_NAME_SIZE];
    struct hash_change change;
    weir_error error;
    if (override_trial(&s->trial, typed, value, name, &error) != TRIAL_GOOD) {
        output_fault(s->out, error.message);
        return CODE_BAD;
    }
    if (!override_hash_change(&s->link, s->key, name, typed, value, &change, &error)) {
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
    if (!override_hash_change(&s->link, s->key, written, typed, NULL, &change, &error)) {
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

/* What stands behind "weir override". */
static const struct action {
    const char *name;
    size_t operand_count; /* the action's name is one */
    const char *usage;
    int (*run)(struct override_session *s);
} actions[] = {{"list", 1, "list takes no operands", list},
               {"set", 3, "set takes a NAME and a VALUE", set},
               {"rm", 2, "rm takes a NAME", rm}};
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
    char sentence[80] = "give list, set or rm";
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
    switch (override_trial_open(&s->trial, prefix, s->arguments->values[OPTION_POLICIES], &error)) {
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
    (void) snprintf(s->key, sizeof(s->key), "%s:overrides", prefix);
    const int code = open_link(s, url);
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
    char *url = redis_link_take_url(arguments->values[OPTION_REDIS]);
    if (url == NULL) {
        return fail_usage(arguments, "there is no Redis; give --redis=URL, or WEIR_REDIS_URL in the environment");
    }
    const int code = run_action(&s, action, url);
    redis_link_close(&s.link);
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
