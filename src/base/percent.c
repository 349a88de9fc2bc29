/* SPDX-License-Identifier: Apache-2.0 */
/* See percent.h. */
#include "base/percent.h"

#include <stdint.h>

#include "base/digits.h"

size_t percent_escape(char *out, const void *bytes, size_t length)
{
    const unsigned char *from = bytes;
    size_t at = 0;
    for (size_t i = 0; i < length; i++) {
        const unsigned char byte = from[i];
        if (byte > ' ' && byte < 0x7f && byte != '%' && byte != '{' && byte != '}') {
            out[at++] = (char) byte;
        } else {
            out[at++] = '%';
            at += hex_write(out + at, &byte, 1);
        }
    }
    return at;
}

size_t percent_unescape(void *out, size_t size, const char *text)
{
    unsigned char *to = out;
    size_t at = 0;
    for (; *text != '\0'; text++) {
        if (at == size) {
            return SIZE_MAX;
        }
        if (*text != '%') {
            to[at++] = (unsigned char) *text;
            continue;
        }
        const int byte = hex_read_byte(text + 1);
        if (byte < 0) {
            return SIZE_MAX;
        }
        to[at++] = (unsigned char) byte;
        text += 2;
    }
    return at;
}
