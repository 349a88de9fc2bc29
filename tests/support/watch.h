/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of which a test wants to know when it changes. */
#ifndef WEIR_TESTS_SUPPORT_WATCH_H
#define WEIR_TESTS_SUPPORT_WATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define WATCH_PARTS 128
#define WATCH_SIZE  ((size_t) 64 << 10)

struct watch {
    struct watch_part {
        const void *at;
        size_t size, copied_to; /* in `copy` */
    } parts[WATCH_PARTS];
    size_t count, size;
    unsigned char copy[WATCH_SIZE];
};

static inline void watch_clear(struct watch *watch)
{
    watch->count = watch->size = 0;
}

/* What has no room is not watched. */
static inline void watch_add(struct watch *watch, const void *at, size_t size)
{
    if (watch->count < WATCH_PARTS && size <= WATCH_SIZE - watch->size) {
        watch->parts[watch->count++] = (struct watch_part){at, size, watch->size};
        memcpy(&watch->copy[watch->size], at, size);
        watch->size += size;
    }
}

/* Whether any of it has changed since the last call, or since it was added. */
static inline bool watch_changed(struct watch *watch)
{
    bool changed = false;
    for (size_t i = 0; i < watch->count; i++) {
        const struct watch_part *part = &watch->parts[i];
        if (memcmp(&watch->copy[part->copied_to], part->at, part->size) != 0) {
            memcpy(&watch->copy[part->copied_to], part->at, part->size);
            changed = true;
        }
    }
    return changed;
}

#endif
