/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Policy files without memory: whichever allocation fails, the error is -ENOMEM and not that the file is malformed, and
 * all that was allocated before is given back.
 * The linker's --wrap leads the library's allocations here (tests/meson.build). The functions below replace libyaml's
 * of the same names: a program's symbols go before a shared library's.
 *
 * Guards: src/policy/tree.c, src/policy/text_file.c, src/policy/policy_file.c, src/policy/file_policies.c,
 * src/policy/file_entries.c, src/policy/override_set.c, src/policy/policy_set.c
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/support.h"

/* Names that the linker and libyaml give. */
void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
char *__real_strdup(const char *text);
void __real_free(void *old);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
char *__wrap_strdup(const char *text);
void __wrap_free(void *old);
void *yaml_malloc(size_t size);
void *yaml_realloc(void *old, size_t size);
void yaml_free(void *old);
char *yaml_strdup(const char *text);

/* The allocation that fails, counted from 1; 0: none does. */
static size_t fails;
static size_t seen, seen_in_yaml;

/* Blocks that are in use. */
static size_t held;

static void *hold(void *block)
{
    held += block != NULL;
    return block;
}

static bool is_refused(void)
{
    return ++seen == fails;
}

void *__wrap_malloc(size_t size)
{
    return is_refused() ? NULL : hold(__real_malloc(size));
}

void *__wrap_calloc(size_t count, size_t size)
{
    return is_refused() ? NULL : hold(__real_calloc(count, size));
}

void *__wrap_realloc(void *old, size_t size)
{
    if (is_refused()) {
        return NULL;
    }
    const size_t was = old != NULL;
    void *block = hold(__real_realloc(old, size));
    held -= block != NULL ? was : 0;
    return block;
}

void __wrap_free(void *old)
{
    held -= old != NULL;
    __real_free(old);
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return is_refused() ? NULL : hold(__real_aligned_alloc(alignment, size));
}

char *__wrap_strdup(const char *text)
{
    return is_refused() ? NULL : hold(__real_strdup(text));
}

void *yaml_malloc(size_t size)
{
    seen_in_yaml++;
    return malloc(size != 0 ? size : 1);
}

void *yaml_realloc(void *old, size_t size)
{
    seen_in_yaml++;
    return realloc(old, size != 0 ? size : 1);
}

void yaml_free(void *old)
{
    free(old);
}

char *yaml_strdup(const char *text)
{
    seen_in_yaml++;
    const size_t size = strlen(text) + 1;
    char *copy = malloc(size);
    return copy != NULL ? memcpy(copy, text, size) : NULL;
}

/* What makes libyaml allocate: directives, tags, anchors, escapes, values of several lines, lists in lists. */
static const char policies[] =
    "%YAML 1.1\n---\npolicies:\n"
    "  - name: !!str api\n    mode: &m shadow\n    hash_keys: >-\n      true\n"
    "    limits:\n"
    "      - {algorithm: \"token\\x5fbucket\", limit: 100, period: 1s, name: 'per\n second'}\n"
    "      - {algorithm: fixed_window, limit: 100000, calendar: month}\n"
    "    tiers:\n      - name: pro\n        limits:\n"
    "          - algorithm: sliding_log\n            limit: 100\n            period: |-\n"
    "              1h\n"
    "  - {name: other, limits: [{algorithm: fixed_window, limit: 1, period: 1s}]}\n"
    "overrides: {other:a: deny, other:b: 5, other:c: allow}\n";

static void test_without_memory_a_file_is_not_called_malformed(void **state)
{
    (void) state;
    char path[] = "/tmp/weir-policies-XXXXXX";
    const int fd = mkstemp(path);
    assert_int_equal(write(fd, policies, sizeof(policies) - 1), sizeof(policies) - 1);
    assert_int_equal(close(fd), 0);
    weir_options options = WEIR_OPTIONS_INIT;
    options.no_thread = true; /* no other thread allocates */
    weir *w = open_or_fail(&options);
    const weir_limit limit = {.algorithm = WEIR_FIXED_WINDOW, .limit = 1, .period_ns = SECOND};
    size_t failed = 0;
    size_t held_before = 0;
    for (size_t number = 1, all = 1; number <= all; number++) {
        weir_error error;
        (void) set_one_policy(w, &limit, 1, WEIR_SCOPE_FLEET);
        assert_true(number == 1 || held == held_before);
        held_before = held;
        seen = 0;
        fails = number;
        const int result = weir_load_policies(w, path, &error);
        fails = 0;
        all = seen >= number ? number + 1 : number; /* until fewer are asked for */
        if (result == 0) {                          /* also where what failed is not needed */
            assert_int_not_equal(weir_find_policy(w, "api/pro"), WEIR_NO_POLICY);
            weir_stats stats;
            weir_get_stats(w, &stats);
            assert_int_equal(stats.override_count, 3);
        } else if (result != -ENOMEM || error.code != -ENOMEM || strstr(error.message, "memory") == NULL) {
            fail_msg("allocation %zu: %d, %s", number, result, error.message);
        } else {
            assert_int_not_equal(weir_find_policy(w, "p"), WEIR_NO_POLICY); /* the old set stays */
            assert_int_equal(held, held_before);
            failed++;
        }
    }
    assert_true(failed > 10);
    if (seen_in_yaml == 0) {
        print_message("libyaml is bound to its own allocator: its allocations were not tried\n");
    }
    weir_close(w);
    assert_int_equal(held, 0);
    (void) unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_without_memory_a_file_is_not_called_malformed)};
    return cmocka_run_group_tests_name("unit/policy/yaml_memory", tests, NULL, NULL);
}
