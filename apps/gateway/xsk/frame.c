/* SPDX-License-Identifier: Apache-2.0 */
/* See frame.h. Headers: RFC 791, RFC 8200, RFC 768. */
#include "frame.h"

#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include <stdbool.h>
#include <string.h>

#define FRAGMENT 0x3fff /* flags and offset */
#define HOPS     64     /* that a packet may go */
#define PROTOCOL 17     /* UDP */

static uint16_t fold(uint64_t sum)
{
    sum = (sum & UINT32_MAX) + (sum >> 32);
    sum = (sum & UINT32_MAX) + (sum >> 32);
    sum = (sum & UINT16_MAX) + (sum >> 16);
    sum = (sum & UINT16_MAX) + (sum >> 16);
    return (uint16_t) sum;
}

/* No sum of fewer than 2^32 bytes overflows. */
static uint64_t add_bytes(uint64_t sum, const unsigned char *bytes, size_t size)
{
    for (; size >= sizeof(uint32_t); bytes += sizeof(uint32_t), size -= sizeof(uint32_t)) {
        uint32_t word;
        memcpy(&word, bytes, sizeof(word));
        sum += word;
    }
    uint32_t last = 0;
    memcpy(&last, bytes, size);
    return sum + last;
}

uint16_t frame_sum(const unsigned char *bytes, size_t size)
{
    return fold(add_bytes(0, bytes, size));
}

uint16_t frame_sum_join(uint16_t first, size_t size, uint16_t next)
{
    /* Behind an odd number of bytes each byte counts in the other half; 2^16 and 1 are the same to a sum. */
    return fold(first + (size % 2 == 0 ? (uint64_t) next : (uint64_t) next << 8));
}

/* Of the pseudo header without the length, which is the same for both families as a sum. */
static uint16_t pseudo_sum(const struct frame_ends *ends)
{
    const size_t size = ends->family == 4 ? 4 : 16;
    return fold(add_bytes(add_bytes(htons(PROTOCOL), ends->from, size), ends->to, size));
}

/* Finds the header of UDP, and what the packet has from there on. NULL: the frame is not plain. */
static unsigned char *read_v4(unsigned char *at, size_t size, struct frame *out, size_t *length, bool *damaged)
{
    struct iphdr ip;
    if (size < sizeof(ip)) {
        return NULL;
    }
    memcpy(&ip, at, sizeof(ip));
    const size_t total = ntohs(ip.tot_len);
    if (ip.version != 4 || ip.ihl != 5 || ip.protocol != PROTOCOL || (ip.frag_off & htons(FRAGMENT)) != 0 ||
        total > size || total < sizeof(ip)) {
        return NULL;
    }
    out->ends.family = 4;
    memcpy(out->ends.from, &ip.saddr, sizeof(ip.saddr));
    memcpy(out->ends.to, &ip.daddr, sizeof(ip.daddr));
    *length = total - sizeof(ip);
    *damaged = frame_sum(at, sizeof(ip)) != UINT16_MAX;
    return at + sizeof(ip);
}

static unsigned char *read_v6(unsigned char *at, size_t size, struct frame *out, size_t *length)
{
    struct ipv6hdr ip;
    if (size < sizeof(ip)) {
        return NULL;
    }
    memcpy(&ip, at, sizeof(ip));
    *length = ntohs(ip.payload_len);
    if (ip.version != 6 || ip.nexthdr != PROTOCOL || *length > size - sizeof(ip)) {
        return NULL;
    }
    out->ends.family = 6;
    memcpy(out->ends.from, &ip.saddr, sizeof(ip.saddr));
    memcpy(out->ends.to, &ip.daddr, sizeof(ip.daddr));
    return at + sizeof(ip);
}

static bool has_good_checksum(const struct frame *frame, const struct udphdr *udp)
{
    const uint64_t pseudo = (uint64_t) pseudo_sum(&frame->ends) + udp->len;
    if (udp->check == 0) {
        return frame->ends.family == 4;
    }
    return fold(pseudo + udp->source + udp->dest + udp->len + udp->check + frame->sum) == UINT16_MAX ||
           udp->check == fold(pseudo);
}

enum frame_state frame_read(unsigned char *bytes, size_t size, struct frame *out)
{
    struct ethhdr ethernet;
    struct udphdr udp;
    size_t length = 0;
    bool damaged = false;
    if (size < sizeof(ethernet)) {
        return FRAME_ODD;
    }
    memcpy(&ethernet, bytes, sizeof(ethernet));
    memset(&out->ends, 0, sizeof(out->ends));
    unsigned char *at = bytes + sizeof(ethernet);
    if (ethernet.h_proto == htons(ETH_P_IP)) {
        at = read_v4(at, size - sizeof(ethernet), out, &length, &damaged);
    } else {
        at = ethernet.h_proto == htons(ETH_P_IPV6) ? read_v6(at, size - sizeof(ethernet), out, &length) : NULL;
    }
    if (at == NULL || length < sizeof(udp)) {
        return FRAME_ODD;
    }
    memcpy(&udp, at, sizeof(udp));
    if (ntohs(udp.len) != length) {
        return FRAME_ODD;
    }
    memcpy(out->from_mac, ethernet.h_source, FRAME_MAC_SIZE);
    memcpy(out->to_mac, ethernet.h_dest, FRAME_MAC_SIZE);
    out->ends.from_port = udp.source;
    out->ends.to_port = udp.dest;
    out->payload = at + sizeof(udp);
    out->size = length - sizeof(udp);
    out->sum = frame_sum(out->payload, out->size);
    return damaged || !has_good_checksum(out, &udp) ? FRAME_DAMAGED : FRAME_PLAIN;
}

void frame_head_make(struct frame_head *head, const struct frame_ends *ends,
                     const unsigned char from_mac[FRAME_MAC_SIZE])
{
    const bool v4 = ends->family == 4;
    struct ethhdr ethernet = {.h_proto = htons(v4 ? ETH_P_IP : ETH_P_IPV6)};
    const struct udphdr udp = {.source = ends->from_port, .dest = ends->to_port};
    unsigned char *at = head->bytes + sizeof(ethernet);
    memcpy(ethernet.h_source, from_mac, FRAME_MAC_SIZE);
    memcpy(head->bytes, &ethernet, sizeof(ethernet));
    head->ip_sum = 0;
    if (v4) {
        struct iphdr ip = {.version = 4, .ihl = 5, .ttl = HOPS, .protocol = PROTOCOL};
        memcpy(&ip.saddr, ends->from, sizeof(ip.saddr));
        memcpy(&ip.daddr, ends->to, sizeof(ip.daddr));
        memcpy(at, &ip, sizeof(ip));
        head->ip_sum = frame_sum(at, sizeof(ip));
        at += sizeof(ip);
    } else {
        struct ipv6hdr ip = {.version = 6, .nexthdr = PROTOCOL, .hop_limit = HOPS};
        memcpy(&ip.saddr, ends->from, sizeof(ip.saddr));
        memcpy(&ip.daddr, ends->to, sizeof(ip.daddr));
        memcpy(at, &ip, sizeof(ip));
        at += sizeof(ip);
    }
    memcpy(at, &udp, sizeof(udp));
    head->size = (uint16_t) (at + sizeof(udp) - head->bytes);
    head->sum = fold((uint64_t) pseudo_sum(ends) + udp.source + udp.dest);
}

unsigned char *frame_put(const struct frame_head *head, const unsigned char to_mac[FRAME_MAC_SIZE],
                         unsigned char *payload, size_t size, uint16_t sum, uint16_t id)
{
    unsigned char *start = payload - head->size;
    const uint16_t length = htons((uint16_t) (sizeof(struct udphdr) + size));
    memcpy(start, head->bytes, head->size);
    memcpy(start, to_mac, FRAME_MAC_SIZE);
    if (head->size < FRAME_HEADERS_MAX) {
        unsigned char *ip = start + sizeof(struct ethhdr);
        const uint16_t total = htons((uint16_t) (sizeof(struct iphdr) + sizeof(struct udphdr) + size));
        const uint16_t check = (uint16_t) ~fold((uint64_t) head->ip_sum + total + id);
        memcpy(ip + offsetof(struct iphdr, tot_len), &total, sizeof(total));
        memcpy(ip + offsetof(struct iphdr, id), &id, sizeof(id));
        memcpy(ip + offsetof(struct iphdr, check), &check, sizeof(check));
    } else {
        memcpy(start + sizeof(struct ethhdr) + offsetof(struct ipv6hdr, payload_len), &length, sizeof(length));
    }
    unsigned char *udp = payload - sizeof(struct udphdr);
    uint16_t check = (uint16_t) ~fold((uint64_t) head->sum + length + length + sum);
    check = check != 0 ? check : UINT16_MAX; /* 0 stands for none */
    memcpy(udp + offsetof(struct udphdr, len), &length, sizeof(length));
    memcpy(udp + offsetof(struct udphdr, check), &check, sizeof(check));
    return start;
}
