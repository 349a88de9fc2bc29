/* SPDX-License-Identifier: Apache-2.0 */
/* See lane.h. */
#include "lane.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "../proxy.h"

/* Of Ethernet. */
#define MAC_HEADER 14

/* No path of IPv6 takes less, and routers make no packet smaller. What is known of the way to a client is the kernel's.
 */
#define CLIENT_MOST6 1280

_Static_assert(PROXY_HEADER_MAX + FRAME_HEADERS_MAX - 42 <= RINGS_ROOM, "headers grow into the room of a frame");

/*
 * The kernel's program reads it. The fields behind it are there before, and are left alone until it is 0. A port is one
 * session's at a time, but workers may have it one after the other.
 */
static void set_queue(struct drop_session *at, uint32_t queue)
{
    __atomic_store_n(&at->queue, queue, __ATOMIC_SEQ_CST);
}

/* Whether a port's session is this lane's. Then no other worker writes it. */
static bool is_own(const struct lane *lane, const struct drop_session *at)
{
    return __atomic_load_n(&at->queue, __ATOMIC_SEQ_CST) == lane->parts.queue + 1;
}

/* A session's socket is about to be closed: nothing that comes to its port is the lane's any more. */
static void end_path(struct lane *lane, uint32_t number)
{
    struct lane_path *path = &lane->paths[number];
    struct drop_session *at = &lane->parts.sessions[path->port];
    if (path->is_open && is_own(lane, at) && at->session == number) {
        set_queue(at, 0);
    }
    path->is_open = false;
}

/* A client begins to be with this worker, or ends to be. */
static void steer_client(const struct lane *lane, const struct client *client, bool begins)
{
    const struct address *from = &client->address;
    struct drop_flow flow = {.family = 4};
    if (from->u.any.sa_family == AF_INET) {
        memcpy(flow.client, &from->u.v4.sin_addr, 4);
        flow.client_port = from->u.v4.sin_port;
        flow.listen_port = lane->sockets[client->listener].address.u.v4.sin_port;
    } else {
        const bool mapped = IN6_IS_ADDR_V4MAPPED(&from->u.v6.sin6_addr);
        flow.family = mapped ? 4 : 6;
        memcpy(flow.client, &from->u.v6.sin6_addr.s6_addr[mapped ? 12 : 0], mapped ? 4 : 16);
        flow.client_port = from->u.v6.sin6_port;
        flow.listen_port = lane->sockets[client->listener].address.u.v6.sin6_port;
    }
    if (begins) {
        xdp_link_set_flow(lane->parts.steering, &flow, DROP_SOCKET(client->listener, lane->parts.queue));
    } else {
        xdp_link_remove_flow(lane->parts.steering, &flow);
    }
}

static void note_change(void *arg, uint32_t number, enum session_change change)
{
    struct lane *lane = arg;
    if (change != SESSION_BEGINS && lane->paths != NULL) {
        end_path(lane, number);
    }
    if (change != SESSION_MOVES && lane->parts.steering != NULL) {
        steer_client(lane, &lane->table->sessions[number].client, change == SESSION_BEGINS);
    }
}

int lane_open(struct lane *lane, const struct lane_parts *parts, struct session_table *table, uint32_t capacity,
              const struct listen_socket *sockets)
{
    *lane = (struct lane){.parts = *parts, .table = table, .sockets = sockets, .capacity = capacity};
    if (parts->sessions == NULL) {
        return 0;
    }
    lane->paths = calloc(capacity, sizeof(*lane->paths)); /* what no session touches stays unbacked */
    if (lane->paths == NULL) {
        return -ENOMEM;
    }
    table->changes = note_change;
    table->changes_arg = lane;
    return 0;
}

void lane_change(struct lane *lane, struct rings *rings)
{
    for (uint32_t number = 0; number < lane->capacity && lane->parts.rings != NULL; number++) {
        end_path(lane, number);
    }
    lane->parts.rings = rings;
    lane->waits = false;
}

void lane_close(struct lane *lane)
{
    free(lane->paths);
    lane->paths = NULL;
}

/* The ends of a session's socket. False: they are none that frames could have. */
static bool find_ends(const struct session *session, const struct address *backend, struct frame_ends *out)
{
    struct address own = {.length = sizeof(own.u)};
    memset(out, 0, sizeof(*out));
    if (getsockname(session->fd, &own.u.any, &own.length) != 0 || own.u.any.sa_family != backend->u.any.sa_family) {
        return false;
    }
    if (own.u.any.sa_family == AF_INET) {
        out->family = 4;
        memcpy(out->from, &own.u.v4.sin_addr, 4);
        memcpy(out->to, &backend->u.v4.sin_addr, 4);
        out->from_port = own.u.v4.sin_port;
        out->to_port = backend->u.v4.sin_port;
        return true;
    }
    out->family = 6;
    memcpy(out->from, &own.u.v6.sin6_addr, 16);
    memcpy(out->to, &backend->u.v6.sin6_addr, 16);
    out->from_port = own.u.v6.sin6_port;
    out->to_port = backend->u.v6.sin6_port;
    return !IN6_IS_ADDR_V4MAPPED(&backend->u.v6.sin6_addr) && !IN6_IS_ADDR_LINKLOCAL(&backend->u.v6.sin6_addr);
}

static struct frame_ends turn(const struct frame_ends *ends)
{
    struct frame_ends turned = {.from_port = ends->to_port, .to_port = ends->from_port, .family = ends->family};
    memcpy(turned.from, ends->to, sizeof(turned.from));
    memcpy(turned.to, ends->from, sizeof(turned.to));
    return turned;
}

/* Has the kernel's program hand over what comes to the session's port. */
static void tell_program(const struct lane *lane, const struct lane_path *path, uint32_t number)
{
    struct drop_session *at = &lane->parts.sessions[path->port];
    set_queue(at, 0);
    memcpy(at->local, path->replies.to, sizeof(at->local));
    memcpy(at->backend, path->replies.from, sizeof(at->backend));
    at->backend_port = path->replies.from_port;
    at->family = path->replies.family;
    at->session = number;
    set_queue(at, lane->parts.queue + 1);
}

static void set_client(struct lane_path *path, const struct frame *frame)
{
    const struct frame_ends to_client = turn(&frame->ends);
    memcpy(path->client_mac, frame->from_mac, FRAME_MAC_SIZE);
    memcpy(path->own_mac, frame->to_mac, FRAME_MAC_SIZE);
    frame_head_make(&path->to_client, &to_client, frame->to_mac);
}

static struct lane_path *open_path_slow(struct lane *lane, const struct session *session, const struct frame *frame)
{
    const uint32_t number = (uint32_t) (session - lane->table->sessions);
    struct lane_path *path = &lane->paths[number];
    const struct address *backend = &view_backend(lane->table->view, session->backend)->address;
    struct frame_ends to_backend;
    if (!hops_is_own(lane->parts.hops, frame->ends.family, frame->ends.to) ||
        !find_ends(session, backend, &to_backend)) {
        return NULL;
    }
    path->port = ntohs(to_backend.from_port);
    path->backend = hops_name(backend);
    path->replies = turn(&to_backend);
    frame_head_make(&path->to_backend, &to_backend, frame->to_mac);
    set_client(path, frame);
    path->is_open = true;
    tell_program(lane, path, number);
    return path;
}

struct lane_path *lane_path_of(struct lane *lane, const struct session *session, const struct frame *frame)
{
    struct lane_path *path = &lane->paths[session - lane->table->sessions];
    if (!path->is_open) {
        return open_path_slow(lane, session, frame);
    }
    if (memcmp(path->client_mac, frame->from_mac, FRAME_MAC_SIZE) != 0 ||
        memcmp(path->own_mac, frame->to_mac, FRAME_MAC_SIZE) != 0) {
        set_client(path, frame);
    }
    return path;
}

struct session *lane_find_session(const struct lane *lane, const struct frame *frame, struct lane_path **path)
{
    const struct drop_session *at = &lane->parts.sessions[ntohs(frame->ends.to_port)];
    if (!is_own(lane, at) || at->session >= lane->capacity) {
        return NULL;
    }
    struct lane_path *found = &lane->paths[at->session];
    if (!found->is_open || memcmp(&found->replies, &frame->ends, sizeof(found->replies)) != 0) {
        return NULL;
    }
    *path = found;
    return &lane->table->sessions[at->session];
}

/* A payload on its way out, and the largest packet of IP that may go there. */
struct out {
    const struct frame_head *head;
    const unsigned char *mac;
    unsigned char *payload;
    size_t size;
    uint16_t sum;
    uint32_t most;
};

static bool send_out(struct lane *lane, const struct out *out)
{
    if (out->head->size - MAC_HEADER + out->size > out->most) {
        return false;
    }
    const unsigned char *start = frame_put(out->head, out->mac, out->payload, out->size, out->sum, ++lane->id);
    if (!rings_send(lane->parts.rings, start, out->head->size + out->size)) {
        return false;
    }
    lane->sent++;
    return true;
}

bool lane_to_backend(struct lane *lane, const struct lane_path *path, uint8_t backend, const struct frame *frame,
                     const struct lane_prefix *prefix)
{
    unsigned char mac[FRAME_MAC_SIZE];
    struct out out = {.head = &path->to_backend,
                      .mac = mac,
                      .payload = frame->payload,
                      .size = frame->size,
                      .sum = frame->sum,
                      .most = hops_find(lane->parts.hops, backend, path->backend, mac)};
    if (out.most == 0) {
        return false;
    }
    if (prefix->size != 0) {
        out.payload -= prefix->size;
        out.size += prefix->size;
        memcpy(out.payload, prefix->bytes, prefix->size);
        out.sum = frame_sum_join(frame_sum(prefix->bytes, prefix->size), prefix->size, frame->sum);
    }
    return send_out(lane, &out);
}

bool lane_to_client(struct lane *lane, const struct lane_path *path, const struct frame *frame)
{
    struct out out = {.head = &path->to_client,
                      .mac = path->client_mac,
                      .payload = frame->payload,
                      .size = frame->size,
                      .sum = frame->sum,
                      .most = hops_mtu(lane->parts.hops)};
    if (path->to_client.size == FRAME_HEADERS_MAX && out.most > CLIENT_MOST6) {
        out.most = CLIENT_MOST6;
    }
    return send_out(lane, &out);
}
