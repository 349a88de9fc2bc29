/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See weir_parts.h. In a segment that another process has made, nothing is written: the parts are as that process, and
 * those that joined, have left them.
 */
#include "limiter/weir_parts.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "limiter/configured_policies.h"
#include "limiter/leader.h"
#include "limiter/set_policies.h"
#include "limiter/shared_policies.h"
#include "limiter/weir_private.h"
#include "thread/joined.h"
#include "thread/repair.h"

/* Bucket times count from a year before weir_open, as a key may be charged for a time before it: bucket_origin.h. */
#define ORIGIN_BEFORE_NS (UINT64_C(366) * 86400 * NS_PER_S)

/* The rates lie behind the header, which has a page. */
_Static_assert(sizeof(struct rate_list) + (1 << 20) < RATE_TABLE_REACH, "each rate has a handle");

/* Fills what is not of the limiter's memory. 0; as hash_secret_fill(), pages_commit(). */
static int fill_parts(weir *w)
{
    w->shared->leader = w->limiter.joined_as;
    store_relaxed(&w->leads, 1);
    int result = pages_commit(&w->pages, w->names.rates, rate_list_size(w->names.rates, 0));
    if (result == 0) {
        w->names.rates->segment = w->named.segment.id;
        result = hash_secret_fill(&w->shared->secret);
    }
    return result;
}

/* Takes what is not of the limiter's memory. 0; -ENOMEM; -ENOSPC; as fill_parts(). */
static int memory_init(weir *w, bool fleet)
{
    w->fleet = pages_take(&w->pages, sizeof(*w->fleet), 0);
    w->shared = pages_take(&w->pages, sizeof(*w->shared), 0);
    w->batch = fleet ? pages_take(&w->pages, fleet_batch_size(), PAGES_PRESENT) : NULL;
    if (w->fleet == NULL || w->shared == NULL || (fleet && w->batch == NULL)) {
        return w->pages.error != 0 ? w->pages.error : -ENOMEM;
    }
    const int result = w->pages.use != 0 ? shared_policies_open(&w->shared_policies, &w->pages) : 0;
    return result == 0 && pages_are_fresh(&w->pages) ? fill_parts(w) : result;
}

/* Compiles the empty policy set. */
static int begin_policies(weir *w)
{
    struct policy_set *none = NULL;
    const struct policy_context context = {
        .tick_ns = w->limiter.tick_ns, .origin_ns = w->limiter.process.shared->origin_ns, .names = &w->names};
    int result = policy_set_compile(NULL, 0, &context, &none, NULL);
    if (result == 0 && (result = shared_policies_prepare(w, none, NULL)) != 0) {
        policy_set_free(none);
    }
    if (result == 0) {
        none = shared_policies_place_set(w->shared_policies, none, NULL);
        w->set_in_force = none;
        reference_set(&w->limiter.process.shared->policies, none);
    }
    return result;
}

/* Fills in the secrets and the key masks, and puts a first policy set in force. */
static int identity_init(weir *w)
{
    w->secret = w->shared->secret;
    for (size_t id = 0; id <= WEIR_MAX_POLICIES; id++) {
        /* Mixed once more: a key's bytes can be a policy's number, and its hash must not equal that policy's mask. */
        w->policy_key_masks[id] = hash_mix(hash_keyed(&w->secret, &id, sizeof(id)) ^ UINT64_C(0x9e3779b97f4a7c15));
    }
    w->names.key_masks = w->policy_key_masks;
    w->forms.names = &w->names;
    record_hash_init(&w->record_hash, w->options.fleet_secret);
    w->limiter.process.secret = &w->secret;
    w->limiter.process.record_hash = &w->record_hash;
    return pages_are_fresh(&w->pages) ? begin_policies(w) : 0;
}

static int no_parts(const weir *w, int result, bool fleet, weir_error *error)
{
    if (w->pages.error == -ENOSPC || result == -ENOSPC) {
        return error_set(error, -ENOSPC,
                         "\"%.40s\": there is no room in /dev/shm, for max_keys %zu; make that file system larger",
                         w->named.name, w->options.max_keys);
    }
    return error_set(
        error, result,
        "out of memory for max_keys %zu: some %zu MiB are needed; give the process more memory, or lower max_keys",
        w->options.max_keys, process_size(w->options.max_keys, fleet) >> 20);
}

uint64_t parts_origin_ns(uint64_t wall_ns)
{
    return saturating_sub(wall_ns, ORIGIN_BEFORE_NS);
}

int parts_open(weir *w, bool fleet, weir_error *error)
{
    const weir_options *options = &w->options;
    const uint64_t now_ns = clock_monotonic_ns(w->limiter.clock);
    const uint64_t wall_ns = clock_wall_ns(w->limiter.clock);
    const struct limiter_options sizes = {.process = {.max_keys = options->max_keys,
                                                      .max_log_units = options->max_log_units,
                                                      .fleet = fleet,
                                                      .origin_ns = parts_origin_ns(wall_ns),
                                                      .pages = &w->pages},
                                          .max_threads = options->max_threads,
                                          .max_processes = options->shared ? options->max_processes : 1};
    /* Before all parts whose size depends on the options: see RATE_TABLE_REACH. */
    w->names.rates = pages_take(&w->pages, sizeof(*w->names.rates), PAGES_SPARSE | PAGES_LATER);
    int result = w->names.rates != NULL ? limiter_open(&w->limiter, &sizes) : -ENOMEM;
    if (result != 0) {
        return no_parts(w, result, fleet, error);
    }
    if (options->shared) {
        w->limiter.process.free_locks = repair_locks;
        w->limiter.process.has_died = joined_has_died;
        w->limiter.process.free_arg = &w->limiter;
        w->limiter.repair = repair_all;
    }
    if (options->log != NULL && !options->no_denial_log) {
        result = denial_log_open(&w->denials, now_ns);
        w->limiter.process.top_denied.recent = w->denials.recent;
    }
    result = result != 0 ? result : memory_init(w, fleet);
    result = result != 0 ? result : identity_init(w);
    if (result != 0) {
        return result == -ENOSPC ? no_parts(w, result, fleet, error)
                                 : error_set(error, result,
                                             "there is no memory, or getrandom(2) gives nothing: %s; give the process "
                                             "more memory, or allow that call",
                                             strerror(-result));
    }
    if (pages_are_fresh(&w->pages)) {
        tick_start(&w->limiter, now_ns, wall_ns - now_ns);
    }
    w->active_ns = w->settle_ns = now_ns;
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

int parts_open_fleet(weir *w, const struct transport_config *config, weir_error *error)
{
    int result = w->pages.use != 0 && config != NULL ? keep_config(w, config) : 0;
    if (result == 0 && pages_are_fresh(&w->pages)) {
        const struct fleet_parts parts = leader_parts(w);
        result = fleet_open(w->fleet, &parts, &w->options, clock_monotonic_ns(w->limiter.clock));
        w->has_fleet = true;
    } else if (result == 0) {
        fleet_enter(w->fleet, &w->limiter.process);
        w->has_fleet = true;
    }
    return result != 0 ? error_set(error, result, "no memory or node id for the fleet: %s", strerror(-result)) : 0;
}

void parts_close(weir *w)
{
    if (w->limiter.process.shared != NULL && !pages_come_later(&w->pages)) {
        policies_free(w, process_policies(&w->limiter.process));
    }
    shared_policies_close(w->shared_policies);
    pages_give(&w->pages, w->batch, fleet_batch_size());
    pages_give(&w->pages, w->fleet, sizeof(*w->fleet));
    pages_give(&w->pages, w->shared, sizeof(*w->shared));
    pages_give(&w->pages, w->names.rates, sizeof(*w->names.rates));
    policy_names_free(&w->names);
    configured_policies_free(w->configured);
    limiter_close(&w->limiter);
    denial_log_close(&w->denials);
}
