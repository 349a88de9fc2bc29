/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The names by which the gateway asks for policies:
 *
 *   source                       each source address
 *   network24, network6_32, ...  each network of so many bits: network1 to network32 are of IPv4, network33 to
 *                                network128 of IPv6, network6_1 to network6_32 of IPv6
 *   overall                      all together
 *
 * and each of these with _bytes, whose packets cost their bytes rather than 1. Each of all these with ".KIND" is for
 * packets of that kind alone (kinds/packet_kind.h), as source.a2s_info.
 */
#ifndef WEIR_GATEWAY_POLICY_KIND_H
#define WEIR_GATEWAY_POLICY_KIND_H

#include <stdbool.h>
#include <stddef.h>

#include <weir/weir.h>

#include "kinds/packet_kind.h"

enum policy_scope { SCOPE_SOURCE, SCOPE_NETWORK_V4, SCOPE_NETWORK_V6, SCOPE_OVERALL };

struct policy_kind {
    enum policy_scope scope;
    unsigned prefix;                         /* of a network, in bits */
    bool of_bytes;                           /* a packet costs its bytes rather than 1 */
    char packet_kind[PACKET_KIND_NAME_SIZE]; /* the kind of the packets that it is for; "": all packets */
};

/* "network6_128_bytes", a kind, and the terminator. */
#define POLICY_KIND_SIZE (24 + PACKET_KIND_NAME_SIZE)

/* Those that each gateway knows, whether or not a file has them. */
#define POLICY_KIND_COUNT 4
extern const char *const policy_kind_names[POLICY_KIND_COUNT];

/* Reads the name of a policy or of one of its tiers. False: the gateway uses no policy of that name. */
bool policy_kind_read(const char *name, struct policy_kind *out);

/* The form of a policy's keys: 198.51.100.7, 198.51.100.0/24, or nothing where all packets have one key. */
const weir_key_form *policy_kind_form(const struct policy_kind *kind);

/* Whether packets of IPv4, or of IPv6, are checked by the policy. */
bool policy_kind_concerns(const struct policy_kind *kind, bool v4);

#endif
