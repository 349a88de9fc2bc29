/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions and their backends, on loopback: whose packets come to which backend while the list and health change.
 *
 * Guards: apps/gateway/session.c, apps/gateway/backends/view.c
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "../apps/gateway/listen_socket.h"
#include "../apps/gateway/log.h"
#include "../apps/gateway/session.h"
#include "support/support.h"

#define BACKENDS  3
#define CLIENTS   60
#define LISTENERS 32

static struct {
    struct backends backends;
    struct backend_reports reports;
    struct backend_reports *reporters[1];
    struct backends_view view;
    struct session_table table;
    struct backend_choice choices[BACKENDS];
    int fds[BACKENDS];
    struct ports *ports;
    struct listen_socket sockets[LISTENERS];
    int epoll_fd;
    uint32_t now; /* seconds */
} t;

/* What the table of ports was told last. */
static struct {
    unsigned notes, releases;
    uint64_t noted, last;
} told;

void __real_ports_note(struct ports *ports, uint64_t name, uint16_t port, uint64_t now);
void __wrap_ports_note(struct ports *ports, uint64_t name, uint16_t port, uint64_t now);
void __real_ports_release(struct ports *ports, uint64_t name, uint16_t port, uint64_t last);
void __wrap_ports_release(struct ports *ports, uint64_t name, uint16_t port, uint64_t last);

void __wrap_ports_note(struct ports *ports, uint64_t name, uint16_t port, uint64_t now)
{
    told.notes++;
    told.noted = now;
    __real_ports_note(ports, name, port, now);
}

void __wrap_ports_release(struct ports *ports, uint64_t name, uint16_t port, uint64_t last)
{
    told.releases++;
    told.last = last;
    __real_ports_release(ports, name, port, last);
}

/* Of connect(); 0: it does what it is for. */
static int connect_error;

/* A port to which strangers send ten packets just before its socket is connected; 0: none do. */
static uint16_t early_port;

int __real_connect(int fd, const struct sockaddr *address, socklen_t size);
int __wrap_connect(int fd, const struct sockaddr *address, socklen_t size);

int __wrap_connect(int fd, const struct sockaddr *address, socklen_t size)
{
    const struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(early_port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int stranger = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    for (int i = 0; i < 10 && early_port != 0; i++) {
        assert_int_equal(sendto(stranger, "!", 1, 0, (const struct sockaddr *) &to, sizeof(to)), 1);
    }
    (void) close(stranger);
    early_port = 0;
    if (connect_error != 0) {
        errno = connect_error;
        return -1;
    }
    return __real_connect(fd, address, size);
}

static struct client client(unsigned n)
{
    struct client out;
    memset(&out, 0, sizeof(out));
    out.address.length = sizeof(out.address.u.v4);
    out.address.u.v4.sin_family = AF_INET;
    out.address.u.v4.sin_addr.s_addr = htonl(0xc6336400 + n);
    out.address.u.v4.sin_port = htons(1000);
    return out;
}

static int begin(void **arg)
{
    (void) arg;
    char problem[256];
    memset(&t, 0, sizeof(t));
    log_start(WEIR_LOG_ERROR, LOG_TEXT);
    t.now = 100;
    t.reporters[0] = &t.reports;
    t.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    backends_init(&t.backends, NULL, t.reporters, 1);
    for (unsigned i = 0; i < BACKENDS; i++) {
        struct backend_choice *choice = &t.choices[i];
        socklen_t size = sizeof(choice->address.u.v4);
        t.fds[i] = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        choice->address.u.v4.sin_family = AF_INET;
        choice->address.u.v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        choice->address.length = size;
        choice->weight = 1;
        assert_int_equal(bind(t.fds[i], &choice->address.u.any, size), 0);
        assert_int_equal(getsockname(t.fds[i], &choice->address.u.any, &size), 0);
        (void) snprintf(choice->text, sizeof(choice->text), "127.0.0.1:%u", ntohs(choice->address.u.v4.sin_port));
    }
    assert_int_equal(backends_replace(&t.backends, t.choices, BACKENDS, problem, sizeof(problem)), 0);
    view_init(&t.view, &t.backends, &t.reports);
    for (unsigned i = 0; i < LISTENERS; i++) {
        t.sockets[i].address = client(200).address;
        t.sockets[i].address.u.v4.sin_port = htons((uint16_t) (7000 + i));
    }
    t.ports = ports_open_private(1000);
    assert_non_null(t.ports);
    const struct session_parts parts = {&t.view, t.ports, t.sockets, t.epoll_fd};
    return session_table_open(&t.table, CLIENTS, &parts, false);
}

static int end(void **arg)
{
    (void) arg;
    session_table_close(&t.table);
    ports_close(t.ports);
    for (unsigned i = 0; i < BACKENDS; i++) {
        (void) close(t.fds[i]);
    }
    (void) close(t.epoll_fd);
    return 0;
}

/* As a worker does it, once a turn. */
static void turn(void)
{
    if (view_update(&t.view)) {
        session_end_gone(&t.table);
        view_settled(&t.view);
    }
}

static void replace(unsigned count)
{
    char problem[256];
    assert_int_equal(backends_replace(&t.backends, t.choices, count, problem, sizeof(problem)), 0);
    turn();
}

/* The number of the backend that a packet of a client comes to; BACKENDS: the client has no session. */
static unsigned sent_to(unsigned n)
{
    const struct client from = client(n);
    const struct session *session = session_of(&t.table, &from, UINT64_C(1000) * t.now);
    char byte;
    if (session == NULL) {
        return BACKENDS;
    }
    assert_int_equal(send(session->fd, "?", 1, 0), 1);
    for (unsigned i = 0; i < BACKENDS; i++) {
        if (recv(t.fds[i], &byte, 1, 0) == 1) {
            return i;
        }
    }
    fail_msg("a packet of client %u came nowhere", n);
    return BACKENDS;
}

static void send_all(unsigned out[CLIENTS])
{
    for (unsigned n = 0; n < CLIENTS; n++) {
        out[n] = sent_to(n);
    }
}

static uint64_t sessions(void)
{
    uint64_t sum = 0;
    for (unsigned place = 0; place < BACKEND_PLACES; place++) {
        sum += backends_sums(&t.backends, place).sessions;
    }
    assert_int_equal(sum, t.table.count);
    return sum;
}

static void test_clients_of_a_backend_that_left_the_list_move_and_come_back_anew(void **arg)
{
    (void) arg;
    unsigned before[CLIENTS];
    unsigned after[CLIENTS];
    send_all(before);
    assert_int_equal(sessions(), CLIENTS);
    replace(BACKENDS - 1);
    assert_true(sessions() < CLIENTS); /* its sessions have ended */
    send_all(after);
    for (unsigned n = 0; n < CLIENTS; n++) {
        assert_true(after[n] != BACKENDS - 1 && (before[n] == BACKENDS - 1 || after[n] == before[n]));
    }
    replace(BACKENDS);
    unsigned back[CLIENTS];
    send_all(back);
    assert_memory_equal(back, after, sizeof(back)); /* sessions stay */
    t.now += 100;
    session_expire(&t.table, UINT64_C(1000) * t.now, 30);
    assert_int_equal(sessions(), 0);
    send_all(back);
    assert_memory_equal(back, before, sizeof(back)); /* new ones go by the hash */
}

static void test_a_backend_that_drains_keeps_its_sessions_until_they_are_idle(void **arg)
{
    (void) arg;
    unsigned before[CLIENTS];
    unsigned after[CLIENTS];
    send_all(before);
    t.choices[0].drain = true;
    replace(BACKENDS);
    send_all(after);
    assert_memory_equal(after, before, sizeof(after));
    t.now += 100;
    session_expire(&t.table, UINT64_C(1000) * t.now, 30);
    send_all(after);
    for (unsigned n = 0; n < CLIENTS; n++) {
        assert_true(after[n] != 0 && (before[n] == 0 || after[n] == before[n]));
    }
    assert_int_equal(sessions(), CLIENTS);
}

static void test_where_all_drain_new_clients_have_no_session(void **arg)
{
    (void) arg;
    const unsigned first = sent_to(0);
    for (unsigned i = 0; i < BACKENDS; i++) {
        t.choices[i].drain = true;
    }
    replace(BACKENDS);
    assert_int_equal(sent_to(0), first);
    assert_int_equal(sent_to(1), BACKENDS);
    assert_int_equal(errno, ENOENT);
    assert_int_equal(sessions(), 1);
}

static void test_sessions_of_a_backend_that_is_down_move_and_stay_where_they_moved(void **arg)
{
    (void) arg;
    unsigned before[CLIENTS];
    unsigned moved[CLIENTS];
    unsigned after[CLIENTS];
    send_all(before);
    const struct client from = client(0);
    const uint8_t place = session_of(&t.table, &from, UINT64_C(1000) * t.now)->backend;
    view_note_refusals(&t.view, place, 1, ECONNREFUSED, t.now);
    turn();
    send_all(moved);
    for (unsigned n = 0; n < CLIENTS; n++) {
        assert_true(moved[n] != before[0] && (before[n] == before[0] || moved[n] == before[n]));
    }
    assert_int_equal(sessions(), CLIENTS);
    assert_int_equal(backends_sums(&t.backends, place).sessions, 0);
    assert_true(t.table.moved != 0);
    view_note_replies(&t.view, place, 1, t.now + 1);
    turn();
    send_all(after);
    assert_memory_equal(after, moved, sizeof(after));
}

/* How many sessions began, moved and ended; each change is told while the session's socket is open. */
struct changes {
    unsigned count[3];
};

static void note_change(void *arg, uint32_t number, enum session_change change)
{
    struct changes *changes = arg;
    assert_true(fcntl(t.table.sessions[number].fd, F_GETFD) >= 0);
    changes->count[change]++;
}

static void test_each_change_of_a_session_is_told_while_its_socket_is_open(void **arg)
{
    (void) arg;
    struct changes changes = {{0, 0, 0}};
    unsigned to[CLIENTS];
    t.table.changes = note_change;
    t.table.changes_arg = &changes;
    send_all(to);
    assert_int_equal(changes.count[SESSION_BEGINS], CLIENTS);
    send_all(to);
    assert_int_equal(changes.count[SESSION_BEGINS], CLIENTS);
    replace(1);
    send_all(to);
    assert_int_equal(changes.count[SESSION_BEGINS], CLIENTS + changes.count[SESSION_ENDS]);
    assert_true(changes.count[SESSION_ENDS] > 0);
    session_table_close(&t.table);
    assert_int_equal(changes.count[SESSION_ENDS], changes.count[SESSION_BEGINS]);
}

enum way { ADDRESS, ADDRESS_END, PORT, ADDRESS6, ADDRESS6_END, PORT6, LOCAL, LOCAL_END, LISTENER, WAYS };

/* One of 32 clients that differ in one thing alone. */
static struct client differing(enum way way, unsigned n)
{
    struct client out = client(1);
    struct sockaddr_in6 *v6 = &out.address.u.v6;
    if (way >= ADDRESS6 && way <= PORT6) {
        memset(v6, 0, sizeof(*v6));
        out.address.length = sizeof(*v6);
        v6->sin6_family = AF_INET6;
        v6->sin6_addr.s6_addr[way == ADDRESS6 ? 2 : 15] = (unsigned char) (way != PORT6 ? n + 1 : 1);
        v6->sin6_port = htons((uint16_t) (way == PORT6 ? 1000 + n : 1000));
    } else if (way == ADDRESS || way == ADDRESS_END) {
        out.address.u.v4.sin_addr.s_addr = htonl(0x0a000001U + (n << (way == ADDRESS ? 16 : 0)));
    } else if (way == PORT) {
        out.address.u.v4.sin_port = htons((uint16_t) (1000 + n));
    } else if (way == LISTENER) {
        out.listener = n;
    } else {
        out.local.s6_addr[way == LOCAL ? 1 : 15] = (unsigned char) n;
    }
    return out;
}

/* Of 32 that come to 64 chains or more at random, 25 are alone in the mean. */
static void test_clients_that_differ_in_one_thing_alone_are_spread_over_the_chains(void **arg)
{
    (void) arg;
    for (unsigned way = 0; way < WAYS; way++) {
        for (unsigned secret = 0; secret < 12; secret++) {
            bool taken[4 * CLIENTS] = {false};
            unsigned count = 0;
            session_table_close(&t.table);
            ports_close(t.ports);
            t.ports = ports_open_private(1000);
            const struct session_parts parts = {&t.view, t.ports, t.sockets, t.epoll_fd};
            assert_int_equal(session_table_open(&t.table, CLIENTS, &parts, false), 0);
            for (unsigned n = 0; n < 32; n++) {
                const struct client from = differing((enum way) way, n);
                const struct session *session = session_of(&t.table, &from, UINT64_C(1000) * t.now);
                assert_non_null(session);
                const uint32_t chain = (uint32_t) session->name & t.table.chain_mask;
                assert_true(chain < sizeof(taken));
                count += !taken[chain];
                taken[chain] = true;
            }
            assert_true(count >= 15);
        }
    }
}

/* The port of a client's socket, as the kernel has it. */
static uint16_t port_of(const struct session *session)
{
    struct sockaddr_in own = {.sin_port = 0};
    socklen_t size = sizeof(own);
    assert_int_equal(getsockname(session->fd, (struct sockaddr *) &own, &size), 0);
    return ntohs(own.sin_port);
}

static void test_a_client_keeps_its_port_through_moves_ends_and_evictions(void **arg)
{
    (void) arg;
    uint16_t ports[CLIENTS + 20];
    unsigned to[CLIENTS];
    for (unsigned n = 0; n < CLIENTS + 20; n++) { /* the first 20 make way */
        const struct client from = client(n);
        const struct session *session = session_of(&t.table, &from, UINT64_C(1000) * t.now);
        ports[n] = port_of(session);
        assert_int_equal(session->port, ports[n]);
        for (unsigned other = 0; other < n; other++) {
            assert_int_not_equal(ports[other], ports[n]);
        }
    }
    assert_int_equal(t.table.evicted[USE_WAITING], 20);
    for (unsigned n = 0; n < 20; n++) {
        const struct client from = client(n);
        assert_int_equal(port_of(session_of(&t.table, &from, UINT64_C(1000) * t.now)), ports[n]);
    }
    t.now += 31;
    session_expire(&t.table, UINT64_C(1000) * t.now, 30);
    for (unsigned n = 0; n < CLIENTS; n++) {
        to[n] = sent_to(n);
    }
    replace(1); /* the sessions of those that are gone have ended */
    for (unsigned n = 0; n < CLIENTS; n++) {
        const struct client from = client(n);
        assert_int_equal(sent_to(n), 0);
        assert_int_equal(port_of(session_of(&t.table, &from, UINT64_C(1000) * t.now)), ports[n]);
    }
    replace(BACKENDS);
    view_note_refusals(
        &t.view,
        session_of(&t.table, &(struct client){client(0).address, client(0).local, 0}, UINT64_C(1000) * t.now)->backend,
        1, ECONNREFUSED, t.now);
    turn();
    for (unsigned n = 0; n < CLIENTS; n++) {
        const struct client from = client(n);
        assert_true(sent_to(n) != 0 || to[n] == 0);
        assert_int_equal(port_of(session_of(&t.table, &from, UINT64_C(1000) * t.now)), ports[n]);
    }
    assert_int_equal(t.table.moved, CLIENTS);
}

/* Once in each second that has packets, and at the end the time of the last one, to the millisecond. */
static struct session *session_at(unsigned n)
{
    const struct client from = client(n);
    return session_of(&t.table, &from, UINT64_C(1000) * t.now);
}

static enum session_use use_of(const struct session *session)
{
    return shares_use(t.table.shares, (uint32_t) (session - t.table.sessions));
}

static void test_packets_and_replies_tell_how_a_session_is_used(void **arg)
{
    (void) arg;
    struct session *session = session_at(0);
    assert_int_equal(use_of(session), USE_WAITING);
    session_answered(&t.table, session, UINT64_C(1000) * t.now);
    assert_int_equal(use_of(session), USE_ANSWERED);
    assert_ptr_equal(session_at(0), session);
    assert_int_equal(use_of(session), USE_USED);
    session_answered(&t.table, session, UINT64_C(1000) * t.now);
    assert_int_equal(use_of(session), USE_USED);
    t.now += 31;
    session_expire(&t.table, UINT64_C(1000) * t.now, 30);
    assert_int_equal(sessions(), 0);
    assert_int_equal(use_of(session_at(0)), USE_USED); /* it has its port again */
    assert_int_equal(use_of(session_at(1)), USE_WAITING);
}

static void test_sessions_that_are_needed_least_make_way(void **arg)
{
    (void) arg;
    for (unsigned n = 0; n < CLIENTS; n++) {
        struct session *session = session_at(n);
        if (n < 20) {
            (void) session_at(n); /* used */
        } else if (n >= 40) {
            session_answered(&t.table, session, UINT64_C(1000) * t.now);
        }
    }
    for (unsigned n = 0; n < 45; n++) {
        (void) session_at(100 + n);
    }
    /* 20 that were answered, and then of those that waited: the new ones do, too. */
    assert_int_equal(t.table.evicted[USE_ANSWERED], 20);
    assert_int_equal(t.table.evicted[USE_WAITING], 25);
    assert_int_equal(t.table.evicted[USE_USED], 0);
    assert_int_equal(sessions(), CLIENTS);
    for (unsigned n = 0; n < 45; n++) {
        (void) session_at(200 + n);
        (void) session_at(200 + n);
    }
    /* They come back at once. When more than three quarters are used, 46, a used one makes way for each. */
    assert_int_equal(t.table.evicted[USE_WAITING], 25 + 26);
    assert_int_equal(t.table.evicted[USE_USED], 19);
}

static void test_the_table_of_ports_is_told_when_a_session_was_last_used(void **arg)
{
    (void) arg;
    const struct client from = client(1);
    const uint64_t began = UINT64_C(1000) * t.now;
    memset(&told, 0, sizeof(told));
    struct session *session = session_of(&t.table, &from, began);
    session_answered(&t.table, session, began + 300);
    assert_ptr_equal(session_of(&t.table, &from, began + 999), session);
    assert_int_equal(told.notes, 0);
    session_answered(&t.table, session, began + 1001);
    assert_int_equal(told.notes, 1);
    assert_int_equal(told.noted, began + 1001);
    assert_ptr_equal(session_of(&t.table, &from, began + 5000), session);
    assert_int_equal(told.noted, began + 5000);
    session_answered(&t.table, session, began + 5700);
    assert_int_equal(told.notes, 2);
    session_expire(&t.table, began + 35700, 30);
    assert_int_equal(told.releases, 0);
    session_expire(&t.table, began + 35701, 30);
    assert_int_equal(told.releases, 1);
    assert_int_equal(told.last, began + 5700);
}

/* Hosts without a global address of IPv6 have the same error from connect(), and ports enough. */
static void test_a_way_that_is_not_there_is_no_want_of_a_port(void **arg)
{
    (void) arg;
    const struct client from = client(1);
    connect_error = EADDRNOTAVAIL;
    assert_null(session_of(&t.table, &from, UINT64_C(1000) * t.now));
    assert_int_equal(errno, EADDRNOTAVAIL);
    assert_false(t.table.lacks_port);
    connect_error = 0;
    assert_non_null(session_of(&t.table, &from, UINT64_C(1000) * t.now));
}

static void test_what_came_before_a_socket_was_connected_is_dropped(void **arg)
{
    (void) arg;
    const struct client from = client(1);
    struct session *session = session_of(&t.table, &from, UINT64_C(1000) * t.now);
    const uint16_t port = port_of(session);
    char byte;
    /* Packets of a stranger that are there when the client comes back: the test has the port in between. */
    session_expire(&t.table, UINT64_C(1000) * (t.now + 31), 30);
    assert_int_equal(t.table.count, 0);
    early_port = port;
    session = session_of(&t.table, &from, UINT64_C(1000) * t.now);
    assert_int_equal(port_of(session), port);
    assert_int_equal(early_port, 0);
    assert_int_equal(recv(session->fd, &byte, 1, 0), -1);
    assert_int_equal(errno, EAGAIN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_clients_of_a_backend_that_left_the_list_move_and_come_back_anew, begin,
                                        end),
        cmocka_unit_test_setup_teardown(test_a_backend_that_drains_keeps_its_sessions_until_they_are_idle, begin, end),
        cmocka_unit_test_setup_teardown(test_where_all_drain_new_clients_have_no_session, begin, end),
        cmocka_unit_test_setup_teardown(test_sessions_of_a_backend_that_is_down_move_and_stay_where_they_moved, begin,
                                        end),
        cmocka_unit_test_setup_teardown(test_each_change_of_a_session_is_told_while_its_socket_is_open, begin, end),
        cmocka_unit_test_setup_teardown(test_clients_that_differ_in_one_thing_alone_are_spread_over_the_chains, begin,
                                        end),
        cmocka_unit_test_setup_teardown(test_a_client_keeps_its_port_through_moves_ends_and_evictions, begin, end),
        cmocka_unit_test_setup_teardown(test_packets_and_replies_tell_how_a_session_is_used, begin, end),
        cmocka_unit_test_setup_teardown(test_sessions_that_are_needed_least_make_way, begin, end),
        cmocka_unit_test_setup_teardown(test_the_table_of_ports_is_told_when_a_session_was_last_used, begin, end),
        cmocka_unit_test_setup_teardown(test_a_way_that_is_not_there_is_no_want_of_a_port, begin, end),
        cmocka_unit_test_setup_teardown(test_what_came_before_a_socket_was_connected_is_dropped, begin, end),
    };
    return cmocka_run_group_tests_name("unit/apps/gateway_session", tests, NULL, NULL);
}
