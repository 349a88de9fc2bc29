/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The header of a named segment: what the segment is, and with which options it was made. The first fields stand where
 * they stand in every version of the library, so that each version can refuse the segments of others.
 *
 * Invariant: `ready` is stored last. A segment with the mark, and not ready, was left half made.
 */
#ifndef WEIR_NAMED_SEGMENT_HEADER_H
#define WEIR_NAMED_SEGMENT_HEADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/record_hash.h"
#include "fleet/fleet.h"
#include "weir/weir.h"

/* Changes with every struct that lies in a segment, and with the order of the parts. */
#define SEGMENT_LAYOUT 9

/* What a program can test of a segment before it maps the segment. */
enum segment_state {
    SEGMENT_EMPTY,    /* nothing was written yet */
    SEGMENT_HALF,     /* its creator died */
    SEGMENT_COMPLETE, /* or it only seems so: segment_header_check() */
    SEGMENT_FOREIGN,  /* it has no mark */
};

/* The options that all processes must have alike. */
struct segment_options {
    uint64_t max_keys, max_threads, max_log_units, max_processes, tick_us, sync_interval_ms, redis_timeout_ms,
        expected_nodes;
    uint64_t has_redis_url, has_fleet_secret, has_clock;
    char prefix[PREFIX_MAX + 1];
    unsigned char redis_url[RECORD_HASH_SIZE];    /* hash, without user and password */
    unsigned char fleet_secret[RECORD_HASH_SIZE]; /* hash */
};

struct segment_header {
    char mark[16];
    uint32_t layout;
    _Atomic uint32_t ready;
    char version[16];
    /* All that follows is of this layout. */
    uint64_t size;                          /* bytes of the segment */
    uint64_t id;                            /* segment.h */
    uint64_t pid_namespace, time_namespace; /* as /proc names them; 0: not known */
    struct segment_options options;
    uint64_t check;  /* of all before it but `ready` */
    uint64_t grants; /* 1: the processes can have membarrier, and use grants */
};

/* Looks at an open segment. 0; as fstat(), pread(). *header: as far as there is one. */
int segment_header_read(int fd, struct segment_header *header, enum segment_state *state);

/* Writes the mark into an empty segment. 0; as pwrite(). */
int segment_header_begin(int fd);

/* Fills in a header that has the mark, all but `grants`, and says that the segment is ready. */
void segment_header_end(struct segment_header *header, const weir_options *options, uint64_t size, uint64_t id);

/*
 * Whether this process can use a segment, by its header, size and name. 0; -EPROTO: another version; -EBADMSG: it is
 * damaged; -EXDEV: another namespace; -EINVAL: other options.
 */
int segment_header_check(const struct segment_header *header, uint64_t size, const weir_options *options,
                         weir_error *error);

#endif
