/* SPDX-License-Identifier: Apache-2.0 */
/* The calls that have memory of a segment present, and what comes of them: -Wl,--wrap=segment_commit (meson.build). */
#ifndef WEIR_TESTS_COMMITS_H
#define WEIR_TESTS_COMMITS_H

#include "base/memory/segment.h"
#include "support/support.h"

static struct {
    const void *at; /* of the last call */
    size_t size;
    unsigned count;
    int result; /* of the calls to come */
} commits;

int __wrap_segment_commit(struct segment *segment, const void *at, size_t size);

int __wrap_segment_commit(struct segment *segment, const void *at, size_t size)
{
    assert_non_null(segment);
    commits.at = at;
    commits.size = size;
    commits.count++;
    return commits.result;
}

#endif
