/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See lines.h.
 *
 * Invariants:
 *   a key is in one line, which is at most `farthest` of its home behind its home
 *   a line without a number has no key, and its time is 0
 *
 * A line's key is written before its time, and its family last. So the program finds no key that is half there.
 */
#include "lines.h"

#include <stdbool.h>
#include <string.h>

static void words_of(const struct drop_key *key, __u64 words[DROP_KEY_WORDS])
{
    memcpy(words, key, sizeof(*key));
}

static __u64 *words_in(struct drop_line *line)
{
    return (__u64 *) (void *) &line->key;
}

static bool has_key(const struct drop_line *line, const struct drop_key *key)
{
    return memcmp(&line->key, key, sizeof(*key)) == 0;
}

static uint32_t home_of(const struct lines *lines, const struct drop_key *key)
{
    __u64 words[DROP_KEY_WORDS];
    words_of(key, words);
    const __u64 secret[2] = {lines->secret[0], lines->secret[1]};
    return drop_home(secret, words, lines->count);
}

static uint32_t behind(const struct lines *lines, uint32_t home, uint32_t steps)
{
    return (home + steps) & (lines->count - 1);
}

uint32_t lines_find(const struct lines *lines, const struct drop_key *key)
{
    const uint32_t home = home_of(lines, key);
    for (uint32_t i = 0; i <= lines->at[home].farthest; i++) {
        const uint32_t line = behind(lines, home, i);
        if (has_key(&lines->at[line], key)) {
            return line;
        }
    }
    return LINES_NONE;
}

static void set_farthest(struct lines *lines, uint32_t home, uint32_t farthest)
{
    __atomic_store_n(&lines->at[home].farthest, farthest, __ATOMIC_RELEASE);
}

uint32_t lines_place(struct lines *lines, const struct drop_key *key, uint32_t number)
{
    const uint32_t home = home_of(lines, key);
    uint32_t steps = 0;
    while (steps <= DROP_FARTHEST && lines->at[behind(lines, home, steps)].number != 0) {
        steps++;
    }
    if (steps > DROP_FARTHEST) {
        return LINES_NONE;
    }
    const uint32_t at = behind(lines, home, steps);
    struct drop_line *line = &lines->at[at];
    __u64 words[DROP_KEY_WORDS];
    words_of(key, words);
    line->number = number + 1;
    for (size_t i = 0; i < DROP_KEY_WORDS; i++) {
        __atomic_store_n(&words_in(line)[i], words[i], __ATOMIC_RELEASE);
    }
    if (lines->at[home].farthest < steps) {
        set_farthest(lines, home, steps);
    }
    return at;
}

void lines_clear(struct lines *lines, uint32_t at)
{
    struct drop_line *line = &lines->at[at];
    const uint32_t home = home_of(lines, &line->key);
    __atomic_store_n(&line->until_ns, 0, __ATOMIC_RELEASE);
    for (size_t i = DROP_KEY_WORDS; i-- > 0;) {
        __atomic_store_n(&words_in(line)[i], 0, __ATOMIC_RELEASE);
    }
    uint32_t farthest = lines->at[home].farthest;
    for (; farthest > 0; farthest--) {
        const struct drop_key *key = &lines->at[behind(lines, home, farthest)].key;
        if (key->family != 0 && home_of(lines, key) == home) {
            break;
        }
    }
    set_farthest(lines, home, farthest);
}

void lines_free(struct lines *lines, uint32_t line)
{
    lines->at[line].number = 0;
}

uint32_t lines_number(const struct lines *lines, uint32_t line)
{
    return lines->at[line].number - 1;
}
