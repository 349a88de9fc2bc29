/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weir-echo-ways WAY INTERFACE IPV4:PORT: sends UDP packets back to where they came from, until it is ended.
 *
 *   sockets  poll, recvmmsg and sendmmsg: what weir-gateway does
 *   af_xdp   frames in shared memory, without the kernel's network stack (AF_XDP, libxdp; copied, first queue)
 *
 * A forwarded packet is one packet received and one sent, so it costs what an echo does. bench/af_xdp.py measures both.
 */
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_link.h>
#include <linux/ip.h>
#include <linux/udp.h>
#include <net/if.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <xdp/libxdp.h>
#include <xdp/xsk.h>

#include "packets.h"

#define BATCH      64
#define SIZE_MOST  2048
#define FRAMES     2048
#define FRAME_SIZE XSK_UMEM__DEFAULT_FRAME_SIZE

static _Noreturn void fail(const char *what, int error)
{
    (void) fprintf(stderr, "weir-echo-ways: %s: %s\n", what, strerror(error));
    exit(1);
}

static void wait_for(int fd)
{
    struct pollfd one = {.fd = fd, .events = POLLIN};
    (void) poll(&one, 1, -1);
}

static _Noreturn void echo_by_sockets(struct in_addr address, uint16_t port)
{
    static struct mmsghdr messages[BATCH];
    static struct iovec pieces[BATCH];
    static struct sockaddr_in from[BATCH];
    static unsigned char bytes[BATCH][SIZE_MOST];
    const struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = address, .sin_port = htons(port)};
    const int size = 4 << 20;
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (const struct sockaddr *) (const void *) &at, sizeof(at)) != 0) {
        fail("a socket", errno);
    }
    (void) setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
    for (;;) {
        for (size_t i = 0; i < BATCH; i++) {
            pieces[i] = (struct iovec){bytes[i], SIZE_MOST};
            messages[i].msg_hdr = (struct msghdr){
                .msg_name = &from[i], .msg_namelen = sizeof(from[i]), .msg_iov = &pieces[i], .msg_iovlen = 1};
        }
        const int count = recvmmsg(fd, messages, BATCH, MSG_DONTWAIT, NULL);
        if (count <= 0) {
            wait_for(fd);
            continue;
        }
        for (int i = 0; i < count; i++) {
            pieces[i].iov_len = messages[i].msg_len;
        }
        (void) sendmmsg(fd, messages, (unsigned) count, 0);
    }
}

struct frames {
    struct xsk_ring_prod fill, send;
    struct xsk_ring_cons sent, received;
    struct xsk_umem *memory;
    struct xsk_socket *socket;
    unsigned char *bytes;
    uint16_t port;
};

static void frames_open(struct frames *f, const char *interface)
{
    const struct xsk_socket_config config = {.rx_size = FRAMES,
                                             .tx_size = FRAMES,
                                             .xdp_flags = XDP_FLAGS_DRV_MODE,
                                             .bind_flags = XDP_COPY | XDP_USE_NEED_WAKEUP};
    const struct xsk_umem_config memory = {.fill_size = FRAMES,
                                           .comp_size = FRAMES,
                                           .frame_size = FRAME_SIZE,
                                           .frame_headroom = XSK_UMEM__DEFAULT_FRAME_HEADROOM};
    const size_t size = (size_t) FRAMES * FRAME_SIZE;
    uint32_t first = 0;
    (void) libbpf_set_print(NULL); /* they tell of each part of a program that they do not know */
    (void) libxdp_set_print(NULL);
    f->bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (f->bytes == MAP_FAILED) {
        fail("memory for frames", errno);
    }
    int result = xsk_umem__create(&f->memory, f->bytes, size, &f->fill, &f->sent, &memory);
    if (result == 0) {
        result = xsk_socket__create(&f->socket, interface, 0, f->memory, &f->received, &f->send, &config);
    }
    if (result != 0) {
        fail("AF_XDP", -result);
    }
    (void) xsk_ring_prod__reserve(&f->fill, FRAMES, &first);
    for (uint32_t i = 0; i < FRAMES; i++) {
        *xsk_ring_prod__fill_addr(&f->fill, first + i) = (uint64_t) i * FRAME_SIZE;
    }
    xsk_ring_prod__submit(&f->fill, FRAMES);
}

/* Frames that were sent are filled anew. The ring has room for all frames that there are. */
static void frames_reuse(struct frames *f)
{
    uint32_t from = 0;
    uint32_t to = 0;
    const uint32_t count = xsk_ring_cons__peek(&f->sent, FRAMES, &from);
    if (count != 0 && xsk_ring_prod__reserve(&f->fill, count, &to) == count) {
        for (uint32_t i = 0; i < count; i++) {
            *xsk_ring_prod__fill_addr(&f->fill, to + i) = *xsk_ring_cons__comp_addr(&f->sent, from + i);
        }
        xsk_ring_prod__submit(&f->fill, count);
    }
    xsk_ring_cons__release(&f->sent, count);
}

/* Makes a frame go back: all that changes place keeps the checksums right. Others are sent back as well. */
static void turn_around(unsigned char *bytes)
{
    struct ethhdr *frame = (struct ethhdr *) (void *) bytes;
    struct iphdr *ip = (struct iphdr *) (void *) (bytes + sizeof(*frame));
    struct udphdr *udp = (struct udphdr *) (void *) (bytes + sizeof(*frame) + sizeof(*ip));
    unsigned char mac[ETH_ALEN];
    memcpy(mac, frame->h_dest, ETH_ALEN);
    memcpy(frame->h_dest, frame->h_source, ETH_ALEN);
    memcpy(frame->h_source, mac, ETH_ALEN);
    const uint32_t address = ip->saddr;
    ip->saddr = ip->daddr;
    ip->daddr = address;
    const uint16_t port = udp->source;
    udp->source = udp->dest;
    udp->dest = port;
}

static _Noreturn void echo_by_frames(const char *interface)
{
    static struct frames f;
    frames_open(&f, interface);
    for (;;) {
        uint32_t from = 0;
        uint32_t to = 0;
        frames_reuse(&f);
        const uint32_t count = xsk_ring_cons__peek(&f.received, BATCH, &from);
        if (count == 0) {
            wait_for(xsk_socket__fd(f.socket));
            continue;
        }
        while (xsk_ring_prod__reserve(&f.send, count, &to) != count) {
            (void) sendto(xsk_socket__fd(f.socket), NULL, 0, MSG_DONTWAIT, NULL, 0);
            frames_reuse(&f);
        }
        for (uint32_t i = 0; i < count; i++) {
            const struct xdp_desc *got = xsk_ring_cons__rx_desc(&f.received, from + i);
            turn_around(xsk_umem__get_data(f.bytes, got->addr));
            *xsk_ring_prod__tx_desc(&f.send, to + i) = *got;
        }
        xsk_ring_cons__release(&f.received, count);
        xsk_ring_prod__submit(&f.send, count);
        (void) sendto(xsk_socket__fd(f.socket), NULL, 0, MSG_DONTWAIT, NULL, 0);
    }
}

int main(int argc, char **argv)
{
    struct in_addr address;
    uint16_t port;
    if (argc == 4 && packets_read_target(argv[3], &address, &port)) {
        if (strcmp(argv[1], "sockets") == 0) {
            echo_by_sockets(address, port);
        } else if (strcmp(argv[1], "af_xdp") == 0) {
            echo_by_frames(argv[2]);
        }
    }
    (void) fprintf(stderr, "weir-echo-ways sockets|af_xdp INTERFACE IPV4:PORT\n");
    return 2;
}
