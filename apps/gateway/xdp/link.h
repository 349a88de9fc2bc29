/* SPDX-License-Identifier: Apache-2.0 */
/* The XDP program in the kernel: loading, attaching, and what it reads. The one file that knows libbpf is link.c. */
#ifndef WEIR_GATEWAY_XDP_LINK_H
#define WEIR_GATEWAY_XDP_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "drop.h"

enum link_mode { LINK_ANY, LINK_NATIVE, LINK_GENERIC };

struct xdp_link;

/*
 * Loads the program with `capacity` slots and attaches it to an interface. LINK_ANY takes native where the driver has
 * it. NULL: `problem` says in one sentence what is missing.
 */
struct xdp_link *xdp_link_open(const char *interface, enum link_mode mode, uint32_t capacity, char *problem,
                               size_t size);
void xdp_link_close(struct xdp_link *link);

/* LINK_NATIVE or LINK_GENERIC. */
enum link_mode xdp_link_mode(const struct xdp_link *link);

/* Memory that the program reads. */
struct drop_slot *xdp_link_slots(struct xdp_link *link);
struct drop_target *xdp_link_target(struct xdp_link *link);

/* Tells the program the number of a key. False: it has no room. */
bool xdp_link_add(struct xdp_link *link, const struct drop_key *key, uint32_t number);
void xdp_link_remove(struct xdp_link *link, const struct drop_key *key);

/* Adds or removes one of the host's addresses. */
void xdp_link_set_local(struct xdp_link *link, const struct drop_key *address, bool there);

#endif
