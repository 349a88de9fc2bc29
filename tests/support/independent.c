/* SPDX-License-Identifier: Apache-2.0 */
/* See independent.h. */
#include "support/independent.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomics.h"
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

void damage_policies(const char *name, const char *policy)
{
    const size_t size = (size_t) segment_size(name);
    const size_t length = strlen(policy);
    size_t found = 0;
    const int fd = shm_open(name, O_RDWR, 0);
    assert_true(fd >= 0);
    char *all = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(all, MAP_FAILED);
    for (off_t at = lseek(fd, 0, SEEK_DATA); at >= 0; at = lseek(fd, at, SEEK_DATA)) {
        const off_t end = lseek(fd, at, SEEK_HOLE);
        for (char *there = memmem(all + at, (size_t) (end - at), policy, length); there != NULL;
             there = memmem(all + at, (size_t) (end - at), policy, length)) {
            memset(there, 0xff, length);
            found++;
        }
        at = end;
    }
    assert_int_not_equal(found, 0);
    (void) munmap(all, size);
    (void) close(fd);
}
