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

static bool fail_form(weir_error *error)
{
    return error_set(error, -EPROTO, "Redis gave an answer of an unknown form") == 0;
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
