/* SPDX-License-Identifier: Apache-2.0 */
/* Charging the keys of a request that no grant covers, all or none; see all_direct.c. */
#ifndef WEIR_CHECK_ALL_DIRECT_H
#define WEIR_CHECK_ALL_DIRECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "check/all_table.h"
#include "thread/slot_word.h"

/* What the slots say of a request. */
struct slots_found {
    const struct key_list *list;
    struct slot **slots;    /* one for each key; NULL: none */
    size_t granted;         /* keys at the beginning whose slots are set, and whose grants cover their costs */
    const struct slot *any; /* one of them with a word of this epoch; NULL: there is none */
};

/* The keys of a request that no grant covers. */
struct cold_keys {
    uint8_t indices[WEIR_MAX_KEYS_AT_ONCE];
    size_t count;
};

/*
 * Charges the cold keys, or gives their slots grants that cover their costs. After that found->slots has the slots
 * whose grants are to be spent. The verdict is of the charged key with the least left; where no key is charged its
 * `remaining` is UINT64_MAX. False: nothing was counted. Within an RCU section.
 */
bool all_direct_charge(struct weir_thread *t, const struct slots_found *found, const struct cold_keys *cold,
                       weir_verdict *verdict);

#endif
