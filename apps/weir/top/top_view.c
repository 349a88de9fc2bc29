/* SPDX-License-Identifier: Apache-2.0 */
/* See top_view.h. */
#include "top_view.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../fleet/node_state.h"
#include "base/numbers.h"
#include "base/plain.h"

#define NUMBER_SIZE 32

/* The width of keys; longer ones push their line to the right. */
#define KEY_WIDTH 40

/* The rows of a table of keys. */
#define KEYS_SHOWN 100

/* The rows of a table of nodes. */
#define NODES_SHOWN 1000

/* A policy with the rates of all nodes together. */
struct policy_row {
    const struct top_policy *policy; /* of the first node that has it */
    double allowed, denied, would_deny;
    unsigned nodes, in_outage;
    const char *outage_mode;
};

__attribute__((format(printf, 3, 4))) static void add(struct top_view *view, enum style style, const char *format, ...)
{
    if (view->count == view->capacity) {
        const size_t capacity = 2 * view->capacity + 64;
        struct view_line *grown = realloc(view->lines, capacity * sizeof(*grown));
        if (grown == NULL) {
            view->no_memory = true;
            return;
        }
        view->lines = grown;
        view->capacity = capacity;
    }
    struct view_line *line = &view->lines[view->count++];
    line->style = style;
    va_list arguments;
    va_start(arguments, format);
    (void) vsnprintf(line->text, sizeof(line->text), format, arguments);
    va_end(arguments);
}

void top_view_clear(struct top_view *view)
{
    view->count = 0;
}

void top_view_free(struct top_view *view)
{
    free(view->lines);
    memset(view, 0, sizeof(*view));
}

const char *top_sort_name(enum top_sort sort)
{
    static const char *const names[] = {[SORT_DENIED] = "denied", [SORT_OFFERED] = "offered", [SORT_NAME] = "name"};
    return names[sort];
}

/* A number in at most six characters: "-", "0.25", "812", "12.5k". */
static const char *short_number(char out[NUMBER_SIZE], double value)
{
    static const struct {
        double size;
        char letter;
    } units[] = {{1e12, 'T'}, {1e9, 'G'}, {1e6, 'M'}, {1e4, 'k'}};
    if (value < 0) {
        return "-";
    }
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        if (value >= units[i].size) {
            const double part = value / (units[i].letter == 'k' ? 1e3 : units[i].size);
            (void) snprintf(out, NUMBER_SIZE, part < 100 ? "%.1f%c" : "%.0f%c", part, units[i].letter);
            return out;
        }
    }
    (void) snprintf(out, NUMBER_SIZE, value < 10 && value != (double) (int) value ? "%.1f" : "%.0f", value);
    return out;
}

static const char *age_words(char out[NUMBER_SIZE], int64_t ms)
{
    if (ms < 0) {
        return "never";
    }
    if (ms < 10000) {
        (void) snprintf(out, NUMBER_SIZE, "%" PRId64 " ms", ms);
    } else if (ms < 600000) {
        (void) snprintf(out, NUMBER_SIZE, "%" PRId64 " s", ms / 1000);
    } else {
        (void) snprintf(out, NUMBER_SIZE, "%" PRId64 " min", ms / 60000);
    }
    return out;
}

/* The outage mode of a node: that of the first policy in one; "none". */
static const char *node_outage(const struct top_node *node)
{
    for (size_t i = 0; i < node->now.policy_count; i++) {
        if (strcmp(node->now.policies[i].basis, "outage") == 0) {
            return node->now.policies[i].outage_mode;
        }
    }
    return "none";
}

static void add_node(struct top_view *view, const struct top_node *node)
{
    char allowed[NUMBER_SIZE];
    char denied[NUMBER_SIZE];
    char age[NUMBER_SIZE];
    char errors[NUMBER_SIZE];
    char keys[NUMBER_SIZE];
    if (!node->up) {
        add(view, STYLE_BAD, "%-22.22s %-16.16s unreachable: %s", node->address, node->has_now ? node->now.name : "",
            node->error[0] != '\0' ? node->error : "not asked yet");
        return;
    }
    const char *outage = node_outage(node);
    const bool well = strcmp(outage, "none") == 0 && strcmp(node->now.link, "down") != 0;
    const bool alone = strcmp(node->now.link, "none") == 0;
    add(view, well ? STYLE_PLAIN : STYLE_BAD, "%-22.22s %-16.16s %-5s %7s %5" PRIu64 " %8s %-7s %8s %8s %7s",
        node->address, node->now.name, node->now.link, alone ? "-" : age_words(age, node->now.fleet_age_ms),
        node->now.live_nodes, short_number(errors, top_rate(node, node->now.sync_errors, node->before.sync_errors)),
        outage, short_number(allowed, top_rate(node, node->now.allowed, node->before.allowed)),
        short_number(denied, top_rate(node, node->now.denied, node->before.denied)),
        short_number(keys, (double) node->now.key_count));
}

static void add_node_table(struct top_view *view, const struct top_nodes *nodes)
{
    size_t up = 0;
    for (size_t i = 0; i < nodes->count; i++) {
        up += nodes->all[i].up;
    }
    add(view, STYLE_NAME, "Nodes: %zu of %zu answer", up, nodes->count);
    add(view, STYLE_NAME, "%-22s %-16s %-5s %7s %5s %8s %-7s %8s %8s %7s", "address", "name", "redis", "sync", "nodes",
        "errors/s", "outage", "admit/s", "deny/s", "keys");
    for (size_t i = 0; i < nodes->count; i++) {
        add_node(view, &nodes->all[i]);
    }
}

/* Adds a rate to a sum that may not be known yet. */
static void add_rate(double *sum, double rate)
{
    if (rate >= 0) {
        *sum = *sum < 0 ? rate : *sum + rate;
    }
}

static size_t row_of(struct policy_row *rows, size_t *count, const struct top_policy *policy)
{
    size_t at = 0;
    while (at < *count && strcmp(rows[at].policy->name, policy->name) != 0) {
        at++;
    }
    if (at == *count) {
        rows[(*count)++] = (struct policy_row){.policy = policy, .allowed = -1, .denied = -1, .would_deny = -1};
    }
    return at;
}

static void add_to_row(struct policy_row *row, const struct top_node *node, const struct top_policy *policy)
{
    static const struct top_policy none = {.allowed = 0};
    const struct top_policy *before = top_status_policy(&node->before, policy->name);
    before = before != NULL ? before : &none;
    add_rate(&row->allowed, top_rate(node, policy->allowed, before->allowed));
    add_rate(&row->denied, top_rate(node, policy->denied, before->denied));
    add_rate(&row->would_deny, top_rate(node, policy->would_deny, before->would_deny));
    row->nodes++;
    if (strcmp(policy->basis, "outage") == 0) {
        row->in_outage++;
        row->outage_mode = policy->outage_mode;
    }
}

static enum top_sort sort_by; /* of the comparisons, which take no argument of their own */

static int compare_rows(const void *a, const void *b)
{
    const struct policy_row *one = a;
    const struct policy_row *other = b;
    const double by = sort_by == SORT_DENIED    ? other->denied - one->denied
                      : sort_by == SORT_OFFERED ? other->allowed + other->denied - one->allowed - one->denied
                                                : 0;
    return by > 0 ? 1 : by < 0 ? -1 : strcmp(one->policy->name, other->policy->name);
}

static void add_policy_table(struct top_view *view, const struct top_nodes *nodes, enum top_sort sort)
{
    size_t most = 1;
    size_t count = 0;
    for (size_t i = 0; i < nodes->count; i++) {
        most += nodes->all[i].now.policy_count;
    }
    struct policy_row *rows = calloc(most, sizeof(*rows));
    if (rows == NULL) {
        view->no_memory = true;
        return;
    }
    for (size_t i = 0; i < nodes->count; i++) {
        const struct top_node *node = &nodes->all[i];
        for (size_t j = 0; node->up && j < node->now.policy_count; j++) {
            add_to_row(&rows[row_of(rows, &count, &node->now.policies[j])], node, &node->now.policies[j]);
        }
    }
    sort_by = sort;
    qsort(rows, count, sizeof(*rows), compare_rows);
    add(view, STYLE_NAME, "Policies, by %s", top_sort_name(sort));
    add(view, STYLE_NAME, "%-32s %-7s %5s %-16s %8s %8s %8s %8s", "name", "mode", "nodes", "outage", "offer/s",
        "admit/s", "deny/s", "would/s");
    for (size_t i = 0; i < count; i++) {
        const struct policy_row *row = &rows[i];
        char outage[NUMBER_SIZE];
        char numbers[4][NUMBER_SIZE];
        (void) snprintf(outage, sizeof(outage), "%s on %u", row->outage_mode != NULL ? row->outage_mode : "",
                        row->in_outage);
        add(view, row->in_outage != 0 ? STYLE_BAD : STYLE_PLAIN, "%-32.60s %-7s %5u %-16s %8s %8s %8s %8s",
            row->policy->name, row->policy->mode, row->nodes, row->in_outage != 0 ? outage : "none",
            short_number(numbers[0], row->allowed < 0 ? -1 : row->allowed + row->denied),
            short_number(numbers[1], row->allowed), short_number(numbers[2], row->denied),
            short_number(numbers[3], row->would_deny));
    }
    free(rows);
}

static int compare_keys(const void *a, const void *b)
{
    const struct top_key *one = a;
    const struct top_key *other = b;
    if (one->denied_units != other->denied_units) {
        return one->denied_units < other->denied_units ? 1 : -1;
    }
    return strcmp(one->key, other->key);
}

struct top_key *top_keys_merge(const struct top_nodes *nodes, size_t *count)
{
    size_t most = 1;
    for (size_t i = 0; i < nodes->count; i++) {
        most += nodes->all[i].now.key_count_listed;
    }
    struct top_key *keys = calloc(most, sizeof(*keys));
    *count = 0;
    for (size_t i = 0; i < nodes->count && keys != NULL; i++) {
        const struct top_node *node = &nodes->all[i];
        for (size_t j = 0; node->up && j < node->now.key_count_listed; j++) {
            const struct top_key *key = &node->now.keys[j];
            size_t at = 0;
            while (at < *count && (strcmp(keys[at].key, key->key) != 0 || strcmp(keys[at].policy, key->policy) != 0)) {
                at++;
            }
            if (at == *count) {
                keys[(*count)++] = *key;
            } else {
                keys[at].denied_units += key->denied_units;
                keys[at].error_units += key->error_units;
                keys[at].nodes++;
            }
        }
    }
    if (keys != NULL) {
        qsort(keys, *count, sizeof(*keys), compare_keys);
    }
    return keys;
}

static void add_key_table(struct top_view *view, const struct top_nodes *nodes)
{
    size_t count;
    struct top_key *keys = top_keys_merge(nodes, &count);
    view->no_memory = view->no_memory || keys == NULL;
    add(view, STYLE_NAME, "Keys that are denied most: units, halved every minute");
    if (keys != NULL && count == 0) {
        add(view, STYLE_PLAIN, "none");
    } else if (keys != NULL) {
        add(view, STYLE_NAME, "%-*s %-24s %8s %8s %5s", KEY_WIDTH, "key", "policy", "denied", "error", "nodes");
    }
    for (size_t i = 0; keys != NULL && i < count && i < KEYS_SHOWN; i++) {
        char denied[NUMBER_SIZE];
        char error[NUMBER_SIZE];
        add(view, STYLE_PLAIN, "%-*s %-24.60s %8s %8s %5u", KEY_WIDTH, keys[i].key, keys[i].policy,
            short_number(denied, (double) keys[i].denied_units), short_number(error, (double) keys[i].error_units),
            keys[i].nodes);
    }
    free(keys);
}

void top_view_nodes(struct top_view *view, const struct top_nodes *nodes, enum top_sort sort)
{
    add_node_table(view, nodes);
    add(view, STYLE_PLAIN, "%s", "");
    add_policy_table(view, nodes, sort);
    add(view, STYLE_PLAIN, "%s", "");
    add_key_table(view, nodes);
}

/* The nodes, and the servers that have not answered. */
static void add_fleet_table(struct top_view *view, const weir_inspected_records *read)
{
    char number[NUMBER_SIZE];
    char text[TOP_NAME_SIZE];
    const weir_inspected_fleet *fleet = read->fleet;
    size_t live = 0;
    for (size_t i = 0; i < fleet->node_count; i++) {
        live += fleet->nodes[i].state == WEIR_NODE_LIVE;
    }
    if (read->server_count > 1) {
        add(view, STYLE_NAME, "Nodes: %zu live of %zu, in a Cluster of %zu shards", live, fleet->node_count,
            read->server_count);
    } else {
        (void) plain_line(text, sizeof(text), read->server_count != 0 ? read->servers[0].server : "");
        add(view, STYLE_NAME, "Nodes: %zu live of %zu, in Redis at %.80s", live, fleet->node_count, text);
    }
    for (size_t i = 0; i < read->server_count; i++) {
        if (read->servers[i].error != NULL) {
            (void) plain_line(text, sizeof(text), read->servers[i].error);
            add(view, STYLE_BAD, "a shard is not read: %s", text);
        }
    }
    add(view, STYLE_NAME, "%-16s %-8s %10s", "node", "state", "heartbeat");
    for (size_t i = 0; i < fleet->node_count && i < NODES_SHOWN; i++) {
        const weir_inspected_node *node = &fleet->nodes[i];
        (void) plain_line(text, sizeof(text), node->id);
        add(view, node->state == WEIR_NODE_LIVE ? STYLE_PLAIN : STYLE_BAD, "%-16s %-8s %10s", text,
            node_state_name(node->state), age_words(number, (int64_t) (node->age_ns / NS_PER_MS)));
    }
}

void top_view_fleet(struct top_view *view, const struct fleet_sample *sample)
{
    char number[NUMBER_SIZE];
    if (sample->read != NULL) {
        add_fleet_table(view, sample->read);
    }
    add(view, STYLE_PLAIN, "%s", "");
    add(view, STYLE_NAME, "Hottest records, of a sample: %zu read", sample->read != NULL ? sample->read->use_count : 0);
    add(view, STYLE_NAME, "%-*s %-24s %-10s %10s", KEY_WIDTH, "key", "policy", "limit", "units");
    for (size_t i = 0; i < sample->record_count && i < KEYS_SHOWN; i++) {
        const struct sample_record *record = &sample->records[i];
        add(view, STYLE_PLAIN, "%-*s %-24.60s %-10s %10s", KEY_WIDTH, record->key, record->policy, record->limit,
            short_number(number, (double) record->units));
    }
}

void top_view_help(struct top_view *view)
{
    static const char *const lines[] = {
        "q              quit",
        "up, down, j, k one line",
        "PgUp, PgDn     a screen",
        "Home, End      the first line, the last one",
        "s              sort policies by denied, offered or name",
        "space          read now",
        "p              pause, go on",
        "h, ?           this text, and back",
        "",
        "sync      time since the node's last good sync with Redis",
        "outage    outage mode in force: share, local, open or closed",
        "would/s   checks that shadow mode would have denied",
        "error     units of a key that may be those of other keys",
    };
    add(view, STYLE_NAME, "Keys");
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        add(view, STYLE_PLAIN, "%s", lines[i]);
    }
}
