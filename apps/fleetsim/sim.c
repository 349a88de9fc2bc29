/* SPDX-License-Identifier: Apache-2.0 */
#include "sim.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "algorithm/window.h"
#include "base/error.h"
#include "inside.h"
#include "limiter/weir_open.h"
#include "policy/validate.h"

/* Nodes have met before the traffic begins. */
#define WARM_INTERVALS 6

/* A node that waits for nothing is polled so often all the same, for what is due by its own clock. */
#define POLL_EVERY_NS (20 * NS_PER_MS)

/* The first whole windows are left out: nothing is known yet. */
#define WINDOWS_LEFT_OUT 2

/* A bucket's record lives so long after it is full again: see fleet/keys/report.c. */
#define BUCKET_KEPT_NS (60 * NS_PER_S)

#define DEFAULT_INTERVAL_MS 200
#define DEFAULT_TIMEOUT_MS  1000

void sim_options_init(struct sim_options *options)
{
    *options = (struct sim_options){
        .seed = 1,
        .nodes = 4,
        .interval_ms = DEFAULT_INTERVAL_MS,
        .timeout_ms = DEFAULT_TIMEOUT_MS,
        .step_ns = 2 * NS_PER_MS,
        .length_ns = 12 * NS_PER_S,
        .demand = 3,
        .keys = 1,
        .cost = 1,
        .link = {.backs_off = true},
    };
}

uint64_t sim_random(struct sim *sim)
{
    sim->random += UINT64_C(0x9e3779b97f4a7c15);
    return hash_mix(sim->random);
}

double sim_fraction(struct sim *sim)
{
    return (double) (sim_random(sim) >> 11) / 9007199254740992.0; /* 2^53 */
}

uint64_t sim_fleet_wall(const struct sim *sim)
{
    return sim->now_ns + (uint64_t) sim->fleet_wrong_ns;
}

static uint64_t fleet_wall(void *arg)
{
    return sim_fleet_wall(arg);
}

static uint64_t network_now(void *arg)
{
    return ((const struct sim *) arg)->now_ns;
}

static uint64_t node_monotonic(void *arg)
{
    return ((const struct sim_node *) arg)->monotonic_ns;
}

static uint64_t node_wall(void *arg)
{
    return ((const struct sim_node *) arg)->wall_ns;
}

/* What the node's clocks show now. */
static void node_look(const struct sim *sim, struct sim_node *node)
{
    const uint64_t since_ns = saturating_sub(sim->now_ns, node->open_ns);
    const int64_t drifted_ns = (int64_t) since_ns / 1000000 * node->drift_ppm;
    node->monotonic_ns = max_u64(node->monotonic_ns, node->boot_ns + since_ns + (uint64_t) drifted_ns);
    node->wall_ns = sim->now_ns + (uint64_t) node->wrong_ns + (uint64_t) drifted_ns;
}

static int node_limits(struct sim *sim, struct sim_node *node, weir_error *error)
{
    weir_options options = WEIR_OPTIONS_INIT;
    const size_t entries = sim->options.keys * sim->limits;
    options.clock = &node->clock;
    options.sync_interval_ms = sim->options.interval_ms;
    options.redis_timeout_ms = sim->options.timeout_ms;
    options.expected_nodes = sim->options.expected_nodes;
    options.max_keys = (size_t) max_u64(1000, 2 * entries);
    options.max_threads = 1;
    options.node_name = "simulated";
    options.max_log_units = 1000;
    for (size_t i = 0; i < sim->limits; i++) {
        if (rule_has_history(&sim->rules[i])) {
            options.max_log_units += 4 * sim->options.keys * (size_t) sim->rules[i].limit + 4096;
        }
    }
    options.log = sim->options.log;
    options.log_arg = sim->options.log_arg;
    const struct transport_config config = {.timeout_ms = sim->options.timeout_ms};
    int result = loopback_transport_open(sim->fleet, &config, &node->transport, error);
    if (result == 0) {
        result = weir_open_on(&options, node->transport, &node->w, error);
    }
    if (result == 0) {
        result = weir_set_policies(node->w, sim->options.policies, sim->options.policy_count, error);
    }
    return result;
}

bool sim_node_open(struct sim *sim, unsigned i, weir_error *error)
{
    struct sim_node *node = &sim->nodes[i];
    const size_t entries = sim->options.keys * sim->limits;
    node->open_ns = sim->now_ns;
    node->boot_ns = sim_random(sim) % (UINT64_C(1) << 50); /* hosts were not booted together */
    node->drift_ppm =
        sim->options.drift_ppm == 0
            ? 0
            : (int32_t) (sim_random(sim) % (2 * (uint64_t) sim->options.drift_ppm + 1)) - sim->options.drift_ppm;
    node->clock = (weir_clock){.monotonic_ns = node_monotonic, .wall_ns = node_wall, .arg = node};
    node_look(sim, node);
    node->keys = calloc(sim->options.keys, sizeof(*node->keys));
    node->ledgers = calloc(entries, sizeof(*node->ledgers));
    node->least = calloc(entries, sizeof(*node->least));
    if (node->keys == NULL || node->ledgers == NULL || node->least == NULL) {
        (void) error_set(error, -ENOMEM, "out of memory");
        return false;
    }
    if (node_limits(sim, node, error) != 0) {
        return false;
    }
    node->t = weir_attach(node->w);
    const weir_policy_id policy = weir_find_policy(node->w, sim->policy->name);
    for (size_t k = 0; k < sim->options.keys; k++) {
        node->keys[k] = weir_make_key(node->w, policy, sim->names[k], strlen(sim->names[k]));
    }
    (void) snprintf(node->id, sizeof(node->id), "%s", node->w->fleet->node);
    loopback_transport_set_cut(node->transport, node->cut);
    node->syncs_at_fault = UINT64_MAX;
    node->alive = node->was_here = true;
    node->due_ns = sim->now_ns;
    return true;
}

void sim_node_kill(struct sim *sim, unsigned i)
{
    struct sim_node *node = &sim->nodes[i];
    loopback_transport_kill(node->transport);
    weir_close(node->w);
    node->w = NULL;
    node->transport = NULL;
    node->alive = false;
    ledger_note_dead(sim, node);
}

void sim_node_poll(struct sim *sim, struct sim_node *node)
{
    struct fleet *fleet = node->w->fleet;
    uint64_t deadline_ns = 0;
    node_look(sim, node);
    /* A round that is begun may be answered within the same moment. */
    for (int times = 0; times < 3 && deadline_ns <= node->monotonic_ns; times++) {
        const uint64_t before_ns = load_relaxed(&node->w->limiter.shared->line.offset_ns);
        (void) weir_poll(node->w);
        if (!node->clock_known && fleet->clock.known) {
            node->clock_known = true;
            ledger_shift(sim, node, node->monotonic_ns + before_ns,
                         node->monotonic_ns + load_relaxed(&node->w->limiter.shared->line.offset_ns));
        }
        struct pollfd fds[TRANSPORT_MAX_POLLFDS];
        deadline_ns = node->monotonic_ns + POLL_EVERY_NS;
        (void) fleet_wait_for(fleet, fds, &deadline_ns);
    }
    node->due_ns = sim->now_ns + saturating_sub(deadline_ns, node->monotonic_ns);
}

static void count_worst(struct sim *sim)
{
    for (size_t k = 0; k < sim->options.keys; k++) {
        const double ratio = (double) sim->key_units[k] / (double) sim->policy->limits[0].limit;
        sim->worst = ratio > sim->worst && sim->key_window >= sim->stat_first ? ratio : sim->worst;
        sim->key_units[k] = 0;
    }
}

/* Which of the windows of the run it is now; by the fleet's clock as it should be. */
static uint64_t window_now(const struct sim *sim)
{
    return window_span_at(&sim->rules[0], sim->now_ns).number - window_span_at(&sim->rules[0], sim->traffic_ns).number;
}

static void offer(struct sim *sim, struct sim_node *node, uint64_t requests, uint64_t window)
{
    const uint64_t cost = sim->options.cost;
    const bool counts = window >= sim->stat_first;
    const uint64_t second = (sim->now_ns - sim->traffic_ns) / NS_PER_S;
    uint64_t admitted = 0;
    for (uint64_t i = 0; i < requests; i++) {
        const size_t key = demand_key(sim);
        if (truth_has_room(sim, sim->ones, key, cost)) {
            truth_take(sim, sim->ones, key, cost);
            sim->one_admitted += counts ? cost : 0;
        }
        sim->busiest_asked[second] += key == 0 ? cost : 0;
        if (weir_check(node->t, &node->keys[key], cost, NULL)) {
            ledger_add(sim, node, key, cost);
            truth_take(sim, sim->truths, key, cost);
            sim->window_units[window] += key == 0 ? cost : 0;
            sim->busiest_admitted[second] += key == 0 ? cost : 0;
            sim->key_units[key] += cost;
            admitted += cost;
        } else if (truth_has_room(sim, sim->truths, key, cost)) {
            truth_take(sim, sim->truths, key, cost); /* the same room is denied once */
            sim->falsely += counts ? cost : 0;
            sim->second_false[second] += counts ? cost : 0;
        }
    }
    sim->second_asked[second] += requests * cost;
    if (counts) {
        sim->asked += requests * cost;
        sim->admitted += admitted;
        sim->denied += requests * cost - admitted;
        node->asked += requests * cost;
        node->admitted += admitted;
    }
    sim->digest = hash_mix(sim->digest ^ hash_mix(admitted << 32 | requests));
}

/*
 * One limiter of a burst of few units denies requests for no other reason than that they come at once, which nodes that
 * have a part each need not. So beside it stands a bucket that the same demand flows into, and out of at the limit's
 * rate.
 */
static void flow(struct sim *sim, unsigned living, uint64_t window)
{
    const struct rule *rule = &sim->rules[0];
    if (!rule_is_bucket(rule) || rule->unit == 0 || sim->limits != 1 || sim->options.keys != 1 || !sim->traffic) {
        return;
    }
    const double step_s = (double) sim->options.step_ns / 1e9;
    const double refilled = 1e9 * (double) (1U << BUCKET_FRACTION_BITS) / (double) rule->unit * step_s;
    const double burst = (double) max_u64(rule_is_queue(rule) ? rule->ahead : rule->limit, 1);
    double asked = 0;
    for (unsigned rank = 0; rank < living; rank++) {
        asked += demand_at(sim, rank, living, sim->now_ns - sim->traffic_ns) * step_s;
    }
    const double there = sim->flow_left + refilled;
    const double passed = asked < there ? asked : there;
    sim->flow_left = there - passed < burst ? there - passed : burst;
    sim->flow_admitted += window >= sim->stat_first ? passed : 0;
}

static void shuffle(struct sim *sim)
{
    for (unsigned i = sim->options.nodes - 1; i > 0; i--) {
        const unsigned j = (unsigned) (sim_random(sim) % (i + 1));
        const unsigned other = sim->order[i];
        sim->order[i] = sim->order[j];
        sim->order[j] = other;
    }
}

/* The living nodes that take requests, and for the last loop the rank of each among them. */
static unsigned rank_nodes(struct sim *sim)
{
    unsigned living = 0;
    for (unsigned i = 0; i < sim->options.nodes; i++) {
        sim->nodes[i].rank = living;
        living += sim->nodes[i].alive && !sim->nodes[i].leaving;
    }
    return living;
}

/* One node's part of a step. */
static void node_step(struct sim *sim, unsigned i, unsigned living, uint64_t window)
{
    struct sim_node *node = &sim->nodes[i];
    uint64_t requests = 0;
    if (sim->traffic && !node->leaving) {
        const double step_s = (double) sim->options.step_ns / 1e9;
        const double load = demand_at(sim, node->rank, living, sim->now_ns - sim->traffic_ns);
        /* As the reference does; one that is off draws all the same. */
        node->carry += load / (double) sim->options.cost * step_s * (0.3 + 1.4 * sim_fraction(sim));
        requests = (uint64_t) node->carry;
        node->carry -= (double) requests;
    }
    if (requests != 0 || node->asked_last || node->due_ns <= sim->now_ns) {
        sim_node_poll(sim, node);
    }
    if (node->leaving && !fleet_wanted(node->w->fleet)) {
        sim_node_kill(sim, i);
        return;
    }
    node->asked_last = requests != 0;
    if (requests != 0) {
        offer(sim, node, requests, window);
    }
}

static void step(struct sim *sim)
{
    const bool runs = sim->now_ns >= sim->traffic_ns && sim->now_ns < sim->traffic_ns + sim->options.length_ns;
    const uint64_t window = runs ? window_now(sim) : 0;
    if (runs && window != sim->key_window) {
        count_worst(sim);
        sim->key_window = window;
    }
    loopback_fleet_run(sim->fleet);
    faults_run(sim);
    shuffle(sim);
    const unsigned living = rank_nodes(sim);
    flow(sim, living, window);
    for (unsigned i = 0; i < sim->options.nodes; i++) {
        if (sim->nodes[sim->order[i]].alive) {
            node_step(sim, sim->order[i], living, window);
        }
    }
}

void sim_quiet_step(struct sim *sim)
{
    sim->traffic = false;
    step(sim);
    sim->now_ns += sim->options.step_ns;
}

bool sim_step(struct sim *sim)
{
    const uint64_t end_ns = sim->traffic_ns + sim->options.length_ns;
    if (sim->now_ns >= end_ns) {
        return false;
    }
    sim->traffic = sim->now_ns + sim->options.quiet_ns < end_ns;
    step(sim);
    sim->now_ns += sim->options.step_ns;
    if (sim->now_ns >= end_ns) {
        count_worst(sim);
        loopback_fleet_get_counts(sim->fleet, &sim->counts_after);
    }
    return true;
}

void sim_run(struct sim *sim)
{
    while (sim_step(sim)) {
    }
}

static int check_options(const struct sim_options *o, weir_error *error)
{
    if (o->nodes < 1 || o->nodes > SIM_NODES_MAX) {
        return error_set(error, -EINVAL, "nodes is %u; give 1 to %d", o->nodes, SIM_NODES_MAX);
    }
    if (o->keys < 1 || o->keys > SIM_KEYS_MAX) {
        return error_set(error, -EINVAL, "keys is %zu; give 1 to %d", o->keys, SIM_KEYS_MAX);
    }
    if (o->step_ns < NS_PER_MS / 10 || o->step_ns > NS_PER_S / 10) {
        return error_set(error, -EINVAL, "the step is %g ms; give 0.1 to 100", (double) o->step_ns / 1e6);
    }
    if (!(o->demand > 0 && o->demand <= 1e6)) {
        return error_set(error, -EINVAL, "demand is %g; give more than 0, and at most 1000000", o->demand);
    }
    if (o->cost < 1) {
        return error_set(error, -EINVAL, "cost is 0; give at least 1");
    }
    if (o->policy >= o->policy_count) {
        return error_set(error, -EINVAL, "there is no policy to ask");
    }
    if (o->policies[o->policy].scope != WEIR_SCOPE_FLEET) {
        return error_set(error, -EINVAL, "policy \"%s\" is of one process: there is nothing to share",
                         o->policies[o->policy].name);
    }
    if (o->fault_count > SIM_FAULTS_MAX) {
        return error_set(error, -EINVAL, "there are %zu faults; give at most %d", o->fault_count, SIM_FAULTS_MAX);
    }
    for (size_t i = 0; i < o->fault_count; i++) {
        if (o->faults[i].last >= o->nodes || o->faults[i].first > o->faults[i].last) {
            return error_set(error, -EINVAL, "there is no node %u; nodes are 0 to %u", o->faults[i].last, o->nodes - 1);
        }
    }
    return validate_policies(o->policies, o->policy_count, NULL, error);
}

/* Which windows there are, and which of them count. */
static void init_windows(struct sim *sim)
{
    const uint64_t end_ns = sim->traffic_ns + sim->options.length_ns;
    const uint64_t first = window_span_at(&sim->rules[0], sim->traffic_ns).number;
    const uint64_t touched = window_span_at(&sim->rules[0], end_ns - 1).number - first + 1;
    const uint64_t whole = window_span_at(&sim->rules[0], end_ns).number - first;
    sim->window_count = touched;
    sim->stat_first = 0;
    sim->stat_end = whole != 0 ? whole : touched;
    if (touched > WINDOWS_LEFT_OUT + 1) {
        sim->stat_first = WINDOWS_LEFT_OUT;
        sim->stat_end = touched - 1;
    }
}

/* When the last fault is over, and which nodes are not there from the start. */
static void init_faults(struct sim *sim)
{
    for (size_t i = 0; i < sim->options.fault_count; i++) {
        struct sim_fault *fault = &sim->faults[i];
        *fault = sim->options.faults[i];
        fault->until_ns = max_u64(fault->until_ns, fault->from_ns);
        if (fault->kind != SIM_CLOCK) {
            sim->last_fault_ns = max_u64(sim->last_fault_ns, sim->traffic_ns + fault->until_ns);
        }
        for (unsigned n = fault->first; n <= fault->last; n++) {
            if (fault->kind == SIM_JOIN) {
                sim->nodes[n].joins = true;
            } else if (fault->kind == SIM_CLOCK) {
                sim->nodes[n].wrong_ns = fault->by_ns;
            }
        }
    }
    sim->options.faults = sim->faults;
}

/* Never of no bytes, for which calloc may answer NULL. */
static void *array(size_t count, size_t size)
{
    return calloc(count != 0 ? count : 1, size);
}

static bool make_arrays(struct sim *sim)
{
    const struct sim_options *o = &sim->options;
    init_windows(sim);
    sim->seconds = o->length_ns / NS_PER_S + 1;
    sim->nodes = array(o->nodes, sizeof(*sim->nodes));
    sim->order = array(o->nodes, sizeof(*sim->order));
    sim->names = array(o->keys, sizeof(*sim->names));
    sim->truths = array(o->keys * sim->limits, sizeof(*sim->truths));
    sim->ones = array(o->keys * sim->limits, sizeof(*sim->ones));
    sim->window_units = array(sim->window_count, sizeof(*sim->window_units));
    sim->key_units = array(o->keys, sizeof(*sim->key_units));
    sim->second_asked = array(sim->seconds, sizeof(*sim->second_asked));
    sim->second_false = array(sim->seconds, sizeof(*sim->second_false));
    sim->busiest_asked = array(sim->seconds, sizeof(*sim->busiest_asked));
    sim->busiest_admitted = array(sim->seconds, sizeof(*sim->busiest_admitted));
    sim->fleet = loopback_fleet_new(fleet_wall, sim);
    return sim->nodes != NULL && sim->order != NULL && sim->names != NULL && sim->truths != NULL &&
           sim->window_units != NULL && sim->key_units != NULL && sim->second_asked != NULL &&
           sim->second_false != NULL && sim->busiest_asked != NULL && sim->busiest_admitted != NULL &&
           sim->ones != NULL && sim->fleet != NULL && demand_init(sim);
}

static void init_run(struct sim *sim)
{
    loopback_fleet_set_network_clock(sim->fleet, network_now, sim);
    loopback_fleet_seed(sim->fleet, hash_mix(sim->options.seed + 2));
    loopback_fleet_set_link(sim->fleet, &sim->options.link);
    for (size_t k = 0; k < sim->options.keys; k++) {
        (void) snprintf(sim->names[k], sizeof(sim->names[k]), "k%zu", k);
        for (size_t i = 0; i < sim->limits; i++) {
            sim->truths[k * sim->limits + i].state = rule_fresh(&sim->rules[i], sim->traffic_ns);
            sim->ones[k * sim->limits + i].state = sim->truths[k * sim->limits + i].state;
        }
    }
    sim->flow_left = (double) sim->rules[0].limit;
    init_faults(sim);
    for (unsigned i = 0; i < sim->options.nodes; i++) {
        sim->order[i] = i;
        /* Somewhere within the first interval: nobody knows of the others' rounds. */
        sim->nodes[i].open_ns = sim->now_ns + sim_random(sim) % (sim->options.interval_ms * NS_PER_MS);
    }
}

/* The nodes begin one after the other, and meet. */
static bool warm_up(struct sim *sim, weir_error *error)
{
    while (sim->now_ns < sim->traffic_ns) {
        for (unsigned i = 0; i < sim->options.nodes; i++) {
            struct sim_node *node = &sim->nodes[i];
            if (!node->was_here && !node->joins && node->open_ns <= sim->now_ns && !sim_node_open(sim, i, error)) {
                return false;
            }
        }
        sim_quiet_step(sim);
    }
    ledger_note_labels(sim);
    sim->traffic = true;
    loopback_fleet_get_counts(sim->fleet, &sim->counts_before);
    return true;
}

int sim_open(const struct sim_options *options, struct sim **out, weir_error *error)
{
    int result = check_options(options, error);
    if (result != 0) {
        return result;
    }
    struct sim *sim = calloc(1, sizeof(*sim));
    if (sim == NULL) {
        return error_set(error, -ENOMEM, "out of memory");
    }
    sim->options = *options;
    struct sim_options *o = &sim->options;
    o->interval_ms = o->interval_ms != 0 ? o->interval_ms : DEFAULT_INTERVAL_MS;
    o->timeout_ms = o->timeout_ms != 0 ? o->timeout_ms : DEFAULT_TIMEOUT_MS;
    o->length_ns = max_u64((o->length_ns + o->step_ns - 1) / o->step_ns, 1) * o->step_ns;
    sim->random = hash_mix(o->seed);
    entropy_seed(hash_mix(o->seed + 1));
    sim->outlived = o->length_ns > BUCKET_KEPT_NS;
    sim->traffic_ns = SIM_EPOCH_NS;
    const uint64_t warm_ns = (uint64_t) WARM_INTERVALS * o->interval_ms * NS_PER_MS;
    sim->now_ns = sim->traffic_ns - (warm_ns + o->step_ns - 1) / o->step_ns * o->step_ns;
    sim->policy = &o->policies[o->policy];
    sim->limits = sim->policy->limit_count;
    for (size_t i = 0; i < sim->limits; i++) {
        sim->rules[i] = rule_make(&sim->policy->limits[i], SIM_EPOCH_NS - UINT64_C(366) * 86400 * NS_PER_S);
    }
    if (!make_arrays(sim)) {
        sim_close(sim);
        return error_set(error, -ENOMEM, "out of memory");
    }
    init_run(sim);
    if (!warm_up(sim, error)) {
        sim_close(sim);
        return error != NULL ? error->code : -ENOMEM;
    }
    *out = sim;
    return error_clear(error);
}

void sim_close(struct sim *sim)
{
    if (sim == NULL) {
        return;
    }
    for (unsigned i = 0; sim->nodes != NULL && i < sim->options.nodes; i++) {
        struct sim_node *node = &sim->nodes[i];
        if (node->w != NULL) {
            loopback_transport_kill(node->transport);
            weir_close(node->w);
        }
        free(node->keys);
        free(node->ledgers);
        free(node->least);
    }
    for (size_t i = 0; i < SIM_FAULTS_MAX; i++) {
        loopback_snapshot_free(sim->snapshots[i]);
    }
    if (sim->fleet != NULL) {
        loopback_fleet_free(sim->fleet);
    }
    truth_free(sim);
    free(sim->nodes);
    free(sim->order);
    free(sim->names);
    free(sim->shares);
    free(sim->window_units);
    free(sim->key_units);
    free(sim->second_asked);
    free(sim->second_false);
    free(sim->busiest_asked);
    free(sim->busiest_admitted);
    free(sim);
}

uint64_t sim_now_ns(const struct sim *sim)
{
    return sim->now_ns - sim->traffic_ns;
}
