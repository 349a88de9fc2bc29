/* SPDX-License-Identifier: Apache-2.0 */
/* See decoder.h. A file may have several members of gzip, or frames of zstd, one behind the other. */
#include "decoder.h"

#include <stdlib.h>
#include <string.h>
#ifdef WEIR_HAS_ZLIB
#define ZLIB_CONST /* next_in is const */
#include <zlib.h>
#endif
#ifdef WEIR_HAS_ZSTD
#include <zstd.h>
#endif

struct decoder {
    enum compression compression;
    bool whole;
#ifdef WEIR_HAS_ZLIB
    z_stream zlib;
#endif
#ifdef WEIR_HAS_ZSTD
    ZSTD_DStream *zstd;
#endif
};

enum compression decoder_detect(const unsigned char *bytes, size_t size)
{
    if (size >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b) {
        return COMPRESSION_GZIP;
    }
    if (size >= 4 && memcmp(bytes, "\x28\xb5\x2f\xfd", 4) == 0) {
        return COMPRESSION_ZSTD;
    }
    return COMPRESSION_NONE;
}

/* zlib's number for a window of 32 KiB, in the gzip format. */
#define GZIP_WINDOW (15 + 16)

static bool open_library(struct decoder *d, const char **why)
{
    if (d->compression == COMPRESSION_GZIP) {
#ifdef WEIR_HAS_ZLIB
        *why = "out of memory";
        return inflateInit2(&d->zlib, GZIP_WINDOW) == Z_OK;
#else
        *why = "is compressed by gzip, and this weir was built without zlib (zlib1g-dev); pipe it through gzip -dc";
        return false;
#endif
    }
#ifdef WEIR_HAS_ZSTD
    *why = "out of memory";
    d->zstd = ZSTD_createDStream();
    return d->zstd != NULL;
#else
    *why = "is compressed by zstd, and this weir was built without libzstd (libzstd-dev); pipe it through zstd -dc";
    return false;
#endif
}

struct decoder *decoder_open(enum compression compression, const char **why)
{
    struct decoder *d = calloc(1, sizeof(*d));
    *why = "out of memory";
    if (d != NULL) {
        d->compression = compression;
        if (!open_library(d, why)) {
            free(d);
            d = NULL;
        }
    }
    return d;
}

void decoder_close(struct decoder *d)
{
    if (d == NULL) {
        return;
    }
#ifdef WEIR_HAS_ZLIB
    if (d->compression == COMPRESSION_GZIP) {
        (void) inflateEnd(&d->zlib);
    }
#endif
#ifdef WEIR_HAS_ZSTD
    if (d->compression == COMPRESSION_ZSTD) {
        (void) ZSTD_freeDStream(d->zstd);
    }
#endif
    free(d);
}

#ifdef WEIR_HAS_ZLIB
static const char *run_gzip(struct decoder *d, struct decoding *at)
{
    while (at->in_size != 0 && at->out_size != 0) {
        /* Zeros behind the last member are what tapes and some tools fill up with. */
        if (d->whole && *at->in == 0) {
            at->in++;
            at->in_size--;
            continue;
        }
        if (d->whole && inflateReset(&d->zlib) != Z_OK) {
            return "cannot be decompressed";
        }
        d->whole = false;
        d->zlib.next_in = at->in;
        d->zlib.avail_in = (uInt) at->in_size;
        d->zlib.next_out = at->out;
        d->zlib.avail_out = (uInt) at->out_size;
        const int result = inflate(&d->zlib, Z_NO_FLUSH);
        at->in = d->zlib.next_in;
        at->in_size = d->zlib.avail_in;
        at->out = d->zlib.next_out;
        at->out_size = d->zlib.avail_out;
        if (result == Z_STREAM_END) {
            d->whole = true;
        } else if (result != Z_OK) {
            return result == Z_MEM_ERROR ? "out of memory" : "is damaged: gzip cannot decompress it";
        }
    }
    return NULL;
}
#endif

#ifdef WEIR_HAS_ZSTD
static const char *run_zstd(struct decoder *d, struct decoding *at)
{
    ZSTD_inBuffer in = {at->in, at->in_size, 0};
    ZSTD_outBuffer out = {at->out, at->out_size, 0};
    const char *wrong = NULL;
    while (in.pos < in.size && out.pos < out.size && wrong == NULL) {
        const size_t result = ZSTD_decompressStream(d->zstd, &out, &in);
        wrong = ZSTD_isError(result) ? "is damaged: zstd cannot decompress it" : NULL;
        d->whole = result == 0;
    }
    at->in += in.pos;
    at->in_size -= in.pos;
    at->out += out.pos;
    at->out_size -= out.pos;
    return wrong;
}
#endif

const char *decoder_run(struct decoder *d, struct decoding *at)
{
#ifdef WEIR_HAS_ZLIB
    if (d->compression == COMPRESSION_GZIP) {
        return run_gzip(d, at);
    }
#endif
#ifdef WEIR_HAS_ZSTD
    if (d->compression == COMPRESSION_ZSTD) {
        return run_zstd(d, at);
    }
#endif
    (void) at;
    return d->compression == COMPRESSION_NONE ? NULL : "cannot be decompressed";
}

bool decoder_is_whole(const struct decoder *d)
{
    return d->whole;
}
