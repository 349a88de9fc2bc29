/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values of fields: from text to numbers. Each function returns 0, or -EINVAL with a sentence that names the subject,
 * the field, its value and what to give; *out is then unchanged. Names: value_.
 */
#ifndef WEIR_POLICY_VALUES_H
#define WEIR_POLICY_VALUES_H

#include <stdbool.h>

#include "policy/text_file.h"
#include "policy/words.h"

/* The text of a field, and what an error about it names. */
struct value {
    const struct text_file *file;
    struct place place;
    const char *subject; /* the policy or limit, in words: policy "api": limit 2 */
    const char *field;
    const char *text;
};

/* A number of decimal digits, without leading zeros: YAML 1.1 reads 010 as 8, and YAML 1.2 reads it as 10. */
int value_number(const struct value *value, uint64_t *out);

/* A duration such as "90s" or "1m30s": whole numbers, each with a unit. `give`: the range in words, for the error. */
int value_duration(const struct value *value, uint64_t least_ns, uint64_t most_ns, const char *give, uint64_t *out);

/* A flag: true, yes or on; false, no or off. Upper case is allowed. */
int value_flag(const struct value *value, bool *out);

/* One of the words, as its number. */
int value_word(const struct value *value, const struct words *words, unsigned *out);

#endif
