/* SPDX-License-Identifier: Apache-2.0 */
/* See capture_file.h. */
#include "capture_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pcapng.h"

static bool fail(const struct capture_file *file, int error, char problem[CAPTURE_PROBLEM_SIZE])
{
    (void) snprintf(problem, CAPTURE_PROBLEM_SIZE, "%.100s: %s", file->path, strerror(error));
    return false;
}

/* Whether a path may be replaced: nothing is there, or an empty file, or a capture. */
static bool is_ours(const char *path, char problem[CAPTURE_PROBLEM_SIZE])
{
    char mark[4] = "";
    struct stat status;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 && errno == ENOENT) {
        return true;
    }
    if (fd < 0) {
        (void) snprintf(problem, CAPTURE_PROBLEM_SIZE, "%.80s: %s", path,
                        errno == ELOOP ? "is a symbolic link; give the file itself" : strerror(errno));
        return false;
    }
    const bool ours = fstat(fd, &status) == 0 && S_ISREG(status.st_mode) &&
                      (status.st_size == 0 || (read(fd, mark, sizeof(mark)) == (ssize_t) sizeof(mark) &&
                                               memcmp(mark, PCAPNG_MARK, sizeof(mark)) == 0));
    (void) close(fd);
    if (!ours) {
        (void) snprintf(problem, CAPTURE_PROBLEM_SIZE,
                        "%.80s: is there and is no pcapng file, and stays; give another name", path);
    }
    return ours;
}

/* Moves a capture that is there to PATH.1. A file without a packet takes no older capture's place. */
static bool move_aside(const struct capture_file *file, char problem[CAPTURE_PROBLEM_SIZE])
{
    char older[PATH_MAX];
    struct stat status;
    if (lstat(file->path, &status) != 0) {
        return errno == ENOENT || fail(file, errno, problem);
    }
    if (snprintf(older, sizeof(older), "%s.1", file->path) >= (int) sizeof(older)) {
        return fail(file, ENAMETOOLONG, problem);
    }
    const bool has_packets = status.st_size > PCAPNG_BEGIN_SIZE;
    if (!is_ours(file->path, problem) || (has_packets && !is_ours(older, problem))) {
        return false;
    }
    const int result = has_packets ? rename(file->path, older) : unlink(file->path);
    return result == 0 || fail(file, errno, problem);
}

static bool write_all(struct capture_file *file, const unsigned char *bytes, size_t size,
                      char problem[CAPTURE_PROBLEM_SIZE])
{
    const uint64_t before = file->size;
    size_t done = 0;
    while (done < size) {
        const ssize_t n = write(file->fd, bytes + done, size - done);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            const int error = n < 0 ? errno : ENOSPC;
            (void) ftruncate(file->fd, (off_t) before); /* no block is left in part */
            return fail(file, error, problem);
        }
        done += (size_t) n;
    }
    file->size += size;
    return true;
}

/* Begins a file. */
static bool begin(struct capture_file *file, char problem[CAPTURE_PROBLEM_SIZE])
{
    unsigned char bytes[PCAPNG_BEGIN_SIZE];
    struct stat status;
    capture_file_close(file);
    if (!move_aside(file, problem)) {
        return false;
    }
    /* It holds what clients have sent: for the owner alone. */
    file->fd = open(file->path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file->fd < 0 || fstat(file->fd, &status) != 0) {
        return fail(file, errno, problem);
    }
    file->size = 0;
    file->is_whole = false;
    file->device = status.st_dev;
    file->inode = status.st_ino;
    file->is_whole = write_all(file, bytes, pcapng_begin("weir-gateway", bytes), problem);
    return file->is_whole;
}

bool capture_file_open(struct capture_file *file, const char *path, uint64_t size_most,
                       char problem[CAPTURE_PROBLEM_SIZE])
{
    *file = (struct capture_file){.path = path, .size_most = size_most, .fd = -1};
    return begin(file, problem);
}

void capture_file_close(struct capture_file *file)
{
    if (file->fd >= 0) {
        (void) close(file->fd);
        file->fd = -1;
    }
}

bool capture_file_reopen(struct capture_file *file, char problem[CAPTURE_PROBLEM_SIZE])
{
    struct stat status;
    const bool same = file->fd >= 0 && file->is_whole && lstat(file->path, &status) == 0 &&
                      status.st_dev == file->device && status.st_ino == file->inode;
    return same || begin(file, problem);
}

bool capture_file_write(struct capture_file *file, const unsigned char *blocks, size_t size,
                        char problem[CAPTURE_PROBLEM_SIZE])
{
    if (file->size + size > file->size_most && !begin(file, problem)) {
        return false;
    }
    return write_all(file, blocks, size, problem);
}
