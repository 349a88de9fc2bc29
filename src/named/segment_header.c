/* SPDX-License-Identifier: Apache-2.0 */
/* See segment_header.h. */
#include "named/segment_header.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/atomics.h"
#include "base/error.h"
#include "base/hash.h"
#include "thread/joined.h"

/* 16 bytes with the 0. */
static const char the_mark[sizeof(((struct segment_header *) NULL)->mark)] = "weir segment";

/* A stored word that is no 0 and no 1 is no flag. */
#define READY UINT32_C(0x77656972)

/* The options with a number, in the order in which they are compared. */
static const struct number {
    const char *name;
    size_t offset;
} numbers[] = {
#define NUMBER(field)                                                                                                  \
    {                                                                                                                  \
#field, offsetof(struct segment_options, field)                                                                \
    }
    NUMBER(max_keys), NUMBER(max_threads),      NUMBER(max_log_units),    NUMBER(max_processes),
    NUMBER(tick_us),  NUMBER(sync_interval_ms), NUMBER(redis_timeout_ms), NUMBER(expected_nodes),
#undef NUMBER
};

#define NUMBER_COUNT (sizeof(numbers) / sizeof(numbers[0]))

/* The inode of a namespace of this process; 0: not known. */
static uint64_t namespace_of(const char *path)
{
    struct stat about;
    return stat(path, &about) == 0 ? about.st_ino : 0;
}

static uint64_t time_namespace(void)
{
    return namespace_of("/proc/self/ns/time"); /* before Linux 5.6 there are none */
}

/* A hash of a redis_url, without what stands before its last '@': the user and the password may change. */
static void hash_url(const char *url, unsigned char out[RECORD_HASH_SIZE])
{
    struct record_hash hash;
    const char *scheme_end = strstr(url, "//");
    const char *login_end = strrchr(url, '@');
    const char *rest = scheme_end != NULL ? scheme_end + 2 : url;
    rest = login_end != NULL ? login_end + 1 : rest;
    record_hash_init(&hash, NULL);
    record_hash_of(&hash, rest, strlen(rest), out);
}

static struct segment_options options_of(const weir_options *options)
{
    struct segment_options out;
    memset(&out, 0, sizeof(out)); /* the bytes between fields too: they are in the check */
    out.max_keys = options->max_keys;
    out.max_threads = options->max_threads;
    out.max_log_units = options->max_log_units;
    out.max_processes = options->max_processes;
    out.tick_us = options->tick_us;
    out.sync_interval_ms = options->sync_interval_ms;
    out.redis_timeout_ms = options->redis_timeout_ms;
    out.expected_nodes = options->expected_nodes;
    out.has_redis_url = options->redis_url != NULL;
    out.has_fleet_secret = options->fleet_secret != NULL;
    out.has_clock = options->clock != NULL;
    (void) snprintf(out.prefix, sizeof(out.prefix), "%s", options->prefix);
    if (options->redis_url != NULL) {
        hash_url(options->redis_url, out.redis_url);
    }
    if (options->fleet_secret != NULL) {
        struct record_hash hash;
        record_hash_init(&hash, options->fleet_secret);
        record_hash_of(&hash, the_mark, sizeof(the_mark), out.fleet_secret);
    }
    return out;
}

static uint64_t check_of(const struct segment_header *header)
{
    uint64_t hash[2];
    struct segment_header copy;
    memcpy((void *) &copy, (const void *) header, sizeof(copy));
    store_relaxed(&copy.ready, 0); /* a copy of this thread's own */
    hash_shared(&copy, offsetof(struct segment_header, check), hash);
    return hash[0] ^ hash[1];
}

int segment_header_read(int fd, struct segment_header *header, enum segment_state *state)
{
    struct stat about;
    memset((void *) header, 0, sizeof(*header));
    if (fstat(fd, &about) != 0 || pread(fd, header, sizeof(*header), 0) < 0) {
        return -errno;
    }
    if (about.st_size == 0) {
        *state = SEGMENT_EMPTY;
    } else if (memcmp(header->mark, the_mark, sizeof(the_mark)) != 0) {
        *state = SEGMENT_FOREIGN;
    } else {
        /* Relaxed: under the lock, which the creator has given back or died with. */
        *state = load_relaxed(&header->ready) == 0 ? SEGMENT_HALF : SEGMENT_COMPLETE;
    }
    return 0;
}

int segment_header_begin(int fd)
{
    return pwrite(fd, the_mark, sizeof(the_mark), 0) == (ssize_t) sizeof(the_mark) ? 0 : -errno;
}

void segment_header_end(struct segment_header *header, const weir_options *options, uint64_t size, uint64_t id)
{
    header->layout = SEGMENT_LAYOUT;
    (void) snprintf(header->version, sizeof(header->version), "%s", weir_version());
    header->size = size;
    header->id = id;
    header->pid_namespace = joined_pid_namespace();
    header->time_namespace = time_namespace();
    header->options = options_of(options);
    header->check = check_of(header);
    store_release(&header->ready, READY); /* the next opener takes the lock; this is for one that reads a copy */
}

static uint64_t option_at(const struct segment_options *options, size_t i)
{
    uint64_t value;
    memcpy(&value, (const unsigned char *) options + numbers[i].offset, sizeof(value));
    return value;
}

/* What to do about an option that differs, behind what it is here and there. */
#define ALIKE "; give all processes the same, or remove the segment with weir_unlink"

static int compare_texts(const struct segment_options *here, const struct segment_options *there, weir_error *error)
{
    static const char *const has[] = {"NULL", "not NULL"};
    if (strncmp(here->prefix, there->prefix, sizeof(here->prefix)) != 0) {
        return error_set(error, -EINVAL, "options: prefix is \"%s\", and the segment has \"%.*s\"" ALIKE, here->prefix,
                         PREFIX_MAX, there->prefix);
    }
    if (here->has_redis_url != there->has_redis_url) {
        return error_set(error, -EINVAL, "options: redis_url is %s, and that of the segment is %s" ALIKE,
                         has[here->has_redis_url], has[there->has_redis_url & 1]);
    }
    if (memcmp(here->redis_url, there->redis_url, sizeof(here->redis_url)) != 0) {
        return error_set(error, -EINVAL, "options: redis_url has other servers than that of the segment" ALIKE);
    }
    if (here->has_fleet_secret != there->has_fleet_secret ||
        memcmp(here->fleet_secret, there->fleet_secret, sizeof(here->fleet_secret)) != 0) {
        return error_set(error, -EINVAL, "options: fleet_secret is another one than that of the segment" ALIKE);
    }
    if (here->has_clock != there->has_clock) {
        return error_set(error, -EINVAL, "options: clock is %s, and that of the segment is %s" ALIKE,
                         has[here->has_clock], has[there->has_clock & 1]);
    }
    return 0;
}

static int compare_options(const struct segment_options *here, const struct segment_options *there, weir_error *error)
{
    for (size_t i = 0; i < NUMBER_COUNT; i++) {
        if (option_at(here, i) != option_at(there, i)) {
            return error_set(error, -EINVAL, "options: %s is %" PRIu64 ", and the segment was made with %" PRIu64 ALIKE,
                             numbers[i].name, option_at(here, i), option_at(there, i));
        }
    }
    return compare_texts(here, there, error);
}

static int damaged(const char *what, weir_error *error)
{
    return error_set(error, -EBADMSG,
                     "the segment is damaged: its %s is wrong; stop its processes and remove it with weir_unlink",
                     what);
}

int segment_header_check(const struct segment_header *header, uint64_t size, const weir_options *options,
                         weir_error *error)
{
    const uint64_t pids = joined_pid_namespace();
    const uint64_t times = time_namespace();
    const struct segment_options here = options_of(options);
    if (load_relaxed(&header->ready) != READY) { /* under the lock */
        return damaged("header", error);
    }
    if (header->layout != SEGMENT_LAYOUT || strncmp(header->version, weir_version(), sizeof(header->version)) != 0) {
        return error_set(error, -EPROTO,
                         "the segment is of weir %.*s with layout %" PRIu32 ", and this is weir %s with layout %d; "
                         "choose another shared_name, or stop its processes and remove it with weir_unlink",
                         (int) sizeof(header->version) - 1, header->version, header->layout, weir_version(),
                         SEGMENT_LAYOUT);
    }
    if (header->check != check_of(header)) {
        return damaged("header", error);
    }
    if (header->size != size) {
        return damaged("size", error);
    }
    if ((pids != 0 && header->pid_namespace != 0 && pids != header->pid_namespace) ||
        (times != 0 && header->time_namespace != 0 && times != header->time_namespace)) {
        return error_set(error, -EXDEV,
                         "the segment is of another %s namespace, so its processes cannot be told apart; run all of "
                         "them in one, or remove it with weir_unlink",
                         pids != header->pid_namespace ? "PID" : "time");
    }
    return compare_options(&here, &header->options, error);
}
