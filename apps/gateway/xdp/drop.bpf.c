/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Drops packets of sources and networks that the gateway denies until a time. Looks at UDP packets to the addresses and
 * ports that the gateway listens on; fragments and all other packets pass untouched.
 *
 * A packet is looked up by each prefix of its family. `denied` has the number of a slot, and the slot the time until
 * which the denial holds. The gateway has the slots mapped, and writes times without a system call. A time that is read
 * while it is written is the old or the new one. The gateway gives a slot to another key only when no packet that was
 * looked up before can still be under way.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "drop.h"

#define TAGS_MAX 2 /* of virtual networks, in a row */

/* Flags and offset of a fragment. */
#define FRAGMENT 0x3fff

struct tag {
    __be16 id, protocol;
};

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 1);
    __type(key, struct drop_key);
    __type(value, __u32);
} denied SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct drop_slot);
} slots SEC(".maps");

/* The addresses of this host, where the gateway listens on all of them. */
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 4096);
    __type(key, struct drop_key);
    __type(value, __u32);
} locals SEC(".maps");

struct drop_target target;

/* Whether packets of a key are dropped; counts them. */
static __always_inline int is_denied(const struct drop_key *key, __u64 now_ns, __u64 bytes)
{
    const __u32 *number = bpf_map_lookup_elem(&denied, key);
    struct drop_slot *slot = number != NULL ? bpf_map_lookup_elem(&slots, number) : NULL;
    if (slot == NULL || *(volatile __u64 *) &slot->until_ns <= now_ns) {
        return 0;
    }
    __sync_fetch_and_add(&slot->packets, 1);
    __sync_fetch_and_add(&slot->bytes, bytes);
    return 1;
}

static __always_inline int drop_v4(__be32 source, __u64 bytes)
{
    const __u64 now_ns = bpf_ktime_get_boot_ns();
    const __u32 address = bpf_ntohl(source);
    for (__u32 i = 0; i < DROP_PREFIXES; i++) {
        if (i >= target.count4) {
            break;
        }
        const __u32 prefix = target.prefixes4[i];
        const __be32 masked = bpf_htonl((__u32) (address & ~(__u32) 0 << ((32 - prefix) & 31)));
        struct drop_key key = {.family = 4, .prefix = (__u8) prefix};
        __builtin_memcpy(key.address, &masked, sizeof(masked));
        if (is_denied(&key, now_ns, bytes)) {
            return XDP_DROP;
        }
    }
    return XDP_PASS;
}

static __always_inline int drop_v6(const struct in6_addr *source, __u64 bytes)
{
    const __u64 now_ns = bpf_ktime_get_boot_ns();
    __be64 halves[2];
    __builtin_memcpy(halves, source, sizeof(halves));
    const __u64 high = bpf_be64_to_cpu(halves[0]);
    const __u64 low = bpf_be64_to_cpu(halves[1]);
    for (__u32 i = 0; i < DROP_PREFIXES; i++) {
        if (i >= target.count6) {
            break;
        }
        const __u32 prefix = target.prefixes6[i];
        const __u64 all = ~(__u64) 0;
        const __be64 masked[2] = {bpf_cpu_to_be64(prefix >= 64 ? high : high & ~(all >> (prefix & 63))),
                                  bpf_cpu_to_be64(prefix <= 64    ? 0
                                                  : prefix >= 128 ? low
                                                                  : low & ~(all >> (prefix & 63)))};
        struct drop_key key = {.family = 6, .prefix = (__u8) prefix};
        __builtin_memcpy(key.address, masked, sizeof(masked));
        if (is_denied(&key, now_ns, bytes)) {
            return XDP_DROP;
        }
    }
    return XDP_PASS;
}

/* Whether an address is one of this host. */
static __always_inline int is_local(__u8 family, const void *address, __u32 size)
{
    struct drop_key key = {.family = family};
    __builtin_memcpy(key.address, address, size);
    return bpf_map_lookup_elem(&locals, &key) != NULL;
}

/* Whether the gateway listens on an address of IPv4. `any`: on this port it listens on every address. */
static __always_inline int is_target4(__be32 address, __u16 port)
{
    int any = 0;
    for (__u32 i = 0; i < DROP_LISTENERS; i++) {
        if (i >= target.listener_count) {
            break;
        }
        const struct drop_listener *listener = &target.listeners[i];
        if (*(const volatile __u16 *) &listener->port != port || !listener->is_v4) {
            continue;
        }
        if (listener->any) {
            any = 1;
        } else if (listener->address4 == address) {
            return 1;
        }
    }
    return any && is_local(4, &address, sizeof(address));
}

/* The same of IPv6. */
static __always_inline int is_target6(const struct in6_addr *address, __u16 port)
{
    __u32 words[4];
    __builtin_memcpy(words, address, sizeof(words));
    int any = 0;
    for (__u32 i = 0; i < DROP_LISTENERS; i++) {
        if (i >= target.listener_count) {
            break;
        }
        const struct drop_listener *listener = &target.listeners[i];
        if (*(const volatile __u16 *) &listener->port != port || !listener->is_v6) {
            continue;
        }
        if (listener->any) {
            any = 1;
        } else if (listener->address6[0] == words[0] && listener->address6[1] == words[1] &&
                   listener->address6[2] == words[2] && listener->address6[3] == words[3]) {
            return 1;
        }
    }
    return any && is_local(6, words, sizeof(words));
}

static __always_inline int look_v4(const void *at, const void *end)
{
    const struct iphdr *ip = at;
    if ((const void *) (ip + 1) > end || ip->protocol != IPPROTO_UDP || ip->ihl < 5 ||
        (ip->frag_off & bpf_htons(FRAGMENT)) != 0) {
        return XDP_PASS;
    }
    const struct udphdr *udp = (const void *) ((const char *) ip + 4 * ip->ihl);
    if ((const void *) (udp + 1) > end || udp->dest == 0 || !is_target4(ip->daddr, udp->dest)) {
        return XDP_PASS;
    }
    const __u32 length = bpf_ntohs(udp->len);
    return drop_v4(ip->saddr, length > sizeof(*udp) ? length - sizeof(*udp) : 0);
}

static __always_inline int look_v6(const void *at, const void *end)
{
    const struct ipv6hdr *ip = at;
    const struct udphdr *udp = (const void *) (ip + 1);
    if ((const void *) (udp + 1) > end || ip->nexthdr != IPPROTO_UDP || udp->dest == 0 ||
        !is_target6(&ip->daddr, udp->dest)) {
        return XDP_PASS;
    }
    const __u32 length = bpf_ntohs(udp->len);
    return drop_v6(&ip->saddr, length > sizeof(*udp) ? length - sizeof(*udp) : 0);
}

SEC("xdp")
int drop_denied(struct xdp_md *context)
{
    const void *at = (const void *) (unsigned long) context->data;
    const void *end = (const void *) (unsigned long) context->data_end;
    const struct ethhdr *frame = at;
    if ((const void *) (frame + 1) > end) {
        return XDP_PASS;
    }
    __be16 protocol = frame->h_proto;
    at = frame + 1;
    for (int i = 0; i < TAGS_MAX; i++) {
        const struct tag *tag = at;
        if (protocol != bpf_htons(ETH_P_8021Q) && protocol != bpf_htons(ETH_P_8021AD)) {
            break;
        }
        if ((const void *) (tag + 1) > end) {
            return XDP_PASS;
        }
        protocol = tag->protocol;
        at = tag + 1;
    }
    if (protocol == bpf_htons(ETH_P_IP)) {
        return look_v4(at, end);
    }
    return protocol == bpf_htons(ETH_P_IPV6) ? look_v6(at, end) : XDP_PASS;
}

char _license[] SEC("license") = "Apache-2.0";
