/* SPDX-License-Identifier: Apache-2.0 */
/* A field of a policy file that lacks the space after its colon: YAML reads "limit:100" as one word. */
#ifndef WEIR_POLICY_COLON_H
#define WEIR_POLICY_COLON_H

#include <stdbool.h>
#include <stddef.h>

#include "policy/text_file.h"

/* The length of the word that `text` begins with, if a colon without a space follows the word; 0: there is none. */
size_t colon_word(const char *text, size_t size);

/* Sets the error for a text with such a word. `place`: of the text; `word`: the length of the word. Returns -EINVAL. */
int colon_fail(const struct text_file *file, struct place place, const char *text, size_t word);

/*
 * Looks for such a word at the beginning of a line, and of the lines right before it: YAML joins these lines. Sets the
 * error for the first one and returns true. False: there is none.
 */
bool colon_fail_in_lines(const struct text_file *file, uint32_t line);

#endif
