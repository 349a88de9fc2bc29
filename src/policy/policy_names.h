/* SPDX-License-Identifier: Apache-2.0 */
/* What outlives the policy sets: the names of policies, their ids, and the forms of their keys. */
#ifndef WEIR_POLICY_POLICY_NAMES_H
#define WEIR_POLICY_POLICY_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "policy/rate_list.h"
#include "weir/weir.h"

/* The form of the keys of a policy and its tiers; the policy need not be in a set. Stays until policy_names_free(). */
struct policy_form {
    struct policy_form *next;
    char policy[WEIR_MAX_NAME + 1];
    _Atomic(const weir_key_form *) form;
};

/* The names since weir_open, in the order of their ids. The caller's lock guards all of it but the look for a form. */
struct policy_names {
    size_t count;
    uint64_t set_count;                                   /* compiled so far */
    char names[WEIR_MAX_POLICIES + 1][WEIR_MAX_NAME + 1]; /* [0] is not used */
    struct rate_list *rates;                              /* of each limit; the caller's. NULL: no rate is kept */
    const uint64_t *key_masks; /* by id: xor that keeps the hashes of different policies apart; the caller's */
    _Atomic(struct policy_form *) forms; /* of keys: this process's, as forms are functions */
};

void policy_names_free(struct policy_names *names);

/* The form of the keys of this policy; NULL: bytes. Threads: any, without the lock. */
const weir_key_form *policy_names_form(const struct policy_names *names, const char *name);

/* Sets the form of a policy's keys. 0 or -ENOMEM. */
int policy_names_set_form(struct policy_names *names, const char *name, const weir_key_form *form);

/* The id of a name; WEIR_NO_POLICY: the name is new. */
weir_policy_id policy_names_find(const struct policy_names *names, const char *name);

/* The id of a name; a new name gets the next id. The caller has checked that there is room. */
weir_policy_id policy_names_add(struct policy_names *names, const char *name);

/* Writes the name of a policy's group: the part before the first '/'. */
void policy_names_group(char group[WEIR_MAX_NAME + 1], const char *name);

/*
 * Whether names that another process has written can be policies': each is valid and there once, and each group has a
 * name. Looks at `count` and `names` alone.
 */
bool policy_names_are_sound(const struct policy_names *names);

/* At most so many names are new among these policies and their groups; a group may be counted more than once. */
size_t policy_names_count_new(const struct policy_names *names, const weir_policy *policies, size_t count);

#endif
