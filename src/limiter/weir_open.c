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
#include "base/pages.h"
#include "limiter/background.h"
#include "limiter/configured_policies.h"
#include "limiter/leader.h"
#include "limiter/options.h"
#include "limiter/set_policies.h"
#include "limiter/shared_policies.h"
#include "limiter/weir_private.h"
#include "process/robust_mutex.h"
#include "thread/handle.h"
#include "transport/redis/redis.h"

/* Bucket times count from a year before weir_open, as a key may be charged for a time before it: bucket_origin.h. */
#define ORIGIN_BEFORE_NS (UINT64_C(366) * 86400 * NS_PER_S)

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

/* How what all joined processes use is reserved. */
static unsigned pages_for(uint32_t max_processes)
{
    return max_processes > 1 ? PAGES_SHARED : 0;
}

/* Reserves what is not of the limiter's memory. 0; -ENOMEM; as robust_mutex_init(). */
static int memory_init(weir *w)
{
    const unsigned pages = pages_for(w->limiter.max_processes);
    w->names.rates = pages_reserve(sizeof(*w->names.rates), PAGES_SPARSE | pages);
    w->fleet = pages_reserve(sizeof(*w->fleet), pages);
    w->shared = pages_reserve(sizeof(*w->shared), pages);
    if (w->names.rates == NULL || w->fleet == NULL || w->shared == NULL) {
        return -ENOMEM;
    }
    w->shared->leader = w->limiter.joined_as;
    w->leads = true;
    int result = pages != 0 ? shared_policies_open(&w->shared_policies) : 0;
    result = result != 0 ? result : robust_mutex_init(&w->shared->work_lock);
    return result != 0 ? result : robust_mutex_init(&w->shared->policy_lock);
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
    w->forms.names = &w->names;
    record_hash_init(&w->record_hash, w->options.fleet_secret);
    w->limiter.process.secret = &w->secret;
    w->limiter.process.record_hash = &w->record_hash;
    struct policy_set *none = NULL;
    const struct policy_context context = {
        .tick_ns = w->limiter.tick_ns, .origin_ns = w->limiter.process.shared->origin_ns, .names = &w->names};
    const int compiled = policy_set_compile(NULL, 0, &context, &none, NULL);
    if (compiled == 0) {
        none = shared_policies_place_set(w->shared_policies, none, NULL);
        w->set_in_force = none;
        reference_set(&w->limiter.process.shared->policies, none);
    }
    return compiled;
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
    if (w->has_fleet) {
        fleet_close(w->fleet);
    }
    if (w->transport != NULL) {
        w->transport->ops->close(w->transport);
    }
    free((char *) (uintptr_t) w->transport_config.url);
    free((char *) (uintptr_t) w->transport_config.prefix);
    if (w->limiter.process.shared != NULL) {
        policies_free(w, process_policies(&w->limiter.process));
    }
    shared_policies_close(w->shared_policies);
    pages_release(w->fleet, sizeof(*w->fleet));
    pages_release(w->shared, sizeof(*w->shared));
    pages_release(w->names.rates, sizeof(*w->names.rates));
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

/* What weir_open_on() and weir_open() have in common. */
struct opening {
    const weir_options *options;
    struct transport *transport;           /* NULL: there is no fleet. Taken over */
    const struct transport_config *config; /* of the transport; where several processes may need one */
};

/* Makes a weir without its fleet and background thread, and gives it the transport. */
static int weir_make(const weir_options *options, const struct opening *opening, weir **out, weir_error *error)
{
    const bool fleet = opening->transport != NULL;
    const uint32_t max_processes = options->shared ? options->max_processes : 1;
    weir *w = calloc(1, sizeof(*w));
    if (w == NULL) {
        return error_set(error, -ENOMEM, "out of memory");
    }
    w->wake_fd = -1;
    poll_set_init(&w->poll_set);
    w->pid = getpid();
    w->options = *options;
    int result = locks_init(w);
    if (result != 0) {
        free(w);
        return error_set(error, result, "no locks to be had: %s", strerror(-result));
    }
    w->limiter.tick_ns = options->tick_us * NS_PER_US;
    if (options->clock != NULL) {
        w->clock = *options->clock;
        w->limiter.clock = &w->clock;
        w->limiter.host_time = true;
    }
    const uint64_t now_ns = clock_monotonic_ns(w->limiter.clock);
    const uint64_t wall_ns = clock_wall_ns(w->limiter.clock);
    const struct limiter_options sizes = {.process = {.max_keys = options->max_keys,
                                                      .max_log_units = options->max_log_units,
                                                      .fleet = fleet,
                                                      .origin_ns = saturating_sub(wall_ns, ORIGIN_BEFORE_NS),
                                                      .pages = pages_for(max_processes)},
                                          .max_threads = options->max_threads,
                                          .max_processes = max_processes};
    result = limiter_open(&w->limiter, &sizes);
    if (result != 0) {
        weir_free(w);
        return error_set(error, result, "out of memory for max_keys %zu: some %zu MiB are needed", options->max_keys,
                         process_size(options->max_keys, fleet) >> 20);
    }
    if (options->log != NULL && !options->no_denial_log) {
        result = denial_log_open(&w->denials, now_ns);
        w->limiter.process.top_denied.recent = w->denials.recent;
    }
    result = result != 0 ? result : memory_init(w);
    result = result != 0 ? result : identity_init(w);
    if (result != 0) {
        weir_free(w);
        return error_set(error, result, "no secret or memory to be had: %s", strerror(-result));
    }
    tick_start(&w->limiter, now_ns, wall_ns - now_ns);
    w->active_ns = w->settle_ns = now_ns;
    w->transport = opening->transport;
    *out = w;
    return 0;
}

/* Keeps what a transport is opened with. 0 or -ENOMEM. */
static int keep_config(weir *w, const struct transport_config *config)
{
    w->transport_config = *config;
    w->transport_config.url = strdup(config->url);
    w->transport_config.prefix = strdup(config->prefix);
    return w->transport_config.url != NULL && w->transport_config.prefix != NULL ? 0 : -ENOMEM;
}

/* Opens the fleet's part of a weir with a transport. 0; -ENOMEM; as fleet_open(). */
static int open_fleet(weir *w, const struct transport_config *config)
{
    const bool shared = w->limiter.max_processes > 1;
    const struct fleet_parts parts = leader_parts(w);
    int result = shared && config != NULL ? keep_config(w, config) : 0;
    if (result == 0) {
        result =
            fleet_open(w->fleet, &parts, &w->options, shared ? PAGES_SHARED : 0, clock_monotonic_ns(w->limiter.clock));
        w->has_fleet = true;
    }
    return result;
}

static int open_on(const struct opening *opening, weir **out, weir_error *error)
{
    weir_options complete;
    weir *w = NULL;
    int result = options_complete(opening->options, &complete, error);
    if (result == 0) {
        result = weir_make(&complete, opening, &w, error);
    }
    if (w == NULL) {
        if (opening->transport != NULL) {
            opening->transport->ops->close(opening->transport);
        }
        return result;
    }
    if (w->transport != NULL) {
        result = open_fleet(w, opening->config);
        if (result != 0) {
            weir_free(w);
            return error_set(error, result, "no memory or node id for the fleet: %s", strerror(-result));
        }
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
    background_stop(w);
    detach_all(w);
    if (joined_leave_begin(&w->limiter, w->limiter.joined_as) == 0) {
        report_last(w);
    }
    leader_leave(w);
    joined_leave(&w->limiter, w->limiter.joined_as);
}

void weir_close(weir *w)
{
    if (w == NULL) {
        return;
    }
    handle_unwatch(&w->limiter);
    if (getpid() == w->pid) {
        leave_weir(w);
    }
    weir_free(w);
}
