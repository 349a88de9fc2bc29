/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weir in an epoll loop without a thread of its own: the loop waits for weir_poll_fd beside its sockets, and calls
 * weir_poll when that is readable. Two checks every 10 ms, 200 a second, against 100 a second, for half a second. With
 * an argument, such as redis://127.0.0.1, the limit is the fleet's.
 */
#include <stdint.h>
#include <stdio.h>
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

static int run(weir *w)
{
    const int loop = epoll_create1(EPOLL_CLOEXEC);
    const int requests = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    const struct itimerspec every = {.it_interval.tv_nsec = 10000000, .it_value.tv_nsec = 10000000};
    const int due = weir_poll_fd(w);
    struct epoll_event wait_due = {.events = EPOLLIN, .data.fd = due};
    struct epoll_event wait_requests = {.events = EPOLLIN, .data.fd = requests};
    if (loop < 0 || requests < 0 || due < 0 || timerfd_settime(requests, 0, &every, NULL) != 0 ||
        epoll_ctl(loop, EPOLL_CTL_ADD, due, &wait_due) != 0 ||
        epoll_ctl(loop, EPOLL_CTL_ADD, requests, &wait_requests) != 0) {
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
    const weir_limit limit = {.algorithm = WEIR_TOKEN_BUCKET, .limit = 100, .period_ns = 1000000000, .burst = 10};
    const weir_policy policy = {.name = "api", .limits = &limit, .limit_count = 1};
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
