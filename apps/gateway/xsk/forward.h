/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Forwarding past the network stack, by AF_XDP (Linux 5.9): what the lanes of all workers share. Worker N has the lane
 * of receive queue N.
 *
 * An interface that goes takes its queues along, and the sockets of AF_XDP are of no use any more. Then nothing is
 * forwarded, each worker is to let go of its rings, and they are closed. When the interface is back there are new ones,
 * and frames are handed over when each worker has taken its own. The thread of `xdp` sees to that, once a second.
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
struct lane_parts forward_lane(struct forward *forward, unsigned worker);

/*
 * The rings that a worker is to have now; NULL: none. Costs a load. A worker that has others gives them up by
 * forward_leave(), and takes these by forward_take(), which returns those that it then has. Both are the worker's
 * calls.
 */
struct rings *forward_rings(const struct forward *forward, unsigned worker);
struct rings *forward_take(struct forward *forward, unsigned worker);
void forward_leave(struct forward *forward, unsigned worker);

/*
 * Prepares the sockets of a listener, by worker, of which packets are to be forwarded. 0, or a negative errno value. To
 * end it, the sockets leave their address, or are closed.
 */
int forward_steer(struct forward *forward, unsigned listener, const int *sockets);

/* How many receive queues frames are handed over from; 0: the interface is away. */
unsigned forward_queues(const struct forward *forward);

#endif
