/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The commands that nodes run, tried one by one as this user (docs/redis.md). Each is tried in a form that changes
 * nothing: on a key that is not there, or with a number that is none, which Redis looks at behind the rights.
 */
#include <stdio.h>
#include <string.h>

#include "base/plain.h"
#include "doctor.h"

/* The most words of a try. */
#define WORDS_MOST 6

/* In the place of the key of a try: that of a record, of the overrides. */
#define RECORD "\001"

static const struct
try {
    const char *words[WORDS_MOST];
    bool optional; /* nodes do without it */
}
tries[] = {{{"INFO", "server"}, true},
           {{"TIME"}, false},
           {{"SELECT", "0"}, false},
           {{"EVAL", "return 1", "1", RECORD}, false},
           {{"EVALSHA", "0000000000000000000000000000000000000000", "1", RECORD}, false},
           {{"HGET", RECORD, "a"}, false},
           {{"HGETALL", RECORD}, false},
           {{"HMGET", RECORD, "a", "b"}, false},
           {{"HSET", RECORD, "a", "1", "b"}, false}, /* a field without a value */
           {{"HINCRBY", RECORD, "a", "none"}, false},
           {{"HDEL", RECORD, "a"}, false},
           {{"HSCAN", RECORD, "0"}, true},
           {{"HLEN", RECORD}, true},
           {{"HSTRLEN", RECORD, "a"}, true},
           {{"ZADD", RECORD, "none", "a"}, false},
           {{"ZREM", RECORD, "a"}, false},
           {{"ZSCORE", RECORD, "a"}, false},
           {{"ZCARD", RECORD}, false},
           {{"ZCOUNT", RECORD, "0", "0"}, false},
           {{"ZRANGE", RECORD, "0", "0"}, false},
           {{"ZREMRANGEBYSCORE", RECORD, "0", "0"}, false},
           {{"ZREMRANGEBYRANK", RECORD, "0", "0"}, false},
           {{"PEXPIRE", RECORD, "1"}, false},
           {{"PTTL", RECORD}, false},
           {{"EXISTS", RECORD}, false},
           {{"DEL", RECORD}, false}};

/* Tries one command. Returns whether it is denied; a Redis that does not answer is told elsewhere. */
static bool is_denied(struct doctor *d, const struct try *it, const char *key)
{
    const char *words[WORDS_MOST];
    int count = 0;
    for (; count < WORDS_MOST && it->words[count] != NULL; count++) {
        words[count] = strcmp(it->words[count], RECORD) == 0 ? key : it->words[count];
    }
    redisReply *reply = doctor_ask_here(d, count, words);
    /* SELECT of a server of a Cluster, a key of another one, and a script that is not there, are no matter of rights.
     */
    const bool denied = reply != NULL && reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, "NOPERM", 6) == 0;
    freeReplyObject(reply);
    return denied;
}

void rights_checks(struct doctor *d)
{
    char key[64];
    size_t needed = 0;
    size_t wished = 0;
    struct sentence denied = {.length = 0};
    struct sentence left_out = {.length = 0};
    (void) snprintf(key, sizeof(key), "%s:{000}:doctor", d->prefix);
    const size_t count = sizeof(tries) / sizeof(tries[0]);
    for (size_t i = 0; i < count && !d->unanswered; i++) {
        if (is_denied(d, &tries[i], key)) {
            struct sentence *list = tries[i].optional ? &left_out : &denied;
            sentence_add(list, "%s%s", list->length != 0 ? ", " : "", tries[i].words[0]);
            needed += !tries[i].optional;
            wished += tries[i].optional;
        }
    }
    struct sentence words = {.length = 0};
    if (needed != 0) {
        sentence_add(&words, "this user may not run %s on keys of %s", denied.text, d->prefix);
        doctor_tell(d, FINDING_BAD, "rights", &words,
                    "nodes with this user are in an outage: docs/redis.md has the ACL of a user with few rights");
    } else if (!d->unanswered) {
        sentence_add(&words, "this user may run the %zu commands that nodes need", count);
        doctor_tell(d, FINDING_OK, "rights", wished == 0 ? &words : &(struct sentence){.text = "enough for nodes"},
                    NULL);
    }
    if (wished != 0) {
        words = (struct sentence){.length = 0};
        sentence_add(&words, "this user may not run %s", left_out.text);
        doctor_tell(
            d, FINDING_WARN, "rights", &words,
            "nodes do without, at a cost: losses of Redis are seen later, and all overrides are copied at once");
    }
}
