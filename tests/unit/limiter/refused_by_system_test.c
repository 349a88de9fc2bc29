/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls to which the system refuses memory, a descriptor, a thread or a lock: whichever of these fails, the call says
 * so, leaves everything as it was, and succeeds when it is made again. The linker's --wrap leads the library's calls
 * here (tests/meson.build).
 *
 * Guards: src/limiter/weir_open.c, src/limiter/weir_parts.c, src/limiter/set_policies.c, src/limiter/key_overrides.c,
 * src/limiter/configured_policies.c, src/limiter/shared_policies.c, src/limiter/background.c, src/limiter/join.c,
 * src/limiter/denial_log.c, src/limiter/leader.c, src/named/named.c
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "limiter/weir_private.h"
#include "support/independent.h"
#include "support/support.h"

/* Names that the linker gives. By the size of file offsets here, mmap is mmap64. */
void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
char *__real_strdup(const char *text);
void __real_free(void *old);
void *__real_mmap64(void *at, size_t size, int protection, int flags, int fd, off_t offset);
int __real_eventfd(unsigned value, int flags);
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *arg);
int __real_pthread_cond_init(pthread_cond_t *condition, const pthread_condattr_t *attributes);
int __real_segment_commit(const struct segment *segment, const void *at, size_t size);
int __wrap_segment_commit(const struct segment *segment, const void *at, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
char *__wrap_strdup(const char *text);
void __wrap_free(void *old);
void *__wrap_mmap64(void *at, size_t size, int protection, int flags, int fd, off_t offset);
int __wrap_eventfd(unsigned value, int flags);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *arg);
int __wrap_pthread_cond_init(pthread_cond_t *condition, const pthread_condattr_t *attributes);

/* The call that fails, counted from 1; 0: none does. */
static size_t fails, seen;
static pthread_t caller; /* the calls of other threads are not counted */

/* Blocks that are in use, of all threads. */
static _Atomic int64_t held;

static void *hold(void *block)
{
    held += block != NULL;
    return block;
}

static bool is_refused(void)
{
    return pthread_equal(pthread_self(), caller) != 0 && ++seen == fails;
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
    const int64_t was = old != NULL;
    void *block = hold(__real_realloc(old, size));
    held -= block != NULL ? was : 0;
    return block;
}

char *__wrap_strdup(const char *text)
{
    return is_refused() ? NULL : hold(__real_strdup(text));
}

void __wrap_free(void *old)
{
    held -= old != NULL;
    __real_free(old);
}

void *__wrap_mmap64(void *at, size_t size, int protection, int flags, int fd, off_t offset)
{
    errno = ENOMEM;
    return is_refused() ? MAP_FAILED : __real_mmap64(at, size, protection, flags, fd, offset);
}

int __wrap_eventfd(unsigned value, int flags)
{
    errno = EMFILE;
    return is_refused() ? -1 : __real_eventfd(value, flags);
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *arg)
{
    return is_refused() ? EAGAIN : __real_pthread_create(thread, attributes, run, arg);
}

static const void *committed_at; /* memory whose commits are noted: up to where it was committed last */
static const char *committed_end;

int __wrap_segment_commit(const struct segment *segment, const void *at, size_t size)
{
    if (is_refused()) {
        return -ENOSPC;
    }
    committed_end = at == committed_at ? (const char *) at + size : committed_end;
    return __real_segment_commit(segment, at, size);
}

int __wrap_pthread_cond_init(pthread_cond_t *condition, const pthread_condattr_t *attributes)
{
    return is_refused() ? EAGAIN : __real_pthread_cond_init(condition, attributes);
}

static char name[SEGMENT_NAME_SIZE];
static char path[64];

/* A call, and what must be the same after one that failed. */
struct attempt {
    int (*call)(void *arg, weir_error *error);
    void (*expect_same)(void *arg);
    void *arg;
};

/* Has each of the calls to the system fail in turn. Returns how many times the call failed. */
static size_t fail_each(const struct attempt *attempt)
{
    size_t failed = 0;
    for (size_t number = 1;; number++) {
        weir_error error = {.code = 0};
        seen = 0;
        fails = number;
        const int result = attempt->call(attempt->arg, &error);
        fails = 0;
        if (result == 0) {
            assert_int_equal(error.code, 0);
            if (seen < number) { /* fewer are made */
                return failed;
            }
            continue; /* what failed is not needed */
        }
        failed++;
        if (result != error.code || strlen(error.message) < 10 ||
            (result != -ENOMEM && result != -EAGAIN && result != -EMFILE && result != -ENOSPC)) {
            fail_msg("call %zu: %d, %d, %s", number, result, error.code, error.message);
        }
        attempt->expect_same(attempt->arg);
    }
}

/* Opening */

struct opening {
    weir_options options;
    size_t threads, descriptors;
    int64_t held;
    size_t mapped; /* 0: not looked at */
};

/* The bytes that are mapped, without the heap, which grows by pieces. */
static size_t mapped_size(void)
{
    return count_mapped_pages() * (size_t) sysconf(_SC_PAGESIZE) - (uintptr_t) sbrk(0);
}

static int try_to_open(void *arg, weir_error *error)
{
    const struct opening *opening = arg;
    weir *w = (weir *) (uintptr_t) 1;
    const int result = weir_open(&opening->options, &w, error);
    const size_t refused = fails;
    fails = 0;
    assert_int_equal(w != NULL, result == 0);
    assert_true(result == 0 || strstr(error->message, "memory") != NULL ||
                strstr(error->message, "could be started") != NULL || strstr(error->message, "/dev/shm") != NULL);
    const size_t made = seen;
    weir_close(w);
    /* Named memory that was complete stays, as after a close. */
    if (opening->options.shared_name != NULL && (result == 0 || strstr(error->message, "thread") != NULL)) {
        assert_int_equal(weir_unlink(name), 0);
    }
    seen = made;
    fails = refused;
    return result;
}

static void expect_nothing_left(void *arg)
{
    const struct opening *opening = arg;
    assert_int_equal(count_descriptors(), opening->descriptors);
    assert_int_equal(held, opening->held);
    assert_true(opening->mapped == 0 || mapped_size() == opening->mapped);
    expect_no_more_threads(opening->threads);
    assert_int_equal(segment_size(name), -1);
}

static void test_an_open_that_fails_leaves_nothing(void **state)
{
    (void) state;
    struct opening opening = {.options = WEIR_OPTIONS_INIT};
    const struct attempt attempt = {try_to_open, expect_nothing_left, &opening};
    opening.options.max_keys = 1000;
    opening.options.max_threads = 1;
    opening.options.redis_timeout_ms = 10;
    assert_int_equal(try_to_open(&opening, NULL), 0);
    opening.threads = count_threads();
    opening.descriptors = count_descriptors();
    opening.held = held;
    for (int i = 0; i < 4; i++) {
        opening.options.redis_url = i % 2 != 0 ? "redis://127.0.0.1:1" : NULL;
        opening.options.shared = i >= 2;
        opening.options.log = NULL;
        assert_true(fail_each(&attempt) >= 5);
    }
    opening.options.shared_name = name;
    assert_true(fail_each(&attempt) >= 5);
}

static void ignore_line(void *arg, weir_log_level level, const char *message)
{
    (void) arg;
    (void) level;
    (void) message;
}

static void test_an_open_with_a_log_that_fails_leaves_nothing(void **state)
{
    (void) state;
    struct opening opening = {.options = WEIR_OPTIONS_INIT};
    const struct attempt attempt = {try_to_open, expect_nothing_left, &opening};
    opening.options.max_keys = 1000;
    opening.options.no_thread = true;
    opening.threads = count_threads();
    opening.descriptors = count_descriptors();
    opening.held = held;
    opening.mapped = SLOWED ? 0 : mapped_size(); /* a sanitizer maps memory of its own */
    const size_t without = fail_each(&attempt);
    opening.options.log = ignore_line;
    assert_int_equal(fail_each(&attempt), without + 1); /* its own memory */
}

static void test_a_thread_that_cannot_be_had_is_said(void **state)
{
    (void) state;
    struct opening opening = {.options = WEIR_OPTIONS_INIT};
    weir_error error;
    opening.options.max_keys = 1000;
    seen = fails = 0;
    assert_int_equal(try_to_open(&opening, NULL), 0);
    const size_t last = seen; /* the thread is what is asked for last */
    seen = 0;
    fails = last;
    assert_int_equal(try_to_open(&opening, &error), -EAGAIN);
    assert_string_equal(error.message, "no background thread could be started: Resource temporarily unavailable; raise "
                                       "the limits of threads and descriptors of the process, or set no_thread");
    seen = 0;
    fails = last - 1;
    assert_int_equal(try_to_open(&opening, &error), -EMFILE);
    assert_string_equal(error.message, "no background thread could be started: Too many open files; raise the limits "
                                       "of threads and descriptors of the process, or set no_thread");
    seen = 0;
    fails = 1;
    assert_int_equal(try_to_open(&opening, &error), -ENOMEM);
    assert_string_equal(error.message, "out of memory");
    seen = 0;
    fails = 2;
    assert_int_equal(try_to_open(&opening, &error), -EAGAIN);
    assert_string_equal(error.message,
                        "no lock could be made: Resource temporarily unavailable; give the process more memory");
    seen = 0;
    fails = 3; /* the first memory of the parts */
    assert_int_equal(try_to_open(&opening, &error), -ENOMEM);
    fails = 0;
    unsigned mib = 0;
    assert_int_equal(sscanf(error.message, "out of memory for max_keys 1000: some %u MiB are needed", &mib), 1);
    assert_in_range(mib, 0, 20);
}

/* Joining: the child may call again */

static int join_at_last(void *arg)
{
    weir *w = arg;
    weir_stats stats;
    caller = pthread_self();
    const size_t descriptors = count_descriptors();
    const size_t parents = w->wake_fd >= 0;
    for (size_t number = 1; number < 20; number++) {
        weir_error error = {.code = 1};
        seen = 0;
        fails = number;
        const int result = weir_join(w, &error);
        fails = 0;
        weir_get_stats(w, &stats);
        if (result != error.code || stats.process_count != (result == 0 ? 2 : 1)) {
            return 1;
        }
        if (result == 0) {
            const size_t own = w->wake_fd >= 0;
            if (count_descriptors() != descriptors - parents + own) {
                return 6;
            }
            weir_close(w);
            return number > 1 && count_descriptors() == descriptors - parents ? 0 : 2;
        }
        if (w->has_thread) {
            return 5;
        }
        if (strstr(error.message, " could be ") == NULL) {
            return 3;
        }
    }
    return 4;
}

static void test_a_join_that_fails_may_be_called_again(void **state)
{
    (void) state;
    weir_options options = WEIR_OPTIONS_INIT;
    options.max_keys = 1000;
    options.shared = true;
    options.max_processes = 2;
    options.no_thread = SANITIZED; /* a forked process may start none, under the sanitizers */
    weir *w = open_or_fail(&options);
    expect_end(start_independent(join_at_last, w));
    weir_stats stats;
    weir_get_stats(w, &stats);
    assert_int_equal(stats.process_count, 1);
    weir_close(w);
}

/* Changes */

static const weir_limit limits[] = {{.algorithm = WEIR_FIXED_WINDOW, .limit = 10, .period_ns = HOUR},
                                    {.algorithm = WEIR_TOKEN_BUCKET, .limit = 20, .period_ns = HOUR}};

struct desk {
    weir *w;
    char before[4096];
    const char *entry, *value;
    int64_t held;
};

static void add_policy(void *arg, const weir_policy_info *info)
{
    char *text = arg;
    (void) snprintf(text + strlen(text), 4096 - strlen(text), "%s %u %d;", info->policy->name, info->id,
                    (int) info->policy->limits[0].limit);
}

static void add_override(void *arg, const weir_override *entry)
{
    char *text = arg;
    (void) snprintf(text + strlen(text), 4096 - strlen(text), "%s=%s %d;", entry->name, entry->value, entry->in_force);
}

static void list_all(weir *w, char text[4096])
{
    text[0] = '\0';
    (void) weir_list_policies(w, add_policy, text);
    (void) weir_list_overrides(w, add_override, text);
}

static void expect_as_before(void *arg)
{
    const struct desk *desk = arg;
    char now[4096];
    list_all(desk->w, now);
    assert_string_equal(now, desk->before);
    weir_stats stats;
    weir_get_stats(desk->w, &stats);
    assert_int_equal(stats.override_count, 1); /* that of "p:k" */
    assert_int_equal(held, desk->held);
}

/* Makes a change again and again, each time from the same policies and entries. */
static int change(struct desk *desk, int (*make)(const struct desk *desk, weir_error *error), weir_error *error)
{
    const size_t number = fails;
    fails = 0;
    const weir_policy both[] = {{.name = "p", .limits = limits, .limit_count = 1},
                                {.name = "q", .limits = limits, .limit_count = 1}};
    assert_int_equal(weir_set_policies(desk->w, both, 2, NULL), 0);
    assert_int_equal(weir_set_override(desk->w, "p:k", "7", NULL), 0);
    assert_int_equal(weir_set_override(desk->w, "q:k", "deny", NULL), 0); /* not in force without the policy */
    assert_int_equal(weir_set_policies(desk->w, both, 1, NULL), 0);
    (void) weir_set_override(desk->w, "p:new", NULL, NULL);
    assert_int_equal(weir_set_key_form(desk->w, "p", NULL, NULL), 0);
    list_all(desk->w, desk->before);
    desk->held = held;
    seen = 0;
    fails = number;
    return make(desk, error);
}

static int put_policies(const struct desk *desk, weir_error *error)
{
    const weir_policy policies[] = {{.name = "q", .limits = limits, .limit_count = 2},
                                    {.name = "p", .limits = limits + 1, .limit_count = 1}};
    return weir_set_policies(desk->w, policies, 2, error);
}

static int put_file(const struct desk *desk, weir_error *error)
{
    const weir_policy beside = {.name = "q", .limits = limits, .limit_count = 2};
    return weir_load_policies_with(desk->w, path, &beside, 1, error);
}

static int put_entry(const struct desk *desk, weir_error *error)
{
    return weir_set_override(desk->w, desk->entry, desk->value, error);
}

static int put_form(const struct desk *desk, weir_error *error)
{
    return weir_set_key_form(desk->w, "p", weir_address_form(64), error);
}

static int change_policies(void *arg, weir_error *error)
{
    return change(arg, put_policies, error);
}

static int change_by_file(void *arg, weir_error *error)
{
    return change(arg, put_file, error);
}

static int change_entry(void *arg, weir_error *error)
{
    return change(arg, put_entry, error);
}

static int change_form(void *arg, weir_error *error)
{
    return change(arg, put_form, error);
}

static void write_file(void)
{
    FILE *out = fopen(path, "we");
    assert_non_null(out);
    (void) fputs("policies:\n  - name: p\n    limits: [{algorithm: fixed_window, limit: 3, period: 1h}]\n"
                 "overrides:\n  \"p:x\": deny\n",
                 out);
    assert_int_equal(fclose(out), 0);
}

static void test_a_change_that_fails_changes_nothing(void **state)
{
    (void) state;
    static const char *const entries[][2] = {{"p:new", "deny"}, {"p:k", "8"}, {"p:k", NULL}};
    write_file();
    for (int i = 0; i < 2; i++) {
        weir_options options = WEIR_OPTIONS_INIT;
        options.no_thread = true; /* no other thread allocates */
        options.max_keys = 1000;
        options.shared_name = i != 0 ? name : NULL;
        struct desk desk = {.w = open_or_fail(&options)};
        assert_true(fail_each(&(struct attempt){change_policies, expect_as_before, &desk}) >= 3);
        assert_int_equal(weir_find_policy(desk.w, "q"), 2);
        assert_true(fail_each(&(struct attempt){change_by_file, expect_as_before, &desk}) >= 5);
        for (size_t j = 0; j < 3; j++) {
            desk.entry = entries[j][0];
            desk.value = entries[j][1];
            assert_true(fail_each(&(struct attempt){change_entry, expect_as_before, &desk}) >= (j < 2 ? 3 : 1));
            char now[4096];
            list_all(desk.w, now);
            assert_true((strstr(now, "p:new=deny") != NULL) == (j == 0));
            assert_true((strstr(now, "p:k=8") != NULL) == (j == 1) && (strstr(now, "p:k=7") != NULL) == (j == 0));
        }
        assert_true(fail_each(&(struct attempt){change_form, expect_as_before, &desk}) >= 1);
        weir_close(desk.w);
        (void) weir_unlink(name);
    }
    (void) unlink(path);
}

/* A process reads what another has set before it goes on. */
static void test_what_another_process_has_set_is_read_again_after_memory_was_refused(void **state)
{
    (void) state;
    weir_options options = WEIR_OPTIONS_INIT;
    options.no_thread = true;
    options.max_keys = 1000;
    weir *of[2] = {open_named(name, &options), open_named(name, &options)};
    size_t failed[2] = {0, 0};
    for (size_t number = 1, all = 1; number <= all; number++) {
        const weir_policy policies[] = {{.name = "q", .limits = limits, .limit_count = 2},
                                        {.name = "p", .limits = limits + 1, .limit_count = 1}};
        all = number;
        for (int changes = 0; changes < 2; changes++) {
            char expected[4096];
            char now[4096];
            assert_int_equal(weir_set_policies(of[0], policies, 1 + number % 2, NULL), 0);
            assert_int_equal(weir_set_override(of[0], "q:k", number % 2 != 0 ? "7 7" : "deny", NULL), 0);
            (void) weir_set_override(of[0], "q:j", NULL, NULL);
            list_all(of[0], expected);
            seen = 0;
            fails = number;
            if (changes == 0) {
                list_all(of[1], now);
                failed[0] += strcmp(now, expected) != 0;
            } else if (weir_set_override(of[1], "q:j", "allow", NULL) == 0) {
                (void) strcat(expected, "q:j=allow 1;");
            } else {
                failed[1]++;
            }
            fails = 0;
            all = seen >= number ? number + 1 : all; /* until fewer are asked for */
            for (int i = 1; i >= 0; i--) {
                list_all(of[i], now);
                assert_string_equal(now, expected);
            }
        }
    }
    assert_true(failed[0] >= 1 && failed[1] >= 6); /* reading and changing: of the policies, a list and its texts */
    weir_close(of[0]);
    weir_close(of[1]);
    (void) weir_unlink(name);
}

/* What policies are to be written to is there before, or is said not to be. */
static void test_policies_have_room_in_named_memory_before_they_are_written(void **state)
{
    (void) state;
    enum { POLICIES = 100 };
    static weir_limit all[POLICIES][WEIR_MAX_LIMITS];
    static char names[POLICIES][16];
    weir_policy policies[POLICIES];
    weir_options options = WEIR_OPTIONS_INIT;
    options.no_thread = true;
    options.max_keys = 1000;
    options.shared_name = name;
    weir *w = open_or_fail(&options);
    committed_at = w->names.rates;
    size_t rates = 0;
    for (size_t i = 0; i < POLICIES; i++) {
        (void) snprintf(names[i], sizeof(names[i]), "p%zu", i);
        policies[i] = (weir_policy){.name = names[i], .limits = all[i], .limit_count = 1 + i % WEIR_MAX_LIMITS};
        for (size_t j = 0; j < policies[i].limit_count; j++) {
            all[i][j] = (weir_limit){.algorithm = WEIR_TOKEN_BUCKET, .limit = 1, .period_ns = (1 + j) * SECOND};
            rates++;
        }
    }
    for (size_t count = 1; count <= POLICIES; count = count == 1 ? POLICIES : count + 1) {
        committed_end = NULL;
        assert_int_equal(weir_set_policies(w, policies, count, NULL), 0);
        assert_true((const char *) w->names.rates + rate_list_size(w->names.rates, 0) <= committed_end);
    }
    assert_int_equal(w->names.rates->count, rates);
    committed_at = NULL;
    seen = 0;
    fails = 3; /* after the copies of what the program has set and of what is in force */
    weir_error error;
    assert_int_equal(weir_set_policies(w, policies, 1, &error), -ENOSPC);
    fails = 0;
    assert_string_equal(error.message, "there is no room in /dev/shm for the policies; make that file system larger");
    weir_close(w);
    (void) weir_unlink(name);
}

/* A fleet that shares a name: who takes the lead needs a connection of its own. */
static void test_a_lead_without_memory_is_taken_up_later(void **state)
{
    (void) state;
    struct fake_clock clock;
    fake_clock_init(&clock, UINT64_C(1767225600) * SECOND);
    weir_options options = WEIR_OPTIONS_INIT;
    options.clock = &clock.clock;
    options.max_keys = 1000;
    options.max_processes = 2;
    options.redis_url = "redis://127.0.0.1:1";
    weir *of[2] = {open_named(name, &options), open_named(name, &options)};
    size_t failed = 0;
    for (size_t number = 1, all = 1; number <= all; number++) {
        weir *w = of[number % 2]; /* the other leads */
        assert_false(w->leads);
        fake_clock_advance(&clock, SECOND);
        seen = 0;
        fails = number;
        const int wait_ms = weir_poll(w);
        fails = 0;
        all = seen >= number ? number + 1 : number; /* until fewer are asked for */
        assert_true(wait_ms >= 0);
        assert_int_equal(w->leads, w->transport != NULL);
        assert_int_equal(load_relaxed(&w->shared->leader) == w->limiter.joined_as, w->leads);
        failed += !w->leads;
        assert_true(w->leads || of[1 - number % 2]->leads);
        assert_true(weir_poll(w) >= 0);
        assert_true(w->leads && w->transport != NULL);
        assert_true(weir_poll(of[1 - number % 2]) >= 0);
        assert_false(of[1 - number % 2]->leads);
        assert_null(of[1 - number % 2]->transport);
    }
    assert_true(failed >= 1);
    weir_close(of[0]);
    weir_close(of[1]);
    (void) weir_unlink(name);
}

int main(void)
{
    segment_name(name, "refused");
    (void) snprintf(path, sizeof(path), "/tmp/weir_refused_%d.yaml", (int) getpid());
    caller = pthread_self();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_open_that_fails_leaves_nothing),
        cmocka_unit_test(test_an_open_with_a_log_that_fails_leaves_nothing),
        cmocka_unit_test(test_a_thread_that_cannot_be_had_is_said),
        cmocka_unit_test(test_a_join_that_fails_may_be_called_again),
        cmocka_unit_test(test_a_change_that_fails_changes_nothing),
        cmocka_unit_test(test_what_another_process_has_set_is_read_again_after_memory_was_refused),
        cmocka_unit_test(test_policies_have_room_in_named_memory_before_they_are_written),
        cmocka_unit_test(test_a_lead_without_memory_is_taken_up_later),
    };
    const int failed = cmocka_run_group_tests_name("unit/limiter/refused_by_system", tests, NULL, NULL);
    (void) weir_unlink(name);
    return failed;
}
