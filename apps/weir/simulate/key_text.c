/* SPDX-License-Identifier: Apache-2.0 */
/* See key_text.h. */
#include "key_text.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

/* Bytes of a whole address. */
#define IPV4_SIZE 4
#define IPV6_SIZE 16

/* An address, the first bytes of one, or a network: an address and one byte with its prefix. */
static void write_address(char *out, const char *key, size_t length)
{
    unsigned char whole[IPV6_SIZE] = {0};
    const bool v4 = length <= IPV4_SIZE + 1;
    const size_t size = v4 ? IPV4_SIZE : IPV6_SIZE;
    memcpy(whole, key, length < size ? length : size);
    (void) inet_ntop(v4 ? AF_INET : AF_INET6, whole, out, INET6_ADDRSTRLEN);
    if (length != size) {
        (void) sprintf(out + strlen(out), "/%zu", length > size ? (size_t) (unsigned char) key[size] : 8 * length);
    }
}

char *key_text(char out[KEY_TEXT_SIZE], const char *key, size_t length, bool address)
{
    size_t at = 0;
    if (address) {
        write_address(out, key, length);
        return out;
    }
    for (size_t i = 0; i < length; i++) {
        const unsigned char c = (unsigned char) key[i];
        if (c > ' ' && c < 0x7f && c != '%' && c != ',' && c != '"') {
            out[at++] = (char) c;
        } else {
            at += (size_t) sprintf(out + at, "%%%02x", c);
        }
    }
    out[at] = '\0';
    return out;
}
