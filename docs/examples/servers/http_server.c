/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An HTTP/1.1 server with a thread for each processor. Each thread has a listening socket of its own (SO_REUSEPORT), an
 * epoll loop, and a handle of weir; the threads share nothing but the limits. Connections are kept alive, requests may
 * be pipelined, and a client that is slow to send or to read holds nothing up and is closed in the end.
 *
 *   http_server [PORT [LIMIT [PERIOD_S [REDIS_URL]]]]    port 0: any; 100 requests in 1 second for each client address
 *
 * SIGTERM and SIGINT drain: nothing is accepted any more, requests under way are answered, then the server ends.
 */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <weir/weir.h>

#include "http.h"

enum { EVENTS = 64, IN = HTTP_HEAD_MAX + 1, OUT = 16384, TIMEOUT_S = 10, THREADS_MAX = 256 };

struct connection {
    struct connection *next, *before; /* by deadline, the earliest first: each begins with the same time */
    int fd;
    bool closes;        /* once all that is in `out` is sent */
    bool waits_to_send; /* the client reads slowly; nothing is read of it meanwhile */
    time_t deadline_s;  /* for the next request to come, and for its answer to go */
    uint8_t client[16]; /* its address; of IPv6 the first 8 bytes, as a client has a whole /64 */
    weir_key key;
    size_t in_size, skip, out_size, out_sent; /* skip: bytes of a body that are still to come */
    char in[IN], out[OUT];
};

struct server {
    pthread_t thread;
    int listener, loop;
    bool draining, full; /* full: there were no descriptors for more connections */
    weir_thread *limits;
    struct connection list; /* its ring */
};

static weir *w;
static weir_policy_id api;
static int stop; /* readable when the server is to end */

static time_t now_s(void)
{
    struct timespec now;
    (void) clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec;
}

/* Gives the client time for another request: moves the connection to the end of the list. */
static void renew(struct server *server, struct connection *c)
{
    c->next->before = c->before;
    c->before->next = c->next;
    c->deadline_s = now_s() + TIMEOUT_S;
    c->next = &server->list;
    c->before = server->list.before;
    c->before->next = c->next->before = c;
}

static void drop(struct connection *c)
{
    c->next->before = c->before;
    c->before->next = c->next;
    (void) close(c->fd);
    free(c);
}

static int watch(int loop, int fd, int operation, uint32_t events, void *of)
{
    struct epoll_event event = {.events = events, .data = {.ptr = of}};
    return epoll_ctl(loop, operation, fd, &event);
}

/* The limiting: one check for each request, and what the client is told about it. `status`: what the parser said. */
static void serve(struct server *server, struct connection *c, struct http_request *request, int status)
{
    weir_verdict verdict;
    char fields[512] = "";
    if (status == 200) {
        status = weir_check(server->limits, &c->key, 1, &verdict) ? 200 : 429;
        (void) weir_write_headers(WEIR_HEADERS_DRAFT_11, w, api, &verdict, fields, sizeof fields);
    } else {
        request->keep_alive = false; /* where the next request begins is not known */
    }
    request->keep_alive = request->keep_alive && !server->draining;
    c->out_size += http_answer(c->out + c->out_size, request, status, fields);
    c->closes = !request->keep_alive;
    c->skip = request->body_size;
    renew(server, c);
}

static void take(struct connection *c, size_t size)
{
    c->in_size -= size;
    memmove(c->in, c->in + size, c->in_size);
}

/* Answers the requests that are there, as far as there is room for answers. */
static void answer(struct server *server, struct connection *c)
{
    while (!c->closes && c->in_size != 0 && OUT - c->out_size >= HTTP_ANSWER_MAX) {
        const size_t skipped = c->skip < c->in_size ? c->skip : c->in_size;
        struct http_request request = {.keep_alive = false};
        take(c, skipped);
        c->skip -= skipped;
        const int status = http_parse(c->in, c->in_size, &request);
        if (status == 0) {
            return;
        }
        serve(server, c, &request, status);
        take(c, request.head_size);
    }
}

/* False: the client is gone. */
static bool send_out(struct connection *c)
{
    while (c->out_sent < c->out_size) {
        const ssize_t sent = send(c->fd, c->out + c->out_sent, c->out_size - c->out_sent, MSG_NOSIGNAL);
        if (sent < 0) {
            return errno == EAGAIN || errno == EINTR;
        }
        c->out_sent += (size_t) sent;
    }
    c->out_sent = c->out_size = 0;
    return true;
}

/* Reads, answers and sends until one of them has to wait. False: the connection is over. */
static bool go_on(struct server *server, struct connection *c)
{
    if (!send_out(c)) {
        return false;
    }
    while (c->out_size == 0 && !c->closes) {
        if (c->in_size < IN) {
            const ssize_t got = recv(c->fd, c->in + c->in_size, IN - c->in_size, 0);
            if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
                return false;
            }
            if (got < 0) {
                break;
            }
            c->in_size += (size_t) got;
        }
        do { /* what was pipelined, with room for answers once the last ones are sent */
            answer(server, c);
        } while (c->out_size != 0 && send_out(c) && c->out_size == 0 && c->in_size != 0);
    }
    if (c->closes && c->out_size == 0) {
        (void) shutdown(c->fd, SHUT_WR); /* the client reads the answer before it sees a reset */
        while (recv(c->fd, c->in, IN, 0) > 0) {
        }
        return false;
    }
    const bool waits = c->out_size != 0;
    if (waits != c->waits_to_send) {
        c->waits_to_send = waits;
        return watch(server->loop, c->fd, EPOLL_CTL_MOD, waits ? EPOLLOUT : EPOLLIN, c) == 0;
    }
    return !server->draining || c->in_size != 0 || waits;
}

/* Takes all new connections. Where there are no descriptors left, looks again once a turn of the loop has ended. */
static void accept_all(struct server *server)
{
    struct sockaddr_storage from;
    int fd;
    for (socklen_t size = sizeof from;
         (fd = accept4(server->listener, (struct sockaddr *) &from, &size, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0;
         size = sizeof from) {
        struct connection *c = (struct connection *) calloc(1, sizeof *c);
        if (c == NULL || watch(server->loop, fd, EPOLL_CTL_ADD, EPOLLIN, c) != 0) {
            free(c);
            (void) close(fd);
            continue;
        }
        c->fd = fd;
        c->next = c->before = c;
        c->key = weir_make_key(w, api, c->client, weir_address_key((const struct sockaddr *) &from, 64, c->client));
        renew(server, c);
    }
    if (errno == EMFILE || errno == ENFILE) {
        server->full = watch(server->loop, server->listener, EPOLL_CTL_MOD, 0, server) == 0;
    }
}

static void drain(struct server *server)
{
    server->draining = true;
    accept_all(server); /* these have connected: closing the socket would reset them */
    (void) close(server->listener);
    (void) epoll_ctl(server->loop, EPOLL_CTL_DEL, stop, NULL);
    for (struct connection *c = server->list.next, *next = NULL; c != &server->list; c = next) {
        next = c->next;
        if (!go_on(server, c)) {
            drop(c);
        }
    }
}

static void *run(void *arg)
{
    struct server *server = (struct server *) arg;
    server->limits = weir_attach(w); /* NULL, where max_threads are attached: then all requests pass */
    while (!server->draining || server->list.next != &server->list) {
        struct epoll_event events[EVENTS];
        const int count = epoll_wait(server->loop, events, EVENTS, 1000);
        bool stops = false;
        for (int i = 0; i < count; i++) {
            if (events[i].data.ptr == &stop) {
                stops = true; /* behind the others: it drops connections that may have events here */
            } else if (events[i].data.ptr == server) {
                accept_all(server);
            } else if (!go_on(server, (struct connection *) events[i].data.ptr)) {
                drop((struct connection *) events[i].data.ptr);
            }
        }
        if (stops) {
            drain(server);
        }
        for (const time_t now = now_s(); server->list.next != &server->list && server->list.next->deadline_s <= now;) {
            drop(server->list.next);
        }
        if (server->full && !server->draining) {
            server->full = watch(server->loop, server->listener, EPOLL_CTL_MOD, EPOLLIN, server) != 0;
        }
    }
    (void) close(server->loop);
    weir_detach(server->limits);
    return NULL;
}

static int open_limits(int argc, char **argv)
{
    weir_options options = WEIR_OPTIONS_INIT;
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
    return 0;
}

int main(int argc, char **argv)
{
    static struct server servers[THREADS_MAX];
    const long processors = sysconf(_SC_NPROCESSORS_ONLN);
    const int count = processors < 1 ? 1 : processors > THREADS_MAX ? THREADS_MAX : (int) processors;
    uint16_t port = (uint16_t) (argc > 1 ? atoi(argv[1]) : 8080);
    sigset_t ends; /* blocked before there are threads: all of them inherit that */
    (void) sigemptyset(&ends);
    (void) sigaddset(&ends, SIGINT);
    (void) sigaddset(&ends, SIGTERM);
    (void) pthread_sigmask(SIG_BLOCK, &ends, NULL);
    if (open_limits(argc, argv) != 0) {
        return 1;
    }
    stop = eventfd(0, EFD_CLOEXEC);
    for (int i = 0; i < count; i++) {
        struct server *server = &servers[i];
        server->list.next = server->list.before = &server->list;
        server->listener = http_listen(&port);
        server->loop = epoll_create1(EPOLL_CLOEXEC);
        if (stop < 0 || server->listener < 0 || server->loop < 0 ||
            watch(server->loop, server->listener, EPOLL_CTL_ADD, EPOLLIN, server) != 0 ||
            watch(server->loop, stop, EPOLL_CTL_ADD, EPOLLIN, &stop) != 0 ||
            pthread_create(&server->thread, NULL, run, server) != 0) {
            return perror("http_server"), 1;
        }
    }
    printf("http://127.0.0.1:%u/\n", (unsigned) port);
    (void) fflush(stdout);
    int signal_number = 0;
    (void) sigwait(&ends, &signal_number);
    (void) eventfd_write(stop, 1); /* readable for all threads, as nobody reads it */
    for (int i = 0; i < count; i++) {
        (void) pthread_join(servers[i].thread, NULL);
    }
    weir_close(w);
}
