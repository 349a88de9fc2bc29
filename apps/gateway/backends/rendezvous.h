/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which backend a client goes to: weighted rendezvous hashing. Each backend draws a number for the client, from a hash
 * of both, and the least number wins. So the choice depends on nothing but the client and the set of backends: it is
 * the same in every thread, after a restart, in every gateway, and in whatever order the list is. Where a backend goes,
 * its clients alone move, each to the one that drew the next number.
 *
 * Sources: D. Thaler, C. Ravishankar, "Using Name-Based Mappings to Increase Hit Rates", IEEE/ACM Transactions on
 * Networking 6(1), 1998. The weights: C. Schindelhauer, G. Schomaker, "Weighted Distributed Hash Tables", SPAA 2005,
 * the logarithmic method: -log(u) / weight is exponentially distributed, so the least of them is a backend's with a
 * probability of its weight's part in the sum.
 *
 * A client is its source, as the limits have it: the IPv4 address, or the IPv6 network of 64 bits. A client that
 * changes its port or the rest of its IPv6 address stays with its backend.
 *
 * With a secret nobody outside can work out which addresses go to which backend, so nobody can choose or forge
 * addresses to load one of them alone. The names are HMAC-SHA-256 under the secret; what is drawn from two such names
 * is a cheap mixture, as no caller knows either. Without a secret the choice can be worked out, and the limits alone
 * protect each backend.
 *
 * All is integers, so that machines of any kind choose alike.
 */
#ifndef WEIR_GATEWAY_BACKENDS_RENDEZVOUS_H
#define WEIR_GATEWAY_BACKENDS_RENDEZVOUS_H

#include <stdbool.h>
#include <stdint.h>

#include "../address.h"
#include "base/record_hash.h"

struct rendezvous {
    struct record_hash hash;
};

/* Of a client or of a backend. */
struct rendezvous_name {
    uint64_t words[2];
};

/* What two candidates are compared by. */
struct rendezvous_draw {
    uint64_t hash;
    uint32_t weight;
};

/* `secret` NULL: the choice can be worked out by anybody. */
void rendezvous_init(struct rendezvous *rendezvous, const char *secret);

/* The name of a client; one of IPv4 is the same, mapped into IPv6 or not. Its port is none of it. */
struct rendezvous_name rendezvous_client(const struct rendezvous *rendezvous, const struct address *client);

/* The name of a backend: its address and port. */
struct rendezvous_name rendezvous_backend(const struct rendezvous *rendezvous, const struct address *backend);

/* What a backend draws for a client. */
struct rendezvous_draw rendezvous_draw(const struct rendezvous_name *client, const struct rendezvous_name *backend,
                                       uint32_t weight);

/* Whether `a` wins. Of two that are alike neither wins; 64 bits of hash make that a matter of none. */
bool rendezvous_beats(const struct rendezvous_draw *a, const struct rendezvous_draw *b);

#endif
