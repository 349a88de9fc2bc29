/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An inspector (weir/inspect.h): a transport that reads, and what its calls have answered. Its transport is stepped by
 * the thread that calls, which waits. Names: inspector_.
 */
#ifndef WEIR_INSPECT_INSPECTOR_H
#define WEIR_INSPECT_INSPECTOR_H

#include "inspect/shelf.h"
#include "transport/transport.h"
#include "weir/inspect.h"

/* The longest prefix, with the terminator; and of a record of the fleet's own, such as "PREFIX:overrides". */
#define INSPECTOR_PREFIX_SIZE 33
#define INSPECTOR_KEY_SIZE    48

/* The primaries of a Cluster that are walked over. */
#define INSPECTOR_SHARDS TRANSPORT_MAX_POLLFDS

/* A server whose names are walked over. */
struct walk_shard {
    char server[128];
    char cursor[24];
    bool ended; /* this walk has reached its last name */
};

struct weir_inspector {
    struct transport *transport;
    uint64_t failures_most; /* before a round begins, at which a call gives up: for the hosts of the URL */
    bool (*ends)(void);     /* of inspector_end_by; NULL: nothing ends a wait */
    char prefix[INSPECTOR_PREFIX_SIZE];
    /* What the last call of each kind has answered. */
    struct shelf of_fleet, of_overrides, of_key, of_records, of_full_keys;
    weir_inspected_fleet fleet;
    weir_inspected_overrides overrides;
    weir_inspected_key key;
    weir_inspected_records records;
    weir_inspected_full_keys full_keys;
    struct walk_shard shards[INSPECTOR_SHARDS];
    size_t shard_count;
};

/*
 * Waits for the end of a round. `partly`: some of it may be unanswered, and has -EAGAIN; else all of it is answered.
 * Not 0: `error` has a sentence. The caller frees what the round has brought in both cases.
 */
int inspector_round(weir_inspector *in, struct round *round, bool partly, weir_error *error);

/* Asks one thing. Not 0: `error` has a sentence. The caller frees the answer in both cases. */
int inspector_ask(weir_inspector *in, struct inspection *asked, weir_error *error);

/* Ends waiting calls as soon as `ends` says so, for a program that handles signals. It is called often. The inspector
 * is of no use after that but to be closed. */
void inspector_end_by(weir_inspector *in, bool (*ends)(void));

/* The server of a shard, without the word "redis" before it; NULL: there are no more. */
const char *inspector_shard(const weir_inspector *in, size_t number);

#endif
