/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text from outside (Redis, keys, names) made safe for one line of a log. Control characters, bytes that are not UTF-8,
 * and characters that break a line or reverse its direction become \xNN, byte by byte. Other UTF-8 stays.
 *
 * Threads: any. Progress: wait-free.
 */
#ifndef WEIR_BASE_PLAIN_H
#define WEIR_BASE_PLAIN_H

#include <stddef.h>
#include <stdint.h>

/*
 * Writes `text` to `out`, terminated; ends before the first character or escape that does not fit. `size`: bytes of
 * `out`, at least 1. Returns the length written.
 */
size_t plain_line(char *out, size_t size, const char *text);

/* As plain_line, for text between quotes: quotes and backslashes become \xNN, too. */
size_t plain_quoted(char *out, size_t size, const char *text);

/* As plain_quoted, of `length` bytes, which may be any. */
size_t plain_bytes(char *out, size_t size, const void *bytes, size_t length);

/* The singular or the plural, by `count`. */
static inline const char *plain_number(uint64_t count, const char *one, const char *more)
{
    return count == 1 ? one : more;
}

#endif
