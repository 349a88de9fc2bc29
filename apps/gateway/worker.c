/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One thread: its own listening socket, its own sessions, its own weir_thread. It receives a burst, asks for every
 * packet first its source's limit and then the overall one, forwards what passes on the client's own socket to the
 * backend, and carries the backend's replies home through the socket the client knows.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "gateway.h"
#include "session.h"

#define PACKET_SIZE  2048
#define IDLE_SECONDS 30
#define DRAIN_MS     100
#define WAIT_MS      50
#define EVENTS       64
/* Every so many bursts the checks are timed: often enough to see, rarely enough to cost nothing. */
#define TIME_EVERY 16

struct burst {
    struct mmsghdr messages[BURST];
    struct iovec pieces[BURST];
    struct address from[BURST];
    char packets[BURST][PACKET_SIZE];
};

/* What a worker works with. */
struct loop {
    struct worker *worker;
    weir_thread *limits;
    struct session_table sessions;
    uint32_t now; /* seconds */
    uint64_t bursts;
    size_t sweep_cursor;
    struct burst in;
};

static uint64_t now_ns(void)
{
    struct timespec now;
    (void) clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t) now.tv_sec * 1000000000U + (uint64_t) now.tv_nsec;
}

static void burst_prepare(struct burst *burst, bool with_address)
{
    for (size_t i = 0; i < BURST; i++) {
        burst->pieces[i] = (struct iovec){burst->packets[i], PACKET_SIZE};
        burst->messages[i].msg_hdr = (struct msghdr){.msg_iov = &burst->pieces[i], .msg_iovlen = 1};
        if (with_address) {
            burst->messages[i].msg_hdr.msg_name = &burst->from[i].u;
            burst->messages[i].msg_hdr.msg_namelen = sizeof(burst->from[i].u);
        }
    }
}

/* The bytes that name a source: an IPv4 address, or the first half of an IPv6 one. */
static const void *source_of(const struct address *from, size_t *length)
{
    if (from->u.any.sa_family == AF_INET) {
        *length = 4;
        return &from->u.v4.sin_addr;
    }
    const unsigned char *bytes = from->u.v6.sin6_addr.s6_addr;
    if (IN6_IS_ADDR_V4MAPPED(&from->u.v6.sin6_addr)) {
        *length = 4;
        return bytes + 12;
    }
    *length = 8;
    return bytes;
}

/* May this packet pass? The source first, so that what it is refused is not taken from all the others. */
static bool may_pass(const struct loop *loop, const struct address *from, weir_policy_id source, weir_policy_id overall)
{
    const weir *w = loop->worker->gateway->weir;
    struct counters *counters = &loop->worker->counters;
    if (source != WEIR_NO_POLICY) {
        size_t length;
        const void *bytes = source_of(from, &length);
        const weir_key key = weir_make_key(w, source, bytes, length);
        if (!weir_check(loop->limits, &key, 1, NULL)) {
            bump(&counters->dropped_source, 1);
            return false;
        }
    }
    if (overall != WEIR_NO_POLICY) {
        const weir_key key = weir_make_key(w, overall, NULL, 0);
        if (!weir_check(loop->limits, &key, 1, NULL)) {
            bump(&counters->dropped_overall, 1);
            return false;
        }
    }
    return true;
}

/* Marks which of a burst may pass; returns how many. */
static size_t decide(struct loop *loop, size_t count, bool passes[BURST])
{
    struct gateway *gateway = loop->worker->gateway;
    if (loop->limits == NULL) {
        memset(passes, 1, count);
        return count;
    }
    const weir_policy_id source = atomic_load_explicit(&gateway->source, memory_order_relaxed);
    const weir_policy_id overall = atomic_load_explicit(&gateway->overall, memory_order_relaxed);
    const bool timed = loop->bursts++ % TIME_EVERY == 0;
    const uint64_t before_ns = timed ? now_ns() : 0;
    size_t passed = 0;
    for (size_t i = 0; i < count; i++) {
        passes[i] = may_pass(loop, &loop->in.from[i], source, overall);
        passed += passes[i];
    }
    if (timed) {
        const size_t checks = count * (source != WEIR_NO_POLICY) + passed * (overall != WEIR_NO_POLICY);
        bump(&loop->worker->counters.timed_ns, now_ns() - before_ns);
        bump(&loop->worker->counters.timed_checks, checks);
    }
    return passed;
}

/* Forwards packets first..first+count-1 of a burst, all of one client. */
static void forward(struct loop *loop, size_t first, size_t count)
{
    struct session *session = session_of(&loop->sessions, &loop->in.from[first], loop->now);
    if (session == NULL) {
        bump(&loop->worker->counters.unsendable, count);
        return;
    }
    struct mmsghdr out[BURST];
    struct iovec pieces[BURST];
    for (size_t i = 0; i < count; i++) {
        pieces[i] = (struct iovec){loop->in.packets[first + i], loop->in.messages[first + i].msg_len};
        out[i] = (struct mmsghdr){.msg_hdr = {.msg_iov = &pieces[i], .msg_iovlen = 1}};
    }
    const int sent = sendmmsg(session->fd, out, (unsigned) count, 0);
    bump(&loop->worker->counters.unsendable, count - (sent > 0 ? (size_t) sent : 0));
}

static bool is_same_client(const struct address *a, const struct address *b)
{
    return memcmp(&a->u, &b->u, a->u.any.sa_family == AF_INET ? 8 : sizeof(a->u.v6)) == 0;
}

/* One burst from the clients. Returns how many packets there were. */
static size_t receive(struct loop *loop)
{
    struct burst *in = &loop->in;
    for (size_t i = 0; i < BURST; i++) {
        in->messages[i].msg_hdr.msg_namelen = sizeof(in->from[i].u);
    }
    const int got = recvmmsg(loop->worker->listen_fd, in->messages, BURST, MSG_DONTWAIT, NULL);
    if (got <= 0) {
        return 0;
    }
    const size_t count = (size_t) got;
    bool passes[BURST];
    for (size_t i = 0; i < count; i++) {
        in->from[i].length = in->messages[i].msg_hdr.msg_namelen;
    }
    bump(&loop->worker->counters.offered, count);
    bump(&loop->worker->counters.passed, decide(loop, count, passes));
    /* What one client sent in a row goes out in one call. */
    for (size_t i = 0; i < count;) {
        size_t run = 0;
        while (i + run < count && passes[i + run] && is_same_client(&in->from[i], &in->from[i + run])) {
            run++;
        }
        if (run != 0) {
            forward(loop, i, run);
        }
        i += run != 0 ? run : 1;
    }
    return count;
}

/* Carries replies of one session home. */
static void carry_home(struct loop *loop, struct session *session)
{
    static _Thread_local struct burst replies;
    burst_prepare(&replies, false);
    const int got = recvmmsg(session->fd, replies.messages, BURST, MSG_DONTWAIT, NULL);
    if (got <= 0) {
        return; /* nothing, or the backend is not there: the client will see to that */
    }
    session->seen = loop->now;
    for (int i = 0; i < got; i++) {
        replies.pieces[i].iov_len = replies.messages[i].msg_len;
        replies.messages[i].msg_hdr.msg_name = &session->client.u;
        replies.messages[i].msg_hdr.msg_namelen = session->client.length;
    }
    const int sent = sendmmsg(loop->worker->listen_fd, replies.messages, (unsigned) got, 0);
    bump(&loop->worker->counters.replies, sent > 0 ? (uint64_t) sent : 0);
}

/* Waits and works once. `reads`: clients are still listened to. */
static void turn(struct loop *loop, int wait_ms, bool reads)
{
    struct epoll_event events[EVENTS];
    const int count = epoll_wait(loop->worker->epoll_fd, events, EVENTS, wait_ms);
    const uint32_t now = (uint32_t) (now_ns() / 1000000000U);
    for (int i = 0; i < count; i++) {
        struct session *session = events[i].data.ptr;
        if (session == NULL) {
            continue; /* the clients' turn comes last: their sessions may take the place of ones with events here */
        }
        if (session->fd >= 0) {
            carry_home(loop, session);
        }
    }
    loop->now = now;
    if (reads) {
        (void) receive(loop);
    }
    session_sweep(&loop->sessions, now, IDLE_SECONDS, &loop->sweep_cursor);
    struct counters *counters = &loop->worker->counters;
    atomic_store_explicit(&counters->sessions, loop->sessions.count, memory_order_relaxed);
    atomic_store_explicit(&counters->sessions_evicted, loop->sessions.evicted, memory_order_relaxed);
}

void *worker_main(void *arg)
{
    static _Thread_local struct loop loop;
    struct worker *worker = arg;
    struct gateway *gateway = worker->gateway;
    loop.worker = worker;
    loop.limits = gateway->weir != NULL ? weir_attach(gateway->weir) : NULL;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    if (session_table_open(&loop.sessions, gateway->options.sessions, &gateway->options.backend, worker->epoll_fd) !=
            0 ||
        epoll_ctl(worker->epoll_fd, EPOLL_CTL_ADD, worker->listen_fd, &event) != 0) {
        (void) fprintf(stderr, "weir-gateway: a thread has no memory for its sessions\n");
        return NULL;
    }
    burst_prepare(&loop.in, true);
    while (!atomic_load_explicit(&gateway->stopping, memory_order_relaxed)) {
        turn(&loop, WAIT_MS, true);
    }
    /* Replies that are under way still come home. */
    (void) epoll_ctl(worker->epoll_fd, EPOLL_CTL_DEL, worker->listen_fd, NULL);
    const uint64_t until_ns = now_ns() + DRAIN_MS * UINT64_C(1000000);
    while (now_ns() < until_ns) {
        turn(&loop, DRAIN_MS / 10, false);
    }
    weir_detach(loop.limits);
    session_table_close(&loop.sessions);
    return NULL;
}
