/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether the nodes of a fleet have the same limits under the same names. Where two programs use one prefix and one
 * policy name with limits of their own, each limits the other's requests by its own numbers: the log says so.
 *
 * A node tells its limits with a round when they have changed, when nodes come or go, and every half a minute
 * (150 intervals, where these are short); no other round has any of it. Nodes with the same limits share one text there
 * (scripts/limits.lua).
 */
#ifndef WEIR_FLEET_AGREEMENT_H
#define WEIR_FLEET_AGREEMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/atomics.h"

struct fleet;
struct policy_set;

/* Differences that a node knows to have told. Of more it tells the first ones. */
#define AGREEMENT_TOLD_MAX 32

struct agreement {
    _Atomic uint32_t changed;          /* 1: policies were set since the limits were told. By any thread */
    uint64_t told_ns;                  /* begin of the last round that told them, monotonic; 0: none did */
    uint32_t nodes;                    /* live and suspect nodes then */
    char version[24];                  /* of the others' limits that this node has compared; "": none */
    uint64_t digest, before;           /* of its own limits then, and of those before; 0: there were none */
    uint64_t told[AGREEMENT_TOLD_MAX]; /* differences that the log has been told, by a hash of both texts */
    uint32_t count;                    /* of `told` */
};

/* Other policies are in force. Any thread. */
void agreement_policies_changed(struct fleet *fleet);

/* Has the round tell this node's limits, if it is time to. Within an RCU section. */
void agreement_tell(struct fleet *fleet, uint64_t monotonic_ns);

/* Takes in what a good round says of the others' limits. */
void agreement_hear(struct fleet *fleet);

/* A round failed, or lost what was told: the next one tells it again. Frees what the round has brought. */
void agreement_forget(struct fleet *fleet);

#endif
