/* SPDX-License-Identifier: Apache-2.0 */
/* weir doctor: whether a Redis is fit for weir, and what to do where it is not. Nothing is changed. */
#include "doctor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../command.h"
#include "../policy_probe.h"

enum { OPTION_POLICIES = OPTION_OWN, OPTION_PREFIX, OPTION_REDIS, OPTION_COUNT };
static const struct option_form options[OPTION_COUNT] = {
    COMMON_OPTIONS, [OPTION_POLICIES] = {"policies", 0, true}, [OPTION_PREFIX] = {"prefix", 0, true},
    [OPTION_REDIS] = {"redis", 0, true}};

static const char help[] = "Usage: weir doctor [OPTION]...\n"
                           "\n"
                           "Says whether a Redis is fit for weir, and what to do where it is not: version,\n"
                           "role, memory, eviction, persistence, latency, clock, cost of scripts, rights of\n"
                           "the user, nodes, overrides, keys at their limit. Of a Cluster every shard is\n"
                           "looked at. Nothing is changed.\n"
                           "\n"
                           "Options:\n"
                           "      --policies=FILE  the policy file of the nodes: overrides must fit it, and\n"
                           "                       where the user may run SCAN, records are counted and\n"
                           "                       keys at their limit are named\n"
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
                           "  weir doctor --redis redis://10.0.0.5\n"
                           "  weir doctor --policies gateway.yaml --prefix edge\n"
                           "\n"
                           "Exit codes:\n"
                           "  0  nothing is bad\n"
                           "  1  something is bad\n"
                           "  2  the command line is wrong\n"
                           "  3  Redis or a file cannot be reached\n"
                           "  4  the output cannot be written\n"
                           "Where several apply, the largest.\n";

static const char *const level_names[] = {
    [FINDING_OK] = "ok", [FINDING_NOTE] = "note", [FINDING_WARN] = "warn", [FINDING_BAD] = "bad"};

/* Adds a finding to the JSON, which stays open for further fields. */
static void tell_data(struct doctor *d, enum finding_level level, const char *name, const char *words,
                      const char *advice)
{
    output_open(d->out, NULL, '{');
    output_string(d->out, "name", name);
    output_string(d->out, "level", level_names[level]);
    if (d->of_shard) {
        output_string(d->out, "server", redis_link_server(d->link));
    }
    output_string(d->out, "words", words);
    if (advice != NULL) {
        output_string(d->out, "advice", advice);
    }
}

void doctor_tell_open(struct doctor *d, enum finding_level level, const char *name, const struct sentence *words,
                      const char *advice)
{
    static const enum style styles[] = {
        [FINDING_OK] = STYLE_GOOD, [FINDING_NOTE] = STYLE_NAME, [FINDING_WARN] = STYLE_NAME, [FINDING_BAD] = STYLE_BAD};
    char padded[8];
    (void) snprintf(padded, sizeof(padded), "%-5s", level_names[level]);
    output_styled(d->out, styles[level], padded);
    output_text(d->out, "%s: ", name);
    if (d->of_shard) {
        output_styled(d->out, STYLE_PLAIN, redis_link_server(d->link)); /* as the Cluster calls it */
        output_text(d->out, ": ");
    }
    output_styled(d->out, STYLE_PLAIN, words->text);
    output_text(d->out, "\n");
    if (advice != NULL) {
        output_text(d->out, "     -> %s\n", advice);
    }
    tell_data(d, level, name, words->text, advice);
    d->worst = level > d->worst && level != FINDING_NOTE ? level : d->worst;
}

void doctor_tell(struct doctor *d, enum finding_level level, const char *name, const struct sentence *words,
                 const char *advice)
{
    if (d->further && level == FINDING_OK) {
        return;
    }
    doctor_tell_open(d, level, name, words, advice);
    output_close(d->out, '}');
}

void doctor_unanswered(struct doctor *d, const char *command, const weir_error *error)
{
    struct sentence words = {.length = 0};
    d->unanswered = true;
    sentence_add(&words, "%s, at %s", error->message, command);
    doctor_tell(d, FINDING_BAD, "connection", &words, "see whether the server runs, and what its log says");
}

redisReply *doctor_ask_here(struct doctor *d, int argc, const char **argv)
{
    weir_error error;
    redisReply *reply = d->unanswered ? NULL : redis_link_ask(d->link, argc, argv, &error);
    if (reply == NULL && !d->unanswered) {
        doctor_unanswered(d, argv[0], &error);
    }
    return reply;
}

redisReply *doctor_ask(struct doctor *d, int argc, const char **argv)
{
    weir_error error;
    redisReply *reply = d->unanswered ? NULL : redis_link_try(d->link, argc, argv, &error);
    if (reply == NULL && !d->unanswered) {
        doctor_unanswered(d, argv[0], &error);
    }
    return reply;
}

bool doctor_info(const struct doctor *d, const char *name, char *out, size_t size)
{
    const size_t length = strlen(name);
    for (const char *line = d->info; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, length) == 0 && line[length] == ':') {
            const char *value = line + length + 1;
            (void) snprintf(out, size, "%.*s", (int) strcspn(value, "\r\n"), value);
            return true;
        }
    }
    return false;
}

uint64_t doctor_info_number(const struct doctor *d, const char *name)
{
    char text[32];
    return doctor_info(d, name, text, sizeof(text)) ? strtoull(text, NULL, 10) : 0;
}

static int fail_usage(const struct arguments *arguments, const char *what)
{
    (void) fprintf(stderr, "%s: %s\n%s --help lists what it takes\n", arguments->command, what, arguments->command);
    return CODE_USAGE;
}

/* Looks at one server: the present one. */
static void look_at_server(struct doctor *d)
{
    server_checks(d);
    rights_checks(d);
    pace_checks(d);
    free(d->info);
    d->info = NULL;
}

/* Looks at a shard. False: it cannot be reached, or has stopped to answer, which is told. */
static bool look_at_shard(struct doctor *d, size_t shard)
{
    weir_error error;
    d->of_shard = true;
    if (redis_link_choose(d->link, shard, &error)) {
        look_at_server(d);
    } else {
        struct sentence words = {.length = 0};
        d->of_shard = false;
        d->unanswered = true;
        sentence_add(&words, "%s", error.message);
        doctor_tell(d, FINDING_BAD, "shards", &words,
                    "nodes keep the reports of its keys until it is back: see redis-cli --cluster check");
    }
    const bool good = !d->unanswered;
    d->lost[shard] = !good;
    d->unreached = d->unreached || !good;
    d->unanswered = false; /* the others may answer */
    return good;
}

const char *doctor_advice(const weir_error *error)
{
    static const struct {
        const char *code, *advice;
    } advices[] = {
        {"NOPERM", "see the rights of this user"},
        {"user executing", "see the rights of this user"}, /* as scripts say it */
        {"NOAUTH", "give the user and the password in the URL"},
        {"CLUSTERDOWN", "no server of the Cluster serves the slot of this key now: see redis-cli --cluster check"},
        {"serves no slots", "no server of the Cluster serves the slot of this key now: see redis-cli --cluster check"},
        {"MASTERDOWN", "the replica has lost its primary: see the log of both"},
        {"LOADING", "the server still reads its data from the disk: look again when it has"},
        {"BUSY", "a script of somebody keeps the server busy: SCRIPT KILL ends it"},
        {"OOM", "the server is full: give it a larger maxmemory"},
    };
    for (size_t i = 0; i < sizeof(advices) / sizeof(advices[0]); i++) {
        if (strstr(error->message, advices[i].code) != NULL) {
            return advices[i].advice;
        }
    }
    return "see the log of the server";
}

/* Looks at each shard of a Cluster: of all but the first, what is not good is told. */
static void look_at_shards(struct doctor *d)
{
    struct sentence words = {.length = 0};
    weir_error error;
    size_t reached = 0;
    size_t last = 0;
    for (size_t i = 0; i < d->link->shard_count; i++) {
        if (look_at_shard(d, i)) {
            d->further = true;
            last = i;
            sentence_add(&words, "%s%s", reached++ == 0 ? ": " : ", ", redis_link_shard(d->link, i));
        }
    }
    d->of_shard = d->further = false;
    d->unanswered = reached == 0 || !redis_link_choose(d->link, last, &error);
    struct sentence all = {.length = 0};
    sentence_add(&all, "%zu of %zu answer%s", reached, d->link->shard_count, words.text);
    doctor_tell(d, FINDING_OK, "shards", &all, NULL);
}

/* Looks at the servers of Redis. */
static void look_at_servers(struct doctor *d)
{
    weir_error error;
    const bool found = redis_link_find_shards(d->link, &error);
    if (found && d->link->shard_count > 1) {
        look_at_shards(d);
    } else {
        look_at_server(d);
    }
    if (!found && !d->unanswered) {
        struct sentence words = {.length = 0};
        d->link->shard_count = 0;
        sentence_add(&words, "the shards of this Cluster are not known, so one of them was looked at: %s",
                     error.message);
        doctor_tell(d, FINDING_WARN, "shards", &words,
                    strstr(error.message, "NOPERM") != NULL
                        ? "run this command as a user with +cluster|slots"
                        : "see redis-cli cluster slots: this command takes up to 80 servers");
    }
    if (!d->unanswered) {
        script_checks(d);
    }
}

/* Looks at everything. Returns an exit code. */
static int look(struct doctor *d)
{
    output_open(d->out, NULL, '{');
    output_string(d->out, "server", redis_link_server(d->link));
    output_open(d->out, "findings", '[');
    look_at_servers(d);
    if (!d->unanswered) {
        fleet_checks(d);
    }
    if (!d->unanswered) {
        limit_checks(d);
    }
    if (!d->unanswered && d->policies != NULL) {
        record_checks(d);
    }
    output_close(d->out, ']');
    output_string(d->out, "worst", level_names[d->worst]);
    output_close(d->out, '}');
    output_line(d->out);
    if (d->unanswered || d->unreached) {
        return CODE_UNASKED;
    }
    return d->worst == FINDING_BAD ? CODE_BAD : CODE_GOOD;
}

/* Reads the file and the prefix once, so that what is wrong with them is an error. Returns an exit code. */
static int try_file(const struct doctor *d)
{
    weir *w = NULL;
    weir_error error;
    int code = CODE_GOOD;
    const int opened = policy_probe_open(d->prefix, &w, &error);
    const int loaded = opened == 0 && d->policies != NULL ? policy_probe_load(w, d->policies, &error) : 0;
    if (opened != 0) {
        code = CODE_USAGE;
    } else if (loaded != 0) {
        code = policy_probe_is_bad(loaded) ? CODE_BAD : CODE_UNASKED;
    }
    if (code != CODE_GOOD) {
        output_fault(d->out, error.message);
    }
    weir_close(w);
    return code;
}

static int run_doctor(const struct arguments *arguments, struct output *out)
{
    struct redis_link link;
    weir_error error = {.code = 0};
    const char *prefix = arguments->values[OPTION_PREFIX];
    struct doctor d = {.out = out,
                       .link = &link,
                       .prefix = prefix != NULL ? prefix : "weir",
                       .policies = arguments->values[OPTION_POLICIES]};
    if (arguments->operand_count != 0) {
        return fail_usage(arguments, "takes no operands; give Redis by --redis=URL");
    }
    char *url = redis_link_take_url(arguments->values[OPTION_REDIS]);
    if (url == NULL) {
        return fail_usage(arguments, "there is no Redis; give --redis=URL, or WEIR_REDIS_URL in the environment");
    }
    int code = try_file(&d);
    if (code == CODE_GOOD) {
        const enum redis_link_result opened = redis_link_open(&link, url, &error);
        if (opened == REDIS_LINK_GOOD && weir_inspect_open(url, d.prefix, &d.in, &error) == 0) {
            code = look(&d);
        } else {
            output_fault(out, error.message);
            code = opened == REDIS_LINK_URL ? CODE_USAGE : CODE_UNASKED;
        }
        weir_inspect_close(d.in);
        redis_link_close(&link);
    }
    redis_link_drop_url(url);
    return code;
}

const struct command doctor_command = {.name = "doctor",
                                       .summary = "whether Redis is fit for weir, and what to do",
                                       .help = help,
                                       .options = options,
                                       .option_count = OPTION_COUNT,
                                       .run = run_doctor};
