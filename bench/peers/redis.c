/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call of Redis for each request, through a Unix socket to a private server that keeps nothing on disk:
 *   redis_incr   a fixed window: INCR and PEXPIRE of the key and the window's number, in one round trip
 *   redis_gcra   a script (EVALSHA) that keeps a theoretical arrival time per key, by the server's clock
 * The server runs on the same machine, so this is the least such a call can take.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <hiredis/hiredis.h>

#include "peers/peer.h"
#include "peers/redis_server.h"

#define NS_PER_MS UINT64_C(1000000)

/* Microseconds: the interval between units, and a burst's worth of them. A double of today's time is good to 1/4 us. */
static const char script_text[] = "local time = redis.call('TIME')\n"
                                  "local now = time[1] * 1000000 + time[2]\n"
                                  "local tat = tonumber(redis.call('GET', KEYS[1]) or 0)\n"
                                  "local next = math.max(tat, now) + ARGV[1]\n"
                                  "if next - now > tonumber(ARGV[2]) then return 0 end\n"
                                  "local kept = math.ceil((next - now) / 1000) + 1\n"
                                  "redis.call('SET', KEYS[1], string.format('%.17g', next), 'PX', kept)\n"
                                  "return 1\n";

static struct peer_limit rule;
static redisContext *connection;
static char script_sha[48];
static char interval_us[32], tolerance_us[32];

static void close_redis(void)
{
    if (connection != NULL) {
        redisFree(connection);
        connection = NULL;
    }
    redis_server_stop();
}

static const char *open_redis(const struct peer_limit *limit, size_t key_count)
{
    (void) key_count;
    rule = *limit;
    const char *problem = redis_server_start();
    if (problem != NULL) {
        return problem;
    }
    connection = redisConnectUnix(redis_server_socket());
    if (connection != NULL && connection->err == 0) {
        return NULL;
    }
    close_redis();
    return "redis-server cannot be connected to";
}

static const char *open_gcra(const struct peer_limit *limit, size_t key_count)
{
    const char *problem = open_redis(limit, key_count);
    if (problem != NULL) {
        return problem;
    }
    const double interval = (double) limit->period_ns / (double) limit->units / 1e3;
    (void) snprintf(interval_us, sizeof(interval_us), "%.17g", interval);
    (void) snprintf(tolerance_us, sizeof(tolerance_us), "%.17g", interval * (double) limit->burst);
    redisReply *reply = redisCommand(connection, "SCRIPT LOAD %s", script_text);
    if (reply == NULL || reply->type != REDIS_REPLY_STRING) {
        problem = "redis-server does not take the script";
    } else {
        (void) snprintf(script_sha, sizeof(script_sha), "%s", reply->str);
    }
    freeReplyObject(reply);
    if (problem != NULL) {
        close_redis();
    }
    return problem;
}

/* The next answer's number; a benchmark without answers is over. */
static long long read_number(void)
{
    void *answer = NULL;
    if (redisGetReply(connection, &answer) != REDIS_OK) {
        (void) fprintf(stderr, "redis-server: %s\n", connection->errstr);
        exit(1);
    }
    const redisReply *reply = answer;
    if (reply->type != REDIS_REPLY_INTEGER) {
        (void) fprintf(stderr, "redis-server: %s\n", reply->str != NULL ? reply->str : "not a number");
        exit(1);
    }
    const long long number = reply->integer;
    freeReplyObject(answer);
    return number;
}

static uint64_t run_incr(void *thread, struct peer_draws *draws, uint64_t count)
{
    (void) thread;
    uint64_t allowed = 0;
    for (uint64_t i = 0; i < count; i++) {
        unsigned char key[PEER_KEY_SIZE];
        peer_next_key(draws, key);
        const uint64_t window = peer_now_ns() / rule.period_ns;
        (void) redisAppendCommand(connection, "INCR %b:%" PRIu64, key, sizeof(key), window);
        (void) redisAppendCommand(connection, "PEXPIRE %b:%" PRIu64 " %" PRIu64, key, sizeof(key), window,
                                  rule.period_ns / NS_PER_MS);
        allowed += (uint64_t) read_number() <= rule.units;
        (void) read_number();
    }
    return allowed;
}

static uint64_t run_gcra(void *thread, struct peer_draws *draws, uint64_t count)
{
    (void) thread;
    uint64_t allowed = 0;
    for (uint64_t i = 0; i < count; i++) {
        unsigned char key[PEER_KEY_SIZE];
        peer_next_key(draws, key);
        (void) redisAppendCommand(connection, "EVALSHA %s 1 %b %s %s", script_sha, key, sizeof(key), interval_us,
                                  tolerance_us);
        allowed += read_number() == 1;
    }
    return allowed;
}

const struct peer peer_redis_incr = {.name = "redis_incr",
                                     .keyed = true,
                                     .server = true,
                                     .most_keys = 1000,
                                     .batch = 10,
                                     .open = open_redis,
                                     .close = close_redis,
                                     .run = run_incr};
const struct peer peer_redis_gcra = {.name = "redis_gcra",
                                     .keyed = true,
                                     .server = true,
                                     .most_keys = 1000,
                                     .batch = 10,
                                     .open = open_gcra,
                                     .close = close_redis,
                                     .run = run_gcra};
