/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rates under which the buckets of a limit have been charged. The state of a bucket has the index of its last rate.
 * One table serves all policies that share the limit, for as long as the weir's memory: see bucket.h.
 *
 * A rule names its table by a handle, as a rule is copied, and may lie in memory that two processes see at different
 * addresses. A handle is the table's address, where all processes have the same one. Else it is odd, and has the id of
 * a segment and the distance of the table from the segment's beginning. Handles are followed only where the rate of a
 * bucket has changed.
 */
#ifndef WEIR_ALGORITHM_RATE_TABLE_H
#define WEIR_ALGORITHM_RATE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A bucket's state has a byte for the index. */
#define RATE_COUNT 256

struct rate_table {
    uint64_t units[RATE_COUNT]; /* time one unit takes to refill, 1/64 ns; 0: not in use. [0] is never converted */
};

/* Bytes from a segment's beginning that a handle reaches. */
#define RATE_TABLE_REACH ((size_t) 64 << 20)

/*
 * The handle of a table; `segment`: the id of the segment that the table lies in, within RATE_TABLE_REACH, 0: none.
 */
uint64_t rate_table_handle(const struct rate_table *table, uint64_t segment);

/* Whether a handle is an address: one of a segment's tables is none, and leads to no other memory. */
static inline bool rate_table_is_address(uint64_t handle)
{
    return (handle & 1) == 0;
}

/* The rate of this index in the table of a handle; 0: not in use, or there is no table. */
uint64_t rate_table_unit(uint64_t handle, uint8_t rate_id);

#endif
