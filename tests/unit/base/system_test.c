/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is asked of the system and of the processor: random secrets, clocks, barriers, locks, two words at once.
 *
 * Guards: src/base/hash.c, src/base/hash_inl.h, src/base/hash.h, src/base/clock.h, src/base/barrier.c,
 * src/base/dwcas.h, src/base/reference.h, src/base/spin.h, src/base/record_hash.c, src/base/atomics.h
 */
#include <errno.h>
#include <linux/membarrier.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/barrier.h"
#include "base/clock.h"
#include "base/dwcas.h"
#include "base/hash_inl.h"
#include "base/record_hash.h"
#include "base/reference.h"
#include "base/spin.h"
#include "support/support.h"

static void test_a_secret_is_random_in_all_its_bytes(void **state)
{
    (void) state;
    bool changed[HASH_SECRET_SIZE] = {false};
    struct {
        struct hash_secret secret;
        unsigned char behind;
    } one = {.behind = 77};
    for (size_t i = 0; i < 16; i++) { /* that a byte is 0 each time is as likely as one of 2^128 */
        memset(&one.secret, 0, sizeof(one.secret));
        assert_int_equal(hash_secret_fill(&one.secret), 0);
        for (size_t j = 0; j < HASH_SECRET_SIZE; j++) {
            changed[j] = changed[j] || one.secret.bytes[j] != 0;
        }
    }
    for (size_t j = 0; j < HASH_SECRET_SIZE; j++) {
        assert_true(changed[j]);
    }
    assert_int_equal(one.behind, 77);
}

/* What the kernel gives at once, in the order of the calls; -1: a signal came, -2: it has none. Then all. */
static int pieces[8], taken, piece_count;

ssize_t __real_getrandom(void *out, size_t size, unsigned flags);
ssize_t __wrap_getrandom(void *out, size_t size, unsigned flags);

ssize_t __wrap_getrandom(void *out, size_t size, unsigned flags)
{
    const int piece = taken < piece_count ? pieces[taken] : (int) size;
    taken++;
    if (piece < 0) {
        errno = piece == -1 ? EINTR : ENOSYS;
        return -1;
    }
    return __real_getrandom(out, (size_t) piece < size ? (size_t) piece : size, flags);
}

static void test_a_secret_that_comes_by_pieces_is_whole(void **state)
{
    (void) state;
    static const struct {
        int pieces[4], calls, result;
    } all[] = {{{0}, 1, 0},
               {{1, 190, -1, 1}, 4, 0},
               {{-1, -1, 100, 50}, 5, 0},
               {{100, 100, 100, 1}, 2, 0}, /* no more than there is room for */
               {{64, -2}, 2, -ENOSYS},
               {{-2}, 1, -ENOSYS}};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        struct {
            struct hash_secret secret;
            unsigned char behind[HASH_SECRET_SIZE];
        } one;
        memset(&one, 0, sizeof(one));
        memcpy(pieces, all[i].pieces, sizeof(all[i].pieces));
        piece_count = i == 0 ? 0 : 4;
        taken = 0;
        assert_int_equal(hash_secret_fill(&one.secret), all[i].result);
        assert_int_equal(taken, all[i].calls);
        for (size_t j = 0; j < HASH_SECRET_SIZE; j++) {
            assert_int_equal(one.behind[j], 0);
        }
        /* Of sixteen bytes at the end one at least is not 0: else as likely as one of 2^128. */
        static const unsigned char zeros[16];
        const bool whole = memcmp(one.secret.bytes + HASH_SECRET_SIZE - 16, zeros, 16) != 0;
        assert_int_equal(whole, all[i].result == 0);
    }
    piece_count = 0;
}

static void test_hashes_are_xxhashs_of_any_length(void **state)
{
    (void) state;
    struct hash_secret secret;
    unsigned char data[300];
    for (size_t i = 0; i < sizeof(secret.bytes); i++) {
        secret.bytes[i] = (unsigned char) (i * 37 + 11);
    }
    for (size_t length = 0; length < sizeof(data); length++) {
        data[length] = (unsigned char) (length * 101);
        const void *bytes = length != 0 ? data : NULL; /* which is allowed */
        const uint64_t keyed = XXH3_64bits_withSecret(data, length, secret.bytes, sizeof(secret.bytes));
        const XXH128_hash_t shared = XXH3_128bits(data, length);
        uint64_t words[2];
        assert_int_equal(hash_keyed(&secret, bytes, length), keyed);
        hash_shared(bytes, length, words);
        assert_true(words[0] == shared.low64 && words[1] == shared.high64);
        if (length <= HASH_SHORT) {
            assert_int_equal(hash_short(&secret, bytes, length), keyed);
        }
    }
    /* splitmix64's own sequence from 0 is this of multiples of the golden ratio. */
    assert_int_equal(hash_mix(UINT64_C(0x9e3779b97f4a7c15)), UINT64_C(0xe220a8397b1dcdaf));
    assert_int_equal(hash_mix(UINT64_C(0x3c6ef372fe94f82a)), UINT64_C(0x6e789e6aa1b965f4));
    assert_int_equal(hash_mix(0), 0);
}

static void test_a_record_hash_without_a_secret_has_a_fixed_one(void **state)
{
    (void) state;
    struct record_hash none;
    struct record_hash fixed;
    unsigned char left[RECORD_HASH_SIZE];
    unsigned char right[RECORD_HASH_SIZE];
    record_hash_init(&none, NULL);
    record_hash_init(&fixed, "weir");
    record_hash_of(&none, "key", 3, left);
    record_hash_of(&fixed, "key", 3, right);
    assert_memory_equal(left, right, sizeof(left));
    record_hash_of(&none, "keys", 4, right);
    assert_memory_not_equal(left, right, sizeof(left));
}

static uint64_t system_ns(clockid_t id)
{
    struct timespec now;
    assert_int_equal(clock_gettime(id, &now), 0);
    return (uint64_t) now.tv_sec * SECOND + (uint64_t) now.tv_nsec;
}

static uint64_t add_5(void *arg)
{
    return *(uint64_t *) arg + 5;
}

static uint64_t add_7(void *arg)
{
    return *(uint64_t *) arg + 7;
}

static void test_times_are_the_hosts_or_the_systems(void **state)
{
    (void) state;
    uint64_t time_ns = 1000;
    const weir_clock host = {.monotonic_ns = add_5, .wall_ns = add_7, .arg = &time_ns};
    assert_int_equal(clock_monotonic_ns(&host), 1005);
    assert_int_equal(clock_wall_ns(&host), 1007);
    for (int i = 0; i < 1000; i++) {
        const uint64_t before_ns = system_ns(CLOCK_MONOTONIC);
        const uint64_t now_ns = clock_monotonic_ns(NULL);
        assert_in_range(now_ns, before_ns, system_ns(CLOCK_MONOTONIC));
    }
    /* The wall clock may be set meanwhile: one reading between its neighbours is enough. */
    for (int i = 0;; i++) {
        const uint64_t before_ns = system_ns(CLOCK_REALTIME);
        const uint64_t now_ns = clock_wall_ns(NULL);
        if (now_ns >= before_ns && now_ns <= system_ns(CLOCK_REALTIME)) {
            break;
        }
        assert_true(i < 1000);
    }
}

static void test_a_barrier_is_there_where_the_kernel_has_it(void **state)
{
    (void) state;
    static const int commands[] = {
        [BARRIER_OWN] = MEMBARRIER_CMD_PRIVATE_EXPEDITED, [BARRIER_JOINED] = MEMBARRIER_CMD_GLOBAL_EXPEDITED};
    const long known = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
    for (unsigned reach = 0; reach < 2; reach++) {
        const bool there = known >= 0 && (known & commands[reach]) != 0;
        assert_int_equal(barrier_available((enum barrier_reach) reach), there);
        if (there) {
            assert_int_equal(syscall(SYS_membarrier, commands[reach], 0, 0), 0); /* it is registered */
            barrier_all_threads((enum barrier_reach) reach);
        }
    }
}

/* A kernel of the test's own. The linker's --wrap leads the library's calls here. */
static struct {
    bool replaced;
    long known;          /* the answer to a query */
    int refused;         /* a command */
    int asked[8], count; /* commands but queries */
} kernel;

long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);

long __wrap_syscall(long number, ...)
{
    va_list arguments;
    va_start(arguments, number);
    const int command = va_arg(arguments, int);
    va_end(arguments);
    if (!kernel.replaced) {
        return __real_syscall(number, command, 0, 0);
    }
    assert_int_equal(number, SYS_membarrier);
    if (command == MEMBARRIER_CMD_QUERY) {
        return kernel.known;
    }
    assert_in_range(kernel.count, 0, 7);
    kernel.asked[kernel.count++] = command;
    return command == kernel.refused ? -1 : 0;
}

static void test_a_barrier_that_the_kernel_has_not_or_refuses_is_not_there(void **state)
{
    (void) state;
    static const int commands[][2] = {
        [BARRIER_OWN] = {MEMBARRIER_CMD_PRIVATE_EXPEDITED, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED},
        [BARRIER_JOINED] = {MEMBARRIER_CMD_GLOBAL_EXPEDITED, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED}};
    kernel.replaced = true;
    for (int reach = 0; reach < 2; reach++) {
        const enum barrier_reach as = (enum barrier_reach) reach;
        const struct {
            long known;
            int refused;
            bool there;
        } all[] = {{commands[reach][0], 0, true},
                   {0xffff, 0, true},
                   {-1, 0, false},
                   {0, 0, false},
                   {0xffff & ~commands[reach][0], 0, false},
                   {0xffff, commands[reach][1], false},
                   {0xffff, commands[1 - reach][1], true}};
        for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
            kernel.known = all[i].known;
            kernel.refused = all[i].refused;
            kernel.count = 0;
            assert_int_equal(barrier_available(as), all[i].there);
            assert_true(!all[i].there || (kernel.count == 1 && kernel.asked[0] == commands[reach][1]));
        }
        kernel.count = 0;
        barrier_all_threads(as);
        assert_true(kernel.count == 1 && kernel.asked[0] == commands[reach][0]);
    }
    kernel.replaced = false;
}

static void test_two_words_are_swapped_where_both_are_as_expected(void **state)
{
    (void) state;
    struct dwcas words;
    store_relaxed(&words.a, 3);
    store_relaxed(&words.b, 5);
    struct dwcas_value expected = {3, 5};
    assert_true(dwcas_swap(&words, &expected, (struct dwcas_value){7, 9}));
    assert_true(expected.a == 3 && expected.b == 5);
    static const struct dwcas_value wrong[] = {{7, 5}, {3, 9}, {9, 7}, {0, 0}};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        expected = wrong[i];
        assert_false(dwcas_swap(&words, &expected, (struct dwcas_value){1, 2}));
        assert_true(expected.a == 7 && expected.b == 9); /* what is there */
    }
    const struct dwcas_value read = dwcas_read(&words);
    const struct dwcas_value guess = dwcas_guess(&words);
    assert_true(read.a == 7 && read.b == 9 && guess.a == 7 && guess.b == 9);
}

static void test_a_reference_holds_wherever_its_memory_lies(void **state)
{
    (void) state;
    struct part {
        struct reference to;
        int values[4];
    } part = {.values = {1, 2, 3, 4}};
    assert_null(reference_get(&part.to));
    reference_set(&part.to, &part.values[2]);
    assert_ptr_equal(reference_get(&part.to), &part.values[2]);
    struct part *moved = malloc(sizeof(*moved));
    assert_non_null(moved);
    memcpy((void *) moved, (void *) &part, sizeof(part));
    assert_ptr_equal(reference_get(&moved->to), &moved->values[2]);
    reference_set(&moved->to, &part.values[0]); /* in either direction */
    assert_ptr_equal(reference_get(&moved->to), &part.values[0]);
    reference_set(&moved->to, NULL);
    assert_null(reference_get(&moved->to));
    free(moved);
}

static void test_a_lock_is_taken_once_and_says_by_whom(void **state)
{
    (void) state;
    _Atomic uint32_t lock = 0;
    assert_true(spin_trylock(&lock, 17));
    assert_int_equal(load_relaxed(&lock), 17);
    assert_false(spin_trylock(&lock, 18));
    assert_int_equal(load_relaxed(&lock), 17);
    spin_wait(0);
    spin_wait(SPIN_LIMIT);
    spin_unlock(&lock);
    assert_true(spin_trylock(&lock, 18));
    assert_int_equal(load_relaxed(&lock), 18);
}

static void test_a_number_is_raised_and_never_lowered(void **state)
{
    (void) state;
    _Atomic uint64_t number = 5;
    raise_relaxed(&number, 4);
    assert_int_equal(load_relaxed(&number), 5);
    raise_relaxed(&number, 6);
    assert_int_equal(load_relaxed(&number), 6);
    raise_relaxed(&number, UINT64_MAX);
    assert_int_equal(load_relaxed(&number), UINT64_MAX);
    counter_add(&number, 3);
    assert_int_equal(load_relaxed(&number), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_secret_is_random_in_all_its_bytes),
        cmocka_unit_test(test_a_secret_that_comes_by_pieces_is_whole),
        cmocka_unit_test(test_hashes_are_xxhashs_of_any_length),
        cmocka_unit_test(test_a_record_hash_without_a_secret_has_a_fixed_one),
        cmocka_unit_test(test_times_are_the_hosts_or_the_systems),
        cmocka_unit_test(test_a_barrier_is_there_where_the_kernel_has_it),
        cmocka_unit_test(test_a_barrier_that_the_kernel_has_not_or_refuses_is_not_there),
        cmocka_unit_test(test_two_words_are_swapped_where_both_are_as_expected),
        cmocka_unit_test(test_a_reference_holds_wherever_its_memory_lies),
        cmocka_unit_test(test_a_lock_is_taken_once_and_says_by_whom),
        cmocka_unit_test(test_a_number_is_raised_and_never_lowered),
    };
    return cmocka_run_group_tests_name("unit/base/system", tests, NULL, NULL);
}
