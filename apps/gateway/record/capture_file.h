/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file that denied packets are written to: whole blocks, up to a size. A full file becomes PATH.1, in the place of
 * the one before, and a new one begins. A file that cannot be written loses packets, and is tried again later.
 *
 * Only captures in pcapng are moved aside or replaced. A file of any other kind stays as it is.
 *
 * Threads: one at a time. Blocking: the file system.
 */
#ifndef WEIR_GATEWAY_RECORD_CAPTURE_FILE_H
#define WEIR_GATEWAY_RECORD_CAPTURE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct capture_file {
    const char *path;
    uint64_t size_most;
    int fd;        /* -1: none is open */
    bool is_whole; /* it has what a file begins with; where it is open and has not, its disk takes nothing */
    uint64_t size;
    dev_t device;
    ino_t inode;
};

#define CAPTURE_PROBLEM_SIZE 160

/* Opens a new file. A capture that is there becomes PATH.1. False: `problem` says why it cannot be. */
bool capture_file_open(struct capture_file *file, const char *path, uint64_t size_most,
                       char problem[CAPTURE_PROBLEM_SIZE]);
void capture_file_close(struct capture_file *file);

/* Opens the path anew where it is no longer this file: somebody has moved it. False: as capture_file_open(). */
bool capture_file_reopen(struct capture_file *file, char problem[CAPTURE_PROBLEM_SIZE]);

/*
 * Adds whole blocks, of fewer bytes than a file may have. False: they are lost, and `problem` says why. Before the next
 * blocks capture_file_reopen() is to be called.
 */
bool capture_file_write(struct capture_file *file, const unsigned char *blocks, size_t size,
                        char problem[CAPTURE_PROBLEM_SIZE]);

#endif
