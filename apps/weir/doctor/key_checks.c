/* SPDX-License-Identifier: Apache-2.0 */
/* The keys that are at their limit now: nothing is wrong with Redis then, but people may want to know. See doctor.h. */
#include <stdlib.h>
#include <string.h>

#include "../fleet/busy_keys.h"
#include "base/plain.h"
#include "doctor.h"

/* Policies that have a finding each. */
#define POLICIES_MOST 20

#define READ_MS 5000

/* Adds a word of a command line, quoted where a shell needs it: a key may be any text, and people copy the command. */
static void add_word(struct sentence *s, const char *word)
{
    static const char bare[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-:/@%+,";
    char plain[512];
    (void) plain_line(plain, sizeof(plain), word);
    if (strspn(plain, bare) == strlen(plain) && *plain != '\0') {
        sentence_add(s, " %s", plain);
        return;
    }
    sentence_add(s, " '");
    for (const char *at = plain; *at != '\0'; at++) {
        sentence_add(s, "%s%c", *at == '\'' ? "'\\'" : "", *at);
    }
    sentence_add(s, "'");
}

/* The command that says more of a key. */
static void add_advice(struct sentence *advice, const struct doctor *d, const struct full_keys *full)
{
    sentence_add(advice, "weir explain --policies");
    add_word(advice, d->policies);
    if (strcmp(d->prefix, "weir") != 0) {
        sentence_add(advice, " --prefix");
        add_word(advice, d->prefix);
    }
    add_word(advice, full->policy);
    add_word(advice, full->key);
    sentence_add(advice, " says why; weir override set gives a key limits of its own");
}

static void tell_full(struct doctor *d, const struct full_keys *full, bool whole)
{
    char key[512];
    struct sentence words = {.length = 0};
    struct sentence advice = {.length = 0};
    (void) plain_line(key, sizeof(key), full->key);
    sentence_add(&words, "%s: ", full->base);
    quantity_number(&words, full->count);
    sentence_add(&words, " %s%s at or over %s limit now%s; the most: %s, which ",
                 plain_number(full->count, "key", "keys"), plain_number(full->count, " is", " are"),
                 plain_number(full->count, "its", "their"), whole ? "" : ", of those looked at", key);
    if (full->asked || full->times > 1) {
        sentence_add(&words, "%s %.1f times limit %s", full->asked ? "asked for" : "has used", full->times,
                     full->limit);
    } else {
        sentence_add(&words, "is at limit %s", full->limit);
    }
    sentence_add(&words, "%s", full->shadow ? "; the policy is in shadow mode and denies nothing" : "");
    add_advice(&advice, d, full);
    doctor_tell_open(d, FINDING_NOTE, "keys", &words, advice.text);
    output_string(d->out, "policy", full->policy);
    output_number(d->out, "keys", full->count);
    output_string(d->out, "key", full->key);
    output_string(d->out, "limit", full->limit);
    output_decimal(d->out, "times", full->times);
    output_flag(d->out, "whole", whole);
    output_close(d->out, '}');
}

/* The keys that have used or asked for most first. */
static int compare(const void *left, const void *right)
{
    const struct full_keys *a = left;
    const struct full_keys *b = right;
    return a->times != b->times ? (a->times < b->times) - (a->times > b->times) : strcmp(a->base, b->base);
}

void key_checks(struct doctor *d, struct busy_keys *keys, bool whole)
{
    struct full_keys *rows;
    size_t count;
    weir_error error;
    struct sentence words = {.length = 0};
    const bool good = busy_keys_judge(keys, d->link, READ_MS, &rows, &count, &error);
    whole = whole && !keys->partly;
    if (!good && redis_link_is_lost(&error)) {
        doctor_unanswered(d, "HGETALL", &error);
    } else if (!good) {
        sentence_add(&words, "%s", error.message);
        doctor_tell(d, FINDING_WARN, "keys", &words, doctor_advice(&error));
    } else if (keys->refused) {
        sentence_add(&words, "this user may not run HMGET, HGET and ZCARD, so the keys are not looked at");
        doctor_tell(d, FINDING_OK, "keys", &words, NULL);
    } else if (count == 0) {
        sentence_add(&words, "none is at its limit now%s", whole ? "" : ", of those looked at");
        doctor_tell(d, FINDING_OK, "keys", &words, NULL);
    } else {
        qsort(rows, count, sizeof(*rows), compare);
    }
    for (size_t i = 0; i < count && i < POLICIES_MOST && good && !keys->refused; i++) {
        tell_full(d, &rows[i], whole);
    }
    if (good && count > POLICIES_MOST) {
        words = (struct sentence){.length = 0};
        sentence_add(&words, "keys of %zu further policies are at their limit now", count - POLICIES_MOST);
        doctor_tell(d, FINDING_NOTE, "keys", &words, NULL);
    }
    free(rows);
}
