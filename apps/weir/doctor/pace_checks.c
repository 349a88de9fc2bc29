/* SPDX-License-Identifier: Apache-2.0 */
/* How fast a server is, and what it takes for the time. See doctor.h. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/numbers.h"
#include "doctor.h"

/* Round trips that are measured: enough for a 99th percentile. */
#define TRIPS 200

/* Reads of one script, and how often it runs. */
#define SCRIPT_READS "1000"
#define SCRIPT_RUNS  9

/* The default interval is 200 ms: a trip of more than a tenth delays what nodes know. The default timeout is 1 s. */
#define TRIP_WARN_NS (20 * NS_PER_MS)
#define TRIP_BAD_NS  NS_PER_S

/* Nodes take fleet time from the server; of its clock a step of more than an hour is not followed. */
#define CLOCK_WARN_NS NS_PER_S
#define CLOCK_BAD_NS  (3600 * NS_PER_S)

/* A read within a script takes about a microsecond on a server that has its core to itself. */
#define READ_WARN_NS 20000

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    (void) clock_gettime(clock, &now);
    return (uint64_t) now.tv_sec * NS_PER_S + (uint64_t) now.tv_nsec;
}

static int compare_times(const void *left, const void *right)
{
    const uint64_t a = *(const uint64_t *) left;
    const uint64_t b = *(const uint64_t *) right;
    return (a > b) - (a < b);
}

/* The time that one call takes; 0: no answer. *wall_ns: the server's clock where the call is TIME. */
static uint64_t trip(struct doctor *d, int argc, const char **argv, uint64_t *wall_ns)
{
    const uint64_t begun_ns = clock_ns(CLOCK_MONOTONIC);
    redisReply *reply = doctor_ask(d, argc, argv);
    const uint64_t took_ns = clock_ns(CLOCK_MONOTONIC) - begun_ns;
    if (wall_ns != NULL) {
        const bool told = reply != NULL && reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
                          reply->element[0]->str != NULL && reply->element[1]->str != NULL;
        *wall_ns = told ? strtoull(reply->element[0]->str, NULL, 10) * NS_PER_S +
                              strtoull(reply->element[1]->str, NULL, 10) * NS_PER_US
                        : 0;
    }
    const bool good = reply != NULL && reply->type != REDIS_REPLY_ERROR;
    freeReplyObject(reply);
    return good ? max_u64(took_ns, 1) : 0;
}

static void check_latency(struct doctor *d, uint64_t times_ns[TRIPS])
{
    struct sentence words = {.length = 0};
    qsort(times_ns, TRIPS, sizeof(times_ns[0]), compare_times);
    const uint64_t median_ns = times_ns[TRIPS / 2];
    const uint64_t high_ns = times_ns[TRIPS - 1 - TRIPS / 100];
    sentence_add(&words, "a round trip takes ");
    quantity_about(&words, "", (double) median_ns);
    sentence_add(&words, " in the median, and ");
    quantity_about(&words, "", (double) high_ns);
    sentence_add(&words, " at the 99th percentile of %d", TRIPS);
    const enum finding_level level = high_ns >= TRIP_BAD_NS      ? FINDING_BAD
                                     : median_ns >= TRIP_WARN_NS ? FINDING_WARN
                                                                 : FINDING_OK;
    doctor_tell(d, level, "latency", &words,
                level == FINDING_OK ? NULL
                                    : "put Redis nearer to the nodes, or give the nodes a longer sync_interval_ms and "
                                      "redis_timeout_ms");
}

static void check_clock(struct doctor *d, uint64_t server_ns, uint64_t host_ns, uint64_t trip_ns)
{
    struct sentence words = {.length = 0};
    const uint64_t apart_ns = server_ns > host_ns ? server_ns - host_ns : host_ns - server_ns;
    if (apart_ns <= trip_ns) {
        sentence_add(&words, "agrees with this host's to within a round trip");
    } else {
        quantity_about(&words, "", (double) apart_ns);
        sentence_add(&words, " %s this host's", server_ns > host_ns ? "ahead of" : "behind");
    }
    const enum finding_level level = apart_ns > CLOCK_BAD_NS + trip_ns    ? FINDING_BAD
                                     : apart_ns > CLOCK_WARN_NS + trip_ns ? FINDING_WARN
                                                                          : FINDING_OK;
    doctor_tell(d, level, "clock", &words,
                level == FINDING_OK ? NULL : "windows begin by the server's clock: run a time service on both hosts");
}

/* A script that reads a record that is not there, many times: what a report costs the server is mostly such calls. */
void script_checks(struct doctor *d)
{
    static const char script[] = "for i = 1, ARGV[1] do redis.call('HMGET', KEYS[1], 'a', 'sum') end return 1";
    char key[64];
    uint64_t none_ns[SCRIPT_RUNS];
    uint64_t many_ns[SCRIPT_RUNS];
    struct sentence words = {.length = 0};
    (void) snprintf(key, sizeof(key), "%s:{000}:doctor", d->prefix);
    const char *none[] = {"EVAL", script, "1", key, "0"};
    const char *many[] = {"EVAL", script, "1", key, SCRIPT_READS};
    for (int i = 0; i < SCRIPT_RUNS; i++) {
        none_ns[i] = trip(d, 5, none, NULL);
        many_ns[i] = trip(d, 5, many, NULL);
        if (none_ns[i] == 0 || many_ns[i] == 0) {
            return; /* told among the rights, or by doctor_ask */
        }
    }
    qsort(none_ns, SCRIPT_RUNS, sizeof(none_ns[0]), compare_times);
    qsort(many_ns, SCRIPT_RUNS, sizeof(many_ns[0]), compare_times);
    /* The best of each: other programs of the hosts take their time from the rest. */
    const uint64_t more_ns = saturating_sub(many_ns[0], none_ns[0]);
    const uint64_t read_ns = more_ns / strtoull(SCRIPT_READS, NULL, 10);
    sentence_add(&words, "a read within a script takes ");
    quantity_about(&words, "", (double) max_u64(read_ns, 1));
    const bool slow = read_ns > READ_WARN_NS;
    doctor_tell(d, slow ? FINDING_WARN : FINDING_OK, "scripts", &words,
                slow ? "the server is slow or busy: a report takes some three reads (docs/operations.md has the load)"
                     : NULL);
}

void pace_checks(struct doctor *d)
{
    static const char *const time_call[] = {"TIME"};
    uint64_t times_ns[TRIPS];
    uint64_t best_ns = UINT64_MAX;
    uint64_t server_ns = 0;
    uint64_t host_ns = 0;
    for (int i = 0; i < TRIPS; i++) {
        const char *call[] = {time_call[0]};
        uint64_t wall_ns;
        const uint64_t begun_ns = clock_ns(CLOCK_REALTIME);
        times_ns[i] = trip(d, 1, call, &wall_ns);
        if (times_ns[i] == 0) {
            return;
        }
        if (times_ns[i] < best_ns && wall_ns != 0) {
            best_ns = times_ns[i];
            server_ns = wall_ns;
            host_ns = begun_ns + times_ns[i] / 2;
        }
    }
    check_latency(d, times_ns);
    if (server_ns != 0) {
        check_clock(d, server_ns, host_ns, best_ns);
    }
}
