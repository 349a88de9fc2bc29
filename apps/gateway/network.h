/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sources and networks as keys of limits.
 *
 * A source is an IPv4 address, 4 bytes, or the first half of an IPv6 address, 8 bytes. A network is an address whose
 * bits behind the prefix are 0, 4 or 16 bytes, and one byte with the prefix, as weir_network_form() has them.
 */
#ifndef WEIR_GATEWAY_NETWORK_H
#define WEIR_GATEWAY_NETWORK_H

#include <stdbool.h>
#include <stddef.h>

#include "address.h"

#define NETWORK_KEY_SIZE 17

/* How many bits of an IPv6 address are a source. */
#define SOURCE_PREFIX 64

/* An IPv4 address, or an IPv6 address that stands for one. */
bool network_is_v4(const struct address *address);

/* The bytes of an address: 4 of IPv4, 16 of IPv6. */
const void *network_address(const struct address *from, size_t *length);

/* The key of the source of a packet: bytes of the address. */
const void *network_source(const struct address *from, size_t *length);

/*
 * Writes the key of the network of an address. `prefix`: 0 to 32 bits of an IPv4 address, 0 to 128 of an IPv6 one.
 * Returns the key's length in bytes.
 */
size_t network_of(const struct address *from, unsigned prefix, unsigned char out[NETWORK_KEY_SIZE]);

#endif
