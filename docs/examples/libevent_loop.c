/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weir in a libevent loop without a thread of its own: an event on weir_poll_fd, and nothing else. Two checks every
 * 10 ms, 200 a second, against 100 a second, for half a second. With an argument, such as redis://127.0.0.1, the limit
 * is the fleet's.
 */
#include <event2/event.h>
#include <stdint.h>
#include <stdio.h>
#include <weir/weir.h>

struct server {
    weir *w;
    weir_thread *thread;
    weir_key key;
    struct event_base *base;
    unsigned asked, served;
};

static void on_due(evutil_socket_t fd, short events, void *arg)
{
    struct server *server = (struct server *) arg;
    (void) fd;
    (void) events;
    (void) weir_poll(server->w);
}

/* Stands for a socket on which requests come in. */
static void on_requests(evutil_socket_t fd, short events, void *arg)
{
    struct server *server = (struct server *) arg;
    (void) fd;
    (void) events;
    server->served += weir_check(server->thread, &server->key, 1, NULL);
    server->served += weir_check(server->thread, &server->key, 1, NULL);
    server->asked += 2;
    if (server->asked >= 100) {
        (void) event_base_loopbreak(server->base);
    }
}

static int run(struct server *server)
{
    const struct timeval every = {0, 10000};
    const int fd = weir_poll_fd(server->w);
    server->base = event_base_new();
    if (fd < 0 || server->base == NULL) {
        return fprintf(stderr, "no descriptors to be had\n"), -1;
    }
    struct event *due = event_new(server->base, fd, EV_READ | EV_PERSIST, on_due, server);
    struct event *requests = event_new(server->base, -1, EV_PERSIST, on_requests, server);
    if (due == NULL || requests == NULL || event_add(due, NULL) != 0 || event_add(requests, &every) != 0 ||
        event_base_dispatch(server->base) != 0) {
        return fprintf(stderr, "the loop does not run\n"), -1;
    }
    event_free(due); /* before weir_close, which closes the descriptor */
    event_free(requests);
    event_base_free(server->base);
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
    static struct server server;
    weir_error error;
    if (weir_open(&options, &server.w, &error) != 0 || weir_set_policies(server.w, &policy, 1, &error) != 0) {
        return fprintf(stderr, "%s\n", error.message), 1;
    }
    if (options.redis_url != NULL && weir_sync(server.w, 1000) != 0) { /* hears of the other nodes before it serves */
        printf("no answer of Redis: it serves by its own counts until there is one\n");
    }
    server.thread = weir_attach(server.w);
    if (server.thread == NULL) {
        return fprintf(stderr, "as many threads are attached as max_threads allows\n"), 1;
    }
    server.key = weir_make_key(server.w, weir_find_policy(server.w, "api"), "198.51.100.7", 12);
    const int result = run(&server);
    weir_stats stats;
    weir_get_stats(server.w, &stats);
    printf("%u asked, %u served; %llu syncs, the last in %llu us\n", server.asked, server.served,
           (unsigned long long) stats.sync_count, (unsigned long long) stats.round_trip_ns / 1000);
    weir_detach(server.thread);
    weir_close(server.w);
    return result != 0;
}
