/* SPDX-License-Identifier: Apache-2.0 */
/* See run.h. */
#include "run.h"

#include <errno.h>
#include <string.h>

#include "gateway.h"
#include "log.h"
#include "refusal.h"

bool run_is_same_client(const struct loop *loop, size_t a, size_t b)
{
    return a == b || (address_is_same(&loop->requests.from[a], &loop->requests.from[b]) &&
                      IN6_ARE_ADDR_EQUAL(&loop->locals[a], &loop->locals[b]));
}

void run_refused(struct loop *loop, uint8_t backend, int error)
{
    if (is_refusal(error)) {
        loop->refused++;
        view_note_refusals(&loop->view, backend, 1, error, loop->now);
    }
}

/* The header for the packets of a client, with --proxy-protocol. */
static void introduce(struct loop *loop, const struct client *client)
{
    if (!loop->worker->gateway->options.proxy_protocol) {
        return;
    }
    const struct listen_socket *socket = &loop->worker->sockets[client->listener];
    struct address asked = socket->address;
    if (socket->asks_local && asked.u.any.sa_family == AF_INET) {
        memcpy(&asked.u.v4.sin_addr, &client->local.s6_addr[12], 4);
    } else if (socket->asks_local) {
        asked.u.v6.sin6_addr = client->local;
    }
    loop->to_backend.prefix = loop->proxy_header;
    loop->to_backend.prefix_size = proxy_header(&client->address, &asked, loop->proxy_header);
}

/* Sessions that were ended while their clients needed them. */
static uint64_t evicted_needed(const struct loop *loop)
{
    return loop->sessions.evicted[USE_WAITING] + loop->sessions.evicted[USE_USED];
}

/* Says that new clients find no port. */
static void tell_of_ports_slow(const struct loop *loop)
{
    struct gateway *gateway = loop->worker->gateway;
    if (log_is_due(&gateway->ports_told, loop->now)) {
        log_line(WEIR_LOG_WARNING,
                 "none of %u local ports has rested for %u s: packets of new clients are dropped; widen "
                 "net.ipv4.ip_local_port_range, bound new clients by \"overall\", or give a shorter --port-rest",
                 ports_count(gateway->ports), gateway->options.port_rest_seconds);
    }
}

/* Says that a session was ended which its client still needed. */
static void tell_of_evictions_slow(struct loop *loop)
{
    struct gateway *gateway = loop->worker->gateway;
    loop->evicted_needed = evicted_needed(loop);
    if (log_is_due(&gateway->evictions_told, loop->now)) {
        log_line(WEIR_LOG_WARNING,
                 "%u sessions for each thread are too few: new clients end sessions that are in use, or that wait for "
                 "an answer; give more --sessions, or bound new clients by \"overall\"",
                 gateway->sessions);
    }
}

void run_end(struct loop *loop)
{
    struct outbox *box = &loop->to_backend;
    outbox_flush(box);
    if (loop->session != NULL) {
        const uint8_t backend = loop->session->backend;
        view_note_sent(&loop->view, backend, box->sent - loop->sent_before + loop->run_frames, loop->now);
        if (box->refused != loop->refused_before) {
            view_note_refusals(&loop->view, backend, box->refused - loop->refused_before, box->refusal, loop->now);
        }
    }
    loop->sent_before = box->sent;
    loop->refused_before = box->refused;
    loop->session = NULL;
    loop->run = NO_RUN;
    loop->run_frames = 0;
}

void run_next(struct loop *loop, size_t message)
{
    run_end(loop);
    const struct client client = {loop->requests.from[message], loop->locals[message], loop->listener};
    struct session *session = session_of(&loop->sessions, &client, loop->now_ms); /* may end another one */
    const int error = errno;
    loop->session = session;
    if (session != NULL) {
        loops_note(&loop->loops, &session->runs, &client.address, loop->now);
    }
    introduce(loop, &client);
    if (evicted_needed(loop) != loop->evicted_needed) {
        tell_of_evictions_slow(loop);
    }
    loop->lacks_port = loop->session == NULL && loop->sessions.lacks_port;
    if (loop->lacks_port) {
        tell_of_ports_slow(loop);
    } else if (loop->session == NULL) {
        run_refused(loop, loop->sessions.tried, error);
    }
    loop->to_backend.fd = loop->session != NULL ? loop->session->fd : -1;
    loop->run = message;
}

/* Takes over what an outbox of a socket has counted. */
static void take_counts(struct loop *loop, struct outbox *box)
{
    loop->to_clients.added += box->added;
    loop->to_clients.sent += box->sent;
    loop->to_clients.sent_bytes += box->sent_bytes;
    loop->to_clients.segmented += box->segmented;
    loop->to_clients.segments = box->segments;
    box->added = box->sent = box->sent_bytes = box->segmented = 0;
}

void run_flush_replies(struct loop *loop)
{
    for (; loop->replying != 0; loop->replying &= loop->replying - 1) {
        struct outbox *box = loop->worker->sockets[__builtin_ctz(loop->replying)].to_clients;
        outbox_flush(box);
        take_counts(loop, box);
    }
    burst_ready(&loop->replies, 0, loop->reply_count, false);
    loop->reply_count = 0;
}
