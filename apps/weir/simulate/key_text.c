/* SPDX-License-Identifier: Apache-2.0 */
/* See key_text.h. */
#include "key_text.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

/* Bytes of a whole address. */
#define IPV4_SIZE 4
#define IPV6_SIZE 16

static void write_address(char *out, const char *key, size_t length)
{
    unsigned char whole[IPV6_SIZE] = {0};
    memcpy(whole, key, length);
    (void) inet_ntop(length == IPV4_SIZE ? AF_INET : AF_INET6, whole, out, INET6_ADDRSTRLEN);
    if (length != IPV4_SIZE && length != IPV6_SIZE) {
        (void) sprintf(out + strlen(out), "/%zu", 8 * length);
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
