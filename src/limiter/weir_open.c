/* SPDX-License-Identifier: Apache-2.0 */
/* weir_open and weir_close: makes and frees all parts of a weir. See weir_open.h. */
#include "limiter/weir_open.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "limiter/background.h"
#include "limiter/leader.h"
#include "limiter/options.h"
#include "limiter/weir_parts.h"
#include "limiter/weir_private.h"
#include "thread/handle.h"
#include "thread/joined.h"
#include "thread/repair.h"
#include "transport/redis/redis.h"

int locks_init(weir *w)
{
    pthread_condattr_t monotonic;
    int result = pthread_condattr_init(&monotonic);
    if (result != 0) {
        return -result;
    }
    (void) pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    result = pthread_cond_init(&w->sync_done, &monotonic);
    (void) pthread_condattr_destroy(&monotonic);
    if (result == 0) {
        (void) pthread_mutex_init(&w->poll_lock, NULL);
        (void) pthread_mutex_init(&w->sync_lock, NULL);
    }
    return -result;
}

static void locks_destroy(weir *w)
{
    (void) pthread_mutex_destroy(&w->poll_lock);
    (void) pthread_mutex_destroy(&w->sync_lock);
    (void) pthread_cond_destroy(&w->sync_done);
}

/* Frees a weir, also one that is not complete: missing parts are zero. */
static void weir_free(weir *w)
{
    if (w->wake_fd >= 0) {
        (void) close(w->wake_fd);
    }
    poll_set_close(&w->poll_set);
    if (w->has_fleet && w->limiter.max_processes == 1) {
        fleet_leave(w->fleet); /* of a shared weir the leader has left it, and others may go on */
    }
    if (w->transport != NULL) {
        w->transport->ops->close(w->transport);
    }
    free((char *) (uintptr_t) w->transport_config.url);
    free((char *) (uintptr_t) w->transport_config.prefix);
    parts_close(w);
    named_close(&w->named);
    if (fork_mark_is_own(w->limiter.mark)) {
        locks_destroy(w); /* in a child the locks are as the parent's threads left them; some of these may wait for the
                             condition */
    }
    free(w);
}

/* What weir_open_on() and weir_open() have in common. */
struct opening {
    const weir_options *options;           /* every default filled in */
    struct transport *transport;           /* NULL: there is no fleet. Taken over */
    const struct transport_config *config; /* of the transport; where several processes may need one */
};

/* A weir that has its own locks and clock, and nothing else. 0; -ENOMEM; as locks_init(). */
static int weir_begin(const struct opening *opening, weir **out, weir_error *error)
{
    const weir_options *options = opening->options;
    weir *w = calloc(1, sizeof(*w));
    if (w == NULL) {
        (void) error_set(error, -ENOMEM, "out of memory");
        return -ENOMEM;
    }
    w->wake_fd = -1;
    poll_set_init(&w->poll_set);
    w->limiter.mark = fork_mark_own();
    w->options = *options;
    const int result = locks_init(w);
    if (result != 0) {
        free(w);
        (void) error_set(error, result, "no locks to be had: %s", strerror(-result));
        return result;
    }
    w->limiter.tick_ns = options->tick_us * NS_PER_US;
    if (options->clock != NULL) {
        w->clock = *options->clock;
        w->limiter.clock = &w->clock;
        w->limiter.host_time = true;
    }
    w->pages.use = options->shared ? PAGES_SHARED : 0;
    *out = w;
    return 0;
}

/* This process has entered a weir that others have made: takes part as a forked child does that joins. */
static void weir_enter(weir *w, enum named_entry entry)
{
    const uint64_t now_ns = clock_monotonic_ns(w->limiter.clock);
    if (entry == NAMED_ALONE) {
        store_relaxed(&w->shared->leader, JOINED_NONE);
        tick_raise(&w->limiter, now_ns); /* the last tick may be long ago */
        tick_epoch(&w->limiter);
    }
    if (w->transport != NULL) {
        w->transport->ops->close(w->transport); /* a leader opens one: see leader.c */
        w->transport = NULL;
    }
    w->named.replaced = REPLACED_NONE; /* if it was, by another process */
}

/* Fills in a weir that has begun, but for its background thread. 0; -EUCLEAN: its segment is to be replaced. */
static int weir_make(weir *w, const struct opening *opening, enum named_replaced replaced, weir_error *error)
{
    enum named_entry entry = NAMED_MADE;
    const weir_options *options = opening->options;
    const bool named = options->shared_name != NULL;
    int result = named ? named_open(&w->named, &w->pages, options, replaced, error) : 0;
    result = result != 0 ? result : parts_open(w, opening->transport != NULL, error);
    if (result == 0 && opening->transport != NULL) {
        result = parts_open_fleet(w, opening->config, error);
    } else if (result == 0 && pages_are_fresh(&w->pages)) {
        fleet_open_alone(w->fleet, options->node_name, clock_monotonic_ns(w->limiter.clock));
    }
    if (result == 0 && named) {
        result = named_complete(&w->named, &w->limiter, options, &entry, error);
    }
    if (result == 0 && entry != NAMED_MADE) {
        weir_enter(w, entry);
    }
    return result;
}

/* Makes a weir; after an error all is given back, and the transport is closed. */
static int weir_make_whole(const struct opening *opening, weir **out, weir_error *error)
{
    struct transport *transport = opening->transport;
    enum named_replaced replaced = REPLACED_NONE;
    int result;
    do {
        weir *w = NULL;
        result = weir_begin(opening, &w, error);
        if (result != 0) {
            break;
        }
        w->transport = transport;
        result = weir_make(w, opening, replaced, error);
        if (result == 0) {
            *out = w;
            return 0;
        }
        w->transport = NULL; /* the next try has it, or the end */
        weir_free(w);
        replaced = REPLACED_BROKEN;
    } while (result == -EUCLEAN);
    if (transport != NULL) {
        transport->ops->close(transport);
    }
    return result;
}

/* Detaches this process's handles. */
static void detach_all(weir *w)
{
    for (uint32_t i = 0; i < w->limiter.max_threads; i++) {
        thread_detach(&w->limiter.threads[i]);
    }
}

/* Sends the last reports, for at most redis_timeout_ms. */
static void report_last(weir *w)
{
    if (w->has_fleet) {
        w->leaves_last = true;
        (void) background_sync_here(w, w->options.redis_timeout_ms, true);
    }
}

/* What a process does that is in. */
static void leave_weir(weir *w)
{
    if (w->limiter.max_processes > 1) {
        repair_all(
            &w->limiter); /* without a background thread nobody does while this one waits for a dead one's lock */
    }
    detach_all(w);
    background_stop(w);
    if (joined_leave_begin(&w->limiter, w->limiter.joined_as) == 0) {
        report_last(w);
    }
    leader_leave(w);
    joined_leave(&w->limiter, w->limiter.joined_as);
}

/* Gives back a weir whose background thread could not be started. */
static int no_thread(weir *w, int result, weir_error *error)
{
    (void) joined_leave_begin(&w->limiter, w->limiter.joined_as);
    leader_leave(w);
    joined_leave(&w->limiter, w->limiter.joined_as);
    weir_free(w);
    return error_set(error, result, "no background thread to be had: %s", strerror(-result));
}

static int open_on(const struct opening *given, weir **out, weir_error *error)
{
    weir_options complete;
    struct opening opening = *given;
    weir *w = NULL;
    int result = options_complete(given->options, &complete, error);
    opening.options = &complete;
    if (result != 0) {
        if (given->transport != NULL) {
            given->transport->ops->close(given->transport);
        }
        return result;
    }
    result = weir_make_whole(&opening, &w, error);
    if (result != 0) {
        return result;
    }
    result = complete.no_thread ? 0 : background_start(w);
    if (result != 0) {
        return no_thread(w, result, error);
    }
    w->options.redis_url = w->options.prefix = w->options.node_name = w->options.fleet_secret = NULL;
    w->options.shared_name = NULL;
    handle_watch(&w->limiter);
    *out = w;
    return error_clear(error);
}

int weir_open_on(const weir_options *options, struct transport *transport, weir **out, weir_error *error)
{
    const struct opening opening = {.options = options, .transport = transport};
    return open_on(&opening, out, error);
}

int weir_open(const weir_options *options, weir **out, weir_error *error)
{
    if (out == NULL) {
        return error_set(error, -EINVAL, "out is NULL; give a place for the weir");
    }
    *out = NULL;
    weir_options complete;
    int result = options_complete(options, &complete, error);
    if (result != 0) {
        return result;
    }
    const uint64_t now_ns = clock_monotonic_ns(complete.clock);
    const struct transport_config config = {
        .url = complete.redis_url,
        .prefix = complete.prefix,
        .timeout_ms = complete.redis_timeout_ms,
        .jitter_seed = hash_mix(now_ns ^ (uint64_t) getpid() << 32),
        .now_ns = now_ns,
    };
    struct transport *transport = NULL;
    if (config.url != NULL) {
        result = redis_transport_open(&config, &transport, error);
        if (result != 0) {
            return result;
        }
    }
    const struct opening opening = {options, transport, &config};
    return open_on(&opening, out, error);
}

void weir_close(weir *w)
{
    if (w == NULL) {
        return;
    }
    handle_unwatch(&w->limiter);
    if (fork_mark_is_own(w->limiter.mark)) {
        leave_weir(w);
    }
    weir_free(w);
}
