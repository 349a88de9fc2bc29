/* SPDX-License-Identifier: Apache-2.0 */
/* See key_record.h, and src/transport/redis/scripts/read_authors.lua. */
#include "key_record.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/numbers.h"
#include "transport/author.h"

#define AUTHOR_VALUES 5 /* of the script, for each author */

/* Names the node of an author: a node that is there by its id, another one by the first digits of its id, and whatever
 * else stands in the record as it stands there. */
static void name_node(const struct fleet_nodes *nodes, const char *author, char out[FLEET_NODE_SIZE])
{
    if (!author_is_name(author)) {
        (void) snprintf(out, FLEET_NODE_SIZE, "%s", author);
        return;
    }
    (void) snprintf(out, FLEET_NODE_SIZE, "%06" PRIx32 "...", author_node(author));
    for (size_t i = 0; i < nodes->count; i++) {
        if (author_is_of(author, nodes->all[i].id)) {
            (void) snprintf(out, FLEET_NODE_SIZE, "%s", nodes->all[i].id);
        }
    }
}

/* The part of a node, which is added to parts that have room. */
static struct record_part *part_of(struct key_record *record, const char *node)
{
    for (size_t i = 0; i < record->part_count; i++) {
        if (strcmp(record->parts[i].node, node) == 0) {
            return &record->parts[i];
        }
    }
    struct record_part *part = &record->parts[record->part_count++];
    *part = (struct record_part){.admitted = 0};
    (void) snprintf(part->node, sizeof(part->node), "%s", node);
    return part;
}

static int compare_parts(const void *left, const void *right)
{
    const struct record_part *a = left;
    const struct record_part *b = right;
    if (a->admitted != b->admitted) {
        return a->admitted > b->admitted ? -1 : 1;
    }
    return strcmp(a->node, b->node);
}

bool key_record_take(struct key_record *out, const struct report *report, const struct inspection *authors,
                     const struct fleet_nodes *nodes, weir_error *error)
{
    out->wrong_type = report->status == -EPROTO || (authors->count != 0 && authors->all[0].number == 1);
    out->exists = authors->count == 0 || authors->all[0].number != 2;
    if (!out->wrong_type) {
        out->net = saturating_sub(report->sum, report->sum_refunds);
        out->demand = report->sum_demand;
        out->refunds = report->sum_refunds;
    }
    out->parts = calloc(authors->count / AUTHOR_VALUES + 1, sizeof(*out->parts));
    if (out->parts == NULL) {
        return error_set(error, -ENOMEM, "out of memory") == 0;
    }
    for (size_t i = 1; i + AUTHOR_VALUES <= authors->count; i += AUTHOR_VALUES) {
        const struct inspected *values = &authors->all[i];
        char node[FLEET_NODE_SIZE];
        name_node(nodes, values[0].text != NULL ? values[0].text : "", node);
        struct record_part *part = part_of(out, node);
        part->admitted = saturating_add(part->admitted, (uint64_t) values[1].number);
        part->demand = saturating_add(part->demand, (uint64_t) values[2].number);
        part->refunds = saturating_add(part->refunds, (uint64_t) values[3].number);
        part->reported_us = max_u64(part->reported_us, (uint64_t) values[4].number);
    }
    if (out->part_count != 0) {
        qsort(out->parts, out->part_count, sizeof(*out->parts), compare_parts);
    }
    return true;
}

void key_record_free(struct key_record *record)
{
    free(record->parts);
    record->parts = NULL;
    record->part_count = 0;
}
