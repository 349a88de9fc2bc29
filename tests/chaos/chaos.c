/* SPDX-License-Identifier: Apache-2.0 */
#include "chaos/chaos.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "transport/author.h"

#define START_LIMIT_NS (30 * SECOND)
#define MAX_OPTIONS    16

void chaos_nap_ms(uint64_t ms)
{
    const struct timespec pause = {.tv_sec = (time_t) (ms / 1000), .tv_nsec = (long) (ms % 1000) * 1000000};
    (void) nanosleep(&pause, NULL);
}

uint32_t chaos_long_ms(uint32_t usual_ms, uint32_t long_ms)
{
    return getenv("WEIR_TEST_LONG") != NULL ? long_ms : usual_ms;
}

bool chaos_main(int argc, char **argv, int *exit_code)
{
    if (fleet_node_main(argc, argv, exit_code)) {
        return true;
    }
    if (getenv("WEIR_TEST_ONLY") != NULL) {
        cmocka_set_test_filter(getenv("WEIR_TEST_ONLY"));
    }
    return false;
}

int chaos_setup(void **state)
{
    struct chaos *c = calloc(1, sizeof(*c));
    *state = c;
    (void) signal(SIGPIPE, SIG_IGN); /* a node that was killed is found out by its answer that does not come */
    return c == NULL ? -1 : 0;
}

/* With all that Redis has written there. */
static void drop_server(struct server *server)
{
    if (server->directory[0] == '\0') {
        return;
    }
    server_kill(server);
    DIR *directory = opendir(server->directory);
    for (const struct dirent *entry = directory != NULL ? readdir(directory) : NULL; entry != NULL;
         entry = readdir(directory)) {
        if (entry->d_name[0] != '.') {
            (void) unlinkat(dirfd(directory), entry->d_name, 0);
            (void) unlinkat(dirfd(directory), entry->d_name, AT_REMOVEDIR);
        }
    }
    if (directory != NULL) {
        (void) closedir(directory);
    }
    server_stop(server);
}

int chaos_teardown(void **state)
{
    struct chaos *c = *state;
    for (size_t i = 0; i < CHAOS_NODES; i++) {
        fleet_node_drop(&c->nodes[i]);
    }
    proxy_stop(&c->proxy);
    drop_server(&c->primary);
    drop_server(&c->replica);
    free(c);
    return 0;
}

void chaos_policy(struct chaos *c, size_t i, weir_algorithm algorithm, uint64_t limit, uint64_t period_ns)
{
    static const char *const names[CHAOS_POLICIES] = {"fixed", "sliding", "bucket", "tight"};
    struct fleet_policy *policy = &c->config.policies[i];
    *policy = (struct fleet_policy){.limit = {.algorithm = algorithm, .limit = limit, .period_ns = period_ns},
                                    .on_outage = WEIR_OUTAGE_LOCAL};
    (void) snprintf(policy->name, sizeof(policy->name), "%s", names[i]);
}

/* Whether DEBUG has to be asked for: since version 7. */
static bool debug_is_off(void)
{
    FILE *version = popen("redis-server --version", "r");
    int major = 0;
    const bool known = version != NULL && fscanf(version, "%*[^=]=%d", &major) == 1;
    if (version != NULL) {
        (void) pclose(version);
    }
    return known && major >= 7;
}

struct chaos *chaos_begin(void **state)
{
    struct chaos *c = *state;
    if (!server_available()) {
        skip();
    }
    c->seed = test_seed();
    const char *const options[] = {debug_is_off() ? "--enable-debug-command" : NULL, "yes", NULL};
    chaos_server(&c->primary, options, true);
    proxy_start(&c->proxy, c->primary.socket);
    proxy_url(&c->proxy, c->config.url, sizeof(c->config.url));
    c->config.interval_ms = CHAOS_INTERVAL_MS;
    c->config.timeout_ms = CHAOS_TIMEOUT_MS;
    c->config.policy_count = CHAOS_POLICIES;
    /* Over a day, so that nothing expires; the last one is far over its limit. */
    chaos_policy(c, 0, WEIR_FIXED_WINDOW, 1000000000, 24 * HOUR);
    chaos_policy(c, 1, WEIR_SLIDING_WINDOW, 1000000000, 24 * HOUR);
    chaos_policy(c, 2, WEIR_TOKEN_BUCKET, 1000000000, 24 * HOUR);
    chaos_policy(c, CHAOS_TIGHT, WEIR_FIXED_WINDOW, CHAOS_TIGHT_LIMIT, 24 * HOUR);
    return c;
}

void chaos_nodes(struct chaos *c, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        fleet_node_start(&c->nodes[c->node_count++], &c->config);
    }
}

static redisContext *connect_to(const struct server *server)
{
    redisContext *c = redisConnectUnix(server->socket);
    if (c != NULL && c->err == 0) {
        redisReply *reply = redisCommand(c, "AUTH admin admin"); /* an error where a restart has lost the user */
        if (reply != NULL) {
            freeReplyObject(reply);
        }
    }
    return c;
}

static void exec_server(const struct server *server, const char *const options[], pid_t parent)
{
    char port[16];
    const char *arguments[32] = {"redis-server",
                                 "--port",
                                 port,
                                 "--bind",
                                 "127.0.0.1",
                                 "--unixsocket",
                                 server->socket,
                                 "--dir",
                                 "",
                                 "--appendonly",
                                 "no",
                                 "--daemonize",
                                 "no",
                                 "--save",
                                 "",
                                 NULL};
    arguments[8] = server->directory;
    (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(1);
    }
    (void) snprintf(port, sizeof(port), "%d", server->port);
    for (size_t i = 0; i < MAX_OPTIONS && options[i] != NULL; i++) {
        arguments[15 + i] = options[i];
    }
    const int null = open("/dev/null", O_RDWR);
    (void) dup2(null, 1);
    (void) dup2(null, 2);
    (void) execvp("redis-server", (char *const *) (uintptr_t) arguments);
    _exit(127);
}

void chaos_server(struct server *server, const char *const options[], bool waits)
{
    if (server->directory[0] == '\0') {
        /* The support's own way: a directory, a socket, a port. Then again, with the options. */
        server_start(server);
    }
    server_kill(server);
    (void) unlink(server->socket);
    const pid_t parent = getpid();
    server->pid = fork();
    assert_true(server->pid >= 0);
    if (server->pid == 0) {
        exec_server(server, options, parent);
    }
    const uint64_t until_ns = real_ns() + START_LIMIT_NS;
    while (waits && !server_answers(connect_to(server))) {
        if (real_ns() > until_ns) {
            fail_msg("redis-server does not answer");
        }
        chaos_nap_ms(2);
    }
    if (waits) {
        chaos_do(server, "ACL SETUSER admin on >admin ~* &* +@all");
    }
}

static redisReply *command(const struct server *server, const char *format, va_list arguments)
{
    redisContext *c = connect_to(server);
    assert_non_null(c);
    assert_int_equal(c->err, 0);
    redisReply *reply = redisvCommand(c, format, arguments);
    redisFree(c);
    assert_non_null(reply);
    return reply;
}

redisReply *chaos_command(const struct server *server, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    redisReply *reply = command(server, format, arguments);
    va_end(arguments);
    return reply;
}

void chaos_do(const struct server *server, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    redisReply *reply = command(server, format, arguments);
    va_end(arguments);
    if (reply->type == REDIS_REPLY_ERROR) {
        fail_msg("%s: %s", format, reply->str);
    }
    freeReplyObject(reply);
}

uint64_t chaos_number(const struct server *server, const char *section, const char *field)
{
    redisReply *reply = chaos_command(server, "INFO %s", section);
    const char *at = strstr(reply->str, field);
    const uint64_t value = at != NULL ? strtoull(at + strlen(field) + 1, NULL, 10) : 0;
    freeReplyObject(reply);
    return value;
}

struct fleet_work chaos_usual_work(const struct chaos *c, uint32_t for_ms)
{
    return (struct fleet_work){.for_ms = for_ms,
                               .threads = 2,
                               .policies = CHAOS_ALL,
                               .keys = 10,
                               .moves = true,
                               .max_cost = 3,
                               .seed = c->seed};
}

void chaos_work_begin(const struct chaos *c, struct fleet_work work)
{
    for (size_t i = 0; i < c->node_count; i++) {
        if (c->nodes[i].pid != 0) {
            work.seed += 1000;
            fleet_node_work(&c->nodes[i], &work);
        }
    }
}

static void all_answer(const struct chaos *c)
{
    for (size_t i = 0; i < c->node_count; i++) {
        if (c->nodes[i].pid != 0) {
            struct fleet_answer answer;
            fleet_node_answer(&c->nodes[i], &answer);
            if (answer.result != 0) {
                fail_msg("weir_sync says %d (%s)", answer.result, strerror(-answer.result));
            }
        }
    }
}

void chaos_work_end(const struct chaos *c)
{
    all_answer(c);
}

void chaos_work(const struct chaos *c, struct fleet_work work)
{
    chaos_work_begin(c, work);
    chaos_work_end(c);
}

void chaos_settle(const struct chaos *c)
{
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < c->node_count; i++) {
            if (c->nodes[i].pid != 0) {
                fleet_node_sync(&c->nodes[i], 20000);
            }
        }
        all_answer(c);
    }
}

struct fleet_answer chaos_ask(const struct chaos *c, size_t node, size_t policy, uint32_t key, uint64_t cost,
                              uint32_t times)
{
    struct fleet_answer answer;
    fleet_node_check(&c->nodes[node],
                     &(struct fleet_checks){.policy = policy, .key = key, .times = times, .cost = cost});
    fleet_node_answer(&c->nodes[node], &answer);
    return answer;
}

weir_stats chaos_stats(const struct chaos *c, size_t node)
{
    struct fleet_answer answer;
    fleet_node_look(&c->nodes[node]);
    fleet_node_answer(&c->nodes[node], &answer);
    return answer.stats;
}

uint64_t chaos_admitted(const struct chaos *c, size_t policy)
{
    uint64_t admitted = 0;
    for (size_t i = 0; i < c->node_count; i++) {
        admitted += fleet_node_admitted(&c->nodes[i], policy);
    }
    return admitted;
}

/* One record, as read. */
struct record {
    uint64_t sum;              /* its field "sum": net of what was given back */
    uint64_t counted, refunds; /* of all authors: what each says it let pass, and what was given back to it */
    size_t authors;
};

/* All that these tests know of the fields of records. False: it is none, or a log. */
static bool record_read(redisContext *c, const char *key, struct record *out)
{
    memset(out, 0, sizeof(*out));
    redisReply *all = redisCommand(c, "HGETALL %s", key);
    assert_non_null(all);
    bool found = false;
    for (size_t i = 0; all->type == REDIS_REPLY_ARRAY && i + 1 < all->elements; i += 2) {
        const char *field = all->element[i]->str;
        const uint64_t value = strtoull(all->element[i + 1]->str, NULL, 10);
        if (strcmp(field, "sum") == 0) {
            out->sum = value;
            found = true;
        } else if (strlen(field) == AUTHOR_LENGTH && strchr(field, ':') == NULL) {
            /* "count", "count asked" or "count asked back reset" */
            char *rest = NULL;
            out->counted += strtoull(all->element[i + 1]->str, &rest, 10);
            (void) strtoull(rest, &rest, 10);
            out->refunds += strtoull(rest, NULL, 10);
            out->authors++;
        }
    }
    freeReplyObject(all);
    return found;
}

/* Calls `visit` for every key there is. */
static void for_each_key(const struct server *server, void (*visit)(redisContext *c, const char *key, void *arg),
                         void *arg)
{
    redisContext *c = connect_to(server);
    assert_non_null(c);
    assert_int_equal(c->err, 0);
    redisReply *keys = redisCommand(c, "KEYS *");
    assert_non_null(keys);
    assert_int_equal(keys->type, REDIS_REPLY_ARRAY);
    for (size_t i = 0; i < keys->elements; i++) {
        visit(c, keys->element[i]->str, arg);
    }
    freeReplyObject(keys);
    redisFree(c);
}

/* What is wrong is kept until nothing is open any more: a test that fails does not come back. */
struct adding {
    char wrong[400];
    char fraction[80]; /* of a record's name */
    bool whole_key;    /* after which it ends, or its window follows */
    struct chaos_sums sums;
};

static void add_record(redisContext *c, const char *key, void *arg)
{
    struct adding *adding = arg;
    struct record record;
    const char *at = strstr(key, adding->fraction);
    const char after = at != NULL ? at[strlen(adding->fraction)] : '\0';
    if (at == NULL || (adding->whole_key && after != '\0' && after != ':') || !record_read(c, key, &record)) {
        return;
    }
    if (record.sum != record.counted - record.refunds) {
        (void) snprintf(adding->wrong, sizeof(adding->wrong),
                        "%s: sum %" PRIu64 ", but its authors have %" PRIu64 " less %" PRIu64, key, record.sum,
                        record.counted, record.refunds);
    }
    adding->sums.sum += record.sum;
    adding->sums.records++;
    adding->sums.authors += record.authors;
}

struct chaos_sums chaos_sums(const struct server *server, const char *policy)
{
    struct adding adding = {0};
    (void) snprintf(adding.fraction, sizeof(adding.fraction), ":%s:", policy);
    for_each_key(server, add_record, &adding);
    if (adding.wrong[0] != '\0') {
        fail_msg("%s", adding.wrong);
    }
    return adding.sums;
}

struct chaos_sums chaos_key_sums(const struct server *server, const char *policy, const char *key)
{
    struct adding adding = {.whole_key = true};
    (void) snprintf(adding.fraction, sizeof(adding.fraction), ":%s:%s", policy, key);
    for_each_key(server, add_record, &adding);
    if (adding.wrong[0] != '\0') {
        fail_msg("%s", adding.wrong);
    }
    return adding.sums;
}

static void must_expire(redisContext *c, const char *key, void *arg)
{
    struct adding *adding = arg;
    redisReply *ttl = redisCommand(c, "PTTL %s", key);
    assert_non_null(ttl);
    assert_int_equal(ttl->type, REDIS_REPLY_INTEGER);
    if (ttl->integer == -1) {
        adding->sums.records++;
        (void) snprintf(adding->wrong, sizeof(adding->wrong), "%s", key);
    }
    freeReplyObject(ttl);
}

void chaos_all_expire(const struct server *server)
{
    struct adding adding = {0};
    for_each_key(server, must_expire, &adding);
    if (adding.sums.records != 0) {
        fail_msg("%zu keys have no time to live, such as %s", adding.sums.records, adding.wrong);
    }
}

void chaos_compare(const struct chaos *c, const struct server *server)
{
    char wrong[400] = "";
    for (size_t policy = 0; policy < c->config.policy_count; policy++) {
        const uint64_t admitted = chaos_admitted(c, policy);
        const struct chaos_sums sums = chaos_sums(server, c->config.policies[policy].name);
        if (sums.sum != admitted) {
            const size_t used = strlen(wrong);
            (void) snprintf(wrong + used, sizeof(wrong) - used,
                            " %s: redis has %" PRIu64 ", the nodes admitted %" PRIu64, c->config.policies[policy].name,
                            sums.sum, admitted);
        }
    }
    if (wrong[0] != '\0') {
        fail_msg("%s", wrong);
    }
    chaos_all_expire(server);
}

void chaos_wait_basis(const struct chaos *c, size_t node, weir_basis basis)
{
    const uint64_t until_ns = real_ns() + 60 * SECOND;
    for (;;) {
        const struct fleet_answer answer = chaos_ask(c, node, 0, 0, 0, 1);
        if (answer.verdict.basis == basis) {
            return;
        }
        if (real_ns() > until_ns) {
            fail_msg("verdicts rest on %d, not on %d", (int) answer.verdict.basis, (int) basis);
        }
        chaos_nap_ms(5);
    }
}

void chaos_wait_met(const struct chaos *c)
{
    const uint64_t until_ns = real_ns() + 60 * SECOND;
    for (size_t i = 0; i < c->node_count;) {
        struct fleet_answer answer;
        fleet_node_look(&c->nodes[i]);
        fleet_node_answer(&c->nodes[i], &answer);
        if (answer.stats.live_nodes == c->node_count) {
            i++;
            continue;
        }
        if (real_ns() > until_ns) {
            fail_msg("node %zu knows of %u of %zu nodes", i, (unsigned) answer.stats.live_nodes, c->node_count);
        }
        chaos_nap_ms(5);
    }
}
