/* SPDX-License-Identifier: Apache-2.0 */
/* weir reset: a key is as if it had never been used, on all nodes. What it had used is read first, and told. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../command.h"
#include "../quantity.h"
#include "../redis_link.h"
#include "base/error.h"
#include "limiter/weir_private.h"
#include "policy/policy_set.h"
#include "reset_round.h"

enum {
    OPTION_DRY_RUN = OPTION_OWN,
    OPTION_FLEET_SECRET_FILE,
    OPTION_KEYS,
    OPTION_POLICIES,
    OPTION_PREFIX,
    OPTION_REDIS,
    OPTION_COUNT
};
static const struct option_form options[OPTION_COUNT] = {COMMON_OPTIONS,
                                                         [OPTION_DRY_RUN] = {"dry-run", 'n', false},
                                                         [OPTION_FLEET_SECRET_FILE] = {"fleet-secret-file", 0, true},
                                                         [OPTION_KEYS] = {"keys", 0, true},
                                                         [OPTION_POLICIES] = {"policies", 0, true},
                                                         [OPTION_PREFIX] = {"prefix", 0, true},
                                                         [OPTION_REDIS] = {"redis", 0, true}};

static const char help[] = "Usage: weir reset --policies=FILE [OPTION]... POLICY KEY\n"
                           "\n"
                           "Makes a key as if it had never been used, under all limits of its policy and of\n"
                           "the tiers: in Redis at once, and on each node with its next sync of the key.\n"
                           "Says what the key had used. An override of the key stays.\n"
                           "\n"
                           "Options:\n"
                           "      --policies=FILE  the policy file of the nodes\n"
                           "  -n, --dry-run        say it, and change nothing\n"
                           "      --keys=FORM      what keys of the policy are: bytes, addresses, or\n"
                           "                       addresses/64, /56 or /48 where IPv6 addresses are counted\n"
                           "                       by network; else as in weir-gateway where all policies\n"
                           "                       have names that it uses, or by how KEY looks\n"
                           "      --fleet-secret-file=FILE\n"
                           "                       its first line is the secret of the nodes, where they\n"
                           "                       have one\n"
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
                           "  weir reset --policies gateway.yaml --dry-run api 198.51.100.7\n"
                           "  weir reset --policies gateway.yaml api 198.51.100.7\n"
                           "\n"
                           "Exit codes:\n"
                           "  0  good, also where the key had used nothing\n"
                           "  1  a record or file is malformed\n"
                           "  2  the command line is wrong\n"
                           "  3  Redis or a file cannot be reached\n"
                           "  4  the output cannot be written\n"
                           "Where several apply, the largest.\n";

struct reset_session {
    weir_inspector *in;
    const struct arguments *arguments;
    struct output *out;
    struct fleet_key key;
    struct reset_limit limits[RESET_LIMITS_MOST];
    size_t limit_count;
    uint64_t fleet_ns;
};

static int fail_usage(const struct arguments *arguments, const char *what)
{
    (void) fprintf(stderr, "%s: %s\n%s --help lists what it takes\n", arguments->command, what, arguments->command);
    return CODE_USAGE;
}

static int fail_with(struct output *out, const weir_error *error, int code)
{
    output_fault(out, error->message);
    return code;
}

/* Whether a limit of another tier has the same records. */
static bool is_read(const struct reset_session *s, const struct policy_limit *limit)
{
    for (size_t i = 0; i < s->limit_count; i++) {
        if (strcmp(s->limits[i].limit->label, limit->label) == 0) {
            return true;
        }
    }
    return false;
}

/* Takes what the records of one limit have. Returns an exit code. */
static int take_limit(struct reset_session *s, const struct policy *member, size_t number,
                      const weir_inspected_limit *read)
{
    weir_error error;
    if (s->limit_count == RESET_LIMITS_MOST) {
        (void) error_set(&error, -E2BIG, "the tiers of the policy have more than %d limits", RESET_LIMITS_MOST);
        return fail_with(s->out, &error, CODE_BAD);
    }
    if (read->record.wrong_type || read->before.wrong_type) {
        output_fault_of(s->out, read->record.wrong_type ? read->record.name : read->before.name,
                        "is of another type than weir's records; remove it: redis-cli DEL takes the name");
        return CODE_BAD;
    }
    struct reset_limit *limit = &s->limits[s->limit_count++];
    *limit = (struct reset_limit){.policy = member,
                                  .limit = &member->limits[number],
                                  .exists = {read->record.exists, read->before.exists},
                                  .used = read->record.used,
                                  .used_before = read->before.used,
                                  .counts = read->used};
    (void) snprintf(limit->record, sizeof(limit->record), "%s", read->record.name);
    return CODE_GOOD;
}

/* Reads the records of one policy or tier of the group. Returns an exit code. */
static int read_member(struct reset_session *s, const struct policy *member)
{
    const weir_inspected_key *key;
    weir_error error;
    char name[ENTRY_NAME_SIZE];
    fleet_key_name(&s->key, member->name, name);
    if (weir_inspect_key(s->in, s->key.weir, name, 1, &key, &error) != 0) {
        return fail_with(s->out, &error, CODE_UNASKED);
    }
    s->fleet_ns = key->fleet->time_ns;
    int code = CODE_GOOD;
    for (size_t i = 0; i < key->limit_count && code == CODE_GOOD; i++) {
        code = is_read(s, &member->limits[i]) ? CODE_GOOD : take_limit(s, member, i, &key->limits[i]);
    }
    return code;
}

/* Reads all records of the key. Returns an exit code. */
static int read_records(struct reset_session *s, const char *url)
{
    weir_error error = {.code = 0};
    int code = CODE_GOOD;
    if (weir_inspect_open(url, s->key.prefix, &s->in, &error) != 0) {
        code = fail_with(s->out, &error, CODE_USAGE);
    }
    const struct policy_set *set = process_policies(&s->key.weir->limiter.process); /* no thread changes it */
    const struct policy *member = policy_set_group(set, s->key.policy->group);
    for (; member != NULL && code == CODE_GOOD; member = policy_set_next(set, member)) {
        code = member->scope == WEIR_SCOPE_FLEET ? read_member(s, member) : CODE_GOOD;
    }
    return code;
}

static bool is_used(const struct reset_limit *limit)
{
    return limit->used != 0 || limit->used_before != 0 || limit->counts != 0;
}

static void tell_limit(const struct reset_limit *limit, struct output *out)
{
    struct sentence s = {.length = 0};
    const struct rule *rule = &limit->limit->rule;
    const uint64_t used = rule_is_bucket(rule) ? limit->counts : limit->used;
    quantity_number(&s, used);
    switch (rule_kind(rule)) {
    case RULE_WINDOW:
        sentence_add(&s, " used in this window");
        if (rule_slides(rule)) {
            sentence_add(&s, ", and ");
            quantity_number(&s, limit->used_before);
            sentence_add(&s, " in the one before");
        }
        break;
    case RULE_BUCKET:
        sentence_add(&s, rule_is_queue(rule) ? " in the queue" : " short of full");
        break;
    case RULE_HISTORY:
        sentence_add(&s, " in the log");
        break;
    }
    output_text(out, "  ");
    output_styled(out, STYLE_NAME, limit->limit->name);
    output_text(out, ": %s\n", s.text);
    output_open(out, NULL, '{');
    output_string(out, "name", limit->limit->name);
    output_string(out, "record", limit->record);
    output_number(out, "used", used);
    output_number(out, "used_before", limit->used_before);
    output_close(out, '}');
}

static void tell(const struct reset_session *s, bool dry)
{
    bool used = false;
    for (size_t i = 0; i < s->limit_count; i++) {
        used = used || is_used(&s->limits[i]);
    }
    output_styled(s->out, STYLE_NAME, s->key.full_name);
    output_text(s->out, "%s%s\n",
                !used ? " had used nothing that is reported"
                : dry ? " would be as if never used"
                      : " is as if never used",
                used && !dry ? ", on each node with its next sync of the key" : "");
    output_open(s->out, NULL, '{');
    output_string(s->out, "name", s->key.full_name);
    output_flag(s->out, "reset", !dry);
    output_flag(s->out, "used", used);
    output_open(s->out, "limits", '[');
    for (size_t i = 0; i < s->limit_count; i++) {
        if (used) {
            tell_limit(&s->limits[i], s->out);
        }
    }
    output_close(s->out, ']');
    output_close(s->out, '}');
    output_line(s->out);
}

static int reset(struct reset_session *s, const char *url)
{
    const bool dry = s->arguments->values[OPTION_DRY_RUN] != NULL;
    weir_error error;
    if (s->key.is_network) {
        (void) error_set(&error, -EINVAL, "%.100s is a network: its keys are reset one by one", s->key.full_name);
        return fail_with(s->out, &error, CODE_USAGE);
    }
    if (s->key.policy->scope == WEIR_SCOPE_PROCESS) {
        (void) error_set(&error, -EINVAL, "policy \"%s\" is of process scope: nothing of it is in Redis",
                         s->key.policy->name);
        return fail_with(s->out, &error, CODE_USAGE);
    }
    int code = read_records(s, url);
    if (code != CODE_GOOD) {
        return code;
    }
    if (!dry) {
        const int result = reset_round(s->in, &s->key, s->limits, s->limit_count, s->fleet_ns, &error);
        if (result != 0) {
            return fail_with(s->out, &error, result == -EPROTO ? CODE_BAD : CODE_UNASKED);
        }
    }
    tell(s, dry);
    return CODE_GOOD;
}

/* Reads the file and the key, and resets it. Returns an exit code. */
static int open_and_reset(struct reset_session *s, const char *url)
{
    const struct fleet_key_options from = {.policy = s->arguments->operands[0],
                                           .key = s->arguments->operands[1],
                                           .file = s->arguments->values[OPTION_POLICIES],
                                           .prefix = s->arguments->values[OPTION_PREFIX],
                                           .form = s->arguments->values[OPTION_KEYS],
                                           .secret_file = s->arguments->values[OPTION_FLEET_SECRET_FILE]};
    static const int codes[] = {
        [FLEET_KEY_USAGE] = CODE_USAGE, [FLEET_KEY_FILE] = CODE_BAD, [FLEET_KEY_UNREAD] = CODE_UNASKED};
    weir_error error;
    const enum fleet_key_opened opened = fleet_key_open(&s->key, &from, &error);
    const int code = opened == FLEET_KEY_OPENED ? reset(s, url) : fail_with(s->out, &error, codes[opened]);
    weir_inspect_close(s->in);
    fleet_key_close(&s->key);
    return code;
}

static int run_reset(const struct arguments *arguments, struct output *out)
{
    if (arguments->operand_count != 2) {
        return fail_usage(arguments, "give a POLICY and a KEY, such as: api 198.51.100.7");
    }
    if (arguments->values[OPTION_POLICIES] == NULL) {
        return fail_usage(arguments, "give --policies=FILE, the policy file of the nodes");
    }
    char *url = redis_link_take_url(arguments->values[OPTION_REDIS]);
    if (url == NULL) {
        return fail_usage(arguments, "there is no Redis; give --redis=URL, or WEIR_REDIS_URL in the environment");
    }
    struct reset_session *s = calloc(1, sizeof(*s));
    int code = CODE_UNASKED;
    if (s == NULL) {
        output_fault(out, "out of memory");
    } else {
        s->arguments = arguments;
        s->out = out;
        code = open_and_reset(s, url);
    }
    free(s);
    redis_link_drop_url(url);
    return code;
}

const struct command reset_command = {.name = "reset",
                                      .summary = "make a key as if never used, on all nodes",
                                      .help = help,
                                      .options = options,
                                      .option_count = OPTION_COUNT,
                                      .run = run_reset};
