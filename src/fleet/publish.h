/* SPDX-License-Identifier: Apache-2.0 */
/* Publishes an answer to the checks: writes the key's struct allowance. The cell is pinned. */
#ifndef WEIR_FLEET_PUBLISH_H
#define WEIR_FLEET_PUBLISH_H

#include <stdbool.h>
#include <stdint.h>

#include "algorithm/rule.h"
#include "process/sync_state.h"
#include "transport/transport.h"

struct fleet;

/*
 * All answers on a key are merged; `report` is the one on its present window, which began at `start_ns`. `remote`:
 * units that other nodes admitted since the last answer. `with_before`: the window before was reported too.
 */
void publish_answer(struct fleet *fleet, const struct cell *cell, struct sync_full *sync, const struct rule *rule,
                    const struct report *report, uint64_t remote, uint64_t start_ns, bool with_before);
/* Of a sliding log. */
void publish_history(struct fleet *fleet, const struct cell *cell, struct sync_full *sync, const struct rule *rule,
                     const struct report *report, uint64_t remote);

#endif
