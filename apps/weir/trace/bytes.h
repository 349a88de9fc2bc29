/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of a file or of standard input, without the compression that their first bytes tell of: gzip or zstd. */
#ifndef WEIR_TRACE_BYTES_H
#define WEIR_TRACE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bytes;

/* What went wrong, as a sentence. */
struct fault {
    char text[600];
};

/* Opens a path, or standard input for "-". NULL: *fault says why. */
struct bytes *bytes_open(const char *path, struct fault *fault);
void bytes_close(struct bytes *b);

/*
 * Reads up to `size` bytes: what is there, and waits where nothing is. Returns their number, 0: the end; -1: *fault
 * says why; -2: a signal came first.
 */
ptrdiff_t bytes_read(struct bytes *b, void *out, size_t size, struct fault *fault);

/* Bytes of the file that were read so far, as they are on disk; and all of them, 0: not known. */
uint64_t bytes_done(const struct bytes *b);
uint64_t bytes_total(const struct bytes *b);

#endif
