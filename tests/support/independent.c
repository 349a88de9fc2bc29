/* SPDX-License-Identifier: Apache-2.0 */
/* See independent.h. */
#include "support/independent.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomics.h"
#include "process/robust_mutex.h"
#include "support/support.h"

#define PATIENCE_NS (60 * SECOND)

/* Each process has so many bytes more in use than the one started before. */
#define SKEW ((size_t) 3 << 20)

void segment_name(char name[SEGMENT_NAME_SIZE], const char *word)
{
    (void) snprintf(name, SEGMENT_NAME_SIZE, "/weir-test-%d-%s", (int) getpid(), word);
}

int64_t segment_size(const char *name)
{
    struct stat about;
    const int fd = shm_open(name, O_RDONLY, 0);
    if (fd < 0) {
        return -1;
    }
    const int result = fstat(fd, &about);
    (void) close(fd);
    return result == 0 ? (int64_t) about.st_size : -1;
}

pid_t start_independent(int (*run)(void *arg), void *arg)
{
    static size_t started;
    started++;
    const pid_t process = fork();
    assert_true(process >= 0);
    if (process == 0) {
        (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
        /* cppcheck-suppress invalidFunctionArg ; an anonymous mapping takes -1 */
        (void) mmap(NULL, started * SKEW, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        _exit(run(arg));
    }
    return process;
}

void expect_end(pid_t process)
{
    const uint64_t until_ns = real_ns() + PATIENCE_NS;
    int status = 0;
    pid_t ended = 0;
    while ((ended = waitpid(process, &status, WNOHANG)) == 0) {
        if (real_ns() > until_ns) {
            kill_independent(process);
            fail_msg("process %d hangs", (int) process);
        }
        nap_ms(1);
    }
    assert_int_equal(ended, process);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        fail_msg("a process ended with status 0x%x, at step %d", (unsigned) status, WEXITSTATUS(status));
    }
}

void kill_independent(pid_t process)
{
    (void) kill(process, SIGKILL);
    (void) waitpid(process, NULL, 0);
}

static int open_with(const char *name, const weir_options *more, weir **w, weir_error *error)
{
    weir_options options = WEIR_OPTIONS_INIT;
    if (more != NULL) {
        options = *more;
    }
    options.shared_name = name;
    options.no_thread = options.no_thread || SANITIZED; /* a forked process may start none, under the sanitizers */
    return weir_open(&options, w, error);
}

weir *open_named(const char *name, const weir_options *more)
{
    weir *w = NULL;
    weir_error error;
    if (open_with(name, more, &w, &error) != 0) {
        fail_msg("%s", error.message);
    }
    return w;
}

weir *open_named_policy(const char *name, const weir_options *more, const weir_limit *limit)
{
    const weir_policy policy = {.name = "p", .limits = limit, .limit_count = 1};
    weir *w = NULL;
    weir_error error;
    if (open_with(name, more, &w, &error) != 0 || weir_set_policies(w, &policy, 1, &error) != 0) {
        (void) fprintf(stderr, "# %s\n", error.message);
        return NULL;
    }
    return w;
}

bool wait_for_word(const _Atomic uint64_t *word, uint64_t least)
{
    const uint64_t until_ns = real_ns() + PATIENCE_NS;
    while (load_acquire(word) < least) {
        if (real_ns() > until_ns) {
            return false;
        }
        nap_ms(1);
    }
    return true;
}

bool mutexes_survive_deaths(void)
{
    pthread_mutex_t *mutex = mmap(NULL, sizeof(*mutex), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (mutex == MAP_FAILED || robust_mutex_init(mutex) != 0) {
        return false;
    }
    const pid_t child = fork();
    if (child == 0) {
        (void) robust_mutex_lock(mutex);
        _exit(0);
    }
    const bool survives = child > 0 && waitpid(child, NULL, 0) == child && robust_mutex_trylock(mutex) == ROBUST_DIED;
    if (survives) {
        (void) pthread_mutex_unlock(mutex); /* this thread keeps a list of those it has */
    }
    (void) munmap(mutex, sizeof(*mutex));
    return survives;
}
