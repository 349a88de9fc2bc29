/* SPDX-License-Identifier: Apache-2.0 */
#include "policies.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "log.h"

const char *const policy_names[POLICY_COUNT] = {"source", "source_bytes", "overall", "overall_bytes"};

struct listed {
    char name[WEIR_MAX_NAME + 1];
    weir_policy_id id;
    bool shadow;
};

/* The policies of a file, before it is in force. */
struct look {
    weir *weir;
    struct listed *listed; /* all of its policies, tiers included, in the file's order */
    size_t count;
    weir_policy_id ids[POLICY_COUNT];
    bool shadow[POLICY_COUNT];
};

/* Words of a sentence. */
struct words {
    char bytes[512];
    size_t length;
};

__attribute__((format(printf, 2, 3))) static void say(struct words *words, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const int n = vsnprintf(words->bytes + words->length, sizeof(words->bytes) - words->length, format, arguments);
    va_end(arguments);
    const size_t room = sizeof(words->bytes) - words->length - 1;
    if (n > 0) {
        words->length += (size_t) n < room ? (size_t) n : room;
    }
}

static void take_listed(void *arg, const weir_policy_info *info)
{
    struct look *look = arg;
    struct listed *listed = &look->listed[look->count++];
    (void) snprintf(listed->name, sizeof(listed->name), "%s", info->policy->name);
    listed->id = info->id;
    listed->shadow = info->policy->mode == WEIR_SHADOW;
    for (size_t i = 0; i < POLICY_COUNT; i++) {
        if (strcmp(listed->name, policy_names[i]) == 0) {
            look->ids[i] = listed->id;
            look->shadow[i] = listed->shadow;
        }
    }
}

/* Nobody else changes the policies meanwhile. False: no memory. */
static bool take_list(struct look *look)
{
    look->listed = calloc(weir_list_policies(look->weir, NULL, NULL) + 1, sizeof(*look->listed));
    if (look->listed != NULL) {
        (void) weir_list_policies(look->weir, take_listed, look);
    }
    return look->listed != NULL;
}

static void look_end(struct look *look)
{
    weir_close(look->weir);
    free(look->listed);
}

/* Sources are addresses: overrides in the file and in Redis, and lists, name them as such. */
static bool name_keys(weir *w, weir_error *error)
{
    return weir_set_key_form(w, policy_names[POLICY_SOURCE], weir_address_form(SOURCE_PREFIX), error) == 0 &&
           weir_set_key_form(w, policy_names[POLICY_SOURCE_BYTES], weir_address_form(SOURCE_PREFIX), error) == 0;
}

/* Reads a file into a weir of its own. False after a reason: it cannot be taken. */
static bool look_at(struct look *look, const char *path, weir_error *error)
{
    weir_options options = WEIR_OPTIONS_INIT;
    options.no_thread = true;
    options.max_keys = 1000;
    options.max_threads = 1;
    *look = (struct look){0};
    if (weir_open(&options, &look->weir, error) != 0) {
        return false;
    }
    if (!name_keys(look->weir, error) || weir_load_policies(look->weir, path, error) != 0) {
        look_end(look);
        return false;
    }
    if (!take_list(look)) {
        (void) snprintf(error->message, sizeof(error->message), "%s", "out of memory");
        look_end(look);
        return false;
    }
    return true;
}

/* Tiers of a policy are used where the policy is. */
static bool is_used(const char *name)
{
    const size_t length = strcspn(name, "/");
    for (size_t i = 0; i < POLICY_COUNT; i++) {
        if (strlen(policy_names[i]) == length && strncmp(name, policy_names[i], length) == 0) {
            return true;
        }
    }
    return false;
}

#define NEAR_LENGTH 16

/* How many letters must be changed, added or left out to make one of the other, where that is few; else many. */
static size_t distance(const char *a, const char *b)
{
    const size_t rows = strlen(a);
    const size_t columns = strlen(b);
    if (rows > NEAR_LENGTH || columns > NEAR_LENGTH) {
        return NEAR_LENGTH;
    }
    size_t row[NEAR_LENGTH + 1];
    for (size_t j = 0; j <= columns; j++) {
        row[j] = j;
    }
    for (size_t i = 1; i <= rows; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= columns; j++) {
            const size_t above = row[j];
            const size_t left = row[j - 1];
            const size_t changed = diagonal + (a[i - 1] != b[j - 1]);
            const size_t added = (above < left ? above : left) + 1;
            row[j] = changed < added ? changed : added;
            diagonal = above;
        }
    }
    return row[columns];
}

static bool is_near(const char *name, const char *wanted)
{
    return strcasecmp(name, wanted) == 0 || distance(name, wanted) <= 2;
}

/* Whether the file has a name that nothing asks for and that is near this one. */
static bool has_near(const struct look *look, const char *wanted)
{
    for (size_t i = 0; i < look->count; i++) {
        if (!is_used(look->listed[i].name) && is_near(look->listed[i].name, wanted)) {
            return true;
        }
    }
    return false;
}

/* What the file has in place of a policy that it lacks: names that are near, or else what nothing asks for. */
static void say_near(struct words *words, const struct look *look, const char *wanted)
{
    const bool near = has_near(look, wanted);
    size_t said = 0;
    for (size_t i = 0; i < look->count && said < 8; i++) {
        const char *name = look->listed[i].name;
        if (!is_used(name) && (!near || is_near(name, wanted))) {
            say(words, "%s\"%s\"", said++ == 0 ? " (it has " : ", ", name);
        }
    }
    say(words, "%s", said == 0 ? "" : ")");
}

static void say_missing(struct words *words, const struct look *look, size_t index)
{
    say(words, "no policy \"%s\"", policy_names[index]);
    say_near(words, look, policy_names[index]);
}

/*
 * Of what may be there and is not, and of what is there and is asked for by nothing. Few limit bytes: those policies
 * are named only where the file has one that may be meant.
 */
static void tell_differences(const struct look *look)
{
    for (size_t i = 0; i < POLICY_COUNT; i++) {
        if (look->ids[i] == WEIR_NO_POLICY && (!policy_is_of_bytes(i) || has_near(look, policy_names[i]))) {
            struct words words = {.length = 0};
            say_missing(&words, look, i);
            log_line(WEIR_LOG_WARNING, "%s: that limit is off", words.bytes);
        }
    }
    for (size_t i = 0; i < look->count; i++) {
        const char *name = look->listed[i].name;
        if (!is_used(name)) {
            log_line(WEIR_LOG_WARNING,
                     "policy \"%s\" limits nothing here: the gateway uses no "
                     "policy of that name",
                     name);
        }
    }
}

static bool has_any(const struct look *look)
{
    for (size_t i = 0; i < POLICY_COUNT; i++) {
        if (look->ids[i] != WEIR_NO_POLICY) {
            return true;
        }
    }
    return false;
}

/* Whether a gateway may start with the file; if not, logs why. */
static bool may_start(const struct look *look, const char *path, bool allow_missing)
{
    if (has_any(look) || allow_missing) {
        return true;
    }
    struct words words = {.length = 0};
    say_missing(&words, look, POLICY_SOURCE);
    say(&words, " and ");
    say_missing(&words, look, POLICY_OVERALL);
    log_line(WEIR_LOG_ERROR, "%s: %s: nothing would be limited; name a policy so, or give --allow-missing", path,
             words.bytes);
    return false;
}

static void find(struct policies *policies, const weir *w, const struct look *look)
{
    for (size_t i = 0; i < POLICY_COUNT; i++) {
        atomic_store(&policies->shadow[i], look->shadow[i]);
        atomic_store(&policies->ids[i], weir_find_policy(w, policy_names[i]));
    }
}

bool policies_start(struct policies *policies, weir *w, const char *path, bool allow_missing)
{
    struct look look;
    weir_error error;
    if (!look_at(&look, path, &error)) {
        log_line(WEIR_LOG_ERROR, "%s", error.message);
        return false;
    }
    bool good = may_start(&look, path, allow_missing);
    if (good && (!name_keys(w, &error) || weir_load_policies(w, path, &error) != 0)) {
        log_line(WEIR_LOG_ERROR, "%s", error.message);
        good = false;
    }
    if (good) {
        tell_differences(&look);
        find(policies, w, &look);
    }
    look_end(&look);
    return good;
}

/* Whether the file has every policy in force; if not, adds to `words` which are missing. */
static bool keeps_all(const struct policies *policies, const struct look *look, struct words *words)
{
    bool keeps = true;
    for (size_t i = 0; i < POLICY_COUNT; i++) {
        if (atomic_load(&policies->ids[i]) != WEIR_NO_POLICY && look->ids[i] == WEIR_NO_POLICY) {
            say(words, "%s", keeps ? "" : " and ");
            say_missing(words, look, i);
            keeps = false;
        }
    }
    return keeps;
}

/* Whether the policies in force are those of the first look: the file may have been written in between. */
static bool is_as_seen(const struct policies *policies, const struct look *look, const char *path)
{
    for (size_t i = 0; i < POLICY_COUNT; i++) {
        if (look->ids[i] != WEIR_NO_POLICY && atomic_load(&policies->ids[i]) == WEIR_NO_POLICY) {
            log_line(WEIR_LOG_ERROR,
                     "%s was written while it was read, and has no policy \"%s\" any more: that "
                     "limit is off; reload again",
                     path, policy_names[i]);
            return false;
        }
    }
    return true;
}

bool policies_reload(struct policies *policies, weir *w, const char *path, bool allow_missing)
{
    struct look look;
    weir_error error;
    if (!look_at(&look, path, &error)) {
        log_line(WEIR_LOG_ERROR, "policies stay as they were: %s", error.message);
        return false;
    }
    struct words lost = {.length = 0};
    bool good = keeps_all(policies, &look, &lost) || allow_missing;
    if (!good) {
        log_line(WEIR_LOG_ERROR,
                 "policies stay as they were: %s: %s, which is in force; to drop a limit in a "
                 "reload, start with --allow-missing",
                 path, lost.bytes);
    } else if (weir_load_policies(w, path, &error) != 0) {
        log_line(WEIR_LOG_ERROR, "policies stay as they were: %s", error.message);
        good = false;
    } else {
        find(policies, w, &look);
        good = is_as_seen(policies, &look, path);
        tell_differences(&look);
    }
    look_end(&look);
    return good;
}

/* One policy: its mode, what it lets pass at once, and its limits as RateLimit-Policy has them. */
static void print_policy(const weir *w, weir_thread *thread, const struct listed *listed)
{
    const weir_key key = weir_make_key(w, listed->id, NULL, 0);
    weir_verdict verdict;
    (void) weir_peek(thread, &key, 1, &verdict);
    char headers[1024];
    (void) weir_write_headers(WEIR_HEADERS_DRAFT_11, w, listed->id, &verdict, headers, sizeof(headers));
    headers[strcspn(headers, "\r")] = '\0';
    const char *limits = strchr(headers, ':');
    (void) printf("%s: %s; %" PRIu64 " at once;%s%s\n", listed->name, listed->shadow ? "shadow" : "enforce",
                  verdict.remaining, limits != NULL ? limits + 1 : "",
                  is_used(listed->name) ? "" : " (limits nothing here)");
}

bool policies_check(const char *path, bool allow_missing)
{
    struct look look;
    weir_error error;
    if (!look_at(&look, path, &error)) {
        log_line(WEIR_LOG_ERROR, "%s", error.message);
        return false;
    }
    const bool good = may_start(&look, path, allow_missing);
    weir_thread *thread = good ? weir_attach(look.weir) : NULL;
    for (size_t i = 0; thread != NULL && i < look.count; i++) {
        print_policy(look.weir, thread, &look.listed[i]);
    }
    if (good) {
        tell_differences(&look);
    }
    weir_detach(thread);
    look_end(&look);
    return good;
}
