/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The program that drops packets in the kernel, run on drawn packets with a table that is half full, against arrays
 * that say of each source and network whether it is denied; denials that end meanwhile; and packets between listeners.
 * Skipped where the kernel loads no program for this user.
 *
 * Guards: apps/gateway/xdp/drop.bpf.c, apps/gateway/xdp/drop.h, apps/gateway/xdp/lines.c
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "../apps/gateway/xdp/lines.h"
#include "drop.skel.h"
#include "support/support.h"

#define SOURCES  28000 /* of each family; with their networks they fill nearly half of the lines */
#define NETWORKS (SOURCES / 256 + 1)
#define PACKETS  30000
#define PAYLOAD  22
#define PORT     7000
#define LINES    (DROP_LINES * sizeof(struct drop_line))

enum { V4, V6, FAMILIES };

/* A source or a network, as the test knows it. */
struct plain {
    uint32_t line; /* LINES_NONE: it is not held */
    bool denied;
    uint64_t packets;
};

static struct {
    struct drop_bpf *program;
    struct lines lines;
    struct plain sources[FAMILIES][SOURCES], networks[FAMILIES][NETWORKS];
} d;

static int be_quiet(enum libbpf_print_level level, const char *format, va_list arguments)
{
    (void) level;
    (void) format;
    (void) arguments;
    return 0;
}

static void set_target(struct drop_target *target)
{
    *target = (struct drop_target){.listeners = {{.is_v4 = 1, .port = htons(PORT)}, {.is_v6 = 1, .port = htons(PORT)}},
                                   .listener_count = 2,
                                   .count4 = 2,
                                   .count6 = 2,
                                   .prefixes4 = {24, 32},
                                   .prefixes6 = {56, 64},
                                   .secret = {d.lines.secret[0], d.lines.secret[1]}};
    target->listeners[V4].address4 = inet_addr("10.77.1.1");
    assert_int_equal(inet_pton(AF_INET6, "fd77::1", target->listeners[V6].address6), 1);
}

/* Begins a test, or skips it: no key is held. Returns the seed. */
static uint64_t begin(void)
{
    if (d.program == NULL) {
        print_message("# the kernel loads no program for this user\n");
        skip();
    }
    uint64_t rng = test_seed();
    memset(d.lines.at, 0, LINES);
    d.lines.secret[0] = random_next(&rng);
    d.lines.secret[1] = random_next(&rng);
    set_target(&d.program->bss->target);
    return rng;
}

static int open_program(void **state)
{
    (void) state;
    (void) libbpf_set_print(be_quiet);
    d.program = drop_bpf__open();
    assert_non_null(d.program);
    (void) bpf_program__set_autoload(d.program->progs.drop_or_forward, false);
    (void) bpf_program__set_autoload(d.program->progs.steer, false);
    (void) bpf_map__set_autocreate(d.program->maps.queues, false);
    (void) bpf_map__set_autocreate(d.program->maps.sockets, false);
    const int error = drop_bpf__load(d.program);
    if (error == -EPERM || error == -EACCES || error == -ENOSYS) {
        drop_bpf__destroy(d.program);
        d.program = NULL;
        return 0;
    }
    assert_int_equal(error, 0);
    d.lines.at = mmap(NULL, LINES, PROT_READ | PROT_WRITE, MAP_SHARED, bpf_map__fd(d.program->maps.lines), 0);
    assert_true(d.lines.at != MAP_FAILED);
    d.lines.count = DROP_LINES;
    return 0;
}

static int close_program(void **state)
{
    (void) state;
    if (d.program != NULL) {
        (void) munmap(d.lines.at, LINES);
        drop_bpf__destroy(d.program);
    }
    return 0;
}

/* The address of a source: the lowest bytes that its family's sources differ in are its number. */
static void put_address(int family, uint32_t number, uint8_t *out)
{
    const uint32_t wide = htonl(number);
    memcpy(out, family == V4 ? "\x0b\0\0\0" : "\x20\x01\x0d\xb8\0\0\0\0\1\2\3\4\5\6\7", family == V4 ? 4 : 16);
    memcpy(out + (family == V4 ? 1 : 5), (const uint8_t *) &wide + 1, 3);
}

static uint64_t boot_ns(void)
{
    struct timespec now;
    (void) clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t) now.tv_sec * SECOND + (uint64_t) now.tv_nsec;
}

/* Gives a source or a network a line. */
static uint32_t place(int family, uint32_t number, bool is_network)
{
    struct drop_key key = {.family = family == V4 ? 4 : 6};
    key.prefix = (uint8_t) ((family == V4 ? 32 : 64) - (is_network ? 8 : 0));
    put_address(family, is_network ? number << 8 : number, key.address);
    memset(key.address + key.prefix / 8, 0, sizeof(key.address) - key.prefix / 8);
    return lines_place(&d.lines, &key, number);
}

static void hold(int family, uint32_t number, bool is_network, uint64_t *rng)
{
    struct plain *plain = is_network ? &d.networks[family][number] : &d.sources[family][number];
    *plain = (struct plain){.line = place(family, number, is_network)};
    if (plain->line == LINES_NONE) {
        return;
    }
    const uint64_t now_ns = boot_ns();
    const uint64_t kind = random_below(rng, is_network ? 20 : 4);
    plain->denied = kind == 0;
    d.lines.at[plain->line].until_ns = kind == 0 ? now_ns + HOUR : kind == 1 ? 0 : now_ns;
    if (kind == 2) { /* let go, and its line rests */
        d.lines.at[plain->line].until_ns = now_ns + HOUR;
        lines_clear(&d.lines, plain->line);
        plain->line = LINES_NONE;
    }
}

/* A packet of a source to the listener. Its size. */
static uint32_t write_packet(int family, uint32_t number, uint8_t *out)
{
    const struct udphdr udp = {.source = htons(9), .dest = htons(PORT), .len = htons(sizeof(udp) + PAYLOAD)};
    uint8_t *at = out + ETH_HLEN;
    memset(out, 0, 128);
    ((struct ethhdr *) (void *) out)->h_proto = htons(family == V4 ? ETH_P_IP : ETH_P_IPV6);
    if (family == V4) {
        struct iphdr ip = {.version = 4, .ihl = 5, .protocol = IPPROTO_UDP, .daddr = inet_addr("10.77.1.1")};
        put_address(family, number, (uint8_t *) &ip.saddr);
        memcpy(at, &ip, sizeof(ip));
        at += sizeof(ip);
    } else {
        struct ipv6hdr ip = {.version = 6, .nexthdr = IPPROTO_UDP};
        assert_int_equal(inet_pton(AF_INET6, "fd77::1", &ip.daddr), 1);
        put_address(family, number, (uint8_t *) &ip.saddr);
        memcpy(at, &ip, sizeof(ip));
        at += sizeof(ip);
    }
    memcpy(at, &udp, sizeof(udp));
    return (uint32_t) (at - out) + sizeof(udp) + PAYLOAD;
}

static bool is_dropped(int family, uint32_t number)
{
    uint8_t packet[128];
    struct bpf_test_run_opts options = {.sz = sizeof(options), .data_in = packet, .repeat = 1};
    options.data_size_in = write_packet(family, number, packet);
    assert_int_equal(bpf_prog_test_run_opts(bpf_program__fd(d.program->progs.drop_denied), &options), 0);
    assert_true(options.retval == XDP_DROP || options.retval == XDP_PASS);
    return options.retval == XDP_DROP;
}

static void expect_counts(const struct plain *plain)
{
    if (plain->line != LINES_NONE) {
        assert_int_equal(d.lines.at[plain->line].packets, plain->packets);
        assert_int_equal(d.lines.at[plain->line].bytes, PAYLOAD * plain->packets);
    }
}

static void test_drawn_packets_are_dropped_where_their_source_or_network_is_denied(void **state)
{
    (void) state;
    uint64_t rng = begin();
    for (int family = V4; family < FAMILIES; family++) {
        for (uint32_t i = 0; i < NETWORKS; i++) {
            hold(family, i, true, &rng);
        }
        for (uint32_t i = 0; i < SOURCES; i++) {
            hold(family, i, false, &rng);
        }
    }
    uint64_t dropped = 0;
    for (int n = 0; n < PACKETS; n++) {
        const int family = (int) random_below(&rng, FAMILIES);
        const uint32_t number = (uint32_t) random_below(&rng, SOURCES);
        struct plain *network = &d.networks[family][number / 256];
        struct plain *source = &d.sources[family][number];
        struct plain *denied = network->denied ? network : source;
        assert_int_equal(is_dropped(family, number), denied->denied);
        denied->packets += denied->denied;
        dropped += denied->denied;
    }
    assert_in_range(dropped, PACKETS / 10, PACKETS / 2);
    for (int family = V4; family < FAMILIES; family++) {
        for (uint32_t i = 0; i < SOURCES; i++) {
            expect_counts(&d.sources[family][i]);
            expect_counts(&d.networks[family][i / 256]);
        }
    }
}

/* Sends packets until some time after a denial has ended, now and then with a pause. Each meets the denial or not. */
static void expect_until(int family, uint64_t until_ns, uint64_t *rng)
{
    uint64_t before_ns;
    unsigned sure = 0;
    do {
        if (random_below(rng, 1000) == 0) {
            nap_ms((unsigned) random_below(rng, 20));
        }
        before_ns = boot_ns();
        const bool dropped = is_dropped(family, 0);
        const uint64_t after_ns = boot_ns();
        if (before_ns >= until_ns || after_ns < until_ns) {
            assert_int_equal(dropped, after_ns < until_ns);
            sure++;
        }
    } while (before_ns < until_ns + 10 * MILLISECOND);
    assert_true(sure > 1);
}

/* An end of a packet: addresses and ports of which there are few, so that sources are often those of listeners. */
struct end {
    uint8_t address[16];
    uint16_t port;
};

static struct end draw_end(int family, uint64_t *rng)
{
    static const char *const addresses[FAMILIES][4] = {{"10.77.1.1", "10.77.1.2", "10.77.9.1", "203.0.113.9"},
                                                       {"fd77::1", "fd77::2", "fd77::9:1", "2001:db8::9"}};
    static const uint16_t ports[] = {PORT, PORT + 1, PORT + 2, 0, 1, 7, 9, 13, 17, 18, 19, 37, 53, 65535};
    struct end end = {.port = ports[random_below(rng, sizeof(ports) / sizeof(ports[0]))]};
    assert_int_equal(inet_pton(family == V4 ? AF_INET : AF_INET6, addresses[family][random_below(rng, 4)], end.address),
                     1);
    return end;
}

static bool is_end(int family, const struct end *end, const char *address, uint16_t port)
{
    uint8_t bytes[16] = {0};
    assert_int_equal(inet_pton(family == V4 ? AF_INET : AF_INET6, address, bytes), 1);
    return end->port == port && memcmp(bytes, end->address, sizeof(bytes)) == 0;
}

/* The listeners of set_target(), and one on every address of this host, at the next port. */
static bool is_listener(int family, const struct end *end)
{
    const char *first = family == V4 ? "10.77.1.1" : "fd77::1";
    const char *second = family == V4 ? "10.77.9.1" : "fd77::9:1";
    return is_end(family, end, first, PORT) || is_end(family, end, first, PORT + 1) ||
           is_end(family, end, second, PORT + 1);
}

static uint32_t write_between(int family, const struct end *from, const struct end *to, uint8_t *out)
{
    const uint32_t size = write_packet(family, 0, out);
    const size_t at = ETH_HLEN + (family == V4 ? offsetof(struct iphdr, saddr) : offsetof(struct ipv6hdr, saddr));
    const size_t length = family == V4 ? 4 : 16;
    const uint16_t ports[] = {htons(from->port), htons(to->port)};
    memcpy(out + at, from->address, length);
    memcpy(out + at + length, to->address, length);
    memcpy(out + at + 2 * length, ports, sizeof(ports)); /* the header of UDP follows the addresses */
    return size;
}

static void test_drawn_packets_are_dropped_where_no_client_has_their_source(void **state)
{
    (void) state;
    uint64_t rng = begin();
    uint64_t dropped = d.program->bss->invalid_sources;
    const uint64_t before = dropped;
    const uint32_t one = 1;
    d.program->bss->target.listeners[FAMILIES] =
        (struct drop_listener){.is_v4 = 1, .is_v6 = 1, .any = 1, .port = htons(PORT + 1)};
    d.program->bss->target.listener_count = FAMILIES + 1;
    for (int family = V4; family < FAMILIES; family++) {
        for (int i = 0; i < 2; i++) {
            struct drop_key key = {.family = family == V4 ? 4 : 6};
            const char *address =
                i == 0 ? (family == V4 ? "10.77.1.1" : "fd77::1") : (family == V4 ? "10.77.9.1" : "fd77::9:1");
            assert_int_equal(inet_pton(family == V4 ? AF_INET : AF_INET6, address, key.address), 1);
            assert_int_equal(bpf_map_update_elem(bpf_map__fd(d.program->maps.locals), &key, &one, BPF_ANY), 0);
        }
    }
    for (int n = 0; n < PACKETS; n++) {
        uint8_t packet[128];
        const int family = (int) random_below(&rng, FAMILIES);
        const struct end from = draw_end(family, &rng);
        const struct end to = draw_end(family, &rng);
        struct bpf_test_run_opts options = {.sz = sizeof(options), .data_in = packet, .repeat = 1};
        options.data_size_in = write_between(family, &from, &to, packet);
        const bool of_service = from.port == 0 || from.port == 7 || from.port == 13 || from.port == 17 ||
                                from.port == 19 || from.port == 37;
        const bool expected = to.port != 0 && is_listener(family, &to) && (of_service || is_listener(family, &from));
        assert_int_equal(bpf_prog_test_run_opts(bpf_program__fd(d.program->progs.drop_denied), &options), 0);
        assert_int_equal(options.retval, expected ? XDP_DROP : XDP_PASS);
        dropped += expected;
        assert_int_equal(d.program->bss->invalid_sources, dropped);
    }
    assert_in_range(dropped - before, PACKETS / 100, PACKETS / 2);
}

static void test_a_denial_ends_at_its_time(void **state)
{
    (void) state;
    uint64_t rng = begin();
    for (int i = 0; i < 20; i++) {
        const int family = (int) random_below(&rng, FAMILIES);
        const uint32_t line = place(family, 0, false);
        assert_int_not_equal(line, LINES_NONE);
        /* Near times and far ones: the program reads the clock for the former. */
        const uint64_t until_ns = boot_ns() + random_below(&rng, 3 * DROP_SURE_NS);
        d.lines.at[line].until_ns = until_ns;
        expect_until(family, until_ns, &rng);
        lines_clear(&d.lines, line);
        lines_free(&d.lines, line);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_denial_ends_at_its_time),
        cmocka_unit_test(test_drawn_packets_are_dropped_where_no_client_has_their_source),
        cmocka_unit_test(test_drawn_packets_are_dropped_where_their_source_or_network_is_denied),
    };
    return cmocka_run_group_tests_name("unit/apps/gateway_drop", tests, open_program, close_program);
}
