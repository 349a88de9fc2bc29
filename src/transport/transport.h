/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the fleet tier needs of whatever joins the nodes: rounds of reports, answered.
 *
 * Two implementations: Redis (src/transport/redis/) and a fleet within one process (src/transport/loopback/loopback.c).
 * Everything is called by the thread that runs the sync loop, and nothing here blocks: a round is begun, then stepped
 * until it ends.
 *
 * Invariant: every count said is cumulative and never decreases for one author of one record, so an
 * implementation keeps the larger of what it has and what it is told. Rounds may be repeated, lost,
 * duplicated and reordered, and the fleet's sums come out the same. Units that were given back are such a count of
 * their own. A log's units have names, author and number, and are a set. Counts have no end: an implementation tells
 * and keeps them as base/count.h says, and answers in that form.
 */
#ifndef WEIR_TRANSPORT_TRANSPORT_H
#define WEIR_TRANSPORT_TRANSPORT_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "algorithm/history.h"
#include "policy/override_set.h"

#define REPORT_RECORD_SIZE    352
#define REPORT_AUTHOR_SIZE    32
#define TRANSPORT_MAX_POLLFDS 80

/* The longest pause between two attempts to connect. */
#define TRANSPORT_BACKOFF_MOST_MS 3000

enum report_kind { REPORT_WINDOW, REPORT_BUCKET, REPORT_HISTORY };

/* Most units of one log in one report. */
#define REPORT_HISTORY_TIMES 256

/* What a log's author was asked for is told modulo this, so that a sum over all authors is exact. */
#define REPORT_HISTORY_DEMAND (UINT64_C(1) << 40)

/* Of a log: the author's units by number and time, and what all authors have in the window. */
struct log_news {
    /* Said. */
    char demand_record[REPORT_RECORD_SIZE]; /* what the authors were asked for has a record of its own */
    uint64_t first;                         /* number of the first unit below */
    uint64_t gone_from, gone_to;            /* the author's units of these numbers were given back */
    uint64_t now_us, period_us;             /* units up to now - period are over; fleet time */
    uint64_t limit;                         /* no more than the latest so many count */
    uint32_t time_count;
    uint64_t times_us[REPORT_HISTORY_TIMES]; /* fleet time */
    uint64_t live;         /* the author's units in the window, as said so far with these (for the caller) */
    uint64_t window_first; /* number of the author's first unit in the window (for the caller) */
    /* Answered. */
    uint32_t group_count;
    struct history_group groups[HISTORY_GROUPS]; /* of all units, in the order of time, at the time of the last one of a
                                            group; fleet time in us */
    uint64_t reset_us;                           /* units up to then were reset by someone; 0: none */
    uint32_t authors;                            /* how many others have said what they were asked for (sum_demand) */
};

/* One record's news: what this node says of it, and what the fleet answers. */
struct report {
    /* Said. */
    enum report_kind kind;
    char record[REPORT_RECORD_SIZE]; /* the record's full name, terminated */
    char author[REPORT_AUTHOR_SIZE]; /* node id and incarnation of the key there; no ':' or space */
    uint64_t count;                  /* units the author admitted, cumulative */
    uint64_t demand;                 /* units asked of the author, admitted or not, cumulative */
    uint64_t refunds;                /* units given back to the author, cumulative */
    uint64_t reset_us;               /* a reset at this fleet time: all the record still counts is given back, once,
                                        in the author's name; 0: none */
    uint64_t reset_kept;             /* but for so many units, which the author has let pass since */
    uint64_t acked;                  /* bucket: the author's count that the fleet is known to have had. Units up to
                                        it must not move the bucket again, even where the record was lost */
    uint64_t acked_refunds;          /* bucket: likewise of what was given back */
    uint64_t known_refunds;          /* bucket: what was given back to all authors that tat_us has seen */
    uint64_t tat_us;                 /* bucket: highest theoretical arrival time the node has seen, fleet time */
    uint64_t now_us;                 /* bucket: fleet time at which this was said; of all reports of a round the same */
    uint64_t from_us;                /* bucket: up to this fleet time everything is known: units that are told now
                                        came later, or their node could not tell them since */
    uint64_t moves;                  /* bucket: 0: all units that are new move its time; else less than so many */
    uint64_t most_us;                /* bucket: `moves` is not 0: they move its time from now on, and not beyond this */
    uint8_t rate_id;                 /* bucket: of the rate the rest is by (for the caller) */
    uint64_t unit_ps;                /* bucket: picoseconds one unit takes to refill; 1 and up */
    uint64_t expire_ms;              /* window: the record lives on for so long. Bucket: for so long after it is
                                        full again. At least 1 */
    struct log_news *history;        /* log; else NULL */
    /* Answered. */
    int status; /* 0; -EPROTO: the fleet refused this record alone (wrong type, ...); -EAGAIN: not told
                   (a part of the fleet's memory is lost just now), tell again: nothing below is set */
    uint64_t mine,
        mine_refunds;         /* the author's counts as the fleet has them now; log: the author's units in the window */
    uint64_t sum, sum_demand; /* over all authors; what was given back is not taken off. See count_remote. sum_demand of
                                a log: of the others, modulo REPORT_HISTORY_DEMAND */
    uint64_t sum_refunds;
    uint64_t tat_answer_us; /* bucket: theoretical arrival time over all authors */
};

/* One exchange: a heartbeat, and any number of reports. The caller owns it until the round has ended. */
struct round {
    struct report *reports;
    size_t report_count;
    const char *node;           /* this node's id, for the heartbeat */
    uint32_t suspect_ms;        /* without a heartbeat for so long the node is suspect: failed, or cut off */
    uint32_t node_lifetime_ms;  /* and for so long, failed: it no longer counts */
    uint64_t fleet_ns;          /* fleet time by this node; 0: it knows none yet */
    uint64_t wall_ns;           /* the clock of this node's host, which may be wrong; 0: not told */
    bool asks;                  /* nothing is told: the node is not live by that */
    bool leaves;                /* the node goes: it no longer counts from now on */
    bool first;                 /* said: this node has not had a good round on this transport yet */
    char overrides_version[64]; /* said: of the entries known; "": none. Answered: of those there are */
    /* Answered, when the round has ended well. */
    uint64_t sent_ns, received_ns; /* of the time question, by the caller's monotonic clock */
    uint64_t fleet_wall_ns;        /* fleet time, nanoseconds since 1970 UTC, between those two. It does not go back,
                                      but where the fleet has lost all it knew */
    int64_t ahead_ns;              /* so far it is ahead of the clock of whoever keeps it */
    uint32_t live_nodes;           /* this one included */
    uint32_t suspect_nodes;
    uint64_t watermark_ns; /* the earliest of the last heartbeats of all nodes, live or suspect, by the fleet's clock:
                              every node has spoken since */
    bool forgot;           /* the fleet's memory is not the one of the last good round: another run id or
                              replication id, or our heartbeat was missing. False when `first` */
    uint64_t sent_size;    /* bytes written for this round */
    bool overrides_new;    /* the entries are not those of the version said: they are here, malloc'ed, and the
                              caller's */
    struct override_text *overrides;
    size_t override_count;
    uint64_t overrides_left_out; /* of the entries there are, so many are not among them: more than are taken */
};

enum transport_state {
    TRANSPORT_DOWN,  /* not connected; a round cannot begin. `problem` says why */
    TRANSPORT_READY, /* a round can begin */
    TRANSPORT_BUSY,  /* a round is under way */
};

/* Cumulative, of all servers. */
struct transport_counts {
    uint64_t attempts;    /* to connect, whatever came of them */
    uint64_t connections; /* opened; the server may refuse the login after that */
    uint64_t failures;    /* attempts that failed, and connections that were lost */
};

/* What a step brought about. */
enum transport_event {
    TRANSPORT_NOTHING,
    TRANSPORT_ROUND_DONE,   /* the round was answered; its reports carry a status each */
    TRANSPORT_ROUND_FAILED, /* lost, refused as a whole, or timed out: it may or may not have taken effect */
};

struct transport;

struct transport_ops {
    /* Begins a round; it ends in a later step. 0, or -ENOTCONN / -EBUSY and nothing has begun. */
    int (*begin)(struct transport *t, struct round *round, uint64_t now_ns);
    /* Does what can be done without waiting: connects, writes, reads, times out, backs off. */
    enum transport_event (*step)(struct transport *t, uint64_t now_ns);
    enum transport_state (*state)(const struct transport *t);
    /* Fills in what to wait for, at most TRANSPORT_MAX_POLLFDS, and lowers *deadline_ns to the time by which
     * step wants to be called all the same. Returns the number filled in. */
    size_t (*wait_for)(const struct transport *t, struct pollfd *fds, uint64_t *deadline_ns);
    /* What is wrong, in words for the log; NULL when nothing is. Valid until the next step. */
    const char *(*problem)(const struct transport *t);
    /* The server that the problem is of; without a problem, the server that rounds go to: the begin of a log line, such
     * as "redis 10.0.0.5:6379". Never holds a password. Valid until the next step. */
    const char *(*server)(const struct transport *t);
    struct transport_counts (*counts)(const struct transport *t);
    /* In a child after fork: closes descriptors and frees, but writes nothing. Else: as it says. */
    void (*close)(struct transport *t);
};

/* An implementation's state begins with this. */
struct transport {
    const struct transport_ops *ops;
};

/* All times are nanoseconds of the caller's monotonic clock; `now_ns` never steps back. */
struct transport_config {
    const char *url;
    const char *prefix;   /* of the names of the fleet's own records: "{prefix}:nodes" */
    uint32_t timeout_ms;  /* for connecting, and for a round */
    uint64_t jitter_seed; /* for backoff */
    uint64_t now_ns;
};

#endif
