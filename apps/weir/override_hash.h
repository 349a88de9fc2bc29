/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hash of a fleet's overrides in Redis, as docs/policies.md has it: a field for each override, and a field
 * "version" where the operators keep one. A change here changes that field as well.
 */
#ifndef WEIR_OVERRIDE_HASH_H
#define WEIR_OVERRIDE_HASH_H

#include <stdbool.h>

#include "redis_link.h"

/* Nodes read at most so many entries, and entries of at most so many bytes with their names. */
#define OVERRIDE_HASH_MOST       10000
#define OVERRIDE_HASH_ENTRY_SIZE 4096

/* What a change has found, and done. */
struct hash_change {
    bool changed, full;
    char *before; /* the value that was there; NULL: none */
};

/* What is to be changed. */
struct hash_request {
    const char *name, *typed; /* the name as weir writes it, and as it was typed: an entry under that is removed */
    const char *value;        /* NULL: the entry is removed */
    const char *by;           /* who changes it */
};

/* Changes an entry, and notes the change (override_notes.h), all at once. False after a sentence in `error`. The caller
 * frees out->before in both cases. */
bool override_hash_change(struct redis_link *link, const char *key, const struct hash_request *request,
                          struct hash_change *out, weir_error *error);

#endif
