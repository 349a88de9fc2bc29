/* SPDX-License-Identifier: Apache-2.0 */
/* rings.h where the gateway was built without libxdp: nothing can be opened. */
#include <stdio.h>

#include "rings.h"

struct rings *rings_open(const char *interface, uint32_t queue, bool is_native, char *problem, size_t size)
{
    (void) interface;
    (void) queue;
    (void) is_native;
    (void) snprintf(problem, size, "this gateway was built without AF_XDP; build with libxdp");
    return NULL;
}

/* The others are never called. */

void rings_close(struct rings *rings)
{
    (void) rings;
}

int rings_fd(const struct rings *rings)
{
    (void) rings;
    return -1;
}

size_t rings_receive(struct rings *rings, struct rings_frame *out, size_t most)
{
    (void) rings;
    (void) out;
    (void) most;
    return 0;
}

void rings_free(struct rings *rings, const unsigned char *inside)
{
    (void) rings;
    (void) inside;
}

bool rings_send(struct rings *rings, const unsigned char *start, size_t size)
{
    (void) rings;
    (void) start;
    (void) size;
    return false;
}

bool rings_flush(struct rings *rings)
{
    (void) rings;
    return true;
}

uint64_t rings_lost(const struct rings *rings)
{
    (void) rings;
    return 0;
}
