/* SPDX-License-Identifier: Apache-2.0 */
/* What came of a run. */
#include <string.h>

#include "inside.h"

static void of_windows(const struct sim *sim, struct sim_result *result)
{
    double sum = 0;
    result->windows = (unsigned) (sim->stat_end - sim->stat_first);
    for (uint64_t i = sim->stat_first; i < sim->stat_end; i++) {
        const double ratio = (double) sim->window_units[i] / (double) sim->policy->limits[0].limit;
        sum += ratio;
        result->most = i == sim->stat_first || ratio > result->most ? ratio : result->most;
        result->least = i == sim->stat_first || ratio < result->least ? ratio : result->least;
    }
    result->mean = result->windows != 0 ? sum / result->windows : 0;
    result->worst = sim->worst > result->most ? sim->worst : result->most;
}

static void of_denials(const struct sim *sim, struct sim_result *result)
{
    result->asked = sim->asked;
    result->admitted = sim->admitted;
    result->denied = sim->denied;
    result->falsely = sim->falsely;
    result->of_one = sim->one_admitted != 0 ? (double) sim->admitted / (double) sim->one_admitted : 1;
    result->of_flow = sim->flow_admitted > 0 ? (double) sim->admitted / sim->flow_admitted : 0;
    result->false_share = sim->asked != 0 ? (double) sim->falsely / (double) sim->asked : 0;
    for (uint64_t s = 0; s < sim->seconds; s++) {
        const double share =
            sim->second_asked[s] != 0 ? (double) sim->second_false[s] / (double) sim->second_asked[s] : 0;
        if (share > result->false_worst) {
            result->false_worst = share;
            result->false_second = (unsigned) s;
        }
    }
}

static void of_nodes(const struct sim *sim, struct sim_result *result)
{
    double sum = 0;
    double squares = 0;
    unsigned count = 0;
    for (unsigned i = 0; i < sim->options.nodes; i++) {
        const struct sim_node *node = &sim->nodes[i];
        if (node->asked == 0) {
            continue;
        }
        const double part = (double) node->admitted / (double) node->asked;
        sum += part;
        squares += part * part;
        result->part_most = count == 0 || part > result->part_most ? part : result->part_most;
        result->part_least = count == 0 || part < result->part_least ? part : result->part_least;
        count++;
    }
    result->jain = squares > 0 ? sum * sum / (squares * count) : 1;
}

void sim_get_result(const struct sim *sim, struct sim_result *result)
{
    memset(result, 0, sizeof(*result));
    of_windows(sim, result);
    of_denials(sim, result);
    of_nodes(sim, result);
    const double seconds = (double) sim->options.length_ns / 1e9;
    result->rounds_rate = (double) (sim->counts_after.rounds - sim->counts_before.rounds) / seconds;
    result->reports_rate = (double) (sim->counts_after.reports - sim->counts_before.reports) / seconds;
    result->size_rate = (double) (sim->counts_after.size - sim->counts_before.size) / seconds;
    result->recovered_s = 0;
    if (sim->last_fault_ns != 0) {
        result->recovered_s = sim->recovered ? (double) (sim->recovered_ns - sim->last_fault_ns) / 1e9 : -1;
    }
    result->digest = sim->digest;
}

size_t sim_second_count(const struct sim *sim)
{
    return (size_t) (sim->options.length_ns / NS_PER_S);
}

struct sim_second sim_get_second(const struct sim *sim, size_t i)
{
    const double period_s = (double) sim->rules[0].period_ns / 1e9;
    const double rate = (double) sim->policy->limits[0].limit / period_s;
    return (struct sim_second){.asked = (double) sim->busiest_asked[i] / rate,
                               .admitted = (double) sim->busiest_admitted[i] / rate};
}
