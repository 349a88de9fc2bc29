/* SPDX-License-Identifier: Apache-2.0 */
/* link.h where the gateway was built without libbpf: nothing can be opened. */
#include <stdio.h>

#include "link.h"

struct xdp_link *xdp_link_open(const struct xdp_link_options *options, char *problem, size_t size)
{
    (void) options;
    (void) snprintf(problem, size, "this gateway was built without it; build with libbpf, clang and bpftool");
    return NULL;
}

/* The others are never called. */

void xdp_link_close(struct xdp_link *link)
{
    (void) link;
}

unsigned xdp_link_find(const struct xdp_link *link)
{
    (void) link;
    return 0;
}

unsigned xdp_link_attach(struct xdp_link *link, char *problem, size_t size)
{
    (void) link;
    (void) problem;
    (void) size;
    return 0;
}

enum link_mode xdp_link_mode(const struct xdp_link *link)
{
    (void) link;
    return LINK_GENERIC;
}

struct drop_line *xdp_link_lines(struct xdp_link *link)
{
    (void) link;
    return NULL;
}

struct drop_target *xdp_link_target(struct xdp_link *link)
{
    (void) link;
    return NULL;
}

struct drop_session *xdp_link_sessions(struct xdp_link *link)
{
    (void) link;
    return NULL;
}

uint64_t xdp_link_invalid_sources(const struct xdp_link *link)
{
    (void) link;
    return 0;
}

bool xdp_link_set_queue(struct xdp_link *link, uint32_t queue, int fd)
{
    (void) link;
    (void) queue;
    (void) fd;
    return false;
}

int xdp_link_steer(struct xdp_link *link, unsigned listener, const int *sockets, unsigned count)
{
    (void) link;
    (void) listener;
    (void) sockets;
    (void) count;
    return -1;
}

void xdp_link_set_flow(struct xdp_link *link, const struct drop_flow *flow, uint32_t number)
{
    (void) link;
    (void) flow;
    (void) number;
}

void xdp_link_remove_flow(struct xdp_link *link, const struct drop_flow *flow)
{
    (void) link;
    (void) flow;
}

void xdp_link_set_local(struct xdp_link *link, const struct drop_key *address, bool there)
{
    (void) link;
    (void) address;
    (void) there;
}
