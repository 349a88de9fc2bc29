/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of the Redis transport.
 *
 *   redis.c     the transport's face: begin, step, what to wait for
 *   server.c      one server's connection: attempts, greeting, calls and their answers
 *   topology.c     which server is asked for what: seeds, Sentinels, a Cluster's map
 *   batch.c     what a round says, to whom, and once more where it has to be said again
 *   answer.c    what it hears
 *
 * Invariants
 *   T1  every call sent stands in its server's queue until it is answered, in the order of sending; a server that is
 * lost loses them all, so that a late answer can never be taken for another's T2  round_open = batches WAITING or SENT;
 * a round ends when it is 0 T3  servers are freed outside rounds alone, so a batch's server stays what it is
 */
#ifndef WEIR_TRANSPORT_REDIS_STATE_H
#define WEIR_TRANSPORT_REDIS_STATE_H

#include "transport/redis/socket.h"
#include "transport/transport.h"

#define IDENTITY_SIZE 128

/* As long as the path of a socket can be; host names are cut to it. */
#define SERVER_NAME_SIZE 128
#define BATCH_REPORTS    500
#define BATCH_HISTORIES  16

#define CLUSTER_SLOTS  16384
#define CLUSTER_TAGS   1024 /* partitions of our records: {000} to {3ff} */
#define PRIMARIES_MAX  64
#define SERVERS_MAX    (PRIMARIES_MAX + URL_SEEDS_MAX)
#define SERVER_NONE    UINT8_MAX
#define HEARTBEATS_MAX (PRIMARIES_MAX + 32)

_Static_assert(SERVERS_MAX <= TRANSPORT_MAX_POLLFDS && SERVERS_MAX < SERVER_NONE, "every peer can be waited for");

enum script { SCRIPT_HEARTBEAT, SCRIPT_OVERRIDES, SCRIPT_WINDOW, SCRIPT_BUCKET, SCRIPT_HISTORY, SCRIPT_COUNT };

/* What an answer is to. */
enum call_kind {
    CALL_BATCH,
    CALL_ASKING,   /* allows the batch after it */
    CALL_SLOT_MAP, /* CLUSTER SLOTS */
    CALL_PRIMARY,  /* SENTINEL GET-MASTER-ADDR-BY-NAME */
};

struct call {
    enum call_kind kind;
    uint32_t batch;
};

enum server_stage {
    SERVER_OFF, /* not connected; where it is wanted, an attempt is due at next_try_ns */
    SERVER_CONNECTING,
    SERVER_GREETING, /* saying who we are, asking who it is */
    SERVER_READY,
};

/* A server that we speak to, or may. */
struct server_conn {
    char host[URL_FIELD_SIZE]; /* empty: the URL's socket */
    char port[8];
    char name[SERVER_NAME_SIZE]; /* for the log: "redis host:port", "redis sentinel host:port", "redis /path" */
    uint8_t index;               /* in `servers` */
    bool sentinel;
    bool seed;        /* named in the URL: never freed */
    bool wanted;      /* to be connected */
    bool in_slot_map; /* serves slots of a Cluster */
    struct socket socket;
    enum server_stage stage;
    uint64_t deadline_ns; /* of connecting and greeting; of the calls under way, where there are any */
    uint64_t next_try_ns;
    unsigned failures; /* in a row; the last one ends with an answer that is good */
    /* Greeting. */
    unsigned greetings_due;       /* replies still to come */
    unsigned greeting;            /* which comes next; an index of the greeting's steps */
    bool cluster, replica;        /* what it says of itself */
    char identity[IDENTITY_SIZE]; /* run id and replication id; empty: it does not tell */
    /* Calls under way: a ring. */
    struct call *calls;
    size_t call_first, call_count, call_size;
    uint64_t sequence;                 /* of calls sent */
    uint64_t sourced_at[SCRIPT_COUNT]; /* the call that last brought the script; 0: none */
    size_t sent_before;                /* bytes, when the round began */
    bool answered;                     /* has answered the round well, on this connection */
};

enum batch_state {
    BATCH_WAITING, /* for its server to be ready */
    BATCH_SENT,
    BATCH_DONE,
    BATCH_LOST, /* not told, as far as we know */
};

/* Part of a round: one script call, whose keys share a slot. */
struct batch {
    enum script script;
    enum batch_state state;
    uint32_t first, count; /* of `order`; a heartbeat: the beat's number, and 0 */
    uint64_t sequence;     /* its call's */
    uint16_t cluster_slot;
    uint8_t server;   /* where it is or was sent */
    uint8_t tries;    /* so far */
    bool asking;      /* `server` is to take it though the slot is not its own yet */
    bool with_source; /* say the script itself, not its name */
};

/* A heartbeat: the fleet's own, and in a Cluster one more for every shard, to notice that it forgot. */
struct heartbeat {
    char key[64];
    uint16_t cluster_slot;
    bool known; /* it was answered before, by: */
    char identity[IDENTITY_SIZE];
    uint64_t last_ms;  /* when, by the server's clock */
    uint64_t begun_us; /* when the server's memory of the nodes began */
};

struct redis_transport {
    struct transport base;
    struct redis_url url;
    struct tls_context *tls;
    uint64_t timeout_ns;
    uint64_t random;
    struct transport_counts counts;
    char problem[200];                     /* "": none since the last good round */
    char problem_server[SERVER_NAME_SIZE]; /* the name of the server that the problem is of */
    uint8_t problem_index;                 /* its index; PEER_NONE: of no single server */
    bool progressed;                       /* a step brought about something that others may be waiting for */
    struct server_conn *servers[SERVERS_MAX];
    /* Route. */
    bool cluster;
    struct server_conn *primary;   /* not in a Cluster; NULL: none */
    struct server_conn *candidate; /* named by a Sentinel, and not yet found to be a primary */
    struct server_conn *sentinel;  /* the one that is asked */
    bool sentinel_asked;
    uint64_t sentinel_due_ns;            /* when it is asked again */
    struct server_conn *probe;           /* a seed connected for the map's sake */
    struct server_conn *slot_map_server; /* who is asked for the map; NULL: nobody */
    bool slot_map_known, slot_map_wanted;
    unsigned slot_map_turn;
    uint64_t slot_map_earliest_ns;     /* not before then is it asked for again */
    uint64_t slot_map_due_ns;          /* but then it is */
    uint8_t slot_owner[CLUSTER_SLOTS]; /* a server's index */
    uint16_t tag_cluster_slots[CLUSTER_TAGS];
    /* Round. */
    struct round *round;
    uint64_t deadline_ns;
    char prefix[40];
    char overrides_key[64];
    uint64_t overrides_left_out;                 /* of the entries last heard of: how many were not among them */
    uint64_t overrides_ns;                       /* when that was */
    struct heartbeat heartbeats[HEARTBEATS_MAX]; /* the first is the fleet's own */
    size_t heartbeat_count;
    uint32_t live_nodes, suspect_nodes; /* last heard */
    uint64_t watermark_ms;              /* likewise: the earliest last heartbeat */
    bool forgot;                        /* noticed, and not yet told to the caller */
    bool has_time;                      /* the round has its time, and: */
    bool has_first_time;                /* from the first beat */
    uint32_t *report_order;             /* reports, by kind and slot */
    uint16_t *cluster_slots;            /* of the reports */
    size_t report_order_size;
    struct batch *batches;
    size_t batch_size, batch_count;
    size_t open_count, waiting_count, lost_count;
    const char **argv; /* of the command being formatted */
    size_t *lengths;
    char (*numbers)[24];
};

/* server.c */

/* The server at this address; made where there is none yet. NULL: out of memory, or there are PEERS_MAX. */
struct server_conn *server_at(struct redis_transport *t, const char *host, const char *port, bool sentinel);
void server_free(struct redis_transport *t, struct server_conn *server);

/* Sends one command. A failure drops the server. */
void server_call(struct redis_transport *t, struct server_conn *server, struct call call, int argc, const char **argv,
                 const size_t *lengths, uint64_t now_ns);

/* Does what can be done without waiting. */
void server_step(struct redis_transport *t, struct server_conn *server, uint64_t now_ns);

/* Drops the connection: its calls are lost, and the next attempt is due after a wait that doubles, and differs. */
void server_drop(struct redis_transport *t, struct server_conn *server, uint64_t now_ns);

/* Closes it without a failure; not while calls are under way. */
void server_close(struct server_conn *server);

/* What is wrong with a server (NULL: with all), in words for the log; the first thing stays until it is over. */
void problem_set(struct redis_transport *t, const struct server_conn *server, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* topology.c */

uint16_t topology_cluster_slot(const char *key);
void topology_open(struct redis_transport *t, uint64_t now_ns);
void topology_step(struct redis_transport *t, uint64_t now_ns);
bool topology_ready(const struct redis_transport *t);
uint64_t topology_deadline(const struct redis_transport *t);
struct server_conn *topology_owner(const struct redis_transport *t, uint16_t cluster_slot); /* NULL: nobody's */
void topology_server_ready(struct redis_transport *t, struct server_conn *server, uint64_t now_ns);
void topology_server_lost(struct redis_transport *t, const struct server_conn *server, uint64_t now_ns);
void topology_take_slot_map(struct redis_transport *t, struct server_conn *server, const redisReply *reply,
                            uint64_t now_ns);
void topology_take_primary(struct redis_transport *t, struct server_conn *server, const redisReply *reply,
                           uint64_t now_ns);
/* The map is out of date. */
void topology_refresh(struct redis_transport *t);
/* A server that turns out to be of a Cluster. */
void topology_is_cluster(struct redis_transport *t);
/* Takes in "MOVED slot host:port" or "ASK ...". NULL: malformed, or no room. */
struct server_conn *topology_redirect(struct redis_transport *t, const struct server_conn *from, const char *text,
                                      uint16_t *cluster_slot);

/* batch.c */

int batch_queue(struct redis_transport *t, uint64_t now_ns); /* 0 or -ENOMEM */
/* Sends the batches that wait for a server which is ready by now; gives up those whose server is not coming. */
void batch_send_waiting(struct redis_transport *t, uint64_t now_ns);
/* Once more, where it is to go now. `split`: each report by itself. */
void batch_retry(struct redis_transport *t, uint32_t batch, bool split, uint64_t now_ns);
void batch_lost(struct redis_transport *t, uint32_t batch);
/* The time is over: whoever has not answered is dropped. */
void batch_expire(struct redis_transport *t, uint64_t now_ns);

/* answer.c */

void answer_batch(struct redis_transport *t, struct server_conn *server, uint32_t batch, const redisReply *reply,
                  uint64_t now_ns);

#endif
