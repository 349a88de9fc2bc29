/* SPDX-License-Identifier: Apache-2.0 */
#include "tier/key_text.h"

#define HASH_SIZE 16

static const char digits[] = "0123456789abcdef";

static size_t hex(char *out, const unsigned char *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        out[2 * i] = digits[bytes[i] >> 4];
        out[2 * i + 1] = digits[bytes[i] & 15];
    }
    return 2 * length;
}

static size_t escape(char *out, const unsigned char *bytes, size_t length)
{
    size_t at = 0;
    for (size_t i = 0; i < length; i++) {
        const unsigned char byte = bytes[i];
        if (byte > ' ' && byte < 0x7f && byte != '%' && byte != '{' && byte != '}') {
            out[at++] = (char) byte;
        } else {
            out[at++] = '%';
            at += hex(out + at, &byte, 1);
        }
    }
    return at;
}

size_t key_text_write(char out[KEY_TEXT_SIZE], const unsigned char *key, size_t length, unsigned flags)
{
    size_t at;
    if ((flags & NOTE_KEY_HASHED) != 0) {
        const size_t readable = (flags & NOTE_HASH_ONLY) != 0 ? 0 : NOTE_KEY_PREFIX;
        at = escape(out, key, readable);
        out[at++] = '~';
        at += hex(out + at, key + readable, HASH_SIZE);
    } else {
        at = escape(out, key, length);
    }
    out[at] = '\0';
    return at;
}
