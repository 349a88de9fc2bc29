/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of a connection: attempts with jittered backoff, a greeting (authentication, database, who are you,
 * scripts), then rounds. Whatever goes wrong, the connection is dropped, so that a late answer can never be taken for
 * another's, and a new one is tried.
 */
#include "redis/redis.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/numbers.h"
#include "redis/internal.h"
#include "redis/scripts.h"

#define BACKOFF_FIRST_NS (50 * NS_PER_MS)
#define BACKOFF_MOST_NS  (3 * NS_PER_S)

static struct redis_transport *of(struct transport *t)
{
    return (struct redis_transport *) (void *) t;
}

static const struct redis_transport *of_const(const struct transport *t)
{
    return (const struct redis_transport *) (const void *) t;
}

/* Drops the connection; the next attempt is due after a wait that doubles, and differs between nodes. */
static void drop(struct redis_transport *t, uint64_t now_ns)
{
    link_close(&t->link);
    t->stage = STAGE_WAITING;
    t->round = NULL;
    const unsigned doublings = t->failures < 6 ? t->failures : 6;
    const uint64_t wait_ns = min_u64(BACKOFF_FIRST_NS << doublings, BACKOFF_MOST_NS);
    t->failures++;
    t->random = hash_mix(t->random + UINT64_C(0x9e3779b97f4a7c15));
    t->next_try_ns = now_ns + wait_ns / 2 + t->random % (wait_ns / 2 + 1);
}

static void lost(struct redis_transport *t, int result, uint64_t now_ns)
{
    if (result == -EPROTO && t->problem[0] == '\0') {
        problem_set(t, "an answer that is not Redis's protocol");
    } else if (result != -EPROTO) {
        problem_set(t, "connection lost: %s", strerror(-result));
    }
    drop(t, now_ns);
}

/* The greeting: what is asked, in order. */
enum {
    GREET_AUTH,
    GREET_SELECT,
    GREET_SERVER,
    GREET_REPLICATION,
    GREET_SCRIPTS,
    GREET_END = GREET_SCRIPTS + SCRIPT_COUNT
};

static const char *script_text(unsigned script)
{
    switch (script) {
    case SCRIPT_HEARTBEAT:
        return script_heartbeat;
    case SCRIPT_OVERRIDES:
        return script_overrides;
    case SCRIPT_WINDOW:
        return script_report_window;
    case SCRIPT_LOG:
        return script_report_log;
    default:
        return script_report_bucket;
    }
}

/* The arguments of one step; 0: it is not needed. */
static int greeting_step(const struct redis_transport *t, unsigned step, const char *argv[3], char number[16])
{
    const struct redis_url *url = &t->url;
    switch (step) {
    case GREET_AUTH:
        argv[0] = "AUTH";
        argv[1] = url->user[0] != '\0' ? url->user : url->password;
        argv[2] = url->password;
        return url->password[0] == '\0' ? 0 : url->user[0] != '\0' ? 3 : 2;
    case GREET_SELECT:
        (void) snprintf(number, 16, "%d", url->database);
        argv[0] = "SELECT";
        argv[1] = number;
        return url->database != 0 ? 2 : 0;
    case GREET_SERVER:
    case GREET_REPLICATION:
        argv[0] = "INFO";
        argv[1] = step == GREET_SERVER ? "server" : "replication";
        return 2;
    default:
        argv[0] = "SCRIPT";
        argv[1] = "LOAD";
        argv[2] = script_text(step - GREET_SCRIPTS);
        return 3;
    }
}

static int greet(struct redis_transport *t)
{
    t->greeting = 0;
    t->greetings_due = 0;
    t->identity[0] = '\0';
    for (unsigned step = 0; step < GREET_END; step++) {
        const char *argv[3] = {NULL, NULL, NULL};
        char number[16];
        const int argc = greeting_step(t, step, argv, number);
        if (argc == 0) {
            continue;
        }
        const size_t lengths[3] = {strlen(argv[0]), strlen(argv[1]), argc == 3 ? strlen(argv[2]) : 0};
        const int result = link_command(&t->link, argc, argv, lengths);
        if (result != 0) {
            return result;
        }
        t->greetings_due++;
    }
    return 0;
}

/* Adds the value of an INFO field to the identity. */
static void identity_add(struct redis_transport *t, const redisReply *reply, const char *field)
{
    const char *at = reply->type == REDIS_REPLY_STRING ? strstr(reply->str, field) : NULL;
    if (at != NULL) {
        at += strlen(field);
        const size_t used = strlen(t->identity);
        (void) snprintf(t->identity + used, sizeof(t->identity) - used, "%.*s ", (int) strcspn(at, "\r\n"), at);
    }
}

/* Takes in the next answer of the greeting. 0, or -EPROTO and `problem` is set. */
static int greeting_reply(struct redis_transport *t, const redisReply *reply)
{
    const char *argv[3];
    char number[16];
    while (greeting_step(t, t->greeting, argv, number) == 0) {
        t->greeting++;
    }
    const unsigned step = t->greeting++;
    const bool informs = step == GREET_SERVER || step == GREET_REPLICATION;
    if (reply->type == REDIS_REPLY_ERROR && !(informs && strncmp(reply->str, "NOPERM", 6) == 0)) {
        problem_set(t, "%.150s", reply->str);
        return -EPROTO;
    }
    if (informs) {
        identity_add(t, reply, step == GREET_SERVER ? "run_id:" : "master_replid:");
    }
    if (step >= GREET_SCRIPTS) {
        if (reply->type != REDIS_REPLY_STRING || reply->len != SHA_SIZE - 1) {
            problem_set(t, "an answer that is not weir's: is this a Redis?");
            return -EPROTO;
        }
        memcpy(t->shas[step - GREET_SCRIPTS], reply->str, SHA_SIZE);
    }
    t->greetings_due--;
    return 0;
}

static void step_waiting(struct redis_transport *t, uint64_t now_ns)
{
    if (now_ns < t->next_try_ns) {
        return;
    }
    t->deadline_ns = now_ns + t->timeout_ns;
    const int result = link_open(&t->link, &t->url);
    if (result != 0) {
        problem_set(t, "cannot connect: %s", strerror(-result));
        drop(t, now_ns);
        return;
    }
    t->stage = STAGE_CONNECTING;
}

static void step_connecting(struct redis_transport *t, uint64_t now_ns)
{
    const int result = link_connected(&t->link);
    if (result == -EINPROGRESS) {
        return;
    }
    if (result != 0) {
        problem_set(t, "cannot connect: %s", strerror(-result));
        drop(t, now_ns);
        return;
    }
    t->connect_count++;
    t->stage = STAGE_GREETING;
    if (greet(t) != 0) {
        problem_set(t, "out of memory");
        drop(t, now_ns);
    }
}

static void step_greeting(struct redis_transport *t, uint64_t now_ns)
{
    int result = link_flush(&t->link);
    while (result == 0 && t->greetings_due != 0) {
        redisReply *reply = NULL;
        result = link_reply(&t->link, &reply);
        if (result == 0) {
            return;
        }
        if (result > 0) {
            result = greeting_reply(t, reply);
            freeReplyObject(reply);
        }
    }
    if (result != 0) {
        lost(t, result, now_ns);
    } else {
        t->stage = STAGE_READY;
    }
}

static enum transport_event step_round(struct redis_transport *t, uint64_t now_ns)
{
    int result = link_flush(&t->link);
    while (result == 0) {
        redisReply *reply = NULL;
        result = link_reply(&t->link, &reply);
        if (result == 0) {
            return TRANSPORT_NOTHING;
        }
        if (result < 0) {
            break;
        }
        result = round_reply(t, reply, now_ns);
        freeReplyObject(reply);
        if (result == 1) {
            t->round->sent_size = t->link.sent - t->sent_before;
            t->round = NULL;
            t->stage = STAGE_READY;
            t->failures = 0;
            t->problem[0] = '\0';
            memcpy(t->good_identity, t->identity, sizeof(t->identity));
            return TRANSPORT_ROUND_DONE;
        }
    }
    lost(t, result, now_ns);
    return TRANSPORT_ROUND_FAILED;
}

/* Nothing is due from Redis now: whatever comes is the connection's end. */
static void step_ready(struct redis_transport *t, uint64_t now_ns)
{
    redisReply *reply = NULL;
    const int result = link_reply(&t->link, &reply);
    if (result == 1) {
        problem_set(t, reply->type == REDIS_REPLY_ERROR ? "%.150s" : "an answer to no question",
                    reply->type == REDIS_REPLY_ERROR ? reply->str : "");
        freeReplyObject(reply);
        drop(t, now_ns);
    } else if (result < 0) {
        lost(t, result, now_ns);
    }
}

static enum transport_event redis_step(struct transport *transport, uint64_t now_ns)
{
    struct redis_transport *t = of(transport);
    const bool in_round = t->stage == STAGE_ROUND;
    if (t->stage != STAGE_WAITING && t->stage != STAGE_READY && now_ns >= t->deadline_ns) {
        problem_set(t, "%s after %" PRIu64 " ms", t->stage == STAGE_CONNECTING ? "no connection" : "no answer",
                    t->timeout_ns / NS_PER_MS);
        drop(t, now_ns);
        return in_round ? TRANSPORT_ROUND_FAILED : TRANSPORT_NOTHING;
    }
    /* Each stage may lead straight to the next. */
    if (t->stage == STAGE_WAITING) {
        step_waiting(t, now_ns);
    }
    if (t->stage == STAGE_CONNECTING) {
        step_connecting(t, now_ns);
    }
    if (t->stage == STAGE_GREETING) {
        step_greeting(t, now_ns);
    } else if (t->stage == STAGE_READY) {
        step_ready(t, now_ns);
    } else if (t->stage == STAGE_ROUND) {
        return step_round(t, now_ns);
    }
    return TRANSPORT_NOTHING;
}

static int redis_begin(struct transport *transport, struct round *round, uint64_t now_ns)
{
    struct redis_transport *t = of(transport);
    if (t->stage != STAGE_READY) {
        return t->stage == STAGE_ROUND ? -EBUSY : -ENOTCONN;
    }
    t->round = round;
    t->sent_before = t->link.sent;
    int result = round_queue(t);
    if (result == 0) {
        round->sent_ns = now_ns;
        result = link_flush(&t->link);
    }
    if (result != 0) {
        lost(t, result, now_ns);
        return -ENOTCONN;
    }
    t->deadline_ns = now_ns + t->timeout_ns;
    t->stage = STAGE_ROUND;
    return 0;
}

static enum transport_state redis_state(const struct transport *transport)
{
    const enum redis_stage stage = of_const(transport)->stage;
    return stage == STAGE_READY ? TRANSPORT_READY : stage == STAGE_ROUND ? TRANSPORT_BUSY : TRANSPORT_DOWN;
}

static size_t redis_wait_for(const struct transport *transport, struct pollfd *fds, uint64_t *deadline_ns)
{
    const struct redis_transport *t = of_const(transport);
    if (t->stage == STAGE_WAITING) {
        *deadline_ns = min_u64(*deadline_ns, t->next_try_ns);
        return 0;
    }
    if (t->stage != STAGE_READY) {
        *deadline_ns = min_u64(*deadline_ns, t->deadline_ns);
    }
    link_wait_for(&t->link, &fds[0]);
    return 1;
}

static const char *redis_problem(const struct transport *transport)
{
    const struct redis_transport *t = of_const(transport);
    return t->problem[0] != '\0' ? t->problem : NULL;
}

static uint64_t redis_connect_count(const struct transport *transport)
{
    return of_const(transport)->connect_count;
}

static void redis_close(struct transport *transport)
{
    struct redis_transport *t = of(transport);
    link_close(&t->link);
    free(t->order);
    free(t->batches);
    free(t->argv);
    free(t->lengths);
    free(t->numbers);
    free(t);
}

static const struct transport_ops redis_ops = {
    .begin = redis_begin,
    .step = redis_step,
    .state = redis_state,
    .wait_for = redis_wait_for,
    .problem = redis_problem,
    .connect_count = redis_connect_count,
    .close = redis_close,
};

int redis_transport_open(const struct transport_config *config, struct transport **out, weir_error *error)
{
    struct redis_url url;
    const int result = redis_url_parse(config->url, &url, error);
    if (result != 0) {
        return result;
    }
    struct redis_transport *t = calloc(1, sizeof(*t));
    if (t == NULL) {
        return error_set(error, -ENOMEM, "out of memory");
    }
    t->base.ops = &redis_ops;
    t->url = url;
    t->timeout_ns = config->timeout_ms * NS_PER_MS;
    t->random = config->jitter_seed;
    t->next_try_ns = config->now_ns;
    t->stage = STAGE_WAITING;
    link_init(&t->link);
    (void) snprintf(t->nodes_key, sizeof(t->nodes_key), "%s:nodes", config->prefix);
    (void) snprintf(t->overrides_key, sizeof(t->overrides_key), "%s:overrides", config->prefix);
    *out = &t->base;
    return error_clear(error);
}
