/* SPDX-License-Identifier: Apache-2.0 */
/* The keys that are at their limit now: nothing is wrong with Redis then, but people may want to know. See doctor.h. */
#include <stdio.h>
#include <string.h>

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

/* The parts of "policy:key". */
struct top_key {
    char policy[WEIR_MAX_NAME + 1];
    const char *key;
};

static struct top_key top_key_of(const weir_inspected_full *full)
{
    struct top_key top = {.key = strchr(full->top, ':') + 1};
    (void) snprintf(top.policy, sizeof(top.policy), "%.*s", (int) (top.key - 1 - full->top), full->top);
    return top;
}

/* The command that says more of a key. */
static void add_advice(struct sentence *advice, const struct doctor *d, const struct top_key *top)
{
    sentence_add(advice, "weir explain --policies");
    add_word(advice, d->policies);
    if (strcmp(d->prefix, "weir") != 0) {
        sentence_add(advice, " --prefix");
        add_word(advice, d->prefix);
    }
    add_word(advice, top->policy);
    add_word(advice, top->key);
    sentence_add(advice, " says why; weir override set gives a key limits of its own");
}

static void tell_full(struct doctor *d, const weir_inspected_full *full, bool whole)
{
    const struct top_key top = top_key_of(full);
    char key[512];
    struct sentence words = {.length = 0};
    struct sentence advice = {.length = 0};
    (void) plain_line(key, sizeof(key), top.key);
    sentence_add(&words, "%s: ", full->policy);
    quantity_number(&words, full->keys);
    sentence_add(&words, " %s%s at or over %s limit now%s; the most: %s, which ",
                 plain_number(full->keys, "key", "keys"), plain_number(full->keys, " is", " are"),
                 plain_number(full->keys, "its", "their"), whole ? "" : ", of those looked at", key);
    if (full->asked || full->times > 1) {
        sentence_add(&words, "%s %.1f times limit %s", full->asked ? "asked for" : "has used", full->times,
                     full->limit);
    } else {
        sentence_add(&words, "is at limit %s", full->limit);
    }
    sentence_add(&words, "%s", full->shadow ? "; the policy is in shadow mode and denies nothing" : "");
    add_advice(&advice, d, &top);
    doctor_tell_open(d, FINDING_NOTE, "keys", &words, advice.text);
    output_string(d->out, "policy", top.policy);
    output_number(d->out, "keys", full->keys);
    output_string(d->out, "key", top.key);
    output_string(d->out, "limit", full->limit);
    output_decimal(d->out, "times", full->times);
    output_flag(d->out, "whole", whole);
    output_close(d->out, '}');
}

void key_checks(struct doctor *d, weir *w, const weir_inspected_records *records)
{
    const weir_inspected_full_keys *full;
    weir_error error;
    struct sentence words = {.length = 0};
    if (weir_inspect_full_keys(d->in, w, records->uses, records->use_count, READ_MS, &full, &error) != 0) {
        sentence_add(&words, "%s", error.message);
        doctor_tell(d, FINDING_WARN, "keys", &words, doctor_advice(&error));
        return;
    }
    const bool whole = records->ended && !full->partly;
    if (full->policy_count == 0) {
        sentence_add(&words, "none is at its limit now%s", whole ? "" : ", of those looked at");
        doctor_tell(d, FINDING_OK, "keys", &words, NULL);
    }
    for (size_t i = 0; i < full->policy_count && i < POLICIES_MOST; i++) {
        tell_full(d, &full->policies[i], whole);
    }
    if (full->policy_count > POLICIES_MOST) {
        words = (struct sentence){.length = 0};
        sentence_add(&words, "keys of %zu further policies are at their limit now", full->policy_count - POLICIES_MOST);
        doctor_tell(d, FINDING_NOTE, "keys", &words, NULL);
    }
}
