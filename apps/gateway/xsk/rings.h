/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The AF_XDP socket of one receive queue, with its frames: memory that the kernel writes received frames to, and reads
 * frames to be sent from. The one file that knows libxdp is rings.c.
 *
 *   a frame is    in the kernel, to be filled; or the worker's, once rings_receive() has given it;
 *                 or in the kernel, to be sent; or free
 *
 * So a received frame is either sent or freed, each once. Frames are copied by the kernel (XDP_COPY).
 *
 * Threads: one at a time.
 */
#ifndef WEIR_GATEWAY_XSK_RINGS_H
#define WEIR_GATEWAY_XSK_RINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Room in front of a received frame. */
#define RINGS_ROOM 128

struct rings;

struct rings_frame {
    unsigned char *bytes;
    size_t size;
};

/* NULL: `problem` says in one sentence what is missing. Waits for up to a second for a queue that was just left. */
struct rings *rings_open(const char *interface, uint32_t queue, bool is_native, char *problem, size_t size);
void rings_close(struct rings *rings); /* NULL is allowed */

/* The socket: it can be read when frames have come. */
int rings_fd(const struct rings *rings);

/* Takes up to `most` received frames. How many there are. */
size_t rings_receive(struct rings *rings, struct rings_frame *out, size_t most);

/* A received frame is not needed any more. `inside`: any of its bytes. */
void rings_free(struct rings *rings, const unsigned char *inside);

/*
 * Sends a received frame, which may begin up to RINGS_ROOM bytes before where it began. False: there is no room, and
 * the frame still is the caller's.
 */
bool rings_send(struct rings *rings, const unsigned char *start, size_t size);

/* Has the kernel send what there is. False: some of it waits still, and this is to be called again soon. */
bool rings_flush(struct rings *rings);

/* Frames that arrived and found no room, since the socket was opened. */
uint64_t rings_lost(const struct rings *rings);

#endif
