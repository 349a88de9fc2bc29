/* SPDX-License-Identifier: Apache-2.0 */
/* Rounds over the library's own transport, for a command that waits for the answers and is no node of the fleet. */
#ifndef WEIR_FLEET_ROUND_H
#define WEIR_FLEET_ROUND_H

#include "../redis_link.h"
#include "transport/transport.h"

/* Waits for the end of a round. False: `error` has a sentence. The caller frees what the round has brought. */
bool fleet_round(struct redis_link *link, const char *prefix, struct round *round, weir_error *error);

/* Asks one thing. False: `error` has a sentence. The caller frees the answer in both cases. */
bool fleet_inspect(struct redis_link *link, const char *prefix, struct inspection *inspection, weir_error *error);

#endif
