/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A segment: POSIX shared memory with a name, which processes map at any address. The mapping is where a segment lies
 * in a process. Parts are taken from the mapping one behind the other, in the same order in every process.
 *
 * A process has one mapping for each segment, however often it opens the segment. The mappings of a process are found
 * by the segment's id, without a lock (segment_mapping).
 *
 * Invariants
 *   G1  Between segment_open() and segment_unlock() no other process is there, in this segment.
 *   G2  A page is written, or read, only after it was committed: it is there, or segment_commit() has said that the
 *       system has no room. So no access ends in SIGBUS.
 */
#ifndef WEIR_BASE_MEMORY_SEGMENT_H
#define WEIR_BASE_MEMORY_SEGMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

/* Mappings that a process has at once. */
#define SEGMENT_MAPPINGS 256

/* Bits of a segment's id; 0 is none. */
#define SEGMENT_ID_BITS 40

struct segment {
    int fd;            /* stays open, to commit pages; -1: there is no segment */
    ino_t inode;       /* of the descriptor's file */
    bool fresh;        /* this process makes the segment: all bytes are 0 */
    unsigned char *at; /* the mapping; NULL: none yet */
    size_t size;       /* bytes of the mapping */
    size_t taken;      /* bytes of the parts taken so far */
    uint64_t id;       /* 0: the mapping is in no list */
};

/*
 * Opens the segment of a name, or makes an empty one, and waits for the lock. `name`: valid for shm_open(). 0; -EACCES,
 * before it waits: another user owns the segment, or may open it; -EBUSY: another process has had the lock for half a
 * minute; as shm_open().
 */
int segment_open(struct segment *segment, const char *name);

/* Owner and mode of a name, for a sentence about what keeps a process from opening it. 0; as stat(). */
int segment_look(const char *name, struct stat *about);

/*
 * Waits for the lock anew, in a forked child that has its parent's descriptor. *lock_fd: for segment_unlock_again(). 0;
 * -EBUSY; as open().
 */
int segment_lock_again(const struct segment *segment, int *lock_fd);
void segment_unlock_again(int lock_fd);

/* Ends the time in which no other process is there. The descriptor alone would not: a forked child has it too. */
void segment_unlock(const struct segment *segment);

/* An id that no other segment has. 0; as getrandom(). */
int segment_make_id(uint64_t *id);

/*
 * Maps the segment's mapping of `size` bytes, whatever the segment's size is. *first: this process had no mapping of
 * the segment before. 0; -ENOMEM; -EMFILE: there are too many mappings.
 */
int segment_map(struct segment *segment, uint64_t id, size_t size, bool *first);

/* The parts are taken: the mapping, and a segment that is fresh, end here. 0; as ftruncate(). */
int segment_end(struct segment *segment);

/* Unmaps the mapping and closes the descriptor. */
void segment_close(struct segment *segment);

/* The next part, which begins at a page; NULL: the mapping has no room. `huge`: at a huge page. */
void *segment_take(struct segment *segment, size_t size, bool huge);

/* Has these pages of a segment present. 0; -ENOSPC or -ENOMEM: there is no room; -EBADF: the descriptor was closed. */
int segment_commit(const struct segment *segment, const void *at, size_t size);

/* Whether anything was ever written to these pages, or read of them; true where that cannot be told. */
bool segment_has_data(const struct segment *segment, const void *at, size_t size);

/* This process's mapping of a segment, for as long as a weir has it. NULL: none. */
unsigned char *segment_mapping(uint64_t id);

#endif
