/* SPDX-License-Identifier: Apache-2.0 */
/*
 * membarrier(2), expedited: private for this process alone, global for all that have registered.
 */
#include "base/barrier.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/atomics.h"

/* By reach. */
static const int commands[] = {MEMBARRIER_CMD_PRIVATE_EXPEDITED, MEMBARRIER_CMD_GLOBAL_EXPEDITED};
static const int registrations[] = {MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED,
                                    MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED};

bool barrier_available(enum barrier_reach reach)
{
    const long known = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
    if (known < 0 || (known & commands[reach]) == 0) {
        return false;
    }
    /* Registering again is free, and a fork's child inherits it. */
    return syscall(SYS_membarrier, registrations[reach], 0, 0) == 0;
}

void barrier_all_threads(enum barrier_reach reach)
{
    fence_seq_cst();
    (void) syscall(SYS_membarrier, commands[reach], 0, 0);
    fence_seq_cst();
}
