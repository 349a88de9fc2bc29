/* SPDX-License-Identifier: Apache-2.0 */
/* link.h where the gateway was built without libbpf: nothing can be opened. */
#include <stdio.h>

#include "link.h"

struct xdp_link *xdp_link_open(const char *interface, enum link_mode mode, uint32_t capacity, char *problem,
                               size_t size)
{
    (void) interface;
    (void) mode;
    (void) capacity;
    (void) snprintf(problem, size, "this gateway was built without it; build with libbpf, clang and bpftool");
    return NULL;
}

/* The others are never called. */

void xdp_link_close(struct xdp_link *link)
{
    (void) link;
}

enum link_mode xdp_link_mode(const struct xdp_link *link)
{
    (void) link;
    return LINK_GENERIC;
}

struct drop_slot *xdp_link_slots(struct xdp_link *link)
{
    (void) link;
    return NULL;
}

struct drop_target *xdp_link_target(struct xdp_link *link)
{
    (void) link;
    return NULL;
}

bool xdp_link_add(struct xdp_link *link, const struct drop_key *key, uint32_t number)
{
    (void) link;
    (void) key;
    (void) number;
    return false;
}

void xdp_link_remove(struct xdp_link *link, const struct drop_key *key)
{
    (void) link;
    (void) key;
}

void xdp_link_set_local(struct xdp_link *link, const struct drop_key *address, bool there)
{
    (void) link;
    (void) address;
    (void) there;
}
