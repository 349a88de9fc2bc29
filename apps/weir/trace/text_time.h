/* SPDX-License-Identifier: Apache-2.0 */
/* Times as logs write them. A log repeats the text of its second many times, so the last text and its time are kept. */
#ifndef WEIR_TRACE_TEXT_TIME_H
#define WEIR_TRACE_TEXT_TIME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* "25/Nov/2026:10:00:00 +0000" */
#define CLF_TIME_SIZE 26

/* The last text that was read. All zero: none. */
struct time_cache {
    char text[CLF_TIME_SIZE];
    uint64_t time_ms;
};

/* Reads the CLF_TIME_SIZE bytes of a time of the Common Log Format. */
bool time_read_clf(struct time_cache *cache, const char *text, uint64_t *out_ms);

/* Reads "06/Feb/2009:12:14:14.655", which has no zone and is taken for UTC. */
bool time_read_haproxy(struct time_cache *cache, const char *text, size_t length, uint64_t *out_ms);

/*
 * Reads a time of any form: seconds since the epoch ("1764064800", "1764064800.123"; of 13, 16 or 19 digits in
 * milliseconds, microseconds or nanoseconds), ISO 8601 ("2026-11-25T10:00:00.5+01:00"; without a zone in UTC), or the
 * Common Log Format. *whole: the text has whole seconds alone.
 */
bool time_read_any(struct time_cache *cache, const char *text, size_t length, uint64_t *out_ms, bool *whole);

#endif
