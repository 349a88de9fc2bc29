/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A UDP reverse proxy that limits: what its parts share.
 *
 *   main.c      life: open, reload, stop
 *   options.c   the command line; config.c: a file of settings; settings.c: what both may give
 *   reload.c    settings and policies read again
 *   policies.c  the policies in force; policy_look.c: those of a file; policy_kind.c: their names
 *   decision.c  which packets of a burst may pass
 *   network.c   sources and networks as keys of limits
 *   worker.c    a thread's loop: receive, check, forward, return replies; loop.h: what it works with
 *   run.c       packets of one client in a row on their way out, and replies
 *   frames.c    the same of packets that go past the network stack; xsk/: how they do
 *   burst.c     many packets in from one system call
 *   outbox.c    many packets out in one system call
 *   offload.c   many packets as one message: what the kernel has for that
 *   backends/   the backends: which of them a client goes to, whether they are up
 *   refusal.h   errors that are news of the other end
 *   proxy.c     the client's address, for the backend
 *   notify.c    what systemd is told; activation.c: the sockets that it hands over
 *   secret.c    Redis's password
 *   session.c   which client has which socket to the backend; shares.c: which of them makes way
 *   ports.c     which client has which local port, in a file that outlives the gateway
 *   loops.c     packets that answer each other without end
 *   local.c     which of this host's addresses a packet came to
 *   listeners.c the addresses it listens on; listen_socket.c: a thread's socket of one;
 *               listening.c: those of the start
 *   xdp/        denials in the kernel
 *   kinds/      kinds of packets, their costs, and the file that has them
 *   record/     a sample of denied packets in a file
 *   log.c       lines on stderr: levels and forms; denial_line.c: of the library's about a policy that denies
 *   status.c    metrics and status as text; status_table.c: as tables of HTML
 *   http.c      serves them
 */
#ifndef WEIR_GATEWAY_GATEWAY_H
#define WEIR_GATEWAY_GATEWAY_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <weir/weir.h>

#include "activation.h"
#include "address.h"
#include "backends/backends.h"
#include "backends/checker.h"
#include "kinds/kind_store.h"
#include "listen_socket.h"
#include "listeners.h"
#include "log.h"
#include "policies.h"
#include "ports.h"
#include "record/record.h"
#include "settings.h"
#include "shares.h"

#define GATEWAY_THREADS_MAX  64
#define GATEWAY_SESSIONS_MIN 16

/*
 * Descriptors that are not for clients: two for each thread and one for each of its listeners, HTTP connections,
 * probes, the link to Redis and some to spare.
 */
#define GATEWAY_HTTP_CONNECTIONS 32
#define GATEWAY_DESCRIPTORS(threads, listeners, backends)                                                              \
    ((2 + (listeners)) * (threads) + (backends) + GATEWAY_HTTP_CONNECTIONS + 32)

/* Read by the main thread; by others those that are in force from the start to the end. */
struct gateway_options {
    struct text_list listen;
    struct text_list backend; /* as they were given */
    const char *metrics_text;
    const char *probe;
    struct checker_options checks;
    const char *policies; /* NULL: nothing is limited */
    const char *kinds;    /* NULL: all packets cost 1 */
    const char *redis, *redis_password_file, *fleet_secret_file;
    const char *redis_prefix, *node_name;
    const char *xdp;   /* interface and mode; NULL: no packet is dropped in the kernel */
    const char *state; /* the directory of the table of ports; NULL: see ports.h */
    unsigned threads, sessions, sync_interval_ms, expected_nodes, max_keys, idle_seconds, port_rest_seconds;
    bool offload, allow_missing, proxy_protocol, transparent, no_denial_log;
    weir_log_level log_level;
    enum log_format log_format;
    struct record_options record;
    const struct settings *from[SETTING_COUNT]; /* what gave each setting; NULL: nothing did */
    /* Found for a start: */
    struct address listens[LISTENERS_MAX];
    struct backend_choice backends[BACKENDS_MAX];
    char backend_text[400]; /* all of them, for people; what has no room is left out */
    struct address metrics;
    char *redis_url, *fleet_secret;
    char redis_origin[400]; /* what the URL was given by, for the log */
};

/* What the options come from. */
struct option_sources {
    bool has_handed; /* there are listeners beside those of the options */
    struct settings line;
    const char *config;              /* a file of settings; NULL: there is none */
    struct settings *first, *latest; /* of the file: at the start, and at the last reload */
};

/* Written by one thread, read by any. At the end of a turn offered == passed + the sum of dropped + dropped_of_all */
struct counters {
    _Atomic uint64_t offered, passed;
    _Atomic uint64_t checked[POLICIES_MAX];    /* packets that this policy let pass or dropped */
    _Atomic uint64_t would_deny[POLICIES_MAX]; /* packets that shadow mode let pass */
    _Atomic uint64_t dropped[POLICIES_MAX];    /* of `checked`, denied */
    _Atomic uint64_t dropped_of_all; /* by an override of all policies, where none of them obeys it by itself */
    _Atomic uint64_t offered_bytes, passed_bytes, replied_bytes; /* without headers */
    _Atomic uint64_t unsendable;              /* passed, but the backend's socket or a session was not to be had */
    _Atomic uint64_t without_port;            /* of `unsendable`, of new clients for which no port had rested */
    _Atomic uint64_t refused;                 /* by the backend, as far as UDP tells */
    _Atomic uint64_t invalid_sources, looped; /* packets that are in no other count: see loops.h */
    _Atomic uint64_t loops;                   /* found */
    _Atomic uint64_t replies, lost_replies;
    _Atomic uint64_t sessions, sessions_moved;
    _Atomic uint64_t sessions_evicted[USE_COUNT];  /* by their use then */
    _Atomic uint64_t merges, segments;             /* 1: the kernel does it for this thread */
    _Atomic uint64_t merged, segmented;            /* packets, either way, that arrived merged; that left in segments */
    _Atomic uint64_t timed_checks, timed_ns;       /* of the bursts that were timed */
    _Atomic uint64_t received[LISTENER_SLOTS];     /* of `offered`, by listener */
    _Atomic uint64_t frames_received, frames_sent; /* by AF_XDP */
    _Atomic uint64_t frames_lost;                  /* that found no room, were damaged or of nobody */
    _Atomic uint64_t turns;                        /* how often the thread has waited and worked */
};

struct gateway;
struct loop;

struct worker {
    struct gateway *gateway;
    pthread_t thread;
    bool is_started;
    int epoll_fd;
    struct loop *loop;
    _Atomic uint32_t open;    /* a bit for each socket that is there: set by the main thread, cleared by this one */
    _Atomic uint32_t leaving; /* of these, a bit for each that is to be closed: as `open` */
    struct listen_socket sockets[LISTENER_SLOTS]; /* by the number of their listener */
    struct backend_reports reports;               /* of its backends */
    uint64_t turns_seen; /* of counters.turns, by the main thread, when the watchdog last heard of it */
    _Alignas(64) struct counters counters;
};

struct gateway {
    struct activation activation;
    struct option_sources sources;
    struct gateway_options options;
    unsigned sessions;             /* clients for each thread: those of the options, or what descriptors allow */
    _Atomic uint32_t idle_seconds; /* of the options: a reload may change it while the threads read it */
    _Atomic uint64_t waiting;      /* a bit for each setting whose change waits for a restart */
    weir *weir;                    /* NULL: nothing is limited */
    struct policies policies;
    struct kind_store kinds;
    struct xdp *xdp;         /* NULL: no packet is dropped in the kernel */
    struct forward *forward; /* NULL: all packets go by sockets */
    struct record *record;   /* NULL: denied packets are not recorded */
    struct ports *ports;
    /* When the log said, for log_is_due(), that no port had rested, that a needed session made way, and of a loop. */
    _Atomic uint32_t ports_told, evictions_told, loops_told;
    struct backends backends;
    struct backend_reports *reporters[GATEWAY_THREADS_MAX];
    struct checker *checker;
    struct listeners listeners;
    struct http *http; /* NULL: nothing is served */
    _Atomic bool stopping, failed;
    _Atomic uint64_t reloads, reload_errors;
    unsigned worker_count; /* that are open */
    struct worker workers[GATEWAY_THREADS_MAX];
};

/*
 * Parses the command line, and reads the file of settings that it names. Exits with 0 after --help, --version, a good
 * --check and a good --check-config, with a sentence and 2 where something is wrong, or 1 where a host is not found or
 * a file cannot be read.
 */
void options_parse(int argc, char **argv, struct option_sources *sources, struct gateway_options *out);

/* Whether the settings fit one another. False: `problem` says which do not. `has_handed`: there are other listeners. */
bool options_check(const struct gateway_options *options, bool has_handed, struct setting_problem *problem);

/* Looks up the host of an address. Blocks. False: `problem` says why there is none. */
bool options_find_address(const struct gateway_options *options, enum setting setting, size_t index,
                          struct address *out, struct setting_problem *problem);

/*
 * The same for a listener, whose address must be another one than that of listeners before. A text that `before` has is
 * not looked up again; `before` may be NULL.
 */
bool options_find_listen(struct gateway_options *options, const struct gateway_options *before, size_t index,
                         struct setting_problem *problem);

/*
 * Looks up the backends, whose addresses must be others than those of the listeners. A host that `before` has with the
 * same port is not looked up again; `before` may be NULL.
 */
bool options_find_backends(struct gateway_options *options, const struct gateway_options *before,
                           struct setting_problem *problem);

/* Everything a worker needs but its thread. 0, or -1 after a sentence on stderr. */
int worker_open(struct worker *worker, struct gateway *gateway);
void worker_close(struct worker *worker);

/* The thread's life, until gateway->stopping. */
void *worker_main(void *arg);

/*
 * Serves what status.h has, at an address, or on `handed`, a socket that listens; -1: none is handed. NULL: errno says
 * why not.
 */
struct http;
struct http *http_start(struct gateway *gateway, const struct address *address, int handed);
void http_stop(struct http *http); /* NULL is allowed */

/* The sum of one counter over all workers. Whoever has read it finds what they had counted before, in all counters. */
#define SUM(gateway, field) sum_of((gateway), offsetof(struct counters, field))
uint64_t sum_of(const struct gateway *gateway, size_t offset);

static inline void bump(_Atomic uint64_t *counter, uint64_t n)
{
    /* One writer: no read-modify-write. Release, for sum_of. */
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n, memory_order_release);
}

#endif
