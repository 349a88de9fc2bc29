/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The addresses of this host and the broadcast addresses of its wires, and what has changed of them since the last
 * look.
 */
#ifndef WEIR_GATEWAY_XDP_LOCALS_H
#define WEIR_GATEWAY_XDP_LOCALS_H

#include <stdbool.h>
#include <stddef.h>

#include "drop.h"

#define LOCALS_MAX 1024

struct locals {
    struct drop_key *known; /* sorted; prefix 0, or DROP_BROADCAST */
    size_t count;
};

/* Calls `set` for each address that is new, and for each that is gone. Keeps what it knows where memory is short. */
void locals_look(struct locals *locals, void (*set)(void *arg, const struct drop_key *address, bool there), void *arg);
/* Whether an address was there at the last look. The key has prefix 0. */
bool locals_have(const struct locals *locals, const struct drop_key *address);

void locals_close(struct locals *locals);

#endif
