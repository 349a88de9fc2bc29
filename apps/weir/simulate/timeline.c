/* SPDX-License-Identifier: Apache-2.0 */
/* See timeline.h. */
#include "timeline.h"

#include <string.h>

/* Lengths that people count in, in seconds; each is a multiple of the one before. Beyond the last they are doubled. */
static const uint64_t lengths[] = {1, 5, 10, 30, 60, 300, 600, 1800, 3600, 10800, 21600, 43200, 86400};
#define LENGTH_COUNT (sizeof(lengths) / sizeof(lengths[0]))

void timeline_init(struct timeline *t)
{
    *t = (struct timeline){.step_s = lengths[0], .first_s = UINT64_MAX};
}

static uint64_t longer(uint64_t step_s)
{
    for (size_t i = 0; i < LENGTH_COUNT; i++) {
        if (lengths[i] > step_s) {
            return lengths[i];
        }
    }
    return 2 * step_s;
}

static void lengthen(struct timeline *t)
{
    const uint64_t step_s = longer(t->step_s);
    const uint64_t first_s = t->first_s - t->first_s % step_s;
    size_t count = 0;
    for (size_t i = 0; i < t->count; i++) {
        const struct step step = t->steps[i];
        const size_t to = (size_t) ((t->first_s + i * t->step_s - first_s) / step_s);
        if (to >= count) {
            memset(&t->steps[count], 0, (to + 1 - count) * sizeof(step));
            count = to + 1;
        }
        t->steps[to].requests += step.requests;
        t->steps[to].denied += step.denied;
        t->steps[to].denied_old += step.denied_old;
    }
    t->step_s = step_s;
    t->first_s = first_s;
    t->count = count;
}

/* The step of a second, which is there then. */
static size_t step_of(struct timeline *t, uint64_t second)
{
    if (t->first_s == UINT64_MAX) {
        t->first_s = second;
    }
    while ((second - t->first_s) / t->step_s >= TIMELINE_STEPS) {
        lengthen(t);
    }
    const size_t at = (size_t) ((second - t->first_s) / t->step_s);
    while (t->count <= at) {
        t->steps[t->count++] = (struct step){0, 0, 0};
    }
    return at;
}

void timeline_add(struct timeline *t, uint64_t time_ms, bool denied, bool denied_old)
{
    const uint64_t second = time_ms / 1000;
    /* Divisions for each request would be felt. */
    if (second != t->last_s || t->first_s == UINT64_MAX) {
        t->last = step_of(t, second);
        t->last_s = second;
    }
    struct step *step = &t->steps[t->last];
    step->requests++;
    step->denied += denied;
    step->denied_old += denied_old;
}

void timeline_fit(struct timeline *t, size_t most)
{
    while (t->count > most) {
        lengthen(t);
    }
}
