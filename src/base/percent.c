/* SPDX-License-Identifier: Apache-2.0 */
#include "base/percent.h"

#include <stdint.h>

static const char digits[] = "0123456789abcdef";

size_t percent_hex(char *out, const void *bytes, size_t length)
{
    const unsigned char *from = bytes;
    for (size_t i = 0; i < length; i++) {
        out[2 * i] = digits[from[i] >> 4];
        out[2 * i + 1] = digits[from[i] & 15];
    }
    return 2 * length;
}

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
            at += percent_hex(out + at, &byte, 1);
        }
    }
    return at;
}

int percent_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
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
        const int high = percent_digit(text[1]);
        const int low = high >= 0 ? percent_digit(text[2]) : -1;
        if (low < 0) {
            return SIZE_MAX;
        }
        to[at++] = (unsigned char) (high * 16 + low);
        text += 2;
    }
    return at;
}
