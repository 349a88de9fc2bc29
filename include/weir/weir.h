/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weir - rate limits inside a server's own threads, shared by a fleet through Redis.
 *
 * A `weir` is one node of a fleet. Each serving thread attaches once and then asks weir_check() before it
 * does a unit of work. The answer comes from the thread's own counters (a few nanoseconds), at times from
 * the process's table (tens of nanoseconds), never from the network: a background thread tells Redis what
 * this node admitted and learns what the others did.
 *
 * Which calls may run at the same time on one `weir`:
 *
 *   call                                  may run beside
 *   ------------------------------------  ------------------------------------------------------------
 *   weir_open                             anything (it makes a new object)
 *   weir_set_policies, _load_policies     everything but weir_close; two at once are put in order
 *   weir_find_policy, weir_make_key,      everything but weir_close
 *     weir_attach, weir_detach, weir_unbind,
 *     weir_reset,
 *     weir_sync, _get_stats(_sized),
 *     _write_metrics, _write_headers,
 *     _top_offenders, _list_policies
 *   weir_version                          anything
 *   weir_check, _check_all, _peek,        everything but weir_close, and but another call on the same
 *     _refund, _charge, _reserve            weir_thread: one thread uses it at a time
 *   weir_poll                             as weir_find_policy, and but another weir_poll
 *   weir_poll_fd                          everything but weir_close
 *   weir_close                            nothing
 *
 * Functions that can fail return 0 or a negative errno value, and take an optional weir_error for a
 * sentence a person can act on. The library never exits, aborts, prints or takes a signal.
 *
 * Of the structs weir_options, weir_stats, and what weir_list_policies and weir_list_overrides give get new fields, at
 * their end; the others keep their size for as long as the library's soname stays (docs/decisions/013-abi.md).
 *
 * After fork() without exec the child owns no background thread. Of a weir of the parent's it may only call
 * weir_close(), which frees the child's copy and touches neither the parent's connection nor the fleet. It may open
 * weirs of its own, before or after that, and use them as any process does, whatever threads of the parent were doing
 * at the fork. The library registers handlers for fork (pthread_atfork): a fork waits for a weir_set_policies that is
 * waiting for checks to end. So a log function, a clock of the host's own, and a signal handler that may interrupt a
 * call of weir must not fork. A host that uses liburcu-bp itself leaves that one's fork handlers to weir.
 */
#ifndef WEIR_H
#define WEIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define WEIR_API __attribute__((visibility("default")))
#else
#define WEIR_API
#endif

#define WEIR_VERSION_MAJOR 0
#define WEIR_VERSION_MINOR 1
#define WEIR_VERSION_PATCH 0

/*
 * The version of the library that the program runs with, such as "0.1.0"; the macros above are those of the header it
 * was compiled with. The text is the library's, and lasts as long as that is loaded. Threads: any. Progress: wait-free.
 */
WEIR_API const char *weir_version(void);

/* A limiter: one node of the fleet. Thread-safe as the table above says. */
typedef struct weir weir;

/* One thread's private counters: a handle that one thread uses at a time. See weir_attach. */
typedef struct weir_thread weir_thread;

/* A policy's number in one weir: the same for a name for as long as that weir is open. */
typedef uint32_t weir_policy_id;

/* No such policy. A check against it is allowed and counted in weir_stats.unknown_policy_count. */
#define WEIR_NO_POLICY ((weir_policy_id) 0)

/* Most limits one policy can hold. */
#define WEIR_MAX_LIMITS 4

/* Most keys in one weir_check_all. */
#define WEIR_MAX_KEYS_AT_ONCE 16

/* Greatest limit of a sliding log: it remembers the time of every unit. */
#define WEIR_MAX_LOG_UNITS 65536

/* Longest name of a policy or a limit, in bytes, without the terminator. */
#define WEIR_MAX_NAME 63

/* Most different policy names one weir takes from open to close. */
#define WEIR_MAX_POLICIES 1023

/* Most keys weir_top_offenders tells of. */
#define WEIR_TOP_OFFENDERS 16

/* Size of a key's text in a weir_offender, with the terminator. */
#define WEIR_OFFENDER_KEY_SIZE 128

/* Longest text of a key in a form of its own, with the terminator. */
#define WEIR_KEY_TEXT_SIZE 64

/* Greatest number of units a limit, a burst or one request can have: 2^42 - 1. */
#define WEIR_MAX_UNITS UINT64_C(4398046511103)

/* How a limit counts. docs/choosing.md helps to choose. */
typedef enum weir_algorithm {
    WEIR_FIXED_WINDOW = 0,   /* so many units in each period, counted from period boundaries in fleet time */
    WEIR_SLIDING_WINDOW = 1, /* two counters: this window's, and the last one's weighted by what of it is
                                still within one period */
    WEIR_SLIDING_LOG = 2,    /* the time of every unit is remembered: never more than limit in any period. Exact */
    WEIR_TOKEN_BUCKET = 3,   /* a bucket of `burst` units that refills at limit per period (GCRA) */
    WEIR_LEAKY_BUCKET = 4    /* a queue of `burst` units that is served at limit per period, evenly: see weir_reserve */
} weir_algorithm;

/* Quotas: windows that follow the calendar, in UTC. */
typedef enum weir_calendar { WEIR_CALENDAR_NONE = 0, WEIR_CALENDAR_DAY = 1, WEIR_CALENDAR_MONTH = 2 } weir_calendar;

/* What to do when the fleet's news is too old to go by. */
typedef enum weir_outage {
    WEIR_OUTAGE_SHARE = 0, /* this node's part of the demand last seen for the key, an even part where none is known;
                              at least one unit per period */
    WEIR_OUTAGE_LOCAL = 1, /* the full limit on every node */
    WEIR_OUTAGE_OPEN = 2,  /* let everything pass, and count it */
    WEIR_OUTAGE_CLOSED = 3 /* let nothing pass */
} weir_outage;

typedef enum weir_mode {
    WEIR_ENFORCE = 0,
    WEIR_SHADOW = 1 /* count, say in weir_verdict.would_deny what would be denied, and let it pass */
} weir_mode;

typedef enum weir_scope {
    WEIR_SCOPE_FLEET = 0,  /* the limit holds for all nodes together */
    WEIR_SCOPE_PROCESS = 1 /* the limit holds for this process; never sent to Redis */
} weir_scope;

/* What a verdict rests on. */
typedef enum weir_basis {
    WEIR_BASIS_PROCESS = 0, /* this process alone: no fleet, a process-scope policy, or no news yet */
    WEIR_BASIS_FLEET = 1,   /* this process, and what the fleet last told */
    WEIR_BASIS_OUTAGE = 2   /* the policy's on_outage or on_long_outage */
} weir_basis;

/*
 * One limit: `limit` units per `period_ns`.
 *
 * limit      1 to WEIR_MAX_UNITS, units per period; a sliding log's at most WEIR_MAX_LOG_UNITS. A bucket's rate is
 *            rounded down to a whole number of 1/64 ns per unit (0.16% at 100,000,000 units a second); rates above
 *            640,000,000 units a second are refused: count in larger units.
 *
 * period_ns  1,000,000 (1 ms) to 31,622,400 seconds (366 days), in nanoseconds; not looked at where there is a
 *            calendar.
 *
 * burst      buckets: 1 to WEIR_MAX_UNITS, the most units that pass (or queue) at once; 0: same as limit. Filling an
 *            empty bucket must take less than 2 years. The others admit at most `limit` at once and take 0 or the same
 *            number as limit.
 *
 * calendar   fixed windows: a UTC day or month in place of period_ns.
 *
 * delay      leaky buckets: units that may pass ahead of their turn before requests have to wait, 0 to burst. In the
 *            words of nginx's limit_req: 0 is "burst", `burst` is "nodelay", between them is "delay="; weir's burst
 *            counts the request being served, so it is nginx's plus one.
 *
 * name       for headers, 1 to WEIR_MAX_NAME bytes of printable ASCII; NULL: the policy's name, and where that has
 *            several limits, its number in the list.
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

/* A limit with every field zero, and the same of a policy: for C++ before C++20, which has no designated initialisers.
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
 * A named set of limits; a request passes when all of them allow it. The caller keeps what the pointers
 * name only until the call returns.
 *
 * name             1 to WEIR_MAX_NAME bytes: letters, digits, '.', '_', '-' and '/'. "api", "api/free" and "api/pro"
 *                  are tiers of one policy: they have limits of their own, and share what a key has used, as far as
 *                  algorithm and period of their limits are the same
 * limits           limit_count of them, 1 to WEIR_MAX_LIMITS
 * hash_keys        true: keys go to Redis as a 128-bit hash; tokens stay here, addresses where there is a fleet_secret
 * on_outage        when there has been no good sync for outage_grace_ms
 * on_long_outage   when the outage has gone on for long_outage_ms
 * outage_grace_ms  0: three sync intervals; less than two counts as two; at most 86,400,000 (a day)
 * long_outage_ms   0: never; at most 2,592,000,000 (30 days)
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
 * A clock of the host's own. Both functions are called by one thread at a time and must not block. The wall clock may
 * be years off: in a fleet its time counts from the first answer on. A weir counts for eight years after weir_open;
 * then token and leaky buckets let everything pass.
 */
typedef struct weir_clock {
    uint64_t (*monotonic_ns)(void *arg); /* never steps back */
    uint64_t (*wall_ns)(void *arg);      /* nanoseconds since 1970-01-01 00:00 UTC; may step */
    void *arg;
} weir_clock;

typedef enum weir_log_level { WEIR_LOG_ERROR = 0, WEIR_LOG_WARNING = 1, WEIR_LOG_INFO = 2 } weir_log_level;

/*
 * Called from the background thread (or from weir_poll), never from a check. `message` is one line of UTF-8: control
 * characters and other bytes of what it quotes are \xNN. It must not call into the same weir.
 *
 * A policy that denies is told of at WEIR_LOG_INFO, where no_denial_log does not forbid it: one to two seconds after
 * its first denial, every ten seconds while it denies, and some ten to twenty seconds after its last denial. A policy
 * and its tiers are told of as one. Two lines of one policy are ten seconds apart at least, so there are at most six a
 * minute. Their forms:
 *
 *   policy api begins to deny: 41 checks in 1 s, most by api:198.51.100.7 (41 units)
 *   policy api denies: 812 checks in 10 s, most by api:198.51.100.7 (790 units), api:203.0.113.9 (22 units)
 *   policy api denies no more: 4100 checks in 55 s
 *
 * "would begin to deny", "would deny" and "would deny no more" stand for shadow mode; where tiers do both, "N checks
 * and would deny N" is said. Named are up to three keys that had a 64th of the denied units at least, as
 * weir_set_override takes them, with the units that each was denied for sure; a key has no spaces in it. ", by many
 * keys" stands where there is no such key. Nobody is named where only requests were denied that weir_top_offenders does
 * not count, or where the policy has but the empty key.
 */
typedef void (*weir_log_fn)(void *arg, weir_log_level level, const char *message);

/*
 * How to open a weir. Start from WEIR_OPTIONS_INIT; a zeroed field means its default.
 *
 * size              sizeof(weir_options), for later versions of the library
 *
 * redis_url         where the fleet meets, as redis://[user[:password]@]host[:port][,host...][/database] and in the
 *                   other forms of docs/redis.md: unix, redis+cluster, redis+sentinel, rediss. NULL: this process alone
 *
 * prefix            of every key in Redis, 1 to 32 bytes without braces, spaces or control bytes; "weir"
 *
 * node_name         for people who read the log and the metrics; NULL: the host name
 *
 * max_keys          how many keys to hold, 1,000 to 100,000,000; 65,536. A key counts once for each limit of its
 *                   policy. Memory is fixed and present at open: about 60 bytes per key, and 125 with a redis_url
 *
 * max_threads       how many threads may be attached at once, 1 to 1,024; 64
 * sync_interval_ms  how often to speak with Redis, 10 to 60,000 ms; 200
 * redis_timeout_ms  after which an answer no longer counts, 10 to 60,000 ms; 1,000
 * tick_us           how long a thread's grant holds, 100 to 100,000 us; 1,000
 * no_thread         the host calls weir_poll from its own loop instead of a background thread; weir_poll_fd says when
 * clock             NULL: the system's. Your own implies no_thread, and time then moves only in weir_poll
 * log, log_arg      NULL: say nothing
 * max_log_units     how many units the sliding logs of all keys can remember, 1,000 to 4,000,000,000; 4,194,304. Eight
 *                   bytes each, reserved at open, present when used. A key takes up to 16 bytes per unit of its limit,
 *                   and 1 KiB in a fleet; where there is no room, its requests are denied and counted as untracked
 * expected_nodes    how many nodes share the limits, 1 to 65,535, for as long as the fleet has not told: from weir_open
 *                   to the first answer, some 10 ms, and in an outage that began before it. Until then each key has one
 *                   part in so many of its limit. 0: 1, as a node that is alone must lose nothing by it; in a fleet
 *                   each start then passes up to a whole limit before it hears of the others
 *
 * fleet_secret      16 to 1,024 bytes, the same on all nodes: keys of more than 32 bytes, and those of policies with
 *                   hash_keys, are named in Redis by a hash under it, so that nobody without it can find out by trying
 *                   what such a name stands for. NULL: by a hash without a secret. Names cannot be made to collide in
 *                   either case. Another secret is another name: docs/security.md says how to change it
 *
 * no_denial_log     the log says nothing of policies that deny; see weir_log_fn
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
} weir_options;

#define WEIR_OPTIONS_INIT                                                                                              \
    {                                                                                                                  \
        sizeof(weir_options), NULL, "weir", NULL, 65536, 64, 200, 1000, 1000, false, NULL, NULL, NULL, 4194304, 0,     \
            NULL, false                                                                                                \
    }

/*
 * Opens a limiter and stores it in *out. An unreachable Redis is no error: limiting starts at once and the
 * fleet joins in when it can. -EINVAL: an option is out of range (the sentence names it); -ENOMEM; -EAGAIN:
 * no thread to be had. It counts for eight years (see weir_clock): open another one before.
 * Threads: any. Allocates: everything it will ever need but policy sets.
 */
WEIR_API int weir_open(const weir_options *options, weir **out, weir_error *error);

/*
 * Reports what is left, within redis_timeout_ms, then frees everything: no thread, descriptor or allocation
 * stays. Threads still attached are detached; their handles must not be used again, and they may end at any time. NULL
 * is allowed.
 * Threads: nothing else may run on `w`. Blocks up to redis_timeout_ms.
 */
WEIR_API void weir_close(weir *w);

/*
 * Replaces all policies at once. Every check sees the old set or the new one, never a mixture. What keys have
 * used stays for limits whose algorithm and period are in both sets under the same policy name.
 * -EINVAL: a policy is malformed (the sentence names policy, limit and field), and the old set stays;
 * -ENOSPC: more than WEIR_MAX_POLICIES names; -ENOMEM.
 * Threads: any. Blocks until no check uses the old set. Allocates.
 */
WEIR_API int weir_set_policies(weir *w, const weir_policy *policies, size_t count, weir_error *error);

/*
 * weir_set_policies from a YAML file (docs/policies.md), with the entries of single keys that the file has; they go
 * with the next set. An error says "FILE:LINE:COLUMN: sentence", and the old set stays; of a path too long for that the
 * end is named. -EINVAL: the file is malformed; -EFBIG: it is larger than 1 MiB; -ENOMEM, whichever allocation it was;
 * -ENOENT and its like: the file could not be read.
 */
WEIR_API int weir_load_policies(weir *w, const char *yaml_path, weir_error *error);

/*
 * The number of a policy in the present set; WEIR_NO_POLICY where there is none of that name.
 * Threads: any. Takes a lock; look it up once, not per request.
 */
WEIR_API weir_policy_id weir_find_policy(const weir *w, const char *name);

/*
 * A policy in force.
 *
 * id      as weir_find_policy gives it
 *
 * policy  as it was given, with what its limits leave to a default filled in: burst, name, and the period_ns of a
 *         calendar (a month's is 31 days). A tier is a policy, whose name has a '/'. weir_set_policies takes it as it
 * is
 */
typedef struct weir_policy_info {
    weir_policy_id id;
    const weir_policy *policy;
} weir_policy_info;

typedef void (*weir_policy_fn)(void *arg, const weir_policy_info *info);

/*
 * Calls `each` for every policy of the present set, in the order in which they were given. What it is given is readable
 * until it returns; it must not call into the same weir. Entries of single keys and outages change nothing of what is
 * told. Returns how many there are; `each` NULL: that alone. Threads: any. Takes a lock. Allocates: nothing.
 */
WEIR_API size_t weir_list_policies(const weir *w, weir_policy_fn each, void *arg);

/*
 * How the keys of a policy are written for people: in the names of records in Redis, in lists of offenders, and in
 * entries of single keys. Each key has one text, and no two keys have the same.
 *
 * write    writes the text of a key into `out`, of `size` bytes with the terminator, and returns its length. The text
 *          is printable ASCII without spaces, '%' and braces. 0: these bytes are no such key; each is written as %xx
 *
 * read     reads a text into `out`, of `size` bytes, and returns how many bytes the key has. SIZE_MAX: it is no such
 *          text
 *
 * example  of such a text, for messages
 *
 * Called from any thread, also at once, and from the background thread. They must not call into the same weir.
 */
typedef struct weir_key_form {
    size_t (*write)(char *out, size_t size, const void *key, size_t length);
    size_t (*read)(void *out, size_t size, const char *text);
    const char *example;
} weir_key_form;

/*
 * The form of keys that are addresses in network byte order: 4 bytes of IPv4, written as 198.51.100.7, or the first
 * `ipv6_prefix` / 8 bytes of IPv6. `ipv6_prefix` is 128 for whole addresses, written as 2001:db8::1, or 64, 56 or 48,
 * written as 2001:db8::/64. With this form an entry may be of a network: 198.51.100.0/24, 2001:db8::/32. NULL: no such
 * prefix. It is constant. Threads: any.
 */
WEIR_API const weir_key_form *weir_address_form(unsigned ipv6_prefix);

/*
 * Gives the keys of a policy and its tiers a form, in the present set and those to come. `policy` is the name before
 * the first '/', which need not be in the set. `form` stays the caller's until weir_close; NULL: bytes again. As
 * records are named by it, all nodes must give the same one, before the first check; records of before are left to
 * expire. -EINVAL: the name is none, or a function of the form is missing; -ENOMEM.
 * Threads: any. Blocks until no check uses the old set. Allocates.
 */
WEIR_API int weir_set_key_form(weir *w, const char *policy, const weir_key_form *form, weir_error *error);

/*
 * Gives a single key, or a network of them, an entry of its own: other numbers than its policy's, or none.
 *
 * name   "policy:key", the key in its policy's form (see weir_key_form), or percent-escaped bytes; also as
 *        weir_top_offenders tells of it where it is hashed ("api:~" and 32 digits)
 * value  "allow", "deny", or a number for each limit of the policy, with a burst where wanted: "200/50 10000".
 *        NULL: takes the entry back
 *
 * Entries are kept through weir_set_policies, and need no Redis. Of entries of the same key one that is set here is in
 * force, else one in Redis, else one of the policy file (docs/policies.md). The entry of a key stands above that of its
 * network, and a small network's above a large one's. At most 10,000, with those in Redis. -EINVAL: the name or the
 * value is malformed, or no key of the policy can have that name (the sentence says what it should look like); -ENOENT:
 * there is no such policy, or no such entry to take back; -ENOSPC; -ENOMEM: all stays as it was. Threads: any. Holds
 * from the next check on, on any thread. Blocks until no check uses the old entries. Allocates.
 */
WEIR_API int weir_set_override(weir *w, const char *name, const char *value, weir_error *error);

/*
 * An entry. from_fleet: it is in Redis, not set here and not from a file. in_force: false where it is malformed, its
 * policy is not there, or another entry of the key stands above it.
 */
typedef struct weir_override {
    const char *name, *value;
    bool from_fleet, in_force;
} weir_override;

typedef void (*weir_override_fn)(void *arg, const weir_override *entry);

/*
 * Calls `each` for every entry there is: those set here, those in Redis, those of the file. What it is given is
 * readable until it returns; it must not call into the same weir. Returns how many there were. Threads: any.
 */
WEIR_API size_t weir_list_overrides(weir *w, weir_override_fn each, void *arg);

/*
 * This thread's private counters, or NULL when max_threads are attached. Costs no system call.
 *
 * The handle is the calling thread's, its owner's. When the owner ends without weir_detach, the handle is given back,
 * and must not be used again: after the destructors of C++ thread_local objects and the first two rounds of pthread
 * keys' destructors, which may still use it or detach it. The end of the main thread by return or exit gives nothing
 * back. A handle that is to be used by another thread must be unbound: see weir_unbind. Threads: any.
 */
WEIR_API weir_thread *weir_attach(weir *w);

/*
 * Settles what the thread still holds and gives the handle back. NULL is allowed. Threads: the owner; of an unbound
 * handle any, when no other uses it.
 */
WEIR_API void weir_detach(weir_thread *t);

/*
 * Makes a handle nobody's own, for good: it may then go from thread to thread (goroutines, tasks of an executor, a pool
 * of handles), and no thread's end gives it back; weir_detach and weir_close do. It is still used by one thread at a
 * time, and what passes it on must order memory, as a mutex, a channel or pthread_join does. "The owner of `t`" is
 * below who has the handle just now. The first slow call of a thread that never attached registers that thread with
 * liburcu, which allocates. NULL is allowed. Threads: the owner. Progress: lock-free. Allocates: nothing.
 */
WEIR_API void weir_unbind(weir_thread *t);

/*
 * What is limited: a policy and some bytes. Made by weir_make_key; `data` stays the caller's and must be
 * readable, unchanged, whenever the key is used. A key may be kept for as long as its weir is open and used from
 * any thread.
 */
typedef struct weir_key {
    uint64_t hash;
    const void *data;
    uint32_t length;
    weir_policy_id policy;
} weir_key;

/*
 * Hashes a key. `length` is 0 to 65,535 bytes (a longer key is cut there); 0 is for a policy with a single
 * global key. Keys are told apart by a 64-bit hash under a secret of this weir. Redis sees the bytes (percent
 * escaped) of keys up to 32 bytes, and 12 bytes and a hash of longer ones.
 * Threads: any. Progress: wait-free. Allocates: nothing.
 */
WEIR_API weir_key weir_make_key(const weir *w, weir_policy_id policy, const void *data, size_t length);

/*
 * An answer. Times are nanoseconds from now.
 *
 * allowed         the request may pass
 * would_deny      shadow mode: it would not have passed
 * limit_index     the limit that decided: the one that denied, or the one with the least left
 * key_index       weir_check_all: the key whose limit decided; else 0
 * basis           what the answer rests on
 * limit           that limit's units at once: a window's limit, a bucket's burst
 * remaining       units that may still pass at once now, as far as this thread can know; 0 to limit
 * retry_after_ns  earliest time at which the same cost can pass if nobody else comes; 0 when allowed;
 *                 UINT64_MAX: never (the cost is above what the limit lets pass at once)
 * reset_after_ns  when the key will be as if never used, if nobody comes
 * fleet_age_ns    how old the fleet's news is; UINT64_MAX: none yet
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
} weir_verdict;

/*
 * Without a handle (NULL: weir_attach had no place left) every call below that takes one lets pass and counts nothing:
 * limiting fails open. The verdict is allowed, of basis WEIR_BASIS_PROCESS, with limit and remaining UINT64_MAX.
 */

/*
 * May one more request of `cost` units pass? Counts it where it may. A cost of 0 asks as if for 1 and takes
 * nothing. `verdict` may be NULL.
 *
 * The bound, for one process: the units admitted in any window, or by any bucket, exceed the limit by at most
 * one request's cost per attached thread, and only for a thread that was preempted within a check while
 * another took its grant back; that unit is charged when the thread runs on. docs/accuracy.md has the fleet's.
 * Threads: the owner of `t`. Progress: lock-free but for the first sight of a key, which takes the insertion
 * lock of its set in the table (some 50 ns), and for sliding logs, which have a lock per key. Allocates: nothing.
 * System calls: none, but for a membarrier when a key runs out that other threads hold units of; and where one of those
 * threads was preempted just while it was given them, yields and naps of up to some 10 ms in all, before a request is
 * denied for whose units are there.
 */
WEIR_API bool weir_check(weir_thread *t, const weir_key *key, uint64_t cost, weir_verdict *verdict);

/*
 * weir_check of `count` keys that have nothing to do with each other, such as of the packets of one recvmmsg, in order;
 * the cache misses of keys that were not used lately overlap. `costs` has one cost per key; NULL: 1 each. Bit i % 64 of
 * allowed_bits[i / 64] says whether request i may pass; the bits behind the last are 0. allowed_bits has (count + 63) /
 * 64 words, or is NULL. Returns how many may pass. A key that comes several times is decided each time, by what the
 * times before have left. Any count; from 2 to some 256 it is worth it. The bound, threads, progress, allocations and
 * system calls: as weir_check, for each key.
 */
WEIR_API size_t weir_check_burst(weir_thread *t, const weir_key *keys, const uint64_t *costs, size_t count,
                                 uint64_t *allowed_bits);

/* The answer weir_check would give, counting nothing. Threads: the owner of `t`. As weir_check otherwise. */
WEIR_API bool weir_peek(weir_thread *t, const weir_key *key, uint64_t cost, weir_verdict *verdict);

/*
 * All or nothing: may a request pass that counts against up to WEIR_MAX_KEYS_AT_ONCE keys, each of a policy of its own
 * (address, user, address and user, endpoint)? Where one limit of one key has no room nothing is counted anywhere.
 * `costs` has one cost per key; NULL: 1 each. A key that is named twice is asked for both costs together. The verdict
 * is the strictest one: when denied, of the limit that will be the last to let the request pass; else of the one with
 * the least left; key_index and limit_index say which. A key of a policy in shadow mode denies nothing: where it has no
 * room it is not counted, and would_deny is set. No keys: allowed. More than the most: denied, with retry_after_ns
 * UINT64_MAX.
 *
 * The bound is weir_check's, for each key. Threads: the owner of `t`. Progress: as weir_check with a policy of
 * several limits. Allocates: nothing.
 */
WEIR_API bool weir_check_all(weir_thread *t, const weir_key *keys, const uint64_t *costs, size_t count,
                             weir_verdict *verdict);

/*
 * Gives back `cost` units that a check, charge or reservation took and that were not used. Where the units were taken
 * in a window that is over, they are given back to that one: of what this node took, the latest units go first, and no
 * window, bucket or log ever has more than it began with. Where fewer units are there, so many are given back. Reaches
 * the fleet with the next report.
 *
 * Threads: the owner of `t`; it may be another one than took the units. Progress: lock-free, but see weir_check.
 * Allocates: nothing.
 */
WEIR_API void weir_refund(weir_thread *t, const weir_key *key, uint64_t cost);

/*
 * Counts `cost` units whose number is known only afterwards (bytes, tokens, seconds), whether they fit or not. Later
 * requests wait for them: a bucket goes into debt, a window or a log is over its limit until the units are out of it.
 * At most WEIR_MAX_UNITS at a time: more is taken for that many.
 *
 * Threads, progress, allocates: as weir_refund.
 */
WEIR_API void weir_charge(weir_thread *t, const weir_key *key, uint64_t cost);

/*
 * Takes a place in the queue: *wait_ns is how long to wait before the request may go, 0 for at once. A leaky bucket
 * spaces requests evenly and queues `burst` units at most; a token bucket lets a request go when its units will have
 * refilled; the other algorithms have no queue, and must have room now. A cost of 0 asks as if for 1 and takes nothing.
 * Refuses, and takes nothing, when the wait would be longer than `max_wait_ns`, or the queue is full; *wait_ns is then
 * the wait after which it could go at once if nobody else comes, UINT64_MAX: never. weir_refund cancels a reservation.
 * weir_check on a leaky bucket is a reservation that cannot wait. `wait_ns` may be NULL; in shadow mode what would be
 * refused may go at once.
 *
 * Threads: the owner of `t`. Progress: as weir_check. Allocates: nothing.
 */
WEIR_API bool weir_reserve(weir_thread *t, const weir_key *key, uint64_t cost, uint64_t max_wait_ns, uint64_t *wait_ns);

/*
 * Forgets what a key has used, under all limits of its policy and its tiers, here and, where there is a fleet, in Redis
 * and on every other node when that next hears of the key. 0; -ENOTCONN: forgotten here, and the fleet will be told
 * when it can be reached; -ETIMEDOUT: likewise, it did not answer within redis_timeout_ms; -ENOENT: the key's policy is
 * not in the present set.
 * Threads: any. Blocks while the fleet is asked, up to redis_timeout_ms.
 */
WEIR_API int weir_reset(weir *w, const weir_key *key);

/*
 * For no_thread: does what is due now (ticks, settling, the fleet) and returns the milliseconds until it wants
 * to be called again, 0 to 100; an answer of Redis that comes meanwhile waits for as long, unless weir_poll_fd says
 * that it has come. Does not block, but see docs/embedding.md of host names. With a clock of the host's own this is
 * where time moves. -EINVAL: `w` has a thread. Threads: one at a time.
 */
WEIR_API int weir_poll(weir *w);

/*
 * For no_thread: a descriptor that is readable when weir_poll has something to do, be it for the time or because Redis
 * has answered. A loop waits for it (epoll, poll, select, libuv, libevent, ...) for reading, level-triggered, and calls
 * weir_poll when it is readable; nothing else is to be done, and syncs are as prompt as with a thread. weir_poll may be
 * called at any other time as well. Each call returns the same descriptor. It belongs to the weir: do not read, change
 * or close it, and take it out of the loop before weir_close, which closes it. After fork the child has a descriptor of
 * the parent's weir: it may not wait for it.
 *
 * With a clock of the host's own the kernel cannot tell when its time has come: the descriptor then tells of Redis
 * alone, and weir_poll is also to be called when the time that it returned is over.
 *
 * -EINVAL: `w` has a thread; -EMFILE, -ENFILE, -ENOMEM: there is no descriptor to be had (it takes two). Then go by
 * what weir_poll returns, and ask again later.
 * Threads: any. Blocks while another thread is in weir_poll or weir_sync.
 */
WEIR_API int weir_poll_fd(weir *w);

/*
 * One full report and pull, now; returns when Redis has answered for all that was counted before the call. What
 * other threads count meanwhile is not waited for. 0; -ETIMEDOUT after `timeout_ms`, and what was begun goes on without
 * the caller: with 0 ms it is asked for, and no more; -ENOTCONN: there is no fleet (redis_url was NULL).
 * Threads: any. Blocks up to `timeout_ms`.
 */
WEIR_API int weir_sync(weir *w, uint32_t timeout_ms);

/* Whether the fleet can be reached. */
typedef enum weir_link {
    WEIR_LINK_NONE = 0, /* no redis_url */
    WEIR_LINK_DOWN = 1,
    WEIR_LINK_UP = 2
} weir_link;

/*
 * Counters run from weir_open and never go back. A sum over running threads may miss what they did in the last
 * moments; after they are quiet it is exact.
 */
typedef struct weir_stats {
    uint64_t allowed_count, denied_count; /* checks; a weir_check_all counts once for each of its keys */
    uint64_t would_deny_count;            /* checks that shadow mode let pass */
    uint64_t unknown_policy_count;        /* checks against no policy, allowed */
    uint64_t slow_count;                  /* checks that went past the thread's own counters */
    uint64_t untracked_count;             /* checks decided without a place in the table, which was full of keys in
                                             use, or in the memory of the logs. They are denied */
    uint64_t late_units;                  /* units charged after another thread had taken the grant back */
    uint64_t key_count, key_capacity;     /* entries of the table: one per key and limit */
    uint64_t evicted_unused_count;        /* forgotten keys that were as if never used */
    uint64_t evicted_used_count;          /* forgotten keys that had used something; see evicted_restored_count */
    uint64_t lost_report_count;           /* forgotten keys whose last report found no room */
    uint32_t thread_count;                /* attached now */
    uint32_t live_nodes;                  /* nodes with a recent heartbeat, this one included; 0: not known */
    weir_link link;
    uint64_t fleet_age_ns;                 /* since the last good sync; UINT64_MAX: none yet */
    uint64_t round_trip_ns;                /* of the last good sync */
    uint64_t sync_count, sync_error_count; /* rounds answered; rounds that failed or timed out, and every sync interval
                                              that ended without a connection for a round */
    uint64_t connection_count;             /* connections opened; see connection_attempt_count */
    uint64_t redis_lost_state_count;       /* times Redis came back without what it had been told */
    uint64_t report_count;                 /* reports Redis has taken */
    uint64_t rejected_report_count;        /* reports Redis refused (a key of a wrong type, ...) */
    uint64_t memory_size;                  /* bytes reserved at open, those included that are present when used */
    uint64_t override_count;               /* keys with an entry of their own in Redis, as last read */
    uint64_t deferred_report_count;        /* times a key's news was left to its turn */
    uint64_t urgent_sync_count;            /* rounds begun at once, for keys that could not wait */
    uint64_t report_retry_count;           /* reports that could not be told just now, and are told again */
    uint64_t pending_key_count;            /* entries that have changed since the fleet was last told of any */
    uint64_t deferred_key_count;           /* entries with news that can wait for its turn */
    uint64_t denied_units;                 /* units denied, as the lists of top offenders count them, in all */
    uint64_t evicted_denied_units;         /* the same of keys that were forgotten before they could be counted */
    uint64_t evicted_restored_count;       /* keys that began with what is remembered of them, having been forgotten */
    uint64_t evicted_unrecorded_count;     /* forgotten keys of whose use there was no room to remember anything */
    uint64_t connection_attempt_count; /* attempts to connect to Redis: those that opened a connection, and those that
                                       were refused, timed out or found no such name */
} weir_stats;

/*
 * Fills in what there is room for: `size` is sizeof(weir_stats) where the caller was compiled. A later library has more
 * fields, which it leaves out; fields that this library does not know are 0. Threads: any. Progress: wait-free.
 */
WEIR_API void weir_get_stats_sized(const weir *w, weir_stats *stats, size_t size);

/*
 * The same with the size filled in. The function of this name fills in the fields up to evicted_unrecorded_count and no
 * later ones, for programs that were compiled without the macro and for other languages.
 */
WEIR_API void weir_get_stats(const weir *w, weir_stats *stats);
#define weir_get_stats(w, stats) weir_get_stats_sized((w), (stats), sizeof(*(stats)))

/*
 * A key that is denied much.
 *
 * key           terminated, as the names of records in Redis show it: printable bytes as they are, others as %xx; of a
 *               key of more than 32 bytes the first 12, '~' and a hash; of a policy with hash_keys '~' and the hash
 *
 * denied_units  units this process denied it lately, at most. Everything is halved each minute: a key that is denied d
 *               units a minute without end stands at d to 2 d
 *
 * error_units   of denied_units, those that may have been another key's: it was denied the difference at least
 */
typedef struct weir_offender {
    char key[WEIR_OFFENDER_KEY_SIZE];
    uint64_t denied_units;
    uint64_t error_units;
} weir_offender;

/*
 * The keys that were denied most units of a policy and its tiers lately, here in this process; most first. Fills at
 * most `capacity` and WEIR_TOP_OFFENDERS of them, and returns how many; 0: nobody was denied, or the policy is not in
 * the present set. `out` is the caller's, and may be NULL when `capacity` is 0.
 *
 * A denial is in the list some 100 ms later (with no_thread: after some calls of weir_poll); later still where more
 * than 64,000 different keys a second are denied. What can never pass (a cost above what a limit lets pass at once, an
 * entry "deny" of the key's own) is not counted, nor are untracked checks; what shadow mode would deny is. Lists stay
 * through weir_set_policies for policies whose names stay.
 *
 * The bound: 64 keys are counted for each policy. A key with more than a 64th of all units denied lately is among them,
 * and the error of each is at most that 64th.
 *
 * Threads: any. Takes a lock; no check takes it. Allocates: nothing.
 */
WEIR_API size_t weir_top_offenders(const weir *w, weir_policy_id policy, weir_offender *out, size_t capacity);

/*
 * Writes the metrics as Prometheus text (format 0.0.4), terminated. Returns the bytes needed without the
 * terminator: where that is `size` or more, the text was cut. `buffer` may be NULL when `size` is 0.
 * Threads: any. Takes a lock.
 */
WEIR_API int weir_write_metrics(const weir *w, char *buffer, size_t size);

/* How to tell a client about its limits. A style keeps its form: when a draft moves, a new style is added. */
typedef enum weir_header_style {
    WEIR_HEADERS_DRAFT_11 = 0,   /* draft-ietf-httpapi-ratelimit-headers-11: RateLimit-Policy and RateLimit */
    WEIR_HEADERS_TRIO = 1,       /* RateLimit-Limit, -Remaining, -Reset (seconds from now), as in the drafts up to 07 */
    WEIR_HEADERS_X_UNIX = 2,     /* X-RateLimit-Limit, -Remaining, -Reset (Unix time), as GitHub's */
    WEIR_HEADERS_X_ISO8601 = 3,  /* the same, with the time as 2026-11-30T23:59:59Z */
    WEIR_HEADERS_RETRY_AFTER = 4 /* nothing else than Retry-After */
} weir_header_style;

/*
 * Writes HTTP header fields that tell a client how it stands, each line ended by CR LF, and a terminator. Every style
 * adds Retry-After when the verdict is a denial that will pass: in whole seconds, rounded up, so that a client that
 * obeys it is admitted if nobody else comes. `policy` is the one that was checked (after weir_check_all: of the
 * verdict's key); one that there is no more, or a verdict of none, writes no fields.
 *
 * Returns the bytes needed without the terminator: where that is `size` or more, the text was cut; -EINVAL: there is no
 * such style, or `verdict` is NULL. `buffer` may be NULL when `size` is 0.
 * Threads: any; the first call of a thread that never attached registers it with liburcu, which allocates. Progress:
 * wait-free. Allocates: nothing else.
 */
WEIR_API int weir_write_headers(weir_header_style style, const weir *w, weir_policy_id policy,
                                const weir_verdict *verdict, char *buffer, size_t size);

#ifdef __cplusplus
}
#endif

#endif
