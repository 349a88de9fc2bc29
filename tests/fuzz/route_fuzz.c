/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers by netlink to the gateway's questions for the way to an address. A way that is found has an address of
 * Ethernet that stands in the answer.
 *
 * An input is the family ('0': IPv4, '1': IPv6), the interface (1 byte), and answers of a length (2 bytes) each.
 */
#include <errno.h>
#include <linux/netlink.h>

#include "../../apps/gateway/xsk/route.h"
#include "fuzz.h"

static struct input answers;
static uint32_t sequence;

ssize_t __wrap_send(int fd, const void *bytes, size_t size, int flags);
ssize_t __wrap_recv(int fd, void *bytes, size_t size, int flags);

ssize_t __wrap_send(int fd, const void *bytes, size_t size, int flags)
{
    struct nlmsghdr header;
    (void) fd;
    (void) flags;
    CHECK(size >= sizeof(header));
    memcpy(&header, bytes, sizeof(header));
    CHECK(header.nlmsg_len == size);
    sequence = header.nlmsg_seq;
    return (ssize_t) size;
}

/* A sequence of 0 in an answer stands for the question's. */
ssize_t __wrap_recv(int fd, void *bytes, size_t size, int flags)
{
    struct input in = answers;
    const size_t length = (size_t) input_number(&in, 2);
    const size_t left = (size_t) (in.end - in.at);
    const size_t given = length < left ? length : left;
    (void) fd;
    (void) flags;
    if (given == 0 || given > size) {
        errno = EAGAIN;
        return -1;
    }
    memcpy(bytes, in.at, given);
    answers.at = in.at + given;
    struct nlmsghdr header;
    if (given >= sizeof(header)) {
        memcpy(&header, bytes, sizeof(header));
        header.nlmsg_seq = header.nlmsg_seq == 0 ? sequence : header.nlmsg_seq;
        memcpy(bytes, &header, sizeof(header));
    }
    return (ssize_t) given;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, data + size};
    struct route_asker asker = {.fd = -1};
    struct route_hop hop = {.mtu = 0};
    struct address to = {.u.v4 = {.sin_family = AF_INET}};
    if (input_choice(&in, 2) == 1) {
        to.u.v6 = (struct sockaddr_in6){.sin6_family = AF_INET6};
    }
    const unsigned interface = (unsigned) input_number(&in, 1);
    answers = in;
    if (route_find(&asker, &to, interface, &hop)) {
        CHECK(memmem(data, size, hop.mac, sizeof(hop.mac)) != NULL);
    }
    return 0;
}
