/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lanes of forwarded frames, each on its own: what the kernel's program is told of sessions and clients, and the
 * frames that go to either side. The rings, the hops, the link and what the interface says of itself are the test's.
 *
 * Guards: apps/gateway/xsk/lane.c, apps/gateway/xsk/forward.c
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "../apps/gateway/log.h"
#include "../apps/gateway/proxy.h"
#include "../apps/gateway/xsk/forward.h"
#include "support/support.h"

#define SESSIONS 8
#define QUEUE    3
#define ROOM     256 /* before a payload */

static struct {
    struct address own; /* of a session's socket */
    bool has_own;
    struct drop_target target;
    struct drop_session sessions[65536];
    enum link_mode mode;
    struct drop_flow flow;
    uint32_t flow_number;
    unsigned flows_set, flows_removed;
    uint32_t mtu, hop_most; /* hop_most 0: there is no hop */
    uint8_t place;
    uint64_t name;
    bool is_own, is_full, has_no_address, has_no_queues, has_no_hops;
    unsigned char sent[2048];
    size_t sent_size;
    struct ethtool_channels channels;
    unsigned rings_opened, rings_closed, rings_refused_at, queue_refused_at, hops_open;
    int steered;
    xdp_watch_fn watch;
    void *watch_arg;
    unsigned hops_at, logged; /* logged: warnings */
} made;

static char rings_of[DROP_QUEUES];
static const unsigned char hop_mac[FRAME_MAC_SIZE] = {2, 0, 0, 0, 0, 66};

int __wrap_getsockname(int fd, struct sockaddr *out, socklen_t *length);
int __wrap_ioctl(int fd, unsigned long request_of, void *argument);

int __wrap_getsockname(int fd, struct sockaddr *out, socklen_t *length)
{
    assert_int_equal(fd, 55);
    assert_int_equal(*length, sizeof(made.own.u));
    memcpy(out, &made.own.u, sizeof(made.own.u));
    return made.has_own ? 0 : -1;
}

int __wrap_ioctl(int fd, unsigned long request_of, void *argument)
{
    const uint32_t what = (uint32_t) request_of; /* musl's is an int */
    struct ifreq *request = argument;
    assert_true(fd >= 0 && strcmp(request->ifr_name, "eth7") == 0);
    errno = what == SIOCETHTOOL ? EOPNOTSUPP : ENODEV;
    if (what == SIOCETHTOOL) {
        struct ethtool_channels *channels = (void *) request->ifr_data;
        assert_int_equal(channels->cmd, ETHTOOL_GCHANNELS);
        *channels = made.channels;
        return made.has_no_queues ? -1 : 0;
    }
    assert_int_equal(what, SIOCGIFHWADDR);
    memcpy(request->ifr_hwaddr.sa_data, "\2\1\2\3\4\5\6\7", 8);
    return made.has_no_address ? -1 : 0;
}

struct xdp_link *xdp_get_link(struct xdp *xdp)
{
    return (struct xdp_link *) (void *) xdp;
}

const char *xdp_get_interface(const struct xdp *xdp)
{
    (void) xdp;
    return "eth7";
}

enum link_mode xdp_link_mode(const struct xdp_link *link)
{
    (void) link;
    return made.mode;
}

struct drop_target *xdp_link_target(struct xdp_link *link)
{
    (void) link;
    return &made.target;
}

struct drop_session *xdp_link_sessions(struct xdp_link *link)
{
    (void) link;
    return made.sessions;
}

bool xdp_link_set_queue(struct xdp_link *link, uint32_t queue, int fd)
{
    (void) link;
    assert_int_equal(fd, 900 + queue);
    errno = E2BIG;
    return queue != made.queue_refused_at;
}

int xdp_link_steer(struct xdp_link *link, unsigned listener, const int *sockets, unsigned count)
{
    (void) link;
    made.steered++;
    return (int) (1000 * listener + 100 * count) + sockets[0];
}

void xdp_link_set_flow(struct xdp_link *link, const struct drop_flow *flow, uint32_t number)
{
    assert_true(link == (void *) &made);
    made.flow = *flow;
    made.flow_number = number;
    made.flows_set++;
}

void xdp_link_remove_flow(struct xdp_link *link, const struct drop_flow *flow)
{
    assert_true(link == (void *) &made);
    made.flow = *flow;
    made.flows_removed++;
}

void xdp_watch(struct xdp *xdp, xdp_watch_fn watch, void *arg)
{
    assert_true(xdp == (void *) &made);
    made.watch = watch;
    made.watch_arg = arg;
}

unsigned xdp_link_find(const struct xdp_link *link)
{
    (void) link;
    return 5;
}

void log_line(weir_log_level level, const char *format, ...)
{
    made.logged += level == WEIR_LOG_WARNING;
    (void) format;
}

void hops_set_interface(struct hops *hops, unsigned index)
{
    assert_ptr_equal(hops, &made);
    made.hops_at = index;
}

struct hops *hops_start(struct backends *backends, const char *interface)
{
    assert_true(backends == (void *) rings_of && strcmp(interface, "eth7") == 0);
    made.hops_open += !made.has_no_hops;
    errno = EMFILE;
    return made.has_no_hops ? NULL : (struct hops *) (void *) &made;
}

void hops_stop(struct hops *hops)
{
    made.hops_open -= hops != NULL;
}

uint64_t hops_name(const struct address *backend)
{
    return 7000 + (uint64_t) backend->u.any.sa_family;
}

uint32_t hops_find(const struct hops *hops, uint8_t place, uint64_t name, unsigned char mac[FRAME_MAC_SIZE])
{
    (void) hops;
    made.place = place;
    made.name = name;
    memcpy(mac, hop_mac, sizeof(hop_mac));
    return made.hop_most;
}

bool hops_is_own(struct hops *hops, uint16_t family, const unsigned char address[16])
{
    (void) hops;
    assert_true((family == 4 || family == 6) && address[0] != 0);
    return made.is_own;
}

uint32_t hops_mtu(const struct hops *hops)
{
    (void) hops;
    return made.mtu;
}

struct rings *rings_open(const char *interface, uint32_t queue, bool is_native, char *problem, size_t size)
{
    assert_true(strcmp(interface, "eth7") == 0 && is_native == (made.mode == LINK_NATIVE));
    if (queue == made.rings_refused_at) {
        (void) snprintf(problem, size, "no rings");
        return NULL;
    }
    made.rings_opened++;
    return (struct rings *) (void *) &rings_of[queue];
}

void rings_close(struct rings *rings)
{
    made.rings_closed += rings != NULL;
}

int rings_fd(const struct rings *rings)
{
    return 900 + (int) ((const char *) (const void *) rings - rings_of);
}

bool rings_send(struct rings *rings, const unsigned char *start, size_t size)
{
    assert_true(rings == (void *) rings_of && size <= sizeof(made.sent));
    if (made.is_full) {
        return false;
    }
    memcpy(made.sent, start, size);
    made.sent_size = size;
    return true;
}

static struct session_table table;
static struct session sessions[SESSIONS];
static struct backends_view view;
static struct backends backends;
static struct listen_socket sockets[4];
static struct lane lane;

static struct address address_of(const char *text, uint16_t port)
{
    struct address address;
    memset(&address, 0, sizeof(address));
    address.u.any.sa_family = strchr(text, ':') != NULL ? AF_INET6 : AF_INET;
    address.u.v4.sin_port = htons(port); /* where the other one is as well */
    assert_int_equal(inet_pton(address.u.any.sa_family, text,
                               address.u.any.sa_family == AF_INET ? (void *) &address.u.v4.sin_addr
                                                                  : (void *) &address.u.v6.sin6_addr),
                     1);
    return address;
}

/* The ends of a frame from one address to another. */
static struct frame_ends ends_of(const char *from, uint16_t from_port, const char *to, uint16_t to_port)
{
    struct frame_ends ends;
    memset(&ends, 0, sizeof(ends));
    ends.family = strchr(from, ':') != NULL ? 6 : 4;
    ends.from_port = htons(from_port);
    ends.to_port = htons(to_port);
    assert_int_equal(inet_pton(ends.family == 6 ? AF_INET6 : AF_INET, from, ends.from), 1);
    assert_int_equal(inet_pton(ends.family == 6 ? AF_INET6 : AF_INET, to, ends.to), 1);
    return ends;
}

static int begin(void **state)
{
    (void) state;
    memset(&made, 0, sizeof(made));
    memset(&table, 0, sizeof(table));
    memset(&view, 0, sizeof(view));
    memset(sessions, 0, sizeof(sessions));
    made.has_own = made.is_own = true;
    made.mtu = made.hop_most = 1500;
    made.rings_refused_at = made.queue_refused_at = UINT32_MAX;
    view.backends = &backends;
    table.sessions = sessions;
    table.view = &view;
    for (unsigned i = 0; i < SESSIONS; i++) {
        sessions[i].fd = 55;
    }
    const struct lane_parts parts = {.rings = (struct rings *) (void *) rings_of,
                                     .queue = QUEUE,
                                     .sessions = made.sessions,
                                     .steering = (struct xdp_link *) (void *) &made};
    return lane_open(&lane, &parts, &table, SESSIONS, sockets);
}

static int end(void **state)
{
    (void) state;
    lane_close(&lane);
    assert_null(lane.paths);
    lane_close(&lane);
    return 0;
}

static void test_a_lane_is_told_of_sessions_where_it_has_frames_or_steers(void **state)
{
    (void) state;
    for (unsigned with = 0; with < 8; with++) {
        if (with != 0 && (with & 4) == 0) {
            continue; /* where something is forwarded there are sessions */
        }
        const struct lane_parts parts = {.sessions = (with & 4) != 0 ? made.sessions : NULL,
                                         .rings = (with & 1) != 0 ? (struct rings *) (void *) rings_of : NULL,
                                         .steering = (with & 2) != 0 ? (struct xdp_link *) (void *) &made : NULL,
                                         .queue = 9};
        struct session_table told = {.sessions = sessions};
        struct lane opened;
        sessions[1].client.address = address_of("192.0.2.1", 5);
        assert_int_equal(lane_open(&opened, &parts, &told, SESSIONS, sockets), 0);
        assert_int_equal(lane_is_open(&opened), (with & 1) != 0);
        assert_int_equal(told.changes != NULL, with != 0);
        assert_int_equal(opened.paths != NULL, with != 0); /* rings may come later */
        made.flows_set = made.flows_removed = 0;
        if (told.changes != NULL) {
            assert_ptr_equal(told.changes_arg, &opened);
            told.changes(&opened, 1, SESSION_BEGINS);
            assert_int_equal(made.flows_set, (with & 2) != 0);
            assert_int_equal(made.flows_removed, 0);
            told.changes(&opened, 1, SESSION_MOVES); /* the client is still with the worker */
            told.changes(&opened, 1, SESSION_ENDS);
            assert_int_equal(made.flows_set, (with & 2) != 0);
            assert_int_equal(made.flows_removed, (with & 2) != 0);
        }
        lane_close(&opened);
    }
}

static void test_a_client_is_steered_by_its_address_and_the_listeners_port(void **state)
{
    (void) state;
    static const struct {
        const char *from, *listen, *bytes;
        unsigned family;
    } rows[] = {
        {"192.0.2.1", "198.51.100.1", "\300\0\2\1", 4},
        {"::ffff:192.0.2.2", "::", "\300\0\2\2", 4},
        {"2001:db8::7", "::", "\40\1\r\270\0\0\0\0\0\0\0\0\0\0\0\7", 6},
    };
    for (unsigned i = 0; i < 3; i++) {
        unsigned char wanted[16] = {0};
        memcpy(wanted, rows[i].bytes, rows[i].family == 4 ? 4 : 16);
        sockets[i + 1].address = address_of(rows[i].listen, (uint16_t) (7000 + i));
        sessions[i].client = (struct client){.address = address_of(rows[i].from, 50000), .listener = i + 1};
        for (unsigned ends = 0; ends < 2; ends++) {
            memset(&made.flow, 0xee, sizeof(made.flow));
            table.changes(table.changes_arg, i, ends ? SESSION_ENDS : SESSION_BEGINS);
            assert_int_equal(made.flow.family, rows[i].family);
            assert_int_equal(made.flow.zero, 0);
            assert_int_equal(made.flow.client_port, htons(50000));
            assert_int_equal(made.flow.listen_port, htons((uint16_t) (7000 + i)));
            assert_memory_equal(made.flow.client, wanted, 16);
        }
        assert_int_equal(made.flow_number, 64 * (i + 1) + QUEUE);
    }
    assert_true(made.flows_set == 3 && made.flows_removed == 3);
}

/* A client's frame, whose payload has so many bytes and room before them. */
static struct frame frame_to(const struct frame_ends *ends, size_t size, uint64_t *rng)
{
    static unsigned char memory[ROOM + 2048];
    struct frame frame = {.ends = *ends,
                          .from_mac = {2, 0, 0, 0, 0, 1},
                          .to_mac = {2, 0, 0, 0, 0, 9},
                          .payload = memory + ROOM,
                          .size = size};
    for (size_t i = 0; i < size; i++) {
        frame.payload[i] = (unsigned char) random_next(rng);
    }
    frame.sum = frame_sum(frame.payload, size);
    return frame;
}

/* Both families: a client, the listener, the session's own end and the backend. */
static const struct way {
    const char *client, *listen, *own, *backend;
    size_t headers;
} ways[] = {
    {"192.0.2.1", "198.51.100.1", "10.0.0.1", "10.0.0.2", 42},
    {"2001:db8::1", "2001:db8::2", "fd00::1", "fd00::2", 62},
    {"2001:db8::1", "2001:db8::2", "10.0.0.1", "10.0.0.2", 42},
    {"192.0.2.1", "198.51.100.1", "fd00::1", "fd00::2", 62},
};

/* Opens the path of a session by a frame of its client. */
static struct lane_path *open_path(const struct way *way, unsigned number, uint16_t port, struct frame *frame,
                                   uint64_t *rng)
{
    const struct frame_ends ends = ends_of(way->client, 50000, way->listen, 7000);
    *frame = frame_to(&ends, 100, rng);
    made.own = address_of(way->own, port);
    sessions[number].backend = (uint8_t) (10 + number);
    backends.places[10 + number].address = address_of(way->backend, 4433);
    return lane_path_of(&lane, &sessions[number], frame);
}

static void test_a_path_is_there_until_its_sessions_socket_is_closed(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    for (unsigned i = 0; i < 4; i++) {
        const struct way *way = &ways[i];
        const uint16_t port = (uint16_t) (60001 + i);
        const struct drop_session *told = &made.sessions[port];
        struct lane_path *found = NULL;
        struct frame frame, reply = {.ends = ends_of(way->backend, 4433, way->own, port)};
        const struct frame whole = reply;
        assert_null(lane_find_session(&lane, &reply, &found));
        struct lane_path *path = open_path(way, i + 1, port, &frame, &rng);
        assert_true(path == &lane.paths[i + 1] && path->is_open && path->port == port);
        assert_int_equal(path->backend, hops_name(&backends.places[11 + i].address));
        assert_ptr_equal(lane_path_of(&lane, &sessions[i + 1], &frame), path);
        assert_memory_equal(told->local, reply.ends.to, 16);
        assert_memory_equal(told->backend, reply.ends.from, 16);
        assert_int_equal(told->backend_port, htons(4433));
        assert_int_equal(told->family, reply.ends.family);
        assert_int_equal(told->session, i + 1);
        assert_int_equal(told->queue, QUEUE + 1);
        assert_ptr_equal(lane_find_session(&lane, &reply, &found), &sessions[i + 1]);
        assert_ptr_equal(found, path);
        /* Whatever else differs is no reply of it. */
        for (size_t byte = 0; byte < offsetof(struct frame_ends, to_port); byte++) {
            ((unsigned char *) &reply.ends)[byte] ^= 1;
            assert_null(lane_find_session(&lane, &reply, &found));
            reply = whole;
        }
        reply.ends.family = 10 - reply.ends.family;
        assert_null(lane_find_session(&lane, &reply, &found));
        reply = whole;
        /* The port is another worker's, or its session is none of this table. */
        struct drop_session *at = &made.sessions[port];
        at->queue = QUEUE + 2;
        assert_null(lane_find_session(&lane, &reply, &found));
        at->queue = QUEUE + 1;
        at->session = SESSIONS;
        assert_null(lane_find_session(&lane, &reply, &found));
        at->session = i + 1;
        assert_non_null(lane_find_session(&lane, &reply, &found));
        /* Two of them move, and two end; one of each while the port is another worker's or another session's. */
        const enum session_change change = i % 2 == 0 ? SESSION_MOVES : SESSION_ENDS;
        at->queue = i == 2 ? QUEUE + 2 : QUEUE + 1;
        at->session = i == 3 ? 7 : i + 1;
        sessions[i + 1].client.address = address_of("192.0.2.1", 1);
        table.changes(table.changes_arg, i + 1, SESSION_BEGINS);
        assert_true(path->is_open);
        table.changes(table.changes_arg, i + 1, change);
        assert_false(path->is_open);
        assert_int_equal(at->queue, i == 2 ? QUEUE + 2 : i == 3 ? QUEUE + 1 : 0);
        at->queue = QUEUE + 1;
        at->session = i + 1;
        assert_null(lane_find_session(&lane, &reply, &found));
        table.changes(table.changes_arg, i + 1, change); /* what is closed is left alone */
        assert_int_equal(at->queue, QUEUE + 1);
        assert_non_null(open_path(way, i + 1, port, &frame, &rng)); /* and it can have one again */
    }
}

static void test_what_no_frame_can_reach_has_no_path(void **state)
{
    (void) state;
    static const struct way rows[] = {
        {"192.0.2.1", "198.51.100.1", "10.0.0.1", "fd00::2", 0}, /* the ends of the socket are of two families */
        {"192.0.2.1", "198.51.100.1", "fd00::1", "10.0.0.2", 0},
        {"192.0.2.1", "198.51.100.1", "fd00::1", "::ffff:10.0.0.2", 0},
        {"192.0.2.1", "198.51.100.1", "fe80::1", "fe80::2", 0},
    };
    uint64_t rng = test_seed();
    struct frame frame;
    for (unsigned i = 0; i < 4; i++) {
        assert_null(open_path(&rows[i], 1, 60001, &frame, &rng));
    }
    made.has_own = false;
    assert_null(open_path(&ways[0], 1, 60001, &frame, &rng));
    made.has_own = true;
    made.is_own = false; /* the frame was not for this host */
    assert_null(open_path(&ways[0], 1, 60001, &frame, &rng));
    assert_false(lane.paths[1].is_open);
    assert_int_equal(made.sessions[60001].queue, 0);
    made.is_own = true;
    assert_non_null(open_path(&ways[0], 1, 60001, &frame, &rng));
}

/* Holds what was sent against what it was to be. */
static void check_sent(const struct frame_ends *ends, const unsigned char *from_mac, const unsigned char *to_mac,
                       const unsigned char *payload, size_t size)
{
    struct frame got;
    assert_int_equal(frame_read(made.sent, made.sent_size, &got), FRAME_PLAIN);
    assert_memory_equal(&got.ends, ends, sizeof(got.ends));
    assert_memory_equal(got.from_mac, from_mac, FRAME_MAC_SIZE);
    assert_memory_equal(got.to_mac, to_mac, FRAME_MAC_SIZE);
    assert_int_equal(got.size, size);
    assert_memory_equal(got.payload, payload, size);
    assert_int_equal(made.sent_size, size + (ends->family == 4 ? 42 : 62));
}

static void test_frames_go_on_with_the_headers_of_their_way(void **state)
{
    (void) state;
    static unsigned char wanted[4096];
    uint64_t rng = test_seed();
    uint64_t sent = 0;
    for (unsigned draw = 0; draw < 2000; draw++) {
        const unsigned i = (unsigned) random_below(&rng, 4);
        const struct way *way = &ways[i];
        const uint16_t port = (uint16_t) (60001 + i);
        struct frame frame;
        struct lane_path *path = open_path(way, i + 1, port, &frame, &rng);
        unsigned char prefix_bytes[PROXY_HEADER_MAX];
        struct lane_prefix prefix = {prefix_bytes,
                                     draw_once_in(&rng, 2) ? random_below(&rng, PROXY_HEADER_MAX + 1) : 0};
        const uint16_t id = lane.id;
        for (size_t byte = 0; byte < prefix.size; byte++) {
            prefix_bytes[byte] = (unsigned char) random_next(&rng);
        }
        assert_non_null(path);
        /* The client's way to here may change. */
        const struct frame_ends ends = frame.ends;
        frame = frame_to(&ends, random_below(&rng, 1300), &rng);
        frame.from_mac[5] = (unsigned char) random_below(&rng, 3);
        frame.to_mac[5] = (unsigned char) random_below(&rng, 3);
        assert_ptr_equal(lane_path_of(&lane, &sessions[i + 1], &frame), path);
        const bool to_client = draw_once_in(&rng, 2);
        if (to_client) {
            const size_t before = made.sent_size;
            const size_t headers = ends.family == 4 ? 28 : 48;
            made.mtu = (uint32_t) (headers + frame.size + random_below(&rng, 3)) - 1;
            const bool fits = headers + frame.size <= made.mtu && (ends.family == 4 || headers + frame.size <= 1280);
            made.is_full = draw_once_in(&rng, 4);
            assert_int_equal(lane_to_client(&lane, path, &frame), fits && !made.is_full);
            sent += fits && !made.is_full;
            if (fits && !made.is_full) {
                const struct frame_ends back = ends_of(way->listen, 7000, way->client, 50000);
                check_sent(&back, frame.to_mac, frame.from_mac, frame.payload, frame.size);
            } else {
                assert_int_equal(made.sent_size, before);
            }
        } else {
            const size_t whole = way->headers - 14 + prefix.size + frame.size;
            made.hop_most = draw_once_in(&rng, 5) ? 0 : (uint32_t) (whole + random_below(&rng, 3)) - 1;
            made.is_full = draw_once_in(&rng, 4);
            const bool good = !made.is_full && made.hop_most >= whole;
            memcpy(wanted, prefix_bytes, prefix.size);
            memcpy(wanted + prefix.size, frame.payload, frame.size);
            assert_int_equal(lane_to_backend(&lane, path, 77, &frame, &prefix), good);
            sent += good;
            assert_int_equal(made.place, 77);
            assert_int_equal(made.name, hops_name(&backends.places[11 + i].address));
            assert_memory_equal(frame.payload, wanted + prefix.size, frame.size);
            if (good) {
                /* It leaves from where the first frame arrived. */
                const struct frame_ends there = ends_of(way->own, port, way->backend, 4433);
                static const unsigned char first_mac[] = {2, 0, 0, 0, 0, 9};
                check_sent(&there, first_mac, hop_mac, wanted, prefix.size + frame.size);
            }
        }
        assert_true((uint16_t) (lane.id - id) <= 1);
        assert_int_equal(lane.sent, sent);
        table.changes(table.changes_arg, i + 1, SESSION_MOVES);
    }
    assert_true(sent > 200 && lane.id >= sent); /* no two packets have one number */
}

static void test_a_lane_for_each_queue_and_the_program_hands_over_once_all_are_open(void **state)
{
    (void) state;
    static const struct {
        unsigned combined, received, workers;
        bool no_queues, no_address, no_hops;
        unsigned rings_refused_at, queue_refused_at, queues;
        const char *problem;
    } rows[] = {
        {4, 0, 4, false, false, false, 99, 99, 4, NULL},
        {1, 2, 5, false, false, false, 99, 99, 3, NULL},
        {0, 0, 1, false, false, false, 99, 99, 1, NULL},
        {9, 9, 2, true, false, false, 99, 99, 1, NULL},
        {64, 0, 64, false, false, false, 99, 99, 64, NULL},
        {65, 0, 80, false, false, false, 99, 99, 0,
         "the interface has 65 receive queues for 80 threads; give --threads 65, or fewer queues (ethtool -L)"},
        {3, 1, 3, false, false, false, 99, 99, 0,
         "the interface has 4 receive queues for 3 threads; give --threads 4, or fewer queues (ethtool -L)"},
        {2, 0, 2, false, true, false, 99, 99, 0, "the interface has no address of Ethernet: No such device"},
        {3, 0, 3, false, false, false, 2, 99, 0, "no rings"},
        {3, 0, 3, false, false, false, 99, 1, 0, "the program takes no AF_XDP socket: Argument list too long"},
        {2, 0, 2, false, false, true, 99, 99, 0, "routes cannot be asked for: Too many open files"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char problem[200] = "";
        const size_t descriptors = count_descriptors();
        (void) begin(state);
        lane_close(&lane);
        made.channels = (struct ethtool_channels){.combined_count = rows[i].combined, .rx_count = rows[i].received};
        made.has_no_queues = rows[i].no_queues;
        made.has_no_address = rows[i].no_address;
        made.has_no_hops = rows[i].no_hops;
        made.rings_refused_at = rows[i].rings_refused_at;
        made.queue_refused_at = rows[i].queue_refused_at;
        made.mode = i % 2 == 0 ? LINK_NATIVE : LINK_GENERIC;
        struct forward *forward = forward_start((struct xdp *) (void *) &made, (struct backends *) (void *) rings_of,
                                                rows[i].workers, problem, sizeof(problem));
        assert_int_equal(count_descriptors(), descriptors);
        assert_int_equal(forward != NULL, rows[i].problem == NULL);
        assert_string_equal(problem, rows[i].problem != NULL ? rows[i].problem : "");
        assert_int_equal(made.target.forwards, forward != NULL);
        if (forward == NULL) {
            assert_int_equal(made.rings_closed, made.rings_opened);
            assert_int_equal(made.hops_open, 0);
            continue;
        }
        assert_memory_equal(made.target.mac, "\2\1\2\3\4\5", 6);
        assert_int_equal(made.target.is_generic, i % 2);
        assert_int_equal(made.target.steers, rows[i].workers > 1);
        assert_int_equal(forward_queues(forward), rows[i].queues);
        assert_int_equal(made.rings_opened, rows[i].queues);
        for (unsigned worker = 0; worker < rows[i].workers; worker++) {
            const struct lane_parts parts = forward_lane(forward, worker);
            const bool has = worker < rows[i].queues;
            assert_int_equal(parts.queue, worker);
            assert_ptr_equal(parts.rings, has ? &rings_of[worker] : NULL);
            assert_ptr_equal(parts.hops, &made);
            assert_ptr_equal(parts.sessions, made.sessions);
            assert_ptr_equal(forward_rings(forward, worker), parts.rings);
            assert_ptr_equal(parts.steering, rows[i].workers > 1 ? (void *) &made : NULL);
        }
        const int socket = 7;
        assert_int_equal(forward_steer(forward, 2, &socket),
                         rows[i].workers > 1 ? 2007 + 100 * (int) rows[i].workers : 0);
        forward_end(forward);
        assert_null(made.watch);
        assert_int_equal(made.target.forwards, 0);
        assert_int_equal(made.rings_closed, 0);
        forward_stop(forward);
        assert_int_equal(made.rings_closed, rows[i].queues);
        assert_int_equal(made.hops_open, 0);
    }
    const struct lane_parts none = forward_lane(NULL, 6);
    assert_true(none.queue == 6 && none.rings == NULL && none.steering == NULL && none.sessions == NULL);
    forward_end(NULL);
    forward_stop(NULL);
}

static void look(unsigned interface)
{
    made.watch(made.watch_arg, interface);
}

static void test_an_interface_that_goes_takes_the_rings_along_and_one_that_comes_back_has_new_ones(void **state)
{
    char problem[200] = "";
    (void) begin(state);
    lane_close(&lane);
    made.channels.combined_count = 2;
    struct forward *forward = forward_start((struct xdp *) (void *) &made, (struct backends *) (void *) rings_of, 3,
                                            problem, sizeof(problem));
    assert_non_null(forward);
    for (unsigned worker = 0; worker < 3; worker++) {
        (void) forward_lane(forward, worker);
    }
    look(5);
    assert_true(made.target.forwards == 1 && forward_queues(forward) == 2 && made.rings_closed == 0);
    look(0);
    assert_true(made.target.forwards == 0 && forward_queues(forward) == 0);
    for (unsigned worker = 0; worker < 2; worker++) { /* not before each worker has left */
        assert_null(forward_rings(forward, worker));
        look(worker == 0 ? 0 : 6);
        assert_int_equal(made.rings_closed, 0);
        forward_leave(forward, worker);
        assert_null(forward_take(forward, worker));
    }
    made.rings_refused_at = 1;
    look(6);
    assert_true(made.rings_closed == 3 && made.rings_opened == 3 && made.logged == 1);
    made.rings_refused_at = UINT32_MAX;
    for (unsigned i = 0; i < 10; i++) { /* it waits a while with the next try, and says it once */
        look(6);
        assert_int_equal(made.rings_opened, 3);
    }
    made.channels.combined_count = 1;
    look(6);
    assert_true(made.rings_opened == 4 && made.target.forwards == 0 && made.hops_at == 6 && made.logged == 1);
    look(6);
    assert_int_equal(made.target.forwards, 0); /* the worker has not taken its rings */
    assert_null(forward_rings(forward, 1));
    assert_ptr_equal(forward_take(forward, 0), &rings_of[0]);
    look(6);
    assert_true(made.target.forwards == 1 && forward_queues(forward) == 1);
    look(7); /* another one in between */
    assert_int_equal(made.target.forwards, 0);
    forward_leave(forward, 0);
    made.channels.combined_count = 3;
    look(7);
    for (unsigned worker = 0; worker < 3; worker++) {
        assert_ptr_equal(forward_take(forward, worker), &rings_of[worker]);
    }
    look(0); /* gone before they were of any use */
    look(7);
    assert_int_equal(made.target.forwards, 0);
    for (unsigned worker = 0; worker < 3; worker++) {
        forward_leave(forward, worker);
    }
    look(7);
    for (unsigned worker = 0; worker < 3; worker++) {
        (void) forward_take(forward, worker);
    }
    look(7);
    assert_true(made.target.forwards == 1 && forward_queues(forward) == 3);
    forward_end(forward);
    forward_stop(forward);
    assert_true(made.rings_closed == made.rings_opened && made.hops_open == 0);
}

static void test_a_lane_without_rings_has_no_paths(void **state)
{
    (void) state;
    for (uint32_t i = 0; i < SESSIONS; i += 2) {
        lane.paths[i].is_open = true;
        lane.paths[i].port = (uint16_t) (100 + i);
        made.sessions[100 + i] = (struct drop_session){.queue = i == 4 ? QUEUE + 2 : QUEUE + 1, .session = i};
    }
    lane.waits = true;
    lane_change(&lane, NULL);
    assert_false(lane_is_open(&lane));
    assert_false(lane.waits);
    for (uint32_t i = 0; i < SESSIONS; i++) {
        assert_false(lane.paths[i].is_open);
        assert_int_equal(made.sessions[100 + i].queue, i == 4 ? QUEUE + 2 : 0); /* that one is another worker's now */
    }
    lane_change(&lane, (struct rings *) (void *) rings_of);
    assert_true(lane_is_open(&lane));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_lane_is_told_of_sessions_where_it_has_frames_or_steers),
        cmocka_unit_test_setup_teardown(test_a_client_is_steered_by_its_address_and_the_listeners_port, begin, end),
        cmocka_unit_test_setup_teardown(test_a_path_is_there_until_its_sessions_socket_is_closed, begin, end),
        cmocka_unit_test_setup_teardown(test_what_no_frame_can_reach_has_no_path, begin, end),
        cmocka_unit_test_setup_teardown(test_frames_go_on_with_the_headers_of_their_way, begin, end),
        cmocka_unit_test(test_an_interface_that_goes_takes_the_rings_along_and_one_that_comes_back_has_new_ones),
        cmocka_unit_test_setup_teardown(test_a_lane_without_rings_has_no_paths, begin, end),
        cmocka_unit_test(test_a_lane_for_each_queue_and_the_program_hands_over_once_all_are_open),
    };
    return cmocka_run_group_tests_name("unit/apps/gateway_lane", tests, NULL, NULL);
}
