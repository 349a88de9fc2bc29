/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The next hop to each backend, as far as it is reached by one interface. A thread of its own asks the kernel for all
 * backends twice a second, so that no worker waits for it.
 *
 * A hop that is not known is no error: the kernel's network stack sends there, and finds the neighbour by that.
 *
 * Threads: any, for hops_find, hops_mtu and hops_is_own; the last one waits for a mutex, held for some hundred
 * instructions.
 */
#ifndef WEIR_GATEWAY_XSK_HOPS_H
#define WEIR_GATEWAY_XSK_HOPS_H

#include <stdbool.h>
#include <stdint.h>

#include "../backends/backends.h"
#include "frame.h"

struct hops;

/* `backends` must outlive the hops. NULL: errno says why not. */
struct hops *hops_start(struct backends *backends, const char *interface);
void hops_stop(struct hops *hops); /* NULL is allowed */

/* The interface has another index now: it went and came back. */
void hops_set_interface(struct hops *hops, unsigned index);

/* By which the hop to a backend is known. */
uint64_t hops_name(const struct address *backend);

/*
 * The hop to the backend of a place, which has this name. Returns the largest packet of IP that may go there; 0: there
 * is no hop known.
 */
uint32_t hops_find(const struct hops *hops, uint8_t place, uint64_t name, unsigned char mac[FRAME_MAC_SIZE]);

/*
 * Whether an address of a family, 4 or 6, is one of the interface itself. Frames that a network card took out of a
 * virtual network look like others, and are to one of that network's interface.
 */
bool hops_is_own(struct hops *hops, uint16_t family, const unsigned char address[16]);

/* The largest packet of IP that the interface takes. */
uint32_t hops_mtu(const struct hops *hops);

#endif
