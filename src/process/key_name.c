/* SPDX-License-Identifier: Apache-2.0 */
/* See key_name.h. */
#include "process/key_name.h"

#include <string.h>

#include "base/digits.h"
#include "base/percent.h"
#include "base/record_hash.h"
#include "policy/key_form.h"

void key_name_make(struct key_name *out, const struct record_hash *record_hash, const struct policy *policy,
                   const weir_key *key)
{
    if (key->length <= KEY_NAME_SIZE && !policy->hash_keys) {
        out->flags = 0;
        out->length = (uint8_t) key->length;
        if (key->length != 0) {
            memcpy(out->bytes, key->data, key->length);
        }
        return;
    }
    unsigned char hash[RECORD_HASH_SIZE];
    record_hash_of(record_hash, key->data, key->length, hash);
    const size_t prefix = policy->hash_keys ? 0 : KEY_NAME_PREFIX;
    out->flags = policy->hash_keys ? KEY_NAME_HASHED | KEY_NAME_HASH_ONLY : KEY_NAME_HASHED;
    out->length = (uint8_t) (prefix + sizeof(hash));
    memcpy(out->bytes, key->data, prefix);
    memcpy(out->bytes + prefix, hash, sizeof(hash));
}

size_t key_name_write(char out[KEY_NAME_TEXT_SIZE], const struct key_name *key, const weir_key_form *form)
{
    size_t at;
    if ((key->flags & KEY_NAME_HASHED) != 0) {
        const size_t readable = (key->flags & KEY_NAME_HASH_ONLY) != 0 ? 0 : KEY_NAME_PREFIX;
        at = percent_escape(out, key->bytes, readable);
        out[at++] = '~';
        at += hex_write(out + at, key->bytes + readable, RECORD_HASH_SIZE);
    } else {
        at = key_form_write(form, out, KEY_NAME_TEXT_SIZE, key->bytes, key->length);
    }
    out[at] = '\0';
    return at;
}
