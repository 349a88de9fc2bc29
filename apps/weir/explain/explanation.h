/* SPDX-License-Identifier: Apache-2.0 */
/* All that weir explain knows of a key, and how it is told: as text, or as JSON. */
#ifndef WEIR_EXPLANATION_H
#define WEIR_EXPLANATION_H

#include <weir/inspect.h>

#include "../fleet/fleet_key.h"
#include "../fleet/node_status.h"
#include "../output.h"

/* The most nodes whose status is asked for. */
#define EXPLAINED_STATUS_MOST 64

struct explanation {
    struct fleet_key key;
    uint64_t cost;
    const weir_inspected_key *at; /* where the key stands */
    struct node_status status[EXPLAINED_STATUS_MOST];
    size_t status_count;
};

/* The limit that decides; NULL: the override does, or there is none. */
const weir_inspected_limit *explanation_deciding(const struct explanation *e);

/* Whether the counts of a limit are in windows. */
bool explanation_is_window(const weir_inspected_limit *limit);

void explanation_tell_text(const struct explanation *e, struct output *out);
void explanation_tell_data(const struct explanation *e, struct output *out);

#endif
