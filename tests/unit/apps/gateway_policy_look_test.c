/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the gateway says of a file of policies: every line, and no other one.
 *
 * Guards: apps/gateway/policy_look.c
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../apps/gateway/log.h"
#include "../apps/gateway/policy_look.h"
#include "support/support.h"

static char lines[8000]; /* of the log: "w: ...\n" */

void log_line(weir_log_level level, const char *format, ...)
{
    const size_t length = strlen(lines);
    va_list arguments;
    lines[length] = level == WEIR_LOG_ERROR ? 'e' : level == WEIR_LOG_WARNING ? 'w' : 'i';
    lines[length + 1] = ':';
    lines[length + 2] = ' ';
    va_start(arguments, format);
    (void) vsnprintf(lines + length + 3, sizeof(lines) - length - 4, format, arguments);
    va_end(arguments);
    lines[strlen(lines)] = '\n';
}

static char path[] = "/tmp/weir-policies-XXXXXX";

/* A file of policies of these names, split at spaces; "NAME=N" passes N at once, "NAME!" is in shadow mode. */
static void write_policies(const char *names)
{
    char copy[2000], *at = copy;
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    (void) snprintf(copy, sizeof(copy), "%s", names);
    (void) fputs("policies:\n", file);
    for (char *name; (name = strtok_r(at, " ", &at)) != NULL;) {
        char *number = strchr(name, '='), *mode = strchr(name, '!');
        if (number != NULL) {
            *number++ = '\0';
        }
        if (mode != NULL) {
            *mode = '\0';
        }
        (void) fprintf(file,
                       "  - {name: \"%s\", mode: %s, limits: [{algorithm: fixed_window, limit: %s, period: 1s}]}\n",
                       name, mode != NULL ? "shadow" : "enforce", number != NULL ? number : "100");
    }
    assert_int_equal(fclose(file), 0);
}

static void open_look(struct policy_look *look, const char *names)
{
    weir_error error;
    write_policies(names);
    lines[0] = '\0';
    memset(lines, 0, sizeof(lines));
    assert_true(policy_look_open(look, path, &error));
    assert_string_equal(lines, "");
}

#define NO_SOURCE  "w: no policy \"source\": that limit is off\n"
#define NO_OVERALL "w: no policy \"overall\": that limit is off\n"
#define NOTHING    "limits nothing here: the gateway uses no policy of that name\n"

static void test_what_a_file_lacks_and_what_limits_nothing_is_told(void **state)
{
    (void) state;
    static const struct {
        const char *names, *told;
    } rows[] = {
        {"source overall", ""},
        {"source overall source/pro network24 network6_32 source_bytes overall_bytes", ""},
        {"source", NO_OVERALL},
        {"overall", NO_SOURCE},
        {"source/pro overall", NO_SOURCE}, /* a tier is none */
        {"network24", NO_SOURCE NO_OVERALL},
        {"source overall other", "w: policy \"other\" " NOTHING},
        {"sourse overall", "w: no policy \"source\" (it has \"sourse\"): that limit is off\n"
                           "w: policy \"sourse\" " NOTHING},
        {"SOURCE overall far", "w: no policy \"source\" (it has \"SOURCE\"): that limit is off\n"
                               "w: policy \"SOURCE\" " NOTHING "w: policy \"far\" " NOTHING},
        {"a b overall", "w: no policy \"source\" (it has \"a\", \"b\"): that limit is off\n"
                        "w: policy \"a\" " NOTHING "w: policy \"b\" " NOTHING},
        /* A missing limit of bytes is said only where a name comes near it, since few files have one. */
        {"source overall sourcebytes", "w: no policy \"source_bytes\" (it has \"sourcebytes\"): that limit is off\n"
                                       "w: policy \"sourcebytes\" " NOTHING},
        {"source overall network0 Networks",
         "w: policy \"network0\" limits nothing here: the gateway uses no policy of that name; networks are network1 "
         "to "
         "network32 of IPv4, network33 to network128 and network6_1 to network6_32 of IPv6\n"
         "w: policy \"Networks\" limits nothing here: the gateway uses no policy of that name; networks are network1 "
         "to "
         "network32 of IPv4, network33 to network128 and network6_1 to network6_32 of IPv6\n"},
        {"overall a1 a2 a3 a4 a5 a6 a7 a8 a9 x1", NULL},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct policy_look look;
        open_look(&look, rows[i].names);
        policy_look_tell(&look);
        if (rows[i].told != NULL) {
            assert_string_equal(lines, rows[i].told);
        } else { /* eight are named at most */
            assert_non_null(strstr(lines, "\"a7\", \"a8\"): that"));
        }
        policy_look_close(&look);
    }
}

static void test_a_name_is_near_where_two_letters_make_it(void **state)
{
    (void) state;
    static const struct {
        const char *name, *wanted;
        bool near;
    } rows[] = {
        {"overal", "overall", true},
        {"overal1", "overall", true},
        {"over-all", "overall", true},
        {"oevrall", "overall", true},
        {"ovrll", "overall", true},
        {"vrll", "overall", false},
        {"xxoverall", "overall", true},
        {"xxxoverall", "overall", false},
        {"overallxx", "overall", true},
        {"abverall", "overall", true},
        {"abcrall", "overall", false},
        {"OVERALL", "overall", true},
        {"OvErAlL", "overall", true},
        {"sauce", "source", true},
        {"force", "source", true},
        {"source_bytes_of", "source_bytes", false},
        {"sourcebyte", "source_bytes", true},
        {"source_bytes_of_all", "source_bytes", false},
        {"ssourcebbytes1234", "source_bytes", false},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct policy_look look;
        struct sentence words = {.length = 0};
        char names[100], wanted[200];
        (void) snprintf(names, sizeof(names), "zzzzzzzzzz %s", rows[i].name);
        open_look(&look, names);
        policy_look_say_missing(&words, &look, rows[i].wanted);
        (void) snprintf(wanted, sizeof(wanted), "no policy \"%s\" (it has %s\"%s\")", rows[i].wanted,
                        rows[i].near ? "" : "\"zzzzzzzzzz\", ", rows[i].name);
        assert_string_equal(words.bytes, wanted);
        assert_int_equal(words.length, strlen(wanted));
        policy_look_close(&look);
    }
    /* A sentence has room for so much, and stays within that. */
    struct sentence words = {.length = 0};
    for (unsigned i = 0; i < 200; i++) {
        policy_look_say(&words, "%s", "1234567");
        assert_int_equal(words.length, i < 73 ? 7 * (i + 1) : 511);
        assert_int_equal(strlen(words.bytes), words.length);
    }
}

static void test_a_gateway_starts_with_a_policy_that_limits_something(void **state)
{
    (void) state;
    static const struct {
        const char *names;
        bool may;
    } rows[] = {
        {"source", true}, {"network24", true}, {"overall_bytes", true}, {"source/pro", false}, {"other", false}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct policy_look look;
        char wanted[300];
        open_look(&look, rows[i].names);
        assert_true(policy_look_may_start(&look, "f.yaml", true));
        assert_string_equal(lines, "");
        assert_int_equal(policy_look_may_start(&look, "f.yaml", false), rows[i].may);
        const char *has = i == 4 ? " (it has \"other\")" : "";
        (void) snprintf(
            wanted, sizeof(wanted),
            "e: f.yaml: no policy \"source\"%s and no policy \"overall\"%s: nothing would be limited; name a "
            "policy so, or give --allow-missing\n",
            has, has);
        assert_string_equal(lines, rows[i].may ? "" : wanted);
        policy_look_close(&look);
    }
}

static void test_a_file_has_its_policies_with_their_names_and_modes(void **state)
{
    (void) state;
    struct policy_look look;
    weir_error error;
    open_look(&look, "overall! source source/pro network24!");
    assert_int_equal(look.count, 4);
    assert_true(policy_look_find(&look, "overall")->shadow && !policy_look_find(&look, "source")->shadow);
    assert_true(policy_look_find(&look, "network24")->shadow);
    assert_ptr_equal(policy_look_find(&look, "source/pro"), &look.listed[2]);
    assert_null(policy_look_find(&look, "sourc"));
    assert_int_equal(policy_look_find(&look, "source")->id, weir_find_policy(look.weir, "source"));
    assert_true(policy_look_uses("source") && policy_look_uses("source/pro") && !policy_look_uses("sourc"));
    assert_true(policy_look_is_tier("source/pro") && !policy_look_is_tier("source"));
    policy_look_close(&look);
    assert_false(policy_look_open(&look, "/nonexistent", &error));
    assert_non_null(strstr(error.message, "/nonexistent"));
    /* A file may have as many networks of each family as one packet can be checked by. */
    for (unsigned family = 0; family < 2; family++) {
        for (unsigned count = 6; count < 12; count++) {
            char names[400] = "source overall/x";
            for (unsigned i = 1; i < count; i++) {
                char name[30];
                (void) snprintf(name, sizeof(name), family == 0 ? " network%u" : " network6_%u", i);
                (void) strncat(names, name, sizeof(names) - strlen(names) - 1);
            }
            (void) strncat(names, family == 0 ? " network6_1 network6_2" : " network1", 30);
            write_policies(names);
            const bool good = policy_look_open(&look, path, &error);
            assert_int_equal(good, count <= WEIR_MAX_KEYS_AT_ONCE);
            if (good) {
                policy_look_close(&look);
                continue;
            }
            char wanted[300];
            (void) snprintf(wanted, sizeof(wanted),
                            "%s: %u policies for one packet of IPv%d; give %d or fewer, networks included", path, count,
                            family == 0 ? 4 : 6, WEIR_MAX_KEYS_AT_ONCE);
            assert_string_equal(error.message, wanted);
        }
    }
}

static void test_kinds_that_policies_are_for_must_be_there_and_pass(void **state)
{
    (void) state;
    struct packet_kinds none = {.count = 0}, kinds = {.count = 2};
    struct policy_look look;
    (void) snprintf(kinds.all[0].name, sizeof(kinds.all[0].name), "long");
    (void) snprintf(kinds.all[1].name, sizeof(kinds.all[1].name), "initial");
    kinds.all[0].cost = 5;
    kinds.all[1].cost = 20;
    open_look(&look, "source source.initial source.inital overall.far/x overall.zz");
    assert_false(policy_look_has_kinds(&look, &kinds, "f.yaml", false));
    assert_string_equal(
        lines, "e: f.yaml: policy \"source.inital\" is for packets of kind \"inital\", and there is no such kind "
               "(there is \"initial\"): that limit would be off; name a kind of --kinds\n"
               "e: f.yaml: policy \"overall.zz\" is for packets of kind \"zz\", and there is no such kind: "
               "that limit would be off; name a kind of --kinds\n");
    memset(lines, 0, sizeof(lines));
    assert_true(policy_look_has_kinds(&look, &none, "f.yaml", true));
    assert_string_equal(lines,
                        "w: f.yaml: policy \"source.initial\" is for packets of kind \"initial\", and there is no such "
                        "kind: that limit is off; give --kinds with the kind in it\n"
                        "w: f.yaml: policy \"source.inital\" is for packets of kind \"inital\", and there is no such "
                        "kind: that limit is off; give --kinds with the kind in it\n"
                        "w: f.yaml: policy \"overall.zz\" is for packets of kind \"zz\", and there is no such "
                        "kind: that limit is off; give --kinds with the kind in it\n");
    policy_look_close(&look);
    open_look(&look, "source.initial overall");
    assert_true(policy_look_has_kinds(&look, &kinds, "f.yaml", false));
    assert_string_equal(lines, "");
    policy_look_close(&look);
    open_look(&look, "source=4 overall=5 network24=19 network20=20 source_bytes=1 source.long=1");
    policy_look_tell_costs(&look, &none);
    assert_string_equal(lines, "");
    policy_look_tell_costs(&look, &kinds);
    assert_string_equal(
        lines, "w: no packet of kind \"long\" passes policy \"source\": it costs 5, and 4 pass at once; lower the "
               "cost, or raise the limit\n"
               "w: no packet of kind \"initial\" passes policy \"source\": it costs 20, and 4 pass at once; lower "
               "the cost, or raise the limit\n"
               "w: no packet of kind \"initial\" passes policy \"overall\": it costs 20, and 5 pass at once; "
               "lower the cost, or raise the limit\n"
               "w: no packet of kind \"initial\" passes policy \"network24\": it costs 20, and 19 pass at once; "
               "lower the cost, or raise the limit\n");
    policy_look_close(&look);
}

static int begin(void **state)
{
    (void) state;
    const int fd = mkstemp(path);
    return fd >= 0 && close(fd) == 0 ? 0 : -1;
}

static int end(void **state)
{
    (void) state;
    return unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_a_file_lacks_and_what_limits_nothing_is_told),
        cmocka_unit_test(test_a_name_is_near_where_two_letters_make_it),
        cmocka_unit_test(test_a_gateway_starts_with_a_policy_that_limits_something),
        cmocka_unit_test(test_a_file_has_its_policies_with_their_names_and_modes),
        cmocka_unit_test(test_kinds_that_policies_are_for_must_be_there_and_pass),
    };
    return cmocka_run_group_tests_name("unit/apps/gateway_policy_look", tests, begin, end);
}
