/* SPDX-License-Identifier: Apache-2.0 */
/* See policy_look.h. */
#include "policy_look.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "log.h"
#include "network.h"
#include "policy_kind.h"

/* The policies that one packet is checked by, at most. */
#define AT_ONCE WEIR_MAX_KEYS_AT_ONCE

void policy_look_say(struct sentence *words, const char *format, ...)
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
    struct policy_look *look = arg;
    struct looked_policy *listed = &look->listed[look->count++];
    (void) snprintf(listed->name, sizeof(listed->name), "%s", info->policy->name);
    listed->id = info->id;
    listed->shadow = info->policy->mode == WEIR_SHADOW;
}

/* Nobody else changes the policies meanwhile. False: no memory. */
static bool take_list(struct policy_look *look)
{
    look->listed = calloc(weir_list_policies(look->weir, NULL, NULL) + 1, sizeof(*look->listed));
    if (look->listed != NULL) {
        (void) weir_list_policies(look->weir, take_listed, look);
    }
    return look->listed != NULL;
}

void policy_look_close(struct policy_look *look)
{
    weir_close(look->weir);
    free(look->listed);
}

/* The policy of that name, and no tier of it. NULL: the file has none. */
const struct looked_policy *policy_look_find(const struct policy_look *look, const char *name)
{
    for (size_t i = 0; i < look->count; i++) {
        if (strcmp(look->listed[i].name, name) == 0) {
            return &look->listed[i];
        }
    }
    return NULL;
}

/* Tiers of a policy are used where the policy is. */
bool policy_look_uses(const char *name)
{
    struct policy_kind kind;
    return policy_kind_read(name, &kind);
}

bool policy_look_is_tier(const char *name)
{
    return strchr(name, '/') != NULL;
}

/* Sources are addresses: overrides in the file and in Redis, and lists, name them as such. */
bool policy_look_name_sources(weir *w, weir_error *error)
{
    return weir_set_key_form(w, "source", weir_address_form(SOURCE_PREFIX), error) == 0 &&
           weir_set_key_form(w, "source_bytes", weir_address_form(SOURCE_PREFIX), error) == 0;
}

/* The networks of a file that has been looked at. */
bool policy_look_name_networks(weir *w, const struct policy_look *look, weir_error *error)
{
    for (size_t i = 0; i < look->count; i++) {
        const char *name = look->listed[i].name;
        struct policy_kind kind;
        if (!policy_look_is_tier(name) && policy_kind_read(name, &kind) &&
            (kind.scope == SCOPE_NETWORK_V4 || kind.scope == SCOPE_NETWORK_V6) &&
            weir_set_key_form(w, name, &network_form, error) != 0) {
            return false;
        }
    }
    return true;
}

/* Whether a packet can be checked by all policies of the file that concern it. */
static bool fits_a_packet(const struct policy_look *look, const char *path, weir_error *error)
{
    size_t counts[2] = {0, 0};
    for (size_t i = 0; i < look->count; i++) {
        struct policy_kind kind;
        if (!policy_look_is_tier(look->listed[i].name) && policy_kind_read(look->listed[i].name, &kind)) {
            counts[0] += policy_kind_concerns(&kind, true);
            counts[1] += policy_kind_concerns(&kind, false);
        }
    }
    const size_t most = counts[0] > counts[1] ? counts[0] : counts[1];
    if (most > AT_ONCE) {
        (void) snprintf(error->message, sizeof(error->message),
                        "%.100s: %zu policies for one packet of IPv%d; give %d or fewer, networks included", path, most,
                        most == counts[0] ? 4 : 6, AT_ONCE);
    }
    return most <= AT_ONCE;
}

/*
 * Loads a file into a weir that looks at it. The first time tells which networks the file has; the second one reads
 * the overrides of networks by name.
 */
static bool load_look(struct policy_look *look, const char *path, weir_error *error)
{
    if (!policy_look_name_sources(look->weir, error) || weir_load_policies(look->weir, path, error) != 0) {
        return false;
    }
    if (!take_list(look)) {
        (void) snprintf(error->message, sizeof(error->message), "%s", "out of memory");
        return false;
    }
    return fits_a_packet(look, path, error) && policy_look_name_networks(look->weir, look, error) &&
           weir_load_policies(look->weir, path, error) == 0;
}

/* Reads a file into a weir of its own. False after a reason: it cannot be taken. */
bool policy_look_open(struct policy_look *look, const char *path, weir_error *error)
{
    weir_options options = WEIR_OPTIONS_INIT;
    options.no_thread = true;
    options.max_keys = 1000;
    options.max_threads = 1;
    *look = (struct policy_look){0};
    if (weir_open(&options, &look->weir, error) != 0) {
        return false;
    }
    if (!load_look(look, path, error)) {
        policy_look_close(look);
        return false;
    }
    return true;
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
static bool has_near(const struct policy_look *look, const char *wanted)
{
    for (size_t i = 0; i < look->count; i++) {
        if (!policy_look_uses(look->listed[i].name) && is_near(look->listed[i].name, wanted)) {
            return true;
        }
    }
    return false;
}

/* What the file has in place of a policy that it lacks: names that are near, or else what nothing asks for. */
static void say_near(struct sentence *words, const struct policy_look *look, const char *wanted)
{
    const bool near = has_near(look, wanted);
    size_t said = 0;
    for (size_t i = 0; i < look->count && said < 8; i++) {
        const char *name = look->listed[i].name;
        if (!policy_look_uses(name) && (!near || is_near(name, wanted))) {
            policy_look_say(words, "%s\"%s\"", said++ == 0 ? " (it has " : ", ", name);
        }
    }
    policy_look_say(words, "%s", said == 0 ? "" : ")");
}

void policy_look_say_missing(struct sentence *words, const struct policy_look *look, const char *name)
{
    policy_look_say(words, "no policy \"%s\"", name);
    say_near(words, look, name);
}

/*
 * Of what may be there and is not, and of what is there and is asked for by nothing. Few limit bytes: those policies
 * are named only where the file has one that may be meant.
 */
void policy_look_tell(const struct policy_look *look)
{
    for (size_t i = 0; i < POLICY_KIND_COUNT; i++) {
        const char *name = policy_kind_names[i];
        struct policy_kind kind;
        if (policy_kind_read(name, &kind) && policy_look_find(look, name) == NULL &&
            (!kind.of_bytes || has_near(look, name))) {
            struct sentence words = {.length = 0};
            policy_look_say_missing(&words, look, name);
            log_line(WEIR_LOG_WARNING, "%s: that limit is off", words.bytes);
        }
    }
    for (size_t i = 0; i < look->count; i++) {
        const char *name = look->listed[i].name;
        if (!policy_look_uses(name)) {
            log_line(WEIR_LOG_WARNING, "policy \"%s\" limits nothing here: the gateway uses no policy of that name%s",
                     name,
                     strncasecmp(name, "network", 7) != 0
                         ? ""
                         : "; networks are network1 to network32 of IPv4, network33 to network128 and network6_1 to "
                           "network6_32 of IPv6");
        }
    }
}

static bool has_any(const struct policy_look *look)
{
    for (size_t i = 0; i < look->count; i++) {
        if (policy_look_uses(look->listed[i].name) && !policy_look_is_tier(look->listed[i].name)) {
            return true;
        }
    }
    return false;
}

/* Whether a gateway may start with the file; if not, logs why. */
bool policy_look_may_start(const struct policy_look *look, const char *path, bool allow_missing)
{
    if (has_any(look) || allow_missing) {
        return true;
    }
    struct sentence words = {.length = 0};
    policy_look_say_missing(&words, look, "source");
    policy_look_say(&words, " and ");
    policy_look_say_missing(&words, look, "overall");
    log_line(WEIR_LOG_ERROR, "%s: %s: nothing would be limited; name a policy so, or give --allow-missing", path,
             words.bytes);
    return false;
}
