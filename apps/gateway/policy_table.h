/* SPDX-License-Identifier: Apache-2.0 */
/* The policies that a gateway has had in force since its start. */
#ifndef WEIR_GATEWAY_POLICY_TABLE_H
#define WEIR_GATEWAY_POLICY_TABLE_H

#include <stdbool.h>
#include <stddef.h>

#include <weir/weir.h>

#include "policy_kind.h"

/* Policies that a gateway has had in force since its start, by name. */
#define POLICIES_MAX 32

/* A policy that has been in force. The name and the kind never change. */
struct gateway_policy {
    char name[POLICY_KIND_SIZE];
    struct policy_kind kind;
    _Atomic weir_policy_id id; /* WEIR_NO_POLICY: not in force */
    _Atomic bool shadow;       /* the policy counts what it would deny, and lets it pass */
};

/*
 * Written by the main thread, read by all. The first POLICY_KIND_COUNT are those of policy_kind_names; networks follow
 * in the order in which files had them. An entry is written before `count` counts it, and stays.
 */
struct policies {
    struct gateway_policy all[POLICIES_MAX];
    _Atomic size_t count;
};

/* Makes room for the policies that each gateway knows; none is in force. */
void policy_table_init(struct policies *policies);

bool policy_table_knows(const struct policies *policies, const char *name);

/* Knows a policy from now on, which is not in force. There is room, and it is none that is known. */
void policy_table_add(struct policies *policies, const char *name, const struct policy_kind *kind);

#endif
