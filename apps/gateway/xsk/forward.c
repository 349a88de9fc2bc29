/* SPDX-License-Identifier: Apache-2.0 */
/* See forward.h. */
#include "forward.h"

#include <errno.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../xdp/link.h"

struct forward {
    struct xdp_link *link;
    struct hops *hops;
    unsigned worker_count;
    unsigned queue_count;
    struct rings *rings[DROP_QUEUES];
};

/* What an interface says of itself. False: errno says why not. */
static bool ask_interface(const char *interface, unsigned long what, struct ifreq *request)
{
    memcpy(request->ifr_name, interface, strnlen(interface, IF_NAMESIZE - 1) + 1);
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const bool good = fd >= 0 && ioctl(fd, what, request) == 0;
    const int error = errno;
    if (fd >= 0) {
        (void) close(fd);
    }
    errno = error;
    return good;
}

/* Drivers of one queue need not say so. */
static unsigned count_queues(const char *interface)
{
    struct ethtool_channels channels = {.cmd = ETHTOOL_GCHANNELS};
    struct ifreq request = {.ifr_data = (void *) &channels};
    const unsigned count =
        ask_interface(interface, SIOCETHTOOL, &request) ? channels.combined_count + channels.rx_count : 1;
    return count != 0 ? count : 1;
}

/* Has the program know the interface. */
static bool set_target(struct forward *forward, const char *interface)
{
    struct drop_target *target = xdp_link_target(forward->link);
    struct ifreq request = {.ifr_flags = 0};
    if (!ask_interface(interface, SIOCGIFHWADDR, &request)) {
        return false;
    }
    memcpy(target->mac, request.ifr_hwaddr.sa_data, sizeof(target->mac));
    target->is_generic = xdp_link_mode(forward->link) != LINK_NATIVE;
    target->steers = forward->worker_count > 1;
    return true;
}

static bool open_queue(struct forward *forward, const char *interface, unsigned queue, char *problem, size_t size)
{
    const bool is_native = xdp_link_mode(forward->link) == LINK_NATIVE;
    forward->rings[queue] = rings_open(interface, queue, is_native, problem, size);
    if (forward->rings[queue] == NULL) {
        return false;
    }
    if (!xdp_link_set_queue(forward->link, queue, rings_fd(forward->rings[queue]))) {
        (void) snprintf(problem, size, "the program takes no AF_XDP socket: %s", strerror(errno));
        return false;
    }
    return true;
}

/* False: `problem` says what is missing. */
static bool open_all(struct forward *forward, const char *interface, unsigned worker_count, char *problem, size_t size)
{
    const unsigned count = count_queues(interface);
    if (count > worker_count || count > DROP_QUEUES) {
        (void) snprintf(problem, size,
                        "the interface has %u receive queues for %u threads; give --threads %u, or fewer queues "
                        "(ethtool -L)",
                        count, worker_count, count);
        return false;
    }
    if (!set_target(forward, interface)) {
        (void) snprintf(problem, size, "the interface has no address of Ethernet: %s", strerror(errno));
        return false;
    }
    for (; forward->queue_count < count; forward->queue_count++) {
        if (!open_queue(forward, interface, forward->queue_count, problem, size)) {
            rings_close(forward->rings[forward->queue_count]);
            return false;
        }
    }
    return true;
}

struct forward *forward_start(struct xdp *xdp, struct backends *backends, unsigned worker_count, char *problem,
                              size_t size)
{
    const char *interface = xdp_get_interface(xdp);
    struct forward *forward = calloc(1, sizeof(*forward));
    if (forward == NULL) {
        (void) snprintf(problem, size, "out of memory");
        return NULL;
    }
    forward->link = xdp_get_link(xdp);
    forward->worker_count = worker_count;
    if (!open_all(forward, interface, worker_count, problem, size)) {
        forward_stop(forward);
        return NULL;
    }
    forward->hops = hops_start(backends, interface);
    if (forward->hops == NULL) {
        (void) snprintf(problem, size, "routes cannot be asked for: %s", strerror(errno));
        forward_stop(forward);
        return NULL;
    }
    __atomic_store_n(&xdp_link_target(forward->link)->forwards, 1, __ATOMIC_SEQ_CST);
    return forward;
}

void forward_end(struct forward *forward)
{
    if (forward != NULL) {
        __atomic_store_n(&xdp_link_target(forward->link)->forwards, 0, __ATOMIC_SEQ_CST);
    }
}

void forward_stop(struct forward *forward)
{
    if (forward == NULL) {
        return;
    }
    for (unsigned i = 0; i < forward->queue_count; i++) {
        rings_close(forward->rings[i]);
    }
    hops_stop(forward->hops);
    free(forward);
}

struct lane_parts forward_lane(const struct forward *forward, unsigned worker)
{
    struct lane_parts parts = {.rings = NULL, .queue = worker};
    if (forward != NULL) {
        parts.steering = forward->worker_count > 1 ? forward->link : NULL;
    }
    if (forward != NULL && worker < forward->queue_count) {
        parts.rings = forward->rings[worker];
        parts.hops = forward->hops;
        parts.sessions = xdp_link_sessions(forward->link);
    }
    return parts;
}

int forward_steer(struct forward *forward, unsigned listener, const int *sockets)
{
    return forward->worker_count > 1 ? xdp_link_steer(forward->link, listener, sockets, forward->worker_count) : 0;
}

unsigned forward_queues(const struct forward *forward)
{
    return forward->queue_count;
}
