/* SPDX-License-Identifier: Apache-2.0 */
/* See membership.h. */
#include "fleet/membership.h"
#include "fleet/tuning.h"

#include "base/numbers.h"
#include "transport/transport.h"

uint64_t membership_lifetime_ns(uint64_t interval_ns)
{
    return max_u64(LIFETIME_INTERVALS * interval_ns, LIFETIME_MIN_NS);
}

void membership_open(struct membership *membership, uint32_t expected, uint64_t interval_ns, uint64_t timeout_ns)
{
    *membership = (struct membership){.expected = expected != 0 ? expected : 1,
                                      .await_ns = TRANSPORT_BACKOFF_MOST_MS * NS_PER_MS + timeout_ns + 2 * interval_ns,
                                      .interval_ns = interval_ns,
                                      .settle_ns = interval_ns + interval_ns / SETTLE_DIVISOR,
                                      .tell_ns = interval_ns - interval_ns / SETTLE_DIVISOR};
}

uint32_t membership_nodes(const struct membership *membership)
{
    /* Where nodes crash again and again, more nodes are suspect than were ever live at a time. */
    const uint32_t live = membership->live;
    const uint32_t most = membership->most > live + live / 2 ? membership->most : live + live / 2;
    const uint32_t all_heard = live + membership->suspect;
    const uint32_t known = all_heard < most ? all_heard : most;
    const bool all = known != 0 && membership->await_until_ns == 0;
    return all || known > membership->expected ? known : membership->expected;
}

void membership_await(struct membership *membership, uint64_t gone_ns, uint64_t monotonic_ns)
{
    membership->expected = membership_nodes(membership);
    membership->await_until_ns = monotonic_ns + membership->await_ns;
    membership->await_most_ns = membership->await_until_ns + membership->await_ns;
    membership->await_live = UINT32_MAX;
    membership->gone_ns = gone_ns;
    membership->complete_ns = 0;
}

void membership_resume(struct membership *membership, uint64_t monotonic_ns)
{
    membership->resume_until_ns = monotonic_ns + membership->settle_ns + membership->tell_ns;
    membership->regular_from_ns = membership->resume_until_ns + membership->interval_ns;
}

/* Notes how many nodes have joined. While nodes are awaited after an outage, those that come back join nothing. */
static void note_joined(struct membership *membership, uint32_t live, uint32_t suspect, uint64_t monotonic_ns)
{
    const uint32_t before = membership->live + membership->suspect;
    if (membership->live == 0 || membership->await_until_ns != 0 || live + suspect <= before) {
        return;
    }
    membership->joined = membership_joining(membership, monotonic_ns) + live + suspect - before;
    membership->joined_ns = monotonic_ns;
}

void membership_heard(struct membership *membership, uint32_t live, uint32_t suspect, uint64_t watermark_ns,
                      uint64_t monotonic_ns)
{
    note_joined(membership, live, suspect, monotonic_ns);
    membership->failed = live + suspect < membership->live + membership->suspect ||
                         (membership->failed && suspect <= membership->suspect && live <= membership->live);
    if (suspect < membership->suspect && live > membership->live) {
        membership_resume(membership, monotonic_ns);
    }
    if (live >= membership->most ||
        monotonic_ns > membership->most_ns + membership_lifetime_ns(membership->interval_ns)) {
        membership->most = live;
        membership->most_ns = monotonic_ns;
    }
    membership->live = live;
    membership->suspect = suspect;
    membership->spoken_ns = watermark_ns;
    if (membership->await_until_ns != 0) {
        if (live > membership->await_live) {
            membership->await_until_ns = min_u64(monotonic_ns + membership->await_ns, membership->await_most_ns);
        }
        membership->await_live = live;
        const bool complete = live >= membership->expected && watermark_ns >= membership->gone_ns;
        if (!complete) {
            membership->complete_ns = 0;
        } else if (membership->complete_ns == 0) {
            membership->complete_ns = monotonic_ns;
        }
        if (membership_awaits(membership, monotonic_ns)) {
            return;
        }
        /* Nodes that were away together have heard of each other. */
        membership->await_until_ns = membership->resume_until_ns = 0;
        membership->regular_from_ns = monotonic_ns + membership->interval_ns;
    }
    if (membership_resumes(membership, monotonic_ns)) {
        return;
    }
    membership->watermark_ns = watermark_ns;
}

uint64_t membership_news_age(uint32_t live, uint32_t suspect, uint64_t watermark_ns, uint64_t now_ns,
                             uint64_t interval_ns)
{
    const uint64_t earliest_ns = saturating_sub(now_ns, watermark_ns);
    /* A node that is late tells nothing of the other nodes' phases. */
    if (live < 2 || suspect != 0 || earliest_ns > interval_ns + interval_ns / 4) {
        return interval_ns / 2;
    }
    /* Of n moments drawn evenly from an interval the earliest is n / (n + 1) of it ago on average. */
    const uint64_t remote = live - 1;
    return max_u64(muldiv_floor(earliest_ns, remote + 1, 2 * remote), interval_ns / 8);
}

bool membership_complete(const struct membership *membership)
{
    return membership->await_until_ns == 0 || membership->complete_ns != 0;
}

uint64_t membership_tells_ns(const struct membership *membership)
{
    if (membership->await_until_ns == 0) {
        return 0;
    }
    const uint64_t late_ns = membership->await_until_ns - membership->tell_ns;
    return membership->complete_ns != 0 ? min_u64(membership->complete_ns + membership->settle_ns, late_ns) : late_ns;
}

bool membership_tells(const struct membership *membership, uint64_t monotonic_ns)
{
    return monotonic_ns >= membership_tells_ns(membership);
}

bool membership_resumes(const struct membership *membership, uint64_t monotonic_ns)
{
    return monotonic_ns < membership->resume_until_ns;
}

bool membership_awaits(const struct membership *membership, uint64_t monotonic_ns)
{
    if (membership->await_until_ns == 0) {
        return false;
    }
    return monotonic_ns < membership_tells_ns(membership) + membership->tell_ns;
}

bool membership_regular(const struct membership *membership, uint64_t monotonic_ns)
{
    return monotonic_ns >= membership->regular_from_ns;
}

uint32_t membership_joining(const struct membership *membership, uint64_t monotonic_ns)
{
    const uint64_t tells_ns = membership->interval_ns - membership->interval_ns / WAIT_DIVISOR;
    return membership->joined_ns != 0 && monotonic_ns < membership->joined_ns + tells_ns ? membership->joined : 0;
}

bool membership_has_joined(const struct membership *membership, uint64_t monotonic_ns)
{
    return membership->joined_ns != 0 &&
           monotonic_ns < membership->joined_ns + JOINED_INTERVALS * membership->interval_ns;
}
