/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Handles of threads that end, and handles that go from thread to thread.
 *
 * Guards: src/thread/handle.c, src/thread/thread.c
 */
#include <pthread.h>
#include <semaphore.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/support.h"

#define LIMIT 1000

static const weir_limit many = {.algorithm = WEIR_FIXED_WINDOW, .limit = LIMIT, .period_ns = 366 * 24 * HOUR};

/* A weir with `max_threads` places, whose policy lets LIMIT units pass. */
struct place {
    weir *w;
    weir_key key;
    weir_thread *handle;
    unsigned passed;
    sem_t ready;
};

static void place_open(struct place *place, uint32_t max_threads)
{
    weir_options options = WEIR_OPTIONS_INIT;
    options.max_keys = 1000;
    options.max_threads = max_threads;
    memset(place, 0, sizeof(*place));
    place->w = open_or_fail(&options);
    place->key = weir_make_key(place->w, set_one_policy(place->w, &many, 1, WEIR_SCOPE_PROCESS), "k", 1);
    assert_int_equal(sem_init(&place->ready, 0, 0), 0);
}

static void place_close(struct place *place)
{
    weir_close(place->w);
    (void) sem_destroy(&place->ready);
}

static uint32_t attached(const struct place *place)
{
    weir_stats stats;
    weir_get_stats(place->w, &stats);
    return stats.thread_count;
}

/* Checks until `units` have passed, or one is denied. */
static unsigned pass(const struct place *place, weir_thread *t, unsigned count)
{
    unsigned passed = 0;
    while (passed < count && weir_check(t, &place->key, 1, NULL)) {
        passed++;
    }
    return passed;
}

static void *attach_and_end(void *arg)
{
    struct place *place = arg;
    place->handle = weir_attach(place->w);
    if (place->handle != NULL) {
        place->passed += pass(place, place->handle, 7);
    }
    (void) sem_post(&place->ready);
    return NULL;
}

static void run_to_its_end(void *(*run)(void *), void *arg)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, run, arg), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static void test_a_thread_that_ends_gives_its_place_back(void **state)
{
    (void) state;
    struct place place;
    place_open(&place, 1);
    for (int i = 0; i < 50; i++) {
        run_to_its_end(attach_and_end, &place);
        assert_non_null(place.handle);
        assert_int_equal(attached(&place), 0);
    }
    assert_int_equal(place.passed, 50 * 7);
    /* Units that the threads held and did not use can pass, and no other units. */
    weir_thread *t = weir_attach(place.w);
    assert_int_equal(pass(&place, t, 2 * LIMIT), LIMIT - 50 * 7);
    place_close(&place);
}

#define WEIRS 3

static void *attach_to_all(void *arg)
{
    struct place *places = arg;
    for (int i = 0; i < WEIRS; i++) {
        (void) attach_and_end(&places[i]);
    }
    return NULL;
}

static void test_it_gives_back_its_places_in_every_weir(void **state)
{
    (void) state;
    struct place places[WEIRS];
    for (int i = 0; i < WEIRS; i++) {
        place_open(&places[i], 2);
    }
    weir_thread *remote = weir_attach(places[1].w);
    run_to_its_end(attach_to_all, places);
    for (int i = 0; i < WEIRS; i++) {
        assert_int_equal(places[i].passed, 7);
        assert_int_equal(attached(&places[i]), i == 1 ? 1 : 0); /* the handle of another thread stays */
    }
    weir_detach(remote);
    place_close(&places[1]);
    run_to_its_end(attach_and_end, &places[2]); /* a handle between two others has gone */
    assert_int_equal(attached(&places[2]), 0);
    place_close(&places[0]);
    place_close(&places[2]);
}

/* The threads have done with the weir, and may end before, while and after it is closed. */
static void test_threads_may_end_while_the_weir_closes(void **state)
{
    (void) state;
    for (int round = 0; round < 200; round++) {
        struct place place;
        pthread_t threads[2];
        struct place other; /* this thread stays, and keeps the ending threads at work */
        place_open(&place, 2);
        place_open(&other, 2);
        struct place *both[2] = {&place, &other};
        for (int i = 0; i < 2; i++) {
            assert_int_equal(pthread_create(&threads[i], NULL, attach_and_end, both[i]), 0);
        }
        for (int i = 0; i < 2; i++) {
            assert_int_equal(sem_wait(&both[i]->ready), 0);
        }
        weir_close(place.w);
        assert_int_equal(pthread_join(threads[0], NULL), 0);
        assert_int_equal(pthread_join(threads[1], NULL), 0);
        assert_int_equal(attached(&other), 0);
        (void) sem_destroy(&place.ready);
        place_close(&other);
    }
}

static void *attach_unbind_and_end(void *arg)
{
    struct place *place = arg;
    (void) attach_and_end(place);
    weir_unbind(place->handle);
    return NULL;
}

static void *use_and_end(void *arg)
{
    struct place *place = arg;
    place->passed += pass(place, place->handle, 7);
    return NULL;
}

static void *use_up_and_detach(void *arg)
{
    struct place *place = arg;
    place->passed += pass(place, place->handle, 2 * LIMIT);
    weir_detach(place->handle);
    return NULL;
}

static void test_an_unbound_handle_goes_from_thread_to_thread(void **state)
{
    (void) state;
    struct place place;
    weir_unbind(NULL);
    place_open(&place, 1);
    run_to_its_end(attach_unbind_and_end, &place);
    assert_int_equal(attached(&place), 1);
    assert_null(weir_attach(place.w));
    for (int i = 0; i < 20; i++) {
        run_to_its_end(use_and_end, &place);
    }
    assert_int_equal(attached(&place), 1);
    assert_int_equal(place.passed, 21 * 7);
    run_to_its_end(use_up_and_detach, &place);
    assert_int_equal(place.passed, LIMIT);
    assert_int_equal(attached(&place), 0);
    place_close(&place);
}

/* A pool of two handles that four threads take in turn, as tasks of an executor do. */
struct pool {
    struct place place;
    pthread_mutex_t lock;
    sem_t free;
    weir_thread *handles[2];
    size_t count;
    unsigned passed;
};

static void *take_in_turn(void *arg)
{
    struct pool *pool = arg;
    bool open = true;
    while (open) {
        while (sem_wait(&pool->free) != 0) {
        }
        (void) pthread_mutex_lock(&pool->lock);
        weir_thread *t = pool->handles[--pool->count];
        (void) pthread_mutex_unlock(&pool->lock);
        const unsigned passed = pass(&pool->place, t, 3);
        open = passed == 3;
        (void) pthread_mutex_lock(&pool->lock);
        pool->passed += passed;
        pool->handles[pool->count++] = t;
        (void) pthread_mutex_unlock(&pool->lock);
        (void) sem_post(&pool->free);
    }
    return NULL;
}

static void test_a_pool_of_handles_admits_the_limit(void **state)
{
    (void) state;
    struct pool pool = {.count = 2};
    place_open(&pool.place, 2);
    assert_int_equal(pthread_mutex_init(&pool.lock, NULL), 0);
    assert_int_equal(sem_init(&pool.free, 0, 2), 0);
    for (size_t i = 0; i < 2; i++) {
        pool.handles[i] = weir_attach(pool.place.w);
        weir_unbind(pool.handles[i]);
    }
    run_threads(4, take_in_turn, &pool);
    assert_int_equal(attached(&pool.place), 2);
    for (size_t i = 0; i < 2; i++) {
        weir_detach(pool.handles[i]);
    }
    assert_int_equal(attached(&pool.place), 0);
    /* With each handle a check may be under way while its grant is taken back. That check's unit is counted as late. */
    weir_stats stats;
    weir_get_stats(pool.place.w, &stats);
    const uint64_t late = stats.late_units < 2 ? stats.late_units : 2;
    assert_in_range(pool.passed, LIMIT, LIMIT + late);
    place_close(&pool.place);
    (void) pthread_mutex_destroy(&pool.lock);
    (void) sem_destroy(&pool.free);
}

/* A program's own destructors, of keys made before and after the library's. */
static pthread_key_t before_key, after_key;
static _Atomic unsigned in_place;

static void use_at_the_end(void *value)
{
    struct place *place = value;
    in_place += attached(place) == 1;
    place->passed += pass(place, place->handle, 7);
}

static void use_and_detach_at_the_end(void *value)
{
    struct place *place = value;
    use_at_the_end(place);
    weir_detach(place->handle);
}

static void *end_with_destructors(void *arg)
{
    (void) attach_and_end(arg);
    /* The two keys are made in either order. */
    (void) pthread_setspecific(before_key, arg);
    (void) pthread_setspecific(after_key, arg);
    return NULL;
}

static void test_the_destructors_of_a_program_may_use_the_handle_and_detach_it(void **state)
{
    (void) state;
    struct place place;
    place_open(&place, 1);
    run_to_its_end(attach_and_end, &place); /* makes the library's key, if no test did before */
    assert_int_equal(pthread_key_create(&after_key, use_and_detach_at_the_end), 0);
    in_place = 0;
    run_to_its_end(end_with_destructors, &place);
    assert_int_equal(in_place, 2);
    assert_int_equal(attached(&place), 0);
    assert_int_equal(place.passed, 4 * 7);
    assert_int_equal(pthread_key_delete(after_key), 0);
    assert_int_equal(pthread_key_delete(before_key), 0);
    place_close(&place);
}

/* Ends a child in the last of four rounds of destructors: after the library's. */
static pthread_key_t last_key;
static uintptr_t rounds;

static void end_in_the_last_round(void *value)
{
    if (++rounds == 4) {
        _exit(0);
    }
    (void) pthread_setspecific(last_key, value);
}

/* The only thread of a child is one that attached. */
static void *fork_and_end(void *arg)
{
    struct place *place = arg;
    (void) attach_and_end(place);
    const pid_t child = fork();
    if (child == 0) {
        (void) pthread_setspecific(last_key, place);
        weir_close(place->w);
        return NULL;
    }
    int status = -1;
    if (child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status)) {
        in_place = (unsigned) WEXITSTATUS(status);
    }
    return NULL;
}

static void test_a_forked_thread_that_attached_ends_without_harm(void **state)
{
    (void) state;
    struct place place;
    place_open(&place, 1);
    in_place = 77;
    assert_int_equal(pthread_key_create(&last_key, end_in_the_last_round), 0);
    run_to_its_end(fork_and_end, &place);
    assert_int_equal(pthread_key_delete(last_key), 0);
    assert_int_equal(in_place, 0);
    assert_int_equal(attached(&place), 0);
    place_close(&place);
}

static void test_without_a_handle_everything_passes(void **state)
{
    (void) state;
    struct place place;
    place_open(&place, 1);
    weir_verdict v;
    memset(&v, 0, sizeof(v));
    assert_true(weir_check(NULL, &place.key, 2 * LIMIT, &v));
    assert_true(v.allowed);
    assert_int_equal(v.basis, WEIR_BASIS_PROCESS);
    assert_true(v.remaining == UINT64_MAX);
    assert_true(weir_check(NULL, &place.key, 1, NULL));
    assert_true(weir_peek(NULL, &place.key, 1, &v));
    assert_true(weir_check_all(NULL, &place.key, NULL, 1, &v));
    uint64_t wait_ns = 7;
    assert_true(weir_reserve(NULL, &place.key, 1, 0, &wait_ns));
    assert_int_equal(wait_ns, 0);
    weir_charge(NULL, &place.key, 5);
    weir_refund(NULL, &place.key, 5);
    weir_key keys[70];
    for (size_t i = 0; i < 70; i++) {
        keys[i] = place.key;
    }
    uint64_t bits[2] = {0, 0};
    assert_int_equal(weir_check_burst(NULL, keys, NULL, 70, bits), 70);
    assert_true(bits[0] == UINT64_MAX);
    assert_int_equal(bits[1], 63);
    assert_int_equal(weir_check_burst(NULL, keys, NULL, 64, NULL), 64);
    weir_thread *t = weir_attach(place.w);
    assert_int_equal(pass(&place, t, 2 * LIMIT), LIMIT);
    place_close(&place);
}

int main(void)
{
    /* Before the library makes its own. */
    if (pthread_key_create(&before_key, use_at_the_end) != 0) {
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_thread_that_ends_gives_its_place_back),
        cmocka_unit_test(test_it_gives_back_its_places_in_every_weir),
        cmocka_unit_test(test_threads_may_end_while_the_weir_closes),
        cmocka_unit_test(test_an_unbound_handle_goes_from_thread_to_thread),
        cmocka_unit_test(test_a_pool_of_handles_admits_the_limit),
        cmocka_unit_test(test_the_destructors_of_a_program_may_use_the_handle_and_detach_it),
        cmocka_unit_test(test_without_a_handle_everything_passes),
        cmocka_unit_test(test_a_forked_thread_that_attached_ends_without_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
