/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DPDK: a single rate three color marker (RFC 2697) alone, and one per key found through rte_hash. What is green is
 * allowed. Neither is thread-safe. The environment is set up once in a process, without huge pages of its own and
 * without devices; its memory is then asked for huge pages as that of the other peers is.
 *
 * A marker counts bytes per second. A request takes so many that the rate is at least one byte.
 */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mman.h>

#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_hash.h>
#include <rte_meter.h>

#include "peers/peer.h"

#define SECOND UINT64_C(1000000000)

static struct rte_meter_srtcm_profile profile;
static uint32_t request_size; /* bytes */
static struct rte_meter_srtcm one;
static struct rte_meter_srtcm *meters; /* by position in the table */
static size_t meters_size;
static struct rte_hash *table;

static int ask_for_huge_pages(const struct rte_memseg_list *list, void *arg)
{
    (void) arg;
    (void) madvise(list->base_va, list->len, MADV_HUGEPAGE); /* a wish */
    return 0;
}

/* Sets the environment up at first use. It ties its caller to a processor, which is undone. */
static bool prepare(void)
{
    static enum { NEW, READY, FAILED } state = NEW;
    if (state == NEW) {
        char core[16];
        char *arguments[] = {"weir-bench",  "--no-huge", "--no-pci",    "--no-shconf", "--no-telemetry",
                             "--iova-mode", "va",        "--log-level", "error",       "--no-hpet",
                             "-m",          "3072",      "-l",          core};
        cpu_set_t allowed;
        (void) snprintf(core, sizeof(core), "%d", sched_getcpu());
        (void) pthread_getaffinity_np(pthread_self(), sizeof(allowed), &allowed);
        state = rte_eal_init(sizeof(arguments) / sizeof(arguments[0]), arguments) >= 0 ? READY : FAILED;
        (void) pthread_setaffinity_np(pthread_self(), sizeof(allowed), &allowed);
        if (state == READY) {
            (void) rte_memseg_list_walk(ask_for_huge_pages, NULL);
        }
    }
    return state == READY;
}

static const char *open_meter(const struct peer_limit *limit, size_t key_count)
{
    (void) key_count;
    if (!prepare()) {
        return "DPDK's environment does not start here";
    }
    const uint64_t size = (limit->period_ns / limit->units + SECOND - 1) / SECOND;
    request_size = (uint32_t) size;
    struct rte_meter_srtcm_params params = {
        .cir = (uint64_t) ((double) limit->units * (double) size * (double) SECOND / (double) limit->period_ns),
        .cbs = limit->burst * size,
    };
    if (rte_meter_srtcm_profile_config(&profile, &params) != 0 || rte_meter_srtcm_config(&one, &profile) != 0) {
        return "its marker does not take the limit";
    }
    return NULL;
}

static void close_meter(void)
{
}

static uint64_t run_meter(void *thread, struct peer_draws *draws, uint64_t count)
{
    (void) thread;
    (void) draws;
    uint64_t allowed = 0;
    for (uint64_t i = 0; i < count; i++) {
        allowed += rte_meter_srtcm_color_blind_check(&one, &profile, rte_rdtsc(), request_size) == RTE_COLOR_GREEN;
    }
    return allowed;
}

static const char *open_hash(const struct peer_limit *limit, size_t key_count)
{
    const char *problem = open_meter(limit, key_count);
    if (problem != NULL) {
        return problem;
    }
    /* Its buckets fill to about 95%. */
    const struct rte_hash_parameters parameters = {
        .name = "peer", .entries = (uint32_t) (key_count + key_count / 4 + 64), .key_len = PEER_KEY_SIZE};
    table = rte_hash_create(&parameters);
    if (table == NULL) {
        return rte_strerror(rte_errno);
    }
    meters_size = (size_t) (rte_hash_max_key_id(table) + 1) * sizeof(*meters);
    meters = peer_allocate(meters_size);
    if (meters == NULL) {
        rte_hash_free(table);
        return "no memory";
    }
    return NULL;
}

static void close_hash(void)
{
    rte_hash_free(table);
    peer_free(meters, meters_size);
}

static int32_t add(const unsigned char *key)
{
    const int32_t at = rte_hash_add_key(table, key);
    if (at >= 0) {
        (void) rte_meter_srtcm_config(&meters[at], &profile);
    }
    return at;
}

static uint64_t run_hash(void *thread, struct peer_draws *draws, uint64_t count)
{
    (void) thread;
    uint64_t allowed = 0;
    for (uint64_t i = 0; i < count; i++) {
        unsigned char key[PEER_KEY_SIZE];
        peer_next_key(draws, key);
        int32_t at = rte_hash_lookup(table, key);
        if (at < 0) {
            at = add(key);
        }
        allowed += at >= 0 && rte_meter_srtcm_color_blind_check(&meters[at], &profile, rte_rdtsc(), request_size) ==
                                  RTE_COLOR_GREEN;
    }
    return allowed;
}

const struct peer peer_dpdk_meter = {
    .name = "dpdk_meter", .batch = 1000, .open = open_meter, .close = close_meter, .run = run_meter};
const struct peer peer_dpdk_hash = {
    .name = "dpdk_hash_meter", .keyed = true, .batch = 1000, .open = open_hash, .close = close_hash, .run = run_hash};
