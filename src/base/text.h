/* SPDX-License-Identifier: Apache-2.0 */
/* Text written to a buffer as far as it fits; its whole length is counted. */
#ifndef WEIR_BASE_TEXT_H
#define WEIR_BASE_TEXT_H

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

struct text {
    char *buffer; /* terminated after every text_add, where `size` is not 0 */
    size_t size, length;
};

__attribute__((format(printf, 2, 3))) static inline void text_add(struct text *text, const char *format, ...)
{
    const size_t at = text->length < text->size ? text->length : text->size;
    va_list arguments;
    va_start(arguments, format);
    const int added = vsnprintf(text->size != 0 ? text->buffer + at : NULL, text->size - at, format, arguments);
    va_end(arguments);
    text->length += added > 0 ? (size_t) added : 0;
}

/*
 * Adds a value in quotes, with quotes and backslashes escaped: a string of a structured field; and, of printable ASCII,
 * the value of a label.
 */
static inline void text_add_quoted(struct text *text, const char *value)
{
    text_add(text, "\"");
    for (; *value != '\0'; value++) {
        text_add(text, *value == '"' || *value == '\\' ? "\\%c" : "%c", *value);
    }
    text_add(text, "\"");
}

#endif
