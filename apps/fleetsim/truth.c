/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The truth: what one limiter would know that saw every request of the fleet at once, by the fleet's clock. It counts
 * what was admitted, also what should not have been, and says whether there was room. Of a request that was denied
 * although there was, it takes the room away as well, or one unit that is left would make every later denial a false
 * one.
 *
 * Beside the truth of what the fleet did stands what one limiter would have done by itself with the same requests.
 *
 * Windows and buckets are the arithmetic of algorithm/, exact for one sequence of requests. Logs are kept here as a
 * plain list of times.
 */
#include <stdlib.h>
#include <string.h>

#include "inside.h"

static void log_forget(struct truth *truth, const struct rule *rule, uint64_t now_ns)
{
    while (truth->count != 0 && truth->times[truth->first] + rule->period_ns <= now_ns) {
        truth->first = (truth->first + 1) % truth->capacity;
        truth->count--;
    }
}

static void log_take(struct truth *truth, uint64_t now_ns, uint64_t cost)
{
    if (truth->count + cost > truth->capacity) {
        const size_t capacity = 2 * (truth->count + (size_t) cost);
        uint64_t *times = malloc(capacity * sizeof(*times));
        if (times == NULL) {
            abort(); /* a simulation without this memory would find no fault */
        }
        for (size_t i = 0; i < truth->count; i++) {
            times[i] = truth->times[(truth->first + i) % truth->capacity];
        }
        free(truth->times);
        truth->times = times;
        truth->capacity = capacity;
        truth->first = 0;
    }
    for (uint64_t i = 0; i < cost; i++) {
        truth->times[(truth->first + truth->count++) % truth->capacity] = now_ns;
    }
}

bool truth_has_room(struct sim *sim, struct truth *truths, size_t key, uint64_t cost)
{
    const uint64_t now_ns = sim_fleet_wall(sim);
    for (size_t i = 0; i < sim->limits; i++) {
        struct truth *truth = &truths[key * sim->limits + i];
        const struct rule *rule = &sim->rules[i];
        uint64_t wait_ns = 0;
        if (rule_has_history(rule)) {
            log_forget(truth, rule, now_ns);
            if (truth->count + cost > rule->limit) {
                return false;
            }
        } else if (rule_is_queue(rule)) {
            const struct queue_request request = {.cost = cost};
            if (!rule_queue(rule, truth->state, now_ns, &request, &wait_ns)) {
                return false;
            }
        } else if (rule_headroom(rule, truth->state, now_ns) < cost) {
            return false;
        }
    }
    return true;
}

void truth_take(struct sim *sim, struct truth *truths, size_t key, uint64_t cost)
{
    const uint64_t now_ns = sim_fleet_wall(sim);
    for (size_t i = 0; i < sim->limits; i++) {
        struct truth *truth = &truths[key * sim->limits + i];
        if (rule_has_history(&sim->rules[i])) {
            log_forget(truth, &sim->rules[i], now_ns);
            log_take(truth, now_ns, cost);
        } else {
            truth->state = rule_charge(&sim->rules[i], truth->state, now_ns, cost);
        }
    }
}

void truth_free(struct sim *sim)
{
    for (size_t i = 0; i < sim->options.keys * sim->limits; i++) {
        free(sim->truths != NULL ? sim->truths[i].times : NULL);
        free(sim->ones != NULL ? sim->ones[i].times : NULL);
    }
    free(sim->truths);
    free(sim->ones);
}
