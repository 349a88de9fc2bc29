/* SPDX-License-Identifier: Apache-2.0 */
/* See forward.h. */
#include "forward.h"

#include <errno.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../log.h"
#include "../xdp/link.h"

/* After a refusal the rings are opened again after so many looks. */
#define RETRY_LOOKS 10

struct forward {
    struct xdp *xdp;
    struct xdp_link *link;
    struct hops *hops;
    unsigned worker_count;
    unsigned queue_count; /* of `rings` */
    struct rings *rings[DROP_QUEUES];
    unsigned interface;       /* that they are of; 0: they are to be closed */
    unsigned wait_looks;      /* before they are opened */
    unsigned refused_at;      /* the interface whose queues were not to be had; 0: none */
    _Atomic unsigned serving; /* queues that frames are handed over from */
    /*
     * By worker: what it is to have, and what it has. Rings are closed when they are offered no more and no worker has
     * them: each side writes its word and then reads the other's, in one order for all, so one of them sees the other.
     */
    _Atomic(struct rings *) offered[DROP_QUEUES], taken[DROP_QUEUES];
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
            forward->rings[forward->queue_count] = NULL;
            return false;
        }
    }
    return true;
}

static void close_all(struct forward *forward)
{
    for (unsigned i = 0; i < forward->queue_count; i++) {
        rings_close(forward->rings[i]);
        forward->rings[i] = NULL;
    }
    forward->queue_count = 0;
}

/* Offers each worker its rings, or none. */
static void offer(struct forward *forward, bool any)
{
    for (unsigned i = 0; i < forward->worker_count; i++) {
        atomic_store(&forward->offered[i], any ? forward->rings[i] : NULL);
    }
}

/* Whether each worker has its rings, or none does. */
static bool all_have(const struct forward *forward, bool any)
{
    bool have = true;
    for (unsigned i = 0; i < forward->worker_count; i++) {
        have = have && atomic_load(&forward->taken[i]) == (any ? forward->rings[i] : NULL);
    }
    return have;
}

static void set_forwards(struct forward *forward, bool forwards)
{
    __atomic_store_n(&xdp_link_target(forward->link)->forwards, forwards, __ATOMIC_SEQ_CST);
    atomic_store_explicit(&forward->serving, forwards ? forward->queue_count : 0, memory_order_relaxed);
}

/* Opens new rings. False: that is to be tried again, and the log has said why. */
static bool open_anew(struct forward *forward, unsigned index)
{
    char problem[256];
    const char *interface = xdp_get_interface(forward->xdp);
    if (forward->refused_at == index && forward->wait_looks != 0) {
        forward->wait_looks--;
        return false;
    }
    if (open_all(forward, interface, forward->worker_count, problem, sizeof(problem))) {
        forward->refused_at = 0;
        return true;
    }
    close_all(forward);
    forward->wait_looks = RETRY_LOOKS;
    if (forward->refused_at != index) {
        log_line(WEIR_LOG_WARNING, "--xdp %s: %s; packets go by sockets", interface, problem);
    }
    forward->refused_at = index;
    return false;
}

/* Once a second, with the index of the interface that the program is on; 0: it is away. See xdp_watch(). */
static void look(void *arg, unsigned interface)
{
    struct forward *forward = arg;
    if (forward->interface != 0 && interface == forward->interface) {
        if (atomic_load_explicit(&forward->serving, memory_order_relaxed) == 0 && all_have(forward, true)) {
            set_forwards(forward, true);
            log_line(WEIR_LOG_INFO, "packets are forwarded past the network stack at %s again",
                     xdp_get_interface(forward->xdp));
        }
        return;
    }
    if (forward->interface != 0) {
        set_forwards(forward, false);
        forward->interface = 0;
        offer(forward, false);
    }
    if (!all_have(forward, false)) {
        return;
    }
    close_all(forward);
    if (interface != 0 && open_anew(forward, interface)) {
        forward->interface = interface;
        hops_set_interface(forward->hops, interface);
        offer(forward, true);
    }
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
    forward->xdp = xdp;
    forward->link = xdp_get_link(xdp);
    forward->worker_count = worker_count;
    forward->interface = xdp_link_find(forward->link);
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
    offer(forward, true);
    set_forwards(forward, true);
    xdp_watch(xdp, look, forward);
    return forward;
}

void forward_end(struct forward *forward)
{
    if (forward != NULL) {
        xdp_watch(forward->xdp, NULL, NULL);
        set_forwards(forward, false);
    }
}

void forward_stop(struct forward *forward)
{
    if (forward == NULL) {
        return;
    }
    close_all(forward);
    hops_stop(forward->hops);
    free(forward);
}

struct lane_parts forward_lane(struct forward *forward, unsigned worker)
{
    struct lane_parts parts = {.rings = NULL, .queue = worker};
    if (forward != NULL) {
        parts.steering = forward->worker_count > 1 ? forward->link : NULL;
        parts.rings = forward_take(forward, worker);
        parts.hops = forward->hops;
        parts.sessions = xdp_link_sessions(forward->link);
    }
    return parts;
}

struct rings *forward_rings(const struct forward *forward, unsigned worker)
{
    return atomic_load_explicit(&forward->offered[worker], memory_order_relaxed); /* forward_take() looks again */
}

struct rings *forward_take(struct forward *forward, unsigned worker)
{
    struct rings *rings;
    do {
        rings = atomic_load(&forward->offered[worker]);
        atomic_store(&forward->taken[worker], rings);
    } while (rings != atomic_load(&forward->offered[worker]));
    return rings;
}

void forward_leave(struct forward *forward, unsigned worker)
{
    atomic_store(&forward->taken[worker], NULL);
}

int forward_steer(struct forward *forward, unsigned listener, const int *sockets)
{
    return forward->worker_count > 1 ? xdp_link_steer(forward->link, listener, sockets, forward->worker_count) : 0;
}

unsigned forward_queues(const struct forward *forward)
{
    return atomic_load_explicit(&forward->serving, memory_order_relaxed);
}
