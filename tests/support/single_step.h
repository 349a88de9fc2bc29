/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a process can be run one instruction at a time. */
#ifndef WEIR_TESTS_SUPPORT_SINGLE_STEP_H
#define WEIR_TESTS_SUPPORT_SINGLE_STEP_H

#include <signal.h>
#include <stdbool.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

/* Emulators of a processor have no single steps of their guest. */
static inline bool can_step(void)
{
    const pid_t child = fork();
    if (child == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0) {
            (void) raise(SIGSTOP);
        }
        _exit(0);
    }
    int status = 0;
    bool can = child > 0 && waitpid(child, &status, 0) == child && WIFSTOPPED(status);
    if (can) {
        can = ptrace(PTRACE_SINGLESTEP, child, NULL, NULL) == 0 && waitpid(child, &status, 0) == child &&
              WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP;
        (void) kill(child, SIGKILL);
        (void) waitpid(child, NULL, 0);
    }
    return can;
}

#endif
