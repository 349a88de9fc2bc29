/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weir in an epoll loop without a thread of its own: the loop waits for weir_poll_fd beside its sockets, and calls
 * weir_poll when that is readable. Two checks every 10 ms, 200 a second, against 100 a second, for half a second. With
 * an argument, such as redis://127.0.0.1, the limit is the fleet's.
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>
#include <weir/weir.h>

#define EVENTS 16

static weir_thread *thread;
static weir_key key;
static unsigned asked, served;

/* Stands for a socket on which requests come in. */
static void serve(int fd)
{
    uint64_t turns = 0;
    if (read(fd, &turns, sizeof turns) != (ssize_t) sizeof turns) {
        return;
    }
    for (; turns > 0; turns--, asked += 2) {
        served += weir_check(thread, &key, 1, NULL);
        served += weir_check(thread, &key, 1, NULL);
    }
}

static int add(int loop, int fd)
{
    struct epoll_event event;
    memset(&event, 0, sizeof event);
    event.events = EPOLLIN; /* level-triggered */
    event.data.fd = fd;
    return epoll_ctl(loop, EPOLL_CTL_ADD, fd, &event);
}

static int run(weir *w)
{
    const int loop = epoll_create1(EPOLL_CLOEXEC);
    const int requests = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    const struct itimerspec every = {{0, 10000000}, {0, 10000000}}; /* of 10 ms, the first one in 10 ms */
    const int due = weir_poll_fd(w);
    if (loop < 0 || requests < 0 || due < 0 || timerfd_settime(requests, 0, &every, NULL) != 0 || add(loop, due) != 0 ||
        add(loop, requests) != 0) {
        return fprintf(stderr, "no descriptors to be had\n"), -1;
    }
    while (asked < 100) {
        struct epoll_event events[EVENTS];
        const int count = epoll_wait(loop, events, EVENTS, -1); /* weir needs no timeout: its descriptor has it */
        for (int i = 0; i < count; i++) {                       /* weir first: checks go by what it learns */
            if (events[i].data.fd == due) {
                (void) weir_poll(w);
            }
        }
        for (int i = 0; i < count; i++) {
            if (events[i].data.fd == requests) {
                serve(requests);
            }
        }
    }
    (void) close(requests);
    (void) close(loop); /* before weir_close, which closes what it waits for */
    return 0;
}

int main(int argc, char **argv)
{
    weir_options options = WEIR_OPTIONS_INIT;
    options.no_thread = true;
    options.redis_url = argc > 1 ? argv[1] : NULL;
    weir_limit limit = WEIR_LIMIT_INIT;
    limit.algorithm = WEIR_TOKEN_BUCKET;
    limit.limit = 100;
    limit.period_ns = 1000000000;
    limit.burst = 10;
    weir_policy policy = WEIR_POLICY_INIT;
    policy.name = "api";
    policy.limits = &limit;
    policy.limit_count = 1;
    weir *w = NULL;
    weir_error error;
    if (weir_open(&options, &w, &error) != 0 || weir_set_policies(w, &policy, 1, &error) != 0) {
        return fprintf(stderr, "%s\n", error.message), 1;
    }
    if (options.redis_url != NULL && weir_sync(w, 1000) != 0) { /* hears of the other nodes before it serves */
        printf("no answer of Redis: it serves by its own counts until there is one\n");
    }
    thread = weir_attach(w);
    if (thread == NULL) {
        return fprintf(stderr, "as many threads are attached as max_threads allows\n"), 1;
    }
    key = weir_make_key(w, weir_find_policy(w, "api"), "198.51.100.7", 12);
    const int result = run(w);
    weir_stats stats;
    weir_get_stats(w, &stats);
    printf("%u asked, %u served; %llu syncs, the last in %llu us\n", asked, served,
           (unsigned long long) stats.sync_count, (unsigned long long) stats.round_trip_ns / 1000);
    weir_detach(thread);
    weir_close(w);
    return result != 0;
}
