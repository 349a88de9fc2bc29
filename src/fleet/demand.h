/* SPDX-License-Identifier: Apache-2.0 */
/* Demand for a key, here and elsewhere, and what follows from it for checks; see demand.c. Cells are pinned. */
#ifndef WEIR_FLEET_DEMAND_H
#define WEIR_FLEET_DEMAND_H

#include <stdbool.h>
#include <stdint.h>

#include "process/sync_state.h"
#include "transport/transport.h"

struct fleet;

/* A look at a cell begins. */
void demand_begin(struct sync_full *sync);
/* Own units of a window (or a bucket), as counted so far. */
void demand_local(struct sync_full *sync, struct sync_counts *counts, uint64_t own);
/*
 * Units denied since the last look, which it returns; the last of a look. `into_ns`: since the window began, which
 * lasts for `period_ns`; UINT64_MAX: there are no windows.
 */
uint64_t demand_denied(const struct fleet *fleet, struct sync_full *sync, uint64_t into_ns, uint64_t period_ns,
                       uint64_t now_ns);
/* A look at a log: its units so far, and of how many the fleet was told. */
void demand_units(const struct fleet *fleet, struct sync_full *sync, uint64_t counts, uint64_t end, uint64_t now_ns);
/*
 * The key of a note has just been given it. `steady`: it is used as it was since the fleet was last told; else this is
 * a beginning.
 */
void demand_reset(struct sync_full *sync, uint64_t now_ns, uint64_t interval_ns, bool steady);
/* What others were asked for, by one record's answer. */
void demand_remote(struct sync_full *sync, struct sync_counts *counts, const struct report *report);
/*
 * All answers on a key are there; `report` is the one on its present window, which began at `start_ns`, and `others`
 * what the others have admitted since the last one. Checks go by it from now on.
 */
void demand_answer(struct fleet *fleet, const struct cell *cell, struct sync_full *sync, const struct rule *rule,
                   const struct report *report, uint64_t remote, uint64_t start_ns, bool with_before);
/* The bucket's time by `count` own units and those that others are taken to have told of meanwhile. */
uint64_t demand_acked(const struct fleet *fleet, const struct sync_full *sync, const struct rule *rule, uint64_t count,
                      uint64_t now_ns);
/* Whether nodes that had not spoken for a while have turned out, with the last answer, to have failed. */
bool demand_failed(const struct fleet *fleet, const struct demand_stats *demand);
/* The same of a log. */
void demand_history(struct fleet *fleet, const struct cell *cell, struct sync_full *sync, const struct rule *rule,
                    const struct report *report, uint64_t remote);

#endif
