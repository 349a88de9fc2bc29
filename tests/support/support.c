/* SPDX-License-Identifier: Apache-2.0 */
#include "support/support.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/hash.h"
#include "support/draw.h"

static uint64_t fake_monotonic(void *arg)
{
    return ((const struct fake_clock *) arg)->monotonic_ns;
}

static uint64_t fake_wall(void *arg)
{
    return ((const struct fake_clock *) arg)->wall_ns;
}

void fake_clock_init(struct fake_clock *fake, uint64_t wall_ns)
{
    fake->monotonic_ns = 1000 * SECOND;
    fake->wall_ns = wall_ns;
    fake->clock = (weir_clock){fake_monotonic, fake_wall, fake};
}

void fake_clock_advance(struct fake_clock *fake, uint64_t ns)
{
    fake->monotonic_ns += ns;
    fake->wall_ns += ns;
}

uint64_t real_ns(void)
{
    struct timespec now;
    (void) clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t) now.tv_sec * SECOND + (uint64_t) now.tv_nsec;
}

uint64_t real_wall_ns(void *arg)
{
    struct timespec now;
    (void) arg;
    (void) clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t) now.tv_sec * SECOND + (uint64_t) now.tv_nsec;
}

void nap_ms(long ms)
{
    const struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    (void) nanosleep(&pause, NULL);
}

static uint64_t seed;

static void choose_seed(void)
{
    const char *given = getenv("WEIR_TEST_SEED");
    seed = given != NULL ? strtoull(given, NULL, 0) : real_ns();
    (void) fprintf(stderr, "# seed: WEIR_TEST_SEED=%" PRIu64 "\n", seed);
}

uint64_t test_seed(void)
{
    static pthread_once_t chosen = PTHREAD_ONCE_INIT;
    (void) pthread_once(&chosen, choose_seed);
    return seed;
}

/*
 * The linker's --wrap leads here (tests/meson.build), so that a seed draws as well where the keys of a test lie. Each
 * weir of a process has a secret of its own.
 */
int __wrap_hash_secret_fill(struct hash_secret *secret);

int __wrap_hash_secret_fill(struct hash_secret *secret)
{
    static atomic_uint_fast64_t filled;
    uint64_t random = hash_mix(test_seed() + atomic_fetch_add(&filled, 1));
    for (size_t i = 0; i < sizeof(secret->bytes); i++) {
        secret->bytes[i] = (unsigned char) random_next(&random);
    }
    return 0;
}

weir *open_or_fail(const weir_options *options)
{
    weir *w = NULL;
    weir_error error;
    if (weir_open(options, &w, &error) != 0) {
        fail_msg("weir_open: %s", error.message);
    }
    return w;
}

weir_policy_id set_one_policy(weir *w, const weir_limit *limits, size_t limit_count, weir_scope scope)
{
    const weir_policy policy = {.name = "p", .limits = limits, .limit_count = limit_count, .scope = scope};
    weir_error error;
    if (weir_set_policies(w, &policy, 1, &error) != 0) {
        fail_msg("weir_set_policies: %s", error.message);
    }
    const weir_policy_id id = weir_find_policy(w, "p");
    assert_int_not_equal(id, WEIR_NO_POLICY);
    return id;
}

static size_t count_entries(const char *path)
{
    size_t count = 0;
    DIR *directory = opendir(path);
    assert_non_null(directory);
    for (const struct dirent *entry = readdir(directory); entry != NULL; entry = readdir(directory)) {
        count += entry->d_name[0] != '.';
    }
    (void) closedir(directory);
    return count;
}

size_t count_threads(void)
{
    return count_entries("/proc/self/task");
}

void expect_no_more_threads(size_t count)
{
    const uint64_t until_ns = real_ns() + 60 * SECOND;
    while (count_threads() > count && real_ns() < until_ns) {
        (void) sched_yield();
    }
    assert_in_range(count_threads(), 1, count);
}

size_t count_descriptors(void)
{
    return count_entries("/proc/self/fd");
}

size_t count_mapped_pages(void)
{
    char text[128] = "";
    const int fd = open("/proc/self/statm", O_RDONLY); /* stdio would map memory itself */
    assert_true(fd >= 0);
    assert_true(read(fd, text, sizeof(text) - 1) > 0);
    (void) close(fd);
    return strtoul(text, NULL, 10);
}

/* Where the host of a virtual machine takes its processors away for tenths of a second: some tens. */
#define STALLED_MOST 200

uint64_t stalled_denials(const weir *w)
{
    weir_stats stats;
    weir_get_stats(w, &stats);
    if (stats.stalled_denied_count != 0 || stats.untracked_count != 0) {
        print_message("# %llu denials while units were held by a thread that did not run, %llu without an entry\n",
                      (unsigned long long) stats.stalled_denied_count, (unsigned long long) stats.untracked_count);
    }
    assert_in_range(stats.stalled_denied_count, 0, STALLED_MOST);
    return stats.stalled_denied_count;
}

uint64_t wait_for_units(weir_thread *t, const weir_key *key, uint64_t least)
{
    const uint64_t until_ns = real_ns() + 60 * SECOND;
    weir_verdict v;
    for (;;) {
        (void) weir_peek(t, key, least, &v); /* which takes back what other threads hold */
        if (v.remaining >= least || real_ns() > until_ns) {
            return v.remaining;
        }
        nap_ms(1);
    }
}

int take_0_away(void)
{
    const int kept = fcntl(0, F_DUPFD_CLOEXEC, 3); /* negative: there is none */
    (void) close(0);
    return kept;
}

void give_back_0(int kept)
{
    if (kept >= 0) {
        (void) dup2(kept, 0);
        (void) close(kept);
    }
}

void run_threads(size_t count, void *(*run)(void *), void *arg)
{
    pthread_t threads[16];
    assert_true(count <= sizeof(threads) / sizeof(threads[0]));
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, run, arg), 0);
    }
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
}

uint64_t threads_meet(_Atomic uint64_t *ready, uint64_t threads)
{
    const uint64_t number = atomic_fetch_add(ready, 1);
    for (int spins = 0; atomic_load(ready) < threads; spins++) {
        if (spins > 1000) {
            (void) sched_yield(); /* there may be fewer processors than threads */
        }
    }
    return number;
}
