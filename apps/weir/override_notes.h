/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who has changed overrides, and when: two keys beside the hash that nodes read, which no node looks at. A hash has a
 * note for each entry, and a sorted set the last changes.
 */
#ifndef WEIR_OVERRIDE_NOTES_H
#define WEIR_OVERRIDE_NOTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "output.h"
#include "redis_link.h"

/* The most changes that are kept. */
#define OVERRIDE_NOTES_MOST 1000

/* "PREFIX:changes:{PREFIX:overrides}", with the longest prefix that the library takes. */
#define OVERRIDE_NOTES_KEY_SIZE 128

/* Bytes of an author's name, with the terminator. */
#define OVERRIDE_AUTHOR_SIZE 128

/* A change. Its texts belong to the list. */
struct override_note {
    uint64_t version, at_s;                          /* the number of the change; seconds since 1970 */
    const char *by, *action, *name, *value, *before; /* action: "set" or "rm"; before: "" is none */
    char *text;
};

struct override_notes {
    struct override_note *all; /* in the order of the versions */
    size_t count;
};

/* The keys of the notes beside the hash `key`. In a Cluster all three share a slot. */
void override_notes_keys(const char *key, char notes[OVERRIDE_NOTES_KEY_SIZE], char changes[OVERRIDE_NOTES_KEY_SIZE]);

/* Reads the notes of entries, or with `log` the last changes. The caller frees in both cases. */
bool override_notes_read(struct redis_link *link, const char *key, bool log, struct override_notes *out,
                         weir_error *error);
void override_notes_free(struct override_notes *notes);

/* The note of an entry as it is; NULL: there is none, as somebody else has written the entry. */
const struct override_note *override_notes_find(const struct override_notes *notes, const char *name,
                                                const char *value);

/* Who changes: --by, else the user that sudo was called by, else the login name. Made plain. */
void override_notes_author(const char *given, char out[OVERRIDE_AUTHOR_SIZE]);

/* "2026-11-25T09:30:00Z" */
#define OVERRIDE_TIME_SIZE 32
void override_notes_time(uint64_t at_s, char out[OVERRIDE_TIME_SIZE]);

/*
 * Writes `value` with the end that `until` says, a time as entry_until.h has them, or a duration from now on: "90m",
 * "2h", "7d". False: it is none, or is over, and `error` has a sentence.
 */
bool override_notes_end(const char *value, const char *until, char *out, size_t size, weir_error *error);

/* Whether a value has an end that is over, by this host's clock. */
bool override_notes_ended(const char *value);

#endif
