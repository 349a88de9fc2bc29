/* SPDX-License-Identifier: Apache-2.0 */
/* The words of a field, and the word that a misspelt one probably means. */
#ifndef WEIR_POLICY_WORDS_H
#define WEIR_POLICY_WORDS_H

#include <stddef.h>

/* A word of other limiters, and the word or field of weir in its place. */
struct word_alias {
    const char *typed; /* lower case, with '_' */
    const char *meant; /* a word, or "field: value" */
};

struct words {
    const char *const *names; /* NULL: nothing by that number */
    size_t count;
    const struct word_alias *aliases;
    size_t alias_count;
    const char *note; /* what to know of a field that an alias means; NULL: nothing */
};

#define WORD_NONE ((size_t) -1)

/* The number of a word; WORD_NONE: there is none of that name. */
size_t words_find(const struct words *words, const char *text);

/*
 * The nearest word by letters inserted, left out, changed and swapped: at most one such change for three letters. Case,
 * '-' and '_' make no difference. NULL: no word is near. *distance: the number of changes.
 */
const char *words_nearest(const struct words *words, const char *text, size_t *distance);

/* The meaning of an alias; NULL: `text` is no alias. */
const char *words_alias(const struct words *words, const char *text);

/* The meaning of an alias, else the nearest word, else NULL. */
const char *words_meant(const struct words *words, const char *text);

/* Writes "a, b, c", cut to `size` with the terminator. Returns `out`. */
char *words_list(const struct words *words, char *out, size_t size);

#endif
