/* SPDX-License-Identifier: Apache-2.0 */
/* Where the gateway listens from its start on: addresses of the options, and sockets that were handed over. */
#ifndef WEIR_GATEWAY_LISTENING_H
#define WEIR_GATEWAY_LISTENING_H

#include <stdbool.h>
#include <stddef.h>

struct gateway;

/* Whether the sockets that were handed over fit the options. False: `problem` says what does not. */
bool listening_check(const struct gateway *gateway, char *problem, size_t size);

/*
 * Listens on the sockets that were handed over, and on each address of the options for which there is no such socket.
 * The threads are open, and do not run yet. 0, or -1 after a sentence in the log.
 */
int listening_start(struct gateway *gateway);

#endif
