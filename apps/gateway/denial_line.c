/* SPDX-License-Identifier: Apache-2.0 */
#include "denial_line.h"

#include <stdlib.h>
#include <string.h>

/* What stands between the policy's name and the count. */
static const struct {
    const char *words, *state;
    bool shadow;
} phrases[] = {
    {" begins to deny: ", "begins", false}, {" denies: ", "lasts", false},
    {" denies no more: ", "ends", false},   {" would begin to deny: ", "begins", true},
    {" would deny: ", "lasts", true},       {" would deny no more: ", "ends", true},
};

/* Steps over `words`. False: they are not there. */
static bool skip(const char **at, const char *words)
{
    const size_t length = strlen(words);
    const bool there = strncmp(*at, words, length) == 0;
    *at += there ? length : 0;
    return there;
}

/* A decimal number. */
static bool read_number(const char **at, uint64_t *out)
{
    char *end = NULL;
    if (**at < '0' || **at > '9') {
        return false;
    }
    *out = strtoull(*at, &end, 10);
    *at = end;
    return true;
}

/* What ends at a space. False: it is empty, or has no room. */
static bool read_word(const char **at, char *out, size_t size)
{
    const size_t length = strcspn(*at, " ");
    if (length == 0 || length >= size) {
        return false;
    }
    memcpy(out, *at, length);
    out[length] = '\0';
    *at += length;
    return true;
}

static bool read_keys(const char **at, struct denial_line *out)
{
    while (out->key_count < DENIAL_KEYS_MAX) {
        const size_t i = out->key_count++;
        if (!read_word(at, out->keys[i].key, sizeof(out->keys[i].key)) || !skip(at, " (") ||
            !read_number(at, &out->keys[i].units) || !skip(at, " units)")) {
            return false;
        }
        if (!skip(at, ", ")) {
            return true;
        }
    }
    return false;
}

bool denial_line_read(const char *message, struct denial_line *out)
{
    const char *at = message;
    memset(out, 0, sizeof(*out));
    if (!skip(&at, "policy ") || !read_word(&at, out->policy, sizeof(out->policy))) {
        return false;
    }
    bool shadow = false;
    for (size_t i = 0; i < sizeof(phrases) / sizeof(phrases[0]) && out->state == NULL; i++) {
        if (skip(&at, phrases[i].words)) {
            out->state = phrases[i].state;
            shadow = phrases[i].shadow;
        }
    }
    if (out->state == NULL || !read_number(&at, shadow ? &out->would_deny : &out->denied) || !skip(&at, " checks") ||
        (skip(&at, " and would deny ") && !read_number(&at, &out->would_deny)) || !skip(&at, " in ") ||
        !read_number(&at, &out->seconds) || !skip(&at, " s")) {
        return false;
    }
    if (skip(&at, ", most by ")) {
        return read_keys(&at, out) && *at == '\0';
    }
    (void) skip(&at, ", by many keys");
    return *at == '\0';
}
