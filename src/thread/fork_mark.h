/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A mark by which a process knows whether it is the one that made the mark, or a child that has a copy of it. The id
 * alone does not tell: once the process has ended, the system gives the id to another one, maybe to a descendant.
 */
#ifndef WEIR_THREAD_FORK_MARK_H
#define WEIR_THREAD_FORK_MARK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct fork_mark {
    pid_t pid;      /* 0: no process's */
    uint32_t forks; /* as many are between this process and the one that loaded the library */
};

/* The calling process's mark. Any thread may call. */
struct fork_mark fork_mark_own(void);

/* Whether the calling process has made this mark. A mark of zeros is nobody's. */
bool fork_mark_is_own(struct fork_mark mark);

#endif
