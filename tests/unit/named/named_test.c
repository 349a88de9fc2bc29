/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making and giving up the memory of a name, by itself: how large it is made, whose name is removed, how many there may
 * be.
 *
 * Guards: src/named/named.c
 */
#include "named/named.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "named/segment_header.h"
#include "support/independent.h"
#include "support/support.h"

#define MIB (INT64_C(1) << 20)

static char name[SEGMENT_NAME_SIZE];

static weir_options some_options(void)
{
    weir_options options = WEIR_OPTIONS_INIT;
    options.shared_name = name;
    options.max_keys = 1000;
    options.max_threads = 1;
    options.max_log_units = 1024;
    options.max_processes = 2;
    return options;
}

static void test_a_name_has_a_slash_at_its_beginning_and_no_other(void **state)
{
    (void) state;
    static const struct {
        const char *name;
        size_t length; /* filled up with this many bytes in all; 0: it is not */
        bool good;
    } rows[] = {{"/e", 0, true},    {"/edge.1-2_3", 0, true}, {"/x", 254, true},   {"/x", 255, false},
                {"/x", 256, false}, {"/x", 300, false},       {"", 0, false},      {"/", 0, false},
                {"e", 0, false},    {"edge", 0, false},       {"e/dge", 0, false}, {"//", 0, false},
                {"/a/", 0, false},  {"/a/b", 0, false}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char full[320];
        char says[200];
        weir_error error = {.code = 0};
        memset(full, 'x', sizeof(full));
        memcpy(full, rows[i].name, strlen(rows[i].name));
        full[rows[i].length != 0 ? rows[i].length : strlen(rows[i].name)] = '\0';
        (void) snprintf(
            says, sizeof(says),
            "options: shared_name is \"%.40s\"; give 2 to 254 bytes, of which the first and no other is '/', "
            "such as \"/edge\"",
            full);
        assert_int_equal(named_check(full, &error), rows[i].good ? 0 : -EINVAL);
        assert_string_equal(rows[i].good ? says : error.message, says);
        if (!rows[i].good) {
            assert_int_equal(weir_unlink(full), -EINVAL);
        }
    }
    assert_int_equal(weir_unlink(NULL), -EINVAL);
    assert_int_equal(weir_unlink(name), -ENOENT);
}

/* More than any part takes: 2 KiB a key, 16 bytes a unit, 1 MiB a handle, 4 KiB a process, and 256 MiB. */
static void test_new_memory_has_room_for_all_that_the_options_ask_for(void **state)
{
    (void) state;
    struct {
        weir_options options;
        int64_t size;
    } rows[5];
    for (size_t i = 0; i < 5; i++) {
        rows[i].options = some_options();
        rows[i].size = 256 * MIB + 1000 * 2048 + 1024 * 16 + MIB + 2 * 4096;
    }
    rows[1].options.max_keys += 1000000;
    rows[1].size += 1000000 * INT64_C(2048);
    rows[2].options.max_log_units += 1 << 26;
    rows[2].size += (INT64_C(1) << 26) * 16;
    rows[3].options.max_threads += 100;
    rows[3].size += 100 * MIB;
    rows[4].options.max_processes += 1000;
    rows[4].size += 1000 * 4096;
    for (size_t i = 0; i < 5; i++) {
        struct named named;
        struct pages_owner pages;
        weir_error error = {.code = 0};
        assert_int_equal(named_open(&named, &pages, &rows[i].options, REPLACED_BROKEN, &error), 0);
        assert_int_equal(segment_size(name), rows[i].size);
        assert_true(named.making && named.first && named.segment.fresh && named.replaced == REPLACED_BROKEN);
        assert_string_equal(named.name, name);
        assert_memory_equal(named.header->mark, "weir segment", 13); /* and it is not ready */
        assert_int_equal(named.header->ready, 0);
        assert_true(pages.use == PAGES_SHARED && pages.segment == &named.segment && pages.error == 0);
        named_close(&named);
        assert_int_equal(segment_size(name), -1); /* it was not complete */
        assert_false(named.making);
    }
    struct named zeros = {.name = ""};
    named_close(&zeros);
    int lock_fd = 7;
    assert_int_equal(named_lock(&zeros, &lock_fd), 0);
    assert_int_equal(lock_fd, -1);
    named_unlock(lock_fd);
}

/* A name that was removed meanwhile may be another memory's, which stays. */
static void test_the_name_of_another_memory_is_not_removed(void **state)
{
    (void) state;
    const weir_options options = some_options();
    struct named first;
    struct named second;
    struct pages_owner pages;
    assert_int_equal(named_open(&first, &pages, &options, REPLACED_NONE, NULL), 0);
    assert_int_equal(weir_unlink(name), 0);
    assert_int_equal(named_open(&second, &pages, &options, REPLACED_NONE, NULL), 0);
    const int64_t size = segment_size(name);
    assert_true(size > 0);
    named_close(&first);
    assert_int_equal(segment_size(name), size);
    named_close(&second);
    assert_int_equal(segment_size(name), -1);
}

static void expect_refused(int code, const char *says)
{
    const weir_options options = some_options();
    struct named named;
    struct pages_owner pages;
    weir_error error = {.code = 0};
    assert_int_equal(named_open(&named, &pages, &options, REPLACED_NONE, &error), code);
    assert_int_equal(error.code, code);
    assert_string_equal(error.message, says);
}

/* The opener leaves such memory as it is, and gives its lock back. */
static void test_memory_that_others_may_have_written_is_refused(void **state)
{
    (void) state;
    char says[300];
    const size_t descriptors = count_descriptors();
    const int fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "something", 9), 9);
    for (mode_t bit = 1; bit <= 040; bit *= 2) {
        assert_int_equal(fchmod(fd, 0600 | bit), 0);
        (void) snprintf(says, sizeof(says),
                        "\"%s\" has mode %04o, so that other users may open it; remove it with weir_unlink", name,
                        0600U | (unsigned) bit);
        expect_refused(-EACCES, says);
    }
    assert_int_equal(fchmod(fd, 0600), 0);
    if (geteuid() == 0 && fchown(fd, 12345, (gid_t) -1) == 0) {
        (void) snprintf(says, sizeof(says),
                        "\"%s\" belongs to user 12345, and this process is of user 0; choose another shared_name",
                        name);
        expect_refused(-EACCES, says);
        assert_int_equal(fchown(fd, 0, (gid_t) -1), 0);
    }
    (void) snprintf(says, sizeof(says),
                    "\"%s\" is damaged, or is no segment of weir's; choose another shared_name, or remove it with "
                    "weir_unlink",
                    name);
    expect_refused(-EBADMSG, says);
    assert_int_equal(segment_size(name), 9);
    assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
    assert_int_equal(close(fd), 0);
    assert_int_equal(count_descriptors(), descriptors);
    assert_int_equal(weir_unlink(name), 0);
}

/* A forked child that joins takes the lock again. Here the lock's descriptor is 0. */
static void test_a_lock_that_is_taken_again_is_given_back(void **state)
{
    (void) state;
    const weir_options options = some_options();
    struct named named;
    struct pages_owner pages;
    int lock_fd = -1;
    assert_int_equal(named_open(&named, &pages, &options, REPLACED_NONE, NULL), 0);
    segment_unlock(&named.segment);
    int kept = take_0_away();
    for (int i = 0; i < 2; i++) {
        assert_int_equal(named_lock(&named, &lock_fd), 0);
        assert_int_equal(lock_fd, 0);
        assert_int_equal(flock(named.segment.fd, LOCK_EX | LOCK_NB), -1);
        named_unlock(lock_fd);
        assert_int_equal(fcntl(0, F_GETFD), -1);
    }
    give_back_0(kept);
    assert_int_equal(flock(named.segment.fd, LOCK_EX | LOCK_NB), 0);
    named_close(&named);
    /* A child that was forked has the descriptor too, and keeps no lock by it. */
    kept = take_0_away();
    assert_int_equal(named_open(&named, &pages, &options, REPLACED_NONE, NULL), 0);
    assert_int_equal(named.segment.fd, 0);
    const struct segment childs = {.fd = fcntl(0, F_DUPFD_CLOEXEC, 3)};
    named_close(&named);
    give_back_0(kept);
    assert_int_equal(segment_lock_again(&childs, &lock_fd), 0);
    segment_unlock_again(lock_fd);
    assert_int_equal(close(childs.fd), 0);
}

static void test_grants_are_given_where_all_that_entered_may(void **state)
{
    (void) state;
    struct segment_header header;
    memset((void *) &header, 0, sizeof(header));
    struct named named = {.header = NULL};
    assert_false(named_forbids_grants(&named));
    named.header = &header;
    assert_true(named_forbids_grants(&named));
    header.grants = 1;
    assert_false(named_forbids_grants(&named));
}

static void test_a_process_may_have_256_named_weirs_open(void **state)
{
    (void) state;
    static struct named all[256];
    static char names[257][SEGMENT_NAME_SIZE];
    const size_t descriptors = count_descriptors();
    struct pages_owner pages;
    struct named one_more;
    weir_options options = some_options();
    weir_error error = {.code = 0};
    for (size_t i = 0; i < 257; i++) {
        char word[16];
        (void) snprintf(word, sizeof(word), "many%zu", i);
        segment_name(names[i], word);
        options.shared_name = names[i];
        if (i < 256 && named_open(&all[i], &pages, &options, REPLACED_NONE, &error) != 0) {
            fail_msg("%zu: %s", i, error.message);
        }
    }
    char says[200];
    (void) snprintf(says, sizeof(says),
                    "\"%s\": this process has 256 named weirs open, as many as may be; close one first", names[256]);
    assert_int_equal(named_open(&one_more, &pages, &options, REPLACED_NONE, &error), -EMFILE);
    assert_int_equal(error.code, -EMFILE);
    assert_string_equal(error.message, says);
    assert_int_equal(segment_size(names[256]), -1);
    named_close(&all[100]);
    assert_int_equal(named_open(&one_more, &pages, &options, REPLACED_NONE, &error), 0);
    named_close(&one_more);
    for (size_t i = 0; i < 256; i++) {
        if (i != 100) {
            named_close(&all[i]);
        }
    }
    assert_int_equal(count_descriptors(), descriptors);
}

/* What the system refuses: the mark, the size, the id. The linker's --wrap leads the calls here. */
static int refused, asked;

ssize_t __real_pwrite64(int fd, const void *bytes, size_t size, off_t at);
ssize_t __wrap_pwrite64(int fd, const void *bytes, size_t size, off_t at);
int __real_ftruncate64(int fd, off_t size);
int __wrap_ftruncate64(int fd, off_t size);
ssize_t __real_getrandom(void *out, size_t size, unsigned flags);
ssize_t __wrap_getrandom(void *out, size_t size, unsigned flags);

static bool is_refused(void)
{
    errno = ENOSPC;
    return ++asked == refused;
}

ssize_t __wrap_pwrite64(int fd, const void *bytes, size_t size, off_t at)
{
    return is_refused() ? -1 : __real_pwrite64(fd, bytes, size, at);
}

int __wrap_ftruncate64(int fd, off_t size)
{
    return is_refused() ? -1 : __real_ftruncate64(fd, size);
}

ssize_t __wrap_getrandom(void *out, size_t size, unsigned flags)
{
    return is_refused() ? -1 : __real_getrandom(out, size, flags);
}

static void test_an_opener_that_the_system_refuses_something_leaves_nothing(void **state)
{
    (void) state;
    const size_t descriptors = count_descriptors();
    const size_t mapped = count_mapped_pages();
    char says[300];
    (void) snprintf(says, sizeof(says),
                    "\"%s\": there is no room in /dev/shm: No space left on device; make that file system larger, or "
                    "give a smaller max_keys",
                    name);
    for (refused = 1; refused <= 3; refused++) {
        asked = 0;
        expect_refused(-ENOSPC, says);
        assert_int_equal(asked, refused);
        assert_int_equal(segment_size(name), -1);
        assert_int_equal(count_descriptors(), descriptors);
        assert_true(SLOWED || count_mapped_pages() <= mapped + 100); /* what stdio takes is not the library's */
    }
    refused = 0;
}

static int open_without_addresses(void *arg)
{
    const weir_options *options = arg;
    const struct rlimit limit = {.rlim_cur = (rlim_t) (256 * MIB), .rlim_max = (rlim_t) (256 * MIB)};
    struct named named;
    struct pages_owner pages;
    weir_error error;
    char says[200];
    (void) snprintf(says, sizeof(says), "\"%s\": out of memory for 2210 MiB of addresses", name);
    if (setrlimit(RLIMIT_AS, &limit) != 0 || named_open(&named, &pages, options, REPLACED_NONE, &error) != -ENOMEM ||
        error.code != -ENOMEM) {
        return 1;
    }
    return strcmp(error.message, says) == 0 ? 0 : 2;
}

static int open_with_short_files(void *arg)
{
    const weir_options *options = arg;
    const rlim_t size = (rlim_t) (257 * MIB) + (rlim_t) 1000000 * 2048 + 1024 * 16 + 2 * 4096;
    struct named named;
    struct pages_owner pages;
    weir_error error;
    char says[300];
    (void) snprintf(says, sizeof(says),
                    "\"%s\": the limit on the size of files (RLIMIT_FSIZE) is 2210 MiB; a segment of these options "
                    "needs 2210 MiB while it is made",
                    name);
    if (setrlimit(RLIMIT_FSIZE, &(struct rlimit){size, size}) != 0 ||
        named_open(&named, &pages, options, REPLACED_NONE, &error) != 0) {
        return 1;
    }
    named_close(&named);
    if (setrlimit(RLIMIT_FSIZE, &(struct rlimit){size - 1, size - 1}) != 0 ||
        named_open(&named, &pages, options, REPLACED_NONE, &error) != -EFBIG || error.code != -EFBIG) {
        return 2;
    }
    return strcmp(error.message, says) == 0 ? 0 : 3;
}

/* An error that no option has caused is told in the system's own words. */
static int open_without_descriptors(void *arg)
{
    const weir_options *options = arg;
    struct named named;
    struct pages_owner pages;
    weir_error error;
    char says[200];
    (void) snprintf(says, sizeof(says), "\"%s\" cannot be opened: Too many open files", name);
    if (setrlimit(RLIMIT_NOFILE, &(struct rlimit){0, 0}) != 0 ||
        named_open(&named, &pages, options, REPLACED_NONE, &error) != -EMFILE || error.code != -EMFILE) {
        return 1;
    }
    return strcmp(error.message, says) == 0 ? 0 : 2;
}

static void test_an_opener_without_descriptors_says_what_the_system_says(void **state)
{
    (void) state;
    weir_options options = some_options();
    expect_end(start_independent(open_without_descriptors, &options));
    assert_int_equal(segment_size(name), -1);
}

/* 1,000,000 keys of 2 KiB each, a handle, and the rest: 2,210 MiB. */
static void test_an_opener_without_room_says_how_much_is_needed(void **state)
{
    (void) state;
    weir_options options = some_options();
    options.max_keys = 1000000;
    if (!SLOWED) { /* a sanitizer or an emulator has taken more addresses already */
        expect_end(start_independent(open_without_addresses, &options));
        assert_int_equal(segment_size(name), -1);
    }
    expect_end(start_independent(open_with_short_files, &options));
    assert_int_equal(segment_size(name), -1);
}

int main(void)
{
    segment_name(name, "named");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_name_has_a_slash_at_its_beginning_and_no_other),
        cmocka_unit_test(test_new_memory_has_room_for_all_that_the_options_ask_for),
        cmocka_unit_test(test_the_name_of_another_memory_is_not_removed),
        cmocka_unit_test(test_memory_that_others_may_have_written_is_refused),
        cmocka_unit_test(test_a_lock_that_is_taken_again_is_given_back),
        cmocka_unit_test(test_grants_are_given_where_all_that_entered_may),
        cmocka_unit_test(test_an_opener_that_the_system_refuses_something_leaves_nothing),
        cmocka_unit_test(test_an_opener_without_room_says_how_much_is_needed),
        cmocka_unit_test(test_an_opener_without_descriptors_says_what_the_system_says),
        cmocka_unit_test(test_a_process_may_have_256_named_weirs_open),
    };
    const int failed = cmocka_run_group_tests_name("unit/named/named", tests, NULL, NULL);
    (void) shm_unlink(name);
    return failed;
}
