/* SPDX-License-Identifier: Apache-2.0 */
/* The words there are for a thing, and which of them somebody meant who typed another one. */
#ifndef WEIR_POLICY_WORDS_H
#define WEIR_POLICY_WORDS_H

#include <stddef.h>

/* What users of other limiters type, and what it is here. */
struct word_alias {
    const char *typed; /* lower case, with '_' */
    const char *meant; /* a word, or "field: value" */
};

struct words {
    const char *const *names; /* NULL: nothing by that number */
    size_t count;
    const struct word_alias *aliases;
    size_t alias_count;
};

#define WORD_NONE ((size_t) -1)

/* The number of a word; WORD_NONE: there is none of that name. */
size_t words_find(const struct words *words, const char *text);

/*
 * The word that is nearest by letters inserted, left out, changed and swapped, if it is near: at most one for three
 * letters. Case, '-' and '_' are alike. NULL: none is. *distance: how far it is.
 */
const char *words_nearest(const struct words *words, const char *text, size_t *distance);

/* What an alias stands for; NULL: it is none. */
const char *words_alias(const struct words *words, const char *text);

/* The alias or the nearest word; NULL: neither is there. */
const char *words_meant(const struct words *words, const char *text);

/* Writes "a, b, c", cut to `size` with the terminator. Returns `out`. */
char *words_list(const struct words *words, char *out, size_t size);

#endif
