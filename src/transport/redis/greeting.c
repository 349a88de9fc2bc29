/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See greeting.h. All commands of a greeting are sent at once. `greeting` counts the steps whose replies have come, and
 * the steps that are not needed.
 */
#include "transport/redis/greeting.h"

#include <stdio.h>
#include <string.h>

/* The steps of the greeting, in order. */
enum { GREET_HELLO, GREET_AUTH, GREET_SELECT, GREET_SERVER, GREET_REPLICATION, GREET_ROLE, GREET_END };

/* True if a replica is of no use, because the primary can be found elsewhere. */
static bool wants_role(const struct redis_transport *t, const struct server_conn *server)
{
    return !server->sentinel && t->url.kind != REDIS_CLUSTER &&
           (t->url.kind == REDIS_SENTINEL || t->url.seed_count > 1);
}

/* The arguments of one step; 0: the step is not needed. */
static int greeting_step(const struct redis_transport *t, const struct server_conn *server, unsigned step,
                         const char *argv[5], char number[16])
{
    const struct redis_url *url = &t->url;
    const char *user = server->sentinel ? url->sentinel_user : url->user;
    const char *password = server->sentinel ? url->sentinel_password : url->password;
    switch (step) {
    case GREET_HELLO:
        argv[0] = "HELLO";
        argv[1] = "3";
        argv[2] = "AUTH";
        argv[3] = user[0] != '\0' ? user : "default";
        argv[4] = password;
        if (url->protocol != 3) {
            return 0;
        }
        return password[0] != '\0' ? 5 : 2;
    case GREET_AUTH:
        argv[0] = "AUTH";
        argv[1] = user[0] != '\0' ? user : password;
        argv[2] = password;
        if (url->protocol == 3 || password[0] == '\0') {
            return 0;
        }
        return user[0] != '\0' ? 3 : 2;
    case GREET_SELECT:
        (void) snprintf(number, 16, "%d", url->database);
        argv[0] = "SELECT";
        argv[1] = number;
        return url->database != 0 && !server->sentinel ? 2 : 0;
    case GREET_SERVER:
    case GREET_REPLICATION:
        argv[0] = "INFO";
        argv[1] = step == GREET_SERVER ? "server" : "replication";
        return server->sentinel ? 0 : 2;
    default:
        argv[0] = "ROLE";
        return wants_role(t, server) ? 1 : 0;
    }
}

int greeting_send(const struct redis_transport *t, struct server_conn *server)
{
    server->greeting = 0;
    server->greetings_due = 0;
    server->identity[0] = '\0';
    server->cluster = server->replica = false;
    server->answered = false;
    server->sequence = 0;
    memset(server->sourced_at, 0, sizeof(server->sourced_at));
    for (unsigned step = 0; step < GREET_END; step++) {
        const char *argv[5] = {NULL};
        size_t lengths[5];
        char number[16];
        const int argc = greeting_step(t, server, step, argv, number);
        for (int i = 0; i < argc; i++) {
            lengths[i] = strlen(argv[i]);
        }
        const int result = argc != 0 ? socket_command(&server->socket, &(struct command){argc, argv, lengths}) : 0;
        if (result != 0) {
            return result;
        }
        server->greetings_due += argc != 0;
    }
    return 0;
}

static bool is_text(const redisReply *reply)
{
#ifdef REDIS_REPLY_VERB
    if (reply->type == REDIS_REPLY_VERB) {
        return true;
    }
#endif
    return reply->type == REDIS_REPLY_STRING;
}

/* Reads the reply to INFO. */
static void take_info(struct server_conn *server, const char *info, const char *identity_field)
{
    const char *at = strstr(info, identity_field);
    if (at != NULL) {
        at += strlen(identity_field);
        const size_t used = strlen(server->identity);
        (void) snprintf(server->identity + used, sizeof(server->identity) - used, "%.*s ", (int) strcspn(at, "\r\n"),
                        at);
    }
    /* The first is Redis's line, the second Valkey's. */
    server->cluster =
        server->cluster || strstr(info, "redis_mode:cluster") != NULL || strstr(info, "server_mode:cluster") != NULL;
    server->replica = server->replica || strstr(info, "\nrole:slave") != NULL;
}

bool greeting_read(const struct redis_transport *t, struct server_conn *server, const redisReply *reply)
{
    const char *argv[5];
    char number[16];
    while (server->greeting < GREET_END && greeting_step(t, server, server->greeting, argv, number) == 0) {
        server->greeting++;
    }
    const unsigned step = server->greeting++;
    const bool informs = step >= GREET_SERVER;
    if (reply->type == REDIS_REPLY_ERROR) {
        /* This user may not read the identity. Lost data is then noticed by the heartbeats alone. */
        if (informs && strncmp(reply->str, "NOPERM", 6) == 0) {
            server->greetings_due--;
            return true;
        }
        return false;
    }
    if (step == GREET_ROLE && reply->type == REDIS_REPLY_ARRAY && reply->elements != 0 && is_text(reply->element[0])) {
        server->replica = strcmp(reply->element[0]->str, "master") != 0;
    } else if (step == GREET_ROLE || (informs && !is_text(reply))) {
        return false;
    } else if (informs) {
        take_info(server, reply->str, step == GREET_SERVER ? "run_id:" : "master_replid:");
    }
    server->greetings_due--;
    return true;
}
