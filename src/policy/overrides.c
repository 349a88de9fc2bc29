/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/overrides.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/numbers.h"
#include "policy/validate.h"

/* Longest key that an entry can name, in bytes. */
#define KEY_SIZE 1024

struct entry {
    uint64_t key_hash;
    struct policy policy;
};

struct overrides {
    size_t count, slot_count; /* a power of two, more than twice the count */
    uint32_t *slots;          /* index + 1 of an entry; 0: free */
    struct entry entries[];
};

void overrides_drop(struct override_text *texts, size_t count)
{
    for (size_t i = 0; i < count && texts != NULL; i++) {
        free(texts[i].field);
        free(texts[i].value);
    }
    free(texts);
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Bytes from their escaped form; SIZE_MAX: malformed, or too long. */
static size_t unescape(unsigned char out[KEY_SIZE], const char *text)
{
    size_t at = 0;
    for (; *text != '\0'; text++) {
        if (at == KEY_SIZE) {
            return SIZE_MAX;
        }
        if (*text != '%') {
            out[at++] = (unsigned char) *text;
            continue;
        }
        const int high = hex_digit(text[1]);
        const int low = high >= 0 ? hex_digit(text[2]) : -1;
        if (low < 0) {
            return SIZE_MAX;
        }
        out[at++] = (unsigned char) (high * 16 + low);
        text += 2;
    }
    return at;
}

/* A whole number up to WEIR_MAX_UNITS; moves *text behind it. */
static bool number_read(const char **text, uint64_t *out)
{
    *out = 0;
    const char *digits = *text;
    for (; **text >= '0' && **text <= '9'; (*text)++) {
        *out = saturating_add(saturating_mul(*out, 10), (uint64_t) (**text - '0'));
    }
    return *text != digits && *out != 0 && *out <= WEIR_MAX_UNITS;
}

/* "200/50 10000": one number per limit. */
static bool numbers_read(const char *text, const struct policy *policy, uint64_t limits[WEIR_MAX_LIMITS],
                         uint64_t bursts[WEIR_MAX_LIMITS])
{
    for (size_t i = 0; i < policy->limit_count; i++) {
        const struct rule *rule = &policy->limits[i].rule;
        text += strspn(text, " ,");
        bursts[i] = 0;
        if (!number_read(&text, &limits[i])) {
            return false;
        }
        if (*text == '/') {
            text++;
            if (!number_read(&text, &bursts[i])) {
                return false;
            }
        }
        const weir_limit limit = {.algorithm = rule->algorithm,
                                  .limit = limits[i],
                                  .period_ns = rule->calendar != WEIR_CALENDAR_NONE ? 0 : rule->period_ns,
                                  .burst = bursts[i],
                                  .calendar = rule->calendar};
        const weir_policy whole = {.name = "x", .limits = &limit, .limit_count = 1};
        if (policy_validate(&whole, 1, NULL, NULL) != 0) {
            return false;
        }
    }
    return text[strspn(text, " ")] == '\0';
}

/* 1: compiled; 0: its policy is not there; -1: malformed. */
static int entry_compile(struct entry *entry, const struct override_context *context, const struct override_text *text)
{
    const char *colon = strchr(text->field, ':');
    char name[WEIR_MAX_NAME + 1];
    if (colon == NULL || colon == text->field || (size_t) (colon - text->field) > WEIR_MAX_NAME) {
        return -1;
    }
    memcpy(name, text->field, (size_t) (colon - text->field));
    name[colon - text->field] = '\0';
    unsigned char key[KEY_SIZE];
    const size_t length = unescape(key, colon + 1);
    if (length == SIZE_MAX) {
        return -1;
    }
    const weir_policy_id id = policy_names_find(context->names, name);
    const struct policy *policy = context->set->by_id[id];
    if (id == WEIR_NO_POLICY || policy == NULL) {
        return 0;
    }
    uint64_t limits[WEIR_MAX_LIMITS];
    uint64_t bursts[WEIR_MAX_LIMITS];
    const bool allow = strcmp(text->value, "allow") == 0;
    const bool deny = strcmp(text->value, "deny") == 0;
    if (!allow && !deny && !numbers_read(text->value, policy, limits, bursts)) {
        return -1;
    }
    policy_override(&entry->policy, policy, allow || deny ? NULL : limits, bursts, context->names, context->tick_ns);
    entry->policy.override = allow ? OVERRIDE_ALLOW : deny ? OVERRIDE_DENY : OVERRIDE_NONE;
    entry->key_hash = hash_keyed(context->secret, key, length) ^ context->names->salts[id];
    entry->key_hash = entry->key_hash != 0 ? entry->key_hash : 1; /* as weir_make_key */
    return 1;
}

struct overrides *overrides_compile(const struct override_context *context, const struct override_text *texts,
                                    size_t count, const struct override_text **first_bad, size_t *bad_count)
{
    *first_bad = NULL;
    *bad_count = 0;
    count = count <= OVERRIDES_MAX ? count : OVERRIDES_MAX;
    struct overrides *all = count != 0 ? calloc(1, sizeof(*all) + count * sizeof(all->entries[0])) : NULL;
    if (all == NULL) {
        return NULL;
    }
    all->slot_count = 16;
    while (all->slot_count <= 2 * count) {
        all->slot_count *= 2;
    }
    all->slots = calloc(all->slot_count, sizeof(*all->slots));
    if (all->slots == NULL) {
        free(all);
        return NULL;
    }
    for (size_t i = 0; i < count; i++) {
        struct entry *entry = &all->entries[all->count];
        const int result = entry_compile(entry, context, &texts[i]);
        if (result < 0 && (*bad_count)++ == 0) {
            *first_bad = &texts[i];
        }
        if (result <= 0) {
            continue;
        }
        size_t slot = (size_t) entry->key_hash & (all->slot_count - 1);
        while (all->slots[slot] != 0) {
            slot = (slot + 1) & (all->slot_count - 1);
        }
        all->slots[slot] = (uint32_t) ++all->count;
    }
    return all;
}

void overrides_free(struct overrides *overrides)
{
    if (overrides != NULL) {
        free(overrides->slots);
        free(overrides);
    }
}

const struct policy *overrides_find(const struct overrides *overrides, uint64_t key_hash, weir_policy_id policy)
{
    size_t slot = (size_t) key_hash & (overrides->slot_count - 1);
    for (; overrides->slots[slot] != 0; slot = (slot + 1) & (overrides->slot_count - 1)) {
        const struct entry *entry = &overrides->entries[overrides->slots[slot] - 1];
        if (entry->key_hash == key_hash && entry->policy.id == policy) {
            return &entry->policy;
        }
    }
    return NULL;
}

size_t overrides_count(const struct overrides *overrides)
{
    return overrides != NULL ? overrides->count : 0;
}

struct policy *overrides_at(struct overrides *overrides, size_t index)
{
    return &overrides->entries[index].policy;
}
