/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Traces of any bytes: lines, captures of packets, and what gzip and zstd have made of either. A trace that comes in
 * small pieces, as through a pipe, reads as one that comes at once, and so does one that is compressed. Merged, its
 * requests are all there, in order.
 */
#include <zlib.h>
#include <zstd.h>

#include "../../apps/weir/trace/merge.h"
#include "fuzz.h"

/* What a few bytes can become by decompression is too much to read all of it. */
#define RECORDS_MOST 2000

static const struct selection selection = {.key = KEY_ADDRESS, .prefix = 64};
static size_t piece; /* what one read gives at most */

ssize_t __real_read(int fd, void *bytes, size_t size);
ssize_t __wrap_read(int fd, void *bytes, size_t size);

ssize_t __wrap_read(int fd, void *bytes, size_t size)
{
    return __real_read(fd, bytes, size < piece ? size : piece);
}

/* What was read of a trace. */
struct outcome {
    bool opened, malformed, failed;
    uint64_t lines, records, malformed_lines, sum;
    char fault[sizeof(((struct fault *) NULL)->text)];
};

/* Mixes a record into a sum of all. */
static uint64_t mix(uint64_t sum, const struct record *r)
{
    sum = (sum ^ r->time_ms) * UINT64_C(0x100000001b3);
    sum = (sum ^ r->cost ^ (uint64_t) r->address << 62 ^ (uint64_t) r->whole << 63) * UINT64_C(0x100000001b3);
    for (size_t i = 0; i < r->length; i++) {
        sum = (sum ^ (unsigned char) r->key[i]) * UINT64_C(0x100000001b3);
    }
    return sum;
}

static struct outcome read_trace(const char *path, size_t most)
{
    struct outcome out;
    struct trace t;
    memset(&out, 0, sizeof(out));
    piece = most;
    out.opened = trace_open(&t, path, NULL, &selection, &out.malformed);
    while (out.opened && t.record_count < RECORDS_MOST && trace_next(&t)) {
        CHECK(t.head.length <= KEY_MOST);
        out.sum = mix(out.sum, &t.head);
    }
    out.failed = t.failed;
    out.lines = t.line_count;
    out.records = t.record_count;
    out.malformed_lines = t.malformed_count;
    (void) snprintf(out.fault, sizeof(out.fault), "%s", out.opened && !t.failed ? "" : t.fault.text);
    CHECK(strnlen(t.example, sizeof(t.example)) < sizeof(t.example));
    CHECK(out.lines >= out.records + out.malformed_lines);
    trace_close(&t);
    return out;
}

/* Requests as they come out of a merge. */
struct merged {
    uint64_t count, time_ms, pauses;
};

static void take_requests(void *arg, const struct request *requests, size_t count)
{
    struct merged *merged = arg;
    CHECK(count >= 1 && count <= MERGE_BATCH);
    for (size_t i = 0; i < count; i++) {
        CHECK(requests[i].time_ms >= merged->time_ms && requests[i].length <= KEY_MOST && requests[i].cost != 0);
        merged->time_ms = requests[i].time_ms;
        merged->count++;
    }
}

static bool go_on(void *arg)
{
    struct merged *merged = arg;
    return ++merged->pauses < 100;
}

static void check_merge(const char *path)
{
    struct trace t;
    bool malformed;
    struct merged merged = {.count = 0};
    struct merge_counts counts;
    const struct merge_taker taker = {take_requests, go_on, &merged};
    piece = SIZE_MAX;
    CHECK(trace_open(&t, path, NULL, &selection, &malformed));
    CHECK(merge_run(&t, 1, MERGE_WAIT_S, &taker, &counts));
    CHECK(merged.count == t.record_count); /* less those that were left out for their times */
    CHECK(counts.reordered <= merged.count);
    trace_close(&t);
}

/* Compresses bytes to a member of gzip, or to a frame of zstd. Returns its size. */
static size_t compress_part(bool by_zstd, const uint8_t *data, size_t size, uint8_t *out, size_t room)
{
    if (by_zstd) {
        const size_t made = ZSTD_compress(out, room, data, size, 1);
        CHECK(ZSTD_isError(made) == 0);
        return made;
    }
    z_stream z = {
        .next_in = (Bytef *) (uintptr_t) data, .avail_in = (uInt) size, .next_out = out, .avail_out = (uInt) room};
    CHECK(deflateInit2(&z, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
    CHECK(deflate(&z, Z_FINISH) == Z_STREAM_END);
    CHECK(deflateEnd(&z) == Z_OK);
    return room - z.avail_out;
}

/* The same trace in two members or frames. */
static void check_compressed(const uint8_t *data, size_t size, const struct outcome *plain)
{
    const size_t half = size / 2;
    const size_t room = 2 * size + 256;
    const bool by_zstd = size % 3 == 0;
    uint8_t *made = malloc(room);
    CHECK(made != NULL);
    const size_t first = compress_part(by_zstd, data, half, made, room);
    const size_t both = first + compress_part(by_zstd, data + half, size - half, made + first, room - first);
    const struct outcome again = read_trace(input_file(made, both), 1 + size % 50);
    CHECK(memcmp(&again, plain, sizeof(again)) == 0);
    free(made);
}

/* Whether a trace is compressed, or so begins that it may be. */
static bool is_compressed(const uint8_t *data, size_t size)
{
    return size >= 2 && ((data[0] == 0x1f && data[1] == 0x8b) || (data[0] == 0x28 && data[1] == 0xb5));
}

/* libzstd gives out less of what stands before a damage where it has all of a frame at once. */
static bool is_damaged_zstd(const uint8_t *data, size_t size, const struct outcome *whole)
{
    return size >= 4 && memcmp(data, "\x28\xb5\x2f\xfd", 4) == 0 && whole->fault[0] != '\0';
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *path = input_file(data, size);
    const struct outcome whole = read_trace(path, SIZE_MAX);
    const struct outcome pieces = read_trace(path, 1 + size % 7);
    CHECK(is_damaged_zstd(data, size, &whole) || memcmp(&whole, &pieces, sizeof(whole)) == 0);
    if (whole.opened && whole.records < RECORDS_MOST) {
        check_merge(path);
    }
    if (!is_compressed(data, size)) {
        check_compressed(data, size, &whole);
    }
    return 0;
}
