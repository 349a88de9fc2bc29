/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See segment.h.
 *
 * Ordering
 *   [W1] A mapping's address, then its word: stored with release by add_mapping(), loaded with acquire by mapping_of().
 *
 * Progress: segment_mapping() is wait-free. segment_open() waits for other openers.
 */
#include "base/memory/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "base/atomics.h"
#include "base/clock.h"
#include "base/numbers.h"

/* How long an opener may take; a table of 100 million keys takes some 10 s. And how often the next one looks. */
#define LOCK_PATIENCE_NS (30 * NS_PER_S)
#define LOCK_LOOK_NS     NS_PER_MS

/* Where shm_open() has its files. */
#define PLACE "/dev/shm"

/* Parts of this size may lie on huge pages. */
#define HUGE_PAGE ((size_t) 2 << 20)

/* A signal lets the commitment of a range begin anew, so a range is committed in pieces. */
#define COMMIT_PIECE ((size_t) 4 << 20)

#define ID_MASK ((UINT64_C(1) << SEGMENT_ID_BITS) - 1)

/*
 * The mappings of this process. A forked child has a copy of its parent's. One word says whose an entry is and how many
 * weirs have it, so that the last one that leaves makes it free and unfindable at once.
 */
static struct mapping {
    _Atomic uint64_t word; /* the segment's id, and below USER_BITS the users; 0: free; RESERVED: about to be filled */
    unsigned char *at;
    size_t size;
} mappings[SEGMENT_MAPPINGS];

#define USER_BITS (64 - SEGMENT_ID_BITS)
#define RESERVED  1 /* one user, and no id yet */

static struct mapping *mapping_of(uint64_t id)
{
    for (size_t i = 0; i < SEGMENT_MAPPINGS; i++) {
        if (load_acquire(&mappings[i].word) >> USER_BITS == id) { /* [W1] */
            return &mappings[i];
        }
    }
    return NULL;
}

unsigned char *segment_mapping(uint64_t id)
{
    const struct mapping *mapping = mapping_of(id);
    return mapping != NULL ? mapping->at : NULL;
}

/* One user less. The last one unmaps. */
static void leave_mapping(uint64_t id)
{
    struct mapping *mapping = mapping_of(id);
    uint64_t word = load_relaxed(&mapping->word); /* the caller is a user: the entry stays */
    unsigned char *at = mapping->at;
    const size_t size = mapping->size;
    uint64_t next;
    do {
        next = (word & ((UINT64_C(1) << USER_BITS) - 1)) == 1 ? 0 : word - 1;
    } while (!cas_acquire(&mapping->word, &word, next));
    if (next == 0) {
        (void) munmap(at, size);
    }
}

/* One more user of a mapping that is there; NULL: there is none. */
static struct mapping *use_mapping(uint64_t id)
{
    struct mapping *mapping = mapping_of(id);
    uint64_t word = mapping != NULL ? load_relaxed(&mapping->word) : 0;
    while (mapping != NULL && word >> USER_BITS == id) {
        if (cas_acquire(&mapping->word, &word, word + 1)) {
            return mapping;
        }
    }
    return NULL;
}

static bool add_mapping(uint64_t id, unsigned char *at, size_t size)
{
    for (size_t i = 0; i < SEGMENT_MAPPINGS; i++) {
        uint64_t free = 0;
        if (cas_acquire(&mappings[i].word, &free, RESERVED)) {
            mappings[i].at = at;
            mappings[i].size = size;
            store_release(&mappings[i].word, id << USER_BITS | 1); /* [W1] */
            return true;
        }
    }
    return false;
}

/* Waits for the lock of an open file. 0 or -EBUSY; as flock(). */
static int lock_file(int fd)
{
    const uint64_t until_ns = clock_monotonic_ns(NULL) + LOCK_PATIENCE_NS;
    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR) {
            return -errno;
        }
        if (clock_monotonic_ns(NULL) > until_ns) {
            return -EBUSY;
        }
        const struct timespec nap = {.tv_nsec = LOCK_LOOK_NS};
        (void) nanosleep(&nap, NULL);
    }
    return 0;
}

/* Opens the segment of the name, or makes one. A descriptor, or as shm_open(), negative. */
static int open_or_make(const char *name)
{
    for (;;) {
        int fd = shm_open(name, O_RDWR | O_CLOEXEC, 0);
        if (fd < 0 && errno == ENOENT) {
            fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR);
            if (fd >= 0) {
                (void) fchmod(fd, S_IRUSR | S_IWUSR); /* whatever the umask */
            }
        }
        if (fd >= 0 || errno != EEXIST) {
            return fd >= 0 ? fd : -errno;
        }
    }
}

/*
 * Whether a segment is its user's alone. Looked at before the lock: whoever else can open the file can have the lock
 * for as long as he likes.
 */
static bool is_own(const struct stat *about)
{
    return about->st_uid == geteuid() && (about->st_mode & (S_IRWXG | S_IRWXO)) == 0;
}

/* Waits for the lock of an open file that is this user's. *about: with the lock. 0; -EACCES; -EBUSY; as fstat(). */
static int lock_own(int fd, struct stat *about)
{
    if (fstat(fd, about) != 0) {
        return -errno;
    }
    const int result = is_own(about) ? lock_file(fd) : -EACCES;
    return result == 0 && fstat(fd, about) != 0 ? -errno : result;
}

int segment_open(struct segment *segment, const char *name)
{
    *segment = (struct segment){.fd = -1};
    for (;;) {
        const int fd = open_or_make(name);
        if (fd < 0) {
            return fd;
        }
        struct stat about;
        const int result = lock_own(fd, &about);
        if (result == 0 && about.st_nlink != 0) {
            segment->fd = fd;
            segment->inode = about.st_ino;
            return 0;
        }
        (void) close(fd); /* with links 0 the name was removed meanwhile, and may be another segment's now */
        if (result != 0) {
            return result;
        }
    }
}

int segment_look(const char *name, struct stat *about)
{
    char path[sizeof(PLACE) + NAME_MAX + 1];
    (void) snprintf(path, sizeof(path), PLACE "%s", name);
    return lstat(path, about) == 0 ? 0 : -errno;
}

int segment_lock_again(const struct segment *segment, int *lock_fd)
{
    char path[64];
    (void) snprintf(path, sizeof(path), "/proc/self/fd/%d", segment->fd);
    *lock_fd = open(path, O_RDWR | O_CLOEXEC);
    if (*lock_fd < 0) {
        return -errno;
    }
    const int result = lock_file(*lock_fd);
    if (result != 0) {
        (void) close(*lock_fd);
    }
    return result;
}

void segment_unlock_again(int lock_fd)
{
    (void) flock(lock_fd, LOCK_UN);
    (void) close(lock_fd);
}

void segment_unlock(const struct segment *segment)
{
    (void) flock(segment->fd, LOCK_UN);
}

int segment_make_id(uint64_t *id)
{
    do {
        if (getrandom(id, sizeof(*id), 0) != (ssize_t) sizeof(*id)) {
            return -errno;
        }
        *id &= ID_MASK;
    } while (*id == 0);
    return 0;
}

/* Maps so many bytes of a segment from a huge page on. NULL: no memory. */
static unsigned char *map_pages(int fd, size_t size)
{
    /* cppcheck-suppress invalidFunctionArg ; an anonymous mapping takes -1 */
    unsigned char *all = mmap(NULL, size + HUGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED) {
        return NULL;
    }
    unsigned char *at = all + (HUGE_PAGE - (uintptr_t) all % HUGE_PAGE) % HUGE_PAGE;
    unsigned char *mapped = mmap(at, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, fd, 0);
    if (mapped == MAP_FAILED) {
        (void) munmap(all, size + HUGE_PAGE);
        return NULL;
    }
    if (at != all) {
        (void) munmap(all, (size_t) (at - all));
    }
    if (at + size != all + size + HUGE_PAGE) {
        (void) munmap(at + size, (size_t) (all + size + HUGE_PAGE - (at + size)));
    }
    return mapped;
}

static size_t whole_pages(size_t size)
{
    const size_t page = (size_t) sysconf(_SC_PAGESIZE);
    return (size + page - 1) / page * page;
}

int segment_map(struct segment *segment, uint64_t id, size_t size, bool *first)
{
    const struct mapping *there = use_mapping(id);
    *first = there == NULL;
    segment->taken = 0;
    segment->size = whole_pages(size);
    if (there != NULL) {
        segment->at = there->at;
        segment->id = id;
        return 0;
    }
    segment->at = map_pages(segment->fd, segment->size);
    if (segment->at == NULL) {
        return -ENOMEM;
    }
    if (!add_mapping(id, segment->at, segment->size)) {
        (void) munmap(segment->at, segment->size);
        segment->at = NULL;
        return -EMFILE;
    }
    segment->id = id;
    return 0;
}

int segment_end(struct segment *segment)
{
    if (ftruncate(segment->fd, (off_t) segment->taken) != 0) {
        return -errno;
    }
    struct mapping *mapping = mapping_of(segment->id);
    (void) munmap(segment->at + segment->taken, segment->size - segment->taken);
    segment->size = segment->taken;
    mapping->size = segment->taken;
    return 0;
}

void segment_close(struct segment *segment)
{
    if (segment->at != NULL) {
        leave_mapping(segment->id);
        segment->at = NULL;
    }
    if (segment->fd >= 0) {
        (void) close(segment->fd);
        segment->fd = -1;
    }
}

void *segment_take(struct segment *segment, size_t size, bool huge)
{
    const size_t begins = huge ? (segment->taken + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE : segment->taken;
    const size_t padded = whole_pages(size);
    if (begins > segment->size || segment->size - begins < padded) {
        return NULL;
    }
    segment->taken = begins + padded;
    return segment->at + begins;
}

int segment_commit(const struct segment *segment, const void *at, size_t size)
{
    size_t offset = (size_t) ((const unsigned char *) at - segment->at);
    const size_t end = offset + size;
    struct stat about;
    if (fstat(segment->fd, &about) != 0 || about.st_ino != segment->inode) {
        return -EBADF; /* the host has closed the descriptor, and another file may have its number */
    }
    while (offset < end) {
        const size_t piece = min_u64(end - offset, COMMIT_PIECE);
        const int result = posix_fallocate(segment->fd, (off_t) offset, (off_t) piece);
        if (result != 0 && result != EINTR) {
            return -result;
        }
        offset += result == 0 ? piece : 0;
    }
    return 0;
}

bool segment_has_data(const struct segment *segment, const void *at, size_t size)
{
    const off_t begins = (off_t) ((const unsigned char *) at - segment->at);
    const off_t data = lseek(segment->fd, begins, SEEK_DATA);
    return data < 0 ? errno != ENXIO : data < begins + (off_t) size;
}
