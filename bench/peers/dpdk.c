/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DPDK: a single rate three color marker (RFC 2697) alone, and one per key found through rte_hash, one key at a time or
 * in bulk. In bulk the time is read once for all keys, as DPDK's example qos_meter reads it once for all packets of a
 * burst. What is green is allowed. None is thread-safe.
 *
 * A marker counts bytes per second. A request takes so many that the rate is at least one byte.
 */
#include <rte_cycles.h>
#include <rte_errno.h>
#include <rte_hash.h>
#include <rte_meter.h>
#include <rte_prefetch.h>

#include "peers/dpdk_env.h"
#include "peers/peer.h"

#define SECOND UINT64_C(1000000000)

/*
 * What rte_hash takes at most for an entry, bytes: two key slots' worth of buckets (16), the key and its data (32), and
 * two numbers of free entries (8). Beside that the allocator's own headers, and alignment.
 */
#define ENTRY_SIZE_MOST 56
#define HEAP_SPARE      ((size_t) 4 << 20)

static struct rte_meter_srtcm_profile profile;
static uint32_t request_size; /* bytes */
static struct rte_meter_srtcm one;
static struct rte_meter_srtcm *meters; /* by position in the table */
static size_t meters_size;
static struct rte_hash *table;

static const char *open_meter(const struct peer_limit *limit, size_t key_count)
{
    (void) key_count;
    if (!dpdk_ready()) {
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

static bool is_green(struct rte_meter_srtcm *meter, uint64_t now)
{
    return rte_meter_srtcm_color_blind_check(meter, &profile, now, request_size) == RTE_COLOR_GREEN;
}

static uint64_t run_meter(void *thread, struct peer_draws *draws, uint64_t count)
{
    (void) thread;
    (void) draws;
    uint64_t allowed = 0;
    for (uint64_t i = 0; i < count; i++) {
        allowed += is_green(&one, rte_rdtsc());
    }
    return allowed;
}

static const char *open_hash(const struct peer_limit *limit, size_t key_count)
{
    const char *problem = open_meter(limit, key_count);
    if (problem != NULL) {
        return problem;
    }
    const size_t entry_count = key_count + key_count / 4 + 64; /* its buckets fill to about 95% */
    const int socket = dpdk_heap_open(entry_count * ENTRY_SIZE_MOST + HEAP_SPARE);
    if (socket < 0) {
        return "no heap for DPDK";
    }
    const struct rte_hash_parameters parameters = {
        .name = "peer", .entries = (uint32_t) entry_count, .key_len = PEER_KEY_SIZE, .socket_id = socket};
    table = rte_hash_create(&parameters);
    if (table == NULL) {
        problem = rte_strerror(rte_errno);
        goto close_heap;
    }
    meters_size = (size_t) (rte_hash_max_key_id(table) + 1) * sizeof(*meters);
    meters = peer_allocate(meters_size);
    if (meters == NULL) {
        problem = "no memory";
        goto free_table;
    }
    return NULL;

free_table:
    rte_hash_free(table);
close_heap:
    dpdk_heap_close();
    return problem;
}

static void close_hash(void)
{
    rte_hash_free(table);
    dpdk_heap_close();
    peer_free(meters, meters_size);
}

/* The key's marker, new where the key is; NULL: the table is full. */
static struct rte_meter_srtcm *find(const void *key)
{
    int32_t at = rte_hash_lookup(table, key);
    if (at < 0) {
        at = rte_hash_add_key(table, key);
        if (at < 0) {
            return NULL;
        }
        (void) rte_meter_srtcm_config(&meters[at], &profile);
    }
    return &meters[at];
}

static uint64_t run_hash(void *thread, struct peer_draws *draws, uint64_t count)
{
    (void) thread;
    uint64_t allowed = 0;
    for (uint64_t i = 0; i < count; i++) {
        unsigned char key[PEER_KEY_SIZE];
        peer_next_key(draws, key);
        struct rte_meter_srtcm *meter = find(key);
        allowed += meter != NULL && is_green(meter, rte_rdtsc());
    }
    return allowed;
}

/* Checks `count` keys at once, PEER_BURST at most. */
static uint64_t check_bulk(struct peer_draws *draws, uint32_t count)
{
    unsigned char bytes[PEER_BURST][PEER_KEY_SIZE];
    const void *keys[PEER_BURST];
    int32_t at[PEER_BURST];
    for (uint32_t i = 0; i < count; i++) {
        peer_next_key(draws, bytes[i]);
        keys[i] = bytes[i];
    }
    (void) rte_hash_lookup_bulk(table, keys, count, at);
    for (uint32_t i = 0; i < count; i++) {
        if (at[i] >= 0) {
            rte_prefetch0(&meters[at[i]]);
        }
    }
    const uint64_t now = rte_rdtsc();
    uint64_t allowed = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct rte_meter_srtcm *meter = at[i] >= 0 ? &meters[at[i]] : find(keys[i]);
        allowed += meter != NULL && is_green(meter, now);
    }
    return allowed;
}

static uint64_t run_bulk(void *thread, struct peer_draws *draws, uint64_t count)
{
    (void) thread;
    uint64_t allowed = 0;
    for (uint64_t left = count; left != 0;) {
        const uint32_t size = left < PEER_BURST ? (uint32_t) left : PEER_BURST;
        allowed += check_bulk(draws, size);
        left -= size;
    }
    return allowed;
}

const struct peer peer_dpdk_meter = {
    .name = "dpdk_meter", .batch = 1000, .open = open_meter, .close = close_meter, .run = run_meter};
const struct peer peer_dpdk_hash = {
    .name = "dpdk_hash_meter", .keyed = true, .batch = 1000, .open = open_hash, .close = close_hash, .run = run_hash};
const struct peer peer_dpdk_bulk = {.name = "dpdk_bulk",
                                    .keyed = true,
                                    .bursts = true,
                                    .batch = 1024,
                                    .open = open_hash,
                                    .close = close_hash,
                                    .run = run_bulk};
