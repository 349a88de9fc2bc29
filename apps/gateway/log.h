/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The log: lines on stderr, in one of three forms.
 *
 *   text     2026-11-23T10:07:52.123Z weir-gateway: info: MESSAGE
 *   journal  <6>MESSAGE, as sd-daemon(3): systemd-journald knows time and program
 *   json     {"time":"2026-11-23T10:07:52.123Z","level":"info","message":"MESSAGE",...}, with fields of the event
 *
 * Until log_start, a line is meant for a terminal: "weir-gateway: MESSAGE", and a warning says that it is one.
 *
 * A line is one line, whatever it quotes: control characters and bytes that are not UTF-8 become \xNN. Each is one
 * write(2), so that those of several threads stay whole; where stderr is a pipe that nobody reads, it blocks.
 *
 * Threads: any, after log_start.
 */
#ifndef WEIR_GATEWAY_LOG_H
#define WEIR_GATEWAY_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <weir/weir.h>

enum log_format { LOG_COMMAND, LOG_TEXT, LOG_JOURNAL, LOG_JSON };

/* Of a level or a format; false: there is none of that name, and `why`, of `size` bytes, says which ones there are. */
bool log_find_level(const char *word, weir_log_level *out, char *why, size_t size);
bool log_find_format(const char *word, enum log_format *out, char *why, size_t size);

/* Journal where stderr is a stream to journald (JOURNAL_STREAM), else text. */
enum log_format log_default_format(void);

/* From now on lines have this form; those of levels beyond `most` are left out. */
void log_start(weir_log_level most, enum log_format format);

/* Whether the library's lines about policies that deny are written; they are, unless this has said otherwise. */
void log_denials(bool wanted);

/* A field of an event in JSON, beside the message: a text or, if that is NULL, a number. */
struct log_field {
    const char *name;
    const char *text;
    uint64_t number;
};

/*
 * Says whether to write a line that all threads together write once a minute at most, and notes in *last that it is
 * written. *last is the second in which that was before, or 0; `now` is this second.
 */
bool log_is_due(_Atomic uint32_t *last, uint32_t now);

__attribute__((format(printf, 2, 3))) void log_line(weir_log_level level, const char *format, ...);
__attribute__((format(printf, 4, 5))) void log_event(weir_log_level level, const struct log_field *fields,
                                                     size_t field_count, const char *format, ...);

/* A weir_log_fn, for lines of the library. For a policy that denies JSON has the fields. */
void log_library(void *arg, weir_log_level level, const char *message);

#endif
