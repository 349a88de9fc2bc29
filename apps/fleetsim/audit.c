/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether the fleet has what the nodes let pass, nothing lost and nothing twice; and whether every node goes on. Each
 * node's counts are compared with what the fleet has in that node's name. Killed nodes could not report their last
 * units: of them the fleet has at least what it had when they were killed (or after it lost its data), and at most what
 * they let pass.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "algorithm/window.h"
#include "inside.h"
#include "transport/author.h"
#include "transport/loopback/loopback.h"

/* How long all nodes may take to report what they have, after all faults. */
#define TELL_NS (30 * NS_PER_S)

/* Intervals after which every node must go by the fleet again: longer than any node is awaited. */
#define HEAR_INTERVALS 60

static uint64_t node_number(const struct sim_node *node, const struct rule *rule)
{
    return window_span_at(rule, tick_time(&node->w->limiter)).number;
}

/* The place of a window in the ledger; an older window there is over. */
static uint64_t *ledger_window(struct ledger *ledger, uint64_t number)
{
    const size_t at = number % LEDGER_WINDOWS;
    if (ledger->number[at] != number) {
        ledger->number[at] = number;
        ledger->units[at] = 0;
    }
    return &ledger->units[at];
}

static uint64_t ledger_units(const struct ledger *ledger, uint64_t number)
{
    const size_t at = number % LEDGER_WINDOWS;
    return ledger->number[at] == number ? ledger->units[at] : 0;
}

void ledger_add(struct sim *sim, struct sim_node *node, size_t key, uint64_t cost)
{
    for (size_t i = 0; i < sim->limits; i++) {
        struct ledger *ledger = ledger_of(sim, node->ledgers, key, i);
        ledger->total += cost;
        if (!rule_is_bucket(&sim->rules[i]) && !rule_has_history(&sim->rules[i])) {
            *ledger_window(ledger, node_number(node, &sim->rules[i])) += cost;
        }
    }
}

void ledger_shift(struct sim *sim, struct sim_node *node, uint64_t before_ns, uint64_t after_ns)
{
    for (size_t at = 0; at < sim->options.keys * sim->limits; at++) {
        const struct rule *rule = &sim->rules[at % sim->limits];
        const struct ledger was = node->ledgers[at];
        if (rule_is_bucket(rule) || rule_has_history(rule)) {
            continue;
        }
        const uint64_t by = window_span_at(rule, after_ns).number - window_span_at(rule, before_ns).number;
        memset(node->ledgers[at].units, 0, sizeof(was.units));
        for (size_t i = 0; i < LEDGER_WINDOWS; i++) {
            if (was.units[i] != 0) {
                *ledger_window(&node->ledgers[at], was.number[i] + by) += was.units[i];
            }
        }
    }
}

/* What the fleet has, in the names of the nodes. */
struct gather {
    struct sim *sim;
    const char *labels[WEIR_MAX_LIMITS];
    struct ledger *found; /* by node, key and limit */
    struct sim_node *only;
};

static const struct policy *compiled(const struct sim *sim)
{
    for (unsigned i = 0; i < sim->options.nodes; i++) {
        if (sim->nodes[i].alive) {
            weir *w = sim->nodes[i].w;
            return policy_set_by_id(process_policies(&w->limiter.process), weir_find_policy(w, sim->policy->name));
        }
    }
    return NULL;
}

/* The next part of a record's name, which ends at ':' or with it. */
static const char *next_part(const char **rest, size_t *length)
{
    const char *part = *rest;
    *length = strcspn(part, ":");
    *rest = part[*length] == ':' ? part + *length + 1 : part + *length;
    return part;
}

static void gather_one(void *arg, const char *record, const char *author, uint64_t count, uint64_t back)
{
    struct gather *gather = arg;
    struct sim *sim = gather->sim;
    size_t length;
    const char *rest = strchr(record, '}');
    if (rest == NULL) {
        return;
    }
    rest += 2;
    const char *label = next_part(&rest, &length);
    size_t limit = 0;
    while (limit < sim->limits &&
           (strncmp(gather->labels[limit], label, length) != 0 || gather->labels[limit][length] != '\0')) {
        limit++;
    }
    (void) next_part(&rest, &length); /* the policy: only one policy is asked */
    const size_t key = strtoul(rest + 1, NULL, 10);
    (void) next_part(&rest, &length);
    unsigned node = 0;
    while (node < sim->options.nodes && !author_is_of(author, sim->nodes[node].id)) {
        node++;
    }
    if (limit == sim->limits || key >= sim->options.keys || node == sim->options.nodes) {
        return;
    }
    struct ledger *ledger = &gather->found[(node * sim->options.keys + key) * sim->limits + limit];
    ledger->total += count - back;
    const uint64_t number = *rest != '\0' ? strtoull(rest, NULL, 10) : 0;
    /* After redis's clock was set back, windows that are long over are still there. */
    if (number >= ledger->number[number % LEDGER_WINDOWS] && number != 0) {
        *ledger_window(ledger, number) += count - back;
    }
}

/* By node, key and limit; the caller's to free. */
static struct ledger *gather_all(struct sim *sim)
{
    struct gather gather = {.sim = sim};
    for (size_t i = 0; i < sim->limits; i++) {
        gather.labels[i] = sim->labels[i];
    }
    const size_t count = sim->options.nodes * sim->options.keys * sim->limits;
    gather.found = calloc(count != 0 ? count : 1, sizeof(*gather.found));
    if (gather.found == NULL) {
        abort(); /* a check that was not made must not look like one that was */
    }
    loopback_fleet_each(sim->fleet, gather_one, &gather);
    return gather.found;
}

void ledger_note_labels(struct sim *sim)
{
    const struct policy *policy = compiled(sim);
    for (size_t i = 0; policy != NULL && i < sim->limits; i++) {
        (void) snprintf(sim->labels[i], sizeof(sim->labels[i]), "%s", policy->limits[i].label);
    }
}

void ledger_note_dead(struct sim *sim, struct sim_node *only)
{
    const size_t entries = sim->options.keys * sim->limits;
    struct ledger *found = gather_all(sim);
    for (unsigned i = 0; i < sim->options.nodes; i++) {
        struct sim_node *node = &sim->nodes[i];
        if (node->was_here && !node->alive && (only == NULL || only == node)) {
            memcpy(node->least, found + i * entries, entries * sizeof(*found));
        }
    }
    free(found);
}

__attribute__((format(printf, 2, 3))) static void complain(struct sim_audit *audit, const char *format, ...)
{
    audit->good = false;
    if (audit->wrong[0] == '\0') {
        va_list arguments;
        va_start(arguments, format);
        (void) vsnprintf(audit->wrong, sizeof(audit->wrong), format, arguments);
        va_end(arguments);
    }
}

/* One count: what the node let pass, what the fleet has of it, and what it must have at least. */
struct comparison {
    unsigned node;
    size_t key, limit;
    uint64_t window; /* 0: all */
    uint64_t passed, found, least;
};

static void compare(const struct sim *sim, const struct comparison *c, struct sim_audit *audit)
{
    audit->checked++;
    if (c->found > c->passed) {
        audit->invented += c->found - c->passed;
    }
    if (c->found < c->least) {
        audit->lost += c->least - c->found;
    }
    if (c->found > c->passed || c->found < c->least) {
        complain(audit, "%s node %u let pass %llu of key k%zu (limit %zu, window %llu), and the fleet has %llu of them",
                 sim->nodes[c->node].alive ? "living" : "dead", c->node, (unsigned long long) c->passed, c->key,
                 c->limit, (unsigned long long) c->window, (unsigned long long) c->found);
    }
}

/* Whether all the units of this key that ever passed still count in the log. */
static bool log_is_whole(const struct sim *sim, size_t key, size_t limit)
{
    const struct truth *truth = &sim->truths[key * sim->limits + limit];
    uint64_t total = 0;
    for (unsigned i = 0; i < sim->options.nodes; i++) {
        total += sim->nodes[i].was_here ? ledger_of(sim, sim->nodes[i].ledgers, key, limit)->total : 0;
    }
    return total <= sim->rules[limit].limit && truth->count == total;
}

static void compare_entry(const struct sim *sim, unsigned i, size_t key, size_t limit, const struct ledger *found,
                          struct sim_audit *audit)
{
    const struct sim_node *node = &sim->nodes[i];
    const struct rule *rule = &sim->rules[limit];
    const struct ledger *own = ledger_of(sim, node->ledgers, key, limit);
    const struct ledger *least = ledger_of(sim, node->least, key, limit);
    struct comparison c = {.node = i, .key = key, .limit = limit};
    if (rule_is_bucket(rule) || rule_has_history(rule)) {
        const bool kept = rule_is_bucket(rule) ? !sim->outlived : log_is_whole(sim, key, limit);
        c.passed = own->total;
        c.found = found->total;
        if (kept) {
            c.least = node->alive ? own->total : least->total;
        }
        compare(sim, &c, audit);
        return;
    }
    /* A living node's time is fleet time, except after redis's clock was set back. */
    const uint64_t now = node->alive ? node_number(node, rule) : window_span_at(rule, sim_fleet_wall(sim)).number;
    for (uint64_t of = now - 1; of <= now; of++) {
        /* A fixed window that is over no longer counts, and is not reported again after it was lost. */
        const bool kept = of == now || rule_slides(rule) || !sim->forgot;
        c.window = of;
        c.passed = ledger_units(own, of);
        c.found = ledger_units(found, of);
        c.least = 0;
        if (kept) {
            c.least = node->alive ? c.passed : ledger_units(least, of);
        }
        compare(sim, &c, audit);
    }
}

static void compare_all(struct sim *sim, struct sim_audit *audit)
{
    struct ledger *found = gather_all(sim);
    for (unsigned i = 0; i < sim->options.nodes; i++) {
        for (size_t at = 0; sim->nodes[i].was_here && at < sim->options.keys * sim->limits; at++) {
            const struct ledger *here = &found[i * sim->options.keys * sim->limits + at];
            compare_entry(sim, i, at / sim->limits, at % sim->limits, here, audit);
        }
    }
    free(found);
}

static bool somebody_tells(const struct sim *sim)
{
    for (unsigned i = 0; i < sim->options.nodes; i++) {
        if (sim->nodes[i].alive && fleet_wanted(sim->nodes[i].w->fleet)) {
            return true;
        }
    }
    return false;
}

static void tell(struct sim *sim, struct sim_audit *audit)
{
    const uint64_t before_ns = sim->now_ns;
    for (unsigned i = 0; i < sim->options.nodes; i++) {
        if (sim->nodes[i].alive) {
            (void) fleet_wait_begin(sim->nodes[i].w->fleet); /* as a weir_sync that waits for as long as it takes */
            sim->nodes[i].due_ns = sim->now_ns;
        }
    }
    while (somebody_tells(sim) && sim->now_ns < before_ns + TELL_NS) {
        sim_quiet_step(sim);
    }
    audit->told_ns = sim->now_ns - before_ns;
    audit->told = !somebody_tells(sim);
    if (!audit->told) {
        complain(audit, "not every node could tell what it had within %llu s",
                 (unsigned long long) (TELL_NS / NS_PER_S));
    }
}

/* After a time in which everything refills, and some rounds, every node must let a request pass. */
static void look_for_room(struct sim *sim, struct sim_audit *audit)
{
    uint64_t over_ns = 0;
    for (size_t i = 0; i < sim->limits; i++) {
        const struct rule *rule = &sim->rules[i];
        over_ns = max_u64(over_ns, 2 * rule->period_ns);
        over_ns = max_u64(over_ns, 2 * (rule->tolerance >> BUCKET_FRACTION_BITS));
    }
    sim->now_ns += over_ns / sim->options.step_ns * sim->options.step_ns;
    const uint64_t until_ns = sim->now_ns + (uint64_t) HEAR_INTERVALS * sim->options.interval_ms * NS_PER_MS;
    while (sim->now_ns < until_ns) {
        sim_quiet_step(sim);
    }
    audit->open = true;
    for (unsigned i = 0; i < sim->options.nodes; i++) {
        struct sim_node *node = &sim->nodes[i];
        weir_verdict verdict;
        if (!node->alive) {
            continue;
        }
        sim_node_poll(sim, node);
        if (!weir_peek(node->t, &node->keys[0], sim->options.cost, &verdict) || verdict.basis != WEIR_BASIS_FLEET) {
            audit->open = false;
            complain(audit, "node %u %s although all is over: %llu of %llu left, retry after %.3f s, news %.3f s old",
                     i, verdict.basis != WEIR_BASIS_FLEET ? "is without the fleet" : "denies a request",
                     (unsigned long long) verdict.remaining, (unsigned long long) verdict.limit,
                     (double) verdict.retry_after_ns / 1e9, (double) verdict.fleet_age_ns / 1e9);
        }
    }
}

void sim_audit(struct sim *sim, struct sim_audit *audit)
{
    memset(audit, 0, sizeof(*audit));
    audit->good = true;
    sim->traffic = false;
    faults_end(sim);
    for (unsigned i = 0; i < sim->options.nodes; i++) {
        /* Nodes that were leaving stay now, and are audited as the others. */
        sim->nodes[i].leaving = false;
    }
    tell(sim, audit);
    compare_all(sim, audit);
    look_for_room(sim, audit);
}
