/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the header of a named segment says to a process that opens it: how far its creator came, and whether the process
 * may use it.
 *
 * Guards: src/named/segment_header.c
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/atomics.h"
#include "named/segment_header.h"
#include "support/some_segment.h"
#include "support/support.h"
#include "thread/joined.h"

#define SIZE UINT64_C(123456)
#define ID   UINT64_C(987)

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static const weir_clock a_clock = {.monotonic_ns = NULL, .wall_ns = real_wall_ns, .arg = NULL};

/* A header that is ready, made with these options. */
static struct segment_header made_with(const weir_options *options)
{
    struct segment_header header;
    memset((void *) &header, 0, sizeof(header));
    memcpy(header.mark, "weir segment", 12);
    segment_header_end(&header, options, SIZE, ID);
    return header;
}

/* A header is refused with this code, and a sentence that begins so. */
static void refused(const struct segment_header *header, uint64_t size, const weir_options *options, int code,
                    const char *begin)
{
    weir_error error = {.code = 0};
    const int result = segment_header_check(header, size, options, &error);
    if (result != code || error.code != code || strncmp(error.message, begin, strlen(begin)) != 0) {
        fail_msg("%d, \"%s\" in place of %d, \"%s\"", result, error.message, code, begin);
    }
}

static void test_a_header_is_of_its_maker(void **state)
{
    (void) state;
    const weir_options options = some_options();
    const struct segment_header header = made_with(&options);
    assert_int_equal(header.layout, SEGMENT_LAYOUT);
    assert_string_equal(header.version, weir_version());
    assert_int_equal(header.size, SIZE);
    assert_int_equal(header.id, ID);
    assert_int_equal(header.pid_namespace, joined_pid_namespace());
    assert_int_equal(header.options.max_keys, 2001);
    assert_string_equal(header.options.prefix, "weir");
    assert_int_equal(segment_header_check(&header, SIZE, &options, NULL), 0);
}

/* Every number alone, both ways round; then the texts, and what may be there or not. */
static void test_each_option_that_differs_is_named_with_both_values(void **state)
{
    (void) state;
    const weir_options first = some_options();
    const struct segment_header header = made_with(&first);
    struct {
        weir_options other;
        const char *begin;
    } rows[] = {
        {first, "options: max_keys is 2002, and the segment was made with 2001; give all processes the same"},
        {first, "options: max_threads is 6, and the segment was made with 5;"},
        {first, "options: max_log_units is 100004, and the segment was made with 100003;"},
        {first, "options: max_processes is 8, and the segment was made with 7;"},
        {first, "options: tick_us is 1010, and the segment was made with 1009;"},
        {first, "options: sync_interval_ms is 212, and the segment was made with 211;"},
        {first, "options: redis_timeout_ms is 1014, and the segment was made with 1013;"},
        {first, "options: expected_nodes is 18, and the segment was made with 17;"},
        {first, "options: prefix is \"weis\", and the segment has \"weir\"; give all processes the same"},
        {first, "options: redis_url is NULL, and that of the segment is not NULL;"},
        {first, "options: redis_url has other servers than that of the segment;"},
        {first, "options: redis_url has other servers than that of the segment;"},
        {first, "options: fleet_secret is another one than that of the segment;"},
        {first, "options: fleet_secret is another one than that of the segment;"},
        {first, "options: clock is not NULL, and that of the segment is NULL;"},
    };
    rows[0].other.max_keys++;
    rows[1].other.max_threads++;
    rows[2].other.max_log_units++;
    rows[3].other.max_processes++;
    rows[4].other.tick_us++;
    rows[5].other.sync_interval_ms++;
    rows[6].other.redis_timeout_ms++;
    rows[7].other.expected_nodes++;
    rows[8].other.prefix = "weis";
    rows[9].other.redis_url = NULL;
    rows[10].other.redis_url = "redis://user:first@10.0.0.6:6379/1";
    rows[11].other.redis_url = "redis://10.0.0.5:6379/2";
    rows[12].other.fleet_secret = NULL;
    rows[13].other.fleet_secret = "0123456789abcdeg";
    rows[14].other.clock = &a_clock;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        refused(&header, SIZE, &rows[i].other, -EINVAL, rows[i].begin);
        const struct segment_header others = made_with(&rows[i].other);
        assert_int_equal(segment_header_check(&others, SIZE, &rows[i].other, NULL), 0);
        assert_int_equal(segment_header_check(&others, SIZE, &first, NULL), -EINVAL);
    }
    const struct segment_header with_clock = made_with(&rows[14].other);
    refused(&with_clock, SIZE, &first, -EINVAL, "options: clock is NULL, and that of the segment is not NULL;");
    const struct segment_header alone = made_with(&rows[9].other);
    refused(&alone, SIZE, &first, -EINVAL, "options: redis_url is not NULL, and that of the segment is NULL;");
}

static void test_what_may_differ_from_process_to_process_is_not_compared(void **state)
{
    (void) state;
    static const char *const urls[] = {"redis://10.0.0.5:6379/1", "redis://user@10.0.0.5:6379/1",
                                       "redis://other:p@ss@10.0.0.5:6379/1"};
    const weir_options first = some_options();
    const struct segment_header header = made_with(&first);
    weir_options other = first;
    other.node_name = "another";
    other.no_thread = other.no_denial_log = true;
    other.log_arg = &other;
    for (size_t i = 0; i < COUNT_OF(urls); i++) {
        other.redis_url = urls[i];
        assert_int_equal(segment_header_check(&header, SIZE, &other, NULL), 0);
    }
}

/* A byte that was changed anywhere is noticed: in what is compared, and in what is not. */
static void test_a_header_with_a_changed_byte_is_refused(void **state)
{
    (void) state;
    const weir_options options = some_options();
    const struct segment_header header = made_with(&options);
    for (size_t i = 0; i < offsetof(struct segment_header, grants); i++) {
        struct segment_header changed;
        memcpy((void *) &changed, (const void *) &header, sizeof(changed));
        ((unsigned char *) &changed)[i] ^= 0x40;
        const size_t text = offsetof(struct segment_header, version);
        const bool of_version =
            (i >= offsetof(struct segment_header, layout) && i < offsetof(struct segment_header, ready)) ||
            (i >= text && i <= text + strlen(weir_version()));
        refused(&changed, SIZE, &options, of_version ? -EPROTO : -EBADMSG,
                of_version ? "the segment is of weir " : "the segment is damaged: its header is wrong; stop");
    }
    refused(&header, SIZE + 1, &options, -EBADMSG, "the segment is damaged: its size is wrong; stop its processes");
    refused(&header, SIZE - 1, &options, -EBADMSG, "the segment is damaged: its size is wrong; stop its processes");
}

static void test_a_segment_of_another_version_is_refused_with_both_versions(void **state)
{
    (void) state;
    const weir_options options = some_options();
    struct segment_header header = made_with(&options);
    char begin[200];
    header.layout = SEGMENT_LAYOUT + 1;
    (void) snprintf(begin, sizeof(begin),
                    "the segment is of weir %s with layout %d, and this is weir %s with layout %d;", weir_version(),
                    SEGMENT_LAYOUT + 1, weir_version(), SEGMENT_LAYOUT);
    refused(&header, SIZE, &options, -EPROTO, begin);
    header.layout = SEGMENT_LAYOUT;
    memset(header.version, '9', sizeof(header.version)); /* without an end */
    (void) snprintf(begin, sizeof(begin), "the segment is of weir 999999999999999 with layout %d, and", SEGMENT_LAYOUT);
    refused(&header, SIZE, &options, -EPROTO, begin);
}

/* `check` has to be right, or the header would be damaged. So another header is made, with the namespaces in place of
 * other bytes: they are written by the maker alone. */
static void test_a_segment_of_another_namespace_is_refused_where_both_are_known(void **state)
{
    (void) state;
    static const struct {
        uint64_t pids, times; /* more than those of this process; 0: not known */
        const char *begin;
    } rows[] = {
        {0, 0, NULL},
        {1, 0,
         "the segment is of another PID namespace, so its processes cannot be told apart; run all of them in one"},
        {0, 1, "the segment is of another time namespace, so"},
        {1, 1, "the segment is of another PID namespace, so"},
        {UINT64_MAX, 0, NULL},
        {0, UINT64_MAX, NULL},
        {UINT64_MAX, UINT64_MAX, NULL},
        {UINT64_MAX, 1, "the segment is of another"},
        {1, UINT64_MAX, "the segment is of another PID namespace, so"},
    };
    const weir_options options = some_options();
    const struct segment_header own = made_with(&options);
    if (own.pid_namespace == 0 || own.time_namespace == 0) {
        print_message("# namespaces are not known here\n");
        skip();
    }
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct segment_header header = own;
        header.pid_namespace = rows[i].pids != UINT64_MAX ? own.pid_namespace + rows[i].pids : 0;
        header.time_namespace = rows[i].times != UINT64_MAX ? own.time_namespace + rows[i].times : 0;
        make_check_good(&header);
        if (rows[i].begin != NULL) {
            refused(&header, SIZE, &options, -EXDEV, rows[i].begin);
        } else {
            assert_int_equal(segment_header_check(&header, SIZE, &options, NULL), 0);
        }
    }
}

/* What a reader finds at each step of the creator, and of files that are not weir's. */
static void test_a_reader_sees_how_far_the_creator_came(void **state)
{
    (void) state;
    const weir_options options = some_options();
    struct segment_header header;
    enum segment_state found = SEGMENT_FOREIGN;
    const int fd = memfd_create("header", MFD_CLOEXEC);
    assert_true(fd >= 0);
    memset((void *) &header, 1, sizeof(header));
    assert_int_equal(segment_header_read(fd, &header, &found), 0);
    assert_int_equal(found, SEGMENT_EMPTY);
    assert_int_equal(header.layout, 0);

    assert_int_equal(segment_header_begin(fd), 0);
    memset((void *) &header, 1, sizeof(header));
    assert_int_equal(segment_header_read(fd, &header, &found), 0); /* shorter than a header */
    assert_int_equal(found, SEGMENT_HALF);
    assert_string_equal(header.mark, "weir segment");
    assert_int_equal(header.id, 0);

    const struct segment_header whole = made_with(&options);
    assert_int_equal(pwrite(fd, &whole, sizeof(whole), 0), sizeof(whole));
    assert_int_equal(segment_header_read(fd, &header, &found), 0);
    assert_int_equal(found, SEGMENT_COMPLETE);
    assert_memory_equal(&header, &whole, sizeof(whole));

    assert_int_equal(pwrite(fd, "x", 1, sizeof(header.mark) - 1), 1); /* the last byte of the mark */
    assert_int_equal(segment_header_read(fd, &header, &found), 0);
    assert_int_equal(found, SEGMENT_FOREIGN);
    (void) close(fd);
    assert_int_equal(segment_header_read(fd, &header, &found), -EBADF);
    assert_int_equal(segment_header_begin(fd), -EBADF);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_header_is_of_its_maker),
        cmocka_unit_test(test_each_option_that_differs_is_named_with_both_values),
        cmocka_unit_test(test_what_may_differ_from_process_to_process_is_not_compared),
        cmocka_unit_test(test_a_header_with_a_changed_byte_is_refused),
        cmocka_unit_test(test_a_segment_of_another_version_is_refused_with_both_versions),
        cmocka_unit_test(test_a_segment_of_another_namespace_is_refused_where_both_are_known),
        cmocka_unit_test(test_a_reader_sees_how_far_the_creator_came),
    };
    return cmocka_run_group_tests_name("unit/named/segment_header", tests, NULL, NULL);
}
