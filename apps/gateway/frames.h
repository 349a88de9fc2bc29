/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames that a worker receives by its lane (xsk/lane.h): packets of clients, on which the same code decides as on
 * those from sockets, and replies. What the lane cannot send leaves by the session's socket, or the listener's.
 */
#ifndef WEIR_GATEWAY_FRAMES_H
#define WEIR_GATEWAY_FRAMES_H

#include "loop.h"

/* Deals with the frames that have come, up to a burst. Returns a bit for each listener that packets came to. */
uint32_t frames_turn(struct loop *loop);

/* How long a turn may wait: not for long while frames wait to be sent. */
static inline int frames_wait_ms(const struct loop *loop, int wait_ms)
{
    return loop->lane.waits && wait_ms > 1 ? 1 : wait_ms;
}

/* The lane's rings are about to be given up: keeps what they have counted. */
void frames_end(struct loop *loop);

/* Reads what the kernel has counted, once a second. */
void frames_look(struct loop *loop);

#endif
