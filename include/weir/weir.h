/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weir - rate limits inside a server's own threads, shared by a fleet through Redis.
 *
 * A `weir` is one node of a fleet. Each serving thread attaches once and then calls weir_check() before it does a unit
 * of work. The answer comes from the thread's own counters (a few nanoseconds), at times from the process's table (tens
 * of nanoseconds), never from the network. A background thread reports to Redis what this node admitted, and reads what
 * the other nodes admitted.
 *
 * Which calls may run at the same time on one `weir`:
 *
 *   call                                     may run beside
 *   ---------------------------------------  ---------------------------------------------------------
 *   weir_open, weir_unlink, weir_version,    anything
 *     weir_address_form, weir_network_form,
 *     weir_address_key, weir_status_page,
 *     weir_validate_policies
 *   weir_set_policies, weir_load_policies,   everything but weir_close; two at once run one after the
 *     weir_load_policies_with,                 other
 *     weir_set_key_form, weir_set_override
 *   weir_join                                nothing in the same process, and anything in others
 *   weir_find_policy, weir_list_policies,    everything but weir_close
 *     weir_list_overrides, weir_make_key,
 *     weir_attach, weir_reset, weir_sync,
 *     weir_leave,
 *     weir_poll_fd, weir_get_stats,
 *     weir_count_unlimited,
 *     weir_get_stats_sized,
 *     weir_get_policy_stats,
 *     weir_top_offenders,
 *     weir_write_metrics,
 *     weir_write_status,
 *     weir_write_headers
 *   weir_check, weir_check_burst,            everything but weir_close and another call on the same
 *     weir_check_all,                          weir_thread: one thread uses a weir_thread at a time
 *     weir_check_all_burst,
 *     weir_check_requests,
 *     weir_prefetch, weir_peek,
 *     weir_find_override,
 *     weir_refund, weir_charge,
 *     weir_count_denied,
 *     weir_reserve, weir_set_time,
 *     weir_unbind, weir_detach
 *   weir_poll                                everything but weir_close and another weir_poll
 *   weir_close                               nothing
 *
 * No call is for a signal handler, which may interrupt a call of its own thread: set a flag there, and call from the
 * program's loop. A change of policies in a handler that interrupts a check of the thread that has attached the handle
 * gives -EDEADLK; other calls may wait for ever, or count wrongly.
 *
 * With WEIR_DEBUG=1 in the environment at weir_open, calls that this header does not allow are found where that can be:
 * with a handle that is detached or another thread's, within another call of the same thread, and after weir_close.
 * Each kind is told once, by options.log or else on standard error. Every check then decides in the table, which takes
 * ten times as long, and a weir that is closed keeps its memory.
 *
 * Functions that can fail return 0 or a negative errno value, and take an optional weir_error for a sentence a person
 * can act on. The library never exits, aborts, prints or takes a signal. The functions of the host that the library
 * calls must not throw exceptions of C++.
 *
 * These structs get new fields at their end: weir_options, weir_stats, weir_policy_stats, weir_policy_info and
 * weir_override. All other structs keep their size for as long as the library's soname stays
 * (docs/decisions/013-abi.md).
 *
 * After fork() without exec the child owns no background thread. The child may join a weir with options.shared:
 * weir_join(). On a weir that the child has not joined it should only call weir_close(). That call closes the
 * descriptors of the child's copy and frees what no thread of the parent can have been changing at the fork, and
 * touches neither the parent's connection nor the fleet. The child may open weirs of its own, before or after
 * that, and use them as any process does, whatever threads of the parent were doing at the fork. A program that opens a
 * weir before daemon() and checks behind it is such a child: where no other thread of the parent was in a call at the
 * fork, it limits by its own copy and by the clock, and reports nothing; the log says so at the first weir_attach.
 *
 * The library registers handlers for fork (pthread_atfork): a fork waits while a thread that ends gives its handles
 * back. So three things must not fork: a log function, a clock of the host, and a signal handler that may interrupt a
 * call of weir.
 */
#ifndef WEIR_H
#define WEIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct sockaddr; /* of <sys/socket.h> */

/* nothrow: a caller in C++ has no code for exceptions of a call. */
#if defined(__GNUC__)
#define WEIR_API __attribute__((visibility("default"), nothrow))
#else
#define WEIR_API
#endif

#define WEIR_VERSION_MAJOR 0
#define WEIR_VERSION_MINOR 1
#define WEIR_VERSION_PATCH 0

/*
 * The version of the library that the program runs with, such as "0.1.0"; the macros above are those of the header that
 * the program was compiled with. The library owns the text, which lasts until the library is unloaded.
 * Threads: any. Progress: wait-free.
 */
WEIR_API const char *weir_version(void);

/* A limiter: one node of the fleet. Thread-safe as the table above says. */
typedef struct weir weir;

/* One thread's private counters: a handle that one thread uses at a time. See weir_attach. */
typedef struct weir_thread weir_thread;

/* A policy's number in one weir. A name keeps its number until the weir is closed. */
typedef uint32_t weir_policy_id;

/* No such policy. A check against it is allowed and counted in weir_stats.unknown_policy_count. */
#define WEIR_NO_POLICY ((weir_policy_id) 0)

/* Most limits one policy can hold. */
#define WEIR_MAX_LIMITS 4

/* Most keys in one weir_check_all. */
#define WEIR_MAX_KEYS_AT_ONCE 16

/* Greatest limit of a sliding log, in units: a sliding log stores the time of every unit. */
#define WEIR_MAX_LOG_UNITS 65536

/* Longest name of a policy or a limit, in bytes, without the terminator. */
#define WEIR_MAX_NAME 63

/* Most different policy names one weir takes from open to close. */
#define WEIR_MAX_POLICIES 1023

/* Most keys weir_top_offenders returns. */
#define WEIR_TOP_OFFENDERS 16

/* Size of a key's text in a weir_offender, in bytes, with the terminator. */
#define WEIR_OFFENDER_KEY_SIZE 128

/* Longest text of a key that a weir_key_form writes, in bytes, with the terminator. */
#define WEIR_KEY_TEXT_SIZE 64

/* Greatest number of units a limit, a burst or one request can have: 2^42 - 1. */
#define WEIR_MAX_UNITS UINT64_C(4398046511103)

/* How a limit counts. docs/choosing.md helps to choose. */
typedef enum weir_algorithm {
    WEIR_FIXED_WINDOW = 0,   /* so many units in each period, counted from period boundaries in fleet time */
    WEIR_SLIDING_WINDOW = 1, /* two counters: this window's, and the last window's, weighted by the part of the last
                                window that is still within one period */
    WEIR_SLIDING_LOG = 2,    /* exact: the time of every unit is stored, and no period has more than limit units */
    WEIR_TOKEN_BUCKET = 3,   /* a bucket of `burst` units that refills at limit per period (GCRA) */
    WEIR_LEAKY_BUCKET = 4    /* a queue of `burst` units, served evenly at limit per period: see weir_reserve */
} weir_algorithm;

/* Quotas: windows that follow the calendar, in UTC. */
typedef enum weir_calendar { WEIR_CALENDAR_NONE = 0, WEIR_CALENDAR_DAY = 1, WEIR_CALENDAR_MONTH = 2 } weir_calendar;

/* The outage mode of a policy: what its limits are when the last good sync is too old. */
typedef enum weir_outage {
    WEIR_OUTAGE_SHARE = 0, /* this node's share of the limit: by the demand last seen for the key, an equal share where
                              no demand is known; at least one unit per period */
    WEIR_OUTAGE_LOCAL = 1, /* the full limit on every node */
    WEIR_OUTAGE_OPEN = 2,  /* let everything pass, and count it */
    WEIR_OUTAGE_CLOSED = 3 /* let nothing pass */
} weir_outage;

typedef enum weir_mode {
    WEIR_ENFORCE = 0,
    WEIR_SHADOW = 1 /* count, allow everything, and set weir_verdict.would_deny where WEIR_ENFORCE would deny */
} weir_mode;

typedef enum weir_scope {
    WEIR_SCOPE_FLEET = 0,  /* the limit holds for all nodes together */
    WEIR_SCOPE_PROCESS = 1 /* the limit holds for this process; never sent to Redis */
} weir_scope;

/* What a verdict rests on. */
typedef enum weir_basis {
    WEIR_BASIS_PROCESS = 0, /* this process alone: no fleet, a process-scope policy, or no good sync yet */
    WEIR_BASIS_FLEET = 1,   /* this process, and what the last sync said of the fleet */
    WEIR_BASIS_OUTAGE = 2   /* the policy's on_outage or on_long_outage */
} weir_basis;

/*
 * One limit: `limit` units per `period_ns`.
 *
 * limit      1 to WEIR_MAX_UNITS, units per period; of a sliding log at most WEIR_MAX_LOG_UNITS. A bucket's rate is
 *            rounded down to a whole number of 1/64 ns per unit (0.16% at 100,000,000 units a second). Rates above
 *            640,000,000 units a second are refused: count in larger units.
 *
 * period_ns  1,000,000 (1 ms) to 31,622,400 seconds (366 days), in nanoseconds; ignored where `calendar` is set.
 *
 * burst      buckets: 1 to WEIR_MAX_UNITS, the most units that pass (or queue) at once; 0: as many as limit.
 *            Filling an empty bucket must take less than 2 years. The other algorithms admit at most `limit` units at
 *            once and take 0 or the same number as limit.
 *
 * calendar   fixed windows: a UTC day or month in place of period_ns.
 *
 * delay      leaky buckets: units that may pass ahead of their turn before requests have to wait, 0 to burst. In the
 *            words of nginx's limit_req: 0 is "burst", `burst` is "nodelay", a number between them is "delay=". weir's
 *            burst counts the request being served, so weir's burst is nginx's plus one.
 *
 * name       for headers, 1 to WEIR_MAX_NAME bytes of printable ASCII. NULL: the policy's name; in a policy of several
 *            limits the policy's name and the limit's number in the list.
 */
typedef struct weir_limit {
    weir_algorithm algorithm;
    uint64_t limit;
    uint64_t period_ns;
    uint64_t burst;
    weir_calendar calendar;
    uint64_t delay;
    const char *name;
} weir_limit;

/*
 * A limit and a policy with every field zero: for C++ before C++20, which has no designated initialisers.
 */
#define WEIR_LIMIT_INIT                                                                                                \
    {                                                                                                                  \
        WEIR_FIXED_WINDOW, 0, 0, 0, WEIR_CALENDAR_NONE, 0, NULL                                                        \
    }
#define WEIR_POLICY_INIT                                                                                               \
    {                                                                                                                  \
        NULL, NULL, 0, WEIR_ENFORCE, WEIR_SCOPE_FLEET, false, WEIR_OUTAGE_SHARE, WEIR_OUTAGE_SHARE, 0, 0               \
    }

/*
 * A named set of limits; a request passes when all of them allow it. The library copies what the pointers point to: the
 * caller keeps that until the call returns.
 *
 * name             1 to WEIR_MAX_NAME bytes: letters, digits, '.', '_', '-' and '/'. "api", "api/free" and "api/pro"
 *                  are tiers of one policy. Each tier has limits of its own; tiers share what a key has used, for
 *                  limits of the same algorithm and period
 * limits           limit_count of them, 1 to WEIR_MAX_LIMITS
 * hash_keys        true: Redis gets a 128-bit hash of each key. Tokens do not leave the process; addresses need a
 *                  fleet_secret for that, as a hash of an address without a secret can be guessed
 * on_outage        the outage mode when there has been no good sync for outage_grace_ms
 * on_long_outage   the outage mode when the outage has lasted for long_outage_ms
 * outage_grace_ms  milliseconds; 0: three sync intervals; less than two intervals counts as two; at most 86,400,000 (a
 *                  day)
 * long_outage_ms   milliseconds; 0: never; at most 2,592,000,000 (30 days)
 */
typedef struct weir_policy {
    const char *name;
    const weir_limit *limits;
    size_t limit_count;
    weir_mode mode;
    weir_scope scope;
    bool hash_keys;
    weir_outage on_outage, on_long_outage;
    uint32_t outage_grace_ms, long_outage_ms;
} weir_policy;

/* Why a call failed: a negative errno value, and a sentence that names the field and the way out. */
typedef struct weir_error {
    int code;
    char message[240];
} weir_error;

/*
 * A clock of the host. Both functions are called by one thread at a time and must not block. The wall clock may be
 * years off: in a fleet it counts only until the first answer of Redis. A weir counts for eight years after weir_open;
 * then token and leaky buckets let everything pass.
 */
typedef struct weir_clock {
    uint64_t (*monotonic_ns)(void *arg); /* never steps back */
    uint64_t (*wall_ns)(void *arg);      /* nanoseconds since 1970-01-01 00:00 UTC; may step */
    void *arg;
} weir_clock;

typedef enum weir_log_level { WEIR_LOG_ERROR = 0, WEIR_LOG_WARNING = 1, WEIR_LOG_INFO = 2 } weir_log_level;

/*
 * Called from the background thread (or from weir_poll). Three lines come from a call of the host, once each: that
 * nobody polls a weir without a thread (a check or peek), that the process was forked after weir_open (weir_attach),
 * and what WEIR_DEBUG finds (the call that is wrong). `message` is one line of UTF-8, without line end. Of what the
 * line quotes, control characters and bytes that are no UTF-8 are written as \xNN. The function must not call into the
 * same weir.
 *
 * Threads that weir_attach gave no handle are logged at WEIR_LOG_ERROR: at once, and then at most once a minute. Other
 * things that a counter alone would tell have a line within a second, and then at most one in ten minutes, with the
 * number since the last one: checks of a policy that is not in force (WEIR_LOG_ERROR), checks that were denied or not
 * counted for want of room, keys in use that were evicted (once they are a 64th of the table), and evicted keys that
 * could not be reported (WEIR_LOG_WARNING).
 *
 * Policies that deny are logged at WEIR_LOG_INFO, unless no_denial_log is set. The first line comes one to two seconds
 * after the first denial, and further lines every ten seconds while the policy denies. The last line comes some ten to
 * twenty seconds after the last denial. A policy and its tiers share one line. Two lines of one policy are at least ten
 * seconds apart, so there are at most six a minute. The forms of the lines:
 *
 *   policy api begins to deny: 41 checks in 1 s, most by api:198.51.100.7 (41 units)
 *   policy api denies: 812 checks in 10 s, most by api:198.51.100.7 (790 units), api:203.0.113.9 (22 units)
 *   policy api denies no more: 4100 checks in 55 s
 *
 * In shadow mode the lines say "would begin to deny", "would deny" and "would deny no more". Where some tiers enforce
 * and others are in shadow mode, a line says "N checks and would deny N".
 *
 * A line names up to three keys, those with at least a 64th of the denied units, as weir_set_override takes them. The
 * number beside a key is the units that the key was denied at least. A key has no spaces. A line ends in ", by many
 * keys" where there is no such key. A line names no key where weir_top_offenders counts none of the denied requests, or
 * where the policy has the empty key alone.
 */
typedef void (*weir_log_fn)(void *arg, weir_log_level level, const char *message);

/*
 * How to open a weir. Start from WEIR_OPTIONS_INIT; a zeroed field means its default. Where a field has a default, the
 * default is the last number or word of the first sentence.
 *
 * size              sizeof(weir_options), for later versions of the library
 *
 * redis_url         where the fleet meets, as redis://[user[:password]@]host[:port][,host...][/database] or in the
 *                   other forms of docs/redis.md: unix, redis+cluster, redis+sentinel, rediss. NULL: no fleet; this
 *                   process limits alone
 *
 * prefix            of every key in Redis, 1 to 32 bytes without braces, spaces or control bytes; "weir"
 *
 * node_name         the node's name in the log and the metrics; NULL: the host name
 *
 * max_keys          how many keys to hold, 1,000 to 100,000,000; 65,536. A key counts once for each limit of its
 *                   policy. Memory is fixed and present at open: about 60 bytes per key, and 125 with a redis_url
 *
 * max_threads       how many threads may be attached at once, 1 to 1,024; 64
 * sync_interval_ms  time between two syncs with Redis, 10 to 60,000 ms; 200
 * redis_timeout_ms  time after which an answer of Redis no longer counts, 10 to 60,000 ms; 1,000
 * tick_us           how long a thread's grant is valid, 100 to 100,000 us; 1,000
 * no_thread         true: there is no background thread, and the host calls weir_poll from its own loop; weir_poll_fd
 *                   says when. Where nobody has called weir_poll for a second, threads that check look at the clock
 *                   themselves, so limits go on, nothing is reported to the fleet, and the log says so once
 * clock             NULL: the system's clock. A clock of the host implies no_thread, and time then moves only in
 *                   weir_poll
 * log, log_arg      the log function and its first argument; NULL: nothing is logged
 * max_log_units     how many units the sliding logs of all keys can store, 1,000 to 4,000,000,000; 4,194,304. A unit
 *                   takes eight bytes, reserved at open and present when used. A key takes up to 16 bytes per unit of
 *                   its limit, and 1 KiB in a fleet. Where there is no room for a key's log, its requests are denied
 *                   and counted in weir_stats.untracked_count
 * expected_nodes    how many nodes share the limits, 1 to 65,535; 1. The number counts until Redis has said how many
 *                   nodes there are: from weir_open to the first answer, some 10 ms, and in an outage that began
 *                   before the first answer. Until then a node may admit 1/expected_nodes of each limit. With the
 *                   default a node that is alone loses nothing; in a fleet each node that starts then admits up to a
 *                   whole limit before its first sync
 *
 * fleet_secret      16 to 1,024 bytes, the same on all nodes. In Redis, keys of more than 32 bytes and keys of policies
 *                   with hash_keys are named by a hash under this secret: a key cannot be guessed from its name
 *                   without the secret. NULL: a hash without a secret. With either hash, two names cannot be made to
 *                   collide. A new secret changes the names: docs/security.md says how to change the secret
 *
 * no_denial_log     true: policies that deny are not logged; see weir_log_fn
 * shared            true: memory is shared with every process forked after weir_open; see weir_join. See shared_name
 *                   for processes that are started one by one
 * max_processes     how many processes may be joined at once, the one that opened the weir included, 2 to 1,024; 64.
 *                   Set it only with `shared` or `shared_name`
 * shared_name       2 to 254 bytes, of which the first and no other is '/', such as "/edge". Implies `shared`, and
 *                   names the memory: processes of one user that open the same name share one weir, whether or not one
 *                   has forked the other. The memory stays when all of them have ended. NULL: the memory has no name,
 *                   and ends with the last process
 *
 * required_policies, required_policy_count
 *                   the names of policies that the program asks by, so many. weir_set_policies, weir_load_policies and
 *                   weir_load_policies_with refuse a set that lacks one: a check of a policy that is not there is
 *                   allowed, so that a misspelt name would switch a limit off. Tiers are named one by one, such as
 *                   "api/free". The names are copied. NULL, 0: any set is taken
 *
 * max_keys, max_threads and max_log_units of a shared weir are for all its processes together. `reserved` is 0.
 */
typedef struct weir_options {
    size_t size;
    const char *redis_url;
    const char *prefix;
    const char *node_name;
    size_t max_keys;
    uint32_t max_threads;
    uint32_t sync_interval_ms;
    uint32_t redis_timeout_ms;
    uint32_t tick_us;
    bool no_thread;
    const weir_clock *clock;
    weir_log_fn log;
    void *log_arg;
    size_t max_log_units;
    uint32_t expected_nodes;
    const char *fleet_secret;
    bool no_denial_log;
    unsigned char reserved[7]; /* was padding: what an earlier program has here is not known */
    bool shared;
    uint32_t max_processes;
    const char *shared_name;
    const char *const *required_policies;
    size_t required_policy_count;
} weir_options;

#define WEIR_OPTIONS_INIT                                                                                              \
    {                                                                                                                  \
        sizeof(weir_options), NULL, "weir", NULL, 65536, 64, 200, 1000, 1000, false, NULL, NULL, NULL, 4194304, 0,     \
            NULL, false, {0}, false, 0, NULL, NULL, 0                                                                  \
    }

/*
 * Opens a limiter and stores it in *out; the caller closes it with weir_close. An unreachable Redis is no error:
 * limiting starts at once, and the node joins the fleet when Redis can be reached. The limiter counts for eight years
 * (see weir_clock): open another one before that.
 *
 * With a shared_name the call makes the memory of that name, or joins the processes that have it open, as weir_join
 * does. Where no process has the name open, the call goes on from the processes that had it open last, whether they
 * closed or were killed. The new weir has what all keys have used, the policies, and the node of the fleet. Time has
 * gone on meanwhile. Memory that a process was making when it died is made anew, as is memory that cannot be repaired;
 * the log says so. All processes must have the same options. Only node_name, no_thread, log, log_arg, no_denial_log,
 * required_policies, and the user and password in redis_url may differ. A process that has the name open calls
 * weir_close before exec.
 *
 * -EINVAL: an option is out of range (the sentence names it); -ENOMEM; -EAGAIN: no thread could be started.
 * What else a shared_name may lead to; the sentence says what to do:
 *
 * -EINVAL   an option is not that of the named memory; the sentence names the option, and both values
 * -EACCES   the memory belongs to another user, or other users may open it; the call waits for no lock of theirs
 * -EPROTO   the memory is of another version of the library
 * -EBADMSG  the memory is damaged
 * -EXDEV    the memory is of another PID or time namespace
 * -ENOSPC   there is no room in /dev/shm, or max_processes are joined
 * -EFBIG    RLIMIT_FSIZE is below what the memory takes while it is made
 * -ENOSYS   a sandbox forbids membarrier(2), which the other processes use
 * -EMFILE   this process has 256 named weirs open
 * -EBUSY    another process has been opening the name for half a minute
 *
 * Threads: any. Progress: waits for a process that is opening the same shared_name. Allocates: everything the limiter
 * will ever need but policy sets.
 */
WEIR_API int weir_open(const weir_options *options, weir **out, weir_error *error);

/*
 * Joins a weir that was opened with options.shared or shared_name: once in each forked child, before any other call on
 * `w` there. The process that opened the weir is joined from the start. That process need not check, and may close the
 * weir early.
 *
 * After the call the child uses `w` as a thread of the parent would: policies, limits, counters and the node of the
 * fleet are those of all joined processes. The child attaches threads of its own. Handles of the parent's threads are
 * not valid in the child. Without no_thread the call starts a background thread in the child; with no_thread the child
 * calls weir_poll, as each joined process does. The child owns its copy of `w`, and leaves by weir_close.
 *
 * A process may end without weir_close, or be killed at any instruction. Another joined process then takes over the
 * background work within 100 ms, frees the dead process's locks and places, and charges what the dead process admitted.
 * Lost are the requests that its threads were deciding. A process that is stopped within a call, by a debugger or a
 * signal, delays repairs and calls for those keys until the process goes on. The page docs/processes.md says more, for
 * each kind of server.
 *
 * Returns 0 when the child is joined. -EINVAL: `w` is not shared, or this process has joined already.
 * -ENOSPC: max_processes are joined. The child may call again later. Meanwhile it may read statistics, metrics and the
 * status, and let requests pass (weir_count_unlimited).
 * -EAGAIN: no thread could be started. -ENOMEM: no locks could be made.
 * -EBUSY: another process has been opening the shared_name for half a minute.
 * -ENOSYS: a sandbox of the child forbids membarrier(2), which the weir uses.
 * -EXDEV: the child is in another PID namespace than the opener.
 * After another error the child may only join or close.
 * Threads: nothing else may run on `w` in the same process. Progress: waits for no other process, but for one that
 * opens the same shared_name. Allocates: a thread and its descriptors.
 */
WEIR_API int weir_join(weir *w, weir_error *error);

/*
 * Removes the memory of a weir with options.shared_name: the next weir_open of that name begins with full limits.
 * Processes that have the weir open go on with the memory that they have, and share it with no process that opens the
 * name later. So remove a name when no process has it open, or when a refusal of weir_open says so.
 *
 * Returns 0. -EINVAL: no name that shared_name could have; -ENOENT: there is no memory of that name; -EACCES: the
 * memory belongs to another user.
 * Threads: any. Progress: waits for nobody. Allocates: nothing.
 */
WEIR_API int weir_unlink(const char *name);

/*
 * Sends the last reports, for at most redis_timeout_ms, then frees everything: no thread, descriptor or allocation
 * stays. Threads that are still attached are detached. Their handles must not be used again; the threads may end at any
 * time. NULL is allowed.
 *
 * Of a shared weir this process leaves, and the other joined processes go on. The last one to leave sends the last
 * reports, and with it the shared memory is freed, unless it has a shared_name. In a child that has not joined the call
 * frees the child's copy.
 * Threads: nothing else may run on `w`. Blocks up to redis_timeout_ms.
 */
WEIR_API void weir_close(weir *w);

/*
 * Leaves the fleet while threads go on checking: for a program that ends by a signal or a return from main, and does
 * not wait for its threads. Ends the background thread and reports what was counted, for at most redis_timeout_ms. From
 * then on checks decide by what this process knows and by the clock; policies stay, nothing is reported, weir_sync
 * gives -ENOTCONN, and weir_poll does nothing. Of a weir that is shared with other processes these go on. weir_close
 * may follow once no thread uses the weir, and reports what was counted since; or nothing does, and the process ends.
 *
 * 0: all is reported, or there is nothing to report to; also in a second call. -ETIMEDOUT, -ENOTCONN, -ECONNREFUSED:
 * Redis has not got the last reports. -EINVAL: this process is a child that has not joined.
 * Threads: any, but not a signal handler; at the same time as the calls of the table above, but weir_close and
 * weir_join.
 */
WEIR_API int weir_leave(weir *w);

/*
 * Replaces all policies at once. Every check sees the old set or the new one, never a mixture. What keys have used is
 * kept for each limit whose algorithm and period are in both sets under the same policy name. After an error the old
 * set stays.
 * -EINVAL: a policy is malformed; the sentence names policy, limit and field. Or there is no policy of a name that
 * options.required_policies has; the sentence says which, and the name that comes nearest to it. -ENOSPC: there are
 * more than WEIR_MAX_POLICIES names. -ENOMEM: an allocation failed. Where processes share the weir, also of the calls
 * below that change policies or overrides: -EBUSY: a check has been under way in a process for ten seconds, since the
 * change before; -EUCLEAN: the memory is damaged. Threads: any. Blocks until no check uses the old set; where processes
 * share the weir for ten seconds at most. Allocates.
 */
WEIR_API int weir_set_policies(weir *w, const weir_policy *policies, size_t count, weir_error *error);

/*
 * weir_set_policies from a YAML file (docs/policies.md). The file may also have overrides of single keys, which are in
 * force until the next set. An error says "FILE:LINE:COLUMN: sentence", and the old set stays. A path that is too long
 * for the sentence is cut at its front. -EINVAL: the file is malformed. -EFBIG: the file is larger than 1 MiB. -ENOMEM:
 * an allocation failed. -ENOENT and other errors of open and read: the file could not be read.
 * Threads: any. Blocks until no check uses the old set. Allocates.
 */
WEIR_API int weir_load_policies(weir *w, const char *yaml_path, weir_error *error);

/*
 * weir_load_policies, with `count` policies of the program beside those of the file: all come into force at once, or
 * none. A policy of the program that is malformed, or has the name of a policy of the file, is -EINVAL too.
 * Threads: any. Blocks until no check uses the old set. Allocates.
 */
WEIR_API int weir_load_policies_with(weir *w, const char *yaml_path, const weir_policy *policies, size_t count,
                                     weir_error *error);

/*
 * Whether weir_load_policies could load a file: as a test of a configuration, or ahead of a reload. Nothing is applied,
 * and no weir is needed. `required` has `count` names of policies that the file must have, as
 * options.required_policies; NULL, 0: none. Keys of overrides are read as bytes, as no weir_set_key_form is known here.
 *
 * Returns 0, or what weir_load_policies would return, with the same sentence: FILE:LINE:COLUMN and what to do. -EINVAL
 * also: a required name is missing, or is none that a policy can have.
 * Threads: any. Allocates, and frees it all.
 */
WEIR_API int weir_validate_policies(const char *path, const char *const *required, size_t count, weir_error *error);

/*
 * The number of a policy in the present set; WEIR_NO_POLICY: the set has no policy of that name.
 * Threads: any. Takes a lock: call it once per policy, not per request.
 */
WEIR_API weir_policy_id weir_find_policy(const weir *w, const char *name);

/*
 * A policy in force.
 *
 * id      the number that weir_find_policy gives
 *
 * policy  the policy as it was given, with the defaults of its limits filled in: burst, name, and the period_ns of a
 *         calendar (a month has 31 days). A tier is a policy, with a '/' in its name. weir_set_policies accepts the
 *         policy as it is
 */
typedef struct weir_policy_info {
    weir_policy_id id;
    const weir_policy *policy;
} weir_policy_info;

typedef void (*weir_policy_fn)(void *arg, const weir_policy_info *info);

/*
 * Calls `each` for every policy of the present set, in the order in which the policies were given, and returns their
 * number. `each` NULL: returns the number alone. `info` is readable until `each` returns; `each` must not call into the
 * same weir. Overrides and outages do not change what is listed. If another process has set the policies, and this one
 * had no memory for a copy of them, it lists no more policies than it knows.
 * Threads: any. Takes a lock. Allocates: nothing.
 */
WEIR_API size_t weir_list_policies(const weir *w, weir_policy_fn each, void *arg);

/*
 * How the keys of a policy are written for people: in the names of records in Redis, in lists of top offenders, and in
 * the names of overrides. Each key has one text, and no two keys have the same text.
 *
 * write    writes the text of a key into `out`, of `size` bytes with the terminator, and returns the text's length in
 *          bytes. The text is printable ASCII without spaces, '%' and braces. 0: these bytes are no key of this form;
 *          weir then writes each byte as %xx
 *
 * read     reads a text into `out`, of `size` bytes, and returns how many bytes the key has. SIZE_MAX: the text is no
 *          key of this form
 *
 * example  an example of such a text, for error sentences
 *
 * Threads: the functions are called from any thread, several at the same time, and from the background thread. They
 * must not call into the same weir.
 */
typedef struct weir_key_form {
    size_t (*write)(char *out, size_t size, const void *key, size_t length);
    size_t (*read)(void *out, size_t size, const char *text);
    const char *example;
} weir_key_form;

/*
 * The form of keys that are addresses in network byte order: 4 bytes of IPv4, written as 198.51.100.7, or the first
 * `ipv6_prefix` / 8 bytes of IPv6. `ipv6_prefix` is 128 for whole addresses, written as 2001:db8::1, or 64, 56 or 48,
 * written as 2001:db8::/64. With this form an override may name a network: 198.51.100.0/24, 2001:db8::/32. As text
 * ::ffff:198.51.100.7 is 198.51.100.7, in every spelling, and networks are read in the same way. The form is constant
 * and belongs to the library. NULL: there is no form of that `ipv6_prefix`.
 * Threads: any.
 */
WEIR_API const weir_key_form *weir_address_form(unsigned ipv6_prefix);

/*
 * Writes the bytes of a client's address for weir_make_key into `out`, and returns how many there are. Of AF_INET these
 * are the 4 bytes of the address. Of AF_INET6 they are the first `ipv6_prefix` bits, 0 to 128 (a greater number counts
 * as 128), in whole bytes, with the bits behind the prefix 0: 8 bytes for 64. ::ffff:198.51.100.7, as which a socket
 * for both families gives a client of IPv4, is the 4 bytes of that client, whatever the prefix. With a prefix of 32 or
 * less there are 5 bytes, so that no network of IPv6 has the key of an IPv4 address. The port and the scope of a
 * link-local address make no difference. With 128, 64, 56 or 48, weir_address_form has the form of such keys.
 *
 * 0: `address` is NULL or of another family, such as AF_UNIX, and nothing is written. A key of 0 bytes would be the one
 * key of all such clients, so decide yourself what limits them.
 *
 * `out` is the caller's, of 16 bytes, and stays as it is for as long as a weir_key points to it. `address` is read in
 * this call alone and need not be aligned.
 * Threads: any. Progress: wait-free. Allocates: nothing.
 */
WEIR_API size_t weir_address_key(const struct sockaddr *address, unsigned ipv6_prefix, uint8_t out[16]);

/*
 * The form of keys that are networks of one size: an address of IPv4 (`ip_version` 4) or IPv6 (6) in network byte
 * order, whose bits behind the prefix are 0, and one more byte with the prefix. So keys have 5 bytes, written as
 * 198.51.100.0/24, or 17, written as 2001:db8:1::/48. `prefix` is 1 to 32 bits of IPv4, 1 to 128 of IPv6. With this
 * form an override may name a network of fewer bits, for all keys in it: 198.51.0.0/16. The form is constant and
 * belongs to the library. NULL: there are no such networks.
 * Threads: any.
 */
WEIR_API const weir_key_form *weir_network_form(unsigned ip_version, unsigned prefix);

/*
 * Gives the keys of a policy and its tiers a form, in the present set and in later ones. `policy` is the name before
 * the first '/', and need not be in the set. `form` stays the caller's until weir_close; NULL: keys are bytes again.
 * Records in Redis are named by the form. So all nodes must set the same form, before the first check; records under
 * earlier names are left to expire. In a shared weir a form is a process's own, as its functions are: call this before
 * the others are forked, or in each process. -EINVAL: the name is malformed, or the form lacks a function; -ENOMEM.
 * Threads: any. Blocks until no check uses the old set. Allocates.
 */
WEIR_API int weir_set_key_form(weir *w, const char *policy, const weir_key_form *form, weir_error *error);

/*
 * Gives a single key, or a network, an override: other numbers than those of its policy, or no limit at all.
 *
 * name   "policy:key", the key in its policy's form (see weir_key_form), or percent-escaped bytes. A key that
 *        weir_top_offenders shows hashed is named by the hash ("api:~" and 32 digits). "*:198.51.100.0/24" is of all
 *        policies whose keys are addresses or networks (weir_address_form, weir_network_form)
 * value  "allow", "deny", or a number for each limit of the policy, optionally with a burst: "200/50 10000".
 *        An end may follow, in UTC: "deny until 2026-12-01T00:00Z". NULL: removes the override. Of all policies
 *        it is "allow" or "deny"
 *
 * Overrides are kept through weir_set_policies, and need no Redis. Of several overrides of one key the one that is set
 * here is in force, else the one in Redis, else the one of the policy file (docs/policies.md). An override of a key
 * stands above that of its network, and that of a small network above that of a large one. There are at most 10,000
 * overrides, those in Redis included.
 *
 * -EINVAL: the name or the value is malformed, or no key of the policy can have that name. The sentence says what a
 * name looks like. -ENOENT: there is no such policy, or no such override to remove. -ENOSPC: there are too many
 * overrides. -ENOMEM: an allocation failed. After an error all overrides stay as they were.
 * Threads: any. The override is in force from the next check on, on any thread. Blocks until no check uses the old
 * overrides. Allocates.
 */
WEIR_API int weir_set_override(weir *w, const char *name, const char *value, weir_error *error);

/*
 * An override of a key or a network.
 *
 * from_fleet  true: the override is in Redis; false: it was set here or is in the policy file
 * in_force    false: the override is malformed or has ended, its policy does not exist, or another override of the key
 *             stands above
 */
typedef struct weir_override {
    const char *name, *value;
    bool from_fleet, in_force;
} weir_override;

/* What an override of all policies says. */
typedef enum weir_override_answer {
    WEIR_NO_OVERRIDE = 0,
    WEIR_OVERRIDE_ALLOW,
    WEIR_OVERRIDE_DENY
} weir_override_answer;

/*
 * Looks for an override of all policies ("*:198.51.100.0/24") for an address: that of the smallest network with one,
 * whose bits are in *bits then (NULL is allowed). An override of all policies is one of each policy whose keys lie in
 * its network. This call is for hosts that are to obey it beside those policies, too: where a key counts more addresses
 * than the network has, or no address at all. `address` is in network byte order, of 4 bytes for IPv4 and 16 for IPv6;
 * of any other `length` there is no override. Nothing is counted. Without a thread there is none.
 * Threads: the owner of `t`. Progress: wait-free. Allocates: nothing.
 */
WEIR_API weir_override_answer weir_find_override(weir_thread *t, const void *address, size_t length, unsigned *bits);

typedef void (*weir_override_fn)(void *arg, const weir_override *entry);

/*
 * Calls `each` for every override: those set here, those in Redis, those of the policy file. Returns how many there
 * are. `entry` is readable until `each` returns; `each` must not call into the same weir.
 * Threads: any. Takes a lock. Allocates: nothing.
 */
WEIR_API size_t weir_list_overrides(weir *w, weir_override_fn each, void *arg);

/*
 * Attaches the calling thread and returns a handle of its private counters. NULL: max_threads are attached, or, with a
 * shared_name, /dev/shm has no room for one more. What a thread checks without a handle passes unlimited; so
 * weir_stats.attach_error_count counts the call, and the log has a line. The next call may find a place. Costs no
 * system call, but where a new place of a shared_name has to be made.
 *
 * The calling thread owns the handle. When the owner ends without weir_detach, weir detaches the handle, which must not
 * be used after that. This happens after the destructors of C++ thread_local objects and after the first two rounds of
 * the destructors of pthread keys; those may still use the handle or detach it. When the main thread ends by return or
 * exit, weir detaches nothing. A handle that another thread is to use must be unbound first: see weir_unbind.
 * Threads: any.
 */
WEIR_API weir_thread *weir_attach(weir *w);

/*
 * Counts `requests` that the program lets pass without asking: weir_attach has returned NULL, or weir_join has failed.
 * They count in weir_stats.unlimited_count, so that somebody learns of it. A child that has not joined may call this.
 * Threads: any. Progress: wait-free. Allocates: nothing.
 */
WEIR_API void weir_count_unlimited(weir *w, uint64_t requests);

/*
 * Charges what the thread's grants have used, releases the rest, and frees the handle. NULL is allowed.
 * Threads: the owner; of an unbound handle any thread, when no other thread uses the handle.
 */
WEIR_API void weir_detach(weir_thread *t);

/*
 * Makes a handle independent of its owner, for good. An unbound handle may go from thread to thread (goroutines, tasks
 * of an executor, a pool of handles). The end of a thread does not detach an unbound handle; weir_detach and weir_close
 * do. One thread at a time uses the handle, and what passes the handle on must order memory, as a mutex, a channel or
 * pthread_join does. In the comments below "the owner of `t`" is then the thread that has the handle at that time.
 *
 * NULL is allowed.
 * Threads: the owner. Progress: lock-free. Allocates: nothing.
 */
WEIR_API void weir_unbind(weir_thread *t);

/*
 * What is limited: a policy and some bytes. weir_make_key makes a key. `data` stays the caller's and must be readable
 * and unchanged whenever the key is used. A key may be kept for as long as its weir is open, and any thread may use it.
 */
typedef struct weir_key {
    uint64_t hash;
    const void *data;
    uint32_t length;
    weir_policy_id policy;
} weir_key;

/*
 * Hashes a key. `length` is 0 to 65,535 bytes; a longer key is cut there. A policy with a single global key has a key
 * of length 0. A socket for both families gives the address of an IPv4 client as 16 bytes, ::ffff:198.51.100.7; such
 * a key is that of the address's 4 bytes. Keys are told apart by a 64-bit hash under a secret of this weir. Redis gets
 * the bytes (percent-escaped) of keys of up to 32 bytes, and 12 bytes and a hash of longer keys.
 * Threads: any. Progress: wait-free. Allocates: nothing.
 */
WEIR_API weir_key weir_make_key(const weir *w, weir_policy_id policy, const void *data, size_t length);

/*
 * An answer. Times are nanoseconds, and count from the decision.
 *
 * allowed         the request may pass
 * would_deny      shadow mode: WEIR_ENFORCE would have denied the request
 * limit_index     the limit that decided: the one that denied, else the one with the least units left
 * key_index       weir_check_all: the key whose limit decided; else 0
 * basis           what the answer rests on
 * limit           the units that the deciding limit lets pass at once: a window's limit, a bucket's burst
 * remaining       units that may still pass at once now, as far as this thread can know; 0 to limit
 * retry_after_ns  earliest time at which the same cost can pass if no other request comes; 0 when allowed;
 *                 UINT64_MAX: never (the cost is above what the limit lets pass at once)
 * reset_after_ns  time after which the key will be as if never used, if no other request comes;
 *                 UINT64_MAX: never (an override denies the key)
 * fleet_age_ns    time since the last good sync; UINT64_MAX: there has been none
 * decided_ns      when this was decided: time since 1970 by the clock of the fleet, at most a tick ago;
 *                 0: no limit was asked, as with a NULL handle
 */
typedef struct weir_verdict {
    bool allowed;
    bool would_deny;
    uint8_t limit_index;
    uint8_t key_index;
    weir_basis basis;
    uint64_t limit, remaining;
    uint64_t retry_after_ns, reset_after_ns;
    uint64_t fleet_age_ns;
    uint64_t decided_ns;
} weir_verdict;

/*
 * A NULL handle (weir_attach returned NULL) is allowed in every call below that takes a handle: the request passes and
 * is not counted, as limiting fails open. The verdict is allowed, of basis WEIR_BASIS_PROCESS, with limit and remaining
 * UINT64_MAX.
 */

/*
 * May one more request of `cost` units pass? Counts the request where it may. `verdict` may be NULL.
 *
 * A cost of 0 asks whether one unit would pass, and takes none: for requests whose cost is known afterwards, which
 * weir_charge() then takes. It is a check, as fast as one of cost 1: it counts as a request that was allowed or denied,
 * and its verdict is of the moment before anything is taken. A new key that is only asked for gets no entry in the
 * table where its policy has one window or token bucket and no fleet shares it. In a fleet a node may learn what other
 * nodes use of a key only once it has charged the key itself.
 *
 * The bound, for one process: the units admitted in any window, or by any bucket, exceed the limit by at most one
 * request's cost per attached thread. This happens only where a thread is preempted within a check while another thread
 * takes its grant back; the units are charged when the preempted thread runs on. docs/accuracy.md has the bound of a
 * fleet.
 *
 * Threads: the owner of `t`. Progress: lock-free, with two exceptions: the first check of a key takes the insertion
 * lock of the key's set in the table (some 50 ns), and a sliding log has a lock per key. Allocates: nothing. System
 * calls: none, with two exceptions. A membarrier, when a key runs out of units while other threads hold some. Yields
 * and sleeps of up to some 10 ms in all, where a thread was preempted just while it was given units that the request
 * needs.
 */
WEIR_API bool weir_check(weir_thread *t, const weir_key *key, uint64_t cost, weir_verdict *verdict);

/*
 * weir_check of `count` independent keys in order, such as of the packets of one recvmmsg; the cache misses of keys
 * that were not used lately overlap. `costs` has one cost per key; NULL: 1 each. Bit i % 64 of allowed_bits[i / 64]
 * says whether request i may pass; the bits behind the last request are 0. allowed_bits has (count + 63) / 64 words, or
 * is NULL. Returns how many requests may pass. A key that comes several times is decided each time, by the units that
 * its earlier requests have left. Any count is allowed; the call is faster than single checks from 2 to some 256 keys.
 * The bound and the system calls are those of weir_check, for each key.
 * Threads: the owner of `t`. Progress: as weir_check. Allocates: nothing.
 */
WEIR_API size_t weir_check_burst(weir_thread *t, const weir_key *keys, const uint64_t *costs, size_t count,
                                 uint64_t *allowed_bits);

/*
 * Asks for the memory that a check of `key` will wait for, and returns at once. Nothing is counted, and no answer
 * depends on the call. For a caller that knows a key some 50 to 500 ns before its check, and has no burst of keys.
 * Worth the call where a process has more keys than fit its caches, some 10,000 and more.
 * Threads: the owner of `t`; NULL: nothing is done. Progress: wait-free. Allocates: nothing. System calls: none.
 */
WEIR_API void weir_prefetch(weir_thread *t, const weir_key *key);

/*
 * The answer that weir_check would give, without counting the request. `verdict` may be NULL.
 * Threads: the owner of `t`. Progress: as weir_check. Allocates: nothing.
 */
WEIR_API bool weir_peek(weir_thread *t, const weir_key *key, uint64_t cost, weir_verdict *verdict);

/*
 * All or nothing: may a request pass that counts against up to WEIR_MAX_KEYS_AT_ONCE keys, each of a policy of its own
 * (address, user, address and user, endpoint)? Where one limit of one key has no room, nothing is counted for any key.
 * `costs` has one cost per key; NULL: 1 each. A key that is named twice is asked for the sum of its costs.
 *
 * `verdict` may be NULL. It is of the strictest limit: when denied, of the limit that will be the last to let the
 * request pass; when allowed, of the limit with the least units left. key_index and limit_index say which limit that
 * is. A key of a policy in shadow mode denies nothing: where such a key has no room, the key is not counted and
 * would_deny is set. No keys: allowed. More than WEIR_MAX_KEYS_AT_ONCE keys: denied, with retry_after_ns UINT64_MAX.
 * Without a verdict, a key that is known to be denied ends the request: keys that were not used lately are then not
 * looked at, and count no denied units.
 *
 * The bound is weir_check's, for each key.
 * Threads: the owner of `t`. Progress: as weir_check. Allocates: nothing.
 */
WEIR_API bool weir_check_all(weir_thread *t, const weir_key *keys, const uint64_t *costs, size_t count,
                             weir_verdict *verdict);

/*
 * weir_check_all of many requests in order, such as of the packets of one recvmmsg, each with its address and prefixes.
 * The cache misses of keys that were not used lately overlap. Request r has the keys from keys[r * keys_per_request]
 * on, `keys_per_request` of them, and `costs` has one cost per key in the same order; NULL: 1 each. Bit r % 64 of
 * allowed_bits[r / 64] says whether request r may pass; the bits behind the last request are 0. allowed_bits has
 * (requests + 63) / 64 words, or is NULL. Returns how many requests may pass. No keys per request: all may pass; more
 * than WEIR_MAX_KEYS_AT_ONCE: none may. The bound and the system calls are those of weir_check_all, for each request.
 * Threads: the owner of `t`. Progress: as weir_check. Allocates: nothing.
 */
WEIR_API size_t weir_check_all_burst(weir_thread *t, const weir_key *keys, size_t keys_per_request, size_t requests,
                                     const uint64_t *costs, uint64_t *allowed_bits);

/* In place of the index of a key. */
#define WEIR_NO_KEY UINT8_MAX

/*
 * Requests of several keys each, and room for the answers.
 *
 * keys              the keys of request r are those from keys[r * keys_per_request] on
 * costs             units, one cost per key in the order of the keys; NULL: 1 each
 * keys_per_request  up to WEIR_MAX_KEYS_AT_ONCE. None: all requests may pass; more: none may
 * count             how many requests there are; any number
 * allowed_bits      (count + 63) / 64 words. Bit r % 64 of word r / 64 says whether request r may pass; the bits behind
 *                   the last request are 0. May be NULL
 * denied_by         `count` bytes. The index of the key, among those of its request, that denied the request: of the
 *                   keys that were looked at, the last one to let the request pass. WEIR_NO_KEY: the request may pass,
 *                   or has too many keys. May be NULL
 */
typedef struct weir_requests {
    const weir_key *keys;
    const uint64_t *costs;
    size_t keys_per_request, count;
    uint64_t *allowed_bits;
    uint8_t *denied_by;
} weir_requests;

/*
 * weir_check_all_burst, that also says which key denied each request. Returns how many requests may pass. The struct
 * and what it points to stay the caller's.
 * Threads: the owner of `t`. Progress: as weir_check. Allocates: nothing.
 */
WEIR_API size_t weir_check_requests(weir_thread *t, const weir_requests *requests);

/*
 * Gives back `cost` units that a check, charge or reservation took and that were not used. Units that were taken in a
 * window that is over are given back to that window. The latest units that this node took go first, and no window,
 * bucket or log gets more room than it began with. Where this node took fewer than `cost` units, that many are given
 * back. The refund reaches the fleet with the next report.
 *
 * Threads: the owner of `t`, which need not be the thread that took the units. Progress: lock-free, with the exceptions
 * of weir_check. Allocates: nothing.
 */
WEIR_API void weir_refund(weir_thread *t, const weir_key *key, uint64_t cost);

/*
 * Counts `cost` units whose number is known only afterwards (bytes, tokens, seconds), whether they fit or not. Later
 * requests wait for these units: a bucket goes into debt, a window or a log is over its limit until the units are out
 * of it. A cost above WEIR_MAX_UNITS counts as WEIR_MAX_UNITS.
 *
 * Threads: the owner of `t`. Progress: as weir_refund. Allocates: nothing.
 */
WEIR_API void weir_charge(weir_thread *t, const weir_key *key, uint64_t cost);

/*
 * Counts `requests`, of `units` in all, that the caller has denied itself. A denial is known to hold until a time
 * (retry_after_ns): so a program in the kernel can drop packets until then. Such requests count in denied_count, in
 * weir_top_offenders, and in the demand by which the nodes of a fleet share a limit; nothing else changes. Of one call
 * at most WEIR_MAX_UNITS units count. A key whose policy is not in force counts nothing.
 * Threads: the owner of `t`; NULL: nothing is counted. Progress: as weir_check. Allocates: nothing.
 */
WEIR_API void weir_count_denied(weir_thread *t, const weir_key *key, uint64_t requests, uint64_t units);

/*
 * Takes a place in the queue. Returns true and in *wait_ns the nanoseconds to wait before the request may go; 0: at
 * once. A leaky bucket spaces requests evenly and queues at most `burst` units. A token bucket lets a request go when
 * its units will have refilled. The other algorithms have no queue: they must have room now. A cost of 0 asks whether
 * one unit would pass, and takes none.
 *
 * Returns false and takes nothing when the wait would be longer than `max_wait_ns` nanoseconds, or the queue is full.
 * *wait_ns is then the wait after which the request could go at once if no other request comes; UINT64_MAX: never.
 * `wait_ns` may be NULL. In shadow mode a request that would be refused may go at once. weir_refund cancels a
 * reservation. weir_check on a leaky bucket is a reservation that cannot wait.
 *
 * Threads: the owner of `t`. Progress: as weir_check. Allocates: nothing.
 */
WEIR_API bool weir_reserve(weir_thread *t, const weir_key *key, uint64_t cost, uint64_t max_wait_ns, uint64_t *wait_ns);

/*
 * For a thread with an event loop: the time by which weir_reserve decides on this handle until the next call of this
 * function. 0, as after weir_attach: weir_reserve reads the clock each time, which takes longer than all else that it
 * does. `monotonic_ns` is CLOCK_MONOTONIC in nanoseconds, such as read once in each turn of the loop.
 *
 * A time that is behind makes requests wait for longer, by as much. It lets a key pass what fits into that time, once.
 * A time that is ahead lets requests pass early. So set it at the begin of each turn, or set 0 at its end. Other calls
 * than weir_reserve do not use it, nor does a weir with a clock of the host. NULL is allowed.
 * Threads: the owner. Progress: wait-free. Allocates: nothing.
 */
WEIR_API void weir_set_time(weir_thread *t, uint64_t monotonic_ns);

/*
 * Clears what a key has used, under all limits of its policy and its tiers: here, and where there is a fleet in Redis
 * and on every other node, with that node's next sync of the key. 0: cleared; -ENOTCONN: cleared here, and in Redis
 * when Redis can be reached; -ETIMEDOUT: cleared here, and later in Redis, which did not answer within
 * redis_timeout_ms; -ENOENT: the key's policy is not in the present set.
 * Threads: any. Blocks until Redis has answered, up to redis_timeout_ms.
 */
WEIR_API int weir_reset(weir *w, const weir_key *key);

/*
 * For no_thread: does what is due now (ticks, settling, syncs) and returns the milliseconds after which the host calls
 * it again, 0 to 100. An answer of Redis that arrives earlier waits until then, unless the host goes by weir_poll_fd.
 * Does not block, except as docs/embedding.md says of host names. With a clock of the host, time moves in this call
 * alone. -EINVAL: `w` has a background thread.
 * Threads: one at a time.
 */
WEIR_API int weir_poll(weir *w);

/*
 * For no_thread: returns a descriptor that is readable when weir_poll has something to do, as its time has come or as
 * Redis has answered. A loop waits for the descriptor (epoll, poll, select, libuv, libevent, ...) for reading,
 * level-triggered, and calls weir_poll when it is readable. Nothing else is to be done, and syncs are as prompt as with
 * a thread. weir_poll may be called at any other time as well.
 *
 * Each call returns the same descriptor, which belongs to the weir. Do not read, change or close the descriptor, and
 * take it out of the loop before weir_close, which closes it. After fork the child must not wait for the descriptor of
 * the parent's weir.
 *
 * With a clock of the host the kernel cannot tell when the time has come. The descriptor is then readable for Redis
 * alone, and weir_poll is also to be called when the time that it returned is over.
 *
 * -EINVAL: `w` has a background thread; -EMFILE, -ENFILE, -ENOMEM: no descriptor could be made (two are needed). After
 * the latter go by what weir_poll returns, and call weir_poll_fd again later.
 * Threads: any. Blocks while another thread is in weir_poll or weir_sync.
 */
WEIR_API int weir_poll_fd(weir *w);

/*
 * Reports all that was counted before the call, and returns when Redis has acknowledged the reports and this node has
 * read the counts of the other nodes. The call does not wait for what other threads count meanwhile. 0: done;
 * -ETIMEDOUT: `timeout_ms` milliseconds are over, and the sync goes on without the caller; -ECONNREFUSED: Redis refuses
 * the connection or the login, which the log explains, and the call did not wait any longer; -ENOTCONN: there is no
 * fleet (redis_url was NULL). After the first two, limiting goes on by what this node knows, and the node syncs as soon
 * as it can. The call has servers tried at once that had failed before and were to be tried later. With a `timeout_ms`
 * of 0 the call asks for the sync and returns at once. Threads: any. Blocks up to `timeout_ms`.
 */
WEIR_API int weir_sync(weir *w, uint32_t timeout_ms);

/* Whether Redis can be reached. */
typedef enum weir_link {
    WEIR_LINK_NONE = 0, /* no redis_url */
    WEIR_LINK_DOWN = 1,
    WEIR_LINK_UP = 2
} weir_link;

/*
 * Counters begin at 0 with weir_open and never go back; gauges say what is now. A sum over running threads may miss
 * what the threads did in the last moments; when the threads are quiet the sum is exact. docs/operations.md says what
 * the fields look like in each failure. docs/decisions/015-operator-names.md has the names of earlier versions.
 */
typedef struct weir_stats {
    /* Requests allowed, in shadow mode and without a policy as well. A request of several keys counts once. */
    uint64_t allowed_count;
    /* Requests denied. A rise is a limit at work; worry when it is unusual for your traffic. */
    uint64_t denied_count;
    /* Allowed checks that a policy in shadow mode would have denied. Look at it before you enforce the policy. */
    uint64_t would_deny_count;
    /* Checks of a policy that does not exist, which are allowed. Above 0: a name is misspelt or a policy is missing. */
    uint64_t unknown_policy_count;
    /* Checks and other calls that the thread's own counters could not answer. They cost time and are no failure. */
    uint64_t slow_count;
    /* Checks denied, and charges not counted, as the table had no free entry or max_log_units was used up. Above 0:
       raise max_keys or max_log_units. */
    uint64_t untracked_count;
    /* Units that a preempted thread admitted on a grant after another thread had taken the grant back. A steady rise:
       more threads run than there are cores. */
    uint64_t late_units;
    /* Gauge: entries of the table in use, one per key and limit. Near key_capacity keys are evicted. */
    uint64_t key_count;
    /* Gauge: entries of the table, fixed at weir_open. */
    uint64_t key_capacity;
    /* Entries evicted that had nothing of their limit in use. No reason to worry. */
    uint64_t evicted_unused_count;
    /* Entries evicted that had part of their limit in use, and keys that came to a full table and got no entry, as they
       had not come before. A steady rise: max_keys is too small, or many keys come once. */
    uint64_t evicted_used_count;
    /* Evicted keys whose last report was dropped for want of room, so that the fleet may never count some units. Above
       0: max_keys is too small, often in an outage. */
    uint64_t lost_report_count;
    /* Gauge: threads attached. At max_threads further threads are not limited. */
    uint32_t thread_count;
    /* Gauge: nodes with a recent heartbeat, this node included; 0: not known. Worry when it is not the number of nodes
       that you run. */
    uint32_t live_nodes;
    /* Gauge: the connection to Redis. Worry when it stays WEIR_LINK_DOWN. */
    weir_link link;
    /* Gauge: nanoseconds since the last good sync; UINT64_MAX: there has been none. Worry above some sync intervals. */
    uint64_t fleet_age_ns;
    /* Gauge: nanoseconds that the last good sync took. Worry when it is near the sync interval. */
    uint64_t round_trip_ns;
    /* Syncs that Redis answered. Worry when it stays while redis_url is set. */
    uint64_t sync_count;
    /* Syncs that failed or timed out, and sync intervals that ended without a connection. Worry when it rises. */
    uint64_t sync_error_count;
    /* Connections opened to Redis; Redis may refuse the login after that. A steady rise: connections are lost. */
    uint64_t connection_count;
    /* Times that Redis had lost what this node had reported. One is a restart or a failover; worry when it recurs. */
    uint64_t redis_lost_state_count;
    /* Reports that Redis acknowledged, one per entry and sync. It is the load on Redis. */
    uint64_t report_count;
    /* Reports that Redis rejected, as the record is of another type. Above 0: something else writes under the prefix.
     */
    uint64_t rejected_report_count;
    /* Gauge: bytes reserved at weir_open, those included that are present only when used. */
    uint64_t memory_size;
    /* Gauge: overrides of keys and networks that are in force. */
    uint64_t override_count;
    /* Times that the change of an entry was left for a later report, being small. No reason to worry. */
    uint64_t deferred_report_count;
    /* Syncs begun ahead of the interval, for keys that could not wait. Worry when it rises by 100 a second for long. */
    uint64_t urgent_sync_count;
    /* Reports that got no answer in a good sync and are sent again. A steady rise: a shard of the Cluster is down. */
    uint64_t report_retry_count;
    /* Gauge: entries that have changed since they were last considered for a report. Worry when it stays high. */
    uint64_t pending_key_count;
    /* Gauge: entries with a change that is left for a later report. No reason to worry. */
    uint64_t deferred_key_count;
    /* Denied units that the lists of weir_top_offenders have counted, those halved since included. */
    uint64_t denied_units;
    /* Denied units that these lists lack, as the key was evicted first. Near denied_units: max_keys is too small. */
    uint64_t evicted_denied_units;
    /* Evicted entries that came back and had their usage restored. A rise is harmless, but max_keys is too small. */
    uint64_t evicted_restored_count;
    /* Usage records of keys without an entry that were dropped for want of room: such a key starts with its full limit.
       Above 0: max_keys is too small, or many keys come once. */
    uint64_t evicted_unrecorded_count;
    /* Attempts to connect to Redis, with those that were refused, timed out or found no such host. A steady rise: Redis
       cannot be reached. */
    uint64_t connection_attempt_count;
    /* Gauge: processes that are joined, this one included; 1: the weir is not shared. Worry when it is not the number
       of processes that you run. See weir_join. */
    uint64_t process_count;
    /* Denials, counted in denied_count too, of requests that may have had room: a preempted or stopped thread held
       units of the key for more than some 10 ms. A steady rise: more threads run than there are cores. */
    uint64_t stalled_denied_count;
    /* Requests that passed without being asked, as weir_count_unlimited was told. Above 0: raise max_threads or
       max_processes, or give /dev/shm more room. */
    uint64_t unlimited_count;
    /* Calls of weir_attach that gave no handle. Above 0: what those threads check passes unlimited. Raise max_threads,
       or make /dev/shm larger. */
    uint64_t attach_error_count;
    /* Gauge: policies that were in force and that the present set lacks; the log names them once. What is checked by
       them passes. Above 0, where you did not mean it: a name is misspelt. See options.required_policies. */
    uint64_t dropped_policy_count;
} weir_stats;

/*
 * Writes the first `size` bytes of the statistics to `stats`; `size` is sizeof(weir_stats) where the caller was
 * compiled. A later library does not write the fields beyond `size`; an earlier library sets the fields that it does
 * not know to 0.
 * Threads: any. Progress: wait-free.
 */
WEIR_API void weir_get_stats_sized(const weir *w, weir_stats *stats, size_t size);

/*
 * A macro that calls weir_get_stats_sized with sizeof(*stats). The function of this name fills in the fields up to
 * evicted_unrecorded_count and no later ones; it is for programs that were compiled without the macro, and for other
 * languages.
 * Threads: any. Progress: wait-free.
 */
WEIR_API void weir_get_stats(const weir *w, weir_stats *stats);
#define weir_get_stats(w, stats) weir_get_stats_sized((w), (stats), sizeof(*(stats)))

/*
 * The statistics of one policy. The counters are those of all threads, and of all processes that share the weir; they
 * begin at 0 with weir_open, never go back, and stay while the policy is not in the set.
 */
typedef struct weir_policy_stats {
    /* Checks of the policy that were allowed, in shadow mode as well. A request of several keys counts for each. */
    uint64_t allowed_count;
    /* Checks that this policy denied. A request of several keys counts for the policy that decided. */
    uint64_t denied_count;
    /* Allowed checks that the policy would have denied, were it not in shadow mode. */
    uint64_t would_deny_count;
    /* Gauge: the limits as they were configured, limit_count of them, with burst and period_ns filled in as
       weir_list_policies does. `name` is NULL. Overrides and outages change nothing here. */
    weir_limit limits[WEIR_MAX_LIMITS];
    size_t limit_count;
    /* Gauge: whether the policy is in an outage mode, as there has been no good sync for outage_grace_ms. Worry when it
       stays. */
    bool in_outage;
    /* Gauge: that outage mode. Where in_outage is false: on_outage, the mode that an outage would begin with. */
    weir_outage outage_mode;
} weir_policy_stats;

/*
 * Writes the first `size` bytes of the statistics of a policy to `out`; `size` is sizeof(weir_policy_stats). What this
 * library does not know of these bytes becomes 0. The counters of a policy are read one by one, so a check that is made
 * meanwhile may be in none of them yet.
 *
 * Returns 0. -ENOENT: the policy is not in the present set. limit_count is then 0, and the counters are those from the
 * time when the policy was in the set. -EINVAL: `out` is NULL, and nothing is written.
 * Threads: any. Progress: wait-free. Allocates: nothing. Takes no lock.
 */
WEIR_API int weir_get_policy_stats(const weir *w, weir_policy_id policy, weir_policy_stats *out, size_t size);

/*
 * A key that is denied much.
 *
 * key           terminated text, as in the names of records in Redis: printable bytes as they are, others as %xx. Of a
 *               key of more than 32 bytes: the first 12 bytes, '~' and a hash. Of a policy with hash_keys: '~' and the
 *               hash
 *
 * denied_units  the most units that this process denied the key lately. All counts are halved each minute: a key that
 *               is steadily denied d units a minute stands at d to 2 d
 *
 * error_units   the part of denied_units that may have been denied to other keys. The key was denied at least
 *               denied_units - error_units
 */
typedef struct weir_offender {
    char key[WEIR_OFFENDER_KEY_SIZE];
    uint64_t denied_units;
    uint64_t error_units;
} weir_offender;

/*
 * The keys that this process denied most units of a policy and its tiers lately, most first. Fills at most `capacity`
 * and at most WEIR_TOP_OFFENDERS entries of `out`, and returns how many; 0: no key was denied, or the policy is not in
 * the present set. `out` is the caller's, and may be NULL when `capacity` is 0.
 *
 * A denial is in the list some 100 ms later (with no_thread: after some calls of weir_poll), and later than that where
 * more than 64,000 different keys a second are denied. Three kinds of denials are not counted: a cost above what a
 * limit lets pass at once, an override "deny", and the checks of untracked_count. What shadow mode would deny is
 * counted. Lists stay through weir_set_policies for policies whose names stay.
 *
 * The bound: 64 keys are counted for each policy. A key with more than a 64th of all units denied lately is among them,
 * and the error of each key is at most that 64th.
 *
 * Threads: any. Takes a lock that no check takes. Allocates: nothing.
 */
WEIR_API size_t weir_top_offenders(const weir *w, weir_policy_id policy, weir_offender *out, size_t capacity);

/*
 * Writes the metrics as Prometheus text (format 0.0.4), terminated. Returns the bytes that the text needs without the
 * terminator; a result of `size` or more says that the text was cut. `buffer` may be NULL when `size` is 0.
 * Threads: any. Takes a lock.
 */
WEIR_API int weir_write_metrics(const weir *w, char *buffer, size_t size);

/*
 * Writes the state of the weir as one line of JSON, terminated. It has sync health, and of each policy limits, outage
 * mode, counters and top offenders. docs/operations.md lists the fields; later versions add fields. Returns the bytes
 * that the text needs without the terminator; a result of `size` or more says that the text was cut, and is no JSON.
 * `buffer` may be NULL when `size` is 0.
 * Threads: any. Takes locks that no check takes. Allocates: nothing.
 */
WEIR_API int weir_write_status(const weir *w, char *buffer, size_t size);

/*
 * A page of HTML that shows what weir_write_status writes, as moving charts and tables. The host serves the page at any
 * address, with the type "text/html; charset=utf-8". For the same address with the query "format=json" the host serves
 * the text of weir_write_status. The page loads nothing else, and has a content security policy of its own. The page
 * names the keys that are denied most: let only operators reach it.
 *
 * Returns the page, terminated, and stores its bytes without the terminator in *length, which may be NULL. The library
 * owns the page, which lasts until the library is unloaded.
 * Threads: any. Progress: wait-free. Allocates: nothing.
 */
WEIR_API const char *weir_status_page(size_t *length);

/* How to tell a client about its limits. A style never changes: a later draft becomes a new style. */
typedef enum weir_header_style {
    WEIR_HEADERS_DRAFT_11 = 0,   /* draft-ietf-httpapi-ratelimit-headers-11: RateLimit-Policy and RateLimit */
    WEIR_HEADERS_TRIO = 1,       /* RateLimit-Limit, -Remaining, -Reset (seconds from now), as in the drafts up to 07 */
    WEIR_HEADERS_X_UNIX = 2,     /* X-RateLimit-Limit, -Remaining, -Reset (Unix time), as GitHub's */
    WEIR_HEADERS_X_ISO8601 = 3,  /* as WEIR_HEADERS_X_UNIX, with the time as 2026-11-30T23:59:59Z */
    WEIR_HEADERS_RETRY_AFTER = 4 /* Retry-After alone */
} weir_header_style;

/*
 * Writes HTTP header fields that tell a client how much of its limits is left, each line ended by CR LF, and a
 * terminator. Every style adds Retry-After when the verdict is a denial that will pass: in whole seconds, rounded up,
 * so that a client that obeys is admitted if no other request comes. `policy` is the policy that was checked; after
 * weir_check_all it is the policy of the verdict's key. A policy that no longer exists, or a verdict without a policy,
 * writes no fields.
 *
 * The decision may be some time ago: seconds count from this call on, and a time of day is reset_after_ns after
 * decided_ns, rounded up to a second. A verdict whose decided_ns is 0 counts from this call. A reset that never comes
 * is left out.
 *
 * Returns the bytes that the text needs without the terminator; a result of `size` or more says that the text was cut.
 * -EINVAL: there is no such style, or `verdict` is NULL. `buffer` may be NULL when `size` is 0.
 * Threads: any. Progress: wait-free. Allocates: nothing.
 */
WEIR_API int weir_write_headers(weir_header_style style, const weir *w, weir_policy_id policy,
                                const weir_verdict *verdict, char *buffer, size_t size);

#ifdef __cplusplus
}
#endif

#endif
