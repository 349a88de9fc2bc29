/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text of an override (docs/policies.md). The name is "policy:key", or "*:network" for all policies whose keys
 * are addresses or networks. The value is "allow", "deny", or a number for
 * each limit of the policy, optionally with a burst: "200", "200/50 10000". An end may follow:
 * "deny until 2026-12-01T00:00Z" (entry_until.h).
 */
#ifndef WEIR_POLICY_ENTRY_H
#define WEIR_POLICY_ENTRY_H

#include "policy/key_form.h"
#include "policy/policy.h"

/* Size of a name's canonical text, with the terminator. */
#define ENTRY_NAME_SIZE (WEIR_MAX_NAME + 1 + 3 * KEY_FORM_SIZE + 1)

enum entry_kind {
    ENTRY_KEY,    /* a key's bytes */
    ENTRY_HASHED, /* the hash in the key's record name */
    ENTRY_NETWORK /* all keys of a network */
};

/* In the place of a policy's name: all policies. */
#define ENTRY_ALL "*"

struct entry_name {
    char policy[WEIR_MAX_NAME + 1]; /* ENTRY_ALL: then it is of a network, which may be a single address */
    const weir_key_form *form;      /* of the policy's keys */
    enum entry_kind kind;
    size_t length; /* of the bytes: of a key, or of its hash */
    unsigned char bytes[KEY_FORM_SIZE];
    struct key_network network;
};

struct entry_value {
    enum override override;                                    /* OVERRIDE_NONE: the value is the numbers below */
    uint64_t limits[WEIR_MAX_LIMITS], bursts[WEIR_MAX_LIMITS]; /* a burst of 0: as the limit */
    uint64_t until_ns; /* fleet time from which on the entry is not in force; 0: it has no end */
};

/* Reads a name. 0, or -EINVAL with a sentence. No set needs to have the policy. */
int entry_name_read(const struct policy_names *names, const char *text, struct entry_name *out, weir_error *error);

/* Whether a name is of all policies. */
bool entry_name_is_of_all(const struct entry_name *name);

/*
 * What a name of all policies is in one of them. False: the keys of the policy are no addresses, or they are larger
 * networks.
 */
bool entry_name_in(const struct policy_names *names, const char *policy, const struct entry_name *of_all,
                   struct entry_name *out);

/* Writes the canonical text of a name. */
void entry_name_write(const struct entry_name *name, char out[ENTRY_NAME_SIZE]);

/* Reads a value for a policy as configured. 0, or -EINVAL with a sentence. */
int entry_value_read(const weir_policy *policy, const char *text, struct entry_value *out, weir_error *error);

/* Reads a value for all policies, which is a word. 0, or -EINVAL with a sentence. */
int entry_value_read_all(const char *text, struct entry_value *out, weir_error *error);

/* Reads a value for a compiled policy. 0, or -EINVAL with a sentence. */
int entry_value_compile(const struct policy *policy, const char *text, struct entry_value *out, weir_error *error);

#endif
