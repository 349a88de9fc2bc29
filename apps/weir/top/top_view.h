/* SPDX-License-Identifier: Apache-2.0 */
/* What weir top shows, as lines of text: the screen draws them, and --once prints them. */
#ifndef WEIR_TOP_VIEW_H
#define WEIR_TOP_VIEW_H

#include "../output.h"
#include "fleet_sample.h"
#include "top_nodes.h"

#define VIEW_LINE_SIZE 256

enum top_sort { SORT_DENIED, SORT_OFFERED, SORT_NAME, SORT_COUNT };

struct view_line {
    char text[VIEW_LINE_SIZE]; /* printable */
    enum style style;
};

struct top_view {
    struct view_line *lines;
    size_t count, capacity;
    bool no_memory; /* lines are missing */
};

void top_view_nodes(struct top_view *view, const struct top_nodes *nodes, enum top_sort sort);
void top_view_fleet(struct top_view *view, const struct fleet_sample *sample);
void top_view_help(struct top_view *view);
void top_view_clear(struct top_view *view);
void top_view_free(struct top_view *view);

/* "denied", "offered", "name" */
const char *top_sort_name(enum top_sort sort);

/* The keys of all nodes together, most denied first; the caller frees them. NULL: no memory. */
struct top_key *top_keys_merge(const struct top_nodes *nodes, size_t *count);

#endif
