/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which policies a packet is checked by, by which keys, and what it costs of each. The gateway decides by this, and
 * weir simulate plays the gateway by it.
 *
 * A packet is checked by all policies that concern it at once. An override of all policies ("*:198.51.100.0/24") is in
 * the library one of each policy whose keys lie in its network; packets of a network that is allowed are checked by no
 * other policy.
 */
#ifndef WEIR_GATEWAY_PACKET_RULES_H
#define WEIR_GATEWAY_PACKET_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <weir/weir.h>

#include "kinds/packet_kind.h"
#include "network.h"
#include "policy_table.h"

/* Of a policy: it is for all packets; it is for a kind that there is not. */
#define ANY_KIND 0
#define NO_KIND  255

/* Of a packet: an override of all policies allows it or denies it, with the bits of its network. 0: there is none. */
#define OF_ALL_ALLOW 0x100
#define OF_ALL_DENY  0x200
#define OF_ALL_BITS  0xff

struct packet_rules {
    const struct policies *policies;
    struct packet_kinds kinds;                  /* those in force */
    size_t policy_count;                        /* whose kinds are in `kind_of_policy` */
    unsigned char kind_of_policy[POLICIES_MAX]; /* the number of the kind that a policy is for; or ANY_KIND, NO_KIND */
    uint32_t apart;                             /* a bit for each kind that not the same policies are for */
    bool has_free;                              /* a kind costs nothing */
};

/* Packets that are checked by the same policies. */
struct packet_group {
    bool v4;
    unsigned kind;   /* 0: of no kind, or of one that no policy tells apart */
    uint16_t of_all; /* see above */
};

/* The policies that packets of one group are checked by. */
struct packet_checks {
    unsigned char indices[POLICIES_MAX];
    weir_policy_id ids[POLICIES_MAX];
    size_t count;
    bool bytes; /* one of the policies counts bytes */
};

/* `kinds` are set: looks which policies are for which. `policy_count`: the policies whose entries are whole. */
void packet_rules_take(struct packet_rules *rules, size_t policy_count);

/* The override of all policies for a sender. */
uint16_t packet_rules_of_all(weir_thread *thread, const struct address *from);

/* The policies in force, in shadow mode or else enforced, that a group is checked by. */
void packet_rules_find(const struct packet_rules *rules, const struct packet_group *group, bool shadow,
                       struct packet_checks *out);

/* Whether one of the policies obeys the group's override of all policies by itself. */
bool packet_rules_obeys(const struct packet_rules *rules, const struct packet_checks *checks,
                        const struct packet_group *group);

/* The kind by which a packet's policies are told apart. */
static inline unsigned packet_rules_apart(const struct packet_rules *rules, unsigned kind)
{
    return rules->apart >> kind & 1 ? kind : 0;
}

static inline const struct policy_kind *packet_rules_kind(const struct packet_rules *rules,
                                                          const struct packet_checks *checks, size_t column)
{
    return &rules->policies->all[checks->indices[column]].kind;
}

/* The key of a sender. `bytes`: where the key's bytes may stay. */
static inline weir_key packet_rules_key(const struct packet_rules *rules, weir *w, const struct packet_checks *checks,
                                        size_t column, const struct address *from,
                                        unsigned char bytes[NETWORK_KEY_SIZE])
{
    const struct policy_kind *kind = packet_rules_kind(rules, checks, column);
    const void *data = bytes;
    size_t length = 0;
    if (kind->scope == SCOPE_SOURCE) {
        data = network_source(from, &length);
    } else if (kind->scope != SCOPE_OVERALL) {
        length = network_of(from, kind->prefix, bytes);
    }
    return weir_make_key(w, checks->ids[column], data, length);
}

/* What a packet of a kind and a size costs of a policy. */
static inline uint64_t packet_rules_cost(const struct packet_rules *rules, const struct policy_kind *policy,
                                         unsigned kind, size_t size)
{
    if (policy->of_bytes) {
        return size;
    }
    return kind == 0 || policy->packet_kind[0] != '\0' ? 1 : rules->kinds.all[kind - 1].cost;
}

#endif
