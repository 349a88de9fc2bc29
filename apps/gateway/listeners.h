/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The addresses that the gateway listens on. Each has a number, and every thread a socket of that number
 * (listen_socket.h), which all share the address by SO_REUSEPORT.
 *
 * The main thread adds and removes listeners while the threads serve. A socket is the main thread's until
 * listeners_serve, and its thread's from then on. A thread that is told to let a listener go leaves its address as a
 * gateway that ends does, and closes the socket when nothing has come for a while. The number of the listener is free
 * for another one when all threads have done so.
 *
 * Threads: the main thread, for all functions but listeners_list.
 */
#ifndef WEIR_GATEWAY_LISTENERS_H
#define WEIR_GATEWAY_LISTENERS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "address.h"

/* That may be given. */
#define LISTENERS_MAX 16

/* Numbers: there are more, as those that are being removed still have theirs. One bit each in a word of 32. */
#define LISTENER_SLOTS 32

struct gateway;

struct listener {
    bool is_open; /* not served yet */
    bool is_in_force;
    bool is_handed; /* by who started the gateway: it stays to the end */
    char text[ADDRESS_TEXT_SIZE];
    struct address address;
};

struct listeners {
    pthread_mutex_t mutex; /* of changes by the main thread, and of readers that are others */
    struct listener all[LISTENER_SLOTS];
    _Atomic uint32_t generation; /* grows with each change of those in force; written under the mutex */
};

/* A listener to be added. */
struct listener_request {
    const char *text;
    struct address address;
    const int *handed;   /* sockets at that address, for the first threads in place of own ones */
    size_t handed_count; /* 0: each thread has an own one */
};

void listeners_init(struct listeners *listeners);

/*
 * Opens a listener's sockets, one for each thread. Beside handed ones, whose other owner may have set them up
 * otherwise, threads may be left without one. Returns its number, or a negative errno value; -EMFILE is also that
 * all numbers are taken by listeners that are being removed.
 */
int listeners_open(struct gateway *gateway, const struct listener_request *request);

/* Hands the sockets of an open listener to the threads. False: some thread has none, which has been logged. */
bool listeners_serve(struct gateway *gateway, unsigned number);

/* Closes an open listener that was never served. */
void listeners_drop(struct gateway *gateway, unsigned number);

/* Ends a listener that is served, once what it was given has been dealt with. */
void listeners_remove(struct gateway *gateway, unsigned number);

/* How many threads have a socket of a listener. */
unsigned listeners_count_threads(const struct gateway *gateway, unsigned number);

/* The number of the listener in force at an address; LISTENER_SLOTS: there is none. */
unsigned listeners_find(const struct listeners *listeners, const struct address *address);

/* Writes the addresses in force, "a, b, c", cut to `size`. Any thread. Returns how many there are. */
size_t listeners_list(struct listeners *listeners, char *out, size_t size);

#endif
