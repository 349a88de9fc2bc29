/* SPDX-License-Identifier: Apache-2.0 */
/* See network.h. */
#include "network.h"

#include <arpa/inet.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
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

static size_t write_network(char *out, size_t size, const void *key, size_t length)
{
    const unsigned char *bytes = key;
    char text[INET6_ADDRSTRLEN];
    if ((length != V4_SIZE + 1 && length != V6_SIZE + 1) || bytes[length - 1] > 8 * (length - 1) ||
        inet_ntop(length == V4_SIZE + 1 ? AF_INET : AF_INET6, bytes, text, sizeof(text)) == NULL) {
        return 0;
    }
    const int written = snprintf(out, size, "%s/%u", text, (unsigned) bytes[length - 1]);
    return written > 0 && (size_t) written < size ? (size_t) written : 0;
}

static size_t read_network(void *out, size_t size, const char *text)
{
    static const unsigned char mapped[V6_SIZE - V4_SIZE] = {[10] = 0xff, [11] = 0xff};
    unsigned char bytes[V6_SIZE] = {0};
    unsigned char masked[V6_SIZE];
    char host[INET6_ADDRSTRLEN];
    char *end = NULL;
    const size_t host_length = strcspn(text, "/");
    if (text[host_length] != '/' || host_length >= sizeof(host) || text[host_length + 1] < '0' ||
        text[host_length + 1] > '9') {
        return SIZE_MAX;
    }
    memcpy(host, text, host_length);
    host[host_length] = '\0';
    unsigned long prefix = strtoul(text + host_length + 1, &end, 10);
    size_t length = strchr(host, ':') != NULL ? V6_SIZE : V4_SIZE;
    if (*end != '\0' || prefix > 8 * length || length + 1 > size ||
        inet_pton(length == V6_SIZE ? AF_INET6 : AF_INET, host, bytes) != 1) {
        return SIZE_MAX;
    }
    if (length == V6_SIZE && prefix >= 8 * sizeof(mapped) && memcmp(bytes, mapped, sizeof(mapped)) == 0) {
        memmove(bytes, bytes + sizeof(mapped), V4_SIZE); /* ::ffff:198.51.100.0/120 is 198.51.100.0/24 */
        length = V4_SIZE;
        prefix -= 8 * sizeof(mapped);
    }
    memcpy(masked, bytes, sizeof(masked));
    mask(masked, length, (unsigned) prefix);
    if (memcmp(masked, bytes, length) != 0) {
        return SIZE_MAX; /* another text of the same network */
    }
    memcpy(out, bytes, length);
    ((unsigned char *) out)[length] = (unsigned char) prefix;
    return length + 1;
}

const weir_key_form network_form = {write_network, read_network, "198.51.100.0/24 or 2001:db8:1::/48"};
