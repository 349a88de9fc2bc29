/* SPDX-License-Identifier: Apache-2.0 */
/* See policies.h. */
#include "policies.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "log.h"
#include "policy_look.h"

/* Whether there is room for the networks of the file beside all that have ever been in force; if not, logs so. */
static bool has_room(const struct policies *policies, const struct policy_look *look)
{
    size_t count = atomic_load(&policies->count);
    for (size_t i = 0; i < look->count; i++) {
        const char *name = look->listed[i].name;
        count += policy_look_uses(name) && !policy_look_is_tier(name) && !policy_table_knows(policies, name);
    }
    if (count > POLICIES_MAX) {
        log_line(
            WEIR_LOG_ERROR,
            "%zu policies since the start, by name; a gateway counts %d. Start it anew, or keep to networks that it "
            "has had",
            count, POLICIES_MAX);
    }
    return count <= POLICIES_MAX;
}

/* Knows the networks of the file from now on. There is room. */
static void add_networks(struct policies *policies, const struct policy_look *look)
{
    for (size_t i = 0; i < look->count; i++) {
        const char *name = look->listed[i].name;
        struct policy_kind kind;
        if (!policy_look_is_tier(name) && policy_kind_read(name, &kind) && !policy_table_knows(policies, name)) {
            policy_table_add(policies, name, &kind);
        }
    }
}

static void find(struct policies *policies, const weir *w, const struct policy_look *look)
{
    add_networks(policies, look);
    const size_t count = atomic_load(&policies->count);
    for (size_t i = 0; i < count; i++) {
        struct gateway_policy *policy = &policies->all[i];
        const struct looked_policy *listed = policy_look_find(look, policy->name);
        atomic_store(&policy->shadow, listed != NULL && listed->shadow);
        atomic_store(&policy->id, weir_find_policy(w, policy->name));
    }
}

bool policies_start(struct policies *policies, weir *w, const char *path, const struct packet_kinds *kinds,
                    bool allow_missing)
{
    struct policy_look look;
    weir_error error;
    if (!policy_look_open(&look, path, &error)) {
        log_line(WEIR_LOG_ERROR, "%s", error.message);
        return false;
    }
    bool good = policy_look_may_start(&look, path, allow_missing) && has_room(policies, &look) &&
                policy_look_has_kinds(&look, kinds, path, allow_missing);
    if (good && (!policy_look_name_keys(w, &look, &error) || weir_load_policies(w, path, &error) != 0)) {
        log_line(WEIR_LOG_ERROR, "%s", error.message);
        good = false;
    }
    if (good) {
        policy_look_tell(&look);
        policy_look_tell_costs(&look, kinds);
        find(policies, w, &look);
    }
    policy_look_close(&look);
    return good;
}

/* Whether the file has every policy in force; if not, adds to `words` which are missing. */
static bool keeps_all(const struct policies *policies, const struct policy_look *look, struct sentence *words)
{
    bool keeps = true;
    const size_t count = atomic_load(&policies->count);
    for (size_t i = 0; i < count; i++) {
        const struct gateway_policy *policy = &policies->all[i];
        if (atomic_load(&policy->id) != WEIR_NO_POLICY && policy_look_find(look, policy->name) == NULL) {
            policy_look_say(words, "%s", keeps ? "" : " and ");
            policy_look_say_missing(words, look, policy->name);
            keeps = false;
        }
    }
    return keeps;
}

/* Whether the policies in force are those of the first look: the file may have been written in between. */
static bool is_as_seen(const struct policies *policies, const struct policy_look *look, const char *path)
{
    const size_t count = atomic_load(&policies->count);
    for (size_t i = 0; i < count; i++) {
        const struct gateway_policy *policy = &policies->all[i];
        if (policy_look_find(look, policy->name) != NULL && atomic_load(&policy->id) == WEIR_NO_POLICY) {
            log_line(WEIR_LOG_ERROR,
                     "%s was written while it was read, and has no policy \"%s\" any more: that "
                     "limit is off; reload again",
                     path, policy->name);
            return false;
        }
    }
    return true;
}

bool policies_reload(struct policies *policies, weir *w, const char *path, const struct packet_kinds *kinds,
                     bool allow_missing)
{
    struct policy_look look;
    weir_error error;
    if (!policy_look_open(&look, path, &error)) {
        log_line(WEIR_LOG_ERROR, "policies stay as they were: %s", error.message);
        return false;
    }
    struct sentence lost = {.length = 0};
    bool good = keeps_all(policies, &look, &lost) || allow_missing;
    if (!good) {
        log_line(WEIR_LOG_ERROR,
                 "policies stay as they were: %s: %s, which is in force; to drop a limit in a "
                 "reload, start with --allow-missing",
                 path, lost.bytes);
    } else if (!has_room(policies, &look) || !policy_look_has_kinds(&look, kinds, path, allow_missing)) {
        good = false;
    } else if (!policy_look_name_keys(w, &look, &error) || weir_load_policies(w, path, &error) != 0) {
        log_line(WEIR_LOG_ERROR, "policies stay as they were: %s", error.message);
        good = false;
    } else {
        find(policies, w, &look);
        good = is_as_seen(policies, &look, path);
        policy_look_tell(&look);
        policy_look_tell_costs(&look, kinds);
    }
    policy_look_close(&look);
    return good;
}

/* One policy: its mode, what it lets pass at once, and its limits as RateLimit-Policy has them. */
static void print_policy(const weir *w, weir_thread *thread, const struct looked_policy *listed)
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
                  policy_look_uses(listed->name) ? "" : " (limits nothing here)");
}

bool policies_check(const char *path, const struct packet_kinds *kinds, bool allow_missing)
{
    struct policy_look look;
    weir_error error;
    if (!policy_look_open(&look, path, &error)) {
        log_line(WEIR_LOG_ERROR, "%s", error.message);
        return false;
    }
    const bool good =
        policy_look_may_start(&look, path, allow_missing) && policy_look_has_kinds(&look, kinds, path, allow_missing);
    weir_thread *thread = good ? weir_attach(look.weir) : NULL;
    for (size_t i = 0; thread != NULL && i < look.count; i++) {
        print_policy(look.weir, thread, &look.listed[i]);
    }
    weir_detach(thread);
    if (good) {
        policy_look_tell(&look);
        policy_look_tell_costs(&look, kinds);
    }
    policy_look_close(&look);
    return good;
}
