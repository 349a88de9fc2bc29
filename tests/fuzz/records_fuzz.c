/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What commands of weir read in Redis, where anybody may have written it: nodes, records of keys, overrides and their
 * notes. Whatever the answers are, what is made of them is within its bounds, or it is said that there is none.
 *
 * An input is the reader and the kind of the URL, a digit each, and the answers of all servers in the protocol of
 * Redis.
 */
#include "../../apps/weir/fleet/fleet_nodes.h"
#include "../../apps/weir/fleet/key_record.h"
#include "../../apps/weir/override_hash.h"
#include "../../apps/weir/override_notes.h"
#include "../../apps/weir/top/fleet_sample.h"
#include "../../apps/weir/top/top_view.h"
#include "fuzz.h"
#include "redis_server.h"

#define UNITS_MOST (UINT64_C(1) << 53)

static void check_result(bool good, const weir_error *error)
{
    if (!good) {
        CHECK(error->code < 0);
        check_sentence(error->message, sizeof(error->message));
    }
}

static void read_nodes(struct redis_link *link, weir_error *error)
{
    struct fleet_nodes nodes;
    check_result(fleet_nodes_read(link, "weir", &nodes, error), error);
    for (size_t i = 0; i < nodes.count; i++) {
        const struct fleet_node *node = &nodes.all[i];
        CHECK(memchr(node->id, '\0', sizeof(node->id)) != NULL && node->id[0] != '\0');
        CHECK(i == 0 || nodes.all[i - 1].reported_ms >= node->reported_ms);
        CHECK(fleet_nodes_find(&nodes, node->id) != NULL && fleet_node_state_name(node->state) != NULL);
        const uint64_t age_ms = fleet_node_age_ms(&nodes, node);
        CHECK((node->state == FLEET_NODE_FAILED) == (age_ms >= node->lifetime_ms));
    }
    fleet_nodes_free(&nodes);
}

static void check_record(const struct key_record *record)
{
    CHECK(record->net < UNITS_MOST || record->net == record->time_count);
    CHECK(record->tat_us <= UNITS_MOST && record->unit_ps <= UNITS_MOST);
    for (size_t i = 0; i < record->part_count; i++) {
        const struct record_part *part = &record->parts[i];
        CHECK(memchr(part->node, '\0', sizeof(part->node)) != NULL && part->reported_us <= UNITS_MOST);
        CHECK(i == 0 || record->parts[i - 1].admitted >= part->admitted);
    }
    for (size_t i = 0; i < record->time_count; i++) {
        CHECK(record->times_us[i] < UNITS_MOST);
    }
}

static void read_record(struct redis_link *link, bool is_log, weir_error *error)
{
    struct key_record record = {.name = "weir:{000}:t100/1s:api:k"};
    const bool good = is_log ? key_record_read_log(link, &record, "weir:{000}:l100/1s:api?:k", 100, error)
                             : key_record_read_counts(link, &record, error);
    check_result(good, error);
    if (good) {
        check_record(&record);
    }
    key_record_free(&record);
}

static void read_sample(struct redis_link *link, weir_error *error)
{
    struct fleet_sample sample;
    struct top_view view = {.count = 0};
    CHECK(fleet_sample_open(&sample, "weir", 20));
    for (unsigned reading = 0; reading < 2; reading++) {
        check_result(fleet_sample_read(&sample, link, error), error);
        for (size_t i = 0; i < sample.record_count; i++) {
            const struct sample_record *record = &sample.records[i];
            CHECK(record->units >= 0 && memchr(record->name, '\0', sizeof(record->name)) != NULL);
            CHECK(i == 0 || sample.records[i - 1].units >= record->units || reading != 0);
        }
        top_view_fleet(&view, &sample, "10.0.0.5:6379");
    }
    for (size_t i = 0; i < view.count; i++) {
        CHECK(memchr(view.lines[i].text, '\0', VIEW_LINE_SIZE) != NULL);
        CHECK(strpbrk(view.lines[i].text, "\r\n\t\x1b\x7f") == NULL);
    }
    top_view_free(&view);
    fleet_sample_close(&sample);
}

static void read_overrides(struct redis_link *link, weir_error *error)
{
    struct hash_entries entries;
    const bool good = override_hash_list(link, "weir:overrides", &entries, error);
    check_result(good, error);
    for (size_t i = 1; i < entries.count && good; i++) {
        CHECK(strcmp(entries.all[i - 1].name, entries.all[i].name) < 0);
    }
    for (size_t i = 0; i < entries.count; i++) {
        (void) override_notes_ended(entries.all[i].value);
    }
    override_hash_free(&entries);
}

/* Sentinels and servers of a Cluster name others. */
static void find_shards(struct redis_link *link, weir_error *error)
{
    const char *call[] = {"GET", "k"};
    check_result(redis_link_find_shards(link, error), error);
    CHECK(link->shard_count <= REDIS_LINK_SERVERS);
    for (size_t i = 0; i < link->shard_count; i++) {
        CHECK(redis_link_shard(link, i) != NULL);
        if (redis_link_choose(link, i, error)) {
            freeReplyObject(redis_link_call(link, 2, call, error));
        }
        CHECK(link->present != NULL && redis_link_server(link) != NULL);
    }
}

static void read_notes(struct redis_link *link, bool is_log, weir_error *error)
{
    struct override_notes notes;
    check_result(override_notes_read(link, "weir:overrides", is_log, &notes, error), error);
    for (size_t i = 0; i < notes.count; i++) {
        char time[OVERRIDE_TIME_SIZE];
        CHECK(i == 0 || notes.all[i - 1].version <= notes.all[i].version);
        CHECK(override_notes_find(&notes, notes.all[i].name, notes.all[i].value) != NULL);
        override_notes_time(notes.all[i].at_s, time);
        check_sentence(time, sizeof(time));
    }
    override_notes_free(&notes);
}

static void read_all(struct redis_link *link, unsigned reader, weir_error *error)
{
    switch (reader) {
    case 0:
        read_nodes(link, error);
        break;
    case 1:
    case 2:
        read_record(link, reader == 2, error);
        break;
    case 3:
        read_sample(link, error);
        break;
    case 4:
        read_overrides(link, error);
        break;
    case 5:
    case 6:
        read_notes(link, reader == 6, error);
        break;
    default:
        find_shards(link, error);
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const urls[] = {"redis://10.0.0.5", "redis+cluster://u:p@10.0.0.5,10.0.0.6",
                                       "redis+sentinel://10.0.0.5,10.0.0.6/main", "redis://10.0.0.5,10.0.0.6/3"};
    struct input in = {data, data + size};
    struct redis_link link;
    weir_error error = {.code = 0};
    const unsigned reader = input_choice(&in, 8);
    const char *url = urls[input_choice(&in, COUNT_OF(urls))];
    server_sends = in;
    const enum redis_link_result opened = redis_link_open(&link, url, &error);
    CHECK(opened != REDIS_LINK_URL);
    check_result(opened == REDIS_LINK_GOOD, &error);
    if (opened == REDIS_LINK_GOOD) {
        read_all(&link, reader, &error);
    }
    redis_link_close(&link);
    return 0;
}
