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

#define NODES_MOST 64

struct engine_options {
    const char *path;   /* the policy file */
    const char *policy; /* whose limits are asked */
    unsigned nodes;
    size_t max_keys; /* that are counted at once */
    unsigned prefix; /* of IPv6 addresses as keys, in bits; 0: the keys are no addresses */
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

/* Checks denied for want of memory, of all nodes. */
uint64_t engine_untracked(const struct engine *e);

/* Entries evicted that had part of their limit in use, of all nodes. */
uint64_t engine_evicted(const struct engine *e);

/*
 * Opens a weir that counts nothing, and loads the file into it: for the policies' names and limits. *prefix becomes 0
 * where the names of the file's overrides are no addresses. 0, or a negative errno. The caller closes *out.
 */
int engine_probe(const char *path, const char *policy, unsigned *prefix, weir **out, weir_error *error);

#endif
