/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The way to a backend, as a kernel tells it that the test plays: each answer it may give to either question.
 *
 * Guards: apps/gateway/xsk/route.c
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/neighbour.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <stdlib.h>
#include <string.h>

#include "../apps/gateway/xsk/route.h"
#include "support/support.h"

#define WIRE     5 /* number of the interface */
#define ASK_MOST 4

/* A message to the kernel, or from it. */
struct message {
    _Alignas(struct nlmsghdr) unsigned char bytes[512];
    size_t size;
};

static struct {
    struct message asked[ASK_MOST], answers[ASK_MOST];
    size_t asked_count, answer_count, taken;
    bool deaf; /* nothing can be sent */
} kernel;

static const unsigned char mac[FRAME_MAC_SIZE] = {2, 0, 0, 0, 7, 9};

ssize_t __wrap_send(int fd, const void *bytes, size_t size, int flags);
ssize_t __wrap_recv(int fd, void *bytes, size_t size, int flags);

ssize_t __wrap_send(int fd, const void *bytes, size_t size, int flags)
{
    struct message *message = &kernel.asked[kernel.asked_count];
    assert_true(fd >= 0 && flags == 0 && size <= sizeof(message->bytes) && kernel.asked_count < ASK_MOST);
    if (kernel.deaf) {
        errno = ENOBUFS;
        return -1;
    }
    memcpy(message->bytes, bytes, size);
    message->size = size;
    kernel.asked_count++;
    return (ssize_t) size;
}

ssize_t __wrap_recv(int fd, void *bytes, size_t size, int flags)
{
    assert_true(fd >= 0 && flags == 0);
    if (kernel.taken == kernel.answer_count) {
        errno = EAGAIN;
        return -1;
    }
    const struct message *message = &kernel.answers[kernel.taken++];
    assert_true(size >= sizeof(message->bytes));
    memcpy(bytes, message->bytes, message->size);
    return (ssize_t) message->size;
}

static struct nlmsghdr *header_of(struct message *message)
{
    return (struct nlmsghdr *) (void *) message->bytes;
}

/* An answer without attributes. */
static struct message *answer(unsigned type, unsigned sequence, const void *fixed, size_t size)
{
    struct message *message = &kernel.answers[kernel.answer_count++];
    memset(message, 0, sizeof(*message));
    *header_of(message) = (struct nlmsghdr){
        .nlmsg_len = (uint32_t) NLMSG_LENGTH(size), .nlmsg_type = (unsigned short) type, .nlmsg_seq = sequence};
    memcpy(NLMSG_DATA(header_of(message)), fixed, size);
    message->size = NLMSG_LENGTH(size);
    return message;
}

static void add(struct message *message, unsigned type, const void *data, size_t size)
{
    struct rtattr *at = (struct rtattr *) (void *) (message->bytes + NLMSG_ALIGN(message->size));
    at->rta_type = (unsigned short) type;
    at->rta_len = (unsigned short) RTA_LENGTH(size);
    memcpy(RTA_DATA(at), data, size);
    message->size = NLMSG_ALIGN(message->size) + RTA_LENGTH(size);
    header_of(message)->nlmsg_len = (uint32_t) message->size;
}

static struct message *answer_route(unsigned sequence, unsigned char type, uint32_t interface)
{
    const struct rtmsg route = {.rtm_family = AF_INET, .rtm_type = type};
    struct message *message = answer(RTM_NEWROUTE, sequence, &route, sizeof(route));
    const uint32_t table = 254;
    add(message, RTA_TABLE, &table, sizeof(table));
    if (interface != 0) {
        add(message, RTA_OIF, &interface, sizeof(interface));
    }
    return message;
}

static struct message *answer_neighbour(unsigned sequence, uint16_t state, size_t mac_size)
{
    static const unsigned char other[8] = {9, 9, 9, 9, 9, 9, 9, 9};
    const struct ndmsg neighbour = {.ndm_family = AF_INET, .ndm_state = state};
    struct message *message = answer(RTM_NEWNEIGH, sequence, &neighbour, sizeof(neighbour));
    add(message, NDA_DST, other, 4);
    if (mac_size != 0) {
        add(message, NDA_LLADDR, mac_size == FRAME_MAC_SIZE ? mac : other, mac_size);
    }
    return message;
}

static struct address address_of(const char *text)
{
    struct address address;
    memset(&address, 0, sizeof(address));
    address.u.any.sa_family = strchr(text, ':') != NULL ? AF_INET6 : AF_INET;
    assert_int_equal(inet_pton(address.u.any.sa_family, text,
                               address.u.any.sa_family == AF_INET ? (void *) &address.u.v4.sin_addr
                                                                  : (void *) &address.u.v6.sin6_addr),
                     1);
    return address;
}

static struct route_asker asker;

static int begin(void **state)
{
    (void) state;
    memset(&kernel, 0, sizeof(kernel));
    return route_open(&asker);
}

static int end(void **state)
{
    (void) state;
    route_close(&asker);
    route_close(&asker); /* does nothing */
    return asker.fd == -1 ? 0 : -1;
}

/* Holds a question against what it asks about: an address behind a fixed part of 12 bytes. */
static void check_asked(size_t number, unsigned type, const char *text)
{
    struct message *message = &kernel.asked[number];
    unsigned char bytes[16];
    const size_t size = strchr(text, ':') != NULL ? 16 : 4;
    assert_true(number < kernel.asked_count);
    assert_int_equal(header_of(message)->nlmsg_type, type);
    assert_int_equal(header_of(message)->nlmsg_flags, NLM_F_REQUEST);
    assert_int_equal(header_of(message)->nlmsg_len, message->size);
    assert_int_equal(message->size, NLMSG_LENGTH(sizeof(struct rtmsg)) + RTA_LENGTH(size));
    const struct rtattr *attribute = (const struct rtattr *) (void *) (message->bytes + NLMSG_LENGTH(12));
    assert_int_equal(attribute->rta_type, type == RTM_GETROUTE ? (int) RTA_DST : (int) NDA_DST);
    assert_int_equal(RTA_PAYLOAD(attribute), size);
    assert_int_equal(inet_pton(size == 4 ? AF_INET : AF_INET6, text, bytes), 1);
    assert_memory_equal(RTA_DATA(attribute), bytes, size);
    if (type == RTM_GETROUTE) {
        const struct rtmsg *route = NLMSG_DATA(header_of(message));
        assert_int_equal(route->rtm_family, size == 4 ? AF_INET : AF_INET6);
        assert_int_equal(route->rtm_dst_len, 8 * size);
    } else {
        const struct ndmsg *neighbour = NLMSG_DATA(header_of(message));
        assert_int_equal(neighbour->ndm_family, size == 4 ? AF_INET : AF_INET6);
        assert_int_equal(neighbour->ndm_ifindex, WIRE);
        assert_int_equal(neighbour->ndm_flags, type == RTM_NEWNEIGH ? NTF_USE : 0);
    }
}

static bool find(const char *to, struct route_hop *out)
{
    const struct address address = address_of(to);
    memset(out, 0xee, sizeof(*out));
    return route_find(&asker, &address, WIRE, out);
}

static void test_the_next_hop_is_the_backend_or_the_gateway_before_it(void **state)
{
    (void) state;
    static const struct {
        const char *to, *gateway, *via, *asked; /* via: a gateway of IPv6 for IPv4 */
    } rows[] = {
        {"192.0.2.9", NULL, NULL, "192.0.2.9"},     {"192.0.2.9", "198.51.100.1", NULL, "198.51.100.1"},
        {"2001:db8::9", NULL, NULL, "2001:db8::9"}, {"2001:db8::9", "fe80::1", NULL, "fe80::1"},
        {"192.0.2.9", NULL, "fe80::1", "fe80::1"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct route_hop hop;
        unsigned char bytes[18] = {0};
        kernel.asked_count = kernel.answer_count = kernel.taken = 0;
        struct message *route = answer_route(asker.sequence + 1, RTN_UNICAST, WIRE);
        if (rows[i].gateway != NULL) {
            const bool v6 = strchr(rows[i].gateway, ':') != NULL;
            assert_int_equal(inet_pton(v6 ? AF_INET6 : AF_INET, rows[i].gateway, bytes), 1);
            add(route, RTA_GATEWAY, bytes, v6 ? 16 : 4);
        } else if (rows[i].via != NULL) {
            const uint16_t family = AF_INET6;
            memcpy(bytes, &family, sizeof(family));
            assert_int_equal(inet_pton(AF_INET6, rows[i].via, bytes + 2), 1);
            add(route, RTA_VIA, bytes, 18);
        }
        (void) answer_neighbour(asker.sequence + 2, NUD_REACHABLE, FRAME_MAC_SIZE);
        assert_true(find(rows[i].to, &hop));
        assert_int_equal(kernel.asked_count, 2);
        check_asked(0, RTM_GETROUTE, rows[i].to);
        check_asked(1, RTM_GETNEIGH, rows[i].asked);
        assert_memory_equal(hop.mac, mac, sizeof(mac));
        assert_int_equal(hop.mtu, 0);
    }
}

static void test_the_mtu_is_that_of_the_route_where_it_has_one(void **state)
{
    (void) state;
    for (unsigned with = 0; with < 4; with++) {
        struct route_hop hop;
        struct message metrics = {.size = NLMSG_HDRLEN};
        const uint32_t mtu = 600, other = 7;
        kernel.asked_count = kernel.answer_count = kernel.taken = 0;
        if ((with & 1) != 0) {
            add(&metrics, RTAX_HOPLIMIT, &other, sizeof(other));
        }
        if ((with & 2) != 0) {
            add(&metrics, RTAX_MTU, &mtu, sizeof(mtu));
            add(&metrics, RTAX_ADVMSS, &other, sizeof(other));
        }
        add(answer_route(asker.sequence + 1, RTN_UNICAST, WIRE), RTA_METRICS, metrics.bytes + NLMSG_HDRLEN,
            metrics.size - NLMSG_HDRLEN);
        (void) answer_neighbour(asker.sequence + 2, NUD_PERMANENT, FRAME_MAC_SIZE);
        assert_true(find("192.0.2.9", &hop));
        assert_int_equal(hop.mtu, (with & 2) != 0 ? 600 : 0);
    }
}

static void test_neighbours_that_the_kernel_would_send_to_count_and_stale_ones_are_confirmed(void **state)
{
    (void) state;
    static const struct {
        uint16_t state;
        size_t mac_size;
        bool good;
    } rows[] = {
        {NUD_PERMANENT, 6, true}, {NUD_REACHABLE, 6, true},  {NUD_STALE, 6, true},      {NUD_DELAY, 6, true},
        {NUD_PROBE, 6, true},     {NUD_NOARP, 6, false},     {NUD_FAILED, 6, false},    {NUD_INCOMPLETE, 6, false},
        {NUD_NONE, 6, false},     {NUD_REACHABLE, 0, false}, {NUD_REACHABLE, 8, false}, {NUD_STALE, 8, false},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct route_hop hop;
        kernel.asked_count = kernel.answer_count = kernel.taken = 0;
        (void) answer_route(asker.sequence + 1, RTN_UNICAST, WIRE);
        (void) answer_neighbour(asker.sequence + 2, rows[i].state, rows[i].mac_size);
        assert_int_equal(find("192.0.2.9", &hop), rows[i].good);
        assert_int_equal(kernel.asked_count, rows[i].good && rows[i].state == NUD_STALE ? 3 : 2);
        if (kernel.asked_count == 3) {
            check_asked(2, RTM_NEWNEIGH, "192.0.2.9");
        }
    }
}

static void test_routes_that_no_frame_can_take_are_none(void **state)
{
    (void) state;
    for (unsigned way = 0; way < 9; way++) {
        struct route_hop hop;
        const uint32_t encap = 1;
        unsigned char via[20] = {AF_INET6};
        kernel.asked_count = kernel.answer_count = kernel.taken = 0;
        static const unsigned char types[] = {RTN_LOCAL, RTN_BROADCAST, RTN_UNREACHABLE};
        struct message *route = answer_route(asker.sequence + 1, way < 3 ? types[way] : RTN_UNICAST,
                                             way == 3   ? WIRE + 1
                                             : way == 4 ? 0
                                                        : WIRE);
        if (way == 5) {
            add(route, RTA_ENCAP, &encap, sizeof(encap));
        } else if (way == 6 || way == 7) {
            add(route, RTA_VIA, via, way == 6 ? 17 : 19);
        } else if (way == 8) {
            via[0] = AF_INET; /* of another family */
            add(route, RTA_VIA, via, 18);
        }
        (void) answer_neighbour(asker.sequence + 2, NUD_REACHABLE, FRAME_MAC_SIZE);
        assert_false(find("192.0.2.9", &hop));
        assert_int_equal(kernel.asked_count, 1);
    }
}

static void test_answers_to_questions_of_before_are_passed_over_and_others_end_the_search(void **state)
{
    (void) state;
    struct route_hop hop;
    struct nlmsgerr failed = {.error = -ENETUNREACH};
    const uint32_t before = asker.sequence;
    (void) answer(NLMSG_ERROR, before, &failed, sizeof(failed));
    (void) answer_route(before + 1, RTN_UNICAST, WIRE);
    (void) answer(NLMSG_ERROR, before + 1, &failed, sizeof(failed));
    (void) answer_neighbour(before + 2, NUD_REACHABLE, FRAME_MAC_SIZE);
    assert_true(find("192.0.2.9", &hop));
    assert_memory_equal(hop.mac, mac, sizeof(mac));

    for (unsigned way = 0; way < 7; way++) {
        kernel.asked_count = kernel.answer_count = kernel.taken = 0;
        kernel.deaf = way == 0;
        struct message *message;
        if (way == 1) {
            (void) answer(NLMSG_ERROR, asker.sequence + 1, &failed, sizeof(failed));
        } else if (way == 2) { /* cut off */
            message = answer_route(asker.sequence + 1, RTN_UNICAST, WIRE);
            message->size -= 4;
        } else if (way == 3) { /* shorter than its fixed part */
            message = answer_route(asker.sequence + 1, RTN_UNICAST, 0);
            message->size = header_of(message)->nlmsg_len = NLMSG_LENGTH(sizeof(struct rtmsg)) - 4;
        } else if (way >= 4) {
            (void) answer_route(asker.sequence + 1, RTN_UNICAST, WIRE);
        }
        if (way == 5) {
            (void) answer(NLMSG_ERROR, asker.sequence + 2, &failed, sizeof(failed));
        } else if (way == 6) {
            message = answer_neighbour(asker.sequence + 2, NUD_REACHABLE, 0);
            message->size = header_of(message)->nlmsg_len = NLMSG_LENGTH(sizeof(struct ndmsg)) - 4;
        }
        assert_false(find("192.0.2.9", &hop)); /* 4: no answer comes */
    }
    kernel.deaf = false;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_the_next_hop_is_the_backend_or_the_gateway_before_it, begin, end),
        cmocka_unit_test_setup_teardown(test_the_mtu_is_that_of_the_route_where_it_has_one, begin, end),
        cmocka_unit_test_setup_teardown(
            test_neighbours_that_the_kernel_would_send_to_count_and_stale_ones_are_confirmed, begin, end),
        cmocka_unit_test_setup_teardown(test_routes_that_no_frame_can_take_are_none, begin, end),
        cmocka_unit_test_setup_teardown(test_answers_to_questions_of_before_are_passed_over_and_others_end_the_search,
                                        begin, end),
    };
    return cmocka_run_group_tests_name("unit/apps/gateway_route", tests, NULL, NULL);
}
