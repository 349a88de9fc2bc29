/* SPDX-License-Identifier: Apache-2.0 */
/* See text.h. */
#include "text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define FIRST_SIZE 4096

char *text_room(struct text *text, size_t size)
{
    if (text->size - text->length >= size) {
        return text->bytes + text->length;
    }
    const size_t grown = ngx_max(ngx_max(2 * text->size, FIRST_SIZE), text->length + size);
    char *bytes = ngx_pnalloc(text->pool, grown);
    if (bytes == NULL) {
        text->failed = true;
        return NULL;
    }
    if (text->length != 0) {
        (void) memcpy(bytes, text->bytes, text->length);
    }
    text->bytes = bytes;
    text->size = grown;
    return bytes + text->length;
}

void text_add(struct text *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    char *room = length >= 0 ? text_room(text, (size_t) length + 1) : NULL;
    if (room == NULL) {
        text->failed = true;
        return;
    }
    va_start(arguments, format);
    (void) vsnprintf(room, (size_t) length + 1, format, arguments);
    va_end(arguments);
    text->length += (size_t) length;
}

static void add_byte(struct text *text, char byte)
{
    char *room = text_room(text, 1);
    if (room != NULL) {
        *room = byte;
        text->length++;
    }
}

void text_add_html(struct text *text, const char *value)
{
    for (; *value != '\0'; value++) {
        switch (*value) {
        case '&':
            text_add(text, "&amp;");
            break;
        case '<':
            text_add(text, "&lt;");
            break;
        case '>':
            text_add(text, "&gt;");
            break;
        case '"':
            text_add(text, "&quot;");
            break;
        default:
            add_byte(text, *value);
        }
    }
}
