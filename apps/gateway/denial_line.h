/* SPDX-License-Identifier: Apache-2.0 */
/* The library's line about a policy that denies (weir_log_fn in weir.h), as fields. */
#ifndef WEIR_GATEWAY_DENIAL_LINE_H
#define WEIR_GATEWAY_DENIAL_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <weir/weir.h>

#define DENIAL_KEYS_MAX 4

struct denial_line {
    char policy[WEIR_MAX_NAME + 1];
    const char *state; /* "begins", "lasts", "ends" */
    uint64_t denied, would_deny, seconds;
    size_t key_count;
    struct {
        char key[WEIR_MAX_NAME + 1 + WEIR_OFFENDER_KEY_SIZE]; /* with its policy, as an entry names it */
        uint64_t units;
    } keys[DENIAL_KEYS_MAX];
};

/* False: it is another line. */
bool denial_line_read(const char *message, struct denial_line *out);

#endif
