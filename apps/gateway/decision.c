/* SPDX-License-Identifier: Apache-2.0 */
/* See decision.h. */
#include "decision.h"

#include <stdbool.h>
#include <string.h>

#include "clock.h"
#include "gateway.h"
#include "network.h"

/* Every so many bursts the checks are timed: often enough to see, rarely enough to cost nothing. */
#define TIME_EVERY 16

_Static_assert(BURST_COUNT <= 64, "a bit for each packet of a burst");

/* What reading the clock twice costs: taken off what is timed. */
static uint64_t clock_cost_ns(void)
{
    uint64_t least_ns = UINT64_MAX;
    for (int i = 0; i < 64; i++) {
        const uint64_t before_ns = clock_ns();
        const uint64_t cost_ns = clock_ns() - before_ns;
        least_ns = cost_ns < least_ns ? cost_ns : least_ns;
    }
    return least_ns;
}

void decision_open(struct decision *d, struct gateway *gateway, struct counters *counters, const struct burst *requests,
                   const struct datagram *datagrams)
{
    d->gateway = gateway;
    d->rules.policies = &gateway->policies;
    d->counters = counters;
    d->requests = requests;
    d->datagrams = datagrams;
    d->clock_cost_ns = clock_cost_ns();
}

/* Takes the kinds in force, and which of them have policies of their own. */
static void take_kinds(struct decision *d, size_t policy_count)
{
    d->kinds_generation = kind_store_copy(&d->gateway->kinds, &d->rules.kinds);
    packet_rules_take(&d->rules, policy_count);
    memset(d->packet_kinds, 0, sizeof(d->packet_kinds));
}

/* Finds the kinds of the packets of a burst. */
static void find_kinds(struct decision *d, size_t count)
{
    const size_t policy_count = atomic_load_explicit(&d->gateway->policies.count, memory_order_acquire);
    if (kind_store_moved(&d->gateway->kinds, d->kinds_generation) || policy_count != d->rules.policy_count) {
        take_kinds(d, policy_count);
    }
    for (size_t i = 0; d->rules.kinds.count != 0 && i < count; i++) {
        d->packet_kinds[i] =
            (unsigned char) packet_kinds_match(&d->rules.kinds, d->datagrams[i].data, d->datagrams[i].size);
    }
}

/* Finds the overrides of all policies for the packets of a burst. */
static void find_of_all(struct decision *d, size_t count)
{
    d->has_all = false;
    for (size_t i = 0; i < count; i++) {
        const size_t message = d->datagrams[i].message;
        if (i != 0 && d->datagrams[i - 1].message == message) {
            d->of_all[i] = d->of_all[i - 1];
            continue;
        }
        d->of_all[i] = packet_rules_of_all(d->limits, &d->requests->from[message]);
        d->has_all = d->has_all || d->of_all[i] != 0;
    }
}

/* What a packet of the burst costs of a policy. */
static uint64_t cost_of(const struct decision *d, const struct policy_kind *kind, size_t place)
{
    return packet_rules_cost(&d->rules, kind, d->packet_kinds[place], d->datagrams[place].size);
}

/* Makes the keys of packet `n` of a group. Packets of one message have the same keys. */
static void make_keys(struct decision *d, const struct packet_checks *by, size_t n)
{
    const size_t width = by->count;
    const struct datagram *datagram = &d->datagrams[d->places[n]];
    weir_key *keys = &d->keys[n * width];
    uint64_t *costs = &d->costs[n * width];
    const bool again = n != 0 && d->datagrams[d->places[n - 1]].message == datagram->message;
    for (size_t i = 0; i < width; i++) {
        const bool kept = again || (n != 0 && packet_rules_kind(&d->rules, by, i)->scope == SCOPE_OVERALL);
        keys[i] = kept ? keys[i - width]
                       : packet_rules_key(&d->rules, d->gateway->weir, by, i, &d->requests->from[datagram->message],
                                          d->bytes[n * width + i]);
        costs[i] = cost_of(d, packet_rules_kind(&d->rules, by, i), d->places[n]);
    }
}

/* Packet `n` of the group for each bit of the answer. */
static uint64_t ask(struct decision *d, const struct packet_checks *by, size_t count)
{
    const uint64_t *costs = by->bytes || d->rules.kinds.count != 0 ? d->costs : NULL;
    uint64_t allowed = 0;
    if (by->count == 1) {
        memset(d->denied_by, 0, count);
        (void) weir_check_burst(d->limits, d->keys, costs, count, &allowed);
    } else {
        const weir_requests requests = {d->keys, costs, by->count, count, &allowed, d->denied_by};
        (void) weir_check_requests(d->limits, &requests);
    }
    return allowed;
}

/* Takes the places of the packets whose bits are set. Returns how many there are. */
static size_t take_places(struct decision *d, uint64_t bits)
{
    size_t count = 0;
    for (uint64_t left = bits; left != 0; left &= left - 1) {
        d->places[count++] = (unsigned char) __builtin_ctzll(left);
    }
    return count;
}

/* A packet was denied by a policy: into the file of such packets. */
static void record(struct decision *d, const struct datagram *datagram, size_t policy)
{
    struct address to = *d->listen;
    const struct in6_addr *local = d->locals != NULL ? &d->locals[datagram->message] : NULL;
    if (local != NULL && to.u.any.sa_family == AF_INET) {
        memcpy(&to.u.v4.sin_addr, &local->s6_addr[12], sizeof(to.u.v4.sin_addr));
    } else if (local != NULL) {
        to.u.v6.sin6_addr = *local;
    }
    record_denied(d->record, &d->requests->from[datagram->message], &to, datagram->data, datagram->size, policy,
                  d->now);
}

/*
 * Whether the kernel may drop all packets of a key that a policy denies: not where packets of another kind, or some
 * that cost nothing, would pass.
 */
static bool drops_all(const struct decision *d, const struct policy_kind *kind)
{
    return kind->packet_kind[0] == '\0' && (kind->of_bytes || !d->rules.has_free);
}

/* Counts packet `n` for the policy that dropped it, and tells the kernel of a source that comes again and again. */
static void count_drop(struct decision *d, const struct packet_checks *by, size_t n)
{
    const size_t column = d->denied_by[n];
    const struct datagram *datagram = &d->datagrams[d->places[n]];
    bump(&d->counters->checked[by->indices[column]], 1);
    bump(&d->counters->dropped[by->indices[column]], 1);
    if (drops_all(d, packet_rules_kind(&d->rules, by, column))) {
        xdp_denied(&d->xdp, d->limits, &d->keys[n * by->count + column], &d->gateway->policies.all[by->indices[column]],
                   &d->requests->from[datagram->message], d->now);
    }
    if (d->record != NULL) {
        record(d, datagram, by->indices[column]);
    }
}

/* Of the packets of one group whose bits are set, those that pass all limits; counts them by policy. */
static uint64_t pass_enforced(struct decision *d, uint64_t bits, const struct packet_group *group, size_t *checks)
{
    struct packet_checks by;
    packet_rules_find(&d->rules, group, false, &by);
    if ((group->of_all & OF_ALL_DENY) != 0 && !packet_rules_obeys(&d->rules, &by, group)) {
        bump(&d->counters->dropped_of_all, (uint64_t) __builtin_popcountll(bits));
        return 0;
    }
    if (by.count == 0 || bits == 0) {
        return bits;
    }
    const size_t count = take_places(d, bits);
    for (size_t n = 0; n < count; n++) {
        make_keys(d, &by, n);
    }
    const uint64_t allowed = ask(d, &by, count);
    uint64_t passing = 0;
    for (size_t n = 0; n < count; n++) {
        if (allowed >> n & 1) {
            passing |= UINT64_C(1) << d->places[n];
        } else if (d->denied_by[n] < by.count) {
            count_drop(d, &by, n);
        }
    }
    for (size_t i = 0; i < by.count;
         i++) { /* beside those that it dropped: what another policy dropped it was not asked */
        bump(&d->counters->checked[by.indices[i]], (size_t) __builtin_popcountll(passing));
    }
    *checks += count * by.count;
    return passing;
}

/* Counts what policies in shadow mode would deny of the packets of one group whose bits are set. */
static void count_shadow(struct decision *d, uint64_t bits, const struct packet_group *group, size_t *checks)
{
    struct packet_checks by;
    packet_rules_find(&d->rules, group, true, &by);
    for (size_t i = 0; i < by.count; i++) {
        uint64_t would_deny = 0;
        size_t count = 0;
        for (uint64_t left = bits; left != 0; left &= left - 1) {
            const size_t place = (size_t) __builtin_ctzll(left);
            const struct datagram *datagram = &d->datagrams[place];
            const weir_key key = packet_rules_key(&d->rules, d->gateway->weir, &by, i,
                                                  &d->requests->from[datagram->message], d->bytes[0]);
            weir_verdict verdict;
            (void) weir_check(d->limits, &key, cost_of(d, packet_rules_kind(&d->rules, &by, i), place), &verdict);
            would_deny += verdict.would_deny;
            count++;
        }
        bump(&d->counters->would_deny[by.indices[i]], would_deny);
        bump(&d->counters->checked[by.indices[i]], count);
        *checks += count;
    }
}

/* Of the packets whose bits are set, those of IPv4. */
static uint64_t find_v4(const struct decision *d, uint64_t bits)
{
    uint64_t v4 = 0;
    for (uint64_t left = bits; left != 0; left &= left - 1) {
        const struct datagram *datagram = &d->datagrams[__builtin_ctzll(left)];
        v4 |= network_is_v4(&d->requests->from[datagram->message]) ? left & (0 - left) : 0;
    }
    return v4;
}

/* Of the packets whose bits are set, those of the first one's kind; all, where policies tell no kinds apart. */
static uint64_t find_kind(const struct decision *d, uint64_t bits, unsigned *kind)
{
    uint64_t same = 0;
    *kind =
        d->rules.apart != 0 && bits != 0 ? packet_rules_apart(&d->rules, d->packet_kinds[__builtin_ctzll(bits)]) : 0;
    for (uint64_t left = d->rules.apart != 0 ? bits : 0; left != 0; left &= left - 1) {
        same |= packet_rules_apart(&d->rules, d->packet_kinds[__builtin_ctzll(left)]) == *kind ? left & (0 - left) : 0;
    }
    return d->rules.apart != 0 ? same : bits;
}

/* Of the packets of one family and one override whose bits are set, those that pass. */
static uint64_t pass_family(struct decision *d, uint64_t bits, bool v4, uint16_t of_all, size_t *checks)
{
    uint64_t passing = 0;
    for (uint64_t left = bits; left != 0;) {
        struct packet_group group = {.v4 = v4, .of_all = of_all};
        const uint64_t same = find_kind(d, left, &group.kind);
        const uint64_t allowed = pass_enforced(d, same, &group, checks);
        count_shadow(d, allowed, &group, checks);
        passing |= allowed;
        left &= ~same;
    }
    return passing;
}

/* Of the packets whose bits are set, those with the first one's override of all policies, or with none as it. */
static uint64_t find_same_of_all(const struct decision *d, uint64_t bits, uint16_t *of_all)
{
    uint64_t same = 0;
    *of_all = d->has_all && bits != 0 ? d->of_all[__builtin_ctzll(bits)] : 0;
    for (uint64_t left = d->has_all ? bits : 0; left != 0; left &= left - 1) {
        same |= d->of_all[__builtin_ctzll(left)] == *of_all ? left & (0 - left) : 0;
    }
    return d->has_all ? same : bits;
}

static uint64_t pass_all(struct decision *d, uint64_t bits, size_t *checks)
{
    uint64_t passing = 0;
    for (uint64_t left = bits; left != 0;) {
        uint16_t of_all;
        const uint64_t same = find_same_of_all(d, left, &of_all);
        const uint64_t v4 = find_v4(d, same);
        passing |= pass_family(d, v4, true, of_all, checks) | pass_family(d, same & ~v4, false, of_all, checks);
        left &= ~same;
    }
    return passing;
}

static uint64_t sum_bytes(const struct decision *d, uint64_t bits)
{
    uint64_t sum = 0;
    for (uint64_t left = bits; left != 0; left &= left - 1) {
        sum += d->datagrams[__builtin_ctzll(left)].size;
    }
    return sum;
}

uint64_t decision_make(struct decision *d, size_t count)
{
    struct counters *counters = d->counters;
    const uint64_t all = count < 64 ? (UINT64_C(1) << count) - 1 : UINT64_MAX;
    uint64_t passing = all;
    if (d->limits != NULL) {
        const bool timed = ++d->bursts % TIME_EVERY == 0;
        const uint64_t before_ns = timed ? clock_ns() : 0;
        size_t checks = 0;
        find_kinds(d, count);
        find_of_all(d, count);
        passing = pass_all(d, all, &checks);
        if (timed) {
            const uint64_t took_ns = clock_ns() - before_ns;
            bump(&counters->timed_ns, took_ns > d->clock_cost_ns ? took_ns - d->clock_cost_ns : 0);
            bump(&counters->timed_checks, checks);
        }
    }
    const uint64_t bytes = sum_bytes(d, all);
    bump(&counters->offered_bytes, bytes);
    bump(&counters->passed, (uint64_t) __builtin_popcountll(passing));
    bump(&counters->passed_bytes, passing == all ? bytes : sum_bytes(d, passing));
    d->offered += count;
    return passing;
}

void decision_publish(const struct decision *d)
{
    atomic_store_explicit(&d->counters->offered, d->offered, memory_order_release); /* for sum_of */
}
