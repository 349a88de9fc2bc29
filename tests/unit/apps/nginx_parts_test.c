/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parts of the nginx module that need of nginx its memory alone, which is the test's: texts, variables, the names of
 * zones, and the policies that a process has known.
 *
 * Guards: apps/nginx/rare_line.c, apps/nginx/text.c, apps/nginx/variables.c, apps/nginx/known_policies.c,
 * apps/nginx/zone.c
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../apps/nginx/known_policies.h"
#include "../apps/nginx/policies.h"
#include "../apps/nginx/rare_line.h"
#include "../apps/nginx/rate.h"
#include "../apps/nginx/text.h"
#include "../apps/nginx/variables.h"
#include "../apps/nginx/zone.h"
#include "support/support.h"

static char pool[4 << 20]; /* each call takes from it what it asks for, and a mark behind that */
static size_t taken, refused_from = SIZE_MAX, calls;
uint32_t ngx_crc32_table256[256];
volatile ngx_msec_t ngx_current_msec;

void *ngx_pnalloc(ngx_pool_t *of, size_t size)
{
    assert_ptr_equal(of, pool);
    if (++calls > refused_from) {
        return NULL;
    }
    char *at = pool + taken;
    assert_true(taken + size + 1 < sizeof(pool));
    memset(at, '#', size + 1);
    taken += size + 1;
    return at;
}

void *ngx_alloc(size_t size, ngx_log_t *log)
{
    assert_null(log);
    return ++calls > refused_from ? NULL : malloc(size);
}

u_char *ngx_cpystrn(u_char *to, u_char *from, size_t size)
{
    const size_t length = strnlen((const char *) from, size - 1);
    memcpy(to, from, length);
    to[length] = '\0';
    return to + length;
}

/* The forms that are used here. */
u_char *ngx_sprintf(u_char *out, const char *format, ...)
{
    va_list arguments;
    int length = 0;
    va_start(arguments, format);
    if (strcmp(format, "%uL") == 0) {
        length = sprintf((char *) out, "%" PRIu64, va_arg(arguments, uint64_t));
    } else if (strcmp(format, "; %ui more since the last such line") == 0) {
        length = sprintf((char *) out, "; %lu more since the last such line", va_arg(arguments, ngx_uint_t));
    } else if (strcmp(format, ".%02xd") == 0) {
        length = sprintf((char *) out, ".%02x", va_arg(arguments, unsigned));
    } else {
        assert_string_equal(format, "..%08xD");
        length = sprintf((char *) out, "..%08x", va_arg(arguments, uint32_t));
    }
    va_end(arguments);
    return out + length;
}

static void test_a_text_grows_and_stays_whole_or_says_that_it_is_not(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    for (unsigned round = 0; round < 20; round++) {
        struct text text = {.pool = (ngx_pool_t *) (void *) pool};
        static char wanted[100000];
        size_t length = 0;
        taken = calls = 0;
        for (unsigned i = 0; i < 300; i++) {
            const unsigned width = (unsigned) random_below(&rng, draw_once_in(&rng, 20) ? 5000 : 60);
            if (draw_once_in(&rng, 3)) {
                static const char *const html[][2] = {
                    {"a<b>", "a&lt;b&gt;"}, {"\"&\"", "&quot;&amp;&quot;"}, {"", ""}, {"plain '", "plain '"}};
                const unsigned which = (unsigned) random_below(&rng, 4);
                text_add_html(&text, html[which][0]);
                length += (size_t) snprintf(wanted + length, sizeof(wanted) - length, "%s", html[which][1]);
            } else {
                text_add(&text, "%*u;", (int) width, i);
                length += (size_t) snprintf(wanted + length, sizeof(wanted) - length, "%*u;", (int) width, i);
            }
            assert_true(length + 6000 < sizeof(wanted) && text.length == length && text.size >= length && !text.failed);
        }
        assert_memory_equal(text.bytes, wanted, length);
        assert_int_equal(pool[taken - 1], '#'); /* nothing was written behind its memory */
        assert_true(calls < 12);
        /* Without memory the text stays as it is, and says so. */
        refused_from = calls;
        text_add(&text, "%200000u", 1);
        assert_true(text.failed && text.length == length);
        text.failed = false;
        assert_null(text_room(&text, 200000));
        assert_true(text.failed);
        refused_from = SIZE_MAX;
    }
}

static void test_a_variable_says_what_a_decision_came_to(void **state)
{
    (void) state;
    static const struct {
        bool allowed;
        uint64_t remaining, retry_after_ns;
        weir_basis basis;
        const char *remaining_text, *retry_after, *basis_text; /* NULL: there is none */
    } rows[] = {
        {true, 7, 0, WEIR_BASIS_PROCESS, "7", NULL, "process"},
        {true, UINT64_C(4398046511103), 5, WEIR_BASIS_FLEET, "4398046511103", NULL, "fleet"},
        {false, 0, 1, WEIR_BASIS_OUTAGE, "0", "1", "outage"},
        {false, 0, SECOND, WEIR_BASIS_FLEET, "0", "1", "fleet"},
        {false, 1, SECOND + 1, WEIR_BASIS_FLEET, "1", "2", "fleet"},
        {false, 1, 3600 * SECOND, WEIR_BASIS_FLEET, "1", "3600", "fleet"},
        {false, 1, UINT64_MAX, WEIR_BASIS_FLEET, "1", "never", "fleet"},
    };
    struct policy policy = {.name = ngx_string("api")};
    static struct checked checked;
    for (size_t i = 0; i < 4 * sizeof(rows) / sizeof(rows[0]); i++) {
        const enum variable which = variable_names[i % 4].which;
        ngx_variable_value_t value;
        memset(&value, 0, sizeof(value));
        value.not_found = i % 3 == 0;
        taken = calls = 0;
        checked.policy = &policy;
        checked.verdict = (weir_verdict){.allowed = rows[i / 4].allowed,
                                         .remaining = rows[i / 4].remaining,
                                         .retry_after_ns = rows[i / 4].retry_after_ns,
                                         .basis = rows[i / 4].basis};
        assert_int_equal(variable_write((ngx_pool_t *) (void *) pool, &value, &checked, which), NGX_OK);
        const char *wanted = which == REMAINING     ? rows[i / 4].remaining_text
                             : which == RETRY_AFTER ? rows[i / 4].retry_after
                             : which == POLICY      ? "api"
                                                    : rows[i / 4].basis_text;
        assert_int_equal(value.not_found, wanted == NULL);
        if (wanted != NULL) {
            assert_int_equal(value.len, strlen(wanted));
            assert_memory_equal(value.data, wanted, strlen(wanted));
            assert_true(value.valid && value.no_cacheable);
        }
        /* A request that asked no policy has no such value. */
        memset(&value, 0, sizeof(value));
        checked.policy = NULL;
        assert_int_equal(variable_write((ngx_pool_t *) (void *) pool, &value, &checked, which), NGX_OK);
        assert_true(value.not_found);
        memset(&value, 0, sizeof(value));
        assert_int_equal(variable_write((ngx_pool_t *) (void *) pool, &value, NULL, which), NGX_OK);
        assert_true(value.not_found);
    }
    static const char *const names[] = {"weir_remaining", "weir_retry_after", "weir_policy", "weir_basis"};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(variable_names[i].which, i);
        assert_int_equal(variable_names[i].name.len, strlen(names[i]));
        assert_memory_equal(variable_names[i].name.data, names[i], strlen(names[i]));
    }
    ngx_variable_value_t value;
    memset(&value, 0, sizeof(value));
    checked.policy = &policy;
    calls = 0;
    refused_from = 0;
    assert_int_equal(variable_write((ngx_pool_t *) (void *) pool, &value, &checked, REMAINING), NGX_ERROR);
    refused_from = SIZE_MAX;
}

static void test_a_zones_name_is_plain_and_a_long_one_ends_in_its_hash(void **state)
{
    (void) state;
    for (uint32_t n = 0; n < 256; n++) { /* of CRC-32 */
        uint32_t word = n;
        for (unsigned bit = 0; bit < 8; bit++) {
            word = word >> 1 ^ ((word & 1) != 0 ? 0xedb88320 : 0);
        }
        ngx_crc32_table256[n] = word;
    }
    static const struct {
        char letter;
        size_t count;
        const char *name; /* before the hash, of the letter alone */
        size_t letters;
        const char *hash;
    } rows[] = {
        {'c', 1, "c", 1, ""},      {'Z', 63, "Z", 63, ""},   {'_', 62, "_", 62, ""},
        {'-', 2, "-", 2, ""},      {'9', 3, "9", 3, ""},     {'c', 65, "c", 53, "..d51a1fe2"},
        {'$', 1, ".24", 1, ""},    {'.', 21, ".2e", 21, ""}, {'$', 30, ".24", 17, "..273111c4"},
        {'\xff', 2, ".ff", 2, ""}, {'/', 2, ".2f", 2, ""},   {':', 1, ".3a", 1, ""},
        {'@', 1, ".40", 1, ""},    {'[', 1, ".5b", 1, ""},   {'`', 1, ".60", 1, ""},
        {'{', 1, ".7b", 1, ""},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        u_char text[100];
        char wanted[200] = "";
        struct {
            char name[WEIR_MAX_NAME + 1], behind[8];
        } out;
        memset(text, rows[i].letter, sizeof(text));
        memset(&out, '#', sizeof(out));
        for (size_t n = 0; n < rows[i].letters; n++) {
            (void) strcat(wanted, rows[i].name);
        }
        (void) strcat(wanted, rows[i].hash);
        zone_policy_name(&(ngx_str_t){rows[i].count, text}, out.name);
        assert_string_equal(out.name, wanted);
        assert_int_equal(out.behind[0], '#');
    }
    u_char mixed[82];
    char name[WEIR_MAX_NAME + 1];
    memset(mixed, 'a', 40);
    mixed[40] = '$';
    memset(mixed + 41, 'b', 40);
    zone_policy_name(&(ngx_str_t){81, mixed}, name);
    assert_string_equal(name, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.24bbbbbbbbbb..3247d8b6");
}

static weir_policy_id id;

static struct own_policy own_of(const char *name, uint64_t rate, bool local)
{
    struct own_policy own = {.name = name, .limit = WEIR_LIMIT_INIT, .id = &id};
    own.limit.algorithm = WEIR_LEAKY_BUCKET;
    own.limit.limit = rate;
    own.limit.period_ns = RATE_PERIOD_NS;
    own.limit.burst = 5;
    own.scope = local ? WEIR_SCOPE_PROCESS : WEIR_SCOPE_FLEET;
    return own;
}

static void check_own(const struct known_policies *known, const char *const *names, const uint64_t *rates, size_t count)
{
    static weir_policy policies[20];
    assert_int_equal(known_policies_own(known, policies), count);
    for (size_t i = 0; i < count; i++) {
        assert_string_equal(policies[i].name, names[i]);
        assert_int_equal(policies[i].limit_count, 1);
        assert_int_equal(policies[i].limits->limit, rates[i]);
        assert_int_equal(policies[i].scope, rates[i] % 2 != 0 ? WEIR_SCOPE_PROCESS : WEIR_SCOPE_FLEET);
        assert_int_equal(policies[i].mode, WEIR_ENFORCE);
    }
}

static void test_names_stay_known_and_the_latest_cycle_says_what_they_are(void **state)
{
    (void) state;
    struct known_policies known = {NULL, 0};
    struct own_policy own[3] = {own_of("a", 600, false), own_of("b", 61, true), own_of("c", 60, false)};
    struct policy of_file[2] = {{.name = ngx_string("file")}, {.name = ngx_string("a")}};
    struct block block = {.own = {.elts = own, .nelts = 2}, .file = {.policies = {.elts = of_file, .nelts = 1}}};
    assert_true(known_policies_add(&known, &block, NULL));
    assert_int_equal(known.count, 3);
    check_own(&known, (const char *const[]){"a", "b"}, (const uint64_t[]){600, 61}, 2);
    /* A later cycle: one is of the file now, one has another rate, one is new. */
    own[1] = own_of("b", 120, false);
    block.own = (ngx_array_t){.elts = own + 1, .nelts = 2};
    block.file.policies = (ngx_array_t){.elts = of_file, .nelts = 2};
    assert_true(known_policies_add(&known, &block, NULL));
    assert_int_equal(known.count, 4);
    check_own(&known, (const char *const[]){"b", "c"}, (const uint64_t[]){120, 60}, 2);
    /* A name that was the file's may become a zone's. */
    own[0] = own_of("file", 6, false);
    block.own = (ngx_array_t){.elts = own, .nelts = 1};
    block.file.policies.nelts = 0;
    assert_true(known_policies_add(&known, &block, NULL));
    check_own(&known, (const char *const[]){"b", "file", "c"}, (const uint64_t[]){120, 6, 60}, 3);
    calls = 0;
    refused_from = 0;
    assert_false(known_policies_add(&known, &block, NULL));
    refused_from = SIZE_MAX;
    assert_int_equal(known.count, 4);
    /* The library has so many numbers. */
    static struct own_policy many[WEIR_MAX_POLICIES];
    static char names[WEIR_MAX_POLICIES][8];
    for (size_t i = 0; i < WEIR_MAX_POLICIES; i++) {
        (void) snprintf(names[i], sizeof(names[i]), "n%zu", i);
        many[i] = own_of(names[i], 60, false);
    }
    const struct policy_file file = {.policies = {.elts = of_file, .nelts = 1}}; /* is known */
    struct policy fresh = {.name = ngx_string("fresh")};
    const struct policy_file other = {.policies = {.elts = &fresh, .nelts = 1}};
    assert_true(known_policies_have_room(&known, many, WEIR_MAX_POLICIES - 4, &file));
    assert_false(known_policies_have_room(&known, many, WEIR_MAX_POLICIES - 3, &file));
    assert_true(known_policies_have_room(&known, many, WEIR_MAX_POLICIES - 5, &other));
    assert_false(known_policies_have_room(&known, many, WEIR_MAX_POLICIES - 4, &other));
    own[0] = own_of("b", 6, false);
    assert_true(known_policies_have_room(&known, own, 1, &file));
    known_policies_free(&known);
    assert_true(known.all == NULL && known.count == 0);
}

static void test_what_another_nginx_may_have_made_is_adopted(void **state)
{
    (void) state;
    struct known_policies known = {NULL, 0};
    weir_limit limits[2];
    weir_policy all[6];
    weir_error error;
    weir *w = open_or_fail(NULL);
    for (size_t i = 0; i < 2; i++) {
        limits[i] = own_of("x", 120, false).limit;
    }
    limits[1].period_ns = 10 * RATE_PERIOD_NS;
    weir_limit slow = limits[0], window = limits[0];
    slow.period_ns = RATE_PERIOD_NS / 2;
    window.algorithm = WEIR_FIXED_WINDOW;
    window.burst = 0;
    for (size_t i = 0; i < 6; i++) {
        static const char *const names[] = {"own", "two", "slow", "window", "shadow", "last"};
        all[i] = (weir_policy) WEIR_POLICY_INIT;
        all[i].name = names[i];
        all[i].limits = i == 2 ? &slow : i == 3 ? &window : limits;
        all[i].limit_count = i == 1 ? 2 : 1;
        all[i].mode = i == 4 ? WEIR_SHADOW : WEIR_ENFORCE;
    }
    assert_int_equal(weir_set_policies(w, all, 6, &error), 0);
    known_policies_adopt(&known, w, NULL);
    check_own(&known, (const char *const[]){"own", "last"}, (const uint64_t[]){120, 120}, 2);
    /* Only a known name has a form, and only a change of it is told. */
    assert_int_equal(known_policies_set_form(&known, w, "unknown", 128, &error), 0);
    assert_int_equal(known_policies_set_form(&known, w, "own", 128, &error), 0);
    assert_int_equal(known_policies_set_form(&known, w, "own", 128, &error), 0);
    assert_int_equal(known_policies_set_form(&known, w, "own", 64, &error), 0);
    assert_int_equal(known_policies_set_form(&known, w, "own", KEYS_MIXED, &error), 0);
    assert_int_equal(known_policies_set_form(&known, w, "own", KEYS_UNKNOWN, &error), 0);
    known_policies_free(&known);
    weir_close(w);
}

static void test_a_rare_line_is_written_once_a_minute_and_says_how_many_were_not(void **state)
{
    (void) state;
    static const ngx_msec_t starts[] = {0, 12345, (ngx_msec_t) 0 - 30000}; /* nginx's clock may go over its end */
    for (size_t i = 0; i < sizeof(starts) / sizeof(starts[0]); i++) {
        struct rare_line line = {.written = false};
        struct rare_line other = {.written = false};
        char end[RARE_LINE_END_SIZE];
        ngx_current_msec = starts[i];
        assert_string_equal(rare_line_end(&line, end), "");
        for (unsigned n = 0; n < 1000; n++) {
            ngx_current_msec = starts[i] + n * 59999 / 999;
            assert_null(rare_line_end(&line, end));
        }
        assert_string_equal(rare_line_end(&other, end), "");
        ngx_current_msec = starts[i] + 60000;
        assert_string_equal(rare_line_end(&line, end), "; 1000 more since the last such line");
        assert_null(rare_line_end(&line, end));
        ngx_current_msec = starts[i] + 130000;
        assert_string_equal(rare_line_end(&line, end), "; 1 more since the last such line");
        ngx_current_msec = starts[i] + 200000;
        assert_string_equal(rare_line_end(&line, end), "");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_text_grows_and_stays_whole_or_says_that_it_is_not),
        cmocka_unit_test(test_a_variable_says_what_a_decision_came_to),
        cmocka_unit_test(test_a_zones_name_is_plain_and_a_long_one_ends_in_its_hash),
        cmocka_unit_test(test_names_stay_known_and_the_latest_cycle_says_what_they_are),
        cmocka_unit_test(test_what_another_nginx_may_have_made_is_adopted),
        cmocka_unit_test(test_a_rare_line_is_written_once_a_minute_and_says_how_many_were_not),
    };
    return cmocka_run_group_tests_name("unit/apps/nginx_parts", tests, NULL, NULL);
}
