/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Forwarding past the network stack, by AF_XDP (Linux 5.9): what the lanes of all workers share. Worker N has the lane
 * of receive queue N.
 */
#ifndef WEIR_GATEWAY_XSK_FORWARD_H
#define WEIR_GATEWAY_XSK_FORWARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../backends/backends.h"
#include "../xdp/xdp.h"
#include "lane.h"

struct forward;

/*
 * Opens a lane for each receive queue of the interface of `xdp`, whose program forwards. Frames are handed over from
 * then on. NULL: `problem` says in one sentence what is missing. `xdp` and `backends` must outlive it.
 */
struct forward *forward_start(struct xdp *xdp, struct backends *backends, unsigned worker_count, char *problem,
                              size_t size);

/* No frames are handed over any more: what comes goes by the network stack. `forward` may be NULL. */
void forward_end(struct forward *forward);

/* Closes all. The workers are closed. NULL is allowed. */
void forward_stop(struct forward *forward);

/* The parts of a worker's lane. `forward` may be NULL. */
struct lane_parts forward_lane(const struct forward *forward, unsigned worker);

/*
 * Prepares the sockets of a listener, by worker, of which packets are to be forwarded. 0, or a negative errno value. To
 * end it, the sockets leave their address, or are closed.
 */
int forward_steer(struct forward *forward, unsigned listener, const int *sockets);

/* How many receive queues there are. */
unsigned forward_queues(const struct forward *forward);

#endif
