/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Malformed policy files: the error names the place of the fault, to the character, and what to do. And files that are
 * accepted.
 *
 * Guards: src/policy/tree.c, src/policy/fields.c, src/policy/values.c, src/policy/text_file.c, src/policy/words.c,
 * src/policy/colon.c, src/policy/policy_file.c, src/policy/file_policies.c, src/policy/policy_words.c,
 * src/policy/tree.h
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "policy/policy_file.h"
#include "policy/tree.h"
#include "support/support.h"

#define SIZE_MOST ((size_t) 1 << 20)

#define P    "policies:\n  - name: a\n"
#define HEAD P "    limits:\n"
#define GOOD "      - {algorithm: fixed_window, limit: 1, period: 1s}\n"

/* Three lines of a limit: `rest` begins in line 5. */
#define LIMIT(rest) HEAD "      - algorithm: token_bucket\n" rest

struct refused {
    const char *text, *says; /* what stands behind the path */
};

static char directory[] = "/tmp/weir-yaml-XXXXXX";
static char path[64];

static int make_directory(void **state)
{
    (void) state;
    assert_non_null(mkdtemp(directory));
    (void) snprintf(path, sizeof(path), "%s/policies.yaml", directory);
    return 0;
}

static int remove_directory(void **state)
{
    (void) state;
    (void) unlink(path);
    (void) rmdir(directory);
    return 0;
}

static void write_file(const char *file_path, const char *bytes, size_t size)
{
    FILE *file = fopen(file_path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

/* Each text is kept as a file of its own where WEIR_TEST_YAML_FILES names a directory: for schema_test.py. */
static void write_bytes(const char *bytes, size_t size)
{
    static unsigned count;
    const char *kept = getenv("WEIR_TEST_YAML_FILES");
    write_file(path, bytes, size);
    if (kept != NULL) {
        char copy[400];
        (void) snprintf(copy, sizeof(copy), "%s/%03u.yaml", kept, count++);
        write_file(copy, bytes, size);
    }
}

static int load(struct policy_file **out, weir_error *error)
{
    *out = NULL;
    memset(error, 'x', sizeof(*error));
    return policy_file_load(path, out, error);
}

static void refuse(const char *text, size_t size, int code, const char *says)
{
    struct policy_file *file;
    weir_error error;
    write_bytes(text, size);
    const int result = load(&file, &error);
    if (result == 0) {
        policy_file_free(file);
        fail_msg("taken: %.200s", text);
    }
    assert_null(file);
    assert_int_equal(result, code);
    assert_int_equal(error.code, code);
    assert_memory_equal(error.message, path, strlen(path));
    assert_string_equal(error.message + strlen(path), says);
}

static void refuse_all(const struct refused *all, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        refuse(all[i].text, strlen(all[i].text), -EINVAL, all[i].says);
    }
}

#define REFUSE_ALL(all) refuse_all(all, sizeof(all) / sizeof((all)[0]))

/* The policies of a file that must be good. */
static const weir_policy *take(const char *text, struct policy_file **file)
{
    weir_error error;
    size_t count;
    write_bytes(text, strlen(text));
    if (load(file, &error) != 0) {
        fail_msg("%s: %s", text, error.message);
    }
    assert_int_equal(error.code, 0);
    const weir_policy *policies = policy_file_policies(*file, &count);
    assert_int_not_equal(count, 0);
    return policies;
}

static void test_a_file_is_one_document(void **state)
{
    (void) state;
    static const struct refused all[] = {
        {HEAD GOOD "---\nfoo: 1\n",
         ":5:1: a second YAML document begins here; a file has one: join the lists of policies"},
        {HEAD GOOD "---\n", ":5:1: a second YAML document begins here; a file has one: join the lists of policies"},
        {HEAD GOOD "...\n---\n\"\n",
         ":6:1: a second YAML document begins here; a file has one: join the lists of policies"},
        {"---\n---\n" HEAD GOOD,
         ":2:1: a second YAML document begins here; a file has one: join the lists of policies"},
        {"---\n...\n" HEAD GOOD, ":3:1: this stands behind the end of the YAML document; a file has one"},
    };
    REFUSE_ALL(all);
    struct policy_file *file;
    (void) take("%YAML 1.1\n--- # one\n" HEAD GOOD "...\n", &file);
    policy_file_free(file);
}

static void test_flags_are_words_for_true_and_false(void **state)
{
    (void) state;
    static const struct refused refused_flags[] = {
        {P "    hash_keys: maybe\n", ":3:16: policy \"a\" has hash_keys \"maybe\"; give true or false"},
        {P "    hash_keys: flase\n",
         ":3:16: policy \"a\" has hash_keys \"flase\"; did you mean \"false\"? Give true or false"},
        {P "    hash_keys: n\n", ":3:16: policy \"a\" has hash_keys \"n\"; did you mean \"no\"? Give true or false"},
        {P "    hash_keys: ~\n", ":3:16: policy \"a\" has hash_keys \"~\"; give true or false"},
        {P "    hash_keys: \"\"\n", ":3:16: policy \"a\" has hash_keys \"\"; give true or false"},
        {P "    hash_keys:\n", ":3:15: policy \"a\" has hash_keys \"\"; give true or false"},
        {P "    hash_keys: disabled\n", ":3:16: policy \"a\" has hash_keys \"disabled\"; give true or false"},
        {P "    hash_keys: 2\n", ":3:16: policy \"a\" has hash_keys \"2\"; give true or false"},
        {P "    hash_keys: 0\n", ":3:16: policy \"a\" has hash_keys \"0\"; give true or false"},
        {P "    hash_keys: [yes]\n", ":3:16: policy \"a\" has a list as hash_keys; give a single value"},
    };
    for (size_t i = 0; i < sizeof(refused_flags) / sizeof(refused_flags[0]); i++) {
        char text[200];
        (void) snprintf(text, sizeof(text), "%s    limits:\n" GOOD, refused_flags[i].text);
        refuse(text, strlen(text), -EINVAL, refused_flags[i].says);
    }
    static const struct {
        const char *word;
        bool flag;
    } taken[] = {{"true", true},   {"True", true},   {"yes", true}, {"ON", true},  {"\"true\"", true},
                 {"false", false}, {"FALSE", false}, {"no", false}, {"off", false}};
    for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); i++) {
        char text[200];
        struct policy_file *file;
        (void) snprintf(text, sizeof(text), P "    hash_keys: %s\n    limits:\n" GOOD, taken[i].word);
        assert_int_equal(take(text, &file)->hash_keys, taken[i].flag);
        policy_file_free(file);
    }
}

static void test_numbers_are_decimal(void **state)
{
    (void) state;
#define NUMBER(text) LIMIT("        limit: " text "\n        period: 1s\n")
#define SAID         ":5:16: policy \"a\": limit 1 has limit "
#define NO_NUMBER    ", which is no whole number; give units such as 1000"
    static const struct refused all[] = {
        {NUMBER("0100"), SAID "\"0100\" with a leading 0, which some take for octal; write 100"},
        {NUMBER("08"), SAID "\"08\" with a leading 0, which some take for octal; write 8"},
        {NUMBER("00"), SAID "\"00\" with a leading 0, which some take for octal; write 0"},
        {NUMBER("0x64"), SAID "\"0x64\", which is hexadecimal; give a decimal number such as 100"},
        {NUMBER("0XfF"), SAID "\"0XfF\", which is hexadecimal; give a decimal number such as 255"},
        {NUMBER("0x"), SAID "\"0x\"" NO_NUMBER},
        {NUMBER("0xg"), SAID "\"0xg\"" NO_NUMBER},
        {NUMBER("1x1"), SAID "\"1x1\"" NO_NUMBER},
        {NUMBER("18446744073709551617"), SAID "18446744073709551617; give at most 4398046511103 units"},
        {NUMBER("0o17"), SAID "\"0o17\"" NO_NUMBER},
        {NUMBER("-1"), SAID "\"-1\"" NO_NUMBER},
        {NUMBER("+5"), SAID "\"+5\"" NO_NUMBER},
        {NUMBER("ten"), SAID "\"ten\"" NO_NUMBER},
        {NUMBER("1_000"), SAID "\"1_000\"" NO_NUMBER},
        {NUMBER("1e3"), SAID "\"1e3\"" NO_NUMBER},
        {NUMBER("1 000"), SAID "\"1 000\"" NO_NUMBER},
        {NUMBER("10/s"), SAID "\"10/s\"" NO_NUMBER ", and the time as period"},
        {NUMBER("\"\""), SAID "\"\"" NO_NUMBER},
        {NUMBER("12345678901234567890123"), SAID "12345678901234567890123; give at most 4398046511103 units"},
        {NUMBER("4398046511104"), SAID "4398046511104; give at most 4398046511103 units"},
        {NUMBER("0"), SAID "0; give 1 to 4398046511103 units"},
        {NUMBER("[1]"), ":5:16: policy \"a\": limit 1 has a list as limit; give a single value"},
        {NUMBER("{a: 1}"), ":5:16: policy \"a\": limit 1 has a mapping as limit; give a single value"},
        {LIMIT("        limit: 1\n        period: 1s\n        burst: 010\n"),
         ":7:16: policy \"a\": limit 1 has burst \"010\" with a leading 0, which some take for octal; write 10"},
    };
    REFUSE_ALL(all);
    struct policy_file *file;
    const weir_policy *policy = take(LIMIT("        limit: \"100\"\n        period: 010s\n        burst: 0\n"), &file);
    assert_int_equal(policy->limits[0].limit, 100);
    assert_int_equal(policy->limits[0].period_ns, 10 * SECOND);
    assert_int_equal(policy->limits[0].burst, 0);
    policy_file_free(file);
    policy = take(HEAD "      - {algorithm: fixed_window, limit: 4398046511103, period: 1s}\n", &file);
    assert_int_equal(policy->limits[0].limit, WEIR_MAX_UNITS);
    policy_file_free(file);
}

static void test_durations_are_in_range_and_have_a_unit(void **state)
{
    (void) state;
#define PERIOD(text) LIMIT("        limit: 1\n        period: " text "\n")
#define IN_RANGE     "; give a period such as \"10s\", from 1ms to 366d"
#define WITH_UNIT    " is no duration; give whole numbers with a unit, such as \"10s\" or \"1m30s\""
    static const struct refused all[] = {
        {PERIOD("60"), ":6:17: period \"60\"" WITH_UNIT},
        {PERIOD("1 hour"), ":6:17: period \"1 hour\"" WITH_UNIT},
        {PERIOD(""), ":6:16: period \"\"" WITH_UNIT},
        {PERIOD("400d"), ":6:17: policy \"a\": limit 1 has period \"400d\"" IN_RANGE},
        {PERIOD("0s"), ":6:17: policy \"a\": limit 1 has period \"0s\"" IN_RANGE},
        {PERIOD("999999ns"), ":6:17: policy \"a\": limit 1 has period \"999999ns\"" IN_RANGE},
        {PERIOD("366d1ns"), ":6:17: policy \"a\": limit 1 has period \"366d1ns\"" IN_RANGE},
        {PERIOD("18446744073709551616ns1s"),
         ":6:17: policy \"a\": limit 1 has period \"18446744073709551616ns1s\"" IN_RANGE},
        {PERIOD("s"), ":6:17: period \"s\"" WITH_UNIT},
        {PERIOD("1s2"), ":6:17: period \"1s2\"" WITH_UNIT},
        {PERIOD("1.5s"), ":6:17: period \"1.5s\"" WITH_UNIT},
        {PERIOD("1sm"), ":6:17: period \"1sm\"" WITH_UNIT},
        {PERIOD("1n"), ":6:17: period \"1n\"" WITH_UNIT},
        {PERIOD("1msx"), ":6:17: period \"1msx\"" WITH_UNIT},
        {PERIOD("-1s"), ":6:17: period \"-1s\"" WITH_UNIT},
        {PERIOD("1/s"), ":6:17: period \"1/s\"" WITH_UNIT},
        {PERIOD("1:s"), ":6:17: period \"1:s\"" WITH_UNIT},
        {P "    outage_grace: 1d1ns\n    limits:\n" GOOD,
         ":3:19: policy \"a\" has outage_grace \"1d1ns\"; give at most 1d"},
        {P "    long_outage: 30d1ns\n    limits:\n" GOOD,
         ":3:18: policy \"a\" has long_outage \"30d1ns\"; give at most 30d, or 0s for never"},
        {PERIOD("99999999999999999999h"), ":6:17: policy \"a\": limit 1 has period \"99999999999999999999h\"" IN_RANGE},
        {P "    outage_grace: 2d\n    limits:\n" GOOD, ":3:19: policy \"a\" has outage_grace \"2d\"; give at most 1d"},
        {P "    long_outage: 31d\n    limits:\n" GOOD,
         ":3:18: policy \"a\" has long_outage \"31d\"; give at most 30d, or 0s for never"},
        {P "    outage_grace: 5\n    limits:\n" GOOD, ":3:19: outage_grace \"5\"" WITH_UNIT},
    };
    REFUSE_ALL(all);
    struct policy_file *file;
    const weir_policy *policy = take(P "    outage_grace: 1d\n    long_outage: 30d\n    limits:\n"
                                       "      - {algorithm: fixed_window, limit: 1, period: 366d}\n"
                                       "      - {algorithm: fixed_window, limit: 1, period: 1ms}\n",
                                     &file);
    assert_int_equal(policy->outage_grace_ms, 86400000);
    assert_int_equal(policy->long_outage_ms, 2592000000);
    assert_int_equal(policy->limits[0].period_ns, UINT64_C(366) * 24 * HOUR);
    assert_int_equal(policy->limits[1].period_ns, MILLISECOND);
    policy_file_free(file);
    /* Each unit, sums of them, and what is not of whole milliseconds: rounded up. */
    static const struct {
        const char *text;
        uint64_t ns;
        uint32_t grace_ms;
    } taken[] = {{"1000000ns", MILLISECOND, 1},
                 {"1000001ns", MILLISECOND + 1, 2},
                 {"1999us", 1999000, 2},
                 {"7ms", 7 * MILLISECOND, 7},
                 {"9s", 9 * SECOND, 9000},
                 {"2m", 120 * SECOND, 120000},
                 {"3h", 3 * HOUR, 10800000},
                 {"1d", 24 * HOUR, 86400000},
                 {"1h1m1s1ms1us1ns", HOUR + 61 * SECOND + 1001001, 3661002},
                 {"1s1s08s", 10 * SECOND, 10000}};
    for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); i++) {
        char text[300];
        (void) snprintf(text, sizeof(text),
                        P
                        "    outage_grace: %s\n    limits:\n      - {algorithm: fixed_window, limit: 1, period: %s}\n",
                        taken[i].text, taken[i].text);
        policy = take(text, &file);
        assert_int_equal(policy->limits[0].period_ns, taken[i].ns);
        assert_int_equal(policy->outage_grace_ms, taken[i].grace_ms);
        policy_file_free(file);
    }
    policy = take(P "    outage_grace: 1ns\n    long_outage: 0s\n    limits:\n" GOOD, &file);
    assert_true(policy->outage_grace_ms == 1 && policy->long_outage_ms == 0);
    policy_file_free(file);
}

static void test_unknown_fields_are_named_where_they_stand(void **state)
{
    (void) state;
#define ONE_LIMIT LIMIT("        limit: 1\n        period: 1s\n")
    static const struct refused all[] = {
        /* The word stands before it, rightly. */
        {ONE_LIMIT "        limits: 5\n", ":7:9: there is no field \"limits\" in a limit; did you mean \"limit\"?"},
        {LIMIT("        limit: 1\n        period: 1s\n        burst: 2\n") "    burst: 5\n",
         ":8:5: burst is a limit's; give it in an entry of \"limits\""},
        {ONE_LIMIT "    limit: 5\n", ":7:5: limit is a limit's; give it in an entry of \"limits\""},
        {ONE_LIMIT "    limitz: 1\n", ":7:5: there is no field \"limitz\" in a policy; did you mean \"limits\"?"},
        {ONE_LIMIT "    on_outgae: open\n",
         ":7:5: there is no field \"on_outgae\" in a policy; did you mean \"on_outage\"?"},
        {ONE_LIMIT "    zzz: 1\n", ":7:5: there is no field \"zzz\" in a policy; give name, limits, mode, scope, "
                                   "hash_keys, on_outage, on_long_outage, outage_grace, long_outage, tiers"},
        {ONE_LIMIT "    dry_run: true\n",
         ":7:5: there is no field \"dry_run\" in a policy; did you mean \"mode: shadow\"?"},
        {ONE_LIMIT "    fail_open: true\n",
         ":7:5: there is no field \"fail_open\" in a policy; did you mean \"on_outage: open\"?"},
        {ONE_LIMIT "        mode: shadow\n", ":7:9: mode is a policy's; give it beside \"limits\", not in an entry"},
        {ONE_LIMIT "        zzzz: 1\n", ":7:9: there is no field \"zzzz\" in a limit; give algorithm, limit, period, "
                                        "calendar, burst, delay, name"},
        {ONE_LIMIT "        window: 1m\n", ":7:9: there is no field \"window\" in a limit; did you mean \"period\"?"},
        {ONE_LIMIT "    tiers:\n      - name: pro\n        mode: shadow\n",
         ":9:9: a tier has name and limits; mode is the policy's"},
        {"polices: []\n", ":1:1: there is no field \"polices\" in a file; did you mean \"policies\"?"},
        {"limits: []\n", ":1:1: limits is a policy's; give it in an entry of \"policies\""},
        {"burst: 1\n", ":1:1: burst is a limit's; give it in an entry of \"limits\""},
        {"rules: []\n", ":1:1: there is no field \"rules\" in a file; did you mean \"policies\"?"},
        {"exceptions: {}\n", ":1:1: there is no field \"exceptions\" in a file; did you mean \"overrides\"?"},
        {ONE_LIMIT "    tiers:\n      - name: pro\n        burst: 1\n",
         ":9:9: burst is a limit's; give it in an entry of \"limits\""},
        {ONE_LIMIT "    tiers:\n      - plan: pro\n",
         ":8:9: there is no field \"plan\" in a tier; did you mean \"name\"?"},
        {ONE_LIMIT "    tiers:\n      - zzzz: pro\n", ":8:9: there is no field \"zzzz\" in a tier; give name, limits"},
        /* A list, as the field that is a letter away has one; no list, as that has none. */
        {ONE_LIMIT "    limit: [1]\n", ":7:5: there is no field \"limit\" in a policy; did you mean \"limits\"?"},
        {ONE_LIMIT "    hash_key: true\n",
         ":7:5: there is no field \"hash_key\" in a policy; did you mean \"hash_keys\"?"},
        {ONE_LIMIT "        limits: [1]\n", ":7:9: limits is a policy's; give it beside \"limits\", not in an entry"},
        /* A long name is cut. */
        {"a23456789a123456789a123456789a123456789a1: 1\n",
         ":1:1: there is no field \"a23456789a123456789a123456789a123456789a\" in a file; give a list named "
         "\"policies\""},
        {"{a: 1}: b\n", ":1:1: the name of a field is a word, no list and no mapping"},
        {"zzz: []\n", ":1:1: there is no field \"zzz\" in a file; give a list named \"policies\""},
        {"? [a]\n: b\n", ":1:3: the name of a field is a word, no list and no mapping"},
        {"\xef\xbb\xbfpolicis: []\n", ":1:1: there is no field \"policis\" in a file; did you mean \"policies\"?"},
        {"policies:\r\n  - nam: a\r\n", ":2:5: there is no field \"nam\" in a policy; did you mean \"name\"?"},
    };
    REFUSE_ALL(all);
}

static void test_a_field_given_twice_is_named_at_the_second(void **state)
{
    (void) state;
    static const struct refused all[] = {
        {ONE_LIMIT "        limit: 5\n", ":7:9: policy \"a\": limit 1 has limit twice, first at line 5; leave one out"},
        {ONE_LIMIT "    limits: []\n", ":7:5: policy \"a\" has limits twice, first at line 3; leave one out"},
        {"policies: []\npolicies: []\n", ":2:1: the file has policies twice, first at line 1; leave one out"},
        {ONE_LIMIT "    tiers:\n      - name: pro\n        name: free\n",
         ":9:9: policy \"a\": tier 1 has name twice, first at line 8; leave one out"},
        {"policies:\n  - name: a\n    limits:\n" GOOD "  - name: a\n    limits:\n" GOOD,
         ":5:11: policy \"a\" is there twice, as number 1 and number 2; rename one"},
        {HEAD GOOD GOOD, ":5:53: policy \"a\": limit 2 has the algorithm and the period of limit 1; keep the stricter "
                         "of the two"},
        {LIMIT("        limit: 1\n        calendar: day\n        period: 1s\n"),
         ":7:9: policy \"a\": limit 1 has a calendar and a period; give one of them"},
    };
    REFUSE_ALL(all);
}

static void test_a_missing_field_is_named_at_what_lacks_it(void **state)
{
    (void) state;
    static const struct refused all[] = {
        {LIMIT("        limit: 1\n"),
         ":4:9: policy \"a\": limit 1 has no period; give a period such as \"10s\", or a calendar"},
        {HEAD GOOD "      - algorithm: fixed_window\n        period: 1m\n",
         ":5:9: policy \"a\": limit 2 has no limit; give a whole number of units such as 1000"},
        {HEAD "      - limit: 1\n        period: 1m\n",
         ":4:9: policy \"a\": limit 1 has no algorithm; give fixed_window, sliding_window, sliding_log, token_bucket, "
         "leaky_bucket"},
        {HEAD GOOD "  - name: b\n    mode: shadow\n", ":5:5: policy \"b\" has no limits; give a list of 1 to 4"},
        {HEAD GOOD "  - limits:\n" GOOD, ":5:5: policy 2 has no name; give 1 to 63 letters, digits, '.', '_', '-' or "
                                         "'/'"},
        {HEAD GOOD "    tiers:\n      - limits: []\n",
         ":6:9: policy \"a\": tier 1 has no name; give a word such as pro"},
        {HEAD GOOD "    tiers:\n      - name: pro\n", ":6:9: policy \"a/pro\" has no limits; give a list of 1 to 4"},
        {"", ":1:1: there are no policies; give a list named \"policies\" with at least one"},
        {"# nothing\n", ":1:1: there are no policies; give a list named \"policies\" with at least one"},
        {"policies: []\n", ":1:11: there are no policies; give a list named \"policies\" with at least one"},
        {"---\n", ":2:1: the file is empty; give a list named \"policies\""},
        {"foo\n", ":1:1: the file is \"foo\" alone; give a list named \"policies\""},
        {"policies:\n", ":1:1: policies is empty; give a list, whose entries begin with \"- \""},
        {"policies: ~\n", ":1:1: policies is empty; give a list, whose entries begin with \"- \""},
        {"policies: null\n", ":1:1: policies is empty; give a list, whose entries begin with \"- \""},
        {"policies:\n  - ~\n", ":2:5: policy 1 is empty; give name, limits, mode, scope, hash_keys, on_outage, "
                               "on_long_outage, outage_grace, long_outage, tiers"},
        {HEAD "      -\n",
         ":4:8: policy \"a\": limit 1 is empty; give algorithm, limit, period, calendar, burst, delay, "
         "name"},
        {HEAD GOOD GOOD GOOD GOOD GOOD, ":8:9: policy \"a\" has more than 4 limits; give 1 to 4"},
    };
    REFUSE_ALL(all);
}

static void test_lists_mappings_and_values_in_each_others_places(void **state)
{
    (void) state;
    static const struct refused all[] = {
        {"- name: a\n  limits: []\n", ":1:1: the file begins with a list; put the list under \"policies:\""},
        {HEAD "      algorithm: token_bucket\n      limit: 5\n", ":4:7: limits is a list: put \"- \" before algorithm"},
        {"policies:\n  name: a\n", ":2:3: policies is a list: put \"- \" before name"},
        {"policies: {a: {limits: []}}\n",
         ":1:12: policies is a list: write \"- name: a\", and the other fields below \"name\""},
        {HEAD GOOD "    tiers:\n      pro:\n        limits: []\n",
         ":6:7: tiers is a list: write \"- name: pro\", and the other fields below \"name\""},
        {P "    limits: 5\n", ":3:13: limits is a list; begin each entry with \"- \", below \"limits:\""},
        {HEAD GOOD "    tiers: 5\n", ":5:12: tiers is a list; begin each entry with \"- \", below \"tiers:\""},
        {HEAD GOOD "    tiers: {name: pro}\n", ":5:13: tiers is a list: put \"- \" before name"},
        {HEAD GOOD "    tiers: {}\n", ":5:5: tiers is empty; give a list, whose entries begin with \"- \""},
        {"policies: {? [a] : b}\n", ":1:14: policies is a list: write \"- name: \", and the other fields below "
                                    "\"name\""},
        {HEAD "      anything: 5\n", ":4:7: limits is a list: put \"- \" before anything"},
        {HEAD "      - limit:5\n", ":4:15: a space is lacking after the colon; write \"limit: 5\""},
        {HEAD GOOD "    tiers:\n      - pro\n", ":6:9: policy \"a\": tier 1 is \"pro\" alone; give name, limits"},
        {HEAD GOOD "    tiers:\n      - name: [pro]\n",
         ":6:15: policy \"a\": tier 1 has a list as name; give a single value"},
        {"policies:\n  - name: {a: b}\n    limits: []\n", ":2:11: policy 1 has a mapping as name; give a single value"},
        {P "    limits: {}\n", ":3:5: limits is empty; give a list, whose entries begin with \"- \""},
        {HEAD "      - 5\n", ":4:9: policy \"a\": limit 1 is \"5\" alone; give algorithm, limit, period, calendar, "
                             "burst, delay, name"},
        {HEAD "      - - 5\n", ":4:9: policy \"a\": limit 1 is a list of its own; give algorithm, limit, period, "
                               "calendar, burst, delay, name"},
    };
    REFUSE_ALL(all);
}

static void test_words_are_listed_and_the_nearest_is_told(void **state)
{
    (void) state;
#define ALGORITHM(word) HEAD "      - {algorithm: " word ", limit: 1, period: 1s}\n"
#define CALENDAR(word)  HEAD "      - {algorithm: fixed_window, limit: 1, calendar: " word "}\n"
#define ALL_ALGORITHMS  "fixed_window, sliding_window, sliding_log, token_bucket, leaky_bucket"
#define FIELD(line)     P "    " line "\n    limits:\n" GOOD
    static const struct refused all[] = {
        {FIELD("mode: dry_run"),
         ":3:11: policy \"a\" has mode \"dry_run\"; did you mean \"shadow\"? There are enforce, "
         "shadow"},
        {FIELD("mode: shaddow"),
         ":3:11: policy \"a\" has mode \"shaddow\"; did you mean \"shadow\"? There are enforce, "
         "shadow"},
        {FIELD("mode: xyz"), ":3:11: policy \"a\" has mode \"xyz\"; give one of enforce, shadow"},
        {FIELD("on_outage: fail_open"), ":3:16: policy \"a\" has on_outage \"fail_open\"; did you mean \"open\"? There "
                                        "are share, local, open, closed"},
        {FIELD("on_long_outage: clsoed"), ":3:21: policy \"a\" has on_long_outage \"clsoed\"; did you mean \"closed\"? "
                                          "There are share, local, open, closed"},
        {FIELD("scope: global"),
         ":3:12: policy \"a\" has scope \"global\"; did you mean \"fleet\"? There are fleet, process"},
        {ALGORITHM("TOKEN_BUCKET"), ":4:21: policy \"a\": limit 1 has algorithm \"TOKEN_BUCKET\"; did you mean "
                                    "\"token_bucket\"? There are " ALL_ALGORITHMS},
        {ALGORITHM("tokenbucket"), ":4:21: policy \"a\": limit 1 has algorithm \"tokenbucket\"; did you mean "
                                   "\"token_bucket\"? There are " ALL_ALGORITHMS},
        {ALGORITHM("xyz"), ":4:21: policy \"a\": limit 1 has algorithm \"xyz\"; give one of " ALL_ALGORITHMS},
        {ALGORITHM("\"\""), ":4:21: policy \"a\": limit 1 has algorithm \"\"; give one of " ALL_ALGORITHMS},
        {CALENDAR("week"),
         ":4:55: policy \"a\": limit 1 has calendar \"week\"; did you mean \"period: 7d\"? Windows begin "
         "at multiples of a period since 1970, of 7d on Thursdays. There are day, month"},
        {CALENDAR("Daily"), ":4:55: policy \"a\": limit 1 has calendar \"Daily\"; did you mean \"day\"? There are day, "
                            "month"},
        {CALENDAR("mont"), ":4:55: policy \"a\": limit 1 has calendar \"mont\"; did you mean \"month\"? There are day, "
                           "month"},
    };
    REFUSE_ALL(all);
}

static void test_what_is_no_yaml_is_named_in_words_that_help(void **state)
{
    (void) state;
#define X40 "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
#define TAB ": this is not YAML: a tab; indent with spaces"
    static const struct refused all[] = {
        {"policies:\n\t- name: a\n", ":2:1" TAB},
        {P "    \tlimits:\n", ":3:5" TAB},
        {HEAD "      -\talgorithm: x\n", ":4:8" TAB},
        {HEAD "      - algorithm:token_bucket\n        limit: 1\n        period: 1s\n",
         ":4:19: a space is lacking after the colon; write \"algorithm: token_bucket\""},
        {LIMIT("        limit: 1\n        period:1s\n"),
         ":6:16: a space is lacking after the colon; write \"period: 1s\""},
        {LIMIT("        limit: 1\n        " X40 X40 X40 ":1s\n"),
         ":6:130: a space is lacking after the colon; write \"" X40 ": 1s\""},
        {LIMIT("        limit:1\n        period:1s\n        burst: 3\n"),
         ":5:15: a space is lacking after the colon; write \"limit: 1\""},
        {HEAD "      - {algorithm:token_bucket, limit: 1}\n",
         ":4:20: a space is lacking after the colon; write \"algorithm: token_bucket\""},
        {"policies:\n  - name:a\n", ":2:10: a space is lacking after the colon; write \"name: a\""},
        {"policies:[]\n", ":1:10: a space is lacking after the colon; write \"policies: ...\""},
        {LIMIT("          limit: 1\n"),
         ":5:11: this is not YAML: the line is indented further than the field above it"},
        {LIMIT("        limit: 1\n        period\n"),
         ":6:9: this is not YAML: there is no colon after this word; write \"FIELD: VALUE\""},
        {LIMIT("        limit: a: b\n"),
         ":5:17: this is not YAML: a second colon in one line; put what has a colon in quotes"},
        {"policies: [{a: b\n", ":2:1: this is not YAML: did not find expected ',' or '}' while parsing a flow mapping "
                               "that begins at line 1"},
        {"a: @x\n", ":1:4: this is not YAML: no value begins with @; put it in quotes"},
        {"a: `x\n", ":1:4: this is not YAML: no value begins with `; put it in quotes"},
        {"a: %x\n", ":1:4: this is not YAML: no value begins with %; put it in quotes"},
        {"a: \"\\q\"\n", ":1:5: this is not YAML: found unknown escape character while parsing a quoted scalar"},
        {"a: \"b\n\n", ":3:1: this is not YAML: found unexpected end of stream while scanning a quoted scalar that "
                       "begins at line 1"},
        {"a:b\nc: d\n", ":1:3: a space is lacking after the colon; write \"a: b\""},
        {"policies: &a [*a, *a]\n", ":1:15: \"*a\" is an alias, and aliases are not taken; write the value again"},
        {"a: !env b\n", ":1:4: tag \"!env\" is not known; leave it out"},
        {"a: !env [b]\n", ":1:4: tag \"!env\" is not known; leave it out"},
        {"a: !env {b: c}\n", ":1:4: tag \"!env\" is not known; leave it out"},
        {"a: !<tag:yaml.org,2001:str> b\n", ":1:4: tag \"tag:yaml.org,2001:str\" is not known; leave it out"},
        {"a: \"x\\0y\"\n", ":1:4: a value has a NUL byte in it; leave that out"},
        {"%TAG ! x\n---\na: b\n", ":1:1: %TAG is not taken; leave it out"},
        {"# a\r\n%TAG", ":2:1: %TAG is not taken; leave it out"},
        {"policies:\n  - name: caf\xe9\n",
         ":2:14: this is not YAML: byte 0xe9 begins no character of UTF-8; save the file as UTF-8"},
        {"policies:\n  - name: \xe9t\xe9 and more\n",
         ":2:11: this is not YAML: byte 0xe9 begins no character of UTF-8; save the file as UTF-8"},
        {"policies:\n  - name: x\xe2\x82 and more\n",
         ":2:12: this is not YAML: byte 0xe2 begins no character of UTF-8; save the file as UTF-8"},
        {"policies:\r\n# \xc3\xa9\xff\n",
         ":2:4: this is not YAML: byte 0xff begins no character of UTF-8; save the file as UTF-8"},
        {"policies:\n  - name: \xc3\xa9\x07\n",
         ":2:12: this is not YAML: control character 0x07; leave it out, or use an escape in double quotes"},
        {"\xff\xfep", ":1:1: this is UTF-16; save the file as UTF-8"},
        {"\xfe\xff", ":1:1: this is UTF-16; save the file as UTF-8"},
        {"\xff", ":1:1: this is not YAML: byte 0xff begins no character of UTF-8; save the file as UTF-8"},
        {"\xc3", ":1:1: this is not YAML: byte 0xc3 begins no character of UTF-8; save the file as UTF-8"},
        {"\x80\x80", ":1:1: this is not YAML: byte 0x80 begins no character of UTF-8; save the file as UTF-8"},
        {"a: b\xf0\x9f\x98 c", ":1:5: this is not YAML: byte 0xf0 begins no character of UTF-8; save the file as "
                               "UTF-8"},
        {"a: [\n" X40 "\x01",
         ":2:41: this is not YAML: control character 0x01; leave it out, or use an escape in double "
         "quotes"},
    };
    REFUSE_ALL(all);
    struct policy_file *file;
    const weir_policy *policy = take("\xef\xbb\xbfpolicies: !!seq\r\n  - !!map\r\n    name: !!str a\r\n    mode: &m ! "
                                     "shadow\r\n    limits:\r\n" GOOD,
                                     &file);
    assert_string_equal(policy->name, "a");
    assert_int_equal(policy->mode, WEIR_SHADOW);
    policy_file_free(file);
}

/* Fills `text` with as many of `part` as go into 1 MiB, at most `count`; "%d" is their number. Returns the size. */
static size_t repeat(char *text, const char *head, const char *before, bool numbered, const char *after, size_t count)
{
    size_t size = (size_t) snprintf(text, SIZE_MOST, "%s", head);
    for (size_t i = 0; i < count && size + strlen(before) + strlen(after) + 10 < SIZE_MOST; i++) {
        size += (size_t) snprintf(text + size, SIZE_MOST - size, "%s", before);
        size += numbered ? (size_t) snprintf(text + size, SIZE_MOST - size, "%zu", i) : 0;
        size += (size_t) snprintf(text + size, SIZE_MOST - size, "%s", after);
    }
    return size;
}

/* Linear work takes a hundredth of the bound. Quadratic work took from four seconds to minutes. */
static void test_what_is_nested_or_repeated_is_refused_at_once(void **state)
{
    (void) state;
#define NESTED ": lists and mappings are nested more than 16 deep; a policy file needs 7"
    static const struct {
        const char *head, *before;
        bool numbered;
        const char *after;
        size_t count;
        int code;
        const char *says;
    } all[] = {
        {"", "[", false, "", 80000, -EINVAL, ":1:17" NESTED},
        {"", "[", false, "", 17, -EINVAL, ":1:17" NESTED},
        {"", "[", false, "", 16, -EINVAL,
         ":2:1: this is not YAML: did not find expected node content while parsing a "
         "flow node"},
        {"", "[", false, "", 500000, -EINVAL, ":1:17" NESTED},
        {"", "[\n", false, "", 500000, -EINVAL, ":17:1" NESTED},
        {"", "{a: ", false, "", 40000, -EINVAL, ":1:65" NESTED},
        {"", "- ", false, "", 500000, -EINVAL, ":1:33" NESTED},
        {"", "? ", false, "", 500000, -EINVAL, ":1:33" NESTED},
        {"policies:\n", "- &a", true, " x\n", 60000, -EINVAL,
         ":2:3: policy 1 is \"x\" alone; give name, limits, mode, scope, hash_keys, on_outage, on_long_outage, "
         "outage_grace, long_outage, tiers"},
        {"%YAML 1.1\n", "%TAG !a", true, "! x\n", 60000, -EINVAL, ":2:1: %TAG is not taken; leave it out"},
        {"", "a:b\n", false, "", 250000, -EINVAL, NULL},
        {"", "a", true, ": b\n", 100000, -EINVAL,
         ":1:1: there is no field \"a0\" in a file; give a list named \"policies\""},
        {"policies:\n", "- {name: a", true, ", limits: [{algorithm: fixed_window, limit: 1, period: 1s}]}\n", 20000,
         -ENOSPC, ":1025:3: there are more than 1023 policies, tiers among them; give fewer"},
    };
    char *text = malloc(SIZE_MOST);
    assert_non_null(text);
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        const size_t size = repeat(text, all[i].head, all[i].before, all[i].numbered, all[i].after, all[i].count);
        struct policy_file *file;
        weir_error error;
        write_bytes(text, size);
        const clock_t start = clock();
        assert_int_equal(load(&file, &error), all[i].code);
        const double seconds = (double) (clock() - start) / CLOCKS_PER_SEC;
        if (seconds > 2) {
            fail_msg("%.20s: %.1f s of processor time", text, seconds);
        }
        if (all[i].says != NULL) {
            assert_string_equal(error.message + strlen(path), all[i].says);
        }
    }
    free(text);
}

static void test_as_many_policies_as_there_may_be_are_read(void **state)
{
    (void) state;
    char *text = malloc(SIZE_MOST);
    assert_non_null(text);
    const size_t size = repeat(text, "policies:\n", "- {name: a", true,
                               ", limits: [{algorithm: fixed_window, limit: 1, period: 1s}]}\n", WEIR_MAX_POLICIES);
    struct policy_file *file;
    weir_error error;
    size_t count = 0;
    write_bytes(text, size);
    assert_int_equal(load(&file, &error), 0);
    assert_string_equal(policy_file_policies(file, &count)[WEIR_MAX_POLICIES - 1].name, "a1022");
    assert_int_equal(count, WEIR_MAX_POLICIES);
    policy_file_free(file);
    free(text);
}

static void test_a_long_path_leaves_the_sentence_whole(void **state)
{
    (void) state;
    char inner[256];
    char deep[340];
    memset(inner, 'd', sizeof(inner));
    (void) snprintf(deep, sizeof(deep), "%s/%.180s", directory, inner);
    assert_int_equal(mkdir(deep, 0700), 0);
    char kept[sizeof(path)];
    (void) snprintf(kept, sizeof(kept), "%s", path);
    char file_path[400];
    (void) snprintf(file_path, sizeof(file_path), "%s/limits.yaml", deep);
    FILE *text = fopen(file_path, "w");
    assert_non_null(text);
    assert_true(fputs(ALGORITHM("tokenbucket"), text) >= 0);
    assert_int_equal(fclose(text), 0);
    struct policy_file *file = NULL;
    weir_error error;
    assert_int_equal(policy_file_load(file_path, &file, &error), -EINVAL);
    (void) unlink(file_path);
    assert_int_equal(policy_file_load(file_path, &file, NULL), -ENOENT);
    (void) rmdir(deep);
    assert_memory_equal(error.message, "...ddd", 6);
    assert_non_null(strstr(error.message,
                           "dd/limits.yaml:4:21: policy \"a\": limit 1 has algorithm \"tokenbucket\"; did "
                           "you mean \"token_bucket\"? There are "));
}

/* A tier is its policy with other limits. */
static void test_a_tier_has_the_settings_of_its_policy(void **state)
{
    (void) state;
    struct policy_file *file;
    const weir_policy *policies = take(
        P "    mode: shadow\n    scope: process\n    hash_keys: yes\n    on_outage: open\n    on_long_outage: closed\n"
          "    outage_grace: 3ms\n    long_outage: 4ms\n    limits:\n" GOOD
          "    tiers:\n      - name: pro\n        limits:\n"
          "          - {algorithm: leaky_bucket, limit: 2, period: 1s, burst: 5, delay: 3, name: x}\n"
          "  - name: b\n    limits:\n" GOOD,
        &file);
    for (size_t i = 0; i < 2; i++) {
        const weir_policy *policy = &policies[i];
        assert_string_equal(policy->name, i == 0 ? "a" : "a/pro");
        assert_true(policy->mode == WEIR_SHADOW && policy->scope == WEIR_SCOPE_PROCESS && policy->hash_keys);
        assert_true(policy->on_outage == WEIR_OUTAGE_OPEN && policy->on_long_outage == WEIR_OUTAGE_CLOSED);
        assert_true(policy->outage_grace_ms == 3 && policy->long_outage_ms == 4 && policy->limit_count == 1);
    }
    const weir_limit *limit = policies[1].limits;
    assert_true(limit->algorithm == WEIR_LEAKY_BUCKET && limit->limit == 2 && limit->period_ns == SECOND);
    assert_true(limit->burst == 5 && limit->delay == 3 && limit->calendar == WEIR_CALENDAR_NONE);
    assert_string_equal(limit->name, "x");
    assert_int_equal(policies[0].limits->limit, 1);
    assert_null(policies[0].limits->name);
    /* And what a policy does not say is as in weir.h. */
    assert_true(policies[2].mode == WEIR_ENFORCE && policies[2].scope == WEIR_SCOPE_FLEET && !policies[2].hash_keys);
    assert_true(policies[2].on_outage == WEIR_OUTAGE_SHARE && policies[2].on_long_outage == WEIR_OUTAGE_SHARE);
    assert_true(policies[2].outage_grace_ms == 0 && policies[2].long_outage_ms == 0);
    policy_file_free(file);
}

static void test_what_is_out_of_range_is_named_where_it_stands(void **state)
{
    (void) state;
#define NAME_64 "a23456789a123456789a123456789a123456789a123456789a123456789a1234"
    static const struct refused all[] = {
        /* The first of two errors; a name that is too long is not repeated. */
        {P "    mode: x\n    scope: y\n    limits:\n" GOOD,
         ":3:11: policy \"a\" has mode \"x\"; give one of enforce, shadow"},
        {P "    scope: y\n    hash_keys: 2\n    limits:\n" GOOD,
         ":3:12: policy \"a\" has scope \"y\"; give one of fleet, process"},
        {"policies:\n  - name: " NAME_64 "\n    mode: x\n    limits:\n" GOOD,
         ":3:11: policy 1 has mode \"x\"; give one of enforce, shadow"},
        {"policies:\n  - name: " NAME_64 "\n    limits:\n" GOOD,
         ":2:11: policy 1 has a name that is too long; give 1 to 63 letters, digits, '.', '_', '-' or '/'"},
        {"policies:\n  - name: \"\"\n    limits:\n" GOOD,
         ":2:11: policy 1 has a name that is empty; give 1 to 63 letters, digits, '.', '_', '-' or '/'"},
        {P "    limits: []\n", ":3:13: policy \"a\" has 0 limits; give 1 to 4"},
        {HEAD "      - {algorithm: fixed_window, limit: 1, period: 1s, name: \"\"}\n",
         ":4:63: policy \"a\": limit 1 has name \"\"; give 1 to 63 bytes of printable ASCII, or none"},
        {HEAD GOOD "      - {algorithm: token_bucket, limit: 1, period: 366d, burst: 3}\n",
         ":5:66: policy \"a\": limit 2 has burst 3, which takes two years or more to refill; give less"},
        /* The calendar stands for the period. */
        {HEAD "      - {algorithm: fixed_window, limit: 1, period: 1d}\n"
              "      - {algorithm: fixed_window, limit: 1, calendar: day}\n",
         ":5:55: policy \"a\": limit 2 has the algorithm and the period of limit 1; keep the stricter of the two"},
        {HEAD GOOD "    tiers:\n      - name: pro\n        limits:\n  " GOOD
                   "      - name: pro\n        limits:\n  " GOOD,
         ":9:15: policy \"a/pro\" is there twice, as number 2 and number 3; rename one"},
        {HEAD GOOD "    tiers:\n      - name: pro\n        limits: []\n",
         ":7:17: policy \"a/pro\" has 0 limits; give 1 to 4"},
        /* A field that the file does not give: its limit. */
        {HEAD "      - {algorithm: token_bucket, limit: 1, period: 366d}\n"
              "      - {algorithm: token_bucket, limit: 640000001, period: 1s}\n",
         ":5:42: policy \"a\": limit 2 lets more than 640000000 units a second through its bucket; count in larger "
         "units"},
        {HEAD GOOD "    tiers:\n      - name: a\n        limits:\n          - {limit: 1, period: 1s}\n",
         ":8:13: policy \"a/a\": limit 1 has no algorithm; give fixed_window, sliding_window, sliding_log, "
         "token_bucket, leaky_bucket"},
    };
    REFUSE_ALL(all);
}

/* Overrides are a mapping of names to values, and stay in the file's order. */
static void test_overrides_are_read_with_their_places(void **state)
{
    (void) state;
    static const struct refused all[] = {
        {HEAD GOOD "overrides: [a]\n", ":5:12: overrides is a mapping; give lines such as \"api:198.51.100.7\": deny"},
        {HEAD GOOD "overrides:\n", ":5:11: overrides is a mapping; give lines such as \"api:198.51.100.7\": deny"},
        {HEAD GOOD "overrides:\n  a:b: deny\n  ? [x]\n  : deny\n",
         ":7:5: an entry is a name and a value, such as \"api:198.51.100.7\": deny"},
        {HEAD GOOD "overrides:\n  a:b: {x: deny}\n",
         ":6:3: an entry is a name and a value, such as \"api:198.51.100.7\": deny"},
    };
    REFUSE_ALL(all);
    struct policy_file *file;
    size_t count = 9;
    (void) take(HEAD GOOD "overrides: {}\n", &file);
    (void) policy_file_entries(file, &count);
    assert_int_equal(count, 0);
    policy_file_free(file);
    (void) take("overrides:\n  b: 2\n  a:   \"1 3\"\n" HEAD GOOD, &file);
    const struct file_entry *entries = policy_file_entries(file, &count);
    assert_int_equal(count, 2);
    assert_string_equal(entries[0].name, "b");
    assert_string_equal(entries[0].value, "2");
    assert_true(entries[0].name_place.line == 2 && entries[0].name_place.column == 3);
    assert_string_equal(entries[1].name, "a");
    assert_string_equal(entries[1].value, "1 3");
    assert_true(entries[1].name_place.line == 3 && entries[1].value_place.line == 3);
    assert_true(entries[1].name_place.column == 3 && entries[1].value_place.column == 8);
    policy_file_free(file);
    policy_file_free(NULL);
}

static void test_a_tree_knows_its_nodes_by_name_and_place(void **state)
{
    (void) state;
    char text[] = "a: 1\nb: {c: 2}\na: 3\n? [x, y, z]\n: w\n\"\": 4\n";
    weir_error error;
    const struct text_file file = {.path = "f", .error = &error, .text = text, .size = strlen(text)};
    struct tree tree;
    assert_int_equal(tree_read(&file, &tree), 0);
    const struct tree_node *root = tree_root(&tree);
    assert_int_equal(root->kind, TREE_MAPPING);
    assert_int_equal(tree_child_count(&tree, root), 10);
    const struct tree_node *b = tree_find(&tree, root, "b");
    assert_string_equal(tree_text(&tree, tree_find(&tree, root, "a")), "1"); /* the first */
    assert_string_equal(tree_text(&tree, tree_find(&tree, b, "c")), "2");
    assert_string_equal(tree_text(&tree, tree_find(&tree, root, "")), "w"); /* a list has no text */
    assert_string_equal(tree_text(&tree, b), "");
    assert_true(b->kind == TREE_MAPPING && b->place.line == 2 && b->place.column == 4);
    assert_null(tree_find(&tree, root, "c"));
    assert_null(tree_find(&tree, NULL, "a"));
    const struct tree_node *list = tree_child(&tree, root);
    for (size_t i = 0; i < 6; i++) {
        list = tree_next(&tree, list);
    }
    assert_int_equal(list->kind, TREE_LIST);
    assert_int_equal(tree_child_count(&tree, list), 3);
    assert_null(tree_find(&tree, list, "x"));
    assert_null(tree_child(&tree, tree_find(&tree, root, "a")));
    tree_free(&tree);
    assert_true(tree.nodes == NULL && tree.node_count == 0);
    const struct text_file empty = {.path = "f", .error = &error, .text = text, .size = 0};
    assert_int_equal(tree_read(&empty, &tree), 0);
    assert_null(tree_root(&tree));
    tree_free(&tree);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_file_is_one_document),
        cmocka_unit_test(test_flags_are_words_for_true_and_false),
        cmocka_unit_test(test_numbers_are_decimal),
        cmocka_unit_test(test_durations_are_in_range_and_have_a_unit),
        cmocka_unit_test(test_unknown_fields_are_named_where_they_stand),
        cmocka_unit_test(test_a_field_given_twice_is_named_at_the_second),
        cmocka_unit_test(test_a_missing_field_is_named_at_what_lacks_it),
        cmocka_unit_test(test_lists_mappings_and_values_in_each_others_places),
        cmocka_unit_test(test_words_are_listed_and_the_nearest_is_told),
        cmocka_unit_test(test_a_tier_has_the_settings_of_its_policy),
        cmocka_unit_test(test_what_is_out_of_range_is_named_where_it_stands),
        cmocka_unit_test(test_overrides_are_read_with_their_places),
        cmocka_unit_test(test_a_tree_knows_its_nodes_by_name_and_place),
        cmocka_unit_test(test_what_is_no_yaml_is_named_in_words_that_help),
        cmocka_unit_test(test_what_is_nested_or_repeated_is_refused_at_once),
        cmocka_unit_test(test_as_many_policies_as_there_may_be_are_read),
        cmocka_unit_test(test_a_long_path_leaves_the_sentence_whole),
    };
    return cmocka_run_group_tests_name("unit/policy/yaml", tests, make_directory, remove_directory);
}
