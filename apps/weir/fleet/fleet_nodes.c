/* SPDX-License-Identifier: Apache-2.0 */
/* See fleet_nodes.h. */
#include "fleet_nodes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "fleet_round.h"

static int compare_nodes(const void *left, const void *right)
{
    const struct fleet_node *a = left;
    const struct fleet_node *b = right;
    if (a->reported_ms != b->reported_ms) {
        return a->reported_ms > b->reported_ms ? -1 : 1;
    }
    return strcmp(a->id, b->id);
}

/* Takes the answer of read_nodes.lua. False: out of memory. */
static bool take_nodes(const struct inspection *answer, struct fleet_nodes *out)
{
    const struct inspected *all = answer->all;
    out->wrong_type = all[0].number == 1;
    out->exists = all[0].number != 2;
    out->server_us = (uint64_t) all[1].number;
    out->ahead_us = all[2].number;
    out->foreign = (size_t) all[3].number;
    out->all = calloc(answer->count / 4 + 1, sizeof(*out->all));
    for (size_t i = 4; i + 4 <= answer->count && out->all != NULL; i += 4) {
        struct fleet_node *node = &out->all[out->count];
        if (all[i].text != NULL && strlen(all[i].text) < sizeof(node->id)) {
            (void) snprintf(node->id, sizeof(node->id), "%s", all[i].text);
            node->reported_ms = (uint64_t) all[i + 1].number;
            node->suspect_ms = (uint64_t) all[i + 2].number;
            node->lifetime_ms = (uint64_t) all[i + 3].number;
            out->count++;
        }
    }
    return out->all != NULL;
}

/* Judges each node by fleet time. */
static void judge(struct fleet_nodes *out)
{
    const int64_t fleet_us = (int64_t) out->server_us + out->ahead_us;
    out->fleet_us = fleet_us > 0 ? (uint64_t) fleet_us : 0;
    for (size_t i = 0; i < out->count; i++) {
        struct fleet_node *node = &out->all[i];
        const uint64_t age_ms = fleet_node_age_ms(out, node);
        node->state = age_ms >= node->lifetime_ms  ? FLEET_NODE_FAILED
                      : age_ms >= node->suspect_ms ? FLEET_NODE_SUSPECT
                                                   : FLEET_NODE_LIVE;
    }
    if (out->count != 0) {
        qsort(out->all, out->count, sizeof(*out->all), compare_nodes);
    }
}

bool fleet_nodes_read(struct redis_link *link, const char *prefix, struct fleet_nodes *out, weir_error *error)
{
    *out = (struct fleet_nodes){.exists = false};
    (void) snprintf(out->key, sizeof(out->key), "%s:nodes", prefix);
    struct inspection asked = {.kind = INSPECT_NODES, .words = {out->key}, .key_count = 1};
    bool good = fleet_inspect(link, prefix, &asked, error);
    if (good && asked.count < 4) {
        good = error_set(error, -EPROTO, "%s: Redis gave an answer of an unknown form", out->key) == 0;
    } else if (good && !take_nodes(&asked, out)) {
        good = error_set(error, -ENOMEM, "out of memory") == 0;
    }
    inspection_free(&asked);
    judge(out);
    return good;
}

void fleet_nodes_free(struct fleet_nodes *nodes)
{
    free(nodes->all);
    nodes->all = NULL;
    nodes->count = 0;
}

const struct fleet_node *fleet_nodes_find(const struct fleet_nodes *nodes, const char *id)
{
    for (size_t i = 0; i < nodes->count; i++) {
        if (strcmp(nodes->all[i].id, id) == 0) {
            return &nodes->all[i];
        }
    }
    return NULL;
}

const char *fleet_node_state_name(enum fleet_node_state state)
{
    static const char *const names[] = {
        [FLEET_NODE_LIVE] = "live", [FLEET_NODE_SUSPECT] = "suspect", [FLEET_NODE_FAILED] = "failed"};
    return names[state];
}

uint64_t fleet_node_age_ms(const struct fleet_nodes *nodes, const struct fleet_node *node)
{
    const uint64_t now_ms = nodes->fleet_us / 1000;
    return now_ms > node->reported_ms ? now_ms - node->reported_ms : 0;
}
