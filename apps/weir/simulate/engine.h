/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The library under the clock of a trace: one weir, or a fleet of them over a network in memory.
 *
 * The clock shows whole milliseconds. A node learns the time of a request before it decides the request, by weir_poll.
 * Nodes of a fleet are polled when weir_poll has asked for it as well, and take requests in turn.
 */
#ifndef WEIR_SIMULATE_ENGINE_H
#define WEIR_SIMULATE_ENGINE_H

#include <weir/weir.h>

#include "../trace/merge.h"
#include "tried_file.h"

#define NODES_MOST 64

struct engine_options {
    const struct tried_file *file;
    const weir_policy *policy; /* that is asked */
    unsigned nodes;
    size_t max_keys;                  /* that are counted at once */
    bool all;                         /* all requests have one key */
    bool gateway;                     /* all policies are asked, as weir-gateway asks them */
    const char *only;                 /* of the gateway's policies this one alone; NULL: all of them */
    const struct packet_kinds *kinds; /* of packets, for the gateway */
};

struct engine;

enum decision { DECISION_DENIED, DECISION_ADMITTED, DECISION_DELAYED };

/* Opens the nodes at a time. NULL: *error says why. */
struct engine *engine_open(const struct engine_options *options, uint64_t start_ms, weir_error *error);
void engine_close(struct engine *e);

/* Says what requests come next, at most MERGE_BATCH. The caller prepares and decides each once, in order. */
void engine_begin(struct engine *e, const struct request *requests);

/* Asks for the memory of the `number`th of these requests, some time before it is decided. */
void engine_prepare(struct engine *e, size_t number);

enum decision engine_decide(struct engine *e, size_t number);

/* What became of requests by one of the gateway's policies. */
struct engine_policy {
    const weir_policy *policy;
    uint64_t checked, denied; /* in shadow mode: what it would have denied */
};

/* The gateway's policies that are asked, up to `most`. Returns how many there are; 0: not played as the gateway. */
size_t engine_policies(const struct engine *e, struct engine_policy *out, size_t most);

/* Requests that an override of all policies denied, and none of them. */
uint64_t engine_denied_of_all(const struct engine *e);

/* Checks denied for want of memory, of all nodes. */
uint64_t engine_untracked(const struct engine *e);

/* Entries evicted that had part of their limit in use, of all nodes. */
uint64_t engine_evicted(const struct engine *e);

#endif
