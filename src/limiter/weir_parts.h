/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of a weir that joined processes share, in the order in which they lie in a segment. Names: parts_. */
#ifndef WEIR_LIMITER_WEIR_PARTS_H
#define WEIR_LIMITER_WEIR_PARTS_H

#include <stdbool.h>
#include <stdint.h>

#include "weir/weir.h"

struct transport_config;

/*
 * Takes all parts from w->pages, and fills the fresh ones. `fleet`: there is to be one. 0, or a negative errno with a
 * sentence. parts_close() may be called whatever came of it.
 */
int parts_open(weir *w, bool fleet, weir_error *error);
void parts_close(weir *w);

/* The origin of the buckets' times of a weir that is opened then, by the wall clock. */
uint64_t parts_origin_ns(uint64_t wall_ns);

/* Opens the fleet, with w->transport; `config`: of the transport. As parts_open(). */
int parts_open_fleet(weir *w, const struct transport_config *config, weir_error *error);

#endif
