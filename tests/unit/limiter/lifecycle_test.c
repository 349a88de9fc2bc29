/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening, closing, attaching and forking leave nothing behind.
 *
 * Guards: src/limiter/weir.c, src/limiter/weir_open.c, src/limiter/options.c, src/limiter/background.c,
 * src/thread/limiter.c, src/thread/thread.c, src/limiter/stats.c
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/hash_inl.h"
#include "support/nodes.h"

#define ROUNDS 300

static const weir_limit ten = {.algorithm = WEIR_FIXED_WINDOW, .limit = 10, .period_ns = 24 * HOUR};

static void test_hundreds_of_rounds_leave_no_thread_and_no_descriptor(void **state)
{
    (void) state;
    weir_close(open_or_fail(NULL)); /* what the first thread of a process makes is not the library's */
    const size_t threads = count_threads();
    const size_t descriptors = count_descriptors();
    for (int round = 0; round < ROUNDS; round++) {
        weir_options options = WEIR_OPTIONS_INIT;
        options.max_keys = 1000;
        options.max_threads = 2;
        options.redis_timeout_ms = 10;
        options.redis_url = round % 3 == 0 ? "redis://127.0.0.1:1" : NULL;
        weir *w = open_or_fail(&options);
        const weir_policy_id policy = set_one_policy(w, &ten, 1, WEIR_SCOPE_FLEET);
        weir_thread *t = weir_attach(w);
        const weir_key key = weir_make_key(w, policy, "k", 1);
        assert_true(weir_check(t, &key, 1, NULL));
        if (round % 2 == 0) {
            weir_detach(t); /* else weir_close detaches it */
        }
        weir_close(w);
    }
    expect_no_more_threads(threads);
    assert_int_equal(count_descriptors(), descriptors);
}

/*
 * Where the library's first descriptor is 0: that of the thread, the loop, the memory of a name. And a program that the
 * host executes gets none of them.
 */
static void test_descriptor_0_is_one_like_any_other_and_none_outlives_an_exec(void **state)
{
    (void) state;
    enum { DESCRIPTORS = 64 };
    char name[64];
    (void) snprintf(name, sizeof(name), "/weir_zero_%d", (int) getpid());
    for (int round = 0; round < 4; round++) {
        weir_options options = WEIR_OPTIONS_INIT;
        options.max_keys = 1000;
        options.max_threads = 1;
        options.no_thread = round != 0;
        options.shared_name = round >= 2 ? name : NULL; /* made, and entered */
        const int kept = take_0_away();
        const size_t descriptors = count_descriptors();
        bool there[DESCRIPTORS];
        for (int fd = 0; fd < DESCRIPTORS; fd++) {
            there[fd] = fcntl(fd, F_GETFD) >= 0;
        }
        weir *w = open_or_fail(&options);
        if (round != 0) {
            const int fd = weir_poll_fd(w);
            assert_true(round == 1 ? fd == 0 : fd > 0);
            assert_int_equal(weir_poll_fd(w), fd);
            assert_true(weir_poll(w) >= 0);
        }
        assert_int_not_equal(fcntl(0, F_GETFD), -1);
        assert_true(round != 0 || (fcntl(0, F_GETFL) & O_NONBLOCK) != 0);
        for (int fd = 0; fd < DESCRIPTORS; fd++) {
            const int flags = fcntl(fd, F_GETFD);
            assert_true(flags < 0 || there[fd] || (flags & FD_CLOEXEC) != 0);
        }
        weir_close(w);
        assert_int_equal(fcntl(0, F_GETFD), -1);
        assert_int_equal(count_descriptors(), descriptors);
        give_back_0(kept);
    }
    assert_int_equal(weir_unlink(name), 0);
}

static void test_threads_are_refused_beyond_the_maximum_and_places_come_back(void **state)
{
    (void) state;
    weir_options options = WEIR_OPTIONS_INIT;
    options.max_threads = 2;
    weir *w = open_or_fail(&options);
    weir_thread *a = weir_attach(w);
    weir_thread *b = weir_attach(w);
    assert_non_null(a);
    assert_non_null(b);
    assert_null(weir_attach(w));
    weir_detach(a);
    assert_non_null(weir_attach(w));
    weir_detach(NULL);
    weir_close(w);
    weir_close(NULL);
}

static void test_a_forked_child_may_close_its_copy_and_the_parent_goes_on(void **state)
{
    (void) state;
    weir *w = open_or_fail(NULL);
    const weir_policy_id policy = set_one_policy(w, &ten, 1, WEIR_SCOPE_FLEET);
    weir_thread *t = weir_attach(w);
    const weir_key key = weir_make_key(w, policy, "k", 1);
    assert_true(weir_check(t, &key, 4, NULL));
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        weir_close(w); /* would hang if weir_close joined a thread that the child lacks */
        _exit(7);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 7);
    assert_true(weir_check(t, &key, 6, NULL));
    assert_false(weir_check(t, &key, 1, NULL));
    weir_close(w);
}

/* Each malformed option is refused with a sentence that begins so, or has the words. */
#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static void refused(const weir_options *options, const char *words)
{
    weir *w = (weir *) (uintptr_t) 1;
    weir_error error;
    assert_int_equal(weir_open(options, &w, &error), -EINVAL);
    assert_int_equal(error.code, -EINVAL);
    assert_null(w);
    if (strstr(error.message, words) == NULL) {
        fail_msg("\"%s\" does not say %s", error.message, words);
    }
}

/* Options that are as small as may be, so that opening takes no time. */
static weir_options small_options(void)
{
    weir_options options = WEIR_OPTIONS_INIT;
    options.max_keys = 1000;
    options.max_threads = 1;
    options.max_log_units = 1000;
    options.no_thread = true;
    return options;
}

/* The number of an option, by its place. */
static void set_number(weir_options *options, size_t at, size_t size, uint64_t value)
{
    const uint32_t half = (uint32_t) value;
    memcpy((unsigned char *) options + at, size == sizeof(half) ? (const void *) &half : (const void *) &value, size);
}

#define NUMBER(field) #field, offsetof(weir_options, field), sizeof(((weir_options *) NULL)->field)

static void test_each_number_has_a_least_and_a_most(void **state)
{
    (void) state;
    static const struct {
        const char *name;
        size_t at, size;
        uint64_t least, most, opened; /* the greatest that is opened here: some would take all memory */
        const char *range;
    } rows[] = {
        {NUMBER(max_keys), 1000, 100000000, 1001, "1000 to 100000000, or 0"},
        {NUMBER(max_threads), 1, 1024, 1024, "1 to 1024, or 0"},
        {NUMBER(sync_interval_ms), 10, 60000, 60000, "10 to 60000 ms, or 0"},
        {NUMBER(redis_timeout_ms), 10, 60000, 60000, "10 to 60000 ms, or 0"},
        {NUMBER(tick_us), 100, 100000, 100000, "100 to 100000 us, or 0"},
        {NUMBER(max_log_units), 1000, 4000000000, 1001, "1000 to 4000000000, or 0"},
        {NUMBER(expected_nodes), 0, 65535, 65535, "0 to 65535, or 0"},
        {NUMBER(max_processes), 2, 1024, 1024, "2 to 1024, or 0"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const uint64_t good[] = {0, rows[i].least, rows[i].opened};
        const uint64_t bad[] = {rows[i].least - 1, rows[i].most + 1, UINT32_MAX};
        weir_options options = small_options();
        options.shared = strcmp(rows[i].name, "max_processes") == 0;
        for (size_t j = 0; j < 3; j++) {
            set_number(&options, rows[i].at, rows[i].size, good[j]);
            weir_close(open_or_fail(&options));
        }
        for (size_t j = rows[i].least > 1 ? 0 : 1; j < 3; j++) {
            char says[200];
            const bool in_range = bad[j] >= rows[i].least && bad[j] <= rows[i].most;
            (void) snprintf(says, sizeof(says), "options: %s is %" PRIu64 "; give %s for the default", rows[i].name,
                            bad[j], rows[i].range);
            set_number(&options, rows[i].at, rows[i].size, bad[j]);
            if (!in_range) {
                refused(&options, says);
            }
        }
    }
}

static void test_texts_have_a_length_and_an_alphabet(void **state)
{
    (void) state;
    char secret[1026];
    char prefix[] = "weir";
    weir_options options = small_options();
    memset(secret, 'x', sizeof(secret));
    static const struct {
        size_t length;
        const char *says; /* NULL: it is good */
    } secrets[] = {{0, "options: fleet_secret has too few bytes; give 16 to 1024, or NULL for none"},
                   {15, "options: fleet_secret has too few bytes"},
                   {16, NULL},
                   {1024, NULL},
                   {1025, "options: fleet_secret has too many bytes; give 16 to 1024"}};
    for (size_t i = 0; i < sizeof(secrets) / sizeof(secrets[0]); i++) {
        secret[secrets[i].length] = '\0';
        options.fleet_secret = secret;
        if (secrets[i].says != NULL) {
            refused(&options, secrets[i].says);
        } else {
            weir_close(open_or_fail(&options));
        }
        secret[secrets[i].length] = 'x';
    }
    options = small_options();
    options.prefix = "";
    refused(&options, "options: prefix has 0 bytes; give 1 to 32");
    options.prefix = "x23456789_123456789_123456789_123";
    refused(&options, "options: prefix has 33 bytes; give 1 to 32");
    options.prefix++;
    weir_close(open_or_fail(&options));
    options.prefix = prefix;
    for (unsigned byte = 1; byte < 256; byte++) {
        char says[120];
        prefix[2] = (char) byte;
        (void) snprintf(says, sizeof(says),
                        "options: prefix has byte 0x%02x at 2; use printable ASCII without spaces and braces", byte);
        if (byte <= ' ' || byte >= 0x7f || byte == '{' || byte == '}') {
            refused(&options, says);
        } else if (byte % 16 == 1) {
            weir_close(open_or_fail(&options));
        }
    }
}

static void test_other_malformed_options_are_refused_by_name(void **state)
{
    (void) state;
    weir_error error;
    assert_int_equal(weir_open(NULL, NULL, &error), -EINVAL);
    assert_string_equal(error.message, "out is NULL; give a place for the weir");
    weir_options options = small_options();
    options.redis_url = "http://127.0.0.1";
    refused(&options, "redis_url");
    options = small_options();
    options.max_processes = 2;
    refused(&options, "options: max_processes is 2 without shared; set shared, or give max_processes 0");
    options.shared_name = "edge";
    refused(&options, "options: shared_name is \"edge\"; give 2 to ");
    options.shared = true;
    refused(&options, "options: shared_name is \"edge\"; give 2 to ");
    struct fake_clock fake;
    fake_clock_init(&fake, 1);
    weir_clock half = fake.clock;
    options = small_options();
    options.clock = &half;
    half.monotonic_ns = NULL;
    refused(&options, "options: clock has no monotonic_ns; give both functions, or NULL for the system's clock");
    half = fake.clock;
    half.wall_ns = NULL;
    refused(&options, "options: clock has no wall_ns;");
}

/* weir.h: new fields come at the end; a caller says how much of the struct there was. */
static void test_options_of_another_size_are_read_as_far_as_both_know_them(void **state)
{
    (void) state;
    weir_options options = small_options();
    options.size = offsetof(weir_options, max_log_units) - 1; /* smaller than any there was */
    char says[100];
    (void) snprintf(says, sizeof(says), "options: size is %zu, which no version of weir_options has", options.size);
    refused(&options, says);
    options.size = 0;
    refused(&options, "options: size is 0, which no version of weir_options has; initialize the struct, as in "
                      "weir_options options = WEIR_OPTIONS_INIT");
    options.size = offsetof(weir_options, max_log_units);
    options.max_log_units = 1; /* beyond: it is not looked at */
    weir_close(open_or_fail(&options));
    options.size = offsetof(weir_options, expected_nodes);
    refused(&options, "max_log_units is 1");
    options.max_log_units = 1000;
    options.expected_nodes = 65536;
    weir_close(open_or_fail(&options));
    struct {
        weir_options known;
        char later[3];
    } newer = {small_options(), {0, 0, 0}};
    newer.known.size = offsetof(__typeof__(newer), later) + sizeof(newer.later);
    weir_close(open_or_fail(&newer.known));
    for (size_t i = 0; i < sizeof(newer.later); i++) {
        newer.later[i] = 1;
        (void) snprintf(says, sizeof(says), "options: byte %zu of %zu is set, which this version (%s) does not know",
                        sizeof(weir_options) + i, newer.known.size, weir_version());
        refused(&newer.known, says);
        newer.later[i] = 0;
    }
}

/* A struct that nobody has initialized has any size, and no more bytes than it has are read. */
static void test_options_of_rubbish_say_how_to_begin(void **state)
{
    (void) state;
    static const size_t sizes[] = {1, 1025, 4096, UINT32_MAX, SIZE_MAX / 2, SIZE_MAX};
    weir_options *options = calloc(1, sizeof(*options)); /* a sanitizer sees what is read behind it */
    assert_non_null(options);
    for (int byte = 0; byte < 256; byte++) {
        memset((void *) options, byte, sizeof(*options));
        refused(options, "initialize the struct, as in weir_options options = WEIR_OPTIONS_INIT");
    }
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        *options = small_options();
        options->size = sizes[i];
        refused(options, "which no version of weir_options has");
    }
    free(options);
}

static void test_zeroed_options_mean_defaults(void **state)
{
    (void) state;
    const weir_options options = {.size = sizeof(options)};
    const weir_options defaults = WEIR_OPTIONS_INIT;
    const weir_options *const all[] = {&options, &defaults, NULL};
    for (size_t i = 0; i < 3; i++) {
        weir *w = open_or_fail(all[i]);
        assert_int_equal(w->options.size, sizeof(weir_options));
        assert_int_equal(w->options.max_keys, 65536);
        assert_int_equal(w->options.max_threads, 64);
        assert_int_equal(w->options.sync_interval_ms, 200);
        assert_int_equal(w->options.redis_timeout_ms, 1000);
        assert_int_equal(w->options.tick_us, 1000);
        assert_int_equal(w->options.max_log_units, 4194304);
        assert_int_equal(w->options.max_processes, 0);
        assert_int_equal(weir_poll(w), -EINVAL); /* the weir has a thread of its own */
        assert_int_equal(weir_sync(w, 10), -ENOTCONN);
        weir_stats stats;
        weir_get_stats(w, &stats);
        assert_int_equal(stats.link, WEIR_LINK_NONE);
        assert_true(stats.key_capacity >= 65536);
        weir_close(w);
    }
    weir_options shared = small_options();
    shared.shared = true;
    weir *w = open_or_fail(&shared);
    assert_int_equal(w->options.max_processes, 64);
    weir_close(w);
    struct fake_clock fake;
    fake_clock_init(&fake, 1);
    shared = small_options();
    shared.no_thread = false;
    shared.clock = &fake.clock; /* a clock of the host: no thread */
    w = open_or_fail(&shared);
    assert_true(weir_poll(w) >= 0);
    weir_close(w);
}

static void test_checks_against_no_policy_pass_and_are_counted(void **state)
{
    (void) state;
    weir *w = open_or_fail(NULL);
    weir_thread *t = weir_attach(w);
    assert_int_equal(weir_find_policy(w, "p"), WEIR_NO_POLICY);
    assert_int_equal(weir_find_policy(w, NULL), WEIR_NO_POLICY);
    const weir_key keys[] = {weir_make_key(w, WEIR_NO_POLICY, "k", 1), weir_make_key(w, 500, "k", 1),
                             weir_make_key(w, UINT32_MAX, "k", 1)};
    for (size_t i = 0; i < 3; i++) {
        weir_verdict v;
        assert_true(weir_check(t, &keys[i], 1, &v));
        assert_true(v.allowed);
    }
    weir_stats stats;
    weir_get_stats(w, &stats);
    assert_int_equal(stats.unknown_policy_count, 3);
    weir_close(w);
}

static void test_metrics_say_how_much_room_they_need(void **state)
{
    (void) state;
    weir *w = open_or_fail(NULL);
    const weir_policy_id policy = set_one_policy(w, &ten, 1, WEIR_SCOPE_PROCESS);
    weir_thread *t = weir_attach(w);
    const weir_key key = weir_make_key(w, policy, "k", 1);
    for (int i = 0; i < 15; i++) {
        (void) weir_check(t, &key, 1, NULL);
    }
    const int needed = weir_write_metrics(w, NULL, 0);
    assert_true(needed > 500);
    char small[64];
    assert_int_equal(weir_write_metrics(w, small, sizeof(small)), needed);
    assert_int_equal(small[sizeof(small) - 1], '\0');
    static char all[65536];
    assert_int_equal(weir_write_metrics(w, all, sizeof(all)), needed);
    assert_int_equal(strlen(all), needed);
    assert_non_null(strstr(all, "weir_checks_total{policy=\"p\",answer=\"allowed\"} 10\n"));
    assert_non_null(strstr(all, "weir_checks_total{policy=\"p\",answer=\"denied\"} 5\n"));
    weir_close(w);
}

/* Keys of one policy differ where their bytes or lengths do; beyond 65,535 bytes a key is cut. */
static void test_a_key_has_its_bytes_its_policy_and_a_hash_of_both(void **state)
{
    (void) state;
    static unsigned char bytes[70000];
    weir *w = open_or_fail(NULL);
    weir *other = open_or_fail(NULL);
    const weir_key longest = weir_make_key(w, 1, bytes, 65535);
    static const size_t lengths[] = {0, 1, HASH_SHORT - 1, HASH_SHORT, HASH_SHORT + 1, 100, 65534};
    static const weir_policy_id ids[] = {WEIR_NO_POLICY, 1, 2, WEIR_MAX_POLICIES, WEIR_MAX_POLICIES + 1, UINT32_MAX};
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        const weir_key key = weir_make_key(w, 1, bytes, lengths[i]);
        assert_true(key.data == bytes && key.length == lengths[i] && key.policy == 1 && key.hash != 0);
        assert_int_equal(weir_make_key(w, 1, bytes, lengths[i]).hash, key.hash);
        assert_int_not_equal(weir_make_key(w, 1, bytes, lengths[i] + 1).hash, key.hash);
        assert_int_not_equal(weir_make_key(other, 1, bytes, lengths[i]).hash, key.hash); /* another secret */
        if (lengths[i] != 0) {
            bytes[lengths[i] - 1] = 1;
            assert_int_not_equal(weir_make_key(w, 1, bytes, lengths[i]).hash, key.hash);
            bytes[lengths[i] - 1] = 0;
        }
        for (size_t j = 0; j < sizeof(ids) / sizeof(ids[0]); j++) {
            const weir_key same = weir_make_key(w, ids[j], bytes, lengths[i]);
            assert_true(same.policy == ids[j] && (same.hash == key.hash) == (ids[j] == 1));
        }
        /* Numbers that no policy has are as good as each other. */
        assert_int_equal(weir_make_key(w, WEIR_MAX_POLICIES + 1, bytes, lengths[i]).hash,
                         weir_make_key(w, WEIR_NO_POLICY, bytes, lengths[i]).hash);
        assert_int_not_equal(weir_make_key(w, WEIR_MAX_POLICIES, bytes, lengths[i]).hash,
                             weir_make_key(w, WEIR_NO_POLICY, bytes, lengths[i]).hash);
    }
    for (size_t length = 65535; length <= sizeof(bytes); length += 4465) {
        bytes[sizeof(bytes) - 1] = 7;
        const weir_key key = weir_make_key(w, 1, bytes, length);
        assert_true(key.length == 65535 && key.hash == longest.hash);
    }
    weir_close(other);
    weir_close(w);
}

static void test_a_poll_says_after_how_many_milliseconds_it_is_due_again(void **state)
{
    (void) state;
    static const struct {
        uint32_t tick_us;
        int wait_ms;
    } rows[] = {{100, 1}, {999, 1}, {1000, 1}, {1001, 2}, {2000, 2}, {99001, 100}, {100000, 100}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct fake_clock clock;
        fake_clock_init(&clock, START_NS);
        weir_options options = small_options();
        options.clock = &clock.clock;
        options.tick_us = rows[i].tick_us;
        weir *w = open_or_fail(&options);
        for (int j = 0; j < 3; j++) {
            assert_int_equal(weir_poll(w), rows[i].wait_ms);
            fake_clock_advance(&clock, 7 * MILLISECOND + 1);
        }
        weir_close(w);
    }
}

/* Whatever it says, the key is cleared here, but of a policy that is not there. */
static void test_a_reset_says_how_far_it_came(void **state)
{
    (void) state;
    const weir_policy policy = {.name = "p", .limits = &ten, .limit_count = 1};
    static const int codes[] = {0, -ETIMEDOUT, -ENOTCONN, 0};
    struct nodes n;
    nodes_init(&n, &policy, 1);
    node_open(&n, 0, 0);
    struct node *node = &n.node[0];
    for (size_t i = 0; i < 4; i++) {
        loopback_fleet_set_down(n.fleet, i == 1 || i == 2);
        node->w->options.redis_timeout_ms = codes[i] == -ETIMEDOUT ? 20 : 60000;
        if (i != 1) { /* else the node does not know yet */
            pass(&n, 2000);
        }
        assert_int_equal(ask_freely(node, 20), 10);
        assert_int_equal(weir_reset(node->w, &node->key), codes[i]);
        assert_int_equal(room(node), 10);
    }
    const weir_key unknown = weir_make_key(node->w, 2, "key", 3);
    assert_int_equal(weir_reset(node->w, &unknown), -ENOENT);
    nodes_stop(&n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hundreds_of_rounds_leave_no_thread_and_no_descriptor),
        cmocka_unit_test(test_descriptor_0_is_one_like_any_other_and_none_outlives_an_exec),
        cmocka_unit_test(test_threads_are_refused_beyond_the_maximum_and_places_come_back),
        cmocka_unit_test(test_a_forked_child_may_close_its_copy_and_the_parent_goes_on),
        cmocka_unit_test(test_each_number_has_a_least_and_a_most),
        cmocka_unit_test(test_texts_have_a_length_and_an_alphabet),
        cmocka_unit_test(test_other_malformed_options_are_refused_by_name),
        cmocka_unit_test(test_options_of_another_size_are_read_as_far_as_both_know_them),
        cmocka_unit_test(test_options_of_rubbish_say_how_to_begin),
        cmocka_unit_test(test_zeroed_options_mean_defaults),
        cmocka_unit_test(test_checks_against_no_policy_pass_and_are_counted),
        cmocka_unit_test(test_metrics_say_how_much_room_they_need),
        cmocka_unit_test(test_a_key_has_its_bytes_its_policy_and_a_hash_of_both),
        cmocka_unit_test(test_a_poll_says_after_how_many_milliseconds_it_is_due_again),
        cmocka_unit_test(test_a_reset_says_how_far_it_came),
    };
    return cmocka_run_group_tests_name("unit/limiter/lifecycle", tests, NULL, NULL);
}
