/* SPDX-License-Identifier: Apache-2.0 */
/* The nodes of a fleet and its time: the answer of src/transport/redis/scripts/read_nodes.lua. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/numbers.h"
#include "inspect/inspector.h"

/* Values of the answer: before the nodes, and of each node. */
#define FLEET_VALUES 4
#define NODE_VALUES  4

/* The largest times in an answer, as read_nodes.lua and nodes.lua have them: 2^53, and 100 years. */
#define CLOCK_MOST_US (INT64_C(1) << 53)
#define AHEAD_MOST_US (INT64_C(3155760000) * 1000000)

static bool is_time(const struct inspected *value, int64_t least, int64_t most)
{
    return value->text == NULL && value->number >= least && value->number <= most;
}

/* Whether the script can have answered this. */
static bool is_answer(const struct inspection *answer)
{
    const struct inspected *all = answer->all;
    bool good = answer->count >= FLEET_VALUES && (answer->count - FLEET_VALUES) % NODE_VALUES == 0 &&
                is_time(&all[1], 0, CLOCK_MOST_US) && is_time(&all[2], -AHEAD_MOST_US, AHEAD_MOST_US) &&
                is_time(&all[3], 0, INT32_MAX);
    for (size_t i = FLEET_VALUES; i < answer->count && good; i += NODE_VALUES) {
        good = all[i].text != NULL;
        for (size_t n = 1; n < NODE_VALUES; n++) {
            good = good && is_time(&all[i + n], 0, CLOCK_MOST_US);
        }
    }
    return good;
}

static int compare_nodes(const void *left, const void *right)
{
    const weir_inspected_node *a = left;
    const weir_inspected_node *b = right;
    if (a->reported_ns != b->reported_ns) {
        return a->reported_ns > b->reported_ns ? -1 : 1;
    }
    return strcmp(a->id, b->id);
}

/* A node by its four values and the fleet's time. Its id is NULL where there is no memory. */
static weir_inspected_node node_of(weir_inspector *in, const struct inspected *values, uint64_t time_ns)
{
    weir_inspected_node node = {.id = shelf_text(&in->of_fleet, values[0].text),
                                .reported_ns = saturating_mul((uint64_t) values[1].number, NS_PER_MS),
                                .suspect_ns = saturating_mul((uint64_t) values[2].number, NS_PER_MS),
                                .failed_ns = saturating_mul((uint64_t) values[3].number, NS_PER_MS)};
    node.age_ns = saturating_sub(time_ns, node.reported_ns);
    node.state = node.age_ns >= node.failed_ns    ? WEIR_NODE_FAILED
                 : node.age_ns >= node.suspect_ns ? WEIR_NODE_SUSPECT
                                                  : WEIR_NODE_LIVE;
    return node;
}

/* False: no memory. */
static bool take(weir_inspector *in, const struct inspection *answer, const char *record)
{
    const struct inspected *all = answer->all;
    weir_inspected_node *nodes = shelf_take(&in->of_fleet, answer->count / NODE_VALUES + 1, sizeof(*nodes));
    const int64_t time_us = all[1].number + all[2].number;
    in->fleet = (weir_inspected_fleet){.record = shelf_text(&in->of_fleet, record),
                                       .exists = all[0].number != 2,
                                       .wrong_type = all[0].number == 1,
                                       .nodes = nodes,
                                       .foreign_count = (size_t) all[3].number,
                                       .time_ns = time_us > 0 ? saturating_mul((uint64_t) time_us, NS_PER_US) : 0,
                                       .ahead_ns = all[2].number * (int64_t) NS_PER_US};
    bool good = nodes != NULL && in->fleet.record != NULL;
    for (size_t i = FLEET_VALUES; i < answer->count && good; i += NODE_VALUES) {
        nodes[in->fleet.node_count] = node_of(in, &all[i], in->fleet.time_ns);
        good = nodes[in->fleet.node_count++].id != NULL;
    }
    if (good && in->fleet.node_count != 0) {
        qsort(nodes, in->fleet.node_count, sizeof(*nodes), compare_nodes);
    }
    return good;
}

int weir_inspect_fleet(weir_inspector *in, const weir_inspected_fleet **out, weir_error *error)
{
    char record[INSPECTOR_KEY_SIZE];
    (void) snprintf(record, sizeof(record), "%s:nodes", in->prefix);
    struct inspection asked = {.kind = INSPECT_NODES, .words = {record}, .key_count = 1};
    *out = NULL;
    shelf_clear(&in->of_fleet);
    int result = inspector_ask(in, &asked, error);
    if (result == 0 && !is_answer(&asked)) {
        result = error_set(error, -EPROTO, "%s: Redis gave an answer of an unknown form", record);
    } else if (result == 0 && !take(in, &asked, record)) {
        result = error_set(error, -ENOMEM, "out of memory");
    }
    inspection_free(&asked);
    *out = result == 0 ? &in->fleet : NULL;
    return result;
}
