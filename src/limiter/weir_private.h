/* SPDX-License-Identifier: Apache-2.0 */
/* struct weir: all parts of one open weir. */
#ifndef WEIR_LIMITER_WEIR_PRIVATE_H
#define WEIR_LIMITER_WEIR_PRIVATE_H

#include <pthread.h>
#include <sys/types.h>

#include "base/hash.h"
#include "base/record_hash.h"
#include "fleet/state.h"
#include "limiter/denial_log.h"
#include "limiter/poll_set.h"
#include "policy/override_set.h"
#include "thread/limiter.h"
#include "weir/weir.h"

struct configured_policies;

/* The sources of overrides. Of two overrides of one key the one of the earlier source is in force. */
enum { OVERRIDES_OWN, OVERRIDES_FLEET, OVERRIDES_FILE, OVERRIDE_LISTS };

struct weir {
    struct limiter limiter;
    struct fleet fleet;
    bool has_fleet;
    weir_options options; /* every default filled in; its strings are NULL once weir_open has returned */
    weir_clock clock;     /* the host's, where it has one */
    struct hash_secret secret;
    struct record_hash record_hash;
    uint64_t policy_key_masks[WEIR_MAX_POLICIES + 1];
    /* Guards names, configured, the texts of overrides, the bucket origin, and changes of limiter.process.policies. */
    pthread_mutex_t policy_lock;
    struct policy_names names;
    struct configured_policies *configured;         /* the policies in force as configured; NULL: none */
    struct override_list overrides[OVERRIDE_LISTS]; /* by where they come from */
    _Atomic uint64_t override_count;
    pid_t pid;
    /* The background thread, or the caller of weir_poll. */
    pthread_mutex_t poll_lock; /* no_thread: one at a time */
    struct poll_set poll_set;  /* no_thread: what the host's loop waits for. Under poll_lock */
    pthread_t thread;
    bool has_thread;
    int wake_fd; /* ends the background thread's wait; -1: there is none */
    _Atomic uint32_t stopping;
    uint64_t seen_passes; /* slow checks, when it last looked */
    uint64_t active_ns;   /* when that last changed */
    uint64_t settle_ns;   /* when lapsed grants are settled next */
    bool asleep;
    struct denial_log denials;
    /* weir_sync waits here for fleet.sync_calls.served. */
    pthread_mutex_t sync_lock;
    pthread_cond_t sync_done;
};

#endif
