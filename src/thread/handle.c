/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Giving back the handles of threads that end: see handle.h.
 *
 * One key of thread-specific data for the library holds each thread's token. Its destructor looks through the open
 * weirs for handles with this token.
 *
 * Invariants
 *   `watched` holds every weir of this process between weir_open and weir_close. After fork it holds none of the
 *   parent's: the locks of their slots may be held by threads that the child does not have.
 *
 * Ordering: `watched` is under `watch_lock`, also while a destructor detaches. So weir_close, which takes its weir out
 * first, finds no destructor at work. fork takes the lock, so the child finds it free.
 *
 * Progress: blocking; no check comes here.
 */
#include "thread/handle.h"

#include <pthread.h>

#include "thread/limiter.h"

/* The low bits of the thread-specific value count the destructor's rounds, up to ROUNDS_WAITED. */
#define TOKEN_STEP UINT64_C(4)

/*
 * The destructors of a thread run in rounds, at least four (PTHREAD_DESTRUCTOR_ITERATIONS), for as long as one of them
 * sets a value. This one waits for the third: those of the program, which may use the handle or detach it, go first.
 * The last round is that of the sanitizers, after which no instrumented code may run.
 */
#define ROUNDS_WAITED 2

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static _Atomic uint32_t has_key;
static pthread_mutex_t watch_lock = PTHREAD_MUTEX_INITIALIZER;
static struct limiter *watched; /* linked by watched_next */
static _Atomic uint64_t last_token;

static void give_back(struct limiter *limiter, uint64_t token)
{
    const uint32_t high = limiter_thread_high(limiter);
    for (uint32_t i = 0; i < high; i++) {
        thread_detach_bound(&limiter->threads[i], token);
    }
}

/* `value`: the token of a thread that ends, and the rounds it has waited. */
static void thread_ends(void *value)
{
    const uintptr_t word = (uintptr_t) value;
    if (word % TOKEN_STEP < ROUNDS_WAITED && pthread_setspecific(key, (void *) (word + 1)) == 0) {
        return;
    }
    (void) pthread_mutex_lock(&watch_lock);
    for (struct limiter *limiter = watched; limiter != NULL; limiter = limiter->watched_next) {
        give_back(limiter, word - word % TOKEN_STEP);
    }
    (void) pthread_mutex_unlock(&watch_lock);
}

static void before_fork(void)
{
    (void) pthread_mutex_lock(&watch_lock);
}

static void after_fork_parent(void)
{
    (void) pthread_mutex_unlock(&watch_lock);
}

static void after_fork_child(void)
{
    for (struct limiter *limiter = watched; limiter != NULL; limiter = limiter->watched_next) {
        tick_begin_child(limiter);
    }
    watched = NULL;
    (void) pthread_mutex_unlock(&watch_lock);
}

static void prepare(void)
{
    (void) pthread_atfork(before_fork, after_fork_parent, after_fork_child);
    store_relaxed(&has_key, pthread_key_create(&key, thread_ends) == 0); /* its readers have passed `once` */
}

/* Once the library is unloaded, threads that go on must not call thread_ends(). */
static __attribute__((destructor)) void unload(void)
{
    if (load_relaxed(&has_key) != 0) {
        store_relaxed(&has_key, 0);
        (void) pthread_key_delete(key);
    }
}

uint64_t handle_token(void)
{
    (void) pthread_once(&once, prepare);
    if (load_relaxed(&has_key) == 0) {
        return HANDLE_UNBOUND;
    }
    uintptr_t word = (uintptr_t) pthread_getspecific(key);
    if (word == 0) {
        /* Relaxed: each value is taken once. */
        word = (uintptr_t) (add_relaxed(&last_token, TOKEN_STEP) + TOKEN_STEP);
        if (pthread_setspecific(key, (void *) word) != 0) {
            return HANDLE_UNBOUND;
        }
    }
    return word - word % TOKEN_STEP;
}

void handle_watch(struct limiter *limiter)
{
    (void) pthread_once(&once, prepare);
    (void) pthread_mutex_lock(&watch_lock);
    limiter->watched_next = watched;
    watched = limiter;
    (void) pthread_mutex_unlock(&watch_lock);
}

void handle_unwatch(struct limiter *limiter)
{
    (void) pthread_mutex_lock(&watch_lock);
    struct limiter **at = &watched;
    while (*at != NULL && *at != limiter) {
        at = &(*at)->watched_next;
    }
    if (*at != NULL) {
        *at = limiter->watched_next;
    }
    (void) pthread_mutex_unlock(&watch_lock);
}
