/* SPDX-License-Identifier: Apache-2.0 */
/* How much each node is asked for, and for which key. */
#include <math.h>
#include <stdlib.h>

#include "inside.h"

#define ONOFF_S      1.7
#define ONOFF_LATE_S 0.37 /* of the period: so much later is the next node */
#define MOVE_S       3.3
#define BURST_PART   0.05

bool demand_init(struct sim *sim)
{
    const struct sim_options *options = &sim->options;
    sim->shares = calloc(options->keys, sizeof(*sim->shares));
    if (sim->shares == NULL) {
        return false;
    }
    double sum = 0;
    for (size_t i = 0; i < options->keys; i++) {
        sum += pow((double) (i + 1), -options->zipf);
        sim->shares[i] = sum;
    }
    const struct rule *rule = &sim->rules[0];
    const double refill = (double) sim->policy->limits[0].limit / ((double) rule->period_ns / 1e9);
    sim->rate = options->demand * refill * sum;
    return true;
}

double demand_at(const struct sim *sim, unsigned rank, unsigned living, uint64_t at_ns)
{
    const double now = (double) at_ns / 1e9;
    const double even = sim->rate / living;
    const unsigned turning = (living + 1 - rank % 2) / 2; /* nodes that have their turn when this one has */
    unsigned active;
    switch (sim->options.pattern) {
    case SIM_SKEW:
        if (living == 1) {
            return sim->rate;
        }
        return rank == 0 ? 0.9 * sim->rate : 0.1 * sim->rate / (living - 1);
    case SIM_ONOFF:
        return ((uint64_t) (now / ONOFF_S + rank * ONOFF_LATE_S)) % 2 != 0 ? 0 : even;
    case SIM_MOVE:
        return (uint64_t) (now / MOVE_S) % living == rank ? sim->rate : 0;
    case SIM_JUMP:
        active = at_ns < sim->options.jump_ns || living == 1 ? 0 : 1;
        return rank == active ? sim->rate : 0;
    case SIM_TURNS:
        if (living == 1) {
            return sim->rate;
        }
        return rank % 2 != ((uint64_t) (now / ONOFF_S)) % 2 ? 0 : sim->rate / turning;
    case SIM_BURST:
        return fmod(now, ONOFF_S) < BURST_PART * ONOFF_S ? even / BURST_PART : even * sim->options.between;
    case SIM_EVEN:
    case SIM_PATTERNS:
    default:
        return even;
    }
}

size_t demand_key(struct sim *sim)
{
    const size_t count = sim->options.keys;
    if (count == 1) {
        return 0;
    }
    const double at = sim_fraction(sim) * sim->shares[count - 1];
    size_t low = 0;
    size_t high = count - 1;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (sim->shares[middle] > at) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}
