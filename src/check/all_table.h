/* SPDX-License-Identifier: Apache-2.0 */
/* A request of several keys, decided in the table; see all_table.c. */
#ifndef WEIR_CHECK_ALL_TABLE_H
#define WEIR_CHECK_ALL_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "thread/thread.h"
#include "weir/weir.h"

/* The keys of a request, and a cost for each. */
struct key_list {
    const weir_key *keys;
    const uint64_t *costs;
    size_t count; /* at most WEIR_MAX_KEYS_AT_ONCE */
};

/* Denied: *denied_by is the key that decided. */
bool all_table_check(struct weir_thread *t, const struct key_list *list, weir_verdict *verdict, uint8_t *denied_by);

#endif
