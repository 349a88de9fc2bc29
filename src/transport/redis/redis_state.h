/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of one transport over Redis, which the files of this folder share, and transport/loopback, whose transport
 * makes the same calls. No other file includes this header.
 *
 *   redis.c        the functions of struct transport_ops; gives replies and lost connections to batch.c and topology.c
 *   batch.c        the script calls of a round: where they are sent, what their answers lead to, when they are repeated
 *   answer.c       reads the replies to a round
 *   script_call.c  the words of a script call
 *   topology.c     which server gets which command: seeds, Sentinels, a Cluster
 *   slot_map.c     which server of a Cluster owns which slot
 *   server.c       one server's connection: attempts, calls and their replies
 *   greeting.c     the first commands on a connection
 *   problem.c      the sentence for the log
 *
 * A file calls only files below it in this list. So a function that loses a connection marks the server as dropped, and
 * redis.c gives the loss to batch.c and topology.c (T4).
 *
 * Invariants
 *   T1  every call that was sent is in its server's queue until it is answered, in the order of sending. A server whose
 *       connection is lost loses its whole queue, so a late reply is never taken for the reply to another call
 *   T2  open_count = number of batches WAITING or SENT; a round ends when it is 0
 *   T3  servers are freed only outside of rounds, so the server of a batch stays valid for the round
 *   T4  a server that is `dropped` is OFF and keeps its lost calls, until redis.c has told batch.c and topology.c.
 *       redis.c does so after every call that can drop a connection, before it steps another server
 */
#ifndef WEIR_TRANSPORT_REDIS_REDIS_STATE_H
#define WEIR_TRANSPORT_REDIS_REDIS_STATE_H

#include "transport/redis/socket.h"
#include "transport/transport.h"

/* Run id and replication id, of 40 characters each. */
#define IDENTITY_SIZE 128

/* As long as the path of a socket can be. A longer host name is cut. */
#define SERVER_NAME_SIZE 128

/* Reports of one script call: a call of 500 takes 1 to 3 ms of Redis (bench/redis_cost.py), and other clients wait for
 * it. */
#define BATCH_REPORTS 500

/* Sliding logs of one script call: each costs as much as 10 to 70 other reports (bench/redis_cost.py). */
#define BATCH_HISTORIES 16

#define CLUSTER_SLOTS 16384 /* fixed by the Redis Cluster specification */
#define CLUSTER_TAGS  1024  /* hash tags of weir's records: {000} to {3ff} */

/* Primaries of a Cluster that are connected. The reports of further primaries' slots are answered with -EAGAIN. */
#define PRIMARIES_MAX 64
#define SERVERS_MAX   (PRIMARIES_MAX + URL_SEEDS_MAX)
#define SERVER_NONE   UINT8_MAX

/* One heartbeat for each primary, and some for slots that have moved since. */
#define HEARTBEATS_MAX (PRIMARIES_MAX + 32)

_Static_assert(SERVERS_MAX <= TRANSPORT_MAX_POLLFDS && SERVERS_MAX < SERVER_NONE, "every server can be waited for");

enum script {
    SCRIPT_NODES, /* of inspections, in the order of their kinds */
    SCRIPT_AUTHORS,
    SCRIPT_ENTRIES,
    SCRIPT_USE,
    SCRIPT_PAGE,
    SCRIPT_HEARTBEAT,
    SCRIPT_OVERRIDES,
    SCRIPT_LIMITS,
    SCRIPT_WINDOW,
    SCRIPT_BUCKET,
    SCRIPT_HISTORY,
    SCRIPT_COUNT
};

/* The command that a reply belongs to. */
enum call_kind {
    CALL_BATCH,
    CALL_ASKING,   /* ASKING: the server then takes the next batch, although it does not own the slot */
    CALL_SLOT_MAP, /* CLUSTER SLOTS */
    CALL_PRIMARY,  /* SENTINEL GET-MASTER-ADDR-BY-NAME */
};

struct call {
    enum call_kind kind;
    uint32_t batch; /* CALL_BATCH: its index in `batches` */
};

enum server_stage {
    SERVER_OFF,        /* not connected; if the server is wanted, an attempt is due at next_try_ns */
    SERVER_CONNECTING, /* the TCP connection is being made */
    SERVER_GREETING,   /* login, database, and the questions for role and identity */
    SERVER_READY,
};

/* A server that the transport is connected to, or may connect to. */
struct server_conn {
    char host[URL_FIELD_SIZE]; /* empty: the URL's socket */
    char port[8];
    char name[SERVER_NAME_SIZE]; /* for the log: "redis host:port", "redis sentinel host:port", "redis /path" */
    uint8_t index;               /* in `servers` */
    bool sentinel;
    bool seed;        /* named in the URL; a seed is never freed */
    bool wanted;      /* to be connected */
    bool in_slot_map; /* serves slots of a Cluster */
    bool dropped;     /* T4 */
    struct socket socket;
    enum server_stage stage;
    uint64_t deadline_ns; /* of connecting and greeting; of the calls under way, if there are any */
    uint64_t next_try_ns;
    unsigned failures; /* in a row; a well-formed answer of a round sets 0 */
    bool refused;      /* the last attempt, since the last retry: no connection could be made, or the login failed */
    /* Greeting. */
    unsigned greetings_due;       /* replies still to come */
    unsigned greeting;            /* index of the step whose reply comes next */
    bool cluster, replica;        /* as the server's INFO and ROLE say */
    char identity[IDENTITY_SIZE]; /* run id and replication id; empty: the server does not tell them */
    /* Calls under way, or lost with the connection (T4): a ring. */
    struct call *calls;
    size_t call_first, call_count, call_size;
    uint64_t sequence;                 /* number of calls sent on this connection */
    uint64_t sourced_at[SCRIPT_COUNT]; /* `sequence` of the last call with the script's source; 0: none */
    size_t sent_before;                /* bytes sent before the round began */
    bool answered;                     /* a well-formed answer has come in this round, on this connection */
};

enum batch_state {
    BATCH_WAITING, /* for its server to be ready */
    BATCH_SENT,
    BATCH_DONE,
    BATCH_LOST, /* not known to have taken effect: its reports are answered with -EAGAIN */
};

/* Part of a round: one script call, whose keys share a cluster slot. */
struct batch {
    enum script script;
    enum batch_state state;
    uint32_t first, count; /* range of `report_order`; of a heartbeat or an inspection its index, and 0 */
    uint64_t sequence;     /* the server's `sequence` when the batch was sent */
    uint16_t cluster_slot;
    uint8_t server;   /* index of the server that the batch is or was sent to */
    uint8_t tries;    /* repetitions so far in this round */
    bool asking;      /* send ASKING first: the slot is moving to `server` */
    bool with_source; /* EVAL with the script's source; else EVALSHA with its name */
};

/* A heartbeat record: one for the fleet, and in a Cluster one more on every primary. A primary that has lost its data
 * is noticed by its heartbeat record. */
struct heartbeat {
    char key[64];
    uint16_t cluster_slot;
    bool known; /* a round has been answered; the fields below are of the last one */
    char identity[IDENTITY_SIZE];
    uint64_t last_ms;    /* the node's heartbeat there, fleet time */
    uint64_t created_us; /* when the record was created */
};

struct redis_transport {
    struct transport base;
    struct redis_url url;
    struct tls_context *tls;
    uint64_t timeout_ns;
    uint64_t random;
    struct transport_counts counts;
    char problem[200];                     /* "": none since the last good round */
    char problem_server[SERVER_NAME_SIZE]; /* name of the server with the problem */
    uint8_t problem_index;                 /* its index; SERVER_NONE: the problem is not of one server */
    bool progressed;                       /* something happened in this step that another server may wait for */
    struct server_conn *servers[SERVERS_MAX];
    bool has_dropped; /* a server may be `dropped` */
    /* topology.c and slot_map.c */
    bool cluster;
    struct server_conn *primary;   /* not in a Cluster; NULL: none */
    struct server_conn *candidate; /* named by a Sentinel, and not yet known to be a primary */
    struct server_conn *sentinel;  /* the Sentinel that is asked */
    bool sentinel_asked;
    uint64_t sentinel_due_ns;            /* when the Sentinel is asked again */
    struct server_conn *probe;           /* a seed that is connected to ask for the slot map */
    struct server_conn *slot_map_server; /* has been asked for the slot map; NULL: none */
    bool slot_map_known, slot_map_wanted;
    unsigned slot_map_turn;            /* index of the server whose turn it is to be asked */
    uint64_t slot_map_earliest_ns;     /* the slot map is not asked for before this time */
    uint64_t slot_map_due_ns;          /* the slot map is asked for at this time in any case */
    uint8_t slot_owner[CLUSTER_SLOTS]; /* a server's index */
    uint16_t tag_cluster_slots[CLUSTER_TAGS];
    /* batch.c and answer.c */
    struct round *round; /* NULL: none */
    uint64_t deadline_ns;
    char prefix[40];
    char overrides_key[64], limits_key[64];
    uint64_t overrides_left_out;                 /* entries that the last answer left out */
    uint64_t overrides_ns;                       /* time of the last answer */
    struct heartbeat heartbeats[HEARTBEATS_MAX]; /* the first is the fleet's */
    size_t heartbeat_count;
    uint32_t live_nodes, suspect_nodes; /* of the last heartbeat's answer */
    uint64_t watermark_ms;              /* of the last heartbeat's answer: the earliest of all last heartbeats */
    bool lost_state;                    /* Redis has lost data, and no round has told the caller yet */
    bool doubtful;                      /* Redis may not hold what was answered last: reports are merged */
    bool has_time;                      /* the round has fleet time */
    bool has_first_time;                /* the round has fleet time from the fleet's heartbeat record */
    uint32_t *report_order;             /* indices of reports, by kind and cluster slot */
    uint16_t *cluster_slots;            /* of the reports */
    size_t report_order_size;
    struct batch *batches;
    size_t batch_size, batch_count;
    size_t open_count, waiting_count, lost_count; /* batches WAITING or SENT; WAITING; LOST */
    const char **argv;                            /* of the command that is being made */
    size_t *lengths;
    char *texts;                          /* what the numbers of that command are written to */
    char member[REPORT_AUTHOR_SIZE + 24]; /* of the heartbeat that is being made */
};

#endif
