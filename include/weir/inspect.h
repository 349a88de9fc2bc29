/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weir/inspect.h - what stands in the Redis of a fleet, for programs that are no node of it: tools, exporters, support
 * pages. `weir explain`, `doctor`, `top` and `override list` are made of these calls.
 *
 * An inspector connects to Redis by itself. It reads by scripts that write nothing, so nodes do not notice it. All
 * times are fleet time, in nanoseconds since 1970-01-01 00:00 UTC: Redis's clock, unless that has been set.
 *
 * A call waits for Redis. One exchange takes 1.5 seconds at most, and five where servers have to be connected first. A
 * call has one exchange or some, as it says. Do not call from a thread that serves. What a call stores in *out belongs
 * to the inspector, and is valid until the next call on it, unless that call says otherwise. After an error *out is
 * NULL.
 *
 * Calls return 0, or a negative errno value and a sentence in *error (NULL is allowed): -EIO: Redis does not answer, or
 * refuses; -EPROTO: something else has written what was read; -EUCLEAN: memory that `w` shares is damaged; -ENOMEM.
 *
 * Threads: one thread at a time uses an inspector. Where a call takes a weir, other threads may use that as they like,
 * but for weir_close. A child of fork() does not use its parent's inspector.
 */
#ifndef WEIR_INSPECT_H
#define WEIR_INSPECT_H

#include "weir.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_inspector weir_inspector;

/*
 * Opens an inspector, and stores it in *out; the caller closes it with weir_inspect_close. `redis_url` and `prefix` are
 * those of the nodes (weir_options, docs/redis.md); NULL: the prefix "weir". Nothing is connected yet: an unreachable
 * Redis is an error of the calls below. They connect anew where the connection was lost. -EINVAL: the URL or the prefix
 * is malformed. -ENOTSUP: the URL needs what this build does not have. -ENOMEM.
 */
WEIR_API int weir_inspect_open(const char *redis_url, const char *prefix, weir_inspector **out, weir_error *error);

/* Closes it, and frees all that its calls have answered. NULL is allowed. */
WEIR_API void weir_inspect_close(weir_inspector *in);

/* A suspect node is silent for some intervals: it has failed, or is cut off. Redis soon forgets one that has failed. */
typedef enum weir_node_state { WEIR_NODE_LIVE = 0, WEIR_NODE_SUSPECT = 1, WEIR_NODE_FAILED = 2 } weir_node_state;

/*
 * reported_ns  the time up to which the node has reported, which is that of its last heartbeat
 * age_ns       how long ago that was
 * suspect_ns, failed_ns  at this age the node is suspect, and has failed. It reports every suspect_ns / 3
 */
typedef struct weir_inspected_node {
    const char *id;
    weir_node_state state;
    uint64_t reported_ns, age_ns, suspect_ns, failed_ns;
} weir_inspected_node;

/*
 * record         the name of the set of nodes in Redis
 * exists         a node has been in the fleet within a day
 * wrong_type     another program has written `record`. Nodes delete it
 * nodes          node_count of them, the latest heartbeat first
 * foreign_count  members of the set that no node has written
 * time_ns        the fleet's time, and ahead_ns of it by how much it is ahead of Redis's clock
 */
typedef struct weir_inspected_fleet {
    const char *record;
    bool exists, wrong_type;
    const weir_inspected_node *nodes;
    size_t node_count, foreign_count;
    uint64_t time_ns;
    int64_t ahead_ns;
} weir_inspected_fleet;

/* The nodes of the fleet and its time. One exchange. */
WEIR_API int weir_inspect_fleet(weir_inspector *in, const weir_inspected_fleet **out, weir_error *error);

/* An entry of the hash of overrides in Redis, well-formed or not. */
typedef struct weir_inspected_override {
    const char *name, *value;
} weir_inspected_override;

/*
 * record      the name of the hash in Redis
 * wrong_type  another program has written it, so nodes read no overrides
 * overrides   override_count of them, by name. Nodes read 10,000 at most, and none of more than 4,096 bytes
 * version     the field "version" of the hash, which its writers may keep; NULL: there is none
 */
typedef struct weir_inspected_overrides {
    const char *record;
    bool wrong_type;
    const weir_inspected_override *overrides;
    size_t override_count;
    const char *version;
} weir_inspected_overrides;

/*
 * The overrides in Redis: one exchange for some 200 of them. A name or value of more than 4,097 bytes is cut there.
 * -EPROTO also where there are some 400,000 entries: nobody has written these for weir.
 */
WEIR_API int weir_inspect_overrides(weir_inspector *in, const weir_inspected_overrides **out, weir_error *error);

/*
 * What one node has reported of a record, in units, over all times that it has held the key. Of a bucket the counts go
 * back to when the record began.
 *
 * node         its id; of a node that is gone, the first six digits of its id and "..."; of something else that stands
 *              there, its name
 * admitted     of a sliding log: of those admitted, the ones that its record still has
 * reported_ns  of a sliding log: the time of the last report; else 0
 */
typedef struct weir_inspected_author {
    const char *node;
    uint64_t admitted, demand, refunds;
    uint64_t reported_ns;
} weir_inspected_author;

/*
 * A record of a key in Redis.
 *
 * wrong_type     another program has written it, so nodes cannot report to it
 * used           units of all nodes that count: admitted less refunded
 * demand         units that were requested, admitted or not. Of a sliding log: of the nodes that have told
 * authors        author_count of them, that with most units admitted first
 */
typedef struct weir_inspected_record {
    const char *name;
    bool exists, wrong_type;
    uint64_t used, demand, refunds;
    const weir_inspected_author *authors;
    size_t author_count;
} weir_inspected_record;

/*
 * Where a key stands under one limit, as a node would see it that has heard all reports and has used nothing itself.
 * What nodes have admitted since their last report is not in it.
 *
 * limit           with the numbers of the override in force. Its name is that of the limit
 * record, before  the record; of a window that of the present one, and that of the window before
 * start_ns, end_ns  of the present window; else 0
 * at_once         units that the limit lets pass at once
 * used            units that count against the limit
 * carried         of a sliding window: of those, what counts of the window before
 * remaining       units that can pass now
 * fits            whether the cost that was asked for can pass now
 * retry_after_ns  until it can, if nothing else comes; 0: it can; UINT64_MAX: it never can
 * reset_after_ns  until the key is as if never used
 */
typedef struct weir_inspected_limit {
    weir_limit limit;
    weir_inspected_record record, before;
    uint64_t start_ns, end_ns;
    uint64_t at_once, used, carried, remaining;
    bool fits;
    uint64_t retry_after_ns, reset_after_ns;
} weir_inspected_limit;

/*
 * name            "policy:key", as overrides are named
 * policy          of the key, such as "api/free"
 * mode            of the policy: in shadow mode a request passes that is denied
 * fleet, overrides  as of weir_inspect_fleet and weir_inspect_overrides
 * override        what the override in force says; WEIR_NO_OVERRIDE also where it gives the limits other numbers
 * override_name, override_value  of the override in force; NULL: there is none
 * override_from_fleet  it is in Redis
 * limits          limit_count of them; 0: the counts of the policy are in no Redis (WEIR_SCOPE_PROCESS), or the name is
 *                 that of a network of several keys
 * denied          whether a request of the cost would be denied now
 * deciding        index of the limit that decides: the last one to let the request pass, else the one with the least
 *                 room; limit_count: the override decides, or there is no limit
 */
typedef struct weir_inspected_key {
    const char *name, *policy;
    weir_mode mode;
    const weir_inspected_fleet *fleet;
    const weir_inspected_overrides *overrides;
    weir_override_answer override;
    const char *override_name, *override_value;
    bool override_from_fleet;
    const weir_inspected_limit *limits;
    size_t limit_count;
    bool denied;
    size_t deciding;
} weir_inspected_key;

/*
 * Where a key stands: what each node has reported of it, and whether a request of `cost` units (0: 1) would be
 * admitted. `w` knows the policies, the forms of their keys (weir_set_key_form), the fleet's secret, and the overrides
 * of the program and of the policy file: a node of the fleet, or a weir of the same options without Redis that nothing
 * is checked with. `name` is "policy:key" as in weir_set_override, and the policy may be a tier. Give a key that is
 * known by its hash as its record has it: "api:~" and 32 digits, or with the key's first bytes before the '~'.
 * -EINVAL: the name is malformed. -ENOENT: `w` has no such policy. Three exchanges, and one more for each 200
 * overrides; takes the lock of the policies of `w`.
 */
WEIR_API int weir_inspect_key(weir_inspector *in, weir *w, const char *name, uint64_t cost,
                              const weir_inspected_key **out, weir_error *error);

/*
 * A record that a walk over the names in Redis has found.
 *
 * policy  without its tier, which records do not say
 * key     as text
 * limit   the limit's label in the name of the record, such as "b1s" of a token bucket
 * window  the number of the window; 0: the limit has no windows
 * units   in use: of a window what it has admitted less refunds, of a bucket what it lacks to be full, of a sliding log
 *         its units
 */
typedef struct weir_inspected_use {
    const char *record, *policy, *key, *limit;
    uint64_t window, units;
} weir_inspected_use;

/* A primary of a Cluster; else the one server. error: why it has not answered; NULL: it has. */
typedef struct weir_inspected_server {
    const char *server, *error;
} weir_inspected_server;

/*
 * fleet     as of weir_inspect_fleet
 * uses      use_count of them, in no order. A record may be there twice
 * servers   server_count of them
 * ended     the walk has reached the last name of every server, and the next call begins anew
 * refused   the user may not run one of SCAN, HMGET, HGET and ZCARD
 */
typedef struct weir_inspected_records {
    const weir_inspected_fleet *fleet;
    const weir_inspected_use *uses;
    size_t use_count;
    const weir_inspected_server *servers;
    size_t server_count;
    bool ended, refused;
} weir_inspected_records;

/*
 * Walks on over the names in Redis, by SCAN: looks at about `names` of them, at most 250 in an exchange, for
 * `timeout_ms` and one exchange with each server more. So calls one after the other reach every record; each server of
 * a Cluster gets an equal share of `names`. A server that does not answer is left out, and the walk does not end then.
 * -EIO: none has answered, or not the one that has the set of nodes.
 */
WEIR_API int weir_inspect_records(weir_inspector *in, size_t names, uint32_t timeout_ms,
                                  const weir_inspected_records **out, weir_error *error);

/*
 * The same of `count` records by their names: what they have in use now, in the order of the names. A record that is
 * gone has nothing in use; a name that is no record's, and one whose server does not answer, are left out. There are no
 * `servers` in the answer, and no walk goes on.
 */
WEIR_API int weir_inspect_uses(weir_inspector *in, const char *const *records, size_t count,
                               const weir_inspected_records **out, weir_error *error);

/*
 * The keys of a policy and its tiers that are at their limit now, or over it. Records do not say which tier a key has,
 * so a key is listed only if it is at a limit of every tier. What is said of it holds under the tier that lets most
 * pass.
 *
 * policy  without its tier
 * keys    how many there are
 * top     the one that has used, or asked for, most: "policy:key", with that tier
 * limit   of the top key, the limit of which it has used most
 * times   how many times that limit: more than 1 where it was overrun, which a sliding log does not show
 * asked   `times` is of the units that were asked for; else of those that were used
 * shadow  the policy denies nothing
 */
typedef struct weir_inspected_full {
    const char *policy, *top, *limit;
    uint64_t keys;
    double times;
    bool asked, shadow;
} weir_inspected_full;

/*
 * policies  policy_count of them, with keys at their limit, ordered by `times`, the largest first
 * partly    more keys may be at their limit: there was no time, there were too many, or a server did not answer
 */
typedef struct weir_inspected_full_keys {
    const weir_inspected_full *policies;
    size_t policy_count;
    bool partly;
} weir_inspected_full_keys;

/*
 * Finds the keys that are at their limit now among those of the records in `uses`, which weir_inspect_records has
 * answered: reads the keys with most in use, as weir_inspect_key does. It reads 500, and up to 2,000 where more have
 * half of their policy's limit in use, so one beyond these with an override that is much smaller may be missed. Takes
 * `timeout_ms`, and the exchanges of one key more. `w` as of weir_inspect_key; records of policies that it does not
 * have are left out. `uses` stays valid.
 */
WEIR_API int weir_inspect_full_keys(weir_inspector *in, weir *w, const weir_inspected_use *uses, size_t use_count,
                                    uint32_t timeout_ms, const weir_inspected_full_keys **out, weir_error *error);

#ifdef __cplusplus
}
#endif

#endif
