/* SPDX-License-Identifier: Apache-2.0 */
/* See listeners.h. */
#include "listeners.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#include "gateway.h"
#include "listen_socket.h"
#include "log.h"
#include "xdp/xdp.h"
#include "xsk/forward.h"

void listeners_init(struct listeners *listeners)
{
    (void) pthread_mutex_init(&listeners->mutex, NULL);
}

/* A number that neither a listener nor any thread's socket has; LISTENER_SLOTS: all are taken. */
static unsigned find_free(const struct gateway *gateway)
{
    uint32_t taken = 0;
    for (unsigned i = 0; i < gateway->worker_count; i++) {
        /* Pairs with the release of listen_let_go(): the thread has closed the socket. */
        taken |= atomic_load_explicit(&gateway->workers[i].open, memory_order_acquire);
    }
    for (unsigned number = 0; number < LISTENER_SLOTS; number++) {
        const struct listener *listener = &gateway->listeners.all[number];
        if ((taken >> number & 1) == 0 && !listener->is_in_force && !listener->is_open) {
            return number;
        }
    }
    return LISTENER_SLOTS;
}

void listeners_drop(struct gateway *gateway, unsigned number)
{
    gateway->listeners.all[number].is_open = false;
    for (unsigned i = 0; i < gateway->worker_count; i++) {
        listen_socket_close(&gateway->workers[i].sockets[number]);
    }
}

int listeners_open(struct gateway *gateway, const struct listener_request *request)
{
    const unsigned number = find_free(gateway);
    if (number == LISTENER_SLOTS) {
        return -EMFILE;
    }
    struct listener *listener = &gateway->listeners.all[number];
    for (unsigned i = 0; i < gateway->worker_count; i++) {
        struct listen_socket *socket = &gateway->workers[i].sockets[number];
        const int handed = i < request->handed_count ? request->handed[i] : -1;
        const int result = listen_socket_open(socket, &request->address, handed, gateway->options.offload);
        /* Beside sockets of another user the kernel allows no own ones. */
        if (result != 0 && (request->handed_count == 0 || handed >= 0)) {
            listeners_drop(gateway, number);
            return result;
        }
    }
    (void) pthread_mutex_lock(&gateway->listeners.mutex);
    listener->is_open = true;
    listener->address = request->address;
    listener->is_handed = request->handed_count != 0;
    (void) snprintf(listener->text, sizeof(listener->text), "%s", request->text);
    (void) pthread_mutex_unlock(&gateway->listeners.mutex);
    return (int) number;
}

/* Whether packets to a listener may go past the network stack. Sockets from elsewhere may be shared with others. */
static bool may_forward(const struct gateway *gateway, unsigned number)
{
    int sockets[GATEWAY_THREADS_MAX];
    const struct listener *listener = &gateway->listeners.all[number];
    if (gateway->forward == NULL || listener->is_handed) {
        return false;
    }
    for (unsigned i = 0; i < gateway->worker_count; i++) {
        sockets[i] = gateway->workers[i].sockets[number].fd;
    }
    const int result = forward_steer(gateway->forward, number, sockets);
    if (result != 0) {
        log_line(WEIR_LOG_WARNING, "--listen %s: packets cannot be steered to threads, and go by sockets: %s",
                 listener->text, strerror(-result));
    }
    return result == 0;
}

bool listeners_serve(struct gateway *gateway, unsigned number)
{
    struct listener *listener = &gateway->listeners.all[number];
    const uint32_t bit = UINT32_C(1) << number;
    const bool forwards = may_forward(gateway, number);
    bool good = true;
    for (unsigned i = 0; i < gateway->worker_count; i++) {
        struct worker *worker = &gateway->workers[i];
        struct listen_socket *socket = &worker->sockets[number];
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = socket};
        if (socket->fd < 0) {
            continue;
        }
        atomic_store_explicit(&worker->counters.received[number], 0, memory_order_relaxed);
        atomic_store_explicit(&worker->counters.merges, socket->merges,
                              memory_order_relaxed); /* of each, as the kernel is */
        /* Pairs with the acquire of each turn: the thread sees the socket whole. */
        (void) atomic_fetch_or_explicit(&worker->open, bit, memory_order_acq_rel);
        if (epoll_ctl(worker->epoll_fd, EPOLL_CTL_ADD, socket->fd, &event) != 0) {
            log_line(WEIR_LOG_ERROR, "--listen %s: a thread does not serve it: %s", listener->text, strerror(errno));
            (void) atomic_fetch_or_explicit(&worker->leaving, bit, memory_order_acq_rel);
            good = false;
        }
    }
    (void) pthread_mutex_lock(&gateway->listeners.mutex);
    listener->is_open = false;
    listener->is_in_force = true;
    (void) atomic_fetch_add_explicit(&gateway->listeners.generation, 1, memory_order_relaxed); /* the mutex orders */
    (void) pthread_mutex_unlock(&gateway->listeners.mutex);
    xdp_set_listener(gateway->xdp, number, &listener->address, forwards);
    return good;
}

void listeners_remove(struct gateway *gateway, unsigned number)
{
    xdp_set_listener(gateway->xdp, number, NULL, false);
    (void) pthread_mutex_lock(&gateway->listeners.mutex);
    gateway->listeners.all[number].is_in_force = false;
    (void) atomic_fetch_add_explicit(&gateway->listeners.generation, 1, memory_order_relaxed); /* the mutex orders */
    (void) pthread_mutex_unlock(&gateway->listeners.mutex);
    for (unsigned i = 0; i < gateway->worker_count; i++) {
        struct worker *worker = &gateway->workers[i];
        const uint32_t bit = UINT32_C(1) << number;
        if ((atomic_load_explicit(&worker->open, memory_order_acquire) & bit) != 0) {
            (void) atomic_fetch_or_explicit(&worker->leaving, bit, memory_order_acq_rel);
        }
    }
}

unsigned listeners_count_threads(const struct gateway *gateway, unsigned number)
{
    unsigned count = 0;
    for (unsigned i = 0; i < gateway->worker_count; i++) {
        count += gateway->workers[i].sockets[number].fd >= 0;
    }
    return count;
}

unsigned listeners_find(const struct listeners *listeners, const struct address *address)
{
    unsigned number = 0;
    while (number < LISTENER_SLOTS &&
           !(listeners->all[number].is_in_force && address_is_same(&listeners->all[number].address, address))) {
        number++;
    }
    return number;
}

size_t listeners_list(struct listeners *listeners, char *out, size_t size)
{
    size_t count = 0;
    size_t length = 0;
    out[0] = '\0';
    (void) pthread_mutex_lock(&listeners->mutex);
    for (unsigned i = 0; i < LISTENER_SLOTS; i++) {
        const struct listener *listener = &listeners->all[i];
        if (listener->is_in_force && length < size) {
            length += (size_t) snprintf(out + length, size - length, "%s%s", count++ != 0 ? ", " : "", listener->text);
        }
    }
    (void) pthread_mutex_unlock(&listeners->mutex);
    return count;
}
