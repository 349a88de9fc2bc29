/* SPDX-License-Identifier: Apache-2.0 */
#include "load.h"

#include <stdio.h>

#include "tools.h"

#define STEPS   10 /* in an interval */
#define STEP_NS (LOAD_INTERVAL_MS * NS_PER_MS / STEPS)

void load_run(weir *w, weir_thread *t, weir_policy_id policy, size_t count, unsigned intervals)
{
    const uint64_t begun_ns = tools_now_ns();
    for (unsigned step = 0; step < intervals * STEPS; step++) {
        const size_t first = step % STEPS;
        for (size_t i = first; i < count || i == first; i += STEPS) {
            char text[32];
            const size_t number = i < count ? i : 0;
            const int length = snprintf(text, sizeof(text), "198.51.%zu.%zu", number >> 8, number & 255);
            const weir_key key = weir_make_key(w, policy, text, (size_t) length);
            weir_charge(t, &key, 3);
        }
        tools_sleep_until(begun_ns + (step + 1) * STEP_NS);
    }
}

static void *load_main(void *arg)
{
    struct load *load = arg;
    weir_thread *t = weir_attach(load->w);
    while (t != NULL && !atomic_load(&load->ends)) {
        if (atomic_load(&load->active)) {
            load_run(load->w, t, load->policy, LOAD_KEYS, 1);
        } else {
            tools_sleep_until(tools_now_ns() + STEP_NS);
        }
    }
    weir_detach(t);
    return NULL;
}

int load_start(struct load *load, weir *w, weir_policy_id policy)
{
    load->w = w;
    load->policy = policy;
    atomic_init(&load->active, false);
    atomic_init(&load->ends, false);
    return pthread_create(&load->thread, NULL, load_main, load);
}

void load_set(struct load *load, bool active)
{
    atomic_store(&load->active, active);
}

void load_stop(struct load *load)
{
    atomic_store(&load->ends, true);
    (void) pthread_join(load->thread, NULL);
}
