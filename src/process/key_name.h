/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is kept of a key's bytes, and how a person reads it, in the names of records and elsewhere: in the form of its
 * policy's keys (policy/key_form.h); of a key that is hashed, or longer than is kept, what is kept of it, '~' and the
 * hash.
 */
#ifndef WEIR_PROCESS_KEY_NAME_H
#define WEIR_PROCESS_KEY_NAME_H

#include <stddef.h>
#include <stdint.h>

#include "policy/policy.h"
#include "weir/weir.h"

#define KEY_NAME_SIZE   32
#define KEY_NAME_PREFIX 12 /* bytes of a long key that stay readable before its hash */

#define KEY_NAME_HASHED    1 /* the last 16 bytes are a hash of the whole: the key was longer, or must not be told */
#define KEY_NAME_HASH_ONLY 2 /* and nothing stands before it */

struct key_name {
    uint8_t flags;  /* KEY_NAME_* */
    uint8_t length; /* of the bytes below */
    unsigned char bytes[KEY_NAME_SIZE];
};

/* Of the longest: every byte escaped; and the end. */
#define KEY_NAME_TEXT_SIZE (3 * KEY_NAME_SIZE + 1)

_Static_assert(3 * KEY_NAME_PREFIX + 1 + 2 * 16 < KEY_NAME_TEXT_SIZE, "a hashed key fits as well");

/* Keeps what there is room for, and what the policy lets be told. */
void key_name_make(struct key_name *out, const struct policy *policy, const weir_key *key);

/* Terminated; returns its length. `form`: of the policy's keys; NULL: bytes. */
size_t key_name_write(char out[KEY_NAME_TEXT_SIZE], const struct key_name *key, const weir_key_form *form);

#endif
