/* SPDX-License-Identifier: Apache-2.0 */
/* weir doctor: what is looked at, and how a finding is told. */
#ifndef WEIR_DOCTOR_H
#define WEIR_DOCTOR_H

#include <stdbool.h>
#include <stdint.h>
#include <weir/inspect.h>

#include "../output.h"
#include "../quantity.h"
#include "../redis_link.h"

/* A note is what people may want to act on, though nothing is wrong with Redis. */
enum finding_level { FINDING_OK, FINDING_NOTE, FINDING_WARN, FINDING_BAD };

struct doctor {
    struct output *out;
    struct redis_link *link;
    weir_inspector *in;
    const char *prefix;
    const char *policies;          /* the policy file; NULL: none */
    enum finding_level worst;      /* so far; notes aside */
    bool unanswered;               /* Redis has stopped to answer */
    bool of_shard;                 /* a Cluster's server is looked at: findings have its name */
    bool further;                  /* and it is not the first: what is good is not told again */
    bool unreached;                /* a shard could not be looked at */
    bool lost[REDIS_LINK_SERVERS]; /* by shard: it could not, and is not tried again */
    char *info;                    /* the answer to INFO; NULL: refused */
    size_t node_count;             /* of the fleet */
    uint64_t server_ns;            /* the clock of the server with the set of nodes */
};

/* Tells a finding. `advice` NULL: nothing is to be done. */
void doctor_tell(struct doctor *doctor, enum finding_level level, const char *name, const struct sentence *words,
                 const char *advice);

/* As doctor_tell, and the caller adds further fields to the JSON, and closes it with output_close(out, '}'). */
void doctor_tell_open(struct doctor *doctor, enum finding_level level, const char *name, const struct sentence *words,
                      const char *advice);

/* Tells that Redis has given no answer to a command, and that nothing more is asked. */
void doctor_unanswered(struct doctor *doctor, const char *command, const weir_error *error);

/* What to do about an answer that is an error. */
const char *doctor_advice(const weir_error *error);

/*
 * Sends a command and returns its answer, an error among them. NULL: no answer, which is a finding. The caller frees
 * it.
 */
redisReply *doctor_ask(struct doctor *doctor, int argc, const char **argv);

/* As doctor_ask, and a server of a Cluster answers itself for keys that other servers have: by an error. */
redisReply *doctor_ask_here(struct doctor *doctor, int argc, const char **argv);

/* The text behind "name:" in the answer to INFO, up to its line's end, into `out`. False: there is no such field. */
bool doctor_info(const struct doctor *doctor, const char *name, char *out, size_t size);
uint64_t doctor_info_number(const struct doctor *doctor, const char *name);

/* Version, role, memory, eviction, persistence, Cluster. */
void server_checks(struct doctor *doctor);
/* Clock and latency; the cost of scripts. */
void pace_checks(struct doctor *doctor);
void script_checks(struct doctor *doctor);
/* The commands that the user may run. */
void rights_checks(struct doctor *doctor);
/* Nodes, overrides, and with a policy file the records, and the keys that are at their limit. */
void fleet_checks(struct doctor *doctor);
/* Nodes with other limits under one name. After fleet_checks, which reads the time. */
void limit_checks(struct doctor *doctor);
void record_checks(struct doctor *doctor);

/* Tells which keys of these records are at their limit, by the policies of `w`. */
void key_checks(struct doctor *doctor, weir *w, const weir_inspected_records *records);

#endif
