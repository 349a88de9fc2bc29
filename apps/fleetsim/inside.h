/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the simulator share. */
#ifndef WEIR_FLEETSIM_INSIDE_H
#define WEIR_FLEETSIM_INSIDE_H

#include "algorithm/rule.h"
#include "base/hash.h"
#include "base/numbers.h"
#include "limiter/weir_private.h"
#include "sim.h"

/* A multiple of every window up to a day, so that windows begin with the traffic. */
#define SIM_EPOCH_NS (UINT64_C(20370) * 86400 * NS_PER_S)

/* Windows of one limit of one key that a node's own counts are kept of. */
#define LEDGER_WINDOWS 4

/* What one node has let pass of one key under one limit. */
struct ledger {
    uint64_t total;
    uint64_t number[LEDGER_WINDOWS]; /* of windows, by the node's own time */
    uint64_t units[LEDGER_WINDOWS];
};

struct sim_node {
    bool alive;
    bool was_here; /* has been opened, at some time */
    bool cut, clock_known;
    bool leaving; /* the node goes as soon as it has reported its units */
    weir *w;
    weir_thread *t;
    struct transport *transport;
    weir_clock clock;
    uint64_t monotonic_ns, wall_ns;
    uint64_t boot_ns; /* of its monotonic clock, when it began */
    int64_t wrong_ns;
    int32_t drift_ppm;
    uint64_t open_ns; /* virtual time at which it begins */
    uint64_t due_ns;  /* virtual time at which it wants to be polled */
    bool asked_last;  /* in the last step */
    unsigned rank;    /* among those that take requests */
    bool joins;       /* later */
    double carry;     /* of a request that is not whole yet */
    weir_key *keys;
    char id[REPORT_AUTHOR_SIZE];
    uint64_t syncs_at_fault;
    uint64_t asked, admitted; /* units, from the first window that counts on */
    struct ledger *ledgers;   /* by key and limit */
    struct ledger *least;     /* of a killed node: what the fleet had of it, and has not lost since */
};

/* What the truth is of one key under one limit. */
struct truth {
    struct state state;
    uint64_t *times; /* of a log's units; a ring */
    size_t first, count, capacity;
};

struct sim {
    struct sim_options options;
    struct sim_fault faults[SIM_FAULTS_MAX];
    bool begun[SIM_FAULTS_MAX], ended[SIM_FAULTS_MAX];
    struct loopback_snapshot *snapshots[SIM_FAULTS_MAX];
    uint64_t last_fault_ns; /* when the last one is over */
    const weir_policy *policy;
    struct rule rules[WEIR_MAX_LIMITS];
    size_t limits;
    double rate; /* units a second offered, all keys */
    uint64_t random;
    uint64_t now_ns;     /* virtual time, since the epoch below */
    uint64_t traffic_ns; /* when the traffic begins; nodes begin before */
    int64_t fleet_wrong_ns;
    bool traffic;
    struct loopback_fleet *fleet;
    struct sim_node *nodes;
    unsigned *order;
    char (*names)[24];    /* of keys */
    double *shares;       /* cumulative, of keys */
    struct truth *truths; /* by key and limit */
    /* What is counted. */
    uint64_t window_count;         /* that the run touches */
    uint64_t stat_first, stat_end; /* those that count */
    uint64_t *window_units;        /* by window, of the busiest key */
    uint64_t *key_units;           /* by key, of this window */
    uint64_t key_window;
    double worst;
    uint64_t seconds;
    uint64_t *second_asked, *second_false;
    uint64_t *busiest_asked, *busiest_admitted; /* by second, of the busiest key */
    struct truth *ones;                         /* by key and limit: what one limiter would have */
    uint64_t one_admitted;                      /* and what it would have admitted */
    double flow_left, flow_admitted;            /* the same of demand that flows: of the first limit, a bucket */
    uint64_t asked, admitted, denied, falsely;
    struct loopback_counts counts_before, counts_after;
    uint64_t recovered_ns;
    bool recovered;
    uint64_t digest;
    char labels[WEIR_MAX_LIMITS][POLICY_LABEL_SIZE]; /* in names of records */
    bool outlived;                                   /* the run is longer than a bucket's record must live */
    bool forgot;                                     /* the fleet lost data at some time */
};

/* sim.c */
uint64_t sim_random(struct sim *sim);
double sim_fraction(struct sim *sim);
uint64_t sim_fleet_wall(const struct sim *sim);
void sim_node_poll(struct sim *sim, struct sim_node *node);
bool sim_node_open(struct sim *sim, unsigned i, weir_error *error);
void sim_node_kill(struct sim *sim, unsigned i);
/* Moves the clock, works off what has arrived and polls the nodes that are due, without traffic. */
void sim_quiet_step(struct sim *sim);

/* demand.c */
bool demand_init(struct sim *sim);
/* Units a second that are offered to the node that is the rank'th of so many living ones. */
double demand_at(const struct sim *sim, unsigned rank, unsigned living, uint64_t at_ns);
size_t demand_key(struct sim *sim);

/* truth.c */
bool truth_has_room(struct sim *sim, struct truth *truths, size_t key, uint64_t cost);
void truth_take(struct sim *sim, struct truth *truths, size_t key, uint64_t cost);
void truth_free(struct sim *sim);

/* faults.c */
void faults_run(struct sim *sim);
void faults_end(struct sim *sim);

/* audit.c */
/* Notes what a node has let pass, by its own time. */
void ledger_add(struct sim *sim, struct sim_node *node, size_t key, uint64_t cost);
/* Notes how the limits are called in the names of records. */
void ledger_note_labels(struct sim *sim);
/* The node's time was set: its counts moved with it. */
void ledger_shift(struct sim *sim, struct sim_node *node, uint64_t before_ns, uint64_t after_ns);
/* What the fleet has of the dead: at most that can be lost. */
void ledger_note_dead(struct sim *sim, struct sim_node *only);

static inline struct ledger *ledger_of(const struct sim *sim, struct ledger *ledgers, size_t key, size_t limit)
{
    return &ledgers[key * sim->limits + limit];
}

#endif
