/* SPDX-License-Identifier: Apache-2.0 */
/* Problems of the transport: logged once per change, counted by kind; see link_health.c. Names: link_error_. */
#ifndef WEIR_FLEET_LINK_HEALTH_H
#define WEIR_FLEET_LINK_HEALTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fleet;

struct link_health {
    char problem[340];      /* the problem last logged, with the server; "": none */
    uint64_t problem_ns;    /* since when there is one */
    uint64_t logged_ns;     /* when the log last had it */
    uint64_t missed_ns;     /* end of the next interval that has no round; 0: the transport is connected */
    uint64_t failure_count; /* failures of the transport that were counted by kind */
};

/* Looks for a problem of the transport, as of `monotonic_ns`. `failed`: a round has just failed. */
void link_health_check(struct fleet *fleet, bool failed, uint64_t monotonic_ns);

/* The label of a kind, below LINK_ERROR_KINDS. */
const char *link_error_name(size_t kind);

#endif
