/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weir_sync, weir_poll and weir_make_key, and the public calls that are thin over other modules. The calls of a check
 * are in check/, those of policies in set_policies.c, weir_open in weir_open.c, the background thread in background.c.
 */
#include "limiter/weir_private.h"

#include <errno.h>

#include "base/clock.h"
#include "base/hash_inl.h"
#include "check/reset.h"
#include "limiter/background.h"
#include "limiter/policy_lock.h"
#include "limiter/shared_policies.h"
#include "policy/key_form.h"
#include "thread/handle.h"
#include "thread/misuse.h"

/* The bytes of a longer key behind this length are not read. */
#define KEY_LENGTH_MAX 65535

#define TEXT(number)  #number
#define VALUE(number) TEXT(number)

const char *weir_version(void)
{
    return VALUE(WEIR_VERSION_MAJOR) "." VALUE(WEIR_VERSION_MINOR) "." VALUE(WEIR_VERSION_PATCH);
}

/* The group of a policy, as lists are kept by group. Under the policy lock. */
static weir_policy_id group_of(const weir *w, weir_policy_id id)
{
    const struct policy_set *set = shared_policies_in_force(w);
    const struct policy *policy = set != NULL ? policy_set_by_id(set, id) : NULL;
    const weir_policy_id group = policy != NULL ? policy->group : WEIR_NO_POLICY;
    return group <= WEIR_MAX_POLICIES ? group : WEIR_NO_POLICY;
}

size_t weir_top_offenders(const weir *w, weir_policy_id policy, weir_offender *out, size_t capacity)
{
    weir *unlocked = (weir *) (uintptr_t) w; /* the locks are no part of what const promises */
    policy_lock_take(unlocked);
    const weir_policy_id group = group_of(w, policy);
    const weir_key_form *form = policy_names_form(&w->names, w->names.names[group]);
    policy_lock_release(unlocked);
    if (group == WEIR_NO_POLICY || capacity == 0) {
        return 0;
    }
    struct top_k list;
    top_denied_read(&unlocked->limiter.process, group, &list);
    return top_denied_list(&list, form, out, capacity);
}

/* Says once that this process is a child that checks with a copy of its parent's weir. */
static void tell_forked(weir *w)
{
    if (w->options.log != NULL && exchange_seq_cst(&w->forked, 1) == 0) {
        w->options.log(
            w->options.log_arg, WEIR_LOG_ERROR,
            w->limiter.max_processes > 1
                ? "a forked process checks that has not joined, so what it admits is not counted as its own; "
                  "call weir_join in it before weir_attach"
                : "a process checks that was forked after weir_open: it limits by a copy of its own, without "
                  "a background thread, and reports nothing to the fleet; call weir_open behind fork() or "
                  "daemon(), or share one weir among processes (options.shared)");
    }
}

weir_thread *weir_attach(weir *w)
{
    if (!misuse_begin_without(&w->limiter, "weir_attach")) {
        return NULL;
    }
    if (!fork_mark_is_own(w->limiter.mark)) {
        tell_forked(w);
    }
    return thread_attach(&w->limiter, handle_token());
}

void weir_count_unlimited(weir *w, uint64_t requests)
{
    (void) add_relaxed(&w->shared->unlimited_count, requests); /* statistics */
}

void weir_detach(weir_thread *t)
{
    if (t != NULL && misuse_begin(t, "weir_detach")) {
        thread_detach(t);
    }
}

void weir_unbind(weir_thread *t)
{
    if (t != NULL && misuse_begin(t, "weir_unbind")) {
        thread_unbind(t);
    }
}

void weir_set_time(weir_thread *t, uint64_t monotonic_ns)
{
    if (t != NULL && misuse_begin(t, "weir_set_time")) {
        t->shared->time_ns = t->limiter->host_time ? 0 : monotonic_ns;
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
    const size_t mapped = key_form_mapped(data, length);
    if (mapped != 0) {
        data = (const unsigned char *) data + mapped;
        length -= mapped;
    }
    /* A call within this function would have it save registers, for short keys too: a tenth of what they take. */
    return length <= HASH_SHORT ? key_of(w, policy, data, length, hash_short(&w->secret, data, length))
                                : make_long_key(w, policy, data, length);
}

int weir_reset(weir *w, const weir_key *key)
{
    const bool reachable = w->has_fleet && load_relaxed(&w->fleet->stats.link) == WEIR_LINK_UP;
    int result = reset_key(&w->limiter, key, reachable);
    if (result != 0 || !w->has_fleet) {
        return result;
    }
    result = reachable ? weir_sync(w, w->options.redis_timeout_ms) : -ENOTCONN;
    if (result != 0) {
        (void) reset_key(&w->limiter, key, false);
    }
    return result != -ECONNREFUSED ? result : -ENOTCONN;
}

int weir_poll(weir *w)
{
    if (!misuse_begin_without(&w->limiter, "weir_poll") || !w->options.no_thread) {
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
    if (!misuse_begin_without(&w->limiter, "weir_sync") || !w->has_fleet || load_relaxed(&w->has_left) != 0) {
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
