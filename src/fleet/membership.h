/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which nodes the fleet has: how many nodes share the limits, and up to when all of them have reported.
 *
 * A node that missed its heartbeats is suspect: it has failed, or it is cut off and goes by its share. Until it has
 * been suspect for its lifetime it counts like any other node, and its last demand is left to it. (The states are those
 * of SWIM: Das, Gupta, Motivala, "Scalable Weakly-consistent Infection-style Process Group Membership", 2002.)
 *
 * After an outage nodes come back one by one, as they try again; the first node must not take itself for the whole
 * fleet. So the other nodes are awaited until as many are live as there were, have had the time to hear of that
 * (settle), and the time to report what they held back (tell). The longest pause between two attempts bounds the wait.
 * Meanwhile limits go by shares, as in the outage. Where a node does not come back, all others end the wait together.
 * Each counts from the return of the last one, and reports what it held back before the end. A node that loses the
 * fleet again meanwhile begins to wait anew: its times would pass while no node can hear or report.
 *
 * The watermark is the time up to which every node has reported what it admitted (the term is of stream processing:
 * Akidau and others, "MillWheel", 2013). While nodes are awaited or suspect it stands still.
 */
#ifndef WEIR_FLEET_MEMBERSHIP_H
#define WEIR_FLEET_MEMBERSHIP_H

#include <stdbool.h>
#include <stdint.h>

struct membership {
    uint32_t live, suspect; /* as last heard; 0: never */
    uint32_t expected;      /* how many nodes there are before any was heard; or were, while nodes are awaited */
    bool failed;            /* with the last change, suspect nodes have failed and no longer count */
    uint32_t most;          /* most live nodes at a time, within a lifetime */
    uint64_t most_ns;
    uint32_t joined;    /* how many nodes have joined within some time */
    uint64_t joined_ns; /* when this node last heard of a new one, monotonic; 0: never */
    uint64_t interval_ns;
    uint64_t watermark_ns;    /* fleet time; 0: none yet */
    uint64_t spoken_ns;       /* watermark of windows: debts of buckets that were held back may not be reported yet */
    uint64_t await_until_ns;  /* monotonic; 0: no node is awaited */
    uint64_t await_most_ns;   /* the latest that await_until_ns may be */
    uint32_t await_live;      /* live nodes as last heard while nodes are awaited; UINT32_MAX: none were heard yet */
    uint64_t gone_ns;         /* fleet time since which each awaited node has to be heard; 0: none */
    uint64_t complete_ns;     /* since when all awaited nodes are back, monotonic; 0: they are not */
    uint64_t resume_until_ns; /* nodes that were suspect have until then to report; monotonic */
    uint64_t regular_from_ns; /* after nodes were away, all of them report once an interval from then on; monotonic */
    uint64_t await_ns, settle_ns, tell_ns; /* see above */
};

/* How long without a heartbeat until a node has failed. */
uint64_t membership_lifetime_ns(uint64_t interval_ns);

/* `expected`: how many nodes there are thought to be, 0: one. */
void membership_open(struct membership *membership, uint32_t expected, uint64_t interval_ns, uint64_t timeout_ns);

/* How many nodes share the limits; 1 and up. */
uint32_t membership_nodes(const struct membership *membership);

/*
 * Awaits the nodes there were: after an outage, or when the fleet has lost its data. `gone_ns`: fleet time when this
 * node found the fleet gone, 0: it was there. A heartbeat from before that time says nothing of its node's return.
 */
void membership_await(struct membership *membership, uint64_t gone_ns, uint64_t monotonic_ns);

/* Gives nodes that were away the time to report what they held back. */
void membership_resume(struct membership *membership, uint64_t monotonic_ns);

/* Takes in what a round says of the nodes. */
void membership_heard(struct membership *membership, uint32_t live, uint32_t suspect, uint64_t watermark_ns,
                      uint64_t monotonic_ns);

/*
 * How old the other nodes' news is on average when a round of this time is answered: each node reports once an
 * interval, at a moment of its own, and the watermark is the earliest of these moments.
 */
uint64_t membership_news_age(uint32_t live, uint32_t suspect, uint64_t watermark_ns, uint64_t now_ns,
                             uint64_t interval_ns);

/* Whether all awaited nodes are live; true where none is awaited. */
bool membership_complete(const struct membership *membership);
/* When debts that were held back are reported, monotonic. Then the awaited nodes have been live for long enough that
 * all nodes know, or the wait is about to end without them. 0: no node is awaited. */
uint64_t membership_tells_ns(const struct membership *membership);
bool membership_tells(const struct membership *membership, uint64_t monotonic_ns);
/* Whether nodes that were suspect are live again and may not have reported everything yet. */
bool membership_resumes(const struct membership *membership, uint64_t monotonic_ns);
bool membership_awaits(const struct membership *membership, uint64_t monotonic_ns);
/*
 * Whether all nodes have reported once an interval for an interval. Nodes that were away, and nodes that hear of that,
 * report between their regular rounds as well; the next regular report then has less than an interval's demand.
 */
bool membership_regular(const struct membership *membership, uint64_t monotonic_ns);

/* How many nodes have joined so lately that their reports tell no rate yet. */
uint32_t membership_joining(const struct membership *membership, uint64_t monotonic_ns);
/* Whether nodes joined so lately that earlier rates say little of the present ones. */
bool membership_has_joined(const struct membership *membership, uint64_t monotonic_ns);

#endif
