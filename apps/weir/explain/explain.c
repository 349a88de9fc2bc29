/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weir explain: where a key stands in the fleet, and why a request would be admitted or denied now. Records are read,
 * and nothing is written: the command is no node.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../command.h"
#include "../redis_link.h"
#include "base/error.h"
#include "explanation.h"

enum {
    OPTION_COST = OPTION_OWN,
    OPTION_FLEET_SECRET_FILE,
    OPTION_KEYS,
    OPTION_POLICIES,
    OPTION_PREFIX,
    OPTION_REDIS,
    OPTION_STATUS,
    OPTION_COUNT
};
static const struct option_form options[OPTION_COUNT] = {COMMON_OPTIONS,
                                                         [OPTION_COST] = {"cost", 0, true},
                                                         [OPTION_FLEET_SECRET_FILE] = {"fleet-secret-file", 0, true},
                                                         [OPTION_KEYS] = {"keys", 0, true},
                                                         [OPTION_POLICIES] = {"policies", 0, true},
                                                         [OPTION_PREFIX] = {"prefix", 0, true},
                                                         [OPTION_REDIS] = {"redis", 0, true},
                                                         [OPTION_STATUS] = {"status", 0, true}};

static const char help[] = "Usage: weir explain --policies=FILE [OPTION]... POLICY KEY\n"
                           "\n"
                           "Says where a key stands in the fleet, and why a request would be admitted or\n"
                           "denied now: what each node has reported, what is left of each limit, and the\n"
                           "override in force. Redis is read, and nothing is changed. POLICY is api or a\n"
                           "tier, such as api/pro. KEY is as in the name of an override: 198.51.100.7.\n"
                           "\n"
                           "Options:\n"
                           "      --policies=FILE  the policy file of the nodes\n"
                           "      --cost=UNITS     of the request (1)\n"
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
                           "      --status=ADDR[,ADDR]...\n"
                           "                       host:port of nodes that serve /metrics: their names,\n"
                           "                       last syncs and outage modes are told\n"
                           "      --json           one line of JSON\n"
                           "      --color=WHEN     auto (default), always or never\n"
                           "  -h, --help           this text\n"
                           "\n"
                           "Examples:\n"
                           "  weir explain --policies gateway.yaml api 198.51.100.7\n"
                           "  weir explain --policies gateway.yaml --keys=addresses/64 source 2001:db8::1\n"
                           "  weir explain --policies gateway.yaml --status edge1:9090,edge2:9090 api x\n"
                           "\n"
                           "Exit codes:\n"
                           "  0  a request would be admitted\n"
                           "  1  a request would be denied, or a record or file is malformed\n"
                           "  2  the command line is wrong\n"
                           "  3  Redis, a node or a file cannot be reached\n"
                           "  4  the output cannot be written\n"
                           "Where several apply, the largest.\n";

const weir_inspected_limit *explanation_deciding(const struct explanation *e)
{
    return e->at->deciding < e->at->limit_count ? &e->at->limits[e->at->deciding] : NULL;
}

bool explanation_is_window(const weir_inspected_limit *limit)
{
    return limit->end_ns != 0;
}

static int fail_usage(const struct arguments *arguments, const char *what)
{
    (void) fprintf(stderr, "%s: %s\n%s --help lists what it takes\n", arguments->command, what, arguments->command);
    return CODE_USAGE;
}

static int fail_unasked(struct output *out, const weir_error *error)
{
    output_fault(out, error->message);
    return CODE_UNASKED;
}

static int larger(int one, int other)
{
    return one > other ? one : other;
}

/* Reads --cost. False: it is no cost. */
static bool read_cost(const char *text, uint64_t *cost)
{
    char *end;
    *cost = 1;
    if (text == NULL) {
        return true;
    }
    errno = 0;
    *cost = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && *end == '\0' && errno == 0 && *cost != 0 && *cost <= WEIR_MAX_UNITS;
}

/* Asks the nodes of --status. Returns an exit code. */
static int ask_status(struct explanation *e, const char *list, struct output *out)
{
    int code = CODE_GOOD;
    for (const char *at = list; at != NULL;) {
        char address[NODE_STATUS_NAME_SIZE];
        weir_error error;
        const size_t length = strcspn(at, ",");
        (void) snprintf(address, sizeof(address), "%.*s", (int) (length < sizeof(address) ? length : 0), at);
        at = at[length] == ',' ? at + length + 1 : NULL;
        if (e->status_count == EXPLAINED_STATUS_MOST) {
            (void) error_set(&error, -E2BIG, "--status has more than %d nodes", EXPLAINED_STATUS_MOST);
            return larger(code, fail_unasked(out, &error));
        }
        if (node_status_ask(&e->status[e->status_count], address, e->key.policy->base, &error)) {
            e->status_count++;
        } else {
            code = fail_unasked(out, &error);
        }
    }
    return code;
}

/* Tells a record that nodes cannot report to. */
static bool tell_wrong_type(const weir_inspected_record *record, struct output *out)
{
    if (record->wrong_type) {
        output_fault_of(out, record->name,
                        "is of another type than weir's records, so nodes cannot share what the key uses; remove it: "
                        "redis-cli DEL takes the name");
    }
    return record->wrong_type;
}

/* Reads all of the key in Redis. Returns an exit code. */
static int read_redis(struct explanation *e, weir_inspector *in, struct output *out)
{
    char name[ENTRY_NAME_SIZE];
    weir_error error;
    int code = CODE_GOOD;
    fleet_key_name(&e->key, e->key.policy->name, name);
    if (weir_inspect_key(in, e->key.weir, name, e->cost, &e->at, &error) != 0) {
        return fail_unasked(out, &error);
    }
    if (e->at->overrides->wrong_type) {
        output_fault_of(out, e->at->overrides->record, "is no hash, so nodes read no overrides from it");
        code = CODE_BAD;
    }
    for (size_t i = 0; i < e->at->limit_count; i++) {
        const bool now = tell_wrong_type(&e->at->limits[i].record, out);
        const bool before = tell_wrong_type(&e->at->limits[i].before, out);
        code = now || before ? CODE_BAD : code;
    }
    return code;
}

/* Nodes may have read the key in another form than this command, and then its hash is another one. */
static void tell_guess(const struct explanation *e, struct output *out)
{
    bool found = false;
    for (size_t i = 0; i < e->at->limit_count; i++) {
        found = found || e->at->limits[i].record.exists || e->at->limits[i].before.exists;
    }
    if (e->key.guessed && e->key.policy->hash_keys && e->key.name.kind == ENTRY_KEY && !found) {
        output_text(out, "  no records: the key was read as %s; --keys=FORM reads it in another form\n",
                    e->key.name.form != NULL ? "an address" : "bytes");
    }
}

/* Tells what has been read, and asks the nodes. Returns an exit code. */
static int tell(struct explanation *e, const struct arguments *arguments, struct output *out)
{
    const int code = ask_status(e, arguments->values[OPTION_STATUS], out);
    if (out->json) {
        explanation_tell_data(e, out);
    } else {
        explanation_tell_text(e, out);
        tell_guess(e, out);
    }
    const bool denied = e->at->denied && e->at->mode != WEIR_SHADOW;
    return denied ? larger(code, CODE_BAD) : code;
}

static int explain(struct explanation *e, const struct arguments *arguments, struct output *out, const char *url)
{
    weir_inspector *in = NULL;
    weir_error error;
    if (weir_inspect_open(url, e->key.prefix, &in, &error) != 0) {
        output_fault(out, error.message);
        return CODE_USAGE;
    }
    int code = read_redis(e, in, out);
    code = code == CODE_UNASKED ? code : larger(code, tell(e, arguments, out));
    weir_inspect_close(in);
    return code;
}

/* Reads the file and the key. Returns an exit code. */
static int open_key(struct explanation *e, const struct arguments *arguments, struct output *out)
{
    const struct fleet_key_options from = {.policy = arguments->operands[0],
                                           .key = arguments->operands[1],
                                           .file = arguments->values[OPTION_POLICIES],
                                           .prefix = arguments->values[OPTION_PREFIX],
                                           .form = arguments->values[OPTION_KEYS],
                                           .secret_file = arguments->values[OPTION_FLEET_SECRET_FILE]};
    weir_error error;
    switch (fleet_key_open(&e->key, &from, &error)) {
    case FLEET_KEY_OPENED:
        return CODE_GOOD;
    case FLEET_KEY_USAGE:
        output_fault(out, error.message);
        return CODE_USAGE;
    case FLEET_KEY_FILE:
        output_fault(out, error.message);
        return CODE_BAD;
    case FLEET_KEY_UNREAD:
        break;
    }
    return fail_unasked(out, &error);
}

static int run_explain(const struct arguments *arguments, struct output *out)
{
    uint64_t cost;
    if (arguments->operand_count != 2) {
        return fail_usage(arguments, "give a POLICY and a KEY, such as: api 198.51.100.7");
    }
    if (arguments->values[OPTION_POLICIES] == NULL) {
        return fail_usage(arguments, "give --policies=FILE, the policy file of the nodes");
    }
    if (!read_cost(arguments->values[OPTION_COST], &cost)) {
        return fail_usage(arguments, "--cost takes a number from 1 to 4398046511103");
    }
    char *url = redis_link_take_url(arguments->values[OPTION_REDIS]);
    if (url == NULL) {
        return fail_usage(arguments, "there is no Redis; give --redis=URL, or WEIR_REDIS_URL in the environment");
    }
    struct explanation *e = calloc(1, sizeof(*e));
    weir_error error;
    int code = CODE_UNASKED;
    if (e == NULL) {
        (void) error_set(&error, -ENOMEM, "out of memory");
        code = fail_unasked(out, &error);
    } else {
        e->cost = cost;
        code = open_key(e, arguments, out);
        code = code == CODE_GOOD ? explain(e, arguments, out, url) : code;
        fleet_key_close(&e->key);
    }
    free(e);
    redis_link_drop_url(url);
    return code;
}

const struct command explain_command = {.name = "explain",
                                        .summary = "where a key stands in the fleet, and why it is denied",
                                        .help = help,
                                        .options = options,
                                        .option_count = OPTION_COUNT,
                                        .run = run_explain};
