/* SPDX-License-Identifier: Apache-2.0 */
/* See bytes.h. Files are read in large pieces: mmap would be no faster, and a file that shrinks would be a signal. */
#include "bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "decoder.h"

/* What is read at once of a compressed file. */
#define PIECE_SIZE (1 << 16)

/* The longest mark of a compression. */
#define MARK_SIZE 4

struct bytes {
    int file;
    uint64_t done, total;
    struct decoder *decoder; /* NULL: not compressed */
    const char *wrong;       /* with the compressed data; NULL: nothing */
    size_t at, end;          /* of what was read and is not given out */
    bool ended;
    unsigned char piece[PIECE_SIZE];
};

/* Reads a piece behind what is there. 0, or what bytes_read returns. */
static ptrdiff_t fill(struct bytes *b, struct fault *fault)
{
    const ssize_t got = read(b->file, b->piece + b->end, sizeof(b->piece) - b->end);
    if (got < 0) {
        (void) snprintf(fault->text, sizeof(fault->text), "cannot be read: %s", strerror(errno));
        return errno == EINTR ? -2 : -1;
    }
    b->ended = got == 0;
    b->end += (size_t) got;
    b->done += (size_t) got;
    return 0;
}

/* Reads the mark of a compression. */
static bool detect(struct bytes *b, struct fault *fault)
{
    const char *why;
    while (b->end < MARK_SIZE && !b->ended) {
        if (fill(b, fault) != 0) {
            return false;
        }
    }
    const enum compression compression = decoder_detect(b->piece, b->end);
    if (compression != COMPRESSION_NONE) {
        b->decoder = decoder_open(compression, &why);
        (void) snprintf(fault->text, sizeof(fault->text), "%s", b->decoder == NULL ? why : "");
        return b->decoder != NULL;
    }
    return true;
}

struct bytes *bytes_open(const char *path, struct fault *fault)
{
    struct stat status;
    struct bytes *b = calloc(1, sizeof(*b));
    if (b == NULL) {
        (void) snprintf(fault->text, sizeof(fault->text), "out of memory");
        return NULL;
    }
    const bool input = strcmp(path, "-") == 0;
    b->file = input ? dup(STDIN_FILENO) : open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (b->file < 0 || fstat(b->file, &status) != 0) {
        (void) snprintf(fault->text, sizeof(fault->text), "cannot be read: %s", strerror(errno));
    } else if (S_ISDIR(status.st_mode)) {
        (void) snprintf(fault->text, sizeof(fault->text), "is a directory; give the files in it");
    } else {
        b->total = S_ISREG(status.st_mode) && !input ? (uint64_t) status.st_size : 0;
        (void) posix_fadvise(b->file, 0, 0, POSIX_FADV_SEQUENTIAL);
        if (detect(b, fault)) {
            return b;
        }
    }
    bytes_close(b);
    return NULL;
}

void bytes_close(struct bytes *b)
{
    if (b != NULL) {
        if (b->file >= 0) {
            (void) close(b->file);
        }
        decoder_close(b->decoder);
        free(b);
    }
}

/* Gives out what the mark was found in, then reads into the caller's memory. */
static ptrdiff_t read_plain(struct bytes *b, unsigned char *out, size_t size, struct fault *fault)
{
    const size_t ready = b->end - b->at;
    if (ready != 0) {
        const size_t given = ready < size ? ready : size;
        memcpy(out, b->piece + b->at, given);
        b->at += given;
        return (ptrdiff_t) given;
    }
    const ssize_t got = b->ended ? 0 : read(b->file, out, size);
    if (got < 0) {
        (void) snprintf(fault->text, sizeof(fault->text), "cannot be read: %s", strerror(errno));
        return errno == EINTR ? -2 : -1;
    }
    b->ended = got == 0;
    b->done += (size_t) got;
    return got;
}

static ptrdiff_t read_compressed(struct bytes *b, unsigned char *out, size_t size, struct fault *fault)
{
    struct decoding at = {NULL, 0, out, size};
    /* Once more at the end of the file: the decoder may still hold what had no room. */
    bool last = false;
    while (at.out == out && !last && b->wrong == NULL) {
        if (b->at == b->end && !b->ended) {
            b->at = b->end = 0;
            const ptrdiff_t result = fill(b, fault);
            if (result != 0) {
                return result;
            }
        }
        last = b->ended && b->at == b->end;
        at.in = b->piece + b->at;
        at.in_size = b->end - b->at;
        b->wrong = decoder_run(b->decoder, &at);
        b->at = b->end - at.in_size;
    }
    if (at.out == out && b->wrong == NULL && !decoder_is_whole(b->decoder)) {
        b->wrong = "is cut off: its compressed data has no end";
    }
    if (at.out == out && b->wrong != NULL) { /* what was decoded before is given out first */
        (void) snprintf(fault->text, sizeof(fault->text), "%s", b->wrong);
        return -1;
    }
    return at.out - out;
}

ptrdiff_t bytes_read(struct bytes *b, void *out, size_t size, struct fault *fault)
{
    return b->decoder != NULL ? read_compressed(b, out, size, fault) : read_plain(b, out, size, fault);
}

uint64_t bytes_done(const struct bytes *b)
{
    return b->done;
}

uint64_t bytes_total(const struct bytes *b)
{
    return b->total;
}
