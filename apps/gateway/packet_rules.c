/* SPDX-License-Identifier: Apache-2.0 */
/* See packet_rules.h. */
#include "packet_rules.h"

#include <stdatomic.h>

void packet_rules_take(struct packet_rules *rules, size_t policy_count)
{
    rules->policy_count = policy_count;
    rules->apart = 0;
    rules->has_free = false;
    for (size_t i = 0; i < policy_count; i++) {
        const char *name = rules->policies->all[i].kind.packet_kind;
        const unsigned number = packet_kinds_find(&rules->kinds, name);
        rules->kind_of_policy[i] = (unsigned char) (name[0] == '\0' ? ANY_KIND : number != 0 ? number : NO_KIND);
        rules->apart |= number != 0 ? UINT32_C(1) << number : 0;
    }
    for (size_t i = 0; i < rules->kinds.count; i++) {
        const bool free_of_cost = rules->kinds.all[i].cost == 0;
        rules->apart |= free_of_cost ? UINT32_C(1) << (i + 1) : 0;
        rules->has_free = rules->has_free || free_of_cost;
    }
}

uint16_t packet_rules_of_all(weir_thread *thread, const struct address *from)
{
    size_t length;
    unsigned bits;
    const void *address = network_address(from, &length);
    const weir_override_answer answer = weir_find_override(thread, address, length, &bits);
    return answer == WEIR_NO_OVERRIDE
               ? 0
               : (uint16_t) ((answer == WEIR_OVERRIDE_ALLOW ? OF_ALL_ALLOW : OF_ALL_DENY) | bits);
}

/* Whether a key of a policy lies in the network of a group's override of all policies: the library obeys it there. */
static bool is_named(const struct policy_kind *kind, const struct packet_group *group)
{
    const unsigned source = group->v4 ? 32 : SOURCE_PREFIX;
    const unsigned bits = kind->scope == SCOPE_SOURCE ? source : kind->prefix;
    return kind->scope != SCOPE_OVERALL && (group->of_all & OF_ALL_BITS) <= bits;
}

/* Whether a policy is for packets of a group. What costs nothing is checked by no policy that counts packets of all. */
static bool is_for(const struct packet_rules *rules, size_t i, const struct packet_group *group)
{
    const struct policy_kind *kind = &rules->policies->all[i].kind;
    const bool free_of_cost = group->kind != 0 && rules->kinds.all[group->kind - 1].cost == 0;
    if ((group->of_all & OF_ALL_ALLOW) != 0 && !is_named(kind, group)) {
        return false;
    }
    return policy_kind_concerns(kind, group->v4) &&
           (rules->kind_of_policy[i] == ANY_KIND ? kind->of_bytes || !free_of_cost
                                                 : rules->kind_of_policy[i] == group->kind);
}

void packet_rules_find(const struct packet_rules *rules, const struct packet_group *group, bool shadow,
                       struct packet_checks *out)
{
    const size_t count = rules->policy_count; /* since packet_rules_take(): the entries are whole */
    out->count = 0;
    out->bytes = false;
    for (size_t i = 0; i < count; i++) {
        const struct gateway_policy *policy = &rules->policies->all[i];
        const weir_policy_id id = atomic_load_explicit(&policy->id, memory_order_relaxed);
        if (id == WEIR_NO_POLICY || !is_for(rules, i, group) ||
            atomic_load_explicit(&policy->shadow, memory_order_relaxed) != shadow) {
            continue;
        }
        out->indices[out->count] = (unsigned char) i;
        out->ids[out->count++] = id;
        out->bytes = out->bytes || policy->kind.of_bytes;
    }
    /* While a reload changes one policy after the other, there may be too many of both files. */
    out->count = shadow || out->count < WEIR_MAX_KEYS_AT_ONCE ? out->count : WEIR_MAX_KEYS_AT_ONCE;
}

bool packet_rules_obeys(const struct packet_rules *rules, const struct packet_checks *checks,
                        const struct packet_group *group)
{
    bool obeys = false;
    for (size_t i = 0; i < checks->count; i++) {
        obeys = obeys || is_named(packet_rules_kind(rules, checks, i), group);
    }
    return obeys;
}
