/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an opener of a named weir meets: segments of others, half made and damaged ones, dead processes, a full file
 * system. Nothing of it is left behind, and no process that opens is killed by it.
 *
 * Guards: src/named/named.c, src/named/segment_header.c, src/base/memory/segment.c, src/base/pages.c,
 * src/limiter/options.c, src/limiter/weir_parts.c, src/limiter/join.c, src/process/history_store.c,
 * src/process/top_denied.c, src/limiter/shared_policies.c, src/thread/thread.c
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomics.h"
#include "limiter/weir_private.h"
#include "named/segment_header.h"
#include "support/independent.h"
#include "support/support.h"

static char name[SEGMENT_NAME_SIZE];

/* How often other processes have come to where the test waits for them; in memory that they share with it. */
static _Atomic uint64_t *opens;

/* What the log function was told last. */
static char logged[512];

static void keep_line(void *arg, weir_log_level level, const char *message)
{
    (void) arg;
    (void) level;
    (void) snprintf(logged, sizeof(logged), "%s", message);
}

static weir_options some_options(void)
{
    weir_options options = WEIR_OPTIONS_INIT;
    options.shared_name = name;
    options.max_keys = 2000;
    options.max_threads = 4;
    options.max_processes = 4;
    options.max_log_units = 100000;
    options.no_thread = true;
    return options;
}

/* Opening is refused with this code and a sentence that has the words. */
static void refused(const weir_options *options, int code, const char *words)
{
    weir *w = NULL;
    weir_error error = {.code = 0};
    const int result = weir_open(options, &w, &error);
    if (result != code || w != NULL || strstr(error.message, words) == NULL) {
        fail_msg("%d, \"%s\" in place of %d, \"%s\"", result, error.message, code, words);
    }
    assert_int_equal(error.code, code);
}

static void test_names_are_checked(void **state)
{
    (void) state;
    char longest[NAME_MAX + 3];
    weir_options options = some_options();
    static const char *const bad[] = {"", "/", "edge", "/a/b", "//"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        options.shared_name = bad[i];
        refused(&options, -EINVAL, "shared_name is");
        assert_int_equal(weir_unlink(bad[i]), -EINVAL);
    }
    memset(longest, 'x', sizeof(longest));
    longest[0] = '/';
    longest[NAME_MAX + 1] = '\0';
    options.shared_name = longest;
    refused(&options, -EINVAL, "give 2 to 254 bytes");
    assert_int_equal(weir_unlink(longest), -EINVAL);
    assert_int_equal(weir_unlink(NULL), -EINVAL);
    assert_int_equal(weir_unlink(name), -ENOENT);
}

static void test_other_options_are_refused_by_name(void **state)
{
    (void) state;
    const weir_options first = some_options();
    weir *w = open_named(name, &first);
    weir_options other = first;
    other.max_keys = 3000;
    refused(&other, -EINVAL, "max_keys is 3000, and the segment was made with 2000");
    other = first;
    other.max_threads = 5;
    refused(&other, -EINVAL, "max_threads is 5, and");
    other = first;
    other.max_log_units = 100001;
    refused(&other, -EINVAL, "max_log_units is 100001, and");
    other = first;
    other.max_processes = 5;
    refused(&other, -EINVAL, "max_processes is 5, and");
    other = first;
    other.tick_us = 2000;
    refused(&other, -EINVAL, "tick_us is 2000, and the segment was made with 1000");
    other = first;
    other.sync_interval_ms = 300;
    refused(&other, -EINVAL, "sync_interval_ms is 300, and");
    other = first;
    other.prefix = "other";
    refused(&other, -EINVAL, "prefix is \"other\", and the segment has \"weir\"");
    other = first;
    other.redis_url = "redis://127.0.0.1:1";
    refused(&other, -EINVAL, "redis_url is not NULL");
    other = first;
    other.fleet_secret = "0123456789abcdef";
    refused(&other, -EINVAL, "fleet_secret is another one");
    struct fake_clock fake;
    fake_clock_init(&fake, 1);
    other = first;
    other.clock = &fake.clock;
    refused(&other, -EINVAL, "clock is not NULL");
    weir_close(w);
    assert_int_equal(weir_unlink(name), 0);
}

/* The user and password of Redis may change from one start to the next. The servers may not. */
static void test_another_redis_is_refused_and_another_password_is_not(void **state)
{
    (void) state;
    weir_options options = some_options();
    options.redis_url = "redis://user:first@127.0.0.1:1";
    weir *w = open_named(name, &options);
    weir_close(w);
    options.redis_url = "redis://127.0.0.1:1";
    w = open_named(name, &options);
    weir_close(w);
    options.redis_url = "redis://user:first@127.0.0.1:2";
    refused(&options, -EINVAL, "redis_url has other servers");
    assert_int_equal(weir_unlink(name), 0);
}

/* Changes bytes of the header. */
static void patch(size_t offset, const void *bytes, size_t size)
{
    const int fd = shm_open(name, O_RDWR, 0);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, size, (off_t) offset), size);
    (void) close(fd);
}

static void make_and_close(const weir_options *options)
{
    weir *w = open_named(name, options);
    weir_close(w);
}

static void test_damaged_and_foreign_segments_are_refused(void **state)
{
    (void) state;
    const weir_options options = some_options();
    const uint32_t number = 77;
    make_and_close(&options);
    patch(offsetof(struct segment_header, layout), &number, sizeof(number));
    refused(&options, -EPROTO, "with layout 77, and this is weir");
    assert_int_equal(weir_unlink(name), 0);

    make_and_close(&options);
    patch(offsetof(struct segment_header, version), "9.9.9", 6);
    refused(&options, -EPROTO, "is of weir 9.9.9");
    assert_int_equal(weir_unlink(name), 0);

    make_and_close(&options);
    patch(offsetof(struct segment_header, options), &number, sizeof(number));
    refused(&options, -EBADMSG, "damaged: its header");
    assert_int_equal(weir_unlink(name), 0);

    make_and_close(&options);
    patch(offsetof(struct segment_header, ready), &number, sizeof(number));
    refused(&options, -EBADMSG, "damaged: its header");
    assert_int_equal(weir_unlink(name), 0);

    make_and_close(&options);
    patch(0, "\0", 1);
    refused(&options, -EBADMSG, "no segment of weir's");
    assert_int_equal(weir_unlink(name), 0);

    make_and_close(&options);
    int fd = shm_open(name, O_RDWR, 0);
    assert_int_equal(ftruncate(fd, (off_t) segment_size(name) - 4096), 0);
    (void) close(fd);
    refused(&options, -EBADMSG, "damaged: its size");
    assert_int_equal(weir_unlink(name), 0);

    make_and_close(&options);
    fd = shm_open(name, O_RDWR, 0);
    assert_int_equal(fchmod(fd, 0640), 0);
    (void) close(fd);
    refused(&options, -EACCES, "mode 0640");
    assert_int_equal(weir_unlink(name), 0);
}

static void test_a_segment_of_another_user_is_refused(void **state)
{
    (void) state;
    const weir_options options = some_options();
    if (geteuid() != 0) {
        print_message("# only root can make a segment of another user\n");
        skip();
    }
    make_and_close(&options);
    const int fd = shm_open(name, O_RDWR, 0);
    assert_int_equal(fchown(fd, 12345, 0), 0);
    (void) close(fd);
    refused(&options, -EACCES, "belongs to user 12345");
    assert_int_equal(weir_unlink(name), 0);
}

/* Somebody else has the file's lock, and does not give it back. */
struct holder {
    uid_t user;
    mode_t mode;
    bool makes; /* the file is his own */
};

/* 0: he has the lock, until he is killed. */
static int hold_lock(void *arg)
{
    const struct holder *holder = arg;
    if (setuid(holder->user) != 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) {
        return 1;
    }
    const int fd = shm_open(name, O_RDWR | (holder->makes ? O_CREAT | O_EXCL : 0), holder->mode);
    if (fd < 0 || (holder->makes && fchmod(fd, holder->mode) != 0) || flock(fd, LOCK_EX) != 0) {
        return 2;
    }
    (void) add_relaxed(opens, 1);
    (void) pause();
    return 3;
}

/* What a process of another user is told. */
struct stranger {
    const weir_options *options;
    uid_t user;
    char message[sizeof(((weir_error *) NULL)->message)];
    int result;
};

static int open_as_a_stranger(void *arg)
{
    struct stranger *stranger = arg;
    weir *w = NULL;
    weir_error error = {.code = 0};
    if (setuid(stranger->user) != 0) {
        return 1;
    }
    stranger->result = weir_open(stranger->options, &w, &error);
    (void) snprintf(stranger->message, sizeof(stranger->message), "%s", error.message);
    return 0;
}

static void refused_to_a_stranger(const weir_options *options, uid_t user, const char *words)
{
    struct stranger *stranger =
        mmap(NULL, sizeof(*stranger), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(stranger, MAP_FAILED);
    *stranger = (struct stranger){.options = options, .user = user};
    expect_end(start_independent(open_as_a_stranger, stranger));
    assert_int_equal(stranger->result, -EACCES);
    assert_non_null(strstr(stranger->message, words));
    (void) munmap(stranger, sizeof(*stranger));
}

/* An opener that waited for the lock would be told -EBUSY, half a minute later. */
static void test_nobody_waits_for_the_lock_of_another_user(void **state)
{
    (void) state;
    const weir_options options = some_options();
    struct holder holder = {.user = 12345, .makes = true};
    static const mode_t modes[] = {0600, 0666, 0644, 0};
    if (geteuid() != 0) {
        print_message("# only root can be another user\n");
        skip();
    }
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        holder.mode = modes[i];
        const uint64_t before = load_relaxed(opens);
        const pid_t process = start_independent(hold_lock, &holder);
        assert_true(wait_for_word(opens, before + 1));
        refused(&options, -EACCES, "belongs to user 12345, and this process is of user 0");
        refused_to_a_stranger(&options, 12346, "belongs to user 12345, and this process is of user 12346");
        kill_independent(process);
        assert_int_equal(weir_unlink(name), 0);
    }
    /* The file is this user's own, and has been opened to others. */
    make_and_close(&options);
    const int fd = shm_open(name, O_RDWR, 0);
    assert_int_equal(fchmod(fd, 0666), 0);
    (void) close(fd);
    holder.makes = false;
    const uint64_t before = load_relaxed(opens);
    const pid_t process = start_independent(hold_lock, &holder);
    assert_true(wait_for_word(opens, before + 1));
    refused(&options, -EACCES, "has mode 0666, so that other users may open it");
    kill_independent(process);
    assert_int_equal(weir_unlink(name), 0);
}

/* A file that its owner may not open either, as nobody but root could. */
static void test_a_segment_that_cannot_be_opened_is_refused_by_its_reason(void **state)
{
    (void) state;
    const weir_options options = some_options();
    if (geteuid() != 0) {
        print_message("# only root can be another user\n");
        skip();
    }
    make_and_close(&options);
    const int fd = shm_open(name, O_RDWR, 0);
    assert_int_equal(fchmod(fd, 0), 0);
    assert_int_equal(fchown(fd, 12346, 0), 0);
    (void) close(fd);
    refused_to_a_stranger(&options, 12346, "this process may not open it");
    refused_to_a_stranger(&options, 12345, "belongs to user 12346, and this process is of user 12345");
    assert_int_equal(weir_unlink(name), 0);
}

/* Opens in a PID namespace of its own. */
static int open_elsewhere(void *arg)
{
    const weir_options *options = arg;
    weir *w = NULL;
    weir_error error;
    if (unshare(CLONE_NEWPID) != 0) {
        return 77;
    }
    const pid_t child = fork();
    if (child == 0) {
        const int result = weir_open(options, &w, &error);
        _exit(result == -EXDEV && strstr(error.message, "another PID namespace") != NULL ? 0 : 1);
    }
    int status = 0;
    (void) waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 2;
}

static void test_another_pid_namespace_is_refused(void **state)
{
    (void) state;
    weir_options options = some_options();
    make_and_close(&options);
    const pid_t process = start_independent(open_elsewhere, &options);
    int status = 0;
    assert_int_equal(waitpid(process, &status, 0), process);
    assert_int_equal(weir_unlink(name), 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        print_message("# no PID namespace is to be had here\n");
        skip();
    }
    assert_int_equal(status, 0);
}

/* Opens and closes until it is killed. */
static int open_and_die(void *arg)
{
    const weir_options *options = arg;
    for (;;) {
        (void) add_relaxed(opens, 1);
        weir *w = NULL;
        if (weir_open(options, &w, NULL) == 0) {
            weir_close(w);
        }
        (void) weir_unlink(name);
    }
    return 0;
}

#define KILLS 200

static void test_an_opener_may_die_at_any_time(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    weir_options options = some_options();
    options.log = keep_line;
    uint64_t replaced = 0;
    const uint64_t until_ns = real_ns() + 60 * SECOND;
    int kills = 0;
    for (; kills < KILLS || (replaced == 0 && real_ns() < until_ns); kills++) {
        const uint64_t before = load_relaxed(opens);
        const pid_t process = start_independent(open_and_die, &options);
        assert_true(wait_for_word(opens, before + 1));
        const struct timespec nap = {.tv_nsec = (long) random_below(&rng, 3 * MILLISECOND)};
        (void) nanosleep(&nap, NULL);
        kill_independent(process);
        logged[0] = '\0';
        weir *w = open_named(name, &options);
        assert_non_null(weir_attach(w));
        (void) weir_poll(w);
        replaced += strstr(logged, "half made") != NULL;
        weir_close(w);
        (void) weir_unlink(name);
    }
    print_message("# %llu of %d segments were half made\n", (unsigned long long) replaced, kills);
    assert_int_not_equal(replaced, 0);
}

static void test_a_half_made_segment_is_replaced_and_the_log_says_so(void **state)
{
    (void) state;
    weir_options options = some_options();
    options.log = keep_line;
    const uint32_t not_ready = 0;
    make_and_close(&options);
    patch(offsetof(struct segment_header, ready), &not_ready, sizeof(not_ready));
    logged[0] = '\0';
    weir *w = open_named(name, &options);
    (void) weir_poll(w);
    assert_non_null(strstr(logged, name));
    assert_non_null(strstr(logged, "half made by a process that died"));
    /* Once. */
    logged[0] = '\0';
    (void) weir_poll(w);
    assert_null(strstr(logged, "half made"));
    weir_close(w);
    assert_int_equal(weir_unlink(name), 0);
}

static const weir_limit daily = {.algorithm = WEIR_FIXED_WINDOW, .limit = 10, .period_ns = 24 * HOUR};

static void test_what_cannot_be_repaired_is_replaced(void **state)
{
    (void) state;
    weir_options options = some_options();
    options.log = keep_line;
    const weir_policy policy = {.name = "to-be-damaged", .limits = &daily, .limit_count = 1};
    weir *w = open_named(name, &options);
    assert_int_equal(weir_set_policies(w, &policy, 1, NULL), 0);
    weir_close(w);
    damage_policies(name, policy.name);
    logged[0] = '\0';
    w = open_named(name, &options);
    (void) weir_poll(w);
    assert_non_null(strstr(logged, "could not be repaired"));
    weir_close(w);
    assert_int_equal(weir_unlink(name), 0);
}

static int open_and_stay(void *arg)
{
    weir *w = NULL;
    if (weir_open(arg, &w, NULL) != 0) {
        return 1;
    }
    (void) weir_attach(w);
    (void) raise(SIGKILL);
    return 2;
}

static void test_places_of_dead_processes_are_free(void **state)
{
    (void) state;
    weir_options options = some_options();
    options.max_processes = 2;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 2; i++) {
            const pid_t process = start_independent(open_and_stay, &options);
            int status = 0;
            assert_int_equal(waitpid(process, &status, 0), process);
            assert_true(WIFSIGNALED(status));
        }
    }
    weir *first = open_named(name, &options);
    weir *second = open_named(name, &options);
    weir_stats stats;
    weir_get_stats(second, &stats);
    assert_int_equal(stats.process_count, 2);
    assert_int_equal(load_relaxed(&second->limiter.shared->line.thread_count), 0);
    refused(&options, -ENOSPC, "2 processes are joined, as many as may be");
    weir_close(first);
    weir_close(second);
    assert_int_equal(weir_unlink(name), 0);
}

/* Two weirs of one process share the segment as two processes do. */
static void test_a_process_may_open_a_name_twice(void **state)
{
    (void) state;
    const weir_options options = some_options();
    weir *first = open_named(name, &options);
    weir *second = open_named(name, &options);
    const weir_limit limit = {.algorithm = WEIR_TOKEN_BUCKET, .limit = 5, .period_ns = 24 * HOUR};
    const weir_policy_id id = set_one_policy(first, &limit, 1, WEIR_SCOPE_PROCESS);
    assert_int_equal(weir_find_policy(second, "p"), id);
    weir_thread *t = weir_attach(first);
    weir_thread *u = weir_attach(second);
    const weir_key key = weir_make_key(first, id, "k", 1);
    const weir_key same = weir_make_key(second, id, "k", 1);
    assert_int_equal(key.hash, same.hash);
    assert_true(weir_check(t, &key, 3, NULL));
    weir_close(first);
    const weir_limit doubled = {.algorithm = WEIR_TOKEN_BUCKET, .limit = 10, .period_ns = 24 * HOUR};
    (void) set_one_policy(second, &doubled, 1, WEIR_SCOPE_PROCESS); /* the rate is followed in the mapping that stays */
    assert_false(weir_check(u, &same, 8, NULL));
    assert_true(weir_check(u, &same, 4, NULL));
    weir_close(second);
    assert_int_equal(weir_unlink(name), 0);
}

static int join_child(weir *w)
{
    const pid_t child = fork();
    if (child == 0) {
        (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
        const int joined = weir_join(w, NULL);
        weir_stats stats;
        weir_get_stats(w, &stats);
        weir_close(w);
        _exit(joined != 0 ? 1 : stats.process_count == 2 ? 0 : 2);
    }
    expect_end(child);
    return 0;
}

static void test_forked_children_join_a_named_weir(void **state)
{
    (void) state;
    const weir_options options = some_options();
    weir *w = open_named(name, &options);
    (void) join_child(w);
    /* A child that is not joined frees its copy alone. */
    const pid_t child = fork();
    if (child == 0) {
        weir_close(w);
        _exit(0);
    }
    expect_end(child);
    assert_non_null(weir_attach(w));
    weir_close(w);
    assert_int_equal(weir_unlink(name), 0);
}

/* A process that was replaced by exec keeps its id and start time, and has lost its weir. */
static void test_an_entry_of_this_process_before_exec_is_dead(void **state)
{
    (void) state;
    const weir_options options = some_options();
    for (uint32_t index = 0; index < options.max_processes; index++) {
        make_and_close(&options);
        weir *w = open_named(name, &options);
        const size_t entry = (size_t) ((unsigned char *) &w->limiter.joined[index] - w->named.segment.at);
        struct joined_process lost;
        memcpy((void *) &lost, (const void *) &w->limiter.joined[0], sizeof(lost));
        weir_close(w);
        patch(entry, (const void *) &lost, sizeof(lost));
        w = open_named(name, &options);
        weir_stats stats;
        weir_get_stats(w, &stats);
        assert_int_equal(stats.process_count, 1);
        weir_close(w);
        assert_int_equal(weir_unlink(name), 0);
    }
}

static void test_unlinked_memory_is_shared_no_more(void **state)
{
    (void) state;
    const weir_options options = some_options();
    weir *old = open_named(name, &options);
    assert_int_equal(weir_unlink(name), 0);
    assert_int_equal(weir_unlink(name), -ENOENT);
    weir *new = open_named(name, &options);
    weir_stats stats;
    weir_get_stats(new, &stats);
    assert_int_equal(stats.process_count, 1);
    assert_non_null(weir_attach(old));
    weir_close(old);
    weir_close(new);
    assert_int_equal(weir_unlink(name), 0);
}

static size_t count_mappings(void)
{
    size_t lines = 0;
    char line[512];
    FILE *in = fopen("/proc/self/maps", "r");
    assert_non_null(in);
    while (fgets(line, sizeof(line), in) != NULL) {
        lines += strstr(line, name) != NULL;
    }
    (void) fclose(in);
    return lines;
}

static void test_nothing_is_left_behind(void **state)
{
    (void) state;
    weir_options options = some_options();
    options.no_thread = SANITIZED;
    weir_options other = options;
    other.max_keys = 3000;
    make_and_close(&options);
    const size_t descriptors = count_descriptors();
    const size_t threads = count_threads();
    for (int round = 0; round < 100; round++) {
        weir *w = open_named(name, &options);
        refused(&other, -EINVAL, "max_keys");
        (void) join_child(w);
        weir_close(w);
        assert_int_equal(weir_unlink(name), 0);
        assert_int_equal(segment_size(name), -1);
    }
    assert_int_equal(count_descriptors(), descriptors);
    assert_int_equal(count_mappings(), 0);
    expect_no_more_threads(threads);
}

/* Whether the log has been told that there was no room for a handle. */
static bool told_unattached(void)
{
    return strstr(logged, "of weir_attach gave no handle, as /dev/shm is full") != NULL;
}

/* Uses all that a weir takes memory for. 0; a step that failed for want of room is no failure. */
static int use_everything(weir *w)
{
    static const weir_limit limits[] = {{.algorithm = WEIR_SLIDING_LOG, .limit = 1000, .period_ns = 24 * HOUR},
                                        {.algorithm = WEIR_TOKEN_BUCKET, .limit = 2, .period_ns = 24 * HOUR},
                                        {.algorithm = WEIR_FIXED_WINDOW, .limit = 2, .period_ns = 24 * HOUR}};
    static const char *const names[] = {"log", "bucket", "window"};
    weir_policy policies[3];
    for (size_t i = 0; i < 3; i++) {
        policies[i] = (weir_policy){.name = names[i], .limits = &limits[i], .limit_count = 1};
    }
    weir_error error;
    const int result = weir_set_policies(w, policies, 3, &error);
    if (result != 0 && (result != -ENOSPC || strstr(error.message, "/dev/shm") == NULL)) {
        return 10;
    }
    uint64_t unattached = 0;
    for (int thread = 0; thread < 4; thread++) {
        weir_thread *t = weir_attach(w);
        unattached += t == NULL;
        for (uint32_t key = 0; key < 3000 && t != NULL; key++) {
            for (size_t i = 0; i < 3; i++) {
                const weir_key made = weir_make_key(w, weir_find_policy(w, names[i]), &key, sizeof(key));
                (void) weir_check(t, &made, i == 0 ? 300 : 1, NULL);
            }
        }
        (void) weir_poll(w);
    }
    weir_offender offenders[4];
    (void) weir_top_offenders(w, weir_find_policy(w, "window"), offenders, 4);
    (void) weir_set_override(w, "window:k", "9", NULL);
    weir_stats stats;
    weir_get_stats(w, &stats);
    return stats.attach_error_count == unattached && (unattached == 0 || told_unattached()) ? 0 : 11;
}

/* Opens in file systems of so many sizes, in a mount namespace of its own. 77: there is none to be had. */
static int open_in_small_rooms(void *arg)
{
    uint64_t *opened = arg;
    weir_options options = some_options();
    options.log = keep_line;
    options.no_denial_log = true; /* the line that is kept is about threads */
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) {
        return 77;
    }
    for (int pages = 1; pages < 3000; pages += pages < 8 ? 1 : pages / (SANITIZED ? 4 : 8)) {
        char size[32];
        (void) snprintf(size, sizeof(size), "size=%dk", 4 * pages);
        if (mount("tmpfs", "/dev/shm", "tmpfs", 0, size) != 0) {
            return 77;
        }
        weir *w = NULL;
        weir_error error = {.code = 0};
        logged[0] = '\0';
        const int result = weir_open(&options, &w, &error);
        if (result == 0) {
            (*opened)++;
            const int used = use_everything(w);
            weir_close(w);
            if (used != 0 || weir_unlink(name) != 0) {
                return used != 0 ? used : 3;
            }
        } else if (result != -ENOSPC || strstr(error.message, "/dev/shm") == NULL || segment_size(name) != -1) {
            (void) fprintf(stderr, "# %d: %s\n", result, error.message);
            return 4;
        }
        if (umount("/dev/shm") != 0) {
            return 5;
        }
    }
    return 0;
}

static void test_a_full_file_system_is_an_error_and_no_signal(void **state)
{
    (void) state;
    uint64_t *opened = mmap(NULL, sizeof(*opened), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const pid_t process = start_independent(open_in_small_rooms, opened);
    int status = 0;
    assert_int_equal(waitpid(process, &status, 0), process);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        print_message("# no file system can be mounted here\n");
        (void) munmap(opened, sizeof(*opened));
        skip();
    }
    assert_int_equal(status, 0);
    assert_in_range(*opened, 2, 50);
    (void) munmap(opened, sizeof(*opened));
}

int main(void)
{
    segment_name(name, "open");
    /* cppcheck-suppress invalidFunctionArg ; an anonymous mapping takes -1 */
    opens = mmap(NULL, sizeof(*opens), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (opens == MAP_FAILED) {
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_are_checked),
        cmocka_unit_test(test_other_options_are_refused_by_name),
        cmocka_unit_test(test_another_redis_is_refused_and_another_password_is_not),
        cmocka_unit_test(test_damaged_and_foreign_segments_are_refused),
        cmocka_unit_test(test_a_segment_of_another_user_is_refused),
        cmocka_unit_test(test_nobody_waits_for_the_lock_of_another_user),
        cmocka_unit_test(test_a_segment_that_cannot_be_opened_is_refused_by_its_reason),
        cmocka_unit_test(test_another_pid_namespace_is_refused),
        cmocka_unit_test(test_an_opener_may_die_at_any_time),
        cmocka_unit_test(test_a_half_made_segment_is_replaced_and_the_log_says_so),
        cmocka_unit_test(test_what_cannot_be_repaired_is_replaced),
        cmocka_unit_test(test_places_of_dead_processes_are_free),
        cmocka_unit_test(test_a_process_may_open_a_name_twice),
        cmocka_unit_test(test_forked_children_join_a_named_weir),
        cmocka_unit_test(test_an_entry_of_this_process_before_exec_is_dead),
        cmocka_unit_test(test_unlinked_memory_is_shared_no_more),
        cmocka_unit_test(test_nothing_is_left_behind),
        cmocka_unit_test(test_a_full_file_system_is_an_error_and_no_signal),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void) weir_unlink(name);
    return failed;
}
