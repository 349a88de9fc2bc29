/* SPDX-License-Identifier: Apache-2.0 */
/* Publishes an answer to the checks: writes the key's struct allowance. The cell is pinned. */
#ifndef WEIR_FLEET_KEYS_PUBLISH_H
#define WEIR_FLEET_KEYS_PUBLISH_H

#include <stdbool.h>
#include <stdint.h>

struct cell;
struct report;
struct rule;
struct sync_full;
struct fleet;

/* The answer on a key, when all its answers are merged. */
struct publish_input {
    const struct cell *cell;
    struct sync_full *sync;
    const struct rule *rule;
    const struct report *report; /* the one on the present window */
    uint64_t remote;             /* units that the other nodes admitted since the last answer */
    uint64_t start_ns;           /* when the present window began; 0: there are no windows */
    bool with_before;            /* the window before was reported too */
    uint64_t seen, kept;         /* of a log: see struct history_news */
};

/* Of a window or a bucket. */
void publish_answer(struct fleet *fleet, const struct publish_input *input);
/* Of a sliding log. */
void publish_history(struct fleet *fleet, const struct publish_input *input);

#endif
