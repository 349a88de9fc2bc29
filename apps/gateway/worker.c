/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One thread: its own socket of each listener, its own sessions, its own weir_thread. It receives a burst, asks which
 * of its packets may pass (decision.c), forwards those on the client's own socket to the backend, and carries the
 * backend's replies home through the socket the client knows. Packets that the kernel merged are checked one by one,
 * and leave merged as far as they may leave.
 *
 * Packets may also come and leave by a lane past the network stack (frames.c).
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
#include <unistd.h>

#include "clock.h"
#include "frames.h"
#include "gateway.h"
#include "local.h"
#include "log.h"
#include "loop.h"
#include "offload.h"
#include "run.h"
#include "xsk/forward.h"

#define DRAIN_MS 100
#define WAIT_MS  50
#define EVENTS   64
/* Every so many seconds sizes that were too large for a path are tried again in segments. */
#define SIZES_SECONDS 60

/* Forwards the packets whose bits are set. What one client sent in a row goes out in one call, when the run ends. */
static void forward(struct loop *loop, uint64_t passing)
{
    for (uint64_t left = passing; left != 0; left &= left - 1) {
        const struct datagram *datagram = &loop->datagrams[__builtin_ctzll(left)];
        if (loop->run == NO_RUN || !run_is_same_client(loop, loop->run, datagram->message)) {
            run_next(loop, datagram->message);
        }
        if (loop->session != NULL) {
            outbox_add(&loop->to_backend, datagram, NULL, NULL);
        } else {
            loop->without_session++;
            loop->without_port += loop->lacks_port;
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

/* Notes which of this host's addresses the messages of a burst came to; of a socket on one address there is no need. */
static void note_locals(struct loop *loop, bool asks_local, size_t received)
{
    for (size_t i = 0; i < received && asks_local; i++) {
        loop->locals[i] = local_of(&loop->requests.messages[i].msg_hdr);
    }
    if (!asks_local) {
        memset(loop->locals, 0, sizeof(loop->locals)); /* of the listener before */
    }
    loop->has_locals = asks_local;
}

/* Leaves out packets of no client. How many are left. */
static size_t sift(struct loop *loop, const struct listen_socket *socket, size_t count)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        const struct datagram datagram = loop->datagrams[i];
        const struct loops_packet packet = {datagram.data, datagram.size, &loop->requests.from[datagram.message],
                                            &loop->locals[datagram.message], socket};
        if (!loops_take(&loop->loops, &packet, loop->now)) {
            loop->datagrams[kept++] = datagram;
        }
    }
    return kept;
}

/* One burst from the clients of a listener. False: there was none. */
static bool receive(struct loop *loop, uint32_t listener)
{
    const struct listen_socket *socket = &loop->worker->sockets[listener];
    struct burst *requests = &loop->requests;
    const size_t received = burst_receive(requests, socket->fd, 0, NULL);
    if (socket->asks_local || loop->has_locals) {
        note_locals(loop, socket->asks_local, received);
    }
    loop->listener = listener;
    loop->decision.listen = &socket->address;
    loop->decision.locals = socket->asks_local ? loop->locals : NULL;
    struct burst_cursor cursor = {0};
    size_t count;
    size_t total = 0;
    while ((count = burst_split(requests, received, &cursor, loop->datagrams)) != 0) {
        loop->merged += count_merged(requests, loop->datagrams, count);
        const size_t kept = sift(loop, socket, count);
        forward(loop, decision_make(&loop->decision, kept));
        total += kept;
    }
    run_end(loop);
    bump(&loop->worker->counters.received[listener], total);
    burst_ready(requests, 0, received, true);
    return received != 0;
}

/* Gathers replies of one session. */
static void gather(struct loop *loop, struct session *session)
{
    struct burst *replies = &loop->replies;
    const size_t first = loop->reply_count;
    int error;
    const size_t received = burst_receive(replies, session->fd, first, &error);
    if (received == 0) {
        run_refused(loop, session->backend, error);
        return;
    }
    session_answered(&loop->sessions, session, loop->now_ms);
    struct burst_cursor cursor = {.message = first};
    struct outbox *to_clients = loop->worker->sockets[session->client.listener].to_clients;
    loop->replying |= UINT32_C(1) << session->client.listener;
    size_t count;
    size_t packets = 0;
    while ((count = burst_split(replies, first + received, &cursor, loop->datagrams)) != 0) {
        loop->merged += count_merged(replies, loop->datagrams, count);
        packets += count;
        for (size_t i = 0; i < count; i++) {
            outbox_add(to_clients, &loop->datagrams[i], &session->client.address, &session->client.local);
        }
    }
    view_note_replies(&loop->view, session->backend, packets, loop->now);
    loop->reply_count += received;
    if (loop->reply_count == BURST_COUNT) {
        run_flush_replies(loop);
    }
}

static void publish(_Atomic uint64_t *counter, uint64_t value)
{
    atomic_store_explicit(counter, value, memory_order_release); /* for sum_of */
}

/* Copies the counts of the thread's parts to where the gateway's other threads can read them. */
static void publish_counters(struct loop *loop)
{
    struct counters *counters = &loop->worker->counters;
    const struct outbox *to_backend = &loop->to_backend;
    publish(&counters->unsendable, to_backend->added - to_backend->sent + loop->without_session);
    publish(&counters->without_port, loop->without_port);
    publish(&counters->refused, to_backend->refused + loop->refused);
    publish(&counters->invalid_sources, loop->loops.invalid_sources);
    publish(&counters->looped, loop->loops.looped);
    publish(&counters->loops, loop->loops.loops);
    publish(&counters->replied_bytes, loop->to_clients.sent_bytes);
    publish(&counters->lost_replies, loop->to_clients.added - loop->to_clients.sent);
    publish(&counters->sessions, loop->sessions.count);
    for (enum session_use use = 0; use < USE_COUNT; use++) {
        publish(&counters->sessions_evicted[use], loop->sessions.evicted[use]);
    }
    publish(&counters->sessions_moved, loop->sessions.moved);
    publish(&counters->segments, to_backend->segments && loop->to_clients.segments);
    publish(&counters->merged, loop->merged);
    publish(&counters->segmented, to_backend->segmented + loop->to_clients.segmented);
    publish(&counters->frames_received, loop->lane.received);
    publish(&counters->frames_sent, loop->lane.sent);
    publish(&counters->frames_lost, loop->frames_lost + loop->lane.useless);
    /* Last: whoever reads of packets that were offered, or of replies, finds what their turn did. */
    publish(&counters->replies, loop->to_clients.sent);
    decision_publish(&loop->decision);
}

/* Learns what is new of the backends. */
static void update_backends(struct loop *loop)
{
    if (view_update(&loop->view)) {
        session_end_gone(&loop->sessions);
        view_settled(&loop->view);
    }
}

/* Other paths may have come: sizes that were too large are tried again in segments. */
static void forget_sizes(struct loop *loop, uint32_t open)
{
    loop->sizes_forgotten = loop->now;
    outbox_forget_sizes(&loop->to_backend);
    for (uint32_t left = open; left != 0; left &= left - 1) {
        outbox_forget_sizes(loop->worker->sockets[__builtin_ctz(left)].to_clients);
    }
}

/* Begins to end a socket. */
static void leave_listener(struct worker *worker, uint32_t listener)
{
    if (worker->gateway->forward != NULL) {
        listen_socket_steer_no_more(&worker->sockets[listener]); /* the address may be another gateway's, too */
    }
    if (!listen_socket_leave(&worker->sockets[listener], clock_ns())) {
        log_line(WEIR_LOG_WARNING, "--listen %s: packets that come now may be lost: %s",
                 worker->gateway->listeners.all[listener].text, strerror(errno));
    }
}

/* Closes a socket that has nothing left to do. Its clients' sessions end with it. */
static void let_go(struct loop *loop, uint32_t listener)
{
    struct worker *worker = loop->worker;
    struct listen_socket *socket = &worker->sockets[listener];
    const uint32_t bit = UINT32_C(1) << listener;
    session_end_listener(&loop->sessions, listener);
    listen_socket_close(socket);
    (void) atomic_fetch_and_explicit(&worker->leaving, ~bit, memory_order_relaxed);
    (void) atomic_fetch_and_explicit(&worker->open, ~bit, memory_order_release); /* pairs with find_free() */
}

/* Goes on with the sockets that are to be closed. `received`: a bit for each that packets were read from. */
static void leave_slow(struct loop *loop, uint32_t leaving, uint32_t received)
{
    struct worker *worker = loop->worker;
    for (uint32_t left = leaving; left != 0; left &= left - 1) {
        const uint32_t listener = (uint32_t) __builtin_ctz(left);
        struct listen_socket *socket = &worker->sockets[listener];
        if (socket->left_ns == 0) {
            leave_listener(worker, listener);
        } else if (listen_socket_is_done(socket, (received >> listener & 1) != 0, clock_ns()) &&
                   !receive(loop, listener)) { /* under many replies epoll may not have named it in time */
            let_go(loop, listener);
        }
    }
}

/* The interface has gone, or has come back: goes on without a lane, or with another one. */
static void change_lane_slow(struct loop *loop)
{
    struct worker *worker = loop->worker;
    struct forward *forward = worker->gateway->forward;
    struct lane *lane = &loop->lane;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = lane};
    const unsigned number = (unsigned) (worker - worker->gateway->workers);
    if (lane_is_open(lane)) {
        (void) epoll_ctl(worker->epoll_fd, EPOLL_CTL_DEL, rings_fd(lane->parts.rings), NULL);
        frames_end(loop);
        lane_change(lane, NULL);
        forward_leave(forward, number);
    }
    struct rings *rings = forward_take(forward, number);
    if (rings != NULL && epoll_ctl(worker->epoll_fd, EPOLL_CTL_ADD, rings_fd(rings), &event) != 0) {
        forward_leave(forward, number); /* nothing is forwarded until all have taken theirs: sockets serve */
        return;
    }
    lane_change(lane, rings);
}

static void update_lane(struct loop *loop)
{
    const struct gateway *gateway = loop->worker->gateway;
    if (gateway->forward != NULL &&
        forward_rings(gateway->forward, (unsigned) (loop->worker - gateway->workers)) != loop->lane.parts.rings) {
        change_lane_slow(loop);
    }
}

/* Waits and works once. Returns a bit for each listener that packets came from. */
static uint32_t turn(struct loop *loop, int wait_ms)
{
    struct worker *worker = loop->worker;
    struct epoll_event events[EVENTS];
    const int count = epoll_wait(worker->epoll_fd, events, EVENTS, frames_wait_ms(loop, wait_ms));
    /* Pairs with the release of listeners_serve(): a socket that has an event is seen whole. */
    const uint32_t open = atomic_load_explicit(&worker->open, memory_order_acquire);
    uint32_t ready = 0;
    uint32_t received = 0;
    bool has_frames = false;
    loop->now_ms = ports_now();
    loop->now = loop->decision.now = (uint32_t) (loop->now_ms / 1000);
    for (int i = 0; i < count; i++) {
        /* The lane, answers to questions, a socket of a listener, or a session. */
        const uintptr_t offset = (uintptr_t) events[i].data.ptr - (uintptr_t) worker->sockets;
        if (events[i].data.ptr == &loop->lane) {
            has_frames = true;
        } else if (events[i].data.ptr == &loop->loops) {
            loops_read(&loop->loops, loop->now);
        } else if (offset < sizeof(worker->sockets)) {
            ready |= UINT32_C(1) << offset / sizeof(worker->sockets[0]);
        } else {
            gather(loop, events[i].data.ptr);
        }
    }
    run_flush_replies(loop);
    update_backends(loop);
    loops_update(&loop->loops);
    for (; ready != 0; ready &= ready - 1) {
        const uint32_t listener = (uint32_t) __builtin_ctz(ready);
        received |= (uint32_t) receive(loop, listener) << listener;
    }
    if (has_frames || loop->lane.waits) {
        received |= frames_turn(loop);
    }
    session_expire(&loop->sessions, loop->now_ms,
                   atomic_load_explicit(&worker->gateway->idle_seconds, memory_order_relaxed));
    frames_look(loop);
    update_lane(loop);
    if (loop->now - loop->sizes_forgotten >= SIZES_SECONDS) {
        forget_sizes(loop, open);
    }
    const uint32_t leaving = atomic_load_explicit(&worker->leaving, memory_order_acquire);
    if (leaving != 0) {
        leave_slow(loop, leaving, received);
    }
    publish_counters(loop);
    bump(&worker->counters.turns, 1);
    return received;
}

/*
 * Ends the thread's work without losing a packet that the kernel has given it: first each socket leaves those that
 * share its address, so that others get what comes from now on, then what it holds is served, and last the replies to
 * that come home. What is in a socket that somebody else has as well is left to the next process that gets the socket.
 */
static void leave(struct loop *loop)
{
    struct worker *worker = loop->worker;
    const uint32_t open = atomic_load_explicit(&worker->open, memory_order_acquire);
    uint32_t waiting = 0;
    for (uint32_t left = open; left != 0; left &= left - 1) {
        const uint32_t listener = (uint32_t) __builtin_ctz(left);
        struct listen_socket *socket = &worker->sockets[listener];
        if (socket->is_handed) {
            (void) epoll_ctl(worker->epoll_fd, EPOLL_CTL_DEL, socket->fd, NULL);
            continue;
        }
        waiting |= UINT32_C(1) << listener;
        if (socket->left_ns == 0) {
            leave_listener(worker, listener);
        }
    }
    const uint64_t least_ns = clock_ns() + DRAIN_MS * UINT64_C(1000000);
    while (waiting != 0 || clock_ns() < least_ns) {
        const uint32_t received = turn(loop, DRAIN_MS / 10);
        waiting &= atomic_load_explicit(&worker->open, memory_order_relaxed);
        for (uint32_t left = waiting; left != 0; left &= left - 1) {
            const uint32_t listener = (uint32_t) __builtin_ctz(left);
            if (listen_socket_is_done(&worker->sockets[listener], (received >> listener & 1) != 0, clock_ns())) {
                waiting &= ~(UINT32_C(1) << listener);
            }
        }
    }
}

/* Whether this kernel sends what is for the backend in segments. */
static bool can_segment(const struct gateway_options *options)
{
    const int fd = options->offload ? socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0) : -1;
    const int any = fd >= 0 || !options->offload ? fd : socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const bool can = any >= 0 && offload_can_send(any);
    if (any >= 0) {
        (void) close(any);
    }
    return can;
}

/* 0 or a negative errno value. */
static int open_lane(struct worker *worker)
{
    struct gateway *gateway = worker->gateway;
    struct loop *loop = worker->loop;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = &loop->lane};
    const struct lane_parts parts = forward_lane(gateway->forward, (unsigned) (worker - gateway->workers));
    const int result = lane_open(&loop->lane, &parts, &loop->sessions, gateway->sessions, worker->sockets);
    if (result == 0 && lane_is_open(&loop->lane) &&
        epoll_ctl(worker->epoll_fd, EPOLL_CTL_ADD, rings_fd(parts.rings), &event) != 0) {
        return -errno;
    }
    return result;
}

/* 0 or a negative errno value. */
static int open_loops(struct worker *worker)
{
    struct loop *loop = worker->loop;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = &loop->loops};
    const int result = loops_open(&loop->loops, &worker->gateway->listeners, &loop->view, &worker->gateway->loops_told);
    if (result == 0 && epoll_ctl(worker->epoll_fd, EPOLL_CTL_ADD, loop->loops.fd, &event) != 0) {
        return -errno;
    }
    return result;
}

int worker_open(struct worker *worker, struct gateway *gateway)
{
    const struct gateway_options *options = &gateway->options;
    worker->gateway = gateway;
    worker->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    for (size_t i = 0; i < LISTENER_SLOTS; i++) {
        worker->sockets[i].fd = -1;
    }
    int result = worker->epoll_fd >= 0 ? 0 : -errno;
    struct loop *loop = calloc(1, sizeof(*loop)); /* too large for a stack; what no packet touches stays unbacked */
    worker->loop = loop;
    result = loop == NULL ? -ENOMEM : result;
    if (result == 0) {
        loop->worker = worker;
        loop->run = NO_RUN;
        loop->loops.fd = -1;
        view_init(&loop->view, &gateway->backends, &worker->reports);
        loop->decision.xdp.xdp = gateway->xdp;
        loop->decision.record = record_view(gateway->record, (unsigned) (worker - gateway->workers));
        decision_open(&loop->decision, gateway, &worker->counters, &loop->requests, loop->datagrams);
        burst_ready(&loop->requests, 0, BURST_COUNT, true);
        burst_ready(&loop->replies, 0, BURST_COUNT, false);
        loop->to_clients.segments = can_segment(options);
        outbox_open(&loop->to_backend, -1, AF_INET, loop->to_clients.segments); /* connected: the family says nothing */
        publish(&worker->counters.segments, loop->to_clients.segments);         /* /status may be asked before a turn */
        const struct session_parts parts = {&loop->view, gateway->ports, worker->sockets, worker->epoll_fd};
        result = session_table_open(&loop->sessions, gateway->sessions, &parts, options->offload);
        loop->sessions.transparent = options->transparent;
    }
    result = result == 0 ? open_lane(worker) : result;
    result = result == 0 ? open_loops(worker) : result;
    if (result != 0) {
        log_line(WEIR_LOG_ERROR, "cannot start a thread with %u sessions: %s", gateway->sessions, strerror(-result));
        worker_close(worker);
        return -1;
    }
    return 0;
}

void worker_close(struct worker *worker)
{
    if (worker->loop != NULL) {
        session_table_close(&worker->loop->sessions);
        lane_close(&worker->loop->lane);
        loops_close(&worker->loop->loops);
        free(worker->loop);
        worker->loop = NULL;
    }
    for (size_t i = 0; i < LISTENER_SLOTS; i++) {
        listen_socket_close(&worker->sockets[i]);
    }
    if (worker->epoll_fd >= 0) {
        (void) close(worker->epoll_fd);
        worker->epoll_fd = -1;
    }
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
