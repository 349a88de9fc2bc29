/* SPDX-License-Identifier: Apache-2.0 */
/* What each node has reported in one record. */
#ifndef WEIR_INSPECT_AUTHORS_H
#define WEIR_INSPECT_AUTHORS_H

#include "inspect/shelf.h"
#include "transport/transport.h"
#include "weir/inspect.h"

/*
 * Takes the answers to a report of nothing and to the question about the authors of its record, which need not have
 * been asked. `fleet`: whose authors these are. False: no memory.
 */
bool authors_take(struct shelf *shelf, const struct report *report, const struct inspection *authors,
                  const weir_inspected_fleet *fleet, weir_inspected_record *out);

#endif
