/* SPDX-License-Identifier: Apache-2.0 */
/* See override_notes.h. A note is "version TAB time TAB by TAB action TAB name TAB value TAB before". */
#include "override_notes.h"

#include <errno.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "policy/entry_until.h"

static const char until_word[] = " until ";

void override_notes_keys(const char *key, char notes[OVERRIDE_NOTES_KEY_SIZE], char changes[OVERRIDE_NOTES_KEY_SIZE])
{
    const int length = (int) (strrchr(key, ':') - key);
    (void) snprintf(notes, OVERRIDE_NOTES_KEY_SIZE, "%.*s:notes:{%s}", length, key, key);
    (void) snprintf(changes, OVERRIDE_NOTES_KEY_SIZE, "%.*s:changes:{%s}", length, key, key);
}

/* Cuts the text before the next tab. NULL: there is none. */
static char *cut(char **rest)
{
    char *field = *rest;
    char *tab = field != NULL ? strchr(field, '\t') : NULL;
    if (tab == NULL) {
        return NULL;
    }
    *tab = '\0';
    *rest = tab + 1;
    return field;
}

/* Reads a note, whose text it takes over. False: weir has not written it. */
static bool read_note(char *text, struct override_note *out)
{
    char *rest = text;
    const char *version = cut(&rest);
    const char *at = cut(&rest);
    out->by = cut(&rest);
    out->action = cut(&rest);
    out->name = cut(&rest);
    out->value = cut(&rest);
    out->before = rest;
    out->text = text;
    if (out->value == NULL) {
        return false;
    }
    out->version = strtoull(version, NULL, 10);
    out->at_s = strtoull(at, NULL, 10);
    return true;
}

static int compare_versions(const void *left, const void *right)
{
    const struct override_note *a = left;
    const struct override_note *b = right;
    return (a->version > b->version) - (a->version < b->version);
}

bool override_notes_read(struct redis_link *link, const char *key, bool log, struct override_notes *out,
                         weir_error *error)
{
    char notes[OVERRIDE_NOTES_KEY_SIZE];
    char changes[OVERRIDE_NOTES_KEY_SIZE];
    *out = (struct override_notes){.all = NULL};
    override_notes_keys(key, notes, changes);
    const char *of_entries[] = {"HGETALL", notes};
    const char *of_changes[] = {"ZRANGE", changes, "0", "-1"};
    redisReply *reply = redis_link_call(link, log ? 4 : 2, log ? of_changes : of_entries, error);
    if (reply == NULL) {
        return false;
    }
    bool good =
        reply->type == REDIS_REPLY_ARRAY || error_set(error, -EPROTO, "%s: an answer of an unknown form", notes) == 0;
    out->all = good ? calloc(reply->elements + 1, sizeof(*out->all)) : NULL;
    const size_t step = log ? 1 : 2; /* the fields of the hash are the names */
    for (size_t i = step - 1; good && out->all != NULL && i < reply->elements; i += step) {
        char *text = reply->element[i]->str != NULL ? strdup(reply->element[i]->str) : NULL;
        if (text != NULL && read_note(text, &out->all[out->count])) {
            out->count++;
        } else {
            free(text); /* the number of changes, or what somebody else has written */
        }
    }
    freeReplyObject(reply);
    if (good && out->all == NULL) {
        good = error_set(error, -ENOMEM, "out of memory") == 0;
    }
    if (out->all != NULL && out->count != 0) {
        qsort(out->all, out->count, sizeof(*out->all), compare_versions);
    }
    return good;
}

void override_notes_free(struct override_notes *notes)
{
    for (size_t i = 0; i < notes->count; i++) {
        free(notes->all[i].text);
    }
    free(notes->all);
    *notes = (struct override_notes){.all = NULL};
}

const struct override_note *override_notes_find(const struct override_notes *notes, const char *name, const char *value)
{
    for (size_t i = 0; i < notes->count; i++) {
        if (strcmp(notes->all[i].name, name) == 0 && strcmp(notes->all[i].value, value) == 0) {
            return &notes->all[i];
        }
    }
    return NULL;
}

void override_notes_author(const char *given, char out[OVERRIDE_AUTHOR_SIZE])
{
    const char *sudo = getenv("SUDO_USER");
    char room[4096];
    struct passwd entry;
    struct passwd *user = NULL;
    (void) getpwuid_r(getuid(), &entry, room, sizeof(room), &user);
    const char *by = given != NULL ? given : sudo != NULL && *sudo != '\0' ? sudo : user != NULL ? user->pw_name : NULL;
    if (by != NULL) {
        (void) snprintf(out, OVERRIDE_AUTHOR_SIZE, "%s", by);
    } else {
        (void) snprintf(out, OVERRIDE_AUTHOR_SIZE, "%lu", (unsigned long) getuid());
    }
    for (char *c = out; *c != '\0'; c++) {
        *c = (unsigned char) *c < ' ' || *c == 0x7f ? '_' : *c;
    }
}

void override_notes_time(uint64_t at_s, char out[OVERRIDE_TIME_SIZE])
{
    const time_t seconds = (time_t) at_s;
    struct tm parts;
    if (gmtime_r(&seconds, &parts) == NULL || strftime(out, OVERRIDE_TIME_SIZE, "%Y-%m-%dT%H:%M:%SZ", &parts) == 0) {
        (void) snprintf(out, OVERRIDE_TIME_SIZE, "%" PRIu64, at_s);
    }
}

/* Reads "90m". 0: it is no duration. */
static uint64_t read_duration_s(const char *text)
{
    static const char letters[] = "smhdw";
    static const uint64_t units[] = {1, 60, 3600, 86400, 604800};
    char *end;
    const unsigned long long count = *text >= '0' && *text <= '9' ? strtoull(text, &end, 10) : 0;
    if (count == 0 || count > 100000000 || *end == '\0' || end[1] != '\0') {
        return 0;
    }
    const char *letter = strchr(letters, *end);
    return letter != NULL ? count * units[letter - letters] : 0;
}

bool override_notes_end(const char *value, const char *until, char *out, size_t size, weir_error *error)
{
    char text[OVERRIDE_TIME_SIZE];
    uint64_t until_ns = 0;
    const uint64_t now_s = (uint64_t) time(NULL);
    const uint64_t duration_s = read_duration_s(until);
    if (strstr(value, until_word) != NULL) {
        return error_set(error, -EINVAL, "the value has an end already; leave out --until") == 0;
    }
    (void) snprintf(text, sizeof(text), "%s", until);
    if (duration_s != 0) {
        override_notes_time(now_s + duration_s, text);
    }
    if (strlen(until) >= sizeof(text) || entry_until_read(text, &until_ns, NULL) != 0) {
        return error_set(
                   error, -EINVAL,
                   "--until is \"%.40s\"; give a time in UTC, such as 2026-12-01T00:00Z, or a duration: 90m, 2h, 7d",
                   until) == 0;
    }
    if (until_ns / 1000000000 <= now_s) {
        return error_set(error, -EINVAL, "--until is %s, which is over", text) == 0;
    }
    if ((size_t) snprintf(out, size, "%s%s%s", value, until_word, text) >= size) {
        return error_set(error, -EINVAL, "the value is too long") == 0;
    }
    return true;
}

bool override_notes_ended(const char *value)
{
    uint64_t until_ns;
    const char *until = strstr(value, until_word);
    return until != NULL && entry_until_read(until + sizeof(until_word) - 1, &until_ns, NULL) == 0 &&
           until_ns / 1000000000 <= (uint64_t) time(NULL);
}
