/* SPDX-License-Identifier: Apache-2.0 */
/* All that weir explain knows of a key, and how it is told: as text, or as JSON. */
#ifndef WEIR_EXPLANATION_H
#define WEIR_EXPLANATION_H

#include "../fleet/node_status.h"
#include "../fleet/standing.h"
#include "../output.h"

/* The most nodes whose status is asked for. */
#define EXPLAINED_STATUS_MOST 64

struct explanation {
    struct fleet_key key;
    struct fleet_nodes nodes;
    uint64_t cost;
    struct standing limits[WEIR_MAX_LIMITS];
    size_t limit_count; /* 0: the policy's counts are in no Redis, or the key is a network */
    struct node_status status[EXPLAINED_STATUS_MOST];
    size_t status_count;
};

/* Whether a request would be denied now: by the override, or by a limit. Shadow mode aside. */
bool explanation_denies(const struct explanation *e);

/* The limit that decides: the last one to let the request pass, else the one with the least room. NULL: none does. */
const struct standing *explanation_deciding(const struct explanation *e);

void explanation_tell_text(const struct explanation *e, struct output *out);
void explanation_tell_data(const struct explanation *e, struct output *out);

#endif
