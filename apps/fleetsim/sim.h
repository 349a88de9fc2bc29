/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fleet simulator: real weirs in one process, under one virtual clock, on the in-memory fleet and its network.
 *
 * A run is one stretch of traffic, in steps. In each the clock moves, faults come and go, and every node, in an order
 * drawn anew, does what is due (weir_poll) and is offered its requests one by one. Beside it the truth is kept: what
 * one limiter that sees every request at once would have counted.
 *
 * Everything is drawn from one seed, the nodes' own ids and secrets too (entropy.c): a seed and the same options give
 * the same run to the unit, on any machine.
 */
#ifndef WEIR_FLEETSIM_SIM_H
#define WEIR_FLEETSIM_SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "transport/loopback/loopback.h"
#include "weir/weir.h"

#define SIM_NODES_MAX  1024
#define SIM_KEYS_MAX   100000
#define SIM_FAULTS_MAX 64

/* How the traffic is spread over the nodes. */
enum sim_pattern {
    SIM_EVEN,
    SIM_SKEW,  /* nine tenths on the first node */
    SIM_ONOFF, /* each node is now on, now off, 1.7 s each, one a little after the other */
    SIM_MOVE,  /* all of it on one node, the next one every 3.3 s */
    SIM_JUMP,  /* all of it on the first node, then all on the second */
    SIM_BURST, /* even, and all of 1.7 s in its first 85 ms */
    SIM_TURNS, /* all of it on the even nodes for 1.7 s, then on the odd ones */
    SIM_PATTERNS
};

enum sim_fault_kind {
    SIM_CUT,         /* nodes first .. last: nothing goes through, either way */
    SIM_DEAF,        /* what they send arrives, the answers do not */
    SIM_STUCK,       /* what they send first arrives when this is over; the rest is lost */
    SIM_HANG,        /* redis stands still, and goes on afterwards */
    SIM_DOWN,        /* redis refuses */
    SIM_EMPTY,       /* redis restarts without its data */
    SIM_FLUSH,       /* redis is emptied, and runs on */
    SIM_BEHIND,      /* redis restarts with the data of behind_ns ago */
    SIM_ROLLBACK,    /* redis restarts with the data of behind_ns ago, as the same run */
    SIM_REFUSE,      /* redis refuses every record, and takes the heartbeats */
    SIM_SLOW,        /* redis answers by_ns later */
    SIM_FLEET_CLOCK, /* redis's clock is wrong by by_ns, on top of what it was */
    SIM_KILL,        /* nodes are killed */
    SIM_LEAVE,       /* nodes report what is unreported, and go */
    SIM_JOIN,        /* nodes that were not there begin */
    SIM_CLOCK        /* the wall clocks of nodes, from their start, are wrong by by_ns */
};

/* Whether it keeps nodes from the fleet for a while. */
static inline bool sim_fault_cuts(enum sim_fault_kind kind)
{
    return kind == SIM_CUT || kind == SIM_DEAF || kind == SIM_STUCK;
}

struct sim_fault {
    enum sim_fault_kind kind;
    unsigned first, last;       /* nodes */
    uint64_t from_ns, until_ns; /* since the traffic began; until_ns: of what lasts */
    uint64_t behind_ns;
    int64_t by_ns;
};

struct sim_options {
    uint64_t seed;
    unsigned nodes; /* with those that join later */
    const weir_policy *policies;
    size_t policy_count;
    size_t policy;                    /* the one that is asked */
    uint32_t interval_ms, timeout_ms; /* 0: weir's defaults */
    uint32_t expected_nodes;          /* what each node is told; 0: nothing */
    uint64_t step_ns, length_ns;
    uint64_t quiet_ns; /* nothing is asked in the last part of the run */
    double demand; /* units offered for the busiest key, in all, of what its first limit lets pass in the long run */
    enum sim_pattern pattern;
    uint64_t jump_ns; /* SIM_JUMP: when */
    double between;   /* SIM_BURST: the part of `demand` that is asked for between the bursts */
    size_t keys;
    double zipf; /* key n is asked for n^-zipf times as often as the first; 0: all alike */
    uint64_t cost;
    int32_t drift_ppm; /* hosts' clocks run fast or slow by up to so much */
    struct loopback_link link;
    const struct sim_fault *faults;
    size_t fault_count;
    weir_log_fn log; /* of all nodes */
    void *log_arg;
};

/* Filled with what most runs have. */
void sim_options_init(struct sim_options *options);

struct sim_result {
    /* Of windows that are whole, without the first two and the last, where there are so many: admitted over limit, of
     * the first limit and the busiest key. Buckets: of periods. */
    unsigned windows;
    double mean, most, least;
    double worst;                                /* the most of any key in any of them */
    uint64_t asked, admitted, denied;            /* units, from the first window that counts on; all keys */
    uint64_t falsely;                            /* of `denied`: there was room for them in the fleet */
    double false_share;                          /* of what was asked */
    double false_worst;                          /* in the worst second */
    unsigned false_second;                       /* which one that was */
    double of_one;                               /* admitted, of what one limiter that sees every request would admit */
    double of_flow;                              /* the same where requests never come at once (sim.c); 0: not known */
    double jain;                                 /* of the parts of their requests that nodes had admitted: 1 is fair */
    double part_most, part_least;                /* of these, the greatest and the least */
    double rounds_rate, reports_rate, size_rate; /* a second, of all nodes */
    double recovered_s; /* from the end of the last fault until every node had a good round; less than 0:
                           not before the end of the run */
    uint64_t digest;    /* of every decision: equal runs have equal ones */
};

/* One second of the traffic; units of the busiest key, over what its first limit lets pass in a second. */
struct sim_second {
    double asked, admitted;
};

/* What the audit found when all was quiet. */
struct sim_audit {
    bool told;         /* every living node could report everything it had */
    uint64_t told_ns;  /* how long that took */
    uint64_t checked;  /* counts compared */
    uint64_t lost;     /* units nodes admitted that the fleet has not */
    uint64_t invented; /* units the fleet has that no node admitted */
    bool open;         /* once there was room, every node let a request pass */
    bool good;         /* nothing is wrong */
    char wrong[240];   /* the first fault that was found */
};

struct sim;

/* 0; -EINVAL: an option is out of range; -ENOMEM. */
int sim_open(const struct sim_options *options, struct sim **out, weir_error *error);
void sim_close(struct sim *sim);

/* One step of the clock. False: the run is over. */
bool sim_step(struct sim *sim);

/* All that are left. */
void sim_run(struct sim *sim);

void sim_get_result(const struct sim *sim, struct sim_result *result);

/* Whole seconds of the run; second `i` is the one that begins i seconds after the traffic. */
size_t sim_second_count(const struct sim *sim);
struct sim_second sim_get_second(const struct sim *sim, size_t i);

/* Ends the traffic and every fault, lets all nodes report what they have, and audits. */
void sim_audit(struct sim *sim, struct sim_audit *audit);

/* The time since the traffic began, for tests. */
uint64_t sim_now_ns(const struct sim *sim);

/* entropy.c: getrandom gives numbers drawn from this seed from now on. */
void entropy_seed(uint64_t seed);

#endif
