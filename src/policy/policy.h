/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A compiled policy: what a check reads. A policy does not change once its set is published (policy_set.h), except for
 * the numbers that the outage mode sets: the `now` fields of its limits.
 */
#ifndef WEIR_POLICY_POLICY_H
#define WEIR_POLICY_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "algorithm/rule.h"
#include "base/atomics.h"
#include "policy/policy_names.h"
#include "weir/weir.h"

#define POLICY_LABEL_SIZE 32

struct policy_limit {
    struct rule rule;    /* as configured */
    uint64_t limit_hash; /* of algorithm and period: identifies the limit in the table, so that usage is kept when only
                            the number changes */
    char label[POLICY_LABEL_SIZE]; /* in names of records: "f1s", "s500ms", "b1m" */
    char name[WEIR_MAX_NAME + 1];  /* in headers */
    uint64_t per_period;           /* units, as configured */
    /* The numbers in force: the rule's, or those of the outage mode. They change one by one, so a check that reads them
     * meanwhile may use numbers of both modes, once. */
    _Atomic uint64_t limit_now, unit_now, tolerance_now;
    _Atomic uint64_t history_max; /* the greatest limit of the tiers that share a history, and of overrides, so far */
};

/* The outage mode in force for a policy. */
enum outage_mode { OUTAGE_MODE_NONE, OUTAGE_MODE_SHARE, OUTAGE_MODE_LOCAL, OUTAGE_MODE_OPEN, OUTAGE_MODE_CLOSED };

/* How an override changes a policy. NONE: its numbers, or no override. */
enum override { OVERRIDE_NONE, OVERRIDE_ALLOW, OVERRIDE_DENY };

struct policy {
    weir_policy_id id;
    weir_policy_id group;   /* id of the name before the first '/': a policy and its tiers share the usage of a key */
    uint32_t next_in_group; /* offset in its set: policy_set_next() */
    char base[WEIR_MAX_NAME + 1]; /* the group's name */
    uint64_t group_key_mask;      /* xor that makes a key's hash equal for all tiers */
    enum override override;
    bool grants;     /* units may be granted to a thread in advance */
    bool set_is_odd; /* the set's number is odd: see struct slot_meta */
    char name[WEIR_MAX_NAME + 1];
    weir_mode mode;
    weir_scope scope;
    bool hash_keys;  /* Redis knows each key by a hash alone */
    bool fine_clock; /* periods or bursts are short beside a tick: decide by the clock, not by the tick */
    weir_outage on_outage, on_long_outage;
    uint32_t outage_grace_ms, long_outage_ms;
    size_t limit_count;
    struct policy_limit limits[WEIR_MAX_LIMITS];
    _Atomic uint8_t outage_mode; /* enum outage_mode; written by outage.c */
    _Atomic uint8_t basis;       /* weir_basis, for verdicts */
};

/* The part of limit_hash that the metadata of a cell has. */
#define POLICY_LIMIT_ID(limit_hash) ((uint32_t) ((limit_hash) >> 32))

/* What a policy is compiled with: the process's tick, the origin of bucket times, and the names of policies. */
struct policy_context {
    uint64_t tick_ns, origin_ns;
    struct policy_names *names;
};

/* Compiles a valid policy into *out, whose id and group are set. */
void policy_compile(struct policy *out, const weir_policy *policy, const struct policy_context *context);

/*
 * Makes *out a copy of `like` for an override, with other numbers: of each limit the limit and the burst (0: as the
 * limit), in range. `limits` NULL: the numbers of `like`. The caller sets out->override.
 */
void policy_override(struct policy *out, const struct policy *like, const uint64_t *limits, const uint64_t *bursts,
                     struct policy_names *names, uint64_t tick_ns);

/* The rule with the numbers in force. */
static inline struct rule policy_rule(const struct policy_limit *limit)
{
    struct rule rule = limit->rule;
    /* Relaxed: see the fields. */
    rule.limit = load_relaxed(&limit->limit_now);
    rule.unit = load_relaxed(&limit->unit_now);
    rule.tolerance = load_relaxed(&limit->tolerance_now);
    rule.history_max = load_relaxed(&limit->history_max);
    return rule;
}

#endif
