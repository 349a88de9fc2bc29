/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The transport: how a node exchanges reports with the other nodes.
 *
 * There are two implementations: Redis (src/transport/redis/), and a fleet within one process for tests and simulations
 * (src/transport/loopback/). All functions of a transport are called by the thread that runs the sync loop. A round is
 * begun, then stepped until it ends.
 *
 * Contract. tests/redis/transport_test.c holds both implementations to each number.
 *   1  No function blocks. Name lookup in `step` is the one exception (docs/redis.md).
 *   2  One round at a time: `begin` returns -EBUSY while a round is under way, and changes nothing. A round that has
 *      begun ends in a later step, with DONE or with FAILED.
 *   3  A round that is not answered within timeout_ms ends with FAILED. It may or may not have taken effect.
 *   4  Counts are cumulative. For each author of each record the implementation keeps the larger of its own value and
 *      the reported one. So a report that is repeated, lost, duplicated or overtaken does not change the sums. Refunds
 *      are a count of their own. The scripts count in doubles: up to 2^53 all is exact. Above
 *      that, which is a hundred days at a gigabyte a second, 16 digits are, up to 2^63.
 *   5  The units of a sliding log are a set. A unit's name is its author and its number.
 *   6  A reset takes effect once, however often it is reported.
 *   7  A bucket's time moves by new units alone. If the record is lost, it comes back at the latest time that an author
 *      has seen, plus the units that are new since, in whatever order the authors report. Units that an earlier report
 *      brought, whose answer was lost, are part of the time that the author has seen.
 *   8  A record that is refused has its own status. The other reports of the round take effect.
 *   9  Every round is a heartbeat. Its answer has fleet time and the live nodes. `lost_state` is true in the first
 *      round after the shared data was lost, and false in a transport's first round.
 *  10  The overrides are answered only if their version is not the round's version, and so are the others' limits.
 *  11  A round that reads writes nothing.
 */
#ifndef WEIR_TRANSPORT_TRANSPORT_H
#define WEIR_TRANSPORT_TRANSPORT_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "algorithm/history.h"
#include "policy/override_set.h"

/* Bytes with the 0: of a record's name, with prefix, policy and key; and of an author (author.h), or a longer name. */
#define REPORT_RECORD_SIZE 352
#define REPORT_AUTHOR_SIZE 16

/* One for each server: 64 primaries of a Cluster and 16 seeds. */
#define TRANSPORT_MAX_POLLFDS 80

/* The longest pause between two attempts to connect. */
#define TRANSPORT_BACKOFF_MOST_MS 3000

enum report_kind { REPORT_WINDOW, REPORT_BUCKET, REPORT_HISTORY };

/* Units of one sliding log in one report: Redis passes them to one ZADD, within the stack of its Lua. */
#define REPORT_HISTORY_TIMES 256

/* The demand of a sliding log's author is reported modulo this, so that a sum over all authors is exact. */
#define REPORT_HISTORY_DEMAND (UINT64_C(1) << 40)

/* The part of a report that only a sliding log has. All times are fleet time. */
struct history_report {
    /* Set by the caller. */
    char demand_record[REPORT_RECORD_SIZE];  /* name of the record with the authors' demand, terminated */
    uint64_t first;                          /* number of the first unit in times_us */
    uint64_t refund_from, refund_to;         /* the author's units of these numbers are refunded; refund_to excluded */
    uint64_t now_us, period_us;              /* units up to now - period are outside of the window */
    uint64_t limit;                          /* only the latest so many units count */
    uint32_t time_count;                     /* of times_us */
    uint64_t times_us[REPORT_HISTORY_TIMES]; /* of the units that are reported */
    uint64_t live;                           /* the caller's own: the author's units in the window, with these */
    uint64_t window_first;                   /* the caller's own: number of the author's first unit in the window */
    /* Set by the transport. */
    uint32_t group_count;
    struct history_group groups[HISTORY_GROUPS]; /* all units in the order of time; the time of a group is that of its
                                                last unit, in us */
    uint64_t reset_us;                           /* time of the last reset in the window; 0: none */
    uint32_t other_authors;                      /* number of the other authors whose demand is in sum_demand */
};

/* A report of one record, and its answer. A field's comment that begins with a kind is of that kind alone. */
struct report {
    /* Set by the caller. */
    enum report_kind kind;
    char record[REPORT_RECORD_SIZE]; /* the record's full name, terminated */
    char author[REPORT_AUTHOR_SIZE]; /* of the node, and of the key's incarnation there (author.h) */
    uint64_t count;                  /* units that the author admitted, cumulative */
    uint64_t demand;                 /* units that were requested of the author, admitted or not, cumulative */
    uint64_t refunds;                /* units that were given back to the author, cumulative */
    uint64_t reset_us;               /* fleet time of a reset, which refunds all that the record counts, in the author's
                                        name; 0: none */
    uint64_t reset_kept;             /* units that the reset does not refund: the author has admitted them since */
    uint64_t acked;                  /* the author's count that a good round has answered. Bucket: units up to it do not
                                        move the bucket again, even if the record was lost */
    uint64_t acked_refunds;          /* bucket: the author's refunds that a good round has answered */
    uint64_t known_refunds;          /* bucket: refunds of all authors that tat_us includes */
    uint64_t known;                  /* bucket: units of all authors, less refunds, that tat_us includes, or fewer;
                                        0: not told */
    uint64_t tat_us;                 /* bucket: latest theoretical arrival time that the node has seen, without the
                                        author's units above `acked`; fleet time; 0: none */
    uint64_t now_us;                 /* bucket: fleet time of the report, the same in all reports of a round */
    uint64_t from_us;               /* bucket: fleet time up to which all use is reported. New units were used after it,
                                       or their node could not report them since */
    uint64_t moves;                 /* bucket: 0: all new units move its time; else fewer than so many do */
    uint64_t most_us;               /* bucket: if `moves` is not 0, the new units move its time from now_us on, and not
                                       beyond this time */
    uint8_t rate_id;                /* bucket: the caller's own: the rate that unit_ps is of */
    uint64_t unit_ps;               /* bucket: picoseconds in which one unit refills, at least 1 */
    uint64_t expire_ms;             /* window: life of the record. Bucket: its life after it is full. At least 1 */
    struct history_report *history; /* sliding log; else NULL */
    /* Set by the transport. */
    int status;              /* 0; -EPROTO: the record is refused, as of a wrong type; -EAGAIN: not known to have taken
                                effect, because a part of the shared data cannot be reached: report again. If it is not
                                0, nothing below is set */
    bool is_new;             /* window, bucket: the record had nothing of the author before this report */
    uint64_t author_count;   /* the author's count there. Sliding log: the author's units in the window */
    uint64_t author_refunds; /* the author's refunds there */
    uint64_t sum;            /* of all authors' counts; refunds are not taken off */
    uint64_t sum_demand;     /* of all authors. Sliding log: of the others, modulo REPORT_HISTORY_DEMAND */
    uint64_t sum_refunds;    /* of all authors */
    uint64_t tat_answer_us;  /* bucket: theoretical arrival time over all authors */
};

/* Most bytes of the limits that a node tells, with the terminator. */
#define ROUND_LIMITS_SIZE 4096

/*
 * A node's limits, and those of others that differ from them. What is told is kept by its digest, for life_ms from then
 * on, and nodes with one digest share it. A node that leaves takes back what no other has told since.
 */
struct round_limits {
    /* Set by the caller. */
    bool told;                    /* the round tells limits; else nothing below is set */
    char text[ROUND_LIMITS_SIZE]; /* the node's name, and a line for each policy */
    char digest[20], before[20];  /* of these limits, and of those before, which are taken back; "": none */
    uint32_t life_ms;             /* 0: the node leaves */
    char version[24]; /* by the caller: of the others' that it has, "": none; by the transport: of those there are */
    /* Set by the transport. */
    bool news;                    /* the version is another one. The others' follow; the caller frees them */
    struct override_text *others; /* texts as above, in `value` */
    size_t other_count;
};

/* What is read beside reports. Each kind has a script read_*.lua, whose opening comment lists its words and answers. */
enum inspection_kind { INSPECT_NODES, INSPECT_AUTHORS, INSPECT_ENTRIES, INSPECT_USE, INSPECT_PAGE };

/* One answer of such a script: a text, or with NULL a number. */
struct inspected {
    char *text;
    int64_t number;
};

/* Keys and arguments of such a script. */
#define INSPECTION_WORDS 4

struct inspection {
    /* Set by the caller. */
    enum inspection_kind kind;
    const char *words[INSPECTION_WORDS]; /* the keys, then the arguments, as many as are not NULL; the caller's, until
                                            the round has ended */
    size_t key_count;
    size_t shard; /* without keys: the server that is asked, one of those that transport_ops.shard names */
    /* Set by the transport; inspection_free frees. */
    int status; /* 0; -EAGAIN: its server has not answered, and nothing below is set */
    struct inspected *all;
    size_t count;
};

static inline void inspection_free(struct inspection *inspection)
{
    for (size_t i = 0; i < inspection->count; i++) {
        free(inspection->all[i].text);
    }
    free(inspection->all);
    inspection->all = NULL;
    inspection->count = 0;
}

/* One exchange: a heartbeat, and any number of reports. The caller owns it, and keeps it until the round has ended. */
struct round {
    /* Set by the caller. */
    struct report *reports;
    size_t report_count;
    const char *node;          /* this node's id */
    uint32_t part;             /* of a large fleet, to which the node belongs for good; 0: the first nodes' */
    uint32_t suspect_ms;       /* without a heartbeat for so long the node is suspect: it has failed or is cut off */
    uint32_t node_lifetime_ms; /* without a heartbeat for so long the node has failed */
    uint64_t fleet_ns;         /* fleet time by this node; 0: it knows none */
    uint64_t wall_ns;          /* the clock of this node's host, which may be wrong; 0: not told */
    bool asks;                 /* the round reports nothing, and is no heartbeat */
    bool reads; /* the round writes nothing and has no heartbeat. Its reports are of the author "" and of zeros, so
                   that their answers say what is there. The transport sets neither times nor nodes. In a Cluster such a
                   round is done when each part is answered or has its -EAGAIN */
    struct inspection *inspections; /* what is asked beside the reports; the caller's */
    size_t inspection_count;
    bool leaves; /* the node leaves the fleet */
    bool first;  /* this node has not had a good round on this transport */
    /* Set by the caller to the version of the overrides that it has ("": none), by the transport to the current one. */
    char overrides_version[64];
    struct round_limits limits;
    /* Set by the transport, in a round that ends with DONE. */
    uint64_t sent_ns, received_ns; /* when the time was asked for and answered, by the caller's monotonic clock */
    uint64_t fleet_wall_ns; /* fleet time between those two, nanoseconds since 1970 UTC. It steps back only if the
                               shared data was lost */
    int64_t ahead_ns;       /* fleet time less the clock of the server that keeps it */
    uint32_t live_nodes;    /* with this node */
    uint32_t suspect_nodes;
    uint64_t watermark_ns; /* the earliest of the last heartbeats of all nodes, live or suspect, fleet time */
    bool lost_state;       /* the shared data is not that of the last good round: another run id or replication
                              id, or this node's heartbeat is missing */
    uint64_t sent_size;    /* bytes written for this round */
    bool overrides_new;    /* the overrides have another version. They follow; the caller frees them */
    struct override_text *overrides;
    size_t override_count;
    uint64_t overrides_left_out; /* number of entries that are not among the overrides, because there are too many */
};

enum transport_state {
    TRANSPORT_DOWN,  /* a round cannot begin; `problem` says why */
    TRANSPORT_READY, /* a round can begin */
    TRANSPORT_BUSY,  /* a round is under way */
};

/* Cumulative, over all servers. */
struct transport_counts {
    uint64_t attempts;    /* to connect, successful or not */
    uint64_t connections; /* opened; the server may refuse the login after that */
    uint64_t failures;    /* attempts that failed, and connections that were lost */
};

/* What happened in a step. */
enum transport_event {
    TRANSPORT_NOTHING,
    TRANSPORT_ROUND_DONE,   /* the round was answered; each report has its status */
    TRANSPORT_ROUND_FAILED, /* the round was lost, refused as a whole, or timed out */
};

struct transport;

struct transport_ops {
    /* Begins a round. 0; -ENOTCONN or -EBUSY: nothing has begun. */
    int (*begin)(struct transport *t, struct round *round, uint64_t now_ns);
    /* Connects, writes, reads, times out and backs off, as far as that needs no waiting. */
    enum transport_event (*step)(struct transport *t, uint64_t now_ns);
    enum transport_state (*state)(const struct transport *t);
    /* Fills in at most TRANSPORT_MAX_POLLFDS descriptors to wait for, and lowers *deadline_ns to the time by which step
     * is to be called in any case. Returns the number of descriptors. */
    size_t (*wait_for)(const struct transport *t, struct pollfd *fds, uint64_t *deadline_ns);
    /* A sentence for the log that says what is wrong; NULL: nothing. Valid until the next step. */
    const char *(*problem)(const struct transport *t);
    /* The server with the problem, or without a problem the server that rounds go to. A log line begins with it, such
     * as "redis 10.0.0.5:6379". Never has a password. Valid until the next step. */
    const char *(*server)(const struct transport *t);
    struct transport_counts (*counts)(const struct transport *t);
    /* The server of a part of the shared data, by a number from 0: a primary of a Cluster, else the one server. NULL:
     * there are no more, or none is known yet. Valid until the next step. */
    const char *(*shard)(const struct transport *t, size_t number);
    /* Somebody waits for a round: what waits to be tried again after a failure is tried in the next step. */
    void (*retry)(struct transport *t, uint64_t now_ns);
    /* Whether each server has refused the connection or the login since the last `retry`, so that waiting is in vain:
     * not where a server is silent, loads its data, or has not been tried. */
    bool (*refused)(const struct transport *t);
    /* Closes descriptors and frees the transport. It writes nothing to them. */
    void (*close)(struct transport *t);
    /*
     * Closes the descriptors of the copy that a child has got by fork, and does no more: a thread of the parent may
     * have been in the middle of a step.
     */
    void (*abandon)(struct transport *t);
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
