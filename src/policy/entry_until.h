/* SPDX-License-Identifier: Apache-2.0 */
/* The end of an override: a time in UTC behind the value, such as "deny until 2026-12-01T00:00Z". */
#ifndef WEIR_POLICY_ENTRY_UNTIL_H
#define WEIR_POLICY_ENTRY_UNTIL_H

#include <stdint.h>

#include "weir/weir.h"

/*
 * Reads "YYYY-MM-DD", "YYYY-MM-DDThh:mmZ" or "YYYY-MM-DDThh:mm:ssZ", from 1970 to 2500, as nanoseconds since 1970 UTC.
 * 0, or -EINVAL with a sentence.
 */
int entry_until_read(const char *text, uint64_t *out, weir_error *error);

#endif
