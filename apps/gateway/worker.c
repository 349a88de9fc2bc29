/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One thread: its own listening socket, its own sessions, its own weir_thread. It receives a burst, asks which of its
 * packets may pass (decision.c), forwards those on the client's own socket to the backend, and carries the backend's
 * replies home through the socket the client knows. Packets that the kernel merged
 * are checked one by one, and leave merged as far as they may leave.
 *
 * Order within a turn: replies first, then what is new of the backends, then clients. Only the last two end sessions,
 * so the sessions that epoll named stay what they were until their replies are sent.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "burst.h"
#include "clock.h"
#include "decision.h"
#include "gateway.h"
#include "local.h"
#include "log.h"
#include "offload.h"
#include "outbox.h"
#include "proxy.h"
#include "refusal.h"
#include "session.h"

#define DRAIN_MS 100
#define LEAVE_MS 2000
#define WAIT_MS  50
#define EVENTS   64
/* Every so many seconds sizes that were too large for a path are tried again in segments. */
#define SIZES_SECONDS 60

/* What a worker works with. */
struct loop {
    struct worker *worker;
    struct decision decision;
    struct session_table sessions;
    uint32_t now, sizes_forgotten;        /* seconds */
    uint64_t merged, without_session;     /* packets */
    uint64_t refused;                     /* errors of the backend's sockets when they were read or opened */
    uint64_t sent_before, refused_before; /* of `to_backend`, at the end of the last run */
    struct backends_view view;
    unsigned char proxy_header[PROXY_HEADER_MAX]; /* of the client whose packets wait in `to_backend` */
    bool asks_local;                              /* the socket is on every address: see local.h */
    struct in6_addr locals[BURST_COUNT];          /* of the messages in `requests` */
    struct datagram datagrams[BURST_COUNT];       /* of the burst at hand, as many as are dealt with at once */
    size_t run;                    /* message of the client whose packets wait in `to_backend`; or NO_RUN */
    const struct session *session; /* of that client; NULL: none to be had */
    size_t reply_count;            /* messages of `replies` whose packets wait in `to_clients` */
    struct outbox to_backend, to_clients;
    struct burst requests, replies;
};

#define NO_RUN SIZE_MAX

static uint32_t now_seconds(void)
{
    struct timespec now;
    (void) clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (uint32_t) now.tv_sec;
}

static bool is_same_client(const struct loop *loop, size_t a, size_t b)
{
    return a == b || (address_is_same(&loop->requests.from[a], &loop->requests.from[b]) &&
                      IN6_ARE_ADDR_EQUAL(&loop->locals[a], &loop->locals[b]));
}

/* A backend's socket, or the opening of one, has told an error. */
static void refused(struct loop *loop, uint8_t backend, int error)
{
    if (is_refusal(error)) {
        loop->refused++;
        view_note_refusals(&loop->view, backend, 1, error, loop->now);
    }
}

/* The header for the packets of a client, with --proxy-protocol. */
static void introduce(struct loop *loop, const struct client *client)
{
    const struct gateway_options *options = &loop->worker->gateway->options;
    struct address asked = options->listen;
    if (!options->proxy_protocol) {
        return;
    }
    if (loop->asks_local && asked.u.any.sa_family == AF_INET) {
        memcpy(&asked.u.v4.sin_addr, &client->local.s6_addr[12], 4);
    } else if (loop->asks_local) {
        asked.u.v6.sin6_addr = client->local;
    }
    loop->to_backend.prefix = loop->proxy_header;
    loop->to_backend.prefix_size = proxy_header(&client->address, &asked, loop->proxy_header);
}

/* Sends what waits of the client at hand, and notes what its backend made of it. */
static void end_run(struct loop *loop)
{
    struct outbox *box = &loop->to_backend;
    outbox_flush(box);
    if (loop->session != NULL) {
        const uint8_t backend = loop->session->backend;
        view_note_sent(&loop->view, backend, box->sent - loop->sent_before, loop->now);
        if (box->refused != loop->refused_before) {
            view_note_refusals(&loop->view, backend, box->refused - loop->refused_before, box->refusal, loop->now);
        }
    }
    loop->sent_before = box->sent;
    loop->refused_before = box->refused;
    loop->session = NULL;
    loop->run = NO_RUN;
}

/*
 * Begins the packets of the next client, which go to its own socket. The packets of the client before are sent first.
 */
static void next_run(struct loop *loop, size_t message)
{
    end_run(loop);
    const struct client client = {loop->requests.from[message], loop->locals[message]};
    loop->session = session_of(&loop->sessions, &client, loop->now); /* may end another session, so after the flush */
    introduce(loop, &client);
    if (loop->session == NULL) {
        refused(loop, loop->sessions.tried, errno);
    }
    loop->to_backend.fd = loop->session != NULL ? loop->session->fd : -1;
    loop->run = message;
}

/* Forwards the packets whose bits are set. What one client sent in a row goes out in one call, when the run ends. */
static void forward(struct loop *loop, uint64_t passing)
{
    for (uint64_t left = passing; left != 0; left &= left - 1) {
        const struct datagram *datagram = &loop->datagrams[__builtin_ctzll(left)];
        if (loop->run == NO_RUN || !is_same_client(loop, loop->run, datagram->message)) {
            next_run(loop, datagram->message);
        }
        if (loop->session != NULL) {
            outbox_add(&loop->to_backend, datagram, NULL, NULL);
        } else {
            loop->without_session++;
        }
    }
}

/* How many of the datagrams did not come alone. */
static size_t count_merged(const struct burst *burst, const struct datagram *datagrams, size_t count)
{
    size_t merged = 0;
    for (size_t i = 0; i < count; i++) {
        const size_t message = datagrams[i].message;
        merged += burst->segments[message] < burst->messages[message].msg_len;
    }
    return merged;
}

/* One burst from the clients. False: there was none. */
static bool receive(struct loop *loop)
{
    struct burst *requests = &loop->requests;
    const size_t received = burst_receive(requests, loop->worker->listen_fd, 0, NULL);
    for (size_t i = 0; i < received && loop->asks_local; i++) {
        loop->locals[i] = local_of(&requests->messages[i].msg_hdr);
    }
    struct burst_cursor cursor = {0};
    size_t count;
    while ((count = burst_split(requests, received, &cursor, loop->datagrams)) != 0) {
        loop->merged += count_merged(requests, loop->datagrams, count);
        forward(loop, decision_make(&loop->decision, count));
    }
    end_run(loop);
    burst_ready(requests, 0, received, true);
    return received != 0;
}

/* Sends the replies that were gathered, of many clients in one call. */
static void flush_replies(struct loop *loop)
{
    outbox_flush(&loop->to_clients);
    burst_ready(&loop->replies, 0, loop->reply_count, false);
    loop->reply_count = 0;
}

/* Gathers replies of one session. */
static void gather(struct loop *loop, struct session *session)
{
    struct burst *replies = &loop->replies;
    const size_t first = loop->reply_count;
    int error;
    const size_t received = burst_receive(replies, session->fd, first, &error);
    if (received == 0) {
        refused(loop, session->backend, error);
        return;
    }
    session_touch(&loop->sessions, session, loop->now);
    struct burst_cursor cursor = {.message = first};
    size_t count;
    size_t packets = 0;
    while ((count = burst_split(replies, first + received, &cursor, loop->datagrams)) != 0) {
        loop->merged += count_merged(replies, loop->datagrams, count);
        packets += count;
        for (size_t i = 0; i < count; i++) {
            outbox_add(&loop->to_clients, &loop->datagrams[i], &session->client.address, &session->client.local);
        }
    }
    view_note_replies(&loop->view, session->backend, packets, loop->now);
    loop->reply_count += received;
    if (loop->reply_count == BURST_COUNT) {
        flush_replies(loop);
    }
}

static void publish(_Atomic uint64_t *counter, uint64_t value)
{
    atomic_store_explicit(counter, value, memory_order_relaxed);
}

/* Copies the counts of the thread's parts to where the gateway's other threads can read them. */
static void publish_counters(struct loop *loop)
{
    struct counters *counters = &loop->worker->counters;
    const struct outbox *to_backend = &loop->to_backend;
    const struct outbox *to_clients = &loop->to_clients;
    publish(&counters->unsendable, to_backend->added - to_backend->sent + loop->without_session);
    publish(&counters->refused, to_backend->refused + loop->refused);
    publish(&counters->replies, to_clients->sent);
    publish(&counters->replied_bytes, to_clients->sent_bytes);
    publish(&counters->lost_replies, to_clients->added - to_clients->sent);
    publish(&counters->sessions, loop->sessions.count);
    publish(&counters->sessions_evicted, loop->sessions.evicted);
    publish(&counters->sessions_moved, loop->sessions.moved);
    publish(&counters->segments, to_backend->segments && to_clients->segments);
    publish(&counters->merged, loop->merged);
    publish(&counters->segmented, to_backend->segmented + to_clients->segmented);
}

/* Learns what is new of the backends. */
static void update_backends(struct loop *loop)
{
    if (view_update(&loop->view)) {
        session_end_gone(&loop->sessions);
        view_settled(&loop->view);
    }
}

/* Waits and works once. Whether packets came from clients. */
static bool turn(struct loop *loop, int wait_ms)
{
    struct epoll_event events[EVENTS];
    const int count = epoll_wait(loop->worker->epoll_fd, events, EVENTS, wait_ms);
    bool clients = false;
    loop->now = loop->decision.now = now_seconds();
    for (int i = 0; i < count; i++) {
        struct session *session = events[i].data.ptr;
        if (session == NULL) {
            clients = true;
        } else {
            gather(loop, session);
        }
    }
    flush_replies(loop);
    update_backends(loop);
    const bool received = clients && receive(loop);
    session_expire(&loop->sessions, loop->now, loop->worker->gateway->options.idle_seconds);
    if (loop->now - loop->sizes_forgotten >= SIZES_SECONDS) {
        loop->sizes_forgotten = loop->now;
        outbox_forget_sizes(&loop->to_backend);
        outbox_forget_sizes(&loop->to_clients);
    }
    publish_counters(loop);
    bump(&loop->worker->counters.turns, 1);
    return received;
}

/*
 * Ends the thread's work without losing a packet that the kernel has given it: first the socket leaves those that share
 * its address, so that others get what comes from now on, then what it holds is served, and last the replies to that
 * come home. What the kernel was just giving it when it left arrives within microseconds.
 */
static void leave(struct loop *loop)
{
    struct worker *worker = loop->worker;
    const struct gateway_options *options = &worker->gateway->options;
    const uint64_t start_ns = clock_ns();
    uint64_t until_ns = start_ns + DRAIN_MS * UINT64_C(1000000);
    const bool has_left = address_leave(worker->listen_fd, &options->listen) == 0;
    if (!has_left) {
        log_line(WEIR_LOG_WARNING, "--listen %s: packets that come now may be lost: %s", options->listen_text,
                 strerror(errno));
    }
    while (clock_ns() < until_ns) {
        if (turn(loop, DRAIN_MS / 10) && has_left && clock_ns() - start_ns < LEAVE_MS * UINT64_C(1000000)) {
            until_ns = clock_ns() + DRAIN_MS * UINT64_C(1000000);
        }
    }
}

/* Asks this kernel for what offload.h has, unless the options refuse it. */
static void open_offload(struct worker *worker, const struct gateway_options *options)
{
    struct loop *loop = worker->loop;
    const bool segments = options->offload && offload_can_send(worker->listen_fd);
    outbox_open(&loop->to_backend, -1, options->listen.u.any.sa_family, segments);
    outbox_open(&loop->to_clients, worker->listen_fd, options->listen.u.any.sa_family, segments);
    publish(&worker->counters.merges, options->offload && offload_receive(worker->listen_fd));
    publish(&worker->counters.segments, segments);
}

int worker_open(struct worker *worker, struct gateway *gateway)
{
    const struct gateway_options *options = &gateway->options;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    worker->gateway = gateway;
    worker->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    worker->listen_fd = address_bind_udp(&options->listen);
    if (worker->listen_fd < 0) {
        log_line(WEIR_LOG_ERROR, "--listen %s: %s", options->listen_text, strerror(errno));
        worker_close(worker);
        return -1;
    }
    struct loop *loop = calloc(1, sizeof(*loop)); /* too large for a stack; what no packet touches stays unbacked */
    worker->loop = loop;
    int result = loop != NULL ? 0 : -ENOMEM;
    if (result == 0) {
        loop->worker = worker;
        loop->asks_local = address_is_any(&options->listen);
        loop->run = NO_RUN;
        view_init(&loop->view, &gateway->backends, &worker->reports);
        loop->decision.xdp.xdp = gateway->xdp;
        loop->decision.record = record_view(gateway->record, (unsigned) (worker - gateway->workers));
        loop->decision.listen = &options->listen;
        loop->decision.locals = loop->asks_local ? loop->locals : NULL;
        decision_open(&loop->decision, gateway, &worker->counters, &loop->requests, loop->datagrams);
        burst_ready(&loop->requests, 0, BURST_COUNT, true);
        burst_ready(&loop->replies, 0, BURST_COUNT, false);
        open_offload(worker, options);
        result =
            session_table_open(&loop->sessions, options->sessions, &loop->view, worker->epoll_fd, options->offload);
        loop->sessions.transparent = options->transparent;
    }
    if (result == 0 &&
        (worker->epoll_fd < 0 || epoll_ctl(worker->epoll_fd, EPOLL_CTL_ADD, worker->listen_fd, &event) != 0 ||
         (loop->asks_local && local_ask(worker->listen_fd, options->listen.u.any.sa_family) != 0))) {
        result = -errno;
    }
    if (result != 0) {
        log_line(WEIR_LOG_ERROR, "cannot start a thread with %u sessions: %s", options->sessions, strerror(-result));
        worker_close(worker);
        return -1;
    }
    return 0;
}

void worker_close(struct worker *worker)
{
    if (worker->loop != NULL) {
        session_table_close(&worker->loop->sessions);
        free(worker->loop);
        worker->loop = NULL;
    }
    (void) close(worker->listen_fd);
    (void) close(worker->epoll_fd);
}

void *worker_main(void *arg)
{
    struct worker *worker = arg;
    struct gateway *gateway = worker->gateway;
    struct loop *loop = worker->loop;
    if (gateway->weir != NULL) {
        loop->decision.limits = weir_attach(gateway->weir);
        if (loop->decision.limits == NULL) {
            /* Without it this thread would let everything pass. */
            log_line(WEIR_LOG_ERROR, "a thread could not be attached to the limits");
            atomic_store(&gateway->failed, true);
            (void) kill(getpid(), SIGTERM);
            return NULL;
        }
    }
    while (!atomic_load_explicit(&gateway->stopping, memory_order_relaxed)) {
        (void) turn(loop, WAIT_MS);
    }
    leave(loop);
    weir_detach(loop->decision.limits);
    return NULL;
}
