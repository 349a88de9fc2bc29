/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Addresses as people write them and as the PROXY protocol does, and the sockets that listen on them.
 *
 * Guards: apps/gateway/address.c, apps/gateway/proxy.c
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../apps/gateway/address.h"
#include "../apps/gateway/proxy.h"
#include "support/support.h"

static void test_a_text_is_a_host_and_a_port(void **state)
{
    (void) state;
    static const struct {
        const char *text, *host; /* NULL: it is no address */
        uint16_t port;
    } rows[] = {
        {"127.0.0.1:7000", "127.0.0.1", 7000},
        {":1", "", 1},
        {"h:65535", "h", 65535},
        {"h:00080", "h", 80},
        {"[::1]:7", "::1", 7},
        {"[a]:7", "a", 7},
        {"h", NULL, 0},
        {"h:", NULL, 0},
        {"h:0", NULL, 0},
        {"h:65536", NULL, 0},
        {"h:99999999999999999999", NULL, 0},
        {"h: 7", NULL, 0},
        {"h:+7", NULL, 0},
        {"h:-7", NULL, 0},
        {"h:7x", NULL, 0},
        {"h:x", NULL, 0},
        {"::1:7", NULL, 0},
        {"[::1:7", NULL, 0},
        {"[]:7", NULL, 0},
        {"[:7", NULL, 0},
        {"", NULL, 0},
    };
    char host[ADDRESS_HOST_SIZE];
    uint16_t port;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(address_split(rows[i].text, host, &port), rows[i].host != NULL);
        if (rows[i].host != NULL) {
            assert_string_equal(host, rows[i].host);
            assert_int_equal(port, rows[i].port);
        }
    }
    /* A host has so many letters, and a longer one is none. */
    for (size_t length = ADDRESS_HOST_SIZE - 2; length < 5000; length = length < 300 ? length + 1 : 4999) {
        static char text[6000];
        struct {
            char host[ADDRESS_HOST_SIZE], behind[6000];
        } out;
        memset(text, 'h', length);
        (void) snprintf(text + length, sizeof(text) - length, ":7");
        memset(&out, 'x', sizeof(out));
        const bool good = address_split(text, out.host, &port);
        assert_int_equal(good, length < ADDRESS_HOST_SIZE);
        assert_true(!good || strlen(out.host) == length);
        assert_int_equal(out.behind[0], 'x');
        if (length == 4999) {
            break;
        }
    }
}

static struct address address_of(const char *text)
{
    struct address out;
    assert_int_equal(address_find(text, SOCK_DGRAM, &out), 0);
    return out;
}

static void test_an_address_is_printed_as_it_is_written(void **state)
{
    (void) state;
    static const char *const texts[] = {"127.0.0.1:7000",      "0.0.0.0:7",      "[::1]:7000",     ":7",
                                        "[2001:db8::7]:65535", "127.0.0.1:7001", "127.0.0.2:7000", "[::1]:7001",
                                        "[::ffff:1.2.3.4]:7"};
    const size_t count = sizeof(texts) / sizeof(texts[0]);
    for (size_t i = 0; i < count; i++) {
        const struct address one = address_of(texts[i]);
        char text[ADDRESS_TEXT_SIZE];
        const bool v4 = texts[i][0] != '[' && texts[i][0] != ':';
        address_print(&one, text);
        assert_string_equal(text, texts[i]);
        assert_int_equal(one.u.any.sa_family, v4 ? AF_INET : AF_INET6);
        assert_int_equal(one.length, v4 ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6));
        assert_int_equal(address_is_any(&one), i == 1 || i == 3);
        for (size_t j = 0; j < count; j++) {
            const struct address other = address_of(texts[j]);
            assert_int_equal(address_is_same(&one, &other), i == j);
        }
    }
    struct address near = address_of("[::1]:7"), far = near;
    far.u.v6.sin6_scope_id = 3;
    assert_false(address_is_same(&near, &far));
    /* A name stands for its first address of IPv4. */
    const struct address name = address_of("localhost:7");
    assert_int_equal(name.u.any.sa_family, AF_INET);
    assert_int_equal(name.u.v4.sin_addr.s_addr, htonl(INADDR_LOOPBACK));
    assert_int_equal(name.u.v4.sin_port, htons(7));
    struct address none;
    assert_int_equal(address_find("h", SOCK_DGRAM, &none), ADDRESS_MALFORMED);
    assert_true(address_find("[::1%no-such-interface]:7", SOCK_DGRAM, &none) < 0);
    assert_true(address_parse("127.0.0.1:1", &none) && !address_parse("127.0.0.1", &none));
    assert_string_equal(address_problem(ADDRESS_MALFORMED),
                        "is no address; give one such as 127.0.0.1:7000, [::1]:7000, :7000 or host:7000");
    assert_string_equal(address_problem(EAI_NONAME), gai_strerror(EAI_NONAME));
}

/* What has come to a socket. */
static unsigned count_received(int fd)
{
    char byte;
    unsigned count = 0;
    while (recv(fd, &byte, 1, 0) == 1) {
        count++;
    }
    assert_int_equal(errno, EAGAIN);
    return count;
}

static void test_sockets_share_an_address_until_one_leaves(void **state)
{
    (void) state;
    for (unsigned any = 0; any < 2; any++) {
        struct address address = {.u.v4 = {.sin_family = AF_INET}, .length = sizeof(address.u.v4)};
        address.u.v4.sin_addr.s_addr = htonl(any ? INADDR_ANY : INADDR_LOOPBACK);
        const int first = address_bind_udp(&address);
        assert_true(first >= 0);
        assert_true((fcntl(first, F_GETFL) & O_NONBLOCK) != 0 && fcntl(first, F_GETFD) == FD_CLOEXEC);
        assert_int_equal(getsockname(first, &address.u.any, &address.length), 0);
        const int second = address_bind_udp(&address);
        assert_true(second >= 0);
        int size = 0, usual = 0;
        socklen_t length = sizeof(size);
        const int plain = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        for (unsigned way = 0; way < 2; way++) { /* as large as the system permits */
            const int name = way == 0 ? SO_RCVBUF : SO_SNDBUF, wanted = 4 << 20;
            assert_int_equal(setsockopt(plain, SOL_SOCKET, name, &wanted, sizeof(wanted)), 0);
            assert_int_equal(getsockopt(plain, SOL_SOCKET, name, &usual, &length), 0);
            assert_int_equal(getsockopt(first, SOL_SOCKET, name, &size, &length), 0);
            assert_int_equal(size, usual);
        }
        assert_int_equal(address_leave(first, &address), 0);
        for (unsigned i = 0; i < 20; i++) { /* each from a port of its own */
            struct sockaddr_in to = address.u.v4;
            const int client = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
            to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
            assert_int_equal(sendto(client, "?", 1, 0, (const struct sockaddr *) &to, sizeof(to)), 1);
            (void) close(client);
        }
        assert_int_equal(count_received(first), 0);
        assert_int_equal(count_received(second), 20);
        /* One that shares it with nobody keeps it. */
        const int alone = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        struct address taken = {.u.v4 = {.sin_family = AF_INET}, .length = sizeof(taken.u.v4)};
        assert_int_equal(bind(alone, &taken.u.any, taken.length), 0);
        assert_int_equal(getsockname(alone, &taken.u.any, &taken.length), 0);
        const size_t descriptors = count_descriptors();
        assert_int_equal(address_bind_udp(&taken), -1);
        assert_int_equal(errno, EADDRINUSE);
        assert_int_equal(count_descriptors(), descriptors);
        (void) close(first);
        (void) close(second);
        (void) close(plain);
        (void) close(alone);
    }
}

static void test_a_header_has_both_ends(void **state)
{
    (void) state;
    static const struct {
        const char *from, *asked;
        size_t size;
        unsigned char header[52];
    } rows[] = {
        {"192.0.2.1:258", "198.51.100.2:772", 28, {0x21, 0x12, 0, 12, 192, 0, 2, 1, 198, 51, 100, 2, 1, 2, 3, 4}},
        {"[::ffff:192.0.2.1]:258",
         "[::ffff:198.51.100.2]:772",
         28,
         {0x21, 0x12, 0, 12, 192, 0, 2, 1, 198, 51, 100, 2, 1, 2, 3, 4}},
        {"[102:304:506:708:90a:b0c:d0e:f10]:258",
         "[2001:db8::9]:772",
         52,
         {0x21, 0x22, 0,   36,   1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16,
          0x20, 1,    0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,  0,  9,  1,  2,  3,  4}},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct address from = address_of(rows[i].from), asked = address_of(rows[i].asked);
        unsigned char out[PROXY_HEADER_MAX];
        assert_int_equal(proxy_header(&from, &asked, out), rows[i].size);
        assert_memory_equal(out, "\r\n\r\n\0\r\nQUIT\n", 12);
        assert_memory_equal(out + 12, rows[i].header, rows[i].size - 12);
    }
    assert_int_equal(PROXY_HEADER_MAX, 52);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_text_is_a_host_and_a_port),
        cmocka_unit_test(test_an_address_is_printed_as_it_is_written),
        cmocka_unit_test(test_sockets_share_an_address_until_one_leaves),
        cmocka_unit_test(test_a_header_has_both_ends),
    };
    return cmocka_run_group_tests_name("unit/apps/gateway_address", tests, NULL, NULL);
}
