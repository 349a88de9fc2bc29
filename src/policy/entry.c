/* SPDX-License-Identifier: Apache-2.0 */
/* See entry.h. */
#include "policy/entry.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/digits.h"
#include "base/error.h"
#include "base/numbers.h"
#include "base/record_hash.h"
#include "policy/entry_until.h"
#include "policy/validate.h"

/* The most characters before the hash of a long key: 12 bytes of the key (key_name.h), each escaped as %xx. */
#define PREFIX_TEXT_MAX 36

/* Reads a hash from its hexadecimal digits. False: `digits` is no hash. */
static bool hash_read(const char *digits, unsigned char out[RECORD_HASH_SIZE])
{
    for (size_t i = 0; i < RECORD_HASH_SIZE; i++) {
        const int byte = hex_read_byte(digits + 2 * i);
        if (byte < 0) {
            return false;
        }
        out[i] = (unsigned char) byte;
    }
    return digits[(size_t) 2 * RECORD_HASH_SIZE] == '\0';
}

/*
 * Reads a hashed key: the first bytes of the key, '~', and the hash in hexadecimal. False: `text` is none. A key whose
 * own text is such has 33 bytes or more, and is therefore known by its hash (key_name.h).
 */
static bool read_hashed(const char *text, struct entry_name *out)
{
    const char *mark = strrchr(text, '~');
    if (mark == NULL || mark - text > PREFIX_TEXT_MAX || !hash_read(mark + 1, out->bytes)) {
        return false;
    }
    out->kind = ENTRY_HASHED;
    out->length = RECORD_HASH_SIZE;
    return true;
}

/* The error for a text that names no key of the policy. */
static int fail_key(const struct entry_name *name, const char *text, weir_error *error)
{
    if (name->form == NULL) {
        return error_set(error, -EINVAL,
                         "the key \"%.60s\" is malformed; give at most %d bytes, others than printable ones as %%xx",
                         text, KEY_FORM_SIZE);
    }
    struct key_layout layout;
    if (key_form_layout(name->form, &layout) && layout.is_network) {
        char example[64];
        key_form_example(name->form, example, sizeof(example));
        return error_set(
            error, -EINVAL,
            "policy \"%s\" has no key \"%.60s\"; its keys are networks of IPv%u of %u bits: give one, such "
            "as %s, or one of fewer bits for all in it",
            name->policy, text, layout.v4.length != 0 ? 4U : 6U,
            layout.v4.length != 0 ? layout.v4.bits : layout.v6.bits, example);
    }
    if (weir_address_form(64) == name->form || strchr(text, '/') != NULL) {
        return error_set(error, -EINVAL,
                         "policy \"%s\" has no key \"%.60s\"; give an address such as %s, or a network without bits "
                         "behind its prefix, such as 198.51.100.0/24",
                         name->policy, text, name->form->example);
    }
    return error_set(error, -EINVAL, "policy \"%s\" has no key \"%.60s\"; give one such as %s", name->policy, text,
                     name->form->example);
}

/* Reads what stands behind "*:" : a network, or an address, which is a network of all its bits. */
static int read_of_all(const char *text, struct entry_name *out, weir_error *error)
{
    unsigned char bytes[KEY_FORM_SIZE];
    out->kind = ENTRY_NETWORK;
    out->form = weir_address_form(128);
    if (key_form_read_network(out->form, text, &out->network)) {
        return 0;
    }
    const size_t length = text[0] != '%' ? key_form_read(out->form, bytes, text) : SIZE_MAX;
    if (length == SIZE_MAX) {
        return error_set(error, -EINVAL,
                         "an entry of all policies is of addresses, and \"%.60s\" is none; give one such as "
                         "*:198.51.100.7, or a network without bits behind its prefix, such as *:198.51.100.0/24",
                         text);
    }
    out->network = (struct key_network){.length = length, .bits = (unsigned) (8 * length)};
    memcpy(out->network.bytes, bytes, length);
    return 0;
}

bool entry_name_is_of_all(const struct entry_name *name)
{
    return strcmp(name->policy, ENTRY_ALL) == 0;
}

bool entry_name_in(const struct policy_names *names, const char *policy, const struct entry_name *of_all,
                   struct entry_name *out)
{
    struct key_layout layout;
    const struct key_network *network = &of_all->network;
    memset(out, 0, sizeof(*out));
    (void) snprintf(out->policy, sizeof(out->policy), "%s", policy);
    out->form = policy_names_form(names, policy);
    if (!key_form_layout(out->form, &layout)) {
        return false;
    }
    const bool v4 = network->length == 4;
    const size_t length = v4 ? layout.v4.length : layout.v6.length;
    const unsigned bits = v4 ? layout.v4.bits : layout.v6.bits;
    if (length == 0 || network->bits > bits) {
        return false; /* a key counts other addresses, too */
    }
    if (network->bits < bits) {
        out->kind = ENTRY_NETWORK;
        out->network = *network;
        out->network.length = length;
        return true;
    }
    out->kind = ENTRY_KEY;
    out->length = length;
    memcpy(out->bytes, network->bytes, length);
    if (layout.is_network) {
        out->bytes[length - 1] = (unsigned char) bits;
    }
    return true;
}

int entry_name_read(const struct policy_names *names, const char *text, struct entry_name *out, weir_error *error)
{
    const char *colon = strchr(text, ':');
    memset(out, 0, sizeof(*out));
    if (colon == NULL || colon == text || (size_t) (colon - text) > WEIR_MAX_NAME) {
        return error_set(error, -EINVAL, "\"%.60s\" names no policy; give policy:key, such as api:198.51.100.7", text);
    }
    memcpy(out->policy, text, (size_t) (colon - text));
    if (entry_name_is_of_all(out)) {
        return read_of_all(colon + 1, out, error);
    }
    out->form = policy_names_form(names, out->policy);
    if (read_hashed(colon + 1, out)) {
        return 0;
    }
    if (key_form_read_network(out->form, colon + 1, &out->network)) {
        out->kind = ENTRY_NETWORK;
        return 0;
    }
    out->length = key_form_read(out->form, out->bytes, colon + 1);
    return out->length != SIZE_MAX ? 0 : fail_key(out, colon + 1, error);
}

void entry_name_write(const struct entry_name *name, char out[ENTRY_NAME_SIZE])
{
    const size_t length = strlen(name->policy);
    char *key = out + length + 1;
    const size_t size = ENTRY_NAME_SIZE - length - 1;
    size_t written;
    memcpy(out, name->policy, length);
    out[length] = ':';
    if (name->kind == ENTRY_HASHED) {
        key[0] = '~';
        written = 1 + hex_write(key + 1, name->bytes, name->length);
    } else if (name->kind == ENTRY_NETWORK) {
        written = key_form_write_network(&name->network, key, size);
    } else {
        written = key_form_write(name->form, key, size, name->bytes, name->length);
    }
    key[written] = '\0';
}

/* Reads a number of 1 to WEIR_MAX_UNITS and moves *text behind it. False: *text begins with no such number. */
static bool number_read(const char **text, uint64_t *out)
{
    *out = 0;
    const char *digits = *text;
    for (; **text >= '0' && **text <= '9'; (*text)++) {
        *out = saturating_add(saturating_mul(*out, 10), (uint64_t) (**text - '0'));
    }
    return *text != digits && *out != 0 && *out <= WEIR_MAX_UNITS;
}

/* Validates the limits of the policy up to this one, with the numbers of an override. */
static int check_numbers(const weir_policy *policy, size_t index, const struct entry_value *value, weir_error *error)
{
    weir_limit limits[WEIR_MAX_LIMITS];
    for (size_t i = 0; i <= index; i++) {
        limits[i] = policy->limits[i];
        limits[i].limit = value->limits[i];
        limits[i].burst = value->bursts[i];
        limits[i].delay = 0;
    }
    const weir_policy whole = {.name = policy->name, .limits = limits, .limit_count = index + 1};
    return validate_policies(&whole, 1, NULL, error);
}

/* Whether a value of `length` bytes is this word. */
static bool value_says(const char *text, size_t length, const char *word)
{
    return strlen(word) == length && strncmp(text, word, length) == 0;
}

/* Reads a word, where the value is one, and an end. NULL: the end is malformed; else where it begins, or the text ends.
 */
static const char *read_word(const char *text, struct entry_value *out, weir_error *error)
{
    static const char until[] = " until ";
    memset(out, 0, sizeof(*out));
    const char *end = strstr(text, until);
    if (end == NULL) {
        end = text + strlen(text);
    } else if (entry_until_read(end + sizeof(until) - 1, &out->until_ns, error) != 0) {
        return NULL;
    }
    if (value_says(text, (size_t) (end - text), "allow")) {
        out->override = OVERRIDE_ALLOW;
    } else if (value_says(text, (size_t) (end - text), "deny")) {
        out->override = OVERRIDE_DENY;
    }
    return end;
}

int entry_value_read_all(const char *text, struct entry_value *out, weir_error *error)
{
    if (read_word(text, out, error) == NULL) {
        return -EINVAL;
    }
    return out->override != OVERRIDE_NONE
               ? 0
               : error_set(error, -EINVAL, "\"%.60s\" is no value for all policies; give \"allow\" or \"deny\"", text);
}

int entry_value_read(const weir_policy *policy, const char *text, struct entry_value *out, weir_error *error)
{
    const char *at = text;
    const char *end = read_word(text, out, error);
    if (end == NULL) {
        return -EINVAL;
    }
    bool good = true;
    for (size_t i = 0; i < policy->limit_count && out->override == OVERRIDE_NONE && good; i++) {
        at += strspn(at, " ,");
        good = number_read(&at, &out->limits[i]);
        if (good && *at == '/') {
            at++;
            good = number_read(&at, &out->bursts[i]);
        }
        const int result = good ? check_numbers(policy, i, out, error) : 0;
        if (result != 0) {
            return result;
        }
    }
    if (out->override == OVERRIDE_NONE && (!good || at + strspn(at, " ") < end)) {
        return error_set(
            error, -EINVAL,
            "\"%.60s\" is no value for policy \"%s\"; give \"allow\", \"deny\" or a number for each of its "
            "limits (%zu), such as \"200/50 10000\"",
            text, policy->name, policy->limit_count);
    }
    return 0;
}

int entry_value_compile(const struct policy *policy, const char *text, struct entry_value *out, weir_error *error)
{
    weir_limit limits[WEIR_MAX_LIMITS];
    for (size_t i = 0; i < policy->limit_count; i++) {
        const struct rule *rule = &policy->limits[i].rule;
        limits[i] = (weir_limit){.algorithm = rule->algorithm,
                                 .period_ns = rule->calendar != WEIR_CALENDAR_NONE ? 0 : rule->period_ns,
                                 .calendar = rule->calendar};
    }
    const weir_policy plain = {.name = policy->name, .limits = limits, .limit_count = policy->limit_count};
    return entry_value_read(&plain, text, out, error);
}
