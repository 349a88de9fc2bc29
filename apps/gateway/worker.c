/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One thread: its own listening socket, its own sessions, its own weir_thread. It receives a burst, asks for every
 * packet first its source's limit and then the overall one, forwards what passes on the client's own socket to the
 * backend, and carries the backend's replies home through the socket the client knows. Packets that the kernel merged
 * are checked one by one, and leave merged as far as they may leave.
 *
 * Order within a turn: replies first, then clients. Only clients' packets open and end sessions, so the sessions that
 * epoll named stay what they were until their replies are sent.
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
#include "gateway.h"
#include "local.h"
#include "log.h"
#include "offload.h"
#include "outbox.h"
#include "proxy.h"
#include "session.h"

#define DRAIN_MS 100
#define LEAVE_MS 2000
#define WAIT_MS  50
#define EVENTS   64
/* Every so many bursts the checks are timed: often enough to see, rarely enough to cost nothing. */
#define TIME_EVERY 16
/* Every so many seconds sizes that were too large for a path are tried again in segments. */
#define SIZES_SECONDS 60

/* What a worker works with. */
struct loop {
    struct worker *worker;
    weir_thread *limits; /* NULL: nothing is limited */
    struct session_table sessions;
    uint32_t now, sizes_forgotten; /* seconds */
    uint64_t bursts, clock_cost_ns;
    uint64_t merged, without_session;     /* packets */
    uint64_t refused;                     /* errors of the backend's sockets when they were read or opened */
    uint64_t sent_before, refused_before; /* of `to_backend`, at the end of the last turn */
    struct backend_view backend;
    bool replied;                                 /* in this turn */
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

static uint64_t now_ns(void)
{
    struct timespec now;
    (void) clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t) now.tv_sec * 1000000000U + (uint64_t) now.tv_nsec;
}

static uint32_t now_seconds(void)
{
    struct timespec now;
    (void) clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (uint32_t) now.tv_sec;
}

/* What reading the clock twice costs: taken off what is timed. */
static uint64_t clock_cost_ns(void)
{
    uint64_t least_ns = UINT64_MAX;
    for (int i = 0; i < 64; i++) {
        const uint64_t before_ns = now_ns();
        const uint64_t cost_ns = now_ns() - before_ns;
        least_ns = cost_ns < least_ns ? cost_ns : least_ns;
    }
    return least_ns;
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

_Static_assert(BURST_COUNT <= 64, "a bit for each packet of a burst");

/* Keys, costs and places of the packets of a burst that are checked by a policy of sources. */
struct asked {
    weir_key keys[BURST_COUNT];
    uint64_t costs[BURST_COUNT];
    unsigned char places[BURST_COUNT];
    size_t count;
};

static void ask_for_sources(const struct loop *loop, weir_policy_id id, uint64_t bits, struct asked *asked)
{
    size_t last = SIZE_MAX;
    asked->count = 0;
    for (uint64_t left = bits; left != 0; left &= left - 1) {
        const size_t place = (size_t) __builtin_ctzll(left);
        const size_t message = loop->datagrams[place].message;
        const size_t i = asked->count++;
        asked->places[i] = (unsigned char) place;
        asked->costs[i] = loop->datagrams[place].size;
        if (message == last) {
            asked->keys[i] = asked->keys[i - 1];
            continue;
        }
        size_t length;
        const void *bytes = source_of(&loop->requests.from[message], &length);
        asked->keys[i] = weir_make_key(loop->worker->gateway->weir, id, bytes, length);
        last = message;
    }
}

/* Of the packets whose bits are set, those that pass a limit of their source. */
static uint64_t pass_sources(const struct loop *loop, size_t index, weir_policy_id id, uint64_t bits)
{
    struct asked asked;
    ask_for_sources(loop, id, bits, &asked);
    uint64_t allowed = 0;
    (void) weir_check_burst(loop->limits, asked.keys, policy_is_of_bytes(index) ? asked.costs : NULL, asked.count,
                            &allowed);
    if ((bits & (bits + 1)) == 0) {
        return allowed; /* the first so many of the burst: each has its own place */
    }
    uint64_t passing = 0;
    for (uint64_t left = allowed; left != 0; left &= left - 1) {
        passing |= UINT64_C(1) << asked.places[__builtin_ctzll(left)];
    }
    return passing;
}

/* Of the packets whose bits are set, those that pass a limit of all: the first of them. */
static uint64_t pass_overall(const struct loop *loop, size_t index, weir_policy_id id, uint64_t bits)
{
    const weir_key key = weir_make_key(loop->worker->gateway->weir, id, NULL, 0);
    uint64_t passing = 0;
    for (uint64_t left = bits; left != 0; left &= left - 1) {
        const uint64_t cost = policy_is_of_bytes(index) ? loop->datagrams[__builtin_ctzll(left)].size : 1;
        passing |= weir_check(loop->limits, &key, cost, NULL) ? left & (0 - left) : 0;
    }
    return passing;
}

/* Counts what a policy in shadow mode would deny of the packets whose bits are set: each is asked for alone. */
static uint64_t pass_shadow(struct loop *loop, size_t index, weir_policy_id id, uint64_t bits)
{
    uint64_t passing = 0;
    uint64_t would_deny = 0;
    for (uint64_t left = bits; left != 0; left &= left - 1) {
        const struct datagram *datagram = &loop->datagrams[__builtin_ctzll(left)];
        size_t length = 0;
        const void *bytes = NULL;
        if (policy_is_of_sources(index)) {
            bytes = source_of(&loop->requests.from[datagram->message], &length);
        }
        const weir_key key = weir_make_key(loop->worker->gateway->weir, id, bytes, length);
        weir_verdict verdict;
        passing |= weir_check(loop->limits, &key, policy_is_of_bytes(index) ? datagram->size : 1, &verdict)
                       ? left & (0 - left)
                       : 0;
        would_deny += verdict.would_deny;
    }
    bump(&loop->worker->counters.would_deny[index], would_deny);
    return passing;
}

static size_t count_bits(uint64_t bits)
{
    return (size_t) __builtin_popcountll(bits);
}

static uint64_t sum_bytes(const struct loop *loop, uint64_t bits)
{
    uint64_t sum = 0;
    for (uint64_t left = bits; left != 0; left &= left - 1) {
        sum += loop->datagrams[__builtin_ctzll(left)].size;
    }
    return sum;
}

/* Of the packets whose bits are set, those that pass all limits; counts them by policy. */
static uint64_t pass_all(struct loop *loop, uint64_t bits, size_t *checks)
{
    struct gateway *gateway = loop->worker->gateway;
    struct counters *counters = &loop->worker->counters;
    uint64_t passing = bits;
    for (size_t i = 0; i < POLICY_COUNT; i++) {
        const weir_policy_id id = atomic_load_explicit(&gateway->policies.ids[i], memory_order_relaxed);
        if (id == WEIR_NO_POLICY || passing == 0) {
            continue;
        }
        const size_t asked = count_bits(passing);
        passing = atomic_load_explicit(&gateway->policies.shadow[i], memory_order_relaxed)
                      ? pass_shadow(loop, i, id, passing)
                  : policy_is_of_sources(i) ? pass_sources(loop, i, id, passing)
                                            : pass_overall(loop, i, id, passing);
        bump(&counters->checked[i], asked);
        bump(&counters->dropped[i], asked - count_bits(passing));
        *checks += asked;
    }
    return passing;
}

/*
 * The packets of a burst that may pass, a bit each; counts them. The sources first, so that what is refused by its own
 * is not taken from all the others.
 */
static uint64_t decide(struct loop *loop, size_t count)
{
    struct counters *counters = &loop->worker->counters;
    const uint64_t all = count < 64 ? (UINT64_C(1) << count) - 1 : UINT64_MAX;
    uint64_t passing = all;
    if (loop->limits != NULL) {
        const bool timed = ++loop->bursts % TIME_EVERY == 0;
        const uint64_t before_ns = timed ? now_ns() : 0;
        size_t checks = 0;
        passing = pass_all(loop, all, &checks);
        if (timed) {
            const uint64_t took_ns = now_ns() - before_ns;
            bump(&counters->timed_ns, took_ns > loop->clock_cost_ns ? took_ns - loop->clock_cost_ns : 0);
            bump(&counters->timed_checks, checks);
        }
    }
    const uint64_t bytes = sum_bytes(loop, all);
    bump(&counters->offered, count);
    bump(&counters->offered_bytes, bytes);
    bump(&counters->passed, count_bits(passing));
    bump(&counters->passed_bytes, passing == all ? bytes : sum_bytes(loop, passing));
    return passing;
}

static bool is_same_client(const struct loop *loop, size_t a, size_t b)
{
    return a == b || (address_is_same(&loop->requests.from[a], &loop->requests.from[b]) &&
                      IN6_ARE_ADDR_EQUAL(&loop->locals[a], &loop->locals[b]));
}

static void refused(struct loop *loop, int error)
{
    if (backend_is_refusal(error)) {
        loop->refused++;
        backend_refused(&loop->backend, error, loop->now);
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

/*
 * Begins the packets of the next client, which go to its own socket. The packets of the client before are sent first.
 */
static void next_run(struct loop *loop, size_t message)
{
    outbox_flush(&loop->to_backend);
    const struct client client = {loop->requests.from[message], loop->locals[message]};
    loop->session = session_of(&loop->sessions, &client, loop->now); /* may end another session, so after the flush */
    introduce(loop, &client);
    if (loop->session == NULL) {
        refused(loop, errno);
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
        forward(loop, decide(loop, count));
    }
    outbox_flush(&loop->to_backend);
    loop->run = NO_RUN;
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
        refused(loop, error);
        return;
    }
    loop->replied = true;
    session_touch(&loop->sessions, session, loop->now);
    struct burst_cursor cursor = {.message = first};
    size_t count;
    while ((count = burst_split(replies, first + received, &cursor, loop->datagrams)) != 0) {
        loop->merged += count_merged(replies, loop->datagrams, count);
        for (size_t i = 0; i < count; i++) {
            outbox_add(&loop->to_clients, &loop->datagrams[i], &session->client.address, &session->client.local);
        }
    }
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
    publish(&counters->segments, to_backend->segments && to_clients->segments);
    publish(&counters->merged, loop->merged);
    publish(&counters->segmented, to_backend->segmented + to_clients->segmented);
}

/* What this turn has shown of the backend. */
static void watch_backend(struct loop *loop)
{
    const struct outbox *box = &loop->to_backend;
    if (box->refused != loop->refused_before) {
        backend_refused(&loop->backend, box->refusal, loop->now);
    }
    backend_watch(&loop->backend, box->sent != loop->sent_before, loop->replied, loop->now);
    loop->refused_before = box->refused;
    loop->sent_before = box->sent;
    loop->replied = false;
}

/* Waits and works once. Whether packets came from clients. */
static bool turn(struct loop *loop, int wait_ms)
{
    struct epoll_event events[EVENTS];
    const int count = epoll_wait(loop->worker->epoll_fd, events, EVENTS, wait_ms);
    bool clients = false;
    loop->now = now_seconds();
    for (int i = 0; i < count; i++) {
        struct session *session = events[i].data.ptr;
        if (session == NULL) {
            clients = true;
        } else {
            gather(loop, session);
        }
    }
    flush_replies(loop);
    const bool received = clients && receive(loop);
    watch_backend(loop);
    session_expire(&loop->sessions, loop->now, loop->worker->gateway->options.idle_seconds);
    if (loop->now - loop->sizes_forgotten >= SIZES_SECONDS) {
        loop->sizes_forgotten = loop->now;
        outbox_forget_sizes(&loop->to_backend);
        outbox_forget_sizes(&loop->to_clients);
    }
    publish_counters(loop);
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
    const uint64_t start_ns = now_ns();
    uint64_t until_ns = start_ns + DRAIN_MS * UINT64_C(1000000);
    const bool has_left = address_leave(worker->listen_fd, &options->listen) == 0;
    if (!has_left) {
        log_line(WEIR_LOG_WARNING, "--listen %s: packets that come now may be lost: %s", options->listen_text,
                 strerror(errno));
    }
    while (now_ns() < until_ns) {
        if (turn(loop, DRAIN_MS / 10) && has_left && now_ns() - start_ns < LEAVE_MS * UINT64_C(1000000)) {
            until_ns = now_ns() + DRAIN_MS * UINT64_C(1000000);
        }
    }
}

/* Asks this kernel for what offload.h has, unless the options refuse it. */
static void open_offload(struct worker *worker, const struct gateway_options *options)
{
    struct loop *loop = worker->loop;
    const bool segments = options->offload && offload_can_send(worker->listen_fd);
    outbox_open(&loop->to_backend, -1, options->backend.u.any.sa_family, segments);
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
        loop->backend.backend = &gateway->backend;
        burst_ready(&loop->requests, 0, BURST_COUNT, true);
        burst_ready(&loop->replies, 0, BURST_COUNT, false);
        open_offload(worker, options);
        result = session_table_open(&loop->sessions, options->sessions, &options->backend, worker->epoll_fd,
                                    options->offload);
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
        loop->limits = weir_attach(gateway->weir);
        if (loop->limits == NULL) {
            /* Without it this thread would let everything pass. */
            log_line(WEIR_LOG_ERROR, "a thread could not be attached to the limits");
            atomic_store(&gateway->failed, true);
            (void) kill(getpid(), SIGTERM);
            return NULL;
        }
    }
    loop->clock_cost_ns = clock_cost_ns();
    while (!atomic_load_explicit(&gateway->stopping, memory_order_relaxed)) {
        (void) turn(loop, WAIT_MS);
    }
    leave(loop);
    weir_detach(loop->limits);
    return NULL;
}
