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
#include <stdio.h>
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
    struct ifaddrs *list; /* what is given in the place of the others */
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
    if (host.list != NULL) {
        *out = host.list;
        host.given++;
        return 0;
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

/* Of addresses of IPv4, by their networks, the broadcast addresses; each is told once. */
static struct {
    unsigned char address[4], mask[4];
    struct sockaddr_in from, netmask;
} networks[] = {
    {.address = {10, 77, 1, 1}, .mask = {255, 255, 255, 0}},
    {.address = {10, 77, 1, 100}, .mask = {255, 255, 255, 0}},
    {.address = {192, 0, 2, 9}, .mask = {255, 255, 255, 248}},
    {.address = {198, 51, 100, 7}, .mask = {255, 255, 255, 255}},
    {.address = {198, 51, 100, 8}, .mask = {255, 255, 255, 254}},
    {.address = {172, 16, 3, 4}, .mask = {255, 240, 0, 0}},
    {.address = {203, 0, 113, 2}, .mask = {255, 255, 255, 252}},
};

static char told[400];

static void note(void *arg, const struct drop_key *address, bool there)
{
    assert_true(arg == told && there);
    if (address->prefix != 0) {
        assert_int_equal(address->prefix, DROP_BROADCAST);
        const size_t used = strlen(told);
        (void) snprintf(told + used, sizeof(told) - used, "%u.%u.%u.%u ", address->address[0], address->address[1],
                        address->address[2], address->address[3]);
    }
}

static void test_of_each_wire_its_broadcast_address_is_told_once(void **state)
{
    (void) state;
    struct locals locals = {.known = NULL};
    struct ifaddrs all[sizeof(networks) / sizeof(networks[0])];
    for (size_t i = 0; i < sizeof(networks) / sizeof(networks[0]); i++) {
        networks[i].from.sin_family = networks[i].netmask.sin_family = AF_INET;
        memcpy(&networks[i].from.sin_addr, networks[i].address, 4);
        memcpy(&networks[i].netmask.sin_addr, networks[i].mask, 4);
        all[i] = (struct ifaddrs){.ifa_addr = (struct sockaddr *) &networks[i].from,
                                  .ifa_netmask = (struct sockaddr *) &networks[i].netmask,
                                  .ifa_next = i != 0 ? &all[i - 1] : NULL};
    }
    host.list = &all[sizeof(networks) / sizeof(networks[0]) - 1];
    locals_look(&locals, note, told);
    host.list = NULL;
    locals_close(&locals);
    assert_string_equal(told, "10.77.1.255 172.31.255.255 192.0.2.15 203.0.113.3 ");
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
        cmocka_unit_test(test_of_each_wire_its_broadcast_address_is_told_once),
    };
    return cmocka_run_group_tests_name("unit/apps/gateway_locals", tests, NULL, NULL);
}
