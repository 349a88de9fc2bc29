/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel says of the mapping that an address of this process is in. */
#ifndef WEIR_TESTS_SMAPS_H
#define WEIR_TESTS_SMAPS_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "support/support.h"

struct mapping {
    uintptr_t first, end;
    size_t resident;  /* bytes that this process reaches without a fault */
    bool huge, small; /* wished for */
};

static inline struct mapping mapping_of(const void *address)
{
    struct mapping found = {.first = 0};
    char line[512];
    bool there = false;
    FILE *in = fopen("/proc/self/smaps", "r");
    assert_non_null(in);
    while (fgets(line, sizeof(line), in) != NULL) {
        uintptr_t first;
        uintptr_t end;
        size_t kib;
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR, &first, &end) == 2) {
            there = (uintptr_t) address >= first && (uintptr_t) address < end;
            found = there ? (struct mapping){.first = first, .end = end} : found;
        } else if (there && sscanf(line, "Rss: %zu", &kib) == 1) {
            found.resident = kib * 1024;
        } else if (there && strncmp(line, "VmFlags:", 8) == 0) {
            found.huge = strstr(line, " hg") != NULL;
            found.small = strstr(line, " nh") != NULL;
        }
    }
    (void) fclose(in);
    return found;
}

#endif
