/* SPDX-License-Identifier: Apache-2.0 */
/* Giving a key a cell, and pinning it; see insert.c. */
#ifndef WEIR_PROCESS_INSERT_H
#define WEIR_PROCESS_INSERT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "policy/policy.h"
#include "process/table.h"
#include "weir/weir.h"

struct process;

uint32_t insert_key(struct process *process, const struct policy *policy, size_t limit_index, const weir_key *key,
                    uint64_t now_ns);
/* Finds or makes the cells of a key, one per limit. False: the table has no room for it. */
bool insert_locate(struct process *process, const struct policy *policy, const weir_key *key, uint64_t now_ns,
                   uint32_t cells[WEIR_MAX_LIMITS]);

/* Locates and pins. False: there is no room. */
bool insert_pin(struct process *process, const struct policy *policy, const weir_key *key, uint64_t now_ns,
                uint32_t cells[WEIR_MAX_LIMITS]);
void insert_unpin(struct process *process, const struct policy *policy, const uint32_t cells[WEIR_MAX_LIMITS]);

#endif
