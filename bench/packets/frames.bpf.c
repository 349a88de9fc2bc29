/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gives a frame the next forged source, and sends it to an interface. weir-flood runs this program on frames of its
 * own. A frame may have been sent before: what differs from frame to frame is written each time.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "frames.h"

struct frames_to to;
__u64 next;  /* number of the frame, and how many were sent */
__u64 place; /* of a frame without a pad, in the kernel's memory */

/* Sends nothing. */
SEC("xdp")
int look_at_frame(struct xdp_md *context)
{
    place = (__u64) context->data;
    return XDP_DROP;
}

/* A step of waiting; 1: the time has come. */
static long wait_on(__u32 step, void *due_ns)
{
    (void) step;
    return bpf_ktime_get_ns() >= *(const __u64 *) due_ns;
}

SEC("xdp")
int send_frame(struct xdp_md *context)
{
    if (to.pad != 0 && bpf_xdp_adjust_head(context, (int) to.pad) != 0) {
        return XDP_ABORTED;
    }
    struct ethhdr *frame = (void *) (unsigned long) context->data;
    struct iphdr *ip = (void *) (frame + 1);
    struct udphdr *udp = (void *) (ip + 1);
    if ((void *) (udp + 1) > (void *) (unsigned long) context->data_end || to.count == 0 || to.at_once == 0) {
        return XDP_ABORTED;
    }
    if (to.every_ns != 0) {
        __u64 due_ns = to.start_ns + (next - next % to.at_once) * to.every_ns;
        if (to.waits) {
            bpf_loop(FRAMES_STEPS, wait_on, &due_ns, 0);
        }
        const __u64 now_ns = bpf_ktime_get_ns();
        if (due_ns > now_ns) {
            return XDP_DROP;
        }
        if (now_ns - due_ns > FRAMES_LATE_NS) {
            to.start_ns += now_ns - due_ns;
        }
    }
    const __u64 number = next++ % to.count * FRAMES_STRIDE % to.count;
    const __u32 source = to.first + (__u32) number;
    __u32 check = to.check + (source >> 16) + (source & 0xffff);
    check = (check & 0xffff) + (check >> 16);
    check = (check & 0xffff) + (check >> 16);
    ip->saddr = bpf_htonl(source);
    ip->check = bpf_htons((__u16) ~check);
    udp->source = bpf_htons((__u16) (FRAMES_PORT + number % 1000));
    return (int) bpf_redirect(to.interface, 0);
}

/* For the receiver: the least that a dropped packet can cost. */
SEC("xdp")
int drop_all(struct xdp_md *context)
{
    (void) context;
    return XDP_DROP;
}

char _license[] SEC("license") = "Apache-2.0";
