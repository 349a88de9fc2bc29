/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See key_record.h. The forms of the fields are those of src/transport/redis/scripts/counts.lua, report_bucket.lua and
 * report_history.lua. A field that weir has not written counts as it does there: as zeros.
 */
#include "key_record.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/numbers.h"
#include "transport/author.h"

/* The member of a sliding log that marks a reset. */
static const char reset_member[] = "!reset";

struct counts {
    int64_t net; /* of an author: what it admitted */
    uint64_t demand, refunds;
};

static bool fail_memory(weir_error *error)
{
    return error_set(error, -ENOMEM, "out of memory") == 0;
}

static bool fail_form(const struct key_record *record, weir_error *error)
{
    return error_set(error, -EPROTO, "%.150s: Redis gave an answer of an unknown form", record->name) == 0;
}

/* "count", "count demand", "count demand refunds" or "count demand refunds reset" */
static struct counts read_counts(const char *field)
{
    struct counts counts = {.net = 0};
    uint64_t reset = 0;
    int taken[4] = {0, 0, 0, 0};
    /* NOLINTNEXTLINE(cert-err34-c): the numbers below say how much of the field was read */
    (void) sscanf(field, "%" SCNd64 "%n %" SCNu64 "%n %" SCNu64 "%n %" SCNu64 "%n", &counts.net, &taken[0],
                  &counts.demand, &taken[1], &counts.refunds, &taken[2], &reset, &taken[3]);
    size_t numbers = 0;
    while (numbers < 4 && taken[numbers] != 0) {
        numbers++;
    }
    const uint64_t most = INT64_MAX - 1023; /* scripts/counts.lua */
    const bool whole = numbers != 0 && field[taken[numbers - 1]] == '\0';
    const bool negative = counts.net < 0 && (numbers < 3 || UINT64_C(0) - (uint64_t) counts.net > counts.refunds);
    if (!whole || negative || (counts.net > 0 && (uint64_t) counts.net > most) || counts.refunds > most) {
        return (struct counts){.net = 0};
    }
    if (numbers == 1) {
        counts.demand = (uint64_t) counts.net;
    }
    return counts;
}

#define NUMBER_END (UINT64_C(1) << 53) /* of what the scripts have exactly */

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

/* The part of an author's node. NULL: no memory. */
static struct record_part *part_of(struct key_record *record, const struct fleet_nodes *nodes, const char *author)
{
    char node[FLEET_NODE_SIZE];
    name_node(nodes, author, node);
    for (size_t i = 0; i < record->part_count; i++) {
        if (strcmp(record->parts[i].node, node) == 0) {
            return &record->parts[i];
        }
    }
    if (record->part_count % 64 == 0) {
        struct record_part *larger =
            realloc(record->parts, (record->part_count + 64) * sizeof(*larger)); /* fleets have few nodes */
        if (larger == NULL) {
            return NULL;
        }
        record->parts = larger;
    }
    struct record_part *part = &record->parts[record->part_count++];
    *part = (struct record_part){.admitted = 0};
    memcpy(part->node, node, sizeof(node));
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

static void sort_parts(struct key_record *record)
{
    if (record->part_count != 0) {
        qsort(record->parts, record->part_count, sizeof(*record->parts), compare_parts);
    }
}

/* A field of tat or unit; 0: none, or weir has not written it. */
static uint64_t read_number(const char *field)
{
    char *end;
    const uint64_t number = strtoull(field, &end, 10);
    return *field >= '0' && *field <= '9' && *end == '\0' && number <= NUMBER_END ? number : 0;
}

/* The value of a field; NULL: there is none. */
static const char *field_of(const redisReply *reply, const char *name)
{
    for (size_t i = 0; i + 1 < reply->elements; i += 2) {
        if (strcmp(reply->element[i]->str, name) == 0) {
            return reply->element[i + 1]->str;
        }
    }
    return NULL;
}

/* Takes the fields that are of all authors. */
static void take_sums(struct key_record *out, const redisReply *reply)
{
    const char *sum = field_of(reply, "sum");
    const char *unit = field_of(reply, "unit");
    if (sum != NULL) {
        const struct counts counts = read_counts(sum);
        out->net = counts.net > 0 ? (uint64_t) counts.net : 0;
        out->demand = counts.demand;
        out->refunds = counts.refunds;
    }
    if (unit != NULL) {
        char name[64];
        out->unit_ps = read_number(unit);
        (void) snprintf(name, sizeof(name), "tat:%.40s", unit);
        const char *tat = field_of(reply, name);
        out->tat_us = tat != NULL ? read_number(tat) : 0;
    }
}

static bool is_author(const char *name)
{
    static const char *const others[] = {"sum", "unit", "base", "mark", "parts"};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        if (strcmp(name, others[i]) == 0) {
            return false;
        }
    }
    return strchr(name, ':') == NULL;
}

/* Takes the counts of the authors of a hash. */
static bool take_counts(struct key_record *out, const redisReply *reply, const struct fleet_nodes *nodes,
                        weir_error *error)
{
    for (size_t i = 0; i < reply->elements; i += 2) {
        if (is_author(reply->element[i]->str)) {
            const struct counts counts = read_counts(reply->element[i + 1]->str);
            struct record_part *part = part_of(out, nodes, reply->element[i]->str);
            if (part == NULL) {
                return fail_memory(error);
            }
            part->admitted = saturating_add(part->admitted, (uint64_t) counts.net);
            part->demand = saturating_add(part->demand, counts.demand);
            part->refunds = saturating_add(part->refunds, counts.refunds);
        }
    }
    return true;
}

/* Asks for a record. NULL: no answer, or one of another type, which `record` then says. */
static redisReply *ask(struct redis_link *link, struct key_record *record, int argc, const char **argv,
                       weir_error *error)
{
    redisReply *reply = redis_link_call(link, argc, argv, error);
    if (reply == NULL) {
        record->wrong_type = redis_link_is_wrong_type(error);
        record->exists = record->wrong_type;
        return NULL;
    }
    bool good = reply->type == REDIS_REPLY_ARRAY && reply->elements % 2 == 0;
    for (size_t i = 0; good && i < reply->elements; i++) {
        good = reply->element[i]->type == REDIS_REPLY_STRING;
    }
    if (!good) {
        (void) fail_form(record, error);
        freeReplyObject(reply);
        return NULL;
    }
    return reply;
}

bool key_record_read_counts(struct redis_link *link, struct key_record *out, const struct fleet_nodes *nodes,
                            weir_error *error)
{
    const char *call[] = {"HGETALL", out->name};
    redisReply *reply = ask(link, out, 2, call, error);
    if (reply == NULL) {
        return out->wrong_type;
    }
    out->exists = reply->elements != 0;
    take_sums(out, reply);
    bool good = take_counts(out, reply, nodes, error);
    const char *mark = field_of(reply, "mark");
    const char *parts = mark != NULL ? field_of(reply, "parts") : NULL;
    for (; good && parts != NULL && *parts == ',' && parts[1] != '\0'; parts = strchr(parts + 1, ',')) {
        struct key_record part = {.exists = false};
        const int stem = (int) strcspn(out->name, "}");
        (void) snprintf(part.name, sizeof(part.name), "%.*s}{%lu.%.40s}", stem, out->name, strtoul(parts + 1, NULL, 10),
                        mark);
        const char *ask_part[] = {"HGETALL", part.name};
        redisReply *authors = ask(link, &part, 2, ask_part, error);
        good = authors != NULL ? take_counts(out, authors, nodes, error) : part.wrong_type;
        freeReplyObject(authors);
    }
    freeReplyObject(reply);
    sort_parts(out);
    return good;
}

/* Takes the members {author:number, time, ...}. */
static bool take_units(struct key_record *out, const redisReply *reply, const struct fleet_nodes *nodes,
                       weir_error *error)
{
    out->times_us = calloc(reply->elements / 2 + 1, sizeof(*out->times_us));
    if (out->times_us == NULL) {
        return fail_memory(error);
    }
    for (size_t i = 0; i < reply->elements; i += 2) {
        char author[FLEET_NODE_SIZE + 24];
        const char *member = reply->element[i]->str;
        const double time_us = strtod(reply->element[i + 1]->str, NULL);
        if (!(time_us >= 0 && time_us < (double) NUMBER_END)) {
            continue; /* the next report removes it */
        }
        if (strcmp(member, reset_member) == 0) {
            out->reset_us = (uint64_t) time_us;
            continue;
        }
        const char *colon = strrchr(member, ':');
        (void) snprintf(author, sizeof(author), "%.*s", colon != NULL ? (int) (colon - member) : 0, member);
        struct record_part *part = part_of(out, nodes, author);
        if (part == NULL) {
            return fail_memory(error);
        }
        part->admitted++;
        out->times_us[out->time_count++] = (uint64_t) time_us;
    }
    out->net = out->time_count;
    return true;
}

/* Takes the hash of authors: "demand time units". */
static bool take_authors(struct key_record *out, const redisReply *reply, const struct fleet_nodes *nodes,
                         weir_error *error)
{
    for (size_t i = 0; i < reply->elements; i += 2) {
        uint64_t demand = 0;
        uint64_t reported = 0;
        /* NOLINTNEXTLINE(cert-err34-c): a field that weir has not written counts as zeros */
        if (sscanf(reply->element[i + 1]->str, "%" SCNu64 " %" SCNu64 " ", &demand, &reported) != 2 ||
            demand >= REPORT_HISTORY_DEMAND || reported > NUMBER_END) {
            demand = reported = 0;
        }
        struct record_part *part = part_of(out, nodes, reply->element[i]->str);
        if (part == NULL) {
            return fail_memory(error);
        }
        part->demand += demand;
        part->reported_us = reported > part->reported_us ? reported : part->reported_us;
        out->demand += demand;
    }
    return true;
}

bool key_record_read_log(struct redis_link *link, struct key_record *out, const struct fleet_nodes *nodes,
                         const char *demand_record, uint64_t most, weir_error *error)
{
    char first[24];
    (void) snprintf(first, sizeof(first), "-%" PRIu64, most + 1); /* and the mark of a reset */
    const char *call[] = {"ZRANGE", out->name, first, "-1", "WITHSCORES"};
    redisReply *reply = ask(link, out, 5, call, error);
    if (reply == NULL) {
        return out->wrong_type;
    }
    out->exists = reply->elements != 0;
    bool good = take_units(out, reply, nodes, error);
    freeReplyObject(reply);
    struct key_record authors = {.exists = false};
    (void) snprintf(authors.name, sizeof(authors.name), "%s", demand_record);
    const char *demand[] = {"HGETALL", demand_record};
    reply = good ? ask(link, &authors, 2, demand, error) : NULL;
    good = good && (reply != NULL ? take_authors(out, reply, nodes, error) : authors.wrong_type);
    freeReplyObject(reply);
    sort_parts(out);
    return good;
}

void key_record_free(struct key_record *record)
{
    free(record->parts);
    free(record->times_us);
    record->parts = NULL;
    record->times_us = NULL;
    record->part_count = record->time_count = 0;
}
