/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Drops packets of sources and networks that the gateway denies until a time, and those whose source no client has.
 * Looks at UDP packets to the addresses and ports that the gateway listens on; fragments and all other packets pass
 * untouched.
 *
 * There are two programs. `drop_denied` does that alone. `drop_or_forward` also hands plain packets to the gateway by
 * AF_XDP, past the network stack: those to a listener that are not dropped, and those of backends to sessions of the
 * queue that they arrive at. What is not plain passes to the stack, and the gateway's sockets have it.
 *
 * Where there are several workers, a client that has a session is with one of them. `drop_or_forward` hands its packets
 * over at that worker's queue alone, and `steer` gives those that pass to that worker's socket.
 *
 * A packet is looked up by each prefix of its family in `lines`, which has the time until which a key's denial holds.
 * The gateway has the lines mapped, and makes no system call for a key. A time that is read while it is written is the
 * old or the new one. The gateway gives a line to another key only when no packet that was looked up before can still
 * be under way.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include <stddef.h>

#include "drop.h"

#define TAGS_MAX 2 /* of virtual networks, in a row */

/* Flags and offset of a fragment. */
#define FRAGMENT 0x3fff

struct tag {
    __be16 id, protocol;
};

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(max_entries, DROP_LINES);
    __type(key, __u32);
    __type(value, struct drop_line);
} lines SEC(".maps");

/* The addresses of this host, and the broadcast addresses of its wires (DROP_BROADCAST). */
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 4096);
    __type(key, struct drop_key);
    __type(value, __u32);
} locals SEC(".maps");

/* The AF_XDP socket of each receive queue. */
struct {
    __uint(type, BPF_MAP_TYPE_XSKMAP);
    __uint(max_entries, DROP_QUEUES);
    __type(key, __u32);
    __type(value, __u32);
} queues SEC(".maps");

/* By port, in host byte order. The gateway has it mapped. */
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(max_entries, 65536);
    __type(key, __u32);
    __type(value, struct drop_session);
} sessions SEC(".maps");

/* The number of the socket (DROP_SOCKET) that each client's packets are for; and the sockets. */
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __uint(max_entries, 1);
    __type(key, struct drop_flow);
    __type(value, __u32);
} flows SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_REUSEPORT_SOCKARRAY);
    __uint(max_entries, DROP_SOCKETS);
    __type(key, __u32);
    __type(value, __u64);
} sockets SEC(".maps");

struct drop_target target;

/* Packets dropped as no client has their source. */
__u64 invalid_sources __attribute__((aligned(64)));

/*
 * When the boot clock was read last: the time above the low CLOCK_BITS bits, and in these the jiffies of then. The
 * clock is read once a jiffy, as a reading waits for all loads under way. Both are in one word, as several cores write
 * it, and the word has a cache line of its own. Jiffies come again after 2^CLOCK_BITS of them, 17 minutes at least: a
 * word that was not written for just as long is taken for a new one, for one jiffy.
 */
#define CLOCK_BITS 20
#define CLOCK_MASK (((__u64) 1 << CLOCK_BITS) - 1)
__u64 clock_word __attribute__((aligned(64)));

/* What find_listener4() and find_listener6() say of a packet. */
enum {
    IS_TARGET = 1,   /* it is to a listener */
    IS_FORWARDED = 2 /* and that listener's packets are taken past the stack */
};

/*
 * A time that is past, by a jiffy and the word's grain at most. By more where the processor that counts jiffies stands
 * still, as that of a virtual machine may: a denial that is over holds longer then, by what is beyond DROP_SURE_NS.
 */
static __always_inline __u64 past_ns(void)
{
    const __u64 jiffies = bpf_jiffies64();
    __u64 word = *(volatile __u64 *) &clock_word;
    if (((word ^ jiffies) & CLOCK_MASK) != 0) {
        word = (bpf_ktime_get_boot_ns() & ~CLOCK_MASK) | (jiffies & CLOCK_MASK);
        *(volatile __u64 *) &clock_word = word;
    }
    return word & ~CLOCK_MASK;
}

/* Whether a time is to come. Reads the clock itself where jiffies cannot tell. */
static __always_inline int is_to_come(__u64 until_ns)
{
    return until_ns > past_ns() + DROP_SURE_NS || until_ns > bpf_ktime_get_boot_ns();
}

static __always_inline int is_line_of(const struct drop_line *line, const __u64 words[DROP_KEY_WORDS])
{
    const volatile __u64 *key = (const volatile __u64 *) &line->key;
    return key[0] == words[0] && key[1] == words[1] && key[2] == words[2];
}

/*
 * Whether packets of a key, by its words, are dropped; counts them. Not static, and with numbers alone: the kernel
 * looks at such a function once, and not once for each prefix and each caller.
 */
__attribute__((noinline)) int is_denied_key(__u64 first, __u64 second, __u64 third, __u64 bytes)
{
    const __u64 words[DROP_KEY_WORDS] = {first, second, third};
    const __u64 secret[2] = {target.secret[0], target.secret[1]};
    const __u32 home = drop_home(secret, words, DROP_LINES);
    struct drop_line *line = bpf_map_lookup_elem(&lines, &home);
    if (line == NULL) {
        return 0;
    }
    const __u32 farthest = *(const volatile __u32 *) &line->farthest;
    for (__u32 i = 1; !is_line_of(line, words); i++) {
        const __u32 next = (home + i) & (DROP_LINES - 1);
        if (i > farthest || i > DROP_FARTHEST || (line = bpf_map_lookup_elem(&lines, &next)) == NULL) {
            return 0;
        }
    }
    if (!is_to_come(*(const volatile __u64 *) &line->until_ns)) {
        return 0;
    }
    __sync_fetch_and_add(&line->packets, 1);
    __sync_fetch_and_add(&line->bytes, bytes);
    return 1;
}

static __always_inline int is_denied(const struct drop_key *key, __u64 bytes)
{
    __u64 words[DROP_KEY_WORDS];
    __builtin_memcpy(words, key, sizeof(words));
    return is_denied_key(words[0], words[1], words[2], bytes);
}

static __always_inline int drop_v4(__be32 source, __u64 bytes)
{
    const __u32 address = bpf_ntohl(source);
    for (__u32 i = 0; i < DROP_PREFIXES; i++) {
        if (i >= target.count4) {
            break;
        }
        const __u32 prefix = target.prefixes4[i];
        const __be32 masked = bpf_htonl((__u32) (address & ~(__u32) 0 << ((32 - prefix) & 31)));
        struct drop_key key = {.family = 4, .prefix = (__u8) prefix};
        __builtin_memcpy(key.address, &masked, sizeof(masked));
        if (is_denied(&key, bytes)) {
            return XDP_DROP;
        }
    }
    return XDP_PASS;
}

static __always_inline int drop_v6(const struct in6_addr *source, __u64 bytes)
{
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
        if (is_denied(&key, bytes)) {
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

static __always_inline int is_broadcast(__be32 address)
{
    struct drop_key key = {.family = 4, .prefix = DROP_BROADCAST};
    __builtin_memcpy(key.address, &address, sizeof(address));
    return bpf_map_lookup_elem(&locals, &key) != NULL;
}

/*
 * Whether the gateway listens on an address of IPv4, and how. `any`: on this port it listens on every address. Not
 * static, as is_denied_key().
 */
__attribute__((noinline)) int find_listener4(__u32 address, __u32 port)
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
        const int found = IS_TARGET | (listener->forwards ? IS_FORWARDED : 0);
        if (listener->any) {
            any = found;
        } else if (listener->address4 == address) {
            return found;
        }
    }
    return any && is_local(4, &address, sizeof(address)) ? any : 0;
}

/* The same of IPv6; the address in its two halves, as they are in memory. */
__attribute__((noinline)) int find_listener6(__u64 first, __u64 second, __u32 port)
{
    const __u64 halves[2] = {first, second};
    __u32 words[4];
    __builtin_memcpy(words, halves, sizeof(words));
    int any = 0;
    for (__u32 i = 0; i < DROP_LISTENERS; i++) {
        if (i >= target.listener_count) {
            break;
        }
        const struct drop_listener *listener = &target.listeners[i];
        if (*(const volatile __u16 *) &listener->port != port || !listener->is_v6) {
            continue;
        }
        const int found = IS_TARGET | (listener->forwards ? IS_FORWARDED : 0);
        if (listener->any) {
            any = found;
        } else if (listener->address6[0] == words[0] && listener->address6[1] == words[1] &&
                   listener->address6[2] == words[2] && listener->address6[3] == words[3]) {
            return found;
        }
    }
    return any && is_local(6, words, sizeof(words)) ? any : 0;
}

/* What ../loops.h says of sources that no client has. Backends are left to the gateway. */
static __always_inline int is_of_no_client(__be16 port)
{
    return port == 0 || port == bpf_htons(7) || port == bpf_htons(13) || port == bpf_htons(17) ||
           port == bpf_htons(19) || port == bpf_htons(37);
}

static __always_inline int drop_invalid(void)
{
    __sync_fetch_and_add(&invalid_sources, 1);
    return XDP_DROP;
}

static __always_inline __u16 fold(__u64 sum)
{
    sum = (sum & 0xffffffff) + (sum >> 32);
    sum = (sum & 0xffffffff) + (sum >> 32);
    sum = (sum & 0xffff) + (sum >> 16);
    return (__u16) ((sum & 0xffff) + (sum >> 16));
}

/*
 * Whether a packet with this sum of the pseudo header has to pass to the stack. With IPv6 a packet without a checksum
 * is for the stack to refuse. A packet of this host may have that sum in place of its checksum, and with generic XDP it
 * may stand for many packets (UDP_SEGMENT), which the program cannot tell: the stack takes it apart.
 */
static __always_inline int passes_by(const struct udphdr *udp, __u64 sum, int v4)
{
    return (udp->check == 0 && !v4) || (target.is_generic && udp->check == fold(sum));
}

/*
 * Sources that the stack refuses when they come by a wire: of no host, of many, of the loopback, and of this host. It
 * is left to the stack. An answer to an address of this host could come back as a packet from it, again and again.
 */
static __always_inline int is_refused4(__be32 source)
{
    const __u32 first = bpf_ntohl(source) >> 24;
    return first == 0 || first == 127 || first >= 224 || is_local(4, &source, sizeof(source)) || is_broadcast(source);
}

/* Link-local addresses need the interface's number, and stay with the stack as well. */
static __always_inline int is_refused6(const struct in6_addr *source)
{
    __u32 words[4];
    __builtin_memcpy(words, source, sizeof(words));
    const __u32 first = bpf_ntohl(words[0]);
    return first >> 24 == 0xff || first >> 22 == 0xfe80 >> 6 || (words[0] == 0 && words[1] == 0) ||
           is_local(6, words, sizeof(words));
}

/* Whether a backend's packet is for a session of this queue. */
static __always_inline int is_for_session(const struct xdp_md *context, const struct drop_session *key, __u16 port)
{
    const __u32 number = bpf_ntohs(port);
    const struct drop_session *session = bpf_map_lookup_elem(&sessions, &number);
    if (session == NULL || *(const volatile __u32 *) &session->queue != context->rx_queue_index + 1 ||
        session->backend_port != key->backend_port || session->family != key->family) {
        return 0;
    }
    for (int i = 0; i < 4; i++) {
        if (session->local[i] != key->local[i] || session->backend[i] != key->backend[i]) {
            return 0;
        }
    }
    return 1;
}

/* Whether a client's packets are for the worker of another queue. */
static __always_inline int is_elsewhere(const struct xdp_md *context, const struct drop_flow *flow)
{
    const __u32 *number = target.steers ? bpf_map_lookup_elem(&flows, flow) : NULL;
    return number != NULL && *number % DROP_QUEUES != context->rx_queue_index;
}

/* To the socket of the queue; to the stack where there is none. */
static __always_inline int take(const struct xdp_md *context)
{
    return (int) bpf_redirect_map(&queues, context->rx_queue_index, XDP_PASS);
}

/* Whether the frame is one that the gateway may have: to this host alone, and not too long. */
static __always_inline int is_frame(const void *start, const void *end)
{
    const struct ethhdr *frame = start;
    if (!target.forwards || (const void *) (frame + 1) > end ||
        (const char *) end - (const char *) start > DROP_FRAME_MOST) {
        return 0;
    }
    for (int i = 0; i < 6; i++) {
        if (frame->h_dest[i] != target.mac[i]) {
            return 0;
        }
    }
    return 1;
}

static __always_inline int look_v4(const struct xdp_md *context, const void *at, const void *end, int may_take)
{
    const struct iphdr *ip = at;
    if ((const void *) (ip + 1) > end || ip->protocol != IPPROTO_UDP || ip->ihl < 5 ||
        (ip->frag_off & bpf_htons(FRAGMENT)) != 0) {
        return XDP_PASS;
    }
    const struct udphdr *udp = (const void *) ((const char *) ip + 4 * ip->ihl);
    if ((const void *) (udp + 1) > end || udp->dest == 0) {
        return XDP_PASS;
    }
    const __u32 length = bpf_ntohs(udp->len);
    const int found = find_listener4(ip->daddr, udp->dest);
    if (found && (is_of_no_client(udp->source) || find_listener4(ip->saddr, udp->source))) {
        return drop_invalid();
    }
    if (found && drop_v4(ip->saddr, length > sizeof(*udp) ? length - sizeof(*udp) : 0) == XDP_DROP) {
        return XDP_DROP;
    }
    if (!may_take || found == IS_TARGET || ip->ihl != 5 || bpf_ntohs(ip->tot_len) != length + sizeof(*ip) ||
        (const char *) ip + sizeof(*ip) + length > (const char *) end || length < sizeof(*udp)) {
        return XDP_PASS;
    }
    const __u64 sum = (__u64) ip->saddr + ip->daddr + bpf_htons(IPPROTO_UDP) + udp->len;
    if (passes_by(udp, sum, 1)) {
        return XDP_PASS;
    }
    if (!found) {
        const struct drop_session key = {
            .local = {ip->daddr}, .backend = {ip->saddr}, .backend_port = udp->source, .family = 4};
        return is_for_session(context, &key, udp->dest) ? take(context) : XDP_PASS;
    }
    const struct drop_flow flow = {
        .client = {ip->saddr}, .client_port = udp->source, .listen_port = udp->dest, .family = 4};
    return is_refused4(ip->saddr) || is_elsewhere(context, &flow) ? XDP_PASS : take(context);
}

static __always_inline int look_v6(const struct xdp_md *context, const void *at, const void *end, int may_take)
{
    const struct ipv6hdr *ip = at;
    const struct udphdr *udp = (const void *) (ip + 1);
    if ((const void *) (udp + 1) > end || ip->nexthdr != IPPROTO_UDP || udp->dest == 0) {
        return XDP_PASS;
    }
    const __u32 length = bpf_ntohs(udp->len);
    __u64 from[2];
    __u64 to[2];
    __builtin_memcpy(from, &ip->saddr, sizeof(from));
    __builtin_memcpy(to, &ip->daddr, sizeof(to));
    const int found = find_listener6(to[0], to[1], udp->dest);
    if (found && (is_of_no_client(udp->source) || find_listener6(from[0], from[1], udp->source))) {
        return drop_invalid();
    }
    if (found && drop_v6(&ip->saddr, length > sizeof(*udp) ? length - sizeof(*udp) : 0) == XDP_DROP) {
        return XDP_DROP;
    }
    if (!may_take || found == IS_TARGET || bpf_ntohs(ip->payload_len) != length ||
        (const char *) udp + length > (const char *) end || length < sizeof(*udp)) {
        return XDP_PASS;
    }
    struct drop_session key = {.backend_port = udp->source, .family = 6};
    __builtin_memcpy(key.local, &ip->daddr, sizeof(key.local));
    __builtin_memcpy(key.backend, &ip->saddr, sizeof(key.backend));
    __u64 sum = (__u64) bpf_htons(IPPROTO_UDP) + udp->len;
    for (int i = 0; i < 4; i++) {
        sum += (__u64) key.local[i] + key.backend[i];
    }
    if (passes_by(udp, sum, 0)) {
        return XDP_PASS;
    }
    if (!found) {
        return is_for_session(context, &key, udp->dest) ? take(context) : XDP_PASS;
    }
    struct drop_flow flow = {.client_port = udp->source, .listen_port = udp->dest, .family = 6};
    __builtin_memcpy(flow.client, &ip->saddr, sizeof(flow.client));
    return is_refused6(&ip->saddr) || is_elsewhere(context, &flow) ? XDP_PASS : take(context);
}

static __always_inline int look(const struct xdp_md *context, int may_forward)
{
    const void *at = (const void *) (unsigned long) context->data;
    const void *end = (const void *) (unsigned long) context->data_end;
    const struct ethhdr *frame = at;
    if ((const void *) (frame + 1) > end) {
        return XDP_PASS;
    }
    const int may_take = may_forward && is_frame(at, end);
    __be16 protocol = frame->h_proto;
    int is_tagged = 0;
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
        is_tagged = 1;
        at = tag + 1;
    }
    if (protocol == bpf_htons(ETH_P_IP)) {
        return look_v4(context, at, end, may_take && !is_tagged);
    }
    return protocol == bpf_htons(ETH_P_IPV6) ? look_v6(context, at, end, may_take && !is_tagged) : XDP_PASS;
}

SEC("xdp")
int drop_denied(struct xdp_md *context)
{
    return look(context, 0);
}

SEC("xdp")
int drop_or_forward(struct xdp_md *context)
{
    return look(context, 1);
}

/* Gives a packet of a known client to the worker that has its session; others go where the kernel's hash leads. */
SEC("sk_reuseport")
int steer(struct sk_reuseport_md *context)
{
    const struct udphdr *udp = context->data;
    struct drop_flow flow = {.family = 4};
    if ((const void *) (udp + 1) > context->data_end) {
        return SK_PASS;
    }
    flow.client_port = udp->source;
    flow.listen_port = udp->dest;
    if (context->eth_protocol == bpf_htons(ETH_P_IPV6)) {
        flow.family = 6;
        bpf_skb_load_bytes_relative(context, offsetof(struct ipv6hdr, saddr), flow.client, 16, BPF_HDR_START_NET);
    } else {
        bpf_skb_load_bytes_relative(context, offsetof(struct iphdr, saddr), flow.client, 4, BPF_HDR_START_NET);
    }
    __u32 *number = bpf_map_lookup_elem(&flows, &flow);
    if (number != NULL) {
        bpf_sk_select_reuseport(context, &sockets, number, 0); /* none there: the hash decides */
    }
    return SK_PASS;
}

char _license[] SEC("license") = "Apache-2.0";
