/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fleet tier: what this node tells the others and learns of them. All of it runs in the background thread (or in
 * weir_poll); nothing here is ever waited for by a check.
 *
 *   round.c      rounds: when, what came of them, the log
 *   gather.c    which cells a round holds
 *   report.c    from cells to reports; report_history.c: of sliding logs
 *   merge.c      from answers to cells
 *   demand.c     what the answers say of the demand; estimate.c: what follows from that
 *   sweep.c     what is done to all keys of a policy
 *   outage.c    the ladder
 *   membership.c  which nodes there are
 *   link_health.c   what is wrong with the way to the fleet
 *   fleet_clock.c      fleet time
 *   loopback.c    a fleet within one process
 */
#ifndef WEIR_FLEET_FLEET_H
#define WEIR_FLEET_FLEET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/atomics.h"
#include "fleet/membership.h"
#include "thread/limiter.h"
#include "transport/transport.h"

/* Most reports in one round; what is left goes in the next one, which follows at once. */
#define ROUND_REPORTS 1000

/* Most logs in one round. */
#define ROUND_HISTORIES 128

/* Most units of one log, given back, that are taken away in one round. */
#define ROUND_REFUNDS 1000

/* Most forgotten keys in one round. */
#define ROUND_EVICTED 256

#define PREFIX_MAX   32
#define NODE_ID_SIZE 16

/* Where a report came from, to bring the answer there. */
struct report_source {
    uint32_t cell; /* TABLE_NONE: a forgotten key */
    uint32_t seq;  /* the note's, when the report was made */
    uint64_t incarnation;
    bool before;      /* of the window before `tag` */
    bool with_before; /* a report on that one stands before this one */
    bool again;       /* it tells even what has been told before */
    uint32_t evicted; /* of a forgotten key: its index */
};

/* What a round is for. */
enum round_kind {
    ROUND_URGENT,    /* what cannot wait, and nothing else */
    ROUND_INTERVAL,  /* the one of an interval */
    ROUND_REST,      /* what that had no room for */
    ROUND_FULL_SYNC, /* what comes next of a flush */
    ROUND_ASK,       /* nothing; who is there? */
};

/*
 * Everything, told once through for a weir_sync: from the beginning of the table to its end, over as many rounds as it
 * takes. What is used behind it meanwhile is not waited for: with keys in use there would be no end to that.
 */
struct full_sync {
    uint64_t request;         /* the newest weir_sync that it serves; 0: none is under way */
    uint64_t again;           /* that of the one which it begins again */
    uint32_t dirty, deferred; /* cells of either kind that it has come to */
    uint32_t forgotten;       /* keys that it has told of since it has come to the end of both */
    uint32_t history_cell;    /* a log that had more to tell than a round holds */
    uint64_t history_end;     /* and up to which of its units it is waited for */
    bool urgent;              /* the round before this one was for what cannot wait */
    bool done;                /* the round under way holds the last of it */
};

/* Fleet time, from the samples of some rounds. */
struct fleet_clock {
    uint64_t best_rtt_ns;
    uint64_t least_rtt_ns; /* of all samples; 0: none yet */
    int64_t best_error_ns; /* fleet clock - our idea of it, by the sample with the least round trip */
    unsigned samples;      /* since the best was last chosen */
    int64_t slew_left_ns;  /* still to be slewed */
    int64_t step_ns;       /* by so much the keys' states are being moved; 0: they are not */
    bool readers_drained;  /* no check is under way that began before the step */
    bool known;
    int64_t said_ns; /* so far fleet time was ahead of Redis's clock when the log last had it; 0: it had not to */
};

/*
 * How far the estimate was from what the others turned out to have admitted, as parts of the limit: counts by upper
 * bounds of ESTIMATE_BOUNDS, the rest in the last.
 */
#define ESTIMATE_BUCKETS 10
extern const int32_t estimate_bounds[ESTIMATE_BUCKETS - 1]; /* millionths of the limit */

#define LINK_ERROR_KINDS 15

struct fleet_stats {
    _Atomic uint64_t link_error_counts[LINK_ERROR_KINDS];
    _Atomic uint64_t estimate_counts[ESTIMATE_BUCKETS];
    _Atomic int64_t estimate_sum; /* millionths of the limit */
    _Atomic uint64_t urgent_sync_count;
    _Atomic uint64_t live_nodes, suspect_nodes, awaiting_peers, round_trip_ns, sync_count, sync_error_count,
        connection_count, connection_attempt_count, redis_lost_state_count;
    _Atomic uint64_t report_count, rejected_report_count, report_retry_count, deferred_report_count, sent_size,
        overrides_left_out;
    _Atomic int64_t clock_skew_ns;
    _Atomic uint32_t link; /* weir_link */
};

struct fleet {
    struct limiter *limiter;
    struct process *process; /* of the same */
    struct transport *transport;
    weir_log_fn log;
    void *log_arg;
    char prefix[PREFIX_MAX + 1];
    char node[NODE_ID_SIZE];
    char name[64]; /* for people */
    uint32_t interval_ms, timeout_ms;
    uint32_t expected_nodes; /* as configured */
    uint64_t opened_ns;      /* monotonic, as all below */
    uint64_t good_ns;        /* last good round; 0: none yet */
    uint64_t news_ns;        /* when that was begun: what it told is no older */
    bool slow;               /* that took long */
    bool failed;             /* a round has failed since, or could not be begun */
    uint64_t next_round_ns;
    uint64_t extra_round_ns; /* one more, and the others stay where they are; UINT64_MAX: none */
    struct round round;
    bool under_way;
    uint64_t back_ns;            /* since when there are good rounds again; 0: there was no outage */
    uint64_t news_age_ns;        /* how old the others' news was when the round under way was made, on average */
    uint64_t gathered_before_ns; /* and the one before it */
    uint64_t gathered_ns;        /* fleet time at which the round under way was made */
    uint64_t interval_count;
    uint32_t gather_count;
    bool tells_all;   /* for measurements: nothing is left to its turn */
    bool leaves;      /* this node is about to go */
    bool tells;       /* in the round that is gathered: what was held back (report.c) */
    bool resumes;     /* as of the last good round: nodes that were suspect are back */
    bool resumes_now; /* and that round was the first to say so */
    bool hinted;      /* that more nodes are live than expected */
    bool awaits;      /* as of the last good round: nodes that were there have not told yet what they used */
    bool outage;      /* a policy has left the fleet's rung since the last good round */
    uint32_t cursor;  /* where the next round begins to look for dirty cells */
    uint32_t scan_cursor, scan_end;     /* the part of the table whose postponed cells are due */
    uint32_t resync_cursor, resync_end; /* likewise of all cells, while the fleet is told everything again */
    uint64_t resynced_at;               /* interval_count when that last began */
    uint32_t forgiven;                  /* cells that sweep.c has looked at, for each of its ends; all: it is done */
    uint32_t shifted;                   /* likewise */
    bool waiting;                       /* the last round had no room for all that was due */
    bool sync_missing;                  /* there was no note to be had for a cell of the round under way */
    bool lost;                          /* an answer knew less than an earlier one */
    size_t retry_count;                 /* reports of the last round that are to be sent again */
    struct report *reports;
    struct report_source *sources;
    struct log_news *histories; /* ROUND_HISTORIES of them */
    size_t history_count;
    struct evicted_report *evicted_reports; /* of the round under way, and of ones that failed */
    size_t evicted_count;
    size_t evicted_told; /* of them in the round under way */
    size_t memory_size;
    bool forgives[WEIR_MAX_POLICIES + 1]; /* by group: whose buckets report_forgive is about */
    struct full_sync full_sync;
    struct fleet_clock clock;
    bool (*move_origin)(void *arg, int64_t delta_ns); /* of bucket times, in all rules; false: not now */
    void *move_arg;
    uint64_t stepped_ns;   /* when fleet_step last ran */
    uint64_t inspected_ns; /* when the transport was last stepped */
    uint64_t transport_ns; /* when the transport wants to be stepped, whatever is ready */
    struct membership membership;
    char problem[340];                    /* last logged, with the server; "": none */
    uint64_t problem_ns;                  /* since when there is one */
    uint64_t said_ns;                     /* when the log last had it */
    uint64_t missed_ns;                   /* when the next interval without a round is over; 0: Redis is connected */
    uint64_t failure_count;               /* of the transport's failures, those counted by kind */
    bool rejecting;                       /* the last good round had refused records */
    bool given_back;                      /* the round has told of units given back: denials may be over */
    uint64_t begun_ns;                    /* when the last round was begun */
    char overrides_version[64];           /* of the entries last taken */
    struct override_text *override_texts; /* not yet taken by the weir */
    size_t override_count;
    uint64_t overrides_left_out; /* of those there are */
    bool has_overrides;
    _Atomic uint64_t requests; /* weir_sync calls so far */
    _Atomic uint64_t served;   /* the newest one whose flush was answered to the end */
    _Atomic uint32_t waiters;  /* weir_sync calls that have not given up */
    struct fleet_stats stats;
};

/* Takes over the transport. 0; -ENOMEM. */
int fleet_open(struct fleet *fleet, struct limiter *limiter, struct transport *transport, const weir_options *options,
               uint64_t monotonic_ns);
void fleet_close(struct fleet *fleet);

/*
 * What is due at `monotonic_ns`. `idle`: nothing has been checked for a while. `ready`: one of the descriptors that
 * fleet_wait_for gave is, or it is not known.
 */
void fleet_step(struct fleet *fleet, uint64_t monotonic_ns, bool idle, bool ready);

/* What to wait for; lowers *deadline_ns. */
size_t fleet_wait_for(struct fleet *fleet, struct pollfd *fds, uint64_t *deadline_ns);

/* A weir_sync begins to wait, which returns its number: it is over when that is served. And it ends, served or not. */
uint64_t fleet_wait_begin(struct fleet *fleet);
void fleet_wait_end(struct fleet *fleet);

/* Whether any was asked for that has not been served: one that has given up goes once through, as far as it comes. */
bool fleet_wanted(const struct fleet *fleet);

__attribute__((format(printf, 3, 4))) void fleet_log(const struct fleet *fleet, weir_log_level level,
                                                     const char *format, ...);

/* gather.c, merge.c and sweep.c; within an RCU section. */

/* Fills fleet->reports; sets fleet->waiting, and fleet->flush.done. */
void report_gather(struct fleet *fleet, const struct policy_set *set, uint64_t now_ns, enum round_kind kind);
/* Brings the answers home. Returns how many reports were refused; *first_refused: one of them. */
size_t report_apply(struct fleet *fleet, const struct policy_set *set, uint64_t now_ns,
                    const struct report **first_refused);
/* After a failed round: what it held is to be reported again. */
void report_retry(struct fleet *fleet);
/* A flush begins anew, if anybody waits for it: something of what it has told is to be told again. */
void full_sync_restart(struct fleet *fleet);
/* The fleet lost what it knew: everything is reported again, over some intervals. */
void report_all_again(struct fleet *fleet);
/*
 * What a policy's buckets have let pass so far is no debt to the fleet: they were told to let everything pass. Until
 * report_sweep has come to a cell, report_forgives is true of it: whoever tells of it leaves the debt out.
 */
void report_forgive(struct fleet *fleet, const struct policy *policy);
bool report_forgives(const struct fleet *fleet, const struct policy *policy, uint32_t cell);
/* A part of what that has begun. */
void report_sweep(struct fleet *fleet, const struct policy_set *set);
/* Whether any sweep has more to do. */
bool report_sweeping(const struct fleet *fleet);
/*
 * Moves the states of some more keys with the time, when that is stepped by `delta_ns`; from the cell fleet->shifted
 * on. True: of all. `now_ns`: by the time before.
 */
bool report_shift_time(struct fleet *fleet, const struct policy_set *set, uint64_t now_ns, int64_t delta_ns);

/* outage.c: puts every policy on its rung, as of `monotonic_ns`; within an RCU section. True: one has changed. */
bool outage_update(struct fleet *fleet, const struct policy_set *set, uint64_t monotonic_ns);
/* Entries of single keys stand where their policies do. */
void outage_follow(const struct policy_set *set, struct overrides *overrides);
/* A set that is about to replace another one: its policies begin where those of the same name stand. */
void outage_keep(const struct process *process, struct policy_set *set, const struct policy_set *old);

/* link_health.c: looks for a problem of the transport's, as of `monotonic_ns`; `failed`: a round has. */
void link_health_check(struct fleet *fleet, bool failed, uint64_t monotonic_ns);
const char *link_error_name(size_t kind);

/* fleet_clock.c */
void fleet_clock_sample(struct fleet *fleet, uint64_t monotonic_ns);
/* The log has it once where fleet time and Redis's clock are far apart. */
void fleet_clock_report(struct fleet *fleet);
/* Goes on with a step of the first reading. Not within an RCU section. */
void fleet_clock_step(struct fleet *fleet, uint64_t monotonic_ns);
/* Slews what a stretch of `elapsed_ns` allows. */
void fleet_clock_slew(struct fleet *fleet, uint64_t elapsed_ns);

#endif
