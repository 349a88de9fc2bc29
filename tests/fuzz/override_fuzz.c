/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Overrides as people write them into Redis and into files: names, values, and the ends of values. What is read of a
 * text, written anew, is read as the same; numbers are within the bounds of limits; and an end is the time that the C
 * library makes of it.
 *
 * An input is the number of limits, a name up to a line end, and a value.
 */
#include <inttypes.h>
#include <time.h>

#include "fuzz.h"
#include "policy/entry.h"
#include "policy/entry_until.h"
#include "policy/policy_names.h"

#define NS_PER_S UINT64_C(1000000000)

/* The least size of a key whose text may be that of a hash. */
#define HASHED_TEXT_SIZE 33

/* Policies whose keys are bytes, addresses of each form, and networks. */
static struct policy_names names;

static void make_names(void)
{
    static const struct {
        const char *name;
        unsigned bits;
    } forms[] = {{"a48", 48}, {"a56", 56}, {"a64", 64}, {"a", 128}};
    for (size_t i = 0; i < COUNT_OF(forms); i++) {
        CHECK(policy_names_set_form(&names, forms[i].name, weir_address_form(forms[i].bits)) == 0);
    }
    CHECK(policy_names_set_form(&names, "n16", weir_network_form(4, 16)) == 0);
    CHECK(policy_names_set_form(&names, "n20", weir_network_form(6, 20)) == 0);
}

static bool is_same_name(const struct entry_name *a, const struct entry_name *b)
{
    return strcmp(a->policy, b->policy) == 0 && a->form == b->form && a->kind == b->kind && a->length == b->length &&
           memcmp(a->bytes, b->bytes, sizeof(a->bytes)) == 0 && a->network.length == b->network.length &&
           a->network.bits == b->network.bits && memcmp(a->network.bytes, b->network.bytes, a->network.length) == 0;
}

static void check_name(const char *text)
{
    struct entry_name name;
    struct entry_name again;
    weir_error error = {.code = 0};
    char written[ENTRY_NAME_SIZE];
    char written_again[ENTRY_NAME_SIZE];
    if (entry_name_read(&names, text, &name, &error) != 0) {
        check_sentence(error.message, sizeof(error.message));
        return;
    }
    CHECK(name.length <= KEY_FORM_SIZE);
    /* Of all policies a single address is a network, too. */
    CHECK(name.kind != ENTRY_NETWORK ||
          name.network.bits < 8 * name.network.length + (entry_name_is_of_all(&name) ? 1 : 0));
    entry_name_write(&name, written);
    CHECK(memchr(written, '\0', sizeof(written)) != NULL);
    CHECK(entry_name_read(&names, written, &again, &error) == 0);
    /* A key of so many bytes is known by its hash, and its own text may be that of another one. */
    CHECK(is_same_name(&name, &again) || (name.kind == ENTRY_KEY && name.length >= HASHED_TEXT_SIZE));
    entry_name_write(&again, written_again);
    CHECK(again.kind != name.kind || strcmp(written, written_again) == 0);
}

static void write_time(uint64_t ns, char out[32])
{
    const time_t seconds = (time_t) (ns / NS_PER_S);
    struct tm parts;
    CHECK(gmtime_r(&seconds, &parts) != NULL && strftime(out, 32, "%Y-%m-%dT%H:%M:%SZ", &parts) == 20);
}

/* What a time's text leaves out is zeros. */
static void check_until(const char *text)
{
    uint64_t ns, again;
    char whole[32];
    weir_error error = {.code = 0};
    if (entry_until_read(text, &ns, &error) != 0) {
        check_sentence(error.message, sizeof(error.message));
        return;
    }
    write_time(ns, whole);
    const size_t length = strcspn(text, "Z");
    CHECK(length <= 19 && strncmp(text, whole, length) == 0);
    CHECK(strcmp(whole + length, &"0000-00-00T00:00:00Z"[length]) == 0);
    CHECK(entry_until_read(whole, &again, NULL) == 0 && again == ns);
}

static void write_value(const struct entry_value *value, size_t limit_count, char out[256])
{
    int size = 0;
    out[0] = '\0';
    for (size_t i = 0; i < limit_count && value->override == OVERRIDE_NONE; i++) {
        size +=
            snprintf(out + size, 256 - (size_t) size, value->bursts[i] != 0 ? "%s%" PRIu64 "/%" PRIu64 : "%s%" PRIu64,
                     i == 0 ? "" : " ", value->limits[i], value->bursts[i]);
    }
    if (value->override != OVERRIDE_NONE) {
        size += snprintf(out, 256, value->override == OVERRIDE_ALLOW ? "allow" : "deny");
    }
    if (value->until_ns != 0) {
        char until[32];
        write_time(value->until_ns, until);
        size += snprintf(out + size, 256 - (size_t) size, " until %s", until);
    }
    CHECK(size < 256);
}

static void check_value(const char *text, size_t limit_count)
{
    static const weir_limit limits[WEIR_MAX_LIMITS] = {
        {.algorithm = WEIR_TOKEN_BUCKET, .limit = 100, .period_ns = NS_PER_S, .burst = 20},
        {.algorithm = WEIR_SLIDING_LOG, .limit = 100, .period_ns = 60 * NS_PER_S},
        {.algorithm = WEIR_FIXED_WINDOW, .limit = 1000, .calendar = WEIR_CALENDAR_DAY},
        {.algorithm = WEIR_LEAKY_BUCKET, .limit = 10, .period_ns = NS_PER_S, .burst = 5},
    };
    const weir_policy policy = {.name = "api", .limits = limits, .limit_count = limit_count};
    struct entry_value value;
    struct entry_value again;
    char written[256];
    weir_error error = {.code = 0};
    if (entry_value_read(&policy, text, &value, &error) != 0) {
        check_sentence(error.message, sizeof(error.message));
        return;
    }
    for (size_t i = 0; i < limit_count && value.override == OVERRIDE_NONE; i++) {
        const uint64_t most = limits[i].algorithm == WEIR_SLIDING_LOG ? WEIR_MAX_LOG_UNITS : WEIR_MAX_UNITS;
        CHECK(value.limits[i] >= 1 && value.limits[i] <= most && value.bursts[i] <= WEIR_MAX_UNITS);
    }
    write_value(&value, limit_count, written);
    CHECK(entry_value_read(&policy, written, &again, &error) == 0);
    CHECK(memcmp(value.limits, again.limits, sizeof(value.limits)) == 0);
    CHECK(memcmp(value.bursts, again.bursts, sizeof(value.bursts)) == 0);
    CHECK(value.override == again.override && value.until_ns == again.until_ns);
}

/* A value for all policies is a word, which each policy reads as the same. */
static void check_value_of_all(const char *text)
{
    static const weir_limit limit = {.algorithm = WEIR_TOKEN_BUCKET, .limit = 100, .period_ns = NS_PER_S, .burst = 20};
    static const weir_policy policy = {.name = "api", .limits = &limit, .limit_count = 1};
    struct entry_value value;
    struct entry_value of_one;
    weir_error error = {.code = 0};
    if (entry_value_read_all(text, &value, &error) != 0) {
        check_sentence(error.message, sizeof(error.message));
        return;
    }
    CHECK(value.override == OVERRIDE_ALLOW || value.override == OVERRIDE_DENY);
    CHECK(entry_value_read(&policy, text, &of_one, NULL) == 0);
    CHECK(value.override == of_one.override && value.until_ns == of_one.until_ns);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, data + size};
    if (policy_names_form(&names, "a") == NULL) {
        make_names();
    }
    const size_t limit_count = 1 + input_choice(&in, WEIR_MAX_LIMITS);
    char *name = input_text(&in, "\n");
    char *value = input_text(&in, "\n");
    const char *until = strstr(value, " until ");
    check_name(name);
    check_value(value, limit_count);
    check_value_of_all(value);
    check_until(until != NULL ? until + strlen(" until ") : value);
    free(name);
    free(value);
    return 0;
}
