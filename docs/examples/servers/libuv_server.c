/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An HTTP/1.1 server in a libuv loop, in which weir has no thread of its own: a uv_poll_t on weir_poll_fd does the
 * thread's work. Requests may be pipelined, and a client that is slow to send or to read is closed in the end.
 *
 *   libuv_server [PORT [LIMIT [PERIOD_S [REDIS_URL]]]]    port 0: any; 100 requests in 1 second for each client address
 *
 * SIGTERM and SIGINT drain: nothing is accepted any more, requests under way are answered, then the server ends.
 */
#include <stdlib.h>
#include <uv.h>
#include <weir/weir.h>

#include "http.h"

enum { TIMEOUT_MS = 10000, QUEUE_MAX = 65536 };

struct connection {
    uv_tcp_t tcp;
    uv_timer_t timer;
    unsigned open_handles; /* tcp and timer: the memory is theirs until both are closed */
    bool closes;           /* once all answers are sent */
    bool paused;           /* the client reads slowly: nothing is read of it until it has read */
    struct connection *next, *before;
    uint8_t client[16]; /* its address; of IPv6 the first 8 bytes, as a client has a whole /64 */
    weir_key key;
    size_t in_size, skip; /* skip: bytes of a body that are still to come */
    char in[HTTP_HEAD_MAX + 1];
};

struct answer {
    uv_write_t write;
    struct connection *connection;
    char bytes[HTTP_ANSWER_MAX];
};

static uv_loop_t loop;
static uv_tcp_t listener;
static uv_poll_t due; /* weir has something to do */
static uv_signal_t signals[2];
static bool draining;
static struct connection list; /* a ring of all connections */
static weir *w;
static weir_thread *limits;
static weir_policy_id api;

static void on_due(uv_poll_t *handle, int status, int events)
{
    (void) handle, (void) status, (void) events;
    (void) weir_poll(w);
}

/* The loop ends when it has no open handle left. */
static void end_if_idle(void)
{
    if (draining && list.next == &list && !uv_is_closing((uv_handle_t *) &due)) {
        uv_close((uv_handle_t *) &due, NULL); /* before weir_close, which closes the descriptor */
    }
}

static void on_closed(uv_handle_t *handle)
{
    struct connection *c = (struct connection *) handle->data;
    if (--c->open_handles == 0) {
        c->next->before = c->before;
        c->before->next = c->next;
        free(c);
        end_if_idle();
    }
}

static void drop(struct connection *c)
{
    if (!uv_is_closing((uv_handle_t *) &c->tcp)) {
        uv_close((uv_handle_t *) &c->tcp, on_closed);
        uv_close((uv_handle_t *) &c->timer, on_closed);
    }
}

static void on_timeout(uv_timer_t *timer)
{
    drop((struct connection *) timer->data);
}

static bool is_idle(const struct connection *c)
{
    return c->in_size == 0 && uv_stream_get_write_queue_size((const uv_stream_t *) &c->tcp) == 0;
}

static void go_on(struct connection *c);

static void on_sent(uv_write_t *write, int status)
{
    struct answer *answer = (struct answer *) (void *) write; /* its first member */
    struct connection *c = answer->connection;
    free(answer);
    if (status == 0 && !uv_is_closing((uv_handle_t *) &c->tcp)) {
        go_on(c);
    } else {
        drop(c);
    }
}

/* The limiting: one check for each request, and what the client is told about it. `status`: what the parser said. */
static bool serve(struct connection *c, struct http_request *request, int status)
{
    struct answer *answer = (struct answer *) malloc(sizeof *answer);
    weir_verdict verdict;
    char fields[512] = "";
    if (answer == NULL) {
        return false;
    }
    if (status == 200) {
        status = weir_check(limits, &c->key, 1, &verdict) ? 200 : 429;
        (void) weir_write_headers(WEIR_HEADERS_DRAFT_11, w, api, &verdict, fields, sizeof fields);
    } else {
        request->keep_alive = false; /* where the next request begins is not known */
    }
    request->keep_alive = request->keep_alive && !draining;
    uv_buf_t buffer = uv_buf_init(answer->bytes, (unsigned) http_answer(answer->bytes, request, status, fields));
    answer->connection = c;
    c->closes = !request->keep_alive;
    c->skip = request->body_size;
    (void) uv_timer_start(&c->timer, on_timeout, TIMEOUT_MS, 0);
    if (uv_write(&answer->write, (uv_stream_t *) &c->tcp, &buffer, 1, on_sent) != 0) {
        free(answer);
        return false;
    }
    return true;
}

static void take(struct connection *c, size_t size)
{
    c->in_size -= size;
    memmove(c->in, c->in + size, c->in_size);
}

/* Answers the requests that are there. False: the connection is over. */
static bool answer_all(struct connection *c)
{
    while (!c->closes && c->in_size != 0 && uv_stream_get_write_queue_size((uv_stream_t *) &c->tcp) < QUEUE_MAX) {
        const size_t skipped = c->skip < c->in_size ? c->skip : c->in_size;
        struct http_request request = {.keep_alive = false};
        take(c, skipped);
        c->skip -= skipped;
        const int status = http_parse(c->in, c->in_size, &request);
        if (status == 0 || !serve(c, &request, status)) {
            return status == 0;
        }
        take(c, request.head_size);
    }
    return true;
}

static void on_room(uv_handle_t *handle, size_t size, uv_buf_t *buffer)
{
    struct connection *c = (struct connection *) handle->data;
    (void) size; /* libuv's guess at what comes */
    *buffer = uv_buf_init(c->in + c->in_size, (unsigned) (sizeof c->in - c->in_size));
}

static void on_read(uv_stream_t *stream, ssize_t got, const uv_buf_t *buffer)
{
    struct connection *c = (struct connection *) stream->data;
    (void) buffer;
    if (got < 0) {
        drop(c);
        return;
    }
    c->in_size += (size_t) got;
    go_on(c);
}

/* Answers, and reads on unless the client has to read first. */
static void go_on(struct connection *c)
{
    if (!answer_all(c)) {
        drop(c);
        return;
    }
    const bool sent = uv_stream_get_write_queue_size((uv_stream_t *) &c->tcp) == 0;
    if (sent && (c->closes || (draining && is_idle(c)))) {
        drop(c);
        return;
    }
    const bool full = uv_stream_get_write_queue_size((uv_stream_t *) &c->tcp) >= QUEUE_MAX;
    const bool pauses = c->closes || full || (c->paused && !sent);
    if (pauses && !c->paused) {
        (void) uv_read_stop((uv_stream_t *) &c->tcp);
    } else if (!pauses && c->paused && uv_read_start((uv_stream_t *) &c->tcp, on_room, on_read) != 0) {
        drop(c);
    }
    c->paused = pauses;
}

static void on_connection(uv_stream_t *server, int status)
{
    struct connection *c = status == 0 ? (struct connection *) calloc(1, sizeof *c) : NULL;
    if (c == NULL) {
        return; /* without memory nothing more is accepted: libuv waits for uv_accept */
    }
    c->tcp.data = c->timer.data = c;
    c->open_handles = 2;
    c->next = &list;
    c->before = list.before;
    c->before->next = list.before = c;
    (void) uv_tcp_init(&loop, &c->tcp); /* they allocate nothing */
    (void) uv_timer_init(&loop, &c->timer);
    struct sockaddr_storage from;
    int size = sizeof from;
    if (uv_accept(server, (uv_stream_t *) &c->tcp) != 0 ||
        uv_tcp_getpeername(&c->tcp, (struct sockaddr *) &from, &size) != 0 ||
        uv_timer_start(&c->timer, on_timeout, TIMEOUT_MS, 0) != 0 ||
        uv_read_start((uv_stream_t *) &c->tcp, on_room, on_read) != 0) {
        drop(c);
        return;
    }
    c->key = weir_make_key(w, api, c->client, weir_address_key((const struct sockaddr *) &from, 64, c->client));
}

static void on_signal(uv_signal_t *handle, int number)
{
    (void) handle, (void) number;
    draining = true;
    uv_close((uv_handle_t *) &listener, NULL);
    uv_close((uv_handle_t *) &signals[0], NULL);
    uv_close((uv_handle_t *) &signals[1], NULL);
    for (struct connection *c = list.next; c != &list; c = c->next) {
        if (is_idle(c)) {
            drop(c);
        }
    }
    end_if_idle();
}

/* Opens the socket and the handles. Returns the port, or a negative error. */
static int start(uint16_t port)
{
    list.next = list.before = &list;
    const int fd = http_listen(&port), weir_fd = weir_poll_fd(w);
    if (fd < 0 || weir_fd < 0) {
        return fd < 0 ? uv_translate_sys_error(errno) : uv_translate_sys_error(-weir_fd);
    }
    int result = uv_loop_init(&loop);
    result = result != 0 ? result : uv_poll_init(&loop, &due, weir_fd);
    result = result != 0 ? result : uv_poll_start(&due, UV_READABLE, on_due);
    for (int i = 0; i < 2 && result == 0; i++) {
        result = uv_signal_init(&loop, &signals[i]);
        result = result != 0 ? result : uv_signal_start(&signals[i], on_signal, i == 0 ? SIGTERM : SIGINT);
    }
    result = result != 0 ? result : uv_tcp_init(&loop, &listener);
    result = result != 0 ? result : uv_tcp_open(&listener, fd);
    result = result != 0 ? result : uv_listen((uv_stream_t *) &listener, SOMAXCONN, on_connection);
    return result != 0 ? result : port;
}

static int open_limits(int argc, char **argv)
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
    if (weir_open(&options, &w, &error) != 0 || weir_set_policies(w, &policy, 1, &error) != 0 ||
        weir_set_key_form(w, "api", weir_address_form(64), &error) != 0) {
        return fprintf(stderr, "%s\n", error.message), -1;
    }
    api = weir_find_policy(w, "api");
    if (options.redis_url != NULL) {
        (void) weir_sync(w, 1000); /* hears of the other nodes before it serves; without an answer it serves as well */
    }
    limits = weir_attach(w);
    return 0;
}

int main(int argc, char **argv)
{
    if (open_limits(argc, argv) != 0) {
        return 1;
    }
    const int port = start((uint16_t) (argc > 1 ? atoi(argv[1]) : 8080));
    if (port < 0) {
        return fprintf(stderr, "libuv_server: %s\n", uv_strerror(port)), 1;
    }
    printf("http://127.0.0.1:%d/\n", port);
    (void) fflush(stdout);
    (void) signal(SIGPIPE, SIG_IGN); /* of a client that is gone libuv hears by EPIPE */
    (void) uv_run(&loop, UV_RUN_DEFAULT);
    (void) uv_loop_close(&loop);
    weir_detach(limits);
    weir_close(w);
}
