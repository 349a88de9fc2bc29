/* SPDX-License-Identifier: Apache-2.0 */
/* What a server says of itself in INFO, held against docs/redis.md and docs/operations.md. See doctor.h. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "doctor.h"

#define FIELD_SIZE 64

/* Parts of maxmemory in use, in percent. */
#define MEMORY_WARN 80
#define MEMORY_BAD  98

/* The oldest versions that the tests of weir run on: docs/redis.md. */
#define REDIS_OLDEST  602
#define VALKEY_OLDEST 800

static void check_version(struct doctor *d)
{
    char name[FIELD_SIZE] = "redis";
    char version[FIELD_SIZE] = "";
    struct sentence words = {.length = 0};
    (void) doctor_info(d, "server_name", name, sizeof(name));
    const bool valkey = strcmp(name, "valkey") == 0;
    if (!doctor_info(d, valkey ? "valkey_version" : "redis_version", version, sizeof(version))) {
        sentence_add(&words, "the server does not tell its version");
        doctor_tell(d, FINDING_WARN, "version", &words, "see whether it is Redis 6.2 or later, or Valkey 8 or later");
        return;
    }
    char *minor;
    const unsigned long major = strtoul(version, &minor, 10);
    const unsigned long number = major * 100 + (*minor == '.' ? strtoul(minor + 1, NULL, 10) : 0);
    const bool good = number >= (valkey ? VALKEY_OLDEST : REDIS_OLDEST);
    sentence_add(&words, "%s %s", valkey ? "Valkey" : "Redis", version);
    doctor_tell(d, good ? FINDING_OK : FINDING_BAD, "version", &words,
                good ? NULL : "weir needs Redis 6.2 or later, or Valkey 8 or later");
}

static void check_role(struct doctor *d)
{
    char role[FIELD_SIZE] = "";
    char mode[FIELD_SIZE] = "";
    struct sentence words = {.length = 0};
    (void) doctor_info(d, "role", role, sizeof(role));
    (void) doctor_info(d, "redis_mode", mode, sizeof(mode));
    if (strcmp(mode, "sentinel") == 0) {
        sentence_add(&words, "a Sentinel, which holds no data");
        doctor_tell(d, FINDING_BAD, "role", &words, "give redis+sentinel:// to nodes, and to this command");
    } else if (strcmp(role, "slave") == 0) {
        sentence_add(&words, "a replica, which takes no reports");
        doctor_tell(d, FINDING_BAD, "role", &words, "give the primary; nodes pass replicas over");
    } else if (role[0] != '\0') {
        sentence_add(&words, "primary with %" PRIu64 " connected replicas", doctor_info_number(d, "connected_slaves"));
        doctor_tell(d, FINDING_OK, "role", &words, NULL);
    }
}

static void check_cluster(struct doctor *d)
{
    struct sentence words = {.length = 0};
    if (doctor_info_number(d, "cluster_enabled") == 0) {
        return;
    }
    const char *call[] = {"CLUSTER", "INFO"};
    redisReply *reply = doctor_ask(d, 2, call);
    if (reply == NULL) {
        return;
    }
    const bool told = reply->type == REDIS_REPLY_STRING;
    const bool good = told && strstr(reply->str, "cluster_state:ok") != NULL;
    sentence_add(&words, "a server of a Cluster%s",
                 !told  ? ", whose state this user may not see"
                 : good ? ", which is whole"
                        : ", which is not whole");
    doctor_tell(d, told && !good ? FINDING_BAD : FINDING_OK, "cluster", &words,
                told && !good ? "see redis-cli --cluster check; reports to its lost slots wait" : NULL);
    freeReplyObject(reply);
}

static void check_memory(struct doctor *d)
{
    struct sentence words = {.length = 0};
    const uint64_t used = doctor_info_number(d, "used_memory");
    const uint64_t most = doctor_info_number(d, "maxmemory");
    const uint64_t machine = doctor_info_number(d, "total_system_memory");
    const uint64_t bound = most != 0 ? most : machine;
    const uint64_t percent = bound != 0 ? (uint64_t) (100.0 * (double) used / (double) bound) : 0;
    sentence_add(&words, "%.1f MB in use, %" PRIu64 "%% of %s", (double) used / 1e6, percent,
                 most != 0 ? "maxmemory" : "the machine's, as maxmemory is not set");
    const enum finding_level level = percent >= MEMORY_BAD    ? FINDING_BAD
                                     : percent >= MEMORY_WARN ? FINDING_WARN
                                                              : FINDING_OK;
    doctor_tell(d, level, "memory", &words,
                level == FINDING_OK ? NULL
                                    : "a full Redis refuses reports (an outage), or drops records that nodes then "
                                      "cannot see: raise maxmemory");
}

static void check_eviction(struct doctor *d)
{
    char policy[FIELD_SIZE];
    struct sentence words = {.length = 0};
    if (!doctor_info(d, "maxmemory_policy", policy, sizeof(policy))) {
        return;
    }
    const uint64_t evicted = doctor_info_number(d, "evicted_keys");
    const bool bounded = doctor_info_number(d, "maxmemory") != 0;
    const bool good = strcmp(policy, "noeviction") == 0 || strcmp(policy, "allkeys-lru") == 0;
    sentence_add(&words, "maxmemory-policy is %s", policy);
    if (evicted != 0) {
        sentence_add(&words, ", and %" PRIu64 " keys were evicted since the start", evicted);
    }
    if (!good && bounded) {
        doctor_tell(
            d, FINDING_WARN, "eviction", &words,
            "set noeviction, or allkeys-lru beside other data: others drop records in use, volatile-ttl first of all");
    } else {
        doctor_tell(d, evicted != 0 ? FINDING_WARN : FINDING_OK, "eviction", &words,
                    evicted != 0 ? "raise maxmemory: nodes do not see evicted records until they are reported again"
                                 : NULL);
    }
}

static void check_persistence(struct doctor *d)
{
    char saved[FIELD_SIZE] = "ok";
    char appended[FIELD_SIZE] = "ok";
    struct sentence words = {.length = 0};
    (void) doctor_info(d, "rdb_last_bgsave_status", saved, sizeof(saved));
    (void) doctor_info(d, "aof_last_write_status", appended, sizeof(appended));
    if (doctor_info_number(d, "loading") != 0) {
        sentence_add(&words, "the server is loading its data");
        doctor_tell(d, FINDING_BAD, "persistence", &words, "wait until it has; nodes are in an outage meanwhile");
    } else if (strcmp(saved, "ok") != 0 || strcmp(appended, "ok") != 0) {
        sentence_add(&words, "the last %s failed", strcmp(saved, "ok") != 0 ? "snapshot" : "write of the log");
        doctor_tell(d, FINDING_BAD, "persistence", &words,
                    "see the server's log and its disk: such a server refuses reports (MISCONF)");
    } else {
        sentence_add(&words, "append-only log %s; weir needs no persistence",
                     doctor_info_number(d, "aof_enabled") != 0 ? "on" : "off");
        doctor_tell(d, FINDING_OK, "persistence", &words, NULL);
    }
}

void server_checks(struct doctor *d)
{
    const char *call[] = {"INFO"};
    redisReply *reply = doctor_ask(d, 1, call);
    if (reply != NULL && reply->type == REDIS_REPLY_STRING) {
        d->info = strdup(reply->str);
    }
    freeReplyObject(reply);
    if (d->info == NULL) {
        struct sentence words = {.length = 0};
        sentence_add(&words, "INFO is refused: version, role, memory, eviction and persistence are not known");
        if (!d->unanswered) {
            doctor_tell(d, FINDING_WARN, "server", &words, "run this command as a user with +info");
        }
        return;
    }
    check_version(d);
    check_role(d);
    check_cluster(d);
    check_memory(d);
    check_eviction(d);
    check_persistence(d);
}
