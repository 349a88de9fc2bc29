/* SPDX-License-Identifier: Apache-2.0 */
/* Whether the nodes have the same limits under the same names. See doctor.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/plain.h"
#include "doctor.h"

/* As many differences as are told, and as many entries as nodes keep (src/transport/redis/scripts/limits.lua). */
#define TOLD_MOST    20
#define ENTRIES_MOST 16

/* The limits that some nodes have: the name of one of them, and a line for each policy. */
struct entry {
    const char *name, *lines;
};

/* The text behind "POLICY " in one of these lines, up to the line's end. NULL: there is none. */
static const char *limits_of(const char *lines, const char *policy, size_t length)
{
    for (const char *line = lines; *line != '\0';
         line += line[strcspn(line, "\n")] != '\0' ? strcspn(line, "\n") + 1 : strcspn(line, "\n")) {
        if (strncmp(line, policy, length) == 0 && line[length] == ' ') {
            return line + length + 1;
        }
    }
    return NULL;
}

/* Tells one difference, with plain words whatever the texts have. */
static void tell_difference(struct doctor *d, const struct entry *one, const struct entry *other, const char *policy,
                            size_t length, const char *limits, const char *others)
{
    struct sentence words = {.length = 0};
    char text[900];
    char line[1800];
    (void) snprintf(text, sizeof(text), "policy %.*s is %.*s on node %.*s, and %.*s on node %.*s", (int) length, policy,
                    (int) strcspn(limits, "\n"), limits, (int) strcspn(one->name, "\n"), one->name,
                    (int) strcspn(others, "\n"), others, (int) strcspn(other->name, "\n"), other->name);
    (void) plain_line(line, sizeof(line), text);
    sentence_add(&words, "%s", line);
    doctor_tell(d, FINDING_WARN, "limits", &words,
                "if new limits are being rolled out, wait for the last node; else give each application a prefix of "
                "its own");
}

static size_t compare(struct doctor *d, const struct entry *one, const struct entry *other, size_t told)
{
    size_t found = 0;
    for (const char *line = one->lines; *line != '\0';) {
        const size_t size = strcspn(line, "\n");
        const size_t length = strcspn(line, " ");
        const char *limits = length < size ? line + length + 1 : NULL;
        const char *others = limits != NULL ? limits_of(other->lines, line, length) : NULL;
        const size_t limits_size = size - length - 1;
        if (others != NULL && (strcspn(others, "\n") != limits_size || strncmp(limits, others, limits_size) != 0)) {
            if (told + found < TOLD_MOST) {
                tell_difference(d, one, other, line, length, limits, others);
            }
            found++;
        }
        line += size + (line[size] == '\n');
    }
    return found;
}

/* Each pair of entries once. */
static void compare_all(struct doctor *d, const struct entry *entries, size_t count)
{
    size_t found = 0;
    struct sentence words = {.length = 0};
    for (size_t i = 0; i < count; i++) {
        for (size_t j = i + 1; j < count; j++) {
            found += compare(d, &entries[i], &entries[j], found);
        }
    }
    if (found > TOLD_MOST) {
        sentence_add(&words, "%zu more differences", found - TOLD_MOST);
        doctor_tell(d, FINDING_WARN, "limits", &words, "see those above");
    } else if (found == 0 && count != 0) {
        sentence_add(&words, "the same on all nodes");
        doctor_tell(d, FINDING_OK, "limits", &words, NULL);
    }
}

void limit_checks(struct doctor *d)
{
    char key[64];
    (void) snprintf(key, sizeof(key), "%s:limits", d->prefix);
    const char *argv[] = {"HGETALL", key};
    redisReply *reply = doctor_ask(d, 2, argv);
    struct entry entries[ENTRIES_MOST];
    size_t count = 0;
    const uint64_t now_ms = d->server_ns / 1000000;
    for (size_t i = 0; reply != NULL && reply->type == REDIS_REPLY_ARRAY && i + 1 < reply->elements; i += 2) {
        const redisReply *field = reply->element[i];
        const redisReply *value = reply->element[i + 1];
        const bool texts = field->type == REDIS_REPLY_STRING && value->type == REDIS_REPLY_STRING;
        const char *name = texts && strcmp(field->str, "version") != 0 ? strchr(value->str, ' ') : NULL;
        const char *lines = name != NULL ? strchr(name, '\n') : NULL;
        if (lines != NULL && strtoull(value->str, NULL, 10) > now_ms && count < ENTRIES_MOST) {
            entries[count++] = (struct entry){name + 1, lines + 1};
        }
    }
    compare_all(d, entries, count);
    freeReplyObject(reply);
}
