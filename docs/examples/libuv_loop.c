/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weir in a libuv loop without a thread of its own: a uv_poll_t on weir_poll_fd, and nothing else. Two checks every
 * 10 ms, 200 a second, against 100 a second, for half a second. With an argument, such as redis://127.0.0.1, the limit
 * is the fleet's.
 */
#include <stdint.h>
#include <stdio.h>
#include <uv.h>
#include <weir/weir.h>

struct server {
    weir *w;
    weir_thread *thread;
    weir_key key;
    uv_poll_t due;
    uv_timer_t requests;
    unsigned asked, served;
};

static void on_due(uv_poll_t *handle, int status, int events)
{
    struct server *server = (struct server *) handle->data;
    (void) status;
    (void) events;
    (void) weir_poll(server->w);
}

/* Stands for a socket on which requests come in. */
static void on_requests(uv_timer_t *timer)
{
    struct server *server = (struct server *) timer->data;
    server->served += weir_check(server->thread, &server->key, 1, NULL);
    server->served += weir_check(server->thread, &server->key, 1, NULL);
    server->asked += 2;
    if (server->asked >= 100) { /* the loop ends when it has no handle left */
        uv_close((uv_handle_t *) timer, NULL);
        uv_close((uv_handle_t *) &server->due, NULL);
    }
}

static int run(struct server *server)
{
    uv_loop_t loop;
    const int fd = weir_poll_fd(server->w);
    if (fd < 0 || uv_loop_init(&loop) != 0) {
        return fprintf(stderr, "no descriptors to be had\n"), -1;
    }
    server->due.data = server->requests.data = server;
    if (uv_poll_init(&loop, &server->due, fd) != 0 || uv_poll_start(&server->due, UV_READABLE, on_due) != 0 ||
        uv_timer_init(&loop, &server->requests) != 0 || uv_timer_start(&server->requests, on_requests, 10, 10) != 0 ||
        uv_run(&loop, UV_RUN_DEFAULT) != 0) {
        return fprintf(stderr, "the loop does not run\n"), -1;
    }
    return uv_loop_close(&loop);
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
