/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The policies of a file, before it is in force: what the file has of those that the gateway asks for, what it lacks,
 * and what it has in their place. The file is loaded into a weir of its own, which has no thread and no Redis.
 */
#ifndef WEIR_GATEWAY_POLICY_LOOK_H
#define WEIR_GATEWAY_POLICY_LOOK_H

#include <stdbool.h>
#include <stddef.h>

#include <weir/weir.h>

#include "kinds/packet_kind.h"

struct looked_policy {
    char name[WEIR_MAX_NAME + 1];
    weir_policy_id id;
    bool shadow;
};

struct policy_look {
    weir *weir;
    struct looked_policy *listed; /* all policies of the file, tiers included, in its order */
    size_t count;
};

/* Words of a sentence. */
struct sentence {
    char bytes[512];
    size_t length;
};

/* Adds words to a sentence, as far as there is room. */
__attribute__((format(printf, 2, 3))) void policy_look_say(struct sentence *words, const char *format, ...);

/* Reads a file. False after a reason: the file cannot be taken. */
bool policy_look_open(struct policy_look *look, const char *path, weir_error *error);
void policy_look_close(struct policy_look *look);

/* The policy of that name, and no tier of it. NULL: the file has none. */
const struct looked_policy *policy_look_find(const struct policy_look *look, const char *name);

/* Whether the gateway uses a policy of that name, or a tier of one. */
bool policy_look_uses(const char *name);
bool policy_look_is_tier(const char *name);

/*
 * Whether there is each kind that a policy of the file is for; a limit whose kind is missing would limit nothing. If
 * not, logs so; with `allow_missing` it is no error.
 */
bool policy_look_has_kinds(const struct policy_look *look, const struct packet_kinds *kinds, const char *path,
                           bool allow_missing);

/* Logs which kinds cost more than a policy lets pass at once: none of their packets would pass. */
void policy_look_tell_costs(const struct policy_look *look, const struct packet_kinds *kinds);

/* Gives the keys of a file's policies their forms: overrides, in the file and in Redis, and lists name addresses. */
bool policy_look_name_keys(weir *w, const struct policy_look *look, weir_error *error);

/* Whether a gateway may start with the file; if not, logs why. */
bool policy_look_may_start(const struct policy_look *look, const char *path, bool allow_missing);

/* Says that the file has no policy of that name, and which names it has instead. */
void policy_look_say_missing(struct sentence *words, const struct policy_look *look, const char *name);

/* Logs what the file lacks, and what it has that limits nothing. */
void policy_look_tell(const struct policy_look *look);

#endif
