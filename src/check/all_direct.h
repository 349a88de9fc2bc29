/* SPDX-License-Identifier: Apache-2.0 */
/* Charging the keys of a request that have no slot, all or none; see all_direct.c. */
#ifndef WEIR_CHECK_ALL_DIRECT_H
#define WEIR_CHECK_ALL_DIRECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "check/all_table.h"
#include "thread/slot_word.h"

/* The keys of a request that have no slot. One index more is written than there are keys. */
struct cold_keys {
    uint8_t indices[WEIR_MAX_KEYS_AT_ONCE + 1];
    size_t count;
};

/*
 * Charges the cold keys. `slot`: of another key of the request, whose policy set must be the same; NULL: none. The
 * verdict is of the cold key with the least left. False: nothing was counted. Within an RCU section.
 */
bool all_direct_charge(struct weir_thread *t, const struct key_list *list, const struct cold_keys *cold,
                       const struct slot *slot, weir_verdict *verdict);

#endif
