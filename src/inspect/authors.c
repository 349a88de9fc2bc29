/* SPDX-License-Identifier: Apache-2.0 */
/* See authors.h: the answer of src/transport/redis/scripts/read_authors.lua. */
#include "inspect/authors.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/numbers.h"
#include "transport/author.h"

#define AUTHOR_VALUES 5 /* of the answer, for each author */

/*
 * Names the node of an author: a node that is there by its id, another one by the first digits of its id, and whatever
 * else stands in the record as it stands there. NULL: no memory.
 */
static const char *node_of(struct shelf *shelf, const weir_inspected_fleet *fleet, const char *author)
{
    char digits[16];
    if (!author_is_name(author)) {
        return shelf_text(shelf, author);
    }
    for (size_t i = 0; i < fleet->node_count; i++) {
        if (author_is_of(author, fleet->nodes[i].id)) {
            return shelf_text(shelf, fleet->nodes[i].id);
        }
    }
    (void) snprintf(digits, sizeof(digits), "%06" PRIx32 "...", author_node(author));
    return shelf_text(shelf, digits);
}

/* A number of the answer, which may be any. */
static uint64_t number_of(const struct inspected *value)
{
    return value->number > 0 ? (uint64_t) value->number : 0;
}

static int compare_names(const void *left, const void *right)
{
    const weir_inspected_author *a = left;
    const weir_inspected_author *b = right;
    return strcmp(a->node, b->node);
}

static int compare_counts(const void *left, const void *right)
{
    const weir_inspected_author *a = left;
    const weir_inspected_author *b = right;
    if (a->admitted != b->admitted) {
        return a->admitted > b->admitted ? -1 : 1;
    }
    return strcmp(a->node, b->node);
}

/* Makes one author of those of one node: one for each time that it has held the key. Returns how many are left. */
static size_t join_nodes(weir_inspected_author *all, size_t count)
{
    size_t kept = 0;
    if (count != 0) {
        qsort(all, count, sizeof(*all), compare_names);
    }
    for (size_t i = 0; i < count; i++) {
        if (kept == 0 || strcmp(all[kept - 1].node, all[i].node) != 0) {
            all[kept++] = all[i];
            continue;
        }
        weir_inspected_author *author = &all[kept - 1];
        author->admitted = saturating_add(author->admitted, all[i].admitted);
        author->demand = saturating_add(author->demand, all[i].demand);
        author->refunds = saturating_add(author->refunds, all[i].refunds);
        author->reported_ns = max_u64(author->reported_ns, all[i].reported_ns);
    }
    return kept;
}

bool authors_take(struct shelf *shelf, const struct report *report, const struct inspection *authors,
                  const weir_inspected_fleet *fleet, weir_inspected_record *out)
{
    weir_inspected_author *all = shelf_take(shelf, authors->count / AUTHOR_VALUES + 1, sizeof(*all));
    *out = (weir_inspected_record){.name = shelf_text(shelf, report->record)};
    out->wrong_type = report->status == -EPROTO || (authors->count != 0 && authors->all[0].number == 1);
    out->exists = authors->count == 0 || authors->all[0].number != 2;
    if (!out->wrong_type) {
        out->used = saturating_sub(report->sum, report->sum_refunds);
        out->demand = report->sum_demand;
        out->refunds = report->sum_refunds;
    }
    size_t count = 0;
    bool good = all != NULL && out->name != NULL;
    for (size_t i = 1; i + AUTHOR_VALUES <= authors->count && good; i += AUTHOR_VALUES) {
        const struct inspected *values = &authors->all[i];
        all[count] =
            (weir_inspected_author){.node = node_of(shelf, fleet, values[0].text != NULL ? values[0].text : ""),
                                    .admitted = number_of(&values[1]),
                                    .demand = number_of(&values[2]),
                                    .refunds = number_of(&values[3]),
                                    .reported_ns = saturating_mul(number_of(&values[4]), NS_PER_US)};
        good = all[count++].node != NULL;
    }
    if (good) {
        out->authors = all;
        out->author_count = join_nodes(all, count);
    }
    if (good && out->author_count != 0) {
        qsort(all, out->author_count, sizeof(*all), compare_counts);
    }
    return good;
}
