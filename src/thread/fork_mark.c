/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See fork_mark.h. A child counts one fork more than its parent, in a handler of pthread_atfork. A child that is made
 * without handlers (clone, _Fork) is told from its parent by its id alone.
 *
 * Progress: wait-free, but for the first call of a process.
 */
#include "thread/fork_mark.h"

#include <pthread.h>
#include <unistd.h>

#include "base/atomics.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Atomic uint32_t forks;

static void count_fork(void)
{
    (void) add_relaxed(&forks, 1); /* the child has one thread */
}

static void begin_counting(void)
{
    (void) pthread_atfork(NULL, NULL, count_fork);
}

struct fork_mark fork_mark_own(void)
{
    (void) pthread_once(&once, begin_counting);
    return (struct fork_mark){.pid = getpid(), .forks = load_relaxed(&forks)};
}

bool fork_mark_is_own(struct fork_mark mark)
{
    const struct fork_mark own = fork_mark_own();
    return mark.pid == own.pid && mark.forks == own.forks;
}
