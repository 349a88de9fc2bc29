/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What commands of weir read in Redis, where anybody may have written it: nodes, records of keys, overrides and their
 * notes. Whatever the answers are, what is made of them is within its bounds, or it is said that there is none.
 *
 * An input is the reader (1 byte), and the answers in the protocol of Redis, one behind the other.
 */
#include <errno.h>

#include "../../apps/weir/fleet/fleet_nodes.h"
#include "../../apps/weir/fleet/key_record.h"
#include "../../apps/weir/override_hash.h"
#include "../../apps/weir/override_notes.h"
#include "../../apps/weir/top/fleet_sample.h"
#include "../../apps/weir/top/top_view.h"
#include "base/error.h"
#include "fuzz.h"
#include "redis_server.h"

#define UNITS_MOST (UINT64_C(1) << 53)

/* Where the answers come from. */
static struct socket server;

redisReply *redis_link_receive(struct redis_link *link, weir_error *error)
{
    redisReply *reply = NULL;
    (void) link;
    if (socket_reply(&server, &reply) != 1) {
        (void) error_set(error, -ENOTCONN, "Redis has gone");
        return NULL;
    }
    return reply;
}

redisReply *redis_link_call(struct redis_link *link, int argc, const char **argv, weir_error *error)
{
    redisReply *reply = redis_link_receive(link, error);
    CHECK(argc >= 1 && argv[argc - 1] != NULL);
    if (reply != NULL && reply->type == REDIS_REPLY_ERROR) {
        (void) error_set(error, strncmp(reply->str, "WRONGTYPE", 9) == 0 ? -EPROTOTYPE : -EIO, "Redis: %.100s",
                         reply->str);
        freeReplyObject(reply);
        reply = NULL;
    }
    return reply;
}

bool redis_link_send(struct redis_link *link, int argc, const char **argv, weir_error *error)
{
    (void) link;
    (void) error;
    CHECK(argc >= 1 && argv[argc - 1] != NULL);
    return true;
}

bool redis_link_is_wrong_type(const weir_error *error)
{
    return error->code == -EPROTOTYPE;
}

bool redis_link_find_shards(struct redis_link *link, weir_error *error)
{
    (void) error;
    link->shard_count = 1;
    return true;
}

bool redis_link_choose(struct redis_link *link, size_t shard, weir_error *error)
{
    (void) link;
    (void) error;
    CHECK(shard == 0);
    return true;
}

const char *redis_link_server(const struct redis_link *link)
{
    (void) link;
    return "10.0.0.5:6379";
}

const char *redis_link_shard(const struct redis_link *link, size_t shard)
{
    CHECK(shard == 0);
    return redis_link_server(link);
}

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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct redis_link link;
    struct input in = {data, data + size};
    weir_error error = {.code = 0};
    const unsigned reader = input_choice(&in, 7);
    server_open(&server, in, SIZE_MAX);
    switch (reader) {
    case 0:
        read_nodes(&link, &error);
        break;
    case 1:
    case 2:
        read_record(&link, reader == 2, &error);
        break;
    case 3:
        read_sample(&link, &error);
        break;
    case 4:
        read_overrides(&link, &error);
        break;
    default:
        read_notes(&link, reader == 6, &error);
        break;
    }
    socket_free(&server);
    return 0;
}
