/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weir_open, weir_close, weir_sync and weir_poll, and the public calls that are thin over other modules. The calls of
 * a check are in check/; those of policies in set_policies.c; the background thread in background.c.
 */
#include "limiter/weir_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/hash_inl.h"
#include "base/rcu.h"
#include "check/reset.h"
#include "limiter/background.h"
#include "limiter/bucket_origin.h"
#include "limiter/set_policies.h"
#include "thread/handle.h"
#include "transport/redis/redis.h"

/* Bucket times count from a year before weir_open, as a key may be charged for a time before it: bucket_origin.h. */
#define ORIGIN_BEFORE_NS (UINT64_C(366) * 86400 * NS_PER_S)

#define KEY_LENGTH_MAX 65535

static int locks_init(weir *w)
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
        (void) pthread_mutex_init(&w->policy_lock, NULL);
        (void) pthread_mutex_init(&w->poll_lock, NULL);
        (void) pthread_mutex_init(&w->sync_lock, NULL);
    }
    return -result;
}

static void locks_destroy(weir *w)
{
    (void) pthread_mutex_destroy(&w->policy_lock);
    (void) pthread_mutex_destroy(&w->poll_lock);
    (void) pthread_mutex_destroy(&w->sync_lock);
    (void) pthread_cond_destroy(&w->sync_done);
}

/* Fills in the secrets and the key masks, and compiles the empty policy set. */
static int identity_init(weir *w)
{
    const int result = hash_secret_fill(&w->secret);
    if (result != 0) {
        return result;
    }
    for (size_t id = 0; id <= WEIR_MAX_POLICIES; id++) {
        /* Mixed once more: a key's bytes can be a policy's number, and its hash must not equal that policy's mask. */
        w->policy_key_masks[id] = hash_mix(hash_keyed(&w->secret, &id, sizeof(id)) ^ UINT64_C(0x9e3779b97f4a7c15));
    }
    w->names.key_masks = w->policy_key_masks;
    record_hash_init(&w->record_hash, w->options.fleet_secret);
    w->names.record_hash = &w->record_hash;
    struct policy_set *none = NULL;
    const struct policy_context context = {
        .tick_ns = w->limiter.tick_ns, .origin_ns = w->limiter.process.origin_ns, .names = &w->names};
    const int compiled = policy_set_compile(NULL, 0, &context, &none, NULL);
    store_release(&w->limiter.process.policies, none);
    return compiled;
}

/* Frees a weir, also one that is not complete: missing parts are zero. */
static void weir_free(weir *w)
{
    if (w->wake_fd >= 0) {
        (void) close(w->wake_fd);
    }
    poll_set_close(&w->poll_set);
    if (w->has_fleet) {
        fleet_close(&w->fleet);
    }
    policy_set_free(load_relaxed(&w->limiter.process.policies));
    policy_names_free(&w->names);
    configured_policies_free(w->configured);
    for (size_t i = 0; i < OVERRIDE_LISTS; i++) {
        overrides_drop(w->overrides[i].texts, w->overrides[i].count);
    }
    limiter_close(&w->limiter);
    denial_log_close(&w->denials);
    if (getpid() == w->pid) {
        locks_destroy(w); /* in a child the locks are as the parent's threads left them; some of these may wait for the
                             condition */
    }
    free(w);
}

/* Makes a weir without its transport and background thread. */
static int weir_make(const weir_options *options, bool fleet, weir **out, weir_error *error)
{
    weir *w = aligned_alloc(CACHE_LINE, sizeof(weir)); /* a multiple: the first member is aligned so */
    if (w == NULL) {
        return error_set(error, -ENOMEM, "out of memory");
    }
    memset(w, 0, sizeof(*w));
    w->wake_fd = -1;
    poll_set_init(&w->poll_set);
    w->pid = getpid();
    w->options = *options;
    int result = rcu_ready();
    result = result != 0 ? result : locks_init(w);
    if (result != 0) {
        free(w);
        return error_set(error, result, "no locks or fork handlers to be had: %s", strerror(-result));
    }
    w->limiter.tick_ns = options->tick_us * NS_PER_US;
    if (options->clock != NULL) {
        w->clock = *options->clock;
        w->limiter.clock = &w->clock;
        w->limiter.host_time = true;
    }
    const uint64_t now_ns = clock_monotonic_ns(w->limiter.clock);
    const uint64_t wall_ns = clock_wall_ns(w->limiter.clock);
    w->limiter.process.origin_ns = saturating_sub(wall_ns, ORIGIN_BEFORE_NS);
    result = limiter_open(&w->limiter, options->max_keys, options->max_threads, options->max_log_units, fleet);
    if (result != 0) {
        weir_free(w);
        return error_set(error, result, "out of memory for max_keys %zu: some %zu MiB are needed", options->max_keys,
                         process_size(options->max_keys, fleet) >> 20);
    }
    if (options->log != NULL && !options->no_denial_log) {
        result = denial_log_open(&w->denials, now_ns);
        w->limiter.process.top_denied.recent = w->denials.recent;
    }
    result = result != 0 ? result : identity_init(w);
    if (result != 0) {
        weir_free(w);
        return error_set(error, result, "no secret or memory to be had: %s", strerror(-result));
    }
    tick_start(&w->limiter, now_ns, wall_ns - now_ns);
    w->active_ns = w->settle_ns = now_ns;
    *out = w;
    return 0;
}

int weir_open_on(const weir_options *options, struct transport *transport, weir **out, weir_error *error)
{
    weir_options complete;
    weir *w = NULL;
    int result = options_complete(options, &complete, error);
    if (result == 0) {
        result = weir_make(&complete, transport != NULL, &w, error);
    }
    if (w == NULL) {
        if (transport != NULL) {
            transport->ops->close(transport);
        }
        return result;
    }
    if (transport != NULL) {
        result = fleet_open(&w->fleet, &w->limiter, transport, &complete, clock_monotonic_ns(w->limiter.clock));
        if (result != 0) {
            transport->ops->close(transport);
            weir_free(w);
            return error_set(error, result, "no memory or node id for the fleet: %s", strerror(-result));
        }
        w->has_fleet = true;
        w->fleet.clock.move_origin = bucket_origin_move;
        w->fleet.clock.move_arg = w;
    }
    if (!complete.no_thread) {
        result = background_start(w);
        if (result != 0) {
            weir_free(w);
            return error_set(error, result, "no background thread to be had: %s", strerror(-result));
        }
    }
    w->options.redis_url = w->options.prefix = w->options.node_name = w->options.fleet_secret = NULL;
    handle_watch(&w->limiter);
    *out = w;
    return error_clear(error);
}

#define TEXT(number)  #number
#define VALUE(number) TEXT(number)

const char *weir_version(void)
{
    return VALUE(WEIR_VERSION_MAJOR) "." VALUE(WEIR_VERSION_MINOR) "." VALUE(WEIR_VERSION_PATCH);
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
    struct transport *transport = NULL;
    if (complete.redis_url != NULL) {
        const uint64_t now_ns = clock_monotonic_ns(complete.clock);
        const struct transport_config config = {
            .url = complete.redis_url,
            .prefix = complete.prefix,
            .timeout_ms = complete.redis_timeout_ms,
            .jitter_seed = hash_mix(now_ns ^ (uint64_t) getpid() << 32),
            .now_ns = now_ns,
        };
        result = redis_transport_open(&config, &transport, error);
        if (result != 0) {
            return result;
        }
    }
    return weir_open_on(options, transport, out, error);
}

/* Sends the last reports, for at most redis_timeout_ms. */
static void report_last(weir *w)
{
    for (uint32_t i = 0; i < w->limiter.max_threads; i++) {
        thread_detach(&w->limiter.threads[i]);
    }
    if (w->has_fleet) {
        w->fleet.leaves = true;
        (void) background_sync_here(w, w->options.redis_timeout_ms, true);
    }
}

void weir_close(weir *w)
{
    if (w == NULL) {
        return;
    }
    handle_unwatch(&w->limiter);
    if (getpid() == w->pid) {
        background_stop(w);
        report_last(w);
    }
    weir_free(w);
}

/* The group of a policy, as lists are kept by group. Under the policy lock. */
static weir_policy_id group_of(const weir *w, weir_policy_id id)
{
    /* Relaxed: changed only under the lock. */
    const struct policy *policy =
        id <= WEIR_MAX_POLICIES ? load_relaxed(&w->limiter.process.policies)->by_id[id] : NULL;
    return policy != NULL ? policy->group->id : WEIR_NO_POLICY;
}

size_t weir_top_offenders(const weir *w, weir_policy_id policy, weir_offender *out, size_t capacity)
{
    weir *unlocked = (weir *) (uintptr_t) w; /* the locks are no part of what const promises */
    (void) pthread_mutex_lock(&unlocked->policy_lock);
    const weir_policy_id group = group_of(w, policy);
    const weir_key_form *form = policy_names_form(&w->names, w->names.names[group]);
    (void) pthread_mutex_unlock(&unlocked->policy_lock);
    if (group == WEIR_NO_POLICY || capacity == 0) {
        return 0;
    }
    struct top_k list;
    top_denied_read(&unlocked->limiter.process, group, &list);
    return top_denied_list(&list, form, out, capacity);
}

weir_thread *weir_attach(weir *w)
{
    return thread_attach(&w->limiter, handle_token());
}

void weir_detach(weir_thread *t)
{
    if (t != NULL) {
        thread_detach(t);
    }
}

void weir_unbind(weir_thread *t)
{
    if (t != NULL) {
        thread_unbind(t);
    }
}

static inline weir_key key_of(const weir *w, weir_policy_id policy, const void *data, size_t length, uint64_t hash)
{
    const uint64_t salted = hash ^ w->policy_key_masks[policy <= WEIR_MAX_POLICIES ? policy : 0];
    return (weir_key){.hash = salted != 0 ? salted : 1, .data = data, .length = (uint32_t) length, .policy = policy};
}

static __attribute__((noinline)) weir_key make_long_key(const weir *w, weir_policy_id policy, const void *data,
                                                        size_t length)
{
    const size_t used = length <= KEY_LENGTH_MAX ? length : KEY_LENGTH_MAX;
    return key_of(w, policy, data, used, hash_keyed(&w->secret, data, used));
}

weir_key weir_make_key(const weir *w, weir_policy_id policy, const void *data, size_t length)
{
    /* A call within this function would have it save registers, for short keys too: a tenth of what they take. */
    return length <= HASH_SHORT ? key_of(w, policy, data, length, hash_short(&w->secret, data, length))
                                : make_long_key(w, policy, data, length);
}

int weir_reset(weir *w, const weir_key *key)
{
    const bool reachable = w->has_fleet && load_relaxed(&w->fleet.stats.link) == WEIR_LINK_UP;
    int result = reset_key(&w->limiter, key, reachable);
    if (result != 0 || !w->has_fleet) {
        return result;
    }
    result = reachable ? weir_sync(w, w->options.redis_timeout_ms) : -ENOTCONN;
    if (result != 0) {
        (void) reset_key(&w->limiter, key, false);
    }
    return result;
}

int weir_poll(weir *w)
{
    if (!w->options.no_thread) {
        return -EINVAL;
    }
    (void) pthread_mutex_lock(&w->poll_lock);
    const uint64_t now_ns = clock_monotonic_ns(w->limiter.clock);
    const uint64_t next_ns = background_poll(w, now_ns);
    (void) pthread_mutex_unlock(&w->poll_lock);
    return (int) ((saturating_sub(next_ns, now_ns) + NS_PER_MS - 1) / NS_PER_MS);
}

int weir_poll_fd(weir *w)
{
    if (!w->options.no_thread) {
        return -EINVAL;
    }
    (void) pthread_mutex_lock(&w->poll_lock);
    const int result = poll_set_open(&w->poll_set, w->limiter.clock == NULL);
    const int fd = w->poll_set.epoll_fd;
    (void) pthread_mutex_unlock(&w->poll_lock);
    return result != 0 ? result : fd;
}

int weir_sync(weir *w, uint32_t timeout_ms)
{
    if (!w->has_fleet) {
        return -ENOTCONN;
    }
    if (w->options.no_thread) {
        (void) pthread_mutex_lock(&w->poll_lock);
        const int result = background_sync_here(w, timeout_ms, false);
        (void) pthread_mutex_unlock(&w->poll_lock);
        return result;
    }
    return background_sync_there(w, timeout_ms);
}
