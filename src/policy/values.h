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

struct value {
    const struct text_file *file;
    struct place place;
    const char *subject; /* policy "api": limit 2 */
    const char *field;
    const char *text;
};

/* Decimal digits without leading zeros: what YAML 1.1 reads as octal and YAML 1.2 does not is refused. */
int value_number(const struct value *value, uint64_t *out);

/* "90s", "1m30s": whole numbers, each with its unit; `give` tells the range in words. */
int value_duration(const struct value *value, uint64_t least_ns, uint64_t most_ns, const char *give, uint64_t *out);

/* true, yes, on; false, no, off; in any case. */
int value_flag(const struct value *value, bool *out);

/* The number of one of the words. */
int value_word(const struct value *value, const struct words *words, unsigned *out);

#endif
