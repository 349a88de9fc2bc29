/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the chaos tests share: real servers, a proxy before the first of them, nodes as processes, and what the records
 * in Redis must say. Belongs to a test as its state, so that all processes end with the test, however that ends.
 *
 * WEIR_TEST_LONG: outages last as long as in the requirements. WEIR_TEST_LOG: nodes say what they log.
 * WEIR_TEST_ONLY: the tests of this name alone, which may have '*'.
 */
#ifndef WEIR_TESTS_CHAOS_H
#define WEIR_TESTS_CHAOS_H

#include "support/fleet_process.h"
#include "support/proxy.h"
#include "support/server.h"
#include "support/support.h"

#define CHAOS_NODES       8
#define CHAOS_POLICIES    4
#define CHAOS_ALL         0xfu /* of the policies that chaos_policies gives */
#define CHAOS_TIGHT       3
#define CHAOS_TIGHT_LIMIT 200
#define CHAOS_INTERVAL_MS 50
#define CHAOS_TIMEOUT_MS  400

struct chaos {
    struct server primary, replica;
    struct proxy proxy;
    struct fleet_config config;
    struct fleet_node nodes[CHAOS_NODES];
    size_t node_count;
    uint64_t seed;
};

/* The first call in main(). True: this process is a node, and has done its work. */
bool chaos_main(int argc, char **argv, int *exit_code);

int chaos_setup(void **state);
int chaos_teardown(void **state);
#define chaos_test(f) cmocka_unit_test_setup_teardown(f, chaos_setup, chaos_teardown)

/* The test's state with a server, the proxy, and a configuration of four policies over a day: "fixed", "sliding",
 * "bucket", which admit everything, and "tight". Skips where there is no redis-server. */
struct chaos *chaos_begin(void **state);
void chaos_policy(struct chaos *c, size_t i, weir_algorithm algorithm, uint64_t limit, uint64_t period_ns);
void chaos_nodes(struct chaos *c, size_t count); /* through the proxy, unless config.url says otherwise */

/* Starts a server with more options (NULL at the end), or again in its directory; `waits`: until it answers. */
void chaos_server(struct server *server, const char *const options[], bool waits);

/* A command by a user who may do everything, whatever became of other users. The caller frees the reply. */
redisReply *chaos_command(const struct server *server, const char *format, ...);
void chaos_do(const struct server *server, const char *format, ...);                        /* which must not fail */
uint64_t chaos_number(const struct server *server, const char *section, const char *field); /* of INFO */

/* Orders the work to all nodes (with seeds of their own), and waits until it is done. */
void chaos_work_begin(const struct chaos *c, struct fleet_work work);
void chaos_work_end(const struct chaos *c);
void chaos_work(const struct chaos *c, struct fleet_work work);
/* Most keys are not used again after 100 ms: no later use brings back what got lost of them. */
struct fleet_work chaos_usual_work(const struct chaos *c, uint32_t for_ms);

/* Every node reports everything, twice: the first time may still find that Redis has lost something. */
void chaos_settle(const struct chaos *c);

/* One order to one node, and its answer. */
struct fleet_answer chaos_ask(const struct chaos *c, size_t node, size_t policy, uint32_t key, uint64_t cost,
                              uint32_t times);
weir_stats chaos_stats(const struct chaos *c, size_t node);
uint64_t chaos_admitted(const struct chaos *c, size_t policy); /* by all nodes, dead ones as well */

/* What records say, by policy. All that is known of their fields is in chaos.c. */
struct chaos_sums {
    uint64_t sum; /* admitted, less refunds */
    size_t records;
    size_t authors;
};
struct chaos_sums chaos_sums(const struct server *server, const char *policy);
/* Of one key, or of one window of it: "key-7", "key-7:1234". */
struct chaos_sums chaos_key_sums(const struct server *server, const char *policy, const char *key);

/* All keys of weir's have a time to live. */
void chaos_all_expire(const struct server *server);

/* The records' sums are what the nodes admitted, each record's sum is its authors', and all expire. */
void chaos_compare(const struct chaos *c, const struct server *server);

/* Waits until verdicts of a node rest on this. */
void chaos_wait_basis(const struct chaos *c, size_t node, weir_basis basis);

/* Waits until each node knows of all that have been started. */
void chaos_wait_met(const struct chaos *c);

void chaos_nap_ms(uint64_t ms);
uint32_t chaos_long_ms(uint32_t usual_ms, uint32_t long_ms);

#endif
