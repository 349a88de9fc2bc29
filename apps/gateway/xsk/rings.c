/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See rings.h.
 *
 * Invariants: each frame is in one place. RING_SIZE frames at most wait to be sent, so with twice as many there are
 * always some to be filled.
 */
#include "rings.h"

#include <errno.h>
#include <linux/if_link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <xdp/libxdp.h>
#include <xdp/xsk.h>

#include "../xdp/drop.h"

#define RING_SIZE  2048
#define FRAMES     4096 /* twice as many */
#define FRAME_SIZE 2048

/* The kernel leaves so much in front of a frame (XDP_PACKET_HEADROOM). */
#define KERNEL_ROOM 256

_Static_assert(FRAMES == 2 * RING_SIZE, "some frames are always to be filled");
_Static_assert(DROP_FRAME_MOST <= FRAME_SIZE - KERNEL_ROOM, "the program hands over no frame without room");
_Static_assert(RINGS_ROOM <= KERNEL_ROOM, "a frame grows within its own memory");

/* The kernel frees a queue some time after its last socket was closed. */
#define TRIES    50
#define PAUSE_NS 20000000

/* The kernel sends so many in one call, at most: 32 in versions before 6.17. */
#define SEND_CALLS (RING_SIZE / 32)

struct rings {
    struct xsk_ring_prod fill, send;
    struct xsk_ring_cons sent, received;
    struct xsk_umem *memory;
    struct xsk_socket *socket;
    unsigned char *bytes;
    uint32_t free_count;
    uint64_t free[FRAMES]; /* offsets */
};

static void say_problem(char *problem, size_t size, int error)
{
    if (error == EPERM || error == EACCES) {
        (void) snprintf(problem, size, "this user may open no AF_XDP socket; CAP_NET_RAW is needed");
    } else if (error == EAFNOSUPPORT || error == EINVAL) {
        (void) snprintf(problem, size, "this kernel has no AF_XDP; Linux 5.9 with CONFIG_XDP_SOCKETS is needed");
    } else if (error == ENOBUFS || error == ENOMEM) {
        (void) snprintf(problem, size,
                        "the kernel locks no %d MiB for AF_XDP; raise the limit (ulimit -l), or give CAP_IPC_LOCK",
                        FRAMES * FRAME_SIZE >> 20);
    } else if (error == EBUSY) {
        (void) snprintf(problem, size, "another program has the receive queue by AF_XDP");
    } else {
        (void) snprintf(problem, size, "AF_XDP: %s", strerror(error));
    }
}

static int keep_quiet(enum libxdp_print_level level, const char *format, va_list arguments)
{
    (void) level;
    (void) format;
    (void) arguments;
    return 0;
}

/* 0, or a positive errno value. */
static int open_socket(struct rings *rings, const char *interface, uint32_t queue, bool is_native)
{
    const struct xsk_umem_config memory = {.fill_size = RING_SIZE, .comp_size = RING_SIZE, .frame_size = FRAME_SIZE};
    const struct xsk_socket_config config = {.rx_size = RING_SIZE,
                                             .tx_size = RING_SIZE,
                                             .libxdp_flags = XSK_LIBXDP_FLAGS__INHIBIT_PROG_LOAD,
                                             .xdp_flags = is_native ? XDP_FLAGS_DRV_MODE : XDP_FLAGS_SKB_MODE,
                                             .bind_flags = XDP_COPY | XDP_USE_NEED_WAKEUP};
    const size_t size = (size_t) FRAMES * FRAME_SIZE;
    /* cppcheck-suppress invalidFunctionArg ; an anonymous mapping takes -1 */
    void *bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (bytes == MAP_FAILED) {
        return errno;
    }
    rings->bytes = bytes;
    int result = xsk_umem__create(&rings->memory, bytes, size, &rings->fill, &rings->sent, &memory);
    for (int i = 0; result == 0 && i < TRIES; i++) {
        result = xsk_socket__create(&rings->socket, interface, queue, rings->memory, &rings->received, &rings->send,
                                    &config);
        if (result != -EBUSY) {
            break;
        }
        const struct timespec pause = {.tv_nsec = PAUSE_NS};
        (void) nanosleep(&pause, NULL);
        result = i + 1 < TRIES ? 0 : result;
    }
    return -result;
}

/* Frees what was sent, and gives the kernel free frames to fill. */
static void refill(struct rings *rings)
{
    uint32_t at = 0;
    const uint32_t sent = xsk_ring_cons__peek(&rings->sent, RING_SIZE, &at);
    for (uint32_t i = 0; i < sent; i++) {
        rings->free[rings->free_count++] =
            *xsk_ring_cons__comp_addr(&rings->sent, at + i) & ~(uint64_t) (FRAME_SIZE - 1);
    }
    xsk_ring_cons__release(&rings->sent, sent);
    const uint32_t room = xsk_prod_nb_free(&rings->fill, RING_SIZE);
    const uint32_t count = room < rings->free_count ? room : rings->free_count;
    if (count == 0 || xsk_ring_prod__reserve(&rings->fill, count, &at) != count) {
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        *xsk_ring_prod__fill_addr(&rings->fill, at + i) = rings->free[--rings->free_count];
    }
    xsk_ring_prod__submit(&rings->fill, count);
}

struct rings *rings_open(const char *interface, uint32_t queue, bool is_native, char *problem, size_t size)
{
    struct rings *rings = calloc(1, sizeof(*rings));
    if (rings == NULL) {
        say_problem(problem, size, ENOMEM);
        return NULL;
    }
    (void) libxdp_set_print(keep_quiet);
    const int error = open_socket(rings, interface, queue, is_native);
    if (error != 0) {
        say_problem(problem, size, error);
        rings_close(rings);
        return NULL;
    }
    for (uint32_t i = 0; i < FRAMES; i++) {
        rings->free[rings->free_count++] = (uint64_t) i * FRAME_SIZE;
    }
    refill(rings);
    return rings;
}

void rings_close(struct rings *rings)
{
    if (rings == NULL) {
        return;
    }
    if (rings->socket != NULL) {
        xsk_socket__delete(rings->socket);
    }
    if (rings->memory != NULL) {
        (void) xsk_umem__delete(rings->memory);
    }
    if (rings->bytes != NULL) {
        (void) munmap(rings->bytes, (size_t) FRAMES * FRAME_SIZE);
    }
    free(rings);
}

int rings_fd(const struct rings *rings)
{
    return xsk_socket__fd(rings->socket);
}

size_t rings_receive(struct rings *rings, struct rings_frame *out, size_t most)
{
    uint32_t at = 0;
    refill(rings);
    const uint32_t count = xsk_ring_cons__peek(&rings->received, (uint32_t) most, &at);
    for (uint32_t i = 0; i < count; i++) {
        const struct xdp_desc *got = xsk_ring_cons__rx_desc(&rings->received, at + i);
        out[i] = (struct rings_frame){xsk_umem__get_data(rings->bytes, got->addr), got->len};
    }
    xsk_ring_cons__release(&rings->received, count);
    return count;
}

void rings_free(struct rings *rings, const unsigned char *inside)
{
    rings->free[rings->free_count++] = (uint64_t) (inside - rings->bytes) & ~(uint64_t) (FRAME_SIZE - 1);
}

bool rings_send(struct rings *rings, const unsigned char *start, size_t size)
{
    uint32_t at = 0;
    if (xsk_ring_prod__reserve(&rings->send, 1, &at) != 1) {
        return false;
    }
    *xsk_ring_prod__tx_desc(&rings->send, at) =
        (struct xdp_desc){.addr = (uint64_t) (start - rings->bytes), .len = (uint32_t) size};
    xsk_ring_prod__submit(&rings->send, 1);
    return true;
}

bool rings_flush(struct rings *rings)
{
    uint32_t waiting = RING_SIZE - xsk_prod_nb_free(&rings->send, RING_SIZE);
    for (unsigned i = 0; waiting != 0 && i < SEND_CALLS; i++) {
        const bool is_awake = !xsk_ring_prod__needs_wakeup(&rings->send);
        /* cppcheck-suppress nullPointer ; nothing is sent but the wake-up */
        if (!is_awake && sendto(rings_fd(rings), NULL, 0, MSG_DONTWAIT, NULL, 0) < 0 && errno != EAGAIN) {
            break; /* EBUSY, ENOBUFS: the driver has no room now; ENETDOWN: the interface is down */
        }
        const uint32_t before = waiting;
        waiting = RING_SIZE - xsk_prod_nb_free(&rings->send, RING_SIZE);
        if (waiting == before) {
            break;
        }
    }
    return waiting == 0;
}

uint64_t rings_lost(const struct rings *rings)
{
    struct xdp_statistics statistics = {0};
    socklen_t length = sizeof(statistics);
    if (getsockopt(rings_fd(rings), SOL_XDP, XDP_STATISTICS, &statistics, &length) != 0) {
        return 0;
    }
    return statistics.rx_dropped + statistics.rx_ring_full + statistics.rx_fill_ring_empty_descs;
}
