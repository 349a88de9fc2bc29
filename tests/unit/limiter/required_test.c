/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of policies that a program asks by: a set that lacks one is refused, and one that was in force and is lost is
 * told. What a set lacks is compared with a plain search for each name.
 *
 * Guards: src/policy/required.c, src/limiter/validate_file.c, src/limiter/dropped_policies.c, src/limiter/options.c,
 * src/limiter/set_policies.c, src/limiter/weir_open.c
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/independent.h"
#include "support/support.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))
#define NAME_63         "a23456789a123456789a123456789a123456789a123456789a123456789a123"

static const weir_limit limit = {.algorithm = WEIR_TOKEN_BUCKET, .limit = 1, .period_ns = SECOND};

static weir_error error;

/* The file of the test. */
static char path[] = "/tmp/weir-required-XXXXXX";

static int make_file(void **state)
{
    (void) state;
    const int fd = mkstemp(path);
    return fd >= 0 ? close(fd) : -1;
}

static int remove_file(void **state)
{
    (void) state;
    return remove(path);
}

/* Policies of these names, a space between two, each with a limit of 1 a second; and `rest` behind them. */
static void write_file(const char *names, const char *rest)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    (void) fputs("policies:\n", file);
    for (size_t length = 0; *names != '\0'; names += length + (names[length] == ' ')) {
        length = strcspn(names, " ");
        (void) fprintf(file, "  - {name: %.*s, limits: [{algorithm: token_bucket, limit: 1, period: 1s}]}\n",
                       (int) length, names);
    }
    (void) fputs(rest, file);
    assert_int_equal(fclose(file), 0);
}

/* The sentence behind the file's name. */
static const char *sentence(void)
{
    const char *at = strstr(error.message, path + 20);
    return at != NULL ? at + strlen(path + 20) : error.message;
}

struct log {
    unsigned count;
    weir_log_level level;
    char last[1024];
};

static void keep_line(void *arg, weir_log_level level, const char *message)
{
    struct log *log = arg;
    log->count++;
    log->level = level;
    (void) snprintf(log->last, sizeof(log->last), "%s", message);
}

static struct fake_clock fake;

static weir_options options_with(const char *const *required, size_t count, struct log *log)
{
    weir_options options = WEIR_OPTIONS_INIT;
    fake_clock_init(&fake, 1000 * SECOND);
    options.clock = &fake.clock;
    options.max_keys = 1000;
    options.max_threads = 2;
    options.required_policies = required;
    options.required_policy_count = count;
    options.log = log != NULL ? keep_line : NULL;
    options.log_arg = log;
    return options;
}

static void test_a_file_that_lacks_a_required_policy_is_refused_and_the_old_set_stays(void **state)
{
    (void) state;
    static const char *const required[] = {"api", "login", "api/free"};
    const weir_options options = options_with(required, COUNT_OF(required), NULL);
    weir *w = open_or_fail(&options);
    write_file("api login api/free more", "");
    assert_int_equal(weir_load_policies(w, path, &error), 0);
    const weir_policy_id login = weir_find_policy(w, "login");
    write_file("api logn api/free", "");
    assert_int_equal(weir_load_policies(w, path, &error), -EINVAL);
    assert_string_equal(sentence(), ": required policy \"login\" is missing; did you mean it by \"logn\"?");
    assert_int_equal(error.code, -EINVAL);
    assert_int_equal(weir_find_policy(w, "login"), login);
    assert_int_equal(weir_find_policy(w, "logn"), WEIR_NO_POLICY);
    assert_int_equal(weir_list_policies(w, NULL, NULL), 4);
    write_file("api login", "");
    assert_int_equal(weir_load_policies(w, path, &error), -EINVAL);
    assert_string_equal(sentence(), ": required policy \"api/free\" is missing; add it, or require it no longer");
    write_file("other", "");
    assert_int_equal(weir_load_policies(w, path, &error), -EINVAL);
    assert_string_equal(sentence(), ": required policy \"api\" is missing (1 of 3); add it, or require it no longer");
    weir_close(w);
}

static void test_a_set_of_the_program_is_held_to_the_same_names(void **state)
{
    (void) state;
    static const char *const required[] = {"api", "login"};
    static const weir_policy api = {.name = "api", .limits = &limit, .limit_count = 1};
    static const weir_policy both[] = {{.name = "api", .limits = &limit, .limit_count = 1},
                                       {.name = "login", .limits = &limit, .limit_count = 1}};
    char name[] = "login"; /* the library keeps a copy */
    const char *given[] = {"api", name};
    const weir_options options = options_with(given, COUNT_OF(given), NULL);
    weir *w = open_or_fail(&options);
    name[0] = 'x';
    given[0] = NULL;
    assert_int_equal(weir_set_policies(w, &api, 1, &error), -EINVAL);
    assert_string_equal(error.message, "required policy \"login\" is missing; add it, or require it no longer");
    assert_int_equal(weir_list_policies(w, NULL, NULL), 0);
    assert_int_equal(weir_set_policies(w, NULL, 0, NULL), -EINVAL);
    assert_int_equal(weir_set_policies(w, both, 2, &error), 0);
    /* A name of the file and a name of the program together are enough; what the file has is not enough. */
    write_file("login", "");
    assert_int_equal(weir_load_policies_with(w, path, &api, 1, &error), 0);
    assert_int_equal(weir_load_policies(w, path, &error), -EINVAL);
    assert_int_equal(weir_list_policies(w, NULL, NULL), 2);
    weir_close(w);
    (void) required;
}

static void test_options_refuse_what_can_be_no_policys_name(void **state)
{
    (void) state;
    static const char *const bad[] = {"", "a b", NAME_63 "4", "p\xc3\xa4"};
    const char *required[] = {"api", NULL};
    weir_options options = options_with(required, 2, NULL);
    weir *w = NULL;
    assert_int_equal(weir_open(&options, &w, &error), -EINVAL);
    assert_string_equal(error.message, "options: required_policies: name 2, NULL, can be no policy's; give 1 to 63 "
                                       "letters, digits, '.', '_', '-' or '/'");
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        required[1] = bad[i];
        assert_int_equal(weir_open(&options, &w, &error), -EINVAL);
        assert_non_null(strstr(error.message, "required_policies: name 2, \""));
        assert_int_equal(weir_validate_policies(path, required, 2, &error), -EINVAL);
    }
    options.required_policies = NULL;
    assert_int_equal(weir_open(&options, &w, &error), -EINVAL);
    assert_string_equal(error.message, "options: required_policies is NULL with a count of 2; give that many names");
    assert_null(w);
    required[1] = NAME_63;
    options.required_policies = required;
    w = open_or_fail(&options);
    weir_close(w);
}

/* Nothing is applied, and the answer is the one that a weir would give. */
static void test_a_file_is_validated_as_a_weir_would_load_it(void **state)
{
    (void) state;
    static const struct {
        const char *names, *rest;
    } files[] = {
        {"api", ""},
        {"", ""},
        {"api api", ""},
        {"api", "overrides: {\"api:198.51.100.7\": deny, \"api:2001:db8::/32\": allow}\n"},
        {"api", "overrides: {\"apo:198.51.100.7\": deny}\n"},
        {"api", "overrides: {\"api:198.51.100.7\": dney}\n"},
        {"api", "overrides: {\"api:a\": deny, \"api:%61\": allow}\n"},
        {"api", "overrides: {\"*:198.51.100.0/24\": deny}\n"},
        {"api", "limits: 1\n"},
        {"api", "\tx\n"},
    };
    for (size_t i = 0; i < COUNT_OF(files); i++) {
        weir_error other;
        const weir_options options = options_with(NULL, 0, NULL);
        weir *w = open_or_fail(&options);
        write_file(files[i].names, files[i].rest);
        const int expected = weir_load_policies(w, path, &other);
        assert_int_equal(weir_validate_policies(path, NULL, 0, &error), expected);
        assert_string_equal(error.message, other.message);
        weir_close(w);
    }
    assert_int_equal(weir_validate_policies("/tmp/weir-none/none", NULL, 0, &error), -ENOENT);
    assert_int_equal(weir_validate_policies(NULL, NULL, 0, &error), -EINVAL);
    assert_int_equal(weir_validate_policies(path, NULL, 1, &error), -EINVAL);
}

/* As many names as there can be, and one more; a tier without its group counts twice. */
static void test_a_file_of_too_many_policies_is_refused(void **state)
{
    (void) state;
    for (size_t over = 0; over < 2; over++) {
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        (void) fputs("policies:\n", file);
        for (size_t i = 0; i < WEIR_MAX_POLICIES - 1 + over; i++) {
            (void) fprintf(file, "  - {name: p%zu%s, limits: [{algorithm: token_bucket, limit: 1, period: 1s}]}\n", i,
                           i == 0 ? "/tier" : "");
        }
        assert_int_equal(fclose(file), 0);
        assert_int_equal(weir_validate_policies(path, NULL, 0, &error), over == 0 ? 0 : -ENOSPC);
        const weir_options options = options_with(NULL, 0, NULL);
        weir *w = open_or_fail(&options);
        assert_int_equal(weir_load_policies(w, path, &error), over == 0 ? 0 : -ENOSPC);
        weir_close(w);
    }
}

/* Drawn names that are near one another, against a search for each. */
static void test_what_is_missing_is_what_no_policy_is_called(void **state)
{
    (void) state;
    static const char *const words[] = {"api", "apo", "api/free", "login", "logni", "Login", "upload", NAME_63, "a"};
    uint64_t rng = test_seed();
    for (uint64_t draw = 0; draw < test_draws(500); draw++) {
        const char *required[COUNT_OF(words)];
        char names[512] = "";
        const char *missing = NULL;
        size_t required_count = 0;
        size_t missing_count = 0;
        bool any = false;
        for (size_t i = 0; i < COUNT_OF(words); i++) {
            const uint64_t bits = random_next(&rng);
            const bool there = (bits & 1) != 0;
            if (there) {
                (void) strcat(strcat(names, any ? " " : ""), words[i]);
                any = true;
            }
            if ((bits & 6) == 6) {
                required[required_count++] = words[i];
                missing_count += !there;
                missing = missing == NULL && !there ? words[i] : missing;
            }
        }
        write_file(any ? names : "none", "");
        const int result = weir_validate_policies(path, required, required_count, &error);
        assert_int_equal(result, missing != NULL ? -EINVAL : 0);
        if (missing != NULL) {
            char expected[160];
            char more[32] = "";
            if (missing_count > 1) {
                (void) snprintf(more, sizeof(more), " (1 of %zu)", missing_count);
            }
            (void) snprintf(expected, sizeof(expected), ": required policy \"%s\" is missing%s; ", missing, more);
            assert_memory_equal(sentence(), expected, strlen(expected));
        }
    }
}

/* The longest names, in a file whose path is longer than any sentence: the sentence is whole. */
static void test_the_longest_sentence_fits(void **state)
{
    (void) state;
    char near[] = NAME_63;
    near[40] = 'x';
    const char *const required[] = {NAME_63, "b", "c"};
    char directory[] = "/tmp/weir-required-XXXXXX";
    char linked[700];
    assert_non_null(mkdtemp(directory));
    (void) snprintf(linked, sizeof(linked), "%s/%0200d.yaml", directory, 7);
    write_file(near, "");
    assert_int_equal(link(path, linked), 0);
    assert_int_equal(weir_validate_policies(linked, required, 3, &error), -EINVAL);
    assert_non_null(strstr(error.message, ".yaml: required policy \"" NAME_63 "\" is missing (1 of 3); did you mean"));
    assert_int_equal(error.message[strlen(error.message) - 1], '?');
    assert_int_equal(unlink(linked), 0);
    assert_int_equal(rmdir(directory), 0);
}

static uint64_t dropped(const weir *w)
{
    weir_stats stats;
    weir_get_stats(w, &stats);
    return stats.dropped_policy_count;
}

static void load(weir *w, const char *names)
{
    write_file(names, "");
    if (weir_load_policies(w, path, &error) != 0) {
        fail_msg("%s", error.message);
    }
}

#define PASSES " passes. required_policies has the library refuse such a set"

static void test_a_policy_that_a_new_set_lacks_is_told_once_and_counted(void **state)
{
    (void) state;
    struct log log = {.count = 0};
    const weir_options options = options_with(NULL, 0, &log);
    weir *w = open_or_fail(&options);
    load(w, "api api/free login a b c d e f g");
    (void) weir_poll(w);
    assert_true(log.count == 0 && dropped(w) == 0);
    load(w, "api api/free logn a b c d e f g");
    assert_int_equal(log.count, 0); /* no call of the host's logs */
    assert_int_equal(dropped(w), 1);
    (void) weir_poll(w);
    assert_int_equal(log.level, WEIR_LOG_WARNING);
    assert_string_equal(log.last, "policy login is no longer in force, as the new set of policies has no such name; "
                                  "what is checked by it" PASSES);
    (void) weir_poll(w);
    load(w, "api api/free logn a b c d e f g");
    (void) weir_poll(w);
    assert_true(log.count == 1 && dropped(w) == 1);
    /* One that comes back is not lost, and what came and went before anybody looked is not told. */
    load(w, "login");
    load(w, "login api api/free logn a b c d e f");
    (void) weir_poll(w);
    assert_int_equal(dropped(w), 1);
    assert_string_equal(log.last, "policy g is no longer in force, as the new set of policies has no such name; what "
                                  "is checked by it" PASSES);
    load(w, "x");
    assert_int_equal(dropped(w), 11);
    (void) weir_poll(w);
    assert_int_equal(log.count, 3);
    assert_string_equal(log.last, "policies api, api/free, login, a, b, c, d, e and 2 more are no longer in force, as "
                                  "the new set of policies has no such names; what is checked by them" PASSES);
    assert_int_equal(weir_set_policies(w, NULL, 0, &error), 0);
    (void) weir_poll(w);
    assert_int_equal(dropped(w), 12);
    assert_non_null(strstr(log.last, "policy x is no longer"));
    /* A set that is refused drops nothing. */
    write_file("api api", "");
    assert_int_equal(weir_load_policies(w, path, &error), -EINVAL);
    assert_int_equal(dropped(w), 12);
    weir_close(w);
}

/* Weirs of one name stand for processes: whichever changes the policies, all count, and one tells. */
static void test_processes_that_share_a_weir_tell_once(void **state)
{
    (void) state;
    struct log logs[2] = {{.count = 0}, {.count = 0}};
    char name[SEGMENT_NAME_SIZE];
    weir *of[2];
    segment_name(name, "required");
    for (size_t i = 0; i < 2; i++) {
        static const char *const required[] = {"api"};
        weir_options options = options_with(required, i, &logs[i]); /* the second requires what the first does not */
        of[i] = open_named(name, &options);
    }
    load(of[0], "api login");
    load(of[1], "api");
    assert_true(dropped(of[0]) == 1 && dropped(of[1]) == 1);
    write_file("login", "");
    assert_int_equal(weir_load_policies(of[1], path, &error), -EINVAL);
    for (int turn = 0; turn < 10; turn++) {
        fake_clock_advance(&fake, 10 * MILLISECOND);
        (void) weir_poll(of[turn % 2]);
    }
    assert_int_equal(logs[0].count + logs[1].count, 1);
    load(of[0], "login");
    assert_true(dropped(of[0]) == 1 && dropped(of[1]) == 1);
    weir_close(of[0]);
    weir_close(of[1]);
    assert_int_equal(weir_unlink(name), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_file_that_lacks_a_required_policy_is_refused_and_the_old_set_stays),
        cmocka_unit_test(test_a_set_of_the_program_is_held_to_the_same_names),
        cmocka_unit_test(test_options_refuse_what_can_be_no_policys_name),
        cmocka_unit_test(test_a_file_is_validated_as_a_weir_would_load_it),
        cmocka_unit_test(test_a_file_of_too_many_policies_is_refused),
        cmocka_unit_test(test_what_is_missing_is_what_no_policy_is_called),
        cmocka_unit_test(test_the_longest_sentence_fits),
        cmocka_unit_test(test_a_policy_that_a_new_set_lacks_is_told_once_and_counted),
        cmocka_unit_test(test_processes_that_share_a_weir_tell_once),
    };
    return cmocka_run_group_tests_name("unit/limiter/required", tests, make_file, remove_file);
}
