/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The frames of an AF_XDP socket, with a kernel and a libxdp that the test plays: each frame is in one place, whatever
 * is received, freed and sent; and what libxdp is asked for, and refuses.
 *
 * Guards: apps/gateway/xsk/rings.c
 */
#include <errno.h>
#include <linux/if_link.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <xdp/libxdp.h>
#include <xdp/xsk.h>

#include "../apps/gateway/xsk/rings.h"
#include "support/support.h"

#define SIZE       2048 /* of a ring, and of a frame */
#define FRAMES     4096
#define HEADROOM   256 /* of the kernel */
#define FD         77
#define CALL_SENDS 32 /* of an older kernel */

/* One ring, as both sides see it. */
struct ring {
    uint32_t producer, consumer, flags;
    uint64_t addresses[SIZE];
    struct xdp_desc packets[SIZE];
};

/* Where a frame is, as the test has it. */
enum place { WITH_GATEWAY, RECEIVED, IN_HAND, TO_BE_SENT };

static struct {
    struct ring fill, sent, received, send;
    unsigned char *memory;
    enum place places[FRAMES];
    struct xdp_desc descriptions[FRAMES]; /* of those in hand */
    int memory_result, socket_results[60];
    unsigned sockets, naps, calls, sends_at_once, printers;
    bool has_memory, has_socket, is_native;
    int send_error, statistics_error;
} kernel;

int __wrap_nanosleep(const struct timespec *pause, struct timespec *left);
ssize_t __wrap_sendto(int fd, const void *bytes, size_t size, int flags, const struct sockaddr *to, socklen_t length);
int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *length);

int __wrap_nanosleep(const struct timespec *pause, struct timespec *left)
{
    assert_true(left == NULL && pause->tv_sec == 0 && pause->tv_nsec == 20000000);
    kernel.naps++;
    return 0;
}

/* Takes what is to be sent, as far as there is room to say so, and has it sent. */
static void take_sends(unsigned most)
{
    for (;
         most > 0 && kernel.send.consumer != kernel.send.producer && kernel.sent.producer - kernel.sent.consumer < SIZE;
         most--) {
        const struct xdp_desc *packet = &kernel.send.packets[kernel.send.consumer++ % SIZE];
        const size_t frame = packet->addr / SIZE;
        assert_int_equal(kernel.places[frame], TO_BE_SENT);
        assert_int_equal(packet->addr, kernel.descriptions[frame].addr);
        assert_int_equal(packet->len, kernel.descriptions[frame].len);
        kernel.places[frame] = WITH_GATEWAY;
        kernel.sent.addresses[kernel.sent.producer++ % SIZE] = packet->addr;
    }
}

ssize_t __wrap_sendto(int fd, const void *bytes, size_t size, int flags, const struct sockaddr *to, socklen_t length)
{
    assert_true(fd == FD && bytes == NULL && size == 0 && flags == MSG_DONTWAIT && to == NULL && length == 0);
    kernel.calls++;
    take_sends(kernel.sends_at_once);
    errno = kernel.send_error;
    return kernel.send_error != 0 ? -1 : 0;
}

int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *length)
{
    const struct xdp_statistics statistics = {.rx_dropped = 1,
                                              .rx_invalid_descs = 10,
                                              .tx_invalid_descs = 100,
                                              .rx_ring_full = 1000,
                                              .rx_fill_ring_empty_descs = 10000,
                                              .tx_ring_empty_descs = 100000};
    assert_true(fd == FD && level == SOL_XDP && name == XDP_STATISTICS && *length == sizeof(statistics));
    memcpy(value, &statistics, sizeof(statistics));
    errno = kernel.statistics_error;
    return kernel.statistics_error != 0 ? -1 : 0;
}

libxdp_print_fn_t libxdp_set_print(libxdp_print_fn_t print)
{
    kernel.printers++;
    va_list none;
    memset(&none, 0, sizeof(none));
    assert_int_equal(print(LIBXDP_WARN, "", none), 0);
    return NULL;
}

#define JOIN(here, there, bytes, most)                                                                                 \
    (*(here) = (__typeof__(*(here))){.cached_cons = (most),                                                            \
                                     .mask = SIZE - 1,                                                                 \
                                     .size = SIZE,                                                                     \
                                     .producer = &(there)->producer,                                                   \
                                     .consumer = &(there)->consumer,                                                   \
                                     .ring = (bytes),                                                                  \
                                     .flags = &(there)->flags})

int xsk_umem__create(struct xsk_umem **memory, void *area, __u64 size, struct xsk_ring_prod *fill,
                     struct xsk_ring_cons *sent, const struct xsk_umem_config *config)
{
    assert_true(size == (uint64_t) FRAMES * SIZE && config->frame_size == SIZE && config->fill_size == SIZE);
    assert_true(config->comp_size == SIZE && config->frame_headroom == 0 && config->flags == 0);
    kernel.memory = area;
    JOIN(fill, &kernel.fill, kernel.fill.addresses, SIZE);
    JOIN(sent, &kernel.sent, kernel.sent.addresses, 0);
    if (kernel.memory_result == 0) {
        *memory = (struct xsk_umem *) (void *) &kernel.has_memory;
        kernel.has_memory = true;
    }
    return kernel.memory_result;
}

int xsk_socket__create(struct xsk_socket **socket, const char *interface, __u32 queue, struct xsk_umem *memory,
                       struct xsk_ring_cons *received, struct xsk_ring_prod *send,
                       const struct xsk_socket_config *config)
{
    assert_true(strcmp(interface, "eth7") == 0 && queue == 5 && memory == (void *) &kernel.has_memory);
    assert_true(config->rx_size == SIZE && config->tx_size == SIZE);
    assert_int_equal(config->libxdp_flags, XSK_LIBXDP_FLAGS__INHIBIT_PROG_LOAD);
    assert_int_equal(config->xdp_flags, kernel.is_native ? XDP_FLAGS_DRV_MODE : XDP_FLAGS_SKB_MODE);
    assert_int_equal(config->bind_flags, XDP_COPY | XDP_USE_NEED_WAKEUP);
    const int result = kernel.socket_results[kernel.sockets++];
    JOIN(received, &kernel.received, kernel.received.packets, 0);
    JOIN(send, &kernel.send, kernel.send.packets, SIZE);
    if (result == 0) {
        *socket = (struct xsk_socket *) (void *) &kernel.has_socket;
        kernel.has_socket = true;
    }
    return result;
}

int xsk_socket__fd(const struct xsk_socket *socket)
{
    assert_true(socket == (const void *) &kernel.has_socket);
    return FD;
}

void xsk_socket__delete(struct xsk_socket *socket)
{
    assert_true(socket == (void *) &kernel.has_socket && kernel.has_socket && kernel.has_memory);
    kernel.has_socket = false;
}

int xsk_umem__delete(struct xsk_umem *memory)
{
    assert_true(memory == (void *) &kernel.has_memory && kernel.has_memory && !kernel.has_socket);
    kernel.has_memory = false;
    return 0;
}

static struct rings *open_rings(bool is_native, char *problem, size_t size)
{
    kernel.is_native = is_native;
    problem[0] = '\0';
    return rings_open("eth7", 5, is_native, problem, size);
}

static void test_what_is_missing_is_said_in_one_sentence(void **state)
{
    (void) state;
    static const struct {
        int error;
        const char *problem;
    } rows[] = {
        {EPERM, "this user may open no AF_XDP socket; CAP_NET_RAW is needed"},
        {EACCES, "this user may open no AF_XDP socket; CAP_NET_RAW is needed"},
        {EAFNOSUPPORT, "this kernel has no AF_XDP; Linux 5.9 with CONFIG_XDP_SOCKETS is needed"},
        {EINVAL, "this kernel has no AF_XDP; Linux 5.9 with CONFIG_XDP_SOCKETS is needed"},
        {ENOBUFS, "the kernel locks no 8 MiB for AF_XDP; raise the limit (ulimit -l), or give CAP_IPC_LOCK"},
        {ENOMEM, "the kernel locks no 8 MiB for AF_XDP; raise the limit (ulimit -l), or give CAP_IPC_LOCK"},
        {EBUSY, "another program has the receive queue by AF_XDP"},
        {ENODEV, "AF_XDP: No such device"},
    };
    char problem[200];
    for (size_t i = 0; i < 2 * sizeof(rows) / sizeof(rows[0]); i++) {
        const int error = rows[i / 2].error;
        memset(&kernel, 0, sizeof(kernel));
        for (unsigned attempt = 0; attempt < 60; attempt++) {
            kernel.socket_results[attempt] = -error;
        }
        kernel.memory_result = i % 2 == 0 ? -error : 0;
        assert_null(open_rings(true, problem, sizeof(problem)));
        assert_string_equal(problem, rows[i / 2].problem);
        assert_true(!kernel.has_memory && !kernel.has_socket && kernel.printers == 1);
        /* A queue that was just left is waited for. */
        assert_int_equal(kernel.sockets, i % 2 == 0 ? 0 : error == EBUSY ? 50 : 1);
        assert_int_equal(kernel.naps, i % 2 != 0 && error == EBUSY ? 50 : 0);
    }
    memset(&kernel, 0, sizeof(kernel));
    for (unsigned attempt = 0; attempt < 49; attempt++) {
        kernel.socket_results[attempt] = -EBUSY;
    }
    const size_t pages = count_mapped_pages();
    struct rings *rings = open_rings(false, problem, sizeof(problem));
    assert_non_null(rings);
    assert_string_equal(problem, "");
    assert_true(count_mapped_pages() >= pages + FRAMES / 2);
    assert_true(kernel.sockets == 50 && kernel.naps == 49);
    rings_close(rings);
    rings_close(NULL);
    assert_true(count_mapped_pages() < pages + FRAMES / 4);
    assert_true(!kernel.has_memory && !kernel.has_socket);
}

static struct rings *begin(void)
{
    char problem[200];
    memset(&kernel, 0, sizeof(kernel));
    kernel.sends_at_once = CALL_SENDS;
    struct rings *rings = open_rings(true, problem, sizeof(problem));
    assert_non_null(rings);
    assert_int_equal(rings_fd(rings), FD);
    return rings;
}

/* Frames come in, each into one that the gateway gave, and behind the kernel's room. */
static void let_arrive(uint64_t *rng, unsigned count)
{
    for (; count > 0 && kernel.fill.consumer != kernel.fill.producer &&
           kernel.received.producer - kernel.received.consumer < SIZE;
         count--) {
        const uint64_t address = kernel.fill.addresses[kernel.fill.consumer++ % SIZE];
        assert_true(address % SIZE == 0 && address / SIZE < FRAMES);
        assert_int_equal(kernel.places[address / SIZE], WITH_GATEWAY);
        kernel.places[address / SIZE] = RECEIVED;
        kernel.memory[address + HEADROOM] = 1;
        kernel.received.packets[kernel.received.producer++ % SIZE] = kernel.descriptions[address / SIZE] =
            (struct xdp_desc){.addr = address + HEADROOM, .len = (uint32_t) random_below(rng, 1600)};
    }
}

static void test_each_frame_is_in_one_place(void **state)
{
    (void) state;
    static struct rings_frame taken[SIZE + 1];
    static unsigned char *in_hand[FRAMES];
    size_t hand = 0;
    uint64_t rng = test_seed();
    struct rings *rings = begin();
    assert_int_equal(kernel.fill.producer, SIZE);
    for (unsigned step = 0; step < 20000; step++) {
        const unsigned many = draw_once_in(&rng, 50) ? SIZE : (unsigned) random_below(&rng, 40);
        const uint64_t what = random_below(&rng, 5);
        if (what == 0) {
            let_arrive(&rng, many);
        } else if (what == 1) {
            const uint32_t waiting = kernel.received.producer - kernel.received.consumer;
            const uint32_t next = kernel.received.consumer;
            /* Of what the other side has done, a ring is looked at once it is used up; the next call sees the rest. */
            taken[many].bytes = NULL;
            const size_t count = rings_receive(rings, taken, many);
            assert_null(taken[many].bytes);
            assert_true(count <= many && count <= waiting && (count != 0 || waiting == 0 || many == 0));
            assert_int_equal(kernel.received.consumer, next + count);
            assert_int_equal(kernel.sent.consumer, kernel.sent.producer);
            for (size_t i = 0; i < count; i++) {
                const struct xdp_desc *packet = &kernel.received.packets[(next + i) % SIZE];
                assert_ptr_equal(taken[i].bytes, kernel.memory + packet->addr);
                assert_int_equal(taken[i].size, packet->len);
                assert_int_equal(kernel.places[packet->addr / SIZE], RECEIVED);
                kernel.places[packet->addr / SIZE] = IN_HAND;
                in_hand[hand++] = taken[i].bytes;
            }
        } else if (what == 2) {
            take_sends(many);
        } else {
            for (unsigned i = 0; i < many && hand > 0; i++) {
                unsigned char *bytes = in_hand[--hand];
                const size_t frame = (size_t) (bytes - kernel.memory) / SIZE;
                const size_t begin = frame * SIZE;
                if (what == 3) {
                    const size_t inside = random_below(&rng, SIZE);
                    rings_free(rings, kernel.memory + begin + inside);
                    kernel.places[frame] = WITH_GATEWAY;
                    continue;
                }
                const unsigned char *start = bytes - random_below(&rng, RINGS_ROOM + 1);
                const size_t size = 60 + random_below(&rng, 1500);
                if (!rings_send(rings, start, size)) {
                    assert_int_equal(kernel.send.producer - kernel.send.consumer, SIZE);
                    hand++;
                    break;
                }
                kernel.places[frame] = TO_BE_SENT;
                kernel.descriptions[frame] =
                    (struct xdp_desc){.addr = (uint64_t) (start - kernel.memory), .len = (uint32_t) size};
            }
        }
    }
    /* All come back: the kernel can fill a whole ring of them, twice. */
    while (hand > 0) {
        rings_free(rings, in_hand[--hand]);
    }
    take_sends(SIZE);
    for (unsigned i = 0; i < 10; i++) {
        for (size_t count = rings_receive(rings, taken, SIZE); count > 0; count--) {
            rings_free(rings, taken[count - 1].bytes);
        }
    }
    assert_int_equal(kernel.fill.producer - kernel.fill.consumer, SIZE);
    memset(kernel.places, 0, sizeof(kernel.places));
    for (unsigned round = 0; round < 2; round++) {
        let_arrive(&rng, SIZE);
        assert_int_equal(rings_receive(rings, taken, SIZE), SIZE);
        if (round == 0) {
            assert_int_equal(rings_receive(rings, taken, SIZE), 0);
            assert_int_equal(kernel.fill.producer - kernel.fill.consumer, SIZE);
        }
    }
    assert_int_equal(kernel.fill.producer - kernel.fill.consumer, 0); /* all of them are in hand */
    rings_close(rings);
}

/* So many frames are to be sent. */
static void send_frames(struct rings *rings, unsigned count)
{
    static struct rings_frame taken[SIZE];
    uint64_t rng = 1;
    take_sends(SIZE);
    (void) rings_receive(rings, taken, SIZE); /* gives frames to be filled */
    let_arrive(&rng, count);
    assert_int_equal(rings_receive(rings, taken, count), count);
    for (unsigned i = 0; i < count; i++) {
        const size_t frame = (size_t) (taken[i].bytes - kernel.memory) / SIZE;
        kernel.places[frame] = TO_BE_SENT;
        assert_true(rings_send(rings, taken[i].bytes, kernel.descriptions[frame].len));
    }
}

static void test_the_kernel_is_called_until_all_is_sent_or_it_sends_no_more(void **state)
{
    (void) state;
    static const struct {
        unsigned frames, at_once;
        bool sleeps; /* the driver is to be woken */
        int error;
        unsigned calls;
        bool all;
    } rows[] = {
        {0, 32, true, 0, 0, true},          {1, 32, true, 0, 1, true},       {32, 32, true, 0, 1, true},
        {33, 32, true, 0, 2, true},         {2048, 32, true, 0, 64, true},   {2048, 31, true, 0, 64, false},
        {40, 0, true, 0, 1, false},         {40, 32, true, EAGAIN, 2, true}, {40, 32, true, EBUSY, 1, false},
        {40, 32, true, ENETDOWN, 1, false}, {40, 0, true, EAGAIN, 1, false}, {40, 32, false, 0, 0, false},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct rings *rings = begin();
        send_frames(rings, rows[i].frames);
        kernel.send.flags = rows[i].sleeps ? XDP_RING_NEED_WAKEUP : 0;
        kernel.sends_at_once = rows[i].at_once;
        kernel.send_error = rows[i].error;
        assert_int_equal(rings_flush(rings), rows[i].all);
        assert_int_equal(kernel.calls, rows[i].calls);
        if (!rows[i].sleeps) { /* which goes on by itself */
            take_sends(SIZE);
            assert_true(rings_flush(rings));
        }
        rings_close(rings);
    }
}

static void test_a_frame_is_lost_where_it_arrived_and_found_no_room(void **state)
{
    (void) state;
    struct rings *rings = begin();
    assert_int_equal(rings_lost(rings), 11001);
    kernel.statistics_error = EINVAL;
    assert_int_equal(rings_lost(rings), 0);
    rings_close(rings);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_missing_is_said_in_one_sentence),
        cmocka_unit_test(test_each_frame_is_in_one_place),
        cmocka_unit_test(test_the_kernel_is_called_until_all_is_sent_or_it_sends_no_more),
        cmocka_unit_test(test_a_frame_is_lost_where_it_arrived_and_found_no_room),
    };
    return cmocka_run_group_tests_name("unit/apps/gateway_rings", tests, NULL, NULL);
}
