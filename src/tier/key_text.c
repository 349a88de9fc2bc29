/* SPDX-License-Identifier: Apache-2.0 */
#include "tier/key_text.h"

#include <string.h>

#include "base/hash.h"

#define HASH_SIZE 16

static const char digits[] = "0123456789abcdef";

static size_t hex(char *out, const unsigned char *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        out[2 * i] = digits[bytes[i] >> 4];
        out[2 * i + 1] = digits[bytes[i] & 15];
    }
    return 2 * length;
}

static size_t escape(char *out, const unsigned char *bytes, size_t length)
{
    size_t at = 0;
    for (size_t i = 0; i < length; i++) {
        const unsigned char byte = bytes[i];
        if (byte > ' ' && byte < 0x7f && byte != '%' && byte != '{' && byte != '}') {
            out[at++] = (char) byte;
        } else {
            out[at++] = '%';
            at += hex(out + at, &byte, 1);
        }
    }
    return at;
}

void key_keep(struct kept_key *out, const struct policy *policy, const weir_key *key)
{
    if (key->length <= KEPT_SIZE && !policy->hash_keys) {
        out->flags = 0;
        out->length = (uint8_t) key->length;
        if (key->length != 0) {
            memcpy(out->bytes, key->data, key->length);
        }
        return;
    }
    uint64_t hash[2];
    hash_shared(key->data, key->length, hash);
    const size_t prefix = policy->hash_keys ? 0 : KEPT_PREFIX;
    out->flags = policy->hash_keys ? KEPT_HASHED | KEPT_NAKED : KEPT_HASHED;
    out->length = (uint8_t) (prefix + sizeof(hash));
    memcpy(out->bytes, key->data, prefix);
    memcpy(out->bytes + prefix, hash, sizeof(hash));
}

size_t key_text_write(char out[KEY_TEXT_SIZE], const struct kept_key *key)
{
    size_t at;
    if ((key->flags & KEPT_HASHED) != 0) {
        const size_t readable = (key->flags & KEPT_NAKED) != 0 ? 0 : KEPT_PREFIX;
        at = escape(out, key->bytes, readable);
        out[at++] = '~';
        at += hex(out + at, key->bytes + readable, HASH_SIZE);
    } else {
        at = escape(out, key->bytes, key->length);
    }
    out[at] = '\0';
    return at;
}
