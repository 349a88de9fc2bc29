/* SPDX-License-Identifier: Apache-2.0 */
/* See words.h. */
#include "policy/words.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "weir/weir.h"

/* No word is longer, and none is that is the name of a policy; what is longer is near none. */
#define LETTERS_MAX WEIR_MAX_NAME

/* Writes the text in lower case, with '_' for '-' and ' ', into `out`, which is all zeros before. False: it is empty or
 * too long. */
static bool fold(const char *text, char out[LETTERS_MAX + 1])
{
    const size_t length = strnlen(text, LETTERS_MAX + 1);
    for (size_t i = 0; i < length; i++) {
        const char c = text[i];
        out[i] = c == '-' || c == ' ' ? '_' : c;
        if (c >= 'A' && c <= 'Z') {
            out[i] = (char) (c - 'A' + 'a');
        }
    }
    return length != 0 && length <= LETTERS_MAX;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Letters inserted, left out, changed, and swapped with the next one. Both are folded. */
static size_t distance_of(const char *a, const char *b)
{
    size_t rows[3][LETTERS_MAX + 1]; /* of the letters of `a`: this one's, the last one's, the one's before */
    const size_t width = strlen(b);
    size_t *before = rows[0];
    size_t *last = rows[1];
    size_t *row = rows[2];
    for (size_t j = 0; j <= width; j++) {
        last[j] = before[j] = j;
    }
    for (size_t i = 1; a[i - 1] != '\0'; i++) {
        row[0] = i;
        for (size_t j = 1; j <= width; j++) {
            row[j] = least(last[j - 1] + (a[i - 1] != b[j - 1]), least(last[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                row[j] = least(row[j], before[j - 2] + 1);
            }
        }
        size_t *oldest = before;
        before = last;
        last = row;
        row = oldest;
    }
    return last[width];
}

size_t words_find(const struct words *words, const char *text)
{
    for (size_t i = 0; i < words->count; i++) {
        if (words->names[i] != NULL && strcmp(words->names[i], text) == 0) {
            return i;
        }
    }
    return WORD_NONE;
}

const char *words_nearest(const struct words *words, const char *text, size_t *distance)
{
    char typed[LETTERS_MAX + 1] = "";
    if (!fold(text, typed)) {
        return NULL;
    }
    const char *nearest = NULL;
    const size_t length = strlen(typed);
    size_t far = (length < 6 ? 1 : length / 3) + 1; /* what is no longer near */
    for (size_t i = 0; i < words->count; i++) {
        char word[LETTERS_MAX + 1] = "";
        if (words->names[i] != NULL && fold(words->names[i], word)) {
            const size_t way = distance_of(typed, word);
            if (way < far) {
                far = way;
                nearest = words->names[i];
            }
        }
    }
    *distance = far;
    return nearest;
}

const char *words_alias(const struct words *words, const char *text)
{
    char typed[LETTERS_MAX + 1] = "";
    if (!fold(text, typed)) {
        return NULL;
    }
    for (size_t i = 0; i < words->alias_count; i++) {
        if (strcmp(words->aliases[i].typed, typed) == 0) {
            return words->aliases[i].meant;
        }
    }
    return NULL;
}

const char *words_meant(const struct words *words, const char *text)
{
    size_t distance = 0;
    const char *meant = words_alias(words, text);
    return meant != NULL ? meant : words_nearest(words, text, &distance);
}

char *words_list(const struct words *words, char *out, size_t size)
{
    size_t used = 0;
    out[0] = '\0';
    for (size_t i = 0; i < words->count && used < size; i++) {
        if (words->names[i] != NULL) {
            used += (size_t) snprintf(out + used, size - used, "%s%s", used != 0 ? ", " : "", words->names[i]);
        }
    }
    return out;
}
