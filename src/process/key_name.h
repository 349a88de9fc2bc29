/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The name of a key: its bytes, or, of a long or secret key, a hash of them. As text it stands in the names of records,
 * in lists and in logs. A name without a hash has the form of its policy's keys (policy/key_form.h). A name with a hash
 * is the readable prefix, '~' and the hash.
 */
#ifndef WEIR_PROCESS_KEY_NAME_H
#define WEIR_PROCESS_KEY_NAME_H

#include <stddef.h>
#include <stdint.h>

#include "policy/policy.h"
#include "weir/weir.h"

struct record_hash;

#define KEY_NAME_SIZE   32 /* bytes kept in memory for every key; most addresses and tokens fit */
#define KEY_NAME_PREFIX 12 /* bytes of a long key that stay readable before its hash */

#define KEY_NAME_HASHED    1 /* the last 16 bytes are a hash of the key, which was longer or is secret */
#define KEY_NAME_HASH_ONLY 2 /* there is no prefix before the hash */

struct key_name {
    uint8_t flags;  /* KEY_NAME_* */
    uint8_t length; /* of the bytes below */
    unsigned char bytes[KEY_NAME_SIZE];
};

/* Bytes of the longest text: every byte escaped, and the terminator. */
#define KEY_NAME_TEXT_SIZE (3 * KEY_NAME_SIZE + 1)

_Static_assert(3 * KEY_NAME_PREFIX + 1 + 2 * 16 < KEY_NAME_TEXT_SIZE, "a hashed key fits as well");

/* Keeps the key as it is, if it fits and the policy does not hash keys; else with its hash. */
void key_name_make(struct key_name *out, const struct record_hash *record_hash, const struct policy *policy,
                   const weir_key *key);

/* Writes the name as text, terminated; returns its length. `form`: of the policy's keys; NULL: bytes. */
size_t key_name_write(char out[KEY_NAME_TEXT_SIZE], const struct key_name *key, const weir_key_form *form);

#endif
