/* SPDX-License-Identifier: Apache-2.0 */
/* See plain.h. */
#include "base/plain.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/digits.h"

#define ESCAPE_SIZE 4 /* bytes of \xNN */

/* The length that the first byte of a UTF-8 character announces; 0: not a first byte. */
static size_t utf8_length(unsigned char first)
{
    if (first < 0x80) {
        return 1;
    }
    if (first < 0xc0) {
        return 0;
    }
    return first < 0xe0 ? 2 : 3 + (size_t) (first >= 0xf0);
}

/*
 * The length of the UTF-8 character at `text`, of which `left` bytes are there (RFC 3629, section 4), and the
 * character; 0: not UTF-8.
 */
static size_t decode_utf8(const unsigned char *text, size_t left, uint32_t *character)
{
    /* The least character of each length; smaller ones have a shorter form. */
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const size_t length = utf8_length(text[0]);
    if (length < 2) {
        *character = text[0];
        return length;
    }
    *character = text[0] & (0x7fU >> length);
    for (size_t i = 1; i < length; i++) {
        if (i == left || (text[i] & 0xc0) != 0x80) {
            return 0;
        }
        *character = *character << 6 | (text[i] & 0x3f);
    }
    const bool surrogate = *character >= 0xd800 && *character < 0xe000;
    return *character >= least[length] && *character <= 0x10ffff && text[0] < 0xf8 && !surrogate ? length : 0;
}

/* Whether a character controls or ends a line, or reverses its direction. */
static bool is_control(uint32_t character)
{
    return character < ' ' || (character >= 0x7f && character < 0xa0) || character == 0x61c || character == 0x200e ||
           character == 0x200f || (character >= 0x2028 && character <= 0x202e) ||
           (character >= 0x2066 && character <= 0x2069);
}

static size_t write_plain(char *out, size_t size, const void *text, size_t text_length, const char *escaped)
{
    size_t at = 0;
    const unsigned char *from = text;
    for (const unsigned char *const end = from + text_length; from < end;) {
        uint32_t character;
        const size_t length = decode_utf8(from, (size_t) (end - from), &character);
        const bool stays =
            length != 0 && !is_control(character) && (character >= 0x80 || strchr(escaped, (int) character) == NULL);
        const size_t bytes = length != 0 ? length : 1;
        const size_t room = stays ? bytes : bytes * ESCAPE_SIZE;
        if (room >= size - at) {
            break;
        }
        for (size_t i = 0; i < bytes; i++, from++) {
            if (stays) {
                out[at++] = (char) *from;
                continue;
            }
            out[at++] = '\\';
            out[at++] = 'x';
            at += hex_write(out + at, from, 1);
        }
    }
    out[at] = '\0';
    return at;
}

size_t plain_line(char *out, size_t size, const char *text)
{
    return write_plain(out, size, text, strlen(text), "");
}

size_t plain_quoted(char *out, size_t size, const char *text)
{
    return plain_bytes(out, size, text, strlen(text));
}

size_t plain_bytes(char *out, size_t size, const void *bytes, size_t length)
{
    return write_plain(out, size, bytes, length, "\"\\");
}
