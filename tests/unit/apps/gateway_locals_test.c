/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host's own addresses, as a system that the test plays tells them: each that comes is told once, and each that
 * goes.
 *
 * Guards: apps/gateway/xdp/locals.c
 */
#include <errno.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "../apps/gateway/xdp/locals.h"
#include "support/support.h"

#define ADDRESSES 40

/* Address n of the host: every third is of IPv6, and of some nothing, or something else, is known. */
static struct {
    struct sockaddr_storage address[ADDRESSES];
    struct ifaddrs all[ADDRESSES];
    bool there[ADDRESSES], told[ADDRESSES];
    bool refused;
    int given;
    unsigned calls;
} host;

int __wrap_getifaddrs(struct ifaddrs **out);
void __wrap_freeifaddrs(struct ifaddrs *all);

static bool is_v6(unsigned n)
{
    return n % 3 == 0;
}

int __wrap_getifaddrs(struct ifaddrs **out)
{
    struct ifaddrs *next = NULL;
    errno = ENOMEM;
    if (host.refused) {
        return -1;
    }
    for (unsigned n = 0; n < ADDRESSES; n++) {
        if (host.there[n]) {
            struct sockaddr_in *v4 = (struct sockaddr_in *) (void *) &host.address[n];
            struct sockaddr_in6 *v6 = (struct sockaddr_in6 *) (void *) &host.address[n];
            memset(&host.address[n], 0, sizeof(host.address[n]));
            if (is_v6(n)) {
                v6->sin6_family = AF_INET6;
                memset(&v6->sin6_addr, (int) (n + 1), 16);
            } else {
                v4->sin_family = AF_INET;
                memset(&v4->sin_addr, (int) (n + 1), 4);
            }
            host.all[n] = (struct ifaddrs){.ifa_addr = (struct sockaddr *) (void *) &host.address[n], .ifa_next = next};
            next = &host.all[n];
        }
    }
    static struct sockaddr other = {.sa_family = AF_PACKET};
    static struct ifaddrs without, of_another;
    of_another = (struct ifaddrs){.ifa_addr = &other, .ifa_next = next};
    without = (struct ifaddrs){.ifa_addr = NULL, .ifa_next = &of_another};
    *out = &without;
    host.given++;
    return 0;
}

void __wrap_freeifaddrs(struct ifaddrs *all)
{
    (void) all;
    host.given--;
}

static void set(void *arg, const struct drop_key *address, bool there)
{
    unsigned char bytes[16] = {0};
    const unsigned n = address->address[0] - 1U;
    assert_true(arg == &host && n < ADDRESSES);
    memset(bytes, (int) (n + 1), is_v6(n) ? 16 : 4);
    assert_memory_equal(address->address, bytes, 16);
    assert_int_equal(address->family, is_v6(n) ? 6 : 4);
    assert_int_equal(address->prefix, 0);
    assert_true(host.told[n] != there && host.there[n] == there);
    host.told[n] = there;
    host.calls++;
}

static void test_addresses_are_told_when_they_come_and_when_they_go(void **state)
{
    (void) state;
    struct locals locals = {.known = NULL};
    uint64_t rng = test_seed();
    for (unsigned round = 0; round < 2000; round++) {
        unsigned changes = 0;
        for (unsigned n = 0; n < ADDRESSES; n++) {
            const bool changed = draw_once_in(&rng, round % 10 == 0 ? 2 : 30);
            changes += changed;
            host.there[n] = host.there[n] != changed;
        }
        host.calls = 0;
        locals_look(&locals, set, &host);
        assert_int_equal(host.calls, changes);
        assert_int_equal(host.given, 0);
        assert_memory_equal(host.told, host.there, sizeof(host.told));
        if (draw_once_in(&rng, 10)) { /* what cannot be asked for stays as it was */
            host.refused = true;
            locals_look(&locals, set, &host);
            host.refused = false;
            assert_int_equal(host.calls, changes);
        }
    }
    locals_close(&locals);
    assert_true(locals.known == NULL && locals.count == 0);
    locals_close(&locals);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_addresses_are_told_when_they_come_and_when_they_go),
    };
    return cmocka_run_group_tests_name("unit/apps/gateway_locals", tests, NULL, NULL);
}
