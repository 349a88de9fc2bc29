/* SPDX-License-Identifier: Apache-2.0 */
#include "support/cluster.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "support/support.h"

#define SLOTS   16384
#define WAIT_NS (60 * SECOND) /* for a machine under load */

/*
 * After so many milliseconds without an answer a server is taken to be lost. Few while a Cluster comes together, which
 * goes by a part of that time. Then so many that a server without a processor is not taken to be lost, and with
 * replicas as few as a failover can wait for.
 */
#define TOGETHER_MS "800"
#define ALONE_MS    60000
#define REPLICAS_MS 5000

/* Ports up to here leave one for the Cluster's own connections, 10000 above. */
#define PORT_MOST 55000

static const char *const arguments[] = {"--cluster-enabled",
                                        "yes",
                                        "--cluster-node-timeout",
                                        TOGETHER_MS,
                                        "--cluster-replica-validity-factor",
                                        "0",
                                        "--repl-diskless-sync-delay",
                                        "0",
                                        "--cluster-require-full-coverage",
                                        "no",
                                        NULL};

static bool can_bind(int port)
{
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    address.sin_port = htons((uint16_t) port);
    const bool good = bind(fd, (struct sockaddr *) &address, sizeof(address)) == 0;
    (void) close(fd);
    return good;
}

void server_must(const struct server *server, const char *format, ...)
{
    char command[400];
    va_list list;
    va_start(list, format);
    (void) vsnprintf(command, sizeof(command), format, list);
    va_end(list);
    redisReply *reply = server_command(server, command);
    if (reply->type == REDIS_REPLY_ERROR) {
        fail_msg("%s: %s", command, reply->str);
    }
    freeReplyObject(reply);
}

/* CLUSTER ADDSLOTS with every one of [first, end): a run in one argument is not known to Redis 6.2. */
static void add_slots(const struct server *server, int first, int end)
{
    static char numbers[SLOTS][12];
    static const char *argv[SLOTS + 2] = {"CLUSTER", "ADDSLOTS"};
    for (int slot = first; slot < end; slot++) {
        (void) snprintf(numbers[slot], sizeof(numbers[slot]), "%d", slot);
        argv[2 + slot - first] = numbers[slot];
    }
    redisContext *c = redisConnectUnix(server->socket);
    assert_true(c != NULL && c->err == 0);
    redisReply *reply = redisCommandArgv(c, 2 + end - first, argv, NULL);
    assert_true(reply != NULL && reply->type == REDIS_REPLY_STATUS);
    freeReplyObject(reply);
    redisFree(c);
}

/* Whether this server sees `count` other servers, all slots served, and no server down. */
static bool is_whole(const struct server *server, size_t count)
{
    char known[64];
    (void) snprintf(known, sizeof(known), "cluster_known_nodes:%zu\r", count);
    redisReply *reply = server_command(server, "CLUSTER INFO");
    const bool whole = strstr(reply->str, "cluster_state:ok") != NULL && strstr(reply->str, known) != NULL &&
                       strstr(reply->str, "cluster_slots_ok:16384") != NULL;
    freeReplyObject(reply);
    return whole;
}

static bool is_synced(const struct server *server)
{
    redisReply *reply = server_command(server, "INFO replication");
    const bool synced = strstr(reply->str, "role:slave") != NULL && strstr(reply->str, "master_link_status:up") != NULL;
    freeReplyObject(reply);
    return synced;
}

static void wait_whole(const struct cluster *cluster)
{
    const uint64_t until_ns = real_ns() + WAIT_NS;
    for (size_t i = 0; i < cluster->count;) {
        if (is_whole(&cluster->servers[i], cluster->count) &&
            (i < CLUSTER_PRIMARIES || is_synced(&cluster->servers[i]))) {
            i++;
            continue;
        }
        if (real_ns() > until_ns) {
            fail_msg("the cluster does not come together");
        }
        nap_ms(5);
    }
}

void cluster_start(struct cluster *cluster, size_t replicas)
{
    cluster->count = CLUSTER_PRIMARIES + replicas;
    for (size_t i = 0; i < cluster->count; i++) {
        struct server *server = &cluster->servers[i];
        server_init(server);
        while (server->port > PORT_MOST || !can_bind(server->port + 10000)) {
            server->port = server_free_port();
        }
        server->arguments = arguments;
        server_launch(server);
        redisReply *id = server_command(server, "CLUSTER MYID");
        (void) snprintf(cluster->ids[i], sizeof(cluster->ids[i]), "%s", id->str);
        freeReplyObject(id);
        server_must(server, "CLUSTER SET-CONFIG-EPOCH %zu", i + 1);
        if (i != 0) {
            server_must(server, "CLUSTER MEET 127.0.0.1 %d", cluster->servers[0].port);
        }
    }
    for (int i = 0; i < CLUSTER_PRIMARIES; i++) {
        const int first = SLOTS * i / CLUSTER_PRIMARIES;
        const int end = SLOTS * (i + 1) / CLUSTER_PRIMARIES;
        add_slots(&cluster->servers[i], first, end);
        for (int slot = first; slot < end; slot++) {
            cluster->owner[slot] = i;
        }
    }
    for (size_t i = CLUSTER_PRIMARIES; i < cluster->count; i++) {
        const char *primary = cluster->ids[i - CLUSTER_PRIMARIES];
        const uint64_t until_ns = real_ns() + WAIT_NS;
        for (bool done = false; !done; nap_ms(5)) {
            redisReply *reply = server_command(&cluster->servers[i], "CLUSTER REPLICATE %s", primary);
            done = reply->type == REDIS_REPLY_STATUS; /* an error until it has met its primary */
            freeReplyObject(reply);
            assert_true(real_ns() < until_ns);
        }
    }
    wait_whole(cluster);
    for (size_t i = 0; i < cluster->count; i++) {
        server_must(&cluster->servers[i], "CONFIG SET cluster-node-timeout %d", replicas != 0 ? REPLICAS_MS : ALONE_MS);
    }
}

void cluster_stop(struct cluster *cluster)
{
    for (size_t i = 0; i < cluster->count; i++) {
        server_stop(&cluster->servers[i]);
    }
}

void cluster_url(const struct cluster *cluster, const char *scheme, size_t seeds, char *out, size_t size)
{
    int length = snprintf(out, size, "%s://", scheme);
    for (size_t i = 0; i < seeds; i++) {
        length += snprintf(out + length, size - (size_t) length, "%s127.0.0.1:%d", i != 0 ? "," : "",
                           cluster->servers[i].port);
    }
}

unsigned long long cluster_sum(const struct cluster *cluster, const char *pattern)
{
    unsigned long long sum = 0;
    for (size_t i = 0; i < cluster->count; i++) {
        if (cluster->servers[i].pid == 0) {
            continue;
        }
        redisReply *role = server_command(&cluster->servers[i], "ROLE");
        if (strcmp(role->element[0]->str, "master") == 0) {
            sum += server_sum(&cluster->servers[i], pattern);
        }
        freeReplyObject(role);
    }
    return sum;
}

int cluster_slot(const struct cluster *cluster, const char *name)
{
    redisReply *reply = server_command(&cluster->servers[0], "CLUSTER KEYSLOT %s", name);
    const int slot = (int) reply->integer;
    freeReplyObject(reply);
    return slot;
}

void cluster_move_begin(struct cluster *cluster, int slot, int from, int to)
{
    server_must(&cluster->servers[to], "CLUSTER SETSLOT %d IMPORTING %s", slot, cluster->ids[from]);
    server_must(&cluster->servers[from], "CLUSTER SETSLOT %d MIGRATING %s", slot, cluster->ids[to]);
}

size_t cluster_move_keys(struct cluster *cluster, int slot, int from, int to, size_t most)
{
    redisReply *keys = server_command(&cluster->servers[from], "CLUSTER GETKEYSINSLOT %d %d", slot, (int) most);
    const size_t count = keys->elements;
    for (size_t i = 0; i < count; i++) {
        redisReply *reply = server_command(&cluster->servers[from], "MIGRATE 127.0.0.1 %d %s 0 5000",
                                           cluster->servers[to].port, keys->element[i]->str);
        if (reply->type == REDIS_REPLY_ERROR) {
            fail_msg("MIGRATE: %s", reply->str);
        }
        freeReplyObject(reply);
    }
    freeReplyObject(keys);
    return count;
}

void cluster_move_end(struct cluster *cluster, int slot, int to)
{
    server_must(&cluster->servers[to], "CLUSTER SETSLOT %d NODE %s", slot, cluster->ids[to]);
    for (int i = 0; i < CLUSTER_PRIMARIES; i++) {
        if (i != to) {
            server_must(&cluster->servers[i], "CLUSTER SETSLOT %d NODE %s", slot, cluster->ids[to]);
        }
    }
}
