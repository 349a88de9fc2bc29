/* SPDX-License-Identifier: Apache-2.0 */
/* See frames.h. */
#include "frames.h"

#include <netinet/in.h>
#include <string.h>

#include "gateway.h"
#include "run.h"

#define NO_LISTENER UINT32_MAX

/* Frames whose packets wait in an outbox. */
struct kept {
    size_t count;
    const unsigned char *payloads[BURST_COUNT];
};

static void keep(struct kept *kept, const struct frame *frame)
{
    kept->payloads[kept->count++] = frame->payload;
}

static void free_kept(struct loop *loop, struct kept *kept)
{
    for (size_t i = 0; i < kept->count; i++) {
        rings_free(loop->lane.parts.rings, kept->payloads[i]);
    }
    kept->count = 0;
}

/* An address of a frame as sockets of a family have it: in one of IPv6, IPv4 is mapped. */
static struct in6_addr map_address(const unsigned char bytes[16], uint16_t family)
{
    struct in6_addr address = {.s6_addr = {[10] = 0xff, [11] = 0xff}};
    if (family == 4) {
        memcpy(&address.s6_addr[12], bytes, 4);
    } else {
        memcpy(&address, bytes, sizeof(address));
    }
    return address;
}

static bool is_listener_of(const struct listen_socket *socket, const struct frame_ends *ends)
{
    const struct address *address = &socket->address;
    if (address->u.any.sa_family == AF_INET) {
        return ends->family == 4 && address->u.v4.sin_port == ends->to_port &&
               (socket->asks_local || memcmp(&address->u.v4.sin_addr, ends->to, 4) == 0);
    }
    const struct in6_addr to = map_address(ends->to, ends->family);
    return address->u.v6.sin6_port == ends->to_port &&
           (socket->asks_local || IN6_ARE_ADDR_EQUAL(&address->u.v6.sin6_addr, &to));
}

/* The listener that a client's frame is for: one on its address before one on every address. */
static uint32_t find_listener(const struct loop *loop, const struct frame_ends *ends)
{
    const struct worker *worker = loop->worker;
    uint32_t found = NO_LISTENER;
    for (uint32_t left = atomic_load_explicit(&worker->open, memory_order_acquire); left != 0; left &= left - 1) {
        const uint32_t number = (uint32_t) __builtin_ctz(left);
        const struct listen_socket *socket = &worker->sockets[number];
        if (is_listener_of(socket, ends)) {
            found = number;
            if (!socket->asks_local) {
                break;
            }
        }
    }
    return found;
}

/* Notes whose packet a frame has, as a socket of the listener would tell. */
static void note_client(struct loop *loop, size_t place, const struct listen_socket *socket)
{
    const struct frame *frame = &loop->frames[place];
    const struct frame_ends *ends = &frame->ends;
    struct address *from = &loop->requests.from[place];
    memset(from, 0, sizeof(*from));
    from->u.any.sa_family = socket->address.u.any.sa_family;
    if (from->u.any.sa_family == AF_INET) {
        from->length = sizeof(from->u.v4);
        from->u.v4.sin_port = ends->from_port;
        memcpy(&from->u.v4.sin_addr, ends->from, 4);
    } else {
        from->length = sizeof(from->u.v6);
        from->u.v6.sin6_port = ends->from_port;
        from->u.v6.sin6_addr = map_address(ends->from, ends->family);
    }
    loop->locals[place] = socket->asks_local ? map_address(ends->to, ends->family) : in6addr_any;
    loop->datagrams[place] = (struct datagram){frame->payload, frame->size, place};
}

/* Sends packets of clients on: those whose bits are set. */
static void send_passing(struct loop *loop, size_t count, uint64_t passing)
{
    struct kept kept = {.count = 0};
    struct lane_path *path = NULL;
    for (size_t i = 0; i < count; i++) {
        const struct frame *frame = &loop->frames[i];
        if ((passing >> i & 1) == 0) {
            rings_free(loop->lane.parts.rings, frame->payload);
            continue;
        }
        if (loop->run == NO_RUN || !run_is_same_client(loop, loop->run, i)) {
            run_next(loop, i);
            path = loop->session != NULL ? lane_path_of(&loop->lane, loop->session, frame) : NULL;
        }
        const struct lane_prefix prefix = {loop->to_backend.prefix, loop->to_backend.prefix_size};
        if (loop->session == NULL) {
            loop->without_session++;
            loop->without_port += loop->lacks_port;
            rings_free(loop->lane.parts.rings, frame->payload);
        } else if (path != NULL && lane_to_backend(&loop->lane, path, loop->session->backend, frame, &prefix)) {
            loop->run_frames++;
        } else {
            outbox_add(&loop->to_backend, &loop->datagrams[i], NULL, NULL);
            keep(&kept, frame);
        }
    }
    run_end(loop);
    free_kept(loop, &kept);
}

/* Decides on the first `count` frames, which are packets to one listener. */
static void decide(struct loop *loop, size_t count, uint32_t listener)
{
    const struct listen_socket *socket = &loop->worker->sockets[listener];
    loop->listener = listener;
    loop->has_locals = true; /* what a listener's socket finds here is set anew */
    loop->decision.listen = &socket->address;
    loop->decision.locals = socket->asks_local ? loop->locals : NULL;
    send_passing(loop, count, decision_make(&loop->decision, count));
    bump(&loop->worker->counters.received[listener], count);
}

/* Sends a reply on to its client. */
static void reply(struct loop *loop, struct session *session, const struct lane_path *path, const struct frame *frame,
                  struct kept *kept)
{
    session_answered(&loop->sessions, session, loop->now_ms);
    view_note_replies(&loop->view, session->backend, 1, loop->now);
    if (lane_to_client(&loop->lane, path, frame)) {
        loop->to_clients.added++;
        loop->to_clients.sent++;
        loop->to_clients.sent_bytes += frame->size;
        return;
    }
    const struct datagram datagram = {.data = frame->payload, .size = frame->size};
    const uint32_t listener = session->client.listener;
    outbox_add(loop->worker->sockets[listener].to_clients, &datagram, &session->client.address, &session->client.local);
    loop->replying |= UINT32_C(1) << listener;
    keep(kept, frame);
}

/* Takes a frame into the batch, which is of one listener, or sends it on if it is a reply. */
static void take(struct loop *loop, size_t *count, uint32_t *listener, struct kept *kept)
{
    struct lane_path *path = NULL;
    const struct frame *frame = &loop->frames[*count];
    struct session *session = lane_find_session(&loop->lane, frame, &path);
    if (session != NULL) {
        reply(loop, session, path, frame, kept);
        return;
    }
    const uint32_t found = find_listener(loop, &frame->ends);
    if (found == NO_LISTENER) {
        loop->lane.useless++;
        rings_free(loop->lane.parts.rings, frame->payload);
        return;
    }
    if (*count != 0 && found != *listener) {
        const struct frame next = *frame;
        decide(loop, *count, *listener);
        *count = 0;
        loop->frames[0] = next;
    }
    const struct listen_socket *socket = &loop->worker->sockets[found];
    *listener = found;
    note_client(loop, *count, socket);
    const struct loops_packet packet = {loop->datagrams[*count].data, loop->datagrams[*count].size,
                                        &loop->requests.from[*count], &loop->locals[*count], socket};
    if (loops_take(&loop->loops, &packet, loop->now)) {
        rings_free(loop->lane.parts.rings, loop->datagrams[*count].data);
        return;
    }
    ++*count;
}

uint32_t frames_turn(struct loop *loop)
{
    struct rings_frame got[BURST_COUNT];
    struct kept kept = {.count = 0};
    uint32_t listener = NO_LISTENER;
    uint32_t received = 0;
    size_t count = 0;
    const size_t total = rings_receive(loop->lane.parts.rings, got, BURST_COUNT);
    loop->lane.received += total;
    for (size_t i = 0; i < total; i++) {
        if (frame_read(got[i].bytes, got[i].size, &loop->frames[count]) != FRAME_PLAIN) {
            loop->lane.useless++;
            rings_free(loop->lane.parts.rings, got[i].bytes);
            continue;
        }
        take(loop, &count, &listener, &kept);
        received |= listener != NO_LISTENER ? UINT32_C(1) << listener : 0;
    }
    if (count != 0) {
        decide(loop, count, listener);
    }
    run_flush_replies(loop);
    free_kept(loop, &kept);
    loop->lane.waits = !rings_flush(loop->lane.parts.rings);
    return received;
}

void frames_look(struct loop *loop)
{
    if (lane_is_open(&loop->lane) && loop->now != loop->lost_read) {
        loop->lost_read = loop->now;
        loop->frames_lost = loop->frames_lost_before + rings_lost(loop->lane.parts.rings);
    }
}

void frames_end(struct loop *loop)
{
    loop->frames_lost_before += rings_lost(loop->lane.parts.rings);
    loop->frames_lost = loop->frames_lost_before;
}
