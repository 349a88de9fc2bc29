/* SPDX-License-Identifier: Apache-2.0 */
/* weir doctor: what is looked at, and how a finding is told. */
#ifndef WEIR_DOCTOR_H
#define WEIR_DOCTOR_H

#include <stdbool.h>
#include <stdint.h>

#include "../fleet/fleet_nodes.h"
#include "../output.h"
#include "../quantity.h"
#include "../redis_link.h"

enum finding_level { FINDING_OK, FINDING_WARN, FINDING_BAD };

struct doctor {
    struct output *out;
    struct redis_link *link;
    const char *prefix;
    const char *policies;     /* the policy file; NULL: none */
    enum finding_level worst; /* so far */
    bool unanswered;          /* Redis has stopped to answer */
    char *info;               /* the answer to INFO; NULL: refused */
    struct fleet_nodes nodes;
};

/* Tells a finding. `advice` NULL: nothing is to be done. */
void doctor_tell(struct doctor *doctor, enum finding_level level, const char *name, const struct sentence *words,
                 const char *advice);

/*
 * Sends a command and returns its answer, an error among them. NULL: no answer, which is a finding. The caller frees
 * it.
 */
redisReply *doctor_ask(struct doctor *doctor, int argc, const char **argv);

/* The text behind "name:" in the answer to INFO, up to its line's end, into `out`. False: there is no such field. */
bool doctor_info(const struct doctor *doctor, const char *name, char *out, size_t size);
uint64_t doctor_info_number(const struct doctor *doctor, const char *name);

/* Version, role, memory, eviction, persistence, Cluster. */
void server_checks(struct doctor *doctor);
/* Clock, latency, cost of scripts. */
void pace_checks(struct doctor *doctor);
/* The commands that the user may run. */
void rights_checks(struct doctor *doctor);
/* Nodes, overrides, and with a policy file the records. */
void fleet_checks(struct doctor *doctor);
void record_checks(struct doctor *doctor);

#endif
