/* SPDX-License-Identifier: Apache-2.0 */
/*
 * liburcu's lock-free hash table with an atomic theoretical arrival time per key. Lookups are wait-free under QSBR, the
 * flavor whose read side costs nothing: threads say they are quiescent between batches, as an event loop would. The
 * table is sized at open and does not resize; nodes come from one array, a cache line each, and are never removed.
 */
#include <stdatomic.h>

#define URCU_INLINE_SMALL_FUNCTIONS
#include <urcu/urcu-qsbr.h>

#include <urcu/rculfhash.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "peers/gcra.h"

/* Nodes lost to threads that added the same key at once. */
#define SPARE_COUNT 4096

struct node {
    _Alignas(64) struct cds_lfht_node link;
    unsigned char key[PEER_KEY_SIZE];
    _Atomic uint64_t tat;
};

static struct cds_lfht *table;
static struct gcra_rule rule;
static struct node *nodes;
static size_t node_count;
static _Atomic size_t used_count;

static const char *open_lfht(const struct peer_limit *limit, size_t key_count)
{
    size_t bucket_count = 64;
    while (bucket_count < key_count) {
        bucket_count *= 2;
    }
    rule = gcra_rule_of(limit);
    node_count = key_count + SPARE_COUNT;
    nodes = peer_allocate(node_count * sizeof(*nodes));
    if (nodes == NULL) {
        return "no memory";
    }
    atomic_store_explicit(&used_count, 0, memory_order_relaxed);
    table = cds_lfht_new_flavor(bucket_count, bucket_count, bucket_count, 0, &urcu_qsbr_flavor, NULL);
    if (table == NULL) {
        peer_free(nodes, node_count * sizeof(*nodes));
        return "no memory";
    }
    return NULL;
}

static void close_lfht(void)
{
    struct cds_lfht_iter iter;
    struct node *node;
    urcu_qsbr_register_thread();
    cds_lfht_for_each_entry(table, &iter, node, link)
    {
        (void) cds_lfht_del(table, &node->link);
    }
    urcu_qsbr_synchronize_rcu();
    urcu_qsbr_unregister_thread();
    (void) cds_lfht_destroy(table, NULL);
    peer_free(nodes, node_count * sizeof(*nodes));
}

static int is_key(struct cds_lfht_node *link, const void *key)
{
    return memcmp(caa_container_of(link, struct node, link)->key, key, PEER_KEY_SIZE) == 0;
}

/* The node of a key not found: added now, here or by another thread. NULL: all nodes are used. */
static struct node *add(const unsigned char *key, unsigned long hash)
{
    const size_t at = atomic_fetch_add_explicit(&used_count, 1, memory_order_relaxed);
    if (at >= node_count) {
        return NULL;
    }
    struct node *node = &nodes[at];
    cds_lfht_node_init(&node->link);
    memcpy(node->key, key, PEER_KEY_SIZE);
    return caa_container_of(cds_lfht_add_unique(table, hash, is_key, key, &node->link), struct node, link);
}

static uint64_t run_lfht(void *thread, struct peer_draws *draws, uint64_t count)
{
    (void) thread;
    const struct gcra_rule own = rule;
    uint64_t allowed = 0;
    for (uint64_t i = 0; i < count; i++) {
        unsigned char key[PEER_KEY_SIZE];
        peer_next_key(draws, key);
        const unsigned long hash = XXH3_64bits(key, sizeof(key));
        struct cds_lfht_iter iter;
        urcu_qsbr_read_lock();
        cds_lfht_lookup(table, hash, is_key, key, &iter);
        struct cds_lfht_node *link = cds_lfht_iter_get_node(&iter);
        struct node *node = link != NULL ? caa_container_of(link, struct node, link) : add(key, hash);
        allowed += node != NULL && gcra_take(&node->tat, &own, peer_now_ns());
        urcu_qsbr_read_unlock();
    }
    urcu_qsbr_quiescent_state();
    return allowed;
}

static void *attach_lfht(void)
{
    urcu_qsbr_register_thread();
    return NULL;
}

static void detach_lfht(void *thread)
{
    (void) thread;
    urcu_qsbr_unregister_thread();
}

const struct peer peer_lfht_gcra = {.name = "lfht_gcra",
                                    .keyed = true,
                                    .threads = true,
                                    .batch = 1000,
                                    .open = open_lfht,
                                    .close = close_lfht,
                                    .attach = attach_lfht,
                                    .detach = detach_lfht,
                                    .run = run_lfht};
