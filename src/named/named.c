/* SPDX-License-Identifier: Apache-2.0 */
/* See named.h; and weir_unlink. */
#include "named/named.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/numbers.h"
#include "named/segment_header.h"
#include "thread/joined.h"
#include "thread/limiter.h"
#include "thread/limiter_salvage.h"

/*
 * More than any part takes of a key, a unit of a log, a handle, a process, and more than all other parts. A new segment
 * is made that large, and cut off behind its last part. Nothing of it is present before.
 */
#define KEY_SIZE     ((uint64_t) 2 << 10)
#define UNIT_SIZE    ((uint64_t) 16)
#define THREAD_SIZE  ((uint64_t) 1 << 20)
#define PROCESS_SIZE ((uint64_t) 4 << 10)
#define OTHER_SIZE   ((uint64_t) 256 << 20)

/* How long an opener waits for a place that a dead process has; and how often it looks. */
#define PLACE_PATIENCE_NS (500 * NS_PER_MS)
#define PLACE_LOOK_NS     NS_PER_MS

/* A start time that no process has: a tick after the machine was started. */
#define STARTED_NEVER 1

/* The longest name: the GNU C library before 2.34 has no room for more. */
#define NAME_MOST (NAME_MAX - 1)

int named_check(const char *name, weir_error *error)
{
    const size_t length = strnlen(name, NAME_MAX + 1);
    if (name[0] != '/' || length < 2 || length > NAME_MOST || strchr(name + 1, '/') != NULL) {
        return error_set(error, -EINVAL,
                         "options: shared_name is \"%.40s\"; give 2 to %d bytes, of which the first and no other is "
                         "'/', such as \"/edge\"",
                         name, NAME_MOST);
    }
    return 0;
}

/* Puts the name before a sentence. */
static void put_name(const struct named *named, weir_error *error)
{
    if (error != NULL) {
        char sentence[sizeof(error->message)];
        (void) snprintf(sentence, sizeof(sentence), "%s", error->message);
        (void) error_set(error, error->code, "\"%.40s\": %s", named->name, sentence);
    }
}

/* Says why this process may not open the segment. */
static int not_own(const struct named *named, weir_error *error)
{
    struct stat about;
    const bool there = segment_look(named->name, &about) == 0;
    if (there && about.st_uid != geteuid()) {
        return error_set(error, -EACCES,
                         "\"%.40s\" belongs to user %u, and this process is of user %u; choose another shared_name",
                         named->name, (unsigned) about.st_uid, (unsigned) geteuid());
    }
    if (there && (about.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
        return error_set(error, -EACCES,
                         "\"%.40s\" has mode %04o, so that other users may open it; remove it with weir_unlink",
                         named->name, (unsigned) about.st_mode & 07777);
    }
    return error_set(error, -EACCES, "\"%.40s\": this process may not open it; choose another shared_name",
                     named->name);
}

static int cannot_open(const struct named *named, int result, weir_error *error)
{
    switch (result) {
    case -EACCES:
        return not_own(named, error);
    case -EBUSY:
        return error_set(error, result,
                         "\"%.40s\": another process has been opening it for half a minute; end that process",
                         named->name);
    default:
        return error_set(error, result, "\"%.40s\" cannot be opened: %s", named->name, strerror(-result));
    }
}

static uint64_t size_most(const weir_options *options)
{
    return options->max_keys * KEY_SIZE + options->max_log_units * UNIT_SIZE + options->max_threads * THREAD_SIZE +
           options->max_processes * PROCESS_SIZE + OTHER_SIZE;
}

static int no_room(const struct named *named, int result, weir_error *error)
{
    return error_set(error, result,
                     "\"%.40s\": there is no room in /dev/shm: %s; make that file system larger, or give a smaller "
                     "max_keys",
                     named->name, strerror(-result));
}

/*
 * Removes the name of this process's segment, under the segment's lock. Where the name has been removed it may be
 * another segment's by now.
 */
static int remove_name(const struct named *named)
{
    struct stat about;
    if (fstat(named->segment.fd, &about) != 0 || about.st_nlink == 0) {
        return 0;
    }
    return shm_unlink(named->name) == 0 || errno == ENOENT ? 0 : -errno;
}

static int map_segment(struct named *named, uint64_t id, uint64_t size, weir_error *error)
{
    const int result = segment_map(&named->segment, id, size, &named->first);
    if (result == -EMFILE) {
        return error_set(error, result,
                         "\"%.40s\": this process has %d named weirs open, as many as may be; close one first",
                         named->name, SEGMENT_MAPPINGS);
    }
    return result != 0 ? error_set(error, result, "\"%.40s\": out of memory for %" PRIu64 " MiB of addresses",
                                   named->name, size >> 20)
                       : 0;
}

/* Beyond the limit on the size of files a signal would end the process. */
static int check_file_limit(const struct named *named, uint64_t size, weir_error *error)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < size) {
        return error_set(error, -EFBIG,
                         "\"%.40s\": the limit on the size of files (RLIMIT_FSIZE) is %" PRIu64
                         " MiB; a segment of these options needs %" PRIu64 " MiB while it is made",
                         named->name, (uint64_t) limit.rlim_cur >> 20, size >> 20);
    }
    return 0;
}

/* Begins a new segment. */
static int make_segment(struct named *named, const weir_options *options, weir_error *error)
{
    uint64_t id = 0;
    const uint64_t size = size_most(options);
    if (check_file_limit(named, size, error) != 0) {
        (void) remove_name(named);
        return -EFBIG;
    }
    named->making = named->segment.fresh = true;
    int result = segment_header_begin(named->segment.fd);
    if (result == 0 && ftruncate(named->segment.fd, (off_t) size) != 0) {
        result = -errno;
    }
    result = result != 0 ? result : segment_make_id(&id);
    return result != 0 ? no_room(named, result, error) : map_segment(named, id, size, error);
}

/* Looks at a segment under its lock. 0: it can be mapped; 1: it was removed, and there is to be another one. */
static int look_at_segment(struct named *named, const weir_options *options, weir_error *error)
{
    struct segment_header header;
    struct stat about;
    enum segment_state state = SEGMENT_FOREIGN;
    int result = segment_header_read(named->segment.fd, &header, &state);
    if (result != 0 || fstat(named->segment.fd, &about) != 0) {
        return cannot_open(named, result != 0 ? result : -errno, error);
    }
    if (state == SEGMENT_EMPTY) {
        return make_segment(named, options, error);
    }
    if (state == SEGMENT_FOREIGN) {
        return error_set(error, -EBADMSG,
                         "\"%.40s\" is damaged, or is no segment of weir's; choose another shared_name, or remove it "
                         "with weir_unlink",
                         named->name);
    }
    if (state == SEGMENT_HALF) {
        named->replaced = REPLACED_HALF;
        result = remove_name(named);
        return result == 0 ? 1 : cannot_open(named, result, error);
    }
    result = segment_header_check(&header, (uint64_t) about.st_size, options, error);
    if (result != 0) {
        put_name(named, error);
        return result;
    }
    return map_segment(named, header.id, header.size, error);
}

int named_open(struct named *named, struct pages_owner *pages, const weir_options *options,
               enum named_replaced replaced, weir_error *error)
{
    *named = (struct named){.segment.fd = -1, .replaced = replaced};
    (void) snprintf(named->name, sizeof(named->name), "%s", options->shared_name);
    int result = 1;
    while (result == 1) {
        result = segment_open(&named->segment, named->name);
        if (result != 0) {
            return cannot_open(named, result, error);
        }
        result = look_at_segment(named, options, error);
        if (result != 0) {
            named_close(named);
        }
    }
    if (result == 0) {
        *pages = (struct pages_owner){.use = PAGES_SHARED, .segment = &named->segment};
        named->header = pages_take(pages, sizeof(*named->header), PAGES_SPARSE);
        result = pages->error != 0 ? no_room(named, pages->error, error) : 0;
    }
    return result;
}

/*
 * Entries with this process's id, where this process has no other mapping: it had one before it called exec. Such an
 * entry has the present start time, and would count as living.
 */
static void disown_before_exec(const struct named *named, struct limiter *limiter)
{
    for (uint32_t i = 0; i < joined_high(limiter) && named->first; i++) {
        if (load_relaxed(&limiter->joined[i].pid) == (int32_t) getpid()) {
            store_relaxed(&limiter->joined[i].started, STARTED_NEVER);
        }
    }
}

static bool any_lives(const struct limiter *limiter)
{
    bool lives = false;
    for (uint32_t i = 0; i < limiter->max_processes && !lives; i++) {
        lives = joined_lives(limiter, i);
    }
    return lives;
}

/* Takes a place, and waits a while for one of a dead process. JOINED_NONE: there is none. */
static uint32_t take_place(struct limiter *limiter)
{
    const uint64_t until_ns = clock_monotonic_ns(NULL) + PLACE_PATIENCE_NS;
    uint32_t index = joined_enter(limiter);
    while (index == JOINED_NONE && clock_monotonic_ns(NULL) < until_ns) {
        const struct timespec nap = {.tv_nsec = PLACE_LOOK_NS};
        store_relaxed(&limiter->process.shared->stalled, 1); /* the others look for the dead at once */
        (void) nanosleep(&nap, NULL);
        index = joined_enter(limiter);
    }
    return index;
}

/* Enters beside others. */
static int enter_joined(const struct named *named, struct limiter *limiter, weir_error *error)
{
    if (named->header->grants != 0 && !limiter->grants) {
        return error_set(error, -ENOSYS,
                         "\"%.40s\": membarrier(2) is forbidden here, but not in the processes that use it; allow it "
                         "in the sandbox of this process",
                         named->name);
    }
    limiter->grants = named->header->grants != 0;
    const uint32_t index = take_place(limiter);
    if (index == JOINED_NONE) {
        return error_set(error, -ENOSPC, "\"%.40s\": %u processes are joined, as many as may be; raise max_processes",
                         named->name, (unsigned) limiter->max_processes);
    }
    limiter_join(limiter, index);
    return 0;
}

int named_enter(struct named *named, struct limiter *limiter, enum named_entry *entry, weir_error *error)
{
    if (named->making) {
        *entry = NAMED_MADE;
        const int result = segment_end(&named->segment);
        named->header->grants = limiter->grants;
        return result != 0 ? no_room(named, result, error) : 0;
    }
    if (named->segment.taken != named->segment.size) {
        return error_set(error, -EBADMSG, "\"%.40s\" is damaged: its size is wrong; remove it with weir_unlink",
                         named->name);
    }
    disown_before_exec(named, limiter);
    *entry = any_lives(limiter) ? NAMED_JOINED : NAMED_ALONE;
    if (*entry == NAMED_JOINED) {
        return enter_joined(named, limiter, error);
    }
    named->header->grants = limiter->grants;
    limiter_salvage_begin(limiter);
    return 0;
}

void named_complete(struct named *named, const weir_options *options)
{
    if (named->making) {
        segment_header_end(named->header, options, named->segment.size, named->segment.id);
        named->making = named->segment.fresh = false;
    }
    segment_unlock(&named->segment);
}

void named_discard(const struct named *named)
{
    (void) remove_name(named); /* under the lock: another opener makes a new segment, or finds one */
}

bool named_forbids_grants(const struct named *named)
{
    return named->header != NULL && named->header->grants == 0;
}

int named_lock(const struct named *named, int *lock_fd)
{
    *lock_fd = -1;
    const int result = named->name[0] != '\0' ? segment_lock_again(&named->segment, lock_fd) : 0;
    /*
     * Without /proc, or as another user, the child joins without the lock. Then all joined processes may be dead, and
     * an opener may repair alone, while the child of one of them joins.
     */
    *lock_fd = result == 0 ? *lock_fd : -1;
    return result == -EBUSY ? result : 0;
}

void named_unlock(int lock_fd)
{
    if (lock_fd >= 0) {
        segment_unlock_again(lock_fd);
    }
}

void named_close(struct named *named)
{
    if (named->name[0] == '\0') {
        return;
    }
    if (named->making) {
        (void) remove_name(named);
        named->making = false;
    }
    if (named->segment.fd >= 0) {
        segment_unlock(&named->segment);
    }
    segment_close(&named->segment);
}

int weir_unlink(const char *name)
{
    if (name == NULL || named_check(name, NULL) != 0) {
        return -EINVAL;
    }
    return shm_unlink(name) == 0 ? 0 : -errno;
}
