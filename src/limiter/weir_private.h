/* SPDX-License-Identifier: Apache-2.0 */
/* struct weir: all parts of one open weir. */
#ifndef WEIR_LIMITER_WEIR_PRIVATE_H
#define WEIR_LIMITER_WEIR_PRIVATE_H

#include <pthread.h>
#include <sys/types.h>

#include "base/hash.h"
#include "base/pages.h"
#include "base/record_hash.h"
#include "fleet/state.h"
#include "limiter/denial_log.h"
#include "limiter/dropped_policies.h"
#include "limiter/poll_set.h"
#include "limiter/trouble_log.h"
#include "named/named.h"
#include "policy/override_set.h"
#include "policy/required.h"
#include "process/robust_mutex.h"
#include "thread/limiter.h"
#include "thread/settle_pass.h"
#include "transport/transport.h"
#include "weir/weir.h"

struct configured_policies;
struct shared_policies;

/* The sources of overrides. Of two overrides of one key the one of the earlier source is in force. */
enum { OVERRIDES_OWN, OVERRIDES_FLEET, OVERRIDES_FILE, OVERRIDE_LISTS };

/* What changes of a weir beside the limiter and the fleet. */
struct weir_shared {
    struct hash_secret secret;       /* of all processes */
    struct robust_mutex policy_lock; /* see policy_lock.h */
    _Atomic uint32_t old_grants;     /* 1: the leader is to settle what was granted under policies that were changed */
    _Atomic uint32_t readers_left;   /* 1: some may still read the policies that are no longer in force */
    _Atomic uint32_t half_changed;   /* 1: a process died while it changed policies */
    _Atomic uint64_t override_count;
    _Atomic uint64_t unlimited_count;
    struct dropped_policies dropped;
    _Atomic uint64_t override_until_ns; /* fleet time at which the first override in force ends; 0: none does */
    struct robust_mutex work_lock;      /* see leader.h; guards what follows */
    _Atomic uint32_t leader;            /* index of a joined process; JOINED_NONE: there is none */
    _Atomic uint64_t worked_ns;         /* when the leader last worked, monotonic */
    struct trouble_told troubles;
};

struct weir {
    struct limiter limiter;
    struct named named;       /* the memory of a weir with a name */
    struct pages_owner pages; /* of all that joined processes share */
    struct fleet *fleet;
    void *batch; /* of the fleet; NULL: there is none */
    struct record_forms forms;
    bool has_fleet;
    /* 1: this process does the background work, as far as it knows. A hint to threads that set policies. */
    _Atomic uint32_t leads;
    bool leaves_last;            /* this process closes or leaves, and no other one was joined when it began */
    _Atomic uint32_t has_left;   /* 1: weir_leave was called */
    int left_result;             /* what it gave. Under poll_lock */
    struct transport *transport; /* NULL: there is no fleet, or another process leads */
    struct transport_config transport_config; /* of a shared weir, to open a transport anew; its strings are its own */
    weir_options options; /* every default filled in; its strings are NULL once weir_open has returned */
    weir_clock clock;     /* the host's, where it has one */
    struct hash_secret secret;
    struct record_hash record_hash;
    uint64_t policy_key_masks[WEIR_MAX_POLICIES + 1];
    struct weir_shared *shared;
    struct shared_policies *shared_policies; /* NULL: the weir is not shared */
    /* Under the policy lock, as changes of the set in force. */
    struct policy_names names;
    struct required required; /* a set that lacks one is refused; the weir's own copy of the option */
    /* In force. The references to them are no addresses, so a leak checker finds them here. */
    const void *set_in_force, *overrides_in_force;
    struct configured_policies *configured;         /* the policies in force as configured; NULL: none */
    struct override_list overrides[OVERRIDE_LISTS]; /* by where they come from */
    /* The background thread, or the caller of weir_poll. */
    pthread_mutex_t poll_lock;   /* no_thread: one at a time */
    struct poll_set poll_set;    /* no_thread: what the host's loop waits for. Under poll_lock */
    _Atomic uint32_t is_at_work; /* 1: it is not waiting. Written before and after all else that it changes */
    pthread_t thread;
    bool has_thread;
    int wake_fd; /* ends the background thread's wait; -1: there is none */
    _Atomic uint32_t stopping;
    uint64_t seen_passes; /* slow checks, when it last looked */
    uint64_t active_ns;   /* when that last changed */
    uint64_t settle_ns;   /* when the next piece of a pass over lapsed grants is due */
    uint64_t pass_ns;     /* when that pass began */
    struct settle_pass pass;
    bool asleep;
    uint64_t opened_ns;                   /* when this process has opened, monotonic */
    _Atomic uint32_t stood_still, forked; /* 1: the log has been told that nobody ticks, or that this is a child */
    uint64_t repair_ns;                   /* when a joined process is looked at next, for its death */
    uint32_t repair_cursor;               /* the one looked at last */
    struct denial_log denials;
    /* weir_sync waits here for fleet->sync_calls.served. */
    pthread_mutex_t sync_lock;
    pthread_cond_t sync_done;
};

#endif
