/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See record.h.
 *
 * The file of a full or broken disk costs the workers nothing: the thread alone touches the file. It says so once,
 * loses what is sampled meanwhile, and tries again every RETRY_MS.
 */
#include "record.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../clock.h"
#include "../log.h"
#include "capture_file.h"
#include "pcapng.h"
#include "ring.h"
#include "sampler.h"

#define TURN_MS  50
#define RETRY_MS 5000
/* Blocks are written together up to so many bytes; room for the largest packet. */
#define BATCH_SIZE ((size_t) 192 << 10)

struct record_view {
    struct sampler sampler;
    struct ring ring;
    size_t snap;
    uint32_t second; /* of the last denial */
    _Atomic uint64_t lost;
};

struct record {
    struct record_options options;
    const struct policies *policies;
    struct capture_file file;
    pthread_t thread;
    _Atomic bool stopping, reopens, fails;
    _Atomic uint64_t packets, unwritten;
    uint64_t retry_ns;
    bool retries; /* the file fails, and the next packets are tried */
    unsigned view_count;
    size_t batch_length, batch_packets;
    unsigned char batch[BATCH_SIZE];
    struct record_view views[];
};

static uint64_t wall_ns(void)
{
    struct timespec now;
    (void) clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t) now.tv_sec * UINT64_C(1000000000) + (uint64_t) now.tv_nsec;
}

void record_denied(struct record_view *view, const struct address *from, const struct address *to,
                   const unsigned char *data, size_t size, size_t policy, uint32_t now)
{
    if (now - view->second > 1) {
        sampler_rest(&view->sampler);
    }
    view->second = now;
    if (sampler_skips(&view->sampler) || !sampler_take(&view->sampler, clock_ns())) {
        return;
    }
    struct ring_packet *packet = ring_next(&view->ring);
    if (packet == NULL) {
        atomic_store_explicit(&view->lost, atomic_load_explicit(&view->lost, memory_order_relaxed) + 1,
                              memory_order_relaxed); /* one writer */
        return;
    }
    packet->time_ns = wall_ns();
    packet->stands_for = sampler_weight(&view->sampler);
    packet->from = *from;
    packet->to = *to;
    packet->size = (uint32_t) size;
    packet->captured = (uint32_t) (size < view->snap ? size : view->snap);
    packet->policy = (uint32_t) policy;
    memcpy(packet->data, data, packet->captured);
    ring_push(&view->ring);
}

/* Something about the file has failed. */
static void fail(struct record *record, const char *problem)
{
    record->retries = false;
    if (!atomic_exchange(&record->fails, true)) {
        log_line(WEIR_LOG_WARNING, "--record %s; what is denied is not recorded until that is mended", problem);
    }
    record->retry_ns = clock_ns() + RETRY_MS * UINT64_C(1000000);
}

/* Packets have been written. */
static void succeed(struct record *record)
{
    record->retries = false;
    if (atomic_exchange(&record->fails, false)) {
        log_line(WEIR_LOG_INFO, "--record %s: denied packets are recorded again", record->options.path);
    }
}

static void flush(struct record *record)
{
    char problem[CAPTURE_PROBLEM_SIZE];
    if (record->batch_packets == 0) {
        return;
    }
    if (atomic_load(&record->fails) && !record->retries) {
        (void) atomic_fetch_add(&record->unwritten, record->batch_packets);
    } else if (capture_file_write(&record->file, record->batch, record->batch_length, problem)) {
        (void) atomic_fetch_add(&record->packets, record->batch_packets);
        succeed(record);
    } else {
        (void) atomic_fetch_add(&record->unwritten, record->batch_packets);
        fail(record, problem);
    }
    record->batch_length = record->batch_packets = 0;
}

static void add(struct record *record, const struct ring_packet *packet)
{
    char comment[128];
    if (record->batch_length + PCAPNG_PACKET_SIZE + packet->captured > BATCH_SIZE) {
        flush(record);
    }
    (void) snprintf(comment, sizeof(comment), "denied by %s; stands for %" PRIu64,
                    record->policies->all[packet->policy].name, packet->stands_for);
    const struct pcapng_packet written = {.time_ns = packet->time_ns,
                                          .from = &packet->from,
                                          .to = &packet->to,
                                          .data = packet->data,
                                          .captured = packet->captured,
                                          .size = packet->size,
                                          .lost = packet->stands_for - 1,
                                          .comment = comment};
    record->batch_length += pcapng_packet(&written, record->batch + record->batch_length);
    record->batch_packets++;
}

/* Of the first packets of all queues, the oldest. NULL: all are empty. */
static struct record_view *find_oldest(struct record *record)
{
    struct record_view *oldest = NULL;
    uint64_t oldest_ns = UINT64_MAX;
    for (unsigned i = 0; i < record->view_count; i++) {
        const struct ring_packet *packet = ring_first(&record->views[i].ring);
        if (packet != NULL && packet->time_ns < oldest_ns) {
            oldest = &record->views[i];
            oldest_ns = packet->time_ns;
        }
    }
    return oldest;
}

/* Writes what is in the queues, the oldest first: no more than they hold, however fast they are filled again. */
static void drain(struct record *record)
{
    struct record_view *view;
    size_t left = 0;
    for (unsigned i = 0; i < record->view_count; i++) {
        left += record->views[i].ring.count;
    }
    for (; left != 0 && (view = find_oldest(record)) != NULL; left--) {
        add(record, ring_first(&view->ring));
        ring_drop(&view->ring);
    }
    flush(record);
}

static void *record_main(void *arg)
{
    struct record *record = arg;
    const struct timespec pause = {.tv_nsec = TURN_MS * 1000000L};
    bool stopping;
    do {
        (void) nanosleep(&pause, NULL);
        stopping = atomic_load(&record->stopping);
        const bool retries = atomic_load(&record->fails) && clock_ns() >= record->retry_ns;
        if (atomic_exchange(&record->reopens, false) || retries) {
            char problem[CAPTURE_PROBLEM_SIZE];
            record->retries = true; /* the next packets show whether there is room */
            if (!capture_file_reopen(&record->file, problem)) {
                fail(record, problem);
            }
        }
        drain(record);
    } while (!stopping);
    return NULL;
}

static void record_free(struct record *record)
{
    for (unsigned i = 0; i < record->view_count; i++) {
        ring_close(&record->views[i].ring);
    }
    capture_file_close(&record->file);
    free(record);
}

/* 0 or -ENOMEM. */
static int open_views(struct record *record, unsigned workers)
{
    const uint64_t price_ns = workers * UINT64_C(1000000000) / record->options.rate;
    int result = 0;
    for (unsigned i = 0; i < workers && result == 0; i++) {
        struct record_view *view = &record->views[i];
        sampler_open(&view->sampler, price_ns != 0 ? price_ns : 1, wall_ns() + i);
        view->snap = record->options.snap;
        result = ring_open(&view->ring, view->snap);
        record->view_count = i + 1;
    }
    return result;
}

struct record *record_start(const struct record_options *options, unsigned workers, const struct policies *policies)
{
    const size_t size = sizeof(struct record) + workers * sizeof(struct record_view);
    struct record *record = aligned_alloc(_Alignof(struct record), (size + 63) / 64 * 64);
    char problem[CAPTURE_PROBLEM_SIZE];
    if (record == NULL) {
        log_line(WEIR_LOG_ERROR, "--record %s: out of memory", options->path);
        return NULL;
    }
    memset(record, 0, size);
    record->options = *options;
    record->policies = policies;
    const bool opened = capture_file_open(&record->file, options->path, (uint64_t) options->size_mb << 20, problem);
    if (!opened && record->file.fd >= 0) {
        fail(record, problem); /* the file is there, and its disk is full: that keeps no gateway from starting */
    } else if (!opened) {
        log_line(WEIR_LOG_ERROR, "--record %s", problem);
        record_free(record);
        return NULL;
    }
    int result = open_views(record, workers);
    result = result == 0 ? -pthread_create(&record->thread, NULL, record_main, record) : result;
    if (result != 0) {
        log_line(WEIR_LOG_ERROR, "--record %s: %s", options->path, strerror(-result));
        record_free(record);
        return NULL;
    }
    return record;
}

void record_stop(struct record *record)
{
    if (record != NULL) {
        atomic_store(&record->stopping, true);
        (void) pthread_join(record->thread, NULL);
        record_free(record);
    }
}

struct record_view *record_view(struct record *record, unsigned index)
{
    return record != NULL ? &record->views[index] : NULL;
}

void record_reopen(struct record *record)
{
    if (record != NULL) {
        atomic_store(&record->reopens, true);
    }
}

bool record_get_status(struct record *record, struct record_status *out)
{
    if (record == NULL) {
        return false;
    }
    *out = (struct record_status){.path = record->options.path,
                                  .fails = atomic_load(&record->fails),
                                  .packets = atomic_load(&record->packets),
                                  .lost = atomic_load(&record->unwritten)};
    for (unsigned i = 0; i < record->view_count; i++) {
        out->lost += atomic_load_explicit(&record->views[i].lost, memory_order_relaxed);
    }
    return true;
}
