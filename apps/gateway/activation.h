/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sockets that are handed over by what started the gateway: the protocol of sd_listen_fds(3), by which systemd opens a
 * unit's sockets itself. UDP sockets are listeners, several of one address one for each thread. A TCP socket is for the
 * pages.
 */
#ifndef WEIR_GATEWAY_ACTIVATION_H
#define WEIR_GATEWAY_ACTIVATION_H

#include <stdbool.h>
#include <stddef.h>

#include "address.h"
#include "listeners.h"

/* Sockets of one address: as many as there may be threads. */
#define HANDED_MAX 64

struct handed_listener {
    struct address address;
    size_t count;
    int fds[HANDED_MAX];
};

struct activation {
    struct handed_listener listeners[LISTENERS_MAX];
    size_t listener_count;
    int metrics_fd; /* -1: there is none */
    struct address metrics;
};

/*
 * Takes the sockets that the environment names, and the variables out of the environment. False: `problem` says which
 * socket cannot be used, and why. Before there are threads.
 */
bool activation_open(struct activation *activation, char *problem, size_t size);

/* The handed sockets of an address; NULL: there are none. */
const struct handed_listener *activation_find(const struct activation *activation, const struct address *address);

#endif
