/* SPDX-License-Identifier: Apache-2.0 */
/* One request of many; see check_all.c. */
#ifndef WEIR_CHECK_CHECK_ALL_H
#define WEIR_CHECK_CHECK_ALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "weir/weir.h"

struct weir_thread;

/*
 * weir_check_all() of request `i`, which has at least one key and no more than WEIR_MAX_KEYS_AT_ONCE. Denied:
 * *denied_by is the key that decided.
 */
bool check_all_requested(struct weir_thread *t, const weir_requests *requests, size_t i, uint8_t *denied_by);

#endif
