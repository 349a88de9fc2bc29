/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which client has which local port. A backend answers to a port; so a port that goes from one client to another takes
 * answers with it that are still under way. Here a port rests after its last packet before another client may have it,
 * and a client that comes back gets its own port back, with the answers that were sent to it in between.
 *
 * The table is a file that is mapped by all threads, and by all gateways that are given the same directory. It outlives
 * sessions, restarts, and a gateway that takes over from another one.
 *
 * Threads: any, at the same time; other processes, too.
 */
#ifndef WEIR_GATEWAY_PORTS_H
#define WEIR_GATEWAY_PORTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ports;

/*
 * Opens the table of a directory, which is made where it is not there. `directory` NULL: that of systemd
 * (RUNTIME_DIRECTORY), or one of the user in shared memory. A port rests for `rest_ms`. NULL: `problem` says why there
 * is no table.
 */
struct ports *ports_open(const char *directory, unsigned rest_ms, char *problem, size_t size);

/* A table of this process alone, that ends with it. NULL: there is no memory for it. */
struct ports *ports_open_private(unsigned rest_ms);

void ports_close(struct ports *ports); /* NULL is allowed */

/* How many ports clients may have, together: the kernel's range of local ports without those it reserves. */
unsigned ports_count(const struct ports *ports);

/* A client as the table knows it: a hash of its bytes under a secret of the table's. Never 0. */
uint64_t ports_client(const struct ports *ports, const void *bytes, size_t size);

/* The time of all calls, in milliseconds; all processes of this host have the same. */
uint64_t ports_now(void);

/*
 * Binds a socket to the client's port, or to one that has rested. The socket takes packets from everybody until it is
 * connected. Returns the port; -1: errno says why there is none, EADDRNOTAVAIL: no port has rested. *came_back: the
 * client had this port before.
 */
int ports_bind(struct ports *ports, uint64_t client, int fd, int family, uint64_t now, bool *came_back);

/*
 * A bound socket is connected. From now on the same client may have its port by another socket as well, as when another
 * gateway takes over.
 */
void ports_share(int fd);

/* Notes that the client's port is in use. At least every second in which it is. */
void ports_note(struct ports *ports, uint64_t client, uint16_t port, uint64_t now);

/* Gives a port back, whose last packet was at `last`. Before its socket is closed. */
void ports_release(struct ports *ports, uint64_t client, uint16_t port, uint64_t last);

#endif
