/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A server of libevent's evhttp, in whose loop weir has no thread of its own: an event on weir_poll_fd does the
 * thread's work. evhttp reads requests, refuses malformed ones, and closes slow clients.
 *
 *   libevent_server [PORT [LIMIT [PERIOD_S [REDIS_URL]]]]    port 0: any; 100 requests in 1 second for each address
 *
 * SIGTERM and SIGINT drain: nothing is accepted any more, and connections end with their next answer. The server ends
 * when no request has come for a second.
 */
#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/http.h>
#include <signal.h>
#include <stdlib.h>
#include <weir/weir.h>

#include "http.h"

enum { TIMEOUT_S = 10, QUIET_S = 1 };

struct server {
    weir *w;
    weir_thread *limits;
    weir_policy_id api;
    struct event_base *base;
    struct evhttp *http;
    struct evhttp_bound_socket *listener;
    struct event *due, *terminated, *interrupted;
    bool draining;
};

static void on_due(evutil_socket_t fd, short events, void *arg)
{
    (void) fd, (void) events;
    (void) weir_poll(((struct server *) arg)->w);
}

static void on_signal(evutil_socket_t fd, short events, void *arg)
{
    (void) fd, (void) events;
    (void) event_base_loopbreak(((struct server *) arg)->base);
}

/* Gives the lines that weir writes, "Name: value\r\n", to a library that wants name and value. */
static void add_fields(struct evkeyvalq *headers, char *fields)
{
    char *rest = fields;
    for (char *line = strtok_r(fields, "\r\n", &rest); line != NULL; line = strtok_r(NULL, "\r\n", &rest)) {
        char *value = strstr(line, ": ");
        if (value != NULL) {
            *value = '\0';
            (void) evhttp_add_header(headers, line, value + 2);
        }
    }
}

/* The limiting: one check for each request, and what the client is told about it. */
static void on_request(struct evhttp_request *request, void *arg)
{
    struct server *server = (struct server *) arg;
    struct evhttp_connection *connection = evhttp_request_get_connection(request);
    const struct sockaddr *from = connection != NULL ? evhttp_connection_get_addr(connection) : NULL;
    if (from == NULL) {
        evhttp_send_error(request, HTTP_SERVUNAVAIL, NULL); /* the client is gone */
        return;
    }
    uint8_t client[16]; /* a client of IPv6 has a whole /64 */
    char fields[512] = "";
    weir_verdict verdict;
    const size_t client_size = weir_address_key(from, 64, client);
    const weir_key key = weir_make_key(server->w, server->api, client, client_size);
    const int status = weir_check(server->limits, &key, 1, &verdict) ? 200 : 429;
    (void) weir_write_headers(WEIR_HEADERS_DRAFT_11, server->w, server->api, &verdict, fields, sizeof fields);

    struct evkeyvalq *headers = evhttp_request_get_output_headers(request);
    struct evbuffer *body = evhttp_request_get_output_buffer(request);
    add_fields(headers, fields);
    (void) evhttp_add_header(headers, "Content-Type", "text/plain");
    if (server->draining) {
        (void) evhttp_add_header(headers, "Connection", "close");
    }
    if (evhttp_request_get_command(request) != EVHTTP_REQ_HEAD) { /* evhttp would send a body with that as well */
        (void) evbuffer_add_printf(body, "%s\n", status == 200 ? "served" : http_reason(status));
    }
    evhttp_send_reply(request, status, http_reason(status), NULL);
    if (server->draining) {
        const struct timeval quiet = {QUIET_S, 0};
        (void) event_base_loopexit(server->base, &quiet); /* a later moment than the one before */
    }
}

static bool open_limits(struct server *server, int argc, char **argv)
{
    weir_options options = WEIR_OPTIONS_INIT;
    options.no_thread = true;
    options.redis_url = argc > 4 ? argv[4] : NULL;
    weir_limit limit = WEIR_LIMIT_INIT;
    limit.algorithm = WEIR_TOKEN_BUCKET;
    limit.limit = argc > 2 ? strtoull(argv[2], NULL, 10) : 100;
    limit.period_ns = (argc > 3 ? strtoull(argv[3], NULL, 10) : 1) * UINT64_C(1000000000);
    weir_policy policy = WEIR_POLICY_INIT;
    policy.name = "api";
    policy.limits = &limit;
    policy.limit_count = 1;
    weir_error error;
    if (weir_open(&options, &server->w, &error) != 0 || weir_set_policies(server->w, &policy, 1, &error) != 0 ||
        weir_set_key_form(server->w, "api", weir_address_form(64), &error) != 0) {
        return fprintf(stderr, "%s\n", error.message), false;
    }
    server->api = weir_find_policy(server->w, "api");
    if (options.redis_url != NULL) {
        (void) weir_sync(server->w, 1000); /* hears of the other nodes before it serves; if not, it serves as well */
    }
    server->limits = weir_attach(server->w);
    return true;
}

static bool start(struct server *server, uint16_t *port)
{
    const int weir_fd = weir_poll_fd(server->w), listener = http_listen(port);
    server->base = event_base_new();
    server->http = server->base != NULL ? evhttp_new(server->base) : NULL;
    if (weir_fd < 0 || listener < 0 || server->http == NULL) {
        return false;
    }
    evhttp_set_timeout(server->http, TIMEOUT_S);
    evhttp_set_max_headers_size(server->http, HTTP_HEAD_MAX);
    evhttp_set_max_body_size(server->http, HTTP_BODY_MAX);
    evhttp_set_gencb(server->http, on_request, server);
    server->listener = evhttp_accept_socket_with_handle(server->http, listener);
    server->due = event_new(server->base, weir_fd, EV_READ | EV_PERSIST, on_due, server);
    server->terminated = evsignal_new(server->base, SIGTERM, on_signal, server);
    server->interrupted = evsignal_new(server->base, SIGINT, on_signal, server);
    return server->listener != NULL && server->due != NULL && server->terminated != NULL &&
           server->interrupted != NULL && event_add(server->due, NULL) == 0 &&
           evsignal_add(server->terminated, NULL) == 0 && evsignal_add(server->interrupted, NULL) == 0;
}

static void drain(struct server *server)
{
    const struct timeval quiet = {QUIET_S, 0};
    server->draining = true;
    (void) event_base_loop(server->base, EVLOOP_NONBLOCK); /* these have connected: closing would reset them */
    evhttp_del_accept_socket(server->http, server->listener);
    (void) event_base_loopexit(server->base, &quiet);
    (void) event_base_dispatch(server->base);
}

int main(int argc, char **argv)
{
    static struct server server;
    uint16_t port = (uint16_t) (argc > 1 ? atoi(argv[1]) : 8080);
    (void) signal(SIGPIPE, SIG_IGN);
    if (!open_limits(&server, argc, argv)) {
        return 1;
    }
    if (!start(&server, &port)) {
        return perror("libevent_server"), 1;
    }
    printf("http://127.0.0.1:%u/\n", (unsigned) port);
    (void) fflush(stdout);
    (void) event_base_dispatch(server.base);
    drain(&server);
    evhttp_free(server.http);
    event_free(server.interrupted);
    event_free(server.terminated);
    event_free(server.due); /* before weir_close, which closes the descriptor */
    event_base_free(server.base);
    libevent_global_shutdown();
    weir_detach(server.limits);
    weir_close(server.w);
}
