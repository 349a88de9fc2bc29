/* SPDX-License-Identifier: Apache-2.0 */
/* What weir top has read, as JSON. */
#ifndef WEIR_TELL_TOP_H
#define WEIR_TELL_TOP_H

#include "top_view.h"

void tell_top_nodes(struct output *out, const struct top_nodes *nodes);
void tell_top_fleet(struct output *out, const struct fleet_sample *sample);

#endif
