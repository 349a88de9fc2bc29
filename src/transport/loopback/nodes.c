/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Heartbeats and fleet time, by the rules of transport.h and scripts/heartbeat.lua, written as plainly as possible: the
 * tests hold the script against this file (tests/redis/clock_test.c, tests/redis/transport_test.c).
 *
 * Invariants
 *   L1  fleet time = the fleet's clock + offset, and never steps back but where the set of nodes was lost
 *   L2  an offset above 0 goes at 1/OFFSET_SLOWER of time; nodes slew faster, so they follow
 *   L3  a step of more than STEP_MOST_NS needs a witness: the node's own fleet time, or the clock of its host
 */
#include "transport/loopback/nodes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/numbers.h"

/* The numbers of heartbeat.lua. */
#define OFFSET_SLOWER   256
#define OFFSET_GUESS_NS ((int64_t) 50 * (int64_t) NS_PER_MS)
#define OFFSET_MOST_NS  (INT64_C(3155760000) * (int64_t) NS_PER_S) /* 100 years */
#define STEP_MOST_NS    (INT64_C(3600) * (int64_t) NS_PER_S)
#define FOLLOW_MOST_NS  (INT64_C(63072000) * (int64_t) NS_PER_S) /* two years */

struct node {
    struct node *next;
    char name[REPORT_AUTHOR_SIZE];
    uint64_t last_ns; /* its last heartbeat, fleet time */
    uint32_t suspect_ms, lifetime_ms;
};

void nodes_clear(struct nodes *nodes)
{
    while (nodes->first != NULL) {
        struct node *next = nodes->first->next;
        free(nodes->first);
        nodes->first = next;
    }
    *nodes = (struct nodes){.first = NULL};
}

bool nodes_copy(struct nodes *to, const struct nodes *from)
{
    nodes_clear(to);
    struct node **at = &to->first;
    for (const struct node *node = from->first; node != NULL; node = node->next) {
        *at = malloc(sizeof(**at));
        if (*at == NULL) {
            nodes_clear(to);
            return false;
        }
        **at = *node;
        (*at)->next = NULL;
        at = &(*at)->next;
    }
    to->created_ns = from->created_ns;
    to->offset_ns = from->offset_ns;
    to->noted_ns = from->noted_ns;
    return true;
}

static uint64_t last_heartbeat(const struct nodes *nodes, const char *name)
{
    for (const struct node *node = nodes->first; node != NULL; node = node->next) {
        if (strcmp(node->name, name) == 0) {
            return node->last_ns;
        }
    }
    return 0;
}

/* Removes a node. Returns its last heartbeat; 0: there was no such node. */
static uint64_t remove_heartbeat(struct nodes *nodes, const char *name)
{
    for (struct node **at = &nodes->first; *at != NULL; at = &(*at)->next) {
        struct node *node = *at;
        if (strcmp(node->name, name) == 0) {
            const uint64_t last_ns = node->last_ns;
            *at = node->next;
            free(node);
            return last_ns;
        }
    }
    return 0;
}

static void add_heartbeat(struct nodes *nodes, const struct round *round, uint64_t now_ns)
{
    struct node *node = calloc(1, sizeof(*node));
    if (node != NULL) {
        (void) snprintf(node->name, sizeof(node->name), "%s", round->node);
        node->last_ns = now_ns;
        node->suspect_ms = round->suspect_ms != 0 ? round->suspect_ms : round->node_lifetime_ms;
        node->lifetime_ms = round->node_lifetime_ms;
        node->next = nodes->first;
        nodes->first = node;
    }
}

/* What one heartbeat tells of the time. */
struct reading {
    int64_t clock_ns;                /* the fleet's clock */
    int64_t node_ns;                 /* fleet time by the node; 0: it knows none */
    int64_t earliest_ns, latest_ns;  /* heartbeats */
    bool has_latest;                 /* there is a heartbeat, or a node that left has noted the time */
    bool is_confirmed, is_contested; /* the clock of the node's host agrees with the fleet's; disagrees */
};

/* What becomes of the offset. */
struct change {
    int64_t offset_ns;
    int64_t shift_ns; /* the heartbeats move by this much with fleet time */
    bool is_noted;    /* the offset is written down */
    bool is_unreal;   /* the latest heartbeat is one that no node has made */
};

static struct reading read_time(const struct nodes *nodes, const struct round *round, int64_t clock_ns)
{
    const int64_t host_ahead_ns = (int64_t) round->wall_ns - clock_ns;
    const bool agrees = host_ahead_ns <= STEP_MOST_NS && host_ahead_ns >= -STEP_MOST_NS;
    struct reading r = {.clock_ns = clock_ns,
                        .node_ns = (int64_t) round->fleet_ns,
                        .earliest_ns = INT64_MAX,
                        .is_confirmed = round->wall_ns != 0 && agrees,
                        .is_contested = round->wall_ns != 0 && !agrees};
    for (const struct node *node = nodes->first; node != NULL; node = node->next) {
        r.earliest_ns = (int64_t) node->last_ns < r.earliest_ns ? (int64_t) node->last_ns : r.earliest_ns;
        r.latest_ns = (int64_t) node->last_ns > r.latest_ns ? (int64_t) node->last_ns : r.latest_ns;
    }
    if (nodes->first == NULL && nodes->noted_ns != 0) {
        r.latest_ns = (int64_t) nodes->noted_ns + nodes->offset_ns;
    }
    r.has_latest = r.latest_ns != 0;
    return r;
}

/* True if fleet time goes forward from this time to the fleet's clock. */
static bool follows(const struct reading *r, int64_t from_ns)
{
    return !r->is_contested && r->clock_ns - from_ns <= FOLLOW_MOST_NS;
}

/* The noted offset, less what has gone of it since. */
static int64_t current_offset(const struct nodes *nodes, int64_t clock_ns)
{
    if (nodes->offset_ns <= 0) {
        return nodes->offset_ns;
    }
    const int64_t passed_ns = clock_ns - (int64_t) nodes->noted_ns;
    const int64_t left_ns = nodes->offset_ns - (passed_ns > 0 ? passed_ns / OFFSET_SLOWER : 0);
    return passed_ns < -STEP_MOST_NS || left_ns < 0 ? 0 : left_ns;
}

/* There is no heartbeat: fleet time is the first node's. */
static void start_at_node(struct change *change, const struct reading *r)
{
    const int64_t now_ns = r->clock_ns + change->offset_ns;
    const bool is_ahead = r->node_ns > now_ns + OFFSET_GUESS_NS && r->node_ns <= r->clock_ns + OFFSET_MOST_NS;
    const bool is_behind = r->node_ns > 0 && r->node_ns < now_ns - STEP_MOST_NS && !follows(r, r->node_ns);
    if (is_ahead || is_behind) {
        change->offset_ns = r->node_ns - r->clock_ns;
        change->is_noted = true;
    }
}

/* The latest heartbeat is after fleet time: the clock has stepped back, or no node has made that heartbeat. */
static void step_back(struct change *change, const struct reading *r, uint64_t lifetime_ns)
{
    const int64_t now_ns = r->clock_ns + change->offset_ns;
    bool is_real = true;
    if (r->latest_ns - now_ns > STEP_MOST_NS) {
        is_real = r->node_ns > 0 ? r->node_ns > now_ns + STEP_MOST_NS : r->earliest_ns > now_ns;
    }
    if (!is_real || r->latest_ns > r->clock_ns + OFFSET_MOST_NS) {
        change->is_unreal = true;
        return;
    }
    /* The node knows how long ago the latest heartbeat was. */
    const bool knows = r->node_ns > r->latest_ns && r->node_ns < r->latest_ns + (int64_t) lifetime_ns;
    change->offset_ns = (knows ? r->node_ns : r->latest_ns) - r->clock_ns;
    change->is_noted = true;
}

/* Fleet time is more than STEP_MOST_NS after both the node's and the latest heartbeat: the clock has stepped forward.
 */
static void step_forward(struct change *change, const struct reading *r, int64_t before_ns)
{
    change->is_noted = true;
    if (r->clock_ns <= before_ns + STEP_MOST_NS) {
        change->offset_ns = before_ns > r->clock_ns ? before_ns - r->clock_ns : 0;
    } else if (!follows(r, before_ns)) {
        change->offset_ns = before_ns - r->clock_ns;
    } else {
        change->offset_ns = 0;
        change->shift_ns = r->clock_ns - before_ns;
    }
}

/* Fleet time at this heartbeat. */
static uint64_t advance_fleet_time(struct nodes *nodes, const struct round *round, uint64_t wall_ns)
{
    const struct reading r = read_time(nodes, round, (int64_t) wall_ns);
    struct change change = {.offset_ns = current_offset(nodes, r.clock_ns)};
    change.is_noted = change.offset_ns == 0 && nodes->offset_ns != 0;
    const int64_t now_ns = r.clock_ns + change.offset_ns;
    const int64_t before_ns = r.node_ns > r.latest_ns ? r.node_ns : r.latest_ns;
    if (!r.has_latest) {
        start_at_node(&change, &r);
    } else if (r.latest_ns > now_ns) {
        step_back(&change, &r, round->node_lifetime_ms * NS_PER_MS);
    } else if (before_ns < now_ns - STEP_MOST_NS) {
        step_forward(&change, &r, before_ns);
    } else if (change.offset_ns < 0 && r.is_confirmed && -change.offset_ns <= FOLLOW_MOST_NS) {
        change.shift_ns = -change.offset_ns;
        change.offset_ns = 0;
        change.is_noted = true;
    }
    if (change.offset_ns < 0 && change.offset_ns >= -STEP_MOST_NS) {
        change.offset_ns = 0;
        change.is_noted = true;
    }
    if (change.is_noted || round->leaves) {
        nodes->offset_ns = change.offset_ns;
        nodes->noted_ns = change.offset_ns != 0 || round->leaves ? wall_ns : 0;
    }
    const uint64_t fleet_ns = (uint64_t) (r.clock_ns + change.offset_ns);
    if (change.is_unreal || change.shift_ns != 0) {
        for (struct node *node = nodes->first; node != NULL; node = node->next) {
            node->last_ns = min_u64(node->last_ns + (uint64_t) change.shift_ns, fleet_ns);
        }
    }
    nodes->created_ns = nodes->created_ns != 0 ? nodes->created_ns : wall_ns;
    return fleet_ns;
}

uint64_t nodes_heartbeat(struct nodes *nodes, struct round *round, uint64_t clock_ns)
{
    const uint64_t now_ns = advance_fleet_time(nodes, round, clock_ns);
    const uint64_t last_ns = round->asks ? last_heartbeat(nodes, round->node) : remove_heartbeat(nodes, round->node);
    round->fleet_wall_ns = now_ns;
    round->ahead_ns = (int64_t) (now_ns - clock_ns);
    if (!round->leaves && !round->asks) {
        const uint64_t reported_ns = max_u64(round->fleet_ns != 0 ? round->fleet_ns : now_ns, last_ns);
        add_heartbeat(nodes, round, min_u64(reported_ns, now_ns));
    }
    round->live_nodes = round->suspect_nodes = 0;
    round->watermark_ns = now_ns;
    for (struct node **at = &nodes->first; *at != NULL;) {
        struct node *node = *at;
        const uint64_t silent_ns = saturating_sub(now_ns, node->last_ns);
        if (silent_ns > node->lifetime_ms * NS_PER_MS) {
            *at = node->next;
            free(node);
            continue;
        }
        /* A node is live to itself, even if it has not reported for long. */
        const bool own = strcmp(node->name, round->node) == 0;
        const bool suspect = !own && silent_ns > node->suspect_ms * NS_PER_MS;
        round->suspect_nodes += suspect;
        round->live_nodes += !own && !suspect;
        round->watermark_ns = min_u64(round->watermark_ns, node->last_ns);
        at = &node->next;
    }
    round->live_nodes += !round->leaves;
    return last_ns;
}
