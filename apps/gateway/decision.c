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

/* Of a policy: it is for all packets; it is for a kind that there is not. */
#define ANY_KIND 0
#define NO_KIND  255

/* Of a packet: an override of all policies allows it or denies it, with the bits of its network. 0: there is none. */
#define OF_ALL_ALLOW 0x100
#define OF_ALL_DENY  0x200
#define OF_ALL_BITS  0xff

/* Packets that are checked by the same policies. */
struct group {
    bool v4;
    unsigned kind;   /* 0: of no kind, or of one that no policy tells apart */
    uint16_t of_all; /* as above */
};

/* The policies that packets of one group are checked by. */
struct checked_by {
    unsigned char indices[POLICIES_MAX];
    weir_policy_id ids[POLICIES_MAX];
    size_t count;
    bool bytes; /* one of the policies counts bytes */
};

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
    d->counters = counters;
    d->requests = requests;
    d->datagrams = datagrams;
    d->clock_cost_ns = clock_cost_ns();
}

/* Takes the kinds in force, and which of them have policies of their own. */
static void take_kinds(struct decision *d, size_t policy_count)
{
    d->kinds_generation = kind_store_copy(&d->gateway->kinds, &d->kinds);
    d->policy_count = policy_count;
    d->apart = 0;
    d->has_free = false;
    for (size_t i = 0; i < policy_count; i++) {
        const char *name = d->gateway->policies.all[i].kind.packet_kind;
        const unsigned number = packet_kinds_find(&d->kinds, name);
        d->kind_of_policy[i] = (unsigned char) (name[0] == '\0' ? ANY_KIND : number != 0 ? number : NO_KIND);
        d->apart |= number != 0 ? UINT32_C(1) << number : 0;
    }
    for (size_t i = 0; i < d->kinds.count; i++) {
        const bool free_of_cost = d->kinds.all[i].cost == 0;
        d->apart |= free_of_cost ? UINT32_C(1) << (i + 1) : 0;
        d->has_free = d->has_free || free_of_cost;
    }
    memset(d->packet_kinds, 0, sizeof(d->packet_kinds));
}

/* Finds the kinds of the packets of a burst. */
static void find_kinds(struct decision *d, size_t count)
{
    const size_t policy_count = atomic_load_explicit(&d->gateway->policies.count, memory_order_acquire);
    if (kind_store_moved(&d->gateway->kinds, d->kinds_generation) || policy_count != d->policy_count) {
        take_kinds(d, policy_count);
    }
    for (size_t i = 0; d->kinds.count != 0 && i < count; i++) {
        d->packet_kinds[i] = (unsigned char) packet_kinds_match(&d->kinds, d->datagrams[i].data, d->datagrams[i].size);
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
        size_t length;
        unsigned bits;
        const void *address = network_address(&d->requests->from[message], &length);
        const weir_override_answer answer = weir_find_override(d->limits, address, length, &bits);
        d->of_all[i] = answer == WEIR_NO_OVERRIDE
                           ? 0
                           : (uint16_t) ((answer == WEIR_OVERRIDE_ALLOW ? OF_ALL_ALLOW : OF_ALL_DENY) | bits);
        d->has_all = d->has_all || d->of_all[i] != 0;
    }
}

/* Whether a key of a policy lies in the network of a group's override of all policies: the library obeys it there. */
static bool is_named(const struct policy_kind *kind, const struct group *group)
{
    const unsigned source = group->v4 ? 32 : SOURCE_PREFIX;
    const unsigned bits = kind->scope == SCOPE_SOURCE ? source : kind->prefix;
    return kind->scope != SCOPE_OVERALL && (group->of_all & OF_ALL_BITS) <= bits;
}

/* Whether a policy is for packets of a group. What costs nothing is checked by no policy that counts packets of all. */
static bool is_for(const struct decision *d, size_t i, const struct group *group)
{
    const struct policy_kind *kind = &d->gateway->policies.all[i].kind;
    const bool free_of_cost = group->kind != 0 && d->kinds.all[group->kind - 1].cost == 0;
    if ((group->of_all & OF_ALL_ALLOW) != 0 && !is_named(kind, group)) {
        return false;
    }
    return policy_kind_concerns(kind, group->v4) &&
           (d->kind_of_policy[i] == ANY_KIND ? kind->of_bytes || !free_of_cost : d->kind_of_policy[i] == group->kind);
}

static void find_policies(const struct decision *d, const struct group *group, bool shadow, struct checked_by *out)
{
    const struct policies *policies = &d->gateway->policies;
    const size_t count = d->policy_count; /* since find_kinds(): the entries are whole */
    out->count = 0;
    out->bytes = false;
    for (size_t i = 0; i < count; i++) {
        const struct gateway_policy *policy = &policies->all[i];
        const weir_policy_id id = atomic_load_explicit(&policy->id, memory_order_relaxed);
        if (id == WEIR_NO_POLICY || !is_for(d, i, group) ||
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

static const struct policy_kind *kind_of(const struct decision *d, const struct checked_by *by, size_t column)
{
    return &d->gateway->policies.all[by->indices[column]].kind;
}

/* `bytes`: where the key's bytes may stay. */
static weir_key make_key(const struct decision *d, const struct checked_by *by, size_t column,
                         const struct address *from, unsigned char bytes[NETWORK_KEY_SIZE])
{
    const struct policy_kind *kind = kind_of(d, by, column);
    const void *data = bytes;
    size_t length = 0;
    if (kind->scope == SCOPE_SOURCE) {
        data = network_source(from, &length);
    } else if (kind->scope != SCOPE_OVERALL) {
        length = network_of(from, kind->prefix, bytes);
    }
    return weir_make_key(d->gateway->weir, by->ids[column], data, length);
}

/* What a packet of the burst costs of a policy. */
static uint64_t cost_of(const struct decision *d, const struct policy_kind *kind, size_t place)
{
    const unsigned number = d->packet_kinds[place];
    if (kind->of_bytes) {
        return d->datagrams[place].size;
    }
    return number == 0 || kind->packet_kind[0] != '\0' ? 1 : d->kinds.all[number - 1].cost;
}

/* Makes the keys of packet `n` of a group. Packets of one message have the same keys. */
static void make_keys(struct decision *d, const struct checked_by *by, size_t n)
{
    const size_t width = by->count;
    const struct datagram *datagram = &d->datagrams[d->places[n]];
    weir_key *keys = &d->keys[n * width];
    uint64_t *costs = &d->costs[n * width];
    const bool again = n != 0 && d->datagrams[d->places[n - 1]].message == datagram->message;
    for (size_t i = 0; i < width; i++) {
        const bool kept = again || (n != 0 && kind_of(d, by, i)->scope == SCOPE_OVERALL);
        keys[i] =
            kept ? keys[i - width] : make_key(d, by, i, &d->requests->from[datagram->message], d->bytes[n * width + i]);
        costs[i] = cost_of(d, kind_of(d, by, i), d->places[n]);
    }
}

/* Packet `n` of the group for each bit of the answer. */
static uint64_t ask(struct decision *d, const struct checked_by *by, size_t count)
{
    const uint64_t *costs = by->bytes || d->kinds.count != 0 ? d->costs : NULL;
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
    return kind->packet_kind[0] == '\0' && (kind->of_bytes || !d->has_free);
}

/* Counts packet `n` for the policy that dropped it, and tells the kernel of a source that comes again and again. */
static void count_drop(struct decision *d, const struct checked_by *by, size_t n)
{
    const size_t column = d->denied_by[n];
    const struct datagram *datagram = &d->datagrams[d->places[n]];
    bump(&d->counters->checked[by->indices[column]], 1);
    bump(&d->counters->dropped[by->indices[column]], 1);
    if (drops_all(d, kind_of(d, by, column))) {
        xdp_denied(&d->xdp, d->limits, &d->keys[n * by->count + column], &d->gateway->policies.all[by->indices[column]],
                   &d->requests->from[datagram->message], d->now);
    }
    if (d->record != NULL) {
        record(d, datagram, by->indices[column]);
    }
}

/* Whether one of the policies obeys the override of all policies by itself. */
static bool has_named(const struct decision *d, const struct checked_by *by, const struct group *group)
{
    bool has = false;
    for (size_t i = 0; i < by->count; i++) {
        has = has || is_named(kind_of(d, by, i), group);
    }
    return has;
}

/* Of the packets of one group whose bits are set, those that pass all limits; counts them by policy. */
static uint64_t pass_enforced(struct decision *d, uint64_t bits, const struct group *group, size_t *checks)
{
    struct checked_by by;
    find_policies(d, group, false, &by);
    if ((group->of_all & OF_ALL_DENY) != 0 && !has_named(d, &by, group)) {
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
static void count_shadow(struct decision *d, uint64_t bits, const struct group *group, size_t *checks)
{
    struct checked_by by;
    find_policies(d, group, true, &by);
    for (size_t i = 0; i < by.count; i++) {
        uint64_t would_deny = 0;
        size_t count = 0;
        for (uint64_t left = bits; left != 0; left &= left - 1) {
            const size_t place = (size_t) __builtin_ctzll(left);
            const struct datagram *datagram = &d->datagrams[place];
            const weir_key key = make_key(d, &by, i, &d->requests->from[datagram->message], d->bytes[0]);
            weir_verdict verdict;
            (void) weir_check(d->limits, &key, cost_of(d, kind_of(d, &by, i), place), &verdict);
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

/* The kind by which a packet's policies are told apart. */
static unsigned kind_apart(const struct decision *d, size_t place)
{
    const unsigned kind = d->packet_kinds[place];
    return d->apart >> kind & 1 ? kind : 0;
}

/* Of the packets whose bits are set, those of the first one's kind; all, where policies tell no kinds apart. */
static uint64_t find_kind(const struct decision *d, uint64_t bits, unsigned *kind)
{
    uint64_t same = 0;
    *kind = d->apart != 0 && bits != 0 ? kind_apart(d, (size_t) __builtin_ctzll(bits)) : 0;
    for (uint64_t left = d->apart != 0 ? bits : 0; left != 0; left &= left - 1) {
        same |= kind_apart(d, (size_t) __builtin_ctzll(left)) == *kind ? left & (0 - left) : 0;
    }
    return d->apart != 0 ? same : bits;
}

/* Of the packets of one family and one override whose bits are set, those that pass. */
static uint64_t pass_family(struct decision *d, uint64_t bits, bool v4, uint16_t of_all, size_t *checks)
{
    uint64_t passing = 0;
    for (uint64_t left = bits; left != 0;) {
        struct group group = {.v4 = v4, .of_all = of_all};
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
    bump(&counters->offered, count); /* last: whoever reads of packets that were offered finds what became of them */
    return passing;
}
