/* SPDX-License-Identifier: Apache-2.0 */
/* See rcu.h. */
#include "thread/rcu.h"

#include <pthread.h>

#define URCU_INLINE_SMALL_FUNCTIONS
#include <urcu/urcu-bp.h>

#include "base/compiler.h"

#ifdef COMPILER_THREAD_SANITIZER
extern void __tsan_acquire(void *address);
extern void __tsan_release(void *address);
static char read_sections_ended;
#endif

/* The result of pthread_atfork. */
static int handlers_result;

static __attribute__((constructor)) void register_handlers(void)
{
    handlers_result = pthread_atfork(urcu_bp_before_fork, urcu_bp_after_fork_parent, urcu_bp_after_fork_child);
}

int rcu_ready(void)
{
    return -handlers_result;
}

void rcu_enter(void)
{
    urcu_bp_read_lock();
}

void rcu_leave(void)
{
#ifdef COMPILER_THREAD_SANITIZER
    __tsan_release(&read_sections_ended);
#endif
    urcu_bp_read_unlock();
}

void rcu_synchronize(void)
{
    urcu_bp_synchronize_rcu();
#ifdef COMPILER_THREAD_SANITIZER
    __tsan_acquire(&read_sections_ended);
#endif
}
