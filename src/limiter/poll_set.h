/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One descriptor for a host's event loop: readable when weir_poll has something to do.
 *
 * The descriptor is an epoll set. It holds the sockets of the transport and a timer for the time at which weir_poll
 * wants to be called. With a clock of the host there is no timer, as the kernel does not know that clock.
 *
 * Invariant: a socket in the set is armed once. A report disarms it, and poll_set_update arms it again. A socket that
 * was closed while a forked child holds a copy of it stays in the set and cannot be taken out: it is reported once, and
 * never again.
 *
 * Threads: one at a time. Any thread may wait for the descriptor.
 */
#ifndef WEIR_LIMITER_POLL_SET_H
#define WEIR_LIMITER_POLL_SET_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "transport/transport.h"

struct poll_set {
    int epoll_fd;                                 /* -1: there is no set */
    int timer_fd;                                 /* -1: there is no timer */
    uint64_t armed_ns;                            /* what the timer is set to; 0: it has to be set */
    bool blind;                                   /* not all sockets are in the set */
    struct pollfd watched[TRANSPORT_MAX_POLLFDS]; /* what the set is armed for */
    size_t watched_count;
};

void poll_set_init(struct poll_set *set);

/* Makes the set, where there is none; 0, or a negative errno value, and then there is none. It is readable until the
 * first poll_set_update. */
int poll_set_open(struct poll_set *set, bool timer);

/* Closes descriptors and changes nothing else: in a forked child the parent's set stays as it is. */
void poll_set_close(struct poll_set *set);

/* Takes what was reported. Returns whether a socket may be ready; true where there is no set. */
bool poll_set_take(struct poll_set *set);

/*
 * Arms the set for these sockets and this time. `changed`: sockets may have been opened, closed or used since the last
 * call, which tells nothing of a socket that has the number of an earlier one. Returns until_ns, or a time before it
 * where a socket could not be put into the set and has to be looked at.
 */
uint64_t poll_set_update(struct poll_set *set, const struct pollfd *fds, size_t count, bool changed, uint64_t now_ns,
                         uint64_t until_ns);

#endif
