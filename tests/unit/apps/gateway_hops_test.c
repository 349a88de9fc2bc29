/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the gateway knows of the way to its backends, where the test answers for the kernel.
 *
 * Guards: apps/gateway/xsk/hops.c
 */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>

#include "../apps/gateway/xsk/hops.h"
#include "../apps/gateway/xsk/route.h"
#include "support/support.h"

#define OWN_MOST 256 /* as many addresses of an interface as the gateway keeps */

/* What the kernel would say. The thread that asks takes `lock`. */
static struct {
    pthread_mutex_t lock;
    int mtu;               /* of the interface; 0: it cannot be had */
    uint32_t route_mtu[4]; /* of the ways to the backends */
    unsigned char mac[4];  /* the last byte of the next hop's address; 0: none is known */
    int open_result;
    unsigned opened, closed, asked;
    int given; /* lists of addresses that are not freed yet */
    struct ifaddrs of[OWN_MOST + 4];
    struct address addresses[OWN_MOST + 4];
    size_t count;
    uint64_t looks, paused_ns; /* reads of mtu, and the sum of all pauses */
} kernel = {.lock = PTHREAD_MUTEX_INITIALIZER};

static struct backends backends;

int route_open(struct route_asker *asker)
{
    asker->fd = 77;
    kernel.opened++;
    return kernel.open_result;
}

void route_close(struct route_asker *asker)
{
    assert_int_equal(asker->fd, 77);
    kernel.closed++;
}

bool route_find(struct route_asker *asker, const struct address *to, unsigned interface, struct route_hop *out)
{
    if (asker->fd != 77 || interface != if_nametoindex("lo")) {
        return false;
    }
    (void) pthread_mutex_lock(&kernel.lock);
    const unsigned backend = ntohs(to->u.v4.sin_port) - 1000u;
    kernel.asked++;
    *out = (struct route_hop){.mac = {2, 3, 4, 5, 6, kernel.mac[backend]}, .mtu = kernel.route_mtu[backend]};
    const bool known = kernel.mac[backend] != 0;
    (void) pthread_mutex_unlock(&kernel.lock);
    return known;
}

int __wrap_ioctl(int fd, unsigned long request, struct ifreq *of);
int __wrap_ioctl(int fd, unsigned long request, struct ifreq *of)
{
    if (fd < 0 || request != SIOCGIFMTU || strcmp(of->ifr_name, "lo") != 0) {
        return -1;
    }
    (void) pthread_mutex_lock(&kernel.lock);
    of->ifr_mtu = kernel.mtu;
    kernel.looks++;
    (void) pthread_mutex_unlock(&kernel.lock);
    return of->ifr_mtu != 0 ? 0 : -1;
}

int __wrap_getifaddrs(struct ifaddrs **out);
int __wrap_getifaddrs(struct ifaddrs **out)
{
    (void) pthread_mutex_lock(&kernel.lock);
    *out = kernel.count != 0 ? kernel.of : NULL;
    const int result = kernel.count != 0 ? 0 : -1;
    kernel.given += result == 0;
    (void) pthread_mutex_unlock(&kernel.lock);
    return result;
}

void __wrap_freeifaddrs(struct ifaddrs *all);
void __wrap_freeifaddrs(struct ifaddrs *all)
{
    (void) all;
    (void) pthread_mutex_lock(&kernel.lock);
    kernel.given--;
    (void) pthread_mutex_unlock(&kernel.lock);
}

int __wrap_nanosleep(const struct timespec *pause, struct timespec *left);
int __wrap_nanosleep(const struct timespec *pause, struct timespec *left)
{
    (void) left;
    (void) pthread_mutex_lock(&kernel.lock);
    kernel.paused_ns += (uint64_t) pause->tv_sec * SECOND + (uint64_t) pause->tv_nsec;
    (void) pthread_mutex_unlock(&kernel.lock);
    return sched_yield();
}

/* Waits until two looks have begun, so that a whole one lies in between; a minute at most. */
static void wait_for_look(void)
{
    (void) pthread_mutex_lock(&kernel.lock);
    const uint64_t wanted = kernel.looks + 2;
    const time_t end = time(NULL) + 60;
    while (kernel.looks < wanted) {
        (void) pthread_mutex_unlock(&kernel.lock);
        (void) sched_yield();
        assert_true(time(NULL) < end);
        (void) pthread_mutex_lock(&kernel.lock);
    }
    (void) pthread_mutex_unlock(&kernel.lock);
}

static struct address address_of(const char *text)
{
    struct address address;
    assert_true(address_parse(text, &address));
    return address;
}

/* An interface has one more address. text NULL: it is of neither family. */
static void add_own(const char *interface, const char *text)
{
    const size_t i = kernel.count++;
    kernel.addresses[i] = (struct address){.u.any.sa_family = AF_PACKET};
    if (text != NULL) {
        kernel.addresses[i] = address_of(text);
    }
    kernel.of[i] = (struct ifaddrs){.ifa_name = (char *) (uintptr_t) interface, .ifa_addr = &kernel.addresses[i].u.any};
    if (i != 0) {
        kernel.of[i - 1].ifa_next = &kernel.of[i];
    }
}

static bool is_own(struct hops *hops, uint16_t family, const char *text)
{
    unsigned char bytes[16] = {0};
    assert_int_equal(inet_pton(family == 4 ? AF_INET : AF_INET6, text, bytes), 1);
    return hops_is_own(hops, family, bytes);
}

/* The backend that the kernel knows by its port, less 1000. */
static void add_backend(unsigned place, const char *text)
{
    backends.places[place].address = address_of(text);
    atomic_store(&backends.places[place].role, BACKEND_SERVES);
}

/* The largest packet to a backend, whose next hop has an address that ends with `mac`; 0: no hop is known. */
static uint32_t find(const struct hops *hops, unsigned place, unsigned char mac)
{
    unsigned char found[FRAME_MAC_SIZE] = {0};
    const uint32_t most = hops_find(hops, (uint8_t) place, hops_name(&backends.places[place].address), found);
    const unsigned char wanted[FRAME_MAC_SIZE] = {2, 3, 4, 5, 6, mac};
    assert_true(most == 0 || memcmp(found, wanted, FRAME_MAC_SIZE) == 0);
    return most;
}

static void set_kernel(int mtu, const unsigned char mac[4], const uint32_t route_mtu[4])
{
    (void) pthread_mutex_lock(&kernel.lock);
    kernel.mtu = mtu;
    memcpy(kernel.mac, mac, sizeof(kernel.mac));
    memcpy(kernel.route_mtu, route_mtu, sizeof(kernel.route_mtu));
    (void) pthread_mutex_unlock(&kernel.lock);
}

static void test_backends_that_differ_in_anything_have_other_names(void **state)
{
    (void) state;
    static const char *const texts[] = {"10.0.0.1:80",  "10.0.0.2:80",   "11.0.0.1:80",   "10.0.0.1:81",
                                        "[a00:1::]:80", "[a00:1::1]:80", "[a00:1::1]:81", "0.0.0.0:256",
                                        "0.0.0.0:1",    "[::]:256",      "[::]:1",        "[a00:0:0:1::]:80",
                                        "[::1]:256",    "[::2]:256",     "[1::]:256",     "[0:0:0:1::]:256"};
    enum { COUNT = sizeof(texts) / sizeof(texts[0]) };
    for (size_t i = 0; i < COUNT; i++) {
        const struct address one = address_of(texts[i]);
        assert_true(hops_name(&one) != 0);
        for (size_t k = 0; k < COUNT; k++) {
            const struct address other = address_of(texts[k]);
            assert_int_equal(hops_name(&one) == hops_name(&other), i == k);
        }
    }
}

static void test_the_hops_are_what_the_kernel_says_now(void **state)
{
    (void) state;
    memset(&backends, 0, sizeof(backends));
    (void) pthread_mutex_init(&backends.lock, NULL);
    add_backend(0, "10.0.0.1:1000");
    add_backend(3, "[a00:1::]:1001");
    add_backend(BACKEND_PLACES - 1, "10.0.0.3:1002");
    backends.places[5].address = address_of("10.0.0.4:1003"); /* a place that is free again */
    kernel.count = 0;
    add_own("lo", "192.0.2.1:256");
    add_own("lo0", "192.0.2.2:256");
    add_own("lo", NULL);
    add_own("lo", "[2001:db8::1]:256");
    set_kernel(9000, (const unsigned char[]){1, 5, 0, 9}, (const uint32_t[]){1500, 0, 1500, 1500});
    struct hops *hops = hops_start(&backends, "lo");
    assert_non_null(hops);
    assert_int_equal(hops_mtu(hops), 9000); /* known from the start, as the interface's addresses are */
    assert_true(is_own(hops, 4, "192.0.2.1") && is_own(hops, 6, "2001:db8::1"));
    assert_false(is_own(hops, 4, "192.0.2.2") || is_own(hops, 4, "0.0.0.0") || is_own(hops, 6, "2001:db8::2"));
    assert_false(is_own(hops, 6, "c000:201::")); /* 192.0.2.1, taken for the beginning of one of IPv6 */
    wait_for_look();
    assert_int_equal(find(hops, 3, 5), 9000); /* the route says nothing: what the interface takes */
    assert_int_equal(find(hops, 0, 1), 1500);
    assert_int_equal(find(hops, 5, 9), 0);
    unsigned char mac[FRAME_MAC_SIZE];
    assert_int_equal(hops_find(hops, 0, hops_name(&backends.places[3].address), mac), 0); /* it had the place before */

    set_kernel(1400, (const unsigned char[]){0, 5, 7, 9}, (const uint32_t[]){1500, 1399, 1400, 1500});
    wait_for_look();
    assert_int_equal(find(hops, BACKEND_PLACES - 1, 7), 1400);
    assert_int_equal(find(hops, 0, 1), 0); /* a neighbour that is gone */
    assert_int_equal(find(hops, 3, 5), 1399);
    assert_int_equal(hops_mtu(hops), 1400);

    atomic_store(&backends.places[3].role, BACKEND_ABSENT);
    wait_for_look();
    assert_int_equal(find(hops, 3, 5), 0);
    set_kernel(0, (const unsigned char[]){1, 1, 7, 9}, (const uint32_t[]){1500, 1500, 1500, 1500});
    wait_for_look();
    assert_int_equal(find(hops, BACKEND_PLACES - 1, 7), 0); /* the interface is gone */
    assert_int_equal(hops_mtu(hops), 0);
    set_kernel(100000, (const unsigned char[]){1, 1, 7, 9}, (const uint32_t[]){0, 0, 80000, 0});
    wait_for_look();
    assert_int_equal(find(hops, BACKEND_PLACES - 1, 7), UINT16_MAX); /* packets of IP are no larger */
    assert_int_equal(hops_mtu(hops), UINT16_MAX);
    hops_stop(hops);
    (void) pthread_mutex_destroy(&backends.lock);
    assert_true(kernel.opened == 1 && kernel.closed == 1 && kernel.asked > 0 && kernel.given == 0);
}

static void test_an_interface_has_many_addresses_and_keeps_them_when_they_cannot_be_had(void **state)
{
    (void) state;
    memset(&backends, 0, sizeof(backends));
    (void) pthread_mutex_init(&backends.lock, NULL);
    kernel.count = 0;
    for (unsigned i = 0; i < OWN_MOST + 2; i++) {
        char text[ADDRESS_TEXT_SIZE];
        (void) snprintf(text, sizeof(text), "10.1.%u.%u:256", i / 256, i % 256);
        add_own("lo", text);
    }
    struct hops *hops = hops_start(&backends, "lo");
    assert_non_null(hops);
    assert_true(is_own(hops, 4, "10.1.0.0") && is_own(hops, 4, "10.1.0.255"));
    assert_false(is_own(hops, 4, "10.1.1.0") || is_own(hops, 4, "10.1.1.1"));
    (void) pthread_mutex_lock(&kernel.lock);
    kernel.count = 0; /* getifaddrs fails from now on */
    (void) pthread_mutex_unlock(&kernel.lock);
    wait_for_look();
    assert_true(is_own(hops, 4, "10.1.0.7"));
    hops_stop(hops);
    (void) pthread_mutex_destroy(&backends.lock);
}

static void test_it_looks_twice_a_second(void **state)
{
    (void) state;
    memset(&backends, 0, sizeof(backends));
    (void) pthread_mutex_init(&backends.lock, NULL);
    kernel.mtu = 1500;
    kernel.looks = kernel.paused_ns = 0;
    struct hops *hops = hops_start(&backends, "lo");
    assert_non_null(hops);
    for (int i = 0; i < 5; i++) {
        wait_for_look();
    }
    hops_stop(hops);
    (void) pthread_mutex_destroy(&backends.lock);
    /* hops_start reads the interface once, and its thread begins with a look and may stop at any pause. */
    const uint64_t between = kernel.looks - 2;
    assert_true(kernel.paused_ns >= between * SECOND / 2 && kernel.paused_ns <= (between + 1) * SECOND / 2);
}

static void test_without_a_socket_there_are_no_hops(void **state)
{
    (void) state;
    kernel.opened = kernel.closed = 0;
    kernel.open_result = -EMFILE;
    assert_null(hops_start(&backends, "lo"));
    assert_int_equal(errno, EMFILE);
    kernel.open_result = 0;
    hops_stop(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_backends_that_differ_in_anything_have_other_names),
        cmocka_unit_test(test_the_hops_are_what_the_kernel_says_now),
        cmocka_unit_test(test_an_interface_has_many_addresses_and_keeps_them_when_they_cannot_be_had),
        cmocka_unit_test(test_it_looks_twice_a_second),
        cmocka_unit_test(test_without_a_socket_there_are_no_hops),
    };
    return cmocka_run_group_tests_name("unit/apps/gateway_hops", tests, NULL, NULL);
}
