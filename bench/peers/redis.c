/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call of Redis for each request, through a Unix socket to a private server that keeps nothing on disk:
 *   redis_incr   a fixed window: INCR and PEXPIRE of the key and the window's number, in one round trip
 *   redis_gcra   a script (EVALSHA) that keeps a theoretical arrival time per key, by the server's clock
 * The server runs on the same machine, so this is the least such a call can take.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <hiredis/hiredis.h>

#include "peers/peer.h"

#define NS_PER_MS     UINT64_C(1000000)
#define START_TIME_MS 5000

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
static char directory[64];
static char socket_path[80];
static pid_t server = -1;
static redisContext *connection;
static char script_sha[48];
static char interval_us[32], tolerance_us[32];

static void start_server(void)
{
    server = fork();
    if (server == 0) {
        (void) prctl(PR_SET_PDEATHSIG, SIGKILL); /* the benchmark may be interrupted */
        const int nowhere = open("/dev/null", O_RDWR);
        (void) dup2(nowhere, STDOUT_FILENO);
        (void) dup2(nowhere, STDERR_FILENO);
        (void) execlp("redis-server", "redis-server", "--port", "0", "--unixsocket", socket_path, "--save", "", "--dir",
                      directory, (char *) NULL);
        _exit(127);
    }
}

static void stop_server(void)
{
    if (connection != NULL) {
        redisFree(connection);
        connection = NULL;
    }
    if (server > 0) {
        (void) kill(server, SIGKILL); /* it has nothing to save */
        (void) waitpid(server, NULL, 0);
        server = -1;
    }
    (void) unlink(socket_path);
    (void) rmdir(directory);
}

static void pause_ms(long ms)
{
    const struct timespec span = {.tv_nsec = ms * (long) NS_PER_MS};
    (void) nanosleep(&span, NULL);
}

static const char *open_redis(const struct peer_limit *limit, size_t key_count)
{
    (void) key_count;
    rule = *limit;
    (void) snprintf(directory, sizeof(directory), "%s", "/tmp/weir-bench-XXXXXX");
    if (mkdtemp(directory) == NULL) {
        return "no directory for its socket";
    }
    (void) snprintf(socket_path, sizeof(socket_path), "%s/redis.sock", directory);
    start_server();
    const char *problem = "redis-server does not answer";
    const uint64_t until_ns = peer_now_ns() + START_TIME_MS * NS_PER_MS;
    while (server > 0 && peer_now_ns() < until_ns) {
        int status;
        if (waitpid(server, &status, WNOHANG) == server) {
            server = -1;
            problem = "no redis-server to be had";
            break;
        }
        connection = redisConnectUnix(socket_path);
        if (connection != NULL && connection->err == 0) {
            return NULL;
        }
        if (connection != NULL) {
            redisFree(connection);
            connection = NULL;
        }
        pause_ms(10);
    }
    stop_server();
    return problem;
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
        stop_server();
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
                                     .most_keys = 1000,
                                     .batch = 10,
                                     .open = open_redis,
                                     .close = stop_server,
                                     .run = run_incr};
const struct peer peer_redis_gcra = {.name = "redis_gcra",
                                     .keyed = true,
                                     .most_keys = 1000,
                                     .batch = 10,
                                     .open = open_gcra,
                                     .close = stop_server,
                                     .run = run_gcra};
