/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who is in the fleet: how many nodes the limits are shared by, and up to when all of them have spoken.
 *
 * A node that missed its heartbeats is suspect: it has failed, or it is cut off and goes by its share. Until it has
 * been suspect for its lifetime it counts like any other, and what it asked for last is left to it. (The states are
 * those of SWIM: Das, Gupta, Motivala, "Scalable Weakly-consistent Infection-style Process Group Membership", 2002.)
 *
 * After an outage nodes come back one by one, as they try again; the first one must not take itself for the whole
 * fleet. So the others are awaited: until as many are live as there were before, have had the time to hear of that
 * (settle), and then to tell what they held back (tell); at most as long as the longest pause between two attempts.
 * Meanwhile limits go by shares, as in the outage.
 *
 * The watermark is the time up to which every node has told what it let pass (the term is of stream processing: Akidau
 * and others, "MillWheel", 2013). While nodes are awaited or suspect it stands still.
 */
#ifndef WEIR_FLEET_MEMBERSHIP_H
#define WEIR_FLEET_MEMBERSHIP_H

#include <stdbool.h>
#include <stdint.h>

struct membership {
    uint32_t live, suspect; /* as last heard; 0: never */
    uint32_t expected;      /* how many there are, where nobody has been heard; or were, while they are awaited */
    bool failed;            /* of the last change: suspect nodes no longer count */
    uint32_t most;          /* live ones at a time, within a lifetime; since then, monotonic: */
    uint64_t most_ns;
    uint64_t interval_ns;
    uint64_t watermark_ns;    /* fleet time; 0: none yet */
    uint64_t spoken_ns;       /* the same without delay: what is held back of buckets may not have been told by then */
    uint64_t await_until_ns;  /* monotonic; 0: nobody is awaited */
    uint64_t complete_ns;     /* of those awaited: since when all are back, monotonic; 0: they are not */
    uint64_t resume_until_ns; /* suspect nodes are live again: until then they have time to tell; monotonic */
    uint64_t await_ns, settle_ns, tell_ns; /* how long nodes are awaited at most, and have to tell */
};

/* After how long without a heartbeat a node of this interval has failed. */
uint64_t membership_lifetime_ns(uint64_t interval_ns);

/* `expected`: how many nodes there are thought to be, 0: one. */
void membership_open(struct membership *membership, uint32_t expected, uint64_t interval_ns, uint64_t timeout_ns);

/* How many nodes limits are shared by; 1 and up. */
uint32_t membership_nodes(const struct membership *membership);

/* After an outage, or when the fleet has lost what it knew: the nodes there were are awaited. */
void membership_await(struct membership *membership, uint64_t monotonic_ns);

/* A round has told of the nodes. */
void membership_heard(struct membership *membership, uint32_t live, uint32_t suspect, uint64_t watermark_ns,
                      uint64_t monotonic_ns);

/*
 * How old the others' news is on average when a round of this time is answered: nodes speak once an interval, each at a
 * moment of its own, and the watermark is that of the one who spoke first.
 */
uint64_t membership_news_age(uint32_t live, uint32_t suspect, uint64_t watermark_ns, uint64_t now_ns,
                             uint64_t interval_ns);

/* Whether those awaited are all there; or nobody is awaited. */
bool membership_complete(const struct membership *membership);
/* Whether those awaited have been there long enough for everybody to know, and it is time to tell what was held back.
 */
bool membership_tells(const struct membership *membership, uint64_t monotonic_ns);
/* Whether nodes that were suspect are live again, and may not have told all yet. */
bool membership_resumes(const struct membership *membership, uint64_t monotonic_ns);
bool membership_awaits(const struct membership *membership, uint64_t monotonic_ns);

#endif
