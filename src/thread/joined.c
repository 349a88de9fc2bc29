/* SPDX-License-Identifier: Apache-2.0 */
/* See joined.h. Progress: joined_enter() is lock-free, but for the files it reads. */
#include "thread/joined.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/numbers.h"
#include "thread/limiter.h"

/* More than a line of /proc/PID/task/PID/stat up to the start time: some 20 numbers, and a name of 16 bytes. */
#define STAT_SIZE 1024

/*
 * Of /proc/PID/task/PID/stat field 3 is the state, field 20 the number of threads, and field 22 the start time. All
 * stand behind the name and its ')'. /proc/PID/stat has the same three fields. But an emulator (qemu-user) answers for
 * a process's own file itself, with another start time than others read there.
 */
#define THREADS_AFTER_STATE 17
#define START_AFTER_STATE   19

/* How long a process may take to note when it was started, once it has entered; and how often that is looked at. */
#define ENTRY_LOOKS   50
#define ENTRY_LOOK_NS NS_PER_MS

/* A ticket has the process's place among the joined, counted from 1, and above it a sum of its id and its start. */
#define TICKET_PLACE_BITS 11
#define TICKET_PLACE_MASK ((UINT64_C(1) << TICKET_PLACE_BITS) - 1)
_Static_assert(TICKET_PLACE_MASK > PROCESSES_MOST, "each place has a number above 0");

/* What the system says of a process. */
struct process_stat {
    char state; /* a letter */
    uint64_t threads;
    uint64_t started; /* clock ticks since boot */
};

/* False: there is no such process, or no /proc. */
static bool read_stat(pid_t pid, struct process_stat *out)
{
    char path[64];
    char line[STAT_SIZE];
    (void) snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", (int) pid, (int) pid);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    const ssize_t length = read(fd, line, sizeof(line) - 1);
    (void) close(fd);
    line[length > 0 ? length : 0] = '\0';
    const char *at = strrchr(line, ')'); /* the name may have any byte */
    if (at == NULL || at[1] != ' ') {
        return false;
    }
    at += 2;
    out->state = *at;
    for (unsigned field = 1; field <= START_AFTER_STATE; field++) {
        at = strchr(at, ' ');
        if (at == NULL) {
            return false;
        }
        at++;
        out->threads = field == THREADS_AFTER_STATE ? strtoull(at, NULL, 10) : out->threads;
    }
    out->started = strtoull(at, NULL, 10);
    return true;
}

/* Counts anew, as thread_count() does, and returns the count. */
static uint32_t count_joined(struct limiter *limiter)
{
    uint32_t last = UINT32_MAX;
    for (;;) {
        uint32_t count = 0;
        for (uint32_t i = 0; i < joined_high(limiter); i++) {
            const struct joined_process *entry = &limiter->joined[i];
            count += load_relaxed(&entry->pid) != 0 && load_relaxed(&entry->leaving) == 0;
        }
        if (count == last) {
            return count;
        }
        last = count;
        store_relaxed(&limiter->shared->joined_count, count);
        fence_seq_cst(); /* [M2] the store, then the look */
    }
}

uint64_t joined_pid_namespace(void)
{
    struct stat about;
    return stat("/proc/self/ns/pid", &about) == 0 ? about.st_ino : 0;
}

uint32_t joined_high(const struct limiter *limiter)
{
    /* Acquire: pairs with joined_enter(). The lesser: a segment that is damaged may have any number. */
    return (uint32_t) min_u64(load_acquire(&limiter->shared->joined_high), limiter->max_processes);
}

/* Before a process enters: all others look for it below the mark, also where it dies at once. */
static void raise_high(struct limiter *limiter, uint32_t high)
{
    uint32_t last = load_relaxed(&limiter->shared->joined_high);
    while (last < high && !cas_seq_cst(&limiter->shared->joined_high, &last, high)) {
    }
}

uint32_t joined_enter(struct limiter *limiter)
{
    struct process_stat own = {.started = 0};
    (void) read_stat(getpid(), &own);
    for (uint32_t i = 0; i < limiter->max_processes; i++) {
        struct joined_process *entry = &limiter->joined[i];
        int32_t free = 0;
        if (load_relaxed(&entry->pid) != 0) {
            continue;
        }
        raise_high(limiter, i + 1);
        if (cas_acquire(&entry->pid, &free, (int32_t) getpid())) {
            store_relaxed(&entry->started, own.started); /* until then the process is known by its id alone */
            (void) count_joined(limiter);
            return i;
        }
    }
    return JOINED_NONE;
}

void joined_take_place(struct limiter *limiter, uint32_t index)
{
    struct joined_process *entry = &limiter->joined[index];
    struct process_stat own = {.started = 0};
    (void) read_stat(getpid(), &own);
    raise_high(limiter, index + 1);
    store_relaxed(&entry->started, 0); /* never this process's id with another one's start */
    store_relaxed(&entry->leaving, 0);
    store_release(&entry->pid, (int32_t) getpid()); /* pairs with joined_is_dead() */
    store_relaxed(&entry->started, own.started);
    (void) count_joined(limiter);
}

uint32_t joined_leave_begin(struct limiter *limiter, uint32_t index)
{
    store_relaxed(&limiter->joined[index].leaving, 1);
    fence_seq_cst(); /* of two that leave at once, one finds that both do */
    return count_joined(limiter);
}

void joined_leave(struct limiter *limiter, uint32_t index)
{
    store_relaxed(&limiter->joined[index].started, 0);
    store_relaxed(&limiter->joined[index].leaving, 0);
    store_release(&limiter->joined[index].pid, 0); /* pairs with the exchange of joined_enter() */
    (void) count_joined(limiter);
}

/* Whether the process of this id and this start time runs no more; `started` 0: the start time is not known. */
static bool has_ended(pid_t pid, uint64_t started)
{
    struct process_stat its = {.started = 0};
    if (pid < 0) {
        return true; /* damaged */
    }
    if (!read_stat(pid, &its)) {
        return kill(pid, 0) != 0 && errno == ESRCH;
    }
    /* The first thread of a process may have ended while others run: the letter is a Z then, too. */
    const bool ended = (its.state == 'Z' || its.state == 'X') && its.threads <= 1;
    return ended || (started != 0 && its.started != started);
}

bool joined_is_dead(const struct limiter *limiter, uint32_t index)
{
    if (index >= limiter->max_processes) {
        return true;
    }
    const struct joined_process *entry = &limiter->joined[index];
    const int32_t pid = load_acquire(&entry->pid);
    const uint64_t started = load_relaxed(&entry->started);
    if (pid == 0 || load_acquire(&entry->pid) != pid || !has_ended((pid_t) pid, started)) {
        return false; /* the place is free, or has just been taken; or the process lives */
    }
    /* It may have left before its end, and the place be another's by now. The dead leave no place. */
    return load_acquire(&entry->pid) == pid && load_relaxed(&entry->started) == started;
}

uint64_t joined_ticket(const struct limiter *limiter, uint32_t index)
{
    const struct joined_process *entry = &limiter->joined[index];
    const uint64_t pid = (uint32_t) load_acquire(&entry->pid); /* pairs with joined_leave() */
    return hash_mix(hash_mix(load_relaxed(&entry->started)) ^ pid) << TICKET_PLACE_BITS | (index + 1);
}

bool joined_has_died(void *arg, uint64_t ticket)
{
    const struct limiter *limiter = arg;
    const uint32_t index = (uint32_t) (ticket & TICKET_PLACE_MASK) - 1;
    return index >= limiter->max_processes || joined_ticket(limiter, index) != ticket ||
           joined_is_dead(limiter, index) || load_relaxed(&limiter->joined[index].pid) == 0;
}

bool joined_lives(const struct limiter *limiter, uint32_t index)
{
    const struct joined_process *entry = &limiter->joined[index];
    const struct timespec nap = {.tv_nsec = ENTRY_LOOK_NS};
    struct process_stat own = {.started = 0};
    const bool told = read_stat(getpid(), &own);
    bool lives = load_acquire(&entry->pid) != 0 && !joined_is_dead(limiter, index);
    for (unsigned looks = 0; lives && told && load_relaxed(&entry->started) == 0; looks++) {
        lives = looks < ENTRY_LOOKS && load_acquire(&entry->pid) != 0 && !joined_is_dead(limiter, index);
        (void) nanosleep(&nap, NULL);
    }
    return lives;
}
