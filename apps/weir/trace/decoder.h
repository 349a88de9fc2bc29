/* SPDX-License-Identifier: Apache-2.0 */
/* Decompression of a stream, by the library that the format belongs to. */
#ifndef WEIR_TRACE_DECODER_H
#define WEIR_TRACE_DECODER_H

#include <stdbool.h>
#include <stddef.h>

struct decoder;

enum compression { COMPRESSION_NONE, COMPRESSION_GZIP, COMPRESSION_ZSTD };

/* What the first bytes of a stream tell; `size` may be less than what the longest mark has. */
enum compression decoder_detect(const unsigned char *bytes, size_t size);

/* NULL: *why says why, "this weir was built without ..." */
struct decoder *decoder_open(enum compression compression, const char **why);
void decoder_close(struct decoder *d);

/* Some bytes that are to be decoded, and room for decoded ones. Both move forward. */
struct decoding {
    const unsigned char *in;
    size_t in_size;
    unsigned char *out;
    size_t out_size;
};

/* Decodes as much as there is room for. NULL, or what is wrong with the stream. */
const char *decoder_run(struct decoder *d, struct decoding *at);

/* Whether a stream may end here: between two members or frames. */
bool decoder_is_whole(const struct decoder *d);

#endif
