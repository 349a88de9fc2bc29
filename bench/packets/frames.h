/* SPDX-License-Identifier: Apache-2.0 */
/* Frames that are sent without a socket, as those of a network card: what weir-flood and its program share. */
#ifndef WEIR_BENCH_FRAMES_H
#define WEIR_BENCH_FRAMES_H

#include <linux/types.h>

/* A prime: sources in a row are far apart. */
#define FRAMES_STRIDE 7919

/* The least of 1,000 ports of sources. */
#define FRAMES_PORT 20000

/* Frames that are later than this are not made up for: a sender that had no processor for a while sends no burst then.
 */
#define FRAMES_LATE_NS 100000

/* Of the processor's cache. A frame begins with one, as those of network cards do: all its headers are in it. */
#define FRAMES_LINE 64

/* Of waiting, at most: some milliseconds. */
#define FRAMES_STEPS (1 << 17)

struct frames_to {
    __u64 count;     /* of the sources */
    __u64 start_ns;  /* of the first frame, by CLOCK_MONOTONIC */
    __u64 every_ns;  /* from one frame to the next; 0: no wait */
    __u64 at_once;   /* so many frames wait for the time of the first of them */
    __u32 first;     /* source, in the host's byte order */
    __u32 check;     /* of IPv4's header without source and checksum, not folded */
    __u32 interface; /* to send from */
    __u32 pad;       /* bytes in front of the frame, which are not sent */
    __u32 waits;     /* the program waits for a frame's time; otherwise it gives the frame back, and is asked again */
};

#endif
