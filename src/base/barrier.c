/* SPDX-License-Identifier: Apache-2.0 */
/*
 * membarrier(2), private and expedited.
 */
#include "base/barrier.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/atomics.h"

bool barrier_available(void)
{
    const long commands = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
    if (commands < 0 || (commands & MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0) {
        return false;
    }
    /* Registering again is free, and a fork's child inherits it. */
    return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
}

void barrier_all_threads(void)
{
    fence_seq_cst();
    (void) syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
    fence_seq_cst();
}
