/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The background thread.
 *
 * The thread ticks, settles lapsed grants, updates the lists of top offenders, logs which policies deny, and steps the
 * fleet. After SLEEP_AFTER_NS without a slow check the thread sleeps: it then looks for slow checks every
 * ASLEEP_LOOK_NS, and syncs half as often. A hit needs a grant of the present epoch, and only a slow check makes a
 * grant. So no slow check in some ticks means that there are no checks at all.
 */
#include "limiter/background.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/plain.h"
#include "limiter/denial_log.h"
#include "limiter/dropped_policies.h"
#include "limiter/key_overrides.h"
#include "limiter/leader.h"
#include "limiter/set_policies.h"
#include "limiter/trouble_log.h"
#include "limiter/weir_private.h"
#include "thread/rcu_lane.h"
#include "thread/repair.h"
#include "thread/settle_pass.h"

/* The thread sleeps after so long without a slow check. */
#define SLEEP_AFTER_NS (50 * NS_PER_MS)

/* The time between two looks for slow checks, asleep. */
#define ASLEEP_LOOK_NS (100 * NS_PER_MS)

/* How often one of the other joined processes is looked at, for its death: some 10 us each. */
#define REPAIR_LOOK_NS (10 * NS_PER_MS)

/* How often a caller of weir_sync looks whether another process has served the call. */
#define SERVED_LOOK_NS NS_PER_MS

/*
 * How often lapsed grants of idle threads are settled, and the time between two pieces of that. Denying threads do not
 * wait for it; see settle_key.
 */
#define SETTLE_EVERY_NS (32 * NS_PER_MS)
#define SETTLE_PIECE_NS NS_PER_MS

/* Slow passes of all threads so far. */
static uint64_t passes(const struct limiter *limiter)
{
    uint64_t sum = 0;
    const uint32_t high = limiter_thread_high(limiter);
    for (uint32_t i = 0; i < high; i++) {
        sum += load_relaxed(&limiter->threads[i].shared->slow_count); /* statistics */
    }
    return sum;
}

/*
 * Changes of the table are made within read sections: see rcu.h. With a clock of the host this is asked for at every
 * move of time, mostly with nothing to settle: a section then is a third of what weir_poll takes.
 */
static void settle_in_section(struct limiter *limiter)
{
    struct settle_place first;
    if (!settle_find_lapsed(limiter, &first)) {
        return;
    }
    const unsigned lane = rcu_enter_lane(limiter);
    (void) settle_lapsed_from(limiter, first);
    rcu_leave_lane(limiter, lane);
}

/* The pieces of a pass over lapsed grants that are due: one, or as many as a late caller has missed. */
static void settle_when_due(weir *w, uint64_t now_ns)
{
    if (now_ns < w->settle_ns || w->asleep) {
        return;
    }
    if (settle_pass_begins(&w->pass)) {
        w->pass_ns = now_ns;
    }
    bool ended = false;
    const unsigned lane = rcu_enter_lane(&w->limiter);
    for (uint64_t due = 1 + (now_ns - w->settle_ns) / SETTLE_PIECE_NS; due != 0 && !ended; due--) {
        ended = settle_piece(&w->limiter, &w->pass);
    }
    rcu_leave_lane(&w->limiter, lane);
    w->settle_ns = max_u64(now_ns + SETTLE_PIECE_NS, ended ? w->pass_ns + SETTLE_EVERY_NS : 0);
}

static void count_denials(struct limiter *limiter, uint64_t now_ns)
{
    if (!top_denied_is_due(&limiter->process.top_denied, now_ns)) {
        return;
    }
    const unsigned lane = rcu_enter_lane(limiter);
    top_denied_step(&limiter->process, now_ns);
    rcu_leave_lane(limiter, lane);
}

/* Ticks, and falls asleep or wakes up. */
static void run_tick(weir *w, uint64_t now_ns)
{
    struct limiter *limiter = &w->limiter;
    if (limiter->host_time) {
        /* Time moves here and nowhere else, and every move is a tick. */
        if (now_ns + load_relaxed(&limiter->shared->line.offset_ns) != load_relaxed(&limiter->shared->line.now_ns)) {
            tick_raise(limiter, now_ns);
            tick_epoch(limiter);
            /* Before any thread counts at the new time, so that counts do not depend on the order of settling. */
            settle_in_section(limiter);
        }
        return;
    }
    w->asleep = load_relaxed(&limiter->shared->line.epoch) == EPOCH_ASLEEP; /* also if time stood still */
    const uint64_t seen = passes(limiter);
    if (seen != w->seen_passes) {
        w->seen_passes = seen;
        w->active_ns = now_ns;
        /* After weir_leave nobody would tick; under WEIR_DEBUG no slot is to answer. */
        if (w->asleep && load_relaxed(&w->has_left) == 0 && !limiter->is_watched) {
            w->asleep = false;
            tick_wake(limiter, now_ns);
        }
    } else if (!w->asleep && now_ns >= w->active_ns + SLEEP_AFTER_NS) {
        w->asleep = true;
        tick_sleep(limiter);
        settle_in_section(limiter);
    }
    if (!w->asleep) {
        tick_if_due(limiter, now_ns);
    }
}

/* What fleet_wait_for gave, and the descriptor that wakes the thread. */
struct waiting {
    struct pollfd fds[TRANSPORT_MAX_POLLFDS + 1];
    size_t count;
};

/* Says once that an old segment was given up. */
static void tell_replaced(weir *w)
{
    if (w->named.replaced == REPLACED_NONE) {
        return;
    }
    if (w->options.log != NULL) {
        char text[sizeof(w->named.name) + 160];
        char line[sizeof(text) + 4 * sizeof(w->named.name)];
        (void) snprintf(text, sizeof(text), "%s: %s, and a new segment was made: all limits begin anew", w->named.name,
                        w->named.replaced == REPLACED_HALF ? "the segment was left half made by a process that died"
                                                           : "the segment could not be repaired");
        (void) plain_line(line, sizeof(line), text); /* a name may have any byte */
        w->options.log(w->options.log_arg, WEIR_LOG_WARNING, line);
    }
    w->named.replaced = REPLACED_NONE;
}

static weir *weir_of(struct limiter *limiter)
{
    return (weir *) ((unsigned char *) limiter - offsetof(weir, limiter));
}

void background_misused(struct limiter *limiter, const char *sentence)
{
    const weir *w = weir_of(limiter);
    if (w->options.log != NULL) {
        w->options.log(w->options.log_arg, WEIR_LOG_ERROR, sentence);
    } else {
        (void) fprintf(stderr, "weir: %s\n", sentence);
    }
}

void background_looked(struct limiter *limiter, uint64_t monotonic_ns)
{
    weir *w = weir_of(limiter);
    const uint64_t worked_ns = max_u64(load_relaxed(&w->shared->worked_ns), w->opened_ns); /* a hint */
    if (load_relaxed(&w->has_left) == 0 && w->options.log != NULL && monotonic_ns > worked_ns + STANDSTILL_NS &&
        exchange_seq_cst(&w->stood_still, 1) == 0) {
        w->options.log(
            w->options.log_arg, WEIR_LOG_WARNING,
            "nobody has called weir_poll for a second, so threads that check look at the clock themselves, and "
            "nothing is reported to the fleet; call weir_poll from your loop, or open without no_thread");
    }
}

static uint64_t work(weir *w, uint64_t now_ns, bool ready, struct waiting *waiting)
{
    struct limiter *limiter = &w->limiter;
    run_tick(w, now_ns);
    settle_when_due(w, now_ns);
    policies_settle(w);
    if (limiter->max_processes > 1 && now_ns >= w->repair_ns) {
        w->repair_ns = now_ns + REPAIR_LOOK_NS;
        repair_next(limiter, &w->repair_cursor);
        policies_repair(w);
    }
    count_denials(limiter, now_ns);
    tell_replaced(w);
    trouble_log_step(w, now_ns);
    dropped_policies_tell(w);
    denial_log_step(w, now_ns);
    key_overrides_end(w);
    if (w->has_fleet) {
        const struct full_sync_calls *calls = &w->fleet->sync_calls;
        const uint64_t served = load_relaxed(&calls->served);
        const uint64_t refused = load_relaxed(&calls->refused);
        /* A child that was forked before may join after the last process has begun to leave: the node stays then. */
        w->fleet->leaves = w->leaves_last && load_relaxed(&limiter->shared->joined_count) == 0;
        fleet_step(w->fleet, now_ns, w->asleep, ready);
        key_overrides_take(w);
        if (load_relaxed(&calls->served) != served || load_relaxed(&calls->refused) != refused) {
            (void) pthread_mutex_lock(&w->sync_lock);
            (void) pthread_cond_broadcast(&w->sync_done);
            (void) pthread_mutex_unlock(&w->sync_lock);
        }
    }
    uint64_t next_ns = load_relaxed(&limiter->shared->line.next_ns);
    if (w->asleep) {
        next_ns = now_ns + ASLEEP_LOOK_NS;
    } else if (limiter->host_time) {
        next_ns = now_ns + limiter->tick_ns;
    } else {
        next_ns = min_u64(next_ns, w->settle_ns);
    }
    next_ns = min_u64(next_ns, top_denied_next_ns(&limiter->process.top_denied));
    waiting->count = w->has_fleet ? fleet_wait_for(w->fleet, waiting->fds, &next_ns) : 0;
    return next_ns;
}

/* This process begins to lead: takes up what the leader before it knew. */
static void take_over(weir *w, uint64_t now_ns)
{
    w->asleep = load_relaxed(&w->limiter.shared->line.epoch) == EPOCH_ASLEEP;
    w->seen_passes = passes(&w->limiter);
    w->active_ns = w->settle_ns = now_ns;
    repair_all(&w->limiter);
    denial_log_begin(w, now_ns);
}

static uint64_t work_if_leader(weir *w, uint64_t now_ns, bool ready, struct waiting *waiting)
{
    const bool stalled = load_relaxed(&w->limiter.process.shared->stalled) != 0;
    if (w->limiter.max_processes > 1 && stalled) {
        repair_all(&w->limiter); /* the leader may wait for the lock as well */
    }
    const enum leader leader = leader_begin(w, now_ns);
    if (leader == LEADER_OTHER) {
        const bool asleep = load_relaxed(&w->limiter.shared->line.epoch) == EPOCH_ASLEEP;
        waiting->count = 0;
        return now_ns + (asleep ? LEADER_ASLEEP_LOOK_NS : LEADER_LOOK_NS);
    }
    if (leader == LEADER_NEW) {
        take_over(w, now_ns);
    }
    const uint64_t next_ns = work(w, now_ns, ready, waiting);
    leader_end(w);
    return next_ns;
}

static uint64_t run(weir *w, uint64_t now_ns, bool ready, struct waiting *waiting)
{
    store_relaxed(&w->is_at_work, 1);
    fence_seq_cst(); /* a child that is forked meanwhile sees that first: leader_is_whole() */
    const uint64_t next_ns = work_if_leader(w, now_ns, ready, waiting);
    store_release(&w->is_at_work, 0);
    return next_ns;
}

/* Tells the host's loop what to wait for. */
static uint64_t watch(weir *w, const struct waiting *waiting, bool changed, uint64_t now_ns, uint64_t next_ns)
{
    return poll_set_update(&w->poll_set, waiting->fds, waiting->count, changed, now_ns, next_ns);
}

uint64_t background_poll(weir *w, uint64_t now_ns)
{
    struct waiting waiting;
    if (load_relaxed(&w->has_left) != 0) {
        (void) poll_set_take(&w->poll_set);
        run_tick(w, now_ns); /* of a clock of the host, which moves here alone */
        return poll_set_update(&w->poll_set, NULL, 0, false, now_ns, now_ns + ASLEEP_LOOK_NS);
    }
    const bool ready = poll_set_take(&w->poll_set);
    const uint64_t next_ns = run(w, now_ns, ready, &waiting);
    /* A socket is opened, closed and read in a step of the transport alone. */
    return watch(w, &waiting, w->has_fleet && w->fleet->schedule.transport_stepped_ns == now_ns, now_ns, next_ns);
}

/* Waits until a descriptor is ready, which it returns, and at most until `until_ns`. */
static bool wait_until(struct waiting *waiting, uint64_t now_ns, uint64_t until_ns)
{
    const uint64_t wait_ns = saturating_sub(until_ns, now_ns);
    const struct timespec timeout = {.tv_sec = (time_t) (wait_ns / NS_PER_S), .tv_nsec = (long) (wait_ns % NS_PER_S)};
    return ppoll(waiting->fds, (nfds_t) waiting->count, &timeout, NULL) !=
           0; /* after an error, everything is looked at */
}

static void *background_main(void *arg)
{
    weir *w = arg;
    bool ready = true;
    while (load_acquire(&w->stopping) == 0) { /* pairs with background_stop */
        struct waiting waiting;
        uint64_t now_ns = clock_monotonic_ns(NULL);
        const uint64_t next_ns = run(w, now_ns, ready, &waiting);
        now_ns = clock_monotonic_ns(NULL);
        ready = false;
        if (next_ns > now_ns) {
            waiting.fds[waiting.count++] = (struct pollfd){.fd = w->wake_fd, .events = POLLIN};
            ready = wait_until(&waiting, now_ns, next_ns);
        }
        if (ready) {
            uint64_t woken;
            (void) !read(w->wake_fd, &woken, sizeof(woken)); /* does not block; what it says is in `requests` */
        }
    }
    return NULL;
}

int background_start(weir *w)
{
    store_relaxed(&w->stopping, 0); /* no thread runs yet */
    w->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (w->wake_fd < 0) {
        return -errno;
    }
    /* The host's signals are the host's: the thread is born with all blocked. */
    sigset_t all;
    sigset_t before;
    (void) sigfillset(&all);
    (void) pthread_sigmask(SIG_SETMASK, &all, &before);
    const int result = pthread_create(&w->thread, NULL, background_main, w);
    (void) pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (result != 0) {
        return -result;
    }
    (void) pthread_setname_np(w->thread, "weir");
    w->has_thread = true;
    return 0;
}

static void wake(weir *w)
{
    const uint64_t one = 1;
    (void) !write(w->wake_fd, &one, sizeof(one));
}

void background_stop(weir *w)
{
    if (w->has_thread) {
        store_release(&w->stopping, 1); /* pairs with background_main */
        wake(w);
        (void) pthread_join(w->thread, NULL);
        w->has_thread = false;
    }
}

/* The time of a wait on the condition, as the condition's clock has it. */
static struct timespec time_at(uint64_t monotonic_ns)
{
    return (struct timespec){.tv_sec = (time_t) (monotonic_ns / NS_PER_S), .tv_nsec = (long) (monotonic_ns % NS_PER_S)};
}

/* The condition is of this process: a leader of another one serves the call and does not say so. */
static uint64_t looks_again_at(const weir *w, uint64_t until_ns)
{
    return w->limiter.max_processes == 1 ? until_ns : min_u64(until_ns, clock_monotonic_ns(NULL) + SERVED_LOOK_NS);
}

int background_sync_there(weir *w, uint32_t timeout_ms)
{
    const uint64_t request = fleet_wait_begin(w->fleet);
    const uint64_t until_ns = clock_monotonic_ns(NULL) + timeout_ms * NS_PER_MS;
    wake(w);
    (void) pthread_mutex_lock(&w->sync_lock);
    while (load_acquire(&w->fleet->sync_calls.served) < request && /* [F2] */
           load_relaxed(&w->fleet->sync_calls.refused) < request && clock_monotonic_ns(NULL) < until_ns) {
        const struct timespec next = time_at(looks_again_at(w, until_ns));
        (void) pthread_cond_timedwait(&w->sync_done, &w->sync_lock, &next);
    }
    const bool served = load_acquire(&w->fleet->sync_calls.served) >= request; /* [F2] */
    const bool refused = load_relaxed(&w->fleet->sync_calls.refused) >= request;
    (void) pthread_mutex_unlock(&w->sync_lock);
    fleet_wait_end(w->fleet);
    return served ? 0 : refused ? -ECONNREFUSED : -ETIMEDOUT;
}

/* Runs until a weir_sync is served; 0, or as weir_sync. */
static int run_until_served(weir *w, uint64_t request, uint32_t timeout_ms, bool closing)
{
    /* By the system's clock: the host's may stand still while we wait for the network. */
    const uint64_t until_ns = clock_monotonic_ns(NULL) + timeout_ms * NS_PER_MS;
    for (;;) {
        struct waiting waiting;
        const uint64_t run_ns = clock_monotonic_ns(w->limiter.clock);
        const uint64_t next_ns = run(w, run_ns, true, &waiting);
        (void) watch(w, &waiting, true, run_ns, next_ns); /* before this returns, by whichever way */
        if (load_relaxed(&w->fleet->sync_calls.served) >= request) {
            return 0;
        }
        if (load_relaxed(&w->fleet->sync_calls.refused) >= request) {
            return -ECONNREFUSED;
        }
        const uint64_t now_ns = clock_monotonic_ns(NULL);
        if (now_ns >= until_ns) {
            return -ETIMEDOUT;
        }
        /* Of a Cluster some servers may be lost, and the others are still to be told. */
        if (closing && w->transport != NULL && w->transport->ops->problem(w->transport) != NULL &&
            w->transport->ops->state(w->transport) == TRANSPORT_DOWN) {
            return -ENOTCONN;
        }
        (void) wait_until(&waiting, now_ns, min_u64(until_ns, now_ns + NS_PER_MS));
    }
}

int background_sync_here(weir *w, uint32_t timeout_ms, bool closing)
{
    const int result = run_until_served(w, fleet_wait_begin(w->fleet), timeout_ms, closing);
    fleet_wait_end(w->fleet);
    return result;
}
