/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weir_join: enters a weir that processes share, opened by one with options.shared, joined by those that it forks
 * later. What all of them use lies in memory that they share. A process has its own background thread, handles of its
 * threads, connection and locks, and leads for as long as it does the background work for all (leader.h).
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/barrier.h"
#include "base/clock.h"
#include "base/error.h"
#include "limiter/background.h"
#include "limiter/leader.h"
#include "limiter/weir_open.h"
#include "limiter/weir_private.h"
#include "thread/handle.h"
#include "thread/joined.h"

/* Drops what the child has copies of and the parent goes on using: descriptors, and locks that threads may hold. */
static int begin_anew(weir *w)
{
    leader_drop_transport(w);
    store_relaxed(&w->is_at_work, 0); /* the child has no thread yet */
    if (w->wake_fd >= 0) {
        (void) close(w->wake_fd);
        w->wake_fd = -1;
    }
    poll_set_close(&w->poll_set);
    poll_set_init(&w->poll_set);
    w->has_thread = false;
    store_relaxed(&w->leads, 0);
    return locks_init(w);
}

/* Whether the ids of the joined processes mean others here. Without /proc that is not known. */
static bool is_elsewhere(const struct limiter *limiter)
{
    const uint64_t here = joined_pid_namespace();
    return here != 0 && limiter->pid_namespace != 0 && here != limiter->pid_namespace;
}

int weir_join(weir *w, weir_error *error)
{
    if (w->limiter.max_processes == 1) {
        return error_set(error, -EINVAL, "the weir is not shared by processes; open it with options.shared");
    }
    if (fork_mark_is_own(w->limiter.mark)) {
        return error_set(error, -EINVAL,
                         "this process has joined already, or has opened the weir; join once in each forked child");
    }
    if (is_elsewhere(&w->limiter)) {
        return error_set(error, -EXDEV,
                         "this process is in another PID namespace than the opener, so they cannot tell each other's "
                         "death; fork it without CLONE_NEWPID, or open a weir of its own");
    }
    int result = begin_anew(w);
    if (result != 0) {
        return error_set(error, result, "no lock could be made: %s; give the process more memory", strerror(-result));
    }
    int lock_fd = -1;
    if (named_lock(&w->named, &lock_fd) != 0) {
        return error_set(error, -EBUSY, "another process has been opening the segment for half a minute; try again");
    }
    w->limiter.grants = w->limiter.grants && !named_forbids_grants(&w->named);
    if (w->limiter.grants && !barrier_available(w->limiter.reach)) {
        named_unlock(lock_fd);
        return error_set(error, -ENOSYS,
                         "membarrier(2) is forbidden here, but was not where the weir was opened; allow it in the "
                         "sandbox of this process");
    }
    const uint32_t index = joined_enter(&w->limiter);
    named_unlock(lock_fd);
    if (index == JOINED_NONE) {
        store_relaxed(&w->limiter.process.shared->stalled, 1); /* the others look for the dead at once */
        return error_set(error, -ENOSPC, "%u processes are joined, as many as may be; raise max_processes",
                         (unsigned) w->limiter.max_processes);
    }
    limiter_join(&w->limiter, index);
    if (!w->limiter.host_time) {
        tick_if_due(&w->limiter, clock_monotonic_ns(NULL)); /* all may have left, and the last tick be long ago */
    }
    result = w->options.no_thread ? 0 : background_start(w);
    if (result != 0) {
        (void) joined_leave_begin(&w->limiter, index);
        joined_leave(&w->limiter, index);
        limiter_forget(&w->limiter);
        return error_set(error, result,
                         "no background thread could be started: %s; raise the limits of threads and descriptors of "
                         "the process, or set no_thread",
                         strerror(-result));
    }
    handle_watch(&w->limiter);
    return error_clear(error);
}
