/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compiled policies: what a check reads.
 *
 * A set is immutable once published, but for what the outage ladder writes (the `now` numbers of its limits). It is
 * read within an RCU section and replaced whole.
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
    struct rule rule;              /* as configured */
    uint64_t limit_hash;           /* of this limit's entries in the table: algorithm and period, so that what keys have
                                  used survives a change of the number alone */
    char label[POLICY_LABEL_SIZE]; /* in names of records: "f1s", "s500ms", "b1m" */
    char name[WEIR_MAX_NAME + 1];  /* in headers */
    uint64_t per_period;           /* units, as configured */
    /* As in force: the rule's own, or what the outage ladder makes of them. Each stands for itself, so a check that
     * reads them while they change decides by a mixture of two valid answers, for one check. */
    _Atomic uint64_t limit_now, unit_now, tolerance_now;
    _Atomic uint64_t history_max; /* the greatest limit of the tiers that share a log, and of entries of single keys */
};

/* Where a policy stands on the outage ladder. */
enum outage_mode { OUTAGE_MODE_NONE, OUTAGE_MODE_SHARE, OUTAGE_MODE_LOCAL, OUTAGE_MODE_OPEN, OUTAGE_MODE_CLOSED };

/* What a key's entry in the fleet makes of its policy. */
enum override { OVERRIDE_NONE, OVERRIDE_ALLOW, OVERRIDE_DENY };

struct policy;
struct record_hash;

/* A policy and its tiers: they share what a key has used. */
struct policy_group {
    weir_policy_id id; /* of the name before the first '/' */
    size_t count;
    struct policy *const *members;
};

struct policy {
    weir_policy_id id;
    const struct policy_group *group;
    char base[WEIR_MAX_NAME + 1]; /* the group's name */
    uint64_t group_key_mask;      /* a key's hash, with this, is the same for all tiers */
    enum override override;
    bool grants;     /* what may pass can be handed out in advance */
    bool set_is_odd; /* the number of its set is odd: see struct slot_meta */
    char name[WEIR_MAX_NAME + 1];
    weir_mode mode;
    weir_scope scope;
    bool hash_keys;
    const weir_key_form *form;             /* of its keys; NULL: bytes */
    const struct record_hash *record_hash; /* of keys whose bytes are not told */
    bool fine_clock; /* a tick is not short beside its periods or bursts: decide by the clock, not by the tick */
    weir_outage on_outage, on_long_outage;
    uint32_t outage_grace_ms, long_outage_ms;
    size_t limit_count;
    struct policy_limit limits[WEIR_MAX_LIMITS];
    _Atomic uint8_t outage_mode; /* enum rung; written by the outage ladder */
    _Atomic uint8_t basis;       /* weir_basis, for verdicts */
};

struct overrides;

struct policy_set {
    size_t count;
    struct policy *policies;     /* `count` of them */
    struct policy **members;     /* the same, group by group */
    struct policy_group *groups; /* group_count of them */
    size_t group_count;
    weir_policy_id *group_ids;                                  /* by the policies' order; while it is made */
    struct policy *by_id[WEIR_MAX_POLICIES + 1];                /* NULL: not in this set */
    const struct policy_group *by_group[WEIR_MAX_POLICIES + 1]; /* likewise, by the group's id */
    _Atomic(struct overrides *) overrides;                      /* of single keys; NULL: there are none */
};

/* What of a limit's salt stands in the notes of its keys. */
#define POLICY_LIMIT_ID(limit_hash) ((uint32_t) ((limit_hash) >> 32))

/* The limit that a note names, of whichever tier has it; NULL: it is gone, and so is what it limited. */
const struct policy_limit *policy_set_limit(const struct policy_set *set, weir_policy_id group, uint32_t limit_id,
                                            const struct policy **policy);

/* What a policy is compiled with: the process's tick, the origin of bucket times, and the names of policies. */
struct policy_context {
    uint64_t tick_ns, origin_ns;
    struct policy_names *names;
};

/*
 * Compiles valid policies. New names get ids. 0; -ENOSPC or -ENOMEM with a sentence, and then no name was added.
 */
int policy_set_compile(const weir_policy *policies, size_t count, const struct policy_context *context,
                       struct policy_set **out, weir_error *error);

void policy_set_free(struct policy_set *set); /* NULL is allowed */

/*
 * A policy as it is for one key: `like`, with other numbers: one limit and burst (0: the same) per limit, or NULL. The
 * numbers are in range. The caller fills in *out, and sets what kind it is.
 */
void policy_override(struct policy *out, const struct policy *like, const uint64_t *limits, const uint64_t *bursts,
                     struct policy_names *names, uint64_t tick_ns);

/* The rule in force. */
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
