/* SPDX-License-Identifier: Apache-2.0 */
/* See engine.h. */
#include "engine.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../listed_policies.h"
#include "../policy_probe.h"
#include "base/error.h"
#include "limiter/weir_open.h"
#include "transport/loopback/loopback.h"
#include "transport/transport.h"

#define NS_PER_MS      UINT64_C(1000000)
#define TIMEOUT_MS     1000
#define KEYS_LEAST     1000
#define KEYS_MOST      100000000
#define LOG_UNITS      4194304   /* the library's default */
#define LOG_UNITS_MOST 268435456 /* 2 GiB, of which what is used is present */

/*
 * One thread is attached. The more there may be, the fewer keys a thread has counters of its own for; and a weir with a
 * clock of the host looks at all of these counters whenever time moves, which is with nearly every request here.
 */
#define THREADS 1024

/* Nodes have met before the traffic begins. */
#define WARM_MS 2000

struct node {
    weir *w;
    weir_thread *thread;
    struct transport *transport; /* NULL: there is one node */
    weir_policy_id policy;
    weir_clock clock;
    uint64_t polled_ms, due_ms;
};

struct engine {
    struct engine_options options;
    uint64_t now_ms;
    bool queues; /* the policy has a leaky bucket: requests wait for their turn */
    struct loopback_fleet *fleet;
    struct node *nodes;
    unsigned turn; /* the node that takes the next request */
    const struct request *requests;
    weir_key keys[MERGE_BATCH];
    unsigned takers[MERGE_BATCH];
    char texts[MERGE_BATCH][INET6_ADDRSTRLEN]; /* keys that the policy wants as text */
};

/* Overrides that are put back after new policies. */
struct kept_overrides {
    char **all; /* name, value, name, value ... */
    size_t count, capacity;
};

static uint64_t clock_ns(void *arg)
{
    return ((const struct engine *) arg)->now_ms * NS_PER_MS;
}

static int set_form(weir *w, const char *policy, unsigned prefix, weir_error *error)
{
    char name[WEIR_MAX_NAME + 1];
    (void) snprintf(name, sizeof(name), "%.*s", (int) strcspn(policy, "/"), policy);
    return prefix == 0 ? 0 : weir_set_key_form(w, name, weir_address_form(prefix), error);
}

static int probe_once(const char *path, const char *policy, unsigned prefix, weir **out, weir_error *error)
{
    int result = policy_probe_open(NULL, out, error);
    if (result == 0 && policy != NULL) {
        result = set_form(*out, policy, prefix, error);
    }
    return result != 0 ? result : policy_probe_load(*out, path, error);
}

int engine_probe(const char *path, const char *policy, unsigned *prefix, weir **out, weir_error *error)
{
    int result = probe_once(path, policy, *prefix, out, error);
    if (result != 0 && *prefix != 0 && policy != NULL) {
        weir_close(*out);
        *prefix = 0;
        result = probe_once(path, policy, 0, out, error);
    }
    return result;
}

static void keep_override(void *arg, const weir_override *entry)
{
    struct kept_overrides *kept = arg;
    if (kept->count + 2 <= kept->capacity) {
        kept->all[kept->count++] = strdup(entry->name);
        kept->all[kept->count++] = strdup(entry->value);
    }
}

static int put_overrides(weir *w, struct kept_overrides *kept, weir_error *error)
{
    int result = 0;
    for (size_t i = 0; i < kept->count; i += 2) {
        if (result == 0) {
            result = kept->all[i] != NULL && kept->all[i + 1] != NULL
                         ? weir_set_override(w, kept->all[i], kept->all[i + 1], error)
                         : error_set(error, -ENOMEM, "out of memory");
        }
        free(kept->all[i]);
        free(kept->all[i + 1]);
    }
    free((void *) kept->all);
    return result;
}

/* A policy in shadow mode denies nothing. Here it denies, as what it would deny is the question. */
static int enforce(weir *w, const struct listed_policies *list, weir_error *error)
{
    struct kept_overrides kept = {.capacity = 2 * weir_list_overrides(w, keep_override, &(struct kept_overrides){0})};
    weir_policy *policies = calloc(list->count + 1, sizeof(*policies));
    kept.all = (char **) calloc(kept.capacity + 1, sizeof(*kept.all));
    int result = -ENOMEM;
    if (policies == NULL || kept.all == NULL) {
        kept.capacity = 0;
        (void) error_set(error, result, "out of memory");
    } else {
        for (size_t i = 0; i < list->count; i++) {
            policies[i] = list->all[i].policy;
            policies[i].mode = WEIR_ENFORCE;
        }
        (void) weir_list_overrides(w, keep_override, &kept);
        result = weir_set_policies(w, policies, list->count, error);
    }
    free(policies);
    const int put = put_overrides(w, &kept, error);
    return result != 0 ? result : put;
}

static bool has(const weir_policy *policy, weir_algorithm algorithm)
{
    for (size_t i = 0; i < policy->limit_count; i++) {
        if (policy->limits[i].algorithm == algorithm) {
            return true;
        }
    }
    return false;
}

/* Loads the file, and looks at the policy that is asked. */
static int load(struct engine *e, struct node *node, weir_error *error)
{
    struct listed_policies list = {NULL, 0, 0};
    int result = set_form(node->w, e->options.policy, e->options.prefix, error);
    result = result == 0 ? weir_load_policies(node->w, e->options.path, error) : result;
    if (result == 0 && !listed_policies_take(&list, node->w)) {
        result = error_set(error, -ENOMEM, "out of memory");
    }
    const weir_policy *policy =
        result == 0 ? listed_policies_find(&list, e->options.policy, strlen(e->options.policy)) : NULL;
    if (result == 0 && policy == NULL) {
        result = error_set(error, -ENOENT, "there is no policy \"%s\"", e->options.policy);
    } else if (result == 0) {
        e->queues = has(policy, WEIR_LEAKY_BUCKET);
        result = policy->mode == WEIR_SHADOW ? enforce(node->w, &list, error) : 0;
    }
    listed_policies_free(&list);
    node->policy = weir_find_policy(node->w, e->options.policy);
    return result;
}

/* How many entries and units of logs the policy needs; by a probe, as a weir has its memory from the start. */
static int size_memory(const struct engine *e, weir_options *options, weir_error *error)
{
    weir *probe = NULL;
    unsigned prefix = e->options.prefix;
    struct listed_policies list = {NULL, 0, 0};
    int result = engine_probe(e->options.path, e->options.policy, &prefix, &probe, error);
    if (result == 0 && !listed_policies_take(&list, probe)) {
        result = error_set(error, -ENOMEM, "out of memory");
    }
    const weir_policy *policy =
        result == 0 ? listed_policies_find(&list, e->options.policy, strlen(e->options.policy)) : NULL;
    size_t keys = e->options.max_keys, units = LOG_UNITS;
    for (size_t i = 0; policy != NULL && i < policy->limit_count; i++) {
        keys += i != 0 ? e->options.max_keys : 0;
        units +=
            policy->limits[i].algorithm == WEIR_SLIDING_LOG ? 4 * e->options.max_keys * policy->limits[i].limit : 0;
    }
    options->max_keys = keys < KEYS_LEAST ? KEYS_LEAST : keys < KEYS_MOST ? keys : KEYS_MOST;
    options->max_log_units = units < LOG_UNITS_MOST ? units : LOG_UNITS_MOST;
    listed_policies_free(&list);
    weir_close(probe);
    return result;
}

static int open_node(struct engine *e, struct node *node, const weir_options *given, weir_error *error)
{
    weir_options options = *given;
    const struct transport_config config = {.timeout_ms = TIMEOUT_MS};
    int result = 0;
    node->clock = (weir_clock){.monotonic_ns = clock_ns, .wall_ns = clock_ns, .arg = e};
    options.clock = &node->clock;
    if (e->fleet != NULL) {
        result = loopback_transport_open(e->fleet, &config, &node->transport, error);
    }
    if (result == 0) {
        result = weir_open_on(&options, node->transport, &node->w, error);
        node->transport = result == 0 ? node->transport : NULL;
    }
    result = result == 0 ? load(e, node, error) : result;
    node->thread = result == 0 ? weir_attach(node->w) : NULL;
    return result;
}

static void poll_node(struct engine *e, struct node *node)
{
    const int next_ms = weir_poll(node->w);
    node->polled_ms = e->now_ms;
    node->due_ms = e->now_ms + (next_ms > 0 ? (uint64_t) next_ms : 1);
}

/* Moves a fleet's time, and polls nodes when they have asked for it. */
static void move_fleet(struct engine *e, uint64_t time_ms)
{
    for (;;) {
        uint64_t next_ms = time_ms;
        for (unsigned i = 0; i < e->options.nodes; i++) {
            next_ms = e->nodes[i].due_ms < next_ms ? e->nodes[i].due_ms : next_ms;
        }
        e->now_ms = next_ms > e->now_ms ? next_ms : e->now_ms;
        loopback_fleet_run(e->fleet);
        for (unsigned i = 0; i < e->options.nodes; i++) {
            if (e->nodes[i].due_ms <= e->now_ms) {
                poll_node(e, &e->nodes[i]);
            }
        }
        if (e->now_ms >= time_ms) {
            return;
        }
    }
}

struct engine *engine_open(const struct engine_options *options, uint64_t start_ms, weir_error *error)
{
    weir_options weir_options_now = WEIR_OPTIONS_INIT;
    struct engine *e = calloc(1, sizeof(*e));
    struct node *nodes = calloc(options->nodes, sizeof(*nodes));
    if (e == NULL || nodes == NULL) {
        free(e);
        free(nodes);
        (void) error_set(error, -ENOMEM, "out of memory");
        return NULL;
    }
    *e = (struct engine){.options = *options, .now_ms = start_ms, .nodes = nodes};
    weir_options_now.no_denial_log = true;
    weir_options_now.max_threads = THREADS;
    weir_options_now.node_name = "simulated";
    weir_options_now.expected_nodes = options->nodes;
    int result = size_memory(e, &weir_options_now, error);
    if (result == 0 && options->nodes > 1) {
        e->now_ms = start_ms - (start_ms > WARM_MS ? WARM_MS : 0);
        e->fleet = loopback_fleet_new(clock_ns, e);
        result = e->fleet != NULL ? 0 : error_set(error, -ENOMEM, "out of memory");
    }
    for (unsigned i = 0; result == 0 && i < options->nodes; i++) {
        result = open_node(e, &nodes[i], &weir_options_now, error);
    }
    if (result != 0) {
        engine_close(e);
        return NULL;
    }
    if (e->fleet != NULL) {
        move_fleet(e, start_ms);
    }
    return e;
}

void engine_close(struct engine *e)
{
    if (e == NULL) {
        return;
    }
    for (unsigned i = 0; i < e->options.nodes; i++) {
        if (e->nodes[i].transport != NULL) {
            loopback_transport_kill(e->nodes[i].transport);
        }
        weir_close(e->nodes[i].w);
    }
    if (e->fleet != NULL) {
        loopback_fleet_free(e->fleet);
    }
    free(e->nodes);
    free(e);
}

/* The bytes of a key: an address is text where the policy's keys are no addresses. */
static weir_key key_of(struct engine *e, const struct node *node, const struct request *r, char *text)
{
    if (r->address && e->options.prefix == 0) {
        unsigned char whole[16] = {0};
        memcpy(whole, r->key, r->length);
        (void) inet_ntop(r->length == 4 ? AF_INET : AF_INET6, whole, text, INET6_ADDRSTRLEN);
        return weir_make_key(node->w, node->policy, text, strlen(text));
    }
    return weir_make_key(node->w, node->policy, r->key, r->length);
}

void engine_begin(struct engine *e, const struct request *requests)
{
    e->requests = requests;
}

void engine_prepare(struct engine *e, size_t number)
{
    const struct node *node = &e->nodes[e->turn];
    e->takers[number] = e->turn;
    e->keys[number] = key_of(e, node, &e->requests[number], e->texts[number]);
    weir_prefetch(node->thread, &e->keys[number]);
    e->turn = e->turn + 1 < e->options.nodes ? e->turn + 1 : 0;
}

enum decision engine_decide(struct engine *e, size_t number)
{
    const struct request *r = &e->requests[number];
    struct node *node = &e->nodes[e->takers[number]];
    uint64_t wait_ns = 0;
    if (r->time_ms > e->now_ms) {
        if (e->fleet != NULL) {
            move_fleet(e, r->time_ms);
        }
        e->now_ms = r->time_ms;
    }
    if (node->polled_ms != e->now_ms) {
        poll_node(e, node);
    }
    if (!e->queues) {
        return weir_check(node->thread, &e->keys[number], r->cost, NULL) ? DECISION_ADMITTED : DECISION_DENIED;
    }
    if (!weir_reserve(node->thread, &e->keys[number], r->cost, UINT64_MAX, &wait_ns)) {
        return DECISION_DENIED;
    }
    return wait_ns != 0 ? DECISION_DELAYED : DECISION_ADMITTED;
}

static weir_stats stats_of(const struct node *node)
{
    weir_stats stats;
    weir_get_stats(node->w, &stats);
    return stats;
}

uint64_t engine_untracked(const struct engine *e)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < e->options.nodes; i++) {
        sum += stats_of(&e->nodes[i]).untracked_count;
    }
    return sum;
}

uint64_t engine_evicted(const struct engine *e)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < e->options.nodes; i++) {
        sum += stats_of(&e->nodes[i]).evicted_used_count;
    }
    return sum;
}
