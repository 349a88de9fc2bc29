/* SPDX-License-Identifier: Apache-2.0 */
/* What an opener makes of a fleet's state that nobody else has; see process/process_salvage.h. */
#ifndef WEIR_FLEET_FLEET_SALVAGE_H
#define WEIR_FLEET_FLEET_SALVAGE_H

#include <stdint.h>

#include "weir/weir.h"

struct fleet;
struct fleet_parts;

/*
 * Opens the fleet anew, as the same node: with its id, and with what it knew of the others as far as that can be. What
 * a round under way has told is not known, so each key is reported again. Times: monotonic, and fleet time. 0; as
 * fleet_open().
 */
int fleet_salvage(struct fleet *fleet, const struct fleet_parts *parts, const weir_options *options,
                  uint64_t monotonic_ns, uint64_t now_ns);

/* As fleet_open_alone(). */
void fleet_salvage_alone(struct fleet *fleet, const char *node_name, uint64_t monotonic_ns);

#endif
