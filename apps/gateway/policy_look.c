/* SPDX-License-Identifier: Apache-2.0 */
/* See policy_look.h. */
#include "policy_look.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "log.h"
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

bool policy_look_name_keys(weir *w, const struct policy_look *look, weir_error *error)
{
    for (size_t i = 0; i < look->count; i++) {
        char name[WEIR_MAX_NAME + 1]; /* of the policy, for a tier */
        struct policy_kind kind;
        (void) snprintf(name, sizeof(name), "%.*s", (int) strcspn(look->listed[i].name, "/"), look->listed[i].name);
        if (policy_kind_read(name, &kind) && weir_set_key_form(w, name, policy_kind_form(&kind), error) != 0) {
            return false;
        }
    }
    return true;
}

/* The policies that concern a packet of a kind. */
static size_t count_concerned(const struct policy_look *look, const char *packet_kind, bool v4)
{
    size_t count = 0;
    for (size_t i = 0; i < look->count; i++) {
        struct policy_kind kind;
        const char *name = look->listed[i].name;
        count += !policy_look_is_tier(name) && policy_kind_read(name, &kind) && policy_kind_concerns(&kind, v4) &&
                 (kind.packet_kind[0] == '\0' || strcmp(kind.packet_kind, packet_kind) == 0);
    }
    return count;
}

/* Whether a packet can be checked by all policies of the file that concern it. */
static bool fits_a_packet(const struct policy_look *look, const char *path, weir_error *error)
{
    for (size_t i = 0; i < look->count; i++) {
        struct policy_kind kind;
        if (!policy_kind_read(look->listed[i].name, &kind)) {
            continue;
        }
        const size_t v4 = count_concerned(look, kind.packet_kind, true);
        const size_t v6 = count_concerned(look, kind.packet_kind, false);
        const size_t most = v4 > v6 ? v4 : v6;
        if (most > AT_ONCE) {
            (void) snprintf(error->message, sizeof(error->message),
                            "%.100s: %zu policies for one packet of IPv%d; give %d or fewer, networks included", path,
                            most, most == v4 ? 4 : 6, AT_ONCE);
            return false;
        }
    }
    return true;
}

/*
 * Loads a file into a weir that looks at it. The first time tells which policies the file has; the second one reads
 * the overrides by the names of their keys.
 */
static bool load_look(struct policy_look *look, const char *path, weir_error *error)
{
    if (weir_load_policies(look->weir, path, error) != 0) {
        return false;
    }
    if (!take_list(look)) {
        (void) snprintf(error->message, sizeof(error->message), "%s", "out of memory");
        return false;
    }
    return fits_a_packet(look, path, error) && policy_look_name_keys(look->weir, look, error) &&
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

/* The name of a kind that may be meant. NULL: none is near. */
static const char *near_kind(const struct packet_kinds *kinds, const char *wanted)
{
    for (size_t i = 0; i < kinds->count; i++) {
        if (is_near(kinds->all[i].name, wanted)) {
            return kinds->all[i].name;
        }
    }
    return NULL;
}

bool policy_look_has_kinds(const struct policy_look *look, const struct packet_kinds *kinds, const char *path,
                           bool allow_missing)
{
    bool has = true;
    for (size_t i = 0; i < look->count; i++) {
        const char *name = look->listed[i].name;
        struct policy_kind kind;
        if (policy_look_is_tier(name) || !policy_kind_read(name, &kind) || kind.packet_kind[0] == '\0' ||
            packet_kinds_find(kinds, kind.packet_kind) != 0) {
            continue;
        }
        const char *near = near_kind(kinds, kind.packet_kind);
        log_line(allow_missing ? WEIR_LOG_WARNING : WEIR_LOG_ERROR,
                 "%s: policy \"%s\" is for packets of kind \"%s\", and there is no such kind%s%s%s: that limit %s off; "
                 "%s",
                 path, name, kind.packet_kind, near != NULL ? " (there is \"" : "", near != NULL ? near : "",
                 near != NULL ? "\")" : "", allow_missing ? "is" : "would be",
                 kinds->count != 0 ? "name a kind of --kinds" : "give --kinds with the kind in it");
        has = false;
    }
    return has || allow_missing;
}

void policy_look_tell_costs(const struct policy_look *look, const struct packet_kinds *kinds)
{
    weir_thread *thread = kinds->count != 0 ? weir_attach(look->weir) : NULL;
    for (size_t i = 0; thread != NULL && i < look->count; i++) {
        const struct looked_policy *listed = &look->listed[i];
        struct policy_kind kind;
        if (!policy_kind_read(listed->name, &kind) || kind.of_bytes || kind.packet_kind[0] != '\0') {
            continue;
        }
        const weir_key key = weir_make_key(look->weir, listed->id, NULL, 0);
        weir_verdict verdict;
        (void) weir_peek(thread, &key, 1, &verdict);
        for (size_t k = 0; k < kinds->count; k++) {
            if (kinds->all[k].cost > verdict.remaining) {
                log_line(WEIR_LOG_WARNING,
                         "no packet of kind \"%s\" passes policy \"%s\": it costs %u, and %" PRIu64
                         " pass at once; lower the cost, or raise the limit",
                         kinds->all[k].name, listed->name, (unsigned) kinds->all[k].cost, verdict.remaining);
            }
        }
    }
    weir_detach(thread);
}
