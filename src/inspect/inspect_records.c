/* SPDX-License-Identifier: Apache-2.0 */
/* A walk over the names in Redis: the answers of src/transport/redis/scripts/read_page.lua. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "algorithm/algorithm.h"
#include "base/clock.h"
#include "base/digits.h"
#include "base/error.h"
#include "base/numbers.h"
#include "inspect/inspector.h"

/* Names of one page: a call takes Redis about as long as a batch of as many reports. */
#define PAGE_MOST  250
#define PAGE_LEAST 10

/* Records by name that are asked for at once. */
#define USES_MOST 250

/* A call of weir_inspect_records or weir_inspect_uses. */
struct walk {
    weir_inspector *in;
    char pattern[2 * INSPECTOR_PREFIX_SIZE + 8];
    size_t page; /* names of one */
    uint64_t end_ns, begun_ns, time_ns;
    weir_inspected_use *uses;
    size_t capacity;
    weir_inspected_server *servers;
    bool out_of_memory;
};

/* Fleet time now, in microseconds. */
static void write_time(const struct walk *walk, char out[DECIMAL_SIZE])
{
    (void) decimal_write(out, (walk->time_ns + clock_monotonic_ns(NULL) - walk->begun_ns) / NS_PER_US);
}

/* The pattern of the names of records: the prefix, whatever bytes it has, and what every record's name has then. */
static void write_pattern(struct walk *walk)
{
    char *to = walk->pattern;
    for (const char *at = walk->in->prefix; *at != '\0'; at++) {
        if (strchr("*?[]\\", *at) != NULL) {
            *to++ = '\\';
        }
        *to++ = *at;
    }
    memcpy(to, ":{*}:*", sizeof(":{*}:*"));
}

/* Reads "PREFIX:{tag}:label:policy:key", behind which a window has its number. False: it is no such name. */
static bool read_name(const weir_inspector *in, char *name, weir_inspected_use *out)
{
    const size_t prefix = strlen(in->prefix);
    char *label = strncmp(name, in->prefix, prefix) == 0 ? strstr(name + prefix, "}:") : NULL;
    char *policy = label != NULL ? strpbrk(label + 2, ":?") : NULL;
    char *key = policy != NULL && *policy == ':' ? strchr(policy + 1, ':') : NULL; /* '?': it stands beside a log */
    if (key == NULL) {
        return false;
    }
    label += 2;
    *policy++ = *key++ = '\0';
    if (*label == algorithm_letter(WEIR_FIXED_WINDOW) || *label == algorithm_letter(WEIR_SLIDING_WINDOW)) {
        char *window = strrchr(key, ':');
        if (window == NULL) {
            return false;
        }
        *window = '\0';
        out->window = strtoull(window + 1, NULL, 10);
    }
    out->limit = label;
    out->policy = policy;
    out->key = key;
    return *key != '\0' && *policy != '\0';
}

/* Adds a record to the answer, if it is one. False: no memory. */
static bool add(struct walk *walk, const char *name, int64_t units)
{
    weir_inspector *in = walk->in;
    if (walk->uses == NULL || in->records.use_count == walk->capacity) {
        const size_t capacity = 2 * walk->capacity + PAGE_MOST;
        weir_inspected_use *larger = realloc(walk->uses, capacity * sizeof(*larger));
        if (larger == NULL) {
            return false;
        }
        walk->uses = larger;
        walk->capacity = capacity;
    }
    const size_t size = strlen(name) + 1;
    char *texts = shelf_take(&in->of_records, 2, size); /* the name, and a copy that is cut to its parts */
    if (texts == NULL) {
        return false;
    }
    memcpy(texts, name, size);
    memcpy(texts + size, name, size);
    weir_inspected_use *use = &walk->uses[in->records.use_count];
    *use = (weir_inspected_use){.record = texts, .units = units > 0 ? (uint64_t) units : 0};
    in->records.use_count += read_name(in, texts + size, use);
    return true;
}

/* Whether a shard's number is still that of its server: a slot map may have come since. */
static bool is_there(const weir_inspector *in, size_t number)
{
    const char *server = inspector_shard(in, number);
    return server != NULL && strcmp(server, in->shards[number].server) == 0;
}

/* Asks a server for its next page. Not 0: it has given none, or none of use. */
static int read_page(struct walk *walk, size_t number, weir_error *error)
{
    weir_inspector *in = walk->in;
    struct walk_shard *shard = &in->shards[number];
    char count[DECIMAL_SIZE];
    char time_us[DECIMAL_SIZE];
    (void) decimal_write(count, walk->page);
    write_time(walk, time_us);
    struct inspection page = {
        .kind = INSPECT_PAGE, .words = {shard->cursor, walk->pattern, count, time_us}, .shard = number};
    int result = inspector_ask(in, &page, error);
    if (result == 0 && !is_there(in, number)) {
        result = error_set(error, -EIO, "Redis at %s: the servers of the Cluster have changed", shard->server);
    }
    if (result == 0 && page.count == 1 && page.all[0].number == 1) {
        in->records.refused = true;
    } else if (result == 0 && (page.count < 2 || page.all[1].text == NULL)) {
        result = error_set(error, -EPROTO, "Redis at %s: an answer of an unknown form", shard->server);
    }
    if (result == 0 && !in->records.refused) {
        (void) snprintf(shard->cursor, sizeof(shard->cursor), "%s", page.all[1].text);
        for (size_t i = 2; i + 2 <= page.count && !walk->out_of_memory; i += 2) {
            walk->out_of_memory = page.all[i].text != NULL && !add(walk, page.all[i].text, page.all[i + 1].number);
        }
    }
    inspection_free(&page);
    return result;
}

/* Says which server has not answered, and why, as far as that is known of this one. */
static void tell_error(struct walk *walk, size_t number, const weir_error *why)
{
    const char *server = walk->in->shards[number].server;
    char own[200];
    (void) snprintf(own, sizeof(own), "Redis at %s: ", server);
    if (strncmp(why->message, own, strlen(own)) != 0) {
        (void) snprintf(own, sizeof(own), "Redis at %s: no answer", server);
        walk->servers[number].error = shelf_text(&walk->in->of_records, own);
    } else {
        walk->servers[number].error = shelf_text(&walk->in->of_records, why->message);
    }
    walk->out_of_memory = walk->out_of_memory || walk->servers[number].error == NULL;
}

/* Walks on over the names of one server, until it has looked at so many, has reached the end, or has no time. */
static void walk_shard(struct walk *walk, size_t number, size_t names)
{
    weir_inspector *in = walk->in;
    struct walk_shard *shard = &in->shards[number];
    const uint64_t now_ns = clock_monotonic_ns(NULL);
    const uint64_t end_ns = now_ns + saturating_sub(walk->end_ns, now_ns) / (in->shard_count - number);
    weir_error error = {.code = 0};
    size_t seen = 0;
    int result = 0;
    while (result == 0 && !in->records.refused && !walk->out_of_memory && !shard->ended && seen < names &&
           (seen == 0 || clock_monotonic_ns(NULL) < end_ns)) {
        result = is_there(in, number) ? read_page(walk, number, &error) : -EIO;
        seen += result == 0 ? walk->page : 0;
        shard->ended = result == 0 && !in->records.refused && strcmp(shard->cursor, "0") == 0;
    }
    walk->servers[number] = (weir_inspected_server){.server = shelf_text(&in->of_records, shard->server)};
    walk->out_of_memory = walk->out_of_memory || walk->servers[number].server == NULL;
    if (result != 0 && seen == 0) {
        tell_error(walk, number, &error);
    }
}

/* Finds the servers. A walk over one that was there before goes on. */
static void find_shards(weir_inspector *in)
{
    struct walk_shard before[INSPECTOR_SHARDS];
    const size_t count = in->shard_count;
    memcpy(before, in->shards, sizeof(before));
    in->shard_count = 0;
    for (const char *server = inspector_shard(in, 0); server != NULL && in->shard_count < INSPECTOR_SHARDS;
         server = inspector_shard(in, in->shard_count)) {
        struct walk_shard *shard = &in->shards[in->shard_count++];
        *shard = (struct walk_shard){.cursor = "0"};
        (void) snprintf(shard->server, sizeof(shard->server), "%s", server);
        for (size_t i = 0; i < count; i++) {
            *shard = strcmp(before[i].server, shard->server) == 0 ? before[i] : *shard;
        }
    }
}

/* Notes whether the walk has reached the end on each server; then the next one begins anew. */
static void note_end(weir_inspector *in)
{
    bool ended = !in->records.refused;
    for (size_t i = 0; i < in->shard_count; i++) {
        ended = ended && in->shards[i].ended;
    }
    in->records.ended = ended;
    for (size_t i = 0; i < in->shard_count && ended; i++) {
        in->shards[i].ended = false; /* its cursor is "0" */
    }
}

/* Whether no server has answered: then the first sentence is that of the call. */
static int check_answers(const weir_inspector *in, weir_error *error)
{
    for (size_t i = 0; i < in->records.server_count; i++) {
        if (in->records.servers[i].error == NULL) {
            return 0;
        }
    }
    return error_set(error, -EIO, "%s", in->records.server_count != 0 ? in->records.servers[0].error : "no answer");
}

/* Begins a call: the fleet's time, after which the servers are known. */
static int begin(weir_inspector *in, struct walk *walk, weir_error *error)
{
    const weir_inspected_fleet *fleet;
    *walk = (struct walk){.in = in, .begun_ns = clock_monotonic_ns(NULL)};
    shelf_clear(&in->of_records);
    in->records = (weir_inspected_records){.use_count = 0};
    const int result = weir_inspect_fleet(in, &fleet, error);
    if (result == 0) {
        in->records.fleet = fleet;
        walk->time_ns = fleet->time_ns;
        find_shards(in);
        walk->servers = shelf_take(&in->of_records, in->shard_count + 1, sizeof(*walk->servers));
        walk->out_of_memory = walk->servers == NULL;
    }
    return result;
}

/* Ends a call with its records. */
static int finish(struct walk *walk, const weir_inspected_records **out, weir_error *error)
{
    weir_inspector *in = walk->in;
    weir_inspected_use *uses = shelf_take(&in->of_records, in->records.use_count + 1, sizeof(*uses));
    if (uses != NULL && walk->uses != NULL) {
        memcpy(uses, walk->uses, in->records.use_count * sizeof(*uses));
    }
    free(walk->uses);
    in->records.uses = uses;
    in->records.servers = walk->servers;
    if (walk->out_of_memory || uses == NULL) {
        return error_set(error, -ENOMEM, "out of memory");
    }
    *out = &in->records;
    return error_clear(error);
}

int weir_inspect_records(weir_inspector *in, size_t names, uint32_t timeout_ms, const weir_inspected_records **out,
                         weir_error *error)
{
    struct walk walk;
    *out = NULL;
    int result = begin(in, &walk, error);
    if (result != 0) {
        return result;
    }
    walk.end_ns = walk.begun_ns + timeout_ms * NS_PER_MS;
    write_pattern(&walk);
    const size_t each = max_u64(names / max_u64(in->shard_count, 1), 1);
    walk.page = each > PAGE_MOST ? PAGE_MOST : each < PAGE_LEAST ? PAGE_LEAST : each;
    for (size_t i = 0; i < in->shard_count && !walk.out_of_memory; i++) {
        walk_shard(&walk, i, each);
        in->records.server_count = i + 1;
    }
    note_end(in);
    result = finish(&walk, out, error);
    if (result == 0 && check_answers(in, error) != 0) {
        *out = NULL;
        result = -EIO;
    }
    return result;
}

/* Whether a name is a record's. */
static bool is_record(const weir_inspector *in, const char *name)
{
    char copy[REPORT_RECORD_SIZE];
    weir_inspected_use use;
    if (strlen(name) >= sizeof(copy)) {
        return false;
    }
    memcpy(copy, name, strlen(name) + 1);
    return read_name(in, copy, &use);
}

/* Reads some records. */
static int read_uses(struct walk *walk, const char *const *records, size_t count, weir_error *error)
{
    weir_inspector *in = walk->in;
    struct inspection asked[USES_MOST];
    char time_us[DECIMAL_SIZE];
    write_time(walk, time_us);
    size_t asked_count = 0;
    for (size_t i = 0; i < count; i++) {
        if (is_record(in, records[i])) {
            asked[asked_count++] =
                (struct inspection){.kind = INSPECT_USE, .words = {records[i], time_us}, .key_count = 1};
        }
    }
    struct round round = {.node = "reader", .reads = true, .inspections = asked, .inspection_count = asked_count};
    const int result = asked_count != 0 ? inspector_round(in, &round, true, error) : 0;
    for (size_t i = 0; i < asked_count; i++) {
        if (result == 0 && asked[i].status == 0 && asked[i].count == 2 && !walk->out_of_memory) {
            walk->out_of_memory = !add(walk, asked[i].words[0], asked[i].all[1].number);
        } else if (result == 0 && asked[i].status == 0) {
            in->records.refused = true;
        }
        inspection_free(&asked[i]);
    }
    return result;
}

int weir_inspect_uses(weir_inspector *in, const char *const *records, size_t count, const weir_inspected_records **out,
                      weir_error *error)
{
    struct walk walk;
    *out = NULL;
    int result = begin(in, &walk, error);
    if (result != 0) {
        return result;
    }
    for (size_t at = 0; at < count && result == 0; at += USES_MOST) {
        result = read_uses(&walk, records + at, (size_t) min_u64(count - at, USES_MOST), error);
    }
    const int finished = finish(&walk, out, result == 0 ? error : NULL);
    *out = result == 0 ? *out : NULL;
    return result != 0 ? result : finished;
}
