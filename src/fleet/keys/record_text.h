/* SPDX-License-Identifier: Apache-2.0 */
/* The names of a key's records, put together from texts: also for programs that are no node of the fleet. */
#ifndef WEIR_FLEET_KEYS_RECORD_TEXT_H
#define WEIR_FLEET_KEYS_RECORD_TEXT_H

#include <stddef.h>

#include "transport/transport.h"

struct policy;
struct policy_limit;

/*
 * Writes "{prefix}:{hash tag}:label:policy:key", without a window's number; returns the length. `key` is the text of a
 * key's name (process/key_name.h).
 */
size_t record_text_write(char record[REPORT_RECORD_SIZE], const char *prefix, const struct policy *policy,
                         const struct policy_limit *limit, const char *key);

/* Writes the name of the record beside that of a sliding log, of the same partition: '?' follows the label. */
void record_text_write_demand(char demand_record[REPORT_RECORD_SIZE], const char *prefix,
                              const struct policy_limit *limit, const char *record);

#endif
