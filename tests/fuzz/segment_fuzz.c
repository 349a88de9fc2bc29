/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Headers of named segments, which whoever may open the memory may have written. One that is changed is refused with a
 * sentence, also where its check has been made good, or it is as its creator wrote it in all that processes agree on.
 *
 * An input is whether the check is made good (1 byte); how many bytes of the header there are (2); and bytes that are
 * changed: the place (2) and the byte (1) of each.
 */
#include <errno.h>
#include <fcntl.h>

#include "base/atomics.h"
#include "fuzz.h"
#include "named/segment_header.h"
#include "support/some_segment.h"

#define SEGMENT_SIZE UINT64_C(123456)

static enum segment_state state_of(const struct segment_header *header, size_t size)
{
    if (size == 0) {
        return SEGMENT_EMPTY;
    }
    if (memcmp(header->mark, "weir segment\0\0\0", sizeof(header->mark)) != 0) {
        return SEGMENT_FOREIGN;
    }
    return load_relaxed(&header->ready) == 0 ? SEGMENT_HALF : SEGMENT_COMPLETE;
}

/* Whether two headers are of segments that one process can use: they differ in their ids at most, and in `grants`. */
static bool agree(const struct segment_header *a, const struct segment_header *b)
{
    return load_relaxed(&a->ready) == load_relaxed(&b->ready) && a->layout == b->layout &&
           strncmp(a->version, b->version, sizeof(a->version)) == 0 && a->size == b->size &&
           memcmp(&a->options, &b->options, offsetof(struct segment_options, prefix)) == 0 &&
           strncmp(a->options.prefix, b->options.prefix, sizeof(a->options.prefix)) == 0 &&
           memcmp(a->options.redis_url, b->options.redis_url, RECORD_HASH_SIZE) == 0 &&
           memcmp(a->options.fleet_secret, b->options.fleet_secret, RECORD_HASH_SIZE) == 0;
}

static void check_header(const struct segment_header *header, const struct segment_header *good, bool is_repaired)
{
    const weir_options options = some_options();
    weir_error error = {.code = 0};
    const int result = segment_header_check(header, SEGMENT_SIZE, &options, &error);
    if (result == 0) {
        CHECK(agree(header, good));
        CHECK(is_repaired || memcmp(header, good, offsetof(struct segment_header, grants)) == 0);
        CHECK(segment_header_check(header, SEGMENT_SIZE + 1, &options, &error) == -EBADMSG);
    } else {
        CHECK(result == error.code);
        CHECK(result == -EPROTO || result == -EBADMSG || result == -EXDEV || result == -EINVAL);
        CHECK(memcmp(header, good, offsetof(struct segment_header, grants)) != 0);
    }
    if (result != 0) {
        check_sentence(error.message, sizeof(error.message));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, data + size};
    const weir_options options = some_options();
    struct segment_header good, changed, read;
    enum segment_state state;
    memset((void *) &good, 0, sizeof(good));
    memcpy(good.mark, "weir segment", sizeof("weir segment"));
    segment_header_end(&good, &options, SEGMENT_SIZE, 987);
    memcpy((void *) &changed, (const void *) &good, sizeof(changed));
    const bool is_repaired = input_choice(&in, 2) == 1;
    const size_t length = (size_t) input_number(&in, 2);
    while (in.end - in.at >= 3) {
        const size_t place = (size_t) input_number(&in, 2) % sizeof(changed);
        ((unsigned char *) &changed)[place] = (unsigned char) input_number(&in, 1);
    }
    if (is_repaired) {
        make_check_good(&changed);
    }
    const size_t present = length < sizeof(changed) ? length : sizeof(changed);
    memset((unsigned char *) &changed + present, 0, sizeof(changed) - present);
    const int fd = open(input_file(&changed, present), O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0 && segment_header_read(fd, &read, &state) == 0);
    (void) close(fd);
    CHECK(memcmp(&read, &changed, sizeof(read)) == 0 && state == state_of(&changed, present));
    if (state == SEGMENT_COMPLETE) {
        check_header(&read, &good, is_repaired);
    }
    return 0;
}
