/* SPDX-License-Identifier: Apache-2.0 */
/* See network.h. */
#include "network.h"

#include <stdint.h>
#include <string.h>

#define V4_SIZE 4
#define V6_SIZE 16

bool network_is_v4(const struct address *address)
{
    return address->u.any.sa_family == AF_INET || IN6_IS_ADDR_V4MAPPED(&address->u.v6.sin6_addr);
}

/* The bytes of an address. */
static const unsigned char *bytes_of(const struct address *from)
{
    if (from->u.any.sa_family == AF_INET) {
        return (const unsigned char *) &from->u.v4.sin_addr;
    }
    return from->u.v6.sin6_addr.s6_addr + (network_is_v4(from) ? V6_SIZE - V4_SIZE : 0);
}

const void *network_address(const struct address *from, size_t *length)
{
    *length = network_is_v4(from) ? V4_SIZE : V6_SIZE;
    return bytes_of(from);
}

const void *network_source(const struct address *from, size_t *length)
{
    *length = network_is_v4(from) ? V4_SIZE : SOURCE_PREFIX / 8;
    return bytes_of(from);
}

/* Clears the bits behind the prefix. */
static void mask(unsigned char *bytes, size_t size, unsigned prefix)
{
    for (size_t i = prefix / 8; i < size; i++) {
        const unsigned kept = i == prefix / 8 ? 0xff00U >> (prefix % 8) : 0;
        bytes[i] = (unsigned char) (bytes[i] & kept);
    }
}

size_t network_of(const struct address *from, unsigned prefix, unsigned char out[NETWORK_KEY_SIZE])
{
    const size_t size = network_is_v4(from) ? V4_SIZE : V6_SIZE;
    memcpy(out, bytes_of(from), size);
    mask(out, size, prefix);
    out[size] = (unsigned char) prefix;
    return size + 1;
}
