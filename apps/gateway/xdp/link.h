/* SPDX-License-Identifier: Apache-2.0 */
/* The XDP program in the kernel: loading, attaching, and what it reads. The one file that knows libbpf is link.c. */
#ifndef WEIR_GATEWAY_XDP_LINK_H
#define WEIR_GATEWAY_XDP_LINK_H

#include <net/if.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "drop.h"

enum link_mode { LINK_ANY, LINK_NATIVE, LINK_GENERIC };

struct xdp_link;

/* What a link is to be. */
struct xdp_link_options {
    char interface[IF_NAMESIZE];
    enum link_mode mode; /* LINK_ANY takes native where the driver has it */
    bool forward;        /* the program also hands packets to AF_XDP */
    uint32_t flows;      /* clients that are steered to workers; 0: there is one worker */
};

/*
 * Loads the program and attaches it to an interface. NULL: `problem` says in one sentence what is missing. A program
 * that is to forward hands over nothing until `forwards` of the target is set.
 */
struct xdp_link *xdp_link_open(const struct xdp_link_options *options, char *problem, size_t size);
void xdp_link_close(struct xdp_link *link);

/*
 * The index of the interface at which the program is; 0: at none of the name that was given. An interface may go with
 * its driver or its network namespace, and come back under another index: the kernel has taken the program off then.
 */
unsigned xdp_link_find(const struct xdp_link *link);

/*
 * Attaches the program to the interface of the name that was given, and takes it off any other one. Returns the
 * interface's index; 0: `problem` says in one sentence what is missing.
 */
unsigned xdp_link_attach(struct xdp_link *link, char *problem, size_t size);

/* LINK_NATIVE or LINK_GENERIC: as it was attached last. */
enum link_mode xdp_link_mode(const struct xdp_link *link);

/* Memory that the program reads. */
struct drop_line *xdp_link_lines(struct xdp_link *link); /* DROP_LINES of them */
struct drop_target *xdp_link_target(struct xdp_link *link);

/* By port. NULL: the program does not forward. */
struct drop_session *xdp_link_sessions(struct xdp_link *link);

/* Packets that the program has dropped as no client has their source. */
uint64_t xdp_link_invalid_sources(const struct xdp_link *link);

/* Tells the program the AF_XDP socket of a receive queue. False: errno says why not. */
bool xdp_link_set_queue(struct xdp_link *link, uint32_t queue, int fd);

/*
 * Has packets to a listener's sockets, which share their address, go to the worker that has the client's session. 0, or
 * a negative errno value. `sockets` has `count` of them, by worker.
 */
int xdp_link_steer(struct xdp_link *link, unsigned listener, const int *sockets, unsigned count);

/* Tells the program which socket (DROP_SOCKET) a client's packets are for. Without it they go as those of a new one. */
void xdp_link_set_flow(struct xdp_link *link, const struct drop_flow *flow, uint32_t number);
void xdp_link_remove_flow(struct xdp_link *link, const struct drop_flow *flow);

/* Adds or removes one of the host's addresses. */
void xdp_link_set_local(struct xdp_link *link, const struct drop_key *address, bool there);

#endif
