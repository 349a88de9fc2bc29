/* SPDX-License-Identifier: Apache-2.0 */
/* See route.h. Messages: rtnetlink(7). */
#include "route.h"

#include <errno.h>
#include <linux/neighbour.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

/* Neighbours in these states have an address that the kernel itself would send to. */
#define KNOWN (NUD_PERMANENT | NUD_REACHABLE | NUD_STALE | NUD_DELAY | NUD_PROBE)

/* An answer has one route or one neighbour. */
#define ANSWER_SIZE 8192

/* A question: a header, and one attribute with an address. */
struct question {
    struct nlmsghdr header;
    union {
        struct rtmsg route;
        struct ndmsg neighbour;
    } of;
    struct rtattr attribute;
    unsigned char address[16];
};

_Static_assert(sizeof(struct rtmsg) == sizeof(struct ndmsg), "the attribute is behind either");

/* An address of one family, as netlink has it. */
struct plain {
    uint8_t family;
    uint8_t size;
    unsigned char bytes[16];
};

int route_open(struct route_asker *asker)
{
    const struct timeval wait = {.tv_sec = 1};
    asker->fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    asker->sequence = 0;
    if (asker->fd < 0) {
        return -errno;
    }
    (void) setsockopt(asker->fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
    return 0;
}

void route_close(struct route_asker *asker)
{
    if (asker->fd >= 0) {
        (void) close(asker->fd);
    }
    asker->fd = -1;
}

static struct plain plain_of(const struct address *address)
{
    struct plain plain = {.family = AF_INET, .size = 4};
    if (address->u.any.sa_family == AF_INET) {
        memcpy(plain.bytes, &address->u.v4.sin_addr, 4);
    } else {
        plain = (struct plain){.family = AF_INET6, .size = 16};
        memcpy(plain.bytes, &address->u.v6.sin6_addr, 16);
    }
    return plain;
}

static bool send_question(struct route_asker *asker, struct question *question, const struct plain *address,
                          unsigned short attribute)
{
    const size_t size = offsetof(struct question, address) + address->size;
    question->header.nlmsg_len = (uint32_t) size;
    question->header.nlmsg_seq = ++asker->sequence;
    question->attribute.rta_type = attribute;
    question->attribute.rta_len = (unsigned short) RTA_LENGTH(address->size);
    memcpy(question->address, address->bytes, address->size);
    return send(asker->fd, question, size, 0) == (ssize_t) size;
}

/* The answer to the last question, of a type. NULL: there is none, or it is an error. */
static const struct nlmsghdr *receive_answer(const struct route_asker *asker, unsigned char *bytes, unsigned type)
{
    for (;;) {
        const ssize_t got = recv(asker->fd, bytes, ANSWER_SIZE, 0);
        const struct nlmsghdr *header = (const struct nlmsghdr *) (const void *) bytes;
        if (got < (ssize_t) sizeof(*header) || header->nlmsg_len > (size_t) got) {
            return NULL;
        }
        if (header->nlmsg_seq == asker->sequence) { /* else it is of a question before */
            return header->nlmsg_type == type ? header : NULL;
        }
    }
}

/* The attribute behind another one. Where the last one lacks its padding, nothing is left. */
static const struct rtattr *next_of(const struct rtattr *attribute, unsigned *left)
{
    const unsigned size = RTA_ALIGN(attribute->rta_len);
    *left -= size < *left ? size : *left;
    return (const struct rtattr *) (const void *) ((const char *) attribute + size);
}

/* The attributes behind the fixed part of an answer, by type. */
static void read_attributes(const struct nlmsghdr *header, size_t fixed, const struct rtattr **out, unsigned most)
{
    const struct rtattr *at =
        (const struct rtattr *) (const void *) ((const char *) header + NLMSG_LENGTH(NLMSG_ALIGN(fixed)));
    unsigned left = header->nlmsg_len - (unsigned) NLMSG_LENGTH(NLMSG_ALIGN(fixed));
    for (unsigned type = 0; type <= most; type++) {
        out[type] = NULL;
    }
    for (; RTA_OK(at, left); at = next_of(at, &left)) {
        const unsigned type = at->rta_type & (unsigned) NLA_TYPE_MASK;
        if (type <= most) {
            out[type] = at;
        }
    }
}

static uint32_t number_of(const struct rtattr *attribute)
{
    uint32_t value = 0;
    if (attribute != NULL && RTA_PAYLOAD(attribute) >= sizeof(value)) {
        memcpy(&value, RTA_DATA(attribute), sizeof(value));
    }
    return value;
}

static uint32_t mtu_of(const struct rtattr *metrics)
{
    if (metrics == NULL) {
        return 0;
    }
    unsigned left = (unsigned) RTA_PAYLOAD(metrics);
    for (const struct rtattr *at = RTA_DATA(metrics); RTA_OK(at, left); at = next_of(at, &left)) {
        if (at->rta_type == RTAX_MTU) {
            return number_of(at);
        }
    }
    return 0;
}

/* Where a route goes next: a gateway, or the address itself. */
static bool read_next(const struct rtattr *const *attributes, const struct plain *to, struct plain *next)
{
    *next = *to;
    if (attributes[RTA_GATEWAY] != NULL && RTA_PAYLOAD(attributes[RTA_GATEWAY]) == to->size) {
        memcpy(next->bytes, RTA_DATA(attributes[RTA_GATEWAY]), to->size);
    } else if (attributes[RTA_VIA] != NULL) { /* a gateway of IPv6 for IPv4 */
        uint16_t family;
        const unsigned char *via = RTA_DATA(attributes[RTA_VIA]);
        if (RTA_PAYLOAD(attributes[RTA_VIA]) != sizeof(family) + 16) {
            return false;
        }
        memcpy(&family, via, sizeof(family));
        next->family = (uint8_t) family;
        next->size = 16;
        memcpy(next->bytes, via + sizeof(family), 16);
        return family == AF_INET6;
    }
    return true;
}

static bool find_route(struct route_asker *asker, const struct plain *to, unsigned interface, struct plain *next,
                       uint32_t *mtu)
{
    _Alignas(struct nlmsghdr) unsigned char bytes[ANSWER_SIZE];
    const struct rtattr *attributes[RTA_MAX + 1];
    struct question question = {.header = {.nlmsg_type = RTM_GETROUTE, .nlmsg_flags = NLM_F_REQUEST},
                                .of.route = {.rtm_family = to->family, .rtm_dst_len = (unsigned char) (8 * to->size)}};
    const struct nlmsghdr *answer = NULL;
    if (send_question(asker, &question, to, RTA_DST)) {
        answer = receive_answer(asker, bytes, RTM_NEWROUTE);
    }
    if (answer == NULL || answer->nlmsg_len < NLMSG_LENGTH(sizeof(struct rtmsg))) {
        return false;
    }
    const struct rtmsg *route = NLMSG_DATA(answer);
    read_attributes(answer, sizeof(*route), attributes, RTA_MAX);
    *mtu = mtu_of(attributes[RTA_METRICS]);
    return route->rtm_type == RTN_UNICAST && number_of(attributes[RTA_OIF]) == interface &&
           attributes[RTA_ENCAP] == NULL && read_next(attributes, to, next);
}

/* `is_stale`: the kernel has not heard of the neighbour for a while. */
static bool find_neighbour(struct route_asker *asker, const struct plain *next, unsigned interface,
                           struct route_hop *out, bool *is_stale)
{
    _Alignas(struct nlmsghdr) unsigned char bytes[ANSWER_SIZE];
    const struct rtattr *attributes[NDA_MAX + 1];
    struct question question = {.header = {.nlmsg_type = RTM_GETNEIGH, .nlmsg_flags = NLM_F_REQUEST},
                                .of.neighbour = {.ndm_family = next->family, .ndm_ifindex = (int) interface}};
    const struct nlmsghdr *answer = NULL;
    if (send_question(asker, &question, next, NDA_DST)) {
        answer = receive_answer(asker, bytes, RTM_NEWNEIGH);
    }
    if (answer == NULL || answer->nlmsg_len < NLMSG_LENGTH(sizeof(struct ndmsg))) {
        return false;
    }
    const struct ndmsg *neighbour = NLMSG_DATA(answer);
    read_attributes(answer, sizeof(*neighbour), attributes, NDA_MAX);
    const struct rtattr *mac = attributes[NDA_LLADDR];
    if ((neighbour->ndm_state & KNOWN) == 0 || mac == NULL || RTA_PAYLOAD(mac) != FRAME_MAC_SIZE) {
        return false;
    }
    memcpy(out->mac, RTA_DATA(mac), FRAME_MAC_SIZE);
    *is_stale = (neighbour->ndm_state & NUD_STALE) != 0;
    return true;
}

/* Nobody waits for an answer: there is one of an error alone, and the next question passes over it. */
static void confirm(struct route_asker *asker, const struct plain *next, unsigned interface)
{
    struct question question = {
        .header = {.nlmsg_type = RTM_NEWNEIGH, .nlmsg_flags = NLM_F_REQUEST},
        .of.neighbour = {.ndm_family = next->family, .ndm_ifindex = (int) interface, .ndm_flags = NTF_USE}};
    (void) send_question(asker, &question, next, NDA_DST);
}

bool route_find(struct route_asker *asker, const struct address *to, unsigned interface, struct route_hop *out)
{
    const struct plain address = plain_of(to);
    struct plain next;
    bool is_stale;
    if (!find_route(asker, &address, interface, &next, &out->mtu) ||
        !find_neighbour(asker, &next, interface, out, &is_stale)) {
        return false;
    }
    if (is_stale) {
        confirm(asker, &next, interface);
    }
    return true;
}
