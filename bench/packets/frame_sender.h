/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sends frames without a socket (BPF_F_TEST_XDP_LIVE_FRAMES, Linux 5.18): they reach the other end of a veth pair as
 * they come from a network card, before the kernel has made a packet of its network stack of them. The other end needs
 * GRO, or an XDP program in its driver.
 */
#ifndef WEIR_BENCH_FRAME_SENDER_H
#define WEIR_BENCH_FRAME_SENDER_H

#include <stddef.h>
#include <stdint.h>

#include "frames.h"

struct frame_sender;

/* `frame` is what all frames begin as. NULL: errno says why not; ENOSYS: built without libbpf. */
struct frame_sender *frame_sender_open(const struct frames_to *to, const void *frame, size_t size);

/*
 * Sends until a signal comes that the process handles. Returns how many there were; what the other end had no room for
 * is not known here. UINT64_MAX: errno says why there were none.
 */
uint64_t frame_sender_run(struct frame_sender *sender);

#endif
