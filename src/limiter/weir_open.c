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
#include "limiter/weir_salvage.h"
#include "policy/override_set.h"
#include "thread/handle.h"
#include "thread/joined.h"
#include "thread/misuse.h"
#include "thread/repair.h"
#include "thread/tick.h"
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

static void drop_descriptors(weir *w)
{
    if (w->wake_fd >= 0) {
        (void) close(w->wake_fd);
        w->wake_fd = -1;
    }
    poll_set_close(&w->poll_set);
    leader_drop_transport(w);
}

/*
 * Frees a weir, also one that is not complete: missing parts are zero. In the copy of a child, what the parent's
 * background thread was changing at the fork stays, and so do locks: some of their threads may wait.
 */
static void weir_free(weir *w)
{
    drop_descriptors(w);
    const bool is_whole = leader_is_whole(w);
    if (is_whole && w->has_fleet && w->limiter.max_processes == 1) {
        fleet_leave(w->fleet); /* of a shared weir the leader has left it, and others may go on */
    }
    for (size_t i = 0; is_whole && i < OVERRIDE_LISTS; i++) {
        overrides_drop(w->overrides[i].texts, w->overrides[i].count);
    }
    free((char *) (uintptr_t) w->transport_config.url);
    free((char *) (uintptr_t) w->transport_config.prefix);
    free((void *) w->required.names);
    parts_close(w);
    named_close(&w->named);
    if (fork_mark_is_own(w->limiter.mark)) {
        locks_destroy(w);
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
        (void) error_set(error, result, "no lock could be made: %s; give the process more memory", strerror(-result));
        return result;
    }
    const struct required required = {options->required_policies, options->required_policy_count};
    w->required = (struct required){required_copy(&required), required.count};
    if (w->required.names == NULL && required.count != 0) {
        locks_destroy(w);
        free(w);
        (void) error_set(error, -ENOMEM, "out of memory");
        return -ENOMEM;
    }
    w->limiter.tick_ns = options->tick_us * NS_PER_US;
    if (options->clock != NULL) {
        w->clock = *options->clock;
        w->limiter.clock = &w->clock;
        w->limiter.host_time = true;
    }
    w->limiter.may_stand_still = options->no_thread && !w->limiter.host_time;
    w->limiter.looked = background_looked;
    w->limiter.is_watched = misuse_is_asked_for();
    w->limiter.misused = background_misused;
    w->opened_ns = clock_monotonic_ns(NULL);
    w->pages.use = options->shared ? PAGES_SHARED : 0;
    *out = w;
    return 0;
}

/* This process has entered a weir that others have made: takes part as a forked child does that joins. */
static void weir_enter(weir *w)
{
    leader_drop_transport(w);          /* a leader opens one */
    w->named.replaced = REPLACED_NONE; /* if it was, by another process */
}

/* Enters a named weir, of which all parts are taken. As weir_make(). */
static int weir_enter_named(weir *w, weir_error *error)
{
    enum named_entry entry;
    int result = named_enter(&w->named, &w->limiter, &entry, error);
    if (result == 0 && entry == NAMED_ALONE) {
        result = weir_salvage(w, error);
        if (result == -EUCLEAN) {
            named_discard(&w->named);
        }
    }
    if (result != 0) {
        return result;
    }
    named_complete(&w->named, &w->options);
    if (entry != NAMED_MADE) {
        weir_enter(w);
    }
    return 0;
}

/* Fills in a weir that has begun, but for its background thread. 0; -EUCLEAN: its segment is to be replaced. */
static int weir_make(weir *w, const struct opening *opening, enum named_replaced replaced, weir_error *error)
{
    const weir_options *options = opening->options;
    const bool named = options->shared_name != NULL;
    int result = named ? named_open(&w->named, &w->pages, options, replaced, error) : 0;
    result = result != 0 ? result : parts_open(w, opening->transport != NULL, error);
    if (result == 0 && opening->transport != NULL) {
        result = parts_open_fleet(w, opening->config, error);
    } else if (result == 0 && pages_are_fresh(&w->pages)) {
        fleet_open_alone(w->fleet, options->node_name, clock_monotonic_ns(w->limiter.clock));
    }
    return result == 0 && named ? weir_enter_named(w, error) : result;
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

/*
 * Sends the last reports, for at most redis_timeout_ms: also of what dead processes have left. 0, or as weir_sync().
 *
 * Threads of processes that have called weir_leave may go on checking, and nobody ticks for them from here on. The
 * epochs end, as a slot that denies in an epoch might deny for ever.
 */
static int report_last(weir *w)
{
    if (!w->limiter.host_time) {
        tick_sleep(&w->limiter);
    }
    if (!w->has_fleet) {
        return 0;
    }
    w->leaves_last = true;
    if (w->limiter.max_processes > 1) {
        repair_all(&w->limiter);
    }
    return background_sync_here(w, w->options.redis_timeout_ms, true);
}

int weir_leave(weir *w)
{
    if (!misuse_begin_without(&w->limiter, "weir_leave") || !fork_mark_is_own(w->limiter.mark)) {
        return -EINVAL;
    }
    (void) pthread_mutex_lock(&w->poll_lock); /* a weir_poll may be under way, or another call of this */
    if (exchange_seq_cst(&w->has_left, 1) == 0) {
        background_stop(w);
        tick_may_stand_still(&w->limiter);
        if (joined_leave_begin(&w->limiter, w->limiter.joined_as) == 0) {
            w->left_result = report_last(w);
        }
        leader_leave(w);
    }
    const int result = w->left_result;
    (void) pthread_mutex_unlock(&w->poll_lock);
    return result;
}

/* What a process does that is in. */
static void leave_weir(weir *w)
{
    if (w->limiter.max_processes > 1 && limiter_has_handles(&w->limiter)) {
        repair_all(
            &w->limiter); /* without a background thread nobody does while this one waits for a dead one's lock */
    }
    detach_all(w);
    background_stop(w);
    if (joined_leave_begin(&w->limiter, w->limiter.joined_as) == 0) {
        (void) report_last(w);
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
    return error_set(error, result,
                     "no background thread could be started: %s; raise the limits of threads and descriptors of the "
                     "process, or set no_thread",
                     strerror(-result));
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
    w->options.required_policies = NULL;
    handle_watch(&w->limiter);
    if (w->limiter.is_watched) {
        tick_sleep(&w->limiter);
    }
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
    if (w == NULL || !misuse_begin_without(&w->limiter, "weir_close")) {
        return;
    }
    handle_unwatch(&w->limiter);
    if (fork_mark_is_own(w->limiter.mark)) {
        leave_weir(w);
    }
    if (w->limiter.is_watched) {
        drop_descriptors(w);
        misuse_keep(&w->limiter);
    } else {
        weir_free(w);
    }
}
