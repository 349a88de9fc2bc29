/* SPDX-License-Identifier: Apache-2.0 */
/* See rate_table.h. */
#include "algorithm/rate_table.h"

#include "base/memory/segment.h"

/* From the lowest bit: 1, the distance in units of DISTANCE_UNIT, the id. */
#define DISTANCE_UNIT _Alignof(struct rate_table)
#define DISTANCE_BITS (63 - SEGMENT_ID_BITS)
#define ID_SHIFT      (1 + DISTANCE_BITS)

_Static_assert(RATE_TABLE_REACH == (size_t) DISTANCE_UNIT << DISTANCE_BITS, "what the header says");

uint64_t rate_table_handle(const struct rate_table *table, uint64_t segment)
{
    if (segment == 0) {
        return (uintptr_t) table;
    }
    const unsigned char *mapping = segment_mapping(segment);
    const uint64_t distance = (uint64_t) ((const unsigned char *) table - mapping) / DISTANCE_UNIT;
    return segment << ID_SHIFT | distance << 1 | 1;
}

/* NULL: there is none. */
static const struct rate_table *find_table(uint64_t handle)
{
    if (rate_table_is_address(handle)) {
        return (const struct rate_table *) (uintptr_t) handle; /* NOLINT(performance-no-int-to-ptr): see the header */
    }
    const unsigned char *mapping = segment_mapping(handle >> ID_SHIFT);
    const size_t distance = (size_t) (handle >> 1 & ((UINT64_C(1) << DISTANCE_BITS) - 1)) * DISTANCE_UNIT;
    return mapping != NULL ? (const struct rate_table *) (const void *) (mapping + distance) : NULL;
}

uint64_t rate_table_unit(uint64_t handle, uint8_t rate_id)
{
    const struct rate_table *table = find_table(handle);
    return table != NULL ? table->units[rate_id] : 0;
}
