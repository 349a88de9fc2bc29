/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines of the log as lines about a policy that denies: policies and clients choose the names in them. What is read of
 * a line, written as the library writes it, is read as the same.
 */
#include <inttypes.h>

#include "../../apps/gateway/denial_line.h"
#include "fuzz.h"

#define LINE_MOST 4096

static const char *phrase_of(const struct denial_line *line, bool shadow)
{
    if (strcmp(line->state, "begins") == 0) {
        return shadow ? "would begin to deny" : "begins to deny";
    }
    if (strcmp(line->state, "lasts") == 0) {
        return shadow ? "would deny" : "denies";
    }
    CHECK(strcmp(line->state, "ends") == 0);
    return shadow ? "would deny no more" : "denies no more";
}

static void write_line(const struct denial_line *line, char out[LINE_MOST])
{
    const bool shadow = line->denied == 0 && line->would_deny != 0;
    int size = snprintf(out, LINE_MOST, "policy %s %s: %" PRIu64 " checks", line->policy, phrase_of(line, shadow),
                        shadow ? line->would_deny : line->denied);
    if (!shadow && line->would_deny != 0) {
        size += snprintf(out + size, LINE_MOST - (size_t) size, " and would deny %" PRIu64, line->would_deny);
    }
    size += snprintf(out + size, LINE_MOST - (size_t) size, " in %" PRIu64 " s", line->seconds);
    for (size_t i = 0; i < line->key_count; i++) {
        size += snprintf(out + size, LINE_MOST - (size_t) size, "%s%s (%" PRIu64 " units)",
                         i == 0 ? ", most by " : ", ", line->keys[i].key, line->keys[i].units);
    }
    CHECK(size < LINE_MOST);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, data + size};
    struct denial_line line;
    struct denial_line again;
    char *text = input_text(&in, NULL);
    if (denial_line_read(text, &line)) {
        char written[LINE_MOST];
        CHECK(line.key_count <= DENIAL_KEYS_MAX);
        write_line(&line, written);
        CHECK(denial_line_read(written, &again));
        CHECK(memcmp(&line, &again, sizeof(line)) == 0);
    }
    free(text);
    return 0;
}
