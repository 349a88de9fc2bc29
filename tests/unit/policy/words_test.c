/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The word that a misspelt one means, against the plainest count of the changes between two words; and words before a
 * colon that lacks its space.
 *
 * Guards: src/policy/words.c, src/policy/colon.c
 */
#include "policy/words.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "policy/colon.h"
#include "support/support.h"

#define LONGEST "a_word_of_63_letters_which_is_as_long_as_a_policys_name_may_be_"

static char folded(char c)
{
    return (char) (c == '-' || c == ' ' ? '_' : c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
}

/* The least number of letters inserted, left out, changed and swapped, by trying each of them at the words' ends. */
static size_t changes(const char *a, size_t a_length, const char *b, size_t b_length)
{
    if (a_length == 0 || b_length == 0) {
        return a_length + b_length;
    }
    const char last_a = folded(a[a_length - 1]);
    const char last_b = folded(b[b_length - 1]);
    if (last_a == last_b) {
        return changes(a, a_length - 1, b, b_length - 1);
    }
    size_t least = 1 + changes(a, a_length - 1, b, b_length - 1);
    const size_t left_out = 1 + changes(a, a_length - 1, b, b_length);
    const size_t inserted = 1 + changes(a, a_length, b, b_length - 1);
    least = left_out < least ? left_out : least;
    least = inserted < least ? inserted : least;
    if (a_length > 1 && b_length > 1 && last_a == folded(b[b_length - 2]) && folded(a[a_length - 2]) == last_b) {
        const size_t swapped = 1 + changes(a, a_length - 2, b, b_length - 2);
        least = swapped < least ? swapped : least;
    }
    return least;
}

static void draw_word(uint64_t *rng, char out[10])
{
    static const char letters[] = "abcABC_- ";
    const size_t length = random_below(rng, 10);
    for (size_t i = 0; i < length; i++) {
        out[i] = letters[random_below(rng, sizeof(letters) - 1)];
    }
    out[length] = '\0';
}

static void test_the_nearest_word_is_the_first_of_those_with_the_fewest_changes(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    size_t near = 0;
    for (unsigned i = 0; i < test_draws(4000); i++) {
        char drawn[4][10];
        const char *names[4];
        for (size_t j = 0; j < 4; j++) {
            draw_word(&rng, drawn[j]);
            names[j] = draw_once_in(&rng, 8) ? NULL : drawn[j];
        }
        const struct words words = {.names = names, .count = 4};
        char typed[10];
        draw_word(&rng, typed);
        /* One change for three letters; a short word may have one as well. */
        const size_t length = strlen(typed);
        size_t fewest = length < 6 ? 2 : length / 3 + 1;
        const char *expected = NULL;
        for (size_t j = 0; j < 4; j++) {
            if (names[j] != NULL && *names[j] != '\0' && length != 0) {
                const size_t way = changes(typed, length, names[j], strlen(names[j]));
                expected = way < fewest ? names[j] : expected;
                fewest = way < fewest ? way : fewest;
            }
        }
        size_t distance = 99;
        const char *nearest = words_nearest(&words, typed, &distance);
        if (nearest != expected) {
            fail_msg("\"%s\" is nearest to \"%s\", not to \"%s\"", typed, expected != NULL ? expected : "none",
                     nearest != NULL ? nearest : "none");
        }
        if (expected != NULL) {
            assert_int_equal(distance, fewest);
            near++;
        }
    }
    assert_true(near > test_draws(4000) / 20);
}

static void test_words_of_up_to_63_letters_are_compared(void **state)
{
    (void) state;
    static const char *const names[] = {LONGEST "d", LONGEST};
    static const struct words words = {.names = names, .count = 2};
    size_t distance = 99;
    assert_ptr_equal(
        words_nearest(&words, "A-WORD-of 63-letters which-is as long as_a_policys_name_may_be-", &distance), names[1]);
    assert_int_equal(distance, 0);
    assert_ptr_equal(
        words_nearest(&words, "1a_word_of_63_letters_which_is_as_long_as_a_policys_name_may_be", &distance), names[1]);
    assert_int_equal(distance, 2);
    assert_null(words_nearest(&words, LONGEST "d", &distance)); /* it has 64 */
    assert_null(words_alias(&words, LONGEST "d"));
    assert_null(words_nearest(&words, "", &distance));
    assert_int_equal(words_find(&words, LONGEST "d"), 0); /* as it stands, however long */
    assert_int_equal(words_find(&words, LONGEST), 1);
}

static void test_an_alias_goes_before_the_nearest_word(void **state)
{
    (void) state;
    static const char *const names[] = {NULL, "shadow", "enforce"};
    static const struct word_alias aliases[] = {{"dry_run", "shadow"}, {"shadov", "enforce"}};
    static const struct words words = {.names = names, .count = 3, .aliases = aliases, .alias_count = 2};
    assert_string_equal(words_alias(&words, "Dry-Run"), "shadow");
    assert_string_equal(words_alias(&words, "dry run"), "shadow");
    assert_null(words_alias(&words, "dryrun"));
    assert_null(words_alias(&words, "shadow"));
    assert_null(words_alias(&words, ""));
    assert_string_equal(words_meant(&words, "shadov"), "enforce");
    assert_string_equal(words_meant(&words, "shado"), "shadow");
    assert_null(words_meant(&words, "xyz"));
    assert_int_equal(words_find(&words, "enforce"), 2);
    assert_int_equal(words_find(&words, "Enforce"), WORD_NONE);
    assert_int_equal(words_find(&words, ""), WORD_NONE);
}

/* More words stand behind them in memory, and are not read. */
static void test_the_words_and_aliases_end_with_their_counts(void **state)
{
    (void) state;
    static const char *const names[] = {"shadow", "enforce", "behind", "ahead"};
    static const struct word_alias aliases[] = {{"dry_run", "shadow"}, {"late", "behind"}};
    static const struct words words = {.names = names, .count = 2, .aliases = aliases, .alias_count = 1};
    size_t distance = 0;
    char out[40];
    assert_int_equal(words_find(&words, "enforce"), 1);
    assert_int_equal(words_find(&words, "behind"), WORD_NONE);
    assert_string_equal(words_alias(&words, "dry_run"), "shadow");
    assert_null(words_alias(&words, "late"));
    assert_null(words_nearest(&words, "behind", &distance));
    assert_string_equal(words_list(&words, out, sizeof(out)), "shadow, enforce");
    static const struct words none = {.names = names};
    assert_string_equal(words_list(&none, out, sizeof(out)), "");
    assert_int_equal(words_find(&none, "shadow"), WORD_NONE);
}

static void test_a_list_of_words_is_cut_where_the_buffer_ends(void **state)
{
    (void) state;
    static const char *const names[] = {NULL, "one", NULL, "two", "three"};
    static const struct words words = {.names = names, .count = 5};
    static const char whole[] = "one, two, three";
    for (size_t size = 1; size < sizeof(whole) + 3; size++) {
        char out[sizeof(whole) + 4];
        memset(out, '!', sizeof(out));
        assert_ptr_equal(words_list(&words, out, size), out);
        const size_t length = size < sizeof(whole) ? size - 1 : strlen(whole);
        assert_int_equal(strlen(out), length);
        assert_memory_equal(out, whole, length);
        assert_int_equal(out[size], '!');
    }
}

/* Colons */

static void test_a_word_is_small_letters_before_a_colon_without_a_space(void **state)
{
    (void) state;
    static const struct {
        const char *text;
        size_t word;
    } all[] = {{"limit:100", 5}, {"a:b", 1},      {"hash_keys:x", 9}, {"z_:{", 2}, {"limit: 1", 0},
               {"limit:\t1", 0}, {"limit:", 0},   {":100", 0},        {"", 0},     {"limit", 0},
               {"Limit:1", 0},   {"limit1:1", 0}, {"l-m:1", 0},       {"`:1", 0},  {"{:1", 0}};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        assert_int_equal(colon_word(all[i].text, strlen(all[i].text)), all[i].word);
    }
    assert_int_equal(colon_word("limit:100", 7), 5); /* the size is the end */
    assert_int_equal(colon_word("limit:100", 6), 0);
    assert_int_equal(colon_word("limit:100", 5), 0);
}

static void expect_colon(const char *text, uint32_t line, const char *says)
{
    weir_error error = {.message = ""};
    const struct text_file file = {
        .path = "f", .error = &error, .text = (char *) (uintptr_t) text, .size = strlen(text)};
    assert_int_equal(colon_fail_in_lines(&file, line), says != NULL);
    assert_string_equal(error.message, says != NULL ? says : "");
    assert_int_equal(error.code, says != NULL ? -EINVAL : 0);
}

static void test_the_first_of_joined_lines_is_named_where_its_space_belongs(void **state)
{
    (void) state;
#define LACKS ": a space is lacking after the colon; write "
    expect_colon("x: 1\n  - a:1\n    b:2\n    c:3\n", 4, "f:2:7" LACKS "\"a: 1\"");
    expect_colon("x: 1\n  - a:1\n    b:2\n    c:3\n", 2, "f:2:7" LACKS "\"a: 1\"");
    expect_colon("x: 1\n  - a:1\n    b:2\n    c:3\n", 1, NULL);
    expect_colon("a:1\nx: 1\nc:3\n", 3, "f:3:3" LACKS "\"c: 3\"");
    expect_colon("a:1\n", 0, NULL);
    expect_colon("a:1\n\n", 2, NULL);
    /* Eight lines are looked at. */
    expect_colon("a:1\nb:1\nc:1\nd:1\ne:1\nf:1\ng:1\nh:1\ni:1\n", 8, "f:1:3" LACKS "\"a: 1\"");
    expect_colon("a:1\nb:1\nc:1\nd:1\ne:1\nf:1\ng:1\nh:1\ni:1\n", 9, "f:2:3" LACKS "\"b: 1\"");
    /* How far a value goes. */
    expect_colon("a:1 2\n", 1, "f:1:3" LACKS "\"a: 1\"");
    expect_colon("a:1,b\n", 1, "f:1:3" LACKS "\"a: 1\"");
    expect_colon("a:1}\n", 1, "f:1:3" LACKS "\"a: 1\"");
    expect_colon("a:1]\n", 1, "f:1:3" LACKS "\"a: 1\"");
    expect_colon("a:1#\n", 1, "f:1:3" LACKS "\"a: 1\"");
    expect_colon("abc:[1]\n", 1, "f:1:5" LACKS "\"abc: ...\"");
    expect_colon("a:{b}\n", 1, "f:1:3" LACKS "\"a: ...\"");
    expect_colon("a:'b'\n", 1, "f:1:3" LACKS "\"a: ...\"");
    expect_colon("a:\"b\"\n", 1, "f:1:3" LACKS "\"a: ...\"");
#define FORTY "abcdefghijabcdefghijabcdefghijabcdefghij"
    expect_colon(FORTY ":" FORTY "\n", 1, "f:1:42" LACKS "\"" FORTY ": " FORTY "\"");
    expect_colon(FORTY "k:" FORTY "k\n", 1, "f:1:43" LACKS "\"" FORTY ": " FORTY "\"");
    weir_error error;
    const struct text_file file = {.path = "f", .error = &error};
    assert_int_equal(colon_fail(&file, (struct place){7, 3}, "limit:100", 5), -EINVAL);
    assert_string_equal(error.message, "f:7:9" LACKS "\"limit: 100\"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_nearest_word_is_the_first_of_those_with_the_fewest_changes),
        cmocka_unit_test(test_words_of_up_to_63_letters_are_compared),
        cmocka_unit_test(test_an_alias_goes_before_the_nearest_word),
        cmocka_unit_test(test_the_words_and_aliases_end_with_their_counts),
        cmocka_unit_test(test_a_list_of_words_is_cut_where_the_buffer_ends),
        cmocka_unit_test(test_a_word_is_small_letters_before_a_colon_without_a_space),
        cmocka_unit_test(test_the_first_of_joined_lines_is_named_where_its_space_belongs),
    };
    return cmocka_run_group_tests_name("unit/policy/words", tests, NULL, NULL);
}
