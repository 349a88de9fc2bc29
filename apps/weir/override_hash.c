/* SPDX-License-Identifier: Apache-2.0 */
/* See override_hash.h. A change is one script, so that no other change comes between its parts. */
#include "override_hash.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "override_notes.h"

#define TEXT(number)  TEXT_(number)
#define TEXT_(number) #number

/*
 * KEYS     the hash; the notes of entries; the last changes (override_notes.h)
 * ARGV     name, name as typed, "set" or "rm", value, a text that has been no version before, who changes
 * Returns  {1: changed, 0: nothing to change, 2: the hash is full; 1: there was a value, 0; the value}
 *
 * The notes are read before anything is written, so that a key of another type stops the change.
 */
static const char change_script[] =
    "local key, notes, changes = KEYS[1], KEYS[2], KEYS[3]\n"
    "local name, typed, action, value = ARGV[1], ARGV[2], ARGV[3], ARGV[4]\n"
    "local before, version = redis.call('HGET', key, name), redis.call('HGET', key, 'version')\n"
    "local other = typed ~= name and redis.call('HGET', key, typed)\n"
    "local found = before or other\n"
    "local found_flag, found_value = found and 1 or 0, found or ''\n"
    "redis.call('HGET', notes, name)\n"
    "redis.call('ZCARD', changes)\n"
    "if action == 'set' then\n"
    "  if before == value and not other then return {0, 1, before} end\n"
    "  if not found and redis.call('HLEN', key) - (version and 1 or 0) >= " TEXT(
        OVERRIDE_HASH_MOST) " then\n"
                            "    return {2, 0, ''}\n"
                            "  end\n"
                            "  redis.call('HSET', key, name, value)\n"
                            "elseif not found then\n"
                            "  return {0, 0, ''}\n"
                            "else\n"
                            "  redis.call('HDEL', key, name)\n"
                            "end\n"
                            "if other then redis.call('HDEL', key, typed) end\n"
                            "if version and #version <= 15 and (version == '0' or string.find(version, '^[1-9]%d*$')) "
                            "then\n"
                            "  redis.call('HINCRBY', key, 'version', 1)\n"
                            "elseif version then\n"
                            "  redis.call('HSET', key, 'version', ARGV[5])\n"
                            "end\n"
                            "local number = redis.call('HINCRBY', notes, '!changes', 1)\n"
                            "local at = redis.call('TIME')[1]\n"
                            "local note = table.concat({string.format('%d', number), at, ARGV[6], action, name, value, "
                            "found_value}, '\\t')\n"
                            "if action == 'set' then redis.call('HSET', notes, name, note) else redis.call('HDEL', "
                            "notes, name) end\n"
                            "redis.call('ZADD', changes, number, note)\n"
                            "redis.call('ZREMRANGEBYRANK', changes, 0, -1 - " TEXT(
                                OVERRIDE_NOTES_MOST) ")\n"
                                                     "return {1, found_flag, found_value}\n";

static bool fail_memory(weir_error *error)
{
    return error_set(error, -ENOMEM, "out of memory") == 0;
}

static bool fail_form(weir_error *error)
{
    return error_set(error, -EPROTO, "Redis gave an answer of an unknown form") == 0;
}

/* Adds an entry, or notes the version. A name or value with a NUL byte is cut there; it is malformed in any case. */
static bool add(struct hash_entries *out, const char *name, const char *value)
{
    if (strcmp(name, "version") == 0) {
        free(out->version);
        out->version = strdup(value);
        return out->version != NULL;
    }
    if (out->count == out->capacity) {
        const size_t capacity = 2 * out->capacity + 64;
        struct hash_entry *larger = realloc(out->all, capacity * sizeof(*larger));
        if (larger == NULL) {
            return false;
        }
        out->all = larger;
        out->capacity = capacity;
    }
    struct hash_entry *entry = &out->all[out->count++];
    entry->name = strdup(name);
    entry->value = strdup(value);
    return entry->name != NULL && entry->value != NULL;
}

/* Takes one page of HSCAN: {cursor, {name, value, ...}}. */
static bool take_page(const redisReply *reply, char cursor[24], struct hash_entries *out, weir_error *error)
{
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 || reply->element[0]->type != REDIS_REPLY_STRING ||
        reply->element[1]->type != REDIS_REPLY_ARRAY || reply->element[1]->elements % 2 != 0) {
        return fail_form(error);
    }
    (void) snprintf(cursor, 24, "%s", reply->element[0]->str);
    const redisReply *page = reply->element[1];
    for (size_t i = 0; i < page->elements; i += 2) {
        if (page->element[i]->str == NULL || page->element[i + 1]->str == NULL) {
            return fail_form(error);
        }
        if (!add(out, page->element[i]->str, page->element[i + 1]->str)) {
            return fail_memory(error);
        }
    }
    return true;
}

static int compare_names(const void *left, const void *right)
{
    const struct hash_entry *a = left;
    const struct hash_entry *b = right;
    return strcmp(a->name, b->name);
}

/* Sorts the entries. HSCAN may give an entry twice while the hash grows. */
static void sort(struct hash_entries *entries)
{
    size_t kept = 0;
    if (entries->count != 0) {
        qsort(entries->all, entries->count, sizeof(*entries->all), compare_names);
    }
    for (size_t i = 0; i < entries->count; i++) {
        if (kept != 0 && strcmp(entries->all[kept - 1].name, entries->all[i].name) == 0) {
            free(entries->all[i].name);
            free(entries->all[i].value);
        } else {
            entries->all[kept++] = entries->all[i];
        }
    }
    entries->count = kept;
}

bool override_hash_list(struct redis_link *link, const char *key, struct hash_entries *out, weir_error *error)
{
    char cursor[24] = "0";
    *out = (struct hash_entries){.all = NULL};
    do {
        const char *scan[] = {"HSCAN", key, cursor, "COUNT", "500"};
        redisReply *reply = redis_link_call(link, 5, scan, error);
        const bool good = reply != NULL && take_page(reply, cursor, out, error);
        freeReplyObject(reply);
        if (!good) {
            return false;
        }
    } while (strcmp(cursor, "0") != 0);
    sort(out);
    return true;
}

void override_hash_free(struct hash_entries *entries)
{
    for (size_t i = 0; i < entries->count; i++) {
        free(entries->all[i].name);
        free(entries->all[i].value);
    }
    free(entries->all);
    free(entries->version);
    *entries = (struct hash_entries){.all = NULL};
}

bool override_hash_change(struct redis_link *link, const char *key, const struct hash_request *request,
                          struct hash_change *out, weir_error *error)
{
    char version[40]; /* nodes compare the first 40 bytes */
    char notes[OVERRIDE_NOTES_KEY_SIZE];
    char changes[OVERRIDE_NOTES_KEY_SIZE];
    const char *value = request->value;
    struct timespec now;
    *out = (struct hash_change){.before = NULL};
    (void) clock_gettime(CLOCK_REALTIME, &now);
    (void) snprintf(version, sizeof(version), "%" PRId64 ".%09ld-%ld", (int64_t) now.tv_sec, now.tv_nsec,
                    (long) getpid());
    override_notes_keys(key, notes, changes);
    const char *call[] = {"EVAL",
                          change_script,
                          "3",
                          key,
                          notes,
                          changes,
                          request->name,
                          request->typed,
                          value != NULL ? "set" : "rm",
                          value != NULL ? value : "",
                          version,
                          request->by};
    redisReply *reply = redis_link_call(link, 12, call, error);
    if (reply == NULL) {
        return false;
    }
    const bool good = reply->type == REDIS_REPLY_ARRAY && reply->elements == 3 &&
                      reply->element[0]->type == REDIS_REPLY_INTEGER &&
                      reply->element[1]->type == REDIS_REPLY_INTEGER && reply->element[2]->type == REDIS_REPLY_STRING;
    if (good) {
        out->changed = reply->element[0]->integer == 1;
        out->full = reply->element[0]->integer == 2;
        out->before = reply->element[1]->integer == 1 ? strdup(reply->element[2]->str) : NULL;
    }
    freeReplyObject(reply);
    return good || fail_form(error);
}
