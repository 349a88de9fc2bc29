/* SPDX-License-Identifier: Apache-2.0 */
/* Runs: the packets of one client that came in a row, on their way to its backend; and replies on their way to clients.
 */
#ifndef WEIR_GATEWAY_RUN_H
#define WEIR_GATEWAY_RUN_H

#include "loop.h"

/* Whether two messages of `requests` are of one client. */
bool run_is_same_client(const struct loop *loop, size_t a, size_t b);

/*
 * Begins the packets of the next client, that of a message, which go to its own socket. The packets of the client
 * before are sent first.
 */
void run_next(struct loop *loop, size_t message);

/* Sends what waits of the client at hand, and notes what its backend made of it. */
void run_end(struct loop *loop);

/* A backend's socket, or the opening of one, has told an error. */
void run_refused(struct loop *loop, uint8_t backend, int error);

/* Sends the replies that were gathered, of many clients in one call. */
void run_flush_replies(struct loop *loop);

#endif
