/* SPDX-License-Identifier: Apache-2.0 */
/* See record_text.h. */
#include "fleet/keys/record_text.h"

#include <stdint.h>
#include <string.h>

#include "base/digits.h"
#include "base/hash.h"
#include "policy/policy.h"
#include "process/key_name.h"

/* Hash tags of records, each written as three hexadecimal digits: enough to spread over a cluster. */
#define HASH_TAGS 1024

/* Appends a text to a name; returns its end. */
static char *name_add(char *to, const char *text)
{
    const size_t length = strlen(text);
    memcpy(to, text, length + 1);
    return to + length;
}

size_t record_text_write(char record[REPORT_RECORD_SIZE], const char *prefix, const struct policy *policy,
                         const struct policy_limit *limit, const char *key)
{
    /* All records of a key share a cluster slot: its hash tag is of the policy and the key, not of limit and window. */
    char partition[WEIR_MAX_NAME + KEY_NAME_TEXT_SIZE + 2];
    const char *const end = name_add(name_add(name_add(partition, policy->base), ":"), key);
    uint64_t hash[2];
    hash_shared(partition, (size_t) (end - partition), hash);
    const unsigned tag = (unsigned) (hash[0] % HASH_TAGS);
    const char braced[] = {':', '{', hex_digit(tag >> 8), hex_digit(tag >> 4), hex_digit(tag), '}', ':', '\0'};
    /* The name fits: see PREFIX_MAX, WEIR_MAX_NAME and KEY_NAME_TEXT_SIZE. */
    char *to = name_add(name_add(name_add(name_add(record, prefix), braced), limit->label), ":");
    return (size_t) (name_add(to, partition) - record);
}

void record_text_write_demand(char demand_record[REPORT_RECORD_SIZE], const char *prefix,
                              const struct policy_limit *limit, const char *record)
{
    static const char braces[] = ":{xxx}:";
    memcpy(demand_record, record, strlen(record) + 1);
    demand_record[strlen(prefix) + sizeof(braces) - 1 + strlen(limit->label)] = '?';
}
