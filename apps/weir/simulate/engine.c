/* SPDX-License-Identifier: Apache-2.0 */
/* See engine.h. */
#include "engine.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../gateway/packet_rules.h"
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
    struct transport *transport;    /* NULL: there is one node */
    weir_policy_id policy, policy6; /* of keys that are addresses of IPv6: the same, or the copy */
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
    struct policies policies; /* those of the gateway */
    struct packet_rules rules;
    uint64_t checked[POLICIES_MAX], denied[POLICIES_MAX], denied_of_all;
    unsigned takers[MERGE_BATCH];
};

static uint64_t clock_ns(void *arg)
{
    return ((const struct engine *) arg)->now_ms * NS_PER_MS;
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

/* How many entries and units of logs the policy needs: a weir has its memory from the start. */
static void size_memory(const struct engine *e, weir_options *options)
{
    const struct listed_policies *list = &e->options.file->list;
    size_t keys = 0, units = LOG_UNITS;
    for (size_t at = 0; at < list->count; at++) {
        const weir_policy *policy = &list->all[at].policy;
        for (size_t i = 0; (e->options.gateway || policy == e->options.policy) && i < policy->limit_count; i++) {
            keys += e->options.max_keys;
            units +=
                policy->limits[i].algorithm == WEIR_SLIDING_LOG ? 4 * e->options.max_keys * policy->limits[i].limit : 0;
        }
    }
    options->max_keys = keys < KEYS_LEAST ? KEYS_LEAST : keys < KEYS_MOST ? keys : KEYS_MOST;
    options->max_log_units = units < LOG_UNITS_MOST ? units : LOG_UNITS_MOST;
}

/* Finds the policy that is asked, and its copy for IPv6. */
static void find_policy(struct engine *e, struct node *node)
{
    const char *name = e->options.policy->name;
    char copy[WEIR_MAX_NAME + 1];
    node->policy = node->policy6 = weir_find_policy(node->w, name);
    if (e->options.file->form6 != NULL) {
        (void) snprintf(copy, sizeof(copy), TRIED_IPV6 "%.*s", (int) (WEIR_MAX_NAME / 2), name + strcspn(name, "/"));
        node->policy6 = weir_find_policy(node->w, copy);
    }
}

/* The policies of the file that the gateway asks, in its order. */
static void find_gateway_policies(struct engine *e, const weir *w)
{
    const struct listed_policies *list = &e->options.file->list;
    memset(&e->policies, 0, sizeof(e->policies));
    policy_table_init(&e->policies);
    for (size_t i = 0; i < list->count; i++) {
        const char *name = list->all[i].name;
        struct policy_kind kind;
        if (strchr(name, '/') == NULL && policy_kind_read(name, &kind) && !policy_table_knows(&e->policies, name) &&
            e->policies.count < POLICIES_MAX) {
            policy_table_add(&e->policies, name, &kind);
        }
    }
    for (size_t i = 0; i < e->policies.count; i++) {
        struct gateway_policy *entry = &e->policies.all[i];
        const weir_policy *policy = listed_policies_find(list, entry->name, strlen(entry->name));
        const bool asked = policy != NULL && (e->options.only == NULL || strcmp(e->options.only, entry->name) == 0);
        entry->id = asked ? weir_find_policy(w, entry->name) : WEIR_NO_POLICY;
        entry->shadow = policy != NULL && policy->mode == WEIR_SHADOW;
    }
    e->rules.policies = &e->policies;
    e->rules.kinds = e->options.kinds != NULL ? *e->options.kinds : (struct packet_kinds){.count = 0};
    packet_rules_take(&e->rules, e->policies.count);
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
    result = result == 0 ? tried_file_put(e->options.file, node->w, error) : result;
    if (result == 0) {
        find_policy(e, node);
    }
    if (result == 0 && e->options.gateway) {
        find_gateway_policies(e, node->w);
    }
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
    size_memory(e, &weir_options_now);
    e->queues = has(options->policy, WEIR_LEAKY_BUCKET);
    int result = 0;
    if (options->nodes > 1) {
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

/* Bytes of a key of IPv4: an address, or a network. */
#define IPV4_MOST 5

static weir_key key_of(const struct engine *e, const struct node *node, const struct request *r)
{
    if (e->options.all) {
        return weir_make_key(node->w, node->policy, "", 0);
    }
    return weir_make_key(node->w, r->address && r->length > IPV4_MOST ? node->policy6 : node->policy, r->key,
                         r->length);
}

void engine_begin(struct engine *e, const struct request *requests)
{
    e->requests = requests;
}

void engine_prepare(struct engine *e, size_t number)
{
    const struct node *node = &e->nodes[e->turn];
    e->takers[number] = e->turn;
    if (!e->options.gateway) {
        e->keys[number] = key_of(e, node, &e->requests[number]);
        weir_prefetch(node->thread, &e->keys[number]);
    }
    e->turn = e->turn + 1 < e->options.nodes ? e->turn + 1 : 0;
}

/* The sender of a request. A name is as good as an address that is like no other. */
static struct address sender_of(const struct request *r)
{
    struct address from = {.length = 0};
    if (r->address && r->length == sizeof(from.u.v4.sin_addr)) {
        from.u.v4.sin_family = AF_INET;
        memcpy(&from.u.v4.sin_addr, r->key, sizeof(from.u.v4.sin_addr));
        return from;
    }
    from.u.v6.sin6_family = AF_INET6;
    if (r->address) {
        memcpy(&from.u.v6.sin6_addr, r->key, sizeof(from.u.v6.sin6_addr));
        return from;
    }
    uint64_t sum = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < r->length; i++) {
        sum = (sum ^ (unsigned char) r->key[i]) * UINT64_C(0x100000001b3);
    }
    memcpy(&from.u.v6.sin6_addr, &sum, sizeof(sum));
    from.u.v6.sin6_addr.s6_addr[0] = 0xfd; /* an address of nobody else's network */
    return from;
}

/* Whether all enforced policies that concern a packet let it pass: all of them count it, or none does. */
static bool ask_enforced(struct engine *e, struct node *node, const struct packet_checks *checks,
                         const struct request *r, const struct address *from)
{
    weir_key keys[WEIR_MAX_KEYS_AT_ONCE];
    uint64_t costs[WEIR_MAX_KEYS_AT_ONCE];
    unsigned char bytes[WEIR_MAX_KEYS_AT_ONCE][NETWORK_KEY_SIZE];
    unsigned char denied_by = 0;
    uint64_t allowed = 0;
    for (size_t i = 0; i < checks->count; i++) {
        keys[i] = packet_rules_key(&e->rules, node->w, checks, i, from, bytes[i]);
        costs[i] = packet_rules_cost(&e->rules, packet_rules_kind(&e->rules, checks, i), r->kind, (size_t) r->cost);
    }
    const weir_requests requests = {keys, costs, checks->count, 1, &allowed, &denied_by};
    (void) weir_check_requests(node->thread, &requests);
    for (size_t i = 0; allowed != 0 && i < checks->count; i++) {
        e->checked[checks->indices[i]]++;
    }
    if (allowed == 0 && denied_by < checks->count) {
        e->checked[checks->indices[denied_by]]++;
        e->denied[checks->indices[denied_by]]++;
    }
    return allowed != 0;
}

/* Counts what policies in shadow mode would deny of what passes. */
static void ask_shadow(struct engine *e, struct node *node, const struct packet_group *group, const struct request *r,
                       const struct address *from)
{
    struct packet_checks checks;
    packet_rules_find(&e->rules, group, true, &checks);
    for (size_t i = 0; i < checks.count; i++) {
        unsigned char bytes[NETWORK_KEY_SIZE];
        weir_verdict verdict;
        const struct policy_kind *kind = packet_rules_kind(&e->rules, &checks, i);
        const weir_key key = packet_rules_key(&e->rules, node->w, &checks, i, from, bytes);
        (void) weir_check(node->thread, &key, packet_rules_cost(&e->rules, kind, r->kind, (size_t) r->cost), &verdict);
        e->checked[checks.indices[i]]++;
        e->denied[checks.indices[i]] += verdict.would_deny;
    }
}

/* As the gateway decides: apps/gateway/decision.c does so for bursts. */
static bool decide_packet(struct engine *e, struct node *node, const struct request *r)
{
    const struct address from = sender_of(r);
    struct packet_checks checks;
    const struct packet_group group = {.v4 = network_is_v4(&from),
                                       .kind = packet_rules_apart(&e->rules, r->kind),
                                       .of_all = packet_rules_of_all(node->thread, &from)};
    packet_rules_find(&e->rules, &group, false, &checks);
    if ((group.of_all & OF_ALL_DENY) != 0 && !packet_rules_obeys(&e->rules, &checks, &group)) {
        e->denied_of_all++;
        return false;
    }
    if (checks.count != 0 && !ask_enforced(e, node, &checks, r, &from)) {
        return false;
    }
    ask_shadow(e, node, &group, r, &from);
    return true;
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
    if (e->options.gateway) {
        return decide_packet(e, node, r) ? DECISION_ADMITTED : DECISION_DENIED;
    }
    if (!e->queues) {
        return weir_check(node->thread, &e->keys[number], r->cost, NULL) ? DECISION_ADMITTED : DECISION_DENIED;
    }
    if (!weir_reserve(node->thread, &e->keys[number], r->cost, UINT64_MAX, &wait_ns)) {
        return DECISION_DENIED;
    }
    return wait_ns != 0 ? DECISION_DELAYED : DECISION_ADMITTED;
}

size_t engine_policies(const struct engine *e, struct engine_policy *out, size_t most)
{
    size_t count = 0;
    for (size_t i = 0; e->options.gateway && i < e->policies.count && count < most; i++) {
        const struct gateway_policy *entry = &e->policies.all[i];
        if (entry->id != WEIR_NO_POLICY) {
            const weir_policy *policy = listed_policies_find(&e->options.file->list, entry->name, strlen(entry->name));
            out[count++] = (struct engine_policy){policy, e->checked[i], e->denied[i]};
        }
    }
    return count;
}

uint64_t engine_denied_of_all(const struct engine *e)
{
    return e->denied_of_all;
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
